"""Two checks on what was trained: are the scores probabilities, and is the soft value that was trained the hard one."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.core.batch import check_task
from metricgrad.core.inputs import as_scored_batch, whole_number
from metricgrad.core.surrogates import Hard
from metricgrad.evaluation.score_bins import find_bins
from metricgrad.losses.metric_loss import MetricLoss

if TYPE_CHECKING:
    from metricgrad.core.batch import Task
    from metricgrad.core.inputs import ArrayLike
    from metricgrad.losses.hybrid_loss import HybridLoss


@dataclass(frozen=True, eq=False)
class Reliability:
    """Probabilities against the share of positives, in bins of equal width.

    Attributes
    ----------
    probability : Tensor
        The mean probability of each bin, ``(bins,)``; NaN where it is empty.
    frequency : Tensor
        The share of positives of each bin, ``(bins,)``; NaN where it is empty.
    weight : Tensor
        The weight of the samples of each bin, ``(bins,)``.
    error : float
        The expected calibration error: the weighted mean distance of ``probability`` and ``frequency``.
    worst : float
        The largest distance of the two.
    brier : float
        The mean squared distance of probability and outcome (Brier score).

    """

    probability: Tensor
    frequency: Tensor
    weight: Tensor
    error: float
    worst: float
    brier: float


def reliability(
    probabilities: ArrayLike,
    targets: ArrayLike,
    *,
    task: Task | None = None,
    bins: int = 10,
    weight: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> Reliability:
    """Return how well probabilities are calibrated: whether events of probability p happen in a share p of cases.

    Parameters
    ----------
    probabilities : Tensor or array-like
        In [0, 1], as torch, numpy, pandas or lists. Shape as for ``task``.
    targets : Tensor or array-like
        The true labels, as torch, numpy, pandas or lists. Shape as for ``task``.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": probabilities of any shape with targets of that shape. "multilabel": probabilities ``(N, K)`` or ``(N,
        K, ...)`` with targets of that shape. "multiclass": the same probabilities with class indices ``(N,)`` or ``(N,
        ...)``, or soft labels of the shape of the probabilities. Of "multiclass" the class of the highest probability
        counts alone. None is "binary" if the shapes leave no other reading, else an error.
    bins : int, default 10
        The number of bins of equal width.
    weight : array-like, optional
        Per sample or per element.
    mask : array-like of bool, optional
        True for what counts.

    Returns
    -------
    Reliability
        Mean probability and share of positives of each bin, the calibration error and the Brier score.

    Raises
    ------
    ValueError
        If a value lies outside [0, 1], or shapes do not fit the task.

    Examples
    --------
    >>> found = reliability([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 0], bins=2)
    >>> found.probability.tolist(), found.frequency.tolist(), round(found.error, 4)
    ([0.1, 0.9], [0.0, 0.5], 0.25)

    """
    bins = whole_number("bins", bins, 1)
    check_task(task)
    batch = as_scored_batch(task, probabilities, targets, weight, mask)
    p = batch.logits.double()
    y = batch.targets
    if p.numel() and not (p.min() >= 0 and p.max() <= 1):
        raise ValueError(f"probabilities: expected values in [0, 1], got {p.min().item():g} to {p.max().item():g}")
    w = torch.ones_like(p) if batch.weight is None else batch.weight.double().expand_as(p)
    if task == "multiclass":
        p, top = p.max(1)
        y = (y == top).double() if y.dim() == 1 else y.double().gather(1, top.unsqueeze(1)).squeeze(1)
        w = w[:, 0]
    p = p.flatten()
    y = y.double().flatten()
    w = w.flatten()
    bin_of = find_bins(p.to(batch.logits.dtype), bins).clamp(max=bins - 1)

    def sum_by_bin(values: Tensor) -> Tensor:
        return p.new_zeros(bins).index_add_(0, bin_of, values)

    bin_weight = sum_by_bin(w * torch.ones_like(p))
    probability = sum_by_bin(w * p) / bin_weight
    frequency = sum_by_bin(w * y) / bin_weight
    distance = torch.where(bin_weight > 0, (probability - frequency).abs(), 0.0)
    total_weight = bin_weight.sum().clamp(min=1e-300)
    error = (distance * bin_weight).sum() / total_weight
    brier = (w * (p - y) ** 2).sum() / total_weight
    return Reliability(probability, frequency, bin_weight, error.item(), distance.max().item(), brier.item())


@dataclass(frozen=True)
class Gap:
    """The soft value that is trained, the hard value that is evaluated, and their difference.

    Attributes
    ----------
    soft : float
        The metric of the soft counts, which the loss trains.
    hard : float
        The metric of the hard decisions.

    """

    soft: float
    hard: float

    @property
    def gap(self) -> float:
        """Soft − hard: if large, the loss is too optimistic, or the surrogate is not steep enough."""
        return self.soft - self.hard

    def __str__(self) -> str:
        return f"soft {self.soft:.4f}, hard {self.hard:.4f}, gap {self.gap:+.4f}"


def soft_hard_gap(
    loss: MetricLoss | HybridLoss,
    logits: Tensor,
    targets: Tensor,
    weight: Tensor | None = None,
    mask: Tensor | None = None,
) -> Gap:
    """Return the metric that a loss trains on these data, as it is softened and as it is.

    Parameters
    ----------
    loss : MetricLoss or HybridLoss
        With an average; of a hybrid the metric loss counts.
    logits : Tensor
        Shape as the loss takes it.
    targets : Tensor
        Shape as the loss takes it.
    weight : Tensor, optional
        Per sample or per element.
    mask : Tensor, optional
        True for what counts.

    Returns
    -------
    Gap
        ``soft``, ``hard`` and ``gap``, their difference.

    Raises
    ------
    ValueError
        If the loss has ``average=None``.

    Examples
    --------
    >>> gap = soft_hard_gap(MetricLoss("f1"), torch.tensor([2.0, 0.2, -0.1]), torch.tensor([1, 0, 1]))
    >>> print(gap)
    soft 0.7076, hard 0.5000, gap +0.2076

    """
    soft = loss if isinstance(loss, MetricLoss) else loss.metric_loss
    if soft.average == "per-class":
        raise ValueError("loss: expected one with an average, got average=None")
    hard = copy.copy(soft)
    # A surrogate may be a module, among the submodules that a plain copy would share.
    hard._modules = {name: part for name, part in soft._modules.items() if name != "surrogate"}
    hard.surrogate = Hard()
    hard._plans = {}
    with torch.no_grad():
        soft_value = 1 - float(soft(logits, targets, weight, mask))
        hard_value = 1 - float(hard(logits, targets, weight, mask))
    return Gap(soft_value, hard_value)
