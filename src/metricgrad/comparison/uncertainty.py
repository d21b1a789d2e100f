"""How sure the means of the leaderboard are, from all test rows and all repeats.

A mean over repeats could have come out differently for two reasons, and its variance is the sum of both:

- Other rows could have been tested: a bootstrap of the rows [efron1979]. A row that is tested in several repeats, and
  by all contenders, is drawn equally often in all of them, so that differences are paired and overlapping tests do not
  count twice. With groups, whole groups are drawn.
- The models could have turned out differently: the variance over the J repeats, as far as test rows do not explain it,
  times (1/J + test rows / training rows), since repeats share training rows [nadeau2003]. A few repeats hardly tell
  this variance, so it is moderated [smyth2004]: averaged with the guess that it is half of what test rows explain,
  which counts as much as two further repeats.

``benchmarks/verdict_calibration.py`` checks intervals and tests on simulated data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy import stats

from metricgrad.comparison.protocol import choose_empty_classes
from metricgrad.core.metrics import get, properties_of
from metricgrad.decisions.resampling import draw_units
from metricgrad.evaluation.metric_set import MetricSet
from metricgrad.evaluation.replicates import EvaluatedModel, RowDraws

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.goal import Goal
    from metricgrad.core.costs import Cost
    from metricgrad.decisions.rules import Rule

LEVEL = 0.05
"""The level of tests, and one minus that of intervals."""
REPLICATES = 400
MOST_DRAWN_UNITS = 50_000
"""The most units that are drawn; of more rows or groups, some are drawn together, at random."""
GUESSED_VARIANCE_RATIO = 0.5
"""The guess at the variance of models, as a share of that of test rows."""
GUESS_IN_REPEATS = 2
"""How many repeats this guess counts for."""
MOST_REPEATS_RECOMMENDED = 100
"""The largest number of repeats that is recommended."""
_MOST_NUMBERS_AT_ONCE = 1 << 22  # numbers at a time


# Resampling test rows


class Draws:
    """How often each row counts in each bootstrap replicate: the same in all repeats and for all contenders."""

    def __init__(self, rows: int, group: np.ndarray | None, seed: int, replicates: int = REPLICATES) -> None:
        units = np.arange(rows) if group is None else np.unique(group, return_inverse=True)[1]
        number = int(units.max()) + 1
        if number > MOST_DRAWN_UNITS:
            units, number = (
                (np.random.default_rng(seed).permutation(number) % MOST_DRAWN_UNITS)[units],
                MOST_DRAWN_UNITS,
            )
        drawn = draw_units(number, replicates, torch.Generator().manual_seed(seed))
        self._units = torch.as_tensor(units)
        self._times = torch.cat([times.to(torch.uint8) for times in drawn])

    def of_rows(self, rows: np.ndarray) -> torch.Tensor:
        """Return how often each of these rows counts, ``(replicates, rows)``."""
        return self._times[:, self._units[torch.as_tensor(rows)]]


def resample(
    goal: Goal,
    rules: Sequence[Rule],
    scores: np.ndarray,
    targets: np.ndarray,
    times: torch.Tensor,
    costs: Cost | None = None,
) -> list[np.ndarray]:
    """Return, for each rule, how far the metric moves in every replicate from its value on these rows."""
    empty_classes = choose_empty_classes(goal, targets)
    options = {
        "threshold": 0.5,
        "average": goal.average,
        "labels": None,
        "empty_classes": empty_classes,
        "ignore_index": None,
    }
    metric = goal.metric if costs is None else costs
    metrics = MetricSet({"": metric}, task=goal.task, rule=rules[0], **options)  # type: ignore[arg-type]
    metrics, batch = metrics.weigh_rows(metrics.prepare_rows(scores, targets, None, None))
    draws = RowDraws([EvaluatedModel(metrics.under(rule), batch) for rule in rules], len(targets), None)
    found = []
    for i in range(len(rules)):
        whole = draws.values(i, draws.multiplicity.unsqueeze(0))[""]
        parts = [
            draws.values(i, part.double())[""] for part in times.split(max(1, _MOST_NUMBERS_AT_ONCE // len(targets)))
        ]
        # A metric of one's own may not be defined on a resample without positives.
        found.append(np.nan_to_num((torch.cat(parts) - whole).numpy(), nan=0.0, posinf=0.0, neginf=0.0))
    return found


# Means over repeats


@dataclass(frozen=True)
class Estimate:
    """A mean over repeats, and its variance: ``lasting`` + ``passing`` / repeats, with degrees of freedom."""

    value: float
    lasting: float
    passing: float
    repeats: int
    freedom: float

    def error(self, repeats: int | None = None) -> float:
        """Return the standard error, or the one to expect of another number of repeats."""
        return math.sqrt(self.lasting + self.passing / (repeats or self.repeats))

    @property
    def t(self) -> float:
        """The test statistic."""
        error = self.error()
        return 0.0 if self.value == 0 else math.copysign(math.inf, self.value) if error == 0 else self.value / error

    @property
    def p(self) -> float:
        """The two-sided p-value of the hypothesis that the expected value is zero."""
        # What no replicate contradicts is not impossible.
        return max(float(2 * stats.t.sf(abs(self.t), self.freedom)), 0.0) or 1 / (REPLICATES + 1)

    def count_repeats(self, claims: int) -> int | None:
        """Return about how many repeats would prove a gain among so many claims, None if no number would."""
        critical = float(stats.t.isf(LEVEL / claims / 2, self.freedom))
        more = range(self.repeats + 1, MOST_REPEATS_RECOMMENDED + 1)
        return next((n for n in more if self.value >= critical * self.error(n)), None)

    def interval(self, limits: tuple[float, float] | None = None, level: float = LEVEL) -> tuple[float, float] | None:
        """Return the interval, by default of 95 %, or None if nothing varied.

        Between ``limits`` it is made on the logit scale, and so never leaves them. Without them it excludes 0 exactly
        if ``p`` is below ``level``.
        """
        half = float(stats.t.ppf(1 - level / 2, self.freedom)) * self.error()
        if half == 0:
            return None
        if limits is None:
            return self.value - half, self.value + half
        low, high = limits
        share = min(max((self.value - low) / (high - low), 1e-9), 1 - 1e-9)
        logit, half = math.log(share / (1 - share)), half / (high - low) / (share * (1 - share))
        ends = [low + (high - low) / (1 + math.exp(-min(max(end, -500), 500))) for end in (logit - half, logit + half)]
        return ends[0], ends[1]


def adjust_by_holm(p: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple comparisons.

    >>> adjust_by_holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, worst = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        worst = max(worst, min(1.0, p[i] * (len(p) - rank)))
        adjusted[i] = worst
    return adjusted


def estimate_mean(values: Sequence[float], moves: np.ndarray, ratio: float) -> Estimate:
    """Return the mean over at least two repeats.

    ``moves``: how far each value moved in each bootstrap replicate, ``(repeats, replicates)``. ``ratio``: test rows /
    training rows.
    """
    each = np.asarray(values, dtype=np.float64)
    repeats = len(each)
    by_rows = float(moves.mean(0).var())
    between = float(moves.var(0, ddof=1).mean())  # the variance over repeats that test rows explain
    seen = max(0.0, float(each.var(ddof=1)) - between)
    weight = GUESS_IN_REPEATS + repeats - 1
    models = (GUESS_IN_REPEATS * GUESSED_VARIANCE_RATIO * between + (repeats - 1) * seen) / weight
    lasting, passing = max(0.0, by_rows - between / repeats) + ratio * models, between + models
    part = models * (1 / repeats + ratio)
    freedom = math.inf if part == 0 else weight * ((lasting + passing / repeats) / part) ** 2
    return Estimate(float(each.mean()), lasting, passing, repeats, freedom)


def find_limits(metric: str) -> tuple[float, float] | None:
    """Return the least and the largest value of a metric; None if it is unbounded, or cannot be imported here.

    >>> find_limits("f2"), find_limits("mcc"), find_limits("somewhere_else:profit")
    ((0.0, 1.0), (-1.0, 1.0), None)
    """
    try:
        return properties_of(get(metric)).limits
    except ValueError:
        return None
