"""``MetricBoostingClassifier``: boosted trees trained on the metric they are evaluated by (extra "boosting")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor, nn

from metricgrad.core.costs import find_row_costs
from metricgrad.core.inputs import ArrayLike, whole_number
from metricgrad.decisions.default_rule import RARE_LABELS, default_rule, resolve_rule
from metricgrad.decisions.threshold_tuning import TuningResult, tune_threshold
from metricgrad.estimators.dask_predictions import DecidesLazilyMixin
from metricgrad.estimators.fit_callbacks import CallbackSupportMixin, FitTask, Steps, with_callbacks
from metricgrad.estimators.frame_categories import encode_categories, find_categories
from metricgrad.estimators.labels import as_vector, is_dask
from metricgrad.estimators.preparation import choose_rule, compute_training_weight, make_labels, make_loss, yield_splits
from metricgrad.estimators.row_costs import find_fit_costs, has_cost_rule, tune_fitted_costs
from metricgrad.integrations.boosting.evaluation import Evaluation
from metricgrad.integrations.boosting.hooks import Backend, check_backend
from metricgrad.integrations.boosting.libraries import LIBRARIES, BoostingPlan, BoostingRows, Library, RoundRow, Trained
from metricgrad.integrations.boosting.objectives import base_score, finish_schedules

if TYPE_CHECKING:
    from metricgrad.core.costs import Cost
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average
    from metricgrad.decisions.rules import Rule
    from metricgrad.estimators.labels import Features

_ALLOWED: dict[str, Any] = {"ensure_all_finite": "allow-nan", "accept_sparse": "csr", "dtype": "numeric"}


class MetricBoostingClassifier(DecidesLazilyMixin, CallbackSupportMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Gradient-boosted trees trained on the metric they will be evaluated by, with a decision rule tuned for it.

    Takes binary, multi-class and multi-label (indicator) targets of any labels. Features: arrays, pandas or polars
    frames, sparse matrices (XGBoost takes what these leave out as missing). NaN is a missing value; columns of a frame
    of a categorical type are categories, and those unknown to ``fit`` count as missing. Dask arrays and frames are
    fitted by the workers of the current ``distributed.Client`` with XGBoost, and predicted lazily (docs/scale.md).

    Parameters
    ----------
    metric : str or callable, default 'f1'
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    metric_params : dict, optional
        Parameters of a metric given by name: {"beta": 2}, {"alpha": 0.3, "beta": 0.7}. For one value per class a
        sequence, or {"beta": {"dog": 0.25, "rest": 1}}, where "rest" stands for the classes that are not named.
    average : {'macro', 'micro', 'weighted', 'samples'}, default 'macro'
        How the values of the classes become one. "samples" is the mean over rows, for multi-label problems.
    backend : {'xgboost', 'lightgbm'}, default 'xgboost'
        The library that grows the trees.
    loss : {'hybrid', 'metric', 'cross-entropy'} or nn.Module, default 'hybrid'
        "hybrid" is cross-entropy plus ``metric_weight`` × the metric loss; a module is copied.
    metric_weight : float, default 0.3
        The factor of the metric loss in the hybrid; it may exceed 1.
    rule : {'tuned', 'fixed'} or Rule, default 'tuned'
        "tuned" on rows that the trees did not see, as ``tune_threshold(rare_labels="pooled")`` does: labels with few
        positives share one threshold. "fixed" is 0.5, or the argmax. Or a rule of ``mg.decisions`` on probabilities.
    cv : int, splitter, iterable or None, default 5
        A number of folds (or a scikit-learn splitter, or pairs of train and test rows) trains one model per fold,
        without its rows: the rule is tuned on the scores of the rows left out (cross-fitted), and predictions are the
        mean of the models. None trains one model with one validation split, if there is a rule to tune or early
        stopping. Dask input takes a number of folds or None.
    validation_fraction : float, default 0.2
        The share of rows of the validation split when ``cv`` is None.
    monitor : {'loss', 'metric'}, default 'loss'
        What early stopping looks at: the loss, or the hard metric under the rule, which is noisier, on held-out rows.
    n_estimators : int, default 300
        The largest number of rounds of each model.
    learning_rate : float, default 0.1
        The learning rate, as in the libraries.
    max_depth : int or None, default 6
        The largest depth of a tree; None for no limit.
    patience : int, optional
        Stop after this many rounds without improvement. None never stops early, since the loss of held-out rows is best
        long before the metric is.
    class_weight : dict, 'balanced' or None, default None
        {class: weight}, multiplies the sample weights, in training and early stopping but not in the tuning of the
        rule. Class weights that you name say what to decide, and tuning would undo it: the rule then stays at 0.5, or
        the argmax.
    device : str, optional
        Where the library grows its trees: "cpu", "cuda", ...; the loss itself is computed on the CPU.
    n_jobs : int, optional
        The threads of the library, in fitting and predicting; all by default.
    random_state : int, RandomState instance or None, default None
        Random seed of splits and trees; results are the same on the same machine with the same ``n_jobs``.
    backend_params : dict, optional
        Further parameters of the library, such as {"subsample": 0.8}; they take precedence over those made here.

    Attributes
    ----------
    boosters_ : list
        The library's models, to whose logits ``base_score_`` is added.
    n_estimators_ : list of int
        The rounds of each model.
    base_score_ : float or ndarray
        Where boosting started, in logits.
    rule_ : Rule
        The decision rule.
    tuning_ : TuningResult or None
        How the rule was tuned; None if it was not.
    classes_ : ndarray
        The labels; of a multi-label problem their indices.
    categories_ : dict
        The categories of categorical columns, by the index of the column.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray
        The names of the features, if they were strings.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MetricBoostingClassifier("mcc", n_estimators=30, random_state=0).fit(X[100:], y[100:])
    >>> model.score(X[:100], y[:100]) > 0.9
    True

    """

    tuning_: TuningResult | None
    backend_: Backend
    boosters_: list[Any]
    n_estimators_: list[int]
    _histories: list[list[RoundRow]]

    def __init__(
        self,
        metric: str | Metric = "f1",
        *,
        metric_params: Mapping[str, Any] | None = None,
        average: Average = "macro",
        backend: Backend = "xgboost",
        loss: Literal["hybrid", "metric", "cross-entropy"] | nn.Module = "hybrid",
        metric_weight: float = 0.3,
        rule: Literal["tuned", "fixed"] | Rule = "tuned",
        cv: Any = 5,
        validation_fraction: float = 0.2,
        monitor: Literal["loss", "metric"] = "loss",
        n_estimators: int = 300,
        learning_rate: float = 0.1,
        max_depth: int | None = 6,
        patience: int | None = None,
        class_weight: Any = None,
        device: str | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        backend_params: dict[str, Any] | None = None,
    ) -> None:
        self.metric = metric
        self.metric_params = metric_params
        self.average = average
        self.backend = backend
        self.loss = loss
        self.metric_weight = metric_weight
        self.rule = rule
        self.cv = cv
        self.validation_fraction = validation_fraction
        self.monitor = monitor
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.patience = patience
        self.class_weight = class_weight
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.backend_params = backend_params

    _models_with_history: int | None = None
    """How many of the models keep a history if it does not decide when to stop; None: all. It takes half the time."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    # Fitting

    @with_callbacks
    def fit(self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None = None, costs: Cost | None = None) -> Self:
        """Fit the trees, and tune the rule on rows they have not seen.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            ``(n, features)``; or a Dask array or frame, with y and weights in the same partitions.
        y : array-like
            Labels ``(n,)`` of any type, or a multi-label indicator matrix ``(n, K)``.
        sample_weight : array-like, optional
            Per sample, ``(n,)``; counts in the loss and in the metric. About 1 on average: trees do not split leaves
            whose weight is below ``min_child_weight``, 1 in XGBoost.
        costs : Cost, optional
            The costs of these rows, if ``metric`` is a ``Cost`` that differs by row and does not name columns of X.
            Models are trained for the mean costs, the rule decides by those of each row.

        Returns
        -------
        MetricBoostingClassifier
            Itself.

        """
        self._check()
        if is_dask(X):
            from metricgrad.estimators.dask_boosting import fit_on_dask

            if costs is not None or find_row_costs(self.metric) is not None:
                raise ValueError("costs: expected the same for every row with Dask input, got some per row")
            fit_on_dask(self, X, y, sample_weight)
            return self
        self.categories_ = find_categories(X)
        rows, y = validate_data(
            self, encode_categories(X, self.categories_), y, multi_output=True, ensure_min_samples=2, **_ALLOWED
        )
        y = as_vector(y)
        self.labels_ = labels = make_labels(y)
        self.classes_, targets = labels.classes, labels.encode(y)
        cost = find_fit_costs(self.metric, costs, X, len(targets))
        if cost is not None:
            self.mean_cost_ = cost.mean()
        rule = resolve_rule(choose_rule(self.rule, self.class_weight), labels.task)
        weight = compute_training_weight(labels, rows, y, sample_weight, self.class_weight)
        self.base_score_ = base_score(targets, task=labels.task, classes=len(labels.classes), weight=weight)
        start = np.full(labels.scores_shape(len(targets)), self.base_score_)
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=2)
        parts: list[Any] = []
        if self.cv is not None or rule is None or self.patience is not None:
            found = yield_splits(labels, targets, self.cv, self.validation_fraction, int(seeds[0]))
            parts = [(part.numpy(), held_out.numpy()) for part, held_out in found if held_out is not None]
        task = FitTask.begin_fit(self, X, y, max(1, len(parts)))
        self._train(BoostingRows(rows, targets.numpy(), weight, start), parts, int(seeds[1]), task)
        self.rule_, self.tuning_ = rule or default_rule(labels.task), None
        if rule is None and parts:
            self._tune(rows, targets, parts, sample_weight, cost)
        task.end(lambda: vars(self))
        return self

    def _tune(self, rows: Any, targets: Tensor, parts: list[Any], sample_weight: Any, cost: Cost | None) -> None:
        """Tune the rule on the rows that each model has not seen."""
        task = self.labels_.task
        pairs = zip(self.boosters_, parts, strict=True)
        p = [self._probabilities([model], rows[rest]) for model, (_, rest) in pairs]
        held_out = np.concatenate([rest for _, rest in parts])
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)[held_out]
        if cost is not None and has_cost_rule(cost, task):
            costs_there = cost.take(held_out)
            self.rule_, self.tuning_ = tune_fitted_costs(
                self.metric, costs_there, torch.cat(p), targets[held_out], weight
            )
            return
        how: dict[str, Any] = {"task": task, "average": self.average, "weight": weight, "rare_labels": RARE_LABELS}
        self.tuning_ = tune_threshold(self._metric, torch.cat(p), targets[held_out], **how)
        self.rule_ = self.tuning_.rule

    def _train(self, rows: BoostingRows, parts: list[Any], seed: int, task: FitTask) -> None:
        """Train a model for each part of the rows, or one on all where there are no parts."""

        def train(*some: BoostingRows) -> Trained:
            model_task = task.part("model", len(found), self.n_estimators).begin()
            plan = self._plan(seed)
            if task.is_watched:
                plan = replace(plan, rounds=Steps(model_task, "round"))
            trained = self._library.train(plan, self.n_estimators, *some)
            model_task.end()  # the other models are needed all the same
            return trained

        found: list[Trained] = []
        for place, (part, held_out) in enumerate(parts):
            stops_early = self.patience is not None
            if stops_early or self._models_with_history is None or place < self._models_with_history:
                found.append(train(rows.take(part), rows.take(held_out)))
            else:
                found.append(train(rows.take(part)))
        self._keep(found or [train(rows)])

    def _keep(self, found: list[Trained]) -> None:
        self.boosters_ = [one.model for one in found]
        self.n_estimators_ = [one.rounds for one in found]
        self._histories = [one.history for one in found]

    def _plan(self, seed: int) -> BoostingPlan:
        task = self.labels_.task
        loss = make_loss(self.loss, self._metric, metric_weight=self.metric_weight, task=task, average=self.average)
        # Tuning in every round is expensive, so only where it decides when to stop.
        decides = self.patience is not None and self.monitor == "metric" and task != "multiclass"
        rule = "fixed" if self.rule == "tuned" and not decides else self.rule
        return BoostingPlan(
            loss=loss,
            last_loss=finish_schedules(loss, self.n_estimators),
            metric=Evaluation(self._metric, self.backend_, task, self.average, rule),
            monitor=self.monitor,
            patience=self.patience,
            categorical=list(self.categories_),
            learning_rate=self.learning_rate,
            max_depth=self.max_depth,
            device=self.device,
            n_jobs=self.n_jobs,
            seed=seed,
            parameters=self.backend_params or {},
        )

    def _check(self) -> None:
        """Refuse parameters that mean nothing, before any data is looked at."""
        self.backend_ = check_backend(self.backend)
        if self.monitor not in ("loss", "metric"):
            raise ValueError(f"monitor: expected 'loss' or 'metric', got {self.monitor!r}")
        whole_number("n_estimators", self.n_estimators, 1)
        if self.backend_params is not None and not isinstance(self.backend_params, Mapping):
            raise ValueError(f"backend_params: expected a dict of parameters, got {self.backend_params!r}")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience: expected a number of at least 1, or None to never stop, got {self.patience!r}")

    @property
    def _library(self) -> Library:
        return LIBRARIES[self.backend_]

    def _numbers(self, X: Any) -> Any:
        """Return the features of a partition, which may be empty, as numbers."""
        return check_array(encode_categories(X, self.categories_), ensure_min_samples=0, input_name="X", **_ALLOWED)

    # Predicting

    def _probabilities(self, models: list[Any], X: Any) -> Tensor:
        """Return the mean of what some of the models say."""
        rows = self._library.make_rows(X, list(self.categories_), self.n_jobs)
        each = []
        for model in models:
            logits = self._library.logits(model, rows, self.n_jobs)
            logits = logits.reshape(X.shape[0], self.labels_.outputs) + self.base_score_
            each.append(self.labels_.probabilities(torch.from_numpy(logits)))
        return torch.stack(each).mean(0)

    def _scores(self, X: Features) -> Tensor:
        check_is_fitted(self, "boosters_")
        return self._score_checked(validate_data(self, encode_categories(X, self.categories_), reset=False, **_ALLOWED))

    def _score_checked(self, X: Any) -> Tensor:
        """Return the scores of rows that were checked, or made by an encoder."""
        return self._probabilities(self.boosters_, X)

    @property
    def history_(self) -> Any:
        """The training history: a DataFrame of loss and metric on held-out rows, with a row per model and round."""
        import pandas as pd

        check_is_fitted(self, "boosters_")
        return pd.DataFrame(
            [{"model": i, "round": r} | row for i, rows in enumerate(self._histories) for r, row in enumerate(rows, 1)],
            columns=["model", "round", "loss", "metric"],
        )
