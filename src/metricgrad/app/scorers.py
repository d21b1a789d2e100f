"""Fitted contenders: what gives scores, how it is fitted with a seed, saved and loaded; nothing is ever pickled.

All get the same rows: some to fit, others to stop early on. Rules are tuned elsewhere, by one function for all of them.
"""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from metricgrad import persistence
from metricgrad.estimators import MetricClassifier
from metricgrad.hybrid import HybridLoss
from metricgrad.labels import Labels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from metricgrad.tasks import Task

STEPS, SMALLEST, LARGEST = 128, 32, 4096
"""How many steps an epoch should have, within batches of these sizes."""

FEW_ROWS = 10_000
"""Below it trees get coarser bins."""


@dataclass(frozen=True)
class Goal:
    """What is to be decided, and what is best: the task with its number of classes, metric, average, constraint."""

    task: Task
    classes: int
    metric: str
    average: str = "macro"
    subject_to: str | None = None


@dataclass(frozen=True)
class Effort:
    """The budget, the same for all: at most so many epochs of networks and rounds of trees.

    A sixth of the epochs, or a tenth of the rounds, without gain is the end.
    """

    epochs: int
    patience: int
    rounds: int

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

    def scores(self, features: Any) -> Any:
        """Return probabilities in float64: ``(n,)``, ``(n, classes)``, or ``(n, K)`` of each label."""

    def save(self, folder: Path) -> None:
        """Write what ``loaded`` reads into a new folder."""


# Baseline


class Prior:
    """The shares of the classes, whatever the features."""

    def __init__(self, shares: Any) -> None:
        self.shares, self.history = np.asarray(shares, dtype=float), list[dict[str, float]]()

    def scores(self, features: Any) -> Any:
        return np.broadcast_to(self.shares, (len(features), *self.shares.shape)).copy()

    def save(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "prior.json").write_text(json.dumps(self.shares.tolist()))


def prior(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Prior:
    """Count the classes."""
    y = rows.targets[np.concatenate((rows.fit, rows.held))]
    return Prior(np.bincount(y, minlength=goal.classes) / len(y) if goal.task == "multiclass" else y.mean(0))


# Networks


class Network:
    """A ``MetricClassifier``."""

    def __init__(self, model: MetricClassifier) -> None:
        self.model = model
        self.history: list[dict[str, float]] = getattr(model, "_histories", [[]])[0]

    def scores(self, features: Any) -> Any:
        return self.model.predict_scores(features)

    def save(self, folder: Path) -> None:
        persistence.save(self.model, folder)


def network(folds: int | None = None, **options: Any) -> Callable[[Goal, Effort, Rows, int], Network]:
    """Return how a ``MetricClassifier`` with these options is fitted; functions among them get goal and rows.

    ``folds``: so many networks instead of one, each stopped on a fold of the rows to fit.
    """

    def fit(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Network:
        made = {key: value(goal, rows) if callable(value) else value for key, value in options.items()}
        model = MetricClassifier(
            goal.metric,
            average=goal.average,
            cv=folds or [(rows.fit, rows.held)],  # type: ignore[arg-type]
            # The metric alone does not tell a good epoch where a constraint counts as well.
            monitor="metric" if goal.subject_to is None else "loss",
            epochs=effort.epochs,
            patience=effort.patience,
            batch_size=batch_size(rows.targets[rows.fit]),
            random_state=seed,
            **made,
        )
        seen = rows.fit if folds else slice(None)
        model.fit(rows.features[seen], rows.targets[seen])
        return Network(model.set_params(cv=None))  # the rows are not the model's business any more

    return fit


def batch_size(targets: Any) -> int:
    """Return a batch that leaves ``STEPS`` to an epoch and holds about four of the rarest class."""
    counts = np.bincount(targets) if targets.ndim == 1 else targets.sum(0)
    rarest = min((int(count) for count in counts if count), default=1)
    wanted = max(len(targets) / STEPS, min(4 * len(targets) / rarest, 1024))
    return int(2 ** round(math.log2(min(max(wanted, SMALLEST), LARGEST))))


# Trees


class Trees:
    """XGBoost's trees; ``start``: the logits that they are added to, if the loss was not one of XGBoost's own."""

    def __init__(self, booster: Any, task: Task, start: Any = None, history: Any = ()) -> None:
        self.booster, self.task, self.start = booster, task, start
        self.history: list[dict[str, float]] = list(history)

    def scores(self, features: Any) -> Any:
        import xgboost

        data = xgboost.DMatrix(np.asarray(features, dtype=np.float32), nthread=1)
        if self.start is None:
            return self.booster.predict(data).astype(float)
        data.set_base_margin(_repeated(self.start, len(features)))
        logits = torch.from_numpy(self.booster.predict(data, output_margin=True)).reshape(len(features), -1)
        return Labels.of(self.task, None).probabilities(logits).numpy()

    def save(self, folder: Path) -> None:
        folder.mkdir()
        self.booster.save_model(folder / "trees.ubj")
        start = None if self.start is None else np.asarray(self.start).tolist()
        (folder / "trees.json").write_text(json.dumps({"task": self.task, "start": start}))


def trees(on_metric: bool) -> Callable[[Goal, Effort, Rows, int], Trees]:
    """Return how trees are fitted: on XGBoost's own logarithmic loss, or on this library's hybrid of it."""

    def fit(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Trees:
        import xgboost

        own = {"multiclass": "multi:softprob"}.get(goal.task, "binary:logistic")
        parameters: dict[str, Any] = {"tree_method": "hist", "eta": 0.1, "max_depth": 6, "nthread": 1, "seed": seed}
        parameters |= {"num_class": goal.classes} if goal.task == "multiclass" else {}
        if len(rows.fit) < FEW_ROWS:
            parameters["max_bin"] = 64  # finer bins hold hardly a row each, and take most of the time
        fitted, held = (
            xgboost.DMatrix(rows.features[which], rows.targets[which], nthread=1) for which in (rows.fit, rows.held)
        )
        start, options = None, {}
        if on_metric:
            boosting = importlib.import_module("metricgrad.boosting")
            start = boosting.base_score(rows.targets[rows.fit], task=goal.task, classes=goal.classes)
            for data in (fitted, held):
                data.set_base_margin(_repeated(start, data.num_row()))
            loss = HybridLoss(goal.metric, share=1.0, task=goal.task, average=goal.average)
            options = {"obj": boosting.xgboost_objective(loss), "custom_metric": _Watch(loss, rows.targets[rows.held])}
            parameters |= {"disable_default_eval_metric": 1, "base_score": 0.0}
            parameters |= {"num_target": goal.classes} if goal.task == "multilabel" else {}
        else:
            parameters |= {"objective": own}
        course: dict[str, Any] = {}
        booster = xgboost.train(
            parameters,
            fitted,
            effort.rounds,
            evals=[(held, "held")],
            evals_result=course,
            early_stopping_rounds=max(effort.rounds // 10, 5),
            verbose_eval=False,
            **options,
        )
        losses = next(iter(course["held"].values()))
        history = [{"epoch": float(i), "loss": float(loss)} for i, loss in enumerate(losses)]
        return Trees(booster[: booster.best_iteration + 1], goal.task, start, history)

    return fit


class _Watch:
    """The loss of held-out rows, as XGBoost asks for it."""

    def __init__(self, loss: Any, targets: Any) -> None:
        self.loss, self.targets = loss, torch.from_numpy(np.asarray(targets))

    def __call__(self, scores: Any, data: Any) -> tuple[str, float]:
        z = torch.from_numpy(np.asarray(scores, dtype=np.float32))
        with torch.no_grad():
            return "loss", float(self.loss(z.reshape(len(self.targets), -1).squeeze(1), self.targets))


def _repeated(start: Any, rows: int) -> Any:
    return np.broadcast_to(np.asarray(start, dtype=np.float32), (rows, *np.shape(start))).copy()


# Loading


def loaded(kind: str, folder: Path) -> Scorer:
    """Return what ``save`` wrote; ``kind`` is the name of its class."""
    if kind == "Prior":
        return Prior(json.loads((folder / "prior.json").read_text()))
    if kind == "Trees":
        import xgboost

        about = json.loads((folder / "trees.json").read_text())
        return Trees(xgboost.Booster(model_file=folder / "trees.ubj"), about["task"], about["start"])
    absent = json.loads((folder / "manifest.json").read_text())["parameters"]
    # A function or a module cannot be written; only fitting needs it.
    gone = {
        key: None for key, value in absent.items() if isinstance(value, dict) and value.get("type") == "not written"
    }
    model = persistence.load(folder, None, **gone)  # type: ignore[arg-type]
    if not isinstance(model, MetricClassifier):
        raise ValueError(f"folder: expected a MetricClassifier, got {type(model).__name__}")
    return Network(model)
