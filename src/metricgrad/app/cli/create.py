"""The commands that make a run: ``metricgrad compare``, ``train`` and ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricgrad.app.cli.arguments import (
    Average,
    Budget,
    Data,
    Drop,
    Force,
    Group,
    Jobs,
    Json,
    Metric,
    Out,
    Positive,
    Quick,
    Rows,
    Seed,
    SubjectTo,
    Target,
    Task,
    Time,
    processes,
    see_working_directory,
)
from metricgrad.app.cli.output import describe, tell
from metricgrad.app.errors import WRONG_CALL, UserError

if TYPE_CHECKING:
    from metricgrad.app.study.request import Options


def compare(
    context: typer.Context,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help="CSV (also gzip), Parquet or Feather.")] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict; several for multi-label.")] = None,
    metric: Metric = "f1",
    average: Average = "macro",
    subject_to: SubjectTo = None,
    task: Task = None,
    positive: Positive = None,
    drop: Drop = None,
    group: Group = None,
    time: Time = None,
    rows: Rows = None,
    repeats: Annotated[int | None, typer.Option(min=2, help="Splits; 5, or 2 with --quick.")] = None,
    seed: Seed = 0,
    only: Annotated[str | None, typer.Option(help="Contenders, comma-separated.")] = None,
    quick: Quick = False,
    budget: Budget = None,
    jobs: Jobs = None,
    out: Out = None,
    force: Force = False,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run folder.")] = None,
    as_json: Json = False,
) -> None:
    """Compare ways to train on one protocol, say what to ship, and save it."""
    if resume is not None:
        given = _beside_resume(context)
        _resume(resume, given.get("metric"), given.get("subject_to"), processes(jobs), budget, as_json)
        return
    if data is None or target is None:
        raise UserError(
            "compare: expected DATA and --target, or --resume RUN; see metricgrad compare --help", WRONG_CALL
        )
    from metricgrad.app.study.request import Options

    several = repeats if repeats is not None else 2 if quick else 5
    asked = Options(
        data, target, metric, average, subject_to, task, positive, drop, group, time, rows, several, seed, only, quick
    )
    _compare(asked, out, processes(jobs), budget, force, as_json)


def _beside_resume(context: typer.Context) -> dict[str, Any]:
    """Return what was typed beside --resume; refuse what the run folder already holds.

    --metric and --subject-to are allowed, since code that they name must be typed again.
    """
    given = {
        name: value
        for name, value in context.params.items()
        if getattr(context.get_parameter_source(name), "name", None) == "COMMANDLINE"
    }
    others = given.keys() - {"resume", "jobs", "budget", "as_json", "metric", "subject_to"}
    if others:
        name = min(others).replace("_", "-")
        raise UserError(f"--resume: the run folder holds everything else, got also {name}; leave it out", WRONG_CALL)
    return given


def _compare(options: Options, out: Path | None, jobs: int, budget: float | None, force: bool, as_json: bool) -> None:
    from metricgrad.app.cli.display import Live, Silent
    from metricgrad.app.study import compare as command

    see_working_directory(options.metric)
    place = (
        out if out is not None else _fresh(f"{Path(options.data).name.split('.')[0]}-{options.metric.split(',')[0]}")
    )
    with Silent() if as_json else Live() as progress:
        found = command.compare(options, place, progress, jobs=jobs, budget=budget, force=force)
    _show(place, found, as_json)


def _resume(
    run: Path, metric: str | None, subject_to: str | None, jobs: int, budget: float | None, as_json: bool
) -> None:
    from metricgrad.app.cli.display import Live, Silent
    from metricgrad.app.runs.folder import opened
    from metricgrad.app.study import compare as command

    if opened(run).manifest["state"] == "finished":
        describe(run, as_json)
        return
    see_working_directory(metric or "")
    with Silent() if as_json else Live() as progress:
        found = command.resume(run, progress, metric=metric, subject_to=subject_to, jobs=jobs, budget=budget)
    _show(run, found, as_json)


def _show(place: Path, payload: Any, as_json: bool) -> None:
    from metricgrad.app.report.payload import summarise

    summary = summarise(payload)
    if tell({"run": str(place), **summary}, as_json):
        return
    from metricgrad.app.cli.display import leaderboard, lines

    leaderboard(summary)
    print()
    lines([("model", f"metricgrad predict {place} DATA -o FILE"), ("report", str(place / "report.html"))])


def train(
    data: Data,
    target: Target,
    contender: Annotated[str, typer.Option(help="Which; metricgrad info lists them.")] = "hybrid",
    rule: Annotated[str, typer.Option(help="tuned or fixed.")] = "tuned",
    metric: Metric = "f1",
    average: Average = "macro",
    subject_to: SubjectTo = None,
    task: Task = None,
    positive: Positive = None,
    drop: Drop = None,
    group: Group = None,
    time: Time = None,
    rows: Rows = None,
    seed: Seed = 0,
    quick: Quick = False,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train one contender on all rows, straight, and save it."""
    if rule not in ("tuned", "fixed"):
        raise UserError(f"--rule: expected tuned or fixed, got {rule!r}", WRONG_CALL)
    from metricgrad.app.cli.display import Live, Silent, lines
    from metricgrad.app.study import train as command
    from metricgrad.app.study.request import Options

    see_working_directory(metric)
    options = Options(
        data, target, metric, average, subject_to, task, positive, drop, group, time, rows, seed=seed, quick=quick
    )
    place = out if out is not None else _fresh(f"{Path(data).name.split('.')[0]}-{contender.replace(' ', '-')}")
    with Silent() if as_json else Live() as progress:
        found = command.train(options, contender, rule, place, progress, force=force)  # type: ignore[arg-type]
    if not tell({"run": str(place), **found}, as_json):
        value = (
            f"{found['metric']} {found['value_there']:.3f} on {found['tuned_on']}, which chose the rule and flatter it"
        )
        lines([("rule", found["rule"]), ("value", value), ("model", f"metricgrad predict {place} DATA -o FILE")])


def demo(
    repeats: Annotated[int, typer.Option(min=2, help="Splits.")] = 5,
    quick: Quick = False,
    jobs: Jobs = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compare on a real data set that pip brings along, in about a minute."""
    from metricgrad.app.study.demo import options

    _compare(options(repeats, quick), out if out is not None else _fresh("demo"), processes(jobs), None, force, as_json)


def _fresh(stem: str) -> Path:
    """Return a run folder in the working directory that is not there yet."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in stem)
    place, number = Path(f"metricgrad-run-{plain}"), 1
    while place.exists():
        number += 1
        place = Path(f"metricgrad-run-{plain}-{number}")
    return place
