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
    from torch import Tensor

    from metricgrad.core.counts import Statistic
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.constraints import Constraint

FULL = 0.1
"""The violation, and the slack, from which on a multiplier changes at the full rate."""
STIFFNESS = 2.0
"""The largest exponent by which the current violation changes its weight, which damps oscillations."""


class BoundedMetric:
    """A constraint, evaluated on statistics that the loss has counted for all of its constraints."""

    def __init__(self, constraint: Constraint, options: dict[str, Any]) -> None:
        self.constraint = constraint
        self.soft = _bounded_loss(constraint, options)
        self.hard = _bounded_loss(constraint, options, undefined=True)

    def violation(self, soft: Statistic, margin: float) -> Tensor:
        """Return by how much a soft statistic fails the bound and its margin: one number, for "each" one per class."""
        return margin + self.constraint.violation(value_of(self.soft, soft)).reshape(-1)

    def urgency(self, hard: Statistic, margin: float) -> Tensor:
        """Return the same of a hard statistic, scaled to [−1, 1]: −1 is large slack or 0/0, 1 a large violation."""
        violation = margin + self.constraint.violation(value_of(self.hard, hard)).reshape(-1)
        return (violation / FULL).nan_to_num(nan=-1.0).clamp(-1.0, 1.0)

    def outcomes(self, statistic: Statistic) -> list[ConstraintOutcome]:
        """Return the hard value and whether it meets the bound, of every class that the constraint is on."""
        over, values = self.constraint.over, value_of(self.hard, statistic).reshape(-1)
        classes = (self.hard.objective.labels or range(len(values))) if over == "each" else [over]
        pairs = zip(classes, values, strict=True)
        return [ConstraintOutcome(self.constraint.text(k), v.item(), self.constraint.met(v)) for k, v in pairs]


def value_of(part: MetricLoss, statistic: Statistic) -> Tensor:
    """Return the averaged metric of one part, given the statistic that several parts share."""
    return part.value(
        statistic.counts() if isinstance(statistic, Confusion) and not part.objective.of_matrix else statistic
    )


def _bounded_loss(constraint: Constraint, options: dict[str, Any], undefined: bool = False) -> MetricLoss:
    """Return the loss whose value a constraint bounds; ``undefined``: with 0/0 as NaN, if not averaged over classes."""
    metric: Any = get(constraint.metric)
    classes: dict[str, Any] = {}
    binary = options["task"] in (None, "binary")
    if binary and constraint.over not in (None, "each"):
        raise ValueError(f"subject_to: expected no class, since task='binary' has one, got '{constraint}'")
    if binary:
        pass  # "each" is the one class
    elif constraint.over == "each":
        classes = {"average": None}
    elif constraint.over is not None:
        classes = {"average": "macro", "labels": [constraint.over]}
    alone = classes or binary or options.get("average") == "micro"
    bounded = partial(metric, empty=math.nan) if undefined and alone and _takes_empty(metric) else metric
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
