"""Sparse scores with weights: evaluated as the dense matrix and as four plain sums; tuned thresholds by brute force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

import metricgrad as mg
from attacks import naive
from metricgrad.decisions import Threshold

if TYPE_CHECKING:
    from collections.abc import Iterable

TOLERANCE = 1e-9


def check(number: int) -> str | None:
    """Return what is wrong with a case, or None."""
    rng = np.random.default_rng([1, number])
    rows, labels = int(rng.integers(1, 40)), int(rng.integers(1, 6))
    steps = int(rng.choice([4, 20, 10_000]))  # many ties, some, hardly any
    scores = rng.integers(1, steps + 1, (rows, labels)) / steps * (rng.random((rows, labels)) < rng.random())
    targets = (rng.random((rows, labels)) < rng.random(labels)).astype(float)
    targets[:, 0] = rng.integers(0, 2) if rng.random() < 0.5 else targets[:, 0]  # always positive, or never
    weight = naive.weights(rng, rows)
    average = [None, "macro", "micro", "weighted"][rng.integers(4)]
    metric = str(rng.choice(naive.METRICS))
    threshold = float(rng.uniform(0.05, 1))
    case = f"{metric}, {average}, {rows} × {labels}, threshold {threshold}"
    how: Any = {"task": "multilabel", "average": average, "weight": weight}
    expected = naive.value(metric, naive.count(scores >= threshold, targets, weight), average)
    stored = (sp.csr_matrix(scores), sp.csr_matrix(targets))
    for kind, (s, y) in (("dense", (scores, targets)), ("sparse", stored)):
        found = mg.evaluate(s, y, [metric], threshold=threshold, **how)[metric]
        if not np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE):
            return f"{kind} value {found} is not {expected} | {case}"
    wrong = _check_at_k(rng, scores, targets, weight, average, case)
    if wrong is not None or average is None or (weight is not None and not weight.any()):
        return wrong
    return _check_tuned(metric, scores, targets, weight, average, case)


def _check_at_k(
    rng: np.random.Generator, scores: Any, targets: Any, weight: Any, average: str | None, case: str
) -> str | None:
    """Compare metrics of the k highest scores with those of the dense matrix, ties to the first label."""
    k = int(rng.integers(1, scores.shape[1] + 1))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    decided = np.zeros_like(scores)
    np.put_along_axis(decided, order, 1.0, axis=1)
    name = f"{rng.choice(['precision', 'f1', 'accuracy'])}@{k}"
    expected = naive.value(name.split("@")[0], naive.count(decided, targets, weight), average)
    how: Any = {"task": "multilabel", "average": average, "weight": weight}
    found = mg.evaluate(sp.csr_matrix(scores), sp.csr_matrix(targets), [name], **how)[name]
    if not np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE):
        return f"sparse {name} {found} is not {expected} | {case}"
    return None


def _check_tuned(metric: str, scores: Any, targets: Any, weight: Any, average: str, case: str) -> str | None:
    """Compare the tuned threshold that labels share with every threshold, and thresholds per label with that."""
    how: Any = {"task": "multilabel", "average": average, "weight": weight}
    cuts = [*np.unique(scores[scores > 0]), np.inf]
    best = max(naive.value(metric, naive.count(scores >= cut, targets, weight), average) for cut in cuts)
    for shared in (True, False):
        found = mg.tune_threshold(metric, sp.csr_matrix(scores), sp.csr_matrix(targets), shared=shared, **how)
        rule = found.rule
        if not isinstance(rule, Threshold):
            return f"expected thresholds, got {rule} | {case}"
        reached = naive.value(metric, naive.count(scores >= np.asarray(rule.threshold), targets, weight), average)
        if abs(found.value - reached) > TOLERANCE:
            return f"tuned value {found.value} (shared={shared}) is not what its rule reaches, {reached} | {case}"
        if found.value < best - TOLERANCE and (shared or average == "macro"):
            return f"tuned value {found.value} (shared={shared}) is below {best} | {case}"
        if shared and found.value > best + TOLERANCE:
            return f"tuned value {found.value} is above the best of all, {best} | {case}"
    return None


def check_all(numbers: Iterable[int]) -> dict[int, str]:
    """Return what is wrong, by the number of the case."""
    return {number: found for number in numbers if (found := check(number)) is not None}
