"""Pieces of messages: text on one line, and what an unknown name may have meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def one_line(text: object, most: int | None = None) -> str:
    r"""Return text without line breaks and control characters, which cells and column names may contain.

    >>> one_line("a\x1b[31m\nb"), one_line("a long story", most=8)
    ('a?[31m b', 'a long …')
    """
    plain = " ".join(str(text).split())
    plain = "".join(letter if letter.isprintable() else "?" for letter in plain)
    return plain if most is None or len(plain) <= most else plain[: most - 1] + "…"


def suggest(name: str, names: Iterable[str], otherwise: str = "choose one of") -> str:
    """Return the end of an error message: the name that was probably meant, or all names after ``otherwise``.

    >>> suggest("incom", ["age", "income"])
    "did you mean 'income'?"
    """
    by_lower_case = {one.lower(): one for one in names}
    if close := difflib.get_close_matches(name.lower(), by_lower_case, 1):
        return f"did you mean {by_lower_case[close[0]]!r}?"
    return f"{otherwise} {one_line(', '.join(by_lower_case.values()) or 'none', 200)}"
