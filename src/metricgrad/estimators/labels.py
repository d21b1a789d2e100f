"""What the scikit-learn estimators share: labels to targets and back, and rules on probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from metricgrad.core.batch import Task, check_task, to_probabilities
from metricgrad.core.costs import Cost, find_row_costs
from metricgrad.core.inputs import ArrayLike
from metricgrad.core.metrics.parameters import check_values, with_parameters
from metricgrad.decisions.least_cost import LeastCost
from metricgrad.estimators.fitted_html import render_facts
from metricgrad.estimators.row_costs import find_fit_costs, find_predict_costs
from metricgrad.evaluation.evaluator import evaluate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from metricgrad.decisions.rules import Rule


class SparseMatrix(Protocol):
    """A sparse matrix of scipy."""

    def toarray(self) -> Any: ...


Features = ArrayLike | SparseMatrix
"""What users pass as X: an array, a frame or a sparse matrix."""

DOCUMENTATION = "docs/estimators.md"
"""The page about estimators: in the repository, until the site is published somewhere."""

_TASKS: dict[str, Task] = {
    "binary": "binary",
    "multiclass": "multiclass",
    "multilabel-indicator": "multilabel",
}


class Labels:
    """How a classifier's labels become targets and back."""

    def __init__(self, y: Any, classes: Any = None) -> None:
        kind = type_of_target(y, input_name="y")
        check_classification_targets(y)
        if kind not in _TASKS:
            raise ValueError(f"Unknown label type: {kind!r}; expected binary, multi-class or a multi-label indicator")
        self.task = _TASKS[kind]
        if self.task == "multilabel":
            values = y.data if hasattr(y, "toarray") else y
            if not ((values == 0) | (values == 1)).all():
                found = np.unique(values).tolist()
                raise ValueError(f"y: expected an indicator matrix of 0 and 1, got the values {found}")
            self.classes = np.arange(y.shape[1])
        else:
            self.classes = np.unique(y) if classes is None else np.unique(classes)
            self.task = "multiclass" if len(self.classes) > 2 else "binary"

    @classmethod
    def of(cls, task: str, classes: NDArray[Any]) -> Labels:
        """Return the labels of a task whose classes are known."""
        labels = cls.__new__(cls)
        labels.task, labels.classes = check_task(task), classes
        return labels

    @property
    def outputs(self) -> int:
        """How many logits a row has."""
        return 1 if self.task == "binary" else len(self.classes)

    def scores_shape(self, rows: int) -> tuple[int, ...]:
        """Return the shape of the scores of rows: ``(rows,)`` of a binary problem, otherwise ``(rows, outputs)``."""
        return (rows,) if self.task == "binary" else (rows, self.outputs)

    def encode(self, y: Any) -> Tensor:
        """Return targets: ``(N,)`` 0/1 or class indices, or ``(N, K)`` 0/1."""
        if self.task == "multilabel":
            # A copy, since torch warns of the arrays of pandas, which cannot be written to.
            return torch.from_numpy(np.array(as_dense(y), dtype=np.float32))
        unknown = np.setdiff1d(y, self.classes)
        if len(unknown):
            raise ValueError(f"y: expected the classes {list(self.classes)}, got also {list(unknown)}")
        index = torch.from_numpy(np.searchsorted(self.classes, y))
        return index.float() if self.task == "binary" else index.long()

    def decode(self, decided: Tensor, abstain_label: Any = None) -> NDArray[Any]:
        """Return what was decided as labels, with ``abstain_label`` for a row left undecided."""
        index = decided.long().numpy()
        if self.task == "multilabel":
            return index
        decoded: NDArray[Any] = self.classes[index]
        undecided = index < 0
        if not undecided.any():
            return decoded
        as_objects = decoded.astype(object)
        as_objects[undecided] = abstain_label
        return as_objects if abstain_label is None else np.array(as_objects.tolist())

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return P(y = 1) ``(N,)``, P(class) ``(N, d)`` or P(y_k = 1) ``(N, K)`` in float64."""
        return to_probabilities(self.task, logits.double()).reshape(self.scores_shape(len(logits)))


class PredictsMixin:
    """What a fitted estimator predicts from ``_scores(X)``, its ``labels_`` and its ``rule_``."""

    labels_: Labels
    rule_: Rule
    metric: Any
    metric_params: Any
    mean_cost_: Cost
    """The mean costs of the rows that were fitted on, if ``metric`` is a ``Cost`` that differs by row."""

    @property
    def _metric(self) -> Any:
        """The metric with its parameters; with some, the labels must be known, since a parameter may name them."""
        if find_row_costs(self.metric) is not None and hasattr(self, "mean_cost_"):
            return self.mean_cost_  # used where no costs of rows are given
        if not self.metric_params and not (isinstance(self.metric, str) and "(" in self.metric):
            return self.metric
        labels = self.labels_
        classes = labels.classes[1 if labels.task == "binary" else 0 :]
        found = with_parameters(self.metric, self.metric_params, list(classes))
        check_values(found, labels.outputs)
        return found

    @property
    def _scored_by(self) -> Any:
        """The estimator of this library whose scores the rule decides on."""
        return self

    # Where the question mark of scikit-learn's diagrams leads.
    _doc_link_module = "metricgrad"
    _doc_link_template = f"{DOCUMENTATION}#{{anchor}}"

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        return {"anchor": type(self).__name__.lower()}

    def _scores(self, X: Features) -> Tensor:
        """Return the scores that the rule decides on."""
        raise NotImplementedError

    def _recentre_probabilities(self, X: Features) -> NDArray[np.float64]:
        """Return the scores moved so that 0.5, or the argmax, is where the rule decides; of a binary problem both."""
        scores = self._scores(X)  # first, since it refuses what is not fitted
        moved = self.rule_.recentre_probabilities(scores).numpy()
        return np.column_stack((1 - moved, moved)) if self.labels_.task == "binary" else moved

    def predict(self, X: Features, costs: Cost | None = None) -> NDArray[Any]:
        """Return the labels that the rule decides on.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            ``(n, features)``, as given to ``fit``.
        costs : Cost, optional
            The costs of these rows, if ``metric`` is a ``Cost`` that differs by row and does not name columns of X.

        Returns
        -------
        ndarray
            Labels ``(n,)``, or an indicator matrix ``(n, K)``.

        """
        scores = self._scores(X)
        decided = self._decide(scores, costs, X)
        # Of the estimators that can leave rows undecided.
        return self.labels_.decode(decided, getattr(self, "abstain_label", None))

    def _decide(self, scores: Tensor, costs: Any, X: Any) -> Tensor:
        if isinstance(self.rule_, LeastCost):
            return self.rule_.decide_rows(scores, find_predict_costs(self.rule_, costs, X, len(scores)))
        if costs is not None:
            raise ValueError(f"costs: expected none, since the rule is {self.rule_.describe()}, got some; leave it out")
        return self.rule_.decide(scores)

    def score(
        self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None = None, costs: Cost | None = None
    ) -> float:
        """Return the accuracy, as scikit-learn's classifiers do; the savings if ``metric`` is a ``Cost``.

        A row that is left undecided is wrong.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            ``(n, features)``, as given to ``fit``.
        y : array-like
            The true labels.
        sample_weight : array-like, optional
            Per sample, ``(n,)``.
        costs : Cost, optional
            The costs of these rows, if ``metric`` is a ``Cost`` that differs by row and does not name columns of X.

        Returns
        -------
        float
            Higher is better.

        """
        if self.rule_.abstains:  # the labels and what stands for an undecided row may be of two types
            right = [predicted == true for predicted, true in zip(self.predict(X), np.asarray(y), strict=True)]
            return float(np.average(right, weights=sample_weight))
        if not isinstance(getattr(self, "metric", None), Cost):  # the model of a run has no metric of its own
            return float(super().score(X, y, sample_weight))  # type: ignore[misc]
        given = as_vector(np.asarray(as_dense(y)))
        decided = self._decide(self._scores(X), costs, X)
        metric: Any = find_fit_costs(self.metric, costs, X, len(given))
        task = self.labels_.task
        scores = torch.nn.functional.one_hot(decided, len(self.labels_.classes)) if task == "multiclass" else decided
        targets = self.labels_.encode(given)
        average: Any = getattr(self, "average", None) or "macro"
        value = evaluate(scores.double(), targets, {"": metric}, task=task, average=average, weight=sample_weight)
        return float(value[""])

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._render_fitted()  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        found: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        return {kind: text + self._render_fitted() if kind == "text/html" else text for kind, text in found.items()}

    def _render_fitted(self) -> str:
        """Return what was fitted as HTML, or nothing before that."""
        if not hasattr(self, "rule_"):
            return ""
        metric: Any = getattr(self, "metric", None)
        facts = {"metric": getattr(metric, "__name__", metric), "rule": self.rule_.describe()}
        tuning = getattr(self, "tuning_", None)
        if tuning is not None and isinstance(tuning.value, float):
            facts["value where it was tuned"] = f"{tuning.value:.4f}"
        return render_facts(facts)


class DecidesMixin(PredictsMixin):
    """What a fitted estimator does whose ``_scores`` are the probabilities of ``Labels.probabilities``."""

    def predict_scores(self, X: Features) -> NDArray[np.float64]:
        """Return the probabilities that the rule decides on.

        A metric loss does not make them calibrated: see ``mg.reliability``.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            ``(n, features)``, as given to ``fit``.

        Returns
        -------
        ndarray
            Of the positive class ``(n,)``, of each class ``(n, d)``, or of each label ``(n, K)``.

        """
        return self._scores(X).numpy()

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Return the probabilities moved so that 0.5, or the argmax, is where the rule decides.

        As scikit-learn's tools expect of a classifier. The order of the scores stays as it is.

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


def is_dask(x: object) -> bool:
    """Tell whether something is a Dask array or frame, without importing Dask."""
    return hasattr(x, "__dask_graph__")


def as_dense(y: Any) -> Any:
    """Return a sparse indicator matrix as an array, other targets as they are."""
    return y.toarray() if hasattr(y, "toarray") else y


def as_vector(y: Any) -> Any:
    """Return a column of labels as a vector, with scikit-learn's warning."""
    return column_or_1d(y, warn=True) if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1 else y


def stack_label_scores(raw: Any, classes: Any) -> NDArray[np.float64]:
    """Return the scores of a multi-label problem as ``(n, K)``: forests give a list of ``(n, 2)``, one per label.

    ``classes``: of each label those that occurred, as a list, for labels that had one class only.
    """
    if not isinstance(raw, list):
        return np.asarray(raw)
    only = [one[0] for one in classes] if isinstance(classes, list) else np.zeros(len(raw))
    columns = [p[:, -1] if p.shape[1] > 1 else np.full(len(p), float(k)) for p, k in zip(raw, only, strict=True)]
    return np.column_stack(columns)
