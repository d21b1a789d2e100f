"""``metricgrad tune``: another decision rule for a run's model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from metricgrad.cli.arguments import (
    AllowMissingOption,
    AlphaOption,
    BetaOption,
    BootstrapSeedOption,
    ConfidenceOption,
    DataArgument,
    JsonOption,
    RowsOption,
    RunArgument,
    SubjectToOption,
    add_working_directory,
)
from metricgrad.cli.json_output import print_json
from metricgrad.cli.streams import open_data


def tune(
    run: RunArgument,
    data: DataArgument,
    metric: Annotated[str | None, typer.Option(help="The metric to maximise; by default the run's.")] = None,
    beta: BetaOption = None,
    alpha: AlphaOption = None,
    average: Annotated[str | None, typer.Option(help="Average over classes; by default the run's.")] = None,
    subject_to: SubjectToOption = None,
    confidence: ConfidenceOption = None,
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
    from metricgrad.comparison.report.run_report import renew_report

    add_working_directory(metric or "")
    with open_data(data) as path:
        tuned = command.tune(
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
    found = tuned.summary
    if found["written"]:
        found["warnings"] += renew_report(tuned.run)
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
            *(("guaranteed", one) for one in new["guarantees"]),
            ("written", "yes; the previous rule is kept in the run" if found["written"] else "no (--dry-run)"),
        ]
    )


def _describe_values(one: dict[str, Any]) -> str:
    return f"{one['value']:.4f} on these rows, {one['expected']:.4f} expected on new ones"
