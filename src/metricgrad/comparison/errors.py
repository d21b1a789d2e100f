"""Errors that a user can put right: one line that says what to do, and an exit code."""

from __future__ import annotations

import difflib
import errno
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
CLUSTER = 7
INTERRUPTED = 130


class UserError(Exception):
    r"""An error that the user can put right; ``code`` is the exit code.

    2 a wrong call, 3 unusable data, 4 an unusable run folder, 5 a path that cannot be written to, 6 a constraint that
    cannot be met or nothing to ship, 7 an unusable cluster, 130 Ctrl-C.

    >>> error = UserError("data.csv: expected rows,\n got none", DATA)
    >>> str(error), error.code
    ('data.csv: expected rows, got none', 3)
    """

    def __init__(self, message: str, code: int = DATA) -> None:
        super().__init__(one_line(message))
        self.code = code


def one_line(text: object, most: int | None = None) -> str:
    r"""Return text without line breaks and control characters, which cells and column names may contain.

    >>> one_line("a\x1b[31m\nb"), one_line("a long story", most=8)
    ('a?[31m b', 'a long …')
    """
    plain = " ".join(str(text).split())
    plain = "".join(letter if letter.isprintable() else "?" for letter in plain)
    return plain if most is None or len(plain) <= most else plain[: most - 1] + "…"


def suggest(name: str, names: Iterable[str]) -> str:
    """Return the end of an error message: the name that was probably meant, or all names.

    >>> suggest("incom", ["age", "income"])
    "did you mean 'income'?"
    """
    by_lower_case = {one.lower(): one for one in names}
    if close := difflib.get_close_matches(name.lower(), by_lower_case, 1):
        return f"did you mean {by_lower_case[close[0]]!r}?"
    return f"choose one of {one_line(', '.join(by_lower_case.values()), 200)}"


@contextmanager
def writing(place: Path | str) -> Iterator[None]:
    """Turn an operating-system error on writing (no permission, disk full) into a ``UserError``."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error  # pyarrow's own text is long and names temporary files
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        how = "free some space, or choose another path" if full else "choose another path"
        if error.errno == errno.ENOENT:
            how = "make its folder first, or choose another path"
        raise UserError(f"{place}: cannot be written ({why}); {how}", WRITE) from error
