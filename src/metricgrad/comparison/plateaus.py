"""Plateaus: for each threshold, from where to where others are hardly worse."""

from __future__ import annotations

from typing import Any

import numpy as np

Ends = tuple[float, float]
"""Where a plateau begins and ends."""


def list_plateaus(plateau: Any, thresholds: int) -> list[Ends | None]:
    """Return the plateau of each threshold: None if there is none, or if one of its ends is infinite.

    ``plateau``: of a ``TuningResult``, one for all or one per threshold.

    >>> list_plateaus((0.2, 0.4), 2), list_plateaus([(0.2, 0.4), (0.1, float("inf"))], 2)
    ([(0.2, 0.4), (0.2, 0.4)], [(0.2, 0.4), None])
    """
    if plateau is None:
        return [None] * thresholds
    each = plateau if isinstance(plateau[0], tuple | list) else [plateau] * thresholds
    return [(low, high) if np.isfinite((low, high)).all() else None for low, high in each]
