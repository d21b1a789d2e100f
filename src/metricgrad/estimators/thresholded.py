"""``ThresholdedClassifier``: any scikit-learn classifier with the decision rule that is best for a metric."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import cross_val_predict
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, indexable
from torch import Tensor

from metricgrad.decisions.default import default_rule
from metricgrad.decisions.tuning import tune_threshold
from metricgrad.estimators.labels import Labels, flat, trusted


def _can(method: str) -> Any:
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), method))


class ThresholdedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Wraps a scikit-learn classifier with the exact decision rule for a metric, tuned on scores it did not fit.

    Binary, multi-class and multi-label; see ``tune_threshold`` for what is exact.

    Parameters
    ----------
    estimator : a classifier with ``predict_proba`` or (binary and multi-class) ``decision_function``.
    metric, average, shared, subject_to, confidence : as for ``tune_threshold``.
    cv : how the scores to tune on are made: a number of folds or a splitter (cross-fitted: every row is scored by a
        model that did not see it, then the model is fitted on all rows), or "prefit" to tune a fitted classifier on
        the rows given to ``fit``, which it must not have been fitted on.
    n_jobs : how many folds to fit at once.

    Attributes
    ----------
    estimator_, rule_, tuning_, classes_. Where there are fewer than 20 positives or negatives to tune on, the rule
    keeps the estimator's own 0.5 (0 for ``decision_function``, argmax).

    """

    def __init__(
        self,
        estimator: Any,
        metric: Any = "f1",
        *,
        average: str | None = "macro",
        shared: bool = False,
        subject_to: Any = None,
        confidence: float | None = None,
        cv: Any = 5,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.metric = metric
        self.average = average
        self.shared = shared
        self.subject_to = subject_to
        self.confidence = confidence
        self.cv = cv
        self.n_jobs = n_jobs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags, tags.classifier_tags = inner.input_tags, inner.classifier_tags
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Make scores by cross-fitting, tune the rule on them, and fit the classifier on all rows."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        X, y = indexable(X, y)
        plain = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
        if plain.ndim == 2 and plain.shape[1] == 1:
            y = plain = flat(plain)
        self.labels_ = Labels(plain)
        self.classes_ = self.labels_.classes
        if sample_weight is not None:
            fit_params = {**fit_params, "sample_weight": sample_weight}
        if self.cv == "prefit":
            check_is_fitted(self.estimator)
            self.estimator_ = self.estimator
            scores = self._scores(X)
        else:
            scores = self._read(
                cross_val_predict(
                    clone(self.estimator),
                    X,
                    y,
                    cv=self.cv,
                    n_jobs=self.n_jobs,
                    params=fit_params,
                    method=self._method(),
                )
            )
            self.estimator_ = clone(self.estimator).fit(X, y, **fit_params)
        if hasattr(self.estimator_, "n_features_in_"):
            self.n_features_in_ = self.estimator_.n_features_in_
        if hasattr(self.estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.estimator_.feature_names_in_
        self.tuning_ = tune_threshold(
            self.metric,
            scores,
            self.labels_.encode(plain),
            task=self.labels_.task,
            average=self.average,
            shared=self.shared,
            subject_to=self.subject_to,
            confidence=self.confidence,
            weight=None if sample_weight is None else np.asarray(sample_weight, dtype=float),
            scarce="keep",
        )
        default = default_rule(self.labels_.task, 0.0 if self._method() == "decision_function" else 0.5)
        # A constraint that was asked for is kept whatever the numbers behind it.
        self.rule_ = self.tuning_.rule if self.subject_to is not None else trusted(self.tuning_, default)
        return self

    def _method(self) -> str:
        estimator = getattr(self, "estimator_", self.estimator)
        for name in ("predict_proba", "decision_function"):
            if hasattr(estimator, name):
                return name
        raise ValueError(f"estimator: expected predict_proba or decision_function, got {estimator!r} with neither")

    def _read(self, raw: Any) -> Tensor:
        """Return the scores of a classifier as ``(n,)``, ``(n, d)`` or ``(n, K)``."""
        if isinstance(raw, list):  # forests give multi-label probabilities as a list of (n, 2), one per label
            raw = np.column_stack([one[:, -1] if one.shape[1] > 1 else np.zeros(len(one)) for one in raw])
        raw = np.asarray(raw)
        if self.labels_.task == "binary" and raw.ndim == 2:
            raw = raw[:, -1]
        return torch.as_tensor(raw, dtype=torch.float64)

    def _scores(self, X: Any) -> Tensor:
        return self._read(getattr(self.estimator_, self._method())(X))

    def predict(self, X: Any) -> Any:
        """Return the labels that the rule decides on."""
        check_is_fitted(self)
        return self.labels_.decode(self.rule_.decide(self._scores(X)))

    @_can("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Return the classifier's probabilities moved so that 0.5, or the argmax, is where the rule decides."""
        check_is_fitted(self)
        moved = self.rule_.centred(self._scores(X)).numpy()
        return np.column_stack((1 - moved, moved)) if self.labels_.task == "binary" else moved
