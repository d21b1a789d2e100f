"""Tasks on several processes: in this one, in a pool on this machine, or on the workers of a Dask cluster.

A task is a dataclass, and its function takes it as its only argument. What many tasks read is a field of type
``Shared``: the function finds its value in that field. Results do not depend on where tasks run.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from metricgrad.comparison.errors import RUN, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

Task = TypeVar("Task")
Found = TypeVar("Found")

MOST_LOSSES = 3
"""How often a task is repeated because its worker was lost; then the task itself is to blame, as in Dask."""
COUNT_SECONDS = 10
"""After how long without a result the workers are counted again."""


@dataclass(frozen=True, eq=False)
class Shared:
    """What many tasks read: each process of this machine loads it, and a cluster gets it once, not once per task."""

    load: Callable[[], Any]

    @classmethod
    def value(cls, value: object) -> Shared:
        """Share a value that is at hand."""
        return cls(partial(_return, value))


def _return(value: object) -> object:
    return value


class TaskLostError(Exception):
    """The result of a task, or data that it reads, were lost with a worker."""


class Workers(Protocol):
    """Processes that run tasks; ``executor`` may be any of ``concurrent.futures``.

    ``again``: what the user should do after a failure, as the middle of a sentence.
    """

    executor: Executor
    again: str

    def count(self) -> int:
        """Return how many tasks can run at once, at least one; raise if there are no workers any more."""

    def submit(self, function: Callable[[Any], Any], task: Any) -> Future[Any]:
        """Start a task; the error of its future is ``TaskLostError`` if it has to be submitted again."""

    def explain(self, error: Exception) -> UserError | None:
        """Return the error to show if workers were lost, None for an error of the task."""

    def stop(self) -> None:
        """Give up all unfinished tasks without waiting for them."""


@contextmanager
def open_workers(jobs: int, cluster: str | None, again: str) -> Iterator[Workers]:
    """Give the workers of a cluster, by the address of its scheduler, or else ``jobs`` processes of this machine."""
    if cluster is not None:
        from metricgrad.comparison.dask_cluster import connect

        with connect(cluster, again) as found:
            yield found
        return
    workers = _LocalWorkers(jobs, again)
    with workers.executor:
        yield workers


def run_tasks(
    workers: Workers, function: Callable[[Task], Found], take: Callable[[], Task | None], each: int = 1
) -> Generator[tuple[Task, Found], None, None]:
    """Yield tasks with their results as they finish.

    ``take`` is called for the next task only when a worker is free for it, and returns None if there is none now.
    ``each``: how many tasks a worker may have at once, running and waiting.
    """
    running: dict[Future[Found], Task] = {}
    lost: dict[int, int] = {}  # how often each of the running tasks was lost
    try:
        while True:
            while len(running) < each * workers.count() and (task := take()) is not None:
                running[workers.submit(function, task)] = task
            if not running:
                return
            # Now and then the workers are counted again: a cluster may have lost all of them.
            for future in wait(running, COUNT_SECONDS, FIRST_COMPLETED).done:
                task = running.pop(future)
                if not isinstance(future.exception(), TaskLostError):
                    lost.pop(id(task), None)
                    yield task, future.result()
                    continue
                lost[id(task)] = lost.get(id(task), 0) + 1
                if lost[id(task)] > MOST_LOSSES:
                    raise killed(workers.again, "workers with more memory")
                running[workers.submit(function, task)] = task
    except Exception as error:
        explained = workers.explain(error)
        if explained is None:
            raise
        raise explained from error
    finally:
        if running:
            workers.stop()


def killed(again: str, how: str) -> UserError:
    """Return the error of processes that were killed; ``how``: with what else to try again."""
    return UserError(f"a process was killed, perhaps for lack of memory; {again} and {how}", RUN)


def fill(task: Any, values: dict[str, Any]) -> Any:
    """Return a task with these values of its fields."""
    return replace(task, **values) if values else task


def find_shared(task: Any) -> dict[str, Shared]:
    """Return the shared values of a task by the names of their fields."""
    found = {field.name: getattr(task, field.name) for field in fields(task)}
    return {name: value for name, value in found.items() if isinstance(value, Shared)}


# This machine


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Inline(Executor):
    """Runs tasks in this process, one after the other."""

    def submit(self, fn: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*given, **named))
        except Exception as error:
            future.set_exception(error)
        return future


class _Process(SpawnProcess):
    """A new process that does not run the caller's script again.

    Its tasks need none of it, and a script or notebook that calls ``mg.compare`` works as it is, without
    ``if __name__ == "__main__"``.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 (Python's own name)
        # What a new process imports is taken from this module.
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process = _Process


class _LocalWorkers:
    def __init__(self, jobs: int, again: str) -> None:
        self.again = again
        self._jobs = jobs
        self.executor: Executor = _Inline()
        if jobs > 1:
            self.executor = ProcessPoolExecutor(jobs, _Context(), _prepare_process)

    def count(self) -> int:
        return self._jobs

    def submit(self, function: Callable[[Any], Any], task: Any) -> Future[Any]:
        return self.executor.submit(_load_and_run, function, task)

    def explain(self, error: Exception) -> UserError | None:
        return killed(self.again, "fewer --jobs") if isinstance(error, BrokenExecutor) else None

    def stop(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _load_and_run(function: Callable[[Any], Any], task: Any) -> Any:
    return function(fill(task, {name: shared.load() for name, shared in find_shared(task).items()}))


def _prepare_process() -> None:
    """Prepare a process: one thread, Ctrl-C left to the parent, and exit when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent.sentinel,), daemon=True).start()


def _exit_with_parent(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
