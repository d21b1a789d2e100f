"""Options as text: on the command line, and in ``config.toml``, which ``--config`` reads."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence

from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.messages import one_line

_LEFT_OUT = {"compare": ("demo", "data_sha256"), "train": ("demo", "data_sha256", "repeats", "contenders", "abstain")}
"""What ``config.json`` holds that is no option of the command."""

Option = str | float | bool | Sequence[str] | Mapping[str, float] | None
"""The value of an option."""


def split_names(text: str | None) -> tuple[str, ...]:
    """Return the parts of a comma-separated text; names with a comma are in double quotes, as in CSV.

    >>> split_names("a, b,"), split_names('"weight, kg", age'), split_names(None)
    (('a', 'b'), ('weight, kg', 'age'), ())
    """
    if text is None:
        return ()
    if '"' not in text:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        (parts,) = csv.reader([text], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError) as error:
        raise UserError(
            f"names: expected those with a comma in double quotes, got {one_line(text, 80)!r}", WRONG_CALL
        ) from error
    return tuple(part for part in parts if part)


def join_names(names: Sequence[str]) -> str:
    """Return the text from which ``split_names`` makes these names.

    >>> join_names(["a", "b"]), join_names(["weight, kg", "age"])
    ('a,b', '"weight, kg","age"')
    """
    plain = ",".join(names)
    if split_names(plain if '"' not in plain else None) == tuple(names):
        return plain
    quoted = io.StringIO()
    csv.writer(quoted, quoting=csv.QUOTE_ALL, lineterminator="").writerow(names)
    return quoted.getvalue()


def split_values(option: str, text: str | None) -> float | dict[str, float] | None:
    """Return the values of a metric's parameter: a number, or one for each class, "class=number,class=number".

    >>> split_values("beta", "2"), split_values("beta", "dog=0.25, rest=1")
    (2.0, {'dog': 0.25, 'rest': 1.0})
    """
    if text is None:
        return None
    try:
        if "=" not in text:
            return float(text)
        # A class may contain "=", a number does not.
        pairs = [part.rpartition("=")[::2] for part in split_names(text)]
        found = {name.strip(): float(value) for name, value in pairs}
    except ValueError:
        raise UserError(
            f"--{option}: expected a number or class=number,class=number, got {text!r}", WRONG_CALL
        ) from None
    if len(found) < len(pairs):
        raise UserError(f"--{option}: expected every class once, got {text!r}", WRONG_CALL)
    return found


def as_text(value: Option) -> str:
    """Return an option as it is typed on the command line."""
    if isinstance(value, dict):
        return join_names([f"{name}={number}" for name, number in value.items()])
    return join_names(value) if isinstance(value, list | tuple) else str(value)


def write_toml(command: str, config: Mapping[str, Option]) -> str:
    r"""Return the options of a command as TOML; those that are None or empty are left out.

    >>> print(write_toml("compare", {"data": 'a "b".csv', "target": ["y"], "beta": {"dog": 2}, "task": None}), end="")
    # metricgrad compare --config THIS_FILE repeats this run; a relative path is relative to this file.
    data = "a \"b\".csv"
    target = ["y"]
    beta = {"dog" = 2}
    """
    lines = [f"# metricgrad {command} --config THIS_FILE repeats this run; a relative path is relative to this file."]
    for name, value in config.items():
        if value not in (None, (), []) and name not in _LEFT_OUT[command]:
            lines.append(f"{name.replace('_', '-')} = {_as_toml(value)}")
    return "\n".join(lines) + "\n"


def _as_toml(value: Option) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_as_toml(name)} = {_as_toml(number)}" for name, number in value.items()) + "}"
    # Texts, numbers and lists in JSON are the same in TOML, but for the last control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
