"""Units of work, one contender in one repeat each, over processes.

Results do not depend on how many there are: a unit's seed comes from its repeat, and every process has one thread.
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
from typing import TYPE_CHECKING, Any

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
    """What a process needs to know; features and targets wait in files, so that all processes share them."""

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


Result = tuple[Outcome, Any] | Failure


def done(unit: Unit) -> Result:
    """Do a unit."""
    features, targets = (np.load(path, mmap_mode="r", allow_pickle=False) for path in (unit.features, unit.targets))
    seed = int(np.random.SeedSequence([unit.seed, unit.repeat]).generate_state(1)[0])
    try:
        return protocol.run(
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
    except Exception as error:  # one contender's trouble must not end the others
        return Failure(unit.contender, unit.repeat, one_line(f"{type(error).__name__}: {error}", 200))


def all_done(units: Iterable[Unit], jobs: int) -> Generator[Result, None, None]:
    """Yield results as they come; units are taken from the iterable no sooner than there is a process for them."""
    if jobs == 1:
        yield from map(done, units)
        return
    source = iter(units)
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _started)
    running: set[Future[Result]] = set()
    try:
        while True:
            while len(running) < jobs and (unit := next(source, None)) is not None:
                running.add(pool.submit(done, unit))
            if not running:
                break
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ready:
                yield future.result()
        pool.shutdown()
    except BrokenProcessPool as error:
        why = "a process was killed, perhaps for want of memory"
        raise UserError(f"{why}; go on with --resume and fewer --jobs", RUN) from error
    finally:
        # After Ctrl-C nobody wants to wait for what is half done.
        pool.shutdown(wait=False, cancel_futures=True)
        if running:
            for process in multiprocessing.active_children():
                process.terminate()


def _started() -> None:
    """Make a process behave: one thread, Ctrl-C is the parent's business, and no life after the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)
