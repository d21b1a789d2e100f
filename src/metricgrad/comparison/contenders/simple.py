"""Contenders that are saved as their numbers alone: the shares of classes, and logistic regression."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import numpy as np
import safetensors.numpy
import torch
from scipy.special import expit, softmax

from metricgrad import strict_json
from metricgrad.estimators.encoded_rows import to_wide
from metricgrad.strict_json import Range
from metricgrad.training.training_loop import one_thread

if TYPE_CHECKING:
    from metricgrad.comparison.contenders.scorers import Effort, Goal, Rows
    from metricgrad.core.batch import Task
    from metricgrad.estimators.encoded_rows import Features

STRENGTHS = (0.1, 1.0, 10.0)
"""The inverse strengths of the ridge penalty (scikit-learn's C) that are tried."""

_Share = Annotated[float, Range(0, 1)]
_NEVER = -30.0  # the intercept of a class without training rows
_FILES = "linear.json", "linear.safetensors"


class Prior:
    """Predicts the share of each class, whatever the features."""

    def __init__(self, shares: float | list[float] | np.ndarray) -> None:
        self.shares, self.history = np.asarray(shares, dtype=float), list[dict[str, float]]()

    def scores(self, features: Features) -> np.ndarray:
        return np.broadcast_to(self.shares, (len(features), *self.shares.shape)).copy()

    def files(self) -> dict[str, bytes]:
        return {"prior.json": strict_json.as_json(self.shares.tolist())}


def fit_prior(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Prior:
    """Fit the shares of the classes."""
    y = rows.targets[np.concatenate((rows.fit, rows.held_out))]
    return Prior(np.bincount(y, minlength=goal.classes) / len(y) if goal.task == "multiclass" else y.mean(0))


def load_prior(files: dict[str, bytes]) -> Prior:
    """Return the model of ``Prior.files``, or raise a ``ValueError``."""
    return Prior(strict_json.read(files["prior.json"], _Share | list[_Share], "prior.json"))


# Logistic regression, by scikit-learn


class Linear:
    """A linear model of encoded rows: weights ``(outputs, columns)`` and intercepts."""

    def __init__(self, task: Task, weights: np.ndarray, intercepts: np.ndarray) -> None:
        self.task, self.weights, self.intercepts = task, weights, intercepts
        self.history: list[dict[str, float]] = []

    def scores(self, features: Features) -> np.ndarray:
        wide = to_wide(features)
        if wide.shape[1] != self.weights.shape[1]:
            raise ValueError(f"expected {self.weights.shape[1]} columns, got {wide.shape[1]}")
        if isinstance(wide, np.ndarray):
            with one_thread():  # sums do not depend on the machine
                z = (torch.from_numpy(wide.astype(np.float64)) @ torch.from_numpy(self.weights.T)).numpy()
        else:
            z = wide @ self.weights.T
        z = np.asarray(z, dtype=np.float64) + self.intercepts
        if self.task == "multiclass":
            return np.asarray(softmax(z, axis=1))
        return np.asarray(expit(z[:, 0] if self.task == "binary" else z))

    def files(self) -> dict[str, bytes]:
        about, arrays = _FILES
        packed = {"weights": np.ascontiguousarray(self.weights), "intercepts": self.intercepts}
        return {about: strict_json.as_json({"task": self.task}), arrays: safetensors.numpy.save(packed)}


class _About(TypedDict):
    task: Literal["binary", "multiclass", "multilabel"]


def load_linear(files: dict[str, bytes]) -> Linear:
    """Return the model of ``Linear.files``, or raise a ``ValueError``."""
    about: _About = strict_json.read(files[_FILES[0]], _About, _FILES[0])
    arrays = safetensors.numpy.load(files[_FILES[1]])
    if sorted(arrays) != ["intercepts", "weights"] or any(one.dtype != np.float64 for one in arrays.values()):
        raise ValueError(f"{_FILES[1]}: expected weights and intercepts in float64, got others")
    weights, intercepts = arrays["weights"], arrays["intercepts"]
    if weights.ndim != 2 or intercepts.shape != weights.shape[:1] or (about["task"] == "binary" and len(weights) != 1):
        raise ValueError(f"{_FILES[1]}: expected weights of every output, got shape {weights.shape}")
    if not np.isfinite(weights).all() or not np.isfinite(intercepts).all():
        raise ValueError(f"{_FILES[1]}: expected finite numbers, got others")
    return Linear(about["task"], weights, intercepts)


def fit_linear(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Linear:
    """Fit logistic regression; the penalty is the one with the smallest cross-entropy on held-out rows."""
    from threadpoolctl import threadpool_limits

    wide = to_wide(rows.features)
    x = wide[rows.fit].astype(np.float64)
    mean, sd = np.zeros(x.shape[1]), np.ones(x.shape[1])
    if isinstance(x, np.ndarray):  # with texts they are standardised already
        mean, sd = x.mean(0), x.std(0)
        sd[sd == 0] = 1.0
        x = (x - mean) / sd
    found = []
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # without full convergence it is as good
        for strength in STRENGTHS:
            weights, intercepts = _fit(goal, x, rows.targets[rows.fit], strength)
            weights = weights / sd
            found.append(Linear(goal.task, weights, intercepts - (weights * mean).sum(1)))
    held_out = rows.features[rows.held_out]
    return min(found, key=lambda one: _compute_cross_entropy(one.scores(held_out), rows.targets[rows.held_out]))


def _fit(goal: Goal, x: Any, y: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and intercepts of each output."""
    from sklearn.linear_model import LogisticRegression

    if goal.task == "multiclass":
        weights, intercepts = np.zeros((goal.classes, x.shape[1])), np.full(goal.classes, _NEVER)
        present = np.unique(y)
        if len(present) == 1:
            intercepts[present] = 0.0
            return weights, intercepts
        model = LogisticRegression(C=strength, max_iter=1000).fit(x, y)
        if len(present) == 2:  # one row of weights, for the second of the two
            weights[present[1]], intercepts[present] = model.coef_[0], (0.0, model.intercept_[0])
        else:
            weights[present], intercepts[present] = model.coef_, model.intercept_
        return weights, intercepts
    columns = y.reshape(len(y), -1).T
    weights, intercepts = np.zeros((len(columns), x.shape[1])), np.zeros(len(columns))
    for k, column in enumerate(columns):
        if column.min() == column.max():
            intercepts[k] = -_NEVER if column[0] else _NEVER
            continue
        model = LogisticRegression(C=strength, max_iter=1000).fit(x, column)
        weights[k], intercepts[k] = model.coef_[0], model.intercept_[0]
    return weights, intercepts


def _compute_cross_entropy(scores: np.ndarray, targets: np.ndarray) -> float:
    if scores.ndim > targets.ndim:
        p = np.take_along_axis(scores, targets[:, None], 1)
    else:
        p = np.where(targets == 1, scores, 1 - scores)
    return float(-np.log(np.clip(p, 1e-12, 1)).mean())
