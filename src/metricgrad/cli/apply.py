"""The commands that use a run: ``metricgrad predict``, ``evaluate``, ``tune`` and ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metricgrad.cli.arguments import (
    AllowMissingOption,
    AlphaOption,
    BetaOption,
    BootstrapSeedOption,
    ClusterOption,
    DataArgument,
    DataOrFolderArgument,
    JobsOption,
    JsonOption,
    ReplaceReportOption,
    RowsOption,
    RunArgument,
    SubjectToOption,
    add_working_directory,
    count_jobs,
    split_columns,
)
from metricgrad.cli.output import print_json
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
    done = [("files", f"{found['files']}, of which {found['skipped']} were done already")] if "files" in found else []
    print_pairs([("rows", speed), *done, ("predicted", predicted), ("output", found["output"])])


def evaluate(
    run: RunArgument,
    data: DataOrFolderArgument,
    metric: Annotated[
        str | None, typer.Option(help="Metrics, comma-separated; by default the run's metric and common ones.")
    ] = None,
    rows: RowsOption = None,
    replicates: Annotated[int, typer.Option(min=10, help="Number of bootstrap replicates.")] = 1000,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.9999, help="Confidence level of the intervals.")] = 0.95,
    seed: BootstrapSeedOption = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of files of a folder to evaluate at once.")] = None,
    cluster: ClusterOption = None,
    allow_missing: AllowMissingOption = False,
    report: Annotated[
        Path | None, typer.Option(help="Also write an HTML report, with the drift of every column.")
    ] = None,
    force: ReplaceReportOption = False,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a run's model on new labelled data, and warn of drift."""
    from metricgrad.cli.display import print_pairs, print_warnings
    from metricgrad.comparison.inference.evaluate import evaluate_run
    from metricgrad.comparison.inference.promise import format_value
    from metricgrad.comparison.option_texts import split_names

    add_working_directory(metric or "")
    with open_data(data) as path:
        found = evaluate_run(
            run,
            path,
            split_names(metric),
            rows=rows,
            replicates=replicates,
            confidence=confidence,
            seed=seed,
            jobs=count_jobs(jobs),
            cluster=cluster,
            allow_missing=allow_missing,
            report=report,
            force=force,
        )
    print_warnings(found["warnings"])
    if as_json:
        print_json({**found, "data": data})
        return
    promise = found["promised"]
    beside = {} if promise is None else {promise["metric"]: f"; promised {format_value(promise)}, {promise['source']}"}
    intervals = [(name, format_value(one) + beside.get(name, "")) for name, one in found["metrics"].items()]
    constraints = [
        (one["constraint"], f"{'met' if one['met'] else 'not met'}: {one['value']:.4f}") for one in found["constraints"]
    ]
    print_pairs([("rows", str(found["rows"])), ("rule", found["rule"]), *intervals, *constraints])
    print()
    print_pairs(
        [
            (
                one["name"],
                f"precision {one['precision']:.3f}, recall {one['recall']:.3f}, f1 {one['f1']:.3f}, {one['rows']} rows",
            )
            for one in found["classes"]
        ]
    )
    if report is not None:
        print()
        print_pairs([("report", str(report))])


def tune(
    run: RunArgument,
    data: DataArgument,
    metric: Annotated[str | None, typer.Option(help="The metric to maximise; by default the run's.")] = None,
    beta: BetaOption = None,
    alpha: AlphaOption = None,
    average: Annotated[str | None, typer.Option(help="Average over classes; by default the run's.")] = None,
    subject_to: SubjectToOption = None,
    confidence: Annotated[
        float | None, typer.Option(min=0.5, max=0.9999, help="Confidence with which the constraint must be met.")
    ] = None,
    rows: RowsOption = None,
    allow_missing: AllowMissingOption = False,
    seed: BootstrapSeedOption = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show without writing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Tune a run's decision rule on labelled data, without training."""
    from metricgrad.cli.display import print_pairs, print_warnings
    from metricgrad.comparison.inference import tune as command
    from metricgrad.comparison.option_texts import split_values

    add_working_directory(metric or "")
    with open_data(data) as path:
        found = command.tune(
            run,
            path,
            metric,
            average=average,
            subject_to=subject_to,
            confidence=confidence,
            rows=rows,
            allow_missing=allow_missing,
            dry_run=dry_run,
            seed=seed,
            beta=split_values("beta", beta),
            alpha=split_values("alpha", alpha),
        )
    print_warnings(found["warnings"])
    if as_json:
        print_json({**found, "data": data})
        return
    old, new = found["old"], found["new"]
    print_pairs(
        [
            ("before", f"{old['rule']}: {found['metric']} {old['value']:.4f} on these {found['rows']} rows"),
            ("after", f"{new['rule']}: {found['metric']} {_describe_values(new)}"),
            *((one["constraint"], _describe_values(one)) for one in new["constraints"]),
            ("written", "yes; the previous rule is kept in the run" if found["written"] else "no (--dry-run)"),
        ]
    )


def _describe_values(one: dict[str, Any]) -> str:
    return f"{one['value']:.4f} on these rows, {one['expected']:.4f} expected on new ones"


def report(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN", help="A run folder of compare, or two of them.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")],
    force: ReplaceReportOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a run again, or of two runs."""
    from metricgrad.cli.display import print_pairs
    from metricgrad.comparison.inference.report import write_report

    found = write_report(paths, output, force)
    if as_json:
        print_json(found)
        return
    print_pairs([("report", found["output"])])
