"""The units of work: one candidate, cross-fitted on the training rows of one split, which scores all its rows.

Results do not depend on where units run: a unit's seed comes from its split, and every process has one thread.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from metricgrad.comparison.workers import run_tasks
from metricgrad.estimators.candidates import METRIC_ESTIMATORS
from metricgrad.estimators.cross_fitting import average_probabilities, cross_fit
from metricgrad.messages import one_line
from metricgrad.training.training_loop import one_thread

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from metricgrad.comparison.goal import Goal
    from metricgrad.comparison.workers import Workers
    from metricgrad.estimators.candidates import Candidate
    from metricgrad.estimators.cross_fitting import Fold

ALL_ROWS = 2**31 - 1
"""The number that stands for the split of all rows, by which the model to ship is fitted, instead of a repeat."""


@dataclass(frozen=True)
class CandidateTask:
    """What a process needs to run a unit.

    ``folds``: of the training rows, counted from 0. ``features``, ``test_features``, ``targets``: ``Shared`` among
    units; in the process that runs one the training and the test rows as the candidate sees them, and the training
    targets. ``needs``: packages that it imports.
    """

    contender: str
    candidate: Candidate
    repeat: int
    goal: Goal
    seed: int
    folds: list[Fold]
    needs: tuple[str, ...]
    features: Any
    test_features: Any
    targets: Any


class CandidateRun(NamedTuple):
    """A finished unit.

    ``scores``: of the test rows, the mean over the models of the folds. ``out_of_fold``: of the training rows, fold
    after fold, each row by the model that did not see it. ``history``: of the first model, row by row; of boosted trees
    in the first repeat alone.
    """

    candidate: str
    repeat: int
    seconds: float
    history: list[dict[str, float]]
    scores: np.ndarray
    out_of_fold: np.ndarray
    models: list[Any]


@dataclass(frozen=True)
class Failure:
    """A contender that could not be fitted, and why."""

    contender: str
    repeat: int
    why: str

    @classmethod
    def of(cls, contender: str, repeat: int, error: Exception) -> Failure:
        """Return the failure of a contender, given the error."""
        return cls(contender, repeat, one_line(f"{type(error).__name__}: {error}", 200))


def run_candidate(task: CandidateTask) -> CandidateRun | Failure:
    """Run a unit: cross-fit its candidate, and score the training and the test rows."""
    try:
        with one_thread():
            _import_lazy_modules(task.needs)
            targets = np.asarray(task.targets)
            labels = task.goal.labels
            is_drawn = task.repeat == 0  # the report draws the first model of the first repeat
            found = cross_fit(
                task.candidate, task.features, targets, None, labels, task.folds, task.seed, with_history=is_drawn
            )
            scores = _score(found.models, task.test_features, task)
            history = _read_history(found.models)
            out_of_fold = found.scores.numpy()
            return CandidateRun(
                task.candidate.name, task.repeat, found.seconds, history, scores, out_of_fold, found.models
            )
    except Exception as error:  # a contender that fails must not stop the others
        return Failure.of(task.contender, task.repeat, error)


def run_candidates(
    tasks: Iterator[CandidateTask], workers: Workers
) -> Generator[tuple[CandidateTask, CandidateRun | Failure], None, None]:
    """Yield units with their results as they finish; one is taken from the iterator only when a process is free."""
    yield from run_tasks(workers, run_candidate, lambda: next(tasks, None))


def make_seed(seed: int, repeat: int) -> int:
    """Return the random state of a split; ``seed`` is that of the run."""
    return int(np.random.SeedSequence([seed, repeat]).generate_state(1)[0])


@cache
def _import_lazy_modules(packages: tuple[str, ...]) -> None:
    """Import what the first fit in a process would import, so that its seconds are those of training."""
    for package in packages:
        importlib.import_module(package)


def _score(models: list[Any], features: Any, task: CandidateTask) -> np.ndarray:
    """Return the mean scores of rows; there may be no rows."""
    if features is None:
        return np.empty(task.goal.labels.scores_shape(0))
    return average_probabilities(models, features, task.goal.labels).numpy()


def _read_history(models: list[Any]) -> list[dict[str, float]]:
    """Return for every epoch or round, from 0, the "loss", and the metric's "value" if training was stopped by it."""
    first = models[0]
    if not isinstance(first, METRIC_ESTIMATORS):
        return []
    # With monitor="loss" the history's "value" is minus the held-out loss, not a value of the metric.
    keys = ("loss", "value") if first.monitor == "metric" else ("loss",)
    rows = enumerate(first._histories[0])
    return [{"epoch": float(i)} | {key: float(row[key]) for key in keys if key in row} for i, row in rows]
