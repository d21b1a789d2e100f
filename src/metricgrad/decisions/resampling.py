"""Resampling: how often each unit (a row or a group of rows) is drawn in each replicate, or how much it weighs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core.inputs import as_tensor, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBERS_AT_ONCE = 1 << 22


def weigh_cells(counts: Tensor, replicates: int, generator: torch.Generator) -> Tensor:
    """Draw the weight of cells that hold so many equal rows each: ``(replicates, cells)``.

    The sum of exponential weights, as ``weigh_units`` draws them for each row, has a gamma distribution.
    """
    shapes = counts.double().expand(replicates, -1).contiguous()
    drawn = torch._standard_gamma(shapes, generator=generator)
    return torch.where(counts > 0, drawn, 0.0)


def weigh_units(units: int, replicates: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield exponential weights of units, ``(some replicates, units)`` at a time: the Bayesian bootstrap [rubin1981].

    Every unit has some weight, so that a replicate always has positives if the data have.
    """
    for rows in _split_replicates(units, replicates):
        yield torch.empty(rows, units, dtype=torch.float64).exponential_(generator=generator)


def draw_units(units: int, replicates: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield how often each of equally likely units is drawn, ``(some replicates, units)`` at a time."""
    for rows in _split_replicates(units, replicates):
        drawn = torch.randint(max(1, units), (rows, units), generator=generator)
        drawn += torch.arange(rows).unsqueeze(1) * units
        yield torch.bincount(drawn.flatten(), minlength=rows * units).view(rows, units).double()


def _split_replicates(units: int, replicates: int) -> Iterator[int]:
    """Yield numbers of replicates that are drawn together, as many as fit into memory at a time."""
    at_once = max(1, _NUMBERS_AT_ONCE // max(1, units))
    for start in range(0, replicates, at_once):
        yield min(at_once, replicates - start)


def index_groups(groups: Any, rows: int) -> tuple[Tensor, int]:
    """Return each row's group as an index, and how many groups there are; without groups every row is its own."""
    if groups is None:
        return torch.arange(rows), rows
    values = groups.to_numpy() if hasattr(groups, "to_numpy") else groups
    try:
        index = torch.unique(as_tensor("groups", values), return_inverse=True)[1]
    except ValueError:  # names: number them in order of appearance
        seen: dict[Any, int] = {}
        index = torch.tensor([seen.setdefault(name, len(seen)) for name in list(values)], dtype=torch.long)
    if index.shape != (rows,):
        raise ValueError(f"groups: expected one per row, ({rows},), got {tuple(index.shape)}")
    return index, int(index.max()) + 1 if rows else 0


def check_replicates(replicates: int, confidence: float = 0.95) -> None:
    """Refuse numbers that make no interval."""
    whole_number("replicates", replicates, 1)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected a number in (0, 1), got {confidence!r}")
