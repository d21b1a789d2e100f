"""Losses of the ranking: the area under a soft curve, and the pairs that are in the wrong order.

Implemented directly they need a table of samples × thresholds, or of positives × negatives. Here a histogram of the
probabilities (``threshold_sums``), or one sort of the scores, gives the same sums and the same gradient in linear
(n log n) time and memory; both are made of differentiable operations, so second derivatives, ``torch.func`` and
``torch.compile`` need no path of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metricgrad.core.counts import wide
from metricgrad.core.inputs import whole_number
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.metrics.scalars import is_number
from metricgrad.core.surrogates import current_surrogate
from metricgrad.core.surrogates.base import ProbabilityStep
from metricgrad.core.surrogates.steps import Linear
from metricgrad.losses.per_class import MultiClass, PerClassLoss
from metricgrad.losses.threshold_sums import sum_any_steps, sum_linear_steps

if TYPE_CHECKING:
    from metricgrad.core.batch import Task
    from metricgrad.core.metrics.averages import Average
    from metricgrad.core.processes import ProcessGroup
    from metricgrad.core.surrogates import Annealed

__all__ = ["AUROCLoss", "WMWLoss"]

CurveKind = Literal["roc", "pr"]
Scale = Literal["probabilities", "logits"]


class AUROCLoss(PerClassLoss):
    r"""1 − the area under the ROC curve of soft sets [tsoi2022, eq. 18], a trapezoid over $\tau_i = i/k$.

    $\frac12\sum_{i=1}^k (FPR(\tau_{i-1}) - FPR(\tau_i))(TPR(\tau_i) + TPR(\tau_{i-1}))$, both rates set to 1 at τ = 0
    and to 0 at τ = 1, which the steps do not reach there. With ``curve="pr"`` it is average precision $\sum_i (R_{i-1}
    - R_i)\,Prec_{i-1}$, from recall 1 and the precision of predicting everything at τ = 0 to recall 0 at τ = 1, without
    linear interpolation, which is too optimistic in a precision–recall curve [davis2006].

    Parameters
    ----------
    surrogate : Linear, Sigmoid or Annealed, optional
        A step on probabilities, or ``Annealed`` from one to another; ``Linear()`` by default. A linear step takes O(N)
        time, any other O(N·k), and both take O(N) memory.
    thresholds : int, default 20
        k, at least 2.
    curve : {'roc', 'pr'}, default 'roc'
        "roc": the area under the ROC curve. "pr": average precision.
    max_fpr : float, optional
        In (0, 1]: the area up to this false positive rate alone, standardised as in scikit-learn, so that chance is ½
        and a perfect ranking 1 [mcclish1989].
    multi_class : {'ovr', 'ovo'}, default 'ovr'
        For "multiclass", as in scikit-learn: each class against the rest, or each against each other, the mean over
        ordered pairs of classes, on the samples of the two; "weighted" weights a pair by its samples.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    average : {'macro', 'micro', 'weighted'} or None, default 'macro'
        How the values of the classes become one. None returns one per class.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If the surrogate is not a step on probabilities, an option is out of its range, or two do not fit together.

    See Also
    --------
    WMWLoss : The other surrogate of AUROC, over pairs.
    metricgrad.curves.auroc : The exact hard value.

    Notes
    -----
    A class without positives or without negatives has no ROC curve: it counts as chance, ½, without gradient. Its
    average precision is 0 without positives and 1 without negatives. With ``process_group`` the processes add 2k sums
    per class; nothing is gathered. For "multiclass" the probabilities are those of the softmax; "ovo" takes k sums for
    each pair of classes, and for class indices and a linear step the time of "ovr".

    Examples
    --------
    >>> AUROCLoss()(torch.tensor([2.0, -1.0, 0.0]), torch.tensor([1, 0, 1]))
    tensor(0.1336)
    >>> z, y = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 0.5], [1.0, 0.0, 3.0]]), torch.tensor([0, 1, 2])
    >>> AUROCLoss(task="multiclass", multi_class="ovo")(z, y)
    tensor(0.0717)
    """

    adds_over_rows = True

    def __init__(
        self,
        surrogate: ProbabilityStep | Annealed | None = None,
        thresholds: int = 20,
        *,
        curve: CurveKind = "roc",
        max_fpr: float | None = None,
        multi_class: MultiClass = "ovr",
        task: Task | None = None,
        average: Average | None = "macro",
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(task, average, ignore_index, process_group, multi_class)
        self.surrogate: Any = Linear() if surrogate is None else surrogate
        if not isinstance(current_surrogate(self.surrogate), ProbabilityStep):
            raise ValueError(f"surrogate: expected a step on probabilities, Linear or Sigmoid, got {surrogate!r}")
        if curve not in get_args(CurveKind):
            raise ValueError(f"curve: expected 'roc' or 'pr', got {curve!r}")
        if max_fpr is not None and not (is_number(max_fpr) and 0 < max_fpr <= 1):
            raise ValueError(f"max_fpr: expected a rate in (0, 1] or None, got {max_fpr!r}")
        if max_fpr is not None and curve == "pr":
            raise ValueError("max_fpr: expected None with curve='pr', which has no false positive rate")
        self.thresholds = whole_number("thresholds", thresholds, 2)
        self.curve = curve
        self.max_fpr = None if max_fpr == 1 else max_fpr

    def compute_losses(self, z: Tensor, positive_weight: Tensor, negative_weight: Tensor) -> Tensor:
        tp, fp = self._sum_steps(z, positive_weight, negative_weight)
        positives = positive_weight.sum(0).to(tp.dtype)
        negatives = negative_weight.sum(0).to(tp.dtype)
        return 1 - self._compute_area(*self.sum_over_processes(tp, fp, positives, negatives))

    def compute_pair_losses(self, z: Tensor, positive_weight: Tensor, index: Tensor | None) -> Tensor:
        step = current_surrogate(self.surrogate)
        classes = z.shape[1]
        # Σ w·step of each column over the samples of each class: (k − 1, classes, columns).
        if index is not None and isinstance(step, Linear):
            row_weight = positive_weight.gather(1, index.unsqueeze(1))
            p = wide(torch.sigmoid(z))
            (flat_sums,) = sum_linear_steps(step, self.thresholds, p, row_weight, groups=index)
            sums = flat_sums.unflatten(1, (classes, classes))
        else:
            weight_of_each_class = positive_weight.split(1, 1)
            sums = torch.stack(self._sum_steps(z, *weight_of_each_class), 1)
        sums, positives = self.sum_over_processes(sums, positive_weight.sum(0).to(sums.dtype))
        tp = sums.diagonal(dim1=1, dim2=2).unsqueeze(2)
        fp = sums.transpose(1, 2)
        return 1 - self._compute_area(tp.expand(fp.shape), fp, positives.unsqueeze(1), positives)

    def _sum_steps(self, z: Tensor, *weights: Tensor) -> list[Tensor]:
        """Return Σ w·step at the thresholds between 0 and 1, ``(k − 1, K)`` for each of the weights."""
        step = current_surrogate(self.surrogate)
        p = torch.sigmoid(z)
        if isinstance(step, Linear):
            return sum_linear_steps(step, self.thresholds, wide(p), *weights)
        return list(sum_any_steps(step, self.thresholds, p, *(weight.to(p.dtype) for weight in weights)))

    def _compute_area(self, tp: Tensor, fp: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        if self.curve == "pr":
            return _compute_average_precision(tp, fp, positives, negatives)
        return _compute_roc_area(tp, fp, positives, negatives, self.max_fpr)

    def extra_repr(self) -> str:
        surrogate = "" if isinstance(self.surrogate, nn.Module) else f"surrogate={self.surrogate!r}"
        max_fpr = "" if self.max_fpr is None else f"max_fpr={self.max_fpr}"
        parts = [surrogate, f"thresholds={self.thresholds}", f"curve={self.curve!r}", max_fpr, super().extra_repr()]
        return ", ".join(part for part in parts if part)


def _compute_roc_area(tp: Tensor, fp: Tensor, positives: Tensor, negatives: Tensor, max_fpr: float | None) -> Tensor:
    """Return the areas ``(...)``, given TP and FP ``(k − 1, ...)`` at the thresholds between 0 and 1."""
    tpr = _with_ends(ratio(tp, positives))
    fpr = _with_ends(ratio(fp, negatives))
    # The rates fall, hence the sign.
    area = -torch.trapezoid(tpr, fpr, dim=0) if max_fpr is None else _compute_partial_area(tpr, fpr, max_fpr)
    has_no_curve = (positives == 0) | (negatives == 0)
    return torch.where(has_no_curve, 0.5, area)


def _compute_partial_area(tpr: Tensor, fpr: Tensor, max_fpr: float) -> Tensor:
    """Return the area up to a false positive rate, moved so that chance is ½ and the best is 1 [mcclish1989]."""
    width = -fpr.diff(dim=0)  # the rates fall
    width_inside = -fpr.clamp_max(max_fpr).diff(dim=0)  # the part of each trapezoid that counts
    mean_tpr_inside = tpr[1:] - tpr.diff(dim=0) * ratio(width_inside, width) / 2
    area = (width_inside * mean_tpr_inside).sum(0)
    chance = max_fpr * max_fpr / 2
    return (area - chance) / (2 * (max_fpr - chance)) + 0.5


def _compute_average_precision(tp: Tensor, fp: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    precision_of_everything = ratio(positives, positives + negatives)  # at τ = 0, where everything is predicted
    precision = torch.cat((precision_of_everything.unsqueeze(0), ratio(tp, tp + fp)))
    recall = _with_ends(ratio(tp, positives))
    return -(recall.diff(dim=0) * precision).sum(0)


def _with_ends(rates: Tensor) -> Tensor:
    """Put 1 before the rates (τ = 0: everything is predicted) and 0 after them (τ = 1: nothing is)."""
    one = torch.ones_like(rates[:1])
    return torch.cat((one, rates, 1 - one))


class WMWLoss(PerClassLoss):
    r"""The Wilcoxon–Mann–Whitney surrogate of AUROC [yan2003]: pairs that are not apart by γ are penalised.

    The mean over all pairs of a positive $x_i$ and a negative $y_j$ of $\max(\gamma - (x_i - y_j), 0)^p$, exactly, in
    O(N log N): the negatives within reach of a positive are a range of the sorted scores, and their sum of powers
    follows from cumulated moments. A pair weighs the product of its two weights.

    Parameters
    ----------
    gamma : float, default 0.2
        The margin γ, positive.
    power : {1, 2, 3}, default 2
        The exponent p.
    on : {'probabilities', 'logits'}, default 'probabilities'
        What is compared: sigmoids of the logits, as in the paper, or the logits themselves.
    multi_class : {'ovr', 'ovo'}, default 'ovr'
        For "multiclass", as in scikit-learn: each class against the rest, or each against each other, the mean over
        ordered pairs of classes, on the samples of the two; "weighted" weights a pair by its samples.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    average : {'macro', 'micro', 'weighted'} or None, default 'macro'
        How the values of the classes become one. None returns one per class.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If a number is out of its range, or two options do not fit together.

    See Also
    --------
    AUROCLoss : The area under the curve of soft sets.

    Notes
    -----
    A class without pairs has the loss 0, without gradient. With ``process_group`` the processes gather their rows,
    since a ranking is not a sum. For "multiclass" the probabilities are those of the softmax, and the logits the
    log-odds of each class against the rest; "ovo" takes the same sorts as "ovr".

    Examples
    --------
    >>> WMWLoss()(torch.tensor([2.0, 0.5, 0.0]), torch.tensor([1, 0, 1]))
    tensor(0.0520)
    """

    def __init__(
        self,
        gamma: float = 0.2,
        power: int = 2,
        *,
        on: Scale = "probabilities",
        multi_class: MultiClass = "ovr",
        task: Task | None = None,
        average: Average | None = "macro",
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(task, average, ignore_index, process_group, multi_class)
        if not 0 < gamma < math.inf:
            raise ValueError(f"gamma: expected a positive number, got {gamma!r}")
        if power not in (1, 2, 3):
            raise ValueError(f"power: expected 1, 2 or 3, got {power!r}")
        if on not in get_args(Scale):
            raise ValueError(f"on: expected 'probabilities' or 'logits', got {on!r}")
        self.gamma = gamma
        self.power = int(power)
        self.on = on

    def compute_losses(self, z: Tensor, positive_weight: Tensor, negative_weight: Tensor) -> Tensor:
        penalty = (negative_weight * self._sum_penalties(z, positive_weight)).sum(0)
        pairs = positive_weight.sum(0) * negative_weight.sum(0)
        return ratio(penalty, pairs)

    def compute_pair_losses(self, z: Tensor, positive_weight: Tensor, index: Tensor | None) -> Tensor:
        # The penalty of a negative does not depend on the other negatives: one product gives the sums over each class.
        penalty = self._sum_penalties(z, positive_weight).t() @ positive_weight
        positives = positive_weight.sum(0)
        return ratio(penalty, positives.unsqueeze(1) * positives)

    def _sum_penalties(self, z: Tensor, positive_weight: Tensor) -> Tensor:
        """Return for each sample, as a negative of each class, the sum of its penalties with the positives, ``(N, K)``.

        With x = score + γ of the negative, Σ w (x − t)^p over the positives of score t < x, which come first in the
        sorted scores, is expanded: Σ_m C(p, m) x^(p−m) Σ w (−t)^m.
        """
        scores = wide(torch.sigmoid(z) if self.on == "probabilities" else z)
        sorted_scores, order = scores.t().contiguous().sort(1)  # rows are classes
        number_within = torch.searchsorted(sorted_scores.detach(), sorted_scores.detach() + self.gamma)
        sorted_weight = positive_weight.t().gather(1, order)
        t = sorted_scores - sorted_scores.detach().mean(1, keepdim=True)  # smaller numbers, whose powers cancel less
        x = t + self.gamma
        penalties = torch.zeros_like(t)
        for m in range(self.power + 1):
            moments = F.pad((sorted_weight * (-t) ** m).cumsum(1), (1, 0))
            moment_within = moments.gather(1, number_within)
            penalties = penalties + math.comb(self.power, m) * x ** (self.power - m) * moment_within
        return torch.zeros_like(penalties).scatter(1, order, penalties).t()

    def extra_repr(self) -> str:
        parts = [f"gamma={self.gamma}", f"power={self.power}", f"on={self.on!r}", super().extra_repr()]
        return ", ".join(part for part in parts if part)
