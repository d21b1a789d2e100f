"""``metricgrad info``: what a run folder holds, or what is installed."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (Typer reads annotations at run time)
from typing import TYPE_CHECKING, Annotated

import typer

from metricgrad.cli.arguments import JsonOption  # noqa: TC001 (the same)
from metricgrad.cli.json_output import print_json

if TYPE_CHECKING:
    from metricgrad.comparison.shipped_model import ShippedRule


def info(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="A run folder; without one, versions and contenders.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a run folder holds, or what is installed."""
    if run is not None:
        describe_run(run, as_json)
    else:
        _describe_installation(as_json)


def _describe_installation(as_json: bool) -> None:
    from metricgrad.comparison.contenders import CONTENDERS
    from metricgrad.comparison.run_folder import describe_environment

    found = describe_environment()
    contenders = {name: contender.about for name, contender in CONTENDERS.items()}
    if as_json:
        print_json({**found, "contenders": contenders})
        return
    from metricgrad.cli.display import print_pairs

    print_pairs([*found["versions"].items(), ("machine", found["machine"])])
    print()
    print_pairs(list(contenders.items()))


MOST_GUARANTEES = 10
"""The most bounds that are printed of a model of many labels."""


def describe_shipped(model: ShippedRule) -> str:
    """Return the shipped contender and its rule in words."""
    how = "the fixed rule" if model["kind"] == "fixed" else f"tuned on {model['tuned_on']}"
    if model.get("guarantees") and "value_there" in model:
        how += f", with the value {model['value_there']:.3f} there"
    guaranteed = "".join(f"; {one}" for one in model.get("guarantees", [])[:MOST_GUARANTEES])
    coverage = model.get("coverage")
    covered = "" if coverage is None else f"; {100 * coverage:.0f} % of the rows are decided"
    return f"{model['contender']}, {model['rule']}, {how}{guaranteed}{covered}"


def describe_run(run: Path, as_json: bool) -> None:
    """Print what a run folder holds, finished or not."""
    from metricgrad.comparison.option_texts import as_text
    from metricgrad.comparison.run_folder import open_run
    from metricgrad.comparison.summaries import read_summary

    found = open_run(run)
    manifest, finished = found.manifest, found.manifest["state"] == "finished"
    summary = read_summary(found) if finished else {}
    if finished:
        # ``tune`` may have replaced the rule since.
        several = len(summary.get("model", {}).get("thresholds", ()))
        summary["model"] = found.describe_rule(several)
    units = len(list((run / "candidates").glob("[!.]*.json")))
    if as_json:
        about = {"run": str(run), "state": manifest["state"], "created": manifest["created"], "units": units}
        print_json({**about, **summary})
        return
    from metricgrad.cli.display import print_importance, print_leaderboard, print_pairs

    pairs: list[tuple[str, str]] = [
        (key, str(manifest[key])) for key in ("kind", "state", "created", "finished") if key in manifest
    ]
    pairs += [(key, as_text(value)) for key, value in found.config.items() if value not in (None, [])]
    pairs += [(f"{key} added", str(manifest[key])) for key in ("repeats", "ship") if key in manifest]
    if not finished:
        pairs += [("units done", str(units)), ("to continue", f"metricgrad compare --resume {run}")]
    print_pairs(pairs)
    print()
    if finished:
        print_pairs([("ships", describe_shipped(summary["model"]))])
        print()
    if "leaderboard" in summary:
        print_leaderboard(summary)
        print_importance(summary)
    elif summary:
        print_pairs([(key, str(value)) for key, value in summary.items() if not isinstance(value, dict | list)])
