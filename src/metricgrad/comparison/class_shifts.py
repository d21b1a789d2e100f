"""Classes that are not spread evenly over the parts of a split: their shares move, or a part has none of their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metricgrad.comparison.tables.stability import has_moved
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.splits import Split
    from metricgrad.core.batch import Task

_MOST_SENTENCES = 3  # classes with a sentence of their own


def describe_absent(targets: np.ndarray, task: Task, classes: Sequence[str], parts: Sequence[Split]) -> list[str]:
    """Return a warning for every class that has no rows to train on, or no test rows, in some repeats."""
    what = "label" if task == "multilabel" else "class"
    then, now = _compute_shares(targets, classes, parts)
    left_out = "" if task == "binary" else ": averages leave it out there"
    found = []
    for k, name in enumerate(classes):
        for shares, purpose, then_what in ((then, "rows to train on", ""), (now, "test rows", left_out)):
            if without := int((shares[:, k] == 0).sum()):
                found.append(
                    f"{what} {one_line(name, 40)!r} has no {purpose} in {without} of {len(parts)} repeats{then_what}"
                )
    return found


def describe_moved(
    targets: np.ndarray, task: Task, classes: Sequence[str], parts: Sequence[Split], time: str
) -> list[str]:
    """Return warnings about classes whose share moved much between training and test rows, the largest moves first.

    ``time``: the column by which the rows were split.
    """
    then, now = _compute_shares(targets, classes, parts)
    moved = np.array(
        [[_has_moved(*pair, part) for pair in zip(then[i], now[i], strict=True)] for i, part in enumerate(parts)]
    )
    if task == "binary":
        moved[:, 0] = False  # the other class says it already
    distance = np.where(moved, np.abs(now - then), 0)
    order = [k for k in np.argsort(-distance.max(0), kind="stable") if moved[:, k].any()]
    what = "label" if task == "multilabel" else "class"
    found = []
    for k in order[:_MOST_SENTENCES]:
        i = int(distance[:, k].argmax())
        found.append(
            f"--time {one_line(time, 60)}: {what} {one_line(classes[k], 40)!r} is {then[i, k]:.1%} of the rows to "
            f"train on and {now[i, k]:.1%} of the test rows in repeat {i + 1} (it moved in {int(moved[:, k].sum())} of "
            f"{len(parts)} repeats): a rule tuned on the past may not suit the future"
        )
    if rest := [classes[k] for k in order[_MOST_SENTENCES:]]:
        shown = one_line(", ".join(map(repr, rest)), 120)
        found.append(f"--time {one_line(time, 60)}: the shares of {len(rest)} more moved as well: {shown}")
    return found


def _compute_shares(
    targets: np.ndarray, classes: Sequence[str], parts: Sequence[Split]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of each class among the rows to train on, and among the test rows: ``(repeats, classes)``."""
    one_hot = targets if targets.ndim == 2 else targets[:, None] == np.arange(len(classes))
    then, now = ([one_hot[getattr(part, name)].mean(0) for part in parts] for name in ("train", "test"))
    return np.stack(then), np.stack(now)


def _has_moved(then: float, now: float, part: Split) -> bool:
    """Return whether a share moved; a class without rows has a warning of its own."""
    return then > 0 and now > 0 and has_moved(then, now, len(part.train), len(part.test))
