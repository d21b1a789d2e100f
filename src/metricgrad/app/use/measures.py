"""What ``evaluate`` needs of labelled rows, as sums: the measures of parts of the data add up to those of the whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from metricgrad.app.runs.trained_rows import Seen
from metricgrad.app.study.protocol import ConstraintValue, choose_constraint_average, evaluate_constraint
from metricgrad.app.tables.gaps import Gaps
from metricgrad.app.use.drift import CellCounts, count_cells
from metricgrad.counts import Confusion, Counts
from metricgrad.decisions.resampling import of_cells
from metricgrad.engine.batch import check_task
from metricgrad.evaluation.metric_set import MetricSet, Statistics, Values
from metricgrad.evaluation.replicates import Model as Replicated
from metricgrad.evaluation.replicates import RowDraws
from metricgrad.evaluation.score_tables import ScoreTable, ScoreTables
from metricgrad.metrics.constraints import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.app.report.sections.evaluation import Value
    from metricgrad.app.runs.model import Model
    from metricgrad.app.use.checks import Labelled
    from metricgrad.metrics.averages import Absent

SORTED_SCORES = 20_000_000
"""The most scores to sort in the replicates of ranking metrics: a few seconds."""

_DRAWS = 1 << 22  # the most numbers to draw at once


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


def choose_absent(task: str) -> Absent:
    """Return what averages over classes do with one that has no rows in the new data: they leave it out.

    Its value is not known. Of two classes there is no average.
    """
    return "count" if task == "binary" else "skip"


def _add(one: Statistics, two: Statistics) -> Statistics:
    return {name: one[name] + two[name] for name in one}


class Judge:
    """Measures rows scored by a model, and turns measures into values."""

    def __init__(self, model: Model, names: Sequence[str]) -> None:
        self.model, goal = model, model.goal
        task = check_task(model.schema.task)
        absent = choose_absent(task)
        plain: dict[str, Any] = {"threshold": 0.5, "labels": None, "absent": absent, "ignore_index": None}
        under_rule = {"task": task, "rule": model.rule, **plain}
        self.metrics = MetricSet(list(names), average=goal.average, **under_rule)
        each = ["precision", "recall", "f1"]
        self._classes = MetricSet(each, task="multilabel", rule=None, average=None, **plain)
        self._limits = parse(goal.subject_to)
        average = choose_constraint_average(goal)
        self._constraints = [MetricSet({"": limit.metric}, average=average, **under_rule) for limit in self._limits]

    def measure(self, rows: Labelled) -> Measures:
        """Return the measures of labelled rows."""
        scores, targets = rows.scores, rows.targets
        names, multilabel = self.model.schema.classes, self.model.schema.task == "multilabel"
        decided = self.model.decide(scores)
        if multilabel:
            one_hot, balance = targets, targets.sum(0)
        else:
            decided, one_hot = (np.eye(len(names), dtype=int)[one] for one in (decided, targets))
            balance = np.bincount(targets, minlength=len(names))
        return Measures(
            len(targets),
            self.metrics.statistics(self.metrics.prepare(scores, targets, None, None)),
            self._classes.statistics(self._classes.prepare(decided.astype(float), one_hot, None, None)),
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
        return [evaluate_constraint(limit, metrics.values(sums)[""]) for limit, metrics, sums in parts]

    # Bootstrap intervals from sums: see ``find_intervals``

    def draw_replicates(
        self, scores: np.ndarray, targets: np.ndarray, replicates: int, generator: torch.Generator
    ) -> Statistics:
        """Return the statistics of rows in every replicate, each row drawn as often as a Poisson number of mean 1 says.

        Empty unless the task is multi-label or a metric needs more of a row than its cell: otherwise replicates can be
        drawn from the sums of all parts.
        """
        found: Statistics = {}
        if self.metrics.score_metrics or (self.metrics.task == "multilabel" and self.metrics.objectives):
            some = max(1, _DRAWS // replicates)
            for start in range(0, len(scores), some):
                rows = slice(start, start + some)
                batch = self.metrics.prepare_rows(scores[rows], targets[rows], None, None)
                times = torch.poisson(torch.ones(replicates, len(batch.logits), dtype=torch.float64), generator)
                draws = RowDraws([Replicated(self.metrics, batch)], len(batch.logits), None)
                drawn = draws.statistics(0, times)
                found = _add(found, drawn) if found else drawn
        return found

    def find_intervals(self, measures: Measures, replicates: int, confidence: float, seed: int) -> dict[str, Value]:
        """Return {metric: value and the ends of its bootstrap interval}, from sums alone.

        Where rows fall into few cells, drawing the cells is drawing the rows: the interval is that of
        ``mg.bootstrap``. Where they do not, as with several labels, every part has drawn its own rows, Poisson numbers
        of times [chamandy2012]. A ranking of several classes has no interval: their scores would have to be drawn
        together.
        """
        metrics, generator = self.metrics, torch.Generator().manual_seed(seed)
        drawn: Values = {}
        statistics = measures.replicates
        if metrics.objectives and not statistics:
            statistics = _draw_cells(measures.metrics["cells"], replicates, generator)
        if statistics:
            drawn |= metrics.values(statistics)
        if metrics.ranking and metrics.task == "binary":
            drawn |= self._draw_rankings(measures.metrics["scores"], replicates, generator)
        found: dict[str, Value] = {}
        for name, value in metrics.values(measures.metrics).items():
            low = high = None
            if name in drawn:
                tail = (1 - confidence) / 2
                low, high = torch.nanquantile(drawn[name], drawn[name].new_tensor([tail, 1 - tail])).tolist()
            found[name] = {"value": value.item(), "low": low, "high": high}
        return found

    def _draw_rankings(self, scores: ScoreTables, replicates: int, generator: torch.Generator) -> Values:
        distinct, positives, negatives = scores.tables[0].whole()
        number = min(replicates, max(50, SORTED_SCORES // max(1, len(distinct))))
        each = []
        for _ in range(number):
            table = ScoreTable(((distinct, torch.poisson(positives, generator), torch.poisson(negatives, generator)),))
            each.append(self.metrics.ranking_values({"scores": ScoreTables([table], scores.dtype, scores.totals)}))
        return {name: torch.stack([one[name] for one in each]) for name in self.metrics.ranking}


def _draw_cells(cells: Any, replicates: int, generator: torch.Generator) -> Statistics:
    """Return the statistics of replicates, drawn from the cells of all rows as ``mg.bootstrap`` does."""
    if isinstance(cells, Confusion):
        times = of_cells(cells.matrix.flatten(), replicates, generator)
        return {"cells": Confusion(times.reshape(replicates, *cells.matrix.shape))}
    times = of_cells(torch.cat((cells.tn, cells.fp, cells.fn, cells.tp)), replicates, generator)
    tn, fp, fn, tp = times.reshape(replicates, 4, 1).unbind(1)
    return {"cells": Counts(tp, fp, fn, tn)}
