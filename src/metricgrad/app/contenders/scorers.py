"""Fitted contenders: what gives scores, how it is fitted with a seed, saved and loaded; nothing is ever pickled.

All get the same rows: some to fit, others to stop early on. Rules are tuned elsewhere, by one function for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np

from metricgrad.estimators.network import MetricClassifier
from metricgrad.estimators.trees import MetricBoostingClassifier
from metricgrad.storage import estimators, folders, records
from metricgrad.storage.records import Range

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.boosting.hooks import Backend
    from metricgrad.engine.batch import Task
    from metricgrad.metrics.averages import Average

STEPS, SMALLEST, LARGEST = 128, 32, 4096
"""How many steps an epoch should have, within batches of these sizes."""

FEW_ROWS = 10_000
"""Below it trees get coarser bins."""

GROWTH: dict[str, Any] = {"learning_rate": 0.1, "max_depth": 6}
"""How trees grow, whatever their loss."""


@dataclass(frozen=True)
class Goal:
    """What is to be decided, and what is best: the task with its number of classes, metric, average, constraint."""

    task: Task
    classes: int
    metric: str
    average: Average = "macro"
    subject_to: str | None = None


@dataclass(frozen=True)
class Effort:
    """The budget, the same for all: at most so many epochs of networks and rounds of trees.

    A sixth of the epochs, or a tenth of the rounds, without gain is the end.
    """

    epochs: int
    patience: int
    rounds: int

    @property
    def idle_rounds(self) -> int:
        """After so many rounds without gain trees stop."""
        return max(self.rounds // 10, 5)

    @classmethod
    def of(cls, rows: int, quick: bool = False) -> Effort:
        """Return the budget for so many rows: about as many steps for few as for many, a third for a first look."""
        steps = rows / max(rows / STEPS, SMALLEST)
        epochs = min(200, max(60, 3000 / steps)) * min(1, 100_000 / rows)
        epochs = max(8, round(epochs / 3 if quick else epochs))
        return cls(epochs, max(3, epochs // 6), 100 if quick else 300)


@dataclass(frozen=True, eq=False)
class Rows:
    """What a contender may see: features ``(n, d)``, targets (indices, or 0/1 a label), rows to fit and to stop on."""

    features: Any
    targets: Any
    fit: Any
    held: Any


class Scorer(Protocol):
    """A fitted contender."""

    history: list[dict[str, float]]
    """Of every "epoch" or round, from 0, the "loss", and the metric's "value" on held rows if that was watched."""

    def scores(self, features: Any) -> Any:
        """Return probabilities in float64: ``(n,)``, ``(n, classes)``, or ``(n, K)`` of each label."""

    def files(self) -> dict[str, bytes]:
        """Return the files that ``loaded`` reads."""


# Baseline


class Prior:
    """The shares of the classes, whatever the features."""

    def __init__(self, shares: Any) -> None:
        self.shares, self.history = np.asarray(shares, dtype=float), list[dict[str, float]]()

    def scores(self, features: Any) -> Any:
        return np.broadcast_to(self.shares, (len(features), *self.shares.shape)).copy()

    def files(self) -> dict[str, bytes]:
        return {"prior.json": records.as_json(self.shares.tolist())}


def prior(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Prior:
    """Count the classes."""
    y = rows.targets[np.concatenate((rows.fit, rows.held))]
    return Prior(np.bincount(y, minlength=goal.classes) / len(y) if goal.task == "multiclass" else y.mean(0))


# Estimators of this library


class Estimator:
    """A ``MetricClassifier`` or a ``MetricBoostingClassifier``."""

    def __init__(self, model: MetricClassifier | MetricBoostingClassifier) -> None:
        self.model = model
        # Stopped on the loss, its "value" is minus that of the held rows, and no value of the metric.
        keys = ("loss", "value") if model.monitor == "metric" else ("loss",)
        rows = enumerate(model._histories[0])
        self.history = [{"epoch": float(i)} | {key: row[key] for key in keys if key in row} for i, row in rows]

    def scores(self, features: Any) -> Any:
        return self.model.predict_scores(features)

    def files(self) -> dict[str, bytes]:
        return estimators.packed(self.model)


def network(folds: int | None = None, **options: Any) -> Callable[[Goal, Effort, Rows, int], Estimator]:
    """Return how a ``MetricClassifier`` with these options is fitted; functions among them get goal and rows.

    ``folds``: so many networks instead of one, each stopped on a fold of the rows to fit.
    """

    def fit(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Estimator:
        # The metric alone does not tell a good epoch where a constraint counts as well.
        made: dict[str, Any] = {"monitor": "metric" if goal.subject_to is None else "loss"}
        made |= {key: value(goal, rows) if callable(value) else value for key, value in options.items()}
        model = MetricClassifier(
            goal.metric,
            average=goal.average,
            cv=folds or [(rows.fit, rows.held)],
            epochs=effort.epochs,
            patience=effort.patience,
            batch_size=batch_size(rows.targets[rows.fit]),
            random_state=seed,
            **made,
        )
        seen = rows.fit if folds else slice(None)
        model.fit(rows.features[seen], rows.targets[seen])
        return Estimator(model.set_params(cv=None))  # the rows are not the model's business any more

    return fit


def batch_size(targets: Any) -> int:
    """Return a batch that leaves ``STEPS`` to an epoch and holds about four of the rarest class."""
    counts = np.bincount(targets) if targets.ndim == 1 else targets.sum(0)
    rarest = min((int(count) for count in counts if count), default=1)
    wanted = max(len(targets) / STEPS, min(4 * len(targets) / rarest, 1024))
    return int(2 ** round(math.log2(min(max(wanted, SMALLEST), LARGEST))))


def boosting(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Estimator:
    """Fit trees on cross-entropy plus the metric loss."""
    model = MetricBoostingClassifier(
        goal.metric,
        average=goal.average,
        loss="hybrid",
        rule="fixed",
        cv=[(rows.fit, rows.held)],
        n_estimators=effort.rounds,
        patience=effort.idle_rounds,
        n_jobs=1,
        random_state=seed,
        backend_params=_bins(rows),
        **GROWTH,
    )
    model.fit(rows.features, rows.targets)
    return Estimator(model.set_params(cv=None))


# Trees of XGBoost


class Trees:
    """XGBoost's trees on its own logarithmic loss."""

    def __init__(self, booster: Any, history: Any = ()) -> None:
        self.booster = booster
        self.history: list[dict[str, float]] = list(history)

    def scores(self, features: Any) -> Any:
        import xgboost

        data = xgboost.DMatrix(np.asarray(features, dtype=np.float32), nthread=1)
        return self.booster.predict(data).astype(float)

    def files(self) -> dict[str, bytes]:
        return {"trees.ubj": bytes(self.booster.save_raw("ubj"))}


def trees(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Trees:
    """Fit trees on the logarithmic loss."""
    import xgboost

    several = {"objective": "multi:softprob", "num_class": goal.classes}
    own = several if goal.task == "multiclass" else {"objective": "binary:logistic"}
    fitted, held = (
        xgboost.DMatrix(rows.features[which], rows.targets[which], nthread=1) for which in (rows.fit, rows.held)
    )
    course: dict[str, Any] = {}
    booster = xgboost.train(
        {**GROWTH, **_bins(rows), **own, "nthread": 1, "seed": seed},
        fitted,
        effort.rounds,
        evals=[(held, "held")],
        evals_result=course,
        early_stopping_rounds=effort.idle_rounds,
        verbose_eval=False,
    )
    losses = next(iter(course["held"].values()))
    history = [{"epoch": float(i), "loss": float(loss)} for i, loss in enumerate(losses)]
    return Trees(booster[: booster.best_iteration + 1], history)


def _bins(rows: Rows) -> dict[str, Any]:
    """Return how coarse trees see: finer bins of few rows hold hardly a row each, and take most of the time."""
    return {"max_bin": 64} if len(rows.fit) < FEW_ROWS else {}


# Loading

_Share = Annotated[float, Range(0, 1)]


def loaded(kind: str, files: dict[str, bytes]) -> Scorer:
    """Return the scorer whose ``files`` these are, read and verified already; ``kind`` is the name of its class."""
    if kind == "Prior":
        return Prior(records.read(files["prior.json"], _Share | list[_Share], "prior.json"))
    if kind == "Trees":
        import xgboost

        return Trees(xgboost.Booster({"nthread": 1}, model_file=bytearray(files["trees.ubj"])))
    manifest, inner = folders.unpacked(files, "estimator")
    # A function or a module cannot be written; only fitting needs it.
    gone = {
        key: None
        for key, value in dict(manifest.get("parameters", {})).items()
        if isinstance(value, dict) and value.get("type") == "not written"
    }
    model = estimators.restored(manifest, inner, None, **gone)  # type: ignore[arg-type]
    if not isinstance(model, MetricClassifier | MetricBoostingClassifier):
        raise ValueError(f"estimator: expected a network or boosted trees, got a {type(model).__name__}")
    return Estimator(model)


def tree_files(files: dict[str, bytes]) -> dict[str, Backend]:
    """Return which of the files are trees, and of which library."""
    return {name: _SUFFIXES[suffix] for name in files if (suffix := name.rpartition(".")[2]) in _SUFFIXES}


_SUFFIXES: dict[str, Backend] = {"ubj": "xgboost", "txt": "lightgbm"}
