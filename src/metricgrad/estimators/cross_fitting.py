"""Cross-fitting: every candidate is fitted once for each fold, without its rows, and scores the rows left out."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from metricgrad.core.metrics.scalars import is_whole
from metricgrad.estimators.candidates import METRIC_ESTIMATORS, Candidate, View
from metricgrad.estimators.encoded_rows import check_width, predict_encoded
from metricgrad.estimators.metric_boosting_classifier import MetricBoostingClassifier
from metricgrad.estimators.metric_classifier import MetricClassifier
from metricgrad.estimators.preparation import as_index_pairs, yield_splits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from metricgrad.estimators.labels import Labels

Fold = tuple[Any, Any]
"""The rows to fit on, and the rows left out; None for these where a class has one row only."""


@dataclass(frozen=True)
class FitSeeds:
    """The random seeds of a cross-fitted ensemble: of its folds, of its candidates, and of its selection."""

    folds: int
    candidates: int
    selection: int

    @classmethod
    def draw(cls, random_state: Any) -> FitSeeds:
        """Return the seeds that follow from a random state."""
        drawn = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=3)
        return cls(*map(int, drawn))

    def of_candidate(self, place: int) -> int:
        """Return the seed of the candidate at this place of the list; the models of its folds get the next ones."""
        return self.candidates + 1000 * place


def make_folds(labels: Labels, targets: Tensor, cv: Any, groups: Any, seed: int) -> list[Fold]:
    """Return for each fold the rows to fit on and those left out; all and None where a class has one row."""
    if cv is None:
        raise ValueError("cv: expected a number of at least 2, a splitter or pairs of rows, got None")
    if groups is None:
        found = yield_splits(labels, targets, cv, 0.5, seed)
        return [(rows.numpy(), None if held is None else held.numpy()) for rows, held in found]
    y = targets.numpy()
    groups = np.asarray(groups)
    if groups.shape != (len(y),):
        raise ValueError(f"groups: expected one for each of {len(y)} rows, got shape {groups.shape}")
    if not is_whole(cv):
        return as_index_pairs(check_cv(cv, y, classifier=True).split(np.zeros(len(y)), y, groups))
    number = min(int(cv), len(np.unique(groups)))
    if number < 2:
        raise ValueError(f"groups: expected at least two, and cv of at least 2, got cv={cv!r}")
    # A class with fewer rows than there are folds is missing in some of them.
    spread = labels.task != "multilabel" and np.bincount(y.astype(int)).min() >= number
    kind = StratifiedGroupKFold if spread else GroupKFold
    return list(kind(number, shuffle=True, random_state=seed).split(np.zeros(len(y)), y, groups))


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """The models of a candidate, one per fold, the scores of the rows that each left out, and the seconds it took.

    A model is an estimator or, for several labels of an estimator of one, a list of these; a label that had one value
    only is that number. The models of our own estimators are one estimator that holds them all.
    """

    models: list[Any]
    scores: Tensor
    seconds: float


def cross_fit(
    candidate: Candidate,
    X: Any,
    y: Any,
    weight: Any,
    labels: Labels,
    folds: list[Fold],
    seed: int,
    with_history: bool = False,
) -> CrossFitted:
    """Fit a candidate once for each fold, and score the rows left out (all rows, where none are).

    ``with_history``: whether the first model of boosted trees has a history, which costs time unless they stop early.
    """
    start = time.perf_counter()
    if isinstance(candidate.estimator, METRIC_ESTIMATORS):
        models, scores = _fit_metric_estimator(candidate, X, y, weight, folds, seed, with_history)
    else:
        models = []
        scores = []
        for i, (rows, held) in enumerate(folds):
            some = None if weight is None else weight[rows]
            one = _set_seeds(clone(candidate.estimator), seed + i)
            models.append(_fit_model(one, candidate.name, _safe_indexing(X, rows), y[rows], some, labels))
            scores.append(predict_probabilities(models[-1], _safe_indexing(X, rows if held is None else held), labels))
    return CrossFitted(models, torch.cat(scores), time.perf_counter() - start)


def _fit_metric_estimator(
    candidate: Candidate, X: Any, y: Any, weight: Any, folds: list[Fold], seed: int, with_history: bool
) -> tuple[list[Any], list[Tensor]]:
    """Hand our own estimator the folds, and read what each of its models says of the rows that it did not see."""
    cv = [fold for fold in folds if fold[1] is not None] or None
    model = _set_seeds(clone(candidate.estimator).set_params(cv=cv, rule="fixed"), seed)
    if isinstance(model, MetricBoostingClassifier):
        model._models_with_history = int(with_history)
    model.fit(X, y, sample_weight=weight).set_params(cv=None)  # the folds of these rows mean nothing to other rows
    if cv is None:
        return [model], [model._scores(X)]
    attribute = "networks_" if isinstance(model, MetricClassifier) else "boosters_"
    scores = []
    for (_, left_out), one in zip(cv, getattr(model, attribute), strict=True):
        alone = copy.copy(model)
        setattr(alone, attribute, [one])
        scores.append(alone._scores(_safe_indexing(X, left_out)))
    return [model], scores


def _set_seeds(estimator: Any, seed: int) -> Any:
    """Give a seed to every part of an estimator that has none."""
    given = estimator.get_params()
    free = [key for key, value in given.items() if key.split("__")[-1] == "random_state" and value is None]
    return estimator.set_params(**dict.fromkeys(free, seed))


def _fit_model(estimator: Any, name: str, X: Any, y: Any, weight: Any, labels: Labels) -> Any:
    how = {} if weight is None else {_find_weight_argument(estimator, name): weight}
    several = labels.task == "multilabel"
    if not several and (y == y[0]).all():
        raise ValueError(f"cv: expected two classes in every part that is fitted, got {y[0]} alone in one")
    try:
        if not several or get_tags(estimator).classifier_tags.multi_label:
            return estimator.fit(X, y, **how)
        return [
            float(column[0]) if (column == column[0]).all() else clone(estimator).fit(X, column, **how)
            for column in y.T
        ]
    except Exception as error:  # of any library: say which candidate it is
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"candidate {name!r} cannot be fitted: {said}") from error


def _find_weight_argument(estimator: Any, name: str) -> str:
    """Return what ``fit`` calls the sample weights."""
    last = estimator.steps[-1] if isinstance(estimator, Pipeline) else ("", estimator)
    if not has_fit_parameter(last[1], "sample_weight"):
        raise ValueError(f"sample_weight: expected estimators that take it, got {name!r}, which does not; leave it out")
    return f"{last[0]}__sample_weight" if last[0] else "sample_weight"


def predict_probabilities(model: Any, X: Any, labels: Labels, is_encoded: bool = False) -> Tensor:
    """Return what a model says as ``Labels.probabilities`` would: ``(N,)``, ``(N, d)`` or ``(N, K)``.

    ``is_encoded``: X comes from an encoder of this library, so that it need not be checked.
    """
    if isinstance(model, METRIC_ESTIMATORS):
        if not is_encoded:
            return model._scores(X)
        check_width(model, X)
        return model._score_checked(X)
    predict: Callable[[Any, Any], Any] = predict_encoded if is_encoded else _predict_given
    if isinstance(model, list):
        rows = X.shape[0] if hasattr(X, "shape") else len(X)
        columns = [np.full(rows, one) if isinstance(one, float) else _predict_label(one, X, predict) for one in model]
        return torch.from_numpy(np.column_stack(columns))
    raw = predict(model, X)
    if labels.task == "multilabel":
        if isinstance(raw, list):  # a list of (N, classes), one per label
            raw = np.column_stack(
                [_take_positive_class(one, known) for one, known in zip(raw, model.classes_, strict=True)]
            )
        return torch.from_numpy(np.asarray(raw, dtype=np.float64))
    full = np.zeros((len(raw), len(labels.classes)))
    full[:, np.searchsorted(labels.classes, model.classes_)] = raw
    return torch.from_numpy(full[:, 1].copy() if labels.task == "binary" else full)


def _predict_given(model: Any, X: Any) -> Any:
    return model.predict_proba(X)


def _predict_label(model: Any, X: Any, predict: Callable[[Any, Any], Any]) -> Any:
    return _take_positive_class(predict(model, X), model.classes_)


def _take_positive_class(raw: Any, classes: Any) -> Any:
    """Return the column of class 1, which a label that was never there does not have."""
    place = np.flatnonzero(np.asarray(classes) == 1)
    return np.asarray(raw)[:, place[0]].astype(np.float64) if len(place) else np.zeros(len(raw))


def average_probabilities(models: list[Any], X: Any, labels: Labels, is_encoded: bool = False) -> Tensor:
    """Return the mean of what several models say, as ``predict_probabilities``."""
    return torch.stack([predict_probabilities(model, X, labels, is_encoded) for model in models]).mean(0)


@dataclass(frozen=True, eq=False)
class Member:
    """A candidate that was chosen: its weight, what it sees of the features, and its models, one per fold.

    Parameters
    ----------
    name : str
        The candidate's name.
    weight : float
        Its share of the ensemble's scores.
    view : {'given', 'linear', 'dense', 'trees'}
        What it sees of the features: as given, or as ``TableEncoder(view)`` encodes them.
    models : list
        Fitted estimators, whose mean is the member's scores. A list of estimators in it has one for each label.

    """

    name: str
    weight: float
    view: View
    models: list[Any]

    def scores(self, X: Any, labels: Labels) -> Tensor:
        """Return the mean of the models' probabilities."""
        return average_probabilities(self.models, X, labels, is_encoded=self.view != "given")


def flatten_models(models: list[Any]) -> Iterator[Any]:
    """Yield the models, and those of each label where they are lists."""
    for model in models:
        if isinstance(model, list):
            yield from model
        else:
            yield model
