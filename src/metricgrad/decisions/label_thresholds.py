"""Thresholds of labels: one for each group of labels that share it, the best of all together for any average.

Macro, weighted and no average are sums over labels, so each group is searched alone. Micro and samples are not: there
the groups' thresholds are moved together. A threshold that is fixed is a curve of one point.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.core.batch import Batch
from metricgrad.core.counts import Counts, cells, least_weight, subtract
from metricgrad.core.curves import Curve
from metricgrad.core.metrics import get, name_of
from metricgrad.core.metrics.averages import class_weights
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.metrics.properties import is_quasi_convex
from metricgrad.core.metrics.registry import count_values, of_classes
from metricgrad.core.sparse import SparseBatch
from metricgrad.decisions import hard_counts, sparse_search, threshold_search
from metricgrad.decisions.guarantees import explain_shortage, find_guaranteed
from metricgrad.decisions.rules import ArgmaxOrAbstain, Rule, Threshold
from metricgrad.decisions.threshold_search import find_midpoint_below

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.constraints import Constraint
    from metricgrad.core.sparse import AnyBatch
    from metricgrad.decisions.problem import Problem
    from metricgrad.decisions.rare_labels import RareLabelPlan

Plateau = tuple[float, float]
"""From where to where thresholds are hardly worse than the best."""

SUM_ROUNDING = 1e-10
"""The rounding error that running sums over labels may have: a recall of 1 must meet "recall >= 1"."""


class InfeasibleError(ValueError):
    """No rule meets the constraints."""


class SolvedRule(NamedTuple):
    """The best rule, whether no other of its kind is better, and its plateau: one, one per label, or none."""

    rule: Rule
    exact: bool
    plateau: Plateau | list[Plateau] | None


def solve_thresholds(problem: Problem, batch: AnyBatch, plan: RareLabelPlan) -> SolvedRule:
    """Return the best thresholds; under a confidence, weights are whole numbers of rows."""
    if "fixed" in plan.sources:
        _check_default(problem.default_threshold, batch.logits)
    if isinstance(batch, SparseBatch) and (several := [*count_values(problem.objective.metric)]):
        raise ValueError(f"metric: expected one {several[0]} for all classes with sparse scores, got one per class")
    if problem.shared:
        return _solve_shared(problem, batch, plan)
    if problem.objective.task == "multilabel" and problem.objective.average in ("micro", "samples"):
        return _solve_together(problem, batch, plan)
    return _solve_apart(problem, batch, plan)


def _check_default(threshold: float, scores: Tensor) -> None:
    """Refuse the default threshold, which is for probabilities, if the scores are something else."""
    if threshold == 0.5 and scores.numel() and (scores.min() < 0 or scores.max() > 1):
        raise ValueError(
            f"default_threshold: expected one on the scale of the scores, {scores.min().item():g} to "
            f"{scores.max().item():g}, got 0.5, which is for probabilities; pass 0.0 for logits"
        )


def _make_curve(problem: Problem, batch: AnyBatch, plan: RareLabelPlan, group: list[int]) -> Curve:
    """Return one curve of all labels of a group; it has a single point if their threshold is fixed."""
    if isinstance(batch, SparseBatch):
        curve = sparse_search.make_curve(batch, group)
    else:
        curve = threshold_search.make_curve(batch, group)
    if plan.sources[group[0]] != "fixed":
        return curve
    threshold = problem.default_threshold
    index = int((curve.thresholds >= threshold).sum()) - 1
    counts = curve.counts.map(lambda cell: cell[index : index + 1])
    return Curve(torch.tensor([threshold], dtype=torch.float64), counts)


def _spread_over_labels(groups: list[list[int]], thresholds: list[float]) -> tuple[float, ...]:
    """Return one threshold per label, given one per group of labels."""
    of_label = {label: threshold for group, threshold in zip(groups, thresholds, strict=True) for label in group}
    return tuple(of_label[label] for label in sorted(of_label))


# Each group alone


def _solve_apart(problem: Problem, batch: AnyBatch, plan: RareLabelPlan) -> SolvedRule:
    binary = problem.objective.task == "binary"
    groups = plan.groups
    solved = _solve_sparse_labels(problem, batch, plan)
    thresholds: list[float] = []
    plateaus: dict[int, Plateau] = {}
    for group in groups:
        if group[0] in solved:
            threshold, plateau = solved[group[0]]
        else:
            threshold, plateau = _solve_group(problem, batch, plan, group)
        thresholds.append(threshold)
        plateaus |= dict.fromkeys(group, plateau)
    if binary:
        return SolvedRule(Threshold(thresholds[0]), True, plateaus[0])
    rule = Threshold(_spread_over_labels(groups, thresholds))
    return SolvedRule(rule, True, [plateaus[label] for label in sorted(plateaus)])


def _solve_sparse_labels(problem: Problem, batch: AnyBatch, plan: RareLabelPlan) -> dict[int, tuple[float, Plateau]]:
    """Return thresholds and plateaus by label, of the labels of sparse scores that one search solves together."""
    if not isinstance(batch, SparseBatch) or problem.constraints:
        return {}
    found = sparse_search.find_best_thresholds(problem.objective, batch, problem.epsilon)
    of_labels = zip(*(x.tolist() for x in found), strict=True)
    return {
        label: (threshold, (low, high))
        for label, (threshold, low, high) in enumerate(of_labels)
        if plan.sources[label] == "own" and threshold == threshold  # not NaN
    }


def _solve_group(problem: Problem, batch: AnyBatch, plan: RareLabelPlan, group: list[int]) -> tuple[float, Plateau]:
    """Return the best threshold of a group of labels, and its plateau."""
    if len(group) == 1:
        curve = _make_curve(problem, batch, plan, group)
        return _solve_curve(problem, curve, group[0], batch.classes)
    thresholds, values = _sweep_shared_threshold(problem, problem.objective.metric, batch, group)
    index, plateau = _choose_index(problem, thresholds, values, [], f" in class {', '.join(map(str, group))}")
    return find_midpoint_below(thresholds, index), plateau


def _solve_curve(problem: Problem, curve: Curve, label: int, classes: int) -> tuple[float, Plateau]:
    """Return the best threshold of one of the labels, given its curve, and the plateau."""
    objective = problem.objective
    values = threshold_search.evaluate_by_parts(partial(objective.values_of_class, label), curve.counts)
    found: list[MetBound] = []
    if objective.labels is None or label in objective.labels:
        alpha = problem.find_alpha(classes)
        found = [_find_where_met(one, curve, alpha) for one in problem.constraints]
    where = "" if objective.task == "binary" else f" in class {label}"
    index, plateau = _choose_index(problem, curve.thresholds, values, found, where)
    return find_midpoint_below(curve.thresholds, index), plateau


class MetBound(NamedTuple):
    """A constraint, the thresholds that meet it, and how to say what is missing where none does."""

    constraint: Constraint
    met: Tensor
    explain: Callable[[], str]


def _find_where_met(constraint: Constraint, curve: Curve, alpha: float | None) -> MetBound:
    """Return which thresholds meet a constraint: on these rows or, given ``alpha``, on new ones."""
    if alpha is None:
        slack = -constraint.violation(get(constraint.metric)(curve.counts))
        return _compare_slack(constraint, curve.thresholds, slack)
    met = find_guaranteed(constraint, curve.counts, alpha)
    return MetBound(constraint, met, partial(explain_shortage, constraint, curve.counts, alpha))


def _compare_slack(constraint: Constraint, thresholds: Tensor, slack: Tensor) -> MetBound:
    """Return which thresholds meet a constraint, given by how much; negative where they do not."""

    def explain() -> str:
        nearest = int(slack.nan_to_num(-torch.inf).argmax())
        return f"the nearest, {thresholds[nearest].item():.6g}, misses it by {-slack[nearest].item():.4g}"

    return MetBound(constraint, slack >= 0, explain)


def _choose_index(
    problem: Problem, thresholds: Tensor, values: Tensor, found: list[MetBound], where: str
) -> tuple[int, Plateau]:
    """Return the index of the best threshold that meets all constraints, and the plateau around it."""
    allowed = ~values.isnan()
    sure = f" with {problem.confidence:g} confidence" if problem.confidence is not None else ""
    for constraint, met, explain in found:  # none for a class that does not count
        if not met.any():
            raise InfeasibleError(f"subject_to: no threshold reaches {constraint}{sure}{where}; {explain()}")
        allowed &= met
    if not found and not allowed.any():
        name = name_of(problem.objective.metric)
        raise InfeasibleError(f"metric: expected {name} to be defined at some threshold, got NaN at each{where}")
    if not allowed.any():
        wanted = " and ".join(map(str, problem.constraints))
        raise InfeasibleError(f"subject_to: no threshold reaches {wanted} together{sure}{where}")
    values = values if allowed.all() else torch.where(allowed, values, -torch.inf)
    index = int(values.argmax())
    first, last = threshold_search.find_run_around(values >= values[index] - problem.epsilon, index)
    return index, (find_midpoint_below(thresholds, last), thresholds[first].item())


# The most likely class, or none


def solve_abstention(problem: Problem, batch: Batch) -> SolvedRule:
    """Return the best threshold of each class for the rows in which its score is the highest; ∞ where none is allowed.

    Each class has rows of its own, so thresholds do not depend on each other.
    """
    classes = batch.classes
    own_rows = F.one_hot(batch.logits.argmax(1), classes).bool()
    targets = F.one_hot(batch.targets, classes) if batch.targets.dim() == 1 else batch.targets
    scores = batch.logits.masked_fill(~own_rows, -torch.inf)
    apart = Batch(scores, targets, batch.weight, batch.mask)
    thresholds = [torch.inf] * classes
    refusals = []
    for k in range(classes):
        curve = threshold_search.make_curve(apart, [k])
        reached = int((curve.thresholds > -torch.inf).sum())  # thresholds fall
        cells_reached = [cell[:reached] for cell in curve.counts.cells()]
        own_curve = Curve(curve.thresholds[:reached], Counts(*cells_reached))
        try:
            thresholds[k] = _solve_curve(problem, own_curve, k, classes)[0]
        except InfeasibleError as error:
            refusals.append(error)
    if all(threshold == torch.inf for threshold in thresholds) and refusals:
        raise refusals[0]
    return SolvedRule(ArgmaxOrAbstain(tuple(thresholds), problem.abstain_label), True, None)


# All groups together


def _solve_together(problem: Problem, batch: AnyBatch, plan: RareLabelPlan) -> SolvedRule:
    objective = problem.objective
    groups = plan.groups
    curves = [_make_curve(problem, batch, plan, group) for group in groups]
    # Each group starts from its own best threshold.
    values = [threshold_search.evaluate_by_parts(objective.values, curve.counts) for curve in curves]
    indices = [threshold_search.find_better(values_of_group, 0) for values_of_group in values]
    if objective.average == "samples":
        if isinstance(batch, SparseBatch):
            raise ValueError(
                "average: expected another than 'samples' for a threshold per label of sparse scores; pass shared=True"
            )
        search = _RowSearch(problem, batch, groups, curves, indices)
        threshold_search.ascend_one_by_one(indices, search.choose)
        exact = sum(len(curve.thresholds) > 1 for curve in curves) <= 1
    else:
        exact = _move_to_pooled_best(problem, groups, curves, indices)
    thresholds = [find_midpoint_below(curve.thresholds, index) for curve, index in zip(curves, indices, strict=True)]
    return SolvedRule(Threshold(_spread_over_labels(groups, thresholds)), exact, None)


def _move_to_pooled_best(problem: Problem, groups: list[list[int]], curves: list[Curve], indices: list[int]) -> bool:
    """Move the thresholds, in place, to the best of the pooled counts; tell whether that is exact."""
    objective = problem.objective
    counted = [i for i, group in enumerate(groups) if objective.labels is None or group[0] in objective.labels]
    curves_counted = [curves[i] for i in counted]
    found = threshold_search.find_best_corner(curves_counted, objective.values)
    exact = is_quasi_convex(objective.metric, *threshold_search.sum_totals(curves_counted))
    if not exact:
        choose = partial(threshold_search.choose_in_pooled_counts, curves_counted, objective.values)
        threshold_search.ascend_one_by_one(found, choose)
    for i, index in zip(counted, found, strict=True):
        indices[i] = index
    return exact


class _RowSearch:
    """The thresholds of groups of labels for the samples average, one group at a time, the others being given.

    Lowering a group's threshold past a score turns one row's label on: the changes of the rows' values, cumulated, are
    the curve. What is decided so far is kept as counts of each row, so that a group costs as much as its own labels.
    """

    def __init__(
        self, problem: Problem, batch: Batch, groups: list[list[int]], curves: list[Curve], indices: list[int]
    ) -> None:
        self.metric = problem.objective.metric
        self.groups = groups
        self.curves = curves
        self.scores = batch.logits
        weights = hard_counts.weigh_labels_of_rows(batch, problem.objective.labels)
        self.positive_weight, self.negative_weight, self.row_weight = weights
        self.positives = self.positive_weight.sum(1, keepdim=True)
        self.negatives = self.negative_weight.sum(1, keepdim=True)
        # Of soft labels sums are rounded, in another order than the totals.
        self.least = least_weight(self.positive_weight, self.negative_weight)
        chosen = [curve.thresholds[index].item() for curve, index in zip(curves, indices, strict=True)]
        thresholds = self.scores.new_tensor(_spread_over_labels(groups, chosen))
        decided = self.scores >= thresholds
        self.tp = (self.positive_weight * decided).sum(1, keepdim=True)
        self.fp = (self.negative_weight * decided).sum(1, keepdim=True)

    def choose(self, i: int, indices: list[int]) -> int:
        """Return the index of the best threshold of group i, given those of the others, and take it."""
        labels = self.groups[i]
        thresholds = self.curves[i].thresholds
        scores, order = self.scores[:, labels].sort(dim=1, descending=True)
        own_positive = self.positive_weight[:, labels].gather(1, order)
        own_negative = self.negative_weight[:, labels].gather(1, order)
        # The counts without this group's labels; ``subtract`` makes them exactly 0 where no other label is left.
        present = thresholds[indices[i]]
        other_tp = subtract(self.tp, _sum_above(present, scores, own_positive), self.least)
        other_fp = subtract(self.fp, _sum_above(present, scores, own_negative), self.least)
        tp = torch.cat((other_tp, own_positive), 1).cumsum(1)
        fp = torch.cat((other_fp, own_negative), 1).cumsum(1)
        counts = cells(tp, fp, self.positives.expand_as(tp), self.negatives.expand_as(tp), least=self.least)
        changes = self.metric(counts).diff(dim=1) * self.row_weight.unsqueeze(1)
        sorted_scores, by_score = scores.flatten().sort(descending=True)
        sums = torch.cat((changes.new_zeros(1), changes.flatten()[by_score].cumsum(0)))
        reached = torch.searchsorted(-sorted_scores, -thresholds.to(sorted_scores.dtype), right=True)
        best = threshold_search.find_better(sums[reached] / self.row_weight.sum(), indices[i])
        self.tp = other_tp + _sum_above(thresholds[best], scores, own_positive)
        self.fp = other_fp + _sum_above(thresholds[best], scores, own_negative)
        return best


def _sum_above(threshold: Tensor, scores: Tensor, values: Tensor) -> Tensor:
    """Return the sum of the values of each row whose score reaches a threshold, ``(N, 1)``."""
    return (values * (scores >= threshold)).sum(1, keepdim=True)


# One threshold for all


def _solve_shared(problem: Problem, batch: AnyBatch, plan: RareLabelPlan) -> SolvedRule:
    if not plan.tunes_any:
        default = problem.default_threshold
        return SolvedRule(Threshold(default), True, (default, default))
    labels = problem.objective.labels
    group = list(range(batch.classes) if labels is None else labels)
    thresholds, values = _sweep_shared_threshold(problem, problem.objective.metric, batch, group)
    found = []
    for constraint in problem.constraints:
        _, bounded = _sweep_shared_threshold(problem, get(constraint.metric), batch, group)
        slack = SUM_ROUNDING - constraint.violation(bounded)
        found.append(_compare_slack(constraint, thresholds, slack))
    index, plateau = _choose_index(problem, thresholds, values, found, "")
    return SolvedRule(Threshold(find_midpoint_below(thresholds, index)), True, plateau)


def _sweep_shared_threshold(
    problem: Problem, metric: Metric, batch: AnyBatch, group: list[int]
) -> tuple[Tensor, Tensor]:
    """Return every threshold that the labels of a group may share, and the metric there, averaged over them."""
    objective = problem.objective
    if isinstance(batch, SparseBatch):
        return sparse_search.sweep_shared_threshold(objective, metric, batch, group)
    if objective.average == "samples":  # a row is a population
        scores = batch.logits
        positive_weight, negative_weight, row_weight = hard_counts.weigh_labels_of_rows(batch, objective.labels)
        weights = ratio(row_weight, row_weight.sum())
    else:  # a label is a population, or all of them are one
        scores = threshold_search.select_columns(batch.logits, group).t()
        targets = threshold_search.select_columns(batch.targets.double(), group).t()
        positive_weight, negative_weight = targets, 1 - targets
        if batch.weight is not None:
            weight = threshold_search.select_columns(batch.weight.double(), group).t()
            positive_weight, negative_weight = weight * positive_weight, weight * negative_weight
        if objective.average == "micro":
            scores, positive_weight, negative_weight = (
                x.reshape(1, -1) for x in (scores, positive_weight, negative_weight)
            )
            weights = targets.new_ones(1)
        else:
            average = "macro" if objective.average == "per-class" else objective.average
            weights = class_weights(average, positive_weight.sum(1), None, objective.empty_classes)

    def value(counts: Counts, part: slice) -> Tensor:
        return of_classes(metric, group[part], leading=True)(counts)

    return threshold_search.sweep_shared_threshold(
        scores.contiguous(), positive_weight.contiguous(), negative_weight.contiguous(), value, weights
    )
