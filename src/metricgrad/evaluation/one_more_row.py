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
    """What one typical unit, a row or a group of rows, weighs.

    ``positives``, ``negatives``: in each class, ``(K,)``. ``rows``: in all. For a class without positives none is
    added, so that it keeps the value that averages give it; negatives are always added.
    """

    positives: Tensor
    negatives: Tensor
    rows: Tensor

    @classmethod
    def from_plain_rows(cls, positives: Tensor) -> UnitWeight:
        """Return the weights for rows without weights and groups; ``positives``: how many there are, ``(K,)``."""
        one = torch.ones_like(positives)
        return cls((positives > 0).double(), one, one[:1])

    @classmethod
    def from_weights(cls, positives: Tensor, negatives: Tensor) -> UnitWeight:
        """Return the typical weights of units with these weights, ``(units, K)``."""
        of_rows = _find_typical_weight((positives + negatives).mean(1, keepdim=True))
        of_positives = _find_typical_weight(positives)
        of_negatives = _find_typical_weight(negatives)
        return cls(of_positives, torch.where(of_negatives > 0, of_negatives, of_rows), of_rows)


def _find_typical_weight(weights: Tensor) -> Tensor:
    """Return Σw² / Σw, or 0 if all are 0: with units of this equal weight, a total of Σw has the same variance."""
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
        """Draw the weights: a whole unit for each class that has its own interval, less if classes are averaged.

        An average over K classes varies 1/√K times as much as one class, so the rows that are added to all classes
        should move it 1/√K times as much as one row moves one class: each weighs 1/√K. Two models share the row, since
        one is wrong where the other is right: each gets half.
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
        """Return the rows as a d×d matrix; a wrong row is spread evenly over the other classes."""
        classes = self.positives.shape[-1]
        own = torch.eye(classes, dtype=torch.float64)
        shares = own if right else (1 - own) / max(1, classes - 1)
        return self.positives.unsqueeze(-1) * shares

    def _make_tables(self, like: ScoreTables, right: bool) -> ScoreTables:
        """Return the rows as score tables: right positives and wrong negatives at the score ∞, the others at −∞."""
        ends = torch.tensor([torch.inf, -torch.inf], dtype=torch.float64)
        tables = []
        for positive, negative in zip(self.positives.unbind(1), self.negatives.unbind(1), strict=True):
            none = torch.zeros_like(positive)
            # The weights at the scores ∞ and −∞.
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
    """Return the generator of the weights of added rows, apart from that of the weights of the data's own rows."""
    return torch.Generator().manual_seed(seed + 2)


def _evaluate_row(objective: Objective, right: bool) -> Tensor:
    """Return the metric of a row with a positive and a negative, both decided right or both wrong."""
    one = torch.ones(1, dtype=torch.float64)
    none = torch.zeros(1, dtype=torch.float64)
    cells = Counts(one, none, none, one) if right else Counts(none, one, one, none)
    return objective.values(cells)
