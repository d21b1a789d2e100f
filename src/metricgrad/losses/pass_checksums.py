"""``PassChecksum``: whether two passes over the data saw the same, by checksums of what a model took and returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn

from metricgrad.core.checksums import checksum, mixing_numbers
from metricgrad.core.counts import compute_dtype


class PassChecksum:
    """Checksums of a micro-batch in one pass, to compare with those of the other pass."""

    def __init__(self, batch: object) -> None:
        self.structure: list[object] = []
        """Types, shapes and plain values, in the order in which they were found."""
        self.exact: list[Tensor] = []
        """Checksums of the data, which must be equal."""
        self.approximate: list[Tensor] = []
        """Sums of the model's outputs, which may be rounded differently."""
        self._known: set[int] = set()
        self._record(batch)

    def add_outputs(self, logits: Tensor, rest: Sequence[object]) -> None:
        """Add the inputs of the loss, unless they were part of the batch."""
        new = [part for part in rest if id(part) not in self._known]
        floating = [logits, *(part for part in new if _is_floating(part))]
        self._record([None if _is_floating(part) else part for part in new])
        self.structure += [x.shape for x in floating]
        self.approximate = [_sum_up(x) for x in floating]
        self._known.clear()

    def _record(self, value: object) -> None:
        """Record types, shapes, plain values and checksums of tensors."""
        self.structure.append(type(value))
        if isinstance(value, Tensor):
            self.structure.append((value.shape, value.dtype))
            self._known.add(id(value))
            if value.layout is torch.strided and not value.is_quantized and type(value) in (Tensor, nn.Parameter):
                self.exact.append(checksum(value))
        elif isinstance(value, Mapping):
            for key in value:
                self.structure.append(hash(repr(key)))
                self._record(value[key])
        elif isinstance(value, tuple | list):
            for item in value:
                self._record(item)
        elif isinstance(value, str | bytes | bool | int | float):
            self.structure.append(hash(repr(value)))  # a hash: NaN equals NaN, and texts are not stored

    def is_like(self, other: PassChecksum) -> bool:
        """Return whether the data are equal, and the outputs of the model nearly equal."""
        if self.structure != other.structure:
            return False
        if len(self.exact) != len(other.exact) or len(self.approximate) != len(other.approximate):
            return False
        has_same_data = all(map(torch.equal, self.exact, other.exact))
        return has_same_data and all(map(_are_nearly_equal, self.approximate, other.approximate))


def _is_floating(value: object) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.is_floating_point()


def _sum_up(x: Tensor) -> Tensor:
    """Return the sum weighted by row, and the sum of magnitudes, of values that may be rounded differently."""
    dtype = compute_dtype(x)
    rows = x.reshape(len(x), -1) if x.numel() and x.dim() else x.reshape(1, -1)
    row_factors = 1 + mixing_numbers(len(rows), x.device).to(dtype) / 2.0**64
    weighted_sum = (rows.sum(1, dtype=dtype) * row_factors).sum()
    magnitude = torch.linalg.vector_norm(x, 1, dtype=dtype)
    return torch.stack((weighted_sum, magnitude))


def _are_nearly_equal(a: Tensor, b: Tensor) -> bool:
    magnitude = a[1]
    return not bool(((a - b).abs() > 1e-4 * magnitude).any())


def check_passes_alike(first: list[PassChecksum], second: list[PassChecksum]) -> None:
    """Raise if the second pass differs from the first, since the gradient would be of other outputs."""
    if len(first) != len(second) or not all(a.is_like(b) for a, b in zip(first, second, strict=True)):
        raise ValueError(
            "batches: the second reading gave other data or outputs than the first, and the gradient is wrong; "
            "expected the same batches in the same order, and a model that repeats itself given torch's random state"
        )
