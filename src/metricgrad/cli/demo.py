"""``metricgrad demo``: ``compare`` on an included data set."""

from __future__ import annotations

from typing import Annotated

import typer

from metricgrad.cli.arguments import (
    ForceOption,
    JobsOption,
    JsonOption,
    OutOption,
    QuickOption,
    VerboseOption,
    count_jobs,
)
from metricgrad.cli.compare import run_comparison
from metricgrad.cli.new_runs import Show, choose_new_folder


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

    run_comparison(
        make_options(repeats, quick),
        out if out is not None else choose_new_folder("demo"),
        {"jobs": count_jobs(jobs)},
        force,
        Show(as_json, verbose),
    )
