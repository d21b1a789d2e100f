"""Whether two readings of the same data gave the same: checksums of what a model took and returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn

from metricgrad.core.checksums import checksum, mixing_numbers
from metricgrad.core.counts import compute_dtype


class Reading:
    """Checksums of a micro-batch in one pass, to compare with those of the other pass."""

    def __init__(self, batch: object) -> None:
        self.plain: list[object] = []
        self.exact: list[Tensor] = []
        self.close: list[Tensor] = []
        self._known: set[int] = set()
        self._walk(batch)

    def add(self, logits: Tensor, rest: Sequence[object]) -> None:
        """Add the inputs of the loss, unless they were part of the batch."""
        new = [part for part in rest if id(part) not in self._known]
        close = [logits, *(part for part in new if _is_floating(part))]
        self._walk([None if _is_floating(part) else part for part in new])
        self.plain += [x.shape for x in close]
        self.close = [_fingerprint(x) for x in close]
        self._known.clear()

    def _walk(self, value: object) -> None:
        """Record types, shapes, plain values and checksums of tensors."""
        self.plain.append(type(value))
        if isinstance(value, Tensor):
            self.plain.append((value.shape, value.dtype))
            self._known.add(id(value))
            if value.layout is torch.strided and not value.is_quantized and type(value) in (Tensor, nn.Parameter):
                self.exact.append(checksum(value))
        elif isinstance(value, Mapping):
            for key in value:
                self.plain.append(hash(repr(key)))
                self._walk(value[key])
        elif isinstance(value, tuple | list):
            for item in value:
                self._walk(item)
        elif isinstance(value, str | bytes | bool | int | float):
            self.plain.append(hash(repr(value)))  # a hash: NaN equals NaN, and texts are not stored

    def is_like(self, other: Reading) -> bool:
        """Return whether the data are equal, and the outputs of the model nearly equal."""
        lengths = len(self.exact), len(self.close)
        if self.plain != other.plain or lengths != (len(other.exact), len(other.close)):
            return False
        return all(map(torch.equal, self.exact, other.exact)) and all(map(_nearly, self.close, other.close))


def _is_floating(value: object) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.is_floating_point()


def _fingerprint(x: Tensor) -> Tensor:
    """Return the sum weighted by row, and the sum of magnitudes, of values that may be rounded differently."""
    dtype = compute_dtype(x)
    rows = x.reshape(len(x), -1) if x.numel() and x.dim() else x.reshape(1, -1)
    places = 1 + mixing_numbers(len(rows), x.device).to(dtype) / 2.0**64
    return torch.stack(((rows.sum(1, dtype=dtype) * places).sum(), torch.linalg.vector_norm(x, 1, dtype=dtype)))


def _nearly(a: Tensor, b: Tensor) -> bool:
    return not bool(((a - b).abs() > 1e-4 * a[1]).any())


def check_alike(first: list[Reading], second: list[Reading]) -> None:
    """Raise if the second pass differs from the first, since the gradient would be of other outputs."""
    if len(first) != len(second) or not all(a.is_like(b) for a, b in zip(first, second, strict=True)):
        raise ValueError(
            "batches: the second reading gave other data or outputs than the first, and the gradient is wrong; "
            "expected the same batches in the same order, and a model that repeats itself given torch's random state"
        )
