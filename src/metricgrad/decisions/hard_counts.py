"""Tallies: the exact hard statistic of scores under a decision rule, in float64, chunk by chunk.

Chunks keep the extra memory small whatever the data; every statistic adds, so chunks, batches and processes do too.
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

_CHUNK = 1 << 19  # elements at a time: float32 adds up 0s and 1s exactly to far beyond


def decide(batch: Batch, rule: Rule, classes: bool = False) -> Tensor:
    """Return what a rule decides, label by label or a class for each row; refuse a rule of the other kind."""
    decided = rule.decide(batch.logits)
    if decided.shape != (batch.logits.shape[:1] if classes else batch.logits.shape):
        wanted = "a class for each row" if classes else "label by label"
        raise ValueError(f"rule: expected one that decides {wanted} for this task, got {rule!r}")
    return decided


def counts(batch: AnyBatch, rule: Rule) -> Counts:
    """Return the cells of each class, ``(K,)``."""
    if isinstance(batch, SparseBatch):
        return batch.counts(rule.decide_stored(batch))
    parts = [_counts(part, decide(part, rule)) for part in chunks(batch)]
    return cells(*(torch.stack(cell).sum(0) for cell in zip(*parts, strict=True)))


def _counts(part: Batch, decided: Tensor) -> tuple[Tensor, ...]:
    if part.weight is None and not part.targets.is_floating_point():
        y = part.targets.float()
        p = decided.float()
        predicted, positives = p.sum(0).double(), y.sum(0).double()
        tp = p.mul_(y).sum(0).double()
        return tp, predicted - tp, positives, len(y) - positives
    y = part.targets.double()
    w = y.new_ones(1) if part.weight is None else part.weight.double()
    wy, wn = w * y, w * (1 - y)
    return (wy * decided).sum(0), (wn * decided).sum(0), wy.sum(0), wn.sum(0)


def matrix(batch: Batch, rule: Rule) -> Confusion:
    """Return the d×d matrix of a multi-class problem."""
    d = batch.logits.shape[1]
    total = torch.zeros(d, d, dtype=torch.float64, device=batch.logits.device)
    for part in chunks(batch):
        decided = decide(part, rule, classes=True)
        w = None if part.weight is None else part.weight.squeeze(1).double()
        if part.targets.dim() == 1:
            total += torch.bincount(part.targets * d + decided, w, minlength=d * d).view(d, d)
        else:
            y = part.targets.double()
            total.t().index_add_(0, decided, y if w is None else y * w.unsqueeze(1))
    return Confusion(total)


def means(batch: AnyBatch, rule: Rule, metrics: Sequence[Metric], labels: tuple[int, ...] | None) -> list[Mean]:
    """Return the samples average of each metric as a running mean over rows."""
    if isinstance(batch, SparseBatch):
        rows, row_weight = batch.row_counts(rule.decide_stored(batch), labels)
        return [Mean((metric(rows) * row_weight).sum(), row_weight.sum()) for metric in metrics]
    totals = torch.zeros(len(metrics), dtype=torch.float64, device=batch.logits.device)
    weight = totals.new_zeros(())
    for part in chunks(batch):
        rows, row_weight = row_counts(part, decide(part, rule), labels)
        totals += torch.stack([(metric(rows) * row_weight).sum() for metric in metrics])
        weight = weight + row_weight.sum()
    return [Mean(total, weight) for total in totals]


def row_counts(part: Batch, decided: Tensor, labels: tuple[int, ...] | None) -> tuple[Counts, Tensor]:
    """Return the cells of each row, ``(N,)``, and what the row counts."""
    wy, wn, row_weight = row_cells(part, labels)
    return cells((wy * decided).sum(1), (wn * decided).sum(1), wy.sum(1), wn.sum(1)), row_weight


def row_cells(part: Batch, labels: tuple[int, ...] | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return what each label adds to its row's positives and negatives, ``(N, K)``, and what each row counts."""
    row_weight, w = row_weights(part.logits.double(), part.weight, part.mask, labels)
    y = part.targets.double()
    wy, wn = (y, 1 - y) if w is None else (w * y, w * (1 - y))
    return wy, wn, row_weight.double()


def chunks(batch: Batch) -> Iterator[Batch]:
    """Yield the batch in parts of whole rows; at least one, if empty."""
    rows, classes = batch.logits.shape
    step = max(1, _CHUNK // max(1, classes))
    for start in range(0, max(rows, 1), step):
        part = slice(start, start + step)
        yield batch.take(part)


def has_weight(batch: AnyBatch) -> bool:
    """Tell whether anything in the batch counts."""
    return batch.rows > 0 and (batch.weight is None or bool((batch.weight > 0).any()))
