"""Scarce decisions: where a number comes from that has too few samples of its own to be tuned on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

FEW = 20
"""With fewer positives or negatives than this a decision is scarce: a threshold tuned on them is mostly noise."""

POOLED = 50
"""With fewer than this a label gains from a threshold shared with others: benchmarks/rare_labels.py."""

Origin = Literal["pooled", "own", "fixed"]
"""Where the number of a decision comes from: shared with other scarce decisions, its own data, or the default rule."""


def check_origin(rare_labels: str) -> None:
    """Raise if this is no way to treat scarce decisions."""
    if rare_labels not in get_args(Origin):
        raise ValueError(f"rare_labels: expected one of {', '.join(map(repr, get_args(Origin)))}, got {rare_labels!r}")


@dataclass(frozen=True)
class Allocation:
    """Where the number of every decision comes from, and in words why some are not their own; None if all are."""

    origins: tuple[Origin, ...]
    caution: str | None = None

    @classmethod
    def alike(cls, origin: Origin, decisions: int, caution: str | None = None) -> Allocation:
        """Return an allocation in which all decisions are treated alike."""
        return cls((origin,) * decisions, caution)

    @property
    def groups(self) -> list[list[int]]:
        """The decisions that share a number; most are alone."""
        pool = [k for k, origin in enumerate(self.origins) if origin == "pooled"]
        return [[k] for k, origin in enumerate(self.origins) if origin != "pooled"] + ([pool] if pool else [])

    @property
    def tuned(self) -> bool:
        """Whether anything is tuned."""
        return any(origin != "fixed" for origin in self.origins)
