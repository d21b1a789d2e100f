"""``BoundedMetric``: one constraint of a ``ConstrainedLoss``, and the metric that it bounds."""

from __future__ import annotations

import inspect
import math
from functools import partial
from typing import TYPE_CHECKING, Any

from metricgrad.core.counts import Confusion
from metricgrad.core.metrics import get, name_of
from metricgrad.core.metrics.constraints import ConstraintOutcome
from metricgrad.losses.metric_loss import MetricLoss

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from metricgrad.core.counts import Statistic
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.constraints import Constraint

FULL_RATE_VIOLATION = 0.1
"""The violation, and the slack, from which on a multiplier changes at the full rate."""
STIFFNESS = 2.0
"""The largest exponent by which the current violation changes its weight, which damps oscillations."""


class BoundedMetric:
    """A constraint, evaluated on statistics that the loss has counted for all of its constraints."""

    def __init__(self, constraint: Constraint, options: dict[str, Any]) -> None:
        self.constraint = constraint
        self.soft = _bounded_loss(constraint, options)
        self.hard = _bounded_loss(constraint, options, empty_is_nan=True)

    def compute_violation(self, soft: Statistic, margin: float) -> Tensor:
        """Return by how much a soft statistic fails the bound and its margin: one number, for "each" one per class."""
        return margin + self.constraint.violation(evaluate_part(self.soft, soft)).reshape(-1)

    def compute_urgency(self, hard: Statistic, margin: float) -> Tensor:
        """Return how far a hard statistic fails, scaled to [−1, 1]: −1 is large slack or 0/0, 1 a large violation."""
        violation = margin + self.constraint.violation(evaluate_part(self.hard, hard)).reshape(-1)
        return (violation / FULL_RATE_VIOLATION).nan_to_num(nan=-1.0).clamp(-1.0, 1.0)

    def list_outcomes(self, statistic: Statistic) -> list[ConstraintOutcome]:
        """Return the hard value and whether it meets the bound, of every class that the constraint is on."""
        constraint = self.constraint
        values = evaluate_part(self.hard, statistic).reshape(-1)
        classes: Iterable[Any] = [constraint.over]
        if constraint.over == "each":
            classes = self.hard.objective.labels or range(len(values))
        outcomes = []
        for k, value in zip(classes, values, strict=True):
            outcomes.append(ConstraintOutcome(constraint.text(k), value.item(), constraint.met(value)))
        return outcomes


def evaluate_part(part: MetricLoss, statistic: Statistic) -> Tensor:
    """Return the averaged metric of one part, given the statistic that several parts share."""
    if isinstance(statistic, Confusion) and not part.objective.of_matrix:
        return part.value(statistic.counts())
    return part.value(statistic)


def _bounded_loss(constraint: Constraint, options: dict[str, Any], empty_is_nan: bool = False) -> MetricLoss:
    """Return the loss whose value a constraint bounds.

    ``empty_is_nan``: whether 0/0 is NaN, which it can be only if it is not averaged over classes.
    """
    metric: Any = get(constraint.metric)
    classes: dict[str, Any] = {}
    is_binary = options["task"] in (None, "binary")
    if is_binary and constraint.over not in (None, "each"):
        raise ValueError(f"subject_to: expected no class, since task='binary' has one, got '{constraint}'")
    if constraint.over == "each" and not is_binary:
        classes = {"average": None}
    elif constraint.over is not None and not is_binary:
        classes = {"average": "macro", "labels": [constraint.over]}
    is_averaged = not (classes or is_binary or options.get("average") == "micro")
    bounded = metric
    if empty_is_nan and not is_averaged and _takes_empty(metric):
        bounded = partial(metric, empty=math.nan)
    part = MetricLoss(bounded, **{**options, **classes})
    if part.objective.of_matrix and classes:
        raise ValueError(
            f"subject_to: {name_of(metric)} is of the whole d×d matrix and has no classes, got {constraint}"
        )
    return part


def _takes_empty(metric: Metric) -> bool:
    try:
        return "empty" in inspect.signature(metric).parameters
    except (TypeError, ValueError):  # a built-in without a signature
        return False
