"""Metrics as users write them: a signed one, and some that are unbounded."""

from __future__ import annotations

import torch
from torch import Tensor

from metricgrad import Counts
from metricgrad.metrics import ratio


def skill(c: Counts) -> Tensor:
    """(TP − FP − FN) / (TP + FP + FN), in [−1, 1]; −1 where nothing is true or predicted."""
    return ratio(2 * c.tp, c.tp + c.fp + c.fn) - 1


def total_profit(c: Counts) -> Tensor:
    """30 for a positive that is found, −4 for a false alarm: unbounded on both sides."""
    return 30 * c.tp - 4 * c.fp


def profit_per_row(c: Counts) -> Tensor:
    """The same per row, in [−4, 30]."""
    return ratio(30 * c.tp - 4 * c.fp, c.total)


def odds_ratio(c: Counts) -> Tensor:
    """TP·TN / (FP·FN) with half a row added to each cell: from 0, without an upper bound."""
    return ((c.tp + 0.5) * (c.tn + 0.5)) / ((c.fp + 0.5) * (c.fn + 0.5))


def capped_profit(c: Counts) -> Tensor:
    """A profit of at most 100, with a case distinction, so that its arithmetic cannot be traced."""
    return torch.minimum(total_profit(c), torch.full_like(c.tp, 100.0))
