"""Chunks of rows that stay in the cache, and buffers that are reused from call to call."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_UNSPLIT_ELEMENTS = 1 << 19
"""A batch with up to this many logits is worked on in one piece.

A larger one is split in two (rowwise: in five), or in more chunks of ``MAX_CHUNK_ELEMENTS``. That is small enough that
a buffer of that size is little beside the logits and mostly in the cache, and large enough that the fixed cost of
waking torch's threads, 10 µs and more a call, does not count.
"""

MAX_CHUNK_ELEMENTS = 1 << 21

MAX_NEW_BUFFER_ELEMENTS = 1 << 15
"""Up to this many elements a new buffer is as fast as a reused one."""

_thread = threading.local()


def split_rows(rowwise: bool, logits: Tensor, *others: Tensor | None) -> Iterable[tuple[Any, ...]]:
    """Return logits and other tensors of as many rows in chunks of rows.

    ``rowwise``: whether memberships are those of whole rows, which need two buffers and a matrix instead of one buffer.
    """
    if logits.numel() <= MAX_UNSPLIT_ELEMENTS:
        return ((logits, *others),)
    return _iterate_chunks(5 if rowwise else 2, logits, *others)


def _iterate_chunks(min_chunks: int, logits: Tensor, *others: Tensor | None) -> Iterator[tuple[Any, ...]]:
    chunk_elements = min(MAX_CHUNK_ELEMENTS, logits.numel() // min_chunks + 1)
    chunk_rows = max(1, chunk_elements // logits.shape[1])
    for start in range(0, len(logits), chunk_rows):
        rows = slice(start, start + chunk_rows)
        yield logits[rows], *(None if other is None else other[rows] for other in others)


def get_buffer(like: Tensor, slot: int) -> Tensor:
    """Return a buffer of a chunk's shape, reused from call to call: new memory takes longer than the arithmetic.

    Buffers of different ``slot`` are different memory.
    """
    size = like.numel()
    if size <= MAX_NEW_BUFFER_ELEMENTS or size > MAX_CHUNK_ELEMENTS or not like.is_cpu:
        return torch.empty_like(like)
    buffers: dict[tuple[torch.dtype, int], Tensor] = _thread.__dict__.setdefault("buffers", {})
    buffer = buffers.get((like.dtype, slot))
    if buffer is None or buffer.numel() < size:
        with torch.inference_mode(False):  # a buffer made in inference mode could not be used in training afterwards
            buffer = torch.empty(size, dtype=like.dtype)
        buffers[like.dtype, slot] = buffer
    if buffer.numel() > size:
        buffer = buffer[:size]
    return buffer.view(like.shape)


def convert_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor in another type; bool as bytes, which torch converts several times as fast."""
    if x.dtype is dtype:
        return x
    if x.dtype is torch.bool:
        x = x.view(torch.uint8)
    return x.to(dtype)
