"""Bins of equal width between 0 and 1, for calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from metricgrad.core.counts import compute_dtype

if TYPE_CHECKING:
    from torch import Tensor


def find_bins(probabilities: Tensor, bins: int) -> Tensor:
    """Return the bin of each probability, from 0 on; it includes its lower edge, and the probability 1 has its own.

    Edges have the type of the scores: 0.7 is an edge of ten bins, and in float32 it is below 0.7 in float64.
    """
    p = probabilities.to(compute_dtype(probabilities))
    edges = torch.linspace(0, 1, bins + 1, dtype=p.dtype, device=p.device)
    return torch.bucketize(p.contiguous(), edges, right=True) - 1
