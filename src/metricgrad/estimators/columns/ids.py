"""Numbers that identify rows: they say nothing about new ones, but a model may learn them by heart."""

from __future__ import annotations

import math
import re

import numpy as np

_FEWEST_ROWS = 20  # rows in which numbers that all differ are remarkable
_LEAST_PROBABILITY = 1e-9  # measurements that all differ are less probable than this
_LARGEST_MEAN_STEP = 20  # the mean step up to which increasing numbers count rows, some of which were left out
_NAME = re.compile(r"(^|[\W_])(id|ids|uuid|guid|key|index|rowid|row|no|nr)$", re.IGNORECASE)
_CAMEL = re.compile(r"[a-z](Id|ID)$")
_UNNAMED = re.compile(r"Unnamed: \d+|column \d+|level_\d+")
"""The names of row numbers that pandas wrote without one."""


def identifies_rows(name: str, values: np.ndarray) -> bool:
    """Return whether a column of numbers identifies rows: whole numbers that differ in every row, and look like it.

    Either the name says so; or they increase from row to row in small steps; or their range is so small that as many
    measurements would hardly all differ. The latter two also find row numbers that a random split left.

    >>> rows = np.random.default_rng(0).permutation(1000)[:750]
    >>> identifies_rows("Unnamed: 0", rows), identifies_rows("number", rows), identifies_rows("cents", rows**2)
    (True, True, False)
    """
    number = len(values)
    if number < _FEWEST_ROWS or not are_whole(values) or len(np.unique(values)) < number:
        return False
    if _NAME.search(name) or _CAMEL.search(name) or _UNNAMED.fullmatch(name):
        return True
    span = float(np.ptp(values)) + 1
    increasing = bool((np.diff(values) > 0).all())
    return (increasing and span <= _LARGEST_MEAN_STEP * number) or _compute_chance_to_differ(
        number, span
    ) < _LEAST_PROBABILITY


def are_whole(values: np.ndarray) -> bool:
    """Return whether all numbers are whole, and exact in float64; missing ones are not."""
    return bool((np.abs(values) < 2**53).all() and (values % 1 == 0).all())


def _compute_chance_to_differ(number: int, span: float) -> float:
    """Return about the probability that whole numbers drawn at random from a range all differ, as birthdays may."""
    return math.exp(-number * (number - 1) / (2 * span))
