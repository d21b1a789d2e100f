"""``Epochs``: the order of an epoch by its seed, this process's part of it, and a position that can be restored."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Generator
from torch.utils.data import Sampler

from metricgrad.core.inputs import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_SEED = 2**63 - 1  # as torch takes them
_MAX_EPOCH = 2**24  # a number is drawn for each epoch up to the present one


def _check_number(name: str, value: object, most: int) -> int:
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

    _position_names = ("epoch", "position", "_start", "workers")

    def __init__(self, seed: int = 0, rank: int | None = None, world_size: int | None = None) -> None:
        super().__init__()
        if (rank is None) != (world_size is None):
            raise ValueError(f"rank and world_size: expected both or none, got {rank!r} and {world_size!r}")
        if rank is None or world_size is None:
            running = dist.is_available() and dist.is_initialized()
            rank = dist.get_rank() if running else 0
            world_size = dist.get_world_size() if running else 1
        if not 0 <= rank < world_size:
            raise ValueError(f"rank: expected 0 to world_size - 1 = {world_size - 1}, got {rank!r}")
        self.seed = _check_number("seed", seed, _MAX_SEED)
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0
        self.position = 0
        self._start = 0  # where the next iteration begins

    def _iterate_epoch(self, generator: Generator) -> Iterator[Any]:
        """Yield this process's part of one epoch."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        epoch = self.epoch
        self.position = self._start
        self._start = 0
        whole_epoch = self._iterate_epoch(epoch_generator(self.seed, epoch))
        for part in islice(whole_epoch, self.position, None):
            self.position += 1
            yield part
        if self.epoch == epoch:
            self.epoch = epoch + 1
            self.position = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration gives; if it is the current one, its position is kept.

        Parameters
        ----------
        epoch : int
            The number of the epoch, from 0.

        """
        if epoch != self.epoch:
            self.epoch = _check_number("epoch", epoch, _MAX_EPOCH)
            self.position = 0
            self._start = 0

    def bookmark(self) -> Callable[[], None]:
        """Return a function that goes back to the current position, so that the next iteration repeats it.

        ``exact_backward`` reads an epoch twice by this.

        Returns
        -------
        callable
            Takes no arguments and returns None.

        """
        kept = {name: value for name, value in vars(self).items() if name in self._position_names}
        return lambda: vars(self).update(kept)

    def _depends_on(self) -> dict[str, float | str]:
        """Return what the order follows from beside the seed and the epoch, as plain values by name."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return the seed, the epoch, the position in it, and the data and settings behind the order.

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
            If the state was taken with other data or settings, since its position would not be the same.

        """
        settings = self._depends_on()
        if not isinstance(state, dict) or (missing := {"seed", "epoch", "position", *settings} - state.keys()):
            got = f"one without {sorted(missing)}" if isinstance(state, dict) else type(state).__name__
            raise ValueError(f"state: expected one by state_dict() of {type(self).__name__}, got {got}")
        for name, value in settings.items():
            is_between_epochs = not state["position"]
            if state[name] == value or (name == "world_size" and is_between_epochs):
                continue
            if name == "data":
                raise ValueError("state: expected one of these very data, got one of others; were they changed?")
            raise ValueError(f"state: expected one taken with {name}={value!r}, as here, got {name}={state[name]!r}")
        limits = {"seed": _MAX_SEED, "epoch": _MAX_EPOCH, "position": len(self)}
        numbers = {name: _check_number(f"state[{name!r}]", state[name], most) for name, most in limits.items()}
        vars(self).update(numbers, _start=numbers["position"])
