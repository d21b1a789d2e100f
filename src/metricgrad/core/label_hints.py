"""What labels outside their range look like, and how to convert them, for messages."""

from __future__ import annotations

import torch
from torch import Tensor

MOST_SHOWN = 5
"""Up to this many different values are listed; if there are more, their range is shown."""


def explain_targets(y: Tensor, classes: int, indices: bool) -> str:
    """Return the message about targets outside [0, 1], or outside the class indices that the logits have."""
    values = torch.unique(y.detach())
    values = values[~values.isnan()] if values.is_floating_point() else values
    found: list[float] = values.tolist()
    wanted = f"class indices 0 to {classes - 1}" if indices else "values in [0, 1]"
    seen = ", ".join(f"{x:g}" for x in found) if len(found) <= MOST_SHOWN else f"{found[0]:g} to {found[-1]:g}"
    hint = _explain_indices(found, classes) if indices else _explain_labels(found)
    return f"targets: expected {wanted}, got {seen}; {hint}"


def _explain_indices(found: list[float], classes: int) -> str:
    low = found[0]
    high = found[-1]
    inside = [x for x in found if 0 <= x < classes]
    if low >= 1 and high == classes:
        return f"they look like labels from 1 to {classes}: pass targets - 1"
    if len(inside) == len(found) - 1:  # all but one value, as of unlabelled pixels
        strange = low if low < 0 else high
        return f"pass ignore_index={strange:g} if that marks what does not count" + _too_few(high, classes)
    if low < 0:
        return "pass mask= to leave out what has no label"
    return f"the logits have {classes} columns, too few for these labels"


def _too_few(high: float, classes: int) -> str:
    return f"; otherwise the logits have too few columns, {classes}" if high == classes else ""


def _explain_labels(found: list[float]) -> str:
    low = found[0]
    high = found[-1]
    if set(found) <= {-1.0, 1.0}:
        return "they look like labels -1 and 1: pass targets > 0"
    if set(found) <= {-1.0, 0.0, 1.0}:
        return "pass ignore_index=-1 if that marks what does not count"
    if set(found) <= {0.0, 255.0}:
        return "they look like an image mask of 0 and 255: pass targets > 0"
    if set(found) == {0.0, 1.0, high} and high > 8:  # a code far from the labels, not a third class
        return f"pass ignore_index={high:g} if that marks what does not count"
    if len(found) == 2:
        return f"they look like labels {low:g} and {high:g}: pass targets == {high:g}, or == {low:g}"
    if all(x == int(x) for x in found if abs(x) < 2**53) and low >= 0:
        return "they look like class indices: use task='multiclass', with logits of one column per class"
    return "pass mask= to leave out what has no label"
