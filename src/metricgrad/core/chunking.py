"""Chunks of rows that stay in the cache, and buffers that are reused from call to call."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from metricgrad.core.class_axis import has_classes_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_UNSPLIT_ELEMENTS = 1 << 19
"""A batch with up to this many logits is worked on in one piece.

A larger one is split in two (rowwise: in five), or in more chunks of ``MAX_CHUNK_ELEMENTS``. That is small enough that
a buffer of that size is little beside the logits and mostly in the cache, and large enough that the fixed cost of
waking torch's threads, 10 µs and more a call, does not count.
"""

MAX_CHUNK_ELEMENTS = 1 << 21

MAX_IMAGE_CHUNK_ELEMENTS = 1 << 19
"""Chunks of images are smaller, since a chunk that fits into the cache is faster, and there are enough of them."""

MAX_NEW_BUFFER_ELEMENTS = 1 << 15
"""Up to this many elements a new buffer is as fast as a reused one."""

_thread = threading.local()


class Chunk(NamedTuple):
    """Some rows of a batch, all of one image if images are told apart."""

    image: int
    tensors: tuple[Any, ...]
    """The rows of the logits and of the other tensors, None for those that are None."""


def split_rows(rowwise: bool, images: int | None, logits: Tensor, *others: Tensor | None) -> Iterable[Chunk]:
    """Return the rows of logits, ``(n, K)``, and those of other tensors, in chunks.

    Maps, ``(N, K, P)``, have P rows in each image; the rows of a chunk are then a transposed view.

    Parameters
    ----------
    rowwise : bool
        Whether memberships are those of whole rows, which need two buffers and a matrix instead of one buffer.
    images : int or None
        How many images there are, as many rows each, if they are told apart.
    logits : Tensor
        Rows or maps.
    *others : Tensor or None
        Tensors of the same rows or maps; class indices have no axis of the classes.
    """
    tensors = (logits, *others)
    if logits.dim() == 3:
        return _iterate_maps(tensors)
    if images is not None:
        return _iterate_images(images, tensors)
    if logits.numel() <= MAX_UNSPLIT_ELEMENTS:
        return (Chunk(0, tensors),)
    min_chunks = 5 if rowwise else 2
    max_elements = min(MAX_CHUNK_ELEMENTS, logits.numel() // min_chunks + 1)
    return _iterate_chunks(0, max_elements, tensors)


def _iterate_maps(tensors: Sequence[Tensor | None]) -> Iterator[Chunk]:
    maps: Any = tensors[0]
    for image in range(len(maps)):
        rows = tuple(None if x is None else x[image].t() for x in tensors)  # t() of a vector is the vector
        yield from _iterate_chunks(image, MAX_IMAGE_CHUNK_ELEMENTS, rows)


def _iterate_images(images: int, tensors: Sequence[Tensor | None]) -> Iterator[Chunk]:
    whole: Any = tensors[0]
    rows_per_image = len(whole) // images
    for image in range(images):
        start = image * rows_per_image
        rows = tuple(None if x is None else x[start : start + rows_per_image] for x in tensors)
        yield from _iterate_chunks(image, MAX_IMAGE_CHUNK_ELEMENTS, rows)


def _iterate_chunks(image: int, max_elements: int, tensors: tuple[Any, ...]) -> Iterator[Chunk]:
    rows, classes = tensors[0].shape
    chunk_rows = max(1, max_elements // classes)
    for start in range(0, rows, chunk_rows):
        chunk = slice(start, start + chunk_rows)
        yield Chunk(image, tuple(None if x is None else x[chunk] for x in tensors))


def get_buffer(like: Tensor, slot: int) -> Tensor:
    """Return a buffer of a chunk's shape, reused from call to call: new memory takes longer than the arithmetic.

    Buffers of different ``slot`` are different memory. Its memory is class by class if that of the chunk is.
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
    if has_classes_first(like):
        return buffer.view(like.shape[1], like.shape[0]).t()
    return buffer.view(like.shape)


def convert_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor in another type; bool as bytes, which torch converts several times as fast."""
    if x.dtype is dtype:
        return x
    if x.dtype is torch.bool:
        x = x.view(torch.uint8)
    return x.to(dtype)
