"""``ThresholdedClassifier``: any scikit-learn classifier with the decision rule that is best for a metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import cross_val_predict
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, get_routing_for_object, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_method_params, check_is_fitted, indexable
from torch import Tensor

from metricgrad.decisions.threshold_tuning import TuningSpec
from metricgrad.estimators.fit_callbacks import CallbackSupportMixin, FitTask, with_callbacks
from metricgrad.estimators.guarantee_rows import (
    check_abstain_label,
    check_guarantee_rows,
    hold_out_rows,
    tune_on_scores,
)
from metricgrad.estimators.labels import Labels, PredictsMixin, as_dense, as_vector, stack_label_scores
from metricgrad.estimators.row_costs import find_fit_costs, has_cost_rule, tune_fitted_costs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from metricgrad.core.costs import Cost
    from metricgrad.core.inputs import ArrayLike
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average
    from metricgrad.decisions.guarantees import ConfidenceOver
    from metricgrad.estimators.labels import Features, SparseMatrix


def _available_if_has(method: str) -> Any:
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), method))


class ThresholdedClassifier(PredictsMixin, CallbackSupportMixin, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Any scikit-learn classifier with the exact decision rule for a metric, tuned on rows it was not fitted on.

    Takes binary, multi-class and multi-label targets; see ``tune_threshold`` for what is exact. Labels with few
    positives share one threshold, as with ``tune_threshold(rare_labels="pooled")``.

    Parameters
    ----------
    estimator : classifier
        With ``predict_proba`` or (binary and multi-class) ``decision_function``.
    metric : str or callable, default 'f1'
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    metric_params : dict, optional
        Parameters of a metric given by name: {"beta": 2}, {"alpha": 0.3, "beta": 0.7}. For one value per class a
        sequence, or {"beta": {"dog": 0.25, "rest": 1}}, where "rest" stands for the classes that are not named.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    shared : bool, default False
        Tune one threshold for all classes of a multi-label problem instead of one per class.
    subject_to : str, dict, Constraint or list of these, optional
        Constraints that the rule must meet, such as "precision >= 0.9" or {"precision": 0.9}; comma-separated for
        several. With a threshold per class, every class must meet them.
    confidence : float, optional
        With a number such as 0.95, the constraints hold on new rows with at least that probability over the rows that
        are tuned on, instead of on these rows alone. The rows must be independent, and not those of the training.
    confidence_over : {'all', 'each'}, default 'all'
        Of several classes: whether the confidence is that all of them meet the constraints, or that a class does.
    guarantee_rows : float, optional
        The share of the rows, such as 0.3, on which the rule is tuned and nothing is fitted. A ``confidence`` is then
        exact. Without it the rule is tuned on out-of-fold scores, by models of fewer rows than the one that scores new
        rows, and the confidence is approximate.
    abstain : bool, default False
        For several classes with ``subject_to``: predict a class only where it meets the constraints.
    abstain_label : object, optional
        What is predicted for a row that is left undecided: no class, but a text if the classes are texts, and a whole
        number if they are. By default None, as in a table.
    cv : int, splitter, iterable or 'prefit', default 5
        How the scores to tune on are made: a number of folds or a splitter (cross-fitted: every row is scored by a
        model that did not see it, then the model is fitted on all rows), or "prefit" to tune a fitted classifier on the
        rows given to ``fit``, which it must not have been fitted on.
    n_jobs : int, optional
        How many folds to fit at once; one by default.
    random_state : int, RandomState instance or None, default None
        Random seed of ``guarantee_rows``.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    rule_ : Rule
        The decision rule.
    tuning_ : TuningResult
        How the rule was tuned.
    classes_ : ndarray
        The labels; of a multi-label problem their indices.
    n_features_in_ : int
        The number of features, if the classifier knows it.
    feature_names_in_ : ndarray
        The names of the features, if the classifier knows them.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = ThresholdedClassifier(GaussianNB(), "mcc").fit(X[100:], y[100:])
    >>> model.score(X[:100], y[:100]) > 0.8
    True

    """

    def __init__(
        self,
        estimator: Any,
        metric: str | Metric = "f1",
        *,
        metric_params: Mapping[str, Any] | None = None,
        average: Average | None = "macro",
        shared: bool = False,
        subject_to: Any = None,
        confidence: float | None = None,
        confidence_over: ConfidenceOver = "all",
        guarantee_rows: float | None = None,
        abstain: bool = False,
        abstain_label: Any = None,
        cv: Any = 5,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.metric = metric
        self.metric_params = metric_params
        self.average = average
        self.shared = shared
        self.subject_to = subject_to
        self.confidence = confidence
        self.confidence_over = confidence_over
        self.guarantee_rows = guarantee_rows
        self.abstain = abstain
        self.abstain_label = abstain_label
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags, tags.classifier_tags = inner.input_tags, inner.classifier_tags
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """Return who gets what is passed to ``fit``, with scikit-learn's metadata routing enabled.

        A sample weight that is passed to ``fit`` counts in tuning, and in fitting if the classifier requests it.

        Returns
        -------
        MetadataRouter
            Of this estimator, its classifier and its splitter.

        """
        fitted, split = (MethodMapping().add(caller="fit", callee=callee) for callee in ("fit", "split"))
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=fitted).add(splitter=self.cv, method_mapping=split)

    @with_callbacks
    def fit(
        self,
        X: Features,
        y: ArrayLike | SparseMatrix,
        sample_weight: ArrayLike | None = None,
        costs: Cost | None = None,
        **fit_params: Any,
    ) -> Self:
        """Make scores by cross-fitting, tune the rule on them, and fit the classifier on all rows.

        With ``guarantee_rows`` the classifier is fitted on the other rows, and the rule tuned on its scores of these.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            ``(n, features)``, as the classifier takes it.
        y : array-like
            Labels ``(n,)`` of any type, or a multi-label indicator matrix ``(n, K)``.
        sample_weight : array-like, optional
            Per sample, ``(n,)``; counts in fitting and in tuning.
        costs : Cost, optional
            The costs of these rows, if ``metric`` is a ``Cost`` that differs by row and does not name columns of X.
        **fit_params : Any
            Further arguments of the classifier's ``fit``.

        Returns
        -------
        ThresholdedClassifier
            Itself.

        """
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        X, y = indexable(X, y)
        plain = np.asarray(as_dense(y))
        if hasattr(y, "toarray") or (plain.ndim == 2 and plain.shape[1] == 1):
            y = plain = as_vector(plain)
        # The columns of scores are the classes that the classifier was fitted on; tuning rows may lack some.
        fitted = getattr(self.estimator, "classes_", None) if self.cv == "prefit" else None
        self.labels_ = Labels(plain, None if isinstance(fitted, list) or plain.ndim > 1 else fitted)
        self.classes_ = self.labels_.classes
        cost = find_fit_costs(self.metric, costs, X, len(plain))
        self._check_options(cost)
        tuned_rows: Any = slice(None)
        if sample_weight is not None:
            fit_params = {**fit_params, "sample_weight": sample_weight}
        task = FitTask.begin_fit(self, X, y, parts=2)
        if self.cv == "prefit":
            check_is_fitted(self.estimator)
            self.estimator_ = self.estimator
            scores = self._scores(X)
        elif self.guarantee_rows is not None:
            fitted_rows, tuned_rows = hold_out_rows(len(plain), self.guarantee_rows, self.random_state)
            for_fitted_rows = _check_method_params(X, self._route_parameters(fit_params)[1], indices=fitted_rows)
            fitted_X = _safe_indexing(X, fitted_rows)
            fitted_y = _safe_indexing(y, fitted_rows)
            self.estimator_ = _fit_as_task(task, clone(self.estimator), fitted_X, fitted_y, for_fitted_rows)
            scores = self._scores(_safe_indexing(X, tuned_rows))
        else:
            for_folds, for_all_rows = self._route_parameters(fit_params)
            cross_fitting = task.part("cross-fit", 0).begin()
            scores = self._read(
                cross_val_predict(
                    clone(self.estimator),
                    X,
                    y,
                    cv=self.cv,
                    n_jobs=self.n_jobs,
                    params=for_folds,
                    method=self._find_method(),
                ),
                [[only] for only in plain[0]] if plain.ndim == 2 else None,
            )
            cross_fitting.end()
            self.estimator_ = _fit_as_task(task, clone(self.estimator), X, y, for_all_rows)
        if hasattr(self.estimator_, "n_features_in_"):
            self.n_features_in_ = self.estimator_.n_features_in_
        if hasattr(self.estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.estimator_.feature_names_in_
        of_logits = self._find_method() == "decision_function"
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)[tuned_rows]
        targets = self.labels_.encode(plain[tuned_rows])
        if cost is not None and has_cost_rule(cost, self.labels_.task) and self.subject_to is None:
            self.rule_, self.tuning_ = tune_fitted_costs(self.metric, cost, scores, targets, weight, of_logits)
        else:
            self.tuning_ = tune_on_scores(
                self,
                scores,
                targets,
                weight,
                default_threshold=0.0 if of_logits else 0.5,
                shared=self.shared,
                abstain=self.abstain,
            )
            self.rule_ = self.tuning_.rule
        task.end(lambda: vars(self))
        return self

    def _check_options(self, cost: Cost | None) -> None:
        """Refuse options that do not fit together, before anything is fitted."""
        check_guarantee_rows(self.guarantee_rows, self.confidence, self.subject_to)
        if self.guarantee_rows is not None and self.cv == "prefit":
            raise ValueError("guarantee_rows: expected None with cv='prefit', where all rows are held out, got a share")
        check_abstain_label(self.abstain, self.abstain_label, self.classes_)
        TuningSpec(
            self._metric if cost is None else cost.mean(),
            self.labels_.task,
            self.average,
            self.shared,
            subject_to=self.subject_to,
            confidence=self.confidence,
            confidence_over=self.confidence_over,
            abstain=self.abstain,
        ).problem()

    def _route_parameters(self, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what ``cross_val_predict`` gets, which routes by itself, and what the classifier's ``fit`` gets."""
        if not get_config()["enable_metadata_routing"]:
            return params, params
        to_fit = process_routing(self, "fit", **params).estimator.fit
        wanted = get_routing_for_object(self.estimator).consumes("fit", params)
        wanted |= get_routing_for_object(self.cv).consumes("split", params)
        return {name: params[name] for name in wanted}, to_fit

    def _find_method(self) -> str:
        estimator = getattr(self, "estimator_", self.estimator)
        for name in ("predict_proba", "decision_function"):
            if hasattr(estimator, name):
                return name
        raise ValueError(f"estimator: expected predict_proba or decision_function, got {estimator!r} with neither")

    def _read(self, raw: Any, classes: Any) -> Tensor:
        """Return the scores of a classifier as ``(n,)``, ``(n, d)`` or ``(n, K)``, as ``stack_label_scores`` does."""
        raw = stack_label_scores(raw, classes)
        if self.labels_.task == "binary" and raw.ndim == 2 and raw.shape[1] <= 2:
            raw = raw[:, -1]
        wanted = self.labels_.scores_shape(len(raw))
        if raw.shape != wanted:
            raise ValueError(
                f"estimator: expected scores of shape {wanted}, one column per class, got {raw.shape} from "
                f"{self._find_method()}"
            )
        return torch.as_tensor(raw, dtype=torch.float64)

    def _scores(self, X: Features) -> Tensor:
        check_is_fitted(self, "estimator_")
        raw = getattr(self.estimator_, self._find_method())(X)
        return self._read(raw, getattr(self.estimator_, "classes_", None))

    @_available_if_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Return the classifier's probabilities moved so that 0.5, or the argmax, is where the rule decides.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            ``(n, features)``, as given to ``fit``.

        Returns
        -------
        ndarray
            ``(n, 2)`` for binary, ``(n, d)`` for multi-class, ``(n, K)`` for multi-label problems.

        """
        return self._recentre_probabilities(X)


def _fit_as_task(task: FitTask, estimator: Any, X: Any, y: Any, params: dict[str, Any]) -> Any:
    """Fit a classifier as a part of a task, and pass callbacks on to it."""
    part = task.part("fit", 1)
    with part.passed_on(estimator):
        part.begin()
        estimator.fit(X, y, **params)
        part.end()
    return estimator
