"""Metrics of ``Counts``: plain functions ``Counts -> Tensor``, elementwise, higher is better.

A metric of your own is such a function; no class, no registration. One in this file is known by its name as well: what
its first argument is annotated with makes it a metric. Written with ``+ - * /``, ``ratio`` and ``root`` it is as fast
and as safe as the ones here; with other torch functions it works too. Metrics of the d×d matrix are in ``matrix``.
Every division takes ``empty``, the value of 0/0 (scikit-learn's ``zero_division``).

The file is long by its docstrings alone: a flat list of functions of one kind, most of one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch  # noqa: F401  # for the examples

from metricgrad.core.array_functions import functions_of
from metricgrad.core.counts import Counts  # noqa: TC001  # for the examples
from metricgrad.core.metrics.derivatives import ratio, root
from metricgrad.core.metrics.properties import declare

if TYPE_CHECKING:
    from torch import Tensor


def precision(c: Counts, empty: float = 0.0) -> Tensor:
    """Precision, TP / (TP + FP).

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> precision(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))))
    tensor(0.7500)
    """
    return ratio(c.tp, c.predicted, empty)


def recall(c: Counts, empty: float = 0.0) -> Tensor:
    """Recall, TP / (TP + FN): the true positive rate, or sensitivity.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> recall(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))))
    tensor(0.7500)
    """
    return ratio(c.tp, c.positives, empty)


def specificity(c: Counts, empty: float = 0.0) -> Tensor:
    """Specificity, TN / (TN + FP): the recall of the negatives.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> specificity(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 4.0))))
    tensor(0.8000)
    """
    return ratio(c.tn, c.negatives, empty)


def npv(c: Counts, empty: float = 0.0) -> Tensor:
    """Negative predictive value, TN / (TN + FN): the precision of the negatives.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> npv(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 4.0))))
    tensor(0.8000)
    """
    return ratio(c.tn, c.tn + c.fn, empty)


def predicted_positive_rate(c: Counts, empty: float = 0.0) -> Tensor:
    """Predicted positive rate, (TP + FP) / total: the share of the rows that are predicted positive.

    It tells nothing about which rows are right: it is for a capacity, ``subject_to="predicted_positive_rate <= 0.05"``.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> predicted_positive_rate(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))))
    tensor(0.4000)
    """
    return ratio(c.predicted, c.total, empty)


def f_beta(c: Counts, beta: float | Tensor = 1.0, empty: float = 0.0) -> Tensor:
    """F-beta, (1 + β²)TP / ((1 + β²)TP + β²FN + FP) [vanrijsbergen1979].

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    beta : float or Tensor, default 1.0
        A number, or a tensor with one β per class [tsoi2024, eq. 6]; β > 1 prefers recall.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> f_beta(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))))
    tensor(0.7500)
    """
    b = beta**2
    hits = (1 + b) * c.tp
    return ratio(hits, hits + b * c.fn + c.fp, empty)


def f1(c: Counts, empty: float = 0.0) -> Tensor:
    """F1, 2TP / (2TP + FN + FP): the harmonic mean of precision and recall; the Dice coefficient.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> f1(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))))
    tensor(0.7500)
    """
    return ratio(2 * c.tp, c.predicted + c.positives, empty)


def jaccard(c: Counts, empty: float = 0.0) -> Tensor:
    """Jaccard index, TP / (TP + FP + FN): intersection over union.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> jaccard(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))))
    tensor(0.6000)
    """
    return ratio(c.tp, c.tp + c.fp + c.fn, empty)


def tversky(c: Counts, alpha: float = 0.5, beta: float = 0.5, empty: float = 0.0) -> Tensor:
    """Tversky index, TP / (TP + α·FP + β·FN) [tversky1977].

    With α = β = ½ it is F1, with α = β = 1 the Jaccard index.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    alpha : float, default 0.5
        The price α of a false positive.
    beta : float, default 0.5
        The price β of a false negative.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> tversky(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))), alpha=1.0, beta=1.0)
    tensor(0.6000)
    """
    return ratio(c.tp, c.tp + alpha * c.fp + beta * c.fn, empty)


def worst_recall(c: Counts) -> Tensor:
    """Return the smaller of recall and specificity, 1 − max(FNR, FPR); a side without samples has no errors.

    Where the two are equal, which is where its maximum tends to lie, it is 1 − the equal error rate.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> worst_recall(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))))
    tensor(0.7500)
    """
    missed, alarm = ratio(c.fn, c.positives), ratio(c.fp, c.negatives)
    apart = missed - alarm
    return 1 - (missed + alarm + root(apart * apart)) / 2  # the maximum in arithmetic, see ``derivatives``


def informedness(c: Counts, empty: float = 0.0) -> Tensor:
    """Informedness, recall + specificity − 1: Youden's J, in [−1, 1].

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    empty : float, default 0.0
        The value of a recall or specificity that is 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> informedness(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 4.0))))
    tensor(0.5500)
    """
    return recall(c, empty) + specificity(c, empty) - 1


def markedness(c: Counts, empty: float = 0.0) -> Tensor:
    """Markedness, precision + NPV − 1, in [−1, 1].

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    empty : float, default 0.0
        The value of a precision or NPV that is 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> markedness(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 4.0))))
    tensor(0.5500)
    """
    return precision(c, empty) + npv(c, empty) - 1


@declare(quasi_convex=True)
def fowlkes_mallows(c: Counts, empty: float = 0.0) -> Tensor:
    """Fowlkes–Mallows index, √(precision·recall): the geometric mean where F1 is the harmonic one.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    empty : float, default 0.0
        The value of a precision or recall that is 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> fowlkes_mallows(Counts(*map(torch.tensor, (4.0, 0.0, 12.0, 5.0))))
    tensor(0.5000)
    """
    return root(precision(c, empty) * recall(c, empty))


def subset_accuracy(c: Counts, empty: float = 1.0) -> Tensor:
    """1 for a row without any error, else 0: for ``average="samples"``, where a row's labels are its counts.

    Soft counts give max(0, 1 − FP − FN), the largest lower bound that equals the hard value. It has no gradient once a
    row's soft errors reach one, so start from a trained model or train on samples-averaged F1 instead.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    empty : float, default 1.0
        The value of a row without labels that count.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> subset_accuracy(Counts(*map(torch.tensor, (3.0, 0.25, 0.25, 5.0))))
    tensor(0.5000)
    """
    errors = c.fp + c.fn
    f = functions_of(errors)
    return f.where(c.total == 0, empty, f.clamp(1 - errors, min=0))  # type: ignore[no-any-return]


def savings(c: Counts, fp: float = 1.0, fn: float = 1.0, empty: float = 0.0) -> Tensor:
    """1 − (price of the errors) / (price of the cheaper of predicting all and none): a price for each kind of error.

    1 without errors, 0 where deciding all rows alike is as cheap, negative where it is cheaper. ``mg.Cost`` has prices
    per row, gains, and the decision that is cheapest for a row.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    fp : float, default 1.0
        The price of a false positive, above that of a true negative.
    fn : float, default 1.0
        The price of a false negative, above that of a true positive.
    empty : float, default 0.0
        The value of 0/0, where there are positives or negatives alone; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> savings(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))), fp=1.0, fn=10.0)
    tensor(-0.8333)
    """
    price_of_none = fn * c.positives
    price_of_all = fp * c.negatives
    both = price_of_all + price_of_none
    apart = ratio(price_of_all - price_of_none, both)  # a share, whose square does not underflow with small prices
    dearer_share = (1 + root(apart * apart)) / 2
    cheaper = ratio(price_of_all, dearer_share * both) * price_of_none  # the minimum, as a product
    return ratio(cheaper - fp * c.fp - fn * c.fn, cheaper, empty)


def detection_cost(c: Counts, miss: float = 1.0, false_alarm: float = 1.0, prior: float = 0.5) -> Tensor:
    """1 − the detection cost of speaker and event detection, as a share of its worst value.

    The cost is miss·prior·FNR + false_alarm·(1 − prior)·FPR.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    miss : float, default 1.0
        The cost of a miss.
    false_alarm : float, default 1.0
        The cost of a false alarm.
    prior : float, default 0.5
        The share of targets where the model is used, not in the data.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> detection_cost(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 4.0))))
    tensor(0.7750)
    """
    missed, alarm = miss * prior, false_alarm * (1 - prior)
    return 1 - (missed * ratio(c.fn, c.positives) + alarm * ratio(c.fp, c.negatives)) / (missed + alarm)
