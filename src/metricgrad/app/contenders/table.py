"""The table of contenders: each with its name, its requirements, and how it is fitted."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from metricgrad.app.contenders.scorers import fit_metric_boosting, fit_prior, fit_trees, network
from metricgrad.losses import baselines
from metricgrad.losses.constrained import ConstrainedLoss
from metricgrad.metrics.averages import check_average
from metricgrad.surrogates import LogitSigmoid, UnitsVsZeros

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from metricgrad.app.contenders.scorers import Effort, Goal, Rows, Scorer
    from metricgrad.engine.batch import Task

Family = Literal["baseline", "network", "trees"]

ALL: tuple[Task, ...] = ("binary", "multiclass", "multilabel")


@dataclass(frozen=True)
class Contender:
    """A row of the table: everything that is known about a contender.

    ``about``: a short description. ``fit``: a function that fits it with a seed. ``tasks``: the tasks it is meant for.
    ``needs``: packages that must be installed. ``on_metric``: it is trained on the metric. ``shows_soft_metric``: its
    loss is one minus the soft metric, so the report draws both over the epochs. ``constrained``: it needs a constraint.
    ``quick``: part of ``--quick``. ``demo``: part of ``metricgrad demo``.
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

    def find_mismatch(self, goal: Goal) -> str | None:
        """Return why it is not meant for this goal, or None."""
        if goal.task not in self.tasks:
            return f"not for {goal.task} targets"
        return "needs --subject-to" if self.constrained and goal.subject_to is None else None

    def obstacle(self, goal: Goal) -> str | None:
        """Return why it cannot take part, or None."""
        if why := self.find_mismatch(goal):
            return why
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"needs {absent[0]}, which is not installed" if absent else None


def _choose_class_weight(goal: Goal, rows: Rows) -> str | None:
    return None if goal.task == "multilabel" else "balanced"


def _make_balanced_loss(goal: Goal, rows: Rows) -> str | nn.Module:
    if goal.task != "multilabel":
        return "cross-entropy"
    y = rows.targets[rows.fit]
    positives = np.maximum(y.sum(0), 1.0)  # a label without positives must not divide by 0
    return baselines.bce(
        class_counts=[np.maximum(len(y) - positives, 1.0).tolist(), positives.tolist()], task=goal.task
    )


def _make_constrained_loss(goal: Goal, rows: Rows) -> ConstrainedLoss:
    average = check_average(goal.average)
    return ConstrainedLoss(goal.metric, goal.subject_to or "", task=goal.task, average=average)


REFERENCE = "cross-entropy"
"""The contender that every other one is compared with, both with its fixed and with its tuned rule."""

_TABLE = (
    Contender(
        "majority", "baseline", "predicts the share of each class, without features", fit_prior, quick=True, demo=True
    ),
    Contender(
        "logistic regression",
        "network",
        "a linear model trained with cross-entropy",
        network(model="linear", loss="cross-entropy"),
    ),
    Contender(
        REFERENCE,
        "network",
        "a network (one hidden layer of 256) trained with cross-entropy",
        network(loss="cross-entropy"),
        quick=True,
    ),
    Contender(
        "weighted cross-entropy",
        "network",
        "the same network, cross-entropy with balanced class weights",
        network(loss=_make_balanced_loss, class_weight=_choose_class_weight),
        demo=True,
    ),
    Contender(
        "soft-set metric",
        "network",
        "the metric of soft sets, linear step (multi-class: between the two largest scores)",
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
        network(loss=_make_constrained_loss),
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
    Contender(
        "xgboost", "trees", "boosted trees, logarithmic loss", fit_trees, needs=("xgboost",), quick=True, demo=True
    ),
    Contender(
        "metric boosting",
        "trees",
        "boosted trees, cross-entropy plus the metric loss",
        fit_metric_boosting,
        needs=("xgboost",),
        on_metric=True,
        demo=True,
    ),
)
CONTENDERS: dict[str, Contender] = {contender.name: contender for contender in _TABLE}


def select_contenders(goal: Goal, only: list[str] | None = None) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the contenders to compare, always with the reference, and those left out with the reason.

    ``only``: names of contenders; by default all that are meant for the goal.
    """
    if only is None:
        names = [name for name, contender in CONTENDERS.items() if contender.find_mismatch(goal) is None]
    else:
        names = [name for name in CONTENDERS if name in only or name == REFERENCE]
    obstacles = [(name, CONTENDERS[name].obstacle(goal)) for name in names]
    return [name for name, why in obstacles if why is None], [(name, why) for name, why in obstacles if why]
