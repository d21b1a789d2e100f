"""Errors that a user can put right: one line that says what to do, and an exit code."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
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
