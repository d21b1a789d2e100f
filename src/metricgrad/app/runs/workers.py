"""Tasks on several processes: in this one, in a pool on this machine, or on the workers of a Dask cluster.

A task is a dataclass, and its function takes it as its only argument. What many tasks read is a field of type
``Shared``: the function finds its value in that field. Results do not depend on where tasks run.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.metadata import version
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch

from metricgrad import __version__
from metricgrad.app.errors import CLUSTER, RUN, WRONG_CALL, UserError, one_line
from metricgrad.training.loop import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

Task = TypeVar("Task")
Found = TypeVar("Found")

LOSSES = 3
"""How often a task is repeated because its worker was lost; then the task itself is to blame, as in Dask."""
COPIES = 2
"""To how many workers of a cluster shared data are sent, so that they outlive one; the others fetch them there."""
CONNECT_SECONDS = 10
"""How long to wait for a cluster, and for its first worker."""
NO_WORKER_SECONDS = 60
"""How long a run waits for new workers when all are lost: most clusters restart them."""
COUNT_SECONDS = 10
"""After how long without a result the workers are counted again."""


@dataclass(frozen=True, eq=False)
class Shared:
    """What many tasks read: each process of this machine loads it, and a cluster gets it once, not once per task."""

    load: Callable[[], Any]

    @classmethod
    def value(cls, value: object) -> Shared:
        """Share a small value."""
        return cls(partial(_return, value))


def _return(value: object) -> object:
    return value


class Workers(Protocol):
    """Processes that run tasks; ``executor`` may be any of ``concurrent.futures``.

    ``again``: what the user should do after a failure, as the middle of a sentence.
    """

    executor: Executor
    again: str

    def count(self) -> int:
        """Return how many tasks can run at once, at least one; raise if there are no workers any more."""

    def submit(self, function: Callable[[Any], Any], task: Any) -> Future[Any]:
        """Start a task."""

    def has_lost(self, task: Any) -> bool:
        """Return whether data that a running task reads are lost."""

    def explain(self, error: Exception) -> UserError | None:
        """Return the error to show if workers were lost, None for an error of the task."""

    def stop(self) -> None:
        """Give up all unfinished tasks without waiting for them."""


@contextmanager
def open_workers(jobs: int, cluster: str | None, again: str) -> Iterator[Workers]:
    """Give the workers of a cluster, by the address of its scheduler, or else ``jobs`` processes of this machine."""
    if cluster is not None:
        with _connect(cluster) as client:
            yield _ClusterWorkers(client, cluster, again)
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
            done = wait(running, COUNT_SECONDS, FIRST_COMPLETED).done
            if not done:
                for future in [future for future, task in running.items() if workers.has_lost(task)]:
                    future.cancel()  # its worker would wait for the data for ever
            for future in done:
                task = running.pop(future)
                if not future.cancelled():
                    lost.pop(id(task), None)
                    yield task, future.result()
                    continue
                # The only worker that held shared data was lost.
                lost[id(task)] = lost.get(id(task), 0) + 1
                if lost[id(task)] > LOSSES:
                    raise _killed(workers.again, "workers with more memory")
                running[workers.submit(function, task)] = task
    except Exception as error:
        explained = workers.explain(error)
        if explained is None:
            raise
        raise explained from error
    finally:
        if running:
            workers.stop()


def _killed(again: str, how: str) -> UserError:
    return UserError(f"a process was killed, perhaps for lack of memory; {again} and {how}", RUN)


def _fill(task: Any, values: dict[str, Any]) -> Any:
    return replace(task, **values) if values else task


def _find_shared(task: Any) -> dict[str, Shared]:
    found = {field.name: getattr(task, field.name) for field in fields(task)}
    return {name: value for name, value in found.items() if isinstance(value, Shared)}


# This machine


class _Inline(Executor):
    """Runs tasks in this process, one after the other."""

    def submit(self, fn: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*given, **named))
        except Exception as error:
            future.set_exception(error)
        return future


class _LocalWorkers:
    def __init__(self, jobs: int, again: str) -> None:
        self.again, self._jobs = again, jobs
        self.executor: Executor = _Inline()
        if jobs > 1:
            self.executor = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _prepare_process)

    def count(self) -> int:
        return self._jobs

    def submit(self, function: Callable[[Any], Any], task: Any) -> Future[Any]:
        return self.executor.submit(_load_and_run, function, task)

    def has_lost(self, task: Any) -> bool:
        return False

    def explain(self, error: Exception) -> UserError | None:
        return _killed(self.again, "fewer --jobs") if isinstance(error, BrokenExecutor) else None

    def stop(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _load_and_run(function: Callable[[Any], Any], task: Any) -> Any:
    return function(_fill(task, {name: shared.load() for name, shared in _find_shared(task).items()}))


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


# A cluster


def _import_distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise UserError("--cluster: needs dask: pip install 'metricgrad[dask]'", WRONG_CALL) from error


@contextmanager
def _connect(address: str) -> Iterator[Any]:
    """Give a client of a cluster whose workers can be used."""
    distributed = _import_distributed()
    with _silence("distributed", "distributed.client", "distributed.comm", "tornado.application"):
        try:
            client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise UserError(
                f"--cluster: expected the address of a Dask scheduler, such as tcp://host:8786, got {address!r}, which "
                f"cannot be reached ({one_line(error, 120)})",
                CLUSTER,
            ) from error
        try:
            _check_workers(client, address)
            yield client
        finally:
            client.close(timeout=CONNECT_SECONDS)


@contextmanager
def _silence(*names: str) -> Iterator[None]:
    """Silence loggers that print on stderr: what concerns the user becomes one line of our own."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _check_workers(client: Any, address: str) -> None:
    """Raise unless there are workers, all of one thread and with the versions of this process."""
    try:
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    except TimeoutError as error:
        raise UserError(
            f"--cluster: {address} has no workers; start some: dask worker --nthreads 1", CLUSTER
        ) from error
    for worker, threads in client.nthreads().items():
        _check_threads(worker, threads)
    for library, here in _find_versions().items():
        # A function of the standard library, so that a worker without metricgrad can answer.
        for worker, found in client.run(version, library, on_error="return").items():
            _check_version(worker, library, here, "none" if isinstance(found, Exception) else found)


def _find_versions() -> dict[str, str]:
    """Return the versions of the libraries on which scores depend."""
    return {library: version(library) for library in ("metricgrad", "torch", "numpy", "scikit-learn")}


def _check_threads(worker: str, threads: int) -> None:
    if threads != 1:
        raise UserError(
            f"--cluster: expected workers of one thread, since torch has one random seed per process, got {threads} "
            f"threads at {worker}; start it with --nthreads 1",
            CLUSTER,
        )


def _check_version(worker: str, library: str, here: str, there: str) -> None:
    if here != there:
        raise UserError(
            f"--cluster: expected {library} {here} as here, got {there} at {worker}; install the same versions",
            CLUSTER,
        )


class _ClusterWorkers:
    def __init__(self, client: Any, address: str, again: str) -> None:
        self.again, self._client, self._address = again, client, address
        self.executor = client.get_executor(pure=False)
        # An entry, and the data on the workers, last as long as a task has the shared value.
        self._sent: WeakKeyDictionary[Shared, Any] = WeakKeyDictionary()

    def count(self) -> int:
        number = len(self._ask(self._client.nthreads))
        if number:
            return number
        try:
            self._client.wait_for_workers(1, timeout=NO_WORKER_SECONDS)
        except TimeoutError as error:
            raise UserError(f"--cluster: all workers are gone; start some, and {self.again}", CLUSTER) from error
        return 1

    def submit(self, function: Callable[[Any], Any], task: Any) -> Future[Any]:
        shared = _find_shared(task)
        sent = [self._send(value) for value in shared.values()]
        # The fields that the workers have already do not travel with the task.
        bare = _fill(task, dict.fromkeys(shared))
        given = (_run_on_worker, __version__, function, bare, list(shared), *sent)
        return self._ask(self.executor.submit, *given)  # type: ignore[no-any-return]

    def _send(self, shared: Shared) -> Any:
        """Return the future of a shared value, which is sent if it was not yet, or was lost with its worker."""
        future = self._sent.get(shared)
        for tries in range(LOSSES + 1):
            if future is not None and future.status == "finished":
                break
            try:
                self._sent[shared] = future = self._client.scatter(shared.load(), broadcast=COPIES)
            except OSError as error:
                # Perhaps it was sent to a worker that was just lost; counting tells whether others are there.
                if self.count() and tries == LOSSES:
                    raise self._gone() from error
        return future

    def _ask(self, call: Callable[..., Any], *given: Any) -> Any:
        """Call a method of the client; if the scheduler does not answer, say so."""
        try:
            return call(*given)
        except Exception as error:
            if self._client.status == "running" and not isinstance(error, OSError | TimeoutError):
                raise
            raise self._gone() from error

    def _gone(self) -> UserError:
        return UserError(f"--cluster: {self._address} does not answer any more; {self.again} when it does", CLUSTER)

    def has_lost(self, task: Any) -> bool:
        sent = [self._sent.get(shared) for shared in _find_shared(task).values()]
        return any(future is not None and future.status != "finished" for future in sent)

    def explain(self, error: Exception) -> UserError | None:
        if type(error).__name__ == "KilledWorker":
            return _killed(self.again, "workers with more memory")
        return None

    def stop(self) -> None:
        if self._client.status == "running":
            self.executor.shutdown(wait=False)


def _run_on_worker(ours: str, function: Callable[[Any], Any], task: Any, names: list[str], *values: Any) -> Any:
    """Run a task on a worker, which may have joined after the first ones were checked."""
    worker = _import_distributed().get_worker()
    _check_threads(worker.address, worker.state.nthreads)
    _check_version(worker.address, "metricgrad", ours, __version__)
    with one_thread():
        return function(_fill(task, dict(zip(names, values, strict=True))))
