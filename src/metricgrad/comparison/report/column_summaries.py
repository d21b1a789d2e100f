"""The cells of a column in a few groups or bars, with names that people read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from metricgrad.estimators.columns.column import as_texts
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.estimators.columns.column import Column

GROUPED_KINDS = ("number", "boolean", "category", "date")
"""Columns whose cells can be grouped."""
MOST_LETTERS = 60
"""The most letters of the name of a group."""
MISSING = "missing"
"""The name of the group of cells that are missing."""
OTHERS = "other values"
"""The name of the group of rare categories."""


def describe_cells(frame: pd.DataFrame, row: int, most: int) -> list[tuple[str, str]]:
    """Return the names and the cells of the first columns of a row, as short texts."""
    names = frame.columns[:most]
    return [(one_line(name, MOST_LETTERS), _describe_cell(frame[name].iloc[row])) for name in names]


def _describe_cell(cell: object) -> str:
    """Return a cell as a short text.

    >>> _describe_cell(72824.0), _describe_cell(-1.11149523246612), _describe_cell(float("nan")), _describe_cell("a b")
    ('72824', '-1.1115', 'missing', 'a b')
    """
    if pd.isna(cell):
        return MISSING
    if isinstance(cell, float) and cell.is_integer():
        return f"{cell:.0f}"
    return f"{cell:.5g}" if isinstance(cell, float) else one_line(cell, MOST_LETTERS)


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of a column: their names, and the group of each cell as its place among them."""

    names: list[str]
    codes: np.ndarray


def group_cells(column: Column, cells: pd.Series, most: int) -> Groups:
    """Return the cells in at most ``most`` groups, and one of those that are missing, if there are any.

    Categories are groups, the rarest of many together. Numbers and dates are groups if there are few different ones;
    otherwise groups of about the same size, in their order.
    """
    groups = _group_categories(cells, most) if column.kind == "category" else _group_numbers(column, cells, most)
    is_missing = groups.codes < 0
    if not is_missing.any():
        return groups
    codes = np.where(is_missing, len(groups.names), groups.codes)
    return Groups([*groups.names, MISSING], codes)


def _group_categories(cells: pd.Series, most: int) -> Groups:
    """Return a group for each category, the rarest together if there are more than ``most``; missing cells have −1."""
    texts = _to_texts(cells)
    frequent = _sort_by_frequency(texts)
    kept = frequent if len(frequent) <= most else frequent[: most - 1]
    names = [one_line(text, MOST_LETTERS) for text in kept]
    if len(kept) < len(frequent):
        names.append(OTHERS)
    place_of = {text: i for i, text in enumerate(kept)}
    places = texts.map(place_of).fillna(len(kept))
    codes = np.where(texts.isna(), -1, places).astype(np.int64)
    return Groups(names, codes)


def _to_texts(cells: pd.Series) -> pd.Series:
    return pd.Series(as_texts(cells).to_numpy(zero_copy_only=False))


def _sort_by_frequency(texts: pd.Series) -> list[str]:
    """Return the different texts, the most frequent one first."""
    counts = texts.value_counts()
    # Ties in alphabetical order, so that the order of rows does not matter.
    pairs = sorted(counts.items(), key=lambda pair: (-pair[1], str(pair[0])))
    return [str(text) for text, _ in pairs]


def _group_numbers(column: Column, cells: pd.Series, most: int) -> Groups:
    """Return groups of neighbouring numbers or dates; missing cells have −1."""
    level = column.to_level(cells)
    known = np.isfinite(level)
    values, first, counts = np.unique(level[known], return_index=True, return_counts=True)
    starts = np.arange(len(values)) if len(values) <= most else _divide_into_groups(counts, most)
    codes = np.full(len(level), -1)
    codes[known] = np.searchsorted(values[starts], level[known], side="right") - 1
    ends = [*(starts[1:] - 1), len(values) - 1]
    names_of_values = _name_levels(column, values, cells[known].iloc[first])
    names = []
    for start, end in zip(starts, ends, strict=True):
        name = names_of_values[start]
        if end > start:
            name += f" to {names_of_values[end]}"
        names.append(name)
    return Groups(names, codes)


def _divide_into_groups(counts: np.ndarray, most: int) -> np.ndarray:
    """Return where groups of about the same size begin among ordered values; a frequent value is a group of its own."""
    average_size = counts.sum() / most
    frequent = np.flatnonzero(counts >= average_size)
    counts_of_others = counts.copy()
    counts_of_others[frequent] = 0
    cells_so_far = counts_of_others.cumsum()
    # A frequent value is one group, and divides its neighbours into two: that takes two groups of ``most``.
    number = max(1, most - 2 * len(frequent))
    wanted_sizes = cells_so_far[-1] * np.arange(1, number) / number
    inner = np.searchsorted(cells_so_far, wanted_sizes) + 1
    starts = np.unique([0, *frequent, *(frequent + 1), *inner])
    starts = starts[starts < len(counts)]
    while len(starts) > most:  # the smallest group joins the one before it
        sizes = np.add.reduceat(counts, starts)
        smallest = 1 + np.argmin(sizes[1:])
        starts = np.delete(starts, smallest)
    return starts


def _name_levels(column: Column, values: np.ndarray, cells: pd.Series) -> list[str]:
    """Return a name for each of some values: the number, or the cell as it was read."""
    if column.kind == "number":
        return [format_number(value) for value in values]
    return [one_line(cell, MOST_LETTERS) for cell in cells]


def format_number(value: float) -> str:
    """Return a number with about four digits, whole ones in full.

    >>> format_number(-0.123456), format_number(2000.0), format_number(1234567.8)
    ('−0.1235', '2000', '1,234,568')
    """
    is_large = 1e4 <= abs(value) < 1e12
    text = f"{value:,.0f}" if is_large else f"{value:.4g}"
    return text.replace("-", "−")


def choose_examples(column: Column, cells: pd.Series, most: int) -> tuple[np.ndarray, list[str], list[float]]:
    """Return examples of a column's cells: their positions, names, and numbers (none for categories).

    These are the most frequent categories; of numbers and dates, quantiles of the cells or, if most cells are equal, of
    the distinct values.
    """
    if column.kind == "category":
        texts = _to_texts(cells)
        first = texts.drop_duplicates()
        positions = pd.Series(first.index, index=first.to_numpy())
        kept = _sort_by_frequency(texts)[:most]
        return positions.loc[kept].to_numpy(), [one_line(text, MOST_LETTERS) for text in kept], []
    level = column.to_level(cells)
    known = np.isfinite(level)
    missing_last = np.argsort(np.where(known, level, np.inf), kind="stable")
    order = missing_last[: known.sum()]
    ascending = level[order]
    values, first = np.unique(ascending, return_index=True)
    if len(values) > most:
        shares = np.linspace(0.01, 0.99, most)
        quantiles = ascending[_round_to_places(shares, len(ascending))]
        places = np.unique(np.searchsorted(values, quantiles))
        if len(places) < most / 2:  # most cells are equal
            places = np.unique(_round_to_places(shares, len(values)))
        first = first[places]
    chosen = order[first]
    numbers = level[chosen].tolist() if column.kind == "number" else []
    return chosen, _name_levels(column, level[chosen], cells.iloc[chosen]), numbers


def _round_to_places(shares: np.ndarray, length: int) -> np.ndarray:
    """Return indices into a sorted list of this length, from shares of the way through it."""
    return np.round(shares * (length - 1)).astype(int)


MOST_BARS = 20
"""The most bars of a histogram."""


def draw_bars(column: Column, cells: pd.Series, most: int = MOST_BARS) -> tuple[list[str], list[float]]:
    """Return the bars of a histogram: their names, and the share of the known cells in each.

    Numbers and dates of many different values are in bars of the same width; the half per cent at either end counts in
    the first and the last one.
    """
    level = column.to_level(cells) if column.kind != "category" else np.zeros(0)
    level = level[np.isfinite(level)]
    if column.kind != "number" or len(np.unique(level)) <= most:
        groups = group_cells(column, cells, most)
        counts = np.bincount(groups.codes, minlength=len(groups.names))
        kept = [i for i, name in enumerate(groups.names) if name != MISSING or i < len(groups.names) - 1]
        return [groups.names[i] for i in kept], _to_shares(counts[kept])
    low, high = np.quantile(level, [0.005, 0.995])
    if low == high:  # nearly all are the same
        low = level.min()
        high = level.max()
    edges = np.linspace(low, high, most + 1)
    counts, _ = np.histogram(np.clip(level, low, high), edges)
    names = [format_number(value) for value in edges]
    return [f"{names[i]} to {names[i + 1]}" for i in range(most)], _to_shares(counts)


def _to_shares(counts: Sequence[int] | np.ndarray) -> list[float]:
    found: list[float] = (np.asarray(counts) / max(1, np.sum(counts))).tolist()
    return found
