"""Evaluation: one or many metrics of scores under a decision rule, at once or streamed.

Long because of complete docstrings: how metrics are computed is in ``metric_set``.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, overload

import torch.distributed as dist

from metricgrad.core import processes
from metricgrad.core.option_hints import explain_unknown
from metricgrad.decisions.threshold_tuning import TuningResult, TuningSpec
from metricgrad.evaluation.metric_set import Metrics, MetricSet, Statistics
from metricgrad.evaluation.sharded_tuning import tune_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from metricgrad.core.batch import Task
    from metricgrad.core.inputs import ArrayLike
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average, Averaged, EmptyClasses
    from metricgrad.core.processes import ProcessGroup
    from metricgrad.decisions.guarantees import ConfidenceOver
    from metricgrad.decisions.rare_labels import ThresholdSource
    from metricgrad.decisions.rules import Rule


class Evaluator:
    """Evaluate a stream of batches: ``update`` with each, ``compute`` at any time; evaluators of shards add with ``+``.

    Counts are kept in float64, exact up to 2^53. ``subset_accuracy`` is always averaged over rows.

    Parameters
    ----------
    metrics : str, callable, sequence of these, or dict
        One or many metrics: names ("f1", "f0.5", "mcc", ...), "package.module:function", functions of ``Counts`` (or
        ``Confusion``), or {name: metric}; also names of metrics of the scores themselves, such as "auroc",
        "average_precision", "log_loss" or "ndcg@5": the table in docs/evaluation.md has all.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": scores of any shape with targets of that shape. "multilabel": scores ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same scores with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the scores. None is "binary" if the shapes leave no other reading, else an error.
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
    empty_classes : {'count', 'skip'}, default 'count'
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
    class_names : list of str or None
        The names of the classes.

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

    @explain_unknown
    def __init__(
        self,
        metrics: Metrics,
        *,
        task: Task | None = None,
        threshold: float | Sequence[float] = 0.5,
        rule: Rule | None = None,
        average: Average | None = "macro",
        labels: Iterable[int] | None = None,
        empty_classes: EmptyClasses = "count",
        ignore_index: int | None = None,
        class_names: Sequence[str] | None = None,
        keep_scores: bool = False,
        score_bits: int | None = None,
    ) -> None:
        self._metrics = MetricSet(
            metrics,
            task=task,
            threshold=threshold,
            rule=rule,
            average=average,
            labels=labels,
            empty_classes=empty_classes,
            ignore_index=ignore_index,
            keep_scores=keep_scores,
            score_bits=score_bits,
        )
        self.class_names = None if class_names is None else [str(name) for name in class_names]
        self._statistics: Statistics = {}

    @property
    def task(self) -> Task:
        """The task."""
        return self._metrics.task

    @property
    def rule(self) -> Rule:
        """The decision rule."""
        return self._metrics.rule

    @property
    def ignore_index(self) -> int | None:
        """Targets of this value do not count."""
        return self._metrics.ignore_index

    @property
    def score_bits(self) -> int | None:
        """How many significant bits of each score are kept; None for all."""
        return self._metrics.score_bits

    def update(
        self, scores: ArrayLike, targets: ArrayLike, weight: ArrayLike | None = None, mask: ArrayLike | None = None
    ) -> Self:
        """Add a batch.

        Parameters
        ----------
        scores : Tensor, array-like or sparse matrix
            Scores on any scale, as torch, numpy, pandas or lists; higher means more likely positive. Shape as for
            ``task``. For "multilabel" also a scipy sparse matrix, in which a score that is not stored is 0.
        targets : Tensor, array-like or sparse matrix
            The true labels, as torch, numpy, pandas, lists or scipy sparse matrix. Shape as for ``task``.
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
        batch = self._metrics.prepare(scores, targets, weight, mask)
        self._add_statistics(self._metrics.statistics(batch))
        return self

    def __call__(
        self, scores: ArrayLike, targets: ArrayLike, weight: ArrayLike | None = None, mask: ArrayLike | None = None
    ) -> dict[str, Any]:
        """Add a batch, as ``update`` does, and return the values of this batch alone.

        Parameters
        ----------
        scores : Tensor or array-like
            As for ``update``.
        targets : Tensor or array-like
            As for ``update``.
        weight : array-like, optional
            As for ``update``.
        mask : array-like of bool, optional
            As for ``update``.

        Returns
        -------
        dict
            {name: value}, in the form of ``compute``.

        Examples
        --------
        >>> evaluator = Evaluator("f1")
        >>> evaluator([0.9, 0.2], [1, 0]), evaluator([0.6, 0.4], [0, 1])
        ({'f1': 1.0}, {'f1': 0.0})
        >>> evaluator.compute()
        {'f1': 0.5}

        """
        of_batch = self._copy_without_batches().update(scores, targets, weight, mask)
        self._add_statistics(of_batch._statistics)
        return of_batch.compute()

    def reset(self) -> None:
        """Forget all batches.

        Examples
        --------
        >>> evaluator = Evaluator("f1").update([0.9], [1])
        >>> evaluator.reset()
        >>> evaluator.update([0.9], [0]).compute()
        {'f1': 0.0}

        """
        self._statistics = {}

    def _add_statistics(self, statistics: Statistics) -> None:
        for name, statistic in statistics.items():
            known = name in self._statistics
            self._statistics[name] = self._statistics[name] + statistic if known else statistic

    def compute(self) -> dict[str, Any]:
        """Return the values of all batches together.

        Returns
        -------
        dict
            {name: value}: a number, or for ``average=None`` one per class, as a list or as {class: value} with
            ``class_names``.

        Raises
        ------
        ValueError
            If there was no batch, or ``class_names`` are not one per class.

        """
        if not self._statistics:
            raise ValueError("compute: expected at least one update before, got none")
        found = self._metrics.values(self._statistics)
        for name, objective in self._metrics.objectives.items():
            objective.warn_if_undefined(found[name], of=())
        return {name: self._name_classes(value) for name, value in found.items()}

    def _name_classes(self, value: Tensor) -> Any:
        if value.dim() == 0:
            return value.item()
        values = value.tolist()
        if self.class_names is None:
            return values
        labels = self._metrics.over_classes.labels
        names = self.class_names
        classes = len(values) if labels is None else max(labels) + 1
        if len(names) < classes or (labels is None and len(names) > classes):
            raise ValueError(f"class_names: expected {classes}, one per class, got {len(names)}")
        counted_names = names if labels is None else [names[label] for label in labels]
        return dict(zip(counted_names, values, strict=True))

    def curve_error(self) -> dict[str, Any]:
        """Return by how much the ranking metrics may be off because of ``score_bits``.

        Returns
        -------
        dict
            {name: bound} for the metrics that need a curve, in the form of ``compute``; 0 where scores are kept
            exactly.

        """
        metrics = self._metrics
        errors = metrics.ranking_errors(self._statistics)
        if self.score_bits is None or not errors:
            return dict.fromkeys([*metrics.ranking, *metrics.pair_ranking], 0.0)
        return {name: self._name_classes(error) for name, error in errors.items()}

    def tune(
        self,
        metric: str | Metric,
        *,
        shared: bool = False,
        subject_to: Any = None,
        confidence: float | None = None,
        confidence_over: ConfidenceOver = "all",
        rare_labels: ThresholdSource = "own",
        default_threshold: float = 0.5,
        epsilon: float = 0.01,
    ) -> TuningResult:
        """Find the best rule for a metric on all batches together: what ``tune_threshold`` finds on the whole.

        For "binary" and "multilabel", with the task, average, labels and empty_classes of this evaluator. Scores must
        have been kept (``keep_scores=True``). The rows are not kept, so the result has no ``interval`` and
        ``out_of_bag``, and ``average="samples"`` cannot be tuned. With ``score_bits`` the value is still exact, and
        ``error`` bounds by how much a threshold between rounded scores might be better.

        Parameters
        ----------
        metric : str or callable
            A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or
            ``Confusion``).
        shared : bool, default False
            Tune one threshold for all classes of a multi-label problem instead of one per class.
        subject_to : str, dict, Constraint or list of these, optional
            Constraints that the rule must meet, such as "precision >= 0.9" or {"precision": 0.9}; comma-separated for
            several. With a threshold per class, every class must meet them.
        confidence : float, optional
            With a number such as 0.95, the constraints hold on new rows with at least that probability over the rows
            that are tuned on, as in ``tune_threshold``; for rows without weights.
        confidence_over : {'all', 'each'}, default 'all'
            Of several classes: whether the confidence is that all of them meet the constraints, or that a class does.
        rare_labels : {'pooled', 'own', 'fixed'}, default 'own'
            What becomes of a class that counts and has few positives or negatives, as in ``tune_threshold``.
        default_threshold : float, default 0.5
            Where ``rare_labels="fixed"`` leaves a class, on the scale of the scores.
        epsilon : float, default 0.01
            The plateau holds the thresholds whose value is within ``epsilon`` of the best.

        Returns
        -------
        TuningResult
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
            keeps_scores = self._metrics.keeps_scores
            wanted = "at least one update before" if keeps_scores else "an Evaluator with keep_scores=True"
            raise ValueError(f"tune: expected {wanted}, got none")
        over = self._metrics.over_classes
        spec = TuningSpec(
            metric,
            self.task,
            average=None if over.average == "per-class" else over.average,
            shared=shared,
            labels=over.labels,
            empty_classes=over.empty_classes,
            subject_to=subject_to,
            confidence=confidence,
            rare_labels=rare_labels,
            default_threshold=default_threshold,
            confidence_over=confidence_over,
        )
        return tune_tables(spec.problem(epsilon), self._statistics["scores"])

    def __add__(self, other: Evaluator) -> Evaluator:
        """Return an evaluator of both streams."""
        if not isinstance(other, Evaluator):
            return NotImplemented
        self._check_alike(other._metrics.identity)
        both = self._copy_without_batches()
        both._add_statistics(self._statistics)
        both._add_statistics(other._statistics)
        return both

    def _copy_without_batches(self) -> Evaluator:
        """Return an evaluator made alike, without batches."""
        other = copy.copy(self)
        other._statistics = {}
        return other

    def _check_alike(self, identity: tuple[Any, ...]) -> None:
        if self._metrics.identity != identity:
            raise ValueError("+: expected evaluators made alike, got different metrics, task, average or rule")

    def merged(self, process_group: ProcessGroup = "world") -> Evaluator:
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
        group = processes.find_group(process_group)
        parts: list[Any] = [None] * dist.get_world_size(group)
        # Not the evaluator itself: a user's own metric may not pickle.
        dist.all_gather_object(parts, (self._metrics.identity, self._statistics), group=group)
        total = self._copy_without_batches()
        for identity, statistics in parts:
            self._check_alike(identity)
            total._add_statistics(statistics)
        return total

    def __repr__(self) -> str:
        metrics = self._metrics
        names = ", ".join([*metrics.objectives, *metrics.score_metrics, *metrics.ranking, *metrics.pair_ranking])
        return f"Evaluator({names}, task={self.task!r}, rule={self.rule!r}, average={metrics.over_classes.average!r})"


class EvaluationOptions(TypedDict, total=False):
    """The options of ``evaluate`` that do not change the types of its values."""

    task: Task | None
    threshold: float | Sequence[float]
    rule: Rule | None
    labels: Iterable[int] | None
    empty_classes: EmptyClasses
    weight: ArrayLike | None
    mask: ArrayLike | None
    ignore_index: int | None
    class_names: Sequence[str] | None
    score_bits: int | None


@overload
def evaluate(
    scores: ArrayLike,
    targets: ArrayLike,
    metrics: Metrics,
    *,
    average: Averaged = "macro",
    **options: Unpack[EvaluationOptions],
) -> dict[str, float]: ...


@overload
def evaluate(
    scores: ArrayLike,
    targets: ArrayLike,
    metrics: Metrics,
    *,
    average: Average | None,
    **options: Unpack[EvaluationOptions],
) -> dict[str, Any]: ...


@explain_unknown
def evaluate(
    scores: ArrayLike,
    targets: ArrayLike,
    metrics: Metrics,
    *,
    task: Task | None = None,
    threshold: float | Sequence[float] = 0.5,
    rule: Rule | None = None,
    average: Average | None = "macro",
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    weight: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[str] | None = None,
    score_bits: int | None = None,
) -> dict[str, Any]:
    """Evaluate scores: the values of one or many metrics under a decision rule.

    Parameters
    ----------
    scores : Tensor, array-like or sparse matrix
        Scores on any scale, as torch, numpy, pandas or lists; higher means more likely positive. Shape as for ``task``.
        For "multilabel" also a scipy sparse matrix: a score that is not stored is 0, thresholds are above 0 and weights
        per row.
    targets : Tensor, array-like or sparse matrix
        The true labels, as torch, numpy, pandas, lists or scipy sparse matrix. Shape as for ``task``.
    metrics : str, callable, sequence of these, or dict
        One or many metrics: names ("f1", "f0.5", "mcc", ...), "package.module:function", functions of ``Counts`` (or
        ``Confusion``), or {name: metric}; also names of metrics of the scores themselves, such as "auroc",
        "average_precision", "log_loss" or "ndcg@5": the table in docs/evaluation.md has all.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": scores of any shape with targets of that shape. "multilabel": scores ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same scores with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the scores. None is "binary" if the shapes leave no other reading, else an error.
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
    empty_classes : {'count', 'skip'}, default 'count'
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
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        class_names=class_names,
        score_bits=score_bits,
    )
    return evaluator.update(scores, targets, weight, mask).compute()
