"""Folders of Parquet files, a task for each file: on processes of this machine, or on the workers of a cluster.

A worker that sees a file reads it there. If it does not, because it is on another machine, the bytes travel to it.
Results come back to the caller, who alone writes.
"""

from __future__ import annotations

import tempfile
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from metricgrad import strict_json
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.comparison.workers import Shared, run_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.comparison.workers import Workers

Found = TypeVar("Found")

HOW_TO_GO_ON = "call the command again"
"""What errors about lost workers and changed files tell the user to do."""


@dataclass(frozen=True)
class Part:
    """A file of a folder; ``stamp``: its size, time of modification and inode, by which a worker recognises it."""

    path: str
    stamp: tuple[int, int, int]

    @property
    def name(self) -> str:
        """The name of the file."""
        return Path(self.path).name


def list_parts(folder: Path) -> list[Part]:
    """Return the Parquet files of a folder in the order of their names; hidden ones and subfolders are left out."""
    files = [
        path for path in sorted(folder.glob("*.parquet")) if path.is_file() and not path.name.startswith((".", "_"))
    ]
    if not files:
        raise UserError(f"{folder}: expected a folder of files named *.parquet, got none")
    return [Part(str(path.resolve().parent / path.name), _stamp(path)) for path in files]


def _stamp(path: Path) -> tuple[int, int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns, about.st_ino


def check_cluster(data: str | Path, cluster: str | None) -> None:
    """Raise if a cluster is given for a single file."""
    if cluster is not None and not Path(data).is_dir():
        raise UserError(f"--cluster: expected a folder of Parquet files, got {str(data)!r}; leave it out", WRONG_CALL)


@dataclass(frozen=True, eq=False)
class PartTask:
    """What a process needs to use a model on a part.

    ``model``: ``Shared`` among tasks, a ``Model`` where the task runs. ``about``: what else the function needs.
    ``content``: for workers that do not see the file, ``Shared``; its bytes where the task runs. ``done``: the hash of
    the file if its result is known already; the function is not called for it again.
    """

    part: Part
    model: Any
    about: Any
    number: int
    content: Any = None
    done: str | None = None


@dataclass(frozen=True)
class NotHere:
    """The answer of a worker that does not see the file of its task."""


@dataclass(frozen=True)
class Unchanged:
    """The answer for a file whose result is known already."""


def share_model(run: str | Path) -> Shared:
    """Share the model of a run."""
    place = Path(run).resolve() / "model" / "manifest.json"
    return Shared(partial(_load_model, str(run), strict_json.sha256(place.read_bytes())))


@lru_cache(maxsize=1)
def _load_model(run: str, manifest: str) -> ShippedModel:
    """Load a model once in every process; ``manifest`` is the hash of its manifest, which has those of all files."""
    return runs.load(run).model


def map_parts(
    workers: Workers, function: Callable[[PartTask, Path, str], Found], tasks: Sequence[PartTask]
) -> Generator[tuple[PartTask, Found | Unchanged], None, None]:
    """Yield tasks with the results of ``function(task, path, sha256)`` as they finish; the latter are of the file."""
    waiting = deque(tasks)
    unchanged = deque[PartTask]()
    seen = True  # whether all workers have seen the files so far

    def take() -> PartTask | None:
        while waiting:
            task = waiting.popleft()
            if seen:
                return task
            content = Path(task.part.path).read_bytes()
            if strict_json.sha256(content) != task.done:
                return replace(task, content=Shared.value(content))
            unchanged.append(task)  # need not travel
        return None

    # While a worker computes, the file of its next task travels.
    for task, found in run_tasks(workers, partial(_run_part, function), take, each=2):
        if isinstance(found, NotHere):
            seen = False
            waiting.appendleft(task)
        else:
            yield replace(task, content=None), found
    for task in unchanged:
        yield task, Unchanged()


def _run_part(function: Callable[[PartTask, Path, str], Found], task: PartTask) -> Found | NotHere | Unchanged:
    with _find_file(task) as path:
        if path is None:
            return NotHere()
        sha256 = runs.hash_file(path)
        if sha256 == task.done:
            return Unchanged()
        try:
            found = function(task, path, sha256)
        except UserError as error:
            raise UserError(str(error).replace(str(path), task.part.path), error.code) from error
        if task.content is None and _stamp(path) != task.part.stamp:
            raise UserError(f"{path}: changed while it was read; {HOW_TO_GO_ON}")
        return found


@contextmanager
def _find_file(task: PartTask) -> Iterator[Path | None]:
    """Give the path of the file on this machine, None if it is not here."""
    if task.content is not None:
        with tempfile.TemporaryDirectory(prefix="metricgrad-") as folder:
            path = Path(folder) / task.part.name
            path.write_bytes(task.content)
            yield path
        return
    path = Path(task.part.path)
    try:
        here = _stamp(path) == task.part.stamp
    except OSError:
        here = False
    yield path if here else None
