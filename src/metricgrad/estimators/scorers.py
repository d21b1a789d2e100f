"""``mg.scorer``: any metric of this library as a scorer of scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from sklearn.metrics._scorer import _BaseScorer  # what scikit-learn and skore ask for by isinstance
from sklearn.utils.validation import _check_response_method
from torch import Tensor

from metricgrad.core.batch import check_task
from metricgrad.core.costs import Cost, find_row_costs
from metricgrad.core.inputs import whole_number
from metricgrad.core.metrics import name_of
from metricgrad.core.metrics.averages import Averaged
from metricgrad.core.metrics.parameters import with_parameters
from metricgrad.core.metrics.registry import find
from metricgrad.core.option_hints import explain_unknown
from metricgrad.decisions.default_rule import RARE_LABELS
from metricgrad.decisions.least_cost import LeastCost
from metricgrad.decisions.rules import ArgmaxOrAbstain
from metricgrad.decisions.threshold_tuning import tune_threshold
from metricgrad.estimators.labels import Labels, as_dense, as_vector, stack_label_scores
from metricgrad.estimators.preparation import spread_labels
from metricgrad.estimators.row_costs import find_fit_costs
from metricgrad.evaluation.evaluator import evaluate
from metricgrad.evaluation.metric_set import NAMES_OF_SCORE_METRICS, is_lower_better, needs_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from metricgrad.core.batch import Task
    from metricgrad.core.inputs import ArrayLike
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import EmptyClasses

_SCORES = ("predict_proba", "decision_function")


@dataclass(frozen=True)
class Tuning:
    """How a rule is cross-fitted within the scored rows."""

    cv: int
    seed: int


@dataclass(frozen=True)
class ValueOfPredictions:
    """A metric in scikit-learn's form, ``(y_true, y_pred) -> number``, of labels or, if it needs them, of scores."""

    metric: str | Metric
    metric_params: Mapping[str, Any] | None
    task: Task | None
    average: Averaged
    labels: tuple[int, ...] | None
    empty_classes: EmptyClasses
    tuning: Tuning | None

    @property
    def __name__(self) -> str:
        """The metric's name, for the tables of other libraries."""
        return name_of(self.metric) if callable(self.metric) else self.metric

    @property
    def reads_scores(self) -> bool:
        """Whether it is computed from scores instead of predicted labels."""
        return self.tuning is not None or needs_scores(self.metric)

    def __call__(
        self, y_true: ArrayLike, y_pred: ArrayLike, *, sample_weight: ArrayLike | None = None, pos_label: Any = None
    ) -> float:
        """Return the value; the classes are those that occur in the rows."""
        classes = None
        if not self.reads_scores and np.ndim(as_dense(y_pred)) == 1:
            predicted = [label for label in np.asarray(y_pred).tolist() if label is not None]  # None is undecided
            classes = np.union1d(np.asarray(y_true), np.asarray(predicted)) if predicted else np.asarray(y_true)
        return self.evaluate(self.read_labels(y_true, classes), y_true, y_pred, sample_weight, pos_label)

    def read_labels(self, y_true: Any, classes: Any) -> Labels:
        """Return the task and the classes of the rows; ``classes`` are those that the classifier was fitted on."""
        plain = as_vector(np.asarray(as_dense(y_true)))
        several = isinstance(classes, list) or plain.ndim > 1  # ``classes`` are those of each label, not of rows
        labels = Labels(plain, None if several else classes)
        if self.task is not None and labels.task != self.task:
            if (labels.task, self.task) != ("binary", "multiclass"):
                raise ValueError(f"task: expected y of task={self.task!r}, got targets of task={labels.task!r}")
            labels = Labels.of(self.task, labels.classes)
        return labels

    def evaluate(self, labels: Labels, y_true: Any, y_pred: Any, sample_weight: Any, pos_label: Any) -> float:
        """Return the value that ``mg.evaluate`` gives, under a rule that is cross-fitted if asked for."""
        metric = self._find_metric(labels, pos_label)
        targets = _encode(labels, as_vector(np.asarray(as_dense(y_true))), pos_label)
        weight = None if sample_weight is None else torch.as_tensor(np.asarray(sample_weight, dtype=float))
        rule = None
        if self.reads_scores:
            scores = _read_scores(labels, y_pred, pos_label)
        elif labels.task == "multiclass":
            scores = _mark_predicted(labels, np.asarray(y_pred))
            if not scores.any(1).all():
                rule = ArgmaxOrAbstain((0.5,) * labels.outputs)
        else:
            scores = _encode(labels, np.asarray(as_dense(y_pred)), pos_label).double()
        if self.tuning is not None:
            scores = self._decide_by_cross_fitting(self.tuning, metric, labels, scores, targets, weight)
        value = evaluate(
            scores,
            targets,
            {"value": metric},
            task=labels.task,
            average=self.average,
            labels=self.labels,
            empty_classes=self.empty_classes,
            weight=weight,
            rule=rule,
        )
        return value["value"]

    def _find_metric(self, labels: Labels, pos_label: Any) -> str | Metric:
        """Return the metric with its parameters, which may name classes."""
        if labels.task == "binary":
            named = [_positive_class(labels, pos_label)] if self.metric_params else []
        else:
            named = list(labels.classes)
        return with_parameters(self.metric, self.metric_params, named)

    def _decide_by_cross_fitting(
        self, tuning: Tuning, metric: str | Metric, labels: Labels, scores: Tensor, targets: Tensor, weight: Any
    ) -> Tensor:
        """Return what is decided of each row by a rule that was tuned on the other folds."""
        if len(targets) < 2:
            raise ValueError(f"tuned: expected at least two rows to tune on and decide, got {len(targets)}")
        folds = min(tuning.cv, len(targets))
        part = _divide(labels, targets, folds, tuning.seed)
        decided = torch.zeros_like(scores)
        for fold in range(folds):
            held = part == fold
            found = tune_threshold(
                metric.take(~held) if isinstance(metric, Cost) else metric,
                scores[~held],
                targets[~held],
                task=labels.task,
                average=self.average,
                labels=self.labels,
                empty_classes=self.empty_classes,
                weight=None if weight is None else weight[~held],
                rare_labels=RARE_LABELS,
            )
            decisions = found.rule.decide(scores[held])
            decided[held] = _one_hot(decisions, scores.shape[1]) if labels.task == "multiclass" else decisions.double()
        return decided


def _divide(labels: Labels, targets: Tensor, folds: int, seed: int) -> Tensor:
    """Return the fold of each row; every class is spread over the folds, however rare it is."""
    if labels.task == "multilabel":
        return torch.from_numpy(spread_labels(targets.numpy(), [1 / folds] * folds, seed))
    shuffled = np.random.default_rng(seed).permutation(len(targets))
    by_class = shuffled[np.argsort(targets.numpy()[shuffled], kind="stable")]
    part = torch.empty(len(targets), dtype=torch.long)
    part[torch.from_numpy(by_class)] = torch.arange(len(targets)) % folds
    return part


def _positive_class(labels: Labels, pos_label: Any) -> Any:
    """Return the class of a binary problem that is positive: ``pos_label``, otherwise the second in sorted order."""
    classes = labels.classes.tolist()
    if pos_label is not None:
        if len(classes) > 1 and pos_label not in classes:
            raise ValueError(f"pos_label: expected one of {classes}, got {pos_label!r}")
        return pos_label
    if len(classes) == 2:
        return classes[1]
    if classes[0] not in (0, 1):
        raise ValueError(f"pos_label: expected the positive class, since the rows have the class {classes[0]!r} alone")
    return 1


def _encode(labels: Labels, y: Any, pos_label: Any) -> Tensor:
    """Return labels as targets: 0/1 of a binary problem, class indices, or an indicator matrix."""
    if labels.task != "binary":
        if pos_label is not None:
            raise ValueError(f"pos_label: expected none for task={labels.task!r}, got {pos_label!r}")
        return labels.encode(y)
    positive = y == _positive_class(labels, pos_label)
    return torch.from_numpy(np.asarray(positive, dtype=np.float32))


def _mark_predicted(labels: Labels, predicted: NDArray[Any]) -> Tensor:
    """Return 1 for the predicted class; a row of zeros where no class is predicted, as for an undecided row."""
    return torch.from_numpy(np.stack([predicted == label for label in labels.classes], axis=1)).double()


def _one_hot(classes: Tensor, number: int) -> Tensor:
    return torch.nn.functional.one_hot(classes.long(), number).double()


def _read_scores(labels: Labels, raw: Any, pos_label: Any) -> Tensor:
    """Return the scores of a classifier as ``(n,)``, ``(n, d)`` or ``(n, K)``."""
    scores = np.asarray(raw, dtype=np.float64)
    if labels.task == "binary" and scores.ndim == 2 and scores.shape[1] == 2:
        place = labels.classes.tolist().index(_positive_class(labels, pos_label))
        scores = scores[:, place]
    wanted = labels.scores_shape(len(scores))
    if scores.shape != wanted:
        raise ValueError(f"y_pred: expected scores of shape {wanted}, one column per class, got {scores.shape}")
    return torch.from_numpy(np.ascontiguousarray(scores))


class MetricScorer(_BaseScorer):  # type: ignore[misc]
    """A scorer of scikit-learn, ``scorer(estimator, X, y)``, that counts every class the estimator was fitted on."""

    def _score(self, method_caller: Callable[..., Any], estimator: Any, X: Any, y_true: Any, **kwargs: Any) -> float:
        """Return the value of an estimator's predictions; scikit-learn calls it, keeping predictions for others."""
        value: ValueOfPredictions = self._score_func
        labels = value.read_labels(y_true, getattr(estimator, "classes_", None))
        method = _check_response_method(estimator, self._response_method).__name__
        options = {"pos_label": None, "sample_weight": None, "costs": None, **self._kwargs, **kwargs}
        costs = find_fit_costs(value.metric, options["costs"], X, len(y_true))
        if costs is not None:
            value = replace(value, metric=costs)
        rule = getattr(estimator, "rule_", None)
        if method == "predict" and isinstance(rule, LeastCost) and rule.needs_costs:
            y_pred = estimator.predict(X, costs=costs)
        elif labels.task == "multilabel" and value.reads_scores:
            # scikit-learn takes two labels for two classes, and would give the scores of one.
            y_pred = stack_label_scores(getattr(estimator, method)(X), getattr(estimator, "classes_", None))
        else:
            y_pred = method_caller(estimator, method, X, pos_label=options["pos_label"])
        found = value.evaluate(labels, y_true, y_pred, options["sample_weight"], options["pos_label"])
        return float(self._sign * found)

    def __repr__(self) -> str:
        value: ValueOfPredictions = self._score_func
        tuned = ", tuned=True" if value.tuning is not None else ""
        negative = ", lower is better: its negative" if self._sign < 0 else ""
        return f"scorer({value.__name__}{tuned}{negative})"


@explain_unknown
def scorer(
    metric: str | Metric,
    *,
    metric_params: Mapping[str, Any] | None = None,
    task: Task | None = None,
    average: Averaged = "macro",
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    pos_label: Any = None,
    tuned: bool = False,
    cv: int = 5,
    random_state: int = 0,
) -> MetricScorer:
    """Return a scorer of scikit-learn, for ``scoring=`` of ``cross_val_score``, ``GridSearchCV`` and others.

    Its values are those of ``mg.evaluate``. A metric of decisions is that of what the estimator predicts; one of the
    scores themselves ("auroc", "log_loss") takes ``predict_proba``, otherwise ``decision_function``. Where lower is
    better ("log_loss", "brier_score"), the value is the negative, as with scikit-learn's "neg_log_loss". Unlike
    scikit-learn's, it counts every class that the estimator was fitted on, whether it occurs in the scored rows or not.
    Of several classes, a row for which none of them is predicted is undecided (``abstain=True``): its class misses it.

    Parameters
    ----------
    metric : str, callable or Cost
        A name ("f1", "f0.5", "mcc", "auroc", ...), "package.module:function", a function of ``Counts`` (or
        ``Confusion``), or costs, whose metric is the savings. Costs of rows are the columns of X that a ``Cost`` names,
        or come with the rows as metadata: ``scorer(Cost(fp=1, fn=1)).set_score_request(costs=True)``, then
        ``cross_val_score(..., params={"costs": cost})``.
    metric_params : dict, optional
        Parameters of a metric given by name: {"beta": 2}, {"alpha": 0.3, "beta": 0.7}. For one value per class a
        sequence, or {"beta": {"dog": 0.25, "rest": 1}}, where "rest" stands for the classes that are not named.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        What the targets are. None finds out from the targets and the estimator's classes; others are refused.
    average : {'macro', 'micro', 'weighted', 'samples'}, default 'macro'
        How the values of the classes become one. "samples" is the mean over rows, for multi-label problems.
    labels : iterable of int, optional
        The classes that count, by their index in the estimator's ``classes_``; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    pos_label : label, optional
        The positive class of a binary problem; by default ``classes_[1]``, the second in sorted order.
    tuned : bool, default False
        Ignore the estimator's own decisions and score a rule that is tuned for the metric: the scored rows are divided
        into folds, and each is decided by the rule that is best on the others. The value is what a tuned threshold is
        worth on rows that it was not tuned on.
    cv : int, default 5
        The number of folds for ``tuned``.
    random_state : int, default 0
        The seed of these folds.

    Returns
    -------
    MetricScorer
        A callable ``scorer(estimator, X, y, sample_weight=None, costs=None)``, an object of scikit-learn's kind: it can
        be pickled, and takes part in metadata routing (``set_score_request``).

    Raises
    ------
    ValueError
        If an option is unknown, ``average`` is None, or ``tuned`` is asked of a metric that has no decision rule.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = make_classification(1000, weights=[0.9], class_sep=0.5, flip_y=0, random_state=0)
    >>> at_half = cross_val_score(LogisticRegression(), X, y, scoring=scorer("f2"))
    >>> tuned = cross_val_score(LogisticRegression(), X, y, scoring=scorer("f2", tuned=True))
    >>> bool(tuned.mean() > at_half.mean() + 0.1)
    True

    """
    if not isinstance(metric, str) and not callable(metric):
        raise ValueError(f"metric: expected a name or a function, got {type(metric).__name__}")
    of_scores = needs_scores(metric)
    if not of_scores and not is_lower_better(metric) and find_row_costs(metric) is None:
        find(metric, NAMES_OF_SCORE_METRICS)  # refuses what is unknown
    if average not in get_args(Averaged):
        raise ValueError(
            f"average: expected one of {', '.join(get_args(Averaged))}: a score is one number; got {average!r}"
        )
    if tuned and (of_scores or is_lower_better(metric)):
        raise ValueError(f"tuned: expected a metric of decisions, which a rule can be tuned for, got {metric!r}")
    folds = whole_number("cv", cv, 2)
    seed = whole_number("random_state", random_state, 0)
    value = ValueOfPredictions(
        metric,
        None if metric_params is None else dict(metric_params),
        None if task is None else check_task(task),
        average,
        None if labels is None else tuple(labels),
        empty_classes,
        Tuning(folds, seed) if tuned else None,
    )
    fixed = {} if pos_label is None else {"pos_label": pos_label}
    return MetricScorer(
        score_func=value,
        sign=-1 if is_lower_better(metric) else 1,
        kwargs=fixed,
        response_method=_SCORES if value.reads_scores else "predict",
    )
