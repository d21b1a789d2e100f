"""Splits of the rows: the same for every contender, three parts in each repeat.

``fit`` trains, ``held`` stops training early and tunes the rule, ``test`` judges: 60, 15 and 25 % of the rows.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from metricgrad.app.errors import DATA, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metricgrad.engine.batch import Task

TEST, HELD = 0.25, 0.2
"""The share of all rows to judge on, and of the others to stop and tune on."""


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of one repeat."""

    fit: Any
    held: Any
    test: Any

    @property
    def train(self) -> Any:
        """All rows that are not for judging."""
        return np.concatenate((self.fit, self.held))


def splits(targets: Any, task: Task, repeats: int, seed: int, group: Any = None, time: Any = None) -> list[Split]:
    """Return the repeats: random and stratified, by whole groups, or forward in time.

    Stratified by class; multi-label rows by the rarest of their labels. ``group``: rows of equal value stay together.
    ``time``: rows are put in order, cut into ``repeats`` + 1 blocks, and each block but the first is judged by what was
    trained on all rows before it; rows of equal time stay together.
    """
    if time is not None:
        found = list(_forward(np.asarray(time), repeats))
    else:
        unit = np.arange(len(targets)) if group is None else np.unique(np.asarray(group), return_inverse=True)[1]
        found = [_shuffled(targets, task, unit, group is not None, [seed, repeat]) for repeat in range(repeats)]
    for repeat, split in enumerate(found):
        why = _lacks(split, targets, task)
        if why is not None:
            how = "--group" if group is not None else "--time" if time is not None else "this data"
            raise UserError(f"{how}: repeat {repeat + 1} has {why}; take fewer --repeats, or more rows", DATA)
    return found


def everything(targets: Any, task: Task, seed: int, group: Any = None, time: Any = None) -> Split:
    """Return all rows to fit and to hold, none to judge: for the model that is shipped."""
    none = np.arange(0)
    if time is not None:
        order = np.argsort(np.asarray(time), kind="stable")
        fit, held = _before(order, np.asarray(time), 1 - HELD)
        return Split(fit, held, none)
    unit = np.arange(len(targets)) if group is None else np.unique(np.asarray(group), return_inverse=True)[1]
    held = _part(strata(targets, task), unit, HELD, np.random.default_rng([seed, 2**31]), group is not None)
    return Split(np.flatnonzero(~held), np.flatnonzero(held), none)


def strata(targets: Any, task: Task) -> Any:
    """Return a number per row: its class, or the rarest of its labels (−1 for none)."""
    if task != "multilabel":
        return targets
    rarest_first = np.argsort(targets.sum(0), kind="stable")
    ordered = targets[:, rarest_first] > 0
    return np.where(ordered.any(1), rarest_first[ordered.argmax(1)], -1)


def _shuffled(targets: Any, task: Task, unit: Any, grouped: bool, seed: list[int], tries: int = 100) -> Split:
    keys = strata(targets, task)
    for trial in range(tries):
        generator = np.random.default_rng([*seed, trial])
        test = _part(keys, unit, TEST, generator, grouped)
        rest = np.flatnonzero(~test)
        held = _part(keys[rest], unit[rest], HELD, generator, grouped)
        split = Split(rest[~held], rest[held], np.flatnonzero(test))
        if not grouped or _lacks(split, targets, task) is None:
            break
    return split


def _part(keys: Any, unit: Any, share: float, generator: Any, grouped: bool) -> Any:
    """Mark a share of the rows: of each stratum (one row at least, and never all), or whole units."""
    if grouped:
        units, sizes = np.unique(unit, return_counts=True)
        order = generator.permutation(len(units))
        # The first units that reach the share, but not all of them.
        number = min(int(np.searchsorted(sizes[order].cumsum(), share * len(unit))) + 1, len(units) - 1)
        return np.isin(unit, units[order[:number]])
    marked = np.zeros(len(keys), dtype=bool)
    for key in np.unique(keys):
        rows = np.flatnonzero(keys == key)
        number = min(max(round(share * len(rows)), 1), len(rows) - 1)
        marked[generator.permutation(rows)[:number]] = True
    return marked


def _forward(time: Any, repeats: int) -> Iterator[Split]:
    order = np.argsort(time, kind="stable")
    edges = [_edge(time[order], round(len(order) * i / (repeats + 1))) for i in range(1, repeats + 2)]
    for before, after in itertools.pairwise(edges):
        fit, held = _before(order[:before], time, 1 - HELD)
        yield Split(fit, held, order[before:after])


def _before(order: Any, time: Any, share: float) -> tuple[Any, Any]:
    """Part rows in order of time into the first share of them and the others."""
    edge = _edge(time[order], round(len(order) * share))
    return order[:edge], order[edge:]


def _edge(ordered: Any, place: int) -> int:
    """Return the place, moved forward to where the time changes."""
    return int(np.searchsorted(ordered, ordered[place - 1], side="right")) if 0 < place < len(ordered) else place


def _lacks(split: Split, targets: Any, task: Task) -> str | None:
    """Return what a split lacks to be used, or None."""
    for name in ("fit", "held", "test"):
        if not len(getattr(split, name)):
            return f"no rows to {'train on' if name == 'fit' else 'tune on' if name == 'held' else 'judge on'}"
    if task == "multilabel":
        return None
    missing = np.setdiff1d(targets, targets[split.fit])
    return f"no training rows of {len(missing)} of the classes" if len(missing) else None
