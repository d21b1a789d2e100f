"""``--config``: options from a TOML file. Options on the command line win."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from metricgrad.cli.streams import STANDARD
from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.comparison.option_texts import as_text
from metricgrad.messages import one_line, suggest

_NOT_IN_FILES = {"config", "resume", "force", "as_json", "cluster"}
"""Options that only the command line takes: those that overwrite files, that say where output goes, or whom to trust.

The answers of a cluster's workers are unpickled here, so a file that names a cluster would name code.
"""
_PATHS = ("data", "out")
_TABLES = ("beta", "alpha")


def _read(context: typer.Context, path: Path | None) -> Path | None:
    """Make the options of a file the defaults of the command, before its other options are read."""
    if path is None or context.resilient_parsing:
        return path
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"--config {path}: cannot be read ({error.strerror}); check the path", WRONG_CALL) from error
    except ValueError as error:  # of TOML, or of UTF-8
        raise UserError(f"--config {path}: expected TOML, got {one_line(error, 200)}", WRONG_CALL) from error
    flags = {_name_key(one): str(one.name) for one in context.command.params if one.name not in _NOT_IN_FILES}
    typed = {_name_key(one) for one in context.command.params if one.name in _NOT_IN_FILES}
    options = {}
    for key, value in found.items():
        plain = key.replace("_", "-")
        if plain in typed:
            raise UserError(
                f"--config {path}: expected options of a file, got {plain!r}, which only the command line may set; "
                f"type --{plain} if you want it",
                WRONG_CALL,
            )
        if plain not in flags:
            raise UserError(
                f"--config {path}: unknown option {one_line(key, 60)!r}; {suggest(plain, flags)}", WRONG_CALL
            )
        options[flags[plain]] = _to_option(path, plain, value)
    context.default_map = options
    return path


def _name_key(parameter: Any) -> str:
    """Return the name of an option in a file: as on the command line, without the dashes."""
    longest: str = max(parameter.opts, key=len)
    return longest.lstrip("-").replace("_", "-")


def _to_option(path: Path, key: str, value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = as_text(value)
    if key in _TABLES and isinstance(value, dict) and all(type(one) in (int, float) for one in value.values()):
        value = as_text(value)
    if not isinstance(value, str | int | float):
        raise UserError(
            f"--config {path}: {key}: expected a text, a number, true or false, got {one_line(value, 60)}", WRONG_CALL
        )
    if key in _PATHS and isinstance(value, str) and value != STANDARD:
        return str(path.parent / value)
    return value


def check_no_code(context: typer.Context) -> None:
    """Raise if a metric or constraint of the file names code: a file may not, only the command line."""
    for name in ("metric", "subject_to"):
        source = getattr(context.get_parameter_source(name), "name", None)
        if source == "DEFAULT_MAP" and ":" in str(context.params[name]):
            flag = f"--{name.replace('_', '-')}"
            value = one_line(context.params[name], 80)
            raise UserError(
                f"--config: {value} is code, and a file may not name code to import; if you trust it, type "
                f"{flag} {value}",
                WRONG_CALL,
            )


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        callback=_read,
        is_eager=True,
        help="Options from a TOML file, such as config.toml of a run folder; those on the line win.",
    ),
]
