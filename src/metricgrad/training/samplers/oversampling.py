"""``OversamplingSampler``: rare classes repeated, sample by sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Generator

from metricgrad.core.checksums import checksum
from metricgrad.training.samplers.classes import check_targets, draw_members, members_of_classes, number_classes
from metricgrad.training.samplers.epochs import Epochs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metricgrad.core.inputs import ArrayLike


class OversamplingSampler(Epochs):
    """Samples of rare classes repeated until each class has ``ratio`` × the size of the largest [tsoi2022, table 10].

    For ``DataLoader(sampler=..., batch_size=...)``. Every sample comes at least once, and the repetitions of two
    samples of a class differ by one at most. (The paper's code draws with replacement instead, and only as many as
    there are, so that an epoch lacks most of the majority.) Several processes share the epoch evenly, with a few
    samples repeated to make it even.

    Parameters
    ----------
    targets : Tensor or array-like
        0/1 or class indices ``(N,)``, as torch, numpy, pandas or lists.
    ratio : float, default 1.0
        The size of each class compared with the largest, in (0, 1].
    seed : int, default 0
        The order of an epoch follows from the seed and the epoch alone.
    rank : int, optional
        The number of this process, together with ``world_size``; by default that of ``torch.distributed`` if it runs,
        otherwise 0.
    world_size : int, optional
        The number of processes, together with ``rank``; by default that of ``torch.distributed`` if it runs, otherwise
        1.

    Attributes
    ----------
    epoch : int
        The epoch that the next iteration gives.
    position : int
        The number of samples of the epoch that were drawn.

    Raises
    ------
    ValueError
        If ``ratio`` is not in (0, 1], or the targets are no classes.

    Examples
    --------
    >>> sampler = OversamplingSampler([0, 0, 0, 0, 1, 1])
    >>> sorted(sampler)
    [0, 1, 2, 3, 4, 4, 5, 5]

    """

    def __init__(
        self,
        targets: ArrayLike,
        ratio: float = 1.0,
        *,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__(seed, rank, world_size)
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio: expected a number in (0, 1], got {ratio!r}")
        given = check_targets(targets, axes=(1,))
        self.ratio = float(ratio)
        self._data = int(checksum(given))
        self._members = members_of_classes(number_classes(given))
        largest = max(len(members) for members in self._members)
        self._sizes = [max(len(members), round(ratio * largest)) for members in self._members]

    def __len__(self) -> int:
        return -(-sum(self._sizes) // self.world_size)

    def _depends_on(self) -> dict[str, float | str]:
        settings = {"ratio": self.ratio, "world_size": self.world_size}  # a position is that in a process's share
        return {"kind": type(self).__name__, **settings, "data": self._data}

    def _iterate_epoch(self, generator: Generator) -> Iterator[int]:
        drawn = []
        for members, size in zip(self._members, self._sizes, strict=True):
            drawn.append(draw_members(members, size, generator))
        order = torch.randperm(sum(self._sizes), generator=generator)
        samples = torch.cat(drawn)[order]
        # A few are repeated, so that every process gets as many.
        even_samples = samples[torch.arange(len(self) * self.world_size) % len(samples)]
        yield from even_samples[self.rank :: self.world_size].tolist()
