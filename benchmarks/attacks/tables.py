"""Damaged Parquet and Feather files: read as valid rows, or refused in one line; never a crash or a hang.

The cases run in another process, so that one that crashes it is a failure of that case alone.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from damaged_tables import make_damaged
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.tables import files

if TYPE_CHECKING:
    from collections.abc import Iterable

SECONDS = 120
"""Cases that take longer, on average, hang."""


def check(number: int, place: Path) -> str | None:
    """Return what is wrong with a case, or None."""
    path = make_damaged(number, place)
    try:
        with contextlib.suppress(UserError):  # which is always of one line
            for frame in files.stream(path):
                frame.memory_usage(deep=True)
            files.read(path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        path.unlink()
    return None


def check_all(numbers: Iterable[int]) -> dict[int, str]:
    """Return what is wrong, by the number of the case."""
    waiting, failures = list(numbers), dict[int, str]()
    while waiting:
        done, code = _run(waiting)
        failures |= {number: what for number, what in done.items() if what is not None}
        waiting = [number for number in waiting if number not in done]
        if waiting:  # the first one of these ended the process
            failures[waiting[0]] = f"the process ended with code {code}"
            waiting = waiting[1:]
    return failures


def _run(numbers: list[int]) -> tuple[dict[int, str | None], int]:
    """Return what is wrong with each case that a process finished, and its exit code."""
    words = [sys.executable, __file__, *map(str, numbers)]
    try:
        found = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS * len(numbers))  # noqa: S603
        text, code = found.stdout, found.returncode
    except subprocess.TimeoutExpired as error:
        text, code = (error.stdout or b"").decode(), -1
    return dict(map(json.loads, text.splitlines())), code


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for number in map(int, sys.argv[1:]):
            print(json.dumps([number, check(number, Path(folder))]), flush=True)
