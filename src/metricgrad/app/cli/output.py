"""What is told at the end: a JSON document if asked for, and what a run folder holds (``metricgrad info``)."""

from __future__ import annotations

import json
import math
from pathlib import Path  # noqa: TC003 (Typer reads annotations at run time)
from typing import Annotated, Any

import typer

from metricgrad.app.cli.arguments import Json  # noqa: TC001 (the same)


def tell(document: Any, as_json: bool) -> bool:
    """Print a document if JSON was asked for, and tell whether it was."""
    if as_json:
        print(json.dumps(_finite(document), ensure_ascii=False, allow_nan=False))
    return as_json


def _finite(document: Any) -> Any:
    """Return a document with null in the place of what JSON cannot hold: infinite numbers and those of nothing."""
    if isinstance(document, dict):
        return {key: _finite(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_finite(value) for value in document]
    return None if isinstance(document, float) and not math.isfinite(document) else document


def info(
    run: Annotated[Path | None, typer.Argument(help="A run folder; without one, versions and contenders.")] = None,
    as_json: Json = False,
) -> None:
    """Tell what a run folder holds, or what is installed."""
    if run is not None:
        describe(run, as_json)
        return
    from metricgrad.app.contenders.table import CONTENDERS
    from metricgrad.app.runs.folder import environment

    found = environment()
    about = {name: contender.about for name, contender in CONTENDERS.items()}
    if not tell({**found, "contenders": about}, as_json):
        from metricgrad.app.cli.display import lines

        lines([*found["versions"].items(), ("machine", found["machine"])])
        print()
        lines(list(about.items()))


def describe(run: Path, as_json: bool) -> None:
    """Tell what a run folder holds, finished or not."""
    from metricgrad.app.runs.folder import opened
    from metricgrad.app.study.summaries import read

    found = opened(run)
    about, finished = found.manifest, found.manifest["state"] == "finished"
    summary = read(found) if finished else {}
    units = len(list((run / "results").glob("[!.]*.json")))
    if tell(
        {"run": str(run), "state": about["state"], "created": about["created"], "units": units, **summary}, as_json
    ):
        return
    from metricgrad.app.cli.display import leaderboard, lines

    pairs: list[tuple[str, str]] = [
        (key, str(about[key])) for key in ("kind", "state", "created", "finished") if key in about
    ]
    pairs += [(key, str(value)) for key, value in found.config.items() if value is not None]
    if not finished:
        pairs += [("units done", str(units)), ("go on", f"metricgrad compare --resume {run}")]
    lines(pairs)
    print()
    if "leaderboard" in summary:
        leaderboard(summary)
    elif summary:
        lines([(key, str(value)) for key, value in summary.items() if not isinstance(value, dict | list)])
