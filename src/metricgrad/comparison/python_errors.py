"""The application's errors as Python's own."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from metricgrad.comparison.errors import INTERRUPTED, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def python_errors() -> Iterator[None]:
    """Raise what a user can put right as a ``ValueError`` of one line, and Ctrl-C as a ``KeyboardInterrupt``.

    Options are named as in Python, unless a command is quoted:

    >>> with python_errors():
    ...     raise UserError("--subject-to: expected a constraint, got 'x'")
    Traceback (most recent call last):
    ValueError: subject_to: expected a constraint, got 'x'
    """
    try:
        yield
    except UserError as error:
        message = str(error).replace("or use --resume or --force", "or use --force")  # there is no resume here
        message = message.replace("go on with --allow-missing", "go on with set_params(allow_missing=True)")
        if "metricgrad compare" not in message:
            message = re.sub(r"--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), message)
        raise (KeyboardInterrupt if error.code == INTERRUPTED else ValueError)(message) from None
