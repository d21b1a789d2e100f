"""``metricgrad compare``: ways to train, compared; the model to ship."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricgrad.cli.arguments import (
    AbstainLabelOption,
    AbstainOption,
    AlphaOption,
    AverageOption,
    BetaOption,
    BudgetOption,
    ClusterOption,
    ConfidenceOption,
    CostOption,
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
    TaskOption,
    TimeOption,
    VerboseOption,
    add_working_directory,
    count_jobs,
)
from metricgrad.cli.configuration import ConfigOption, check_no_code
from metricgrad.cli.info import describe_run, describe_shipped
from metricgrad.cli.json_output import print_json
from metricgrad.cli.new_runs import Show, choose_new_folder, make_options
from metricgrad.cli.streams import STANDARD, open_data
from metricgrad.comparison.errors import WRONG_CALL, UserError

if TYPE_CHECKING:
    from metricgrad.comparison.options import Options
    from metricgrad.comparison.summaries import ComparisonSummary


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
    cost: CostOption = None,
    subject_to: SubjectToOption = None,
    confidence: ConfidenceOption = None,
    abstain: AbstainOption = False,
    abstain_label: AbstainLabelOption = None,
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
        options = make_options(context, data=path, repeats=choose_repeats(repeats, quick))
        run_comparison(options, out, how, force, show)


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


def run_comparison(options: Options, out: Path | None, how: dict[str, Any], force: bool, show: Show) -> None:
    """Run a new comparison, and print what it found; ``how``: options of ``run_comparison.compare``."""
    from metricgrad.comparison import run_comparison as command
    from metricgrad.comparison.report.comparison_report import write_comparison_report

    for metric in options.metric:
        add_working_directory(metric)
    stem = f"{Path(options.data).name.split('.')[0]}-{options.metric[0]}"
    place = out if out is not None else choose_new_folder(stem)
    with show.open_progress() as progress:
        found = command.compare(options, place, progress, write_comparison_report, **how, force=force)
    _print_comparison(place, found, show.as_json)


def _resume_comparison(run: Path, how: dict[str, Any], show: Show) -> None:
    from metricgrad.comparison import run_comparison as command
    from metricgrad.comparison.report.comparison_report import write_comparison_report
    from metricgrad.comparison.run_folder import open_run

    if open_run(run).manifest["state"] == "finished" and how["repeats"] is None and how["ship"] is None:
        describe_run(run, show.as_json)
        return
    for metric in how["metric"] or ():
        add_working_directory(metric)
    with show.open_progress() as progress:
        found = command.resume(run, progress, write_comparison_report, **how)
    _print_comparison(run, found, show.as_json)


def _print_comparison(place: Path, summary: ComparisonSummary, as_json: bool) -> None:
    if as_json:
        print_json({"run": str(place), **summary})
        return
    from metricgrad.cli.display import print_importance, print_leaderboard, print_pairs

    print_leaderboard(summary)
    print_importance(summary)
    print()
    ships = [("ships", describe_shipped(summary["model"]))]
    print_pairs([*ships, ("model", f"metricgrad predict {place} DATA -o FILE"), ("report", str(place / "report.html"))])
