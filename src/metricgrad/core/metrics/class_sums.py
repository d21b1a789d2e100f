"""Metrics of the d×d matrix as functions of sums over the classes, for the fast search of offsets.

When rows turn from one class to another, the counts of two classes change. A metric that depends on the matrix only
through sums over the classes of terms of each class's own counts needs no matrix then: two terms of the sum are
replaced. Accuracy, balanced accuracy, G-mean, MCC and both kappas are of this kind. Each function here returns one of
them in this form, for rows whose weighted labels are given; ``matrix`` declares them beside the metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from metricgrad.core.metrics.derivatives import ratio, root

if TYPE_CHECKING:
    from collections.abc import Callable

Terms = tuple[Tensor, ...]
"""The terms of each class, or their sums over the classes."""


class ClassSums(NamedTuple):
    """A metric of the d×d matrix as ``value(*sums over the classes of terms)``.

    Attributes
    ----------
    gain : Tensor
        ``(N, d)``: what row n adds to the sum of class k, if it is decided for k. For true positives it is the weight
        of the row in that class.
    terms : callable
        ``terms(gained, predicted, classes)``: the terms of the classes with these indices, elementwise, given their
        summed gains and the weight of the rows that are decided for them.
    value : callable
        The metric, given the sum over all classes of each term.

    """

    gain: Tensor
    terms: Callable[[Tensor, Tensor, Tensor], Terms]
    value: Callable[..., Tensor]


def sum_accuracy(weighted_labels: Tensor, empty: float = 0.0) -> ClassSums:
    """Return the accuracy: Σ TP / total."""
    total = weighted_labels.sum()

    def terms(tp: Tensor, predicted: Tensor, classes: Tensor) -> Terms:
        return (tp,)

    def value(hits: Tensor) -> Tensor:
        return ratio(hits, total.expand_as(hits), empty)

    return ClassSums(weighted_labels, terms, value)


def sum_balanced_accuracy(weighted_labels: Tensor, empty: float = 0.0) -> ClassSums:
    """Return the mean recall: Σ TP / P over the classes that have samples, divided by their number."""
    positives = weighted_labels.sum(0)
    present = (positives != 0).to(weighted_labels.dtype).sum()

    def terms(tp: Tensor, predicted: Tensor, classes: Tensor) -> Terms:
        return (ratio(tp, positives[classes]),)

    def value(recalls: Tensor) -> Tensor:
        return ratio(recalls, present.expand_as(recalls), empty)

    return ClassSums(weighted_labels, terms, value)


def sum_g_mean(weighted_labels: Tensor, empty: float = 0.0) -> ClassSums:
    """Return the geometric mean of recalls: exp(Σ log recall / classes), and 0 if a class is never found."""
    positives = weighted_labels.sum(0)
    present = (positives != 0).to(weighted_labels.dtype).sum()

    def terms(tp: Tensor, predicted: Tensor, classes: Tensor) -> Terms:
        own = positives[classes]
        recalls = ratio(tp, own)
        never_found = (own != 0) & (recalls <= 0)
        logs = recalls.masked_fill((recalls <= 0) | (own == 0), 1.0).log()
        return logs, never_found.to(weighted_labels.dtype)

    def value(logs: Tensor, never_found: Tensor) -> Tensor:
        mean = torch.exp(ratio(logs, present.expand_as(logs))).masked_fill(never_found > 0.5, 0.0)
        return mean if present > 0 else torch.full_like(mean, empty)

    return ClassSums(weighted_labels, terms, value)


def sum_mcc(weighted_labels: Tensor) -> ClassSums:
    """Return Gorodkin's R_K: the covariance of true and predicted classes over the root of their variances."""
    total = weighted_labels.sum()
    true = ratio(weighted_labels.sum(0), total)
    true_variance = (true * (true.sum() - true)).sum()

    def terms(tp: Tensor, predicted: Tensor, classes: Tensor) -> Terms:
        hits = ratio(tp, total.expand_as(tp))
        decided = ratio(predicted, total.expand_as(predicted))
        return hits - true[classes] * decided, decided * (true.sum() - decided)

    def value(covariance: Tensor, predicted_variance: Tensor) -> Tensor:
        return ratio(covariance, root(true_variance * predicted_variance))

    return ClassSums(weighted_labels, terms, value)


def sum_kappa(weighted_labels: Tensor, empty: float = 0.0) -> ClassSums:
    """Return Cohen's kappa: 1 − (share of errors) / (share of errors by chance)."""
    total = weighted_labels.sum()
    true = ratio(weighted_labels.sum(0), total)

    def terms(tp: Tensor, predicted: Tensor, classes: Tensor) -> Terms:
        hits = ratio(tp, total.expand_as(tp))
        decided = ratio(predicted, total.expand_as(predicted))
        return decided - hits, decided * (true.sum() - true[classes])

    def value(observed: Tensor, chance: Tensor) -> Tensor:
        return ratio(chance - observed, chance, empty)

    return ClassSums(weighted_labels, terms, value)


def sum_quadratic_kappa(weighted_labels: Tensor, empty: float = 0.0) -> ClassSums:
    """Return kappa for ordered classes: an error costs its squared distance."""
    total = weighted_labels.sum()
    true = ratio(weighted_labels.sum(0), total)
    steps = torch.arange(weighted_labels.shape[1], dtype=weighted_labels.dtype)
    # Σ_j labels_j (j − k)², the price of deciding for class k, expanded so that there is no table of d×d prices.
    squares = (weighted_labels @ steps**2).unsqueeze(1)
    products = (weighted_labels @ steps).unsqueeze(1)
    price = squares - 2 * products * steps + weighted_labels.sum(1, keepdim=True) * steps**2
    mean_price = (true * steps**2).sum() - 2 * (true * steps).sum() * steps + true.sum() * steps**2

    def terms(paid: Tensor, predicted: Tensor, classes: Tensor) -> Terms:
        share_paid = ratio(paid, total.expand_as(paid))
        decided = ratio(predicted, total.expand_as(predicted))
        return share_paid, decided * mean_price[classes]

    def value(observed: Tensor, chance: Tensor) -> Tensor:
        return ratio(chance - observed, chance, empty)

    return ClassSums(price, terms, value)
