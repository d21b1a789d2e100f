"""What a report shows of each contender, pooled over the test rows of all repeats: curves, confusion, mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from metricgrad import metrics
from metricgrad.app.contenders.table import CONTENDERS
from metricgrad.app.errors import one_line
from metricgrad.app.report.binned import binned
from metricgrad.counts import Counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from metricgrad.app.contenders.scorers import Goal
    from metricgrad.app.report.payload import ClassCurve, Details, Epoch, Mistake, PerClass
    from metricgrad.app.study.protocol import Outcome

MISTAKES, CELLS, TEXT = 20, 12, 60
"""How many mistakes are shown, how many cells of each, how many letters of each cell."""


@dataclass(frozen=True, eq=False)
class Table:
    """The labelled rows as they were read, their targets, and the names of the classes."""

    frame: pd.DataFrame
    targets: Any
    names: tuple[str, ...]


def details(
    goal: Goal, table: Table, outcomes: Sequence[Outcome], scores: Sequence[Any], rows: Sequence[Any]
) -> Details:
    """Return the details of one contender, given its outcome, scores and test rows in each repeat."""
    targets, names = table.targets, table.names
    truth = [targets[mine] for mine in rows]
    decided = [np.asarray(o.tuned.rule(s)).astype(int) for o, s in zip(outcomes, scores, strict=True)]
    s, y, d = (np.concatenate(each) for each in (scores, truth, decided))
    at = np.concatenate(list(rows))
    shown = _curves(goal, names, outcomes, s, y)
    found = [curve["average_precision"] for curve in shown]
    known = [value for value in found if value is not None]
    return {
        "average_precision": sum(known) / len(known) if known else None,
        "classes": shown,
        "confusion": _confusion(y, d, len(names)) if goal.task != "multilabel" else [],
        "per_class": _per_class(goal, names, y, d),
        "history": _history(outcomes[0]),
        "errors": _mistakes(goal, table, s, y, d, at),
    }


def _curves(goal: Goal, names: Sequence[str], outcomes: Sequence[Outcome], s: Any, y: Any) -> list[ClassCurve]:
    found: list[ClassCurve] = []
    for k in [1] if goal.task == "binary" else range(len(names)):
        place = 0 if goal.task == "binary" else k
        tuned = [cut for o in outcomes if (cut := o.tuned.rule.cut(place)) is not None]
        threshold = median(tuned) if tuned else None
        plateaus = [one for o in outcomes if (one := _plateau(o.tuned.plateau, place)) is not None]
        column, truth = (s, y) if s.ndim == 1 else (s[:, k], y == k if y.ndim == 1 else y[:, k])
        found.append(
            {
                **binned(column, truth.astype(np.int64), include=[threshold]),
                "name": names[k],
                "threshold": threshold,
                "plateau": (median(p[0] for p in plateaus), median(p[1] for p in plateaus)) if plateaus else None,
            }
        )
    return found


def _plateau(plateau: Any, k: int) -> tuple[float, float] | None:
    """Return the ends of class k's plateau, if they are finite."""
    if plateau is None:
        return None
    ends = plateau[k] if isinstance(plateau[0], tuple | list) else plateau
    return (ends[0], ends[1]) if np.isfinite(ends).all() else None


def _confusion(y: Any, d: Any, classes: int) -> list[list[int]]:
    found: list[list[int]] = np.bincount(y * classes + d, minlength=classes**2).reshape(classes, classes).tolist()
    return found


def _per_class(goal: Goal, names: Sequence[str], y: Any, d: Any) -> list[PerClass]:
    found: list[PerClass] = []
    for k, name in enumerate(names):
        truth, said = (y[:, k] == 1, d[:, k] == 1) if goal.task == "multilabel" else (y == k, d == k)
        cells = ((truth & said).sum(), (~truth & said).sum(), (truth & ~said).sum(), (~truth & ~said).sum())
        counts = Counts(*(torch.tensor(float(cell)) for cell in cells))
        values = {key: float(metrics.get(key)(counts)) for key in ("precision", "recall", "f1")}
        found.append(
            {
                "name": name,
                "precision": values["precision"],
                "recall": values["recall"],
                "f1": values["f1"],
                "support": int(truth.sum()),
            }
        )
    return found


def _history(outcome: Outcome) -> list[Epoch]:
    soft = CONTENDERS[outcome.contender].shows_soft_metric
    return [
        {
            "epoch": int(row["epoch"]) + 1,
            "loss": row["loss"],
            "soft": 1 - row["loss"] if soft else None,
            "hard": row.get("value"),
        }
        for row in outcome.history
    ]


def _mistakes(goal: Goal, table: Table, s: Any, y: Any, d: Any, at: Any) -> list[Mistake]:
    """Return the surest of the wrong decisions, every row once."""
    frame, names = table.frame, table.names
    if goal.task == "multiclass":
        everyone = np.arange(len(y))
        label, score = np.full(len(y), -1), s[everyone, d]
        sure = np.where(d != y, score - s[everyone, y], -np.inf)
    elif goal.task == "multilabel":
        wrong = np.where(d != y, np.abs(s - (1 - d)), -np.inf)
        label = wrong.argmax(1)
        score, sure = s[np.arange(len(y)), label], wrong.max(1)
    else:
        label, score, sure = np.full(len(y), -1), s, np.where(d != y, np.abs(s - (1 - d)), -np.inf)
    found: dict[int, Mistake] = {}
    for i in np.argsort(-sure, kind="stable"):
        if len(found) == MISTAKES or not np.isfinite(sure[i]):
            break
        k, row = int(label[i]), int(at[i])
        pair = (y[i, k], d[i, k]) if k >= 0 else (y[i], d[i])
        truth, decided = (names[int(p)] if k < 0 else f"{names[k]}: {'yes' if p else 'no'}" for p in pair)
        cells = [(one_line(name, TEXT), one_line(value, TEXT)) for name, value in frame.iloc[row].items()][:CELLS]
        found.setdefault(
            row,
            {
                "row": int(frame.index[row]) + 1,
                "score": float(score[i]),
                "truth": truth,
                "decided": decided,
                "cells": cells,
            },
        )
    return list(found.values())
