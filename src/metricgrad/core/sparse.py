"""Sparse batches: multi-label rows of which only some scores and targets are stored, as scipy's sparse matrices are.

As in scipy, an element that is not stored is 0: its target is negative, and its score is the lowest there is, below
every threshold above 0. No tensor here is as large as rows × labels.
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
        chosen = torch.arange(self.rows)[rows]
        new_row_of_row = torch.full((self.rows,), -1)
        new_row_of_row[chosen] = torch.arange(len(chosen))
        new_row = new_row_of_row[self.row]
        kept = new_row >= 0
        return SparseBatch(
            rows=len(chosen),
            classes=self.classes,
            row=new_row[kept],
            label=self.label[kept],
            logits=self.logits[kept],
            targets=self.targets[kept],
            weight=None if self.weight is None else self.weight[rows],
        )

    def on_host(self) -> SparseBatch:
        """Return itself: scipy's matrices are in the host's memory."""
        return self

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
        weight = self.weight.squeeze(1)[self.row]
        return weight * self.targets, weight * (1 - self.targets)

    @cached_property
    def least(self) -> float | None:
        """The smallest weight above 0, see ``counts.subtract``; None if all weights are whole numbers."""
        if self.weight is None:
            return least_weight(*self.sides)
        return least_weight(*self.sides, self.weight)

    def negatives(self, positives: Tensor) -> Tensor:
        """Return the weight of the negatives of each label, given that of its positives."""
        return subtract(self.total, positives, self.least)

    @cached_property
    def ranked(self) -> tuple[Tensor, Tensor]:
        """The order of stored elements, label by label and from the highest score down, and where each label starts."""
        by_score = self.logits.argsort(descending=True, stable=True)
        by_label = self.label[by_score].argsort(stable=True)
        return by_score[by_label], find_group_starts(self.label, self.classes)

    @cached_property
    def label_thresholds(self) -> LabelThresholds:
        """The counts of each label at ∞, where nothing is predicted, and at each of its scores above 0."""
        classes = self.classes
        order, _ = self.ranked
        all_positive_weight, all_negative_weight = self.sides
        label = self.label[order]
        scores = self.logits[order]
        positive_weight = all_positive_weight[order]
        negative_weight = all_negative_weight[order]
        positives = _sum_by_group(positive_weight, label, classes)
        negatives = self.negatives(positives)

        # Running sums over the elements that a threshold above 0 can reach, anew for each label.
        reached = (scores > 0) & (positive_weight + negative_weight > 0)
        label = label[reached]
        scores = scores[reached]
        tp = cumulate_by_group(positive_weight[reached], label, classes)
        fp = cumulate_by_group(negative_weight[reached], label, classes)

        # A threshold includes all of equal scores or none: the last of them has the counts.
        last = torch.ones(len(scores), dtype=torch.bool)
        last[:-1] = (scores[1:] != scores[:-1]) | (label[1:] != label[:-1])
        label = label[last]
        scores = scores[last]

        # The threshold ∞ comes before the first score of each label.
        place = torch.arange(len(scores)) + label + 1
        starts = find_group_starts(label, classes) + torch.arange(classes + 1)
        owner = torch.repeat_interleave(torch.arange(classes), starts.diff())
        thresholds = scores.new_full((len(owner),), torch.inf).scatter_(0, place, scores)
        tp = tp.new_zeros(len(owner)).scatter_(0, place, tp[last])
        fp = fp.new_zeros(len(owner)).scatter_(0, place, fp[last])
        counts = cells(tp, fp, positives[owner], negatives[owner], least=self.least)
        return LabelThresholds(owner, starts, thresholds, counts)

    def largest(self, values: Tensor, k: int) -> Tensor:
        """Return which elements are among the k largest of ``(E,)`` values of their row; of equal ones, the first."""
        by_value = values.argsort(descending=True, stable=True)
        by_row = self.row[by_value].argsort(stable=True)
        order = by_value[by_row]
        start_of_row = find_group_starts(self.row, self.rows)[self.row[order]]
        rank = torch.arange(len(order)) - start_of_row
        return torch.zeros(len(order), dtype=torch.bool).scatter_(0, order, rank < k)

    def with_room_for(self, k: int) -> SparseBatch:
        """Return the batch in which every row has at least k stored elements, so that k of them can be chosen.

        In the dense matrix, the k largest of a row with fewer scores above 0 include the first labels of score 0: these
        are stored too. Elements are in the order of rows and labels.
        """
        scores_above_0 = torch.bincount(self.row[self.logits > 0], minlength=self.rows)
        short_rows = (scores_above_0 < k).nonzero().squeeze(1)
        # The first k labels of a row contain enough labels of score 0.
        first_labels = torch.arange(min(k, self.classes))
        needed = (short_rows.unsqueeze(1) * self.classes + first_labels).flatten()
        stored = self.row * self.classes + self.label
        added = needed[~torch.isin(needed, stored)]
        place, order = torch.cat((stored, added)).sort()
        logits = torch.cat((self.logits, self.logits.new_zeros(len(added))))[order]
        targets = torch.cat((self.targets, self.targets.new_zeros(len(added))))[order]
        return SparseBatch(
            rows=self.rows,
            classes=self.classes,
            row=place // self.classes,
            label=place % self.classes,
            logits=logits,
            targets=targets,
            weight=self.weight,
        )

    def counts(self, decided: Tensor) -> Counts:
        """Return the cells of each label, ``(K,)``, of decisions about the stored elements, ``(E,)``.

        Elements that are not stored are not predicted.
        """
        positive_weight, negative_weight = self.sides
        tp = _sum_by_group(positive_weight * decided, self.label, self.classes)
        fp = _sum_by_group(negative_weight * decided, self.label, self.classes)
        positives = _sum_by_group(positive_weight, self.label, self.classes)
        return cells(tp, fp, positives, self.negatives(positives), least=self.least)

    def row_counts(self, decided: Tensor, labels: tuple[int, ...] | None) -> tuple[Counts, Tensor]:
        """Return the cells of each row, ``(N,)``, over the labels that count, and the weight of each row."""
        positive_weight, negative_weight, label_count = self.row_sides(labels)
        tp = _sum_by_group(positive_weight * decided, self.row, self.rows)
        fp = _sum_by_group(negative_weight * decided, self.row, self.rows)
        positives = _sum_by_group(positive_weight, self.row, self.rows)
        least = least_weight(positive_weight, negative_weight)
        negatives = subtract(label_count, positives, least)
        return cells(tp, fp, positives, negatives, least=least), self.row_weight

    def row_sides(self, labels: tuple[int, ...] | None) -> tuple[Tensor, Tensor, int]:
        """Return what each stored element adds to its row's positives and negatives, and how many labels count."""
        if labels is None:
            return self.targets, 1 - self.targets, self.classes
        label_counts = torch.zeros(self.classes, dtype=torch.float64)
        label_counts[list(labels)] = 1
        counts = label_counts[self.label]
        return counts * self.targets, counts * (1 - self.targets), int(label_counts.sum())

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
    marked = _list_nonzero("targets", targets if is_sparse(targets) else as_tensor("targets", targets))
    shape = tuple(scores.shape)
    if marked.shape != shape:
        raise ValueError(
            f"targets: expected the shape of the scores, {shape}, for task='multilabel', got {marked.shape}"
        )
    batch = as_sparse_batch(scores, marked)
    if batch.targets.numel() and not (batch.targets.min() >= 0 and batch.targets.max() <= 1):
        low = batch.targets.min().item()
        high = batch.targets.max().item()
        raise ValueError(f"targets: expected values in [0, 1], got {low:g} to {high:g}")
    return batch if weight is None else batch.reweighted(_check_row_weight(weight, batch.rows))


class _Nonzero(NamedTuple):
    """Elements of a matrix in the order of rows and labels; all others are 0."""

    shape: tuple[int, ...]
    places: Tensor
    """``(E,)``, row · classes + label of each element."""
    values: Tensor
    """``(E,)``, their values."""


def as_sparse_batch(scores: Any, targets: _Nonzero | None = None) -> SparseBatch:
    """Return checked sparse scores as a batch; without targets all are 0."""
    (rows, classes), places, s = _list_nonzero("scores", scores)
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
        values = targets.values.double()
        # Where each target is among the scores, if it has one.
        position = torch.searchsorted(places, targets.places).clamp(max=max(len(places) - 1, 0))
        if len(places):
            has_score = places[position] == targets.places
        else:
            has_score = torch.zeros_like(targets.places, dtype=torch.bool)
        y[position[has_score]] = values[has_score]
        # Targets without a score come last: with score 0 they are never predicted, so their order does not matter.
        added = targets.places[~has_score]
        places = torch.cat((places, added))
        s = torch.cat((s, s.new_zeros(len(added))))
        y = torch.cat((y, values[~has_score]))
    return SparseBatch(
        rows=rows, classes=classes, row=places // classes, label=places % classes, logits=s, targets=y, weight=None
    )


def as_sparse_like(given: Any, batch: SparseBatch, decided: Tensor) -> Any:
    """Return decisions about stored elements as a sparse matrix of bools, of the kind of the one given."""
    row = batch.row[decided]
    label = batch.label[decided]
    values = torch.ones(len(row), dtype=torch.bool)
    row_starts = find_group_starts(row, batch.rows)
    matrix = given.tocsr()
    return type(matrix)((values.numpy(), label.numpy(), row_starts.numpy()), shape=matrix.shape)


def _list_nonzero(name: str, x: Any) -> _Nonzero:
    """Return the elements of a sparse matrix that are stored, or those of a tensor that are not 0."""
    if isinstance(x, Tensor):
        if x.dim() != 2:
            raise ValueError(f"{name}: expected (N, K) beside sparse scores, got {tuple(x.shape)}")
        flat = x.reshape(-1)
        places = flat.nonzero().squeeze(1)
        return _Nonzero(tuple(x.shape), places, flat[places])
    if x.dtype.kind not in "biuf":
        raise ValueError(f"{name}: expected numbers, got {x.dtype}")
    matrix = x.tocsr()
    if not matrix.has_canonical_format:
        matrix = matrix.copy()  # the user's own matrix stays as it is
        matrix.sum_duplicates()
    rows, classes = map(int, matrix.shape)
    row_starts = torch.as_tensor(matrix.indptr).long()
    label = torch.as_tensor(matrix.indices).long()
    row = torch.repeat_interleave(torch.arange(rows), row_starts.diff())
    values = as_tensor(name, matrix.data)
    return _Nonzero((rows, classes), row * classes + label, values)


def _check_row_weight(weight: Any, rows: int) -> Tensor:
    w = as_tensor("weight", weight).double()
    if w.shape not in ((rows,), (rows, 1)):
        raise ValueError(f"weight: expected one per row, ({rows},), with sparse scores, got {tuple(w.shape)}")
    if w.numel() and not w.min() >= 0:
        raise ValueError(f"weight: expected no negative value, got {w.min().item():g}")
    return w.reshape(rows, 1)


def find_group_starts(group: Tensor, groups: int) -> Tensor:
    """Return where each group starts when elements are ordered by group, and where the last ends: ``(groups + 1,)``."""
    ends = torch.bincount(group, minlength=groups).cumsum(0)
    return torch.cat((torch.zeros(1, dtype=torch.long), ends))


def cumulate_by_group(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return running sums of values that are ordered by group, starting anew in each."""
    sums = values.cumsum(0)
    sums_before = torch.cat((sums.new_zeros(1), sums))
    sum_before_group = sums_before[find_group_starts(group, groups)]
    return sums - sum_before_group[group]


def _sum_by_group(values: Tensor, group: Tensor, groups: int) -> Tensor:
    return torch.zeros(groups, dtype=torch.float64).index_add_(0, group, values)
