"""Chunks of rows that stay in the cache, and buffers that are reused from call to call."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WHOLE, LARGE = 1 << 19, 1 << 21
"""Elements worked on at a time: all of a batch up to WHOLE; half (a fifth) of a larger one, up to LARGE.

Small enough that a buffer of that size is little beside the logits and mostly in the cache, large enough that the fixed
cost of waking torch's threads, 10 µs and more a call, does not count.
"""

TINY = 1 << 15
"""Up to this many elements new buffers are as fast as reused ones."""

_local = threading.local()


def split(rowwise: bool, z: Tensor, *others: Tensor | None) -> Iterable[tuple[Any, ...]]:
    """Return logits and other tensors of as many rows in chunks of rows.

    ``rowwise``: whether memberships are those of whole rows, which need two buffers and a matrix instead of one buffer.
    """
    if z.numel() <= WHOLE:
        return ((z, *others),)
    return _parts(5 if rowwise else 2, z, *others)


def _parts(number: int, z: Tensor, *others: Tensor | None) -> Iterator[tuple[Any, ...]]:
    rows = max(1, min(LARGE, z.numel() // number + 1) // z.shape[1])
    for start in range(0, len(z), rows):
        part = slice(start, start + rows)
        yield z[part], *(None if other is None else other[part] for other in others)


def scratch(like: Tensor, which: int) -> Tensor:
    """Return a buffer of a chunk's shape, reused from call to call: new memory takes longer than the arithmetic."""
    size = like.numel()
    if size <= TINY or size > LARGE or not like.is_cpu:
        return torch.empty_like(like)
    kept: dict[tuple[torch.dtype, int], Tensor] = _local.__dict__.setdefault("kept", {})
    buffer = kept.get((like.dtype, which))
    if buffer is None or buffer.numel() < size:
        with torch.inference_mode(False):  # a buffer made in inference mode could not serve training afterwards
            buffer = kept[like.dtype, which] = torch.empty(size, dtype=like.dtype)
    return (buffer if buffer.numel() == size else buffer[:size]).view(like.shape)


def converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor in another type; bool as bytes, which torch converts several times as fast."""
    if x.dtype is dtype:
        return x
    return (x.view(torch.uint8) if x.dtype is torch.bool else x).to(dtype)
