"""Samplers: which samples make a batch, for rare classes and metrics that need positives in every batch.

A batch without positives gives a metric no gradient, and at 0.2 % positives most small batches have none. All samplers
here take the targets as torch, numpy, pandas or lists: 0/1 or class indices ``(N,)``, or 0/1 labels ``(N, K)`` where
said; and the keywords ``seed``, ``rank`` and ``world_size`` (those of ``torch.distributed``, if it runs). The order of
an epoch follows from the seed and the epoch alone, and an epoch that ran to its end moves on to the next.
``batch_size`` is that of the batch over all processes: each process gets its disjoint part of every batch, so that the
batches are the same on one process and on eight. A part has the classes of its batch up to one sample each, so that a
batch with at least as many samples of a class as there are processes gives every process one.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Generator, Tensor
from torch.utils.data import Sampler

from metricgrad.engine.checksums import checksum
from metricgrad.engine.inputs import as_tensor, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "ClassBalancedBatchSampler",
    "MinimumPositivesBatchSampler",
    "OversamplingSampler",
    "StratifiedBatchSampler",
]


_SEEDS, _EPOCHS = 2**63 - 1, 2**24  # as torch takes them; and a number is drawn for each epoch up to the present one


def _number(name: str, value: Any, most: int) -> int:
    number = whole_number(name, value, 0)
    if number > most:
        raise ValueError(f"{name}: expected a whole number of at most {most}, got {number}")
    return number


def epoch_generator(seed: int, epoch: int) -> Generator:
    """Return the random generator of an epoch, which follows from the seed and the epoch alone."""
    # One number of the seed's own sequence per epoch: seed + epoch would give seed 1 the epochs of seed 0.
    numbers = torch.randint(2**31, (epoch + 1,), generator=Generator().manual_seed(seed))
    return Generator().manual_seed(int(numbers[-1]))


class Epochs(Sampler[Any]):
    """The base of all samplers and streams: the seed, the epoch, this process's part, and the position in an epoch."""

    _place = ("epoch", "position", "_start", "workers")

    def __init__(self, seed: int = 0, rank: int | None = None, world_size: int | None = None) -> None:
        super().__init__()
        if (rank is None) != (world_size is None):
            raise ValueError(f"rank and world_size: expected both or none, got {rank!r} and {world_size!r}")
        if rank is None or world_size is None:
            there = dist.is_available() and dist.is_initialized()
            rank, world_size = (dist.get_rank(), dist.get_world_size()) if there else (0, 1)
        if not 0 <= rank < world_size:
            raise ValueError(f"rank: expected 0 to world_size - 1 = {world_size - 1}, got {rank!r}")
        self.seed, self.rank, self.world_size = _number("seed", seed, _SEEDS), rank, world_size
        self.epoch, self.position = 0, 0
        self._start = 0

    def _plan(self, generator: Generator) -> Iterator[Any]:
        """Yield this process's part of one epoch."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        epoch, self.position, self._start = self.epoch, self._start, 0
        for part in islice(self._plan(epoch_generator(self.seed, epoch)), self.position, None):
            self.position += 1
            yield part
        if self.epoch == epoch:
            self.epoch, self.position = epoch + 1, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration gives; if it is the current one, its position is kept.

        Parameters
        ----------
        epoch : int
            The number of the epoch, from 0.

        """
        if epoch != self.epoch:
            self.epoch, self.position, self._start = _number("epoch", epoch, _EPOCHS), 0, 0

    def bookmark(self) -> Callable[[], None]:
        """Return a function that goes back to the current position, so that the next iteration gives the same again.

        ``exact_backward`` reads an epoch twice by this.

        Returns
        -------
        callable
            Takes no arguments and returns None.

        """
        kept = {name: value for name, value in vars(self).items() if name in self._place}
        return lambda: vars(self).update(kept)

    def _depends_on(self) -> dict[str, Any]:
        """Return what the order follows from beside the seed and the epoch, as plain values by name."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return the seed, the epoch, how much of it was given out, and the data and settings behind the order.

        The data come as a checksum. Workers of a DataLoader fetch ahead of use, so the position is that of what was
        fetched.

        Returns
        -------
        dict
            Plain values by name, for ``load_state_dict`` and ``Checkpoint``.

        """
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position, **self._depends_on()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration continue from where the state was taken, with its seed.

        Between epochs the number of processes may change.

        Parameters
        ----------
        state : dict
            As ``state_dict`` returned it.

        Raises
        ------
        ValueError
            If the state was taken with other data or settings, since its position would be another one here.

        """
        here = self._depends_on()
        if not isinstance(state, dict) or (lacking := {"seed", "epoch", "position", *here} - state.keys()):
            got = f"one without {sorted(lacking)}" if isinstance(state, dict) else type(state).__name__
            raise ValueError(f"state: expected one by state_dict() of {type(self).__name__}, got {got}")
        for name, have in here.items():
            if state[name] == have or (name == "world_size" and not state["position"]):
                continue
            if name == "data":
                raise ValueError("state: expected one of these very data, got one of others; were they changed?")
            raise ValueError(f"state: expected one taken with {name}={have!r}, as here, got {name}={state[name]!r}")
        limits = {"seed": _SEEDS, "epoch": _EPOCHS, "position": len(self)}
        numbers = {name: _number(f"state[{name!r}]", state[name], most) for name, most in limits.items()}
        vars(self).update(numbers, _start=numbers["position"])


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

    def _depends_on(self) -> dict[str, Any]:
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

    For ``DataLoader(batch_sampler=...)``. The samples are ordered by class, at random within, and dealt to the batches
    like cards. Batches differ in size by one sample at most, and none is larger than ``batch_size``. For ``(N, K)``
    labels each combination of labels is a class, and combinations are ordered by their rarest labels first, so that
    rare labels spread evenly too.

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
        How much of the epoch was given out.

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
        targets: Any,
        batch_size: int,
        *,
        drop_last: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        given = _checked(targets)
        self.classes, self._data = _classes(given), int(checksum(given))
        samples, size = len(self.classes), whole_number("batch_size", batch_size, 1)
        if drop_last and samples < size:
            raise ValueError(f"batch_size: expected at most the {samples} samples with drop_last=True, got {size}")
        self.drop_last = drop_last
        number = samples // size if drop_last else -(-samples // size)
        super().__init__(samples, size, number, seed, rank, world_size)

    def _depends_on(self) -> dict[str, Any]:
        return {**super()._depends_on(), "drop_last": self.drop_last}

    def _grouped(self, generator: Generator) -> tuple[Tensor, Tensor]:
        order = _by_class(self.classes, generator)
        if self.drop_last:
            kept = self.batches * self.batch_size
            order = order[torch.arange(kept) * len(order) // kept]
        batch = torch.randperm(self.batches, generator=generator)[torch.arange(len(order)) % self.batches]
        return order[batch.argsort(stable=True)], torch.bincount(batch, minlength=self.batches)


class ClassBalancedBatchSampler(_Batches):
    """Batches with the same number of samples of every class, up to rounding, all of exactly ``batch_size``.

    For ``DataLoader(batch_sampler=...)``. An epoch has as many samples as the data unless ``batches`` is given: each
    sample of a rare class comes several times, of a frequent class only some samples come. Nothing is repeated before
    all others of its class were given out.

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
        How much of the epoch was given out.

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
        targets: Any,
        batch_size: int,
        *,
        batches: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        given = _checked(targets, axes=(1,))
        self.classes, self._data = _classes(given), int(checksum(given))
        size = whole_number("batch_size", batch_size, 1)
        number = -(-len(self.classes) // size) if batches is None else whole_number("batches", batches, 1)
        super().__init__(number * size, size, number, seed, rank, world_size)

    def _grouped(self, generator: Generator) -> tuple[Tensor, Tensor]:
        groups = _members(self.classes)
        slots = torch.arange(self.batches * self.batch_size)
        indices = torch.empty_like(slots)
        for k, members in enumerate(groups):
            own = slots[k :: len(groups)]
            indices[own] = _cycled(members, len(own), generator)
        sizes = torch.full((self.batches,), self.batch_size)
        by_class = (slots % len(groups)).view(self.batches, self.batch_size).argsort(dim=1, stable=True)
        return indices.view_as(by_class).gather(1, by_class).view(-1), sizes


class MinimumPositivesBatchSampler(_Batches):
    """Batches with at least ``minimum`` positives; every sample at least once an epoch, only positives repeated.

    For ``DataLoader(batch_sampler=...)``. 0/1 targets: positives are the ones. Class indices: at least ``minimum`` of
    every class. ``(N, K)`` labels: at least ``minimum`` positives of every label that has any. The samples are dealt as
    by ``StratifiedBatchSampler``; then, the rarest label first, each batch that lacks positives of it gets further
    ones, in turn from all there are, which count for their other labels too. There are as many batches as it takes for
    none to exceed ``batch_size``, the same number in every epoch.

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
        How much of the epoch was given out.

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
        targets: Any,
        batch_size: int,
        minimum: int = 1,
        *,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        given = _checked(targets)
        self.classes, self.minimum = _classes(given), whole_number("minimum", minimum, 1)
        self._data = int(checksum(given))
        if given.dim() == 1 and given.max() <= 1:
            given = given.unsqueeze(1)  # one label: the ones
        self._labels = given[:, given.sum(0) > 0] if given.dim() == 2 else None
        columns = None if self._labels is None else self._labels.unbind(1)
        self._members = _members(self.classes) if columns is None else [c.nonzero().squeeze(1) for c in columns]
        if not self._members:
            raise ValueError("targets: expected positives, got none")
        samples, size = len(given), whole_number("batch_size", batch_size, 1)
        super().__init__(samples, size, self._number(samples, size), seed, rank, world_size)

    def _depends_on(self) -> dict[str, Any]:
        return {**super()._depends_on(), "minimum": self.minimum}

    def _number(self, samples: int, size: int) -> int:
        """Return how many batches it takes, within a per cent, for what is dealt and added to fit into each batch."""
        order, batches = self.classes.argsort(stable=True), -(-samples // size)
        while batches <= samples:
            place = torch.arange(samples) % batches
            added = self._lacking(self._count(order, place, batches)).sum(1)
            if int((torch.bincount(place) + added).max()) <= size:
                return batches
            # More batches lack more, so fewer than hold all this cannot do; a per cent at a time where it is uneven.
            batches = max(-(-(samples + int(added.sum())) // size), batches + 1 + batches // 100)
        raise ValueError(
            f"batch_size: expected room for {self.minimum} positives of each of {len(self._members)} labels and one "
            f"more sample, got {size}"
        )

    def _count(self, order: Tensor, place: Tensor, batches: int) -> Tensor:
        """Return the positives of each label in each batch, ``(batches, K)``, of samples dealt to places."""
        batch = torch.empty_like(order)
        batch[order] = place
        return torch.stack([torch.bincount(batch[own], minlength=batches) for own in self._members], 1)

    def _lacking(self, there: Tensor) -> Tensor:
        return (self.minimum - there).clamp(min=0)

    def _grouped(self, generator: Generator) -> tuple[Tensor, Tensor]:
        order = _by_class(self.classes, generator)
        place = torch.arange(len(order)) % self.batches
        there = self._count(order, place, self.batches)
        samples, places = [order], [place]
        for k in sorted(range(len(self._members)), key=lambda k: len(self._members[k])):
            lacking = self._lacking(there[:, k])
            drawn = _cycled(self._members[k], int(lacking.sum()), generator)
            place = torch.arange(self.batches).repeat_interleave(lacking)
            if self._labels is not None:
                there.index_add_(0, place, self._labels[drawn].long())
            samples.append(drawn)
            places.append(place)
        indices, place = torch.cat(samples), torch.randperm(self.batches, generator=generator)[torch.cat(places)]
        by_class = self.classes[indices].argsort(stable=True)
        return indices[by_class[place[by_class].argsort(stable=True)]], torch.bincount(place)


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
        How much of the epoch was given out.

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
        targets: Any,
        ratio: float = 1.0,
        *,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__(seed, rank, world_size)
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio: expected a number in (0, 1], got {ratio!r}")
        given = _checked(targets, axes=(1,))
        self._members, self._data, self.ratio = _members(_classes(given)), int(checksum(given)), float(ratio)
        largest = max(len(own) for own in self._members)
        self._sizes = [max(len(own), round(ratio * largest)) for own in self._members]

    def __len__(self) -> int:
        return -(-sum(self._sizes) // self.world_size)

    def _depends_on(self) -> dict[str, Any]:
        settings = {"ratio": self.ratio, "world_size": self.world_size}  # a position is that in a process's share
        return {"kind": type(self).__name__, **settings, "data": self._data}

    def _plan(self, generator: Generator) -> Iterator[int]:
        drawn = [_cycled(own, size, generator) for own, size in zip(self._members, self._sizes, strict=True)]
        whole = torch.cat(drawn)[torch.randperm(sum(self._sizes), generator=generator)]
        even = whole[torch.arange(len(self) * self.world_size) % len(whole)]
        yield from even[self.rank :: self.world_size].tolist()


def _checked(targets: Any, axes: tuple[int, ...] = (1, 2)) -> Tensor:
    """Return targets as whole numbers on the CPU, or raise."""
    y = as_tensor("targets", targets).cpu()
    if y.dim() not in axes or not y.numel():
        wanted = " or ".join({1: "(N,) classes", 2: "(N, K) labels"}[n] for n in axes)
        raise ValueError(f"targets: expected {wanted}, at least one sample, got shape {tuple(y.shape)}")
    whole = y.long() if y.dim() == 1 else (y != 0).to(torch.uint8)
    if (whole != y).any() or whole.min() < 0:
        raise ValueError(f"targets: expected {'class indices' if y.dim() == 1 else '0 or 1'}, got other numbers")
    return whole


def _classes(y: Tensor) -> Tensor:
    """Return one class number per sample, 0, 1, …; of labels ``(N, K)`` one per combination, ordered by rare labels."""
    if y.dim() == 2:
        code = torch.zeros(len(y), dtype=torch.long)
        for digit, k in enumerate(y.sum(0).argsort(stable=True).tolist()):
            if digit % 32 == 31:  # keep clear of the 63 bits of an integer
                code = code.unique(return_inverse=True)[1]
            code = 2 * code + y[:, k]
        y = code
    classes: Tensor = y.unique(return_inverse=True)[1]
    return classes


def _members(classes: Tensor) -> list[Tensor]:
    """Return the samples of each class."""
    return list(classes.argsort(stable=True).split(torch.bincount(classes).tolist()))


def _by_class(classes: Tensor, generator: Generator) -> Tensor:
    """Return all samples in order of class, at random within."""
    shuffled = torch.randperm(len(classes), generator=generator)
    return shuffled[classes[shuffled].argsort(stable=True)]


def _cycled(members: Tensor, number: int, generator: Generator) -> Tensor:
    """Draw ``number`` members: all in random order, again and again."""
    if not number:
        return members[:0]
    rounds = -(-number // len(members))
    return members[torch.rand(rounds, len(members), generator=generator).argsort(1).view(-1)[:number]]
