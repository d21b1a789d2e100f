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
MISSING, OTHERS = "missing", "other values"
"""The names of the groups of cells that are missing, and of rare categories."""


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
    if column.kind == "category":
        texts = pd.Series(as_texts(cells).to_numpy(zero_copy_only=False))
        frequent = _sort_by_frequency(texts)
        kept = frequent if len(frequent) <= most else frequent[: most - 1]
        places = texts.map({text: i for i, text in enumerate(kept)}).fillna(len(kept))
        codes, names = (
            np.where(texts.isna(), -1, places).astype(np.int64),
            [one_line(text, MOST_LETTERS) for text in kept],
        )
        names += [OTHERS] if len(kept) < len(frequent) else []
    else:
        codes, names = _group_numbers(column, cells, most)
    if (codes < 0).any():
        codes, names = np.where(codes < 0, len(names), codes), [*names, MISSING]
    return Groups(names, codes)


def _sort_by_frequency(texts: pd.Series) -> list[str]:
    # Ties in alphabetical order, so that the order of rows does not matter.
    return [str(text) for text, _ in sorted(texts.value_counts().items(), key=lambda pair: (-pair[1], str(pair[0])))]


def _group_numbers(column: Column, cells: pd.Series, most: int) -> tuple[np.ndarray, list[str]]:
    level = column.to_level(cells)
    known = np.isfinite(level)
    values, first, counts = np.unique(level[known], return_index=True, return_counts=True)
    names = _name_levels(column, values, cells[known].iloc[first])
    codes = np.full(len(level), -1)
    starts = np.arange(len(values)) if len(values) <= most else _divide(counts, most)
    codes[known] = np.searchsorted(values[starts], level[known], side="right") - 1
    ends = [*(starts[1:] - 1), len(values) - 1]
    return codes, [
        names[start] if start == end else f"{names[start]} to {names[end]}"
        for start, end in zip(starts, ends, strict=True)
    ]


def _divide(counts: np.ndarray, most: int) -> np.ndarray:
    """Return where groups of about the same size begin among ordered values; a value of many cells is one of them."""
    frequent = np.flatnonzero(counts >= counts.sum() / most)
    others = np.where(np.isin(np.arange(len(counts)), frequent), 0, counts).cumsum()
    number = max(1, most - 2 * len(frequent))
    inner = np.searchsorted(others, others[-1] * np.arange(1, number) / number) + 1
    starts = np.unique([0, *frequent, *(frequent + 1), *inner])
    starts = starts[starts < len(counts)]
    while len(starts) > most:  # the smallest group joins the one before it
        starts = np.delete(starts, 1 + np.argmin(np.add.reduceat(counts, starts)[1:]))
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
    return (f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}").replace("-", "−")


def choose_examples(column: Column, cells: pd.Series, most: int) -> tuple[np.ndarray, list[str], list[float]]:
    """Return positions of cells that stand for the column: their positions, names, and numbers (none of categories).

    The most frequent categories; numbers and dates that divide the cells evenly, or, if most of these are the same, the
    different ones.
    """
    if column.kind == "category":
        texts = pd.Series(as_texts(cells).to_numpy(zero_copy_only=False))
        first = texts.drop_duplicates()
        positions = pd.Series(first.index, index=first.to_numpy())
        kept = _sort_by_frequency(texts)[:most]
        return positions.loc[kept].to_numpy(), [one_line(text, MOST_LETTERS) for text in kept], []
    level = column.to_level(cells)
    order = np.argsort(np.where(np.isfinite(level), level, np.inf), kind="stable")[: int(np.isfinite(level).sum())]
    values, first = np.unique(level[order], return_index=True)
    if len(first) > most:
        shares = np.linspace(0.01, 0.99, most)
        places = np.unique(np.searchsorted(values, level[order][np.round(shares * (len(order) - 1)).astype(int)]))
        if len(places) < most / 2:  # most cells are the same: divide the different ones
            places = np.unique(np.round(shares * (len(values) - 1)).astype(int))
        first = first[places]
    chosen = order[first]
    numbers = level[chosen].tolist() if column.kind == "number" else []
    return chosen, _name_levels(column, level[chosen], cells.iloc[chosen]), numbers


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
    edges = np.linspace(low, high, most + 1) if low < high else np.linspace(level.min(), level.max(), most + 1)
    counts = np.histogram(np.clip(level, edges[0], edges[-1]), edges)[0]
    names = [format_number(value) for value in edges]
    return [f"{names[i]} to {names[i + 1]}" for i in range(most)], _to_shares(counts)


def _to_shares(counts: Sequence[int] | np.ndarray) -> list[float]:
    found: list[float] = (np.asarray(counts) / max(1, np.sum(counts))).tolist()
    return found
