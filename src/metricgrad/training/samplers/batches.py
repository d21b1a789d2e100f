"""Samplers of whole batches, for ``DataLoader(batch_sampler=...)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from metricgrad.core.checksums import checksum
from metricgrad.core.inputs import whole_number
from metricgrad.training.samplers.classes import (
    check_targets,
    draw_members,
    members_of_classes,
    number_classes,
    shuffle_within_classes,
)
from metricgrad.training.samplers.epochs import Epochs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metricgrad.core.inputs import ArrayLike


class _BatchSampler(Epochs):
    """A sampler of batches, for ``DataLoader(batch_sampler=...)``."""

    _data: int  # the checksum of the targets

    def __init__(
        self, samples: int, batch_size: int, batches: int, seed: int, rank: int | None, world_size: int | None
    ) -> None:
        super().__init__(seed, rank, world_size)
        self.batch_size = batch_size
        self.batches = batches
        if samples // batches < self.world_size:
            raise ValueError(
                f"batch_size: expected batches with a sample for each of {self.world_size} processes, got batches of "
                f"{samples // batches} ({samples} samples, batch_size={batch_size}); use a larger one"
            )

    def __len__(self) -> int:
        return self.batches

    def _depends_on(self) -> dict[str, float | str]:
        # Not on the number of processes.
        return {
            "kind": type(self).__name__,
            "batch_size": self.batch_size,
            "batches": self.batches,
            "data": self._data,
        }

    def _draw_epoch(self, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return the sample indices of an epoch, those of one batch together and in order of class, and the sizes."""
        raise NotImplementedError

    def _iterate_epoch(self, generator: Generator) -> Iterator[list[int]]:
        indices, sizes = self._draw_epoch(generator)
        for batch in indices.split(sizes.tolist()):
            # Every W-th of a batch in order of class: a part has the proportions of the whole.
            yield batch[self.rank :: self.world_size].tolist()


class StratifiedBatchSampler(_BatchSampler):
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
        self.classes = number_classes(given)
        self._data = int(checksum(given))
        samples = len(self.classes)
        size = whole_number("batch_size", batch_size, 1)
        if drop_last and samples < size:
            raise ValueError(f"batch_size: expected at most the {samples} samples with drop_last=True, got {size}")
        self.drop_last = drop_last
        batches = samples // size if drop_last else -(-samples // size)
        super().__init__(samples, size, batches, seed, rank, world_size)

    def _depends_on(self) -> dict[str, float | str]:
        return {**super()._depends_on(), "drop_last": self.drop_last}

    def _draw_epoch(self, generator: Generator) -> tuple[Tensor, Tensor]:
        order = shuffle_within_classes(self.classes, generator)
        if self.drop_last:
            kept = self.batches * self.batch_size
            order = order[torch.arange(kept) * len(order) // kept]
        batch_order = torch.randperm(self.batches, generator=generator)
        batch = batch_order[torch.arange(len(order)) % self.batches]
        sizes = torch.bincount(batch, minlength=self.batches)
        return order[batch.argsort(stable=True)], sizes


class ClassBalancedBatchSampler(_BatchSampler):
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
        self.classes = number_classes(given)
        self._data = int(checksum(given))
        size = whole_number("batch_size", batch_size, 1)
        if batches is None:
            batches = -(-len(self.classes) // size)
        batches = whole_number("batches", batches, 1)
        super().__init__(batches * size, size, batches, seed, rank, world_size)

    def _draw_epoch(self, generator: Generator) -> tuple[Tensor, Tensor]:
        groups = members_of_classes(self.classes)
        slots = torch.arange(self.batches * self.batch_size)
        indices = torch.empty_like(slots)
        for k, members in enumerate(groups):
            class_slots = slots[k :: len(groups)]
            indices[class_slots] = draw_members(members, len(class_slots), generator)
        class_of_slot = (slots % len(groups)).view(self.batches, self.batch_size)
        by_class = class_of_slot.argsort(dim=1, stable=True)
        sizes = torch.full((self.batches,), self.batch_size)
        return indices.view_as(by_class).gather(1, by_class).view(-1), sizes


class MinimumPositivesBatchSampler(_BatchSampler):
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
        self.classes = number_classes(given)
        self.minimum = whole_number("minimum", minimum, 1)
        self._data = int(checksum(given))
        if given.dim() == 1 and given.max() <= 1:
            given = given.unsqueeze(1)  # one label: the ones
        self._labels: Tensor | None = None
        if given.dim() == 2:
            self._labels = given[:, given.sum(0) > 0]
            self._members = [column.nonzero().squeeze(1) for column in self._labels.unbind(1)]
        else:
            self._members = members_of_classes(self.classes)
        if not self._members:
            raise ValueError("targets: expected positives, got none")
        samples = len(given)
        size = whole_number("batch_size", batch_size, 1)
        super().__init__(samples, size, self._count_batches(samples, size), seed, rank, world_size)

    def _depends_on(self) -> dict[str, float | str]:
        return {**super()._depends_on(), "minimum": self.minimum}

    def _count_batches(self, samples: int, size: int) -> int:
        """Return how many batches it takes, within a per cent, for samples and added positives to fit."""
        order = self.classes.argsort(stable=True)
        batches = -(-samples // size)
        while batches <= samples:
            place = torch.arange(samples) % batches
            added = self._count_missing(self._count_positives(order, place, batches)).sum(1)
            if int((torch.bincount(place) + added).max()) <= size:
                return batches
            # More batches lack more positives: at least as many as hold all of these, then a per cent more at a time.
            least = -(-(samples + int(added.sum())) // size)
            batches = max(least, batches + 1 + batches // 100)
        raise ValueError(
            f"batch_size: expected room for {self.minimum} positives of each of {len(self._members)} labels and one "
            f"more sample, got {size}"
        )

    def _count_positives(self, order: Tensor, place: Tensor, batches: int) -> Tensor:
        """Return the positives of each label in each batch, ``(batches, K)``, of samples and their places."""
        batch = torch.empty_like(order)
        batch[order] = place
        return torch.stack([torch.bincount(batch[own], minlength=batches) for own in self._members], 1)

    def _count_missing(self, present: Tensor) -> Tensor:
        return (self.minimum - present).clamp(min=0)

    def _draw_epoch(self, generator: Generator) -> tuple[Tensor, Tensor]:
        order = shuffle_within_classes(self.classes, generator)
        place = torch.arange(len(order)) % self.batches
        present = self._count_positives(order, place, self.batches)
        samples = [order]
        places = [place]
        rarest_first = sorted(range(len(self._members)), key=lambda k: len(self._members[k]))
        for k in rarest_first:
            missing = self._count_missing(present[:, k])
            drawn = draw_members(self._members[k], int(missing.sum()), generator)
            place = torch.arange(self.batches).repeat_interleave(missing)
            if self._labels is not None:
                present.index_add_(0, place, self._labels[drawn].long())
            samples.append(drawn)
            places.append(place)
        indices = torch.cat(samples)
        batch_order = torch.randperm(self.batches, generator=generator)
        batch = batch_order[torch.cat(places)]
        by_class = self.classes[indices].argsort(stable=True)
        by_batch = batch[by_class].argsort(stable=True)
        return indices[by_class[by_batch]], torch.bincount(batch)
