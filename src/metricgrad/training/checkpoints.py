"""Checkpoints: everything a run needs to go on, in one file that is always whole."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
import random
import sys
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

FORMAT = 1
"""Grows when an older version of this library could not read what is written."""


class Checkpoint:
    """The latest state of a run, in a folder.

    ``save(model=model, optimiser=optimiser, loss=loss, data=stream, step=step)`` writes the state of whatever has a
    ``state_dict()`` (modules, optimisers, schedulers; the losses' own: schedules of surrogates and multipliers; streams
    and samplers), of ``torch.Generator``, plain values as they are, and the random states of Python, numpy and torch.
    ``load(model=model, ...)`` puts all that back. A run that saves and loads at the same place in its loop is, on a
    CPU, the run that was never interrupted, bit for bit.

    The file is written beside, flushed to the disk and renamed: killed at any moment, there is the previous checkpoint
    or the new one, whole. If it cannot be written (no space, no right) the previous one stays and ``OSError`` says so.
    It is read without running code from it (``weights_only=True``), so that only tensors and plain values are taken.

    Where ``torch.distributed`` runs, every process calls both, at the same step: the first process's parts are written,
    with the random states of all. The folder must be one that all processes see.

    >>> import tempfile
    >>> model, folder = torch.nn.Linear(2, 1), tempfile.mkdtemp()
    >>> Checkpoint(folder).load(model=model)  # none yet
    >>> Checkpoint(folder).save(model=model, step=7)
    >>> Checkpoint(folder).load(model=model)
    {'step': 7}
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "checkpoint.pt"

    def save(self, **parts: Any) -> None:
        """Replace the checkpoint by one of these parts."""
        state = {name: _state(name, part) for name, part in parts.items()}
        chances = _of_all_processes(random_state())
        if _rank() == 0:
            buffer = io.BytesIO()
            torch.save({"format": FORMAT, "parts": state, "random": chances}, buffer)
            self._write(buffer.getbuffer())

    def _write(self, data: memoryview) -> None:
        fresh = self.path.with_suffix(".part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            kept = "; the previous one is kept" if self.path.is_file() else ""
            raise OSError(
                error.errno, f"checkpoint: {str(self.path)!r} could not be written: {error.strerror}{kept}"
            ) from error

    def load(self, **parts: Any) -> dict[str, Any] | None:
        """Put the checkpoint's state into these parts, and the random state back; return what else was saved.

        None, and nothing is changed, if there is no checkpoint yet.
        """
        if not self.path.is_file():
            return None
        try:
            found = torch.load(self.path, map_location="cpu", weights_only=True)
            version, state, chances = (found[key] for key in ("format", "parts", "random"))
        except (OSError, RuntimeError, ValueError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
            raise ValueError(f"folder: expected a checkpoint by Checkpoint.save, got {str(self.path)!r}") from error
        if version > FORMAT:
            raise ValueError(
                f"folder: expected format {FORMAT}, got the newer {version}; upgrade metricgrad to load it"
            )
        if missing := parts.keys() - state.keys():
            raise ValueError(f"parts: {sorted(missing)} are not in {str(self.path)!r}, which has {sorted(state)}")
        if len(chances) != _size():
            raise ValueError(
                f"folder: expected a checkpoint of {_size()} processes, as here, got one of {len(chances)}"
            )
        for name, part in parts.items():
            if isinstance(part, torch.Generator):
                part.set_state(state.pop(name))
            else:
                part.load_state_dict(state.pop(name))
        set_random_state(chances[_rank()])
        return state  # type: ignore[no-any-return]


def random_state() -> dict[str, Any]:
    """Return the random states of Python, torch and, where it is in use, numpy, as plain values."""
    found: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state_all()
    if numpy := sys.modules.get("numpy"):
        kind, words, *rest = numpy.random.get_state()
        found["numpy"] = (kind, words.tolist(), *rest)
    return found


def set_random_state(state: dict[str, Any]) -> None:
    """Put random states back."""
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        importlib.import_module("numpy").random.set_state(state["numpy"])


def _state(name: str, part: Any) -> Any:
    """Return the state of a part, or raise if it could not be read again."""
    if isinstance(part, torch.Generator):
        return part.get_state()
    state = part.state_dict() if hasattr(part, "state_dict") else part
    _check_plain(name, state)
    return state


def _check_plain(name: str, value: Any) -> None:
    """Refuse now what ``weights_only`` would refuse when it is needed."""
    if type(value) in (dict, OrderedDict, Counter):
        for key, item in value.items():
            _check_plain(name, key)
            _check_plain(f"{name}[{key!r}]", item)
    elif type(value) in (list, tuple, set):
        for item in value:
            _check_plain(name, item)
    elif not (value is None or isinstance(value, Tensor) or type(value) in _PLAIN):
        raise ValueError(f"{name}: expected tensors and plain values, got {type(value).__name__}; convert it")


_PLAIN = (bool, int, float, complex, str, bytes, torch.Size, torch.dtype, torch.device)


def _sync_folder(folder: Path) -> None:
    """Make the renaming last through a power cut, where folders can be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _of_all_processes(state: Any) -> list[Any]:
    found: list[Any] = [state]
    if _size() > 1:
        found *= _size()
        dist.all_gather_object(found, state)
    return found
