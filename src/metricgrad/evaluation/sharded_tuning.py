"""Tuning over shards: the rule that is best on all data, from score tables that were merged.

A table of distinct scores with their counts has the curve of the rows it was made of, and a rule follows from curves
alone. Rounded scores have fewer thresholds, each of them one of the exact curve's, since rounding moves scores down
onto a grid and a threshold on that grid decides as before. Between two neighbouring thresholds the counts lie in a box,
and ``metrics.bounds`` bounds the metric there: what a finer threshold might add is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core.counts import cells
from metricgrad.core.metrics import bounds, get
from metricgrad.core.metrics.averages import class_weights, mean_over_classes
from metricgrad.core.metrics.registry import count_values
from metricgrad.decisions import threshold_search
from metricgrad.decisions.rules import Rule, Threshold
from metricgrad.decisions.threshold_tuning import TuningResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.batch import Batch
    from metricgrad.core.curves import Curve
    from metricgrad.decisions.problem import Problem
    from metricgrad.decisions.rare_labels import Allocation
    from metricgrad.evaluation.score_tables import ScoreTables


def tune_tables(problem: Problem, tables: ScoreTables) -> TuningResult:
    """Find the best rule on all scores that were added to the tables."""
    objective = problem.objective
    if several := [*count_values(objective.metric)]:
        raise ValueError(f"metric: expected one {several[0]} for all classes to tune on tables, got one per class")
    if objective.task == "multiclass" or objective.average == "samples":
        wanted = "task='binary' or 'multilabel' and an average other than 'samples'"
        raise ValueError(f"tune: expected {wanted}, since rows are not kept; use tune_threshold on the rows")
    positives, samples, weight, squares = tables.totals
    if not samples.sum():
        raise ValueError("scores: expected at least one sample to tune on, got none")
    batch = tables.batch()
    fewest = problem.smaller_side(positives, samples).tolist()
    allocation = problem.allocate(fewest, batch.logits.shape[1])
    rule, exact, plateau = problem.solve(batch, allocation, (weight.sum() / squares.sum()).item())
    error: Any = 0.0
    if tables.bits is not None:
        rule, plateau = _on_the_grid(batch, rule, plateau, allocation)
        error = _error(problem, batch, rule) if set(allocation.origins) == {"own"} else None
        exact = exact and error == 0
    value = problem.value(batch, rule)
    origins, caution = list(allocation.origins), allocation.caution
    return TuningResult(rule, value.tolist(), exact, plateau, fewest, origins, caution, problem, batch, None, error)


def _on_the_grid(batch: Batch, rule: Rule, plateau: Any, allocation: Allocation) -> tuple[Rule, Any]:
    """Move thresholds midway between two rounded scores up to the higher: what was rounded down lies between."""
    if not allocation.tuned:
        return rule, plateau
    s = batch.logits if batch.weight is None else batch.logits.masked_fill(batch.weight <= 0, torch.inf)

    def up(threshold: float, column: Tensor) -> float:
        return column[column >= threshold].min().item() if threshold < torch.inf else threshold

    thresholds = rule.numbers
    if isinstance(thresholds, float):
        return Threshold(up(thresholds, s)), (up(plateau[0], s), plateau[1])
    moved, ends = list(thresholds), None if plateau is None else list(plateau)
    for group in allocation.groups:
        if allocation.origins[group[0]] == "fixed":
            continue
        for k in group:
            moved[k] = up(thresholds[k], s[:, group])
            if ends is not None:
                ends[k] = (up(plateau[k][0], s[:, group]), plateau[k][1])
    return Threshold(tuple(moved)), ends


def _error(problem: Problem, batch: Batch, rule: Rule) -> Any:
    """Return by how much a threshold on unrounded scores might be better; None if unknown."""
    objective = problem.objective
    if problem.shared or problem.confidence is not None:
        return None
    if objective.task != "binary" and objective.average == "micro":
        return None
    thresholds = rule.numbers
    found = []
    for k, threshold in enumerate([thresholds] if isinstance(thresholds, float) else thresholds):
        curve = threshold_search.class_curve(batch, [k])
        most = _most(problem, curve)
        if most is None:
            return None
        place = int((curve.thresholds >= threshold).sum()) - 1
        found.append((most - objective.values(curve.counts)[place]).clamp(min=0))
    errors = torch.stack(found)
    if objective.task == "binary":
        return errors.item()
    if objective.average == "per-class":
        return errors[list(objective.labels)].tolist() if objective.labels is not None else errors.tolist()
    positives = (batch.targets * batch.weight).sum(0)  # type: ignore[operator]
    return mean_over_classes(
        errors, class_weights(objective.average, positives, objective.labels, objective.empty_classes)
    ).item()


def _most(problem: Problem, curve: Curve) -> Tensor | None:
    """Return the highest value that any threshold between those of a curve may have."""
    bounds = _bounds(problem.objective.metric, curve)
    if bounds is None:
        return None
    for constraint in problem.constraints:
        metric = get(constraint.metric)
        spare = _bounds(lambda c, metric=metric, it=constraint: 0.0 - it.violation(metric(c)), curve)
        if spare is None:
            return None
        bounds = bounds.masked_fill(spare < 0, -torch.inf)
    return bounds.max() if len(bounds) else torch.tensor(-torch.inf, dtype=torch.float64)


def _bounds(metric: Callable[..., Any], curve: Curve) -> Tensor | None:
    """Return the highest value of a metric between each two neighbouring thresholds; None if it is no plain arithmetic.

    The corner that its slopes point to, where they keep their sign; else the limit by interval arithmetic. Where that
    has none, since the metric may be 0/0 in a corner, the best of the other corners.
    """
    c = curve.counts
    tp, fp, positives, negatives = c.tp, c.fp, float(c.positives[0]), float(c.negatives[0])
    span = (tp[:-1], tp[1:], fp[:-1], fp[1:])
    try:
        least = bounds.limits(lambda x: 0.0 - metric(x), span, positives, negatives).least
        limits = bounds.limits(metric, span, positives, negatives)
    except (TypeError, AttributeError):
        return None

    def at(corner_tp: Tensor, corner_fp: Tensor) -> Tensor:
        sides = (torch.full_like(corner_tp, positives), torch.full_like(corner_tp, negatives))
        return torch.as_tensor(metric(cells(corner_tp, corner_fp, *sides))).expand_as(corner_tp)

    corners = torch.stack([at(x, y) for x in span[:2] for y in span[2:]]).nan_to_num(-torch.inf).amax(0)
    signs = [(low >= 0) | (high <= 0) for low, high in (limits.along_tp, limits.along_fp)]
    bound = (-least).expand_as(corners)
    return torch.where((signs[0] & signs[1]) | ~bound.isfinite(), corners, bound)
