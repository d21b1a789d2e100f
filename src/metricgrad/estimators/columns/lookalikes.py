"""Texts that people read as numbers and programs do not: they are not guessed at, but said."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from metricgrad.estimators.columns.numbers import UNIT
from metricgrad.messages import one_line

if TYPE_CHECKING:
    import pandas as pd

_NUMBER = r"\d[\d.,'\u2019 \u00a0\u202f]*|[.,]\d+"
_SIGN = "[-+\u2212(]?"
_MAGNITUDE = re.compile(
    rf"{_SIGN}\s*(?:{UNIT})?\s*(?:{_NUMBER})\s*([kKmMbBtT]|[mM]io|[mM]rd|[mM]n|[bB]n)?\s*(?:{UNIT})?\)?"
)
_AMOUNT = re.compile(rf"{_SIGN}\s*({UNIT})?\s*{_SIGN}\s*(?:{_NUMBER})\s*({UNIT})?\s*\)?")
_CLOCK = re.compile(r"[-+]?\d{1,3}:\d{2}(?::\d{2})?(?:[.,]\d+)?(?:\s?[AaPp]\.?[Mm]\.?)?")
_MEASURE = re.compile(rf"{_SIGN}\s*(?:{_NUMBER})\s*([^\W\d_]{{1,4}}[\u00b2\u00b3]?|\u00b0[CF]?|[\u2032\u2033\"'])")
_MOST_TEXTS = 2000  # different texts that are looked at


def describe_numbers_in_texts(texts: pd.Series, least: float) -> str | None:
    """Return what the texts of a column are if at least the share ``least`` of them look like numbers, else None.

    >>> import pandas as pd
    >>> describe_numbers_in_texts(pd.Series(["$3", "12 \u20ac", "$5.50"]), 0.95)
    "amounts in several units ($, €), such as '$3' and '12 €'"
    >>> describe_numbers_in_texts(pd.Series(["3.5k", "900", "2k"]), 0.95)
    "numbers with letters for thousands or millions, such as '3.5k'"
    >>> describe_numbers_in_texts(pd.Series(["03:21", "12:40"]), 0.95)
    "times or durations, such as '03:21'"
    >>> describe_numbers_in_texts(pd.Series(["7 kg", "12 kg"]), 0.95)
    "numbers with the unit 'kg', such as '7 kg'"
    """
    different = texts.drop_duplicates().head(_MOST_TEXTS).map(str).str.strip()
    needed = least * len(different)
    units = _find_all(different, _AMOUNT)
    if len(units) >= needed and len(kinds := sorted({unit for unit in units.values() if unit})) > 1:
        examples = " and ".join(repr(one_line(_find_example(units, unit), 20)) for unit in kinds[:2])
        return f"amounts in several units ({', '.join(kinds)}), such as {examples}"
    letters = _find_all(different, _MAGNITUDE)
    if len(letters) >= needed and any(letters.values()):
        example = next(text for text, letter in letters.items() if letter)
        return f"numbers with letters for thousands or millions, such as {one_line(example, 20)!r}"
    if len(times := _find_all(different, _CLOCK)) >= needed and times:
        return f"times or durations, such as {one_line(next(iter(times)), 20)!r}"
    measures = _find_all(different, _MEASURE)
    if len(measures) >= needed and len(set(measures.values())) == 1:
        text, unit = next(iter(measures.items()))
        return f"numbers with the unit {unit!r}, such as {one_line(text, 20)!r}"
    return None


def _find_all(texts: pd.Series, pattern: re.Pattern[str]) -> dict[str, str]:
    """Return the texts that are of a pattern as a whole, each with what its groups hold, such as a unit."""
    matches = ((text, pattern.fullmatch(text)) for text in texts)
    return {text: "".join(part or "" for part in match.groups()) for text, match in matches if match is not None}


def _find_example(units: dict[str, str], wanted: str) -> str:
    return next(text for text, unit in units.items() if unit == wanted)
