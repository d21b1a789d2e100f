"""Splits of the rows: the same for every contender, training rows and test rows in each repeat.

A quarter of the rows is for evaluation. Candidates are cross-fitted on the others: each model is trained on all folds
but one, and stopped early and scored on that one. Forward in time there is one such fold, the latest rows.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from metricgrad.comparison.errors import DATA, UserError
from metricgrad.estimators.cross_fitting import make_folds
from metricgrad.estimators.labels import Labels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metricgrad.core.batch import Task
    from metricgrad.estimators.cross_fitting import Fold

TEST_SHARE = 0.25
"""The share of all rows to evaluate on."""

LATEST_SHARE = 0.2
"""Forward in time, the share of the training rows that is left out of the one model, the latest."""

_TRIES, _FOLD_TRIES = 50, 5  # how often whole groups are drawn until all parts have all classes


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of one repeat, as indices into all rows.

    ``folds``: of the training rows, for each model the rows to fit it on and those left out.
    """

    train: np.ndarray
    test: np.ndarray
    folds: tuple[tuple[np.ndarray, np.ndarray], ...]

    @property
    def left_out(self) -> np.ndarray:
        """The rows that the models of the folds score, in this order; all training rows, unless it is about time."""
        return np.concatenate([left_out for _, left_out in self.folds])

    @property
    def folds_of_train(self) -> list[Fold]:
        """The folds as indices into ``train``, which is sorted."""
        return [
            (np.searchsorted(self.train, fit), np.searchsorted(self.train, left_out)) for fit, left_out in self.folds
        ]


@dataclass(frozen=True, eq=False)
class RowsToSplit:
    """What splits depend on: targets, and for each row its group and its time, if these matter."""

    targets: np.ndarray
    task: Task
    group: np.ndarray | None = None
    time: np.ndarray | None = None

    @property
    def labels(self) -> Labels:
        """How the targets look to estimators."""
        classes = self.targets.shape[1] if self.targets.ndim == 2 else int(self.targets.max()) + 1
        return Labels.of(self.task, np.arange(classes))


def split_repeatedly(rows: RowsToSplit, repeats: int, folds: int, seed: int, fold_seeds: list[int]) -> list[Split]:
    """Return the repeats: random and stratified, by whole groups, or forward in time.

    Stratified by class; multi-label rows by the rarest of their labels. Rows of equal ``group`` stay together. With
    ``time`` rows are sorted and divided into ``repeats`` + 1 blocks; each block but the first is the test part of a
    repeat that trains on all rows before it; rows of equal time stay together. With both, earlier rows of a group that
    is in a later part are left out. ``fold_seeds``: the random seed of the folds of each repeat.
    """
    if rows.time is not None:
        found = list(_split_forward(rows.time, rows.group, repeats))
    else:
        found = [_split_at_random(rows, folds, [seed, repeat], fold_seeds[repeat]) for repeat in range(repeats)]
    for repeat, split in enumerate(found):
        why = _find_lack(split, rows.targets, rows.task)
        if why is not None:
            asked = [name for name, one in (("--group", rows.group), ("--time", rows.time)) if one is not None]
            how = " and ".join(asked) or "this data"
            raise UserError(f"{how}: repeat {repeat + 1} has {why}; take fewer --repeats, or more rows", DATA)
    return found


def split_all_rows(rows: RowsToSplit, folds: int, fold_seed: int) -> Split:
    """Return a split without test rows: for the model that is shipped."""
    none = np.arange(0)
    if rows.time is None:
        train = np.arange(len(rows.targets))
        return Split(train, none, _divide_into_folds(rows, train, folds, fold_seed))
    order = np.argsort(rows.time, kind="stable")
    fit, latest = _split_by_time(order, rows.time, rows.group)
    if not len(fit):
        raise UserError("--group and --time: every group has late rows, so that none are left to train on", DATA)
    return Split(np.sort(np.concatenate((fit, latest))), none, ((fit, latest),))


def _divide_into_folds(
    rows: RowsToSplit, train: np.ndarray, folds: int, seed: int
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Return the folds of training rows, as ``MetricEnsembleClassifier(cv=folds)`` makes them."""
    targets = torch.from_numpy(np.ascontiguousarray(rows.targets[train]))
    targets = targets.long() if rows.task == "multiclass" else targets.float()
    groups = None if rows.group is None else rows.group[train]
    # With groups a class may be missing in some fold; then other folds are drawn, and in the end fewer.
    tries = itertools.product(range(folds, 1, -1), range(1 if groups is None else _FOLD_TRIES))
    for number, attempt in tries:
        try:
            found = make_folds(rows.labels, targets, number, groups, seed + attempt)
        except ValueError as error:
            raise UserError(f"--group: {error}" if groups is not None else str(error), DATA) from error
        if found[0][1] is None:
            raise UserError("target: expected two training rows or more of each class, got one; take more rows", DATA)
        divided = tuple((train[fit], train[left_out]) for fit, left_out in found)
        if groups is None or all(_count_missing(rows, fit) == 0 for fit, _ in divided):
            break
    return divided


def _count_missing(rows: RowsToSplit, some: np.ndarray) -> int:
    """Return how many classes have none of some rows; labels of several may be missing."""
    return 0 if rows.task == "multilabel" else len(np.setdiff1d(rows.targets, rows.targets[some]))


def find_strata(targets: np.ndarray, task: Task) -> np.ndarray:
    """Return a number per row: its class, or the rarest of its labels (−1 for none)."""
    if task != "multilabel":
        return targets
    rarest_first = np.argsort(targets.sum(0), kind="stable")
    ordered = targets[:, rarest_first] > 0
    return np.where(ordered.any(1), rarest_first[ordered.argmax(1)], -1)


def _split_at_random(rows: RowsToSplit, folds: int, seed: list[int], fold_seed: int) -> Split:
    """Return a random split; whole groups are drawn again until all parts have all classes."""
    strata = find_strata(rows.targets, rows.task)
    grouped = rows.group is not None
    unit = np.arange(len(strata)) if rows.group is None else np.unique(rows.group, return_inverse=True)[1]
    for attempt in range(_TRIES if grouped else 1):
        generator = np.random.default_rng([*seed, attempt])
        marked = _draw_part(strata, unit, TEST_SHARE, generator, grouped)
        train = np.flatnonzero(~marked)
        test = np.flatnonzero(marked)
        split = Split(train, test, _divide_into_folds(rows, train, folds, fold_seed))
        if _find_lack(split, rows.targets, rows.task) is None:
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
    ((fit, latest),) = split.folds
    last = split.test if len(split.test) else latest
    used = len(fit) + (len(latest) if len(split.test) else 0)
    return int((time < time[last].min()).sum()) - used


def _split_forward(time: np.ndarray, group: np.ndarray | None, repeats: int) -> Iterator[Split]:
    order = np.argsort(time, kind="stable")
    edges = [_move_to_next_time(time[order], round(len(order) * i / (repeats + 1))) for i in range(1, repeats + 2)]
    for before, after in itertools.pairwise(edges):
        test = order[before:after]
        fit, latest = _split_by_time(_without_groups_of(test, order[:before], group), time, group)
        yield Split(np.sort(np.concatenate((fit, latest))), test, ((fit, latest),))


def _split_by_time(order: np.ndarray, time: np.ndarray, group: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to fit on and the latest ones, of rows in order of time."""
    edge = _move_to_next_time(time[order], round(len(order) * (1 - LATEST_SHARE)))
    latest = order[edge:]
    return _without_groups_of(latest, order[:edge], group), latest


def _without_groups_of(later: np.ndarray, rows: np.ndarray, group: np.ndarray | None) -> np.ndarray:
    """Return the rows whose group has none of the later rows."""
    return rows if group is None else rows[~np.isin(group[rows], group[later])]


def _move_to_next_time(ordered: np.ndarray, place: int) -> int:
    """Return the position, moved forward to where the time changes."""
    return int(np.searchsorted(ordered, ordered[place - 1], side="right")) if 0 < place < len(ordered) else place


def _find_lack(split: Split, targets: np.ndarray, task: Task) -> str | None:
    """Return what is missing in a split, or None."""
    parts = {"train on": split.folds[0][0], "tune on": split.left_out, "evaluate on": split.test}
    for purpose, rows in parts.items():
        if not len(rows):
            return f"no rows to {purpose}"
    if task == "multilabel":
        return None
    for fit, _ in split.folds:
        missing = np.setdiff1d(targets, targets[fit])
        if len(missing):
            return f"no training rows of {len(missing)} of the classes"
    # The metric of two classes is that of the positive one.
    return "no test rows of the positive class" if task == "binary" and not targets[split.test].any() else None
