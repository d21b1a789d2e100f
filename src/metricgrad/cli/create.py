"""The commands that make a run: ``metricgrad compare``, ``train`` and ``demo``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from metricgrad.cli.arguments import (
    AlphaOption,
    AverageOption,
    BetaOption,
    BudgetOption,
    ClusterOption,
    DataArgument,
    DateFormatOption,
    DropOption,
    DropUnlabelledOption,
    ForceOption,
    GroupOption,
    JobsOption,
    JsonOption,
    MetricOption,
    OutOption,
    PositiveOption,
    QuickOption,
    RowsOption,
    SeedOption,
    SubjectToOption,
    TargetOption,
    TaskOption,
    TimeOption,
    VerboseOption,
    add_working_directory,
    count_jobs,
    split_columns,
)
from metricgrad.cli.configuration import ConfigOption, check_no_code
from metricgrad.cli.output import describe_run, describe_shipped, print_json
from metricgrad.cli.streams import STANDARD, open_data
from metricgrad.comparison.errors import WRONG_CALL, UserError

if TYPE_CHECKING:
    from metricgrad.comparison.options import Options
    from metricgrad.comparison.progress import LiveProgress, NoProgress
    from metricgrad.comparison.report.payload import Payload


class Show(NamedTuple):
    """What to show: ``--json`` and ``--verbose``."""

    as_json: bool
    verbose: bool

    def open_progress(self) -> LiveProgress | NoProgress:
        """Return what shows the progress of a run."""
        from metricgrad.comparison.progress import LiveProgress, NoProgress

        return NoProgress() if self.as_json else LiveProgress(self.verbose)


def compare(
    context: typer.Context,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="CSV (also gzip), Parquet or Feather; - is standard input.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The column to predict; several for multi-label, comma-separated.")
    ] = None,
    metric: MetricOption = "f1",
    beta: BetaOption = None,
    alpha: AlphaOption = None,
    average: AverageOption = "macro",
    subject_to: SubjectToOption = None,
    task: TaskOption = None,
    positive: PositiveOption = None,
    drop: DropOption = None,
    drop_unlabelled: DropUnlabelledOption = False,
    group: GroupOption = None,
    time: TimeOption = None,
    date_format: DateFormatOption = None,
    rows: RowsOption = None,
    repeats: Annotated[int | None, typer.Option(min=2, help="Number of splits; 5, or 2 with --quick.")] = None,
    seed: SeedOption = 0,
    contenders: Annotated[
        str | None, typer.Option(help="Contenders to compare, comma-separated; metricgrad info lists them.")
    ] = None,
    extra_contenders: Annotated[
        str | None, typer.Option(help="Further contenders, comma-separated, such as tabm; metricgrad info lists them.")
    ] = None,
    quick: QuickOption = False,
    budget: BudgetOption = None,
    jobs: JobsOption = None,
    cluster: ClusterOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    ship: Annotated[
        str | None, typer.Option(metavar="NAME", help='Ship this contender, whatever is best; or "NAME, fixed".')
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Continue a run folder; with more --repeats or another --ship also a finished one."),
    ] = None,
    config: ConfigOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare ways to train, say which model to ship, and save it."""
    from metricgrad.comparison.option_texts import split_names

    show = Show(as_json, verbose)
    if resume is not None:
        typed = _read_typed_options(context)
        how: dict[str, Any] = {name: typed.get(name) for name in ("subject_to", "repeats", "ship")}
        how["metric"] = split_names(typed["metric"]) if "metric" in typed else None
        how |= {"jobs": count_jobs(jobs), "cluster": cluster, "budget": budget}
        _resume_comparison(resume, how, show)
        return
    check_no_code(context)
    if data is None or target is None:
        raise UserError(
            "compare: expected DATA and --target, or --resume RUN; see metricgrad compare --help", WRONG_CALL
        )
    from metricgrad.comparison.options import choose_repeats

    how = {"jobs": count_jobs(jobs), "cluster": cluster, "budget": budget, "ship": ship, "keep": data == STANDARD}
    with open_data(data) as path:
        options = _make_options(context, data=path, repeats=choose_repeats(repeats, quick))
        _run_comparison(options, out, how, force, show)


def _make_options(context: typer.Context, **changes: Any) -> Options:
    """Return the options of a run: the parameters of the command that have their names, with changes.

    This is where texts of the command line become lists and numbers.
    """
    from metricgrad.comparison.option_texts import split_names, split_values
    from metricgrad.comparison.options import Options

    names = {field.name for field in fields(Options)}
    given = {name: value for name, value in context.params.items() if name in names} | changes
    given |= {name: split_columns(given[name], given["data"]) for name in ("target", "drop")}
    given |= {name: split_names(given[name]) for name in ("metric", "contenders", "extra_contenders") if name in given}
    given |= {name: split_values(name, given[name]) for name in ("beta", "alpha")}
    if not given["metric"]:
        raise UserError("--metric: expected the name of a metric, got none", WRONG_CALL)
    return Options(**given)


def _read_typed_options(context: typer.Context) -> dict[str, Any]:
    """Return the options typed together with --resume; refuse those that the run folder already holds.

    --metric and --subject-to are allowed, since code that they name must be typed again.
    """
    typed = {
        name: value
        for name, value in context.params.items()
        if getattr(context.get_parameter_source(name), "name", None) == "COMMANDLINE"
    }
    others = typed.keys() - {
        *("resume", "jobs", "cluster", "budget", "verbose", "as_json"),
        *("metric", "subject_to", "repeats", "ship"),
    }
    if others:
        name = min(others).replace("_", "-")
        raise UserError(f"--resume: the run folder holds everything else, got {name} as well; leave it out", WRONG_CALL)
    return typed


def _run_comparison(options: Options, out: Path | None, how: dict[str, Any], force: bool, show: Show) -> None:
    from metricgrad.comparison import run_comparison as command

    for metric in options.metric:
        add_working_directory(metric)
    stem = f"{Path(options.data).name.split('.')[0]}-{options.metric[0]}"
    place = out if out is not None else _choose_new_folder(stem)
    with show.open_progress() as progress:
        found = command.compare(options, place, progress, **how, force=force)
    _print_comparison(place, found, show.as_json)


def _resume_comparison(run: Path, how: dict[str, Any], show: Show) -> None:
    from metricgrad.comparison import run_comparison as command
    from metricgrad.comparison.run_folder import open_run

    if open_run(run).manifest["state"] == "finished" and how["repeats"] is None and how["ship"] is None:
        describe_run(run, show.as_json)
        return
    for metric in how["metric"] or ():
        add_working_directory(metric)
    with show.open_progress() as progress:
        found = command.resume(run, progress, **how)
    _print_comparison(run, found, show.as_json)


def _print_comparison(place: Path, payload: Payload, as_json: bool) -> None:
    from metricgrad.comparison.report.payload import summarise

    summary = summarise(payload)
    if as_json:
        print_json({"run": str(place), **summary})
        return
    from metricgrad.cli.display import print_importance, print_leaderboard, print_pairs

    print_leaderboard(summary)
    print_importance(summary)
    print()
    ships = [("ships", describe_shipped(summary["model"]))]
    print_pairs([*ships, ("model", f"metricgrad predict {place} DATA -o FILE"), ("report", str(place / "report.html"))])


def train(
    context: typer.Context,
    data: DataArgument,
    target: TargetOption,
    contender: Annotated[str, typer.Option(help="The contender to train; metricgrad info lists them.")] = "hybrid",
    rule: Annotated[str, typer.Option(help="The decision rule: tuned, or fixed at the default.")] = "tuned",
    metric: MetricOption = "f1",
    beta: BetaOption = None,
    alpha: AlphaOption = None,
    average: AverageOption = "macro",
    subject_to: SubjectToOption = None,
    task: TaskOption = None,
    positive: PositiveOption = None,
    drop: DropOption = None,
    drop_unlabelled: DropUnlabelledOption = False,
    group: GroupOption = None,
    time: TimeOption = None,
    date_format: DateFormatOption = None,
    rows: RowsOption = None,
    seed: SeedOption = 0,
    quick: Annotated[bool, typer.Option("--quick", help="A first look: a third of the epochs.")] = False,
    jobs: JobsOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    config: ConfigOption = None,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train one contender on all rows, and save it."""
    check_no_code(context)
    if rule not in ("tuned", "fixed"):
        raise UserError(f"--rule: expected tuned or fixed, got {rule!r}", WRONG_CALL)
    from metricgrad.cli.display import print_pairs
    from metricgrad.comparison import train as command

    add_working_directory(metric)
    with open_data(data) as path, Show(as_json, verbose).open_progress() as progress:
        options = _make_options(context, data=path)
        place = out or _choose_new_folder(f"{Path(path).name.split('.')[0]}-{contender.replace(' ', '-')}")
        keep = data == STANDARD
        processes = count_jobs(jobs)
        found = command.train(options, contender, rule, place, progress, jobs=processes, force=force, keep=keep)  # type: ignore[arg-type]
    if as_json:
        print_json({"run": str(place), **found})
        return
    value = f"{found['metric']} {found['value_there']:.3f} on {found['tuned_on']}; expect less on new rows"
    print_pairs([("rule", found["rule"]), ("value", value), ("model", f"metricgrad predict {place} DATA -o FILE")])


def demo(
    repeats: Annotated[int, typer.Option(min=2, help="Number of splits.")] = 5,
    quick: QuickOption = False,
    jobs: JobsOption = None,
    out: OutOption = None,
    force: ForceOption = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run compare on an included data set, in about a minute."""
    from metricgrad.comparison.demo import make_options

    _run_comparison(
        make_options(repeats, quick),
        out if out is not None else _choose_new_folder("demo"),
        {"jobs": count_jobs(jobs)},
        force,
        Show(as_json, verbose),
    )


def _choose_new_folder(stem: str) -> Path:
    """Return the path of a run folder in the working directory that does not exist yet."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in stem)
    place, number = Path(f"metricgrad-run-{plain}"), 1
    while place.exists():
        number += 1
        place = Path(f"metricgrad-run-{plain}-{number}")
    return place
