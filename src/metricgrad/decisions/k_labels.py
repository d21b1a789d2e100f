"""Budgeted decisions: the best k labels of each row for a macro metric of all rows [schultheis2023, schultheis2024].

Which labels a row should get depends on the labels of all other rows: a label that no row has yet adds more to a macro
average than one that many rows have. ``choose_k_labels`` chooses for given rows together, ``tune_top_k`` finds a rule
for single rows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.core.counts import Counts, cells, round_for_sums
from metricgrad.core.inputs import as_tensor, as_type_of, whole_number
from metricgrad.core.objective import Objective
from metricgrad.core.sparse import (
    SparseBatch,
    as_scored_batch_or_sparse,
    as_sparse_batch,
    as_sparse_like,
    find_group_starts,
    is_sparse,
)
from metricgrad.decisions import hard_counts
from metricgrad.decisions.rules import WeightedTopK

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.metrics import Metric

_PROBABILITIES_AT_ONCE = 1 << 20
_FEWEST_BLOCKS = 16
_MOST_BLOCKS = 2048
_ROWS_ONE_BY_ONE = 512  # up to this many rows, each row is a block of its own
_GAIN_TO_REPEAT = 1e-4  # relative to the value; after a larger gain, the next sweep has blocks of the same size
_GAIN_TO_GO_ON = 1e-6  # relative to the value; after a smaller gain with the smallest blocks, the ascent ends
_MIXTURES = 64  # shares of the new rule's counts that each step of ``tune_top_k`` tries
_LEAST_IMPROVEMENT = 1e-9  # a step of ``tune_top_k`` that gains less is the last


def choose_k_labels(
    metric: str | Metric, probabilities: Any, k: int, *, at_most: bool = False, starts: int = 1, seed: int = 0
) -> Any:
    """Choose k labels for each row so that a macro metric of all rows together is expected to be highest.

    The metric is computed from expected counts (the expected TP of a label is Σ p over the rows that get it) and
    averaged over labels. Rows take turns: each gets the labels that add most, given those of all other rows, until
    nothing changes [schultheis2023]. The search starts from the k most probable labels of each row and ends in a local
    optimum; with few rows, more ``starts`` find better ones.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts``.
    probabilities : Tensor, array-like or sparse matrix
        ``(N, K)`` marginal probabilities. Of a scipy sparse matrix only labels that are stored and above 0 are chosen:
        a row with fewer than k of them gets fewer than k labels.
    k : int
        How many labels each row gets, from 1 to the number of labels.
    at_most : bool, default False
        Leave out labels that would make the metric lower, so that rows may have fewer than k.
    starts : int, default 1
        From how many starts to search; all but the first are random. The best result is returned.
    seed : int, default 0
        Random seed of the starts.

    Returns
    -------
    Tensor, ndarray or sparse matrix
        Bools ``(N, K)``; torch for torch, sparse for sparse, numpy otherwise.

    Raises
    ------
    ValueError
        If these are no probabilities, or k is not a number of labels.

    See Also
    --------
    tune_top_k : A rule for new rows, one by one.

    Examples
    --------
    >>> p = torch.tensor([[0.9, 0.5], [0.8, 0.1], [0.9, 0.2]])
    >>> choose_k_labels("f1", p, 1)                     # the most probable label alone would never be the second
    tensor([[False,  True],
            [ True, False],
            [ True, False]])

    """
    k = whole_number("k", k, 1)
    objective = Objective("multilabel", metric)
    if is_sparse(probabilities):
        stored = as_sparse_batch(probabilities)
        _check_probabilities(stored.logits)
        stored.logits = round_for_sums(stored.logits.double(), stored.rows)
        rows: _Rows = _StoredRows(stored)
    else:
        p = as_tensor("probabilities", probabilities)
        if p.dim() != 2 or not 1 <= k <= p.shape[1]:
            raise ValueError(
                f"k: expected 1 to the number of labels of (N, K) probabilities, got {k} for {tuple(p.shape)}"
            )
        _check_probabilities(p)
        rows = _DenseRows(p)
    ascent = _BlockAscent(objective, rows, k, at_most)
    generator = torch.Generator().manual_seed(seed)
    values_and_choices = [ascent.climb()]
    for _ in range(1, whole_number("starts", starts, 1)):
        values_and_choices.append(ascent.climb(generator))
    _, chosen = max(values_and_choices, key=lambda value_and_choice: value_and_choice[0])
    decided = rows.mark_chosen(chosen)
    return (
        as_sparse_like(probabilities, stored, decided)
        if is_sparse(probabilities)
        else as_type_of(probabilities, decided)
    )


class _DenseRows:
    """Probabilities of all labels: every label is a candidate of every row."""

    def __init__(self, probabilities: Tensor) -> None:
        self.probabilities = probabilities
        self.rows, self.classes = probabilities.shape
        self.width = self.classes

    def sum_positives(self) -> Tensor:
        """Return the expected number of positives of each label."""
        total = torch.zeros(self.classes).double()
        rows_at_once = max(1, _PROBABILITIES_AT_ONCE // self.classes)
        for rows in torch.arange(self.rows).split(rows_at_once):
            probabilities, _ = self.list_candidates(rows)
            total = total + probabilities.sum(0)
        return total

    def list_candidates(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities and the labels of the candidates of some rows; -1 for none."""
        rounded = round_for_sums(self.probabilities[rows].double(), self.rows)
        return rounded, torch.arange(self.classes).expand(len(rows), -1)

    def mark_chosen(self, chosen: Tensor) -> Tensor:
        """Return the candidates that were chosen, ``(N, k)`` places or -1, as bools."""
        marked = torch.zeros(self.rows, self.classes + 1, dtype=torch.bool)  # the last column is for places of -1
        columns = torch.where(chosen < 0, self.classes, chosen)
        marked.scatter_(1, columns, True)
        return marked[:, :-1]


class _StoredRows:
    """Probabilities of the stored labels: these are the candidates of a row."""

    def __init__(self, batch: SparseBatch) -> None:
        self.batch = batch
        self.rows = batch.rows
        self.classes = batch.classes
        self.starts = find_group_starts(batch.row, batch.rows)
        self.width = int(self.starts.diff().max()) if batch.rows else 0

    def sum_positives(self) -> Tensor:
        """Return the expected number of positives of each label."""
        total = torch.zeros(self.classes, dtype=torch.float64)
        return total.index_add_(0, self.batch.label, self.batch.logits.double())

    def list_candidates(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities and the labels of the candidates of some rows; -1 for none."""
        start = self.starts[rows].unsqueeze(1)
        length = self.starts.diff()[rows].unsqueeze(1)
        place = torch.arange(self.width)
        is_stored = place < length
        element = torch.where(is_stored, start + place, 0)
        probabilities = self.batch.logits[element].double()
        is_candidate = is_stored & (probabilities > 0)
        return probabilities.where(is_candidate, 0), self.batch.label[element].where(is_candidate, -1)

    def mark_chosen(self, chosen: Tensor) -> Tensor:
        """Return the candidates that were chosen, ``(N, k)`` places or -1, as bools of the stored elements."""
        elements = self.starts[:-1].unsqueeze(1) + chosen
        marked = torch.zeros(len(self.batch.row), dtype=torch.bool)
        marked[elements[chosen >= 0]] = True
        return marked


_Rows = _DenseRows | _StoredRows


class _BlockAscent:
    """Block-coordinate ascent: a block of rows at a time gets the labels that add most, given those of all others.

    Large blocks are fast, but the rows of a block do not see each other's changes. A sweep that lowers the value is
    undone, and whenever a sweep gains little the blocks become smaller, down to single rows where there are few.
    """

    def __init__(self, objective: Objective, rows: _Rows, k: int, at_most: bool) -> None:
        self.objective = objective
        self.rows = rows
        self.k = min(k, max(rows.width, 1))
        self.at_most = at_most
        self.positives = rows.sum_positives()
        self.negatives = rows.rows - self.positives

    def climb(self, generator: torch.Generator | None = None) -> tuple[float, Tensor]:
        """Return the value, and the places of the chosen labels among the candidates of each row, ``(N, k)``.

        A place of -1 stands for no label. The start is the most probable labels or, with a generator, random ones.
        """
        rows = self.rows.rows
        self.tp = torch.zeros(self.rows.classes, dtype=torch.float64)
        self.fp = torch.zeros(self.rows.classes, dtype=torch.float64)
        self.chosen = torch.full((rows, self.k), -1)
        if not rows or not self.rows.width:
            return 0.0, self.chosen
        self._sweep_rows(rows, partial(_choose_start, k=self.k, generator=generator))
        best = self._evaluate()
        blocks = rows if rows <= _ROWS_ONE_BY_ONE else _FEWEST_BLOCKS
        while True:
            before = (self.tp.clone(), self.fp.clone(), self.chosen.clone())
            rows_in_block = -(-rows // blocks)  # rounded up
            self._sweep_rows(rows_in_block, self._choose_best)
            gain = self._evaluate() - best
            if gain > _GAIN_TO_REPEAT * abs(best):
                best += gain
                continue
            if gain < 0:
                self.tp, self.fp, self.chosen = before
            else:
                best += gain
            blocks_are_smallest = blocks >= min(rows, _MOST_BLOCKS)
            if blocks_are_smallest and gain <= _GAIN_TO_GO_ON * abs(best):
                return best, self.chosen
            blocks = min(blocks * 4, rows, _MOST_BLOCKS)

    def _evaluate(self) -> float:
        counts = cells(self.tp, self.fp, self.positives, self.negatives)
        return self.objective.value(counts).item()

    def _sweep_rows(
        self, rows_in_block: int, choose: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    ) -> None:
        """Choose the labels of every row anew, block by block.

        ``choose`` gets the probabilities and labels of the candidates and the places chosen before, and returns gains
        and places.
        """
        rows_at_once = max(1, min(rows_in_block, _PROBABILITIES_AT_ONCE // self.rows.width))
        least_gain = 0 if self.at_most else -torch.inf
        for rows in torch.arange(self.rows.rows).split(rows_at_once):
            probabilities, labels = self.rows.list_candidates(rows)
            old = self.chosen[rows]
            gains, places = choose(probabilities, labels, old)
            new = places.where(gains > least_gain, -1)
            self._add_to_counts(probabilities, labels, old, -1.0)
            self._add_to_counts(probabilities, labels, new, 1.0)
            self.chosen[rows] = new

    def _choose_best(self, probabilities: Tensor, labels: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
        """Return the k largest gains of each row and their places.

        Where the block has many candidates, exact gains are computed for some of them only: for the labels that the row
        has, and for the best ones if gains were linear in the probability, as they are for F-beta.
        """
        candidates = probabilities.shape[1]
        has_old = old >= 0
        old_places = torch.where(has_old, old, candidates)  # places of -1 go to one more column
        candidates_are_few = labels.numel() <= 4 * self.rows.classes
        if candidates_are_few:
            is_old = torch.zeros(len(old), candidates + 1, dtype=torch.bool).scatter_(1, old_places, True)
            gains = self._find_gains(probabilities, labels, is_old[:, :candidates])
            best_gains, best_places = gains.where(labels >= 0, -torch.inf).topk(self.k, dim=1)
            return best_gains, best_places
        all_labels = slice(None)
        present = self._evaluate_labels(self.tp, self.fp, all_labels)
        if_wrong = self._evaluate_labels(self.tp, self.fp + 1, all_labels) - present
        if_right = self._evaluate_labels(self.tp + 1, self.fp, all_labels) - present
        linear_gains = torch.lerp(if_wrong[labels], if_right[labels], probabilities)
        linear_gains = linear_gains.masked_fill_(labels < 0, -torch.inf)
        new_only = F.pad(linear_gains, (0, 1)).scatter_(1, old_places, -torch.inf)[:, :candidates]
        new_gains, new = new_only.topk(min(2 * self.k, candidates), dim=1)
        places = torch.cat((old.clamp(min=0), new), 1)
        is_old = torch.cat((has_old, torch.zeros_like(new, dtype=torch.bool)), 1)
        usable = torch.cat((has_old, new_gains > -torch.inf), 1)
        gains = self._find_gains(probabilities.gather(1, places), labels.gather(1, places), is_old)
        best_gains, which = gains.where(usable, -torch.inf).topk(self.k, dim=1)
        return best_gains, places.gather(1, which)

    def _find_gains(self, probabilities: Tensor, labels: Tensor, is_old: Tensor) -> Tensor:
        """Return what each label adds to the metric, given the labels of all other rows.

        ``is_old``: the labels that the row has, which are taken out of the counts first.
        """
        tp = self.tp[labels] - is_old * probabilities
        fp = self.fp[labels] - is_old * (1 - probabilities)
        with_label = self._evaluate_labels(tp + probabilities, fp + 1 - probabilities, labels)
        return with_label - self._evaluate_labels(tp, fp, labels)

    def _evaluate_labels(self, tp: Tensor, fp: Tensor, labels: Any) -> Tensor:
        fn = self.positives[labels] - tp
        tn = self.negatives[labels] - fp
        return self.objective.values(Counts(tp, fp, fn, tn))

    def _add_to_counts(self, probabilities: Tensor, labels: Tensor, chosen: Tensor, sign: float) -> None:
        is_chosen = chosen >= 0
        places = chosen.clamp(min=0)
        chosen_labels = labels.gather(1, places)[is_chosen]
        chosen_probabilities = probabilities.gather(1, places)[is_chosen]
        self.tp.index_add_(0, chosen_labels, sign * chosen_probabilities)
        self.fp.index_add_(0, chosen_labels, sign * (1 - chosen_probabilities))


def _choose_start(
    probabilities: Tensor, labels: Tensor, old: Tensor, k: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Return the k most probable candidates of each row, or random ones with a generator, as a start."""
    ranking = probabilities
    if generator is not None:
        ranking = torch.rand(probabilities.shape, generator=generator, dtype=probabilities.dtype)
    gains, places = ranking.where(labels >= 0, -torch.inf).topk(k, dim=1)
    return gains, places


def tune_top_k(
    metric: str | Metric, scores: Any, targets: Any, k: int, *, weight: Any = None, iterations: int = 50
) -> WeightedTopK:
    """Find the rule "the k labels of the highest scale·score + offset" for a macro metric.

    Frank–Wolfe [schultheis2024]: each step linearises the metric at the counts so far, finds the best rule for that
    linear metric, and mixes its counts into those so far. Of all these rules, the one of the highest value on these
    data is returned; it is never worse there than the k highest scores. Tune on data that the model was not trained on.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts``.
    scores : Tensor, array-like or sparse matrix
        ``(N, K)`` scores, best probabilities; of a scipy sparse matrix only stored labels are chosen.
    targets : Tensor, array-like or sparse matrix
        ``(N, K)`` labels 0 or 1, or the probabilities themselves to maximise what is expected.
    k : int
        How many labels each row gets, from 1 to the number of labels.
    weight : array-like, optional
        Per sample.
    iterations : int, default 50
        How many rules are tried at most.

    Returns
    -------
    WeightedTopK
        The rule.

    Raises
    ------
    ValueError
        If there are no samples, or shapes do not fit.

    See Also
    --------
    choose_k_labels : Choose for all rows together, without targets.

    Examples
    --------
    >>> p = torch.tensor([[0.9, 0.5], [0.8, 0.1], [0.9, 0.2]])
    >>> tune_top_k("f1", p, torch.tensor([[1, 1], [1, 0], [1, 0]]), 1)(p)
    tensor([[False,  True],
            [ True, False],
            [ True, False]])

    """
    objective = Objective("multilabel", metric)
    batch = as_scored_batch_or_sparse("multilabel", scores, targets, weight).on_host()
    if not batch.rows:
        raise ValueError("scores: expected at least one sample to tune on, got none")
    no_scale = (1.0,) * batch.classes
    no_offset = (0.0,) * batch.classes
    best = WeightedTopK(whole_number("k", k, 1), no_scale, no_offset)
    mixed = hard_counts.count_cells(batch, best)
    best_value = objective.value(mixed).item()
    shares = torch.linspace(0, 1, _MIXTURES + 1, dtype=torch.float64)[1:].unsqueeze(1)
    for _ in range(whole_number("iterations", iterations, 1)):
        rule = _make_linear_rule(objective, mixed, best.k)
        found = hard_counts.count_cells(batch, rule)
        value = objective.value(found).item()
        if value > best_value:
            best = rule
            best_value = value
        # The best mixture of the counts so far and those of the new rule.
        mixtures = Counts(*(old + shares * (new - old) for old, new in zip(mixed.cells(), found.cells(), strict=True)))
        values = objective.value(mixtures)
        improves = values.max() > objective.value(mixed) + _LEAST_IMPROVEMENT
        if not improves:
            break
        best_share = int(values.argmax())
        mixed = Counts(*(cell[best_share] for cell in mixtures.cells()))
    return best


def _make_linear_rule(objective: Objective, counts: Counts, k: int) -> WeightedTopK:
    """Return the rule that would be best if the metric were linear, with its derivatives at these counts."""
    state = (counts.tp, counts.fp, counts.positives, counts.negatives)
    _, (by_tp, by_fp) = objective.differentiate(state)  # of the loss
    by_tp = by_tp.where(counts.positives > 0, by_fp)  # every prediction of a label without positives is wrong
    # Predicting a label of probability p changes the loss by p · by_tp + (1 − p) · by_fp: the rule wants the least.
    scale = by_fp - by_tp
    offset = -by_fp
    return WeightedTopK(k, tuple(scale.tolist()), tuple(offset.tolist()))


def _check_probabilities(p: Tensor) -> None:
    if p.numel() and not (p.min() >= 0 and p.max() <= 1):
        raise ValueError(f"probabilities: expected values in [0, 1], got {p.min().item():g} to {p.max().item():g}")
