"""The contenders: what is compared, each with a name, what it needs, and how it is fitted."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from metricgrad.app.contenders.scorers import boosting, network, prior, trees
from metricgrad.losses import baselines
from metricgrad.losses.constrained import ConstrainedLoss
from metricgrad.metrics.averages import check_average
from metricgrad.surrogates import LogitSigmoid, UnitsVsZeros

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.app.contenders.scorers import Effort, Goal, Rows, Scorer
    from metricgrad.engine.batch import Task

Family = Literal["baseline", "network", "trees"]

ALL: tuple[Task, ...] = ("binary", "multiclass", "multilabel")


@dataclass(frozen=True)
class Contender:
    """A row of the table: a name, what it is, how it is fitted with a seed, and all else that is known about it.

    ``tasks``: for which it is meant. ``needs``: packages that must be installed. ``on_metric``: it is trained on the
    metric. ``shows_soft_metric``: its loss is one minus the soft metric, so the report draws both over the epochs.
    ``constrained``: it needs a constraint. ``quick``: part of ``--quick``. ``demo``: part of ``metricgrad demo``.
    """

    name: str
    family: Family
    about: str
    fit: Callable[[Goal, Effort, Rows, int], Scorer]
    tasks: tuple[Task, ...] = ALL
    needs: tuple[str, ...] = ()
    on_metric: bool = False
    shows_soft_metric: bool = False
    constrained: bool = False
    quick: bool = False
    demo: bool = False

    def unfit(self, goal: Goal) -> str | None:
        """Return why it is not meant for such a goal, or None."""
        if goal.task not in self.tasks:
            return f"not for {goal.task} targets"
        return "needs --subject-to" if self.constrained and goal.subject_to is None else None

    def obstacle(self, goal: Goal) -> str | None:
        """Return why it cannot take part, or None."""
        if why := self.unfit(goal):
            return why
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"needs {absent[0]}, which is not installed" if absent else None


def _balance(goal: Goal, rows: Rows) -> str | None:
    return None if goal.task == "multilabel" else "balanced"


def _balanced_loss(goal: Goal, rows: Rows) -> Any:
    if goal.task != "multilabel":
        return "cross-entropy"
    y = rows.targets[rows.fit]
    positives = np.maximum(y.sum(0), 1.0)  # a label that never comes has no weight
    return baselines.bce(
        class_counts=[np.maximum(len(y) - positives, 1.0).tolist(), positives.tolist()], task=goal.task
    )


def _constrained(goal: Goal, rows: Rows) -> Any:
    average = check_average(goal.average)
    return ConstrainedLoss(goal.metric, goal.subject_to or "", task=goal.task, average=average)


REFERENCE = "cross-entropy"
"""What every other contender is compared with, with its fixed and with its tuned rule."""

_TABLE = (
    Contender("majority", "baseline", "the shares of the classes, no features", prior, quick=True, demo=True),
    Contender(
        "logistic regression",
        "network",
        "a linear model, cross-entropy",
        network(model="linear", loss="cross-entropy"),
    ),
    Contender(REFERENCE, "network", "a network of 32-16, cross-entropy", network(loss="cross-entropy"), quick=True),
    Contender(
        "weighted cross-entropy",
        "network",
        "the same, classes weighted to count alike",
        network(loss=_balanced_loss, class_weight=_balance),
        demo=True,
    ),
    Contender(
        "soft-set metric",
        "network",
        "the metric of soft sets, linear step (multi-class: of the two largest scores)",
        network(loss="metric"),
        on_metric=True,
        shows_soft_metric=True,
        demo=True,
    ),
    Contender(
        "sigmoid metric",
        "network",
        "the metric of sigmoid memberships (sigmoidF1's step)",
        network(loss="metric", surrogate=lambda goal, rows: LogitSigmoid()),
        tasks=("binary", "multilabel"),
        on_metric=True,
        shows_soft_metric=True,
        demo=True,
    ),
    Contender(
        "maximal figure of merit",
        "network",
        "the metric of units against zeros (MFoM)",
        network(loss="metric", surrogate=lambda goal, rows: UnitsVsZeros()),
        tasks=("multilabel",),
        on_metric=True,
        shows_soft_metric=True,
    ),
    Contender(
        "constrained metric",
        "network",
        "the metric subject to the constraint, with multipliers",
        network(loss=_constrained),
        tasks=("binary", "multilabel"),
        on_metric=True,
        constrained=True,
    ),
    Contender(
        "hybrid",
        "network",
        "cross-entropy plus the metric loss",
        network(loss="hybrid"),
        on_metric=True,
        quick=True,
        demo=True,
    ),
    Contender(
        "recipe",
        "network",
        "five hybrid networks, averaged: the default of MetricClassifier",
        network(folds=5, loss="hybrid", monitor="loss"),
        on_metric=True,
        demo=True,
    ),
    Contender("xgboost", "trees", "boosted trees, logarithmic loss", trees, needs=("xgboost",), quick=True, demo=True),
    Contender(
        "metric boosting",
        "trees",
        "boosted trees, cross-entropy plus the metric loss",
        boosting,
        needs=("xgboost",),
        on_metric=True,
        demo=True,
    ),
)
CONTENDERS: dict[str, Contender] = {contender.name: contender for contender in _TABLE}


def chosen(goal: Goal, only: list[str] | None = None) -> tuple[list[str], list[tuple[str, str]]]:
    """Return those that take part, the reference always, and those left out with the reason.

    ``only``: names, which must be known; without, those that are not meant for the goal are passed over in silence.
    """
    if only is None:
        names = [name for name, contender in CONTENDERS.items() if contender.unfit(goal) is None]
    else:
        names = [name for name in CONTENDERS if name in only or name == REFERENCE]
    obstacles = [(name, CONTENDERS[name].obstacle(goal)) for name in names]
    return [name for name, why in obstacles if why is None], [(name, why) for name, why in obstacles if why]
