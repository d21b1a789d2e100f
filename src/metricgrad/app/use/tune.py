"""``metricgrad tune``: another decision rule for a run's model, without training it again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricgrad.app.contenders.scorers import Goal
from metricgrad.app.errors import NOTHING, WRONG_CALL, UserError, one_line
from metricgrad.app.report import page
from metricgrad.app.runs import folder as runs
from metricgrad.app.study import protocol
from metricgrad.app.study.request import name_metric
from metricgrad.app.use.checks import Labelled, describe_seen, describe_unlabelled
from metricgrad.decisions.default import SCARCE
from metricgrad.decisions.solver import InfeasibleError
from metricgrad.decisions.tuning import Tuning, tune_threshold
from metricgrad.evaluation.evaluator import evaluate
from metricgrad.storage import records
from metricgrad.storage.values import encode

if TYPE_CHECKING:
    import numpy as np

    from metricgrad.app.runs.folder import Run
    from metricgrad.app.runs.model import Model


def tune(
    run: str | Path,
    data: str | Path,
    metric: str | None = None,
    *,
    average: str | None = None,
    subject_to: str | None = None,
    confidence: float | None = None,
    rows: int | None = None,
    allow_missing: bool = False,
    dry_run: bool = False,
    seed: int = 0,
    beta: float | dict[str, float] | None = None,
    alpha: float | dict[str, float] | None = None,
) -> dict[str, Any]:
    """Tune the rule of a run's model on labelled data that it was not trained on, and write it into the run.

    ``metric``, ``average``: by default those of the run. ``subject_to``, ``confidence``: as for ``tune_threshold``.
    ``beta``, ``alpha``: parameters of ``metric``, a number or {class: number}.
    ``allow_missing``: go on if a column is mostly unknown, see ``Gaps``. ``dry_run``: do not write. Previous rules stay
    in ``model/manifest.json`` as "previous".
    """
    found = runs.load(run)
    model = found.model
    if metric is None and not beta is alpha is None:
        raise UserError("--beta and --alpha: expected --metric with them, such as --metric f_beta", WRONG_CALL)
    if metric is not None:
        metric = name_metric(metric, {"alpha": alpha, "beta": beta}, model.schema)
    goal = _choose_goal(model, metric, average, subject_to)
    labelled = Labelled.read(model, data, rows, allow_missing)
    scores, targets, number = labelled.scores, labelled.targets, len(labelled.targets)
    seen, too_good = describe_seen(found, labelled.seen, number, data)
    tuning = _tune_rule(goal, scores, targets, confidence, seed)
    old, warnings = model.rule, [] if tuning.caution is None else [tuning.caution]
    before = evaluate(scores, targets, goal.metric, rule=old, task=goal.task, average=goal.average)
    if not dry_run:
        about = {
            "metric": goal.metric,
            "average": goal.average,
            "subject_to": subject_to,
            "kind": "tuned",
            "tuned_on": f"{number} rows of {Path(data).name}, at {runs.now()}",
            "value_there": tuning.value,
            "previous": _list_rules(model),
        }
        found.replace_rule(tuning.rule, about)
        warnings += _renew_report(found)
    return {
        "run": str(run),
        "data": str(data),
        "rows": number,
        "metric": goal.metric,
        "average": None if goal.task == "binary" else goal.average,
        "subject_to": subject_to,
        "old": {"rule": old.describe(), "value": next(iter(before.values()))},
        "new": {
            "rule": tuning.rule.describe(),
            "value": tuning.value,
            "expected": tuning.out_of_bag,
            "exact": tuning.exact,
            "plateau": tuning.plateau,
        },
        "written": not dry_run,
        "unknown": dict(labelled.gaps.unknown),
        "seen_in_training": seen,
        "warnings": [
            *too_good,
            *describe_unlabelled(labelled.unlabelled, number),
            *labelled.gaps.describe(model.schema),
            *warnings,
        ],
    }


def _renew_report(run: Run) -> list[str]:
    """Show the new rule in the report of a comparison; return a warning if that is not possible."""
    name = "report.html"
    if name not in run.manifest["files"]:
        return []
    try:
        data = (run.path / name).read_bytes()
        if records.sha256(data) != run.manifest["files"][name]:
            raise ValueError("it was changed since it was written")
        payload = page.read(data.decode())
        page.replace_rule(payload, run.model.describe(), run.schema.classes)
        run.replace_file(name, page.render(payload).encode())
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:  # whatever is in the file
        return [f"{run.path / name} still shows the previous rule: {one_line(error, 200)}"]
    return []


def _choose_goal(model: Model, metric: str | None, average: str | None, subject_to: str | None) -> Goal:
    """Return what to tune for: the options given, and the run's metric and average for those left out."""
    metric = metric or runs.check_code_was_typed(model.goal.metric, ())
    chosen: Any = average or model.goal.average  # any text; checked here
    goal = Goal(model.goal.task, model.goal.classes, metric, chosen, subject_to)
    protocol.check_goal(goal, [])
    return goal


def _tune_rule(goal: Goal, scores: np.ndarray, targets: np.ndarray, confidence: float | None, seed: int) -> Tuning:
    try:
        return tune_threshold(
            goal.metric,
            scores,
            targets,
            task=goal.task,
            average=goal.average,
            shared=protocol.describe_tuning(goal).shared,
            subject_to=goal.subject_to,
            confidence=confidence,
            scarce=SCARCE,
            replicates=50,
            seed=seed,
        )
    except InfeasibleError as error:
        raise UserError(f"{error}; relax the constraint, or train with --subject-to", NOTHING) from error
    except ValueError as error:
        raise UserError(str(error), WRONG_CALL) from error


def _list_rules(model: Model) -> list[dict[str, Any]]:
    """Return the previous rules of a model and its present one, as plain data."""
    about = {key: value for key, value in model.about.items() if key != "previous"}
    return [*model.about.get("previous", []), {"rule": encode(model.rule)} | about]
