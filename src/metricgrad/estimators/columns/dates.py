"""Dates written as texts: one format for a whole column, found from all of its cells, and used again for later ones."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from metricgrad.estimators.columns.numbers import as_arrow

ISO = "year-month-day"
"""The format of ISO 8601, with or without a time of day; also that of columns which hold dates, not texts."""

_ORDERS = (("year", "month", "day"), ("day", "month", "year"), ("month", "day", "year"))
_SEPARATORS = {"-": "-", "/": "/", ".": r"\. ?", " ": r"\.?,? +"}
NAMES = tuple(separator.join(order) for separator in _SEPARATORS for order in _ORDERS)
"""The formats that are found by themselves; all others are written as for ``strptime``, such as ``%d%b%Y``."""

_PARTS = {"day": r"(?P<day>\d{1,2})", "month": r"(?P<month>\d{1,2}|\pL{3,9})", "year": r"(?P<year>\d{4}|\d{2})"}
_CLOCK = (
    r"(?:(?:T|,? +)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d+)?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?)?"
)
_ISO = r"^\d{4}-\d{1,2}-\d{1,2}(?:\D|$)"
_ENGLISH = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: place for place, name in enumerate(_ENGLISH, 1)} | {"mär": 3, "mai": 5, "okt": 10, "dez": 12}
_HEAD = 1000  # a format that fits few of the first cells is not tried on all of them


def check_date_format(text: str) -> None:
    """Raise a ``ValueError`` unless a text is the name of a format, or a format of ``strptime``."""
    if "%" not in text and text not in NAMES:
        raise ValueError(f"expected day.month.year, month/day/year or alike, or a format such as %d%b%Y, got {text!r}")
    if "%" in text:
        try:
            pd.to_datetime(pd.Series(["-"]), format=text, errors="coerce")
        except (ValueError, re.error, KeyError) as error:
            raise ValueError(f"expected a format of strptime, got {text!r} ({error})") from error


def find_date_formats(known: pd.Series, least: float, given: str | None = None) -> tuple[str, ...]:
    """Return the format in which at least the share ``least`` of the texts are dates; empty if there is none.

    Several formats if all of them fit equally well: the column is ambiguous. ``given`` is taken wherever it fits. With
    points the day comes before the month if both are possible, since no country writes it the other way round.

    >>> find_date_formats(pd.Series(["31.12.2021", "1.2.2022 13:45"]), 1.0)
    ('day.month.year',)
    >>> find_date_formats(pd.Series(["1/2/2022", "11/12/2021"]), 1.0)
    ('day/month/year', 'month/day/year')
    >>> find_date_formats(pd.Series(["Dec 31, 2021", "February 1, 2022"]), 1.0)
    ('month day year',)
    """
    if given is not None and len(known) and read_dates(known, given).notna().mean() >= least:
        return (given,)
    head = known.head(_HEAD)
    likely = [name for name in NAMES if _count_likely(head, name) >= 0.5 * least * len(head)] if len(known) else []
    if not likely:
        return ()
    counts = known.value_counts()
    texts = pd.Series(counts.index)
    fits = {name: int(counts.to_numpy()[read_dates(texts, name).notna().to_numpy()].sum()) for name in likely}
    best = max(fits.values())
    if best < least * len(known):
        return ()
    found = tuple(name for name in likely if fits[name] == best)
    if len(found) > 1 and "day.month.year" in found:
        return ("day.month.year",)
    # A named month leaves no doubt: the two orders then read the same dates.
    first = read_dates(texts, found[0])
    return found[:1] if all(read_dates(texts, name).equals(first) for name in found[1:]) else found


def read_dates(cells: pd.Series, how: str | None) -> pd.Series:
    """Return cells as dates, NaT for missing cells and those that are written otherwise.

    ``how``: the format of texts; None is ISO.
    """
    textual = isinstance(cells.dtype, pd.StringDtype) or cells.dtype == object
    if pd.api.types.is_numeric_dtype(cells.dtype):
        if how is None or "%" not in how:
            return pd.Series(np.full(len(cells), np.datetime64("NaT", "s")), index=cells.index)
        cells = cells.map(lambda cell: f"{cell:.0f}", na_action="ignore").astype(object)
        textual = True
    if textual and how not in (None, ISO) and "%" not in str(how):
        return _read_words(cells, str(how))
    written = (how if how is not None and "%" in how else "ISO8601") if textual else None
    found = pd.to_datetime(cells, format=written, errors="coerce", utc=True).dt.tz_localize(None)
    if textual and how == ISO:
        unread = np.isnat(found.to_numpy())
        if unread.any() and not pd.isna(cells.array)[unread].all():  # 2021-1-31, which ISO 8601 does not allow
            found = found.dt.as_unit("s").fillna(_read_words(cells, ISO))
    return found


def has_clock(dates: pd.Series) -> bool:
    """Return whether any of the dates has a time of day."""
    known = dates.dropna()
    return bool((known != known.dt.normalize()).any())


def _count_likely(texts: pd.Series, name: str) -> int:
    """Return how many texts look like dates of a format."""
    pattern = _ISO if name == ISO else _compile(name)
    return int(pc.sum(pc.match_substring_regex(as_arrow(texts), pattern)).as_py() or 0)


@cache
def _compile(name: str) -> str:
    separator = next(one for one in _SEPARATORS if one in name)
    parts = [_PARTS[part] for part in name.split(separator)]
    if name.startswith("year"):
        parts[0] = r"(?P<year>\d{4})"
    return f"^{_SEPARATORS[separator].join(parts)}{_CLOCK}$"


def _read_words(cells: pd.Series, name: str) -> pd.Series:
    """Return texts in one of the named formats as dates."""
    parts = pc.extract_regex(as_arrow(cells), _compile(name))
    day = _to_numbers(parts, "day")
    month = _read_months(parts)
    year = _read_years(parts)
    hour = _read_hours(parts)
    minute = np.nan_to_num(_to_numbers(parts, "minute"))
    second = np.nan_to_num(_to_numbers(parts, "second"))
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 60)
    months_since_1970 = np.where(valid, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    days_after_the_first = np.where(valid, day - 1, 0).astype(np.int64)
    dates = months_since_1970.astype("datetime64[D]") + days_after_the_first
    valid &= dates.astype("datetime64[M]") == months_since_1970  # there is no 31st of June
    seconds_of_the_day = (hour * 3600 + minute * 60 + second).astype(np.int64)
    times = dates.astype("datetime64[s]") + seconds_of_the_day
    found = np.where(valid, times, np.datetime64("NaT", "s"))
    return pd.Series(found, index=cells.index)


def _read_months(parts: pa.StructArray) -> np.ndarray:
    """Return the months as numbers, whether they are written as such or as words; NaN for other words."""
    month = _to_numbers(parts, "month")
    first_letters = pc.utf8_lower(pc.utf8_slice_codeunits(parts.field("month"), 0, 3))
    places = pc.index_in(first_letters, pa.array(list(_MONTHS), first_letters.type)).to_numpy(zero_copy_only=False)
    numbers = np.array([*_MONTHS.values(), np.nan])
    by_name = numbers[np.nan_to_num(places, nan=-1).astype(int)]  # the last one, NaN, if there is no such name
    return np.asarray(np.where(np.isnan(month), by_name, month))


def _read_years(parts: pa.StructArray) -> np.ndarray:
    """Return the years; of two digits they are those from 1969 to 2068, as for ``strptime``."""
    year = _to_numbers(parts, "year")
    has_two_digits = pc.equal(pc.utf8_length(parts.field("year")), 2).to_numpy(zero_copy_only=False)
    century = np.where(year < 69, 2000, 1900)
    return np.asarray(np.where(has_two_digits, year + century, year))


def _read_hours(parts: pa.StructArray) -> np.ndarray:
    """Return the hours, from 0 to 23 also where they are written with a.m. or p.m.; 0 where there is none."""
    hour = np.nan_to_num(_to_numbers(parts, "hour"))
    half = pc.utf8_lower(parts.field("half")).to_numpy(zero_copy_only=False)
    is_afternoon = half == "p"
    has_half = (half == "a") | is_afternoon
    return np.asarray(np.where(has_half, hour % 12 + 12 * is_afternoon, hour))


def _to_numbers(parts: pa.StructArray, name: str) -> np.ndarray:
    """Return a part of dates as numbers, NaN where it is missing or not a number."""
    texts = parts.field(name)
    digits = pc.and_(parts.is_valid(), pc.match_substring_regex(texts, r"^\d+$"))
    found = pc.if_else(digits, texts, None).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(found)
