"""What the commands that make a run share: ``compare``, ``train`` and ``demo``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from metricgrad.cli.arguments import split_columns
from metricgrad.comparison.errors import WRONG_CALL, UserError

if TYPE_CHECKING:
    import typer

    from metricgrad.comparison.options import Options
    from metricgrad.comparison.progress import LiveProgress, NoProgress


class Show(NamedTuple):
    """What to show: ``--json`` and ``--verbose``."""

    as_json: bool
    verbose: bool

    def open_progress(self) -> LiveProgress | NoProgress:
        """Return what shows the progress of a run."""
        from metricgrad.comparison.progress import LiveProgress, NoProgress

        return NoProgress() if self.as_json else LiveProgress(self.verbose)


def make_options(context: typer.Context, **changes: Any) -> Options:
    """Return the options of a run: the parameters of the command that have their names, with changes.

    This is where texts of the command line become lists and numbers.
    """
    from metricgrad.comparison.option_texts import split_names, split_values
    from metricgrad.comparison.options import Options

    names = {field.name for field in fields(Options)}
    given = {name: value for name, value in context.params.items() if name in names} | changes
    given |= {name: split_columns(given[name], given["data"]) for name in ("target", "drop")}
    given |= {name: split_names(given[name]) for name in ("metric", "contenders", "extra_contenders") if name in given}
    given |= {name: split_values(name, given[name]) for name in ("beta", "alpha")}
    if not given["metric"]:
        raise UserError("--metric: expected the name of a metric, got none", WRONG_CALL)
    return Options(**given)


def choose_new_folder(stem: str) -> Path:
    """Return the path of a run folder in the working directory that does not exist yet."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in stem)
    place = Path(f"metricgrad-run-{plain}")
    number = 1
    while place.exists():
        number += 1
        place = Path(f"metricgrad-run-{plain}-{number}")
    return place
