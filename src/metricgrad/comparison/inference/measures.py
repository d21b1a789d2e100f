"""What ``evaluate`` needs of labelled rows, as sums: the measures of parts of the data add up to those of the whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch

from metricgrad.comparison.inference.drift import CellCounts, count_cells
from metricgrad.comparison.protocol import (
    ConstraintValue,
    choose_constraint_average,
    choose_constraint_metrics,
    evaluate_constraint,
)
from metricgrad.comparison.tables.gaps import Gaps
from metricgrad.comparison.trained_rows import Seen
from metricgrad.core.batch import check_task
from metricgrad.core.counts import Confusion, Counts
from metricgrad.core.metrics.constraints import parse
from metricgrad.decisions.resampling import weigh_cells
from metricgrad.evaluation.interval_ends import TooFewPositivesError, check_positives, find_ends
from metricgrad.evaluation.metric_set import MetricSet, Statistics, Values
from metricgrad.evaluation.one_more_row import OneMoreRow, UnitWeight, seed_added_rows
from metricgrad.evaluation.replicates import EvaluatedModel, RowDraws
from metricgrad.evaluation.score_tables import ScoreTable, ScoreTables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.inference.row_checks import Labelled
    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.core.metrics.averages import EmptyClasses

MOST_SORTED_SCORES = 20_000_000
"""The most scores to sort in the replicates of ranking metrics: a few seconds."""

TOO_FEW = "too few positives for an interval"
"""What stands in the place of an interval."""

_MOST_DRAWS = 1 << 22  # the most numbers to draw at once


class MetricValue(TypedDict):
    """A metric on the new rows, and its bootstrap interval."""

    value: float | None
    low: float | None
    high: float | None
    note: str | None  # why there is no interval


@dataclass
class Measures:
    """The sums of some rows; they add with ``+=``.

    ``metrics``, ``classes``, ``constraints``: the statistics of the metrics, of each class, and of each constraint.
    ``balance``: rows of each class or label. ``columns``: counts of cells, for drift. ``replicates``: the statistics of
    the metrics in every bootstrap replicate, where these cannot be drawn from the sums. ``gaps``: cells that the model
    cannot use. ``seen``: rows that it was trained on. ``unlabelled``: rows with an empty list of labels.
    """

    rows: int = 0
    metrics: Statistics = field(default_factory=dict)
    classes: Statistics = field(default_factory=dict)
    constraints: list[Statistics] = field(default_factory=list)
    balance: np.ndarray | int = 0
    columns: list[CellCounts] = field(default_factory=list)
    replicates: Statistics = field(default_factory=dict)
    gaps: Gaps = field(default_factory=Gaps)
    seen: Seen = field(default_factory=Seen)
    unlabelled: int = 0

    def __iadd__(self, other: Measures) -> Measures:
        if not other.rows or not self.rows:
            return other if other.rows else self
        return Measures(
            self.rows + other.rows,
            _add(self.metrics, other.metrics),
            _add(self.classes, other.classes),
            [_add(*both) for both in zip(self.constraints, other.constraints, strict=True)],
            self.balance + other.balance,
            [mine + its for mine, its in zip(self.columns, other.columns, strict=True)],
            _add(self.replicates, other.replicates),
            self.gaps + other.gaps,
            self.seen + other.seen,
            self.unlabelled + other.unlabelled,
        )


def choose_empty_classes(task: str) -> EmptyClasses:
    """Return whether averages over classes skip those without rows in the new data: their value is not known.

    A binary task has no average.
    """
    return "count" if task == "binary" else "skip"


def _add(one: Statistics, two: Statistics) -> Statistics:
    return {name: one[name] + two[name] for name in one}


class RowMeasurer:
    """Measures rows scored by a model, and turns measures into values."""

    def __init__(self, model: ShippedModel, names: Sequence[str]) -> None:
        self.model = model
        goal = model.goal
        task = check_task(model.schema.task)
        empty_classes = choose_empty_classes(task)
        plain: dict[str, Any] = {"threshold": 0.5, "labels": None, "empty_classes": empty_classes, "ignore_index": None}
        under_rule = {"task": task, "rule": model.rule, **plain}
        self.metrics = MetricSet(list(names), average=goal.average, **under_rule)
        each = ["precision", "recall", "f1"]
        self._classes = MetricSet(each, task="multilabel", rule=None, average=None, **plain)
        self._limits = parse(goal.subject_to)
        average = choose_constraint_average(goal)
        self._constraints = [
            MetricSet(choose_constraint_metrics(limit), average=average, **under_rule) for limit in self._limits
        ]

    def measure(self, rows: Labelled) -> Measures:
        """Return the measures of labelled rows."""
        scores = rows.scores
        targets = rows.targets
        names = self.model.schema.classes
        multilabel = self.model.schema.task == "multilabel"
        decided = self.model.decide(scores)
        if multilabel:
            one_hot = targets
            balance = targets.sum(0)
        else:
            # An undecided row is in no class.
            decided, one_hot = (one[:, None] == np.arange(len(names)) for one in (decided, targets))
            balance = np.bincount(targets, minlength=len(names))
        return Measures(
            len(targets),
            self.metrics.statistics(self.metrics.prepare(scores, targets, None, None)),
            self._classes.statistics(self._classes.prepare(decided.astype(float), one_hot.astype(int), None, None)),
            [one.statistics(one.prepare(scores, targets, None, None)) for one in self._constraints],
            balance,
            count_cells(rows.frame, self.model.schema),
            gaps=rows.gaps,
            seen=rows.seen,
            unlabelled=rows.unlabelled,
        )

    def evaluate_classes(self, measures: Measures) -> list[dict[str, Any]]:
        """Return precision, recall and F1 of each class."""
        each = {metric: values.tolist() for metric, values in self._classes.values(measures.classes).items()}
        counts = np.asarray(measures.balance).tolist()
        return [
            {"name": name, "rows": counts[k]} | {metric: values[k] for metric, values in each.items()}
            for k, name in enumerate(self.model.schema.classes)
        ]

    def evaluate_constraints(self, measures: Measures) -> list[ConstraintValue]:
        """Return the value of each constraint, and whether it is met."""
        parts = zip(self._limits, self._constraints, measures.constraints, strict=True)
        goal = self.model.goal
        return [evaluate_constraint(goal, limit, metrics.values(sums)) for limit, metrics, sums in parts]

    def measure_coverage(self, measures: Measures) -> float | None:
        """Return the share of the rows that are decided; None for a rule that decides all."""
        if not self.model.rule.abstains:
            return None
        return (measures.classes["cells"].predicted.sum() / measures.rows).item()  # type: ignore[no-any-return]

    # Bootstrap intervals from sums: see ``find_intervals``

    def draw_replicates(
        self, scores: np.ndarray, targets: np.ndarray, replicates: int, generator: torch.Generator
    ) -> Statistics:
        """Return the statistics of rows in every replicate, in which each row has a weight of its own.

        Empty unless the task is multi-label or a metric needs more of a row than its cell: otherwise replicates can be
        drawn from the sums of all parts.
        """
        found: Statistics = {}
        if self.metrics.score_metrics or (self.metrics.task == "multilabel" and self.metrics.objectives):
            some = max(1, _MOST_DRAWS // replicates)
            for start in range(0, len(scores), some):
                rows = slice(start, start + some)
                batch = self.metrics.prepare_rows(scores[rows], targets[rows], None, None)
                weights = torch.empty(replicates, len(batch.logits), dtype=torch.float64)
                weights.exponential_(generator=generator)
                draws = RowDraws([EvaluatedModel(self.metrics, batch)], len(batch.logits), None)
                drawn = draws.statistics(0, weights)
                found = _add(found, drawn) if found else drawn
        return found

    def find_intervals(
        self, measures: Measures, replicates: int, confidence: float, seed: int
    ) -> dict[str, MetricValue]:
        """Return {metric: value, the ends of its interval or None, and a note if there is none}, from sums alone.

        The intervals are those of ``mg.bootstrap``. Where rows fall into few cells, weighing the cells is weighing the
        rows. Where they do not, as with several labels, every part has weighed its own rows. A ranking of several
        classes has no interval: their scores would have to be weighed together.
        """
        metrics = self.metrics
        ends = {}
        note = None
        try:
            check_positives(metrics, self._count_positives(measures))
        except TooFewPositivesError:
            note = TOO_FEW
        else:
            drawn = self._replicate(measures, replicates, seed)
            ends = {name: find_ends(both, confidence) for name, both in drawn.items()}
        found: dict[str, MetricValue] = {}
        for name, value in metrics.values(measures.metrics).items():
            low, high = (end.item() for end in ends[name]) if name in ends else (None, None)
            found[name] = {"value": value.item(), "low": low, "high": high, "note": note}
        return found

    def _count_positives(self, measures: Measures) -> torch.Tensor:
        """Return the positives of each class, one class for a binary task."""
        counts = torch.as_tensor(np.asarray(measures.balance), dtype=torch.float64)
        return counts[1:] if self.metrics.task == "binary" else counts

    def _replicate(self, measures: Measures, replicates: int, seed: int) -> Values:
        """Return the replicates of each metric that has them, ``(2, R)``, as ``evaluation.replicates`` does."""
        metrics = self.metrics
        positives = self._count_positives(measures)
        unit = UnitWeight.from_plain_rows(positives)
        generator = torch.Generator().manual_seed(seed)
        drawn: Values = {}
        statistics = measures.replicates
        if metrics.objectives and not statistics:
            statistics = _weigh_cells(measures.metrics["cells"], replicates, generator)
        if statistics:
            more = OneMoreRow.draw(metrics.over_classes, unit, 1, replicates, seed_added_rows(seed))
            both = [metrics.values(more.add(metrics, statistics, right)) for right in (False, True)]
            drawn |= {name: torch.stack([one[name] for one in both]) for name in both[0]}
        if metrics.ranking and metrics.task == "binary":
            drawn |= self._replicate_rankings(measures.metrics["scores"], unit, replicates, generator)
        return drawn

    def _replicate_rankings(
        self, scores: ScoreTables, unit: UnitWeight, replicates: int, generator: torch.Generator
    ) -> Values:
        distinct, positives, negatives = scores.tables[0].join_parts()
        number = min(replicates, max(50, MOST_SORTED_SCORES // max(1, len(distinct))))
        some = max(1, _MOST_DRAWS // max(1, len(distinct)))
        both: list[list[Values]] = [[], []]
        for start in range(0, number, some):
            size = min(some, number - start)
            weights = (weigh_cells(side, size, generator) for side in (positives, negatives))
            table = ScoreTable(((distinct, *weights),))  # type: ignore[arg-type]
            statistics: Statistics = {"scores": ScoreTables([table], scores.dtype, scores.totals)}
            more = OneMoreRow.draw(self.metrics.over_classes, unit, 1, size, generator)
            for right, found in enumerate(both):
                found.append(self.metrics.ranking_values(more.add(self.metrics, statistics, bool(right))))
        return {
            name: torch.stack([torch.cat([one[name] for one in found]) for found in both])
            for name in self.metrics.ranking
        }


def _weigh_cells(cells: Any, replicates: int, generator: torch.Generator) -> Statistics:
    """Return the statistics of replicates, from the cells of all rows."""
    if isinstance(cells, Confusion):
        weights = weigh_cells(cells.matrix.flatten(), replicates, generator)
        return {"cells": Confusion(weights.reshape(replicates, *cells.matrix.shape))}
    weights = weigh_cells(torch.cat((cells.tn, cells.fp, cells.fn, cells.tp)), replicates, generator)
    tn, fp, fn, tp = weights.reshape(replicates, 4, 1).unbind(1)
    return {"cells": Counts(tp, fp, fn, tn)}
