"""Search in sparse scores: the same as ``threshold_search`` from the stored elements alone.

Elements that are not stored have score 0 and are never predicted: every threshold is above 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.core.counts import cells, least_weight, subtract
from metricgrad.core.curves import Curve, cumulate, last_of_equals, sort_descending
from metricgrad.core.metrics.averages import class_weights
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.sparse import cumulate_by_group
from metricgrad.decisions.threshold_search import evaluate_by_parts

if TYPE_CHECKING:
    from metricgrad.core.metrics import Metric
    from metricgrad.core.objective import Objective
    from metricgrad.core.sparse import LabelThresholds, SparseBatch


def make_curve(batch: SparseBatch, labels: list[int]) -> Curve:
    """Return the curve of some labels, all in one, at the thresholds above 0."""
    if len(labels) == 1:
        of_labels = batch.label_thresholds
        label = labels[0]
        own = slice(int(of_labels.starts[label]), int(of_labels.starts[label + 1]))
        return Curve(of_labels.thresholds[own], of_labels.counts.map(lambda cell: cell[own]))
    order, starts = batch.ranked
    elements = torch.cat([order[int(starts[label]) : int(starts[label + 1])] for label in labels])
    scores = batch.logits[elements]
    all_positive_weight, all_negative_weight = batch.sides
    positive_weight = all_positive_weight[elements]
    negative_weight = all_negative_weight[elements]
    reached = (scores > 0) & (positive_weight + negative_weight > 0)
    curve = cumulate(scores[reached], positive_weight[reached], negative_weight[reached])
    positives = positive_weight.sum()
    negatives = subtract(len(labels) * batch.total, positives, batch.least)
    counts = cells(curve.counts.tp, curve.counts.fp, positives, negatives, least=batch.least)
    return Curve(curve.thresholds, counts)


def find_best_thresholds(objective: Objective, batch: SparseBatch, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return every label's best threshold and the lower and upper end of its plateau; NaN if undefined."""
    of_labels = batch.label_thresholds
    values = evaluate_by_parts(objective.values, of_labels.counts)
    values = values.masked_fill(values.isnan(), -torch.inf)
    best_values = values.new_full((batch.classes,), -torch.inf).scatter_reduce_(0, of_labels.label, values, "amax")
    best_value_of_label = best_values[of_labels.label]
    # The first threshold of each label that has its best value.
    indices = torch.arange(len(values))
    end = len(values)
    candidates = torch.where(values == best_value_of_label, indices, end)
    best = torch.full((batch.classes,), end).scatter_reduce_(0, of_labels.label, candidates, "amin")
    # The plateau: the run of good thresholds around the best, between the nearest bad ones or the ends of the label.
    bad = values < best_value_of_label - epsilon
    after_last_bad = torch.where(bad, indices, -1).cummax(0).values[best] + 1
    before_next_bad = torch.where(bad, indices, end).flip(0).cummin(0).values.flip(0)[best] - 1
    first = torch.maximum(after_last_bad, of_labels.starts[:-1])
    last = torch.minimum(before_next_bad, of_labels.starts[1:] - 1)
    undefined = best_values == -torch.inf
    threshold = _find_midpoints_below(of_labels, best).double().masked_fill(undefined, torch.nan)
    low = _find_midpoints_below(of_labels, last).double().masked_fill(undefined, torch.nan)
    high = of_labels.thresholds[first].double().masked_fill(undefined, torch.nan)
    return threshold, low, high


def _find_midpoints_below(of_labels: LabelThresholds, index: Tensor) -> Tensor:
    """Return the thresholds midway between one score of each label and the label's next lower score."""
    score = of_labels.thresholds[index]
    next_index = (index + 1).clamp(max=len(of_labels.thresholds) - 1)
    next_lower = of_labels.thresholds[next_index]
    middle = score / 2 + next_lower / 2
    has_lower = index + 1 < of_labels.starts[1:]
    # In the scores' own type, as in ``threshold_search.find_midpoint_below``.
    makes_same_decisions = (next_lower < middle) & (middle <= score)
    return torch.where(has_lower & score.isfinite() & makes_same_decisions, middle, score)


def sweep_shared_threshold(
    objective: Objective, metric: Metric, batch: SparseBatch, labels: list[int]
) -> tuple[Tensor, Tensor]:
    """Return every threshold above 0 that labels may share, and the metric there, averaged over them."""
    average = objective.average
    if average == "samples":
        positive_weight, negative_weight, size = batch.row_sides(objective.labels)
        least = least_weight(positive_weight, negative_weight)
        weights = ratio(batch.row_weight, batch.row_weight.sum())
        sizes = weights.new_full((batch.rows,), size)
        return _sweep(batch.logits, batch.row, positive_weight, negative_weight, sizes, least, metric, weights)
    # The elements of these labels; the population of an element is the position of its label in the list.
    population_of_label = torch.full((batch.classes,), -1)
    population_of_label[labels] = torch.arange(len(labels))
    population = population_of_label[batch.label]
    chosen = population >= 0
    population = population[chosen]
    scores = batch.logits[chosen]
    all_positive_weight, all_negative_weight = batch.sides
    positive_weight = all_positive_weight[chosen]
    negative_weight = all_negative_weight[chosen]
    total = positive_weight.new_full((len(labels),), batch.total)
    if average == "micro":
        population = torch.zeros_like(population)
        total = total.sum(0, keepdim=True)
        weights = positive_weight.new_ones(1)
    else:
        positives = positive_weight.new_zeros(len(labels)).index_add_(0, population, positive_weight)
        average = "macro" if average == "per-class" else average
        weights = class_weights(average, positives, None, objective.empty_classes)
    return _sweep(scores, population, positive_weight, negative_weight, total, batch.least, metric, weights)


def _sweep(
    scores: Tensor,
    population: Tensor,
    positive_weight: Tensor,
    negative_weight: Tensor,
    total: Tensor,
    least: float | None,
    metric: Metric,
    weights: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return every distinct score above 0, from ∞ down, and Σ weights·value of the populations at that threshold.

    A population is a label, a row, or all labels together. ``total``: the weight of each population, including elements
    that are not stored. ``least``: see ``counts.subtract``.
    """
    positives = torch.zeros_like(total).index_add_(0, population, positive_weight)
    negatives = subtract(total, positives, least)
    reached = (scores > 0) & (positive_weight + negative_weight > 0) & (weights[population] > 0)
    sorted_scores, order = sort_descending(scores[reached])
    last = last_of_equals(sorted_scores)
    # The elements population by population, each from its highest score down.
    population = population[reached][order]
    by_population = population.argsort(stable=True)
    owner = population[by_population]
    tp = cumulate_by_group(positive_weight[reached][order][by_population], owner, len(total))
    fp = cumulate_by_group(negative_weight[reached][order][by_population], owner, len(total))
    # The value of each population before its first element, and after each of its elements.
    nothing = torch.zeros_like(total)
    start = metric(cells(nothing, nothing, positives, negatives))
    start = torch.where(weights > 0, start * weights, 0.0)
    after = metric(cells(tp, fp, positives[owner], negatives[owner], least=least)) * weights[owner]

    def sum_populations(start: Tensor, after: Tensor) -> Tensor:
        """Return Σ over populations when each has the value after its last element that reaches the threshold."""
        is_first = torch.ones_like(owner, dtype=torch.bool)
        is_first[1:] = owner[1:] != owner[:-1]
        before = torch.where(is_first, start[owner], after.roll(1))
        changes = torch.empty_like(after).scatter_(0, by_population, after - before)
        base = start.sum(0, keepdim=True)
        return torch.cat((base, base + changes.cumsum(0)[last]))

    thresholds = torch.cat((sorted_scores.new_full((1,), torch.inf), sorted_scores[last]))
    sums_of_values = sum_populations(start.nan_to_num(0, 0, 0), after.nan_to_num(0, 0, 0))
    start_undefined = (~start.isfinite()).double()
    after_undefined = (~after.isfinite()).double()
    if bool(start_undefined.any()) or bool(after_undefined.any()):
        undefined_populations = sum_populations(start_undefined, after_undefined)
        sums_of_values[undefined_populations > 0.5] = torch.nan
    return thresholds, sums_of_values
