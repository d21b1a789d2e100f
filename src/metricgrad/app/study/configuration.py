"""``config.toml``: the options of a run as a file that ``--config`` reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEFT_OUT = {"compare": ("demo", "data_sha256"), "train": ("demo", "data_sha256", "repeats", "only")}
"""What ``config.json`` holds that is no option of the command."""


def write_toml(command: str, config: Mapping[str, str | float | bool | None]) -> str:
    r"""Return the options of a command as TOML; those that are None are left out.

    >>> print(write_toml("compare", {"data": 'a "b".csv', "repeats": 5, "quick": False, "task": None}), end="")
    # metricgrad compare --config THIS_FILE repeats this run; a relative path is relative to this file.
    data = "a \"b\".csv"
    repeats = 5
    quick = false
    """
    lines = [f"# metricgrad {command} --config THIS_FILE repeats this run; a relative path is relative to this file."]
    for name, value in config.items():
        if value is not None and name not in _LEFT_OUT[command]:
            # A text in JSON is one in TOML too, but for the last control character.
            text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            lines.append(f"{name.replace('_', '-')} = {text}")
    return "\n".join(lines) + "\n"
