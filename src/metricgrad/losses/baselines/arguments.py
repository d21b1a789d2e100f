"""Arguments of the baselines: numbers, shares and weights, checked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.core.metrics.scalars import is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.core.batch import Task

    Numbers = Sequence[float] | Sequence[Sequence[float]] | Tensor
    """One number per class; or two rows, (negative, positive), for the labels of a multi-label problem."""

TASKS: tuple[Task, ...] = ("binary", "multilabel", "multiclass")


def check_number(name: str, value: object, least: float = -math.inf) -> float:
    """Return a finite number, or raise."""
    if is_number(value) and math.isfinite(value) and value >= least:
        return float(value)
    bound = "" if least == -math.inf else f" of at least {least:g}"
    raise ValueError(f"{name}: expected a number{bound}, got {value!r}")


def check_share(name: str, value: object) -> float:
    """Return a number in [0, 1], or raise."""
    if is_number(value) and 0 <= value <= 1:
        return float(value)
    raise ValueError(f"{name}: expected a number in [0, 1], got {value!r}")


def check_numbers(name: str, value: object) -> Tensor:
    """Return positive numbers, one per class, as a tensor, or raise."""
    try:
        given = torch.as_tensor(value, dtype=torch.get_default_dtype())
        fine = given.dim() in (1, 2) and given.numel() > 0 and bool(((given > 0) & given.isfinite()).all())
    except (TypeError, ValueError, RuntimeError):
        fine = False
    if not fine:
        raise ValueError(f"{name}: expected positive numbers, one per class, got {value!r}")
    return given


def check_weight(name: str, value: object) -> float | Tensor:
    """Return one positive number as a float, several as a tensor, or raise."""
    one = value.item() if isinstance(value, Tensor) and value.dim() == 0 else value
    return float(one) if is_number(one) and 0 < one < math.inf else check_numbers(name, value)


def check_two_rows(class_counts: Numbers) -> Tensor:
    """Return the counts of (negative, positive) as a tensor of two rows, or raise."""
    counts = check_numbers("class_counts", class_counts)
    if len(counts) != 2:
        raise ValueError(f"class_counts: expected (negative, positive), got {class_counts!r}")
    return counts
