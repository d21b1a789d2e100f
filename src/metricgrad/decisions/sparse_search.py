"""Search in sparse scores: the same as ``threshold_search`` from the stored elements alone.

What is not stored has score 0 and is never predicted, so that thresholds are those between stored scores above 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.counts import Counts, cells
from metricgrad.curves import Curve, cumulate, descending, last_of_equals
from metricgrad.metrics.averages import class_weights
from metricgrad.metrics.derivatives import ratio

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.engine.objective import Objective
    from metricgrad.engine.sparse import SparseBatch
    from metricgrad.metrics import Metric


def label_curve(batch: SparseBatch, group: list[int]) -> Curve:
    """Return the curve of some labels, all in one, at the thresholds above 0."""
    order, starts = batch.ranked
    mine = torch.cat([order[int(starts[k]) : int(starts[k + 1])] for k in group])
    wy, wn = (side[mine] for side in batch.sides)
    positives = wy.sum()
    there = (batch.logits[mine] > 0) & (wy + wn > 0)
    found = cumulate(batch.logits[mine][there], wy[there], wn[there])
    tp, fp = found.counts.tp, found.counts.fp
    return Curve(found.thresholds, cells(tp, fp, positives, len(group) * batch.total - positives))


def everywhere(
    objective: Objective, metric: Metric, batch: SparseBatch, group: list[int]
) -> tuple[Tensor, Tensor]:
    """Return every threshold above 0 that labels may share, and the metric there, averaged over them."""
    average = objective.average
    if average == "samples":
        wy, wn, size = batch.row_sides(objective.labels)
        weights = ratio(batch.row_weight, batch.row_weight.sum())
        return _events(batch.logits, batch.row, wy, wn, weights.new_full((batch.rows,), size), metric, weights)
    place = torch.full((batch.classes,), -1)
    place[group] = torch.arange(len(group))
    population = place[batch.label]
    mine = population >= 0
    s, population, wy, wn = (x[mine] for x in (batch.logits, population, *batch.sides))
    total = wy.new_full((len(group),), batch.total)
    if average == "micro":
        return _events(s, torch.zeros_like(population), wy, wn, total.sum(0, keepdim=True), metric, wy.new_ones(1))
    positives = wy.new_zeros(len(group)).index_add_(0, population, wy)
    weights = class_weights("macro" if average == "per-class" else average, positives, None, objective.absent)
    return _events(s, population, wy, wn, total, metric, weights)


def _events(
    scores: Tensor, population: Tensor, wy: Tensor, wn: Tensor, total: Tensor, metric: Metric, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return every distinct score above 0, from ∞ down, and Σ weights·value of the populations when cut there.

    A population is a label, a row or all together; ``total``: the weight of each, with what is not stored.
    """
    positives = torch.zeros_like(total).index_add_(0, population, wy)
    there = (scores > 0) & (wy + wn > 0) & (weights[population] > 0)
    s, order = descending(scores[there])
    last = last_of_equals(s)
    wy, wn, population = (x[there][order] for x in (wy, wn, population))
    by_population = population.argsort(stable=True)
    tp, fp = (_running(x[by_population], population[by_population], len(total)) for x in (wy, wn))
    owner = population[by_population]

    def sides(which: Tensor) -> tuple[Tensor, Tensor]:
        return positives[which], (total - positives)[which]

    counted = weights > 0
    start = metric(cells(*torch.zeros(2, len(total), dtype=torch.float64), positives, total - positives))
    start = torch.where(counted, start * weights, 0.0)
    after = metric(cells(tp, fp, *sides(owner))) * weights[owner]

    def sweep(start: Tensor, after: Tensor) -> Tensor:
        """Return Σ over populations when each has the value after its last element that is above the cut."""
        first = torch.ones_like(owner, dtype=torch.bool)
        first[1:] = owner[1:] != owner[:-1]
        before = torch.where(first, start[owner], after.roll(1))
        change = torch.empty_like(after).scatter_(0, by_population, after - before)
        base = start.sum(0, keepdim=True)
        return torch.cat((base, base + change.cumsum(0)[last]))

    thresholds = torch.cat((s.new_full((1,), torch.inf), s[last]))
    found = sweep(start.nan_to_num(0, 0, 0), after.nan_to_num(0, 0, 0))
    undefined = [(~x.isfinite()).double() for x in (start, after)]
    if any(bool(x.any()) for x in undefined):
        found[sweep(*undefined) > 0.5] = torch.nan
    return thresholds, found


def _running(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return running sums of values that are ordered by group, starting anew in each."""
    sums = values.cumsum(0)
    length = torch.bincount(group, minlength=groups)
    ends = torch.cat((sums.new_zeros(1), sums))[length.cumsum(0) - length]
    return sums - ends[group]
