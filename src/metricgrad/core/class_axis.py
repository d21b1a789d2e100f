"""Operations along the classes of a chunk ``(n, K)``, whichever of its two axes is the one that is contiguous.

A chunk of a table has its rows one after another in memory; a chunk of maps ``(N, K, P)`` is a transposed view, which
has its classes one after another. Elementwise operations and sums are fast either way. Those here are not: torch has
fast ones along the first axis, or along the last, of a tensor whose memory is in this order.
"""

from __future__ import annotations

import torch
from torch import Tensor


def has_classes_first(x: Tensor) -> bool:
    """Return whether the memory of a chunk ``(n, K)`` is class by class; not for any other shape."""
    return x.dim() == 2 and x.stride(0) == 1 and x.stride(1) > 1


def write_softmax(logits: Tensor, out: Tensor) -> Tensor:
    """Write the softmax of each row into ``out``, and return it."""
    if has_classes_first(logits):
        torch.softmax(logits.t(), 0, out=out.t())
    else:
        torch.softmax(logits, 1, out=out)
    return out


def gather(x: Tensor, index: Tensor) -> Tensor:
    """Return the element of each row at ``index``, both ``(n, 1)``."""
    return x.t().gather(0, index.t()).t() if has_classes_first(x) else x.gather(1, index)


def scatter(x: Tensor, index: Tensor, value: Tensor | float) -> Tensor:
    """Write ``value``, a number or ``(n, 1)``, into each row at ``index``, in place, and return ``x``."""
    if has_classes_first(x):
        x.t().scatter_(0, index.t(), value.t() if isinstance(value, Tensor) else value)
    else:
        x.scatter_(1, index, value)
    return x


def scatter_add(x: Tensor, index: Tensor, value: Tensor) -> None:
    """Add ``value``, ``(n, 1)``, to each row at ``index``, in place."""
    if has_classes_first(x):
        x.t().scatter_add_(0, index.t(), value.t())
    else:
        x.scatter_add_(1, index, value)


def find_largest(x: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest value of each row and its index, each ``(n, 1)``; ``buffer`` is overwritten."""
    if not has_classes_first(x):
        return x.max(1, keepdim=True)
    # Along the first axis in memory ``max`` is slow and ``amax`` is fast, but it returns no index. So the index is
    # found by a second ``amax``: each largest element becomes K − its index, all others 0; the first of equals wins.
    largest = x.amax(1, keepdim=True)
    classes = x.shape[1]
    from_last = torch.arange(classes, 0, -1, dtype=x.dtype, device=x.device)
    is_largest = torch.eq(x, largest, out=buffer)
    index = classes - is_largest.mul_(from_last).amax(1, keepdim=True)
    return largest, index.long().clamp_max_(classes - 1)  # NaN equals nothing, which gives the index K
