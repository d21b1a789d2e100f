"""The table of contenders: each with its name, its requirements, and how it is fitted."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from metricgrad.comparison.contenders.scorers import TABM, Ensemble, Member, fit_metric_boosting, fit_trees, network
from metricgrad.comparison.contenders.simple import fit_linear, fit_prior
from metricgrad.core.metrics.averages import check_average
from metricgrad.core.surrogates import LogitSigmoid, UnitsVsZeros
from metricgrad.decisions.ensemble_selection import select_ensemble
from metricgrad.decisions.problem import InfeasibleError
from metricgrad.losses import baselines
from metricgrad.losses.constrained_loss import ConstrainedLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import nn

    from metricgrad.comparison.contenders.scorers import Effort, Goal, Rows, Scorer
    from metricgrad.core.batch import Task

Family = Literal["baseline", "linear", "network", "trees", "ensemble"]

ALL: tuple[Task, ...] = ("binary", "multiclass", "multilabel")


@dataclass(frozen=True)
class Contender:
    """A row of the table: everything that is known about a contender.

    ``about``: a short description. ``fit``: a function that fits it with a seed. ``tasks``: the tasks it is meant for.
    ``needs``: packages that must be installed. ``on_metric``: it is trained on the metric. ``shows_soft_metric``: its
    loss is one minus the soft metric, so the report draws both over the epochs. ``constrained``: it needs a constraint.
    ``quick``: part of ``--quick``. ``demo``: part of ``metricgrad demo``. ``on_request``: only if it is named, since it
    takes long.
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
    on_request: bool = False

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


def choose_weights(goal: Goal, scores: Mapping[str, np.ndarray], targets: np.ndarray, seed: int) -> dict[str, float]:
    """Return the weights of the members of an ensemble, largest first: their mean is best for the goal on these rows.

    ``scores``: of each candidate on held-out rows. If none of them can meet the constraint, all get the same weight.
    """
    try:
        return select_ensemble(
            goal.metric,
            scores,
            targets,
            task=goal.task,
            average=goal.average,
            subject_to=goal.subject_to,
            seed=seed,
        ).weights
    except InfeasibleError:
        return dict.fromkeys(scores, 1 / len(scores))


def fit_members(weights: Mapping[str, float], goal: Goal, effort: Effort, rows: Rows, seed: int) -> Ensemble:
    """Fit an ensemble of known weights, only its members."""
    return Ensemble(
        [Member(name, weight, CONTENDERS[name].fit(goal, effort, rows, seed)) for name, weight in weights.items()]
    )


def _fit_ensemble(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Ensemble:
    """Fit all contenders, and choose weights on the held-out rows."""
    candidates = select_candidates(select_contenders(goal)[0])
    fitted = {name: CONTENDERS[name].fit(goal, effort, rows, seed) for name in candidates}
    scores = {name: scorer.scores(rows.features[rows.held_out]) for name, scorer in fitted.items()}
    weights = choose_weights(goal, scores, rows.targets[rows.held_out], seed)
    return Ensemble([Member(name, weight, fitted[name]) for name, weight in weights.items()])


ENSEMBLE = "ensemble"
"""The contender that is made of the others: ``compare`` does not fit it, but averages scores that it has anyway."""

LEAST_CANDIDATES = 2
"""The fewest contenders that an ensemble can be chosen from."""

REFERENCE = "cross-entropy"
"""The contender that every other one is compared with, both with its fixed and with its tuned rule."""

_TABLE = (
    Contender(
        "majority", "baseline", "predicts the share of each class, without features", fit_prior, quick=True, demo=True
    ),
    Contender(
        "logistic regression",
        "linear",
        "a linear model trained with cross-entropy, its ridge penalty chosen on held-out rows",
        fit_linear,
        quick=True,
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
    *(
        Contender(
            name,
            "network",
            f"TabM, sixteen networks in one, trained with {how}",
            network(model=TABM, loss=loss),
            needs=("tabm", "rtdl_num_embeddings"),
            on_metric=loss != "cross-entropy",
            on_request=True,
        )
        for name, loss, how in (
            ("tabm", "cross-entropy", "cross-entropy"),
            ("hybrid tabm", "hybrid", "cross-entropy plus the metric loss"),
        )
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
    Contender(
        ENSEMBLE,
        "ensemble",
        "the weighted mean of the others that is best for the metric on held-out rows",
        _fit_ensemble,
        quick=True,
        demo=True,
    ),
)
CONTENDERS: dict[str, Contender] = {contender.name: contender for contender in _TABLE}


def select_contenders(
    goal: Goal, only: list[str] | None = None, further: Sequence[str] = ()
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the contenders to compare, always with the reference, and those left out with the reason.

    ``only``: names of contenders; by default all that are meant for the goal, but for those on request. ``further``:
    names of others.
    """
    named = {REFERENCE, *(only or ()), *further}
    names = [
        name
        for name, one in CONTENDERS.items()
        if name in named or (only is None and not one.on_request and one.find_mismatch(goal) is None)
    ]
    obstacles = {name: CONTENDERS[name].obstacle(goal) for name in names}
    able = [name for name, why in obstacles.items() if why is None]
    if ENSEMBLE in able and (why := find_shortage(able)):
        obstacles[ENSEMBLE] = why
    return [name for name in able if obstacles[name] is None], [(name, why) for name, why in obstacles.items() if why]


def select_candidates(names: Iterable[str]) -> list[str]:
    """Return those of some contenders that an ensemble can be chosen from: a baseline adds nothing to a mean."""
    return [name for name in names if CONTENDERS[name].family not in ("baseline", "ensemble")]


def find_shortage(names: Iterable[str]) -> str | None:
    """Return why no ensemble can be chosen from these contenders, or None."""
    candidates = select_candidates(names)
    if len(candidates) >= LEAST_CANDIDATES:
        return None
    return f"needs {LEAST_CANDIDATES} contenders to choose from, got {', '.join(candidates) or 'none'}"
