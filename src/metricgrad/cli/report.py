"""``metricgrad report``: the report of a run again, or of two runs."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (Typer reads annotations at run time)
from typing import Annotated

import typer

from metricgrad.cli.arguments import JsonOption, ReplaceReportOption  # noqa: TC001 (the same)
from metricgrad.cli.json_output import print_json


def report(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN", help="A run folder of compare, or two of them.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")],
    force: ReplaceReportOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a run again, or of two runs."""
    from metricgrad.cli.display import print_pairs
    from metricgrad.comparison.report.run_report import write_report

    found = write_report(paths, output, force)
    if as_json:
        print_json(found)
        return
    print_pairs([("report", found["output"])])
