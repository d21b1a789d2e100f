"""``metricgrad tune``: another decision rule for a run's model, without training it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metricgrad.app.contenders.scorers import Goal
from metricgrad.app.errors import NOTHING, WRONG_CALL, UserError
from metricgrad.app.runs import folder as runs
from metricgrad.app.study import protocol
from metricgrad.app.use.evaluate import read_for
from metricgrad.decisions.solver import InfeasibleError
from metricgrad.decisions.tuning import tune_threshold
from metricgrad.evaluation.evaluator import evaluate
from metricgrad.storage.values import encode


def tune(
    run: str | Path,
    data: str | Path,
    metric: str | None = None,
    *,
    average: str | None = None,
    subject_to: str | None = None,
    confidence: float | None = None,
    rows: int | None = None,
    dry_run: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Tune the rule of a run's model on labelled data, which must be new to it, and write it into the run.

    ``metric``, ``average``: by default those of the run. ``subject_to``, ``confidence``: as for ``tune_threshold``.
    The rules before stay in ``model/manifest.json`` as "previous". ``dry_run``: only tell.
    """
    found = runs.load(run)
    model = found.model
    schema = model.schema
    metric, average = metric or runs.allowed(model.goal.metric, ()), average or model.goal.average
    wanted: Any = average  # checked below
    goal = Goal(model.goal.task, model.goal.classes, metric, wanted, subject_to)
    protocol.check(goal, [])
    frame = schema.labelled(read_for(model, data, rows))
    scores, targets = model.scores(frame), schema.targets(frame)
    options: dict[str, Any] = {"task": schema.task, "average": average}
    bounds: dict[str, Any] = {"subject_to": subject_to, "confidence": confidence, "scarce": "keep"}
    shared = protocol.tuned(goal).shared
    try:
        tuning = tune_threshold(
            goal.metric, scores, targets, shared=shared, replicates=50, seed=seed, **bounds, **options
        )
    except InfeasibleError as error:
        raise UserError(f"{error}; ask for less, or train with --subject-to", NOTHING) from error
    except ValueError as error:
        raise UserError(str(error), WRONG_CALL) from error
    old = model.rule
    before = evaluate(scores, targets, goal.metric, rule=old, **options)
    previous = [*model.about.get("previous", []), {"rule": encode(old)} | _without_previous(model.about)]
    about = {
        "metric": metric,
        "average": average,
        "subject_to": subject_to,
        "kind": "tuned",
        "tuned_on": f"{len(frame)} rows of {Path(data).name}, at {runs.now()}",
        "value_there": tuning.value,
    }
    if not dry_run:
        found.replace_rule(tuning.rule, about | {"previous": previous})
    return {
        "run": str(run),
        "data": str(data),
        "rows": len(frame),
        "metric": metric,
        "average": None if schema.task == "binary" else average,
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
        "warnings": [] if tuning.caution is None else [tuning.caution],
    }


def _without_previous(about: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in about.items() if key != "previous"}
