"""``metricgrad evaluate``: a run's model on new labelled data."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (Typer reads annotations at run time)
from typing import Annotated

import typer

from metricgrad.cli.arguments import (
    AllowMissingOption,
    BootstrapSeedOption,
    ClusterOption,
    DataOrFolderArgument,
    JsonOption,
    ReplaceReportOption,
    RowsOption,
    RunArgument,
    add_working_directory,
    count_jobs,
)
from metricgrad.cli.json_output import print_json
from metricgrad.cli.streams import open_data


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
    from metricgrad.comparison.inference.promise import format_metric_value
    from metricgrad.comparison.option_texts import split_names
    from metricgrad.comparison.report.evaluation_report import write_evaluation_report
    from metricgrad.comparison.report.page import check_output

    if report is not None:
        check_output(report, force, "--report")
    add_working_directory(metric or "")
    with open_data(data) as path:
        evaluated = evaluate_run(
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
        )
        found = evaluated.summary
        if report is not None:
            write_evaluation_report(report, evaluated, seed)
            found["report"] = str(report)
    print_warnings(found["warnings"])
    if as_json:
        print_json({**found, "data": data})
        return
    promise = found["promised"]
    beside = (
        {}
        if promise is None
        else {promise["metric"]: f"; promised {format_metric_value(promise)}, {promise['source']}"}
    )
    intervals = [(name, format_metric_value(one) + beside.get(name, "")) for name, one in found["metrics"].items()]
    constraints = [
        (one["constraint"], f"{'met' if one['met'] else 'not met'}: {one['value']:.4f}") for one in found["constraints"]
    ]
    coverage = found["coverage"]
    decided = [] if coverage is None else [("coverage", f"{100 * coverage:.0f} % of the rows are decided")]
    print_pairs([("rows", str(found["rows"])), ("rule", found["rule"]), *decided, *intervals, *constraints])
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
