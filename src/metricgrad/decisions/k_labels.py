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

_ELEMENTS = 1 << 20  # probabilities looked at together
_FEWEST_BLOCKS, _MOST_BLOCKS = 16, 2048
_ONE_BY_ONE = 512  # rows up to which none shares a block with another


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
            raise ValueError(f"k: expected 1 to the number of labels of (N, K) probabilities, got {k} for {_shape(p)}")
        _check_probabilities(p)
        rows = _DenseRows(p)
    ascent, generator = _Ascent(objective, rows, k, at_most), torch.Generator().manual_seed(seed)
    found = [ascent.run(generator if start else None) for start in range(whole_number("starts", starts, 1))]
    chosen = max(found, key=lambda result: result[0])[1]
    if is_sparse(probabilities):
        return like_sparse(probabilities, stored, rows.mark(chosen))
    return like(probabilities, rows.mark(chosen))


class _DenseRows:
    """Probabilities of all labels: every label is a candidate of every row."""

    def __init__(self, p: Tensor) -> None:
        self.p = p
        self.rows, self.classes = p.shape
        self.width = self.classes

    def positives(self) -> Tensor:
        """Return the expected number of positives of each label."""
        blocks = torch.arange(self.rows).split(max(1, _ELEMENTS // self.classes))
        return sum((self.candidates(rows)[0].sum(0) for rows in blocks), torch.zeros(self.classes).double())

    def candidates(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities and the labels of the candidates of some rows; -1 for none."""
        p = round_for_sums(self.p[rows].double(), self.rows)
        return p, torch.arange(self.classes).expand(len(rows), -1)

    def mark(self, chosen: Tensor) -> Tensor:
        """Return the candidates that were chosen, ``(N, k)`` places or -1, as bools."""
        marked = torch.zeros(self.rows, self.classes + 1, dtype=torch.bool)
        return marked.scatter_(1, torch.where(chosen < 0, self.classes, chosen), True)[:, :-1]


class _StoredRows:
    """Probabilities of the stored labels: these are the candidates of a row."""

    def __init__(self, batch: SparseBatch) -> None:
        self.batch, self.rows, self.classes = batch, batch.rows, batch.classes
        self.starts = starts_of(batch.row, batch.rows)
        self.width = int(self.starts.diff().max()) if batch.rows else 0

    def positives(self) -> Tensor:
        """Return the expected number of positives of each label."""
        return torch.zeros(self.classes, dtype=torch.float64).index_add_(
            0, self.batch.label, self.batch.logits.double()
        )

    def candidates(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the probabilities and the labels of the candidates of some rows; -1 for none."""
        start, length = self.starts[rows].unsqueeze(1), self.starts.diff()[rows].unsqueeze(1)
        place = torch.arange(self.width)
        there = place < length
        element = torch.where(there, start + place, 0)
        p = self.batch.logits[element].double()
        there &= p > 0
        return p.where(there, 0), self.batch.label[element].where(there, -1)

    def mark(self, chosen: Tensor) -> Tensor:
        """Return the candidates that were chosen, ``(N, k)`` places or -1, as bools of the stored elements."""
        marked = torch.zeros(len(self.batch.row), dtype=torch.bool)
        marked[(self.starts[:-1].unsqueeze(1) + chosen)[chosen >= 0]] = True
        return marked


_Rows = _DenseRows | _StoredRows


class _Ascent:
    """Block-coordinate ascent: a block of rows at a time gets the labels that add most, given those of all others.

    Rows of a block do not see each other's changes, which is fast while blocks are small beside the whole; a sweep that
    does not gain is taken back and the blocks become smaller, down to single rows where there are few.
    """

    def __init__(self, objective: Objective, rows: _Rows, k: int, at_most: bool) -> None:
        self.objective, self.rows, self.k, self.at_most = objective, rows, min(k, max(rows.width, 1)), at_most
        self.positives = rows.positives()
        self.negatives = rows.rows - self.positives

    def run(self, generator: torch.Generator | None = None) -> tuple[float, Tensor]:
        """Return the value and the places among the candidates of what is chosen, ``(N, k)``; -1 for none.

        From the most probable labels or, with a generator, from random ones.
        """
        n = self.rows.rows
        self.tp, self.fp = torch.zeros(2, self.rows.classes, dtype=torch.float64)
        self.chosen = torch.full((n, self.k), -1)
        if not n or not self.rows.width:
            return 0.0, self.chosen
        self._sweep(n, partial(_most_probable, k=self.k, generator=generator))
        blocks, best = n if n <= _ONE_BY_ONE else _FEWEST_BLOCKS, self._value()
        while True:
            before = (self.tp.clone(), self.fp.clone(), self.chosen.clone())
            self._sweep(-(-n // blocks), self._gains)
            gain = self._value() - best
            if gain > 1e-4 * abs(best):
                best += gain
                continue
            if gain < 0:
                self.tp, self.fp, self.chosen = before
            else:
                best += gain
            if blocks >= min(n, _MOST_BLOCKS) and gain <= 1e-6 * abs(best):
                return best, self.chosen
            blocks = min(blocks * 4, n, _MOST_BLOCKS)

    def _value(self) -> float:
        return self.objective.value(cells(self.tp, self.fp, self.positives, self.negatives)).item()

    def _sweep(self, block: int, choose: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        """Let ``choose`` say for every row which places are worth how much, from candidates and what was chosen."""
        block = max(1, min(block, _ELEMENTS // self.rows.width))
        for rows in torch.arange(self.rows.rows).split(block):
            p, label = self.rows.candidates(rows)
            old = self.chosen[rows]
            gain, place = choose(p, label, old)
            new = place.where(gain > (0 if self.at_most else -torch.inf), -1)
            self._add(p, label, old, -1.0)
            self._add(p, label, new, 1.0)
            self.chosen[rows] = new

    def _gains(self, p: Tensor, label: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
        """Return the k largest gains of each row and their places.

        Where there are many more candidates than labels, only the exact gains of some are compared: of those that the
        row has, and of the best if gains were linear in the probability, as they are for F-beta.
        """
        has, nowhere = old >= 0, p.shape[1]
        places = torch.where(has, old, nowhere)
        if label.numel() <= 4 * self.rows.classes:
            mine = torch.zeros(len(p), nowhere + 1, dtype=torch.bool).scatter_(1, places, True)[:, :nowhere]
            best, place = self._exact_gains(p, label, mine).where(label >= 0, -torch.inf).topk(self.k, dim=1)
            return best, place
        here = self._metric(self.tp, self.fp, slice(None))
        if_wrong, if_right = (
            self._metric(self.tp + right, self.fp + 1 - right, slice(None)) - here for right in (0.0, 1.0)
        )
        gain = torch.lerp(if_wrong[label], if_right[label], p).masked_fill_(label < 0, -torch.inf)
        gain = F.pad(gain, (0, 1)).scatter_(1, places, -torch.inf)[:, :nowhere]
        new_gain, new = gain.topk(min(2 * self.k, nowhere), dim=1)
        some = torch.cat((old.clamp(min=0), new), 1)
        mine = torch.cat((has, torch.zeros_like(new, dtype=torch.bool)), 1)
        usable = torch.cat((has, new_gain > -torch.inf), 1)
        exact = self._exact_gains(p.gather(1, some), label.gather(1, some), mine)
        best, which = exact.where(usable, -torch.inf).topk(self.k, dim=1)
        return best, some.gather(1, which)

    def _exact_gains(self, p: Tensor, label: Tensor, mine: Tensor) -> Tensor:
        """Return what labels add to the metric, beside what all other rows have; ``mine``: those the row has."""
        tp, fp = (x[label] - mine * own for x, own in ((self.tp, p), (self.fp, 1 - p)))
        return self._metric(tp + p, fp + 1 - p, label) - self._metric(tp, fp, label)

    def _metric(self, tp: Tensor, fp: Tensor, labels: Any) -> Tensor:
        return self.objective.values(Counts(tp, fp, self.positives[labels] - tp, self.negatives[labels] - fp))

    def _add(self, p: Tensor, label: Tensor, chosen: Tensor, sign: float) -> None:
        there = chosen >= 0
        labels, pk = (x.gather(1, chosen.clamp(min=0))[there] for x in (label, p))
        self.tp.index_add_(0, labels, sign * pk)
        self.fp.index_add_(0, labels, sign * (1 - pk))


def _most_probable(
    p: Tensor, label: Tensor, old: Tensor, k: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Return the k most probable candidates of each row, or random ones, as a start."""
    p = p if generator is None else torch.rand(p.shape, generator=generator, dtype=p.dtype)
    gain, place = p.where(label >= 0, -torch.inf).topk(k, dim=1)
    return gain, place


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
    classes, tries = batch.classes, whole_number("iterations", iterations, 1)
    rule = best = WeightedTopK(whole_number("k", k, 1), (1.0,) * classes, (0.0,) * classes)
    mixed = hard_counts.count_cells(batch, rule)
    highest = objective.value(mixed).item()
    steps = torch.linspace(0, 1, 65, dtype=torch.float64)[1:].unsqueeze(1)
    for _ in range(tries):
        state = (mixed.tp, mixed.fp, mixed.positives, mixed.negatives)
        _, (by_tp, by_fp) = objective.differentiate(state)  # of the loss
        by_tp = by_tp.where(mixed.positives > 0, by_fp)  # without positives, whatever is predicted is wrong
        rule = WeightedTopK(best.k, tuple((by_fp - by_tp).tolist()), tuple((-by_fp).tolist()))
        found = hard_counts.count_cells(batch, rule)
        if (value := objective.value(found).item()) > highest:
            best, highest = rule, value
        ways = Counts(*(a + steps * (b - a) for a, b in zip(mixed.cells(), found.cells(), strict=True)))
        values = objective.value(ways)
        if not values.max() > objective.value(mixed) + 1e-9:
            break
        place = int(values.argmax())
        mixed = Counts(*(cell[place] for cell in ways.cells()))
    return best


def _check_probabilities(p: Tensor) -> None:
    if p.numel() and not (p.min() >= 0 and p.max() <= 1):
        raise ValueError(f"probabilities: expected values in [0, 1], got {p.min().item():g} to {p.max().item():g}")


def _shape(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape)
