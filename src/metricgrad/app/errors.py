"""What users may have done wrong, or their machine: one line that says what to do, and an exit code."""

from __future__ import annotations

import difflib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

WRONG_CALL = 2
DATA = 3
RUN = 4
WRITE = 5
NOTHING = 6
INTERRUPTED = 130


class UserError(Exception):
    r"""Something that the user can put right; ``code`` is the exit code.

    2 a wrong call, 3 data that cannot be used, 4 a run folder that cannot be used, 5 a place that cannot be written to,
    6 a constraint that cannot be met or nothing to ship, 130 Ctrl-C.

    >>> error = UserError("data.csv: expected rows,\n got none", DATA)
    >>> str(error), error.code
    ('data.csv: expected rows, got none', 3)
    """

    def __init__(self, message: str, code: int = DATA) -> None:
        super().__init__(one_line(message))
        self.code = code


def one_line(text: object, most: int | None = None) -> str:
    r"""Return text without line breaks and control characters, since cells and column names may hold anything.

    >>> one_line("a\x1b[31m\nb"), one_line("a long story", most=8)
    ('a?[31m b', 'a long …')
    """
    plain = " ".join(str(text).split())
    plain = "".join(letter if letter.isprintable() else "?" for letter in plain)
    return plain if most is None or len(plain) <= most else plain[: most - 1] + "…"


def near(name: str, names: Iterable[str]) -> str:
    """Return a hint at the name that was meant, or at all of them, to end a message with.

    >>> near("incom", ["age", "income"])
    "did you mean 'income'?"
    """
    found = {one.lower(): one for one in names}
    if close := difflib.get_close_matches(name.lower(), found, 1):
        return f"did you mean {found[close[0]]!r}?"
    return f"choose among {one_line(', '.join(found.values()), 200)}"


@contextmanager
def writing(place: Path | str) -> Iterator[None]:
    """Turn the system's refusal to write (no permission, disk full) into a ``UserError``."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error  # pyarrow's own text is long and names temporary files
        raise UserError(
            f"{place}: cannot be written ({why}); free some space, or choose another place", WRITE
        ) from error
