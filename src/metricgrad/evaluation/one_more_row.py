"""One more row that goes wrong, or right: what keeps intervals honest where there are few positives.

Replicates weigh the rows at random [rubin1981], and no weights turn five hits of five into a miss. So the lower end of
an interval is that of replicates with one more positive that is missed and one more negative that is taken for a
positive; the upper end that of replicates with one more of each that is right. For a rate this is the exact interval of
Clopper and Pearson [clopper1934], for the mean of numbers between known limits that of Gaffke [gaffke2005]. Among many
rows, one more hardly counts.

Statistics add up, so the rows are added as statistics and need no scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.core.counts import Confusion, Counts, Mean
from metricgrad.evaluation.score_metrics import AtK
from metricgrad.evaluation.score_tables import ScoreTable, ScoreTables

if TYPE_CHECKING:
    from metricgrad.core.objective import Objective
    from metricgrad.evaluation.metric_set import MetricSet, Statistics


@dataclass(frozen=True, eq=False)
class UnitWeight:
    """What one unit (a row, or a group of rows) weighs among its like.

    ``positives``, ``negatives``: of each class, ``(K,)``. ``rows``: as a whole. A class without positives has none to
    come, so that it keeps the value that an average gives it; negatives may always come.
    """

    positives: Tensor
    negatives: Tensor
    rows: Tensor

    @classmethod
    def from_plain_rows(cls, positives: Tensor) -> UnitWeight:
        """Return that of rows without weights and groups; ``positives``: how many there are, ``(K,)``."""
        one = torch.ones_like(positives)
        return cls((positives > 0).double(), one, one[:1])

    @classmethod
    def from_weights(cls, positives: Tensor, negatives: Tensor) -> UnitWeight:
        """Return that of units with these weights, ``(units, K)``."""
        of_rows = _find_typical_weight((positives + negatives).mean(1, keepdim=True))
        of_positives = _find_typical_weight(positives)
        of_negatives = _find_typical_weight(negatives)
        return cls(of_positives, torch.where(of_negatives > 0, of_negatives, of_rows), of_rows)


def _find_typical_weight(weights: Tensor) -> Tensor:
    """Return Σw² / Σw, 0 without any: as many units of this weight as make up Σw vary as much as the units do."""
    total = weights.sum(0)
    return torch.where(total > 0, (weights**2).sum(0) / total, 0.0)


@dataclass(frozen=True, eq=False)
class OneMoreRow:
    """The weights, in each replicate, of one more positive and one more negative of each class, and of a whole row.

    ``positives``, ``negatives``: ``(replicates, K)``. ``rows``: ``(replicates,)``.
    """

    positives: Tensor
    negatives: Tensor
    rows: Tensor

    @classmethod
    def draw(
        cls, over: Objective, unit: UnitWeight, models: int, replicates: int, generator: torch.Generator
    ) -> OneMoreRow:
        """Draw the weights: those of one unit for each class that has an interval of its own, less for an average.

        An average over K classes varies by 1/√K of what one class does, and one more row of each should move it by as
        much of what it moves one class: so their weights are 1/√K. Of two models, one of which is wrong where the other
        is right, each has half of the row.
        """
        classes = len(unit.positives)
        averaged_classes = classes if over.labels is None else len(over.labels)
        share = (1.0 if over.average == "per-class" else averaged_classes**-0.5) / models
        drawn = torch.empty(replicates, 2 * classes + 1, dtype=torch.float64).exponential_(generator=generator)
        positives, negatives, rows = drawn.split((classes, classes, 1), 1)
        return cls(
            positives=share * positives * unit.positives,
            negatives=share * negatives * unit.negatives,
            rows=rows.squeeze(1) * unit.rows / models,
        )

    def take_replicates(self, replicates: slice) -> OneMoreRow:
        """Return the weights in some replicates."""
        return OneMoreRow(self.positives[replicates], self.negatives[replicates], self.rows[replicates])

    def add(self, metrics: MetricSet, statistics: Statistics, right: bool) -> Statistics:
        """Return the statistics of replicates with the rows added, decided right or wrong."""
        found: Statistics = {}
        for name, statistic in statistics.items():
            if isinstance(statistic, Confusion):
                matrix = self._make_matrix(right)
                undecided = statistic.matrix.shape[-1] - matrix.shape[-1]
                found[name] = statistic + Confusion(F.pad(matrix, (0, undecided, 0, undecided)))
            elif isinstance(statistic, Counts):
                found[name] = statistic + self._make_counts(right)
            elif isinstance(statistic, Mean):
                value = _evaluate_row(metrics.objectives[name], right)
                found[name] = statistic + Mean(self.rows * value, self.rows)
            elif isinstance(statistic, ScoreTables):
                found[name] = statistic + self._make_tables(statistic, right)
            else:
                found[name] = self._add_sums(metrics.score_metrics[name], statistic, right)
        return found

    def _make_counts(self, right: bool) -> Counts:
        none = torch.zeros_like(self.positives)
        if right:
            return Counts(self.positives, none, none, self.negatives)
        return Counts(none, self.negatives, self.positives, none)

    def _make_matrix(self, right: bool) -> Tensor:
        """Return the rows as a d×d matrix; what is wrong is taken for each of the other classes alike."""
        classes = self.positives.shape[-1]
        own = torch.eye(classes, dtype=torch.float64)
        shares = own if right else (1 - own) / max(1, classes - 1)
        return self.positives.unsqueeze(-1) * shares

    def _make_tables(self, like: ScoreTables, right: bool) -> ScoreTables:
        """Return the rows as score tables; what is right is at its end of all scores."""
        ends = torch.tensor([torch.inf, -torch.inf], dtype=torch.float64)
        tables = []
        for positive, negative in zip(self.positives.unbind(1), self.negatives.unbind(1), strict=True):
            none = torch.zeros_like(positive)
            # At the upper end, and at the lower one.
            positive_at_ends = torch.stack((positive, none) if right else (none, positive), -1)
            negative_at_ends = torch.stack((none, negative) if right else (negative, none), -1)
            tables.append(ScoreTable(((ends, positive_at_ends, negative_at_ends),), like.bits))
        return ScoreTables(tables, like.dtype, torch.zeros_like(like.totals))

    def _add_sums(self, metric: Any, sums: Tensor, right: bool) -> Tensor:
        if isinstance(metric, AtK):
            return sums + torch.stack(self._make_counts(right).cells(), -2)
        value = metric.best if right else metric.worst
        if value is None:
            return sums
        value_and_weight: Tensor = torch.stack((self.rows * value, self.rows), -1).unsqueeze(-1)
        return sums + value_and_weight


def seed_added_rows(seed: int) -> torch.Generator:
    """Return what draws the weights of the rows to add, apart from those of the rows that are there."""
    return torch.Generator().manual_seed(seed + 2)


def _evaluate_row(objective: Objective, right: bool) -> Tensor:
    """Return the metric of a row with a positive and a negative, both decided right or both wrong."""
    one = torch.ones(1, dtype=torch.float64)
    none = torch.zeros(1, dtype=torch.float64)
    cells = Counts(one, none, none, one) if right else Counts(none, one, one, none)
    return objective.values(cells)
