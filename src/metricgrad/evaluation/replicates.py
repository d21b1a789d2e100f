"""Bootstrap replicates of the values of one model or two.

A statistic is linear in what each row weighs, so a bootstrap replicate never looks at the scores again. Where rows fall
into few cells (2×2, d×d, or true × A × B for two models) it is exact to weigh cells instead of rows.
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
from metricgrad.evaluation.one_more_row import OneMoreRow, UnitWeight, seed_added_rows
from metricgrad.evaluation.score_tables import PairTables, ScoreTable, ScoreTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from metricgrad.core.inputs import ArrayLike
    from metricgrad.decisions.threshold_tuning import TuningSpec
    from metricgrad.evaluation.metric_set import MetricSet, Statistics, Values

_MOST_CELLS = 1 << 12  # up to this number of cells, cells are weighed instead of rows
_CURVE_WEIGHTS_AT_ONCE = 1 << 20
_EXCHANGES_AT_ONCE = 1 << 22


@dataclass(frozen=True, eq=False)
class EvaluatedModel:
    """The scores and targets of a model, the metrics to evaluate, and how its rule is tuned, if it has none yet."""

    metrics: MetricSet
    batch: Batch
    tuned: TuningSpec | None = None


def make_draws(models: list[EvaluatedModel], groups: ArrayLike | None) -> CellDraws | RowDraws:
    """Return how the rows of models are weighed: as cells where that is exact and cheaper."""
    metrics = models[0].metrics
    batch = models[0].batch
    classes = max(2, *(hard_counts.count_columns(model.batch, model.metrics.rule) for model in models))
    rows_are_plain = batch.weight is None and not batch.targets.is_floating_point() and groups is None
    rules_are_fixed = all(model.tuned is None for model in models)
    if rules_are_fixed and len({model.metrics.rule.abstains for model in models}) > 1:
        raise ValueError("rule: expected two rules that both may leave rows undecided, or neither, got one of each")
    cells_are_few = classes ** (1 + len(models)) <= _MOST_CELLS
    one_decision_per_row = metrics.task != "multilabel"
    needs_cells_alone = not (metrics.has_curves or metrics.score_metrics)
    if rules_are_fixed and rows_are_plain and cells_are_few and one_decision_per_row and needs_cells_alone:
        return CellDraws(models, classes)
    group_of_row, units = index_groups(groups, len(batch.logits))
    return RowDraws(models, units, None if groups is None else group_of_row)


class CellDraws:
    """Weights of cells, true class × each model's decision, in place of the rows that fall into them.

    A unit is a cell here, and a row or a group of rows in ``RowDraws``. In both, ``multiplicity`` is how many rows or
    groups each unit stands for, ``positives`` how many of these are positives of each class, and ``unit`` what one of
    them weighs. ``weights`` yields the weights of units in replicates; ``statistics`` and ``values`` are those of a
    model when units count ``times`` times.
    """

    def __init__(self, models: list[EvaluatedModel], classes: int) -> None:
        self.models = models
        self.shape = (classes,) * (1 + len(models))
        self.multiplicity = self._count_one(models[0]) if len(models) == 1 else self._count_several()

    def _count_one(self, model: EvaluatedModel) -> Tensor:
        if model.metrics.has_matrix:
            return hard_counts.count_matrix(model.batch, model.metrics.rule).matrix.flatten()
        counts = hard_counts.count_cells(model.batch, model.metrics.rule)
        return torch.cat((counts.tn, counts.fp, counts.fn, counts.tp))

    def _count_several(self) -> Tensor:
        classes = self.shape[0]
        total = torch.zeros(classes ** len(self.shape), dtype=torch.float64)
        chunks_of_models = [hard_counts.split_into_chunks(model.batch) for model in self.models]
        for chunks in zip(*chunks_of_models, strict=True):
            cell = chunks[0].targets.reshape(-1).long()
            for model, chunk in zip(self.models, chunks, strict=True):
                cell = cell * classes + _decide(model.metrics, chunk).reshape(-1).long()
            total += torch.bincount(cell, minlength=len(total))
        return total

    @property
    def positives(self) -> Tensor:
        of_classes = self.multiplicity.reshape(self.shape[0], -1).sum(1)
        has_matrix = self.models[0].metrics.has_matrix
        return of_classes[: self.models[0].batch.logits.shape[1]] if has_matrix else of_classes[1:]

    @property
    def unit(self) -> UnitWeight:
        return UnitWeight.from_plain_rows(self.positives)

    def weights(self, replicates: int, seed: int) -> Iterator[Tensor]:
        yield weigh_cells(self.multiplicity, replicates, torch.Generator().manual_seed(seed))

    def statistics(self, model: int, times: Tensor) -> Statistics:
        by_truth_and_models = times.reshape(len(times), *self.shape)
        other_models = [axis + 2 for axis in range(len(self.shape) - 1) if axis != model]
        matrix = by_truth_and_models.sum(other_models) if other_models else by_truth_and_models
        if self.models[model].metrics.has_matrix:
            return {"cells": Confusion(matrix)}
        tn, fp, fn, tp = matrix.reshape(len(times), 4, 1).unbind(1)
        return {"cells": Counts(tp, fp, fn, tn)}

    def values(self, model: int, times: Tensor, more: OneMoreRow | None = None, right: bool = False) -> Values:
        metrics = self.models[model].metrics
        statistics = self.statistics(model, times)
        return metrics.values(statistics if more is None else more.add(metrics, statistics, right))


class RowDraws:
    """Weights of rows, or of whole groups of rows."""

    def __init__(self, models: list[EvaluatedModel], units: int, group_of_row: Tensor | None) -> None:
        self.models = models
        self.units = units
        self.group_of_row = group_of_row
        self.multiplicity = torch.ones(units, dtype=torch.float64)
        self._weighted_sums = [_make_weighted_sums(model.metrics, model.batch) for model in models]

    @property
    def positives(self) -> Tensor:
        positive_weight, _ = self._weigh_units()
        return (positive_weight > 0).sum(0).double()

    @property
    def unit(self) -> UnitWeight:
        return UnitWeight.from_weights(*self._weigh_units())

    def _weigh_units(self) -> tuple[Tensor, Tensor]:
        """Return the weight of positives and that of negatives of each unit and class."""
        positives, negatives = _weigh_sides(self.models[0].batch)
        return self._sum_by_unit(positives), self._sum_by_unit(negatives)

    def _sum_by_unit(self, of_rows: Tensor) -> Tensor:
        if self.group_of_row is None:
            return of_rows
        return of_rows.new_zeros(self.units, of_rows.shape[1]).index_add_(0, self.group_of_row, of_rows)

    def weights(self, replicates: int, seed: int) -> Iterator[Tensor]:
        yield from weigh_units(self.units, replicates, torch.Generator().manual_seed(seed))

    def draws(self, replicates: int, seed: int) -> Iterator[Tensor]:
        """Yield how often each unit is drawn, some of them never."""
        yield from draw_units(self.units, replicates, torch.Generator().manual_seed(seed))

    def spread_over_rows(self, times: Tensor) -> Tensor:
        """Return how often every row counts, given that of units."""
        return times if self.group_of_row is None else times[:, self.group_of_row]

    def statistics(self, model: int, times: Tensor) -> Statistics:
        times_of_rows = self.spread_over_rows(times)
        return {name: weighted_sum(times_of_rows) for name, weighted_sum in self._weighted_sums[model].items()}

    def values(self, model: int, times: Tensor, more: OneMoreRow | None = None, right: bool = False) -> Values:
        metrics = self.models[model].metrics
        statistics = self.statistics(model, times)
        values = metrics.values(statistics if more is None else more.add(metrics, statistics, right))
        return values | self._evaluate_rankings(model, times, more, right) if metrics.has_curves else values

    def _evaluate_rankings(self, model: int, times: Tensor, more: OneMoreRow | None, right: bool) -> Values:
        metrics = self.models[model].metrics
        batch = self.models[model].batch
        replicates_at_once = max(1, _CURVE_WEIGHTS_AT_ONCE // max(1, batch.logits.numel()))
        parts = []
        for start in range(0, len(times), replicates_at_once):
            part = slice(start, start + replicates_at_once)
            weights = self.spread_over_rows(times[part])
            more_here = None if more is None else more.take_replicates(part)
            values: Values = {}
            if metrics.ranking:
                tables: Statistics = {"scores": _weigh_tables(batch, weights)}
                values |= metrics.ranking_values(tables if more_here is None else more_here.add(metrics, tables, right))
            if metrics.pair_ranking:
                pairs = [_weigh_pairs(batch, row, k, more_here, right) for k, row in enumerate(weights)]
                of_replicates = [metrics.ranking_values({"pairs": tables}) for tables in pairs]
                values |= _stack_values(of_replicates, metrics.pair_ranking)
            parts.append(values)
        return {name: torch.cat([values[name] for values in parts]) for name in parts[0]}


def _stack_values(of_replicates: Sequence[Values], names: Iterable[str]) -> Values:
    return {name: torch.stack([values[name] for values in of_replicates]) for name in names}


def _decide(metrics: MetricSet, batch: Batch) -> Tensor:
    if metrics.has_matrix:
        return hard_counts.decide_classes(batch, metrics.rule)
    return hard_counts.decide_batch(batch, metrics.rule)


def _make_weighted_sums(metrics: MetricSet, batch: Batch) -> dict[str, Callable[[Tensor], Any]]:
    """Return, for each statistic, the function from how often rows count, ``(R, N)``, to ``R`` statistics."""
    found: dict[str, Callable[[Tensor], Any]] = {}
    decided = _decide(metrics, batch)
    rows = metrics.row_objectives
    if rows:
        cells, row_weight = hard_counts.count_rows(batch, decided, next(iter(rows.values())).labels)
        for name, objective in rows.items():
            value_and_weight = torch.stack((objective.metric(cells) * row_weight, row_weight), 1)
            found[name] = partial(_sum_means, value_and_weight)
    if metrics.has_cells:
        if metrics.has_matrix:
            found["cells"] = _sum_matrices(batch, decided, hard_counts.count_columns(batch, metrics.rule))
        else:
            found["cells"] = _sum_counts(batch, decided)
    for name, metric in metrics.score_metrics.items():
        found[name] = partial(_sum_columns, metric.columns(batch, metrics.task, metrics.rule))
    return found


def _sum_columns(columns: Tensor, times: Tensor) -> Tensor:
    return (times @ columns.flatten(1)).reshape(len(times), *columns.shape[1:])


def _sum_means(value_and_weight: Tensor, times: Tensor) -> Mean:
    total, weight = (times @ value_and_weight).unbind(1)
    return Mean(total, weight)


def _sum_counts(batch: Batch, decided: Tensor) -> Callable[[Tensor], Counts]:
    # Sums of zeros and ones are exact in float32 up to 2^24, and twice as fast.
    has_soft_labels = batch.targets.is_floating_point() and bool((batch.targets % 1).any())
    is_exact = batch.weight is None and len(decided) < 1 << 20 and not has_soft_labels
    dtype = torch.float32 if is_exact else torch.float64
    targets = batch.targets.to(dtype)
    weight = torch.ones_like(targets) if batch.weight is None else batch.weight.to(dtype)
    predicted = decided.to(dtype)
    tp = weight * targets * predicted
    fp = weight * (1 - targets) * predicted
    fn = weight * targets * (1 - predicted)
    tn = weight * (1 - targets) * (1 - predicted)
    columns = torch.cat((tp, fp, fn, tn), 1)
    return lambda times: Counts(*(times.to(dtype) @ columns).double().chunk(4, 1))


def _sum_matrices(batch: Batch, decided: Tensor, classes: int) -> Callable[[Tensor], Confusion]:
    row_weight = None if batch.weight is None else batch.weight.double().squeeze(1)

    def sum_matrices(times: Tensor) -> Confusion:
        times = times if row_weight is None else times * row_weight
        if batch.targets.dim() == 1:
            cell = batch.targets * classes + decided
            by_cell = times.new_zeros(classes**2, len(times)).index_add_(0, cell, times.t())
            return Confusion(by_cell.t().reshape(-1, classes, classes))
        matrices = []
        for times_of_rows in times:
            weighted = batch.targets * times_of_rows.unsqueeze(1)
            by_decision = times.new_zeros(classes, weighted.shape[1]).index_add_(0, decided, weighted)
            matrices.append(F.pad(by_decision, (0, classes - weighted.shape[1])).t())
        return Confusion(torch.stack(matrices))

    return sum_matrices


def _weigh_sides(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the weight of each row as a positive and as a negative of each class, ``(N, K)``."""
    classes = batch.logits.shape[1]
    targets = (F.one_hot(batch.targets, classes) if batch.targets.dim() == 1 else batch.targets).double()
    weight = torch.ones_like(targets) if batch.weight is None else batch.weight.double().expand_as(targets)
    return weight * targets, weight * (1 - targets)


def _weigh_tables(batch: Batch, times: Tensor) -> ScoreTables:
    """Return the score tables of rows that count ``times`` times, ``(R, N)``: one for all replicates."""
    scores = batch.logits.double()
    positives, negatives = _weigh_sides(batch)
    of_classes = zip(scores.unbind(1), positives.unbind(1), negatives.unbind(1), strict=True)
    tables = [ScoreTable(((own_scores, times * p, times * n),)) for own_scores, p, n in of_classes]
    return ScoreTables(tables, batch.logits.dtype, positives.new_zeros(4, len(tables)))


def _weigh_pairs(batch: Batch, times: Tensor, replicate: int, more: OneMoreRow | None, right: bool) -> PairTables:
    """Return the tables of pairs of classes when rows count ``times`` times, ``(N,)``, with one more row of each class.

    The added row has the highest score of its own class if it is decided right, the lowest if it is decided wrong.
    """
    weight = times.unsqueeze(1) if batch.weight is None else batch.weight * times.unsqueeze(1)
    if more is None:
        return PairTables.of(batch.reweighted(weight), None)
    classes = batch.logits.shape[1]
    is_highest = torch.eye(classes, dtype=torch.bool) == right
    added_scores = batch.logits.new_full((classes, classes), -torch.inf).masked_fill(is_highest, torch.inf)
    scores = torch.cat((batch.logits, added_scores))
    targets = torch.cat((batch.targets, torch.arange(classes)))
    weight = torch.cat((weight, more.positives[replicate].unsqueeze(1)))
    return PairTables.of(Batch(scores, targets, weight, None), None)


# Values of replicates


def replicate_values(draws: CellDraws | RowDraws, model: int, replicates: int, seed: int) -> tuple[Values, Values]:
    """Return a model's values, and their replicates ``(2, R, ...)``: with added rows wrong, and with added rows right.

    ``one_more_row`` says which rows are added.
    """
    tuned = draws.models[model].tuned
    metrics = draws.models[model].metrics
    if tuned is not None and isinstance(draws, RowDraws):
        return _replicate_tuned(draws, model, tuned, replicates, seed)
    values = draws.values(model, draws.multiplicity.unsqueeze(0))
    unit = draws.unit
    generator = seed_added_rows(seed)
    with_wrong: list[Values] = []
    with_right: list[Values] = []
    for times in draws.weights(replicates, seed):
        more = OneMoreRow.draw(metrics.over_classes, unit, len(draws.models), len(times), generator)
        with_wrong.append(draws.values(model, times, more, right=False))
        with_right.append(draws.values(model, times, more, right=True))
    drawn: Values = {}
    for name in values:
        wrong = torch.cat([part[name] for part in with_wrong])
        right = torch.cat([part[name] for part in with_right])
        drawn[name] = torch.stack((wrong, right))
    return {name: value[0] for name, value in values.items()}, drawn


def _replicate_tuned(
    draws: RowDraws, model: int, tuned: TuningSpec, replicates: int, seed: int
) -> tuple[Values, Values]:
    """Return what to expect of a tuned rule on new data, and how that varies.

    The expected value is the mean out-of-bag value of rules tuned on resamples. It varies with the data to evaluate on
    (shown by the tuned rule in every replicate) and with the data to tune on (shown by every re-tuned rule on all
    rows). Percentiles of a rule on the data that it was tuned on cover the truth far too seldom: benchmarks/coverage.py
    simulates it.
    """
    problem = tuned.problem()
    batch = draws.models[model].batch
    tuned_metrics = draws.models[model].metrics.under(problem.solve(batch).rule)
    # As many models as are compared, since these share the added row.
    fixed_models = [EvaluatedModel(tuned_metrics, batch)] * len(draws.models)
    fixed = RowDraws(fixed_models, draws.units, draws.group_of_row)
    apparent, evaluated = replicate_values(fixed, 0, replicates, seed)
    on_all_rows: list[Values] = []
    on_left_out: list[Values] = []
    for times in draws.draws(replicates, seed):
        for times_of_rows in draws.spread_over_rows(times):
            metrics = tuned_metrics.under(problem.tune_on_drawn_rows(batch, times_of_rows))
            on_all_rows.append(metrics.evaluate(batch))
            left_out = batch.take(times_of_rows == 0)
            if hard_counts.has_weight(left_out):
                on_left_out.append(metrics.evaluate(left_out))
    paired = len(draws.models) > 1
    expected: Values = {}
    drawn: Values = {}
    for name in apparent:
        retuned = torch.stack([values[name] for values in on_all_rows])
        nothing = torch.full_like(retuned[0], torch.nan)  # the mean if no replicate leaves anything out
        expected[name] = torch.stack([nothing, *(values[name] for values in on_left_out)]).nanmean(0)
        # The expected value is too low, since rules of resamples are tuned on fewer different rows; the apparent one is
        # too high, since the rule was tuned on these rows. The truth is in between: the lower end of the interval is
        # around the former, the upper end around the latter. Of a difference of two models, which are both tuned, both
        # ends are around the expected one.
        centre_with_right = expected[name] if paired else apparent[name]
        centre = torch.stack((expected[name], centre_with_right)).unsqueeze(1)
        drawn[name] = centre + evaluated[name] - apparent[name] + retuned - retuned.mean(0)
    return expected, drawn


def exchange_predictions(draws: CellDraws | RowDraws, replicates: int, seed: int) -> Values:
    """Return the differences of two models when each unit's two predictions are exchanged with probability ½."""
    generator = torch.Generator().manual_seed(seed + 1)
    metrics = draws.models[0].metrics
    differences: dict[str, list[Tensor]] = {}
    whole = draws.multiplicity
    at_once = max(1, _EXCHANGES_AT_ONCE // max(1, len(whole)))
    for start in range(0, replicates, at_once):
        times = whole.expand(min(at_once, replicates - start), -1).contiguous()
        swapped = torch.binomial(times, torch.full_like(times, 0.5), generator=generator)
        kept = times - swapped
        first = metrics.values(_add_statistics(draws.statistics(0, kept), draws.statistics(1, swapped)))
        second = metrics.values(_add_statistics(draws.statistics(1, kept), draws.statistics(0, swapped)))
        for name in first:
            differences.setdefault(name, []).append(first[name] - second[name])
    return {name: torch.cat(parts) for name, parts in differences.items()}


def _add_statistics(one: Statistics, two: Statistics) -> Statistics:
    return {name: one[name] + two[name] for name in one}
