"""Feature columns: the kind of each, how its cells become numbers, and its distribution in training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from metricgrad.estimators.columns.dates import ISO, find_date_formats, has_clock, read_dates
from metricgrad.estimators.columns.ids import are_whole, identifies_rows
from metricgrad.estimators.columns.lookalikes import describe_numbers_in_texts
from metricgrad.estimators.columns.numbers import PLAIN, UNREADABLE, as_arrow, find_number_formats, read_formatted
from metricgrad.messages import one_line
from metricgrad.strict_json import Length, Pattern, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MOST_CATEGORIES = 255
"""The most categories of a column that are distinguished, the most frequent ones."""
MOST_LEVELS_WITHOUT_TARGET = 50
"""A column with more categories is also encoded by the target."""
MOST_LEVELS = 100_000
"""The most categories of a column that are encoded by the target, the most frequent ones."""
SHARE_OF_ONE_KIND = 0.95
"""The share of cells that must be numbers (or dates) for a column of texts to count as such."""

SENTENCE = 5
"""A column of many different texts with at least this many words on average is free text, even if texts recur."""

_PART_ENDINGS = tuple(f" ({part})" for part in ("days", "year", "month", "weekday", "hour", "level", "column"))
"""The endings of part names that differ from the name of the column."""

_MOST_BINS = 10
_BOOLEANS = {
    word: value for value in (True, False) for word in (value, f"{value}", f"{value}".lower(), f"{value}".upper())
}
_TICKS_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST_DAY = 10_957  # 2000-01-01, in days since 1970
_FIRST_YEAR = 1970  # of numpy's dates
_FIRST_WEEKDAY = 3  # its first day was a Thursday


@dataclass(frozen=True)
class Column:
    """A feature column: its name, kind, categories, and its distribution, against which drift is measured.

    ``kind``: "number", "boolean", "category", "date" or "text". ``categories``: the texts of a category column, most
    frequent first; ``others``: whether there were more, which then count as one. ``levels``: if there are many, all of
    them, which are also encoded by the target. ``missing``: the share of missing cells; ``unreadable``: of the others,
    the share of those that are no numbers or dates. ``mean``, ``sd``: mean and standard deviation of numbers.
    ``edges``, ``shares``: the edges between ten bins of numbers, and the share of cells in every bin; for categories
    the share of each. The numbers of a text column are those of words. ``number_format``, ``date_format``: how texts
    are read as numbers or dates. ``date_parts``: the numbers that a date becomes.
    """

    name: str
    kind: Annotated[str, Pattern("number|boolean|category|date|text")]
    missing: Annotated[float, Range(0, 1)]
    shares: tuple[float, ...]
    edges: tuple[float, ...] = ()
    mean: float | None = None
    sd: float | None = None
    categories: tuple[str, ...] = ()
    others: bool = False
    levels: Annotated[tuple[str, ...], Length(0, MOST_LEVELS)] = ()
    number_format: Annotated[str, Length(1, 20)] | None = None
    date_format: Annotated[str, Length(1, 60)] | None = None
    date_parts: tuple[Annotated[str, Pattern("days|year|month|weekday|hour")], ...] = ()
    unreadable: Annotated[float, Range(0, 1)] = 0.0

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the columns that it becomes."""
        if self.kind == "date":
            return tuple(self._name_date_part(part) for part in self.date_parts)
        return (self.value_part, self.level_part) if self.levels else (self.value_part,)

    @property
    def value_part(self) -> str:
        """The name of the column of its numbers, codes or texts: its own name, if no other column has such a part.

        A column of dates "sold" has a part "sold (year)". So the part of a column of numbers that is itself called
        "sold (year)" is "sold (year) (column)": no two columns have parts of the same name.
        """
        return f"{self.name} (column)" if self.name.endswith(_PART_ENDINGS) else self.name

    def _name_date_part(self, part: str) -> str:
        return f"{self.name} ({part})"

    @property
    def level_part(self) -> str:
        """The name of the column of codes into ``levels``."""
        return f"{self.name} (level)"

    def to_numbers(self, cells: pd.Series) -> dict[str, np.ndarray]:
        """Return the cells as {part: array}: float32 with NaN for missing; for categories int32 codes with −1.

        Texts stay texts, without missing ones.
        """
        if self.kind == "text":
            return {self.value_part: as_texts(cells).fill_null("").to_numpy(zero_copy_only=False)}
        if self.kind == "category":
            found = {self.value_part: self.to_codes(cells)}
            if self.levels:
                found[self.level_part] = _look_up_codes(cells, self._code_of_level, len(self.levels))
            return found
        if self.kind == "date":
            dates = read_dates(cells, self.date_format).to_numpy()
            return {self._name_date_part(part): _read_date_part(dates, part) for part in self.date_parts}
        with np.errstate(over="ignore"):
            return {self.value_part: self._read_numbers(cells).astype(np.float32)}

    def _read_numbers(self, cells: pd.Series) -> np.ndarray:
        if self.kind != "number" or not _is_textual(cells) or self.number_format == PLAIN:
            return as_numbers(cells)
        if self.number_format is not None:
            return _without_huge(read_formatted(cells, self.number_format))
        return as_numbers(cells)

    def to_codes(self, cells: pd.Series) -> np.ndarray:
        """Return the index of each cell's category; for unknown ones −1, or the index after the last if ``others``."""
        return _look_up_codes(cells, self._code_of_category, len(self.categories) if self.others else -1)

    @cached_property
    def _code_of_category(self) -> dict[str, int]:
        return {text: code for code, text in enumerate(self.categories)}

    @cached_property
    def _code_of_level(self) -> dict[str, int]:
        return {text: code for code, text in enumerate(self.levels)}

    def count_unusable(self, numbers: np.ndarray) -> int:
        """Return how many cells became no value: missing ones, new categories, and texts written in another way.

        ``numbers``: the first array of ``to_numbers``, not of a text.
        """
        return int((numbers < 0).sum() if self.kind == "category" else np.isnan(numbers).sum())

    def to_level(self, cells: pd.Series) -> np.ndarray:
        """Return one number per cell to measure drift by (of dates the day, of texts the words), NaN for missing."""
        if self.kind == "text":
            words = pc.count_substring_regex(as_texts(cells), r"\S+")
            return np.asarray(words.cast(pa.float64()).to_numpy(zero_copy_only=False))
        found = next(iter(self.to_numbers(cells).values()))
        return found.astype(np.float64)

    def count_bins(self, level: np.ndarray) -> np.ndarray:
        """Return how many numbers from ``to_level`` are in each bin or category."""
        level = level[np.isfinite(level)]
        if self.kind == "category":
            bins = level[level >= 0].astype(np.int64)
        else:
            bins = np.searchsorted(self.edges, level, side="right")
        return np.bincount(bins, minlength=len(self.shares))


def read_columns(
    columns: Iterable[Column], frame: pd.DataFrame, count: Callable[[Column, pd.Series, np.ndarray], None] | None = None
) -> dict[str, np.ndarray]:
    """Return the parts of all columns of a table: numbers, codes of categories, texts.

    ``count``: called with each column, its cells and the first of its parts.
    """
    found: dict[str, np.ndarray] = {}
    for column in columns:
        cells = frame[column.name]
        try:
            numbers = column.to_numbers(cells)
            if count is not None:
                count(column, cells, next(iter(numbers.values())))
        except UNREADABLE as error:
            where = f"column {one_line(column.name, 60)!r}, in training of kind {column.kind!r}"
            what = f"{type(error).__name__}: {one_line(error, 120)}"
            raise ValueError(f"{where}: got cells that cannot be read ({what}); correct them") from error
        found |= numbers
    return found


def describe_column(name: str, cells: pd.Series, date_format: str | None = None, drop_ids: bool = True) -> Column | str:
    """Return the description of a column, or the reason why it cannot be used as a feature.

    ``date_format``: that of dates which could be read in more than one way. ``drop_ids``: whether numbers that are
    different in every row count as ids.
    """
    try:
        return _describe_column(name, cells, date_format, drop_ids)
    except UNREADABLE as error:
        return f"cannot be read ({type(error).__name__}: {error})"


def _describe_column(name: str, cells: pd.Series, date_format: str | None, drop_ids: bool) -> Column | str:
    blank = _find_kind(cells, date_format)
    if isinstance(blank, str):
        return blank
    missing = float(cells.isna().mean())
    if missing == 1:
        return "all missing"
    if blank["kind"] == "category":
        return _describe_category(name, cells, missing)
    column = Column(name, missing=missing, shares=(), **blank)
    if drop_ids and column.kind == "number" and identifies_rows(name, column._read_numbers(cells)):
        return "looks like an id: every row has a different whole number"
    level = column.to_level(cells)
    known = level[np.isfinite(level)]
    if not len(known):
        return "all missing"
    if (known == known[0]).all() and len(known) == len(level):
        return f"constant: always {cells.dropna().iloc[0]}"
    unreadable = 1 - len(known) / int(cells.notna().sum())
    return _describe_numbers(replace(column, unreadable=unreadable), level)


def _describe_numbers(column: Column, level: np.ndarray) -> Column:
    """Return a column with the distribution of its level."""
    known = level[np.isfinite(level)]
    edges = tuple(np.unique(np.quantile(known, np.linspace(0, 1, _MOST_BINS + 1)[1:-1])).tolist())
    shares = (0.0,) * (len(edges) + 1)
    column = replace(column, shares=shares, edges=edges, mean=float(known.mean()), sd=float(known.std()))
    return _with_shares(column, level)


def as_numbers(cells: pd.Series) -> np.ndarray:
    """Return cells as float64: booleans as 0 and 1; NaN for infinite cells and those that are not numbers."""
    cells = _without_categories(cells)
    if pd.api.types.is_numeric_dtype(cells.dtype):
        found = cells.to_numpy(np.float64, na_value=np.nan)
    else:
        try:
            found = pa.array(cells, from_pandas=True).cast(pa.float64()).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):  # some cell is not a number
            booleans = cells.map(_BOOLEANS).astype(np.float64)
            found = pd.to_numeric(cells, errors="coerce").astype(np.float64).fillna(booleans).to_numpy()
    return _without_huge(found)


def _without_huge(values: np.ndarray) -> np.ndarray:
    return np.where(np.abs(values) <= np.finfo(np.float32).max, values, np.nan)


def as_texts(cells: pd.Series) -> pa.Array:
    """Return cells as an arrow array of texts: whole numbers without a decimal point, so that 1.0 and "1" are equal."""
    cells = _without_categories(cells)
    if pd.api.types.is_numeric_dtype(cells.dtype) and not pd.api.types.is_bool_dtype(cells.dtype):
        known = cells.dropna()
        values = known.to_numpy(np.float64)
        texts = known.astype(np.int64).astype(str) if are_whole(values) else known.astype(str)
        cells = texts.reindex(cells.index)
    return as_arrow(cells)


def _look_up_codes(cells: pd.Series, codes: Mapping[str, int], code_of_others: int) -> np.ndarray:
    """Return the code of each cell's text, int32; −1 for missing ones."""
    if isinstance(cells.dtype, pd.CategoricalDtype):
        places = cells.cat.codes.to_numpy()
        different = as_texts(pd.Series(cells.cat.categories)).to_pylist()
    else:
        encoded = as_texts(cells).dictionary_encode()
        places = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        different = encoded.dictionary.to_pylist()
    code_of_place = [codes.get(text, code_of_others) for text in different]
    return np.asarray(np.array([*code_of_place, -1], np.int32)[places])


def _without_categories(cells: pd.Series) -> pd.Series:
    return cells.astype(cells.cat.categories.dtype) if isinstance(cells.dtype, pd.CategoricalDtype) else cells


def _find_kind(cells: pd.Series, date_format: str | None) -> dict[str, Any] | str:
    """Return the kind of a column and how its texts are read, or the reason why it cannot be used."""
    if pd.api.types.is_bool_dtype(cells.dtype):
        return {"kind": "boolean"}
    if pd.api.types.is_numeric_dtype(cells.dtype):
        return {"kind": "number", "number_format": PLAIN}
    if pd.api.types.is_datetime64_any_dtype(cells.dtype):
        return _of_dates(cells, ISO)
    if isinstance(cells.dtype, pd.CategoricalDtype):
        return {"kind": "category"}
    known = cells.dropna()
    if isinstance(cells.dtype, pd.StringDtype):
        return _find_kind_of_texts(known, date_format)
    kinds = set(known.map(type))
    if kinds <= {bool}:
        return {"kind": "boolean"}
    if kinds <= {bool, int, float, str}:
        return _find_kind_of_texts(known.map(str), date_format)
    if all(hasattr(kind, "isoformat") and hasattr(kind, "year") for kind in kinds):
        return _of_dates(known, ISO)
    return "holds lists or objects"


def _find_kind_of_texts(known: pd.Series, date_format: str | None) -> dict[str, Any] | str:
    if not len(known):
        return {"kind": "category"}
    if known.str.lower().isin(["true", "false"]).all():
        return {"kind": "boolean"}
    if numbers := find_number_formats(known, SHARE_OF_ONE_KIND):
        return {"kind": "number", "number_format": numbers[0]}
    dates = find_date_formats(known, SHARE_OF_ONE_KIND, date_format)
    if len(dates) > 1:
        return f"holds dates that could be {' or '.join(dates)}; say which with date_format={dates[0]!r}"
    return _of_dates(known, dates[0]) if dates else {"kind": "category"}


def _of_dates(known: pd.Series, how: str) -> dict[str, Any]:
    clock = ("hour",) if has_clock(read_dates(known, how)) else ()
    return {"kind": "date", "date_format": how, "date_parts": ("days", "year", "month", "weekday", *clock)}


def _describe_category(name: str, cells: pd.Series, missing: float) -> Column | str:
    counts = pd.Series(as_texts(cells).to_numpy(zero_copy_only=False)).value_counts()
    known = int(counts.sum())
    if len(counts) == 1 and known == len(cells):
        return f"constant: always {counts.index[0]}"
    if known >= 20 and len(counts) > 0.5 * known:
        if numbers := describe_numbers_in_texts(pd.Series(counts.index), SHARE_OF_ONE_KIND):
            return f"holds {numbers}; write plain numbers of one unit to use it"
        if pd.Series(counts.index[:100]).str.contains(" ").mean() > 0.5:
            return _describe_text(name, cells, missing)
        return f"looks like an id: {len(counts)} different texts in {known} rows"
    if len(counts) > MOST_CATEGORIES and pd.Series(counts.index).str.count(r"\S+").mean() >= SENTENCE:
        return _describe_text(name, cells, missing)
    # Ties in alphabetical order, so that the order of rows does not matter.
    order = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    categories = tuple(str(text) for text, _ in order[:MOST_CATEGORIES])
    others = len(order) > MOST_CATEGORIES
    levels = tuple(str(text) for text, _ in order[:MOST_LEVELS]) if len(order) > MOST_LEVELS_WITHOUT_TARGET else ()
    shares = (0.0,) * (len(categories) + others)
    blank = Column(name, "category", missing, shares, categories=categories, others=others, levels=levels)
    return _with_shares(blank, blank.to_level(cells))


def _describe_text(name: str, cells: pd.Series, missing: float) -> Column:
    column = Column(name, "text", missing, ())
    return _describe_numbers(column, column.to_level(cells))


def _with_shares(column: Column, level: np.ndarray) -> Column:
    counts = column.count_bins(level)
    return replace(column, shares=tuple((counts / max(1, counts.sum())).tolist()))


def _is_textual(cells: pd.Series) -> bool:
    return isinstance(cells.dtype, pd.StringDtype) or cells.dtype == object


def _read_date_part(dates: np.ndarray, part: str) -> np.ndarray:
    """Return one of the numbers that dates can become, as float32 with NaN for missing ones."""
    ticks = dates.astype(np.int64)  # since 1970, in the unit of the dates
    ticks_a_day = 86_400 * _TICKS_A_SECOND[np.datetime_data(dates.dtype)[0]]
    day = ticks // ticks_a_day
    of_the_day = ticks % ticks_a_day
    found: np.ndarray
    if part == "days":
        found = day - _FIRST_DAY + of_the_day / ticks_a_day
    elif part == "weekday":
        found = (day + _FIRST_WEEKDAY) % 7
    elif part == "hour":
        found = of_the_day * 24 // ticks_a_day
    else:
        years = day.astype("M8[D]").astype("M8[Y]")
        months = day.astype("M8[D]").astype("M8[M]") - years.astype("M8[M]")
        found = years.astype(np.int64) + _FIRST_YEAR if part == "year" else months.astype(np.int64) + 1
    return np.where(np.isnat(dates), np.float32(np.nan), found.astype(np.float32))
