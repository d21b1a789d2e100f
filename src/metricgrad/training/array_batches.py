"""Batches from arrays in memory or on disk; needs the extra "streaming"."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricgrad.core.checksums import checksum
from metricgrad.core.inputs import SupportsArray, as_tensor
from metricgrad.training.batch_stream import RowTensors, Stream
from metricgrad.training.data_identity import changed_error, fingerprint, stamp_file

StoredArray = str | Path | Tensor | SupportsArray
"""An array, or the path of a .npy file."""


class ArrayBatches(Stream):
    """Batches ``(features, targets)`` or ``(features, targets, weight)`` from arrays that need not fit into memory.

    Types stay as they are. Arrays and files are read ``buffer`` / 64 rows at a time. Iterate over it, or over
    ``loader()``; an epoch that ran to its end moves on to the next.

    Parameters
    ----------
    features : str, Path, ndarray or Tensor
        With a row per sample: the path of a .npy file, a numpy array (``np.memmap`` too), or a tensor.
    targets : str, Path, ndarray or Tensor
        In the same form, with as many rows.
    batch_size : int
        The size of a batch over all processes; each process gets its disjoint part of it.
    weight : str, Path, ndarray or Tensor, optional
        In the same form, with as many rows.
    shuffle : bool, default True
        Shuffle blocks of rows, and the rows within every ``buffer`` of them; False gives them in order.
    buffer : int, default 65536
        How many rows are shuffled together, which memory must hold up to four times; below the size of a block, blocks
        do not mix.
    seed : int, default 0
        The order of an epoch follows from the seed, the epoch and the number of processes and workers.
    rank : int, optional
        The number of this process, together with ``world_size``; by default that of ``torch.distributed`` if it runs,
        otherwise 0.
    world_size : int, optional
        The number of processes, together with ``rank``; by default that of ``torch.distributed`` if it runs, otherwise
        1.

    Attributes
    ----------
    rows : int
        The number of rows.
    epoch : int
        The epoch that the next iteration gives.
    position : int
        How much of the epoch was given out.

    Raises
    ------
    ValueError
        If numbers of rows differ, there are none, a file is no .npy file of numbers or changed since, or a batch has
        fewer rows than there are processes.

    Examples
    --------
    >>> x, y = np.arange(10.0).reshape(5, 2), np.array([0, 1, 0, 1, 0])
    >>> [tuple(features.shape) for features, targets in ArrayBatches(x, y, batch_size=2)]
    [(1, 2), (2, 2), (2, 2)]

    """

    def __init__(
        self,
        features: StoredArray,
        targets: StoredArray,
        batch_size: int,
        *,
        weight: StoredArray | None = None,
        shuffle: bool = True,
        buffer: int = 1 << 16,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        given = {"features": features, "targets": targets}
        if weight is not None:
            given["weight"] = weight
        self._columns = {name: Path(x) if isinstance(x, str | Path) else x for name, x in given.items()}
        self._stamps = {name: stamp_file(name, x) for name, x in self._columns.items() if isinstance(x, Path)}
        rows = {name: len(self._open_column(name)) for name in given}
        if len(set(rows.values())) > 1:
            raise ValueError(f"features, targets and weight: expected a row per sample each, got {rows}")
        self._block_rows = max(1, buffer // 64)
        count = rows["features"]
        if not count:
            raise ValueError("features: expected at least one row, got none")
        sizes = [min(self._block_rows, count - low) for low in range(0, count, self._block_rows)]
        shared: dict[str, Any] = {"seed": seed, "rank": rank, "world_size": world_size}
        super().__init__(sizes, batch_size, shuffle=shuffle, buffer=buffer, **shared)
        self._read(0)  # what is no number is refused before training

    def _open_column(self, name: str) -> Any:
        x = self._columns[name]
        if not isinstance(x, Path):
            return x
        if stamp_file(name, x) != self._stamps[name]:
            raise changed_error(x)
        try:
            return np.load(x, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{name}: expected a .npy file of numbers, got {str(x)!r}") from error

    def _read(self, block: int) -> RowTensors:
        part = slice(block * self._block_rows, (block + 1) * self._block_rows)
        return tuple(as_tensor(name, self._open_column(name)[part]) for name in self._columns)

    @cached_property
    def _identity(self) -> str:
        return fingerprint([(name, self._describe_sample(name)) for name in self._columns])

    def _describe_sample(self, name: str) -> tuple[Any, ...]:
        """Return shape, type and checksum of rows at equal distances, the first and the last among them."""
        column = self._open_column(name)
        sampled = min(self.rows, 1024)
        places = torch.linspace(0, self.rows - 1, sampled, dtype=torch.float64).round().long().tolist()
        rows = torch.cat([as_tensor(name, column[place : place + 1]) for place in places])
        return tuple(rows.shape), str(rows.dtype), int(checksum(rows))
