"""Hard metrics as evaluation functions of XGBoost and LightGBM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from metricgrad.core import processes
from metricgrad.core.batch import check_task, to_probabilities
from metricgrad.core.objective import Objective
from metricgrad.decisions.default_rule import resolve_rule
from metricgrad.decisions.threshold_tuning import tune_threshold
from metricgrad.evaluation.metric_set import MetricSet
from metricgrad.integrations.boosting.hooks import Backend, Hook, check_backend

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from metricgrad.core.batch import Task
    from metricgrad.core.inputs import ArrayLike
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average
    from metricgrad.decisions.rules import Rule


class Evaluation(Hook):
    """A hard metric of the scores, in the form that its library takes; see ``eval_metric``."""

    def __init__(
        self,
        metric: str | Metric,
        backend: str,
        task: Task | None,
        average: str | None,
        rule: Any,
        targets: ArrayLike | None = None,
    ) -> None:
        super().__init__(targets)
        if average is None:
            raise ValueError("average: expected 'micro', 'macro', 'weighted' or 'samples', got None")
        self.metric = metric
        self.average = average
        self.task: Task = check_task(task)
        self.declared_task = task
        self.backend = check_backend(backend)
        self.rule = resolve_rule(rule, self.task)
        self.logits = True
        self._metrics = None if self.rule is None else self._make_metric_set(self.rule)
        # XGBoost prints it between blanks, and asks for it under this name.
        self.__name__ = Objective(self.task, metric, average).name.replace(" ", "_")

    def answer(self, scores: Tensor, targets: Tensor, weight: Tensor | None, native: bool) -> Any:
        value = self.value(scores, targets, weight)
        if self.backend == "lightgbm":
            return self.__name__, value, True
        return (self.__name__, value) if native else value

    def value(self, scores: Tensor, targets: Tensor, weight: Tensor | None) -> float:
        """Return the metric, on several workers that of all their rows."""
        p = scores
        if self.logits:
            p = to_probabilities(self.task, scores.double())
        workers = processes.find_surrounding()
        if self._metrics is None:
            if workers is not None:
                p, targets, weight = processes.gather_rows((p, targets, weight), workers)
            how: dict[str, Any] = {"task": self.declared_task, "average": self.average}
            return tune_threshold(self.metric, p, targets, weight=weight, **how).value  # type: ignore[no-any-return]
        batch = self._metrics.prepare(p, targets, weight, None)
        statistics = self._metrics.statistics(batch)
        total = {name: processes.sum_statistic(statistic, workers) for name, statistic in statistics.items()}
        return self._metrics.values(total)[""].item()

    def _make_metric_set(self, rule: Rule) -> MetricSet:
        """Return the metric under a fixed rule; made once, since it is evaluated after every round."""
        return MetricSet(
            {"": self.metric},
            task=self.declared_task,
            threshold=0.5,
            rule=rule,
            average=self.average,
            labels=None,
            empty_classes="count",
            ignore_index=None,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__name__}, backend={self.backend!r}, rule={self.rule!r})"


def eval_metric(
    metric: str | Metric,
    *,
    backend: Backend = "xgboost",
    task: Task | None = None,
    average: Average = "macro",
    rule: Literal["fixed", "tuned"] | Rule = "fixed",
    scores: Literal["logits", "probabilities"] = "logits",
    targets: ArrayLike | None = None,
) -> Callable[..., Any]:
    """Return a hard metric as an evaluation function of XGBoost or LightGBM; higher is better.

    On several workers of XGBoost (``xgboost.dask``) it is the metric of all their rows together, on each of them.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    backend : {'xgboost', 'lightgbm'}, default 'xgboost'
        "xgboost" for ``custom_metric=`` and ``XGBClassifier(eval_metric=...)``, where early stopping must be set to
        maximise; "lightgbm" for ``feval=`` and ``eval_metric=``.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": scores of any shape with targets of that shape. "multilabel": scores ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same scores with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the scores. None is "binary" if the shapes leave no other reading, else an error.
    average : {'macro', 'micro', 'weighted', 'samples'}, default 'macro'
        How the values of the classes become one. "samples" is the mean over rows, for multi-label problems.
    rule : {'fixed', 'tuned'} or Rule, default 'fixed'
        "fixed" is 0.5, or the argmax; "tuned" the best threshold on the very data that are evaluated, which is
        optimistic; or a rule of ``mg.decisions`` on probabilities.
    scores : {'logits', 'probabilities'}, default 'logits'
        What the library passes: logits with a custom objective, probabilities with a built-in one.
    targets : array-like, optional
        The label matrix ``(n, K)`` of the evaluated data, for LightGBM.

    Returns
    -------
    callable
        An evaluation function in the form that the library takes.

    Raises
    ------
    ValueError
        If an option is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> y, z = np.array([1, 0, 1, 0]), np.array([2.0, -1.0, -0.5, -0.7])
    >>> eval_metric("f1")(y, z), eval_metric("f1", rule="tuned")(y, z)
    (0.666..., 1.0)

    """
    if scores not in ("logits", "probabilities"):
        raise ValueError(f"scores: expected 'logits' or 'probabilities', got {scores!r}")
    evaluation = Evaluation(metric, backend, task, average, rule, targets)
    evaluation.logits = scores == "logits"
    return evaluation
