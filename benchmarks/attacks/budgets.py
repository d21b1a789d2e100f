"""``choose_k_labels`` against every choice there is, on tables small enough for it, and more starts against one."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attacks import naive
from metricgrad.decisions import choose_k_labels

if TYPE_CHECKING:
    from collections.abc import Iterable

TOLERANCE = 1e-8
STARTS = 12
ROUNDED = 2
"""Digits of half of the tables: equal probabilities, and sums that should be equal."""


def check(number: int) -> str | None:
    """Return what is wrong with a case, or None."""
    rng = np.random.default_rng([2, number])
    rows, labels = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    k = int(rng.integers(1, labels + 1))
    p = rng.random((rows, labels)) ** rng.choice([1, 3])
    p = p.round(ROUNDED) if rng.random() < 0.5 else p
    metric = str(rng.choice(naive.METRICS))
    case = f"{metric}, k={k}, {p.tolist()}"
    values = []
    for starts in (1, STARTS):
        chosen = choose_k_labels(metric, torch.from_numpy(p), k, starts=starts).numpy()
        if not (chosen.sum(1) == k).all():
            return f"expected {k} labels in each row, got {chosen.sum(1)} | {case}"
        values.append(_expected_value(metric, p, chosen))
    sets = [[i in some for i in range(labels)] for some in itertools.combinations(range(labels), k)]
    best = max(_expected_value(metric, p, np.array(choice)) for choice in itertools.product(sets, repeat=rows))
    one, many = values
    if many < one - TOLERANCE:
        return f"{STARTS} starts give {many}, one gives {one} | {case}"
    if many > best + TOLERANCE:
        return f"value {many} is above the best of all choices, {best} | {case}"
    return None


def _expected_value(metric: str, p: Any, chosen: Any) -> float:
    """Return the macro metric of expected counts."""
    return float(naive.value(metric, naive.count(chosen, p, None), "macro"))


def check_all(numbers: Iterable[int]) -> dict[int, str]:
    """Return what is wrong, by the number of the case."""
    return {number: found for number in numbers if (found := check(number)) is not None}
