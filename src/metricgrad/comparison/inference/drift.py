"""Drift: how the distribution of each column differs from that of the training data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from metricgrad.comparison.tables.stability import CONFIDENCE, compute_psi
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from metricgrad.comparison.tables.schema import Schema
    from metricgrad.estimators.columns.column import Column


@dataclass(frozen=True)
class Drift:
    """How a column changed since training.

    ``psi``: the population stability index Σ (now − then) ln(now / then) over bins or categories [siddiqi2006].
    ``shift``: the shift of the mean of numbers, in standard deviations of training. ``missing``: the increase of the
    share of missing cells. ``unknown``: the share of cells with new categories. ``suspicious``: the changes to warn of.
    """

    column: str
    psi: float
    shift: float | None
    missing: float
    unknown: float
    suspicious: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the drift as plain data."""
        return asdict(self) | {"suspicious": list(self.suspicious)}

    def __str__(self) -> str:
        return f"column {one_line(self.column, 60)!r} drifted: {', '.join(self.suspicious)}"


@dataclass(frozen=True, eq=False)
class CellCounts:
    """What drift is measured by, of one column; the counts of parts of the data add with ``+``.

    ``bins``: cells in each bin or category. ``total``: the sum of the known numbers.
    """

    cells: int
    missing: int
    bins: np.ndarray
    total: float

    @classmethod
    def of(cls, column: Column, cells: pd.Series) -> CellCounts:
        """Count the cells of a column."""
        level = column.to_level(cells)
        known = level[np.isfinite(level) & ((level >= 0) | (column.kind != "category"))]
        return cls(len(cells), int(cells.isna().sum()), column.count_bins(level), float(known.sum()))

    def __add__(self, other: CellCounts) -> CellCounts:
        return CellCounts(
            self.cells + other.cells, self.missing + other.missing, self.bins + other.bins, self.total + other.total
        )


def count_cells(frame: pd.DataFrame, schema: Schema) -> list[CellCounts]:
    """Return the counts of every feature column."""
    return [CellCounts.of(column, frame[column.name]) for column in schema.columns]


def measure_drift(counts: Sequence[CellCounts], schema: Schema) -> list[Drift]:
    """Return the drift of every column, the largest first."""
    found = [_measure_column(column, one, schema.rows) for column, one in zip(schema.columns, counts, strict=True)]
    return sorted(found, key=lambda one: (not one.suspicious, -one.psi))


def _measure_column(column: Column, counts: CellCounts, rows: int) -> Drift:
    cells = counts.cells
    now = int(counts.bins.sum())
    then = round(rows * (1 - column.missing))
    index, significant = compute_psi(column.shares, counts.bins / now, then, now) if now else (0.0, False)
    missing = counts.missing / cells - column.missing
    unknown = (cells - counts.missing - now) / cells if column.kind == "category" else 0.0
    shift = None
    suspicious = []
    noise = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) * (1 / max(rows, 1) + 1 / cells) ** 0.5
    if column.mean is not None and column.sd and now:
        shift = float((counts.total / now - column.mean) / column.sd)
        if abs(shift) >= max(0.5, noise):
            suspicious.append(f"mean moved by {shift:+.2f} standard deviations")
    if index >= 0.2 and significant:
        suspicious.append(f"population stability index {index:.2f} (0.2 or more is a change)")
    if abs(missing) >= max(0.1, noise / 2):
        suspicious.append(f"missing {column.missing:.1%} in training, {column.missing + missing:.1%} now")
    if unknown >= 0.05:
        suspicious.append(f"{unknown:.1%} unknown categories")
    return Drift(column.name, index, shift, missing, unknown, tuple(suspicious))
