"""Options and arguments that several commands share, and what follows from an option left out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="A line for every unit, and all warnings.")]
DataOrFolderArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="CSV, JSON Lines, Parquet, Feather, Excel, or a folder of Parquet files; - is standard input.",
    ),
]
DataArgument = Annotated[
    str, typer.Argument(metavar="DATA", help="CSV, JSON Lines, Parquet, Feather or Excel; - is standard input.")
]
TargetOption = Annotated[str, typer.Option(help="The column to predict; several for multi-label, comma-separated.")]
MetricOption = Annotated[
    str, typer.Option(help='"f1", "f2", "mcc", "package.module:function"; of several, the first is optimised.')
]
BetaOption = Annotated[
    str | None, typer.Option(help='β of f_beta or tversky: a number, or per class: "dog=0.25,rest=1".')
]
AlphaOption = Annotated[str | None, typer.Option(help="α of tversky, in the same form.")]
AverageOption = Annotated[str, typer.Option(help="Average over classes: macro, micro, weighted or samples.")]
CostOption = Annotated[
    str | None,
    typer.Option(help='What decisions cost, such as "fp=5, fn=amount": numbers, or columns with the cost of a row.'),
]
SubjectToOption = Annotated[str | None, typer.Option(help='A constraint, such as "precision>=0.9".')]
ConfidenceOption = Annotated[
    float | None,
    typer.Option(min=0.5, max=0.9999, help="Confidence with which the constraint holds on new rows, such as 0.95."),
]
AbstainOption = Annotated[
    bool,
    typer.Option("--abstain", help="Of several classes, leave rows undecided where no class meets the constraint."),
]
AbstainLabelOption = Annotated[
    str | None,
    typer.Option(metavar="LABEL", help="What is predicted for an undecided row, no class; by default an empty cell."),
]
TaskOption = Annotated[
    str | None, typer.Option(help="binary, multiclass or multilabel; by default inferred from the target.")
]
PositiveOption = Annotated[str | None, typer.Option(help="The positive class of a binary target.")]
DropOption = Annotated[str | None, typer.Option(help="Feature columns to exclude, comma-separated.")]
DropUnlabelledOption = Annotated[
    bool,
    typer.Option(
        "--drop-unlabelled",
        help="Leave out rows whose list of labels is empty; by default they have none of the labels.",
    ),
]
GroupOption = Annotated[str | None, typer.Option(help="Rows with the same value in this column stay together.")]
TimeOption = Annotated[str | None, typer.Option(help="Train on the past of this column, evaluate on its future.")]
DateFormatOption = Annotated[
    str | None,
    typer.Option(
        help="How dates are written where that is not clear: day/month/year, month/day/year, or as for strptime."
    ),
]
RowsOption = Annotated[int | None, typer.Option(min=1, help="Take a random sample of n rows.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Random seed for splits and training.")]
BootstrapSeedOption = Annotated[int, typer.Option(min=0, help="Random seed of the bootstrap.")]
QuickOption = Annotated[bool, typer.Option("--quick", help="A first look: fewer contenders, repeats and epochs.")]
OutOption = Annotated[Path | None, typer.Option(help="The run folder; by default a new one in the working directory.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an existing run folder.")]
JobsOption = Annotated[int | None, typer.Option(min=1, help="Number of parallel jobs; by default one per core.")]
ClusterOption = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Run on a Dask cluster instead: tcp://scheduler:8786.")
]
BudgetOption = Annotated[float | None, typer.Option(min=0.0, help="Minutes after which no further repeat is started.")]
AllowMissingOption = Annotated[
    bool,
    typer.Option(
        "--allow-missing", help="Go on if a column of the training data is mostly unknown; its cells count as missing."
    ),
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder written by compare or train.")]

ReplaceReportOption = Annotated[bool, typer.Option("--force", help="Replace an existing report.")]


def count_jobs(jobs: int | None) -> int:
    """Return the number of parallel jobs: ``jobs``, or one for each core that this process may use."""
    from metricgrad.comparison.workers import count_cores

    return jobs if jobs is not None else count_cores()


def split_columns(text: str | None, data: str) -> tuple[str, ...]:
    """Return the names of columns in a comma-separated text; a text that is the name of a column of the data is one.

    A name with a comma among others is in double quotes: ``--drop '"weight, kg",age'``.
    """
    from metricgrad.comparison.option_texts import split_names
    from metricgrad.comparison.tables.files import Source

    if text is None:
        return ()
    if text == text.strip() and not set(text) & set(',"'):
        return (text,)
    named = Path(data).is_file() and text in Source(data).names  # a folder has no columns of its own
    return (text,) if named else split_names(text)


def add_working_directory(metric: str | None) -> None:
    """Let "module:function" be found in the working directory, as ``python -m`` would, but after all other places."""
    if ":" in (metric or "") and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
