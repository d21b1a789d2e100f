"""Hard counts: the exact statistic of scores under a decision rule, in float64, chunk by chunk.

Chunks keep the extra memory small for data of any size. Statistics add up over chunks, batches and processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.core.counts import Confusion, Counts, Mean, cells
from metricgrad.core.metrics.averages import row_weights
from metricgrad.core.sparse import AnyBatch, SparseBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from metricgrad.core.batch import Batch
    from metricgrad.core.metrics import Metric
    from metricgrad.decisions.rules import Rule

_ELEMENTS_AT_ONCE = 1 << 19  # of a chunk; float32 adds up 0s and 1s exactly to 2^24, far beyond that


def decide_batch(batch: Batch, rule: Rule, classes: bool = False) -> Tensor:
    """Return what a rule decides: a class for each row if ``classes``, else label by label.

    A rule that decides in the other way is refused.
    """
    decided = rule.decide(batch.logits)
    expected_shape = batch.logits.shape[:1] if classes else batch.logits.shape
    if decided.shape != expected_shape:
        wanted = "a class for each row" if classes else "label by label"
        raise ValueError(f"rule: expected one that decides {wanted} for this task, got {rule!r}")
    return decided


def count_cells(batch: AnyBatch, rule: Rule) -> Counts:
    """Return the cells of each class, ``(K,)``."""
    if isinstance(batch, SparseBatch):
        return batch.counts(rule.decide_stored(batch))
    parts = [_count_chunk(chunk, decide_batch(chunk, rule)) for chunk in split_into_chunks(batch)]
    tp, fp, positives, negatives = (torch.stack(sums).sum(0) for sums in zip(*parts, strict=True))
    return cells(tp, fp, positives, negatives)


def _count_chunk(chunk: Batch, decided: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return TP, FP, P and N of each class."""
    if chunk.weight is None and not chunk.targets.is_floating_point():
        labels = chunk.targets.float()
        predictions = decided.float()
        predicted = predictions.sum(0).double()
        positives = labels.sum(0).double()
        tp = predictions.mul_(labels).sum(0).double()
        return tp, predicted - tp, positives, len(labels) - positives
    labels = chunk.targets.double()
    weight = labels.new_ones(1) if chunk.weight is None else chunk.weight.double()
    positive_weight = weight * labels
    negative_weight = weight * (1 - labels)
    tp = (positive_weight * decided).sum(0)
    fp = (negative_weight * decided).sum(0)
    return tp, fp, positive_weight.sum(0), negative_weight.sum(0)


def decide_classes(batch: Batch, rule: Rule) -> Tensor:
    """Return the class index that a rule decides on for each row; undecided rows get d, one more than the last."""
    decided = decide_batch(batch, rule, classes=True)
    classes = batch.logits.shape[1]
    return decided.where((decided >= 0) & (decided < classes), classes) if rule.abstains else decided


def count_columns(batch: Batch, rule: Rule) -> int:
    """Return how many different numbers ``decide_classes`` may return."""
    return batch.logits.shape[1] + int(rule.abstains)


def count_classes(matrix: Confusion, rule: Rule) -> Counts:
    """Return the cells of each class, ``(..., d)``, from what ``count_matrix`` returned."""
    counts = matrix.counts()
    return counts.map(lambda cell: cell[..., :-1]) if rule.abstains else counts


def measure_coverage(batch: Batch, rule: Rule) -> float:
    """Return the share of the rows, by weight, that a rule of classes decides."""
    decided = decide_classes(batch, rule)
    is_decided = (decided < batch.logits.shape[1]).double()
    weight = torch.ones_like(is_decided) if batch.weight is None else batch.weight.double().squeeze(1)
    return ((weight * is_decided).sum() / weight.sum().clamp(min=1e-300)).item()


def count_matrix(batch: Batch, rule: Rule) -> Confusion:
    """Return the d×d matrix of a multi-class problem.

    If the rule may leave rows undecided, there is one more class, the last: undecided rows are predicted to be in it,
    and no row truly is. ``count_classes`` removes it.
    """
    classes = count_columns(batch, rule)
    total = torch.zeros(classes, classes, dtype=torch.float64, device=batch.logits.device)
    for chunk in split_into_chunks(batch):
        decided = decide_classes(chunk, rule)
        weight = None if chunk.weight is None else chunk.weight.squeeze(1).double()
        if chunk.targets.dim() == 1:
            place = chunk.targets * classes + decided
            total += torch.bincount(place, weight, minlength=classes**2).view(classes, classes)
        else:
            labels = chunk.targets.double()
            weighted = labels if weight is None else labels * weight.unsqueeze(1)
            total[: labels.shape[1]].t().index_add_(0, decided, weighted)
    return Confusion(total)


def average_rows(batch: AnyBatch, rule: Rule, metrics: Sequence[Metric], labels: tuple[int, ...] | None) -> list[Mean]:
    """Return the samples average of each metric as a running mean over rows."""
    if isinstance(batch, SparseBatch):
        rows, row_weight = batch.row_counts(rule.decide_stored(batch), labels)
        return [Mean((metric(rows) * row_weight).sum(), row_weight.sum()) for metric in metrics]
    totals = torch.zeros(len(metrics), dtype=torch.float64, device=batch.logits.device)
    weight = totals.new_zeros(())
    for chunk in split_into_chunks(batch):
        rows, row_weight = count_rows(chunk, decide_batch(chunk, rule), labels)
        totals += torch.stack([(metric(rows) * row_weight).sum() for metric in metrics])
        weight = weight + row_weight.sum()
    return [Mean(total, weight) for total in totals]


def count_rows(batch: Batch, decided: Tensor, labels: tuple[int, ...] | None) -> tuple[Counts, Tensor]:
    """Return the cells of each row, ``(N,)``, and the weight of each row in the average."""
    positive_weight, negative_weight, row_weight = weigh_labels_of_rows(batch, labels)
    tp = (positive_weight * decided).sum(1)
    fp = (negative_weight * decided).sum(1)
    return cells(tp, fp, positive_weight.sum(1), negative_weight.sum(1)), row_weight


def weigh_labels_of_rows(batch: Batch, labels: tuple[int, ...] | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return what each label adds to its row's positives and negatives, ``(N, K)``, and the weight of each row."""
    row_weight, label_weight = row_weights(batch.logits.double(), batch.weight, batch.mask, labels)
    targets = batch.targets.double()
    if label_weight is None:
        return targets, 1 - targets, row_weight.double()
    return label_weight * targets, label_weight * (1 - targets), row_weight.double()


def split_into_chunks(batch: Batch) -> Iterator[Batch]:
    """Yield the batch in parts of whole rows; an empty batch is one part."""
    rows, classes = batch.logits.shape
    rows_at_once = max(1, _ELEMENTS_AT_ONCE // max(1, classes))
    for start in range(0, max(rows, 1), rows_at_once):
        yield batch.take(slice(start, start + rows_at_once))


def has_weight(batch: AnyBatch) -> bool:
    """Tell whether the batch has rows, and any of them a weight above 0."""
    return batch.rows > 0 and (batch.weight is None or bool((batch.weight > 0).any()))
