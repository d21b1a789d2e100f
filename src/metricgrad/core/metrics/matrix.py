"""Metrics of the d×d matrix, most of which are metrics of ``Counts`` too: accuracy, kappa, correlation.

A metric says by the annotation of its argument what it takes: ``Counts``, ``Confusion``, or either. Of a multi-class
problem the names here mean the quantity of the whole matrix, as in scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch  # noqa: F401  # for the examples

from metricgrad.core.array_functions import constant, functions_of
from metricgrad.core.counts import Confusion, ConfusionMargins, Counts
from metricgrad.core.metrics import class_sums
from metricgrad.core.metrics.derivatives import is_zero, ratio, root
from metricgrad.core.metrics.functions import recall, specificity
from metricgrad.core.metrics.properties import declare

if TYPE_CHECKING:
    from torch import Tensor

_OF_MATRIX = (Confusion, ConfusionMargins)


@declare(class_sums=class_sums.sum_accuracy)
def accuracy(c: Counts | Confusion, empty: float = 0.0) -> Tensor:
    """Accuracy, (TP + TN) / all; of the d×d matrix trace / all.

    For multi-label data it is 1 − Hamming loss.

    Parameters
    ----------
    c : Counts or Confusion
        Cells of shape ``(..., K)`` or a matrix of shape ``(..., d, d)``, soft or hard.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``; of a ``Confusion`` one value per matrix, ``(...)``.

    Examples
    --------
    >>> accuracy(Confusion(torch.tensor([[4.0, 1.0], [2.0, 3.0]])))
    tensor(0.7000)
    """
    if isinstance(c, _OF_MATRIX):
        true = c.true
        f = functions_of(true)
        return ratio(f.sum(c.hits, -1), f.sum(true, -1), empty)
    return ratio(c.tp + c.tn, c.total, empty)


@declare(class_sums=class_sums.sum_balanced_accuracy)
def balanced_accuracy(c: Counts | Confusion, empty: float = 0.0) -> Tensor:
    """Mean recall of the classes that have samples; of ``Counts`` that of positives and negatives.

    Parameters
    ----------
    c : Counts or Confusion
        Cells of shape ``(..., K)`` or a matrix of shape ``(..., d, d)``, soft or hard.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``; of a ``Confusion`` one value per matrix, ``(...)``.

    Examples
    --------
    >>> balanced_accuracy(Confusion(torch.tensor([[3.0, 1.0], [1.0, 1.0]])))
    tensor(0.6250)
    """
    if isinstance(c, _OF_MATRIX):
        support = c.true
        f = functions_of(support)
        recalls = ratio(c.hits, support)
        return ratio(f.sum(recalls, -1), f.sum(_present(support), -1), empty)
    # Positives or negatives without samples have no recall; the other recall counts alone, as in scikit-learn.
    sides = ratio(c.positives, c.positives) + ratio(c.negatives, c.negatives)
    return ratio(recall(c) + specificity(c), sides, empty)


@declare(class_sums=class_sums.sum_g_mean)
def g_mean(c: Counts | Confusion, empty: float = 0.0) -> Tensor:
    """Geometric mean of the recalls of the classes that have samples; of ``Counts`` √(recall·specificity).

    Parameters
    ----------
    c : Counts or Confusion
        Cells of shape ``(..., K)`` or a matrix of shape ``(..., d, d)``, soft or hard.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``; of a ``Confusion`` one value per matrix, ``(...)``.

    Examples
    --------
    >>> g_mean(Confusion(torch.tensor([[3.0, 1.0], [1.0, 2.0]])))
    tensor(0.7071)
    """
    if isinstance(c, _OF_MATRIX):
        support = c.true
        f = functions_of(support)
        present = _present(support)
        classes = f.sum(present, -1)
        recalls = ratio(c.hits, support)
        # exp of the mean logarithm: a product of thousands of recalls would underflow.
        dead = recalls <= 0
        logs = f.log(f.where(dead, 1.0, recalls))
        mean = f.exp(ratio(f.sum(logs, -1), classes))
        missed = f.sum(f.where(dead, present, 0.0), -1) > 0  # a class that is there and never found
        return f.where(classes == 0, empty, f.where(missed & ~f.isnan(mean), 0.0, mean))  # type: ignore[no-any-return]
    return root(recall(c, empty) * specificity(c, empty))


@declare(quasi_convex=True, class_sums=class_sums.sum_mcc)
def mcc(c: Counts | Confusion) -> Tensor:
    r"""Matthews correlation coefficient, in [−1, 1]; 0 if undefined.

    $(TP \cdot TN - FP \cdot FN) / \sqrt{(TP+FP)(TP+FN)(TN+FP)(TN+FN)}$; of the d×d matrix Gorodkin's R_K
    [gorodkin2004].

    Parameters
    ----------
    c : Counts or Confusion
        Cells of shape ``(..., K)`` or a matrix of shape ``(..., d, d)``, soft or hard.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``; of a ``Confusion`` one value per matrix, ``(...)``.

    Examples
    --------
    >>> mcc(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))))
    tensor(0.5833)
    """
    if isinstance(c, _OF_MATRIX):
        hits, true, predicted = _shares(c)
        f = functions_of(true)
        spread = _variance(true) * _variance(predicted)
        return ratio(f.sum(hits, -1) - f.sum(true * predicted, -1), root(spread))
    n = c.total
    tp, fp, fn, tn = ratio(c.tp, n), ratio(c.fp, n), ratio(c.fn, n), ratio(c.tn, n)
    spread = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return ratio(tp * tn - fp * fn, root(spread))


def _variance(shares: Tensor) -> Tensor:
    """1 − Σ s², as Σ s·(Σs − s): exactly zero when there is one class only."""
    f = functions_of(shares)
    return f.sum(shares * (f.sum(shares, -1, keepdim=True) - shares), -1)  # type: ignore[no-any-return]


def _present(support: Tensor) -> Tensor:
    """Return 1 for the classes that have samples, else 0; 1 for NaN, so that it shows in the result."""
    f = functions_of(support)
    return f.where(is_zero(support), 0.0, f.ones_like(support))  # type: ignore[no-any-return]


def _shares(c: Confusion | ConfusionMargins) -> tuple[Tensor, Tensor, Tensor]:
    """Return the diagonal and the sums of rows and columns, divided by that of all, so that no product overflows."""
    true = c.true
    total = functions_of(true).sum(true, -1, keepdim=True)
    return ratio(c.hits, total), ratio(true, total), ratio(c.predicted, total)


@declare(class_sums=class_sums.sum_kappa)
def kappa(c: Counts | Confusion, empty: float = 0.0) -> Tensor:
    """Cohen's kappa, (observed − chance) / (1 − chance) agreement [cohen1960], in [−1, 1].

    Parameters
    ----------
    c : Counts or Confusion
        Cells of shape ``(..., K)`` or a matrix of shape ``(..., d, d)``, soft or hard.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``; of a ``Confusion`` one value per matrix, ``(...)``.

    Examples
    --------
    >>> kappa(Confusion(torch.tensor([[4.0, 1.0], [2.0, 3.0]])))
    tensor(0.4000)
    """
    if isinstance(c, _OF_MATRIX):
        # Every error has the same price: no d×d table needed.
        hits, true, predicted = _shares(c)
        f = functions_of(true)
        observed = f.sum(true, -1) - f.sum(hits, -1)
        chance = f.sum(true, -1) * f.sum(predicted, -1) - f.sum(true * predicted, -1)
        return _one_minus_ratio(observed, chance, empty)
    # 2(TP·TN − FP·FN) / ((TP+FP)(FP+TN) + (TP+FN)(FN+TN)), in shares so that no product of counts overflows.
    n = c.total
    tp, fp, fn, tn = ratio(c.tp, n), ratio(c.fp, n), ratio(c.fn, n), ratio(c.tn, n)
    return ratio(2 * (tp * tn - fp * fn), (tp + fp) * (fp + tn) + (tp + fn) * (fn + tn), empty)


@declare(class_sums=class_sums.sum_quadratic_kappa)
def quadratic_kappa(c: Confusion, empty: float = 0.0) -> Tensor:
    """Cohen's kappa for ordered classes: an error costs its squared distance [cohen1968].

    Parameters
    ----------
    c : Confusion
        A matrix of shape ``(..., d, d)``, soft or hard.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per matrix, ``(...)``.

    Examples
    --------
    >>> quadratic_kappa(Confusion(torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 1.0, 1.0]])))
    tensor(0.8571)
    """
    f = functions_of(c.matrix)
    # Divided by the sum, so that no product of counts overflows.
    share = ratio(c.matrix, f.sum(c.matrix, (-2, -1), keepdim=True))
    true = f.sum(share, -1)
    predicted = f.sum(share, -2)
    steps = constant(range(share.shape[-1]), share)
    price = (steps[:, None] - steps) ** 2
    observed = f.sum(price * share, (-2, -1))
    chance = f.sum(price * true[..., :, None] * predicted[..., None, :], (-2, -1))
    return _one_minus_ratio(observed, chance, empty)


def _one_minus_ratio(observed: Tensor, chance: Tensor, empty: float) -> Tensor:
    """Return 1 − observed/chance, written as one ratio so that chance = 0 gives ``empty`` and no gradient."""
    return ratio(chance - observed, chance, empty)
