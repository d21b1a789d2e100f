"""The column of ``--time``: dates of one format, or numbers; a wrong order is hard to notice, so none is guessed."""

from __future__ import annotations

import numpy as np
import pandas as pd

from metricgrad.comparison.errors import DATA, UserError
from metricgrad.comparison.tables.rows import name_rows
from metricgrad.estimators.columns.dates import ISO, find_date_formats, read_dates
from metricgrad.estimators.columns.numbers import PLAIN, UNREADABLE, find_number_formats, read_formatted
from metricgrad.messages import one_line

FEWEST_TIMES = 3
"""The fewest different times: one each for training, held-out and test rows."""


def read_times(cells: pd.Series, date_format: str | None) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Return the cells as numbers in order of time, and a line of the profile that says how they were read."""
    name = one_line(cells.name, 60)
    if cells.isna().any():
        where = name_rows(cells.index[cells.isna()])
        raise UserError(
            f"--time {name}: expected a value in every row, got none in {where}; fill them in, or leave these rows out",
            DATA,
        )
    try:
        return _read_times(name, cells, date_format)
    except UNREADABLE as error:
        raise UserError(
            f"--time {name}: expected dates or numbers, got cells that cannot be read as either "
            f"({type(error).__name__}: {one_line(error, 120)}); correct them",
            DATA,
        ) from error


def check_times(name: str, times: np.ndarray) -> None:
    """Raise unless there are enough different times to split by."""
    number = len(np.unique(times))
    if number < FEWEST_TIMES:
        raise UserError(
            f"--time {one_line(name, 60)}: expected at least {FEWEST_TIMES} different times, to train, tune and test "
            f"on, got {number}; choose another column",
            DATA,
        )


def _read_times(name: str, cells: pd.Series, date_format: str | None) -> tuple[np.ndarray, list[tuple[str, str]]]:
    if isinstance(cells.dtype, pd.CategoricalDtype):
        cells = cells.astype(cells.cat.categories.dtype)
    how: str | None = ISO
    if pd.api.types.is_numeric_dtype(cells.dtype):
        # Numbers are dates only in a format such as %Y%m%d, if that was given.
        how = date_format if date_format is not None and read_dates(cells, date_format).notna().all() else None
    elif cells.map(type).eq(str).any():
        cells = cells.map(str)
        how = _find_time_format(name, cells, date_format)
    if how is None:
        return _describe_numbers(name, cells)
    dates = read_dates(cells, how)
    if dates.isna().any():
        odd = one_line(cells[dates.isna()].iloc[0], 30)
        raise UserError(
            f"--time {name}: expected dates or numbers, got {odd!r} in {name_rows(cells.index[dates.isna()])}", DATA
        )
    seconds = (dates - pd.Timestamp(1970, 1, 1)) / pd.Timedelta(seconds=1)
    text = f"read as {how}, from {dates.min():%Y-%m-%d} to {dates.max():%Y-%m-%d}"
    return seconds.to_numpy(np.float64), [(f"column {name!r}", text)]


def _describe_numbers(name: str, cells: pd.Series) -> tuple[np.ndarray, list[tuple[str, str]]]:
    how = PLAIN
    if pd.api.types.is_numeric_dtype(cells.dtype):
        times = cells.to_numpy(np.float64)
    else:
        how = find_number_formats(cells, 1.0)[0]
        times = read_formatted(cells, how)
    if not np.isfinite(times).all():
        where = name_rows(cells.index[~np.isfinite(times)])
        raise UserError(f"--time {name}: expected dates or numbers, got infinite ones in {where}", DATA)
    text = f"read as numbers{'' if how == PLAIN else f' like {how}'}, from {times.min():.15g} to {times.max():.15g}"
    return times, [(f"column {name!r}", text)]


def _find_time_format(name: str, texts: pd.Series, date_format: str | None) -> str | None:
    """Return the format in which all texts are dates, None if all are numbers, or raise."""
    formats = find_date_formats(texts, 1.0, date_format)
    if len(formats) == 1:
        return formats[0]
    if formats:
        raise UserError(
            f"--time {name}: its dates, such as {one_line(texts.iloc[0], 30)!r}, could be {' or '.join(formats)}; say "
            f"which with --date-format {formats[0]}",
            DATA,
        )
    if find_number_formats(texts, 1.0):
        return None
    nearly = find_date_formats(texts, 0.5, date_format)
    odd = texts[read_dates(texts, nearly[0]).isna()] if nearly else texts
    what = f"all like {nearly[0]}" if nearly else "of one format"
    raise UserError(
        f"--time {name}: expected dates {what}, or numbers, got {one_line(odd.iloc[0], 30)!r}"
        f"{f' and {len(odd) - 1} others' if len(odd) > 1 else ''} in {name_rows(odd.index)}; correct "
        "them, or name the format with --date-format",
        DATA,
    )
