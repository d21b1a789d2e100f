"""The commands that use a run: ``metricgrad predict``, ``evaluate``, ``tune`` and ``convert``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (Typer reads annotations at run time)
from typing import Annotated

import typer

from metricgrad.app.cli.arguments import Data, Jobs, Json, Rows, Run, Seed, SubjectTo, processes, see_working_directory
from metricgrad.app.cli.output import tell


def predict(
    run: Run,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file to write: .csv, .csv.gz, .parquet, .feather.")
    ],
    keep: Annotated[str | None, typer.Option("--id", help="Columns of the data to keep, comma-separated.")] = None,
    what: Annotated[str, typer.Option(help="labels, scores or both.")] = "both",
    jobs: Jobs = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: Json = False,
) -> None:
    """Predict every row of a file of any size."""
    from metricgrad.app.cli.display import RowsDone, lines, show_warnings
    from metricgrad.app.use import predict as command

    names = [part.strip() for part in (keep or "").split(",") if part.strip()]
    with RowsDone(silent=as_json) as progress:
        found = command.predict(
            run, data, output, what=what, keep=names, force=force, jobs=processes(jobs), progress=progress
        )
    show_warnings(found["warnings"])
    if not tell(found, as_json):
        speed = f"{found['rows']} in {found['seconds']:.1f} s"
        shares = ", ".join(f"{name} {count}" for name, count in found["predicted"].items())
        lines([("rows", speed), ("predicted", shares), ("output", found["output"])])


def evaluate(
    run: Run,
    data: Data,
    metric: Annotated[
        str | None, typer.Option(help="Metrics, comma-separated; by default the run's and usual ones.")
    ] = None,
    rows: Rows = None,
    replicates: Annotated[int, typer.Option(min=10, help="Of the bootstrap.")] = 1000,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.9999, help="Of the intervals.")] = 0.95,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Judge a run's model on new labelled data, and warn of drift."""
    from metricgrad.app.cli.display import lines, show_warnings
    from metricgrad.app.use.evaluate import judge

    see_working_directory(metric or "")
    names = [part.strip() for part in (metric or "").split(",") if part.strip()]
    found = judge(run, data, names, rows=rows, replicates=replicates, confidence=confidence, seed=seed)
    show_warnings(found["warnings"])
    if tell(found, as_json):
        return
    intervals = [
        (name, f"{one['value']:.4f} ({one['low']:.4f} to {one['high']:.4f})") for name, one in found["metrics"].items()
    ]
    kept = [
        (one["constraint"], f"{'holds' if one['met'] else 'does not hold'}: {one['value']:.4f}")
        for one in found["constraints"]
    ]
    lines([("rows", str(found["rows"])), ("rule", found["rule"]), *intervals, *kept])
    print()
    lines(
        [
            (
                one["name"],
                f"precision {one['precision']:.3f}, recall {one['recall']:.3f}, f1 {one['f1']:.3f}, {one['rows']} rows",
            )
            for one in found["classes"]
        ]
    )


def tune(
    run: Run,
    data: Data,
    metric: Annotated[str | None, typer.Option(help="What to maximise; by default the run's metric.")] = None,
    average: Annotated[str | None, typer.Option(help="Over classes; by default the run's.")] = None,
    subject_to: SubjectTo = None,
    confidence: Annotated[
        float | None, typer.Option(min=0.5, max=0.9999, help="How sure the constraint must hold.")
    ] = None,
    rows: Rows = None,
    seed: Seed = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell.")] = False,
    as_json: Json = False,
) -> None:
    """Tune a run's decision rule on labelled data, without training again."""
    from metricgrad.app.cli.display import lines, show_warnings
    from metricgrad.app.use import tune as command

    see_working_directory(metric or "")
    found = command.tune(
        run,
        data,
        metric,
        average=average,
        subject_to=subject_to,
        confidence=confidence,
        rows=rows,
        dry_run=dry_run,
        seed=seed,
    )
    show_warnings(found["warnings"])
    if tell(found, as_json):
        return
    old, new = found["old"], found["new"]
    lines(
        [
            ("before", f"{old['rule']}: {found['metric']} {old['value']:.4f} on these {found['rows']} rows"),
            ("after", f"{new['rule']}: {new['value']:.4f} there, {new['expected']:.4f} to be expected on others"),
            ("written", "yes, the rule before is kept as well" if found["written"] else "no, as asked"),
        ]
    )


def convert(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a folder of mg.save.")],
    out: Annotated[Path | None, typer.Option(help="A new folder to write to; by default in place.")] = None,
    as_json: Json = False,
) -> None:
    """Write a folder of the older format anew, as this version reads it."""
    from metricgrad.app.cli.display import lines
    from metricgrad.app.use.convert import convert as command

    found = command(run, out)
    if not tell(found, as_json):
        lines([("written", found["written"]), ("format", str(found["format"]))])
