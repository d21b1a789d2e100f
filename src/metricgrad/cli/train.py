"""``metricgrad train``: one contender, fitted on all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricgrad.cli.arguments import (
    AlphaOption,
    AverageOption,
    BetaOption,
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
    RowsOption,
    SeedOption,
    SubjectToOption,
    TargetOption,
    TaskOption,
    TimeOption,
    VerboseOption,
    add_working_directory,
    count_jobs,
)
from metricgrad.cli.configuration import ConfigOption, check_no_code
from metricgrad.cli.json_output import print_json
from metricgrad.cli.new_runs import Show, choose_new_folder, make_options
from metricgrad.cli.streams import STANDARD, open_data
from metricgrad.comparison.errors import WRONG_CALL, UserError


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
        options = make_options(context, data=path)
        place = out or choose_new_folder(f"{Path(path).name.split('.')[0]}-{contender.replace(' ', '-')}")
        keep = data == STANDARD
        processes = count_jobs(jobs)
        found = command.train(options, contender, rule, place, progress, jobs=processes, force=force, keep=keep)  # type: ignore[arg-type]
    if as_json:
        print_json({"run": str(place), **found})
        return
    value = f"{found['metric']} {found['value_there']:.3f} on {found['tuned_on']}; expect less on new rows"
    print_pairs([("rule", found["rule"]), ("value", value), ("model", f"metricgrad predict {place} DATA -o FILE")])
