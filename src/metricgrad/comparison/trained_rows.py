"""The rows that a model was trained on, as hashes: by these, rows that it is evaluated on are recognised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from metricgrad.comparison.tables.rows import hash_rows

if TYPE_CHECKING:
    import pandas as pd

MOST_HASHES = 1 << 17
"""The most hashes that are kept, the lowest ones: a megabyte."""


@dataclass(frozen=True)
class Seen:
    """How many rows could be looked up, and how many of these were trained on; they add with ``+``."""

    checked: int = 0
    seen: int = 0

    def __add__(self, other: Seen) -> Seen:
        return Seen(self.checked + other.checked, self.seen + other.seen)

    @property
    def share(self) -> float:
        """The share of rows that were trained on."""
        return self.seen / max(1, self.checked)


@dataclass(frozen=True, eq=False)
class TrainedRows:
    """The hashes of training rows, features and target together, in ascending order.

    If there are more than ``MOST_HASHES`` rows, only the lowest hashes are kept. New rows are then looked up only if
    their hash is below the highest one kept; since hashes are random, these are a random sample of the new rows.
    """

    hashes: np.ndarray

    @classmethod
    def of(cls, features: pd.DataFrame, targets: np.ndarray) -> TrainedRows:
        """Return the rows with these features and encoded targets."""
        return cls(np.sort(hash_rows(features, targets))[:MOST_HASHES])

    def count(self, features: pd.DataFrame, targets: np.ndarray) -> Seen:
        """Return how many rows were trained on."""
        found = hash_rows(features, targets)
        if len(self.hashes) == MOST_HASHES:
            found = found[found <= self.hashes[-1]]
        return Seen(len(found), int(np.isin(found, self.hashes).sum()))

    def is_suspicious(self, found: Seen) -> bool:
        """Return whether more rows were seen than equal rows occur by chance.

        A new row equals some training row about as often as training rows equal each other.
        """
        times = np.unique(self.hashes, return_counts=True)[1]
        expected = float(times[times > 1].sum()) / max(1, len(self.hashes))
        noise = (expected * (1 - expected) * (1 / max(1, found.checked) + 1 / max(1, len(self.hashes)))) ** 0.5
        return found.seen > 0 and found.share > expected + 3 * noise

    def to_bytes(self) -> bytes:
        """Return the hashes as little-endian numbers of 64 bits."""
        return self.hashes.astype("<u8").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> TrainedRows:
        """Return the rows that ``to_bytes`` wrote, or raise a ``ValueError``."""
        if not data or len(data) % 8 or len(data) > 8 * MOST_HASHES:
            raise ValueError(f"rows.bin: expected up to {MOST_HASHES} numbers of 8 bytes, got {len(data)} bytes")
        found = np.frombuffer(data, "<u8")
        if (found[1:] < found[:-1]).any():
            raise ValueError("rows.bin: expected numbers in ascending order, got others")
        return cls(found)
