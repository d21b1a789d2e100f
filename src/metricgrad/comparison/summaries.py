"""``summary.json`` in a run folder: what it holds, how that of a comparison is made, and how it is read.

A number that is not known is None.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import numpy as np

from metricgrad import __version__
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.contender_outcomes import MemberWeight, describe_members
from metricgrad.comparison.contenders import ENSEMBLE
from metricgrad.comparison.importance import ColumnImportance  # noqa: TC001 (read at run time, as those below)
from metricgrad.comparison.leaderboard import LeaderboardRow  # noqa: TC001
from metricgrad.comparison.shipped_model import ShippedModel, ShippedRule  # noqa: TC001
from metricgrad.comparison.verdict import VerdictSummary  # noqa: TC001
from metricgrad.core.metrics.constraints import parse
from metricgrad.decisions.default_rule import default_rule
from metricgrad.strict_json import Line, Name  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.options import Dataset, Options
    from metricgrad.comparison.outcomes import Outcome
    from metricgrad.comparison.run_comparison import Plan
    from metricgrad.comparison.run_folder import Run

MOST_IMPORTANT_COLUMNS = 20
"""The most columns whose importance is reported."""


class DataSummary(TypedDict):
    """The data set as it was read."""

    file: str
    rows: int
    task: Literal["binary", "multiclass", "multilabel"]
    target: list[str]
    classes: list[str]  # binary: the negative one, then the positive one
    balance: list[float]  # the share of rows of each class
    profile: list[tuple[str, str]]  # label, text
    warnings: list[str]


class MetricSummary(TypedDict):
    """The metric that everything is optimised for and evaluated by."""

    name: str  # as ``metrics.get`` takes it
    average: str | None  # None for a binary task
    subject_to: str | None
    also: list[str]  # other metrics that ``LeaderboardRow["others"]`` holds
    constraints: NotRequired[list[dict[str, Any]]]  # ``subject_to`` as metric, bound, sense and over
    cost: NotRequired[str]  # what decisions cost, as the command line takes it
    cost_columns: NotRequired[list[str]]  # the columns that have the cost of each row
    abstain: NotRequired[bool]  # whether rows may be left undecided
    title: NotRequired[str]  # for people: "F1 of the class 'yes'", "macro-averaged F2"


class Reproduction(TypedDict):
    """What it takes to run the same again."""

    command: str
    seed: int
    versions: dict[str, str]
    machine: str


class ComparisonSummary(TypedDict):
    """The summary of ``compare`` and ``demo``: all that they found, but for what only charts show."""

    version: str  # of metricgrad
    created: str  # ISO 8601
    command: str
    verdict: VerdictSummary
    data: DataSummary
    metric: MetricSummary
    repeats: int
    planned_repeats: NotRequired[int]  # those that were asked for, of which a budget may have allowed fewer
    model: NotRequired[ShippedRule]
    protocol: list[str]  # sentences
    leaderboard: list[LeaderboardRow]  # best first
    left_out: list[tuple[str, str]]  # contender, why it was not tried or did not finish
    reproduce: Reproduction
    members: NotRequired[list[MemberWeight]]  # of the ensemble, if it is in the leaderboard
    importance: NotRequired[list[ColumnImportance]]  # of the columns with the largest drops, largest first


class TrainedTable(TypedDict):
    """The data set of ``train``."""

    file: Line
    rows: int
    task: Line


class TrainingSummary(TypedDict):
    """The summary of ``train``."""

    contender: Name
    rule: Line
    metric: Name
    average: Line
    subject_to: Line | None
    kind: Line
    tuned_on: Line
    value_there: float
    plateaus: NotRequired[list[tuple[float, float] | None]]
    cost: NotRequired[Line]
    abstain: NotRequired[bool]
    abstain_label: NotRequired[int | Line | None]
    coverage: NotRequired[float]
    members: NotRequired[dict[Name, float]]
    data: TrainedTable
    profile: NotRequired[list[tuple[Line, Line]]]
    warnings: list[str]


_SUMMARIES = {"compare": ComparisonSummary, "train": TrainingSummary}


def read_summary(run: Run) -> dict[str, Any]:
    """Return the summary of a finished run, or raise a ``UserError``."""
    return run.read_json("summary.json", _SUMMARIES[run.manifest["kind"]])  # type: ignore[no-any-return]


# The summary of a comparison


def summarise_comparison(
    plan: Plan,
    outcomes: Sequence[Outcome],
    rows: list[LeaderboardRow],
    verdict: VerdictSummary,
    model: ShippedModel,
    importance: Sequence[ColumnImportance],
    ship: str | None,
    budget: float | None,
) -> ComparisonSummary:
    """Return what a comparison found; ``ship``, ``budget``: as the user gave them."""
    options, dataset = plan.options, plan.dataset
    repeats = len({outcome.repeat for outcome in outcomes})
    environment = runs.describe_environment()
    command = options.command(ship, budget)
    # A budget allows what the machine can do in it; the number of repeats is the same everywhere, unless it changes the
    # splits.
    if repeats < options.repeats and options.time is not None:
        same_again = command
    else:
        same_again = replace(options, repeats=repeats).command(ship)
    summary: ComparisonSummary = {
        "version": __version__,
        "created": runs.now(),
        "command": command,
        "verdict": verdict,
        "data": describe_data(options, dataset),
        "metric": describe_goal(dataset),
        "repeats": repeats,
        "planned_repeats": options.repeats,
        "model": model.describe(),
        "protocol": describe_protocol(plan, repeats),
        "leaderboard": rows,
        "left_out": plan.left_out,
        "reproduce": {
            "command": same_again,
            "seed": options.seed,
            "versions": environment["versions"],
            "machine": environment["machine"],
        },
    }
    of_ensemble = [outcome for outcome in outcomes if outcome.contender == ENSEMBLE]
    if of_ensemble:
        summary["members"] = describe_members(of_ensemble)
    if importance:
        summary["importance"] = list(importance[:MOST_IMPORTANT_COLUMNS])
    return summary


def describe_data(options: Options, dataset: Dataset) -> DataSummary:
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


def describe_goal(dataset: Dataset) -> MetricSummary:
    """Return what is optimised."""
    goal = dataset.goal
    found: MetricSummary = {
        "name": goal.metric,
        "average": None if goal.task == "binary" else goal.average,
        "title": dataset.metric_title,
        "subject_to": goal.subject_to,
        "also": dataset.also,
        "constraints": [
            {"metric": str(one.metric), "bound": one.bound, "sense": one.sense, "over": one.over}
            for one in parse(goal.subject_to)
        ],
    }
    if goal.abstain:
        found["abstain"] = True
    if goal.cost is not None:
        found["cost"] = goal.cost
        found["cost_columns"] = goal.cost_columns
    return found


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
        *_describe_guarantee(dataset),
    ]


def _describe_guarantee(dataset: Dataset) -> list[str]:
    """Return what the rows of the guarantee are for, if there are any."""
    held_out = dataset.guarantee
    if held_out is None:
        return []
    return [
        f"{len(held_out.targets)} further rows are held out for the guarantee: nothing is trained or evaluated on "
        f"them, and the rule of the shipped model is tuned on them so that {dataset.goal.subject_to} holds on new rows "
        f"with {100 * held_out.confidence:g} % confidence."
    ]


def _name_part(folds: int) -> str:
    return {2: "half", 3: "third", 4: "quarter", 5: "fifth"}.get(folds, f"part of {folds}")
