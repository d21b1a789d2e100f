"""Search: the best cut of one class or of all together, from hard counts at every distinct threshold.

Counts at every cut come from one sort and a cumulative sum, so the exact optimum of any metric costs O(n log n).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.core.counts import Counts, cells
from metricgrad.core.curves import Curve, cumulate, descending, last_of_equals

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.batch import Batch

_CHUNK = 1 << 20  # scores looked at together


def between(thresholds: Tensor, cut: int) -> float:
    """Return the threshold midway between a cut's score and the next lower one: the same decisions, most room."""
    score = thresholds[cut]
    if cut + 1 == len(thresholds) or not score.isfinite() or not thresholds[cut + 1].isfinite():
        return score.item()
    # In the scores' own type: a number between two neighbours of float32 is no float32.
    middle = score / 2 + thresholds[cut + 1] / 2
    return (middle if thresholds[cut + 1] < middle <= score else score).item()


def by_parts(value: Callable[[Counts], Tensor], counts: Counts) -> Tensor:
    """Return ``value(counts)`` of ``(M,)`` cells a part at a time: large temporaries cost more than arithmetic."""
    parts = zip(*(cell.split(_CHUNK) for cell in counts.cells()), strict=True)
    return torch.cat([value(Counts(*part)) for part in parts])


def run_around(good: Tensor, cut: int) -> tuple[int, int]:
    """Return the first and last index of the run of True that holds ``cut``."""
    # The place of the first largest byte: a pass without the list of indices that nonzero() makes.
    bad = torch.cat((good.new_ones(1), ~good, good.new_ones(1))).view(torch.uint8)
    before, after = bad[: cut + 1].flip(0).argmax(), bad[cut + 2 :].argmax()
    return cut - int(before), cut + int(after)


# One threshold for all classes


def events(
    scores: Tensor, wy: Tensor, wn: Tensor, value: Callable[[Counts, slice], Tensor], weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return every distinct score, from ∞ down, and Σ weights·value of the populations when cut there.

    Every row is a population: a class or, for the samples average, a sample. Lowering the threshold past one score
    changes one population's value: sorting these changes by score and cumulating them gives the whole curve.
    ``value(counts, part)``: the metric of a part of the populations.
    """
    changes, base = torch.empty_like(wy), wy.new_zeros(1)
    undefined, at_start = None, wy.new_zeros(1)  # how many populations' values are, made only if some is
    for some in range(0, len(scores), step := max(1, _CHUNK // max(1, scores.shape[1]))):
        part = slice(some, some + step)
        order = _order(scores[part])
        cuts = (x[part].gather(1, order) for x in (wy, wn))
        tp, fp = (torch.cat((x.new_zeros(len(x), 1), x.cumsum(1)), 1) for x in cuts)
        w = weights[part].unsqueeze(1)
        # No weight, no part, whatever the value.
        values = torch.where(w > 0, value(cells(tp, fp, tp[:, -1:], fp[:, -1:]), part) * w, 0.0)
        if not values.isfinite().all():
            bad = (~values.isfinite()).double()
            values = values.nan_to_num(0, 0, 0)
            undefined = torch.zeros_like(wy) if undefined is None else undefined
            undefined[part].scatter_(1, order, bad.diff(dim=1))
            at_start += bad[:, 0].sum()
        # Equal scores within a population need no care: their changes end up under one threshold and telescope.
        changes[part].scatter_(1, order, values.diff(dim=1))
        base += values[:, 0].sum()
    # What does not count is no place to cut.
    there = ((wy > 0) | (wn > 0)) & (weights > 0).unsqueeze(1)
    s, order = descending(scores[there])
    last = last_of_equals(s)

    def total(changes: Tensor, start: Tensor) -> Tensor:
        return torch.cat((start, start + changes[there][order].cumsum(0)[last]))

    thresholds, found = torch.cat((s.new_full((1,), torch.inf), s[last])), total(changes, base)
    if undefined is not None:
        found[total(undefined, at_start) > 0.5] = torch.nan
    first = _first(thresholds)
    return thresholds[first:], found[first:]


def _first(thresholds: Tensor) -> int:
    """Return the first cut that a threshold reaches: none predicts nothing where a score is ∞."""
    return int(len(thresholds) > 1 and thresholds[1] == torch.inf)


def _order(scores: Tensor) -> Tensor:
    """Return the order of every row from its highest score down."""
    if scores.shape[1] < 1 << 14:
        return scores.argsort(dim=1, descending=True)
    return torch.stack([descending(row)[1] for row in scores])


# One threshold per class, pooled


def best_corner(curves: list[Curve], value: Callable[[Counts], Tensor]) -> list[int]:
    """Return each class's cut at the best corner of all pooled counts that can be reached.

    What can be reached is a sum of one point per class; the corners of such a sum follow the classes' convex hulls,
    merged by the slope of their edges.
    """
    best, chosen = -torch.inf, [0] * len(curves)
    start = [torch.stack([cell[0] for cell in side]).sum(0, keepdim=True) for side in _sides(curves)]
    missed, spared = (float(sum(cell[-1] for cell in side)) for side in _rests(curves))
    for sign in (1, -1):  # the upper hull, and the lower one for metrics that reward errors
        corners = [_hull(c.counts.fp, c.counts.tp, sign) for c in curves]
        edges = [(c.counts.fp[k].diff(), c.counts.tp[k].diff()) for c, k in zip(curves, corners, strict=True)]
        fp, tp = (torch.cat(part) for part in zip(*edges, strict=True))
        owner = torch.repeat_interleave(torch.tensor([len(k) - 1 for k in corners]))
        order = torch.atan2(sign * tp, fp).argsort(descending=True, stable=True)
        tps, fps = (torch.cat((s, s + cell[order].cumsum(0))) for s, cell in zip(start, (tp, fp), strict=True))
        # P and N as the end of the same running sums, so that FN and TN are 0 there, and not rounding.
        positives, negatives = tps[-1:] + missed, fps[-1:] + spared
        values = _defined(value(cells(tps, fps, positives.expand_as(tps), negatives.expand_as(fps))))
        place = int(values.argmax())
        if values[place] > best:
            best = values[place].item()
            taken = torch.bincount(owner[order[:place]], minlength=len(curves))
            chosen = [int(k[n]) for k, n in zip(corners, taken.tolist(), strict=True)]
    return chosen


def _sides(curves: list[Curve]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the true and the false positives of all curves."""
    return [c.counts.tp for c in curves], [c.counts.fp for c in curves]


def _rests(curves: list[Curve]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the false and the true negatives of all curves."""
    return [c.counts.fn for c in curves], [c.counts.tn for c in curves]


def _hull(x: Tensor, y: Tensor, sign: int) -> Tensor:
    """Return the indices of the upper (``sign=1``) or lower hull's corners of points ordered along a curve."""
    keep = torch.arange(len(x), device=x.device)
    while len(keep) > 2:
        px, py = x[keep], sign * y[keep]
        dx, dy = px.diff(), py.diff()
        # A point on or below the line between its neighbours is no corner, whatever else goes in the same pass.
        corner = dy[:-1] * dx[1:] > dy[1:] * dx[:-1]
        if corner.all():
            break
        ends = corner.new_ones(1)
        keep = keep[torch.cat((ends, corner, ends))]
    return keep


def ascend(cuts: list[int], choose: Callable[[int, list[int]], int], sweeps: int = 100) -> list[int]:
    """Move one class's cut at a time to its best, until none moves: a local optimum."""
    for _ in range(sweeps):
        before = list(cuts)
        for k in range(len(cuts)):
            cuts[k] = choose(k, cuts)
        if cuts == before:
            break
    return cuts


def choose_pooled(curves: list[Curve], value: Callable[[Counts], Tensor], k: int, cuts: list[int]) -> int:
    """Return the best cut of class k in the pooled counts, given the cuts of the others; the present one if as good."""
    rest = [c.counts.map(partial(_at, i)) for j, (c, i) in enumerate(zip(curves, cuts, strict=True)) if j != k]
    counts = curves[k].counts
    for other in rest:
        counts = counts + other
    return better(value(counts), cuts[k])


def better(values: Tensor, present: int) -> int:
    """Return the best index, unless it improves the present one by rounding alone."""
    values = _defined(values)
    best = int(values.argmax())
    return best if values[best] > values[present] + 1e-12 else present


def _defined(values: Tensor) -> Tensor:
    """Make what is undefined worse than anything."""
    return values.masked_fill(values.isnan(), -torch.inf)


def totals(curves: list[Curve]) -> tuple[float, float]:
    """Return the positives and the negatives of all curves together."""
    sides = ((c.counts.positives[-1], c.counts.negatives[-1]) for c in curves)
    positives, negatives = (float(sum(side)) for side in zip(*sides, strict=True))
    return positives, negatives


def _at(i: int, cell: Tensor) -> Tensor:
    return cell[i]


def class_curve(batch: Batch, group: list[int]) -> Curve:
    """Return the curve of some classes, all in one, of what counts, at the cuts that a threshold reaches."""
    s, y = _flat(batch.logits, group).contiguous(), _flat(batch.targets, group)
    if batch.weight is None:
        # Small integers are gathered faster than floats, and add up exactly.
        curve = cumulate(s, y.double() if y.is_floating_point() else y.to(torch.int8))
    else:
        y, w = y.double(), _flat(batch.weight, group).double()
        there = w > 0
        s, y, w = s[there], y[there], w[there]
        curve = cumulate(s, w * y, w * (1 - y))
    first = _first(curve.thresholds)
    return Curve(curve.thresholds[first:], curve.counts.map(lambda cell: cell[first:])) if first else curve


def _flat(x: Tensor, group: list[int]) -> Tensor:
    return columns(x, group).t().reshape(-1)


def columns(x: Tensor, group: list[int]) -> Tensor:
    """Return some columns, of a single one as many as asked for; a view where that will do."""
    if x.shape[1] == 1:
        return x.expand(-1, len(group))
    if len(group) == 1:
        return x[:, group[0] : group[0] + 1]
    return x if group == list(range(x.shape[1])) else x[:, group]
