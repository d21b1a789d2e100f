"""What ``compare`` reports: the table of results, the protocol in words, and the payload of the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from metricgrad import __version__
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.contender_outcomes import describe_members
from metricgrad.comparison.contenders import ENSEMBLE
from metricgrad.comparison.leaderboard import RULES
from metricgrad.comparison.report.formulas import add_formulas
from metricgrad.comparison.report.section_inputs import ShippedModelInputs
from metricgrad.comparison.report.sections import SECTIONS
from metricgrad.comparison.section_details import details, predict
from metricgrad.core.metrics.constraints import parse
from metricgrad.decisions.default_rule import default_rule
from metricgrad.estimators.columns.column import Column, describe_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.options import Dataset, Options
    from metricgrad.comparison.outcomes import Outcome
    from metricgrad.comparison.report.payload import ColumnImportance, Data, Metric, Payload
    from metricgrad.comparison.report.section_inputs import Predictions
    from metricgrad.comparison.run_comparison import Plan
    from metricgrad.comparison.run_writer import RunWriter
    from metricgrad.comparison.shipped_model import ShippedModel


TOP = 20
"""The most columns whose importance is reported."""


def flatten(outcomes: Sequence[Outcome], metric: str) -> pd.DataFrame:
    """Return a row per contender, repeat, rule and metric."""
    rows = []
    for o in outcomes:
        for rule in RULES:
            decision = getattr(o, rule)
            about = {"contender": o.contender, "repeat": o.repeat, "rule": rule, "decision": repr(decision.rule)}
            more = {"feasible": decision.feasible, "met": decision.met, "seconds": o.seconds}
            more |= {"train_rows": o.train_rows, "test_rows": o.test_rows}
            for name, value in {metric: decision.value, **decision.others}.items():
                rows.append({**about, "metric": name, "value": value, **more})
    return pd.DataFrame(rows)


def describe_protocol(plan: Plan, repeats: int) -> list[str]:
    """Return the protocol in words."""
    options, dataset = plan.options, plan.dataset
    train_rows = round(np.mean([len(part.train) for part in plan.parts]))
    test_rows = round(np.mean([len(part.test) for part in plan.parts]))
    folds = len(plan.parts[0].folds)
    how = "stratified by class" if dataset.goal.task != "multilabel" else "stratified by the rarest label of each row"
    if options.group is not None:
        how = f"by whole groups of {options.group}"
    if options.time is not None:
        how = f"forward in {options.time}: trained on the past, evaluated on the future"
        if options.group is not None:
            how += f", without the past of any {options.group} that is in it"
    fitted = (
        f"Every contender is cross-fitted: {folds} models, each trained without a {_name_part(folds)} of the training "
        "rows, which it is stopped early and scored on. Their mean is what is evaluated on the test rows."
        if folds > 1
        else "Every contender is trained on the earlier training rows; early stopping and tuning use the latest fifth."
    )
    ensemble = (
        "The ensemble averages others; its weights are chosen in each repeat for the metric under its tuned rule, on "
        "the same out-of-fold scores. It is a MetricEnsembleClassifier."
    )
    quick = "This is a first look: fewer contenders, repeats, folds and epochs than by default."
    return [
        f"{repeats} repeats, {how}: {train_rows} rows for training, {test_rows} for evaluation.",
        *([quick] if options.quick else []),
        f"Every contender gets the same rows; the encoder of its features is fitted on the training rows. {fitted}",
        f"Each is evaluated with two rules: fixed ({default_rule(dataset.goal.task).describe()}), and tuned on "
        "the scores of rows that the models were not trained on.",
        "Intervals (95 %) and p-values: a bootstrap of the test rows, paired and with all repeats together, plus the "
        "variance over the repeats that test rows do not explain. Those of differences are adjusted by Holm's method "
        "for the two references: an interval excludes 0 exactly if p < 5 %.",
        *([ensemble] if ENSEMBLE in plan.contenders else []),
        f"The shipped model is the named contender fitted on all {len(dataset.targets)} rows in the same way, its rule "
        "too.",
    ]


def _name_part(folds: int) -> str:
    return {2: "half", 3: "third", 4: "quarter", 5: "fifth"}.get(folds, f"part of {folds}")


def describe_data(options: Options, dataset: Dataset) -> Data:
    """Return the data set as it was read."""
    counts = (
        dataset.targets.sum(0)
        if dataset.goal.task == "multilabel"
        else np.bincount(dataset.targets, minlength=dataset.goal.classes)
    )
    return {
        "file": Path(options.data).name,
        "rows": len(dataset.targets),
        "task": dataset.goal.task,
        "target": list(dataset.schema.target.columns),
        "classes": list(dataset.schema.classes),
        "balance": [float(count) / len(dataset.targets) for count in counts],
        "profile": dataset.profile,
        "warnings": dataset.warnings,
    }


def describe_goal(dataset: Dataset) -> Metric:
    """Return what is optimised."""
    return {
        "name": dataset.goal.metric,
        "average": None if dataset.goal.task == "binary" else dataset.goal.average,
        "title": dataset.metric_title,
        "subject_to": dataset.goal.subject_to,
        "also": dataset.also,
        "constraints": [
            {"metric": str(one.metric), "bound": one.bound, "sense": one.sense, "over": one.over}
            for one in parse(dataset.goal.subject_to)
        ],
    }


def make_payload(
    plan: Plan,
    space: RunWriter,
    outcomes: Sequence[Outcome],
    rows: Any,
    found: Any,
    model: ShippedModel,
    importance: Sequence[ColumnImportance],
    budget: float | None,
) -> Payload:
    """Return what the report shows."""
    options, dataset = plan.options, plan.dataset
    repeats = len({o.repeat for o in outcomes})
    by_name: dict[str, list[Outcome]] = {}
    for o in sorted(outcomes, key=lambda o: o.repeat):
        by_name.setdefault(o.contender, []).append(o)
    tested = _predict(plan, space, by_name[found["ship"]], found["rule"], model)
    about = {
        name: details(tested if name == found["ship"] else _predict(plan, space, mine, "tuned"))
        for name, mine in by_name.items()
    }
    environment = runs.describe_environment()
    ship, cut = space.manifest.get("ship"), repeats < options.repeats
    command = options.command(ship, budget)
    # A budget allows what the machine can do in it; the number of repeats is the same everywhere, unless it changes the
    # splits.
    again = command if cut and options.time is not None else replace(options, repeats=repeats).command(ship)
    payload: Payload = {
        "version": __version__,
        "created": runs.now(),
        "command": command,
        "verdict": found,
        "data": describe_data(options, dataset),
        "metric": describe_goal(dataset),
        "repeats": repeats,
        "planned_repeats": options.repeats,
        "model": model.describe(),
        "protocol": describe_protocol(plan, repeats),
        "leaderboard": rows,
        "left_out": plan.left_out,
        "details": about,
        "study": _measure_study(plan, model, tested, importance),
        "reproduce": {
            "command": again,
            "seed": options.seed,
            "versions": environment["versions"],
            "machine": environment["machine"],
        },
    }
    if ENSEMBLE in by_name:
        payload["members"] = describe_members(by_name[ENSEMBLE])
    if importance:
        payload["importance"] = list(importance[:TOP])
    add_formulas(payload)
    return payload


def _measure_study(
    plan: Plan, model: ShippedModel, tested: Predictions, importance: Sequence[ColumnImportance]
) -> dict[str, Any]:
    """Return what sections measure once; ``tested``: the test rows as the shipped kind of rule decides them."""
    dataset = plan.dataset
    shipped = ShippedModelInputs(
        dataset.goal,
        dataset.table,
        dataset.split_all_rows(plan.options).left_out,
        model.scores,
        model.rule,
        dataset.schema.columns,
        _describe_others(dataset),
        [one["column"] for one in importance],
        tested,
    )
    return {key: value for section in SECTIONS for key, value in section.measure_study(shipped).items()}


def _describe_others(dataset: Dataset) -> list[Column]:
    """Return the columns that are no features, but have values that rows share."""
    found = (describe_column(name, dataset.table.frame[name]) for name in dataset.schema.dropped)
    return [column for column in found if isinstance(column, Column)]


def _predict(
    plan: Plan, space: RunWriter, outcomes: Sequence[Outcome], rule: str, shipped: ShippedModel | None = None
) -> Predictions:
    """Return the predictions of one contender on the test rows of all repeats."""
    goal = plan.dataset.goal
    scores = [space.read_outcome_scores(o, goal.score_columns) for o in outcomes]
    rows = [plan.parts[o.repeat].test for o in outcomes]
    return predict(goal, plan.dataset.table, outcomes, scores, rows, rule, shipped)
