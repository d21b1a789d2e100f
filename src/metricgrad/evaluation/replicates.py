"""Bootstrap replicates of the values of one model or two.

A statistic is linear in what each row weighs, so a bootstrap replicate never looks at the scores again. Where rows fall
into few cells (2×2, d×d, and true × A × B for two models) weighing the cells is weighing the rows, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.core.batch import Batch
from metricgrad.core.counts import Confusion, Counts, Mean
from metricgrad.decisions import hard_counts
from metricgrad.decisions.resampling import draw_units, index_groups, weigh_cells, weigh_units
from metricgrad.evaluation.one_more_row import OneMoreRow, UnitWeight, seed_more
from metricgrad.evaluation.score_tables import PairTables, ScoreTable, ScoreTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from metricgrad.core.inputs import ArrayLike
    from metricgrad.decisions.threshold_tuning import TuningSpec
    from metricgrad.evaluation.metric_set import MetricSet, Statistics, Values

_CELLS = 1 << 12  # up to this number of cells, cells are weighed instead of rows
_CURVES = 1 << 20  # the most weights on curves at a time


@dataclass(frozen=True, eq=False)
class Model:
    """What is resampled: the scores and targets of a model, its metrics, and its rule if that is yet to be tuned."""

    metrics: MetricSet
    batch: Batch
    tuned: TuningSpec | None = None


def make_draws(models: list[Model], groups: ArrayLike | None) -> CellDraws | RowDraws:
    """Return how the rows of models are weighed: as cells where that is exact and cheaper."""
    metrics, batch = models[0].metrics, models[0].batch
    classes = max(2, batch.logits.shape[1])
    plain = batch.weight is None and not batch.targets.is_floating_point() and groups is None
    fixed = all(model.tuned is None for model in models)
    few = classes ** (1 + len(models)) <= _CELLS
    of_cells_alone = not (metrics.has_curves or metrics.score_metrics)
    if fixed and plain and few and metrics.task != "multilabel" and of_cells_alone:
        return CellDraws(models, classes)
    index, units = index_groups(groups, len(batch.logits))
    return RowDraws(models, units, None if groups is None else index)


class CellDraws:
    """Weights of cells, true class × each model's decision, in place of the rows that fall into them.

    As in ``RowDraws``, ``multiplicity`` is how often every unit occurs in the data, ``positives`` how many units of it
    are of each class, and ``unit`` what one weighs. ``weights`` yields the weights of replicates, and ``statistics``
    and ``values`` are those of a model when units count ``times`` times.
    """

    def __init__(self, models: list[Model], classes: int) -> None:
        self.models = models
        self.shape = (classes,) * (1 + len(models))
        self.multiplicity = self._count_one(models[0]) if len(models) == 1 else self._count_several()

    def _count_one(self, model: Model) -> Tensor:
        if model.metrics.has_matrix:
            return hard_counts.count_matrix(model.batch, model.metrics.rule).matrix.flatten()
        c = hard_counts.count_cells(model.batch, model.metrics.rule)
        return torch.cat((c.tn, c.fp, c.fn, c.tp))

    def _count_several(self) -> Tensor:
        classes = self.shape[0]
        total = torch.zeros(classes ** len(self.shape), dtype=torch.float64)
        for parts in zip(*(hard_counts.split_into_chunks(model.batch) for model in self.models), strict=True):
            code = parts[0].targets.reshape(-1).long()
            for model, part in zip(self.models, parts, strict=True):
                code = code * classes + _decide(model.metrics, part).reshape(-1).long()
            total += torch.bincount(code, minlength=len(total))
        return total

    @property
    def positives(self) -> Tensor:
        of_classes = self.multiplicity.reshape(self.shape[0], -1).sum(1)
        return of_classes if self.models[0].metrics.has_matrix else of_classes[1:]

    @property
    def unit(self) -> UnitWeight:
        return UnitWeight.of_plain_rows(self.positives)

    def weights(self, replicates: int, seed: int) -> Iterator[Tensor]:
        yield weigh_cells(self.multiplicity, replicates, torch.Generator().manual_seed(seed))

    def statistics(self, model: int, times: Tensor) -> Statistics:
        others = [axis + 2 for axis in range(len(self.shape) - 1) if axis != model]
        cube = times.reshape(len(times), *self.shape)
        matrix = cube.sum(others) if others else cube
        if self.models[model].metrics.has_matrix:
            return {"cells": Confusion(matrix)}
        tn, fp, fn, tp = matrix.reshape(len(times), 4, 1).unbind(1)
        return {"cells": Counts(tp, fp, fn, tn)}

    def values(self, model: int, times: Tensor, more: OneMoreRow | None = None, right: bool = False) -> Values:
        metrics, found = self.models[model].metrics, self.statistics(model, times)
        return metrics.values(found if more is None else more.add(metrics, found, right))


class RowDraws:
    """Weights of rows, or of whole groups of rows; ``index`` is the group of each row."""

    def __init__(self, models: list[Model], units: int, index: Tensor | None) -> None:
        self.models, self.units, self.index = models, units, index
        self.multiplicity = torch.ones(units, dtype=torch.float64)
        self._sums = [_weighted_sums(model.metrics, model.batch) for model in models]

    @property
    def positives(self) -> Tensor:
        return (self._by_unit(0) > 0).sum(0).double()

    @property
    def unit(self) -> UnitWeight:
        return UnitWeight.draw_units(self._by_unit(0), self._by_unit(1))

    def _by_unit(self, side: int) -> Tensor:
        """Return the weight of positives, or of negatives, of each unit and class."""
        of_rows = _weigh_sides(self.models[0].batch)[side]
        if self.index is None:
            return of_rows
        return of_rows.new_zeros(self.units, of_rows.shape[1]).index_add_(0, self.index, of_rows)

    def weights(self, replicates: int, seed: int) -> Iterator[Tensor]:
        yield from weigh_units(self.units, replicates, torch.Generator().manual_seed(seed))

    def draws(self, replicates: int, seed: int) -> Iterator[Tensor]:
        """Yield how often each unit is drawn, some of them never."""
        yield from draw_units(self.units, replicates, torch.Generator().manual_seed(seed))

    def rows(self, times: Tensor) -> Tensor:
        """Return how often every row counts."""
        return times if self.index is None else times[:, self.index]

    def statistics(self, model: int, times: Tensor) -> Statistics:
        times = self.rows(times)
        return {name: weighted_sum(times) for name, weighted_sum in self._sums[model].items()}

    def values(self, model: int, times: Tensor, more: OneMoreRow | None = None, right: bool = False) -> Values:
        metrics, found = self.models[model].metrics, self.statistics(model, times)
        values = metrics.values(found if more is None else more.add(metrics, found, right))
        return values | self._ranking_values(model, times, more, right) if metrics.has_curves else values

    def _ranking_values(self, model: int, times: Tensor, more: OneMoreRow | None, right: bool) -> Values:
        metrics, batch = self.models[model].metrics, self.models[model].batch
        some = max(1, _CURVES // max(1, batch.logits.numel()))
        each = []
        for start in range(0, len(times), some):
            part = slice(start, start + some)
            weights, here = self.rows(times[part]), None if more is None else more.take(part)
            values: Values = {}
            if metrics.ranking:
                found: Statistics = {"scores": _weigh_tables(batch, weights)}
                values |= metrics.ranking_values(found if here is None else here.add(metrics, found, right))
            if metrics.pair_ranking:
                resamples = (_weigh_pairs(batch, row, k, here, right) for k, row in enumerate(weights))
                pairs = [metrics.ranking_values({"pairs": tables}) for tables in resamples]
                values |= {name: torch.stack([one[name] for one in pairs]) for name in metrics.pair_ranking}
            each.append(values)
        return {name: torch.cat([one[name] for one in each]) for name in each[0]}


def _decide(metrics: MetricSet, batch: Batch) -> Tensor:
    return hard_counts.decide_batch(batch, metrics.rule, classes=metrics.has_matrix)


def _weighted_sums(metrics: MetricSet, batch: Batch) -> dict[str, Callable[[Tensor], Any]]:
    """Return, for each statistic, the function from how often rows count, ``(R, N)``, to ``R`` statistics."""
    found: dict[str, Callable[[Tensor], Any]] = {}
    decided = _decide(metrics, batch)
    rows = metrics.row_objectives
    if rows:
        cells, row_weight = hard_counts.count_rows(batch, decided, next(iter(rows.values())).labels)
        for name, objective in rows.items():
            both = torch.stack((objective.metric(cells) * row_weight, row_weight), 1)
            found[name] = partial(_sum_means, both)
    if metrics.has_cells:
        found["cells"] = (_sum_matrices if metrics.has_matrix else _sum_counts)(batch, decided)
    for name, metric in metrics.score_metrics.items():
        found[name] = partial(_sum_columns, metric.columns(batch, metrics.task, metrics.rule))
    return found


def _sum_columns(columns: Tensor, times: Tensor) -> Tensor:
    return (times @ columns.flatten(1)).reshape(len(times), *columns.shape[1:])


def _sum_means(both: Tensor, times: Tensor) -> Mean:
    return Mean(*(times @ both).unbind(1))


def _sum_counts(batch: Batch, decided: Tensor) -> Callable[[Tensor], Counts]:
    # Zeros and ones add up exactly in float32 to 2^24, and twice as fast.
    soft = batch.targets.is_floating_point() and bool((batch.targets % 1).any())
    dtype = torch.float32 if batch.weight is None and len(decided) < 1 << 20 and not soft else torch.float64
    y = batch.targets.to(dtype)
    w = torch.ones_like(y) if batch.weight is None else batch.weight.to(dtype)
    p = decided.to(dtype)
    columns = torch.cat((w * y * p, w * (1 - y) * p, w * y * (1 - p), w * (1 - y) * (1 - p)), 1)
    return lambda times: Counts(*(times.to(dtype) @ columns).double().chunk(4, 1))


def _sum_matrices(batch: Batch, decided: Tensor) -> Callable[[Tensor], Confusion]:
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


def _weigh_sides(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the weight of each row as a positive and as a negative of each class, ``(N, K)``."""
    classes = batch.logits.shape[1]
    y = (F.one_hot(batch.targets, classes) if batch.targets.dim() == 1 else batch.targets).double()
    w = torch.ones_like(y) if batch.weight is None else batch.weight.double().expand_as(y)
    return w * y, w * (1 - y)


def _weigh_tables(batch: Batch, times: Tensor) -> ScoreTables:
    """Return the score tables of rows that count ``times`` times, ``(R, N)``: one for all replicates."""
    scores = batch.logits.double()
    positives, negatives = _weigh_sides(batch)
    columns = zip(scores.unbind(1), positives.unbind(1), negatives.unbind(1), strict=True)
    tables = [ScoreTable(((s, times * p, times * n),)) for s, p, n in columns]
    return ScoreTables(tables, batch.logits.dtype, positives.new_zeros(4, len(tables)))


def _weigh_pairs(batch: Batch, times: Tensor, replicate: int, more: OneMoreRow | None, right: bool) -> PairTables:
    """Return the tables of pairs of classes when rows count ``times`` times, ``(N,)``, with one more row of each class.

    Its own class has the highest score if that is right, the lowest if it is wrong.
    """
    weight = times.unsqueeze(1) if batch.weight is None else batch.weight * times.unsqueeze(1)
    if more is None:
        return PairTables.of(batch.reweighted(weight), None)
    classes = batch.logits.shape[1]
    own = torch.eye(classes, dtype=torch.bool) == right
    scores = batch.logits.new_full((classes, classes), -torch.inf).masked_fill(own, torch.inf)
    targets = torch.cat((batch.targets, torch.arange(classes)))
    weight = torch.cat((weight, more.positives[replicate].unsqueeze(1)))
    return PairTables.of(Batch(torch.cat((batch.logits, scores)), targets, weight, None), None)


# Values of replicates


def replicate(draws: CellDraws | RowDraws, model: int, replicates: int, seed: int) -> tuple[Values, Values]:
    """Return a model's values, and their replicates ``(2, R, ...)``: with one more row wrong, and with one more right.

    One more row of each kind, see ``one_more_row``.
    """
    tuned, metrics = draws.models[model].tuned, draws.models[model].metrics
    if tuned is not None and isinstance(draws, RowDraws):
        return _replicate_tuned(draws, model, tuned, replicates, seed)
    values = draws.values(model, draws.multiplicity.unsqueeze(0))
    unit, generator = draws.unit, seed_more(seed)
    parts: list[tuple[Values, Values]] = []
    for times in draws.weights(replicates, seed):
        more = OneMoreRow.draw(metrics.over_classes, unit, len(draws.models), len(times), generator)
        parts.append((draws.values(model, times, more, right=False), draws.values(model, times, more, right=True)))
    drawn = {name: torch.stack([torch.cat([both[i][name] for both in parts]) for i in (0, 1)]) for name in values}
    return {name: value[0] for name, value in values.items()}, drawn


def _replicate_tuned(
    draws: RowDraws, model: int, tuned: TuningSpec, replicates: int, seed: int
) -> tuple[Values, Values]:
    """Return what to expect of a tuned rule on new data, and how that varies.

    Its place is the mean out-of-bag value of rules tuned on resamples. It varies with the data to evaluate on (the
    tuned rule in every replicate) and with the data to tune on (every re-tuned rule on all data). The plain percentiles
    of a rule that is evaluated where it was tuned cover far too seldom: benchmarks/coverage.py simulates it.
    """
    problem, batch = tuned.problem(), draws.models[model].batch
    at_best = draws.models[model].metrics.under(problem.solve(batch)[0])
    fixed = RowDraws([Model(at_best, batch)], draws.units, draws.index)
    apparent, evaluated = replicate(fixed, 0, replicates, seed)
    everywhere, left_out, paired = [], [], len(draws.models) > 1
    for times in draws.draws(replicates, seed):
        for row in draws.rows(times):
            metrics = at_best.under(problem.tune_on_drawn_rows(batch, row))
            everywhere.append(metrics.evaluate(batch))
            rest = batch.take(row == 0)
            if hard_counts.has_weight(rest):
                left_out.append(metrics.evaluate(rest))
    values, drawn = {}, {}
    for name in apparent:
        moves = torch.stack([one[name] for one in everywhere])
        nothing = torch.full_like(moves[0], torch.nan)  # if no replicate leaves anything out
        values[name] = torch.stack([nothing, *(one[name] for one in left_out)]).nanmean(0)
        # Left-out rows judge rules that were tuned on fewer rows, all rows judge the rule that they chose: the truth is
        # in between, so the end of one more right row starts from the second.
        place = torch.stack((values[name], values[name] if paired else apparent[name])).unsqueeze(1)
        drawn[name] = place + evaluated[name] - apparent[name] + moves - moves.mean(0)
    return values, drawn


def exchange(draws: CellDraws | RowDraws, replicates: int, seed: int) -> Values:
    """Return the differences of two models when each unit's two predictions are exchanged with probability ½."""
    generator = torch.Generator().manual_seed(seed + 1)
    found: dict[str, list[Tensor]] = {}
    whole = draws.multiplicity
    some = max(1, (1 << 22) // max(1, len(whole)))
    for start in range(0, replicates, some):
        times = whole.expand(min(some, replicates - start), -1).contiguous()
        swapped = torch.binomial(times, torch.full_like(times, 0.5), generator=generator)
        one, two = (
            draws.models[0].metrics.values(
                _add(draws.statistics(i, times - swapped), draws.statistics(1 - i, swapped)),
            )
            for i in (0, 1)
        )
        for name in one:
            found.setdefault(name, []).append(one[name] - two[name])
    return {name: torch.cat(parts) for name, parts in found.items()}


def _add(one: Statistics, two: Statistics) -> Statistics:
    return {name: one[name] + two[name] for name in one}
