"""Thresholds of labels: one for each group of labels that share it, the best of all together for any average.

Macro, weighted and no average are sums over labels, so each group is searched alone. Micro and samples are not: there
the groups' thresholds are moved together. A threshold that is fixed is a curve of one cut.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from metricgrad.core.counts import Counts, cells, least_weight, subtract
from metricgrad.core.curves import Curve
from metricgrad.core.metrics import get, name_of
from metricgrad.core.metrics.averages import class_weights
from metricgrad.core.metrics.constraints import Constraint, lower_bound
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.metrics.properties import is_quasi_convex
from metricgrad.core.metrics.registry import count_values, of_classes
from metricgrad.core.sparse import SparseBatch
from metricgrad.decisions import hard_counts, sparse_search, threshold_search
from metricgrad.decisions.rules import Rule, Threshold

if TYPE_CHECKING:
    from metricgrad.core.batch import Batch
    from metricgrad.core.metrics import Metric
    from metricgrad.core.sparse import AnyBatch
    from metricgrad.decisions.problem import Problem
    from metricgrad.decisions.rare_labels import Allocation

Plateau = tuple[float, float]
"""From where to where thresholds are hardly worse than the best."""

ROUNDING = 1e-10
"""What the running sums behind one threshold for all may be off by: a recall of 1 must meet "recall >= 1"."""


class InfeasibleError(ValueError):
    """No rule meets the constraints."""


class Solution(NamedTuple):
    """The best rule, whether no other of its kind is better, and its plateau: one, one per label, or none."""

    rule: Rule
    exact: bool
    plateau: Plateau | list[Plateau] | None


def solve_thresholds(problem: Problem, batch: AnyBatch, allocation: Allocation, scale: float) -> Solution:
    """Return the best thresholds; ``scale``: how many observations a unit of weight stands for."""
    if "fixed" in allocation.origins:
        _check_default(problem.default_threshold, batch.logits)
    if isinstance(batch, SparseBatch) and (several := [*count_values(problem.objective.metric)]):
        raise ValueError(f"metric: expected one {several[0]} for all classes with sparse scores, got one per class")
    if problem.shared:
        return _solve_shared(problem, batch, allocation)
    if problem.objective.task == "multilabel" and problem.objective.average in ("micro", "samples"):
        return _solve_together(problem, batch, allocation)
    return _solve_apart(problem, batch, allocation, scale)


def _check_default(threshold: float, scores: Tensor) -> None:
    """Refuse the default of probabilities for scores that are none."""
    if threshold == 0.5 and scores.numel() and (scores.min() < 0 or scores.max() > 1):
        raise ValueError(
            f"default_threshold: expected one on the scale of the scores, {scores.min().item():g} to "
            f"{scores.max().item():g}, got 0.5, which is for probabilities; pass 0.0 for logits"
        )


def _curve(problem: Problem, batch: AnyBatch, allocation: Allocation, group: list[int]) -> Curve:
    """Return the curve of the labels of a group together; of one cut if their threshold is fixed."""
    if isinstance(batch, SparseBatch):
        curve = sparse_search.label_curve(batch, group)
    else:
        curve = threshold_search.class_curve(batch, group)
    if allocation.origins[group[0]] != "fixed":
        return curve
    threshold = problem.default_threshold
    place = int((curve.thresholds >= threshold).sum()) - 1
    here = curve.counts.map(lambda cell: cell[place : place + 1])
    return Curve(torch.tensor([threshold], dtype=torch.float64), here)


def _spread(found: list[tuple[list[int], float]]) -> tuple[float, ...]:
    """Return one threshold per label of those of groups."""
    return tuple(threshold for _, threshold in sorted((k, threshold) for group, threshold in found for k in group))


# Each group alone


def _solve_apart(problem: Problem, batch: AnyBatch, allocation: Allocation, scale: float) -> Solution:
    objective, binary = problem.objective, problem.objective.task == "binary"
    found: list[tuple[list[int], float]] = []
    plateaus: dict[int, Plateau] = {}
    solved: dict[int, tuple[float, ...]] = {}
    if isinstance(batch, SparseBatch) and not problem.constraints:  # many labels: those of their own all at once
        each = sparse_search.best_of_each(objective, batch, problem.epsilon)
        ends = enumerate(zip(*(x.tolist() for x in each), strict=True))
        solved = {k: one for k, one in ends if allocation.origins[k] == "own" and one[0] == one[0]}
    for group in allocation.groups:
        if group[0] in solved:
            threshold, low, high = solved[group[0]]
            found.append((group, threshold))
            plateaus[group[0]] = (low, high)
            continue
        spare: list[Tensor] = []
        if len(group) > 1:
            thresholds, values = _everywhere(problem, objective.metric, batch, group)
        else:
            curve = _curve(problem, batch, allocation, group)
            of_class = partial(objective.values_of_class, group[0])
            thresholds, values = curve.thresholds, threshold_search.by_parts(of_class, curve.counts)
            if objective.labels is None or group[0] in objective.labels:
                spare = [_spare(c, curve, problem.confidence, scale) for c in problem.constraints]
        where = "" if binary else f" in class {', '.join(map(str, group))}"
        cut, plateau = _best(problem, thresholds, values, spare, where)
        found.append((group, threshold_search.between(thresholds, cut)))
        plateaus |= dict.fromkeys(group, plateau)
    if binary:
        return Solution(Threshold(found[0][1]), True, plateaus[0])
    return Solution(Threshold(_spread(found)), True, [plateaus[k] for k in sorted(plateaus)])


def _spare(constraint: Constraint, curve: Curve, confidence: float | None, scale: float) -> Tensor:
    """Return by how much every cut meets a constraint."""
    metric = get(constraint.metric)

    def merit(c: Counts) -> Tensor:
        return -constraint.violation(metric(c))

    return merit(curve.counts) if confidence is None else lower_bound(merit, curve.counts, confidence, scale)


def _best(problem: Problem, thresholds: Tensor, values: Tensor, spare: list[Tensor], where: str) -> tuple[int, Plateau]:
    """Return the best cut that meets all constraints, and the plateau around it."""
    fine = ~values.isnan()
    sure = f" with {problem.confidence:g} confidence" if problem.confidence is not None else ""
    for constraint, by in zip(problem.constraints, spare, strict=False):  # none for a class that does not count
        if not (by >= 0).any():
            best = int(by.nan_to_num(-torch.inf).argmax())
            raise InfeasibleError(
                f"subject_to: no threshold reaches {constraint}{sure}{where}; the nearest, "
                f"{thresholds[best].item():.6g}, misses it by {-by[best].item():.4g}"
            )
        fine &= by >= 0
    if not spare and not fine.any():
        name = name_of(problem.objective.metric)
        raise InfeasibleError(f"metric: expected {name} to be defined at some threshold, got NaN at each{where}")
    if not fine.any():
        wanted = " and ".join(map(str, problem.constraints))
        raise InfeasibleError(f"subject_to: no threshold reaches {wanted} together{sure}{where}")
    values = values if fine.all() else torch.where(fine, values, -torch.inf)
    cut = int(values.argmax())
    first, last = threshold_search.run_around(values >= values[cut] - problem.epsilon, cut)
    return cut, (threshold_search.between(thresholds, last), thresholds[first].item())


# All groups together


def _solve_together(problem: Problem, batch: AnyBatch, allocation: Allocation) -> Solution:
    objective, groups = problem.objective, allocation.groups
    curves = [_curve(problem, batch, allocation, group) for group in groups]
    cuts = [threshold_search.better(threshold_search.by_parts(objective.values, c.counts), 0) for c in curves]
    if objective.average == "samples":
        if isinstance(batch, SparseBatch):
            raise ValueError(
                "average: expected another than 'samples' for a threshold per label of sparse scores; pass shared=True"
            )
        threshold_search.ascend(cuts, _RowSearch(problem, batch, groups, curves, cuts).choose)
        exact = sum(len(c.thresholds) > 1 for c in curves) <= 1
    else:
        exact = _couple(problem, groups, curves, cuts)
    thresholds = [threshold_search.between(c.thresholds, cut) for c, cut in zip(curves, cuts, strict=True)]
    return Solution(Threshold(_spread(list(zip(groups, thresholds, strict=True)))), exact, None)


def _couple(problem: Problem, groups: list[list[int]], curves: list[Curve], cuts: list[int]) -> bool:
    """Move the cuts from each group's own best to the best of the pooled counts; tell whether that is exact."""
    objective = problem.objective
    mine = [i for i, group in enumerate(groups) if objective.labels is None or group[0] in objective.labels]
    kept = [curves[i] for i in mine]
    corner = threshold_search.best_corner(kept, objective.values)
    exact = is_quasi_convex(objective.metric, *threshold_search.totals(kept))
    if not exact:
        threshold_search.ascend(corner, partial(threshold_search.choose_pooled, kept, objective.values))
    for i, cut in zip(mine, corner, strict=True):
        cuts[i] = cut
    return exact


class _RowSearch:
    """The thresholds of groups of labels for the samples average, one group at a time, the others being given.

    Lowering a group's threshold past a score turns one row's label on: the changes of the rows' values, cumulated, are
    the curve. What is decided so far is kept as counts of each row, so that a group costs as much as its own labels.
    """

    def __init__(
        self, problem: Problem, batch: Batch, groups: list[list[int]], curves: list[Curve], cuts: list[int]
    ) -> None:
        self.metric, self.groups, self.curves = problem.objective.metric, groups, curves
        wy, wn, self.row_weight = hard_counts.row_cells(batch, problem.objective.labels)
        self.sides = wy, wn
        self.totals = wy.sum(1, keepdim=True), wn.sum(1, keepdim=True)
        # Of soft labels sums are rounded, in another order than the totals.
        self.least = least_weight(wy, wn)
        self.scores = batch.logits
        chosen = zip(groups, curves, cuts, strict=True)
        thresholds = _spread([(group, curve.thresholds[cut].item()) for group, curve, cut in chosen])
        decided = self.scores >= torch.tensor(thresholds, dtype=self.scores.dtype, device=self.scores.device)
        self.counts = [(side * decided).sum(1, keepdim=True) for side in self.sides]

    def choose(self, i: int, cuts: list[int]) -> int:
        """Return the best cut of group i, given those of the others, and take it."""
        mine, curve = self.groups[i], self.curves[i]
        s, order = self.scores[:, mine].sort(dim=1, descending=True)
        own = [side[:, mine].gather(1, order) for side in self.sides]
        # Float weights that were added and taken away again leave nothing behind.
        others = [
            subtract(count, _sum_above(curve.thresholds[cuts[i]], s, part), self.least)
            for count, part in zip(self.counts, own, strict=True)
        ]
        tp, fp = (torch.cat(both, 1).cumsum(1) for both in zip(others, own, strict=True))
        positives, negatives = (total.expand_as(tp) for total in self.totals)
        values = self.metric(cells(tp, fp, positives, negatives, least=self.least))
        change = values.diff(dim=1) * self.row_weight.unsqueeze(1)
        flat, by_score = s.flatten().sort(descending=True)
        total = torch.cat((change.new_zeros(1), change.flatten()[by_score].cumsum(0)))
        reached = torch.searchsorted(-flat, -curve.thresholds.to(flat.dtype), right=True)
        best = threshold_search.better(total[reached] / self.row_weight.sum(), cuts[i])
        added = [_sum_above(curve.thresholds[best], s, part) for part in own]
        self.counts = [other + new for other, new in zip(others, added, strict=True)]
        return best


def _sum_above(threshold: Tensor, scores: Tensor, values: Tensor) -> Tensor:
    """Return the sum of the values of each row whose score reaches a threshold, ``(N, 1)``."""
    return (values * (scores >= threshold)).sum(1, keepdim=True)


# One threshold for all


def _solve_shared(problem: Problem, batch: AnyBatch, allocation: Allocation) -> Solution:
    if not allocation.tuned:
        return Solution(Threshold(default := problem.default_threshold), True, (default, default))
    labels = problem.objective.labels
    group = list(range(batch.classes) if labels is None else labels)
    thresholds, values = _everywhere(problem, problem.objective.metric, batch, group)
    spare = [ROUNDING - c.violation(_everywhere(problem, get(c.metric), batch, group)[1]) for c in problem.constraints]
    cut, plateau = _best(problem, thresholds, values, spare, "")
    return Solution(Threshold(threshold_search.between(thresholds, cut)), True, plateau)


def _everywhere(problem: Problem, metric: Metric, batch: AnyBatch, group: list[int]) -> tuple[Tensor, Tensor]:
    """Return every threshold that the labels of a group may share, and the metric there, averaged over them."""
    if isinstance(batch, SparseBatch):
        return sparse_search.everywhere(problem.objective, metric, batch, group)
    average = problem.objective.average
    if average == "samples":
        s, (wy, wn, weights) = batch.logits, hard_counts.row_cells(batch, problem.objective.labels)
        weights = ratio(weights, weights.sum())
    else:
        s, y = (threshold_search.columns(x, group).t() for x in (batch.logits, batch.targets.double()))
        wy, wn = y, 1 - y
        if batch.weight is not None:
            w = threshold_search.columns(batch.weight.double(), group).t()
            wy, wn = w * wy, w * wn
        if average == "micro":
            s, wy, wn, weights = *(x.reshape(1, -1) for x in (s, wy, wn)), y.new_ones(1)
        else:
            average = "macro" if average == "per-class" else average
            weights = class_weights(average, wy.sum(1), None, problem.objective.empty_classes)

    def value(counts: Counts, part: slice) -> Tensor:
        return of_classes(metric, group[part], leading=True)(counts)

    return threshold_search.events(s.contiguous(), wy.contiguous(), wn.contiguous(), value, weights)
