"""Metrics: plain functions ``Counts -> Tensor``, elementwise, higher is better.

A metric of your own is such a function; no class, no registration. One in this file is known by its name as well: what
its first argument is annotated with makes it a metric. Written with ``+ - * /``, ``ratio`` and ``root`` it is as fast
and as safe as the ones here; with other torch functions it works too. A metric of the d×d matrix annotates its argument
as ``Confusion``. Every division takes ``empty``, the value of 0/0 (scikit-learn's ``zero_division``).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.counts import Confusion, Counts
from metricgrad.metrics.derivatives import is_zero, ratio, root

Metric = Callable[..., Tensor]
"""A function of ``Counts`` (or ``Confusion``), elementwise over its cells, higher is better."""


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
    if isinstance(c, Confusion):
        return ratio(c.matrix.diagonal(dim1=-2, dim2=-1).sum(-1), c.matrix.sum((-2, -1)), empty)
    return ratio(c.tp + c.tn, c.total, empty)


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


def f_beta(c: Counts, beta: float | Tensor = 1.0, empty: float = 0.0) -> Tensor:
    r"""F-beta, $(1+\beta^2)TP / ((1+\beta^2)TP + \beta^2 FN + FP)$ [vanrijsbergen1979].

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
    if isinstance(c, Confusion):
        support = c.matrix.sum(-1)
        recalls = ratio(c.matrix.diagonal(dim1=-2, dim2=-1), support)
        return ratio(recalls.sum(-1), (~is_zero(support)).to(support.dtype).sum(-1), empty)
    # Positives or negatives without samples have no recall; the other recall counts alone, as in scikit-learn.
    sides = ratio(c.positives, c.positives) + ratio(c.negatives, c.negatives)
    return ratio(recall(c) + specificity(c), sides, empty)


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
    if isinstance(c, Confusion):
        support = c.matrix.sum(-1)
        present = ~is_zero(support)  # NaN included, so that it shows in the result
        recalls = ratio(c.matrix.diagonal(dim1=-2, dim2=-1), support)
        # exp of the mean logarithm: a product of thousands of recalls would underflow.
        dead = (present & (recalls <= 0)).any(-1)
        logs = recalls.masked_fill(~present | (recalls <= 0), 1.0).log()
        mean = torch.exp(ratio(logs.sum(-1), present.to(support.dtype).sum(-1)))
        return mean.masked_fill(dead & ~mean.isnan(), 0.0).masked_fill(~present.any(-1), empty)
    return root(recall(c, empty) * specificity(c, empty))


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
    if isinstance(c, Confusion):
        shares = c.map(lambda m: ratio(m, m.sum((-2, -1), keepdim=True)))  # so that no product of counts overflows
        true, predicted = shares.matrix.sum(-1), shares.matrix.sum(-2)
        hits = shares.matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
        spread = _variance(true) * _variance(predicted)
        return ratio(hits - (true * predicted).sum(-1), root(spread))
    n = c.total
    tp, fp, fn, tn = ratio(c.tp, n), ratio(c.fp, n), ratio(c.fn, n), ratio(c.tn, n)
    spread = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return ratio(tp * tn - fp * fn, root(spread))


def _variance(shares: Tensor) -> Tensor:
    """1 − Σ s², as Σ s·(Σs − s): exactly zero when there is one class only."""
    return (shares * (shares.sum(-1, keepdim=True) - shares)).sum(-1)


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
    if isinstance(c, Confusion):
        return _weighted_kappa(c, power=0, empty=empty)
    # 2(TP·TN − FP·FN) / ((TP+FP)(FP+TN) + (TP+FN)(FN+TN)), in shares so that no product of counts overflows.
    n = c.total
    tp, fp, fn, tn = ratio(c.tp, n), ratio(c.fp, n), ratio(c.fn, n), ratio(c.tn, n)
    return ratio(2 * (tp * tn - fp * fn), (tp + fp) * (fp + tn) + (tp + fn) * (fn + tn), empty)


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
    return _weighted_kappa(c, power=2, empty=empty)


def _weighted_kappa(c: Confusion, power: int, empty: float) -> Tensor:
    share = ratio(c.matrix, c.matrix.sum((-2, -1), keepdim=True))
    d = share.shape[-1]
    true, predicted = share.sum(-1), share.sum(-2)
    if power == 0:  # every error has the same price: no d×d table needed
        observed = share.sum((-2, -1)) - share.diagonal(dim1=-2, dim2=-1).sum(-1)
        chance = true.sum(-1) * predicted.sum(-1) - (true * predicted).sum(-1)
    else:
        steps = torch.arange(d, dtype=share.dtype, device=share.device)
        price = (steps[:, None] - steps).abs() ** power
        observed = (price * share).sum((-2, -1))
        chance = (price * true.unsqueeze(-1) * predicted.unsqueeze(-2)).sum((-2, -1))
    # 1 − observed/chance, written as one ratio so that chance = 0 gives `empty` and no gradient.
    return ratio(chance - observed, chance, empty)


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
    return torch.clamp(1 - errors, min=0).masked_fill(c.total == 0, empty)


def cost(c: Counts, fp: float = 1.0, fn: float = 1.0, empty: float = 0.0) -> Tensor:
    """1 − (price of the errors) / (price if everything were wrong): a price for each kind of error.

    Parameters
    ----------
    c : Counts
        Cells of shape ``(..., K)``, soft or hard.
    fp : float, default 1.0
        The price of a false positive.
    fn : float, default 1.0
        The price of a false negative.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        One value per class, ``(..., K)``.

    Examples
    --------
    >>> cost(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))), fp=1.0, fn=10.0)
    tensor(0.7609)
    """
    worst = fp * c.negatives + fn * c.positives
    return ratio(worst - fp * c.fp - fn * c.fn, worst, empty)


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


def names() -> list[str]:
    """Return the names that ``get`` knows; besides them any "f<number>" and "package.module:function".

    Returns
    -------
    list of str
        Sorted.

    Examples
    --------
    >>> names()[:3]
    ['accuracy', 'balanced_accuracy', 'cost']
    """
    return sorted(_BY_NAME)


def get(metric: str | Metric) -> Metric:
    """Return a metric by its name; a function is returned as it is.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).

    Returns
    -------
    callable
        A function of ``Counts`` (or ``Confusion``).

    Raises
    ------
    ValueError
        If the name is unknown, with what may have been meant.

    Examples
    --------
    >>> get("f2")(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))))
    tensor(0.7500)
    """
    if callable(metric):
        return metric
    if not isinstance(metric, str):
        raise ValueError(f"metric: expected a name or a function of Counts, got {metric!r}")
    if metric in _BY_NAME:
        return _BY_NAME[metric]
    if match := re.fullmatch(r"f_?(\d+(?:\.\d*)?|\.\d+)", metric):
        return partial(f_beta, beta=float(match[1]))
    if ":" in metric:
        return _imported(metric)
    known = ", ".join(names())
    raise ValueError(
        f'metric: unknown name {metric!r}{_hint(metric)} Known: {known}, "f<number>", "package.module:function"'
    )


# Names used elsewhere, in lower case, without separators.
_OTHER_NAMES = {
    "acc": "accuracy",
    "bacc": "balanced_accuracy",
    "bookmakerinformedness": "informedness",
    "cohenkappa": "kappa",
    "dicecoefficient": "f1",
    "dice": "f1",
    "dicescore": "f1",
    "dsc": "f1",
    "fmeasure": "f1",
    "fmi": "fowlkes_mallows",
    "fscore": "f1",
    "gmean": "g_mean",
    "hitrate": "recall",
    "intersectionoverunion": "jaccard",
    "iou": "jaccard",
    "matthews": "mcc",
    "matthewscorrcoef": "mcc",
    "miou": "jaccard",
    "phi": "mcc",
    "ppv": "precision",
    "qwk": "quadratic_kappa",
    "sensitivity": "recall",
    "selectivity": "specificity",
    "threatscore": "jaccard",
    "tnr": "specificity",
    "tpr": "recall",
    "youden": "informedness",
    "youdenj": "informedness",
}
# Error rates: 1 − a metric, since here higher is better.
_COMPLEMENTS = {
    "error": "accuracy",
    "errorrate": "accuracy",
    "fdr": "precision",
    "fnr": "recall",
    "for": "npv",
    "fpr": "specificity",
    "hammingloss": "accuracy",
    "missrate": "recall",
}
# Metrics that are no function of the counts at one threshold, and the loss that trains on them.
_LOSSES = {
    "ap": "AUROCLoss(curve='pr')",
    "auc": "AUROCLoss()",
    "auprc": "AUROCLoss(curve='pr')",
    "auroc": "AUROCLoss()",
    "averageprecision": "AUROCLoss(curve='pr')",
    "eer": "EERLoss()",
    "equalerrorrate": "EERLoss()",
    "map": "AUROCLoss(curve='pr')",
    "meanaverageprecision": "AUROCLoss(curve='pr')",
    "prauc": "AUROCLoss(curve='pr')",
    "prbep": "PRBEPLoss()",
    "precisionatk": "PrecisionAtKLoss(k)",
    "recallatfpr": "RecallAtFPRLoss(fpr)",
    "recallatprecision": "RecallAtPrecisionLoss(p)",
    "rocauc": "AUROCLoss()",
    "wmw": "WMWLoss()",
}


def _hint(name: str) -> str:
    """Return a suggestion for an unknown name, to append to a message."""
    plain = re.sub(r"[^a-z0-9.]", "", name.lower().removesuffix("_score").replace("@", "at"))
    plain = re.sub(r"^precisionat\d+$", "precisionatk", plain)
    if plain in _LOSSES:
        return f"; it is not a metric of counts: mg.{_LOSSES[plain]} trains on it."
    if plain in _COMPLEMENTS:
        return f"; did you mean {_COMPLEMENTS[plain]!r}, which is 1 - {name}?"
    ours = {known.replace("_", ""): known for known in _BY_NAME}
    if plain in ours or plain in _OTHER_NAMES:
        return f"; did you mean {ours.get(plain, _OTHER_NAMES.get(plain))!r}?"
    if re.fullmatch(r"f\d+(\.\d*)?", plain):
        return f"; did you mean {plain!r}?"
    close = difflib.get_close_matches(name.lower(), _BY_NAME, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _imported(path: str) -> Metric:
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"metric: cannot import {path!r} ({error}); expected 'package.module:function'") from error
    if not callable(found):
        raise ValueError(f"metric: {path!r} is {type(found).__name__}, expected a function of Counts")
    return found  # type: ignore[no-any-return]


def name_of(metric: Metric) -> str:
    """Return the name of a metric, with its fixed arguments, for messages."""
    if isinstance(metric, partial):
        inner = ", ".join(f"{key}={value!r}" for key, value in metric.keywords.items())
        return f"{name_of(metric.func)}({inner})"
    return getattr(metric, "__name__", repr(metric))


def of_matrix(metric: Metric) -> bool:
    """Return whether a metric takes the d×d matrix: whether its first argument is annotated ``Confusion``."""
    return "Confusion" in _annotation(metric)


def of_counts(metric: Metric) -> bool:
    """Return whether a metric takes one-vs-rest cells: every metric but those of the matrix alone."""
    annotation = _annotation(metric)
    return "Confusion" not in annotation or "Counts" in annotation


def _annotation(metric: Metric) -> str:
    try:
        first = next(iter(inspect.signature(metric).parameters.values()))
    except (TypeError, ValueError, StopIteration):  # a built-in without a signature: taken as a function of Counts
        return ""
    return first.annotation if isinstance(first.annotation, str) else repr(first.annotation)


# A metric is found by being defined above: a public function whose first argument is Counts or Confusion.
_BY_NAME: dict[str, Metric] = {
    name: function
    for name, function in list(globals().items())
    if inspect.isfunction(function)
    and function.__module__ == __name__
    and not name.startswith("_")
    and re.search("Counts|Confusion", _annotation(function))
}

if not TYPE_CHECKING:  # type checkers see the functions themselves
    __all__ = sorted(["Metric", "get", "names", "ratio", "root", *_BY_NAME])
