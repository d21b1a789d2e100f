"""The protocol: decision rules for scores, fixed and tuned, and their values on other rows.

A rule is tuned on out-of-fold scores: each row is scored by a model that was not trained on it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.comparison.outcomes import Decision
from metricgrad.core.metrics import get
from metricgrad.core.metrics.constraints import parse
from metricgrad.decisions.default_rule import RARE_LABELS, default_rule
from metricgrad.decisions.problem import InfeasibleError
from metricgrad.decisions.rules import ArgmaxOrAbstain, Rule, Threshold
from metricgrad.decisions.threshold_tuning import TuningResult, TuningSpec, tune_threshold
from metricgrad.evaluation.evaluator import Evaluator, evaluate
from metricgrad.evaluation.score_tables import RANKING_METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from metricgrad.comparison.goal import Goal
    from metricgrad.comparison.tables.schema import Schema
    from metricgrad.core.costs import Cost
    from metricgrad.core.metrics.averages import Average, EmptyClasses
    from metricgrad.core.metrics.constraints import Constraint


@dataclass(frozen=True)
class ConstraintValue:
    """A constraint, the value of its metric (for several labels the worst one), and whether it is met."""

    constraint: str
    value: float
    met: bool


def check_goal(goal: Goal, also: list[str]) -> None:
    """Raise if the metrics or constraints do not fit the task, before anything is trained."""
    if goal.metric in RANKING_METRICS:
        raise UserError(
            f"--metric: {goal.metric} evaluates a ranking, not decisions; put another metric first: f1,{goal.metric}",
            WRONG_CALL,
        )
    try:
        goal.check_values(goal.metric, *also)
        describe_tuning(goal).problem()
        Evaluator([goal.metric, *also], task=goal.task, average=goal.average)
        for constraint in parse(goal.subject_to):
            get(constraint.metric)
    except ValueError as error:
        text = str(error)
        for name in ("subject_to", "metric", "abstain"):
            text = text.replace(f"{name}:", f"--{name.replace('_', '-')}:")
        text = text.replace("abstain=True", "--abstain")
        raise UserError(text, WRONG_CALL) from error


def name_class(text: str, schema: Schema) -> str:
    """Return a message with the name of a class in the place of its index."""
    return re.sub(r"\bin class (\d+)", lambda found: f"in class {schema.short_names[int(found[1])]!r}", text)


def make_rules(goal: Goal, scores: np.ndarray, targets: np.ndarray, costs: Cost | None = None) -> dict[str, Decision]:
    """Return the fixed rule and the rule tuned on out-of-fold scores, with their values there, which are optimistic.

    ``costs``: of these rows, if they differ by row; the scores are then moved by them.
    """
    plain = default_rule(goal.task)
    value = compute_metric(goal, plain, scores, targets, costs)
    found = {"fixed": Decision(plain, value, {}, feasible=meets_constraints(goal, plain, scores, targets))}
    try:
        tuning = tune_rule(goal, scores, targets, costs)
    except InfeasibleError:
        found["tuned"] = Decision(make_negative_rule(goal), 0.0, {}, feasible=False)
        return found
    value = compute_metric(goal, tuning.rule, scores, targets, costs)
    found["tuned"] = Decision(tuning.rule, value, {}, plateau=tuning.plateau, coverage=tuning.coverage)
    return found


def tune_rule(
    goal: Goal,
    scores: np.ndarray,
    targets: np.ndarray,
    costs: Cost | None = None,
    confidence: float | None = None,
) -> TuningResult:
    """Return the rule that is best on the given scores."""
    how = describe_tuning(goal)
    options: dict[str, Any] = {
        "task": how.task,
        "average": how.average,
        "shared": how.shared,
        "subject_to": how.subject_to,
        "rare_labels": how.rare_labels,
        "confidence": confidence,
        "abstain": how.abstain,
    }
    return tune_threshold(how.metric if costs is None else costs, scores, targets, **options)


def describe_tuning(goal: Goal) -> TuningSpec:
    """Return how the rule for a goal is tuned."""
    # With these averages a constraint can only be met by one threshold shared by all labels.
    pooled = goal.task == "multilabel" and goal.average in ("micro", "samples") and goal.subject_to is not None
    return TuningSpec(
        goal.metric,
        goal.task,
        goal.average,
        shared=pooled,
        subject_to=goal.subject_to,
        rare_labels=RARE_LABELS,
        abstain=goal.abstain,
    )


def make_negative_rule(goal: Goal) -> Rule:
    """Return the rule that never predicts a positive, for the case that no rule meets the constraint."""
    if goal.abstain:
        return ArgmaxOrAbstain((math.inf,) * goal.classes)
    return Threshold(math.inf if goal.task == "binary" else (math.inf,) * goal.classes)


def evaluate_rules(
    goal: Goal,
    also: list[str],
    rules: dict[str, Decision],
    scores: np.ndarray,
    targets: np.ndarray,
    costs: Cost | None = None,
) -> tuple[Decision, Decision]:
    """Return the fixed and the tuned rule, evaluated on test rows."""
    fixed, tuned = (
        replace(rules[name], **evaluate_rule(goal, also, rules[name].rule, scores, targets, costs))
        for name in ("fixed", "tuned")
    )
    return fixed, tuned


def evaluate_rule(
    goal: Goal, also: list[str], rule: Rule, scores: np.ndarray, targets: np.ndarray, costs: Cost | None = None
) -> dict[str, Any]:
    """Return the value of a rule on these rows, the other metrics, whether the constraint is met, and the coverage."""
    others = {}
    if also:
        empty_classes = choose_empty_classes(goal, targets)
        found = evaluate(
            scores, targets, also, task=goal.task, average=goal.average, rule=rule, empty_classes=empty_classes
        )
        others = {key: value if math.isfinite(value) else None for key, value in found.items()}
    value = compute_metric(goal, rule, scores, targets, costs)
    met = meets_constraints(goal, rule, scores, targets)
    return {"value": value, "others": others, "met": met, "coverage": measure_coverage(rule, scores)}


def measure_coverage(rule: Rule, scores: np.ndarray) -> float:
    """Return the share of the rows that a rule decides."""
    return float((np.asarray(rule(scores)) >= 0).mean()) if rule.abstains else 1.0


def meets_constraints(goal: Goal, rule: Rule, scores: np.ndarray, targets: np.ndarray) -> bool:
    """Return whether a rule meets the constraints on these rows."""
    return all(constraint.met for constraint in evaluate_constraints(goal, rule, scores, targets))


def evaluate_constraints(goal: Goal, rule: Rule, scores: np.ndarray, targets: np.ndarray) -> list[ConstraintValue]:
    """Return the value of each constraint on these rows, and whether it is met, by the criterion used in tuning.

    Each of several labels must meet it, unless one shared threshold was tuned: then the average must. If rows may be
    left undecided, each class that is predicted must meet it.
    """
    average = choose_constraint_average(goal)
    found = []
    for constraint in parse(goal.subject_to):
        metrics = choose_constraint_metrics(constraint)
        values = evaluate(scores, targets, metrics, task=goal.task, average=average, rule=rule)
        found.append(evaluate_constraint(goal, constraint, values))
    return found


def choose_constraint_average(goal: Goal) -> Average | None:
    """Return the average of a constraint's metric, None if each label must meet it."""
    each = goal.abstain or (goal.task == "multilabel" and not describe_tuning(goal).shared)
    return None if each else goal.average


def choose_constraint_metrics(constraint: Constraint) -> dict[str, Any]:
    """Return the metrics that ``evaluate_constraint`` needs."""
    return {"value": constraint.metric, "predicted": "predicted_positive_rate"}


def evaluate_constraint(goal: Goal, constraint: Constraint, values: Mapping[str, Any]) -> ConstraintValue:
    """Return the worst of the values of a constraint's metric, and whether all of them meet it."""
    each = torch.as_tensor(values["value"], dtype=torch.float64).reshape(-1)
    predicted = torch.as_tensor(values["predicted"], dtype=torch.float64).reshape(-1)
    if goal.abstain and bool((predicted > 0).any()):
        each = each[predicted > 0]  # a class that is never predicted has no value
    worst = constraint.violation(each).nan_to_num(nan=-math.inf).argmax()
    return ConstraintValue(str(constraint), each[worst].item(), constraint.met(each))


def choose_empty_classes(goal: Goal, targets: np.ndarray) -> EmptyClasses:
    """Return whether averages over classes skip those without rows: "skip" if some class has none here.

    If every class has rows it is "count", so that a class which a bootstrap replicate loses still counts. A binary task
    has no average.
    """
    if goal.task == "binary":
        return "count"
    counts = targets.sum(0) if targets.ndim == 2 else np.bincount(targets, minlength=goal.classes)
    return "count" if counts.all() else "skip"


def compute_metric(goal: Goal, rule: Rule, scores: np.ndarray, targets: np.ndarray, costs: Cost | None = None) -> float:
    """Return the metric of a goal under a rule on these rows, or raise if it is not finite."""
    options: dict[str, Any] = {
        "task": goal.task,
        "average": goal.average,
        "empty_classes": choose_empty_classes(goal, targets),
    }
    metric = goal.metric if costs is None else costs
    value = float(evaluate(scores, targets, {"": metric}, rule=rule, **options)[""])
    if not math.isfinite(value):
        raise UserError(
            f"--metric: expected a finite value of {goal.metric}, got {value}; give its divisions a value for 0/0"
        )
    return value
