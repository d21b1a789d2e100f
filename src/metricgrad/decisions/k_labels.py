"""Budgeted decisions: the best k labels of each row for a macro metric of all rows [schultheis2023, schultheis2024].

Which labels a row should get depends on those of all others: a label that no row has yet adds more to a macro average
than one that many have. ``choose_k_labels`` chooses for given rows together, ``tune_top_k`` finds a rule for single
rows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.core.counts import Counts, cells, round_for_sums
from metricgrad.core.inputs import as_tensor, like, whole_number
from metricgrad.core.objective import Objective
from metricgrad.core.sparse import (
    SparseBatch,
    as_scored_batch_or_sparse,
    is_sparse,
    like_sparse,
    sparse_scores,
    starts_of,
)
from metricgrad.decisions import hard_counts
from metricgrad.decisions.rules import WeightedTopK

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.metrics import Metric

_PROBABILITIES_AT_ONCE = 1 << 20
_FEWEST_BLOCKS = 16
_MOST_BLOCKS = 2048
_ROWS_ONE_BY_ONE = 512  # up to so many rows, each is a block of its own


def choose_k_labels(
    metric: str | Metric, probabilities: Any, k: int, *, at_most: bool = False, starts: int = 1, seed: int = 0
) -> Any:
    """Choose k labels for each row so that a macro metric of all rows together is expected to be highest.

    The metric is of the expected counts, Σ p of what is predicted and so on, averaged over labels, as in
    [schultheis2023]. Rows are taken in turns: each gets the labels that add most, given those of all others, until none
    changes [schultheis2023]. That is a local optimum, from the start at the k most probable labels of each row;
    with few rows, more ``starts`` find better ones.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts``.
    probabilities : Tensor, array-like or sparse matrix
        ``(N, K)`` marginal probabilities. Of a scipy sparse matrix only what is stored and above 0 is chosen, so that
        a row with fewer has fewer than k labels.
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
        stored = sparse_scores(probabilities)
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
    found = [ascent.climb(generator if start else None) for start in range(whole_number("starts", starts, 1))]
    _, chosen = max(found, key=lambda value_and_chosen: value_and_chosen[0])
    decided = rows.mark_chosen(chosen)
    return like_sparse(probabilities, stored, decided) if is_sparse(probabilities) else like(probabilities, decided)


class _DenseRows:
    """Probabilities of all labels: every label is a candidate of every row."""

    def __init__(self, probabilities: Tensor) -> None:
        self.probabilities = probabilities
        self.rows, self.classes = probabilities.shape
        self.width = self.classes

    def sum_positives(self) -> Tensor:
        """Return the expected number of positives of each label."""
        total = torch.zeros(self.classes).double()
        for rows in torch.arange(self.rows).split(max(1, _PROBABILITIES_AT_ONCE // self.classes)):
            total = total + self.list_candidates(rows)[0].sum(0)
        return total

    def list_candidates(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities and the labels of the candidates of some rows; -1 for none."""
        rounded = round_for_sums(self.probabilities[rows].double(), self.rows)
        return rounded, torch.arange(self.classes).expand(len(rows), -1)

    def mark_chosen(self, chosen: Tensor) -> Tensor:
        """Return the candidates that were chosen, ``(N, k)`` places or -1, as bools."""
        marked = torch.zeros(self.rows, self.classes + 1, dtype=torch.bool)  # one more place for those that are -1
        return marked.scatter_(1, torch.where(chosen < 0, self.classes, chosen), True)[:, :-1]


class _StoredRows:
    """Probabilities of the stored labels: these are the candidates of a row."""

    def __init__(self, batch: SparseBatch) -> None:
        self.batch = batch
        self.rows = batch.rows
        self.classes = batch.classes
        self.starts = starts_of(batch.row, batch.rows)
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

    Rows of a block do not see each other's changes, which is fast while blocks are small beside the whole; a sweep that
    does not gain is taken back and the blocks become smaller, down to single rows where there are few.
    """

    def __init__(self, objective: Objective, rows: _Rows, k: int, at_most: bool) -> None:
        self.objective = objective
        self.rows = rows
        self.k = min(k, max(rows.width, 1))
        self.at_most = at_most
        self.positives = rows.sum_positives()
        self.negatives = rows.rows - self.positives

    def climb(self, generator: torch.Generator | None = None) -> tuple[float, Tensor]:
        """Return the value and the places among the candidates of what is chosen, ``(N, k)``; -1 for none.

        From the most probable labels or, with a generator, from random ones.
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
            if gain > 1e-4 * abs(best):
                best += gain
                continue
            if gain < 0:
                self.tp, self.fp, self.chosen = before
            else:
                best += gain
            if blocks >= min(rows, _MOST_BLOCKS) and gain <= 1e-6 * abs(best):
                return best, self.chosen
            blocks = min(blocks * 4, rows, _MOST_BLOCKS)

    def _evaluate(self) -> float:
        return self.objective.value(cells(self.tp, self.fp, self.positives, self.negatives)).item()

    def _sweep_rows(self, block: int, choose: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        """Let ``choose`` say for every row which places are worth how much, from candidates and what was chosen."""
        block = max(1, min(block, _PROBABILITIES_AT_ONCE // self.rows.width))
        least_gain = 0 if self.at_most else -torch.inf
        for rows in torch.arange(self.rows.rows).split(block):
            probabilities, labels = self.rows.list_candidates(rows)
            old = self.chosen[rows]
            gains, places = choose(probabilities, labels, old)
            new = places.where(gains > least_gain, -1)
            self._add_to_counts(probabilities, labels, old, -1.0)
            self._add_to_counts(probabilities, labels, new, 1.0)
            self.chosen[rows] = new

    def _choose_best(self, probabilities: Tensor, labels: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
        """Return the k largest gains of each row and their places.

        Where there are many more candidates than labels, only the exact gains of some are compared: of those that the
        row has, and of the best if gains were linear in the probability, as they are for F-beta.
        """
        candidates = probabilities.shape[1]
        has_old = old >= 0
        old_places = torch.where(has_old, old, candidates)  # one more place for those that are -1
        if labels.numel() <= 4 * self.rows.classes:
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
        """Return what labels add to the metric, beside what all other rows have; ``is_old``: those the row has."""
        tp = self.tp[labels] - is_old * probabilities
        fp = self.fp[labels] - is_old * (1 - probabilities)
        with_label = self._evaluate_labels(tp + probabilities, fp + 1 - probabilities, labels)
        return with_label - self._evaluate_labels(tp, fp, labels)

    def _evaluate_labels(self, tp: Tensor, fp: Tensor, labels: Any) -> Tensor:
        return self.objective.values(Counts(tp, fp, self.positives[labels] - tp, self.negatives[labels] - fp))

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
    """Return the k most probable candidates of each row, or random ones, as a start."""
    ranked = probabilities
    if generator is not None:
        ranked = torch.rand(probabilities.shape, generator=generator, dtype=probabilities.dtype)
    gains, places = ranked.where(labels >= 0, -torch.inf).topk(k, dim=1)
    return gains, places


def tune_top_k(
    metric: str | Metric, scores: Any, targets: Any, k: int, *, weight: Any = None, iterations: int = 50
) -> WeightedTopK:
    """Find the rule "the k labels of the highest scale·score + offset" for a macro metric.

    Frank–Wolfe [schultheis2024]: the derivatives of the metric at the counts so far make the best linear rule,
    which is mixed into them. Of the rules on this way, the one of the highest value on these data is returned; it is
    never worse there than the k highest scores. Tune on data that the model was not trained on.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts``.
    scores : Tensor, array-like or sparse matrix
        ``(N, K)`` scores, best probabilities; of a scipy sparse matrix only what is stored is chosen.
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
    batch = as_scored_batch_or_sparse("multilabel", scores, targets, weight)
    if not batch.rows:
        raise ValueError("scores: expected at least one sample to tune on, got none")
    no_scale, no_offset = (1.0,) * batch.classes, (0.0,) * batch.classes
    best = WeightedTopK(whole_number("k", k, 1), no_scale, no_offset)
    mixed = hard_counts.count_cells(batch, best)
    best_value = objective.value(mixed).item()
    steps = torch.linspace(0, 1, 65, dtype=torch.float64)[1:].unsqueeze(1)
    for _ in range(whole_number("iterations", iterations, 1)):
        rule = _make_linear_rule(objective, mixed, best.k)
        found = hard_counts.count_cells(batch, rule)
        value = objective.value(found).item()
        if value > best_value:
            best = rule
            best_value = value
        # The best mixture of the counts so far and those of the new rule.
        mixtures = Counts(*(a + steps * (b - a) for a, b in zip(mixed.cells(), found.cells(), strict=True)))
        values = objective.value(mixtures)
        if not values.max() > objective.value(mixed) + 1e-9:
            break
        step = int(values.argmax())
        mixed = Counts(*(cell[step] for cell in mixtures.cells()))
    return best


def _make_linear_rule(objective: Objective, counts: Counts, k: int) -> WeightedTopK:
    """Return the rule that is best if the metric were linear, with its derivatives at these counts."""
    state = (counts.tp, counts.fp, counts.positives, counts.negatives)
    _, (by_tp, by_fp) = objective.differentiate(state)  # of the loss
    by_tp = by_tp.where(counts.positives > 0, by_fp)  # without positives, whatever is predicted is wrong
    return WeightedTopK(k, tuple((by_fp - by_tp).tolist()), tuple((-by_fp).tolist()))


def _check_probabilities(p: Tensor) -> None:
    if p.numel() and not (p.min() >= 0 and p.max() <= 1):
        raise ValueError(f"probabilities: expected values in [0, 1], got {p.min().item():g} to {p.max().item():g}")
