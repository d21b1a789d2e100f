"""Search: the best threshold of one class or of all together, from hard counts at every distinct threshold.

Counts at every threshold come from one sort and a cumulative sum, so the exact optimum of any metric costs O(n log n).
Thresholds are sorted from the highest down; an *index* is the position of a threshold in that order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.core.counts import Counts, cells
from metricgrad.core.curves import Curve, cumulate, last_of_equals, sort_descending

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.batch import Batch

_SCORES_AT_ONCE = 1 << 20
_LONG_ROW = 1 << 14  # rows of at least this many scores are sorted one by one, which is faster for long rows
_LEAST_IMPROVEMENT = 1e-12  # a smaller difference of two values may be rounding alone


def find_midpoint_below(thresholds: Tensor, index: int) -> float:
    """Return the threshold midway between a score and the next lower one.

    It decides as the score itself does, and stays as far as possible from both.
    """
    score = thresholds[index]
    if index + 1 == len(thresholds):
        return score.item()
    next_lower = thresholds[index + 1]
    # Computed in the scores' own type. Between two neighbouring float32 numbers there is no third one, and beside ∞ or
    # -∞ there is no middle: the result is then one of the two scores, and only the higher one makes the same decisions.
    middle = score / 2 + next_lower / 2
    makes_same_decisions = bool(next_lower < middle <= score)
    return middle.item() if makes_same_decisions else score.item()


def evaluate_by_parts(value: Callable[[Counts], Tensor], counts: Counts) -> Tensor:
    """Return ``value(counts)`` of ``(M,)`` cells a part at a time: large temporaries cost more than arithmetic."""
    split_cells = [cell.split(_SCORES_AT_ONCE) for cell in counts.cells()]
    parts = [Counts(*cells_of_part) for cells_of_part in zip(*split_cells, strict=True)]
    return torch.cat([value(part) for part in parts])


def find_run_around(good: Tensor, index: int) -> tuple[int, int]:
    """Return the first and last index of the run of True around an index."""
    # One bad entry before the first and one after the last, so that there is a bad one on either side of the run.
    end = good.new_ones(1)
    bad = torch.cat((end, ~good, end)).view(torch.uint8)
    # argmax finds the first bad entry without the list of all indices that nonzero() would make.
    good_before = int(bad[: index + 1].flip(0).argmax())
    good_after = int(bad[index + 2 :].argmax())
    return index - good_before, index + good_after


def find_better(values: Tensor, current: int) -> int:
    """Return the index of the best value; the current index if its value is equally good, up to rounding."""
    defined = _replace_undefined(values)
    best = int(defined.argmax())
    return best if defined[best] > defined[current] + _LEAST_IMPROVEMENT else current


def _replace_undefined(values: Tensor) -> Tensor:
    """Return values with −∞ in the place of NaN, so that an undefined value is never the best."""
    return values.masked_fill(values.isnan(), -torch.inf)


# The curve of a class, or of several together


def make_curve(batch: Batch, classes: list[int]) -> Curve:
    """Return one curve of some classes together, at the thresholds that can be reached; weights of 0 are left out."""
    scores = _flatten_columns(batch.logits, classes).contiguous()
    targets = _flatten_columns(batch.targets, classes)
    if batch.weight is None:
        # Small integers are gathered faster than floats, and add up exactly.
        positives = targets.double() if targets.is_floating_point() else targets.to(torch.int8)
        curve = cumulate(scores, positives)
    else:
        weight = _flatten_columns(batch.weight, classes).double()
        has_weight = weight > 0
        weight = weight[has_weight]
        targets = targets.double()[has_weight]
        curve = cumulate(scores[has_weight], weight * targets, weight * (1 - targets))
    first = _find_first_reached(curve.thresholds)
    if first == 0:
        return curve
    return Curve(curve.thresholds[first:], curve.counts.map(lambda cell: cell[first:]))


def _find_first_reached(thresholds: Tensor) -> int:
    """Return the first index that can be reached: 0, or 1 where a score is ∞.

    At index 0, the threshold ∞, nothing is predicted. If a score is ∞ itself, even that threshold predicts it.
    """
    highest_score_is_infinite = len(thresholds) > 1 and bool(thresholds[1] == torch.inf)
    return 1 if highest_score_is_infinite else 0


def _flatten_columns(x: Tensor, classes: list[int]) -> Tensor:
    return select_columns(x, classes).t().reshape(-1)


def select_columns(x: Tensor, classes: list[int]) -> Tensor:
    """Return the columns of some classes, as a view where possible; a single column stands for every class."""
    if x.shape[1] == 1:
        return x.expand(-1, len(classes))
    if len(classes) == 1:
        return x[:, classes[0] : classes[0] + 1]
    all_classes = list(range(x.shape[1]))
    return x if classes == all_classes else x[:, classes]


# One threshold for all classes


def sweep_shared_threshold(
    scores: Tensor,
    positive_weight: Tensor,
    negative_weight: Tensor,
    value: Callable[[Counts, slice], Tensor],
    weights: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return every distinct score, from ∞ down, and Σ weights·value of the populations at that threshold.

    Every row is a population: a class or, for the samples average, a sample. Lowering the threshold past one score
    changes one population's value: sorting these changes by score and cumulating them gives the whole curve.
    ``value(counts, part)``: the metric of a part of the populations.
    """
    # ``start``: the sum where nothing is predicted; ``changes``: what each element adds when it becomes predicted.
    changes = torch.empty_like(positive_weight)
    start = positive_weight.new_zeros(1)
    # The same for the number of populations whose value is undefined; only if there are any.
    undefined_changes: Tensor | None = None
    undefined_start = positive_weight.new_zeros(1)
    populations_at_once = max(1, _SCORES_AT_ONCE // scores.shape[1])
    for first_population in range(0, len(scores), populations_at_once):
        part = slice(first_population, first_population + populations_at_once)
        order = _sort_rows_descending(scores[part])
        tp = _cumulate_rows(positive_weight[part].gather(1, order))
        fp = _cumulate_rows(negative_weight[part].gather(1, order))
        weight = weights[part].unsqueeze(1)
        positives = tp[:, -1:]
        negatives = fp[:, -1:]
        weighted_values = value(cells(tp, fp, positives, negatives), part) * weight
        values = torch.where(weight > 0, weighted_values, 0.0)  # a population without weight does not count, even NaN
        if not values.isfinite().all():
            undefined = (~values.isfinite()).double()
            values = values.nan_to_num(0, 0, 0)
            if undefined_changes is None:
                undefined_changes = torch.zeros_like(positive_weight)
            undefined_changes[part].scatter_(1, order, undefined.diff(dim=1))
            undefined_start += undefined[:, 0].sum()
        # Equal scores within a population need no care: their changes are summed under one threshold, and only the
        # total counts.
        changes[part].scatter_(1, order, values.diff(dim=1))
        start += values[:, 0].sum()
    # Only scores of elements that have weight, in populations that have weight, are thresholds.
    element_has_weight = (positive_weight > 0) | (negative_weight > 0)
    population_has_weight = (weights > 0).unsqueeze(1)
    counted = element_has_weight & population_has_weight
    sorted_scores, order = sort_descending(scores[counted])
    last = last_of_equals(sorted_scores)

    def cumulate_changes(changes: Tensor, start: Tensor) -> Tensor:
        sums = changes[counted][order].cumsum(0)
        return torch.cat((start, start + sums[last]))

    thresholds = torch.cat((sorted_scores.new_full((1,), torch.inf), sorted_scores[last]))
    sums_of_values = cumulate_changes(changes, start)
    if undefined_changes is not None:
        undefined_populations = cumulate_changes(undefined_changes, undefined_start)
        sums_of_values[undefined_populations > 0.5] = torch.nan
    first = _find_first_reached(thresholds)
    return thresholds[first:], sums_of_values[first:]


def _sort_rows_descending(scores: Tensor) -> Tensor:
    """Return the order of every row from its highest score down."""
    if scores.shape[1] < _LONG_ROW:
        return scores.argsort(dim=1, descending=True)
    return torch.stack([sort_descending(row)[1] for row in scores])


def _cumulate_rows(x: Tensor) -> Tensor:
    """Return the running sums of each row, starting with 0."""
    return torch.cat((x.new_zeros(len(x), 1), x.cumsum(1)), 1)


# One threshold per class, pooled


def find_best_corner(curves: list[Curve], value: Callable[[Counts], Tensor]) -> list[int]:
    """Return each class's index at the best corner of the pooled counts that thresholds can give.

    Pooled counts are the sum of one point (FP, TP) from each class's curve. The convex hull of all such sums is made of
    the edges of the classes' own hulls: sorted by slope, they lead from one corner to the next.
    """
    best = -torch.inf
    chosen = [0] * len(curves)
    tp_start = torch.stack([curve.counts.tp[0] for curve in curves]).sum(0, keepdim=True)
    fp_start = torch.stack([curve.counts.fp[0] for curve in curves]).sum(0, keepdim=True)
    fn_end = float(sum(curve.counts.fn[-1] for curve in curves))
    tn_end = float(sum(curve.counts.tn[-1] for curve in curves))
    for sign in (1, -1):  # the upper hull, and the lower one for metrics that reward errors
        hulls = [find_hull(curve.counts.fp, curve.counts.tp, sign) for curve in curves]
        tp_edges = torch.cat([curve.counts.tp[hull].diff() for curve, hull in zip(curves, hulls, strict=True)])
        fp_edges = torch.cat([curve.counts.fp[hull].diff() for curve, hull in zip(curves, hulls, strict=True)])
        edges_of_class = torch.tensor([len(hull) - 1 for hull in hulls])
        class_of_edge = torch.repeat_interleave(edges_of_class)
        slopes = torch.atan2(sign * tp_edges, fp_edges)
        order = slopes.argsort(descending=True, stable=True)
        tp = torch.cat((tp_start, tp_start + tp_edges[order].cumsum(0)))
        fp = torch.cat((fp_start, fp_start + fp_edges[order].cumsum(0)))
        # P and N are computed from the last running sums, so that FN and TN are exact at the last corner.
        positives = (tp[-1:] + fn_end).expand_as(tp)
        negatives = (fp[-1:] + tn_end).expand_as(fp)
        values = _replace_undefined(value(cells(tp, fp, positives, negatives)))
        corner = int(values.argmax())
        if values[corner] > best:
            best = values[corner].item()
            classes_of_taken = class_of_edge[order[:corner]]
            edges_taken = torch.bincount(classes_of_taken, minlength=len(curves)).tolist()
            chosen = [int(hull[taken]) for hull, taken in zip(hulls, edges_taken, strict=True)]
    return chosen


def find_hull(x: Tensor, y: Tensor, sign: int) -> Tensor:
    """Return the indices of the upper (``sign=1``) or lower hull's corners of points ordered along a curve."""
    kept = torch.arange(len(x), device=x.device)
    while len(kept) > 2:
        dx = x[kept].diff()
        dy = (sign * y[kept]).diff()
        # A point on or below the line between its neighbours is no corner. All of them can be left out at once.
        is_corner = dy[:-1] * dx[1:] > dy[1:] * dx[:-1]
        if is_corner.all():
            break
        end = is_corner.new_ones(1)
        kept = kept[torch.cat((end, is_corner, end))]
    return kept


def ascend_one_by_one(indices: list[int], choose: Callable[[int, list[int]], int], sweeps: int = 100) -> list[int]:
    """Move one class's index at a time to its best, in place, until none moves: a local optimum."""
    for _ in range(sweeps):
        before = list(indices)
        for k in range(len(indices)):
            indices[k] = choose(k, indices)
        if indices == before:
            break
    return indices


def choose_in_pooled_counts(curves: list[Curve], value: Callable[[Counts], Tensor], k: int, indices: list[int]) -> int:
    """Return the best index of class k for the pooled counts, the other classes staying at theirs.

    It is the current one if that is equally good.
    """
    pooled = curves[k].counts
    for other, (curve, index) in enumerate(zip(curves, indices, strict=True)):
        if other != k:
            cells_at_index = [cell[index] for cell in curve.counts.cells()]
            pooled = pooled + Counts(*cells_at_index)
    return find_better(value(pooled), indices[k])


def sum_totals(curves: list[Curve]) -> tuple[float, float]:
    """Return the positives and the negatives of all curves together."""
    positives = float(sum(curve.counts.positives[-1] for curve in curves))
    negatives = float(sum(curve.counts.negatives[-1] for curve in curves))
    return positives, negatives
