"""Splits of the rows: the same for every contender, three parts in each repeat.

``fit`` is for training, ``held_out`` for early stopping and tuning the rule, ``test`` for evaluation: 60, 15 and 25 %
of all rows.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from metricgrad.comparison.errors import DATA, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metricgrad.core.batch import Task

TEST, HELD_OUT = 0.25, 0.2
"""The share of all rows to evaluate on, and the share of the others to hold out."""


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of one repeat."""

    fit: np.ndarray
    held_out: np.ndarray
    test: np.ndarray

    @property
    def train(self) -> np.ndarray:
        """All rows but the test rows."""
        return np.concatenate((self.fit, self.held_out))


def make_splits(
    targets: np.ndarray,
    task: Task,
    repeats: int,
    seed: int,
    group: np.ndarray | None = None,
    time: np.ndarray | None = None,
) -> list[Split]:
    """Return the repeats: random and stratified, by whole groups, or forward in time.

    Stratified by class; multi-label rows by the rarest of their labels. ``group``: rows of equal value stay together.
    ``time``: rows are sorted and divided into ``repeats`` + 1 blocks; each block but the first is the test part of a
    repeat that trains on all rows before it; rows of equal time stay together. With both, earlier rows of a group that
    is in a later part are left out.
    """
    if time is not None:
        found = list(_split_forward(np.asarray(time), group, repeats))
    else:
        unit = np.arange(len(targets)) if group is None else np.unique(np.asarray(group), return_inverse=True)[1]
        found = [_split_at_random(targets, task, unit, group is not None, [seed, repeat]) for repeat in range(repeats)]
    for repeat, split in enumerate(found):
        why = _find_lack(split, targets, task)
        if why is not None:
            asked = [name for name, one in (("--group", group), ("--time", time)) if one is not None]
            how = " and ".join(asked) or "this data"
            raise UserError(f"{how}: repeat {repeat + 1} has {why}; take fewer --repeats, or more rows", DATA)
    return found


def split_all_rows(
    targets: np.ndarray, task: Task, seed: int, group: np.ndarray | None = None, time: np.ndarray | None = None
) -> Split:
    """Return a split without test rows: for the model that is shipped."""
    none = np.arange(0)
    if time is not None:
        order = np.argsort(np.asarray(time), kind="stable")
        split = Split(*_split_by_time(order, np.asarray(time), group), none)
        if not len(split.fit):
            raise UserError("--group and --time: every group has late rows, so that none are left to train on", DATA)
        return split
    unit = np.arange(len(targets)) if group is None else np.unique(np.asarray(group), return_inverse=True)[1]
    held_out = _draw_part(
        find_strata(targets, task), unit, HELD_OUT, np.random.default_rng([seed, 2**31]), group is not None
    )
    return Split(np.flatnonzero(~held_out), np.flatnonzero(held_out), none)


def find_strata(targets: np.ndarray, task: Task) -> np.ndarray:
    """Return a number per row: its class, or the rarest of its labels (−1 for none)."""
    if task != "multilabel":
        return targets
    rarest_first = np.argsort(targets.sum(0), kind="stable")
    ordered = targets[:, rarest_first] > 0
    return np.where(ordered.any(1), rarest_first[ordered.argmax(1)], -1)


def _split_at_random(
    targets: np.ndarray, task: Task, unit: np.ndarray, grouped: bool, seed: list[int], tries: int = 100
) -> Split:
    keys = find_strata(targets, task)
    for trial in range(tries):
        generator = np.random.default_rng([*seed, trial])
        test = _draw_part(keys, unit, TEST, generator, grouped)
        rest = np.flatnonzero(~test)
        held_out = _draw_part(keys[rest], unit[rest], HELD_OUT, generator, grouped)
        split = Split(rest[~held_out], rest[held_out], np.flatnonzero(test))
        if not grouped or _find_lack(split, targets, task) is None:
            break
    return split


def _draw_part(
    keys: np.ndarray, unit: np.ndarray, share: float, generator: np.random.Generator, grouped: bool
) -> np.ndarray:
    """Mark a share of the rows at random: of each stratum (at least one row, and never all), or whole groups."""
    if grouped:
        units, sizes = np.unique(unit, return_counts=True)
        order = generator.permutation(len(units))
        # As many groups as reach the share, but not all of them.
        number = min(int(np.searchsorted(sizes[order].cumsum(), share * len(unit))) + 1, len(units) - 1)
        return np.isin(unit, units[order[:number]])
    marked = np.zeros(len(keys), dtype=bool)
    for key in np.unique(keys):
        rows = np.flatnonzero(keys == key)
        number = min(max(round(share * len(rows)), 1), len(rows) - 1)
        marked[generator.permutation(rows)[:number]] = True
    return marked


def count_left_out(split: Split, time: np.ndarray) -> int:
    """Return how many rows before the last part of a split are in none of its parts."""
    last = split.test if len(split.test) else split.held_out
    return int((time < time[last].min()).sum()) - len(split.fit) - (len(split.held_out) if len(split.test) else 0)


def _split_forward(time: np.ndarray, group: np.ndarray | None, repeats: int) -> Iterator[Split]:
    order = np.argsort(time, kind="stable")
    edges = [_move_to_next_time(time[order], round(len(order) * i / (repeats + 1))) for i in range(1, repeats + 2)]
    for before, after in itertools.pairwise(edges):
        test = order[before:after]
        yield Split(*_split_by_time(_without_groups_of(test, order[:before], group), time, group), test)


def _split_by_time(order: np.ndarray, time: np.ndarray, group: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to fit on and the later ones to hold out, of rows in order of time."""
    edge = _move_to_next_time(time[order], round(len(order) * (1 - HELD_OUT)))
    held_out = order[edge:]
    return _without_groups_of(held_out, order[:edge], group), held_out


def _without_groups_of(later: np.ndarray, rows: np.ndarray, group: np.ndarray | None) -> np.ndarray:
    """Return the rows whose group has none of the later rows."""
    return rows if group is None else rows[~np.isin(group[rows], group[later])]


def _move_to_next_time(ordered: np.ndarray, place: int) -> int:
    """Return the position, moved forward to where the time changes."""
    return int(np.searchsorted(ordered, ordered[place - 1], side="right")) if 0 < place < len(ordered) else place


def _find_lack(split: Split, targets: np.ndarray, task: Task) -> str | None:
    """Return what is missing in a split, or None."""
    for name, purpose in (("fit", "train on"), ("held_out", "tune on"), ("test", "evaluate on")):
        if not len(getattr(split, name)):
            return f"no rows to {purpose}"
    if task == "multilabel":
        return None
    missing = np.setdiff1d(targets, targets[split.fit])
    if len(missing):
        return f"no training rows of {len(missing)} of the classes"
    # The metric of two classes is that of the positive one.
    return "no test rows of the positive class" if task == "binary" and not targets[split.test].any() else None
