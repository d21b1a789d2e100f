"""``metricgrad tune --unlabelled``: a rule for another base rate, from rows without labels; and when that is due."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from metricgrad import strict_json
from metricgrad.comparison import protocol
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import NOTHING, WRONG_CALL, UserError
from metricgrad.comparison.inference.tune import choose_goal, list_rules
from metricgrad.comparison.plateaus import list_plateaus
from metricgrad.comparison.tables import files
from metricgrad.comparison.tables.gaps import Gaps
from metricgrad.comparison.tables.stability import has_moved
from metricgrad.decisions.prevalence import NotBaseRateShiftError, as_new_scores, estimate_from_class_scores
from metricgrad.decisions.problem import InfeasibleError
from metricgrad.decisions.threshold_tuning import tune_at_prevalence

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from metricgrad.comparison.goal import Goal
    from metricgrad.comparison.run_folder import Run
    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.decisions.prevalence import Prevalence
    from metricgrad.decisions.threshold_tuning import TuningResult

LEAST_GAIN = 0.005
"""A renewed rule is due if it is expected to gain at least this much."""


class RenewedRule(NamedTuple):
    """The best rule at a base rate, and the values to expect there of the present rule and of this one."""

    tuning: TuningResult
    old_value: float
    new_value: float


class RenewedRun(NamedTuple):
    """What was renewed, as ``metricgrad tune --unlabelled --json`` prints it, and the run."""

    summary: dict[str, Any]
    run: Run


def renew(
    run: str | Path,
    data: str | Path,
    metric: str | None = None,
    *,
    average: str | None = None,
    subject_to: str | None = None,
    beta: float | dict[str, float] | None = None,
    alpha: float | dict[str, float] | None = None,
    rows: int | None = None,
    allow_missing: bool = False,
    allow_shift: bool = False,
    dry_run: bool = False,
    seed: int = 0,
) -> RenewedRun:
    """Tune the rule of a run's model for the base rate of rows without labels, and write it into the run.

    The base rate is estimated from their scores. The rule is tuned on the out-of-fold scores of the training rows, of
    which the run keeps a summary, weighted to that base rate. ``metric``, ``average``, ``subject_to``: by default those
    of the run. ``allow_shift``: go on if more than the base rate has changed. The other options: as for ``tune``.
    """
    found = runs.load(run)
    model = found.model
    if subject_to is None:
        subject_to = runs.check_code_was_typed(model.goal.subject_to, (), "--subject-to")
    if model.goal.cost_columns:
        raise UserError(
            "--unlabelled: expected a run with the same costs for every row, got one with costs of the column "
            f"{model.goal.cost_columns[0]!r}; tune on labelled rows",
            WRONG_CALL,
        )
    undecided = (model.goal.abstain, model.goal.abstain_label)
    goal = choose_goal(model, metric, average, subject_to, beta, alpha, *undecided)
    scores, gaps = _score_rows(model, data, rows, allow_missing)
    rate = _estimate_rate(model, scores, seed, allow_shift)
    renewed = renew_rule(model, goal, rate.value)
    old, lost = model.rule, []
    if model.about.get("guarantees"):
        lost.append(
            "the present rule has a guarantee, the new one has none; for one tune on labelled rows, --confidence"
        )
    if not dry_run:
        about = {
            **goal.describe(),
            "kind": "tuned",
            "tuned_on": f"the out-of-fold scores at the base rate of {len(scores)} rows of {Path(data).name}, "
            f"at {runs.now()}",
            "value_there": renewed.new_value,
            "plateaus": list_plateaus(renewed.tuning.plateau, goal.score_columns or 1),
            **({"coverage": renewed.tuning.coverage} if goal.abstain else {}),
            "previous": list_rules(model),
        }
        found.replace_rule(renewed.tuning.rule, about)
    summary = {
        "run": str(run),
        "data": str(data),
        "rows": len(scores),
        "metric": goal.metric,
        "average": None if goal.task == "binary" else goal.average,
        "subject_to": goal.subject_to,
        "base_rate": {
            "classes": _name_rates(model),
            "before": _as_list(rate.before),
            "value": _as_list(rate.value),
            "low": _as_list(rate.low),
            "high": _as_list(rate.high),
            "p_value": _as_list(rate.p_value),
            "method": rate.method,
            "moved": rate.has_moved,
        },
        "old": {"rule": old.describe(), "expected": renewed.old_value},
        "new": {
            "rule": renewed.tuning.rule.describe(),
            "expected": renewed.new_value,
            "coverage": renewed.tuning.coverage if goal.abstain else None,
        },
        "written": not dry_run,
        "unknown": dict(gaps.unknown),
        "warnings": [*gaps.describe(model.schema), *lost, *filter(None, [renewed.tuning.caution])],
    }
    return RenewedRun(summary, found)


def _score_rows(
    model: ShippedModel, data: str | Path, rows: int | None, allow_missing: bool
) -> tuple[np.ndarray, Gaps]:
    """Return the scores of the rows of a file, or of a sample of them; a target column is not read."""
    source = files.Source(data)
    schema = model.schema
    schema.check(source.names)
    frame = files.read(source, rows, columns=list(schema.inputs), texts=schema.inputs)
    if not len(frame):
        raise UserError(f"{data}: expected rows, got none")
    gaps = Gaps()
    scores = model.scores(frame, gaps)
    gaps.check(schema, data, allow_missing)
    return scores, gaps


def _estimate_rate(model: ShippedModel, scores: np.ndarray, seed: int, allow_shift: bool) -> Prevalence:
    task = model.goal.task
    try:
        new_scores = as_new_scores(scores, task, model.goal.score_columns or 1)
        return estimate_from_class_scores(model.class_scores, new_scores, task, seed=seed, check_shift=not allow_shift)
    except NotBaseRateShiftError as error:
        text = str(error).replace("new_scores:", "--unlabelled:").replace("check_shift=False", "--allow-shift")
        raise UserError(text, NOTHING) from error
    except ValueError as error:
        raise UserError(str(error), WRONG_CALL) from error


def renew_rule(model: ShippedModel, goal: Goal, prevalence: Any) -> RenewedRule:
    """Return the best rule for a goal at a base rate, by the class-wise scores that the run keeps."""
    problem = protocol.describe_tuning(goal).problem()
    batch = model.class_scores.as_batch(goal.task)
    positives, total = model.class_scores.count_sides()
    sizes = problem.take_smaller_sides(positives, total).tolist()
    try:
        tuning = tune_at_prevalence(problem, batch, prevalence, sizes, None)
        old_value = tuning.evaluate(model.rule)
    except InfeasibleError as error:
        raise UserError(f"{error}; relax the constraint, or train with --subject-to", NOTHING) from error
    except ValueError as error:
        raise UserError(str(error), WRONG_CALL) from error
    return RenewedRule(tuning, old_value, tuning.value)


def describe_due(model: ShippedModel, balance: Sequence[float], rows: int) -> list[str]:
    """Return a warning if the base rate of labelled rows moved so far that a renewed rule is expected to gain by it.

    ``balance``: the number of rows of each class, of two of the positives alone.
    """
    schema = model.schema
    now = [count / rows for count in balance]
    then = [count / schema.rows for count in schema.target.counts]
    moved = any(has_moved(before, after, schema.rows, rows) for before, after in zip(then, now, strict=True))
    if not moved or not all(0 < share < 1 for share in now):
        return []
    goal = model.goal
    if goal.cost_columns:  # its scores are moved by the costs of the rows: their distribution is not that of a class
        return []
    if strict_json.names_code(goal.metric) or strict_json.names_code(goal.subject_to):  # a file may not name code
        return []
    try:
        renewed = renew_rule(model, goal, now[-1] if goal.task == "binary" else now)
    except UserError:  # such as an average over rows, which has no base rate
        return []
    if renewed.new_value - renewed.old_value < LEAST_GAIN:
        return []
    return [
        f"the base rate moved: at that of these rows {renewed.tuning.rule.describe()} is expected to reach "
        f"{goal.metric} {renewed.new_value:.4f}, the present rule {renewed.old_value:.4f}; renew it with "
        "metricgrad tune, on these rows or by --unlabelled"
    ]


def _name_rates(model: ShippedModel) -> list[str]:
    """Return the names of the classes that base rates are of: of two, that of the positives."""
    names = list(model.schema.classes)
    return names[-1:] if model.goal.task == "binary" else names


def _as_list(value: Any) -> list[float]:
    return list(value) if isinstance(value, tuple) else [value]
