"""What a selection maximises: the metric under a rule that is given, or under the one that is best for the scores.

The exact best threshold of many rows takes a sort. For a metric that rises with TP and falls with FP most of it can be
left out: counts in a few thousand bins bound what any threshold within a bin reaches, and only the rows of bins that
might hold the best are sorted; none if another candidate is better than all bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.core import curves
from metricgrad.core.batch import Batch
from metricgrad.core.counts import cells, least_weight
from metricgrad.core.metrics.averages import class_weights, mean_over_classes
from metricgrad.core.metrics.properties import properties_of
from metricgrad.core.metrics.registry import count_values
from metricgrad.decisions import threshold_search
from metricgrad.decisions.problem import InfeasibleError

if TYPE_CHECKING:
    from metricgrad.decisions.problem import Problem
    from metricgrad.decisions.rules import Rule

SelectBy = Literal["auto", "metric", "average-precision", "log-loss"]

LEAST_PROBABILITY = 1e-6
"""The log-loss of less is that of this much: one row must not outweigh all others."""

BINS = 4096
"""Bins of scores."""


class Criterion(Protocol):
    """How good scores ``(N, K)`` are."""

    def value(self, scores: Tensor, enough: float = -torch.inf) -> float:
        """Return the value to maximise; −∞ if no rule is allowed. One below ``enough`` may be any such number."""

    def settle(self, scores: Tensor, size: int) -> None:
        """Take note of the mean of the scores chosen so far, and of how many they are."""


def criterion_for(by: SelectBy, problem: Problem, batch: Batch, rule: Rule | None) -> Criterion:
    """Return the criterion of a name on given rows; ``rule`` is None if it is to be tuned."""
    if by == "log-loss":
        return LogLoss(batch)
    if by == "average-precision":
        return AveragePrecision(batch)
    if rule is not None:
        return AtRule(problem, batch, rule)
    if problem.objective.task == "multiclass":
        return AtOffsets(problem, batch)
    if problem.shared or problem.constraints:
        return AtSolution(problem, batch)
    return AtBestThresholds(problem, batch)


def with_scores(batch: Batch, scores: Tensor) -> Batch:
    """Return the rows with other scores."""
    return Batch(scores, batch.targets, batch.weight, batch.mask)


class Steady:
    """A criterion that does not depend on what was chosen before."""

    def settle(self, scores: Tensor, size: int) -> None:
        """Do nothing."""


# The metric


@dataclass(frozen=True, eq=False)
class AtRule(Steady):
    """The metric under a rule that is given."""

    problem: Problem
    batch: Batch
    rule: Rule

    def value(self, scores: Tensor, enough: float = -torch.inf) -> float:
        return _number(self.problem.value(with_scores(self.batch, scores), self.rule))


@dataclass(frozen=True, eq=False)
class AtSolution(Steady):
    """The metric under the best rule that the solver finds."""

    problem: Problem
    batch: Batch

    def value(self, scores: Tensor, enough: float = -torch.inf) -> float:
        batch = with_scores(self.batch, scores)
        try:
            return _number(self.problem.value(batch, self.problem.solve(batch).rule))
        except InfeasibleError:
            return -torch.inf


class AtOffsets:
    """The metric of several classes at the offsets tuned for what was chosen so far; at their own while nothing was.

    A search of offsets takes too long for every candidate in every round. They are tuned anew after rounds 1, 2, 4, 8,
    …, since the mean moves less and less.
    """

    def __init__(self, problem: Problem, batch: Batch) -> None:
        self.problem, self.batch = problem, batch
        self.rule: Rule | None = None

    def value(self, scores: Tensor, enough: float = -torch.inf) -> float:
        batch = with_scores(self.batch, scores)
        return self._value(batch, self.problem.solve(batch).rule if self.rule is None else self.rule)

    def settle(self, scores: Tensor, size: int) -> None:
        if size & (size - 1):
            return
        batch = with_scores(self.batch, scores)
        found = self.problem.solve(batch).rule
        if self.rule is None or self._value(batch, found) > self._value(batch, self.rule):
            self.rule = found

    def _value(self, batch: Batch, rule: Rule) -> float:
        return _number(self.problem.value(batch, rule))


class AtBestThresholds(Steady):
    """The metric at the exact threshold of every label: the highest value of each label's curve."""

    def __init__(self, problem: Problem, batch: Batch) -> None:
        self.objective = problem.objective
        y = batch.targets.double()
        w = torch.ones_like(y) if batch.weight is None else batch.weight.double().expand_as(y)
        # By label, contiguous: positives, then negatives.
        self.sides = (w * y).t().contiguous(), (w * (1 - y)).t().contiguous()
        self.totals = self.sides[0].sum(1, keepdim=True), self.sides[1].sum(1, keepdim=True)
        # Counts are cumulated in the order of the scores, and by bins: both are rounded otherwise than the totals.
        self.least = least_weight(*self.sides)
        average = "macro" if self.objective.average == "per-class" else self.objective.average
        self.weights = class_weights(average, self.totals[0].squeeze(1))
        metric = self.objective.metric
        monotone = properties_of(metric).rewards_right_decisions and not count_values(metric)
        self.by_bins = len(y) > 2 * BINS and monotone

    def value(self, scores: Tensor, enough: float = -torch.inf) -> float:
        s = scores.t().contiguous()
        if not self.by_bins:
            best = self._highest(s, *self.sides)
        else:
            alone = enough if len(s) == 1 else -torch.inf
            best = torch.stack([self._highest_by_bins(k, row, alone) for k, row in enumerate(s)])
        return _number(mean_over_classes(best, self.weights))

    def _highest(self, s: Tensor, wy: Tensor, wn: Tensor) -> Tensor:
        """Return the highest value of each label's curve."""
        s, order = s.sort(1, descending=True) if len(s) > 1 else (x.unsqueeze(0) for x in curves.descending(s[0]))
        start = s.new_zeros(len(s), 1)
        tp, fp = (torch.cat((start, w.gather(1, order).cumsum(1)), 1) for w in (wy, wn))
        values = self._values(tp, fp)
        # A threshold is passed by all of equal scores or by none, and by what scores ∞ in any case.
        between = torch.cat((s[:, :1] == torch.inf, s[:, 1:] == s[:, :-1], start > 0), 1)
        return values.masked_fill(between, -torch.inf).amax(1)

    def _highest_by_bins(self, k: int, s: Tensor, enough: float) -> Tensor:
        """Return the highest value of a label's curve; some other below ``enough``, if it is below that."""
        wy, wn = (side[k] for side in self.sides)
        low, high = torch.aminmax(s)
        scale = (BINS - 1) / (high - low)
        if not scale.isfinite():
            return self._highest(s.unsqueeze(0), wy.unsqueeze(0), wn.unsqueeze(0))[0]
        # Bin 0 holds the highest scores. Where a score falls is monotone, rounded or not.
        bins = ((high - s) * scale).long()
        start = s.new_zeros(1)
        tp, fp = (torch.cat((start, torch.bincount(bins, w, BINS).cumsum(0))) for w in (wy, wn))
        at_edges = self._values(tp.unsqueeze(0), fp.unsqueeze(0), k)[0].max()
        bounds = self._values(tp[1:].unsqueeze(0), fp[:-1].unsqueeze(0), k)[0]
        # Sums are rounded in another order here: what comes that near may be better.
        best = max(at_edges.item(), enough)
        near = best - 1e-9 * max(1.0, abs(best))
        hopeful = (bounds >= near) & (tp.diff() + fp.diff() > 0)
        rows = hopeful.gather(0, bins).nonzero().squeeze(1)
        if not len(rows):
            return at_edges
        inner, order = curves.descending(s.index_select(0, rows))
        rows = rows.index_select(0, order)
        inside = bins.index_select(0, rows)
        opens = torch.cat((inside.new_ones(1, dtype=torch.bool), inside[1:] != inside[:-1]))
        which = opens.cumsum(0) - 1
        sides = []
        for total, w in ((tp, wy.index_select(0, rows)), (fp, wn.index_select(0, rows))):
            passed = w.cumsum(0)
            before = (passed - w)[opens].index_select(0, which)
            sides.append(total.index_select(0, inside) + (passed - before))
        values = self._values(sides[0].unsqueeze(0), sides[1].unsqueeze(0), k)[0]
        last = curves.last_of_equals(inner)
        return torch.maximum(at_edges, values.masked_fill(~last, -torch.inf).max())

    def _values(self, tp: Tensor, fp: Tensor, k: int | None = None) -> Tensor:
        """Return the metric of counts ``(labels, M)``; −∞ where it is undefined."""
        positives, negatives = (x if k is None else x[k : k + 1] for x in self.totals)
        counts = cells(tp, fp, positives.expand_as(tp), negatives.expand_as(tp), least=self.least)
        # Thresholds lead and labels come last, as metrics with a parameter per label expect.
        values = self.objective.values(counts.map(lambda cell: cell.t())).t()
        return values.masked_fill(values.isnan(), -torch.inf)


# Other criteria


class LogLoss(Steady):
    """Minus the log-loss."""

    def __init__(self, batch: Batch) -> None:
        y = batch.targets
        self.several = y.dim() == 1
        self.y = y.unsqueeze(1) if self.several else y > 0.5
        self.weight = torch.ones(len(y), 1, dtype=torch.float64) if batch.weight is None else batch.weight.double()

    def value(self, scores: Tensor, enough: float = -torch.inf) -> float:
        p = scores.gather(1, self.y) if self.several else torch.where(self.y, scores, 1 - scores)
        logs = p.clamp(LEAST_PROBABILITY, 1.0).log() * self.weight
        return (logs.sum() / self.weight.expand_as(logs).sum()).item()


class AveragePrecision(Steady):
    """The mean of the average precision of every class that has positives."""

    def __init__(self, batch: Batch) -> None:
        y = batch.targets if batch.targets.dim() == 2 else F.one_hot(batch.targets, batch.logits.shape[1])
        self.batch = Batch(batch.logits, y, batch.weight, batch.mask)

    def value(self, scores: Tensor, enough: float = -torch.inf) -> float:
        batch = with_scores(self.batch, scores)
        found = [threshold_search.class_curve(batch, [k]) for k in range(scores.shape[1])]
        values = [curves.average_precision(one) for one in found if one.counts.positives[0] > 0]
        return float(torch.stack(values).mean()) if values else 0.0


def _number(value: Tensor) -> float:
    """Return the value to maximise as a number: the mean of several, and −∞ for one that is undefined."""
    return value.double().mean().nan_to_num(-torch.inf).item()
