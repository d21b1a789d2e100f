"""Intervals: how certain a value is, and whether one model is better than another."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core.costs import find_row_costs
from metricgrad.core.inputs import name_metrics
from metricgrad.decisions.default_rule import default_rule
from metricgrad.decisions.resampling import check_replicates
from metricgrad.decisions.threshold_tuning import TuningSpec
from metricgrad.evaluation.interval_ends import check_positives, find_ends
from metricgrad.evaluation.metric_set import Metrics, MetricSet, split_by_weights
from metricgrad.evaluation.replicates import EvaluatedModel, exchange_predictions, make_draws, replicate_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from metricgrad.core.batch import Task
    from metricgrad.core.inputs import ArrayLike
    from metricgrad.core.metrics.averages import Average, EmptyClasses
    from metricgrad.decisions.rules import Rule


@dataclass(frozen=True)
class Interval:
    """A value and where it may lie: percentiles of its replicates, see ``bootstrap``.

    Attributes
    ----------
    value : float
        The value; for a tuned rule what to expect on new data, the mean out-of-bag value of rules tuned on resamples.
    low : float
        The lower end of the interval.
    high : float
        The upper end of the interval.
    replicates : Tensor
        The value in each replicate, ``(2, replicates)``: with one more row of each kind wrong, and with one right.

    """

    value: float
    low: float
    high: float
    replicates: Tensor = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"


@dataclass(frozen=True)
class Comparison:
    """Two models on the same data: their difference, its interval and its p-value.

    Attributes
    ----------
    a : float
        The value of the first model.
    b : float
        The value of the second model.
    difference : float
        a − b.
    low : float
        The lower end of the interval of the difference.
    high : float
        The upper end of the interval of the difference.
    p_value : float
        Two-sided, for the hypothesis that the two models are equally good.

    """

    a: float
    b: float
    difference: float
    low: float
    high: float
    p_value: float

    def __str__(self) -> str:
        return f"{self.difference:+.4f} ({self.low:+.4f} to {self.high:+.4f}), p = {self.p_value:.3g}"


def bootstrap(
    scores: ArrayLike,
    targets: ArrayLike,
    metrics: Metrics,
    *,
    task: Task | None = None,
    threshold: float | Sequence[float] = 0.5,
    rule: Rule | TuningSpec | None = None,
    average: Average | None = "macro",
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    weight: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    ignore_index: int | None = None,
    groups: ArrayLike | None = None,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Evaluate scores with intervals that hold with few positives too.

    In each replicate, rows, or whole groups of them, have random weights. For the lower end one more positive and one
    more negative are added that are decided wrong, for the upper end one of each that is decided right. The interval of
    a rate is then that of Clopper and Pearson, and none has width zero. Fewer than five positives are refused.

    Parameters
    ----------
    scores : Tensor or array-like
        Scores on any scale, as torch, numpy, pandas or lists; higher means more likely positive. Shape as for ``task``.
    targets : Tensor or array-like
        The true labels, as torch, numpy, pandas or lists. Shape as for ``task``.
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
    rule : Rule or TuningSpec, optional
        A decision rule of ``mg.decisions`` instead of ``threshold``; by default the argmax for "multiclass".
        ``TuningSpec(metric)`` is a rule that is tuned on these very data: it is tuned again in every replicate and
        evaluated on the rows left out.
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
    groups : array-like, optional
        The group of each row; rows of a group are weighed together.
    replicates : int, default 1000
        The number of bootstrap replicates.
    confidence : float, default 0.95
        The confidence level of the intervals, in (0, 1).
    seed : int, default 0
        Random seed of the replicates.

    Returns
    -------
    dict
        {name: Interval}, a list of intervals, one per class, for ``average=None``.

    Raises
    ------
    ValueError
        If there are no samples, or too few positives for an interval (fewer than five, of all classes together or,
        with ``average=None``, of one of them), an option is unknown, or shapes or values do not fit the task.

    Examples
    --------
    >>> found = bootstrap([0.9, 0.8, 0.4, 0.3] * 25, [1, 0, 1, 0] * 25, "accuracy")
    >>> print(found["accuracy"])
    0.5000 (0.39... to 0.60...)

    """
    check_replicates(replicates, confidence)
    labels = None if labels is None else tuple(labels)  # read once, used for all metrics
    found: dict[str, Any] = {}
    for some_metrics in split_by_weights(metrics):
        make = partial(
            MetricSet,
            some_metrics,
            task=task,
            threshold=threshold,
            average=average,
            labels=labels,
            empty_classes=empty_classes,
            ignore_index=ignore_index,
        )
        model = _make_model(make, rule, scores, targets, weight, mask)
        draws = make_draws([model], groups)
        check_positives(model.metrics, draws.positives)
        values, drawn = replicate_values(draws, 0, replicates, seed)
        # The ends of all metrics together: one pass is faster than one for each.
        all_drawn = torch.cat([of_metric.reshape(2, replicates, -1) for of_metric in drawn.values()], 2)
        low, high = find_ends(all_drawn, confidence)
        sizes = [value.numel() for value in values.values()]
        ends = zip(values, low.split(sizes), high.split(sizes), strict=True)
        found |= {name: _make_interval(values[name], drawn[name], *low_and_high) for name, *low_and_high in ends}
    return {name: found[name] for name in name_metrics(metrics)}


def compare_paired(
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    targets: ArrayLike,
    metrics: Metrics,
    *,
    task: Task | None = None,
    threshold: float | Sequence[float] = 0.5,
    rule: Rule | TuningSpec | Sequence[Rule | TuningSpec | None] | None = None,
    average: Average | None = "macro",
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    weight: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    ignore_index: int | None = None,
    groups: ArrayLike | None = None,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Compare two models on the same rows.

    The interval is made as by ``bootstrap``; the rows that are added are wrong for one model and right for the other.
    The p-value is that of exchanging the predictions of the two models row by row (or group by group) at random; for a
    tuned rule, and for metrics of the order of scores, which cannot be exchanged between scales, that of the interval.

    Parameters
    ----------
    scores_a : Tensor or array-like
        Scores of the first model, on any scale, as torch, numpy, pandas or lists; higher means more likely positive.
        Shape as for ``task``.
    scores_b : Tensor or array-like
        Scores of the second model, on any scale, as torch, numpy, pandas or lists; higher means more likely positive.
        Shape as for ``task``.
    targets : Tensor or array-like
        The true labels, as torch, numpy, pandas or lists. Shape as for ``task``.
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
    rule : Rule, TuningSpec or a pair of these, optional
        A decision rule of ``mg.decisions`` instead of ``threshold``; by default the argmax for "multiclass".
        ``TuningSpec(metric)`` is a rule that is tuned on these very data: it is tuned again in every replicate and
        evaluated on the rows left out. One rule is for both models.
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
    groups : array-like, optional
        The group of each row; rows of a group are weighed together.
    replicates : int, default 1000
        The number of bootstrap replicates.
    confidence : float, default 0.95
        The confidence level of the intervals, in (0, 1).
    seed : int, default 0
        Random seed of the replicates.

    Returns
    -------
    dict
        {name: Comparison}, a list of comparisons, one per class, for ``average=None``.

    Raises
    ------
    ValueError
        If there are no samples, or too few positives for an interval (fewer than five, of all classes together or,
        with ``average=None``, of one of them), an option is unknown, or shapes or values do not fit the task.

    Examples
    --------
    >>> y = [1, 0, 1, 0] * 25
    >>> print(compare_paired([0.9, 0.1, 0.8, 0.6] * 25, [0.9, 0.8, 0.4, 0.3] * 25, y, "accuracy")["accuracy"])
    +0.2500 (+0.06... to +0.41...), p = 0.003

    """
    check_replicates(replicates, confidence)
    labels = None if labels is None else tuple(labels)  # read once, used for both models
    rules: Sequence[Rule | TuningSpec | None] = rule if isinstance(rule, tuple | list) else (rule, rule)
    if len(rules) != 2:
        raise ValueError(f"rule: expected one, or a pair of them, got {len(rules)}")
    found: dict[str, Any] = {}
    for some_metrics in split_by_weights(metrics):
        make = partial(
            MetricSet,
            some_metrics,
            task=task,
            threshold=threshold,
            average=average,
            labels=labels,
            empty_classes=empty_classes,
            ignore_index=ignore_index,
        )
        pairs = zip((scores_a, scores_b), rules, strict=True)
        models = [_make_model(make, own_rule, scores, targets, weight, mask) for scores, own_rule in pairs]
        draws = make_draws(models, groups)
        check_positives(models[0].metrics, draws.positives)
        a, drawn_a = replicate_values(draws, 0, replicates, seed)
        b, drawn_b = replicate_values(draws, 1, replicates, seed)
        rules_are_fixed = all(model.tuned is None for model in models)
        by_chance = exchange_predictions(draws, replicates, seed) if rules_are_fixed else {}
        # Where one model is wrong the other is right.
        differences = {name: drawn_a[name] - drawn_b[name].flip(0) for name in a}
        found |= {
            name: _make_comparison(a[name], b[name], differences[name], by_chance.get(name), confidence) for name in a
        }
    return {name: found[name] for name in name_metrics(metrics)}


def _make_model(
    make: Callable[..., MetricSet], rule: Any, scores: Any, targets: Any, weight: Any, mask: Any
) -> EvaluatedModel:
    """Return the model of some scores under a rule, which may be one yet to be tuned."""
    tuned = rule if isinstance(rule, TuningSpec) else None
    metrics = make(rule=None if tuned is not None else rule)
    if tuned is not None:
        if metrics.rule != default_rule(metrics.task):
            raise ValueError("threshold: expected none beside a rule to be tuned")
        if (tuned.task or "binary") != metrics.task:
            raise ValueError(f"rule: expected one tuned for task={metrics.task!r}, got {tuned.task!r}")
        metrics = metrics.under(metrics.rule)
    batch = metrics.prepare_rows(scores, targets, weight, mask).on_host()
    if not len(batch.logits):
        raise ValueError("scores: expected at least one sample, got none")
    if tuned is not None and bool(metrics.cost_objectives) != (find_row_costs(tuned.metric) is not None):
        raise ValueError(
            "rule: expected one tuned for the costs per row that are evaluated, and no other metric beside"
        )
    metrics, batch = metrics.weigh_rows(batch)
    return EvaluatedModel(metrics, batch, tuned)


def _make_interval(value: Tensor, drawn: Tensor, low: Tensor, high: Tensor) -> Any:
    """Return the interval of a metric, or a list of one per class."""
    if value.dim():
        return [_make_interval(*each) for each in zip(value, drawn.unbind(-1), low, high, strict=True)]
    if value.isnan():
        low = high = value  # one more row would give a value to what has none
    return Interval(value.item(), low.item(), high.item(), drawn)


def _make_comparison(a: Tensor, b: Tensor, drawn: Tensor, by_chance: Tensor | None, confidence: float) -> Any:
    """Return the comparison of two values, or a list of one per class.

    ``drawn``: differences in replicates, ``(2, R)``; ``by_chance``: those of two models whose predictions were
    exchanged, None if they cannot be.
    """
    if a.dim():
        chances = [None] * len(a) if by_chance is None else by_chance.unbind(1)
        of_classes = zip(a, b, drawn.unbind(-1), chances, strict=True)
        return [_make_comparison(*of_class, confidence) for of_class in of_classes]
    difference = a - b
    low, high = (end.item() for end in find_ends(drawn, confidence))
    if difference.isnan():
        low = high = p_value = torch.nan
    elif by_chance is None:
        not_above = _find_share_up_to_zero(drawn[0])
        not_below = _find_share_up_to_zero(-drawn[1])
        p_value = min(1.0, 2 * min(not_above, not_below))
    else:
        defined = by_chance[~by_chance.isnan()]
        as_large = int((defined.abs() >= difference.abs() - 1e-12).sum())
        p_value = (1 + as_large) / (1 + len(defined))
    return Comparison(a.item(), b.item(), difference.item(), low, high, p_value)


def _find_share_up_to_zero(drawn: Tensor) -> float:
    """Return the share of replicates that are not positive; one without a value is evidence for neither side."""
    return (1 + int((drawn <= 0).sum())) / (1 + int((~drawn.isnan()).sum()))
