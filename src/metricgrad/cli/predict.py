"""``metricgrad predict``: the predictions of a run's model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricgrad.cli.arguments import (
    AllowMissingOption,
    ClusterOption,
    DataOrFolderArgument,
    JobsOption,
    JsonOption,
    RunArgument,
    count_jobs,
    split_columns,
)
from metricgrad.cli.json_output import print_json
from metricgrad.cli.streams import STANDARD, open_data, open_output
from metricgrad.comparison.errors import WRONG_CALL, UserError


def predict(
    run: RunArgument,
    data: DataOrFolderArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The file to write (.csv, .csv.gz, .parquet, .feather), or the folder; - is standard output, as CSV.",
        ),
    ],
    keep: Annotated[str | None, typer.Option("--id", help="Columns of the data to keep, comma-separated.")] = None,
    what: Annotated[str, typer.Option(help="What to write: labels, scores or both.")] = "both",
    jobs: JobsOption = None,
    cluster: ClusterOption = None,
    allow_missing: AllowMissingOption = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file, or the files of a folder.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Predict the rows of a file of any size, or of a folder."""
    from metricgrad.cli.display import RowProgress, print_pairs, print_warnings
    from metricgrad.comparison.inference import predict as command

    printed = str(output) == STANDARD
    if printed and (as_json or Path(data).is_dir()):
        other = "--json" if as_json else "a folder"
        raise UserError(f"--output: expected a path together with {other}, got {STANDARD!r}", WRONG_CALL)
    with RowProgress(silent=as_json) as progress, open_data(data) as path, open_output(output) as place:
        found = command.predict(
            run,
            path,
            place,
            what=what,
            keep=split_columns(keep, path),
            force=force,
            jobs=count_jobs(jobs),
            cluster=cluster,
            allow_missing=allow_missing,
            progress=progress,
        )
    print_warnings(found["warnings"])
    if as_json:
        print_json({**found, "data": data})
    if as_json or printed:
        return
    speed = f"{found['rows']} in {found['seconds']:.1f} s"
    predicted = ", ".join(f"{name} {count}" for name, count in found["predicted"].items())
    predicted += f", undecided {found['undecided']}" if "undecided" in found else ""
    done = [("files", f"{found['files']}, of which {found['skipped']} were done already")] if "files" in found else []
    print_pairs([("rows", speed), *done, ("predicted", predicted), ("output", found["output"])])
