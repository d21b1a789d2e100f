"""The ``threshold`` of a loss: one number, or several over which the loss is averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class OneThreshold(tuple[float, ...]):
    """A single threshold: statistics get no leading axis."""

    __slots__ = ()


def read_thresholds(threshold: float | Sequence[float] | Tensor) -> tuple[float, ...]:
    """Return one threshold as ``OneThreshold``, several as a tuple; numbers, sequences and tensors are taken."""
    try:
        given = torch.as_tensor(threshold, dtype=torch.float64)
        fine = given.dim() < 2 and given.numel() > 0 and bool(((given > 0) & (given < 1)).all())
    except (TypeError, ValueError, RuntimeError):
        fine = False
    if not fine:
        raise ValueError(f"threshold: expected numbers in (0, 1), got {threshold!r}")
    return OneThreshold([given.item()]) if given.dim() == 0 else tuple(given.tolist())
