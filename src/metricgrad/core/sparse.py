"""Sparse batches: multi-label rows of which only some scores and targets are stored, as scipy's sparse matrices are.

What is not stored is 0, as scipy has it: a target that is not stored is negative, and a score that is not stored is the
lowest there is, so that no threshold above 0 reaches it. Nothing here is as large as rows × labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from metricgrad.core.batch import Batch, Task
from metricgrad.core.counts import Counts, cells, least_weight, subtract
from metricgrad.core.inputs import as_scored_batch, as_tensor


class LabelThresholds(NamedTuple):
    """The counts of all labels at their thresholds, one label after the other."""

    label: Tensor
    """``(M,)``, the label of each threshold."""
    starts: Tensor
    """``(K + 1,)``, where each label starts, and the end."""
    thresholds: Tensor
    """``(M,)``, of each label from the highest to the lowest."""
    counts: Counts
    """Cells of shape ``(M,)``."""


@dataclass(eq=False)
class SparseBatch:
    """The stored elements of a multi-label batch; every other element has score 0 and target 0.

    Elements with scores are in the order of rows and labels.
    """

    rows: int
    classes: int
    row: Tensor
    """``(E,)``, the row of each stored element."""
    label: Tensor
    """``(E,)``, its label."""
    logits: Tensor
    """``(E,)``, its score, at least 0."""
    targets: Tensor
    """``(E,)``, its target in [0, 1], in float64."""
    weight: Tensor | None
    """``(N, 1)`` in float64."""

    def take(self, rows: slice | Tensor) -> SparseBatch:
        """Return the batch of some rows, chosen by a slice or by bools."""
        place = torch.full((self.rows,), -1)
        chosen = torch.arange(self.rows)[rows]
        place[chosen] = torch.arange(len(chosen))
        row = place[self.row]
        kept = row >= 0
        w = None if self.weight is None else self.weight[rows]
        row, label, s, y = (x[kept] for x in (row, self.label, self.logits, self.targets))
        return SparseBatch(len(chosen), self.classes, row, label, s, y, w)

    def reweighted(self, weight: Tensor) -> SparseBatch:
        """Return the same rows with other weights, ``(N, 1)``."""
        return replace(self, weight=weight)

    @property
    def total(self) -> float:
        """The weight of all rows."""
        return float(self.rows) if self.weight is None else self.weight.sum().item()

    @cached_property
    def sides(self) -> tuple[Tensor, Tensor]:
        """The weight of each stored element as a positive and as a negative, ``(E,)`` each."""
        if self.weight is None:
            return self.targets, 1 - self.targets
        w = self.weight.squeeze(1)[self.row]
        return w * self.targets, w * (1 - self.targets)

    @cached_property
    def least(self) -> float | None:
        """The least that any count above 0 can be, see ``counts.subtract``."""
        return least_weight(*self.sides) if self.weight is None else least_weight(*self.sides, self.weight)

    def negatives(self, positives: Tensor) -> Tensor:
        """Return the weight of the negatives of each label, given that of its positives."""
        return subtract(self.total, positives, self.least)

    @cached_property
    def ranked(self) -> tuple[Tensor, Tensor]:
        """The stored elements label by label, each from its highest score down, and where each label starts."""
        order = self.logits.argsort(descending=True, stable=True)
        return order[self.label[order].argsort(stable=True)], starts_of(self.label, self.classes)

    @cached_property
    def label_thresholds(self) -> LabelThresholds:
        """The counts of each label at ∞, where nothing is predicted, and at each of its scores above 0."""
        order, classes = self.ranked[0], self.classes
        label, s = self.label[order], self.logits[order]
        wy, wn = (side[order] for side in self.sides)
        positives = _sums(label, wy, classes)
        there = (s > 0) & (wy + wn > 0)
        label, s = label[there], s[there]
        tp, fp = (running(side[there], label, classes) for side in (wy, wn))
        last = torch.ones(len(s), dtype=torch.bool)  # a threshold includes all of equal scores or none
        last[:-1] = (s[1:] != s[:-1]) | (label[1:] != label[:-1])
        label, s, tp, fp = (x[last] for x in (label, s, tp, fp))
        place = torch.arange(len(s)) + label + 1  # ∞ comes before the first score of each label
        starts = starts_of(label, classes) + torch.arange(classes + 1)
        owner = torch.repeat_interleave(torch.arange(classes), starts.diff())
        thresholds = s.new_full((len(owner),), torch.inf).scatter_(0, place, s)
        tp, fp = (x.new_zeros(len(owner)).scatter_(0, place, x) for x in (tp, fp))
        counts = cells(tp, fp, positives[owner], self.negatives(positives)[owner], least=self.least)
        return LabelThresholds(owner, starts, thresholds, counts)

    def largest(self, values: Tensor, k: int) -> Tensor:
        """Return which elements are among the k largest of ``(E,)`` values of their row; of equal ones, the first."""
        order = values.argsort(descending=True, stable=True)
        order = order[self.row[order].argsort(stable=True)]
        rank = torch.arange(len(order)) - starts_of(self.row, self.rows)[self.row[order]]
        return torch.zeros(len(order), dtype=torch.bool).scatter_(0, order, rank < k)

    def with_room_for(self, k: int) -> SparseBatch:
        """Return the batch in which every row has k elements that can be chosen, as in the dense matrix.

        Where a row has fewer scores above 0, the first labels of score 0 would be among its k largest: these are stored
        too. Elements are in the order of rows and labels.
        """
        above = torch.bincount(self.row[self.logits > 0], minlength=self.rows)
        short = (above < k).nonzero().squeeze(1)
        # Among the first k labels, at least as many as are missing have score 0.
        needed = (short.unsqueeze(1) * self.classes + torch.arange(min(k, self.classes))).flatten()
        stored = self.row * self.classes + self.label
        added = needed[~torch.isin(needed, stored)]
        where, order = torch.cat((stored, added)).sort()
        s, y = (torch.cat((x, x.new_zeros(len(added))))[order] for x in (self.logits, self.targets))
        return SparseBatch(self.rows, self.classes, where // self.classes, where % self.classes, s, y, self.weight)

    def counts(self, decided: Tensor) -> Counts:
        """Return the cells of each label, ``(K,)``, of decisions ``(E,)``; what is not stored is not predicted."""
        wy, wn = self.sides
        tp, fp, positives = (_sums(self.label, x, self.classes) for x in (wy * decided, wn * decided, wy))
        return cells(tp, fp, positives, self.negatives(positives), least=self.least)

    def row_counts(self, decided: Tensor, labels: tuple[int, ...] | None) -> tuple[Counts, Tensor]:
        """Return the cells of each row, ``(N,)``, over the labels that count, and what each row counts."""
        wy, wn, total = self.row_sides(labels)
        tp, fp, positives = (_sums(self.row, x, self.rows) for x in (wy * decided, wn * decided, wy))
        least = least_weight(wy, wn)
        return cells(tp, fp, positives, subtract(total, positives, least), least=least), self.row_weight

    def row_sides(self, labels: tuple[int, ...] | None) -> tuple[Tensor, Tensor, int]:
        """Return what each stored element adds to its row's positives and negatives, and how many labels count."""
        if labels is None:
            return self.targets, 1 - self.targets, self.classes
        counts = torch.zeros(self.classes, dtype=torch.float64)
        counts[list(labels)] = 1
        w = counts[self.label]
        return w * self.targets, w * (1 - self.targets), int(counts.sum())

    @property
    def row_weight(self) -> Tensor:
        """The weight of each row, ``(N,)``."""
        return torch.ones(self.rows, dtype=torch.float64) if self.weight is None else self.weight.squeeze(1)


AnyBatch = Batch | SparseBatch


def is_sparse(x: Any) -> TypeGuard[Any]:
    """Tell whether something is a sparse matrix or array of scipy."""
    return hasattr(x, "tocsr") and hasattr(x, "nnz")


def as_scored_batch_or_sparse(
    task: Task | None, scores: Any, targets: Any, weight: Any = None, mask: Any = None, ignore_index: int | None = None
) -> AnyBatch:
    """Return scores and targets as ``as_scored_batch`` does; of sparse scores, the stored elements alone."""
    if not is_sparse(scores):
        # Dense scores are as large as dense targets.
        targets = targets.toarray() if is_sparse(targets) else targets
        return as_scored_batch(task, scores, targets, weight, mask, ignore_index)
    if task != "multilabel":
        raise ValueError(f"scores: expected sparse ones for task='multilabel' alone, got task={task!r}")
    for name, given in (("mask", mask), ("ignore_index", ignore_index)):
        if given is not None:
            raise ValueError(f"{name}: expected none with sparse scores, of which only rows can be left out, by weight")
    y = _stored("targets", targets if is_sparse(targets) else as_tensor("targets", targets))
    if y[0] != (shape := tuple(scores.shape)):
        raise ValueError(f"targets: expected the shape of the scores, {shape}, for task='multilabel', got {y[0]}")
    batch = sparse_scores(scores, y)
    if batch.targets.numel() and not (batch.targets.min() >= 0 and batch.targets.max() <= 1):
        low, high = batch.targets.min().item(), batch.targets.max().item()
        raise ValueError(f"targets: expected values in [0, 1], got {low:g} to {high:g}")
    return batch if weight is None else batch.reweighted(_row_weight(weight, batch.rows))


def sparse_scores(scores: Any, targets: tuple[tuple[int, ...], Tensor, Tensor] | None = None) -> SparseBatch:
    """Return checked sparse scores as a batch; without targets all are 0."""
    (rows, classes), where, s = _stored("scores", scores)
    if not classes:
        raise ValueError(f"scores: expected at least one class in axis 1, got {(rows, classes)}")
    s = s if s.is_floating_point() else s.double()
    if s.numel() and not s.min() >= 0:  # NaN too
        raise ValueError(
            f"scores: expected sparse scores of at least 0, since those that are not stored are 0, got {s.min():g}; "
            "store probabilities"
        )
    y = torch.zeros(len(s), dtype=torch.float64)
    if targets is not None:
        _, marked, values = targets
        place = torch.searchsorted(where, marked).clamp(max=max(len(where) - 1, 0))
        known = where[place] == marked if len(where) else torch.zeros_like(marked, dtype=torch.bool)
        y[place[known]] = values[known].double()
        # Positives without a score come last: with score 0 they are never predicted, whatever their place.
        where = torch.cat((where, marked[~known]))
        s, y = torch.cat((s, s.new_zeros(len(where) - len(s)))), torch.cat((y, values[~known].double()))
    return SparseBatch(rows, classes, where // classes, where % classes, s, y, None)


def like_sparse(given: Any, batch: SparseBatch, decided: Tensor) -> Any:
    """Return decisions about stored elements as a sparse matrix of bools, of the kind of the one given."""
    row, label = batch.row[decided], batch.label[decided]
    made = given.tocsr()
    parts = (torch.ones(len(row), dtype=torch.bool), label, starts_of(row, batch.rows))
    return type(made)(tuple(part.numpy() for part in parts), shape=made.shape)


def _stored(name: str, x: Any) -> tuple[tuple[int, ...], Tensor, Tensor]:
    """Return the shape, the places row · classes + label in order, and the values of what is not 0."""
    if isinstance(x, Tensor):
        if x.dim() != 2:
            raise ValueError(f"{name}: expected (N, K) beside sparse scores, got {tuple(x.shape)}")
        places = x.reshape(-1).nonzero().squeeze(1)
        return tuple(x.shape), places, x.reshape(-1)[places]
    if x.dtype.kind not in "biuf":
        raise ValueError(f"{name}: expected numbers, got {x.dtype}")
    made = x.tocsr()
    if not made.has_canonical_format:  # a copy: what the user has stays as it is
        made = made.copy()
        made.sum_duplicates()
    start, label = (torch.as_tensor(part).long() for part in (made.indptr, made.indices))
    row = torch.repeat_interleave(torch.arange(made.shape[0]), start.diff())
    values = as_tensor(name, made.data)
    return tuple(map(int, made.shape)), row * made.shape[1] + label, values


def _row_weight(weight: Any, rows: int) -> Tensor:
    w = as_tensor("weight", weight).double()
    if w.shape not in ((rows,), (rows, 1)):
        raise ValueError(f"weight: expected one per row, ({rows},), with sparse scores, got {tuple(w.shape)}")
    if w.numel() and not w.min() >= 0:
        raise ValueError(f"weight: expected no negative value, got {w.min().item():g}")
    return w.reshape(rows, 1)


def starts_of(group: Tensor, groups: int) -> Tensor:
    """Return where each group starts when elements are ordered by group, and where the last ends: ``(groups + 1,)``."""
    return torch.cat((torch.zeros(1, dtype=torch.long), torch.bincount(group, minlength=groups).cumsum(0)))


def running(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return running sums of values that are ordered by group, starting anew in each."""
    sums = values.cumsum(0)
    return sums - torch.cat((sums.new_zeros(1), sums))[starts_of(group, groups)][group]


def _sums(index: Tensor, values: Tensor, size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.float64).index_add_(0, index, values)
