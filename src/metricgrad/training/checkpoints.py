"""Checkpoints: everything a run needs to continue, in one file that is whole and verified."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import re
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch

from metricgrad.atomic_files import make_temporary_path, replacing, wait_until_written
from metricgrad.training import states

if TYPE_CHECKING:
    from collections.abc import Iterator

fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None

FORMAT = 2
"""Grows when an older version of this library could not read what is written."""

# The file: this line, the sha256 of that line and the content, and the content, which is what torch.save writes.
_LINE = b"metricgrad checkpoint %d\n"
_HEADER = re.compile(rb"metricgrad checkpoint (\d{1,9})\n([0-9a-f]{64})\n")


class Checkpoint:
    """The latest state of a run, in a folder.

    ``save(model=model, optimiser=optimiser, loss=loss, data=stream, step=step)`` writes the state of whatever has a
    ``state_dict()`` (modules, optimisers, schedulers; losses with their schedules and multipliers; streams and
    samplers), of ``torch.Generator``, plain values as they are, and the random states of Python, numpy and torch.
    ``load(model=model, ...)`` restores all that. A run that saves and loads at the same place in its loop is, on a
    CPU, the run that was never interrupted, bit for bit.

    The file is written under a name of its own, flushed to the disk and renamed: if the process is killed at any
    moment, there is the previous checkpoint or the new one, complete. It begins with its sha256, which is checked
    before anything is read from it, and it is read without running code from it (``weights_only=True``), so that only
    tensors and plain values are taken.

    Where ``torch.distributed`` runs, **every process calls both**, at the same step: the parts of the first process are
    written, with the random states and generators of all. Parameters and optimiser states that are sharded
    (``fully_shard``, DTensor) are gathered and written whole, and sharded again by ``load``. The folder must be one
    that all processes see, and as many processes as saved must load.

    Parameters
    ----------
    folder : str or Path
        Where the checkpoint is; it is created when needed.

    Attributes
    ----------
    path : Path
        The file of the checkpoint.

    Examples
    --------
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
        """Replace the checkpoint by one of these parts; every process calls it.

        Parameters
        ----------
        **parts : Any
            By name, what has a ``state_dict()``, a ``torch.Generator``, or a plain value.

        Raises
        ------
        OSError
            If it cannot be written (no space, no permission); the previous one is kept.
        ValueError
            If a part could not be loaded again.

        """
        part_states = {}
        layouts = {}
        generators = {}
        for name, part in parts.items():
            part_states[name] = states.get_state(name, part)
            if isinstance(part, torch.optim.Optimizer):
                layouts[name] = states.describe_optimiser(part)
            if isinstance(part, torch.Generator):
                generators[name] = part.get_state()
        random_states = states.gather_from_processes({**states.get_random_state(), "generators": generators})
        failure: OSError | None = None
        if states.get_rank() == 0:
            buffer = io.BytesIO()
            torch.save({"parts": part_states, "layouts": layouts, "random": random_states}, buffer)
            try:
                self._write(_add_checksum(buffer.getbuffer()))
            except OSError as error:
                failure = error
        # When this returns, the file is there for all processes; when it fails, it fails on all.
        failure = states.gather_from_processes(failure)[0]
        if failure is not None:
            raise failure

    def _write(self, data: list[bytes | memoryview]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()
            new_path, file = self._open_new_file()
            with file, replacing(self.path, new_path):
                for piece in data:
                    file.write(piece)
                file.flush()
                if fcntl is None:
                    file.close()  # Windows renames no open file
            wait_until_written(self.path.parent)  # so that the renaming lasts through a power cut
        except OSError as error:
            kept = "; the previous one is kept" if self.path.is_file() else ""
            raise OSError(
                error.errno, f"checkpoint: {str(self.path)!r} could not be written: {error.strerror}{kept}"
            ) from error

    def _open_new_file(self) -> tuple[Path, IO[bytes]]:
        """Return a new file beside the checkpoint that no other process writes to, locked while it is open."""
        while True:
            path = make_temporary_path(self.path, mark=".")
            file = path.open("xb")
            if _lock(file) is not False and path.exists():
                return path, file
            file.close()  # another process took it for a leftover before it was locked

    def _remove_leftovers(self) -> None:
        """Remove what processes that were killed while writing left behind; a file that is being written is locked."""
        for path in self.path.parent.glob(f".{self.path.name}.*"):
            with contextlib.suppress(OSError), path.open("r+b") as file:
                if _lock(file):
                    path.unlink()

    def load(self, **parts: Any) -> dict[str, Any] | None:
        """Put the saved state into these parts, and the random state back; every process calls it.

        Parameters
        ----------
        **parts : Any
            By the names they were saved under, what is to take its state.

        Returns
        -------
        dict or None
            What else was saved, by name; None, with nothing changed, if there is no checkpoint yet.

        Raises
        ------
        ValueError
            If the file was damaged, or its content does not fit the parts; some of them may have been loaded by then.

        """
        content = self._read()
        if content is None:
            return None
        part_states, layouts, random_states = self._unpack(content)
        del content
        if missing := parts.keys() - part_states.keys():
            raise ValueError(f"parts: {sorted(missing)} are not in {str(self.path)!r}, which has {sorted(part_states)}")
        if len(random_states) != states.get_world_size():
            raise ValueError(
                f"folder: expected a checkpoint of {states.get_world_size()} processes, as here, got one of "
                f"{len(random_states)}; start as many as saved it"
            )
        own_random_state = random_states[states.get_rank()]
        for name, part in parts.items():
            saved = part_states.pop(name)
            with _errors_in_one_line(name, self.path):
                if isinstance(part, torch.Generator):
                    part.set_state(own_random_state["generators"][name])
                else:
                    states.load_state(part, saved, layouts.get(name))
        with _errors_in_one_line("random state", self.path):
            states.set_random_state(own_random_state)
        return part_states

    def _read(self) -> bytes | None:
        """Return the content of the file, if there is one, the same on all processes, or raise on all."""
        content = None
        sha256 = ""
        problem = None
        if self.path.is_file():
            try:
                content, sha256 = _read_verified(self.path)
            except ValueError as error:
                problem = error
        found = states.gather_from_processes(sha256 or str(problem))
        if problem is not None:
            raise problem
        if len(set(found)) > 1:
            raise ValueError(f"folder: expected one that all processes see, got different files at {str(self.path)!r}")
        return content

    def _unpack(self, data: bytes) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
        """Return the states of the parts, the layouts of optimisers, and the random states."""
        try:
            found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            part_states = found["parts"]
            layouts = found["layouts"]
            random_states = found["random"]
            is_complete = (
                type(part_states) is type(layouts) is dict
                and type(random_states) is list
                and all(type(name) is str for name in part_states)
                and all(type(random_state) is dict for random_state in random_states)
            )
        except Exception as error:
            raise _not_a_checkpoint(self.path) from error
        if not is_complete:
            raise _not_a_checkpoint(self.path)
        return part_states, layouts, random_states


def _add_checksum(content: memoryview) -> list[bytes | memoryview]:
    """Return the pieces of a file: its first line, the sha256 of this and the content, and the content."""
    line = _LINE % FORMAT
    return [line, _sha256(line, content).encode() + b"\n", content]


def _read_verified(path: Path) -> tuple[bytes, str]:
    """Return the content of a file and its sha256, or raise unless every byte is as it was written."""
    try:
        with path.open("rb") as file:
            line = file.readline(64)
            sha256_line = file.readline(66)
            content = file.read()
    except OSError as error:
        raise ValueError(f"folder: expected a checkpoint, {str(path)!r} cannot be read: {error.strerror}") from error
    header = _HEADER.fullmatch(line + sha256_line)
    if header is None and line[:2] == b"PK":
        raise ValueError(
            f"folder: expected a checkpoint with its sha256, got one of an older version, {str(path)!r}; load it with "
            "the version of metricgrad that wrote it, or remove it to start again"
        )
    if header is None:
        raise _not_a_checkpoint(path)
    if _sha256(line, content) != header[2].decode():
        raise ValueError(
            f"folder: {str(path)!r} was changed or cut short since it was written (its sha256 differs); restore it "
            "from a copy, or remove it to start again"
        )
    if int(header[1]) != FORMAT:
        raise ValueError(
            f"folder: expected format {FORMAT}, got {int(header[1])}; load it with a metricgrad that has it"
        )
    return content, header[2].decode()


def _sha256(*pieces: bytes | memoryview) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _not_a_checkpoint(path: Path) -> ValueError:
    return ValueError(f"folder: expected a checkpoint by Checkpoint.save, got {str(path)!r}")


@contextlib.contextmanager
def _errors_in_one_line(name: str, path: Path) -> Iterator[None]:
    """Raise whatever goes wrong while a part takes its state as one line."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(
            f"{name}: its state in {str(path)!r} does not fit ({reason}); make the parts as they were when it was saved"
        ) from error


def _lock(file: IO[bytes]) -> bool | None:
    """Lock an open file until it is closed or its process dies; False if another process has it, None if unknown."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True
