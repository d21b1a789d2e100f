"""Slow references in numpy for the attacks on decisions: four sums of their own, so that none is a difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import metricgrad as mg

METRICS = (
    *("f1", "f2", "precision", "recall", "specificity", "npv", "accuracy", "jaccard", "balanced_accuracy"),
    *("mcc", "kappa", "informedness", "markedness", "g_mean"),
)


def count(decided: Any, targets: Any, weight: Any) -> mg.Counts:
    """Return the counts of each label, ``(K,)``, of ``(N, K)`` decisions and ``(N,)`` weights."""
    d, y = np.asarray(decided, dtype=float), np.asarray(targets, dtype=float)
    w = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=float)
    cells = (d * y, d * (1 - y), (1 - d) * y, (1 - d) * (1 - y))
    return mg.Counts(*(torch.from_numpy((w[:, None] * cell).sum(0)) for cell in cells))


def value(metric: str, counts: mg.Counts, average: str | None) -> Any:
    """Return the metric of counts, averaged."""
    of_cells = mg.metrics.get(metric)
    if average == "micro":
        return float(of_cells(counts.map(lambda cell: cell.sum())))
    values = of_cells(counts).numpy()
    if average == "weighted":
        positives = counts.positives.numpy()
        return float((values * positives).sum() / positives.sum()) if positives.sum() else 0.0
    return values if average is None else float(values.mean())


def weights(rng: np.random.Generator, rows: int) -> Any:
    """Return weights of a random kind: none, whole numbers, floats, of many sizes, some of them 0."""
    kind = rng.integers(5)
    if kind == 0:
        return None
    if kind == 1:
        return rng.integers(0, 4, rows).astype(float)
    found = rng.random(rows) if kind == 2 else np.full(rows, 0.1) if kind == 3 else 10.0 ** rng.uniform(-3, 3, rows)
    return found * (rng.random(rows) < 0.9)
