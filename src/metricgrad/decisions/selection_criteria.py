"""What a selection maximises: the metric under a rule that is given, or under the one that is best for the scores.

The exact best threshold of many rows takes a sort. For a metric that rewards right decisions most of it can be left
out: counts in a few thousand bins bound what any threshold within a bin reaches, and only the rows of bins that might
hold the best are sorted; none if another candidate is better than all bounds.
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
    from metricgrad.core.costs import Cost
    from metricgrad.decisions.problem import Problem
    from metricgrad.decisions.rules import Rule

SelectBy = Literal["auto", "metric", "average-precision", "log-loss"]

LOWEST_PROBABILITY = 1e-6
"""Smaller probabilities count as this one in the log-loss, so that one row cannot outweigh all others."""

SCORE_BINS = 4096
"""The number of bins of scores; they are used if there are more than twice as many rows."""


class Criterion(Protocol):
    """How good scores ``(N, K)`` are."""

    def value(self, scores: Tensor, least_of_interest: float = -torch.inf) -> float:
        """Return the value to maximise; −∞ if no rule is allowed.

        A value below ``least_of_interest`` need not be exact: to save time, any other number below that may be
        returned.
        """

    def follow(self, scores: Tensor, size: int) -> None:
        """Adapt to the mean of the scores chosen so far, and to how many they are."""


def make_criterion(select_by: SelectBy, problem: Problem, batch: Batch, rule: Rule | None) -> Criterion:
    """Return the criterion of a name on given rows; ``rule`` is None if it is to be tuned."""
    if select_by == "log-loss":
        return LogLossCriterion(batch)
    if select_by == "average-precision":
        return AveragePrecision(batch)
    if problem.objective.row_costs is not None:
        if rule is None:
            return SavingsByRow(problem.objective.row_costs, batch)
        batch = problem.objective.weigh(batch)
    if rule is not None:
        return MetricUnderRule(problem, batch, rule)
    if problem.objective.task == "multiclass" and not problem.abstain:
        return MetricAtOffsets(problem, batch)
    if problem.shared or problem.constraints:
        return MetricUnderSolvedRule(problem, batch)
    return MetricAtBestThresholds(problem, batch)


def replace_scores(batch: Batch, scores: Tensor) -> Batch:
    """Return the rows with other scores."""
    return Batch(scores, batch.targets, batch.weight, batch.mask)


class Independent:
    """A criterion that does not depend on what was chosen before."""

    def follow(self, scores: Tensor, size: int) -> None:
        """Do nothing."""


# The metric


@dataclass(frozen=True, eq=False)
class MetricUnderRule(Independent):
    """The metric under a rule that is given."""

    problem: Problem
    batch: Batch
    rule: Rule

    def value(self, scores: Tensor, least_of_interest: float = -torch.inf) -> float:
        return _evaluate_rule(self.problem, replace_scores(self.batch, scores), self.rule)


class SavingsByRow(Independent):
    """The savings where each row is decided by its own costs: scores are probabilities."""

    def __init__(self, costs: Cost, batch: Batch) -> None:
        self.costs = costs
        weighed = costs.weigh(batch)
        weight = torch.ones_like(weighed.logits) if weighed.weight is None else weighed.weight
        targets = weighed.targets.double()
        self.missed = (weight * targets).squeeze(1)
        self.alarmed = (weight * (1 - targets)).squeeze(1)
        self.alike = min(self.missed.sum().item(), self.alarmed.sum().item())

    def value(self, scores: Tensor, least_of_interest: float = -torch.inf) -> float:
        decided = self.costs.decide(scores.squeeze(1).clamp(0, 1))
        paid = torch.where(decided, self.alarmed, self.missed).sum().item()
        return 1 - paid / self.alike if self.alike > 0 else 0.0


@dataclass(frozen=True, eq=False)
class MetricUnderSolvedRule(Independent):
    """The metric under the best rule that the solver finds."""

    problem: Problem
    batch: Batch

    def value(self, scores: Tensor, least_of_interest: float = -torch.inf) -> float:
        batch = replace_scores(self.batch, scores)
        try:
            rule = self.problem.solve(batch).rule
        except InfeasibleError:
            return -torch.inf
        return _evaluate_rule(self.problem, batch, rule)


class MetricAtOffsets:
    """The metric of several classes at the offsets tuned for the mean of the candidates chosen so far.

    Before anything is chosen, scores have offsets of their own. Later a search for each candidate in each round would
    take too long: the offsets are tuned anew after rounds 1, 2, 4, 8, …, since the mean moves less and less.
    """

    def __init__(self, problem: Problem, batch: Batch) -> None:
        self.problem = problem
        self.batch = batch
        self.rule: Rule | None = None

    def value(self, scores: Tensor, least_of_interest: float = -torch.inf) -> float:
        batch = replace_scores(self.batch, scores)
        rule = self.problem.solve(batch).rule if self.rule is None else self.rule
        return _evaluate_rule(self.problem, batch, rule)

    def follow(self, scores: Tensor, size: int) -> None:
        is_power_of_two = size & (size - 1) == 0
        if not is_power_of_two:
            return
        batch = replace_scores(self.batch, scores)
        found = self.problem.solve(batch).rule
        present = -torch.inf if self.rule is None else _evaluate_rule(self.problem, batch, self.rule)
        if self.rule is None or _evaluate_rule(self.problem, batch, found) > present:
            self.rule = found


class MetricAtBestThresholds(Independent):
    """The metric at the exact threshold of every label: the highest value of each label's curve."""

    def __init__(self, problem: Problem, batch: Batch) -> None:
        self.objective = problem.objective
        targets = batch.targets.double()
        weight = torch.ones_like(targets) if batch.weight is None else batch.weight.double().expand_as(targets)
        # Label by label, contiguous.
        self.positive_weight = (weight * targets).t().contiguous()
        self.negative_weight = (weight * (1 - targets)).t().contiguous()
        self.positives = self.positive_weight.sum(1, keepdim=True)
        self.negatives = self.negative_weight.sum(1, keepdim=True)
        # Counts are summed in another order than the totals, so they are rounded in another way: see
        # ``counts.subtract``.
        self.least = least_weight(self.positive_weight, self.negative_weight)
        average = "macro" if self.objective.average == "per-class" else self.objective.average
        self.class_weights = class_weights(average, self.positives.squeeze(1))
        metric = self.objective.metric
        monotone = properties_of(metric).rewards_right_decisions and not count_values(metric)
        self.by_bins = len(targets) > 2 * SCORE_BINS and monotone

    def value(self, scores: Tensor, least_of_interest: float = -torch.inf) -> float:
        of_labels = scores.t().contiguous()
        if self.by_bins:
            least_alone = least_of_interest if len(of_labels) == 1 else -torch.inf
            highest = [self._find_highest_by_bins(k, row, least_alone) for k, row in enumerate(of_labels)]
            best = torch.stack(highest)
        else:
            best = self._find_highest(of_labels, self.positive_weight, self.negative_weight)
        return _as_number(mean_over_classes(best, self.class_weights))

    def _find_highest(self, scores: Tensor, positive_weight: Tensor, negative_weight: Tensor) -> Tensor:
        """Return the highest value of each label's curve."""
        if len(scores) > 1:
            sorted_scores, order = scores.sort(1, descending=True)
        else:
            sorted_scores, order = (x.unsqueeze(0) for x in curves.sort_descending(scores[0]))
        nothing = scores.new_zeros(len(scores), 1)
        tp = torch.cat((nothing, positive_weight.gather(1, order).cumsum(1)), 1)
        fp = torch.cat((nothing, negative_weight.gather(1, order).cumsum(1)), 1)
        values = self._evaluate(tp, fp)
        # Equal scores are predicted together: only the last of them is a threshold. A score of ∞ is always predicted.
        first_is_infinite = sorted_scores[:, :1] == torch.inf
        same_as_next = sorted_scores[:, 1:] == sorted_scores[:, :-1]
        no_threshold = torch.cat((first_is_infinite, same_as_next, nothing > 0), 1)
        return values.masked_fill(no_threshold, -torch.inf).amax(1)

    def _find_highest_by_bins(self, k: int, scores: Tensor, least_of_interest: float) -> Tensor:
        """Return the highest value of a label's curve, or any lower one if that is below ``least_of_interest``."""
        positive_weight = self.positive_weight[k]
        negative_weight = self.negative_weight[k]
        low, high = torch.aminmax(scores)
        scale = (SCORE_BINS - 1) / (high - low)
        if not scale.isfinite():
            alone = (x.unsqueeze(0) for x in (scores, positive_weight, negative_weight))
            return self._find_highest(*alone)[0]
        # Bin 0 holds the highest scores. A lower score is never in an earlier bin, even if the product is rounded.
        bins = ((high - scores) * scale).long()
        nothing = scores.new_zeros(1)
        tp = torch.cat((nothing, torch.bincount(bins, positive_weight, SCORE_BINS).cumsum(0)))
        fp = torch.cat((nothing, torch.bincount(bins, negative_weight, SCORE_BINS).cumsum(0)))
        best_at_edges = self._evaluate(tp.unsqueeze(0), fp.unsqueeze(0), k)[0].max()
        # No threshold inside a bin is better than all of its positives without any of its negatives.
        bounds = self._evaluate(tp[1:].unsqueeze(0), fp[:-1].unsqueeze(0), k)[0]
        to_beat = max(best_at_edges.item(), least_of_interest)
        # The sums of bins are rounded in another way than those of rows: a bound this close below may hold a better
        # value.
        near = to_beat - 1e-9 * max(1.0, abs(to_beat))
        may_hold_best = (bounds >= near) & (tp.diff() + fp.diff() > 0)
        rows = may_hold_best.gather(0, bins).nonzero().squeeze(1)
        if not len(rows):
            return best_at_edges
        return torch.maximum(best_at_edges, self._find_highest_inside(k, scores, bins, rows, tp, fp))

    def _find_highest_inside(
        self, k: int, scores: Tensor, bins: Tensor, rows: Tensor, tp_at_edges: Tensor, fp_at_edges: Tensor
    ) -> Tensor:
        """Return the highest value at the scores of these rows, all rows of their bins, given counts at the edges."""
        sorted_scores, order = curves.sort_descending(scores.index_select(0, rows))
        rows = rows.index_select(0, order)
        own_bin = bins.index_select(0, rows)
        opens_bin = torch.cat((own_bin.new_ones(1, dtype=torch.bool), own_bin[1:] != own_bin[:-1]))
        place_of_bin = opens_bin.cumsum(0) - 1

        def count_up_to(at_edges: Tensor, weight: Tensor) -> Tensor:
            """Return the count before each row's bin and, from there, down to its score."""
            of_rows = weight.index_select(0, rows)
            passed = of_rows.cumsum(0)
            before_bin = (passed - of_rows)[opens_bin].index_select(0, place_of_bin)
            return at_edges.index_select(0, own_bin) + (passed - before_bin)

        tp = count_up_to(tp_at_edges, self.positive_weight[k])
        fp = count_up_to(fp_at_edges, self.negative_weight[k])
        values = self._evaluate(tp.unsqueeze(0), fp.unsqueeze(0), k)[0]
        last = curves.last_of_equals(sorted_scores)
        return values.masked_fill(~last, -torch.inf).max()

    def _evaluate(self, tp: Tensor, fp: Tensor, k: int | None = None) -> Tensor:
        """Return the metric of counts ``(labels, M)`` of all labels, or of label k; −∞ where it is undefined."""
        positives = self.positives if k is None else self.positives[k : k + 1]
        negatives = self.negatives if k is None else self.negatives[k : k + 1]
        counts = cells(tp, fp, positives.expand_as(tp), negatives.expand_as(tp), least=self.least)
        # Thresholds lead and labels come last, as metrics with a parameter per label expect.
        values = self.objective.values(counts.map(lambda cell: cell.t())).t()
        return values.masked_fill(values.isnan(), -torch.inf)


# Other criteria


class LogLossCriterion(Independent):
    """Minus the log-loss."""

    def __init__(self, batch: Batch) -> None:
        self.has_classes = batch.targets.dim() == 1
        self.targets = batch.targets.unsqueeze(1) if self.has_classes else batch.targets > 0.5
        rows = len(batch.targets)
        self.weight = torch.ones(rows, 1, dtype=torch.float64) if batch.weight is None else batch.weight.double()

    def value(self, scores: Tensor, least_of_interest: float = -torch.inf) -> float:
        own = scores.gather(1, self.targets) if self.has_classes else torch.where(self.targets, scores, 1 - scores)
        logs = own.clamp(LOWEST_PROBABILITY, 1.0).log() * self.weight
        return (logs.sum() / self.weight.expand_as(logs).sum()).item()


class AveragePrecision(Independent):
    """The mean of the average precision of every class that has positives."""

    def __init__(self, batch: Batch) -> None:
        targets = batch.targets if batch.targets.dim() == 2 else F.one_hot(batch.targets, batch.logits.shape[1])
        self.batch = Batch(batch.logits, targets, batch.weight, batch.mask)

    def value(self, scores: Tensor, least_of_interest: float = -torch.inf) -> float:
        batch = replace_scores(self.batch, scores)
        of_classes = [threshold_search.make_curve(batch, [k]) for k in range(scores.shape[1])]
        values = [curves.average_precision(curve) for curve in of_classes if curve.counts.positives[0] > 0]
        return float(torch.stack(values).mean()) if values else 0.0


def _evaluate_rule(problem: Problem, batch: Batch, rule: Rule) -> float:
    return _as_number(problem.value(batch, rule))


def _as_number(value: Tensor) -> float:
    """Return the value to maximise as a number: the mean of several, and −∞ for one that is undefined."""
    return value.double().mean().nan_to_num(-torch.inf).item()
