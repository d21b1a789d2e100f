"""Units of work, one contender in one repeat each, run on several processes.

Results do not depend on the number of processes: a unit's seed comes from its repeat, and every process has one thread.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING

import numpy as np
import torch

from metricgrad.app.errors import RUN, UserError, one_line
from metricgrad.app.study import protocol
from metricgrad.app.study.protocol import Outcome

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from pathlib import Path

    from metricgrad.app.contenders.scorers import Effort, Goal
    from metricgrad.app.study.splits import Split


@dataclass(frozen=True)
class Unit:
    """What a process needs to run a unit; features and targets are in files that all processes share."""

    contender: str
    repeat: int
    goal: Goal
    also: tuple[str, ...]
    effort: Effort
    seed: int
    features: Path
    targets: Path
    split: Split


@dataclass(frozen=True)
class Failure:
    """A contender that could not be fitted, and why."""

    contender: str
    repeat: int
    why: str


Result = tuple[Outcome, np.ndarray] | Failure


def run_unit(unit: Unit) -> Result:
    """Do a unit."""
    features, targets = (np.load(path, mmap_mode="r", allow_pickle=False) for path in (unit.features, unit.targets))
    seed = int(np.random.SeedSequence([unit.seed, unit.repeat]).generate_state(1)[0])
    try:
        return protocol.run_contender(
            unit.contender,
            unit.goal,
            list(unit.also),
            unit.effort,
            features,
            np.asarray(targets),
            unit.split,
            seed,
            unit.repeat,
        )
    except Exception as error:  # a contender that fails must not stop the others
        return Failure(unit.contender, unit.repeat, one_line(f"{type(error).__name__}: {error}", 200))


def run_units(units: Iterable[Unit], jobs: int) -> Generator[Result, None, None]:
    """Yield results as they finish; a unit is taken from the iterable only when a process is free for it."""
    if jobs == 1:
        yield from map(run_unit, units)
        return
    source = iter(units)
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _prepare_process)
    running: set[Future[Result]] = set()
    try:
        while True:
            while len(running) < jobs and (unit := next(source, None)) is not None:
                running.add(pool.submit(run_unit, unit))
            if not running:
                break
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ready:
                yield future.result()
        pool.shutdown()
    except BrokenProcessPool as error:
        why = "a process was killed, perhaps for lack of memory"
        raise UserError(f"{why}; continue with --resume and fewer --jobs", RUN) from error
    finally:
        # After Ctrl-C do not wait for unfinished units.
        pool.shutdown(wait=False, cancel_futures=True)
        if running:
            for process in multiprocessing.active_children():
                process.terminate()


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
