"""Splits of rows in tests, with five folds."""

from __future__ import annotations

from typing import Any

from metricgrad.comparison import splits
from metricgrad.comparison.splits import RowsToSplit, Split


def make_splits(y: Any, task: Any, repeats: int, seed: int, group: Any = None, time: Any = None) -> list[Split]:
    """Return repeats of training and test rows."""
    rows = RowsToSplit(y, task, group, time)
    return splits.split_repeatedly(rows, repeats, 5, seed, [seed + i for i in range(repeats)])


def split_all_rows(y: Any, task: Any, seed: int, group: Any = None, time: Any = None) -> Split:
    """Return a split without test rows."""
    return splits.split_all_rows(RowsToSplit(y, task, group, time), 5, seed)
