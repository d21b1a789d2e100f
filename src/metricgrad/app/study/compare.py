"""``metricgrad compare``: every contender under one protocol, a verdict, and the model to ship."""

from __future__ import annotations

import re
import shlex
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from metricgrad import __version__
from metricgrad.app.contenders.table import REFERENCE
from metricgrad.app.errors import DATA, INTERRUPTED, NOTHING, RUN, WRONG_CALL, UserError, writing
from metricgrad.app.report import page
from metricgrad.app.report.evidence import Study
from metricgrad.app.report.payload import summarise
from metricgrad.app.report.sections import SECTIONS
from metricgrad.app.runs import folder as runs
from metricgrad.app.study import protocol, work
from metricgrad.app.study.details import details
from metricgrad.app.study.leaderboard import RULES, board, verdict
from metricgrad.app.study.request import (
    LEAST_REPEATS,
    Options,
    Task,
    configuration,
    contenders,
    effort,
    options_of,
    prepared,
)
from metricgrad.app.study.workspace import Workspace
from metricgrad.decisions.solver import FEW

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from metricgrad.app.contenders.scorers import Effort
    from metricgrad.app.report.payload import Payload
    from metricgrad.app.runs.folder import Model
    from metricgrad.app.study.protocol import Outcome
    from metricgrad.app.study.splits import Split


class Progress(Protocol):
    """Who wants to know how it goes."""

    def profile(self, lines: Sequence[tuple[str, str]], warnings: Sequence[str]) -> None:
        """Show what the data are like."""

    def start(self, total: int, done: int) -> None:
        """Be told how many units there are, and how many of them an earlier run has done."""

    def unit(self, result: work.Result) -> None:
        """Be told that one more is done."""

    def say(self, text: str) -> None:
        """Show a sentence."""


# The run


@dataclass(frozen=True, eq=False)
class Plan:
    """What is to be done: the task, who takes part and who does not, and the rows of every repeat."""

    options: Options
    task: Task
    names: list[str]
    left_out: list[tuple[str, str]]
    parts: list[Split]

    @classmethod
    def of(cls, options: Options) -> Plan:
        """Read the data and plan; whatever cannot be done is refused here, before anything is written."""
        task = prepared(options)
        names, left_out = contenders(options, task.goal)
        parts = task.split(options.repeats, options.seed)
        if min(_rarest(task.targets[part.held], task.goal.classes) for part in parts) < FEW:
            few = f"a class has fewer than {FEW} rows to tune on: a cut that hangs on so few stays fixed"
            task = replace(task, warnings=[*task.warnings, few])
        return cls(options, task, names, left_out, parts)

    @property
    def effort(self) -> Effort:
        """The budget of each contender."""
        return effort(self.options, self.task)


def _rarest(targets: Any, classes: int) -> int:
    """Return on how few rows a decision hangs."""
    counts = targets.sum(0) if targets.ndim == 2 else np.bincount(targets, minlength=classes)
    return int(np.minimum(counts, len(targets) - counts).min())


def compare(
    options: Options, out: Path, progress: Progress, *, jobs: int = 1, budget: float | None = None, force: bool = False
) -> Payload:
    """Compare, and write a new run folder; ``budget`` in minutes."""
    plan = Plan.of(options)
    with Workspace.create(out, "compare", configuration(options), force) as space:
        return _run(plan, space, progress, jobs, budget)


def resume(
    run: Path,
    progress: Progress,
    *,
    metric: str | None = None,
    subject_to: str | None = None,
    jobs: int = 1,
    budget: float | None = None,
) -> Payload:
    """Go on with a run that was stopped; what finished is not done again.

    ``metric``, ``subject_to``: as the run was made, to be given again if they name code.
    """
    with Workspace.resume(run) as space:
        with runs.refusing(run):
            options, sha256 = options_of(space.config)
        for flag, written, typed in (
            ("--metric", options.metric, metric),
            ("--subject-to", options.subject_to, subject_to),
        ):
            if typed not in (None, written):
                raise UserError(f"{flag}: expected {written!r}, with which the run was made, got {typed!r}", WRONG_CALL)
            # What is imported is what was typed in this call.
            runs.allowed(written, re.split(r"[\s,<>=\[\]]+", typed or ""), flag)
        if not Path(options.data).is_file():
            raise UserError(f"{options.data}: the data of this run are gone; put them back", RUN)
        if runs.sha256(Path(options.data)) != sha256:
            raise UserError(f"{options.data}: the data changed since the run began; start a new run", RUN)
        return _run(Plan.of(options), space, progress, jobs, budget)


def _run(plan: Plan, space: Workspace, progress: Progress, jobs: int, budget: float | None) -> Payload:
    options, task = plan.options, plan.task
    progress.profile(task.profile, task.warnings)
    space.splits(plan.parts)
    try:
        outcomes, failed = _units(plan, space, progress, jobs, budget)
        rows = board(outcomes)
        if not any(row["feasible"] for row in rows):
            raise UserError(
                f"--subject-to: no contender can meet {options.subject_to!r} on the rows to tune on; ask for less",
                NOTHING,
            )
        found = verdict(rows, task.goal.metric)
        space.table("results.parquet", _flat(outcomes, task.goal.metric))
        progress.say(f"fitting {found['ship']} on all rows")
        model = shipped(task, found["ship"], found["rule"], plan.effort, options.seed)
        space.add_model(model)
        payload = _payload(replace(plan, left_out=[*plan.left_out, *failed]), space, outcomes, rows, found, model)
    except KeyboardInterrupt as error:
        again = f"metricgrad compare --resume {shlex.quote(str(space.path))}"
        raise UserError(f"interrupted; go on where it stopped: {again}", INTERRUPTED) from error
    with writing(space.path):
        page.write(payload, space.path / "report.html")
    space.add_json("summary.json", summarise(payload))
    space.finish()
    return payload


def _units(
    plan: Plan, space: Workspace, progress: Progress, jobs: int, budget: float | None
) -> tuple[list[Outcome], list[tuple[str, str]]]:
    """Do what is not done yet; return the outcomes of whole repeats, and who failed and why."""
    done = {(o.contender, o.repeat): o for o in space.finished()}
    progress.start(len(plan.names) * len(plan.parts), len(done))
    failed: dict[str, str] = {}
    units = _todo(plan, space, progress, budget, done, failed)
    with closing(work.all_done(units, jobs)) as results:
        for result in results:
            progress.unit(result)
            if isinstance(result, work.Failure):
                failed.setdefault(result.contender, result.why)
                if result.contender == REFERENCE:
                    raise UserError(f"{REFERENCE}, which the others are compared with, failed: {result.why}", DATA)
            else:
                space.add(*result)
                done[result[0].contender, result[0].repeat] = result[0]
    space.clear_scratch()
    able = [name for name in plan.names if name not in failed]
    whole = [repeat for repeat in range(len(plan.parts)) if all((name, repeat) in done for name in able)]
    return [done[name, repeat] for name in able for repeat in whole], list(failed.items())


def _todo(
    plan: Plan,
    space: Workspace,
    progress: Progress,
    budget: float | None,
    done: Collection[tuple[str, int]],
    failed: Collection[str],
) -> Iterator[work.Unit]:
    """Yield the units that are not done, repeat by repeat, as long as the budget lasts."""
    task, started, fresh = plan.task, time.monotonic(), 0
    targets = space.scratch("targets.npy", task.targets)
    for repeat, part in enumerate(plan.parts):
        names = [name for name in plan.names if (name, repeat) not in done]
        if not names:
            continue
        spent = (time.monotonic() - started) / 60
        # The next one will take as long as those so far did on average.
        if budget is not None and repeat >= LEAST_REPEATS and spent + spent / max(fresh, 1) > budget:
            progress.say(f"the budget of {budget:g} minutes is enough for {repeat} of {len(plan.parts)} repeats")
            return
        fresh += 1
        features = space.scratch(f"features-{repeat}.npy", task.encoded(part.train)[1])
        ask = (task.goal, tuple(task.also), plan.effort, plan.options.seed, features, targets, part)
        yield from (work.Unit(name, repeat, *ask) for name in names if name not in failed)


def shipped(task: Task, contender: str, rule: str, effort: Effort, seed: int) -> Model:
    """Fit a contender on all rows, a fifth of them held to stop and to tune on, and return it with its rule."""
    everything = task.everything(seed)
    encoder, features = task.encoded(everything.train)
    scorer, rules = protocol.fitted(contender, task.goal, effort, features, task.targets, everything, seed)
    if not rules[rule].feasible:
        raise UserError(
            f"--subject-to: {contender}, fitted on all rows, cannot meet {task.goal.subject_to!r}; ask for less",
            NOTHING,
        )
    about = {
        "metric": task.goal.metric,
        "average": task.goal.average,
        "subject_to": task.goal.subject_to,
        "kind": rule,
        "tuned_on": f"{len(everything.held)} rows held out of training",
        "value_there": rules[rule].value,
    }
    return runs.Model(task.schema, encoder, scorer, contender, rules[rule].rule, about)


# What is told


def _flat(outcomes: Sequence[Outcome], metric: str) -> pd.DataFrame:
    """Return a row per contender, repeat, rule and metric."""
    rows = []
    for o in outcomes:
        for rule in RULES:
            decision = getattr(o, rule)
            about = {"contender": o.contender, "repeat": o.repeat, "rule": rule, "decision": repr(decision.rule)}
            more = {"feasible": decision.feasible, "held": decision.held, "seconds": o.seconds}
            more |= {"train_rows": o.train_rows, "test_rows": o.test_rows}
            for name, value in {metric: decision.value, **decision.others}.items():
                rows.append({**about, "metric": name, "value": value, **more})
    return pd.DataFrame(rows)


def sentences(plan: Plan, repeats: int) -> list[str]:
    """Return the protocol in words."""
    options, task, budget = plan.options, plan.task, plan.effort
    sizes = [round(np.mean([len(getattr(part, name)) for part in plan.parts])) for name in ("fit", "held", "test")]
    how = "stratified by class" if task.goal.task != "multilabel" else "stratified by the rarest label of each row"
    if options.group is not None:
        how = f"by whole groups of {options.group}"
    if options.time is not None:
        how = f"forward in {options.time}: trained on the past, judged on the future"
    return [
        f"{repeats} repeats, {how}: {sizes[0]} rows to train on, {sizes[1]} to stop and tune on, {sizes[2]} to judge.",
        "Every contender gets the same rows, and its columns encoded by what the training rows tell.",
        f"Networks: two hidden layers (32-16), up to {budget.epochs} epochs. Trees: up to {budget.rounds} rounds.",
        "One fit gives both rules: fixed (0.5, or the largest score) and tuned, on rows that did not train.",
        "Intervals and p-values: corrected resampled t-test over the repeats; the verdict's are adjusted by Holm.",
        f"The shipped model is the named contender fitted on all {len(task.targets)} rows in the same way.",
    ]


def _payload(plan: Plan, space: Workspace, outcomes: Sequence[Outcome], rows: Any, found: Any, model: Model) -> Payload:
    options, task, parts = plan.options, plan.task, plan.parts
    repeats = len({o.repeat for o in outcomes})
    by_name: dict[str, list[Outcome]] = {}
    for o in sorted(outcomes, key=lambda o: o.repeat):
        by_name.setdefault(o.contender, []).append(o)
    about = {
        name: details(
            task.goal,
            task.table,
            mine,
            [space.scores(o, None if task.goal.task == "binary" else task.goal.classes) for o in mine],
            [parts[o.repeat].test for o in mine],
        )
        for name, mine in by_name.items()
    }
    study = Study(task.goal, task.table, task.everything(options.seed).held, model.scores, model.rule)
    environment = runs.environment()
    counts = (
        task.targets.sum(0)
        if task.goal.task == "multilabel"
        else np.bincount(task.targets, minlength=task.goal.classes)
    )
    return {
        "version": __version__,
        "created": runs.now(),
        "command": options.command(),
        "verdict": found,
        "data": {
            "file": Path(options.data).name,
            "rows": len(task.targets),
            "task": task.goal.task,
            "target": list(task.schema.target.columns),
            "classes": list(task.schema.classes),
            "balance": [float(count) / len(task.targets) for count in counts],
            "profile": task.profile,
            "warnings": task.warnings,
        },
        "metric": {
            "name": task.goal.metric,
            "average": task.goal.average,
            "subject_to": task.goal.subject_to,
            "also": task.also,
        },
        "repeats": repeats,
        "protocol": sentences(plan, repeats),
        "leaderboard": rows,
        "left_out": plan.left_out,
        "details": about,
        "study": {key: value for section in SECTIONS for key, value in section.measure_study(study).items()},
        "reproduce": {
            "command": options.command(),
            "seed": options.seed,
            "versions": environment["versions"],
            "machine": environment["machine"],
        },
    }
