"""Counting test rows for a report: a million scores become a few hundred exact counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import torch

from metricgrad.core.curves import Curve, average_precision, curve
from metricgrad.evaluation.diagnostics import reliability

if TYPE_CHECKING:
    from collections.abc import Iterable

HISTOGRAM_BINS = 40
"""Bins of the histogram."""


class Histogram(TypedDict):
    """How many rows score within ``[edges[i], edges[i + 1])``; the last bin takes its right edge too."""

    edges: list[float]
    positives: list[int]
    negatives: list[int]


class Binned(TypedDict):
    """One class against the rest, on test rows: what ``binned`` returns."""

    cuts: list[float]  # thresholds, ascending
    tp: list[int]  # positives that score at least the threshold
    fp: list[int]  # negatives that do
    positives: int
    negatives: int
    average_precision: float | None
    calibration: list[tuple[float, float, int]]  # mean score, share of positives, rows
    histogram: Histogram


def binned(scores: Any, targets: Any, cuts: int = 201, include: Iterable[float | None] = ()) -> Binned:
    """Return what charts need of ``(N,)`` scores and 0/1 targets, all counts exact.

    The thresholds, at most ``cuts``, are those of ``include`` (None is left out), one half, and scores that divide the
    positives and the negatives evenly: precision and recall, which move with either, are drawn equally well for a rare
    class. Compared in float64: pass scores as they were when the threshold was tuned. The calibration is empty where
    scores are not probabilities.

    >>> found = binned([0.9, 0.4, 0.4, 0.1], [1, 0, 1, 0], include=[0.3])
    >>> found["cuts"], found["tp"], found["fp"]
    ([0.1, 0.3, 0.4, 0.5, 0.9], [2, 2, 2, 1, 1], [2, 1, 1, 0, 0])
    """
    wanted = sorted({float(cut) for cut in include if cut is not None} | {0.5})
    if cuts < len(wanted) + 4:
        raise ValueError(f"cuts: expected at least {len(wanted) + 4}, got {cuts}")
    found = curve(scores, targets)
    thresholds, counts = found.thresholds, found.counts
    if len(thresholds) == 1:
        raise ValueError("scores: expected at least one, got none")
    if not thresholds[1:].isfinite().all():
        raise ValueError("scores: expected finite numbers, got infinite ones; clip them")
    positives, negatives = int(counts.tp[-1]), int(counts.fp[-1])
    if not (counts.tp == counts.tp.round()).all():
        raise ValueError("targets: expected 0 and 1, got soft ones")
    at = sorted({*wanted, *_shares(found, (cuts - len(wanted)) // 2)})
    tp, fp = _at_least(found, at)
    low, high = thresholds[-1].item(), thresholds[1].item()
    probabilities = low >= 0 and high <= 1
    return {
        "cuts": at,
        "tp": tp,
        "fp": fp,
        "positives": positives,
        "negatives": negatives,
        "average_precision": average_precision(found).item() if positives else None,
        "calibration": _calibration(scores, targets) if probabilities else [],
        "histogram": _histogram(found, 0.0 if probabilities else low, 1.0 if probabilities else high),
    }


def _shares(c: Curve, number: int) -> set[float]:
    """Return ``number`` thresholds that divide the positives, and the negatives, evenly, written with few digits."""
    places: set[int] = set()
    for side in (c.counts.tp, c.counts.fp):
        if side[-1] > 0:
            ranks = torch.linspace(1, side[-1].item(), number, dtype=torch.float64).round()
            places |= set(torch.searchsorted(side, ranks).tolist())
    below = torch.cat((c.thresholds[1:], c.thresholds.new_full((1,), -torch.inf)))
    chosen = sorted(places)
    pairs = zip(c.thresholds[chosen].tolist(), below[chosen].tolist(), strict=True)
    return {_short(score, lower) for score, lower in pairs}


def _short(score: float, below: float) -> float:
    """Return the number of fewest digits that takes the same rows as ``score`` when the next lower one is ``below``."""
    for digits in range(3, 17):
        short = float(f"{score:.{digits}g}")
        if below < short <= score:
            return short
    return score


def _at_least(c: Curve, cuts: list[float]) -> tuple[list[int], list[int]]:
    """Count the positives and the negatives that score at least each threshold."""
    place = torch.searchsorted(-c.thresholds, -torch.tensor(cuts, dtype=torch.float64), right=True) - 1
    tp, fp = (side[place].long().tolist() for side in (c.counts.tp, c.counts.fp))
    return tp, fp


def _histogram(c: Curve, low: float, high: float) -> Histogram:
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = [*(low + (high - low) * i / HISTOGRAM_BINS for i in range(HISTOGRAM_BINS)), high]
    sides = _at_least(c, edges)
    bars = [[a - b for a, b in zip(side[:-1], [*side[1:-1], 0], strict=True)] for side in sides]
    return {"edges": edges, "positives": bars[0], "negatives": bars[1]}


def _calibration(scores: Any, targets: Any) -> list[tuple[float, float, int]]:
    found = reliability(scores, targets)
    columns = (found.probability, found.frequency, found.weight)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(probability, frequency, int(weight)) for probability, frequency, weight in rows if weight]
