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


class BinnedScores(TypedDict):
    """One class against the rest, on test rows: what ``bin_scores`` returns."""

    grid: list[float]  # thresholds, ascending
    tp: list[int]  # positives that score at least the threshold
    fp: list[int]  # negatives that do
    positives: int
    negatives: int
    average_precision: float | None
    calibration: list[tuple[float, float, int]]  # mean score, share of positives, rows
    histogram: Histogram


def bin_scores(scores: Any, targets: Any, size: int = 201, include: Iterable[float | None] = ()) -> BinnedScores:
    """Return what charts need of ``(N,)`` scores and 0/1 targets, all counts exact.

    The grid has at most ``size`` thresholds: those of ``include`` (None is left out), one half, and scores that divide
    the positives and the negatives evenly: precision and recall, which move with either, are drawn equally well for a
    rare class. Compared in float64: pass scores as they were when the threshold was tuned. The calibration is empty
    where scores are not probabilities.

    >>> found = bin_scores([0.9, 0.4, 0.4, 0.1], [1, 0, 1, 0], include=[0.3])
    >>> found["grid"], found["tp"], found["fp"]
    ([0.1, 0.3, 0.4, 0.5, 0.9], [2, 2, 2, 1, 1], [2, 1, 1, 0, 0])
    """
    wanted = {float(threshold) for threshold in include if threshold is not None} | {0.5}
    if size < len(wanted) + 4:
        raise ValueError(f"size: expected at least {len(wanted) + 4}, got {size}")
    found = curve(scores, targets)
    if len(found.thresholds) == 1:
        raise ValueError("scores: expected at least one, got none")
    if not found.thresholds[1:].isfinite().all():
        raise ValueError("scores: expected finite numbers, got infinite ones; clip them")
    if not (found.counts.tp == found.counts.tp.round()).all():
        raise ValueError("targets: expected 0 and 1, got soft ones")
    positives = int(found.counts.tp[-1])
    negatives = int(found.counts.fp[-1])
    number_of_others = (size - len(wanted)) // 2
    grid = sorted(wanted | _divide_evenly(found, number_of_others))
    tp, fp = _count_at_least(found, grid)
    # The first threshold of a curve is infinite: there nothing is predicted positive.
    lowest = found.thresholds[-1].item()
    highest = found.thresholds[1].item()
    are_probabilities = lowest >= 0 and highest <= 1
    return {
        "grid": grid,
        "tp": tp,
        "fp": fp,
        "positives": positives,
        "negatives": negatives,
        "average_precision": average_precision(found).item() if positives else None,
        "calibration": _measure_calibration(scores, targets) if are_probabilities else [],
        "histogram": _make_histogram(found, 0.0, 1.0) if are_probabilities else _make_histogram(found, lowest, highest),
    }


def _divide_evenly(found: Curve, number: int) -> set[float]:
    """Return ``number`` thresholds that divide the positives, and the negatives, evenly, written with few digits."""
    places: set[int] = set()
    for side in (found.counts.tp, found.counts.fp):
        if side[-1] > 0:
            ranks = torch.linspace(1, side[-1].item(), number, dtype=torch.float64).round()
            places |= set(torch.searchsorted(side, ranks).tolist())
    chosen = sorted(places)
    next_lower = torch.cat((found.thresholds[1:], found.thresholds.new_full((1,), -torch.inf)))
    pairs = zip(found.thresholds[chosen].tolist(), next_lower[chosen].tolist(), strict=True)
    return {_shorten(score, below) for score, below in pairs}


def _shorten(score: float, below: float) -> float:
    """Return the shortest threshold that predicts the same rows as ``score``, whose next lower score is ``below``."""
    for digits in range(3, 17):
        short = float(f"{score:.{digits}g}")
        if below < short <= score:
            return short
    return score


def _count_at_least(found: Curve, grid: list[float]) -> tuple[list[int], list[int]]:
    """Count the positives and the negatives that score at least each threshold."""
    thresholds = torch.tensor(grid, dtype=torch.float64)
    # Thresholds of a curve descend, and searchsorted wants them to ascend.
    places = torch.searchsorted(-found.thresholds, -thresholds, right=True) - 1
    positives = found.counts.tp[places].long().tolist()
    negatives = found.counts.fp[places].long().tolist()
    return positives, negatives


def _make_histogram(found: Curve, low: float, high: float) -> Histogram:
    """Count the positives and the negatives in bins of equal width from ``low`` to ``high``."""
    if low == high:
        low -= 0.5
        high += 0.5
    width = high - low
    edges = [*(low + width * i / HISTOGRAM_BINS for i in range(HISTOGRAM_BINS)), high]
    positives, negatives = _count_at_least(found, edges)
    return {"edges": edges, "positives": _count_in_bins(positives), "negatives": _count_in_bins(negatives)}


def _count_in_bins(at_least: list[int]) -> list[int]:
    """Return how many lie between neighbouring edges, given how many lie at or above each edge."""
    # The last bin takes its right edge too, so nothing lies above it.
    above = [*at_least[1:-1], 0]
    return [count - rest for count, rest in zip(at_least[:-1], above, strict=True)]


def _measure_calibration(scores: Any, targets: Any) -> list[tuple[float, float, int]]:
    """Return mean score, share of positives and rows of each bin that has any."""
    found = reliability(scores, targets)
    columns = (found.probability, found.frequency, found.weight)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(probability, frequency, int(weight)) for probability, frequency, weight in rows if weight]
