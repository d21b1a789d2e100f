"""``MetricBoostingClassifier``: boosted trees that are trained, decided and judged by one metric (extra "boosting")."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from metricgrad.boosting.libraries import LIBRARIES, History, Library, Plan, Rows
from metricgrad.boosting.objectives import Backend, Evaluation, base_score, check_backend, matured
from metricgrad.decisions.default import chosen, default_rule
from metricgrad.decisions.tuning import Tuning, tune_threshold
from metricgrad.estimators.labels import DecidesMixin, flat, trusted
from metricgrad.estimators.preparation import labels_to_learn, loss_for, splits, training_weight, wanted_rule

_ALLOWED: dict[str, Any] = {"ensure_all_finite": "allow-nan", "accept_sparse": "csr", "dtype": "numeric"}


class MetricBoostingClassifier(DecidesMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Gradient-boosted trees trained on the metric they will be judged on, with a decision rule tuned for it.

    Takes binary, multi-class and multi-label (indicator) targets of any labels. Features: arrays, pandas or polars
    frames, sparse matrices (XGBoost takes what these leave out as missing). NaN is a missing value; columns of a frame
    of a categorical type are categories, those unknown to ``fit`` count as missing.

    Parameters
    ----------
    metric, average : the metric and its average, as for ``MetricLoss``.
    backend : "xgboost" or "lightgbm".
    loss : "hybrid" (cross-entropy plus ``share`` × metric loss), "metric", "cross-entropy", or a loss module.
    share : the metric loss's share in the hybrid.
    rule : "tuned" on rows that the trees did not see, except where there are fewer than 20 positives or negatives to
        tune on, since such a threshold is noise; "fixed" (0.5, argmax); or a rule of ``decisions``.
    cv : with a number (or a scikit-learn splitter, or pairs of train and test rows), so many models, each trained
        without one fold: the rule is tuned on the scores of the rows left out (cross-fitted) and predictions are the
        mean of the models. None: one model, one validation split if there is anything to tune or to stop.
    validation_fraction : the share of rows of that split.
    monitor : what early stopping looks at: "loss", or "metric" (the hard metric under the rule, which is noisier).
    n_estimators : rounds of each model, at most.
    learning_rate, max_depth : as in the libraries; None for no limit of depth.
    patience : stop after so many rounds without improvement; None never stops early, since the loss of held-out rows
        is best long before the metric is.
    class_weight : None, "balanced" or {class: weight}; multiplies the sample weights, in training and early
        stopping but not in the tuning of the rule. Weights that you name say what to decide, and tuning would undo it:
        the rule then stays at 0.5 or argmax.
    device : where the library grows its trees: "cpu", "cuda", … (the loss itself is computed on the CPU).
    n_jobs : threads of the library, in fitting and predicting; all by default.
    random_state : seeds everything; results are the same on the same machine with the same ``n_jobs``.
    backend_params : further parameters of the library, such as {"subsample": 0.8}; they win over those made here.

    Attributes
    ----------
    boosters_ : the library's models, to whose logits ``base_score_`` is added. n_estimators_ : the rounds of each.
    rule_ : the decision rule. tuning_ : how it was tuned, or None. classes_ : the labels. categories_ : the categories
    of columns, by index. history_ : a frame of loss and metric on held-out rows, a row per model and round.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MetricBoostingClassifier("mcc", n_estimators=30, random_state=0).fit(X[100:], y[100:])
    >>> model.score(X[:100], y[:100]) > 0.9
    True

    """

    tuning_: Tuning | None
    backend_: Backend
    boosters_: list[Any]
    n_estimators_: list[int]
    _histories: list[History]

    def __init__(
        self,
        metric: Any = "f1",
        *,
        average: str = "macro",
        backend: str = "xgboost",
        loss: Any = "hybrid",
        share: float = 0.3,
        rule: Any = "tuned",
        cv: Any = 5,
        validation_fraction: float = 0.2,
        monitor: str = "loss",
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
        self.average = average
        self.backend = backend
        self.loss = loss
        self.share = share
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    # Fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the trees, and the rule on rows they have not seen; weights count in the loss and in the metric."""
        self._check()
        self.categories_ = _categories(X)
        X, y = validate_data(self, self._coded(X), y, multi_output=True, ensure_min_samples=2, **_ALLOWED)
        y = flat(y)
        self.labels_ = labels = labels_to_learn(y)
        self.classes_, targets = labels.classes, labels.encode(y)
        rule = chosen(wanted_rule(self.rule, self.class_weight), labels.task)
        weight = training_weight(labels, X, y, sample_weight, self.class_weight)
        self.base_score_ = base_score(targets, task=labels.task, classes=len(labels.classes), weight=weight)
        shape = len(targets) if labels.task == "binary" else (len(targets), labels.outputs)
        rows = Rows(X, targets.numpy(), weight, np.full(shape, self.base_score_))
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=2)
        parts: list[Any] = []
        if self.cv is not None or rule is None or self.patience is not None:
            found = splits(labels, targets, self.cv, self.validation_fraction, int(seeds[0]))
            parts = [(part.numpy(), held.numpy()) for part, held in found if held is not None]
        self._train(rows, parts, int(seeds[1]))
        self.rule_, self.tuning_ = rule or default_rule(labels.task), None
        if rule is None and parts:
            p = [self._probabilities(model, X[held]) for model, (_, held) in zip(self.boosters_, parts, strict=True)]
            held = np.concatenate([held for _, held in parts])
            judged = None if sample_weight is None else np.asarray(sample_weight, dtype=float)[held]
            how: dict[str, Any] = {"task": labels.task, "average": self.average, "weight": judged, "scarce": "keep"}
            self.tuning_ = tune_threshold(self.metric, torch.cat(p), targets[held], **how)
            self.rule_ = trusted(self.tuning_, self.rule_)
        return self

    def _train(self, rows: Rows, parts: list[Any], seed: int) -> None:
        """Train a model for each part of the rows, or one on all where there are no parts."""

        def train(*some: Rows) -> tuple[Any, int, History]:
            return self._library.train(self._plan(seed), self.n_estimators, *some)

        found = [train(rows.take(part), rows.take(held)) for part, held in parts] or [train(rows)]
        self.boosters_ = [model for model, _, _ in found]
        self.n_estimators_ = [rounds for _, rounds, _ in found]
        self._histories = [history for _, _, history in found]

    def _plan(self, seed: int) -> Plan:
        task = self.labels_.task
        loss = loss_for(self.loss, self.metric, share=self.share, task=task, average=self.average)
        # Tuning in every round is dear, so only where it decides when to stop.
        decides = self.patience is not None and self.monitor == "metric" and task != "multiclass"
        rule = "fixed" if self.rule == "tuned" and not decides else self.rule
        return Plan(
            loss=loss,
            last_loss=matured(loss, self.n_estimators),
            metric=Evaluation(self.metric, self.backend_, task, self.average, rule),
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
        if self.n_estimators < 1:
            raise ValueError(f"n_estimators: expected a number of at least 1, got {self.n_estimators!r}")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience: expected a number of at least 1, or None to never stop, got {self.patience!r}")

    @property
    def _library(self) -> Library:
        return LIBRARIES[self.backend_]

    def _coded(self, X: Any) -> Any:
        """Return a frame with the numbers of its categories; an unknown one is missing."""
        if not self.categories_ or not hasattr(X, "columns"):
            return X
        import pandas as pd

        there = {j: known for j, known in self.categories_.items() if j < X.shape[1]}
        numbers = {j: pd.Index(known).get_indexer(_column(X, j)) for j, known in there.items()}
        columns = {j: np.where(number < 0, np.nan, number) for j, number in numbers.items()}
        if not hasattr(X, "iloc"):
            return X.with_columns([type(X[:, j])(X.columns[j], column) for j, column in columns.items()])
        X = X.copy(deep=False)
        for j, column in columns.items():
            X.isetitem(j, column)
        return X

    # Predicting

    def _probabilities(self, model: Any, X: Any) -> Tensor:
        logits = self._library.logits(model, X, list(self.categories_), self.n_jobs) + self.base_score_
        return self.labels_.probabilities(torch.from_numpy(logits).reshape(len(logits), self.labels_.outputs))

    def _scores(self, X: Any) -> Tensor:
        check_is_fitted(self, "boosters_")
        X = validate_data(self, self._coded(X), reset=False, **_ALLOWED)
        return torch.stack([self._probabilities(model, X) for model in self.boosters_]).mean(0)

    @property
    def history_(self) -> Any:
        """The course of training on held-out rows: a frame with a row per model and round."""
        import pandas as pd

        check_is_fitted(self, "boosters_")
        return pd.DataFrame(
            [{"model": i, "round": r} | row for i, rows in enumerate(self._histories) for r, row in enumerate(rows, 1)],
            columns=["model", "round", "loss", "metric"],
        )


def _categories(X: Any) -> dict[int, list[Any]]:
    """Return the categories of the columns of a pandas or polars frame that have any."""
    if hasattr(X, "iloc") and hasattr(X, "dtypes"):
        return {j: X.iloc[:, j].cat.categories.tolist() for j, kind in enumerate(X.dtypes) if kind == "category"}
    if hasattr(X, "get_columns"):
        kinds = [str(column.dtype).partition("(")[0] for column in X.get_columns()]
        return {
            j: _column(X, j).unique().drop_nulls().sort().to_list()
            for j, kind in enumerate(kinds)
            if kind in ("Categorical", "Enum")
        }
    return {}


def _column(X: Any, j: int) -> Any:
    """Return a column of categories as they are meant."""
    return X.iloc[:, j] if hasattr(X, "iloc") else X[:, j].cast(str)
