"""The population stability index: how far two distributions are apart, and whether chance explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.999
"""A change is reported if it is large, and significant at this level."""
CHANGED_INDEX = 0.1
"""The index from which on the share of a class has changed."""


def compute_psi(
    then: Sequence[float] | np.ndarray, now: Sequence[float] | np.ndarray, rows_then: int, rows_now: int
) -> tuple[float, bool]:
    """Return the population stability index of two lists of shares, and whether it is significant.

    For equal distributions it is about (1/n + 1/m) χ² with one degree of freedom fewer than there are bins.
    """
    # Count half a row where there is none, so that the logarithm exists.
    a = np.maximum(then, 0.5 / max(rows_then, 1))
    b = np.maximum(now, 0.5 / max(rows_now, 1))
    value = float(((b - a) * np.log(b / a)).sum())
    chance = (1 / max(rows_then, 1) + 1 / max(rows_now, 1)) * stats.chi2.ppf(CONFIDENCE, max(1, len(a) - 1))
    return value, bool(value > chance)


def has_moved(then: float, now: float, rows_then: int, rows_now: int) -> bool:
    """Return whether the share of a class changed much, and more than by chance.

    >>> has_moved(0.1, 0.3, 1000, 500), has_moved(0.1, 0.12, 1000, 500), has_moved(0.1, 0.3, 1000, 10)
    (True, False, False)
    """
    index, significant = compute_psi([then, 1 - then], [now, 1 - now], rows_then, rows_now)
    return index >= CHANGED_INDEX and significant
