"""``metricgrad tune``: another decision rule for a run's model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricgrad.cli.arguments import (
    AbstainLabelOption,
    AbstainOption,
    AllowMissingOption,
    AlphaOption,
    BetaOption,
    BootstrapSeedOption,
    ConfidenceOption,
    JsonOption,
    RowsOption,
    RunArgument,
    SubjectToOption,
    add_working_directory,
)
from metricgrad.cli.json_output import print_json
from metricgrad.cli.streams import open_data
from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from pathlib import Path


def tune(
    run: RunArgument,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]", help="Labelled rows: CSV (also gzip), Parquet or Feather; - is standard input."
        ),
    ] = None,
    unlabelled: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Rows without labels instead: renews the rule for their base rate."),
    ] = None,
    allow_shift: Annotated[
        bool, typer.Option("--allow-shift", help="With --unlabelled: go on if more than the base rate has changed.")
    ] = False,
    metric: Annotated[str | None, typer.Option(help="The metric to maximise; by default the run's.")] = None,
    beta: BetaOption = None,
    alpha: AlphaOption = None,
    average: Annotated[str | None, typer.Option(help="Average over classes; by default the run's.")] = None,
    subject_to: SubjectToOption = None,
    confidence: ConfidenceOption = None,
    abstain: AbstainOption = False,
    abstain_label: AbstainLabelOption = None,
    rows: RowsOption = None,
    allow_missing: AllowMissingOption = False,
    seed: BootstrapSeedOption = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show without writing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Tune a run's decision rule on new rows; nothing is trained."""
    from metricgrad.cli.display import print_pairs, print_warnings
    from metricgrad.comparison.inference import tune as command
    from metricgrad.comparison.option_texts import split_values
    from metricgrad.comparison.report.run_report import renew_report

    add_working_directory(metric or "")
    if (data is None) == (unlabelled is None):
        got = "neither" if data is None else "both"
        raise UserError(
            f"DATA: expected labelled rows, or --unlabelled with rows without labels, got {got}", WRONG_CALL
        )
    if unlabelled is not None:
        if confidence is not None:
            raise UserError("--confidence: expected labelled rows with it, got --unlabelled; leave it out", WRONG_CALL)
        if abstain or abstain_label is not None:
            raise UserError(
                "--abstain: expected labelled rows with it, got --unlabelled, which keeps what the run does; leave it "
                "out",
                WRONG_CALL,
            )
        _renew(
            run,
            unlabelled,
            as_json,
            metric=metric,
            average=average,
            subject_to=subject_to,
            beta=split_values("beta", beta),
            alpha=split_values("alpha", alpha),
            rows=rows,
            allow_missing=allow_missing,
            allow_shift=allow_shift,
            dry_run=dry_run,
            seed=seed,
        )
        return
    if data is None:  # as checked above; for type checkers
        return
    if allow_shift:
        raise UserError("--allow-shift: expected --unlabelled with it, got labelled rows; leave it out", WRONG_CALL)
    with open_data(data) as path:
        tuned = command.tune(
            run,
            path,
            metric,
            average=average,
            subject_to=subject_to,
            confidence=confidence,
            abstain=abstain,
            abstain_label=abstain_label,
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
            *_list_coverage(new),
            ("written", "yes; the previous rule is kept in the run" if found["written"] else "no (--dry-run)"),
        ]
    )


def _renew(run: Path, data: str, as_json: bool, **options: Any) -> None:
    """Renew the rule for the base rate of rows without labels, and print what was found."""
    from metricgrad.cli.display import print_pairs, print_warnings
    from metricgrad.comparison.inference.base_rate import renew
    from metricgrad.comparison.report.run_report import renew_report

    with open_data(data) as path:
        renewed = renew(run, path, **options)
    found = renewed.summary
    if found["written"]:
        found["warnings"] += renew_report(renewed.run)
    print_warnings(found["warnings"])
    if as_json:
        print_json({**found, "data": data})
        return
    rate, old, new = found["base_rate"], found["old"], found["new"]
    rates = zip(rate["classes"], rate["before"], rate["value"], rate["low"], rate["high"], strict=True)
    print_pairs(
        [
            ("rows", f"{found['rows']} without labels"),
            *(
                (f"rate of {one_line(name, 40)}", f"{value:.2%} ({low:.2%} to {high:.2%}), {before:.2%} in training")
                for name, before, value, low, high in rates
            ),
            ("before", f"{old['rule']}: {found['metric']} {old['expected']:.4f} expected at this rate"),
            ("after", f"{new['rule']}: {found['metric']} {new['expected']:.4f} expected at this rate"),
            *_list_coverage(new),
            ("written", "yes; the previous rule is kept in the run" if found["written"] else "no (--dry-run)"),
        ]
    )


def _list_coverage(new: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the share of the rows that a rule decides, as a line to print; none if it decides all."""
    return [] if new["coverage"] is None else [("coverage", f"{100 * new['coverage']:.0f} % of the rows are decided")]


def _describe_values(one: dict[str, Any]) -> str:
    return f"{one['value']:.4f} on these rows, {one['expected']:.4f} expected on new ones"
