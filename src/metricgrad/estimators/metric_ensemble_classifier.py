"""``MetricEnsembleClassifier``: several kinds of models, cross-fitted once, weighted for a metric (extra "sklearn")."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted, validate_data
from torch import Tensor

from metricgrad.decisions.default_rule import default_rule
from metricgrad.decisions.ensemble_selection import Selection, SelectionSpec, select_ensemble
from metricgrad.decisions.threshold_tuning import TuningSpec
from metricgrad.estimators.array_encoder import ArrayEncoder, check_no_sparse_nan
from metricgrad.estimators.candidates import (
    Candidate,
    CandidateSpec,
    View,
    list_missing_libraries,
    make_default_candidates,
    name_extra_candidates,
    name_own_candidates,
)
from metricgrad.estimators.cross_fitting import (
    CrossFitted,
    FitSeeds,
    Fold,
    Member,
    cross_fit,
    flatten_models,
    make_folds,
)
from metricgrad.estimators.fit_callbacks import CallbackSupportMixin, FitTask, with_callbacks
from metricgrad.estimators.guarantee_rows import (
    check_abstain_label,
    check_guarantee_rows,
    hold_out_rows,
    tune_on_scores,
)
from metricgrad.estimators.labels import DecidesMixin, as_dense, as_vector
from metricgrad.estimators.preparation import make_labels
from metricgrad.estimators.row_costs import find_fit_costs, name_columns
from metricgrad.estimators.time_limit import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from metricgrad.core.costs import Cost
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average
    from metricgrad.decisions.guarantees import ConfidenceOver
    from metricgrad.decisions.rules import Rule
    from metricgrad.decisions.selection_criteria import SelectBy
    from metricgrad.decisions.threshold_tuning import TuningResult


class MetricEnsembleClassifier(DecidesMixin, CallbackSupportMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Several kinds of models, cross-fitted once, and the weights and the decision rule that are best for a metric.

    Every candidate is fitted once for each fold, without its rows, and scores them. ``select_ensemble`` then chooses
    weights on these out-of-fold scores, greedily, evaluating every step under its own tuned rule. Members are the
    models of the folds, so that nothing is fitted again; candidates without weight are dropped.

    Takes binary, multi-class and multi-label (indicator) targets of any labels. By default the candidates are three
    ridge logistic regressions, a ``MetricClassifier``, boosted trees of XGBoost (on the log-loss) and of LightGBM (on
    log-loss and metric) where these are installed, a random forest and extra trees. They take arrays, sparse matrices,
    and frames of pandas or polars with numbers, categories, dates and texts, which ``TableEncoder`` encodes. NaN is a
    missing value, which a sparse matrix must not have.

    Parameters
    ----------
    metric : str or callable, default 'f1'
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    estimators : list of (str, estimator), optional
        Your own candidates instead, classifiers with ``predict_proba``. They get the features as you give them. A
        classifier of one label is fitted once per label of a multi-label problem. A ``MetricClassifier`` or
        ``MetricBoostingClassifier`` gets the folds as its ``cv``.
    extra_estimators : list of str or (str, estimator), optional
        Candidates besides the default ones: "tabm" or "hybrid tabm", a ``MetricClassifier`` with TabM for a network
        (needs the extra "tabm", many times as slow as the default network), or classifiers of your own, as in
        ``estimators``.
    encoder : TableEncoder, optional
        How frames are encoded for the default candidates, if not by ``TableEncoder()``.
    metric_params : dict, optional
        Parameters of a metric given by name: {"beta": 2}, {"alpha": 0.3, "beta": 0.7}. For one value per class a
        sequence, or {"beta": {"dog": 0.25, "rest": 1}}, where "rest" stands for the classes that are not named.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    rule : {'tuned', 'fixed'} or Rule, default 'tuned'
        "tuned" on the out-of-fold scores, as ``tune_threshold(rare_labels="pooled")`` does: labels with few positives
        share one threshold; "fixed" is 0.5, or the argmax; or a rule of ``mg.decisions`` on probabilities.
    subject_to : str, dict, Constraint or list of these, optional
        Constraints that the rule must meet, such as "precision >= 0.9"; see ``tune_threshold``. With ``average``
        "micro" or "samples" the labels share one threshold.
    confidence : float, optional
        With a number such as 0.95, the constraints hold on new rows with at least that probability; see
        ``tune_threshold`` and ``guarantee_rows``.
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
    cv : int, splitter or iterable, default 5
        A number of folds (stratified, several labels too; of whole groups if ``fit`` gets groups), a scikit-learn
        splitter, or pairs of train and test rows.
    select_by : {'auto', 'metric', 'average-precision', 'log-loss'}, default 'auto'
        What the selection maximises; see ``select_ensemble``.
    rounds : int, default 25
        The rounds of the selection.
    bags : int, default 10
        The number of random halves of the rows on which to select, the weights being averaged; 0 for one selection on
        all rows.
    time_limit : float, optional
        About how many seconds ``fit`` may take. The cheapest candidates are fitted first (your own ``estimators`` in
        the given order), and another one only if it is expected to finish in time, judging by those before; the first
        always is. A candidate that has begun is finished, so a wrong guess exceeds the limit. With a limit, results
        depend on the machine.
    n_jobs : int, optional
        How many candidates to fit at once; one by default.
    random_state : int, RandomState instance or None, default None
        Random seed of folds, candidates without one of their own, and bags; results do not depend on ``n_jobs``.
    verbose : bool, default False
        Show a progress bar (needs tqdm).

    Attributes
    ----------
    members_ : list of Member
        The candidates that were chosen, from the largest weight down, with ``name``, ``weight`` and ``models``.
    weights_ : dict of str to float
        The weights by name; they sum to 1.
    select_by_ : str
        What the selection maximised.
    rule_ : Rule
        The decision rule.
    tuning_ : TuningResult or None
        How the rule was tuned on out-of-fold scores; None if it was not.
    classes_ : ndarray
        The labels; of a multi-label problem their indices.
    encoder_ : TableEncoder, ArrayEncoder or None
        What encodes the features for the default candidates; None for your own ``estimators``.
    n_features_in_ : int
        The number of features, if your own ``estimators`` know it.
    feature_names_in_ : ndarray
        The names of the features, if they were strings.

    See Also
    --------
    select_ensemble : The selection alone, on scores that you have.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> own = [("bayes", GaussianNB()), ("logistic", LogisticRegression(max_iter=5000))]
    >>> model = MetricEnsembleClassifier("mcc", estimators=own, random_state=0).fit(X[100:], y[100:])
    >>> model.score(X[:100], y[:100]) > 0.9
    True

    """

    tuning_: TuningResult | None
    members_: list[Member]
    encoder_: Any

    def __init__(
        self,
        metric: str | Metric = "f1",
        *,
        estimators: Any = None,
        extra_estimators: Any = None,
        encoder: Any = None,
        metric_params: Mapping[str, Any] | None = None,
        average: Average | None = "macro",
        rule: Literal["tuned", "fixed"] | Rule = "tuned",
        subject_to: Any = None,
        confidence: float | None = None,
        confidence_over: ConfidenceOver = "all",
        guarantee_rows: float | None = None,
        abstain: bool = False,
        abstain_label: Any = None,
        cv: Any = 5,
        select_by: SelectBy = "auto",
        rounds: int = 25,
        bags: int = 10,
        time_limit: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.metric = metric
        self.metric_params = metric_params
        self.estimators = estimators
        self.extra_estimators = extra_estimators
        self.encoder = encoder
        self.average = average
        self.rule = rule
        self.subject_to = subject_to
        self.confidence = confidence
        self.confidence_over = confidence_over
        self.guarantee_rows = guarantee_rows
        self.abstain = abstain
        self.abstain_label = abstain_label
        self.cv = cv
        self.select_by = select_by
        self.rounds = rounds
        self.bags = bags
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.estimators is None
        return tags

    # Fitting

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, costs: Cost | None = None) -> Self:
        """Cross-fit the candidates, choose their weights, and tune the rule.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            ``(n, features)``.
        y : array-like
            Labels ``(n,)`` of any type, or a multi-label indicator matrix ``(n, K)``.
        sample_weight : array-like, optional
            Per sample, ``(n,)``; counts in fitting, selection and tuning.
        groups : array-like, optional
            The group of each row, ``(n,)``: no group is in two folds.
        costs : Cost, optional
            The costs of these rows, if ``metric`` is a ``Cost`` that differs by row and does not name columns of X.
            Models are trained for the mean costs, selection and rule are by those of each row.

        Returns
        -------
        MetricEnsembleClassifier
            Itself.

        """
        given, y = self._check_input(X, y)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, given, ensure_non_negative=True)
        check_guarantee_rows(self.guarantee_rows, self.confidence, self.subject_to, groups)
        cost = find_fit_costs(self.metric, costs, X, len(y))
        if self.guarantee_rows is None:
            return self._fit_rows(given, y, weight, groups, cost)
        fitted, held_out = hold_out_rows(len(y), self.guarantee_rows, self.random_state)
        weight_fitted = None if weight is None else weight[fitted]
        weight_held_out = None if weight is None else weight[held_out]
        cost_fitted = cost if cost is None or cost.rows is None else cost.take(fitted)
        self._fit_rows(_safe_indexing(given, fitted), y[fitted], weight_fitted, None, cost_fitted)
        scores = self._scores(_safe_indexing(given, held_out))
        self.tuning_ = tune_on_scores(
            self, scores, self.labels_.encode(y[held_out]), weight_held_out, abstain=self.abstain
        )
        self.rule_ = self.tuning_.rule
        return self

    def _fit_rows(self, given: Any, y: Any, weight: Any, groups: Any, cost: Cost | None) -> Self:
        """Fit on rows that were checked."""
        limit = TimeLimit(self.time_limit)
        labels = make_labels(y)
        targets = labels.encode(y)
        self.labels_ = labels
        self.classes_ = labels.classes
        if cost is not None:
            self.mean_cost_ = cost.mean()
        # Options that do not fit together are refused before anything is fitted.
        goal = (self._metric, labels.task, self.average, self.subject_to, self.rule, self.select_by)
        rule = SelectionSpec(*goal, self.rounds, self.bags, self.abstain).rule
        check_abstain_label(self.abstain, self.abstain_label, self.classes_)
        if self.confidence is not None or self.confidence_over != "all":
            TuningSpec(
                self._metric,
                labels.task,
                self.average,
                subject_to=self.subject_to,
                confidence=self.confidence,
                confidence_over=self.confidence_over,
                abstain=self.abstain,
            ).problem()
        seeds = FitSeeds.draw(self.random_state)
        folds = make_folds(labels, targets, self.cv, groups, seeds.folds)
        encode = self._fit_encoder(given, y, weight)
        candidates = self._list_candidates(len(y))
        views = {view: encode(view) for view in dict.fromkeys(candidate.view for candidate in candidates)}
        task = FitTask.begin_fit(self, given, y, len(candidates))
        candidates, found = self._cross_fit_all(candidates, views, y, weight, folds, seeds, limit, task)
        self._choose_members(candidates, found, targets, weight, folds, rule, seeds.selection, cost)
        if self.estimators is not None:  # only these estimators know the features
            models = (one for candidate in found for one in flatten_models(candidate.models))
            first: Any = next((one for one in models if not isinstance(one, float)), None)
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(first, name):
                    setattr(self, name, getattr(first, name))
        task.end(lambda: vars(self))
        return self

    def _check_input(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return features and targets, checked as far as the candidates do not check them."""
        if self.estimators is not None or is_frame(X):
            if y is None:
                raise ValueError("requires y to be passed, but the target y is None")
            X, y = indexable(X, y)
            if (rows := _num_samples(X)) < 2:
                raise ValueError(f"X: expected at least two rows, got n_samples={rows}")
        else:
            X, y = validate_data(self, X, y, multi_output=True, ensure_min_samples=2, **_ALLOWED)
            check_no_sparse_nan(X)
        y = as_vector(np.asarray(as_dense(y)))
        return X, y

    def _fit_encoder(self, X: Any, y: Any, weight: Any) -> Callable[[View], Any]:
        """Fit the encoder, and return what encodes the training rows; rows of weight 0 do not count."""
        counted = None if weight is None else np.flatnonzero(weight > 0)
        self.encoder_: Any = None
        if self.estimators is not None:
            return lambda view: X
        if not is_frame(X):
            self.encoder_ = encoder = ArrayEncoder()
            encoder.fit_array(X if counted is None else X[counted])
            return lambda view: X if view == "given" else encoder.encode(X, view)
        from metricgrad.estimators.table_encoder import TableEncoder, as_frame

        self.encoder_ = TableEncoder() if self.encoder is None else clone(self.encoder)
        table = as_frame(X)
        self.encoder_.describe(table)
        self.feature_names_in_ = self.encoder_.feature_names_in_
        self.n_features_in_ = self.encoder_.n_features_in_
        parts = self.encoder_.read(table)
        means = self.encoder_.fit_parts(parts, y, counted)
        return lambda view: X if view == "given" else self.encoder_.encode(parts, view, means)

    def _list_candidates(self, rows: int) -> list[Candidate]:
        if self.estimators is not None:
            if self.extra_estimators is not None:
                raise ValueError("extra_estimators: they come besides the default candidates; add them to estimators")
            return name_own_candidates("estimators", self.estimators)
        has_texts = bool(getattr(self.encoder_, "words_", None))
        spec = CandidateSpec(self._metric, self.average, rows, self.labels_.outputs, has_texts)
        candidates = make_default_candidates(spec)
        if self.extra_estimators is not None:
            candidates += name_extra_candidates(self.extra_estimators, spec, candidates)
        return candidates

    def _cross_fit_all(
        self,
        candidates: list[Candidate],
        views: dict[View, Any],
        y: Any,
        weight: Any,
        folds: list[Fold],
        seeds: FitSeeds,
        limit: TimeLimit,
        task: FitTask,
    ) -> tuple[list[Candidate], list[CrossFitted]]:
        """Return the candidates that were fitted before a callback or the time limit stopped, and what came of them."""
        places = limit.order_candidates(candidates)
        ordered = [candidates[place] for place in places]
        jobs = (
            delayed(cross_fit)(one, views[one.view], y, weight, self.labels_, folds, seeds.of_candidate(place))
            for place, one in zip(places, ordered, strict=True)
        )
        results = Parallel(n_jobs=self.n_jobs, return_as="generator")(jobs)
        in_turn: Any = ordered
        if self.verbose:
            from tqdm.auto import tqdm

            if self.estimators is None and (missing := list_missing_libraries()):
                tqdm.write(f"without {' and '.join(missing)}, not installed: pip install 'metricgrad[boosting]'")
            in_turn = tqdm(ordered, desc="candidates", leave=False)
        found: list[CrossFitted] = []
        for candidate in in_turn:
            if not limit.has_time_for(candidate):
                break
            part = task.part(candidate.name, len(found)).begin()
            found.append(next(results))
            limit.add_finished(candidate, found[-1].seconds)
            if part.end():
                break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib warns of work that is dropped, as a callback or the limit wants
            results.close()
        return ordered[: len(found)], found

    def _choose_members(
        self,
        candidates: list[Candidate],
        found: list[CrossFitted],
        targets: Tensor,
        weight: Any,
        folds: list[Fold],
        rule: Rule | None,
        seed: int,
        cost: Cost | None,
    ) -> None:
        """Set weights, members and rule."""
        names = [candidate.name for candidate in candidates]
        self.tuning_ = None
        self.rule_ = rule or default_rule(self.labels_.task)
        if folds[0][1] is None:  # a class has one row, so no scores are out of fold
            if self.subject_to is not None:
                raise ValueError("subject_to: expected two rows or more of each class to tune on, got a class with one")
            self.weights_ = dict.fromkeys(names, 1 / len(names))
            self.select_by_ = None
            values = dict.fromkeys(names, np.nan)
        else:
            rows = np.concatenate([held for _, held in folds])
            selection: Selection = select_ensemble(
                self._metric if cost is None else cost.take(rows),
                {name: one.scores for name, one in zip(names, found, strict=True)},
                targets[rows],
                task=self.labels_.task,
                average=self.average,
                subject_to=self.subject_to,
                abstain=self.abstain,
                weight=None if weight is None else weight[rows],
                rule=self.rule,
                select_by=self.select_by,
                rounds=self.rounds,
                bags=self.bags,
                seed=seed,
            )
            self.weights_ = selection.weights
            self.select_by_ = selection.select_by
            values = selection.alone
            if selection.tuning is not None:
                self.tuning_ = selection.tuning
                self.rule_ = name_columns(selection.rule, self.metric)
            if self.confidence is not None and self.guarantee_rows is None:
                weight_of_rows = None if weight is None else weight[rows]
                self.tuning_ = tune_on_scores(
                    self, selection.scores, targets[rows], weight_of_rows, abstain=self.abstain
                )
                self.rule_ = self.tuning_.rule
        fitted = dict(zip(names, zip(candidates, found, strict=True), strict=True))
        self.members_ = [
            Member(name, share, fitted[name][0].view, fitted[name][1].models) for name, share in self.weights_.items()
        ]
        self._candidates_table = [
            {"name": name, "weight": self.weights_.get(name, 0.0), "value": values[name], "seconds": one.seconds}
            for name, one in zip(names, found, strict=True)
        ]

    @property
    def candidates_(self) -> Any:
        """The candidates that were fitted: a table of name, weight, out-of-fold value under its own rule, seconds."""
        import pandas as pd

        check_is_fitted(self, "members_")
        return pd.DataFrame(self._candidates_table, columns=["name", "weight", "value", "seconds"])

    # Predicting

    def _scores(self, X: Any) -> Tensor:
        check_is_fitted(self, "members_")
        encoder = self.encoder_
        if encoder is None:
            return self._score_views({"given": X})
        if isinstance(encoder, ArrayEncoder):
            array = validate_data(self, X, reset=False, **_ALLOWED)
            return self._score_views(
                {view: array if view == "given" else encoder.encode(array, view) for view in self._list_views()}
            )
        return self._score_parts(encoder.read(X), X)

    def _score_parts(self, parts: Any, given: Any) -> Tensor:
        """Return the scores of rows of a table that the encoder has read; ``given``: the rows themselves."""
        encode = self.encoder_.encode
        return self._score_views(
            {view: given if view == "given" else encode(parts, view) for view in self._list_views()}
        )

    def _score_views(self, views: dict[View, Any]) -> Tensor:
        each = [member.weight * member.scores(views[member.view], self.labels_) for member in self.members_]
        return torch.stack(each).sum(0)

    def _list_views(self) -> list[View]:
        return list(dict.fromkeys(member.view for member in self.members_))


def is_frame(X: Any) -> bool:
    """Return whether features are a table with named columns, of pandas, polars or another library."""
    return hasattr(X, "columns") and hasattr(X, "shape")


_ALLOWED: dict[str, Any] = {"ensure_all_finite": "allow-nan", "accept_sparse": "csr", "dtype": np.float64}
