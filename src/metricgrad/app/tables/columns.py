"""Feature columns: the kind of each, how its cells become numbers, and its distribution in training."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from metricgrad.storage.records import Length, Pattern, Range

if TYPE_CHECKING:
    from collections.abc import Callable

CATEGORIES = 255
"""The most categories of a column that are distinguished, the most frequent ones."""
LEVELS = 50
"""A column with more categories is also encoded by the target."""
MOST_LEVELS = 100_000
"""The most categories of a column that are encoded by the target, the most frequent ones."""
ALIKE = 0.95
"""The share of cells that must be numbers (or dates) for a column of texts to count as such."""

SENTENCE = 5
"""The mean number of words from which on a column of many different texts is free text, even if they recur."""

_BINS = 10
_ID_NAME = re.compile(r"(^|[\W_])(id|ids|uuid|guid|key|index|rowid|row|no|nr)$", re.IGNORECASE)
_CAMEL_ID = re.compile(r"[a-z](Id|ID)$")
_DATE = r"^\d{4}-\d{2}-\d{2}"
_BOOLEANS = {
    word: value for value in (True, False) for word in (value, f"{value}", f"{value}".lower(), f"{value}".upper())
}
_EPOCH = pd.Timestamp("2000-01-01")


@dataclass(frozen=True)
class Column:
    """A feature column: its name, kind, categories, and its distribution, against which drift is measured.

    ``kind``: "number", "boolean", "category", "date" or "text". ``categories``: the texts of a category column, most
    frequent first; ``others``: whether there were more, which then count as one. ``levels``: if there are many, all of
    them, which are also encoded by the target. ``missing``: the share of missing cells. ``mean``, ``sd``: mean and
    standard deviation of numbers. ``edges``, ``shares``: the edges between ten bins of numbers, and the share of cells
    in every bin; for categories the share of each. The numbers of a text column are those of words.
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

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the columns that it becomes."""
        if self.kind == "date":
            return tuple(f"{self.name} ({part})" for part in _OF_DATE)
        return (self.name, self.level_part) if self.levels else (self.name,)

    @property
    def level_part(self) -> str:
        """The name of the column of codes into ``levels``."""
        return f"{self.name} (level)"

    def to_numbers(self, cells: pd.Series) -> dict[str, np.ndarray]:
        """Return the cells as {part: array}: float32 with NaN for missing; for categories int32 codes with −1.

        Texts stay texts, without missing ones.
        """
        if self.kind == "text":
            return {self.name: as_texts(cells).fill_null("").to_numpy(zero_copy_only=False)}
        if self.kind == "category":
            found = {self.name: self.to_codes(cells)}
            if self.levels:
                all_of_them = replace(self, categories=self.levels, others=True, levels=())
                found[self.level_part] = all_of_them.to_codes(cells)
            return found
        if self.kind == "date":
            found = _parse_dates(cells)
            return {f"{self.name} ({part})": make(found) for part, make in _OF_DATE.items()}
        with np.errstate(over="ignore"):
            return {self.name: as_numbers(cells).astype(np.float32)}

    def to_codes(self, cells: pd.Series) -> np.ndarray:
        """Return the index of each cell's category; for unknown ones −1, or the index after the last if ``others``."""
        if isinstance(cells.dtype, pd.CategoricalDtype):
            of_each = self.to_codes(pd.Series(cells.cat.categories))
            return np.asarray(np.append(of_each, np.int32(-1))[cells.cat.codes])
        texts = as_texts(cells)
        found = pc.index_in(texts, pa.array(self.categories, texts.type))
        if self.others:
            rest = pc.if_else(texts.is_valid(), pa.scalar(len(self.categories), pa.int32()), pa.scalar(-1, pa.int32()))
            found = pc.coalesce(found, rest)
        return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False))

    def count_unknown(self, cells: pd.Series, numbers: np.ndarray) -> int:
        """Return the number of cells that the model cannot use: new categories, or texts in a column of numbers."""
        if self.kind == "text" or (self.kind != "category" and not _is_textual(cells)):
            return 0
        unusable = numbers < 0 if self.kind == "category" else np.isnan(numbers)
        return int(unusable.sum()) - int(cells.isna().sum())

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


def describe_column(name: str, cells: pd.Series) -> Column | str:
    """Return the description of a column, or the reason why it cannot be used as a feature."""
    kind = _find_kind(cells)
    if kind is None:
        return "holds lists or objects"
    missing = float(cells.isna().mean())
    if missing == 1:
        return "all missing"
    if kind == "category":
        return _describe_category(name, cells, missing)
    if kind == "number" and _is_id(name, cells):
        return "looks like an id: every row has a different number"
    level = Column(name, kind, missing, ()).to_level(cells)
    known = level[np.isfinite(level)]
    if not len(known):
        return "all missing"
    if (known == known[0]).all() and len(known) == len(level):
        return f"constant: always {cells.dropna().iloc[0]}"
    return _describe_numbers(name, kind, missing, level)


def _describe_numbers(name: str, kind: str, missing: float, level: np.ndarray) -> Column:
    known = level[np.isfinite(level)]
    edges = np.unique(np.quantile(known, np.linspace(0, 1, _BINS + 1)[1:-1]))
    column = Column(
        name, kind, missing, (0.0,) * (len(edges) + 1), tuple(edges.tolist()), float(known.mean()), float(known.std())
    )
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
    return np.where(np.abs(found) <= np.finfo(np.float32).max, found, np.nan)


def as_texts(cells: pd.Series) -> pa.Array:
    """Return cells as an arrow array of texts: whole numbers without a decimal point, so that 1.0 and "1" are equal."""
    cells = _without_categories(cells)
    if pd.api.types.is_numeric_dtype(cells.dtype) and not pd.api.types.is_bool_dtype(cells.dtype):
        known = cells.dropna()
        values = known.to_numpy(np.float64)
        texts = known.astype(np.int64).astype(str) if _are_whole(values) else known.astype(str)
        cells = texts.reindex(cells.index)
    elif not isinstance(cells.dtype, pd.StringDtype):
        cells = cells.map(str, na_action="ignore")
    found = pa.array(cells, from_pandas=True)
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return found.cast(pa.large_string())


def _without_categories(cells: pd.Series) -> pd.Series:
    return cells.astype(cells.cat.categories.dtype) if isinstance(cells.dtype, pd.CategoricalDtype) else cells


def _are_whole(values: np.ndarray) -> bool:
    return bool((np.abs(values) < 2**53).all() and (values % 1 == 0).all())


def _find_kind(cells: pd.Series) -> str | None:
    if pd.api.types.is_bool_dtype(cells.dtype):
        return "boolean"
    if pd.api.types.is_numeric_dtype(cells.dtype):
        return "number"
    if pd.api.types.is_datetime64_any_dtype(cells.dtype):
        return "date"
    if isinstance(cells.dtype, pd.CategoricalDtype):
        return "category"
    known = cells.dropna()
    if isinstance(cells.dtype, pd.StringDtype):
        return _find_kind_of_texts(known)
    kinds = set(known.map(type))
    if kinds <= {bool}:
        return "boolean"
    if kinds <= {bool, int, float, str}:
        return _find_kind_of_texts(known.map(str))
    return "date" if all(hasattr(kind, "isoformat") and hasattr(kind, "year") for kind in kinds) else None


def _find_kind_of_texts(known: pd.Series) -> str:
    if not len(known):
        return "category"
    if known.str.lower().isin(["true", "false"]).all():
        return "boolean"
    if pd.to_numeric(known, errors="coerce").notna().mean() >= ALIKE:
        return "number"
    if known.head(1000).str.match(_DATE).mean() >= ALIKE and _parse_dates(known).notna().mean() >= ALIKE:
        return "date"
    return "category"


def _describe_category(name: str, cells: pd.Series, missing: float) -> Column | str:
    counts = pd.Series(as_texts(cells).to_numpy(zero_copy_only=False)).value_counts()
    known = int(counts.sum())
    if len(counts) == 1 and known == len(cells):
        return f"constant: always {counts.index[0]}"
    if known >= 20 and len(counts) > 0.5 * known:
        if pd.Series(counts.index[:100]).str.contains(" ").mean() > 0.5:
            return _describe_text(name, cells, missing)
        return f"looks like an id: {len(counts)} different texts in {known} rows"
    if len(counts) > CATEGORIES and pd.Series(counts.index).str.count(r"\S+").mean() >= SENTENCE:
        return _describe_text(name, cells, missing)
    # Ties in alphabetical order, so that the order of rows does not matter.
    order = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    categories = tuple(str(text) for text, _ in order[:CATEGORIES])
    others = len(order) > CATEGORIES
    levels = tuple(str(text) for text, _ in order[:MOST_LEVELS]) if len(order) > LEVELS else ()
    shares = (0.0,) * (len(categories) + others)
    blank = Column(name, "category", missing, shares, categories=categories, others=others, levels=levels)
    return _with_shares(blank, blank.to_level(cells))


def _describe_text(name: str, cells: pd.Series, missing: float) -> Column:
    return _describe_numbers(name, "text", missing, Column(name, "text", missing, ()).to_level(cells))


def _with_shares(column: Column, level: np.ndarray) -> Column:
    counts = column.count_bins(level)
    return Column(**vars(column) | {"shares": tuple((counts / max(1, counts.sum())).tolist())})


def _is_id(name: str, cells: pd.Series) -> bool:
    """Return whether a column of numbers identifies rows: whole, all different, and named like an id or consecutive."""
    values = as_numbers(cells)
    if len(values) < 20 or np.isnan(values).any() or not _are_whole(values) or not cells.is_unique:
        return False
    return bool(_ID_NAME.search(name) or _CAMEL_ID.search(name)) or bool(np.ptp(values) == len(values) - 1)


def _parse_dates(cells: pd.Series) -> pd.Series:
    found = pd.to_datetime(cells, format=None if not _is_textual(cells) else "ISO8601", errors="coerce", utc=True)
    return found.dt.tz_localize(None)


def _is_textual(cells: pd.Series) -> bool:
    return isinstance(cells.dtype, pd.StringDtype) or cells.dtype == object


def _count_days(dates: pd.Series) -> np.ndarray:
    return np.asarray((dates - _EPOCH) / pd.Timedelta(days=1), dtype=np.float32)


# The numbers that a date becomes.
_OF_DATE: dict[str, Callable[[pd.Series], np.ndarray]] = {
    "days": _count_days,
    "weekday": lambda dates: dates.dt.day_of_week.to_numpy(np.float32, na_value=np.nan),
    "hour": lambda dates: dates.dt.hour.to_numpy(np.float32, na_value=np.nan),
}
