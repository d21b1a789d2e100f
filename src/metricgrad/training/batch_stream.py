"""Data that does not fit into memory: whole tensor batches, shuffled, shared among processes, resumable.

The rows of an epoch have one order: blocks of rows (row groups of Parquet, stretches of an array) at random, and
within every ``buffer`` rows of that order the rows at random. Each process takes an equal stretch of it, each worker of
a DataLoader an equal stretch of that, so that no row is read by two; while a buffer is used, a thread reads
the next. An epoch has ⌈rows / batch_size⌉ batches on every process, whatever the rows: batches differ in size by a row
or two instead of in number, since a process with one batch more than the others would wait for them for ever.
"""

from __future__ import annotations

from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from metricgrad.core.inputs import whole_number
from metricgrad.training.samplers import Epochs, epoch_generator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RowTensors = tuple[Tensor, ...]
"""Features, targets and, if there are any, weights of the same rows."""


class Stream(Epochs, IterableDataset[RowTensors]):
    """The base of all streams: the order, the shares of processes, and the position in an epoch.

    Parameters
    ----------
    sizes : sequence of int
        The number of rows of each block.
    batch_size : int
        The size of a batch over all processes; each process gets its disjoint part of it.
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

    """

    def __init__(
        self,
        sizes: Sequence[int],
        batch_size: int,
        *,
        shuffle: bool = True,
        buffer: int = 1 << 16,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__(seed, rank, world_size)
        self._sizes = list(sizes)
        self.rows = sum(self._sizes)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self.shuffle = bool(shuffle)
        self.buffer = whole_number("buffer", buffer, 1)
        self.workers = 0
        self._batches = -(-self.rows // self.batch_size)
        if self.rows // self.world_size < self._batches:
            raise ValueError(
                f"batch_size: expected batches with a row for each of {self.world_size} processes, got "
                f"{self._batches} batches of {self.rows} rows; use a larger one"
            )

    def _read(self, block: int) -> RowTensors:
        """Return the rows of a block."""
        raise NotImplementedError

    @cached_property
    def _identity(self) -> str:
        """A short name of the data, another one for other data."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[RowTensors]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        workers = 1 if info is None else info.num_workers
        self._check_workers(workers)
        batches = self._iterate_share(self._start, worker, workers)
        if info is None:
            return self._track_position(batches, 0)
        # A copy of its own: what is a view of a whole buffer would be sent with all of it.
        return (tuple(part.clone() for part in batch) for batch in batches)

    def _check_workers(self, workers: int) -> None:
        if self._start and max(workers, 1) != max(self.workers, 1):
            raise ValueError(f"workers: expected {self.workers}, as when the state was taken, got {workers}")

    def loader(self, workers: int = 0, **options: Any) -> DataLoader[RowTensors]:
        """Return a DataLoader that reads in worker processes and keeps the state of this stream up to date.

        Workers live for an epoch: those of ``persistent_workers=True`` would give the same epoch again and again. With
        a DataLoader of your own (``batch_size=None``) and workers, call ``set_epoch`` before each epoch: what runs in
        workers does not reach the state here.

        Parameters
        ----------
        workers : int, default 0
            The number of worker processes; 0 reads in this one.
        **options : Any
            Further keywords of ``torch.utils.data.DataLoader``, such as ``pin_memory``.

        Returns
        -------
        DataLoader
            It gives the batches of this stream.

        Raises
        ------
        ValueError
            If ``persistent_workers`` is True.

        """
        if options.get("persistent_workers"):
            raise ValueError("persistent_workers: expected False, got True, whose workers give one epoch for ever")
        return _Loader(self, batch_size=None, num_workers=workers, **options)

    def _track_position(self, batches: Iterator[RowTensors], workers: int) -> Iterator[RowTensors]:
        """Yield the batches of the present epoch, keeping the state."""
        epoch = self.epoch
        self.position = self._start
        self._start = 0
        self.workers = workers
        for batch in batches:
            self.position += 1
            yield batch
        if self.epoch == epoch:
            self.epoch = epoch + 1
            self.position = 0

    def _depends_on(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "data": self._identity,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "buffer": self.buffer,
            "rows": self.rows,
            "world_size": self.world_size,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the data, equal on all processes, and the data and settings that it depends on.

        Returns
        -------
        dict
            Plain values by name, for ``load_state_dict`` and ``Checkpoint``.

        """
        return {**super().state_dict(), "workers": self.workers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration continue from where the state was taken.

        Within an epoch it takes as many processes and workers as then. Of arrays 1,024 rows are compared, of Parquet
        files 64 stretches of 4 KiB.

        Parameters
        ----------
        state : dict
            As ``state_dict`` returned it.

        Raises
        ------
        ValueError
            If the state is of other data, columns or files, or of another batch size, ``buffer`` or ``shuffle``.

        """
        super().load_state_dict(state)
        self.workers = whole_number("state['workers']", state.get("workers"), 0)

    # The order

    def _iterate_share(self, start: int, worker: int, workers: int) -> Iterator[RowTensors]:
        """Yield a worker's batches, beginning with batch ``start`` of its process."""
        # A DataLoader reads from worker 0 first, which therefore takes the place of the one whose turn it was.
        worker = (worker + start) % workers
        batches_of_workers = [len(range(w, self._batches, workers)) for w in range(workers)]
        first_batch = sum(batches_of_workers[:worker])
        batches_done = len(range(worker, start, workers))
        last_batch = first_batch + batches_of_workers[worker]
        edges = [self._batch_start(batch) for batch in range(first_batch + batches_done, last_batch + 1)]
        if len(edges) < 2:
            return
        # Buffers begin where the worker's rows do: of the one that holds the first row, some rows may be done.
        rows_done = (edges[0] - self._batch_start(first_batch)) % self.buffer
        buffers = self._iterate_buffers(edges[0] - rows_done, edges[-1])
        rows = next(buffers)
        place = rows_done
        for batch_start, batch_end in pairwise(edges):
            missing = batch_end - batch_start
            parts: list[RowTensors] = []
            while missing:
                if place == len(rows[0]):
                    rows = next(buffers)
                    place = 0
                part = tuple(column[place : place + missing] for column in rows)
                parts.append(part)
                place += len(part[0])
                missing -= len(part[0])
            yield parts[0] if len(parts) == 1 else _join(parts)

    def _batch_start(self, batch: int) -> int:
        """Return the place in the order at which a batch of this process begins."""
        process_start = self.rows * self.rank // self.world_size
        process_end = self.rows * (self.rank + 1) // self.world_size
        return process_start + (process_end - process_start) * batch // self._batches

    def _iterate_buffers(self, start: int, end: int) -> Iterator[RowTensors]:
        """Yield the rows between two places in the order, a buffer at a time, the next being read meanwhile."""
        generator = epoch_generator(self.seed, self.epoch)
        blocks = list(range(len(self._sizes)))
        buffer_seeds = [0]
        if self.shuffle:
            blocks = torch.randperm(len(blocks), generator=generator).tolist()
            buffer_seeds = torch.randint(2**62, (self.rows // self.buffer + 1,), generator=generator).tolist()
        block_ends = list(accumulate(self._sizes[block] for block in blocks))
        last_read: tuple[int, RowTensors] = (-1, ())

        def read_buffer(buffer_start: int) -> RowTensors:
            nonlocal last_read
            buffer_end = min(buffer_start + self.buffer, end)
            parts = []
            place = buffer_start
            number = bisect_right(block_ends, buffer_start)
            while place < buffer_end:
                block = blocks[number]
                if last_read[0] != block:
                    last_read = block, self._read(block)
                block_start = block_ends[number] - self._sizes[block]
                stop = min(buffer_end, block_ends[number])
                parts.append(tuple(column[place - block_start : stop - block_start] for column in last_read[1]))
                place = stop
                number += 1
            rows = _join(parts)
            if not self.shuffle:
                return rows
            buffer_generator = torch.Generator().manual_seed(buffer_seeds[buffer_start // self.buffer])
            order = torch.randperm(buffer_end - buffer_start, generator=buffer_generator)
            return tuple(column[order] for column in rows)

        with ThreadPoolExecutor(1) as reader:
            next_buffer = reader.submit(read_buffer, start)
            for buffer_start in range(start + self.buffer, end, self.buffer):
                rows = next_buffer.result()
                next_buffer = reader.submit(read_buffer, buffer_start)
                yield rows
            yield next_buffer.result()


class _Loader(DataLoader[RowTensors]):
    """A DataLoader that keeps the state of its stream up to date."""

    dataset: Stream

    def __iter__(self) -> Any:
        self.dataset._check_workers(self.num_workers)  # here, where the error is one line
        batches = super().__iter__()
        return self.dataset._track_position(batches, self.num_workers) if self.num_workers else batches


def _join(parts: list[RowTensors]) -> RowTensors:
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))
