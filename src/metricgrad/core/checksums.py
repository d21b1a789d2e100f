"""Checksums of tensors: whether two have the same numbers in the same order, on any device, without a copy of either.

They tell apart what differs by mistake: other data, other rows, another order. They are no protection from forgery.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_BLOCKS_PER_ROW = 4096


def checksum(x: Tensor) -> Tensor:
    """Return one int64 of all bits of a dense tensor, each by its place; NaN equals NaN.

    Rows of more than 32 KiB are summed in 4,096 blocks first, so that changes of order within a block are not seen.

    >>> a = torch.tensor([1, 0, 0, 1])
    >>> bool(checksum(a) == checksum(a.clone())), bool(checksum(a) == checksum(1 - a))
    (True, False)
    """
    x = x.detach().resolve_conj().resolve_neg()
    x = torch.view_as_real(x) if x.is_complex() else x
    row_number = len(x) if x.dim() else 1
    rows = x.reshape(row_number, -1) if x.numel() else x.new_zeros(0, 1)
    bits = rows.contiguous().view(_INTEGERS[x.element_size()])
    if bits.shape[1] * x.element_size() % 8 == 0:
        bits = bits.view(torch.int64)  # far fewer to add
    block_size = bits.shape[1] // _BLOCKS_PER_ROW
    if block_size > 1:
        in_blocks = block_size * _BLOCKS_PER_ROW
        blocks = bits[:, :in_blocks].reshape(len(bits), _BLOCKS_PER_ROW, block_size)
        block_sums = blocks.sum(2, dtype=torch.int64)
        bits = torch.cat((block_sums, bits[:, in_blocks:].long()), 1)
    # Integers wrap around, which loses nothing that matters here.
    row_sums = (bits * mixing_numbers(bits.shape[1], x.device)).sum(1, dtype=torch.int64)
    return (row_sums * mixing_numbers(len(bits), x.device)).sum()


_MAX_CACHED = 1 << 14
"""Up to so many mixing numbers are kept for the next checksum."""


def mixing_numbers(number: int, device: torch.device | None = None) -> Tensor:
    """Return ``number`` odd int64 numbers that look random and are always the same."""
    return _cached_mixing_numbers(number, device) if number <= _MAX_CACHED else _compute_mixing_numbers(number, device)


def _compute_mixing_numbers(number: int, device: torch.device | None) -> Tensor:
    x = (torch.arange(number, device=device) + 1) * 0x1E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0x3F58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x14D049BB133111EB
    return (x ^ (x >> 31)) | 1


@lru_cache(maxsize=32)
def _cached_mixing_numbers(number: int, device: torch.device | None) -> Tensor:
    # Cached, since for micro-batches this takes longer than all the rest.
    with torch.inference_mode(False):  # what is made in that mode could not be used outside of it
        return _compute_mixing_numbers(number, device)
