"""What several commands take: their options, and what follows from an option left out."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else there.")]
Data = Annotated[str, typer.Argument(metavar="DATA", help="CSV (also gzip), Parquet or Feather.")]
Target = Annotated[str, typer.Option(help="The column to predict; several for multi-label, comma-separated.")]
Metric = Annotated[
    str, typer.Option(help='"f1", "f2", "mcc", "package.module:function"; the first of several decides.')
]
Average = Annotated[str, typer.Option(help="Over classes: macro, micro, weighted or samples.")]
SubjectTo = Annotated[str | None, typer.Option(help='A constraint, such as "precision>=0.9".')]
Task = Annotated[str | None, typer.Option(help="binary, multiclass or multilabel, if the data do not tell.")]
Positive = Annotated[str | None, typer.Option(help="The class that a binary metric looks for.")]
Drop = Annotated[str | None, typer.Option(help="Feature columns to exclude, comma-separated.")]
Group = Annotated[str | None, typer.Option(help="Rows of equal value in this column stay together.")]
Time = Annotated[str | None, typer.Option(help="Train on the past of this column, judge on its future.")]
Rows = Annotated[int | None, typer.Option(min=1, help="Take a random sample of n rows.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed for splits and training.")]
Quick = Annotated[bool, typer.Option("--quick", help="A first look: fewer contenders, repeats and epochs.")]
Out = Annotated[Path | None, typer.Option(help="The run folder; by default a new one in the working directory.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a run folder that is there.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes; by default one per core.")]
Budget = Annotated[float | None, typer.Option(min=0.0, help="Minutes after which no further repeat is started.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder of compare or train.")]


def processes(jobs: int | None) -> int:
    """Return how many processes to use: so many as asked for, or one for each core that may be used."""
    return jobs if jobs is not None else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def see_working_directory(metric: str) -> None:
    """Let "module:function" be found in the working directory, as ``python -m`` would, but after all else."""
    if ":" in metric and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
