"""``metricgrad tune``: another decision rule for a run's model, without training it again."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from metricgrad.comparison import protocol
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import NOTHING, WRONG_CALL, UserError
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.inference.row_checks import Labelled, describe_seen, describe_unlabelled
from metricgrad.comparison.options import name_metric, read_abstain_label
from metricgrad.comparison.plateaus import list_plateaus
from metricgrad.core.metrics.constraints import parse
from metricgrad.decisions.default_rule import RARE_LABELS
from metricgrad.decisions.problem import InfeasibleError
from metricgrad.decisions.threshold_tuning import TuningResult, tune_threshold
from metricgrad.evaluation.evaluator import evaluate
from metricgrad.storage.values import encode

if TYPE_CHECKING:
    import numpy as np

    from metricgrad.comparison.run_folder import Run
    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.comparison.tables.schema import Schema
    from metricgrad.core.costs import Cost
    from metricgrad.decisions.rules import Rule


class TunedRun(NamedTuple):
    """What was tuned, as ``metricgrad tune --json`` prints it, and the run."""

    summary: dict[str, Any]
    run: Run


def tune(
    run: str | Path,
    data: str | Path,
    metric: str | None = None,
    *,
    average: str | None = None,
    subject_to: str | None = None,
    confidence: float | None = None,
    abstain: bool = False,
    abstain_label: str | None = None,
    rows: int | None = None,
    allow_missing: bool = False,
    dry_run: bool = False,
    seed: int = 0,
    beta: float | dict[str, float] | None = None,
    alpha: float | dict[str, float] | None = None,
) -> TunedRun:
    """Tune the rule of a run's model on labelled data that it was not trained on, and write it into the run.

    ``metric``, ``average``: by default those of the run. ``subject_to``, ``confidence``: as for ``tune_threshold``.
    ``abstain``, ``abstain_label``: as for ``compare``.
    ``beta``, ``alpha``: parameters of ``metric``, a number or {class: number}.
    ``allow_missing``: go on if a column is mostly unknown, see ``Gaps``. ``dry_run``: do not write. Previous rules stay
    in ``model/manifest.json`` as "previous". The report of the run still shows the previous rule then.
    """
    found = runs.load(run)
    model = found.model
    undecided = (abstain, read_abstain_label(abstain_label, abstain, model.schema))
    goal = choose_goal(model, metric, average, subject_to, beta, alpha, *undecided)
    labelled = Labelled.read(model, data, rows, allow_missing)
    scores, targets, number = labelled.scores, labelled.targets, len(labelled.targets)
    seen, too_good = describe_seen(found, labelled.seen, number, data)
    costs = goal.find_costs(labelled.frame) if goal.metric == model.goal.metric else None
    tuning = _tune_rule(goal, scores, targets, confidence, seed, costs, model.schema)
    expected = _expect(goal, tuning, scores, targets, costs)
    old, warnings = model.rule, [*filter(None, [tuning.caution]), *expected.find_broken()]
    before = _evaluate_old(goal, old, scores, targets, costs)
    guarantees = [one.describe(model.schema.short_names) for one in tuning.guarantees]
    if not dry_run:
        about = {
            **goal.describe(),
            "kind": "tuned",
            "tuned_on": f"{number} rows of {Path(data).name}, at {runs.now()}",
            "value_there": tuning.value,
            "plateaus": list_plateaus(tuning.plateau, goal.score_columns or 1),
            "guarantees": guarantees,
            **({"coverage": tuning.coverage} if abstain else {}),
            "previous": list_rules(model),
        }
        found.replace_rule(tuning.rule, about)
    summary = {
        "run": str(run),
        "data": str(data),
        "rows": number,
        "metric": goal.metric,
        "average": None if goal.task == "binary" else goal.average,
        "subject_to": subject_to,
        "old": {"rule": old.describe(), "value": before},
        "new": {
            "rule": tuning.rule.describe(),
            "value": tuning.value,
            "expected": expected.value,
            "constraints": expected.constraints,
            "exact": tuning.exact,
            "plateau": tuning.plateau,
            "guarantees": guarantees,
            "coverage": tuning.coverage if abstain else None,
        },
        "written": not dry_run,
        "unknown": dict(labelled.gaps.unknown),
        "seen_in_training": seen,
        "warnings": [
            *too_good,
            *describe_unlabelled(labelled.unlabelled, number),
            *labelled.gaps.describe(model.schema),
            *_describe_dropped(model, goal, confidence),
            *warnings,
        ],
    }
    return TunedRun(summary, found)


def _describe_dropped(model: ShippedModel, goal: Goal, confidence: float | None) -> list[str]:
    """Return a warning if the new rule does not keep what the present one does."""
    present = model.goal
    found = []
    if present.subject_to is not None and goal.subject_to is None:
        options = f"--subject-to '{present.subject_to}'" + (" --abstain" if present.abstain else "")
        found.append(
            f"the present rule is subject to {present.subject_to}, the new one to nothing; keep it by {options}"
        )
    if model.about.get("guarantees") and confidence is None:
        found.append("the present rule has a guarantee, the new one has none; for one pass --confidence")
    return found


class Expected(NamedTuple):
    """What to expect on new rows: the value of the metric, and of the metric of each constraint."""

    value: float
    constraints: list[dict[str, Any]]

    def find_broken(self) -> list[str]:
        """Return a warning for each constraint that is met here, but not to be expected on new rows."""
        how = "ask for more than you need, or use --confidence"
        return [
            f"{one['constraint']}: expect {one['expected']:.4f} on new rows; {how}"
            for one in self.constraints
            if not one["expected_met"]
        ]


def _expect(goal: Goal, tuning: TuningResult, scores: np.ndarray, targets: np.ndarray, costs: Cost | None) -> Expected:
    """Return the mean values of rules that are tuned on resamples and evaluated on the rows that these leave out.

    No mean is better than the value of ``tuning.rule`` here: a rule that breaks the constraint on the rows left out may
    have a higher metric there, which the tuned rule is not allowed to reach.
    """
    here = protocol.evaluate_constraints(goal, tuning.rule, scores, targets)
    drawn = []
    for rule, left_out in tuning.resample():
        rows = left_out.numpy()
        if rows.any():
            again = protocol.evaluate_constraints(goal, rule, scores[rows], targets[rows])
            some_costs = None if costs is None else costs.take(rows)
            value_there = _evaluate(goal, rule, scores[rows], targets[rows], some_costs)
            drawn.append([value_there, *(one.value for one in again)])
    value, *means = torch.tensor(drawn, dtype=torch.float64).reshape(-1, 1 + len(here)).nanmean(0).tolist()
    constraints = []
    for one, constraint, mean in zip(here, parse(goal.subject_to), means, strict=True):
        expected = min(mean, one.value) if constraint.sense == ">=" else max(mean, one.value)
        constraints.append({**asdict(one), "expected": expected, "expected_met": constraint.met(expected)})
    return Expected(min(value, tuning.value), constraints)


def _evaluate(goal: Goal, rule: Rule, scores: np.ndarray, targets: np.ndarray, costs: Cost | None) -> float:
    """Return the metric of a rule on these rows; NaN where it is not defined, as one's own may be."""
    metric = goal.metric if costs is None else costs
    return float(evaluate(scores, targets, {"": metric}, task=goal.task, average=goal.average, rule=rule)[""])


def _evaluate_old(goal: Goal, old: Rule, scores: np.ndarray, targets: np.ndarray, costs: Cost | None) -> float:
    """Return the metric of the previous rule; NaN if the metric has no place for the rows that it leaves undecided."""
    try:
        return _evaluate(goal, old, scores, targets, costs)
    except ValueError:
        if not old.abstains:
            raise
        return math.nan


def choose_goal(
    model: ShippedModel,
    metric: str | None,
    average: str | None,
    subject_to: str | None,
    beta: float | dict[str, float] | None = None,
    alpha: float | dict[str, float] | None = None,
    abstain: bool = False,
    abstain_label: int | str | None = None,
) -> Goal:
    """Return what to tune for: the options given, and the run's metric and average for those left out."""
    if metric is None and not beta is alpha is None:
        raise UserError("--beta and --alpha: expected --metric with them, such as --metric f_beta", WRONG_CALL)
    if metric is not None:
        metric = name_metric(metric, {"alpha": alpha, "beta": beta}, model.schema)
    metric = metric or runs.check_code_was_typed(model.goal.metric, ())
    chosen: Any = average or model.goal.average  # any text; checked here
    task, classes = model.goal.task, model.goal.classes
    goal = Goal(task, classes, metric, chosen, subject_to, model.goal.cost, abstain, abstain_label)
    protocol.check_goal(goal, [])
    return goal


def _tune_rule(
    goal: Goal,
    scores: np.ndarray,
    targets: np.ndarray,
    confidence: float | None,
    seed: int,
    costs: Cost | None,
    schema: Schema,
) -> TuningResult:
    try:
        return tune_threshold(
            goal.metric if costs is None else costs,
            scores,
            targets,
            task=goal.task,
            average=goal.average,
            shared=protocol.describe_tuning(goal).shared,
            subject_to=goal.subject_to,
            confidence=confidence,
            abstain=goal.abstain,
            rare_labels=RARE_LABELS,
            replicates=50,
            seed=seed,
        )
    except InfeasibleError as error:
        text = protocol.name_class(str(error), schema)
        raise UserError(f"{text}; relax the constraint, or train with --subject-to", NOTHING) from error
    except ValueError as error:
        raise UserError(str(error), WRONG_CALL) from error


def list_rules(model: ShippedModel) -> list[dict[str, Any]]:
    """Return the previous rules of a model and its present one, as plain data."""
    about = {key: value for key, value in model.about.items() if key != "previous"}
    return [*model.about.get("previous", []), {"rule": encode(model.rule)} | about]
