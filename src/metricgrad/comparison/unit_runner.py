"""Units of work, one contender in one repeat each.

Results do not depend on where units run: a unit's seed comes from its repeat, and every process has one thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from metricgrad.comparison import protocol
from metricgrad.comparison.protocol import Finished
from metricgrad.comparison.workers import run_tasks
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from metricgrad.comparison.contenders.scorers import Effort, Goal
    from metricgrad.comparison.workers import Workers


@dataclass(frozen=True)
class Unit:
    """What a process needs to run a unit.

    ``features``, ``targets``, ``split``: ``Shared`` among units; in the process that runs one two arrays and a
    ``Split``.
    """

    contender: str
    repeat: int
    goal: Goal
    also: tuple[str, ...]
    effort: Effort
    seed: int
    features: Any
    targets: Any
    split: Any


@dataclass(frozen=True)
class Failure:
    """A contender that could not be fitted, and why."""

    contender: str
    repeat: int
    why: str


Result = Finished | Failure


def run_unit(unit: Unit) -> Result:
    """Do a unit."""
    seed = make_seed(unit.seed, unit.repeat)
    try:
        return protocol.run_contender(
            unit.contender,
            unit.goal,
            list(unit.also),
            unit.effort,
            unit.features,
            np.asarray(unit.targets),
            unit.split,
            seed,
            unit.repeat,
        )
    except Exception as error:  # a contender that fails must not stop the others
        return Failure(unit.contender, unit.repeat, one_line(f"{type(error).__name__}: {error}", 200))


def make_seed(seed: int, repeat: int) -> int:
    """Return the seed of all units of a repeat; ``seed`` is that of the run."""
    return int(np.random.SeedSequence([seed, repeat]).generate_state(1)[0])


def run_units(units: Iterator[Unit], workers: Workers) -> Generator[Result, None, None]:
    """Yield results as they finish; a unit is taken from the iterator only when a process is free for it."""
    for _, result in run_tasks(workers, run_unit, lambda: next(units, None)):
        yield result
