"""Tuning over shards: the rule that is best on all data, from score tables that were merged.

A table of distinct scores with their counts has the same curve as the rows it was made of, and curves are all that a
rule is tuned on. Rounded scores have fewer thresholds, but each of them is exact: scores are rounded down onto a grid,
so that a threshold on the grid decides as it would on the exact scores. Between two neighbouring thresholds the counts
lie in a box, and ``metrics.bounds`` bounds the metric there, and so what a finer threshold might gain.
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
    from metricgrad.decisions.rare_labels import RareLabelPlan
    from metricgrad.evaluation.score_tables import ScoreTables


def tune_tables(problem: Problem, tables: ScoreTables) -> TuningResult:
    """Find the best rule on all scores that were added to the tables."""
    objective = problem.objective
    if several := [*count_values(objective.metric)]:
        raise ValueError(f"metric: expected one {several[0]} for all classes to tune on tables, got one per class")
    if objective.row_costs is not None:
        raise ValueError("metric: expected costs that are the same for every row, got arrays; use tune_threshold")
    if objective.task == "multiclass" or objective.average == "samples":
        wanted = "task='binary' or 'multilabel' and an average other than 'samples'"
        raise ValueError(f"tune: expected {wanted}, since rows are not kept; use tune_threshold on the rows")
    positives, samples, weight, squares = (total.cpu() for total in tables.totals)
    if not samples.sum():
        raise ValueError("scores: expected at least one sample to tune on, got none")
    batch = tables.batch().on_host()
    sizes = problem.take_smaller_sides(positives, samples).tolist()
    plan = problem.plan_by_sizes(sizes, batch.logits.shape[1])
    every_weight_is_one = torch.equal(weight, samples) and torch.equal(squares, samples)  # since Σ(w − 1)² = 0
    labels_are_hard = batch.weight is None or torch.equal(batch.weight.round(), batch.weight)
    if problem.confidence is not None and not (every_weight_is_one and labels_are_hard):
        raise ValueError(
            "confidence: expected rows without weights or soft labels, since rows are not kept; use tune_threshold"
        )
    rule, exact, plateau = problem.solve(batch, plan, weights_are_repetitions=True)
    error: Any = 0.0
    if tables.bits is not None:
        rule, plateau = _move_onto_grid(batch, rule, plateau, plan)
        error = _bound_error(problem, batch, rule) if set(plan.sources) == {"own"} else None
        exact = exact and error == 0
    return TuningResult(
        rule=rule,
        value=problem.value(batch, rule).tolist(),
        exact=exact,
        plateau=plateau,
        fewest=sizes,
        origins=list(plan.sources),
        caution=plan.caution,
        _problem=problem,
        _batch=batch,
        _resampling=None,
        error=error,
        guarantees=problem.list_guarantees(batch, rule),
    )


def _move_onto_grid(batch: Batch, rule: Rule, plateau: Any, plan: RareLabelPlan) -> tuple[Rule, Any]:
    """Move thresholds from midway between two rounded scores up to the higher one: exact scores may lie between."""
    if not plan.tunes_any:
        return rule, plateau
    scores = batch.logits if batch.weight is None else batch.logits.masked_fill(batch.weight <= 0, torch.inf)

    def move_up(threshold: float, scores: Tensor) -> float:
        return scores[scores >= threshold].min().item() if threshold < torch.inf else threshold

    thresholds = rule.numbers
    if isinstance(thresholds, float):
        low, high = plateau
        return Threshold(move_up(thresholds, scores)), (move_up(low, scores), high)
    moved = list(thresholds)
    plateaus = None if plateau is None else list(plateau)
    for group in plan.groups:
        if plan.sources[group[0]] == "fixed":
            continue
        for k in group:
            moved[k] = move_up(thresholds[k], scores[:, group])
            if plateaus is not None:
                low, high = plateau[k]
                plateaus[k] = (move_up(low, scores[:, group]), high)
    return Threshold(tuple(moved)), plateaus


def _bound_error(problem: Problem, batch: Batch, rule: Rule) -> Any:
    """Return by how much a threshold on unrounded scores might be better; None if unknown."""
    objective = problem.objective
    if problem.shared or problem.confidence is not None:
        return None
    if objective.task != "binary" and objective.average == "micro":
        return None
    thresholds = [rule.numbers] if isinstance(rule.numbers, float) else rule.numbers
    errors_of_classes = []
    for k, threshold in enumerate(thresholds):
        curve = threshold_search.make_curve(batch, [k])
        highest = _bound_highest_value(problem, curve)
        if highest is None:
            return None
        index = int((curve.thresholds >= threshold).sum()) - 1
        errors_of_classes.append((highest - objective.values(curve.counts)[index]).clamp(min=0))
    errors = torch.stack(errors_of_classes)
    if objective.task == "binary":
        return errors.item()
    if objective.average == "per-class":
        return errors[list(objective.labels)].tolist() if objective.labels is not None else errors.tolist()
    positives = (batch.targets * batch.weight).sum(0)  # type: ignore[operator]
    weights = class_weights(objective.average, positives, objective.labels, objective.empty_classes)
    return mean_over_classes(errors, weights).item()


def _bound_highest_value(problem: Problem, curve: Curve) -> Tensor | None:
    """Return the highest value that any threshold between those of a curve may have; None if unknown."""
    highest = _bound_between_thresholds(problem.objective.metric, curve)
    if highest is None:
        return None
    for constraint in problem.constraints:
        bounded_metric = get(constraint.metric)

        def find_slack(counts: Any, constraint: Any = constraint, metric: Any = bounded_metric) -> Any:
            return 0.0 - constraint.violation(metric(counts))

        slack = _bound_between_thresholds(find_slack, curve)
        if slack is None:
            return None
        highest = highest.masked_fill(slack < 0, -torch.inf)
    return highest.max() if len(highest) else torch.tensor(-torch.inf, dtype=torch.float64)


def _bound_between_thresholds(metric: Callable[..., Any], curve: Curve) -> Tensor | None:
    """Return an upper bound of a metric between neighbouring thresholds; None if it uses more than plain arithmetic.

    Where both slopes keep their sign in the box of counts, it is the value at the best corner, otherwise the limit by
    interval arithmetic; where that is infinite, since the metric is 0/0 at a corner, the best of the other corners.
    """
    tp = curve.counts.tp
    fp = curve.counts.fp
    positives = float(curve.counts.positives[0])
    negatives = float(curve.counts.negatives[0])
    tp_ends = (tp[:-1], tp[1:])
    fp_ends = (fp[:-1], fp[1:])
    span = (*tp_ends, *fp_ends)
    try:
        lowest_negated = bounds.limits(lambda c: 0.0 - metric(c), span, positives, negatives).least
        limits = bounds.limits(metric, span, positives, negatives)
    except (TypeError, AttributeError):
        return None

    def evaluate_corner(corner_tp: Tensor, corner_fp: Tensor) -> Tensor:
        totals = (torch.full_like(corner_tp, positives), torch.full_like(corner_tp, negatives))
        return torch.as_tensor(metric(cells(corner_tp, corner_fp, *totals))).expand_as(corner_tp)

    at_corners = [evaluate_corner(corner_tp, corner_fp) for corner_tp in tp_ends for corner_fp in fp_ends]
    best_corner = torch.stack(at_corners).nan_to_num(-torch.inf).amax(0)
    keeps_sign = [(low >= 0) | (high <= 0) for low, high in (limits.along_tp, limits.along_fp)]
    by_interval_arithmetic = (-lowest_negated).expand_as(best_corner)
    corner_is_best = (keeps_sign[0] & keeps_sign[1]) | ~by_interval_arithmetic.isfinite()
    return torch.where(corner_is_best, best_corner, by_interval_arithmetic)
