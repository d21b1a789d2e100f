"""Metrics of the d×d matrix of its diagonal and margins, with their derivatives, in numpy.

A metric of the matrix mixes all classes, so that autograd would be the way to differentiate it. But it does so by sums
over the classes alone: a jet of one number then has, as derivatives, those by the TP and by the FP of every class. The
formulas are those of ``matrix``, and the tests compare the derivatives with autograd's.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from metricgrad.core.metrics import matrix
from metricgrad.core.metrics.derivatives import ARRAY_FLOORS, Jet
from metricgrad.core.numpy_arrays import np

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.metrics.signatures import Metric

Array = Any
"""An array of numpy in float64, which the type checker may not find installed."""


def differentiate_margins(metric: Metric, tp: Array, fp: Array, positives: Array) -> tuple[float, Array] | None:
    """Return the value of a metric of the matrix and its derivatives by TP and by FP, ``(2, d)``, all in float64.

    None is returned for a metric that has no formula here, and where there is nothing to count.
    """
    function, options = (metric.func, metric.keywords) if isinstance(metric, partial) else (metric, {})
    formula = _FORMULAS.get(function)
    if formula is None or options.keys() - {"empty"} or (isinstance(metric, partial) and metric.args):
        return None
    total = _sum(positives)
    if not total[0] >= ARRAY_FLOORS[total.dtype]:
        return None
    share = 1.0 / total
    hits = Jet(tp / total, share, 0.0)
    predicted = Jet((tp + fp) / total, share, share)
    jet = formula(hits, positives / total, predicted, options.get("empty", 0.0))
    derivatives = np.empty((2, len(tp)))
    derivatives[0] = jet.a
    derivatives[1] = jet.b
    return jet.value.item(), derivatives


def _sum(x: Array) -> Array:
    """Return the sum of a vector, as a vector of one number: numpy's scalars would be taken for plain numbers."""
    return np.add.reduce(x, keepdims=True)


def _sum_classes(terms: Jet) -> Jet:
    """Return the sum of the terms of all classes, each of which depends on the counts of its own class alone."""
    return Jet(_sum(terms.value), terms.a, terms.b)


def _variance(shares: Jet) -> Jet:
    """Return Σ s·(Σs − s), as ``matrix`` does; its derivative by each s is 2·(Σs − s)."""
    others = _sum(shares.value) - shares.value
    slopes = 2 * others
    return Jet(_sum(shares.value * others), slopes * shares.a, slopes * shares.b)


def _accuracy(hits: Jet, true: Array, predicted: Jet, empty: float) -> Jet:
    return _sum_classes(hits).ratio(Jet(_sum(true)), empty)


def _balanced_accuracy(hits: Jet, true: Array, predicted: Jet, empty: float) -> Jet:
    present = np.count_nonzero(true)
    recalls = hits.ratio(Jet(true), 0.0)
    mean: Jet = _sum_classes(recalls) * (1.0 / present)
    return mean


def _mcc(hits: Jet, true: Array, predicted: Jet, empty: float) -> Jet:
    true_variance = _sum(true * (_sum(true) - true))
    covariance = _sum_classes(hits - predicted * true)
    spread = _variance(predicted) * true_variance
    return covariance.ratio(spread.root(), 0.0)


def _kappa(hits: Jet, true: Array, predicted: Jet, empty: float) -> Jet:
    whole = _sum(true)
    observed = whole - _sum_classes(hits)
    chance = _sum_classes(predicted) * whole - _sum_classes(predicted * true)
    agreement: Jet = (chance - observed).ratio(chance, empty)
    return agreement


_FORMULAS: dict[Any, Callable[[Jet, Array, Jet, float], Jet]] = {
    matrix.accuracy: _accuracy,
    matrix.balanced_accuracy: _balanced_accuracy,
    matrix.mcc: _mcc,
    matrix.kappa: _kappa,
}
