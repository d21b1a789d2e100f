"""The contenders: what ``compare`` ranks. Each is an estimator of this library, of scikit-learn, or of the user.

Every contender is cross-fitted as in ``MetricEnsembleClassifier``: one model for each fold, whose mean it predicts. The
ensemble is chosen from those marked ``member``.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from metricgrad.core.metrics.averages import check_average
from metricgrad.core.surrogates import LogitSigmoid, UnitsVsZeros
from metricgrad.estimators.candidates import (
    Candidate,
    CandidateSpec,
    make_boosted_trees,
    make_forest,
    make_logistic_regressions,
    make_network,
    make_tabm,
)
from metricgrad.losses import baselines
from metricgrad.losses.constrained_loss import ConstrainedLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from metricgrad.comparison.goal import Goal
    from metricgrad.core.batch import Task

Family = Literal["baseline", "linear", "network", "trees", "ensemble", "own"]

ALL_TASKS: tuple[Task, ...] = ("binary", "multiclass", "multilabel")

ENSEMBLE = "ensemble"
"""The contender that is chosen from the others: a ``MetricEnsembleClassifier`` of them."""

REFERENCE = "cross-entropy"
"""The contender that every other one is compared with, both with its fixed and with its tuned rule."""

FEWEST_CANDIDATES = 2
"""The fewest candidates that an ensemble can be chosen from."""


@dataclass(frozen=True)
class TrainingTask:
    """What a contender's candidates are made for: the goal, the settings that follow from the data, and the targets."""

    goal: Goal
    spec: CandidateSpec
    targets: np.ndarray


@dataclass(frozen=True)
class Contender:
    """A row of the table: everything that is known about a contender.

    ``about``: a short description. ``make``: returns its candidates; of several, the one with the smallest log-loss
    out of fold stands for it; None for the ensemble. ``tasks``: the tasks it is meant for. ``needs``: packages that
    must be installed. ``member``: the ensemble is chosen from it and others. ``on_metric``: it is trained on the
    metric. ``shows_soft_metric``: its loss is one minus the soft metric, so the report draws both over the epochs.
    ``constrained``: it needs a constraint. ``quick``: part of ``--quick``. ``demo``: part of ``metricgrad demo``.
    ``on_request``: only if it is named.
    """

    name: str
    family: Family
    about: str
    make: Callable[[TrainingTask], list[Candidate]] | None
    tasks: tuple[Task, ...] = ALL_TASKS
    needs: tuple[str, ...] = ()
    member: bool = False
    on_metric: bool = False
    shows_soft_metric: bool = False
    constrained: bool = False
    quick: bool = False
    demo: bool = False
    on_request: bool = False

    def find_mismatch(self, goal: Goal) -> str | None:
        """Return why the contender is not meant for this goal, or None."""
        if goal.task not in self.tasks:
            return f"not for {goal.task} targets"
        return "needs --subject-to" if self.constrained and goal.subject_to is None else None

    def find_obstacle(self, goal: Goal) -> str | None:
        """Return why the contender cannot take part, or None."""
        if why := self.find_mismatch(goal):
            return why
        missing = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"needs {missing[0]}, which is not installed" if missing else None


def _make_majority(task: TrainingTask) -> list[Candidate]:
    from sklearn.dummy import DummyClassifier

    return [Candidate("majority", DummyClassifier(strategy="prior"), "trees")]


def _make_weighted_network(task: TrainingTask) -> list[Candidate]:
    name = "weighted cross-entropy"
    if task.goal.task != "multilabel":
        return [make_network(name, task.spec, loss="cross-entropy", class_weight="balanced")]
    rows = len(task.targets)
    positives = np.maximum(task.targets.sum(0), 1.0)  # a label without positives must not divide by 0
    negatives = np.maximum(rows - positives, 1.0)
    loss = baselines.bce(class_counts=[negatives.tolist(), positives.tolist()], task=task.goal.task)
    return [make_network(name, task.spec, loss=loss)]


def _make_constrained_network(task: TrainingTask) -> list[Candidate]:
    goal = task.goal
    loss = ConstrainedLoss(goal.metric, goal.subject_to or "", task=goal.task, average=check_average(goal.average))
    return [make_network("constrained metric", task.spec, loss=loss)]


def _make_soft_set_network(task: TrainingTask) -> list[Candidate]:
    return [make_network("soft-set metric", task.spec, loss="metric", monitor=_choose_monitor(task.goal))]


def _make_sigmoid_network(task: TrainingTask) -> list[Candidate]:
    options: dict[str, Any] = {"loss": "metric", "surrogate": LogitSigmoid(), "monitor": _choose_monitor(task.goal)}
    return [make_network("sigmoid metric", task.spec, **options)]


def _make_mfom_network(task: TrainingTask) -> list[Candidate]:
    options: dict[str, Any] = {"loss": "metric", "surrogate": UnitsVsZeros(), "monitor": _choose_monitor(task.goal)}
    return [make_network("maximal figure of merit", task.spec, **options)]


def _make_random_forest(task: TrainingTask) -> list[Candidate]:
    from sklearn.ensemble import RandomForestClassifier  # which reading a run without forests needs not

    return [make_forest("random forest", task.spec, RandomForestClassifier)]


def _make_extra_trees(task: TrainingTask) -> list[Candidate]:
    from sklearn.ensemble import ExtraTreesClassifier

    return [make_forest("extra trees", task.spec, ExtraTreesClassifier)]


def _choose_monitor(goal: Goal) -> Literal["loss", "metric"]:
    """Return what training stops early by; with a constraint the metric alone does not show which epoch is best."""
    return "metric" if goal.subject_to is None else "loss"


_TABLE = (
    Contender(
        "majority",
        "baseline",
        "predicts the share of each class, without features",
        _make_majority,
        quick=True,
        demo=True,
    ),
    Contender(
        "logistic regression",
        "linear",
        "a linear model trained with cross-entropy, its ridge penalty chosen by the log-loss out of fold",
        lambda task: make_logistic_regressions(task.spec),
        member=True,
        quick=True,
        demo=True,
    ),
    Contender(
        REFERENCE,
        "network",
        "networks (one hidden layer of 256) trained with cross-entropy, averaged over the folds",
        lambda task: [make_network(REFERENCE, task.spec, loss="cross-entropy")],
        quick=True,
        demo=True,
    ),
    Contender(
        "weighted cross-entropy",
        "network",
        "the same networks, cross-entropy with balanced class weights",
        _make_weighted_network,
        on_request=True,
    ),
    Contender(
        "soft-set metric",
        "network",
        "the same networks, the metric of soft sets, linear step (multi-class: between the two largest scores)",
        _make_soft_set_network,
        on_metric=True,
        shows_soft_metric=True,
        demo=True,
        on_request=True,
    ),
    Contender(
        "sigmoid metric",
        "network",
        "the same networks, the metric of sigmoid memberships (sigmoidF1's step)",
        _make_sigmoid_network,
        tasks=("binary", "multilabel"),
        on_metric=True,
        shows_soft_metric=True,
        on_request=True,
    ),
    Contender(
        "maximal figure of merit",
        "network",
        "the same networks, the metric of units against zeros (MFoM)",
        _make_mfom_network,
        tasks=("multilabel",),
        on_metric=True,
        shows_soft_metric=True,
        on_request=True,
    ),
    Contender(
        "constrained metric",
        "network",
        "the same networks, the metric subject to the constraint, with multipliers",
        _make_constrained_network,
        tasks=("binary", "multilabel"),
        on_metric=True,
        constrained=True,
    ),
    Contender(
        "hybrid",
        "network",
        "the same networks, cross-entropy plus the metric loss: MetricClassifier",
        lambda task: [make_network("hybrid", task.spec)],
        member=True,
        on_metric=True,
        quick=True,
        demo=True,
    ),
    Contender(
        "tabm",
        "network",
        "TabM, sixteen networks in one, trained with cross-entropy",
        lambda task: [make_tabm("tabm", task.spec)],
        needs=("tabm", "rtdl_num_embeddings"),
        member=True,
        on_request=True,
    ),
    Contender(
        "hybrid tabm",
        "network",
        "TabM, sixteen networks in one, trained with cross-entropy plus the metric loss",
        lambda task: [make_tabm("hybrid tabm", task.spec)],
        needs=("tabm", "rtdl_num_embeddings"),
        member=True,
        on_metric=True,
        on_request=True,
    ),
    Contender(
        "xgboost",
        "trees",
        "boosted trees of XGBoost, logarithmic loss",
        lambda task: [make_boosted_trees("xgboost", task.spec, "xgboost", "cross-entropy")],
        needs=("xgboost",),
        member=True,
        quick=True,
        demo=True,
    ),
    Contender(
        "metric boosting",
        "trees",
        "boosted trees of LightGBM, logarithmic loss plus the metric loss: MetricBoostingClassifier",
        lambda task: [make_boosted_trees("metric boosting", task.spec, "lightgbm", "hybrid")],
        needs=("lightgbm",),
        member=True,
        on_metric=True,
        demo=True,
    ),
    Contender(
        "random forest",
        "trees",
        "a random forest of 100 trees for each fold",
        _make_random_forest,
        member=True,
    ),
    Contender(
        "extra trees",
        "trees",
        "100 extremely randomised trees for each fold",
        _make_extra_trees,
        member=True,
    ),
    Contender(
        ENSEMBLE,
        "ensemble",
        "the weighted mean of the others that is best for the metric out of fold: MetricEnsembleClassifier",
        None,
        on_metric=True,
        quick=True,
        demo=True,
    ),
)
CONTENDERS: dict[str, Contender] = {contender.name: contender for contender in _TABLE}


def make_own_contender(name: str, estimator: Any) -> Contender:
    """Return the row of an estimator of the user's, which gets the columns as they are in the data."""
    about = f"your own: {type(estimator).__name__}"
    return Contender(name, "own", about, lambda task: [Candidate(name, estimator, "given")], member=True)


def select_contenders(
    goal: Goal,
    named: Sequence[str] | None,
    extra: Sequence[str] = (),
    own: Mapping[str, Contender] | None = None,
) -> tuple[dict[str, Contender], list[tuple[str, str]]]:
    """Return the contenders to compare, always with the reference, and those left out with the reason.

    ``named``: names of contenders; by default all that are meant for the goal, but for those on request. ``extra``:
    names of others. ``own``: estimators of the user's.
    """
    table = {**{name: one for name, one in CONTENDERS.items() if name != ENSEMBLE}, **(own or {})}
    table[ENSEMBLE] = CONTENDERS[ENSEMBLE]
    wanted = {REFERENCE, *(named or ()), *extra, *(own or {})}
    chosen = {
        name: one
        for name, one in table.items()
        if name in wanted or (named is None and not one.on_request and one.find_mismatch(goal) is None)
    }
    obstacles = {name: why for name, one in chosen.items() if (why := one.find_obstacle(goal)) is not None}
    able = {name: one for name, one in chosen.items() if name not in obstacles}
    if ENSEMBLE in able and (shortage := find_shortage(able.values())):
        obstacles[ENSEMBLE] = shortage
        del able[ENSEMBLE]
    return able, list(obstacles.items())


def find_shortage(contenders: Iterable[Contender]) -> str | None:
    """Return why no ensemble can be chosen from these contenders, or None."""
    members = [one.name for one in contenders if one.member]
    if len(members) >= FEWEST_CANDIDATES:
        return None
    return f"needs {FEWEST_CANDIDATES} contenders to choose from, got {', '.join(members) or 'none'}"
