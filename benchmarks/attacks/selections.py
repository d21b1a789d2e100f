"""``select_ensemble`` against an independent greedy search that tries every threshold of every mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attacks import naive
from metricgrad.decisions.ensemble_selection import select_ensemble

if TYPE_CHECKING:
    from collections.abc import Iterable

TOLERANCE = 1e-9
ROUNDS = 2
"""Means of two scores that are multiples of a power of two are exact, so that ties are the same in both searches."""


def check(number: int) -> str | None:
    """Return what is wrong with a case, or None."""
    rng = np.random.default_rng([3, number])
    rows = int(rng.integers(4, 40))
    targets = (rng.random(rows) < rng.uniform(0.1, 0.9)).astype(int)
    targets[:2] = 0, 1
    steps = int(rng.choice([4, 16, 1 << 14]))
    scores = {name: rng.random(rows) * 0.7 + 0.3 * targets * rng.random() for name in "abc"}
    scores = {name: np.floor(one * steps) / steps for name, one in scores.items()}
    weight = naive.weights(rng, rows)
    if weight is not None:
        weight[:2] = np.maximum(weight[:2], 0.1)
    metric = str(rng.choice(naive.METRICS))
    case = f"{metric}, {rows} rows, steps {steps}, weights {None if weight is None else weight[:3]}"
    found = select_ensemble(metric, scores, targets, weight=weight, select_by="metric", rounds=ROUNDS, bags=0)
    if not np.isclose(sum(found.weights.values()), 1):
        return f"weights {found.weights} do not add up to 1 | {case}"
    mean = sum(share * scores[name] for name, share in found.weights.items())
    reached = _best_value(metric, mean, targets, weight)
    value = float(found.value) if isinstance(found.value, float) else float(np.mean(found.value))
    if abs(value - reached) > TOLERANCE:
        return f"value {value} is not the best of its scores, {reached} | {case}"
    expected = _search(metric, scores, targets, weight)
    if value < expected - TOLERANCE:
        return f"value {value} is below that of a plain greedy search, {expected} | {case}"
    return None


def _search(metric: str, scores: dict[str, Any], targets: Any, weight: Any) -> float:
    """Return the best value on the way of a greedy search, of equals the one that is best alone."""
    alone = {name: _best_value(metric, one, targets, weight) for name, one in scores.items()}
    order = sorted(scores, key=lambda name: -alone[name])
    chosen: list[str] = []
    best = -np.inf
    for size in range(1, ROUNDS + 1):
        before = sum((scores[name] for name in chosen), np.zeros(len(targets)))
        values = {name: _best_value(metric, (before + scores[name]) / size, targets, weight) for name in order}
        highest = max(values.values())
        chosen.append(next(name for name in order if values[name] >= highest - 1e-12))
        best = max(best, highest)
    return float(best)


def _best_value(metric: str, scores: Any, targets: Any, weight: Any) -> float:
    """Return the metric at the best of all thresholds, of rows that count."""
    counted = np.ones(len(targets), dtype=bool) if weight is None else weight > 0
    cuts = [*np.unique(scores[counted]), np.inf]
    y = targets[:, None]
    return max(float(naive.value(metric, naive.count((scores >= cut)[:, None], y, weight), "macro")) for cut in cuts)


def check_all(numbers: Iterable[int]) -> dict[int, str]:
    """Return what is wrong, by the number of the case."""
    return {number: found for number in numbers if (found := check(number)) is not None}
