"""Samplers of whole batches, for ``DataLoader(batch_sampler=...)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from metricgrad.core.checksums import checksum
from metricgrad.core.inputs import whole_number
from metricgrad.training.samplers.classes import (
    check_targets,
    draw,
    members_of_classes,
    number_classes,
    shuffle_within_classes,
)
from metricgrad.training.samplers.epochs import Epochs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metricgrad.core.inputs import ArrayLike


class _Batches(Epochs):
    """A sampler of batches, for ``DataLoader(batch_sampler=...)``."""

    _data: int  # the checksum of the targets

    def __init__(
        self, samples: int, batch_size: int, batches: int, seed: int, rank: int | None, world_size: int | None
    ) -> None:
        super().__init__(seed, rank, world_size)
        self.batch_size, self.batches = batch_size, batches
        if samples // batches < self.world_size:
            raise ValueError(
                f"batch_size: expected batches with a sample for each of {self.world_size} processes, got batches of "
                f"{samples // batches} ({samples} samples, batch_size={batch_size}); use a larger one"
            )

    def __len__(self) -> int:
        return self.batches

    def _depends_on(self) -> dict[str, float | str]:
        settings = {"batch_size": self.batch_size, "batches": self.batches}
        return {"kind": type(self).__name__, **settings, "data": self._data}  # on any number of processes

    def _grouped(self, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return the sample indices of an epoch, those of one batch together and in order of class, and the sizes."""
        raise NotImplementedError

    def _plan(self, generator: Generator) -> Iterator[list[int]]:
        indices, sizes = self._grouped(generator)
        for batch in indices.split(sizes.tolist()):
            # Every W-th of a batch in order of class: a part has the proportions of the whole.
            yield batch[self.rank :: self.world_size].tolist()


class StratifiedBatchSampler(_Batches):
    """Batches with the class proportions of the data, up to rounding; every sample once an epoch.

    For ``DataLoader(batch_sampler=...)``. The samples are ordered by class, at random within a class, and go to the
    batches in turn. Batches differ in size by one sample at most, and none is larger than ``batch_size``. For ``(N,
    K)`` labels each combination of labels is a class, and combinations are ordered by their rarest labels first, so
    that rare labels spread evenly too.

    Parameters
    ----------
    targets : Tensor or array-like
        0/1 or class indices ``(N,)``, or 0/1 labels ``(N, K)``, as torch, numpy, pandas or lists.
    batch_size : int
        The size of a batch over all processes; each process gets its disjoint part of it.
    drop_last : bool, default False
        Make all batches of exactly ``batch_size`` and drop the rest, of every class alike.
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
        The number of batches of the epoch that were drawn.

    Raises
    ------
    ValueError
        If a batch has fewer samples than there are processes, or the targets are no classes or labels.

    Examples
    --------
    >>> sampler = StratifiedBatchSampler([0, 0, 0, 0, 1, 1], batch_size=3)
    >>> [sorted(i // 4 for i in batch) for batch in sampler]
    [[0, 0, 1], [0, 0, 1]]

    """

    def __init__(
        self,
        targets: ArrayLike,
        batch_size: int,
        *,
        drop_last: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        given = check_targets(targets)
        self.classes, self._data = number_classes(given), int(checksum(given))
        samples, size = len(self.classes), whole_number("batch_size", batch_size, 1)
        if drop_last and samples < size:
            raise ValueError(f"batch_size: expected at most the {samples} samples with drop_last=True, got {size}")
        self.drop_last = drop_last
        number = samples // size if drop_last else -(-samples // size)
        super().__init__(samples, size, number, seed, rank, world_size)

    def _depends_on(self) -> dict[str, float | str]:
        return {**super()._depends_on(), "drop_last": self.drop_last}

    def _grouped(self, generator: Generator) -> tuple[Tensor, Tensor]:
        order = shuffle_within_classes(self.classes, generator)
        if self.drop_last:
            kept = self.batches * self.batch_size
            order = order[torch.arange(kept) * len(order) // kept]
        batch = torch.randperm(self.batches, generator=generator)[torch.arange(len(order)) % self.batches]
        return order[batch.argsort(stable=True)], torch.bincount(batch, minlength=self.batches)


class ClassBalancedBatchSampler(_Batches):
    """Batches with the same number of samples of every class, up to rounding, all of exactly ``batch_size``.

    For ``DataLoader(batch_sampler=...)``. An epoch has as many samples as the data unless ``batches`` is given: each
    sample of a rare class comes several times, of a frequent class only some samples come. Nothing is repeated before
    all others of its class were drawn.

    Parameters
    ----------
    targets : Tensor or array-like
        0/1 or class indices ``(N,)``, as torch, numpy, pandas or lists.
    batch_size : int
        The size of a batch over all processes; each process gets its disjoint part of it.
    batches : int, optional
        The number of batches of an epoch; by default as many as hold all samples once.
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
        The number of batches of the epoch that were drawn.

    Raises
    ------
    ValueError
        If a batch has fewer samples than there are processes, or the targets are no classes.

    Examples
    --------
    >>> sampler = ClassBalancedBatchSampler([0, 0, 0, 0, 0, 0, 0, 1], batch_size=4)
    >>> [[i // 7 for i in batch] for batch in sampler]
    [[0, 0, 1, 1], [0, 0, 1, 1]]

    """

    def __init__(
        self,
        targets: ArrayLike,
        batch_size: int,
        *,
        batches: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        given = check_targets(targets, axes=(1,))
        self.classes, self._data = number_classes(given), int(checksum(given))
        size = whole_number("batch_size", batch_size, 1)
        number = -(-len(self.classes) // size) if batches is None else whole_number("batches", batches, 1)
        super().__init__(number * size, size, number, seed, rank, world_size)

    def _grouped(self, generator: Generator) -> tuple[Tensor, Tensor]:
        groups = members_of_classes(self.classes)
        slots = torch.arange(self.batches * self.batch_size)
        indices = torch.empty_like(slots)
        for k, members in enumerate(groups):
            own = slots[k :: len(groups)]
            indices[own] = draw(members, len(own), generator)
        sizes = torch.full((self.batches,), self.batch_size)
        by_class = (slots % len(groups)).view(self.batches, self.batch_size).argsort(dim=1, stable=True)
        return indices.view_as(by_class).gather(1, by_class).view(-1), sizes


class MinimumPositivesBatchSampler(_Batches):
    """Batches with at least ``minimum`` positives; every sample at least once an epoch, only positives repeated.

    For ``DataLoader(batch_sampler=...)``. 0/1 targets: positives are the ones. Class indices: at least ``minimum`` of
    every class. ``(N, K)`` labels: at least ``minimum`` positives of every label that has any. The samples go to the
    batches as by ``StratifiedBatchSampler``; then, the rarest label first, each batch that lacks positives of it gets
    further ones, in turn from all there are, which count for their other labels too. There are as many batches as it
    takes for none to exceed ``batch_size``, the same number in every epoch.

    Parameters
    ----------
    targets : Tensor or array-like
        0/1 or class indices ``(N,)``, or 0/1 labels ``(N, K)``, as torch, numpy, pandas or lists.
    batch_size : int
        The size of a batch over all processes; each process gets its disjoint part of it.
    minimum : int, default 1
        The least number of positives of a batch, of each label or class.
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
        The number of batches of the epoch that were drawn.

    Raises
    ------
    ValueError
        If there are no positives, or a batch is too small to hold ``minimum`` of each label and one more sample.

    Examples
    --------
    >>> sampler = MinimumPositivesBatchSampler([1] + [0] * 9, batch_size=4, minimum=1)
    >>> [0 in batch for batch in sampler]
    [True, True, True]

    """

    def __init__(
        self,
        targets: ArrayLike,
        batch_size: int,
        minimum: int = 1,
        *,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        given = check_targets(targets)
        self.classes, self.minimum = number_classes(given), whole_number("minimum", minimum, 1)
        self._data = int(checksum(given))
        if given.dim() == 1 and given.max() <= 1:
            given = given.unsqueeze(1)  # one label: the ones
        self._labels = given[:, given.sum(0) > 0] if given.dim() == 2 else None
        columns = None if self._labels is None else self._labels.unbind(1)
        self._members = (
            members_of_classes(self.classes) if columns is None else [c.nonzero().squeeze(1) for c in columns]
        )
        if not self._members:
            raise ValueError("targets: expected positives, got none")
        samples, size = len(given), whole_number("batch_size", batch_size, 1)
        super().__init__(samples, size, self._number(samples, size), seed, rank, world_size)

    def _depends_on(self) -> dict[str, float | str]:
        return {**super()._depends_on(), "minimum": self.minimum}

    def _number(self, samples: int, size: int) -> int:
        """Return how many batches it takes, within a per cent, for samples and added positives to fit."""
        order, batches = self.classes.argsort(stable=True), -(-samples // size)
        while batches <= samples:
            place = torch.arange(samples) % batches
            added = self._missing(self._count(order, place, batches)).sum(1)
            if int((torch.bincount(place) + added).max()) <= size:
                return batches
            # More batches lack more positives: at least as many as hold all of these, then a per cent more at a time.
            batches = max(-(-(samples + int(added.sum())) // size), batches + 1 + batches // 100)
        raise ValueError(
            f"batch_size: expected room for {self.minimum} positives of each of {len(self._members)} labels and one "
            f"more sample, got {size}"
        )

    def _count(self, order: Tensor, place: Tensor, batches: int) -> Tensor:
        """Return the positives of each label in each batch, ``(batches, K)``, of samples and their places."""
        batch = torch.empty_like(order)
        batch[order] = place
        return torch.stack([torch.bincount(batch[own], minlength=batches) for own in self._members], 1)

    def _missing(self, present: Tensor) -> Tensor:
        return (self.minimum - present).clamp(min=0)

    def _grouped(self, generator: Generator) -> tuple[Tensor, Tensor]:
        order = shuffle_within_classes(self.classes, generator)
        place = torch.arange(len(order)) % self.batches
        present = self._count(order, place, self.batches)
        samples, places = [order], [place]
        for k in sorted(range(len(self._members)), key=lambda k: len(self._members[k])):
            missing = self._missing(present[:, k])
            drawn = draw(self._members[k], int(missing.sum()), generator)
            place = torch.arange(self.batches).repeat_interleave(missing)
            if self._labels is not None:
                present.index_add_(0, place, self._labels[drawn].long())
            samples.append(drawn)
            places.append(place)
        indices, place = torch.cat(samples), torch.randperm(self.batches, generator=generator)[torch.cat(places)]
        by_class = self.classes[indices].argsort(stable=True)
        return indices[by_class[place[by_class].argsort(stable=True)]], torch.bincount(place)
