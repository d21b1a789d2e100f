"""Curves: exact hard counts at every distinct threshold, from one sort and a cumulative sum.

Any metric applies to them unchanged: ``metrics.f1(curve(scores, targets).counts)`` is F1 at every threshold.
Scores may be on any scale and come as torch tensors, numpy arrays or pandas columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.core.counts import Counts
from metricgrad.core.inputs import as_tensor
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.metrics.scalars import is_number

if TYPE_CHECKING:
    from metricgrad.core.inputs import ArrayLike

__all__ = [
    "Curve",
    "auroc",
    "average_precision",
    "curve",
    "curves",
    "equal_error_rate",
    "interpolated_average_precision",
    "precision_recall",
    "roc",
]


@dataclass(frozen=True, eq=False)
class Curve:
    """The cells of one class when everything that scores at least a threshold is predicted to be in it.

    Parameters
    ----------
    thresholds : Tensor
        ``(M,)``, the distinct scores from the highest to the lowest, after ∞, at which nothing is predicted.
    counts : Counts
        Cells of shape ``(M,)`` in float64, one for each threshold.

    See Also
    --------
    curve : Make one from scores and targets.
    """

    thresholds: Tensor
    counts: Counts


def curve(
    scores: ArrayLike, targets: ArrayLike, weight: ArrayLike | None = None, mask: ArrayLike | None = None
) -> Curve:
    """Return the exact hard counts at every distinct threshold of the scores of one class.

    Parameters
    ----------
    scores : Tensor or array
        ``(N,)``, on any scale.
    targets : Tensor or array
        ``(N,)``, 0 and 1 or soft labels in between.
    weight : Tensor or array, optional
        Per sample, ``(N,)``, not negative.
    mask : Tensor or array, optional
        True for what counts, ``(N,)``.

    Returns
    -------
    Curve
        M thresholds and the counts at each.

    Raises
    ------
    ValueError
        If shapes differ, a score is NaN, or targets or weights are out of range.

    Examples
    --------
    >>> c = curve(torch.tensor([0.9, 0.4, 0.4, 0.1]), torch.tensor([1, 0, 1, 0]))
    >>> c.thresholds
    tensor([   inf, 0.9000, 0.4000, 0.1000], dtype=torch.float64)
    >>> c.counts.tp
    tensor([0., 1., 2., 2.], dtype=torch.float64)
    """
    s = as_tensor("scores", scores).double()
    y = as_tensor("targets", targets).double()
    w = None if weight is None else as_tensor("weight", weight).double()
    if s.dim() != 1 or y.shape != s.shape:
        raise ValueError(f"scores and targets: expected (N,) both, got {tuple(s.shape)} and {tuple(y.shape)}")
    if w is not None and w.shape != s.shape:
        raise ValueError(f"weight: expected shape {tuple(s.shape)}, got {tuple(w.shape)}")
    if mask is not None:
        keep = as_tensor("mask", mask)
        if keep.dtype != torch.bool or keep.shape != s.shape:
            raise ValueError(f"mask: expected bool of shape {tuple(s.shape)}, got {keep.dtype} {tuple(keep.shape)}")
        s = s[keep]
        y = y[keep]
        w = None if w is None else w[keep]
    _check_values(s, y, w)
    return cumulate(s, y) if w is None else cumulate(s, w * y, w * (1 - y))


def cumulate(scores: Tensor, positives: Tensor, negatives: Tensor | None = None) -> Curve:
    """Return the curve of ``(N,)`` scores, each of which weighs so much as a positive and as a negative.

    By default negatives are 1 − positives. Weights ``(..., N)`` make a curve for each of their leading axes
    (replicates), from one sort.
    """
    sorted_scores, order = sort_descending(scores)
    last = last_of_equals(sorted_scores)
    indices_of_last = None if last.all() else last.nonzero().squeeze(1)

    def take_thresholds(x: Tensor, at_infinity: float = 0.0, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return the entries of x at each threshold, after one for the threshold ∞."""
        at_scores = x if indices_of_last is None else x.index_select(-1, indices_of_last)
        taken = torch.empty(*at_scores.shape[:-1], at_scores.shape[-1] + 1, dtype=dtype, device=x.device)
        taken[..., 0] = at_infinity
        taken[..., 1:] = at_scores
        return taken

    def sum_from_the_top(weights: Tensor) -> Tensor:
        int32_is_enough = weights.dtype == torch.int8 and len(sorted_scores) < 2**24
        dtype = torch.int32 if int32_is_enough else torch.float64
        # index_select, since weights[order] takes five times as long for 1e7 rows.
        sums = weights.index_select(-1, order).cumsum(-1, dtype=dtype)
        return take_thresholds(sums)

    tp = sum_from_the_top(positives)
    if negatives is None:
        predicted = take_thresholds(torch.arange(1, len(sorted_scores) + 1, device=scores.device))
        fp = predicted.sub_(tp)
    else:
        fp = sum_from_the_top(negatives)
    # At the lowest threshold everything is predicted: TP and FP are P and N there.
    fn = tp[..., -1:] - tp
    tn = fp[..., -1:] - fp
    thresholds = take_thresholds(sorted_scores, torch.inf, sorted_scores.dtype)
    return Curve(thresholds, Counts(tp, fp, fn, tn))


def last_of_equals(sorted_scores: Tensor) -> Tensor:
    """Return which sorted scores are the last of equal ones: a threshold includes all of these or none."""
    last = torch.ones(len(sorted_scores), dtype=torch.bool, device=sorted_scores.device)
    torch.ne(sorted_scores[1:], sorted_scores[:-1], out=last[:-1])
    return last


def sort_descending(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Sort ``(N,)`` scores from the highest down and return them with their order.

    Floats are sorted as integers that have the same order: torch sorts integers by radix, three times as fast.
    """
    integer_of = {torch.float32: torch.int32, torch.float64: torch.int64}
    if scores.dtype not in integer_of or scores.device.type != "cpu":
        return scores.sort(descending=True)
    ascending = _order_like_floats(scores.contiguous().view(integer_of[scores.dtype]))
    complement, order = ascending.bitwise_not().sort()  # ascending complements are descending numbers
    return _order_like_floats(complement.bitwise_not_()).view(scores.dtype), order


def _order_like_floats(bits: Tensor) -> Tensor:
    """Turn the bits of floats into integers of the same order, or back.

    Read as integers, negative floats are in reversed order: all their bits but the sign are flipped.
    """
    if not bits.numel() or bits.amin() >= 0:
        return bits
    return torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits)


def curves(
    scores: ArrayLike, targets: ArrayLike, weight: ArrayLike | None = None, mask: ArrayLike | None = None
) -> list[Curve]:
    """Return the curve of every class.

    Parameters
    ----------
    scores : Tensor or array
        ``(N, K)``, on any scale.
    targets : Tensor or array
        ``(N, K)``, 0 and 1 or soft labels in between.
    weight : Tensor or array, optional
        Per sample or per element: ``(N,)`` or ``(N, K)``.
    mask : Tensor or array, optional
        True for what counts: ``(N,)`` or ``(N, K)``.

    Returns
    -------
    list of Curve
        One per class.

    Raises
    ------
    ValueError
        If shapes differ, a score is NaN, or targets or weights are out of range.

    Examples
    --------
    >>> scores, targets = torch.tensor([[0.9, 0.2], [0.4, 0.7]]), torch.tensor([[1, 0], [0, 1]])
    >>> [float(auroc(c)) for c in curves(scores, targets)]
    [1.0, 1.0]
    """
    s = as_tensor("scores", scores)
    y = as_tensor("targets", targets)
    if s.dim() != 2 or y.shape != s.shape:
        raise ValueError(f"scores and targets: expected (N, K) both, got {tuple(s.shape)} and {tuple(y.shape)}")
    w = None if weight is None else as_tensor("weight", weight)
    m = None if mask is None else as_tensor("mask", mask)
    return [curve(s[:, k], y[:, k], _take_column(w, k), _take_column(m, k)) for k in range(s.shape[1])]


def roc(c: Curve) -> tuple[Tensor, Tensor]:
    """Return the ROC curve: false and true positive rates, from (0, 0) to (1, 1).

    Parameters
    ----------
    c : Curve
        What ``curve`` returned.

    Returns
    -------
    fpr, tpr : tuple of Tensor
        ``(M,)`` each, from the highest threshold on; NaN where there are no negatives, or no positives.

    Examples
    --------
    >>> roc(curve(torch.tensor([0.9, 0.4]), torch.tensor([1, 0])))[0]
    tensor([0., 0., 1.], dtype=torch.float64)
    """
    fpr = ratio(c.counts.fp, c.counts.negatives, torch.nan)
    tpr = ratio(c.counts.tp, c.counts.positives, torch.nan)
    return fpr, tpr


def precision_recall(c: Curve) -> tuple[Tensor, Tensor]:
    """Return the precision–recall curve.

    Parameters
    ----------
    c : Curve
        What ``curve`` returned.

    Returns
    -------
    precision, recall : tuple of Tensor
        ``(M,)`` each, from the highest threshold on; precision is 1 while nothing is predicted.

    Examples
    --------
    >>> precision_recall(curve(torch.tensor([0.9, 0.4]), torch.tensor([1, 0])))[0]
    tensor([1.0000, 1.0000, 0.5000], dtype=torch.float64)
    """
    precision = ratio(c.counts.tp, c.counts.predicted, 1.0)
    recall = ratio(c.counts.tp, c.counts.positives)
    return precision, recall


def auroc(c: Curve, max_fpr: float | None = None) -> Tensor:
    """Return the area under the ROC curve: the chance that a positive outscores a negative, ties counting half.

    Parameters
    ----------
    c : Curve
        What ``curve`` returned.
    max_fpr : float, optional
        Only the area up to this false positive rate, in (0, 1], scaled so that chance is 0.5 and the best 1
        [mcclish1989]: scikit-learn's partial AUROC. None for the whole area.

    Returns
    -------
    Tensor
        A scalar in float64; NaN without positives or without negatives.

    Raises
    ------
    ValueError
        If ``max_fpr`` is not in (0, 1].

    Examples
    --------
    >>> auroc(curve(torch.tensor([0.9, 0.4, 0.4, 0.1]), torch.tensor([1, 0, 1, 0])))
    tensor(0.8750, dtype=torch.float64)
    """
    fpr, tpr = roc(c)
    if max_fpr is None:
        return torch.trapezoid(tpr, fpr)
    if not (is_number(max_fpr) and 0 < max_fpr <= 1):
        raise ValueError(f"max_fpr: expected a number in (0, 1], got {max_fpr!r}")
    # The part of each trapezoid left of the line x = max_fpr; a vertical step at max_fpr itself is inside.
    width = fpr.clamp(max=max_fpr).diff()
    share_of_step = ratio(width, fpr.diff())
    middle = tpr[..., :-1] + tpr.diff() * share_of_step / 2
    area = (width * middle).sum(-1)
    chance = max_fpr**2 / 2
    return 0.5 + (area - chance) / (max_fpr - chance) / 2


def equal_error_rate(c: Curve) -> Tensor:
    """Return (FNR + FPR) / 2 at the threshold where the two are nearest to each other; lower is better.

    If two thresholds are equally near, one with more misses and one with more false alarms, the larger value counts.

    Parameters
    ----------
    c : Curve
        What ``curve`` returned.

    Returns
    -------
    Tensor
        A scalar in float64; NaN without positives or without negatives.

    Examples
    --------
    >>> equal_error_rate(curve(torch.tensor([0.9, 0.4, 0.3, 0.1]), torch.tensor([1, 0, 1, 0])))
    tensor(0.5000, dtype=torch.float64)
    """
    fpr, tpr = roc(c)
    distance = (1 - tpr - fpr).abs()
    # Rates are rounded, so that equal distances may differ in their last digits.
    nearest = distance <= distance.amin(-1, keepdim=True) + 1e-12
    error_rate = (1 - tpr + fpr) / 2
    largest = torch.where(nearest, error_rate, 0.0).amax(-1)
    return torch.where(distance.isnan().any(-1), torch.nan, largest)


def average_precision(c: Curve) -> Tensor:
    r"""Return $\sum_i (R_i - R_{i-1}) P_i$, scikit-learn's average precision.

    Parameters
    ----------
    c : Curve
        What ``curve`` returned.

    Returns
    -------
    Tensor
        A scalar in float64; 0 without positives.

    Examples
    --------
    >>> average_precision(curve(torch.tensor([0.9, 0.4, 0.1]), torch.tensor([1, 0, 1])))
    tensor(0.8333, dtype=torch.float64)
    """
    precision, recall = precision_recall(c)
    return (recall.diff() * precision[..., 1:]).sum(-1)


def interpolated_average_precision(c: Curve) -> Tensor:
    """Return average precision with each precision raised to the best at any higher recall [benedict2022, eq. 13].

    Parameters
    ----------
    c : Curve
        What ``curve`` returned.

    Returns
    -------
    Tensor
        A scalar in float64; 0 without positives.

    Examples
    --------
    >>> interpolated_average_precision(curve(torch.tensor([0.9, 0.4, 0.1]), torch.tensor([0, 1, 1])))
    tensor(0.6667, dtype=torch.float64)
    """
    precision, recall = precision_recall(c)
    best_at_higher_recall = precision[..., 1:].flip(-1).cummax(-1).values.flip(-1)
    return (recall.diff() * best_at_higher_recall).sum(-1)


def _take_column(x: Tensor | None, k: int) -> Tensor | None:
    """Return the weights or the mask of class k, which may be the same for all classes."""
    return x if x is None or x.dim() == 1 else x[:, k]


def _check_values(s: Tensor, y: Tensor, w: Tensor | None) -> None:
    if s.isnan().any():
        raise ValueError(f"scores: expected numbers, got {int(s.isnan().sum())} NaN; use mask= to leave them out")
    if y.numel() and not (y.min() >= 0 and y.max() <= 1):
        raise ValueError(f"targets: expected values in [0, 1], got {y.min().item():g} to {y.max().item():g}")
    if w is not None and w.numel() and not w.min() >= 0:
        raise ValueError(f"weight: expected no negative value, got {w.min().item():g}")
