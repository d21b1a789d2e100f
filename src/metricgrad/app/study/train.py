"""``metricgrad train``: one contender, straight, on all rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricgrad.app.contenders.table import CONTENDERS
from metricgrad.app.errors import WRONG_CALL, UserError, near
from metricgrad.app.study.compare import Progress, shipped
from metricgrad.app.study.request import Options, configuration, effort, prepared
from metricgrad.app.study.workspace import Workspace

if TYPE_CHECKING:
    from metricgrad.app.report.payload import Rule


def train(
    options: Options, contender: str, rule: Rule, out: Path, progress: Progress, *, force: bool = False
) -> dict[str, Any]:
    """Fit a contender, write a run folder that ``predict`` takes, and return what it holds.

    The value told is that on the rows held out of training, on which the rule was tuned: it flatters a little.
    """
    if contender not in CONTENDERS:
        raise UserError(f"--contender: unknown {contender!r}; {near(contender, list(CONTENDERS))}", WRONG_CALL)
    task = prepared(options)
    obstacle = CONTENDERS[contender].obstacle(task.goal)
    if obstacle is not None:
        raise UserError(f"--contender {contender}: {obstacle}", WRONG_CALL)
    progress.profile(task.profile, task.warnings)
    with Workspace.create(out, "train", configuration(options), force) as space:
        model = shipped(task, contender, rule, effort(options, task), options.seed)
        space.add_model(model)
        summary = {
            "contender": contender,
            "rule": model.rule.describe(),
            **model.about,
            "data": {"file": Path(options.data).name, "rows": len(task.targets), "task": task.goal.task},
            "warnings": task.warnings,
        }
        space.add_json("summary.json", summary)
        space.finish()
    return summary
