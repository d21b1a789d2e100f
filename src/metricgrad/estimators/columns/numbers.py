"""Numbers written as texts: one notation for a whole column, found from all of its cells, and used again later.

A format is a notation, which shows how 1234.5 is written, and the unit that follows after a space: "1,234.5 $".
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

UNREADABLE = (TypeError, ValueError, OverflowError, NotImplementedError, pa.ArrowException)
"""What pandas and pyarrow raise for cells of another kind than expected: lists, bytes, dates that no calendar has."""

PLAIN = "1234.5"
"""The format of numbers as programs write them."""

_NOTATIONS = {
    PLAIN: (".", ""),
    "1,234.5": (".", ","),
    "1.234,5": (",", r"\."),
    "1 234.5": (".", "[ \u00a0\u2009\u202f]"),
    "1 234,5": (",", "[ \u00a0\u2009\u202f]"),
    "1'234.5": (".", "['\u2019]"),
    "1'234,5": (",", "['\u2019]"),
}
_CURRENCIES = "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HUF|INR|JPY|KRW|MXN|NOK|NZD|PLN|RON|SEK|TRY|USD|ZAR|Ft|Kč|kr|zł"
UNIT = rf"%|[A-Z]{{0,2}}[$£¥฿₠-⃀]|{_CURRENCIES}"
"""What may follow or precede a number: one of them in a column."""
_UNIT = re.compile(UNIT)
_GAP = "[\\s\u00a0\u2009\u202f]*"
_HEAD = 1000  # a format that does not fit many of so many cells is not tried on all of them


def check_number_format(text: str) -> None:
    """Raise a ``ValueError`` unless a text is a format of numbers."""
    notation, unit = _split(text)
    if notation not in _NOTATIONS or (unit and not _UNIT.fullmatch(unit)):
        raise ValueError(f"expected a format of numbers such as '1.234,5 €', got {text!r}")


def find_number_formats(known: pd.Series, least: float) -> tuple[str, ...]:
    """Return the format in which at least the share ``least`` of the texts are numbers; empty if there is none.

    Two formats if they fit equally well but mean different numbers; the first is the one to take.

    >>> find_number_formats(pd.Series(["1.234,56 €", "7,00 €"]), 1.0), find_number_formats(pd.Series(["12.5 %"]), 1.0)
    (('1.234,5 €',), ('1,234.5 %',))
    >>> find_number_formats(pd.Series(["1,234", "2,500"]), 1.0)
    ('1,234.5', '1.234,5')
    """
    texts = as_arrow(known)
    head = texts.slice(0, _HEAD)
    # With a unit, "1,234.5" stands for numbers without thousands as well: some may come later.
    formats = [*_NOTATIONS, *(f"{how} {unit}" for unit in _find_unit(head) for how in _NOTATIONS if how != PLAIN)]
    likely = [how for how in formats if _count(head, how) >= 0.5 * least * len(head)]
    fits = {how: _count(texts, how) for how in likely}
    best = max(fits.values(), default=0)
    if not best or best < least * len(texts):
        return ()
    equal = [how for how, count in fits.items() if count == best]
    if equal[0] == PLAIN:
        return (PLAIN,)
    totals = {how: float(np.nansum(np.abs(_read_texts(texts, how)))) for how in equal}
    # Three digits after the mark are thousands, and 1,234 is more than a thousand; but 12,345 % are hardly that many.
    chosen = (min if equal[0].endswith("%") else max)(equal, key=totals.__getitem__)
    others = (how for how in equal if totals[how] != totals[chosen])
    return (chosen, *list(others)[:1])


def read_formatted(cells: pd.Series, how: str) -> np.ndarray:
    """Return texts in a format other than the plain one as float64, NaN for those that are written otherwise.

    A currency may be left out of a cell; the sign of per cent may not, since 0.5 could be 50 %.

    >>> read_formatted(pd.Series(["-$1,234.50", "($3)", "12", "1.5.2"]), "1,234.5 $")
    array([-1234.5,    -3. ,    12. ,     nan])
    """
    return _read_texts(as_arrow(cells), how)


def as_arrow(cells: pd.Series) -> pa.Array:
    """Return cells as an arrow array of texts."""
    if not isinstance(cells.dtype, pd.StringDtype):
        cells = cells.map(str, na_action="ignore")
    found = pa.array(cells, from_pandas=True)
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return found.cast(pa.large_string())


def _split(how: str) -> tuple[str, str]:
    notation, _, unit = how.rpartition(" ")
    return (how, "") if unit.startswith("234") or not notation else (notation, unit)


def _find_unit(texts: pa.Array) -> list[str]:
    """Return the unit that most of the texts have, if any."""
    rest = pc.replace_substring_regex(texts, f"[-+\u2212()\\d.,'\u2019]|{_GAP}", "")
    counts = pd.Series(rest.to_numpy(zero_copy_only=False)).value_counts()
    return [unit for unit in counts.index if _UNIT.fullmatch(unit)][:1]


@cache
def _compile(how: str) -> str:
    notation, unit = _split(how)
    decimal, thousands = _NOTATIONS[notation]
    mark = re.escape(decimal)
    body = rf"\d+(?:{mark}\d*)?|{mark}\d+"
    if thousands:
        body = rf"[1-9]\d{{0,2}}(?:{thousands}\d{{3}})+(?:{mark}\d+)?|{body}"
    before = after = f"(?:{re.escape(unit)})?" if unit else ""
    if unit == "%":
        before = ""
        after = "%"
    sign = "[-+\u2212]?"
    return (
        rf"^(?P<open>\(?){_GAP}(?P<sign>{sign}){_GAP}{before}{_GAP}(?P<inner>{sign}){_GAP}"
        rf"(?P<body>{body})(?P<exponent>(?:[eE][-+]?\d+)?){_GAP}{after}{_GAP}\)?$"
    )


def _extract(texts: pa.Array, how: str) -> pa.StructArray:
    return pc.extract_regex(texts, _compile(how))


def _count(texts: pa.Array, how: str) -> int:
    """Return how many texts are numbers in a format."""
    if how == PLAIN:
        return int(pd.to_numeric(texts.to_pandas(), errors="coerce").notna().sum())
    return int(pc.sum(_extract(texts, how).is_valid()).as_py() or 0)


def _read_texts(texts: pa.Array, how: str) -> np.ndarray:
    found = _extract(texts, how)
    decimal, thousands = _NOTATIONS[_split(how)[0]]
    body = found.field("body")
    if thousands:
        body = pc.replace_substring_regex(body, thousands, "")
    body = pc.replace_substring(body, decimal, ".")
    empty = pa.scalar("", pa.large_string())
    plain = pc.binary_join_element_wise(body, found.field("exponent"), empty)
    values = pc.if_else(found.is_valid(), plain, None).cast(pa.float64()).to_numpy(zero_copy_only=False)
    signs = pc.binary_join_element_wise(found.field("open"), found.field("sign"), found.field("inner"), empty)
    negative = pc.match_substring_regex(signs, "[-(\u2212]").fill_null(False).to_numpy(zero_copy_only=False)
    return np.asarray(np.where(negative, -values, values))
