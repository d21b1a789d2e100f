"""Metrics of the d×d matrix, of its diagonal and margins, with their derivatives in closed form, in numpy.

A metric of the matrix mixes all classes, which the jets of ``derivatives`` cannot, and autograd takes many small
operations. The values are those of ``matrix``; the tests compare the derivatives with autograd's.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from metricgrad.core.metrics import matrix
from metricgrad.core.metrics.derivatives import FLOORS
from metricgrad.core.numpy_arrays import np

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.metrics.signatures import Metric

Array = Any
"""An array of numpy in float64, which the type checker may not find installed."""

ValueAndDerivatives = tuple[float, Any, Any]
"""A value, and its derivatives by the diagonal and by what is predicted, numbers or arrays of all classes."""

FLOOR = FLOORS[torch.float64]


def differentiate_margins(metric: Metric, tp: Array, fp: Array, positives: Array) -> tuple[float, Array] | None:
    """Return the value of a metric of the matrix and its derivatives by TP and by FP, ``(2, d)``, all in float64.

    None is returned for a metric that has no closed form here, and where there is nothing to count.
    """
    function = metric
    options: dict[str, Any] = {}
    if isinstance(metric, partial):
        function = metric.func
        options = metric.keywords
        if metric.args or options.keys() - {"empty"}:
            return None
    formula = _FORMULAS.get(function)
    total = _sum(positives)
    if formula is None or not total >= FLOOR:
        return None
    # Shares of all, as in ``matrix``.
    hits = tp / total
    true = positives / total
    predicted = (tp + fp) / total
    value, by_hits, by_predicted = formula(hits, true, predicted, options.get("empty", 0.0))
    # A true positive is a hit and predicted, a false positive is predicted.
    derivatives = np.empty((2, len(tp)))
    derivatives[1] = by_predicted
    derivatives[0] = by_hits + derivatives[1]
    derivatives /= total
    return value, derivatives


def _sum(x: Array) -> float:
    return float(np.add.reduce(x))


def _compute_accuracy(hits: Array, true: Array, predicted: Array, empty: float) -> ValueAndDerivatives:
    whole = _sum(true)
    return _sum(hits) / whole, 1 / whole, 0.0


def _compute_balanced_accuracy(hits: Array, true: Array, predicted: Array, empty: float) -> ValueAndDerivatives:
    is_present = true >= FLOOR
    classes = int(np.count_nonzero(is_present))
    by_hits = np.where(is_present, 1 / true, 0.0) / classes
    recalls = np.where(is_present, hits / true, 0.0)
    return _sum(recalls) / classes, by_hits, 0.0


def _compute_g_mean(hits: Array, true: Array, predicted: Array, empty: float) -> ValueAndDerivatives:
    is_present = true >= FLOOR
    classes = int(np.count_nonzero(is_present))
    recalls = np.where(is_present, hits / true, 0.0)
    is_never_found = recalls <= 0
    logs = np.log(np.where(is_never_found, 1.0, recalls))
    value = math.exp(_sum(logs) / classes)
    misses_a_class = np.count_nonzero(is_never_found & is_present) > 0
    if misses_a_class and not math.isnan(value):
        return 0.0, 0.0, 0.0
    by_hits = np.where(is_never_found, 0.0, value / classes / hits)
    return value, by_hits, 0.0


def _compute_mcc(hits: Array, true: Array, predicted: Array, empty: float) -> ValueAndDerivatives:
    # The variance of shares s is Σ s·(Σs − s), its derivative by each s is 2·(Σs − s).
    true_variance = _sum(true * (_sum(true) - true))
    other_predicted = _sum(predicted) - predicted
    predicted_variance = _sum(predicted * other_predicted)
    spread = true_variance * predicted_variance
    if spread < FLOOR:
        return 0.0, 0.0, 0.0
    deviation = math.sqrt(spread)
    covariance = _sum(hits) - _sum(true * predicted)
    value = covariance / deviation
    by_predicted = true / -deviation - other_predicted * (value / predicted_variance)
    return value, 1 / deviation, by_predicted


def _compute_kappa(hits: Array, true: Array, predicted: Array, empty: float) -> ValueAndDerivatives:
    whole = _sum(true)
    observed = whole - _sum(hits)
    chance = whole * _sum(predicted) - _sum(true * predicted)
    if abs(chance) < FLOOR:
        return empty, 0.0, 0.0
    value = (chance - observed) / chance
    by_predicted = (whole - true) * (observed / chance / chance)
    return value, 1 / chance, by_predicted


_FORMULAS: dict[Any, Callable[[Array, Array, Array, float], ValueAndDerivatives]] = {
    matrix.accuracy: _compute_accuracy,
    matrix.balanced_accuracy: _compute_balanced_accuracy,
    matrix.g_mean: _compute_g_mean,
    matrix.mcc: _compute_mcc,
    matrix.kappa: _compute_kappa,
}
