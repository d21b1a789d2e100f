"""The workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import importlib
import logging
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from metricgrad import __version__
from metricgrad.comparison.errors import CLUSTER, WRONG_CALL, UserError
from metricgrad.comparison.workers import MOST_LOSSES, Shared, TaskLostError, fill, find_shared, killed
from metricgrad.messages import one_line
from metricgrad.training.training_loop import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from metricgrad.comparison.workers import Workers

CONNECT_SECONDS = 10
"""How long to wait for a cluster, and for its first worker."""
NO_WORKER_SECONDS = 60
"""How long a run waits for new workers when all are lost: most clusters restart them."""


def _import_distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise UserError("--cluster: needs dask: pip install 'metricgrad[dask]'", WRONG_CALL) from error


@contextmanager
def connect(address: str, again: str) -> Iterator[Workers]:
    """Give the workers of a cluster, after they were checked; ``again``: as for ``Workers``."""
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
            yield _ClusterWorkers(client, address, again)
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


class _ClusterExecutor(Executor):
    """Runs functions on the workers; the error of a future is ``TaskLostError`` if its result will never come.

    The client's own ``get_executor`` leaves a future pending for ever if its result is lost while it is fetched.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._unfinished: set[Any] = set()

    def submit(self, fn: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        remote = self._client.submit(fn, *given, **named, pure=False)
        running = Future[Any]()
        running.set_running_or_notify_cancel()
        self._unfinished.add(remote)
        # What is given may hold data on the workers, which last as long as it is kept here.
        self._client.loop.add_callback(self._settle, remote, running, given)
        return running

    async def _settle(self, remote: Any, running: Future[Any], given: Any) -> None:
        try:
            found = await self._client.gather(remote, asynchronous=True)
        except (Exception, asyncio.CancelledError) as error:
            # An error of the function is its result; all others happened on the way.
            lost = remote.status != "error" and isinstance(error, CancelledError | asyncio.CancelledError | OSError)
            running.set_exception(TaskLostError() if lost else error)
        else:
            running.set_result(found)
        self._unfinished.discard(remote)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures and self._client.status == "running":
            self._client.cancel(list(self._unfinished))


class _ClusterWorkers:
    def __init__(self, client: Any, address: str, again: str) -> None:
        self.again = again
        self._client = client
        self._address = address
        self.executor: Executor = _ClusterExecutor(client)
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
        shared = find_shared(task)
        sent = [self._send(value) for value in shared.values()]
        # The fields that the workers have already do not travel with the task.
        bare = fill(task, dict.fromkeys(shared))
        given = (_run_on_worker, __version__, function, bare, list(shared), *sent)
        return self._ask(self.executor.submit, *given)  # type: ignore[no-any-return]

    def _send(self, shared: Shared) -> Any:
        """Return the future of a shared value, which is sent if it was not yet, or was lost with its worker."""
        future = self._sent.get(shared)
        if future is not None and self._is_there(future):
            return future
        value = shared.load()
        for _ in range(MOST_LOSSES + 1):
            self.count()
            try:
                # To one worker, from which others fetch it: sending copies hangs if a worker is lost meanwhile. The
                # scheduler forgets lost data with all that is to read them; a new key has nothing to do with those.
                (future,) = self._client.scatter([value], hash=False)
            except (OSError, KeyError) as error:
                lost = error  # the worker, while the value was sent to it
            else:
                self._sent[shared] = future
                return future
        raise self._make_lost_error() from lost

    def _is_there(self, future: Any) -> bool:
        """Return whether a worker has the data of a future: the scheduler knows, the future perhaps not yet."""
        try:
            return any(self._ask(self._client.who_has, [future]).values())
        except CancelledError:
            return False

    def _ask(self, call: Callable[..., Any], *given: Any) -> Any:
        """Call a method of the client; if the scheduler does not answer, say so."""
        try:
            return call(*given)
        except Exception as error:
            if self._client.status == "running" and not isinstance(error, OSError | TimeoutError):
                raise
            raise self._make_lost_error() from error

    def _make_lost_error(self) -> UserError:
        return UserError(f"--cluster: {self._address} does not answer any more; {self.again} when it does", CLUSTER)

    def explain(self, error: Exception) -> UserError | None:
        if type(error).__name__ == "KilledWorker":
            return killed(self.again, "workers with more memory")
        return None

    def stop(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)


def _run_on_worker(ours: str, function: Callable[[Any], Any], task: Any, names: list[str], *values: Any) -> Any:
    """Run a task on a worker, which may have joined after the first ones were checked."""
    worker = _import_distributed().get_worker()
    _check_threads(worker.address, worker.state.nthreads)
    _check_version(worker.address, "metricgrad", ours, __version__)
    with one_thread():
        return function(fill(task, dict(zip(names, values, strict=True))))
