"""Intervals: how certain a value is, and whether one model is better than another.

A statistic is linear in how often each row is drawn, so a bootstrap replicate never looks at the scores again. Where
rows fall into few cells (2×2, d×d, and true × A × B for two models) drawing the cells is drawing the rows, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.counts import Confusion, Counts, Mean
from metricgrad.decisions import hard_counts
from metricgrad.decisions.resampling import check_replicates, group_index, of_cells, of_units
from metricgrad.decisions.rules import Threshold
from metricgrad.decisions.tuning import Tuned
from metricgrad.engine.batch import Batch
from metricgrad.evaluation.evaluator import Evaluator, Metrics
from metricgrad.evaluation.score_tables import ScoreTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from metricgrad.decisions.rules import Rule
    from metricgrad.engine.batch import Task
    from metricgrad.metrics.averages import Absent, Average

_CELLS = 1 << 12  # up to this number of cells, cells are drawn instead of rows

Values = dict[str, Tensor]


@dataclass(frozen=True)
class Interval:
    """A value and where it may lie: percentiles of its bootstrap replicates.

    Attributes
    ----------
    value : float
        The value; for a tuned rule what to expect on new data, the mean out-of-bag value of rules tuned on resamples.
    low : float
        The lower end of the interval.
    high : float
        The upper end of the interval.
    replicates : Tensor
        The value in each resample, ``(replicates,)``.

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
    scores: Any,
    targets: Any,
    metrics: Metrics,
    *,
    task: Task = "binary",
    threshold: float | Sequence[float] = 0.5,
    rule: Rule | Tuned | None = None,
    average: Average | None = "macro",
    labels: Iterable[int] | None = None,
    absent: Absent = "count",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    groups: Any = None,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Evaluate scores with bootstrap intervals.

    Rows, or whole groups of them, are drawn with replacement.

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
    rule : Rule or Tuned, optional
        A decision rule of ``mg.decisions`` instead of ``threshold``; by default the argmax for "multiclass".
        ``Tuned(metric)`` is a rule that is tuned on these very data: it is tuned again in every replicate and evaluated
        on the rows left out.
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
    groups : array-like, optional
        The group of each row; rows of a group are drawn together.
    replicates : int, default 1000
        The number of bootstrap resamples.
    confidence : float, default 0.95
        The confidence level of the intervals, in (0, 1).
    seed : int, default 0
        Random seed of the resamples.

    Returns
    -------
    dict
        {name: Interval}, a list of intervals, one per class, for ``average=None``.

    Raises
    ------
    ValueError
        If there are no samples, an option is unknown, or shapes or values do not fit the task.

    Examples
    --------
    >>> found = bootstrap([0.9, 0.8, 0.4, 0.3] * 25, [1, 0, 1, 0] * 25, "accuracy")
    >>> print(found["accuracy"])
    0.5000 (0.4000 to 0.6000)

    """
    check_replicates(replicates, confidence)
    made = partial(
        Evaluator,
        metrics,
        task=task,
        threshold=threshold,
        average=average,
        labels=labels,
        absent=absent,
        ignore_index=ignore_index,
    )
    evaluator, tuned = _judge(made, rule)
    batch = evaluator.prepare(scores, targets, weight, mask)
    if not len(batch.logits):
        raise ValueError("scores: expected at least one sample, got none")
    drawing = _drawing([(evaluator, batch)], groups, exact=tuned is None)
    values, drawn = _replicates(drawing, 0, tuned, replicates, seed)
    ends = _ends(
        torch.cat([part.flatten(1) if part.dim() > 1 else part.unsqueeze(1) for part in drawn.values()], 1), confidence
    )
    sizes = [value.numel() for value in values.values()]
    limits = zip(*(end.split(sizes) for end in ends), strict=True)  # one look at all metrics together
    return {name: _interval(values[name], drawn[name], *pair) for name, pair in zip(values, limits, strict=True)}


def compare_paired(
    scores_a: Any,
    scores_b: Any,
    targets: Any,
    metrics: Metrics,
    *,
    task: Task = "binary",
    threshold: float | Sequence[float] = 0.5,
    rule: Rule | Tuned | Sequence[Rule | Tuned | None] | None = None,
    average: Average | None = "macro",
    labels: Iterable[int] | None = None,
    absent: Absent = "count",
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    groups: Any = None,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Compare two models on the same rows.

    The interval is that of a paired bootstrap. The p-value is that of exchanging the predictions of the two models row
    by row (or group by group) at random; for a tuned rule, and for metrics of the order of scores, which cannot be
    exchanged between scales, it is the bootstrap's.

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
        ``Confusion``), or {name: metric}; also "auroc", "average_precision" and "interpolated_average_precision", which
        depend on the order of the scores alone.
    task : {'binary', 'multilabel', 'multiclass'}, default 'binary'
        "binary": scores of any shape with targets of that shape. "multilabel": scores ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same scores with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the scores.
    threshold : float or sequence of float, default 0.5
        On the scale of the scores, one for all or one per class. With the default, scores outside [0, 1] are refused.
        Not for "multiclass".
    rule : Rule, Tuned or a pair of these, optional
        A decision rule of ``mg.decisions`` instead of ``threshold``; by default the argmax for "multiclass".
        ``Tuned(metric)`` is a rule that is tuned on these very data: it is tuned again in every replicate and evaluated
        on the rows left out. One rule is for both models.
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
    groups : array-like, optional
        The group of each row; rows of a group are drawn together.
    replicates : int, default 1000
        The number of bootstrap resamples.
    confidence : float, default 0.95
        The confidence level of the intervals, in (0, 1).
    seed : int, default 0
        Random seed of the resamples.

    Returns
    -------
    dict
        {name: Comparison}, a list of comparisons, one per class, for ``average=None``.

    Raises
    ------
    ValueError
        If there are no samples, an option is unknown, or shapes or values do not fit the task.

    Examples
    --------
    >>> y = [1, 0, 1, 0] * 25
    >>> print(compare_paired([0.9, 0.1, 0.8, 0.6] * 25, [0.9, 0.8, 0.4, 0.3] * 25, y, "accuracy")["accuracy"])
    +0.2500 (+0.0900 to +0.4000), p = 0.003

    """
    check_replicates(replicates, confidence)
    labels = None if labels is None else tuple(labels)  # read once, used for both models
    made = partial(
        Evaluator,
        metrics,
        task=task,
        threshold=threshold,
        average=average,
        labels=labels,
        absent=absent,
        ignore_index=ignore_index,
    )
    rules: Sequence[Any] = rule if isinstance(rule, tuple | list) else (rule, rule)
    if len(rules) != 2:
        raise ValueError(f"rule: expected one, or a pair of them, got {len(rules)}")
    models, tuned = [], []
    for scores, its in zip((scores_a, scores_b), rules, strict=True):
        evaluator, tune = _judge(made, its)
        models.append((evaluator, evaluator.prepare(scores, targets, weight, mask)))
        tuned.append(tune)
    if not len(models[0][1].logits):
        raise ValueError("scores: expected at least one sample, got none")
    fixed = tuned == [None, None]
    drawing = _drawing(models, groups, exact=fixed)
    (a, drawn_a), (b, drawn_b) = (_replicates(drawing, i, tuned[i], replicates, seed) for i in (0, 1))
    chance = _exchanged(drawing, replicates, seed) if fixed else {}
    return {
        name: _comparison(a[name], b[name], drawn_a[name] - drawn_b[name], chance.get(name), confidence) for name in a
    }


# Drawing


def _drawing(models: list[tuple[Evaluator, Batch]], groups: Any, exact: bool) -> _Cells | _Rows:
    evaluator, batch = models[0]
    classes = max(2, batch.logits.shape[1])
    whole = batch.weight is None and not batch.targets.is_floating_point() and groups is None
    kinds = classes ** (1 + len(models))
    if exact and whole and evaluator.task != "multilabel" and kinds <= _CELLS and not evaluator.ranking_names:
        return _Cells(models, classes)
    return _Rows(models, groups)


class _Cells:
    """Rows that fall into cells: true class × each model's decision.

    Like ``_Rows``: ``multiplicity`` tells how often every unit occurs, ``draws`` how often it is drawn, and
    ``statistics`` and ``values`` what a model gets when units count ``times`` times.
    """

    def __init__(self, models: list[tuple[Evaluator, Batch]], classes: int) -> None:
        self.evaluators = [evaluator for evaluator, _ in models]
        self.shape = (classes,) * (1 + len(models))
        self.multiplicity = self._one(*models[0]) if len(models) == 1 else self._several([b for _, b in models])

    def _one(self, evaluator: Evaluator, batch: Batch) -> Tensor:
        if evaluator.task == "multiclass":
            return hard_counts.matrix(batch, evaluator.rule).matrix.flatten()
        c = hard_counts.counts(batch, evaluator.rule)
        return torch.cat((c.tn, c.fp, c.fn, c.tp))

    def _several(self, batches: list[Batch]) -> Tensor:
        classes = self.shape[0]
        total = torch.zeros(classes ** len(self.shape), dtype=torch.float64)
        for parts in zip(*map(hard_counts.chunks, batches), strict=True):
            code = parts[0].targets.reshape(-1).long()
            for evaluator, part in zip(self.evaluators, parts, strict=True):
                decided = hard_counts.decide(part, evaluator.rule, evaluator.task == "multiclass")
                code = code * classes + decided.reshape(-1).long()
            total += torch.bincount(code, minlength=len(total))
        return total

    def draws(self, replicates: int, seed: int) -> Iterator[Tensor]:
        yield of_cells(self.multiplicity, replicates, torch.Generator().manual_seed(seed))

    def statistics(self, model: int, times: Tensor) -> dict[str, Any]:
        others = [axis + 2 for axis in range(len(self.shape) - 1) if axis != model]
        cube = times.reshape(len(times), *self.shape)
        matrix = cube.sum(others) if others else cube
        if self.evaluators[model].task == "multiclass":
            return {"cells": Confusion(matrix)}
        tn, fp, fn, tp = matrix.reshape(len(times), 4, 1).unbind(1)
        return {"cells": Counts(tp, fp, fn, tn)}

    def values(self, model: int, times: Tensor) -> Values:
        return self.evaluators[model].values(self.statistics(model, times))


class _Rows:
    """Rows, or groups of rows, and what each adds to the statistics."""

    def __init__(self, models: list[tuple[Evaluator, Batch]], groups: Any) -> None:
        self.evaluators = [evaluator for evaluator, _ in models]
        self.batches = [batch for _, batch in models]
        self.grouped = groups is not None
        self.index, units = group_index(groups, len(self.batches[0].logits))
        self.multiplicity = torch.ones(units, dtype=torch.float64)
        self._added = [_additions(evaluator, batch) for evaluator, batch in models]

    def draws(self, replicates: int, seed: int) -> Iterator[Tensor]:
        yield from of_units(len(self.multiplicity), replicates, torch.Generator().manual_seed(seed))

    def rows(self, times: Tensor) -> Tensor:
        """Return how often every row counts."""
        return times[:, self.index] if self.grouped else times

    def statistics(self, model: int, times: Tensor) -> dict[str, Any]:
        times = self.rows(times)
        return {name: added(times) for name, added in self._added[model].items()}

    def values(self, model: int, times: Tensor) -> Values:
        evaluator, batch = self.evaluators[model], self.batches[model]
        found = evaluator.values(self.statistics(model, times))
        if evaluator.ranking_names:
            tables = (ScoreTables.of(_weighted(batch, row), None) for row in self.rows(times))
            each = [evaluator.ranking_values(table) for table in tables]
            found |= {name: torch.stack([one[name] for one in each]) for name in evaluator.ranking_names}
        return found


def _additions(evaluator: Evaluator, batch: Batch) -> dict[str, Any]:
    """Return, for each statistic, the function from how often rows count, ``(R, N)``, to ``R`` statistics."""
    found: dict[str, Any] = {}
    decided = hard_counts.decide(batch, evaluator.rule, evaluator.task == "multiclass")
    rows = evaluator.row_objectives
    if rows:
        cells, row_weight = hard_counts.row_counts(batch, decided, next(iter(rows.values())).labels)
        for name, objective in rows.items():
            both = torch.stack((objective.metric(cells) * row_weight, row_weight), 1)
            found[name] = lambda times, both=both: Mean(*(times @ both).unbind(1))
    if not evaluator.has_cells:
        return found
    if evaluator.task == "multiclass":
        found["cells"] = _matrices(batch, decided)
    else:
        # Zeros and ones add up exactly in float32 to 2^24, and twice as fast.
        whole = batch.weight is None and len(decided) < 1 << 20 and not _soft(batch.targets)
        dtype = torch.float32 if whole else torch.float64
        y = batch.targets.to(dtype)
        w = torch.ones_like(y) if batch.weight is None else batch.weight.to(dtype)
        p = decided.to(dtype)
        columns = torch.cat((w * y * p, w * (1 - y) * p, w * y * (1 - p), w * (1 - y) * (1 - p)), 1)
        found["cells"] = lambda times: Counts(*(times.to(dtype) @ columns).double().chunk(4, 1))
    return found


def _soft(targets: Tensor) -> bool:
    return targets.is_floating_point() and bool((targets % 1).any())


def _matrices(batch: Batch, decided: Tensor) -> Any:
    d = batch.logits.shape[1]
    w = None if batch.weight is None else batch.weight.double().squeeze(1)

    def matrices(times: Tensor) -> Confusion:
        times = times if w is None else times * w
        if batch.targets.dim() == 1:
            flat = times.new_zeros(d * d, len(times)).index_add_(0, batch.targets * d + decided, times.t())
            return Confusion(flat.t().reshape(-1, d, d))
        each = [times.new_zeros(d, d).index_add_(0, decided, batch.targets * row.unsqueeze(1)).t() for row in times]
        return Confusion(torch.stack(each))

    return matrices


def _weighted(batch: Batch, times: Tensor) -> Batch:
    w = times.unsqueeze(1) if batch.weight is None else batch.weight * times.unsqueeze(1)
    return Batch(batch.logits, batch.targets, w, batch.mask)


# From replicates to answers


def _judge(made: Callable[..., Evaluator], rule: Any) -> tuple[Evaluator, Tuned | None]:
    """Return the evaluator under a rule, and the rule if it is yet to be tuned."""
    if not isinstance(rule, Tuned):
        return made(rule=rule), None
    evaluator = made()
    if evaluator.task != "multiclass" and evaluator.rule != Threshold(0.5):
        raise ValueError("threshold: expected none beside a rule to be tuned")
    if rule.task != evaluator.task:
        raise ValueError(f"rule: expected one tuned for task={evaluator.task!r}, got {rule.task!r}")
    return evaluator.under(evaluator.rule), rule


def _replicates(
    drawing: _Cells | _Rows, model: int, tuned: Tuned | None, replicates: int, seed: int
) -> tuple[Values, Values]:
    """Return a model's values and their replicates."""
    if tuned is None:
        draws = drawing.draws(replicates, seed)
        # The data themselves go first, in one call with the first replicates.
        first = torch.cat((drawing.multiplicity.unsqueeze(0), next(draws)))
        parts = [drawing.values(model, times) for times in chain((first,), draws)]
        values = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        return {name: v[0] for name, v in values.items()}, {name: v[1:] for name, v in values.items()}
    return _tuned_replicates(drawing, model, tuned, replicates, seed)  # type: ignore[arg-type]


def _tuned_replicates(drawing: _Rows, model: int, tuned: Tuned, replicates: int, seed: int) -> tuple[Values, Values]:
    """Return what to expect of a tuned rule on new data, and how that varies.

    Its place is the mean out-of-bag value of rules tuned on resamples. It varies with the data that judge (the tuned
    rule on every resample) and with the data that tune (every re-tuned rule on all data). The plain percentiles of a
    rule that is evaluated where it was tuned cover far too seldom: benchmarks/coverage.py simulates it.
    """
    problem, batch = tuned.problem(), drawing.batches[model]
    at_best = drawing.evaluators[model].under(problem.solve(batch)[0])
    fixed = _Rows([(at_best, batch)], None)
    fixed.index, fixed.grouped, fixed.multiplicity = drawing.index, drawing.grouped, drawing.multiplicity
    apparent = fixed.values(0, fixed.multiplicity.unsqueeze(0))
    sampled, everywhere, left_out = [], [], []
    for times in drawing.draws(replicates, seed):
        sampled.append(fixed.values(0, times))
        for row in drawing.rows(times):
            evaluator = at_best.under(problem.tuned_on(batch, row))
            everywhere.append(evaluator.judge(batch))
            rest = hard_counts.take(batch, row == 0)
            if hard_counts.has_weight(rest):
                left_out.append(evaluator.judge(rest))
    values, drawn = {}, {}
    for name in apparent:
        noise = torch.cat([part[name] for part in sampled]) - apparent[name]
        moves = torch.stack([one[name] for one in everywhere])
        nothing = torch.full_like(moves[0], torch.nan)  # if no replicate leaves anything out
        values[name] = torch.stack([nothing, *(one[name] for one in left_out)]).nanmean(0)
        drawn[name] = values[name] + noise + moves - moves.mean(0)
    return values, drawn


def _exchanged(drawing: _Cells | _Rows, replicates: int, seed: int) -> Values:
    """Return the differences when each unit's two predictions are exchanged with probability ½."""
    generator = torch.Generator().manual_seed(seed + 1)
    found: dict[str, list[Tensor]] = {}
    whole = drawing.multiplicity
    some = max(1, (1 << 22) // max(1, len(whole)))
    for start in range(0, replicates, some):
        times = whole.expand(min(some, replicates - start), -1).contiguous()
        swapped = torch.binomial(times, torch.full_like(times, 0.5), generator=generator)
        one, two = (
            drawing.evaluators[0].values(
                _added(drawing.statistics(i, times - swapped), drawing.statistics(1 - i, swapped))
            )
            for i in (0, 1)
        )
        for name in one:
            found.setdefault(name, []).append(one[name] - two[name])
    return {name: torch.cat(parts) for name, parts in found.items()}


def _added(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] + two[name] for name in one}


def _interval(value: Tensor, drawn: Tensor, low: Tensor, high: Tensor) -> Any:
    if value.dim():
        return [_interval(*each) for each in zip(value, drawn.unbind(1), low, high, strict=True)]
    return Interval(value.item(), low.item(), high.item(), drawn)


def _comparison(a: Tensor, b: Tensor, drawn: Tensor, chance: Tensor | None, confidence: float) -> Any:
    if a.dim():
        chances = [None] * len(a) if chance is None else chance.unbind(1)
        parts = zip(a, b, drawn.unbind(1), chances, strict=True)
        return [_comparison(*part, confidence) for part in parts]
    difference = a - b
    low, high = (end.item() for end in _ends(drawn, confidence))
    # A replicate without a value, as AUROC has none without positives, tells neither for nor against.
    if difference.isnan():
        p = torch.nan
    elif chance is None:
        drawn = drawn[~drawn.isnan()]
        below, above = ((drawn <= 0).sum(), (drawn >= 0).sum())
        p = min(1.0, 2 * (1 + int(torch.minimum(below, above))) / (1 + len(drawn)))
    else:
        chance = chance[~chance.isnan()]
        p = (1 + int((chance.abs() >= difference.abs() - 1e-12).sum())) / (1 + len(chance))
    return Comparison(a.item(), b.item(), difference.item(), low, high, p)


def _ends(drawn: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    """Return the percentiles of replicates, which are the first axis."""
    tail = (1 - confidence) / 2
    low, high = torch.nanquantile(drawn, drawn.new_tensor([tail, 1 - tail]), dim=0).unbind(0)
    return low, high
