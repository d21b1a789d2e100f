"""Search in sparse scores: the same as ``threshold_search`` from the stored elements alone.

What is not stored has score 0 and is never predicted, so that thresholds are those between stored scores above 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.core.counts import cells, least_weight, subtract
from metricgrad.core.curves import Curve, cumulate, descending, last_of_equals
from metricgrad.core.metrics.averages import class_weights
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.sparse import running
from metricgrad.decisions.threshold_search import by_parts

if TYPE_CHECKING:
    from metricgrad.core.metrics import Metric
    from metricgrad.core.objective import Objective
    from metricgrad.core.sparse import Cuts, SparseBatch


def label_curve(batch: SparseBatch, group: list[int]) -> Curve:
    """Return the curve of some labels, all in one, at the thresholds above 0."""
    cuts = batch.cuts
    if len(group) == 1:
        mine = slice(int(cuts.starts[group[0]]), int(cuts.starts[group[0] + 1]))
        return Curve(cuts.thresholds[mine], cuts.counts.map(lambda cell: cell[mine]))
    order, starts = batch.ranked
    elements = torch.cat([order[int(starts[k]) : int(starts[k + 1])] for k in group])
    wy, wn = (side[elements] for side in batch.sides)
    there = (batch.logits[elements] > 0) & (wy + wn > 0)
    found = cumulate(batch.logits[elements][there], wy[there], wn[there])
    positives = wy.sum()
    negatives = subtract(len(group) * batch.total, positives, batch.least)
    counts = cells(found.counts.tp, found.counts.fp, positives, negatives, least=batch.least)
    return Curve(found.thresholds, counts)


def best_of_each(objective: Objective, batch: SparseBatch, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return every label's best threshold and the lower and upper end of its plateau; NaN if undefined."""
    cuts = batch.cuts
    values = by_parts(objective.values, cuts.counts)
    values = values.masked_fill(values.isnan(), -torch.inf)
    most = values.new_full((batch.classes,), -torch.inf).scatter_reduce_(0, cuts.label, values, "amax")
    place, end = torch.arange(len(values)), len(values)
    here = torch.where(values == most[cuts.label], place, end)
    cut = torch.full((batch.classes,), end).scatter_reduce_(0, cuts.label, here, "amin")
    # The run of good cuts around the best: between the nearest bad ones, or to the ends of the label.
    bad = values < most[cuts.label] - epsilon
    before = torch.where(bad, place, -1).cummax(0).values[cut] + 1
    after = torch.where(bad, place, end).flip(0).cummin(0).values.flip(0)[cut] - 1
    first, last = torch.maximum(before, cuts.starts[:-1]), torch.minimum(after, cuts.starts[1:] - 1)
    ends = (_between(cuts, cut), _between(cuts, last), cuts.thresholds[first])
    return tuple(x.double().masked_fill(most == -torch.inf, torch.nan) for x in ends)  # type: ignore[return-value]


def _between(cuts: Cuts, cut: Tensor) -> Tensor:
    """Return the thresholds midway between one cut of each label and the label's next lower score."""
    score, lower = cuts.thresholds[cut], cuts.thresholds[(cut + 1).clamp(max=len(cuts.thresholds) - 1)]
    middle = score / 2 + lower / 2
    inside = (cut + 1 < cuts.starts[1:]) & score.isfinite() & (lower < middle) & (middle <= score)
    return torch.where(inside, middle, score)


def everywhere(objective: Objective, metric: Metric, batch: SparseBatch, group: list[int]) -> tuple[Tensor, Tensor]:
    """Return every threshold above 0 that labels may share, and the metric there, averaged over them."""
    average = objective.average
    if average == "samples":
        wy, wn, size = batch.row_sides(objective.labels)
        weights = ratio(batch.row_weight, batch.row_weight.sum())
        sizes = weights.new_full((batch.rows,), size)
        return _events(batch.logits, batch.row, wy, wn, sizes, least_weight(wy, wn), metric, weights)
    place = torch.full((batch.classes,), -1)
    place[group] = torch.arange(len(group))
    population = place[batch.label]
    mine = population >= 0
    s, population, wy, wn = (x[mine] for x in (batch.logits, population, *batch.sides))
    total = wy.new_full((len(group),), batch.total)
    if average == "micro":
        together, total, one = torch.zeros_like(population), total.sum(0, keepdim=True), wy.new_ones(1)
        return _events(s, together, wy, wn, total, batch.least, metric, one)
    positives = wy.new_zeros(len(group)).index_add_(0, population, wy)
    weights = class_weights("macro" if average == "per-class" else average, positives, None, objective.empty_classes)
    return _events(s, population, wy, wn, total, batch.least, metric, weights)


def _events(
    scores: Tensor,
    population: Tensor,
    wy: Tensor,
    wn: Tensor,
    total: Tensor,
    least: float | None,
    metric: Metric,
    weights: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return every distinct score above 0, from ∞ down, and Σ weights·value of the populations when cut there.

    A population is a label, a row or all together; ``total``: the weight of each, with what is not stored; ``least``:
    see ``counts.subtract``.
    """
    positives = torch.zeros_like(total).index_add_(0, population, wy)
    there = (scores > 0) & (wy + wn > 0) & (weights[population] > 0)
    s, order = descending(scores[there])
    last = last_of_equals(s)
    wy, wn, population = (x[there][order] for x in (wy, wn, population))
    by_population = population.argsort(stable=True)
    tp, fp = (running(x[by_population], population[by_population], len(total)) for x in (wy, wn))
    owner = population[by_population]

    negatives = subtract(total, positives, least)
    counted = weights > 0
    nothing = torch.zeros_like(total)
    start = metric(cells(nothing, nothing, positives, negatives))
    start = torch.where(counted, start * weights, 0.0)
    after = metric(cells(tp, fp, positives[owner], negatives[owner], least=least)) * weights[owner]

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
