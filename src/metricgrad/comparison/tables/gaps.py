"""Gaps: the cells of new rows from which a model gets no value, and the columns in which there are far too many."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from metricgrad.comparison.errors import DATA, UserError
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from metricgrad.comparison.tables.schema import Schema
    from metricgrad.estimators.columns.column import Column

TOLERATED_SHARE = 0.05
"""The share of cells that may be empty or new categories in any column, whatever it was in training."""
LEAST_PROBABILITY = 1e-6
"""Gaps that are less probable than this do not come from the distribution of the training data."""

_MOST_COLUMNS_SHOWN = 5  # columns in a message


@dataclass(eq=False)
class Gaps:
    """Numbers of cells by column: ``missing`` are empty, ``unknown`` hold something that the model cannot use."""

    rows: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def count(self, column: Column, cells: pd.Series, numbers: np.ndarray) -> None:
        """Count the cells of a column; ``numbers``: what became of them."""
        missing = int(np.count_nonzero(pd.isna(cells.array)))
        unknown = 0 if column.kind == "text" else column.count_unusable(numbers) - missing
        if missing:
            self.missing[column.name] += missing
        if unknown:
            self.unknown[column.name] += unknown

    def __add__(self, other: Gaps) -> Gaps:
        return Gaps(self.rows + other.rows, self.missing + other.missing, self.unknown + other.unknown)

    def describe(self, schema: Schema) -> list[str]:
        """Return a warning for every column with unknown cells."""
        return [
            f"column {one_line(column.name, 60)!r}: {count} cells ({count / self.rows:.1%}) are unknown to the model "
            f"({_explain(column)}) and count as missing"
            for column in schema.columns
            if (count := self.unknown[column.name])
        ]

    def check(self, schema: Schema, where: str | Path, allow: bool) -> None:
        """Raise if a column is mostly unknown, unless the user allows it; ``where``: the name of the data."""
        wrong = [column for column in schema.columns if not allow and self._is_mostly_unknown(column)]
        if not wrong:
            return
        shown = ", ".join(self._describe_column(column) for column in wrong[:_MOST_COLUMNS_SHOWN])
        more = f" and {len(wrong) - _MOST_COLUMNS_SHOWN} more" if len(wrong) > _MOST_COLUMNS_SHOWN else ""
        raise UserError(
            f"{where}: expected columns as in training, got mostly unknown cells in {shown}{more}; write them as in "
            "training, or go on with --allow-missing, which counts them as missing",
            DATA,
        )

    def _is_mostly_unknown(self, column: Column) -> bool:
        """Return whether most filled cells cannot be read, or less than half of the cells that should be usable are.

        Neither counts if it may be chance: a single row may lack a value, and may hold a new category.
        """
        missing = self.missing[column.name]
        unknown = self.unknown[column.name]
        filled = self.rows - missing
        usable = self.rows - missing - unknown
        if column.kind != "category" and 2 * unknown > filled:
            unreadable = float(stats.binom.sf(unknown - 1, filled, column.unreadable))
            if unreadable < LEAST_PROBABILITY:
                return True
        expected = (1 - column.missing) * (1 - column.unreadable)
        if 2 * usable >= self.rows * expected:
            return False
        return float(stats.binom.cdf(usable, self.rows, min(expected, 1 - TOLERATED_SHARE))) < LEAST_PROBABILITY

    def _describe_column(self, column: Column) -> str:
        missing = self.missing[column.name]
        unknown = self.unknown[column.name]
        parts = [f"{unknown / self.rows:.1%} {_explain(column)}"] if unknown else []
        parts += [f"{missing / self.rows:.1%} empty, {column.missing:.1%} in training"] if missing else []
        return f"{one_line(column.name, 60)!r} ({'; '.join(parts)})"


def _explain(column: Column) -> str:
    """Return why cells of a column are unknown."""
    if column.kind == "category":
        return "new categories"
    how = column.number_format or column.date_format
    return f"not {column.kind}s, or not written as in training" + ("" if how is None else f": {how}")
