"""Evaluation: one or many metrics of scores under a decision rule, at once or streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch.distributed as dist
from torch import Tensor

from metricgrad import curves
from metricgrad.decisions import hard_counts
from metricgrad.decisions.default import default_rule
from metricgrad.decisions.rules import Rule
from metricgrad.decisions.tuning import Tuned, Tuning
from metricgrad.engine import distributed
from metricgrad.engine.batch import Batch, Task, check_task
from metricgrad.engine.inputs import check_scale, judged, named
from metricgrad.engine.objective import Objective
from metricgrad.evaluation.score_tables import ERRORS, ScoreTables
from metricgrad.evaluation.sharded_tuning import tune_tables
from metricgrad.metrics import Metric, get, name_of, subset_accuracy
from metricgrad.metrics.scalars import is_number, is_whole

if TYPE_CHECKING:
    from metricgrad.metrics.averages import Absent, Average

RANKING: dict[str, Callable[[curves.Curve], Tensor]] = {
    "auroc": curves.auroc,
    "average_precision": curves.average_precision,
    "interpolated_average_precision": curves.interpolated_average_precision,
}
"""Metrics of the scores' order alone, by name: they need the curve instead of one rule's counts."""

Metrics = str | Metric | Sequence[str | Metric] | Mapping[str, str | Metric]


class Evaluator:
    """Evaluate a stream of batches: ``update`` with each, ``compute`` at any time; evaluators of shards add with ``+``.

    Counts are kept in float64, exact up to 2^53. ``subset_accuracy`` is always averaged over rows.

    Parameters
    ----------
    metrics : str, callable, sequence of these, or dict
        One or many metrics: names ("f1", "f0.5", "mcc", ...), "package.module:function", functions of ``Counts`` (or
        ``Confusion``), or {name: metric}; also "auroc", "average_precision" and "interpolated_average_precision", which
        depend on the order of the scores alone.
    task : {'binary', 'multilabel', 'multiclass'}, default 'binary'
        "binary": scores of any shape with targets of that shape. "multilabel": scores ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same scores with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the scores.
    threshold : float or sequence of float, default 0.5
        On the scale of the scores, one for all or one per class. With the default, scores outside [0, 1] are refused.
        Not for "multiclass".
    rule : Rule, optional
        A decision rule of ``mg.decisions`` instead of ``threshold``; by default the argmax for "multiclass".
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    absent : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    ignore_index : int, optional
        Targets of this value do not count.
    class_names : sequence of str, optional
        One name per class: with ``average=None`` values come as {class: value} instead of a list.
    keep_scores : bool, default False
        Keep the distinct scores with their counts, so that ``tune`` can find the best rule afterwards. Metrics that
        need the scores keep them anyway.
    score_bits : int, optional
        Keep this many significant bits of each score, 2 to 52, for curves and tuning in bounded memory; ``curve_error``
        and the ``error`` of a tuning then bound the error. None keeps scores exactly.

    Attributes
    ----------
    task : str
        The task.
    rule : Rule
        The decision rule.
    ignore_index : int or None
        Targets of this value do not count.
    class_names : list of str or None
        The names of the classes.
    score_bits : int or None
        How many significant bits of each score are kept; None for all.

    Raises
    ------
    ValueError
        If a metric, task or average is unknown, or they do not fit together.

    Examples
    --------
    >>> evaluator = Evaluator(["f1", "recall"])
    >>> for scores, targets in [([0.9, 0.2], [1, 0]), ([0.6, 0.4], [0, 1])]:
    ...     evaluator = evaluator.update(scores, targets)
    >>> evaluator.compute()
    {'f1': 0.5, 'recall': 0.5}

    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        task: Task = "binary",
        threshold: float | Sequence[float] = 0.5,
        rule: Rule | None = None,
        average: Average | None = "macro",
        labels: Iterable[int] | None = None,
        absent: Absent = "count",
        ignore_index: int | None = None,
        class_names: Sequence[str] | None = None,
        keep_scores: bool = False,
        score_bits: int | None = None,
    ) -> None:
        self.task: Task = check_task(task)
        self.ignore_index = ignore_index
        self.class_names = None if class_names is None else [str(name) for name in class_names]
        self.score_bits = _check_bits(score_bits)
        labels = None if labels is None else tuple(labels)
        self._default_cut = rule is None and self.task != "multiclass" and _is_half(threshold)
        self.rule = _rule(self.task, threshold, rule)
        self._objectives: dict[str, Objective] = {}
        self._ranking: dict[str, Callable[[curves.Curve], Tensor]] = {}
        for name, metric in named(metrics).items():
            ranking = _ranking(metric)
            if ranking is not None:
                self._ranking[name] = ranking
                continue
            by_rows = get(metric) is subset_accuracy and self.task == "multilabel"
            self._objectives[name] = Objective(self.task, metric, "samples" if by_rows else average, labels, absent)
        # Holds how curves are averaged; its metric is not used.
        self._over_classes = Objective(self.task, "f1", average, labels, absent)
        if self._ranking and self._over_classes.average == "samples":
            raise ValueError(f"average: 'samples' is not for {', '.join(self._ranking)}; use 'macro' or 'micro'")
        self._keep_scores = keep_scores or bool(self._ranking)
        self._statistics: dict[str, Any] = {}

    def update(self, scores: Any, targets: Any, weight: Any = None, mask: Any = None) -> Self:
        """Take in a batch.

        Parameters
        ----------
        scores : Tensor or array-like
            Scores on any scale, as torch, numpy, pandas or lists; higher means more likely positive. Shape as for
            ``task``.
        targets : Tensor or array-like
            The true labels, as torch, numpy, pandas or lists. Shape as for ``task``.
        weight : array-like, optional
            Per sample or per element.
        mask : array-like of bool, optional
            True for what counts.

        Returns
        -------
        Evaluator
            Itself.

        Raises
        ------
        ValueError
            If shapes or values do not fit the task, or the threshold is the default and scores lie outside [0, 1].

        """
        self._add(self.statistics(self.prepare(scores, targets, weight, mask)))
        return self

    def statistics(self, batch: Batch) -> dict[str, Any]:
        """Return the additive statistics that the metrics need.

        Parameters
        ----------
        batch : Batch
            As ``prepare`` returns it.

        Returns
        -------
        dict
            {name: statistic}.

        """
        found: dict[str, Any] = {}
        rows = self.row_objectives
        labels = self._over_classes.labels
        if rows:
            means = hard_counts.means(batch, self.rule, [o.metric for o in rows.values()], labels)
            found |= dict(zip(rows, means, strict=True))
        if self.has_cells:
            found["cells"] = (hard_counts.matrix if self.task == "multiclass" else hard_counts.counts)(batch, self.rule)
        if self._keep_scores:
            found["scores"] = ScoreTables.of(batch, self.score_bits)
        return found

    def _add(self, statistics: dict[str, Any]) -> None:
        for name, statistic in statistics.items():
            self._statistics[name] = self._statistics[name] + statistic if name in self._statistics else statistic

    def compute(self) -> dict[str, Any]:
        """Return the values of all that was taken in.

        Returns
        -------
        dict
            {name: value}: a number, or for ``average=None`` one per class, as a list or as {class: value} with
            ``class_names``.

        Raises
        ------
        ValueError
            If nothing was taken in, or ``class_names`` are not one per class.

        """
        if not self._statistics:
            raise ValueError("compute: expected at least one update before, got none")
        return {name: self._shown(value) for name, value in self.values(self._statistics).items()}

    def values(self, statistics: dict[str, Any]) -> dict[str, Tensor]:
        """Return the values of statistics, which may have leading axes (replicates).

        Parameters
        ----------
        statistics : dict
            {name: statistic}, as ``statistics`` returns them.

        Returns
        -------
        dict
            {name: Tensor}, a scalar or ``(K,)`` for ``average=None``, after the leading axes.

        """
        found = {}
        for name, objective in self._objectives.items():
            if objective.average == "samples":
                value = objective.value(statistics[name])
            else:
                cells = statistics["cells"]
                if self.task == "multiclass" and not objective.of_matrix:
                    cells = cells.counts()
                value = objective.value(cells)
            found[name] = value.squeeze(-1) if self.task == "binary" and objective.average == "per-class" else value
        return found | (self.ranking_values(statistics["scores"]) if "scores" in statistics else {})

    def ranking_values(self, scores: ScoreTables) -> dict[str, Tensor]:
        """Return the values of the metrics that need a curve.

        Parameters
        ----------
        scores : ScoreTables
            The distinct scores with their counts.

        Returns
        -------
        dict
            {name: Tensor}, a scalar or ``(K,)`` for ``average=None``.

        """
        return {name: scores.value(ranking, self._over_classes) for name, ranking in self._ranking.items()}

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        """Return the values of one batch alone; what was taken in before does not count.

        Parameters
        ----------
        batch : Batch
            As ``prepare`` returns it.

        Returns
        -------
        dict
            {name: Tensor}, a scalar or ``(K,)`` for ``average=None``.

        """
        return self.values(self.statistics(batch))

    def under(self, rule: Rule) -> Evaluator:
        """Return an empty evaluator that differs by its rule alone.

        Parameters
        ----------
        rule : Rule
            Its decision rule.

        Returns
        -------
        Evaluator
            A new one.

        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, rule=rule, _statistics={}, _default_cut=False)
        return other

    def prepare(self, scores: Any, targets: Any, weight: Any, mask: Any) -> Batch:
        """Check a batch and bring it to the form that ``statistics`` and ``judge`` take.

        Parameters
        ----------
        scores : Tensor or array-like
            Scores on any scale, as torch, numpy, pandas or lists; higher means more likely positive. Shape as for
            ``task``.
        targets : Tensor or array-like
            The true labels, as torch, numpy, pandas or lists. Shape as for ``task``.
        weight : array-like or None
            Per sample or per element.
        mask : array-like of bool or None
            True for what counts.

        Returns
        -------
        Batch
            The batch as rows and classes.

        Raises
        ------
        ValueError
            If shapes or values do not fit the task, or the threshold is the default and scores lie outside [0, 1].

        """
        batch = judged(self.task, scores, targets, weight, mask, self.ignore_index)
        if self._default_cut and self._objectives:
            check_scale(batch.logits)
        return batch

    @property
    def row_objectives(self) -> dict[str, Objective]:
        """The metrics that are averaged over rows."""
        return {name: o for name, o in self._objectives.items() if o.average == "samples"}

    @property
    def has_cells(self) -> bool:
        """Whether any metric needs the cells of all rows together."""
        return len(self.row_objectives) < len(self._objectives)

    @property
    def ranking_names(self) -> list[str]:
        """The metrics that need a curve."""
        return list(self._ranking)

    def _shown(self, value: Tensor) -> Any:
        if value.dim() == 0:
            return value.item()
        values = value.tolist()
        if self.class_names is None:
            return values
        labels, names = self._over_classes.labels, self.class_names
        classes = len(values) if labels is None else max(labels) + 1
        if len(names) < classes or (labels is None and len(names) > classes):
            raise ValueError(f"class_names: expected {classes}, one per class, got {len(names)}")
        return dict(zip(names if labels is None else [names[k] for k in labels], values, strict=True))

    def curve_error(self) -> dict[str, Any]:
        """Return by how much the ranking metrics may be off because of ``score_bits``.

        Returns
        -------
        dict
            {name: bound} for the metrics that need a curve, in the form of ``compute``; 0 where scores are kept
            exactly.

        """
        if self.score_bits is None or "scores" not in self._statistics:
            return dict.fromkeys(self._ranking, 0.0)
        scores: ScoreTables = self._statistics["scores"]
        errors = {name: scores.value(ERRORS[ranking], self._over_classes) for name, ranking in self._ranking.items()}
        return {name: self._shown(error) for name, error in errors.items()}

    def tune(
        self,
        metric: str | Metric,
        *,
        shared: bool = False,
        subject_to: Any = None,
        confidence: float | None = None,
        epsilon: float = 0.01,
    ) -> Tuning:
        """Find the best rule for a metric on all that was taken in: what ``tune_threshold`` finds on the whole.

        For "binary" and "multilabel", with the task, average, labels and absent of this evaluator. Scores must have
        been kept (``keep_scores=True``). The rows are not kept, so the result has no ``interval`` and ``out_of_bag``,
        and ``average="samples"`` cannot be tuned. With ``score_bits`` the value is still exact, and ``error`` bounds by
        how much a threshold between rounded scores might be better.

        Parameters
        ----------
        metric : str or callable
            A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or
            ``Confusion``).
        shared : bool, default False
            Tune one threshold for all classes of a multi-label problem instead of one per class.
        subject_to : str, dict, Constraint or list of these, optional
            Constraints that the rule must meet, such as "precision >= 0.9", "recall[each] >= 0.8" (of every class),
            "recall[2] >= 0.8" (of class 2), or {"precision": 0.9}; comma-separated for several. With a threshold per
            class, every class must meet them.
        confidence : float, optional
            With a number such as 0.95, the one-sided lower confidence bound of a constrained metric must meet its
            constraint, instead of the estimate.
        epsilon : float, default 0.01
            The plateau holds the thresholds whose value is within ``epsilon`` of the best.

        Returns
        -------
        Tuning
            The rule as ``rule``, its ``threshold``, its ``value``, and whether it is ``exact``.

        Raises
        ------
        ValueError
            If scores were not kept, or the task or average cannot be tuned from them.

        Examples
        --------
        >>> shards = [([0.9, 0.3], [1, 1]), ([0.8, 0.4, 0.1], [0, 1, 0])]
        >>> one, two = (Evaluator("f1", keep_scores=True).update(*shard) for shard in shards)
        >>> (one + two).tune("f1").threshold
        0.2

        """
        if "scores" not in self._statistics:
            wanted = "at least one update before" if self._keep_scores else "an Evaluator with keep_scores=True"
            raise ValueError(f"tune: expected {wanted}, got none")
        over = self._over_classes
        average = None if over.average == "per-class" else over.average
        tuned = Tuned(metric, self.task, average, shared, over.labels, over.absent, subject_to, confidence)
        return tune_tables(tuned.problem(epsilon), self._statistics["scores"])

    def __add__(self, other: Evaluator) -> Evaluator:
        """Return an evaluator of both streams."""
        if not isinstance(other, Evaluator):
            return NotImplemented
        self._check_alike(other._signature())
        both = self.under(self.rule)
        both._default_cut = self._default_cut
        both._add(self._statistics)
        both._add(other._statistics)
        return both

    def _check_alike(self, signature: tuple[Any, ...]) -> None:
        if self._signature() != signature:
            raise ValueError("+: expected evaluators made alike, got different metrics, task, average or rule")

    def _signature(self) -> tuple[Any, ...]:
        over = self._over_classes
        metrics = [(name, name_of(o.metric)) for name, o in self._objectives.items()]
        ranking = [*self._ranking, self._keep_scores]
        return (self.task, repr(self.rule), over.average, over.labels, over.absent, metrics, ranking)

    def merged(self, process_group: Any = "world") -> Evaluator:
        """Return the evaluator of the streams of all processes together; every process must call it.

        Parameters
        ----------
        process_group : ProcessGroup or 'world', default 'world'
            The processes.

        Returns
        -------
        Evaluator
            A new one, the same on all processes.

        """
        group = distributed.resolve(process_group)
        parts: list[Any] = [None] * dist.get_world_size(group)
        # Not the evaluator itself: a user's own metric may not pickle.
        dist.all_gather_object(parts, (self._signature(), self._statistics), group=group)
        total = self.under(self.rule)
        total._default_cut = self._default_cut
        for signature, statistics in parts:
            self._check_alike(signature)
            total._add(statistics)
        return total

    def __repr__(self) -> str:
        names = ", ".join([*self._objectives, *self._ranking])
        return f"Evaluator({names}, task={self.task!r}, rule={self.rule!r}, average={self._over_classes.average!r})"


def evaluate(
    scores: Any,
    targets: Any,
    metrics: Metrics,
    *,
    task: Task = "binary",
    threshold: float | Sequence[float] = 0.5,
    rule: Rule | None = None,
    average: Average | None = "macro",
    labels: Iterable[int] | None = None,
    absent: Absent = "count",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    class_names: Sequence[str] | None = None,
    score_bits: int | None = None,
) -> dict[str, Any]:
    """Evaluate scores: the values of one or many metrics under a decision rule.

    Parameters
    ----------
    scores : Tensor or array-like
        Scores on any scale, as torch, numpy, pandas or lists; higher means more likely positive. Shape as for ``task``.
    targets : Tensor or array-like
        The true labels, as torch, numpy, pandas or lists. Shape as for ``task``.
    metrics : str, callable, sequence of these, or dict
        One or many metrics: names ("f1", "f0.5", "mcc", ...), "package.module:function", functions of ``Counts`` (or
        ``Confusion``), or {name: metric}; also "auroc", "average_precision" and "interpolated_average_precision", which
        depend on the order of the scores alone.
    task : {'binary', 'multilabel', 'multiclass'}, default 'binary'
        "binary": scores of any shape with targets of that shape. "multilabel": scores ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same scores with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the scores.
    threshold : float or sequence of float, default 0.5
        On the scale of the scores, one for all or one per class. With the default, scores outside [0, 1] are refused.
        Not for "multiclass".
    rule : Rule, optional
        A decision rule of ``mg.decisions`` instead of ``threshold``; by default the argmax for "multiclass".
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    absent : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    weight : array-like, optional
        Per sample or per element.
    mask : array-like of bool, optional
        True for what counts.
    ignore_index : int, optional
        Targets of this value do not count.
    class_names : sequence of str, optional
        One name per class: with ``average=None`` values come as {class: value} instead of a list.
    score_bits : int, optional
        Keep this many significant bits of each score, 2 to 52, for curves in bounded memory. None keeps scores exactly.

    Returns
    -------
    dict
        {name: value}: a number, or for ``average=None`` one per class, as a list or as {class: value} with
        ``class_names``.

    Raises
    ------
    ValueError
        If a metric, task or average is unknown, shapes or values do not fit the task, or the threshold is the default
        and scores lie outside [0, 1].

    Examples
    --------
    >>> evaluate([0.9, 0.8, 0.4, 0.3], [1, 0, 1, 0], ["f1", "mcc", "auroc"])
    {'f1': 0.5, 'mcc': 0.0, 'auroc': 0.75}

    """
    evaluator = Evaluator(
        metrics,
        task=task,
        threshold=threshold,
        rule=rule,
        average=average,
        labels=labels,
        absent=absent,
        ignore_index=ignore_index,
        class_names=class_names,
        score_bits=score_bits,
    )
    return evaluator.update(scores, targets, weight, mask).compute()


def _ranking(metric: str | Metric) -> Callable[[curves.Curve], Tensor] | None:
    if isinstance(metric, str):
        return RANKING.get(metric)
    return metric if metric in RANKING.values() else None


def _rule(task: Task, threshold: Any, rule: Rule | None) -> Rule:
    if rule is not None:
        if not _is_half(threshold):
            raise ValueError("threshold: expected none beside rule=, which decides")
        if not isinstance(rule, Rule):
            raise ValueError(f"rule: expected a decision rule of mg.decisions, got {rule!r}")
        return rule
    if task == "multiclass" and not _is_half(threshold):
        raise ValueError("threshold: task='multiclass' decides by argmax; use rule=mg.decisions.Offsets(...)")
    return default_rule(task, threshold)


def _is_half(threshold: Any) -> bool:
    return is_number(threshold) and bool(threshold == 0.5)


def _check_bits(bits: int | None) -> int | None:
    if bits is not None and not (is_whole(bits) and 2 <= bits <= 52):
        raise ValueError(f"score_bits: expected 2 to 52 or None, got {bits!r}")
    return None if bits is None else int(bits)
