"""Ways to make an interval of a metric of one label, compared by ``coverage.py --only methods``.

All use the weights of rows that a bootstrap draws; they differ in the weights and in what becomes of the values.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from scipy import stats
from torch import Tensor

import coverage_scenarios as scenarios
from coverage_scenarios import METRICS, Binary

if TYPE_CHECKING:
    from collections.abc import Iterator

Ends = tuple[float, float]
Values = dict[str, Tensor]

SCENARIOS = [Binary(m, rate, lift) for m, rate in ((5, 0.2), (9, 0.2), (30, 0.2)) for lift in scenarios.LIFTS]
TAIL = 0.025


def compute_values(y: Tensor, decided: Tensor, w: Tensor) -> Values:
    """Return the metrics of rows in the order of falling scores, for each row of weights ``(R, N)``."""
    wp, wn = w * y, w * (1 - y)
    tp, predicted, positives, negatives = wp @ decided, w @ decided, wp.sum(1), wn.sum(1)
    hits, alarms = wp.cumsum(1), wn.cumsum(1)
    return {
        "f1": 2 * tp / (predicted + positives).clamp(min=1e-300),
        "precision": tp / predicted.clamp(min=1e-300),
        "recall": tp / positives.clamp(min=1e-300),
        "auroc": (wn * hits).sum(1) / (positives * negatives),  # NaN without positives
        "average_precision": (wp * hits / (hits + alarms).clamp(min=1e-300)).sum(1) / positives.clamp(min=1e-300),
    }


def make_intervals(y: Tensor, decided: Tensor, replicates: int, g: torch.Generator) -> Iterator[tuple[str, str, Ends]]:
    """Yield (method, metric, interval) of rows in the order of falling scores."""
    n, positives = len(y), float(y.sum())
    drawn = torch.randint(n, (replicates, n), generator=g)
    times = torch.zeros(replicates, n, dtype=torch.float64).scatter_add_(1, drawn, torch.ones_like(drawn).double())
    value = compute_values(y, decided, torch.ones(1, n, dtype=torch.float64))
    resampled = compute_values(y, decided, times)
    t = float(stats.t.ppf(1 - TAIL, positives - 1))
    wide = float(stats.norm.cdf(-t * math.sqrt(positives / (positives - 1))))
    weights = torch.empty(replicates, n, dtype=torch.float64).exponential_(generator=g)
    # One more row at each end: a positive and a negative on top, then all rows, then both at the bottom.
    one, none = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    y, decided = torch.cat((one, none, y, one, none)), torch.cat((one, one, decided, none, none))

    def values_with(ends: tuple[float, ...]) -> Values:
        """Return the values with pseudo-rows of so many rows' weight: the two on top, the two at the bottom."""
        shape = torch.tensor(ends, dtype=torch.float64).expand(replicates, 4).contiguous()
        more = torch.where(shape > 0, torch._standard_gamma(shape, generator=g), 0.0)
        return compute_values(y, decided, torch.cat((more[:, :2], weights, more[:, 2:]), 1))

    half_of_each = values_with((0.5, 0.5, 0.5, 0.5))
    half_wrong, half_right = values_with((0, 0.5, 0.5, 0)), values_with((0.5, 0, 0, 0.5))
    wrong, right = values_with((0, 1, 1, 0)), values_with((1, 0, 0, 1))
    for name in METRICS:
        yield "percentiles of resamples", name, find_ends(resampled[name], resampled[name], TAIL)
        yield "logit scale with Student's t", name, find_logit_ends(float(value[name]), resampled[name], t)
        yield "half a row of each kind", name, find_ends(half_of_each[name], half_of_each[name], TAIL)
        yield "the same, wider by Student's t", name, find_ends(half_of_each[name], half_of_each[name], wide)
        yield "half a row more", name, find_ends(half_wrong[name], half_right[name], TAIL)
        yield "one row more", name, find_ends(wrong[name], right[name], TAIL)


def find_ends(lower: Tensor, upper: Tensor, tail: float) -> Ends:
    """Return a low percentile of some replicates and a high one of others."""
    return float(torch.nanquantile(lower, tail)), float(torch.nanquantile(upper, 1 - tail))


def find_logit_ends(value: float, resampled: Tensor, t: float) -> Ends:
    """Return t standard errors to both sides on the logit scale."""
    share = min(max(value, 1e-9), 1 - 1e-9)
    half = t * float(resampled[~resampled.isnan()].std()) / (share * (1 - share))
    middle = math.log(share / (1 - share))
    low, high = (1 / (1 + math.exp(-min(max(end, -500), 500))) for end in (middle - half, middle + half))
    return low, high


def compare_methods(sets: int, replicates: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each scenario, method and metric."""
    from coverage import summarise

    for scenario in SCENARIOS:
        threshold = scenarios.break_even(scenario.rate, scenario.lift)
        truth = scenarios.find_truth(scenario.rate, scenario.lift, threshold)
        found: dict[tuple[str, str], list[tuple[Ends, float]]] = {}
        for seed in range(sets):
            g = torch.Generator().manual_seed(seed)
            y = scenarios.draw_targets(scenario.n, scenario.positives, scenario.rate, scenario.drawn, g)
            s, order = scenarios.draw_scores(y, scenario.lift, g).sort(descending=True)
            for method, name, ends in make_intervals(y[order].double(), (s >= threshold).double(), replicates, g):
                found.setdefault((method, name), []).append((ends, truth[name]))
        for (method, name), each in found.items():
            yield {"kind": "methods", **scenario._asdict(), "method": method, "metric": name, **summarise(each)}
