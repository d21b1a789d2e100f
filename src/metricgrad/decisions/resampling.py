"""Resampling: how often each unit (a row, a group of rows, or a cell of many equal rows) is drawn in each replicate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.engine.inputs import as_tensor, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

_DRAWS = 1 << 22  # numbers drawn at a time


def of_cells(counts: Tensor, replicates: int, generator: torch.Generator) -> Tensor:
    """Draw a total of Σ counts from the cells with shares counts/Σ: ``(replicates, cells)``.

    How often each kind of equal rows is drawn is multinomial. Halving the cells again and again, one binomial draw
    each, takes log₂(cells) calls whatever the total.
    """
    size = 1 << max(0, len(counts) - 1).bit_length()
    tree = [torch.zeros(size, dtype=torch.float64)]
    tree[0][: len(counts)] = counts
    while len(tree[-1]) > 1:
        tree.append(tree[-1].view(-1, 2).sum(1))
    drawn = tree.pop().expand(replicates, 1)
    while tree:
        level = tree.pop().view(-1, 2)
        share = torch.where(level[:, 0] > 0, level[:, 0] / level.sum(1).clamp(min=1e-300), 0.0)
        left = torch.binomial(drawn.contiguous(), share.expand_as(drawn).contiguous(), generator=generator)
        drawn = torch.stack((left, drawn - left), 2).flatten(1)
    return drawn[:, : len(counts)]


def of_units(units: int, replicates: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield how often each of equally likely units is drawn, ``(some replicates, units)`` at a time."""
    some = max(1, _DRAWS // max(1, units))
    for start in range(0, replicates, some):
        rows = min(some, replicates - start)
        index = torch.randint(max(1, units), (rows, units), generator=generator)
        index += torch.arange(rows).unsqueeze(1) * units
        yield torch.bincount(index.flatten(), minlength=rows * units).view(rows, units).double()


def group_index(groups: Any, rows: int) -> tuple[Tensor, int]:
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
