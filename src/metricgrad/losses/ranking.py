"""Losses of the ranking: the area under a soft curve, and the pairs that are in the wrong order.

Implemented directly they need a table of samples × thresholds, or of positives × negatives. Here a histogram of the
probabilities, or one sort of the scores, gives the same sums and the same gradient in linear (n log n) time and
memory; both are made of differentiable operations, so second derivatives, ``torch.func`` and ``torch.compile`` need no
path of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metricgrad.counts import wide
from metricgrad.engine.inputs import whole_number
from metricgrad.losses.modes import tracing
from metricgrad.losses.per_class import PerClassLoss
from metricgrad.metrics.derivatives import ratio
from metricgrad.surrogates import current
from metricgrad.surrogates.base import ProbabilityStep
from metricgrad.surrogates.steps import Linear

if TYPE_CHECKING:
    from metricgrad.engine.batch import Task
    from metricgrad.engine.distributed import ProcessGroup
    from metricgrad.metrics.averages import Average
    from metricgrad.surrogates import Annealed

__all__ = ["AUROCLoss", "WMWLoss"]

TABLE = 1 << 16
"""The number of memberships, samples × thresholds, computed at a time for a step that is not linear."""

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
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
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
        If the surrogate is not a step on probabilities, or for ``task="multiclass"``.

    See Also
    --------
    WMWLoss : The other surrogate of AUROC, over pairs.
    metricgrad.curves.auroc : The exact hard value.

    Notes
    -----
    A class without positives or without negatives has no ROC curve: it counts as chance, ½, without gradient. Its
    average precision is 0 without positives and 1 without negatives. With ``process_group`` the processes add 2k sums
    per class; nothing is gathered.

    Examples
    --------
    >>> AUROCLoss()(torch.tensor([2.0, -1.0, 0.0]), torch.tensor([1, 0, 1]))
    tensor(0.1336)
    """

    additive = True

    def __init__(
        self,
        surrogate: ProbabilityStep | Annealed | None = None,
        thresholds: int = 20,
        *,
        curve: CurveKind = "roc",
        task: Task = "binary",
        average: Average | None = "macro",
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(task, average, ignore_index, process_group)
        self.surrogate: Any = Linear() if surrogate is None else surrogate
        if not isinstance(current(self.surrogate), ProbabilityStep):
            raise ValueError(f"surrogate: expected a step on probabilities, Linear or Sigmoid, got {surrogate!r}")
        if curve not in get_args(CurveKind):
            raise ValueError(f"curve: expected 'roc' or 'pr', got {curve!r}")
        self.thresholds, self.curve = whole_number("thresholds", thresholds, 2), curve

    def losses(self, z: Tensor, wy: Tensor, wn: Tensor) -> Tensor:
        step, p = current(self.surrogate), torch.sigmoid(z)
        if isinstance(step, Linear):
            tp, fp = ramp_sums(step, self.thresholds, wide(p), wy, wn)
        else:
            tp, fp = step_sums(step, self.thresholds, p, wy.to(p.dtype), wn.to(p.dtype))
        area = _roc_area if self.curve == "roc" else _average_precision
        return 1 - area(*self.total(tp, fp, wy.sum(0).to(tp.dtype), wn.sum(0).to(tp.dtype)))

    def extra_repr(self) -> str:
        surrogate = [] if isinstance(self.surrogate, nn.Module) else [f"surrogate={self.surrogate!r}"]
        parts = [*surrogate, f"thresholds={self.thresholds}", f"curve={self.curve!r}", super().extra_repr()]
        return ", ".join(part for part in parts if part)


def _roc_area(tp: Tensor, fp: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Return the areas ``(K,)``, given TP and FP ``(k − 1, K)`` at the thresholds between 0 and 1."""
    # The rates fall, hence the sign.
    area = -torch.trapezoid(_with_ends(ratio(tp, positives)), _with_ends(ratio(fp, negatives)), dim=0)
    return torch.where((positives == 0) | (negatives == 0), 0.5, area)


def _average_precision(tp: Tensor, fp: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    precision = torch.cat((ratio(positives, positives + negatives).unsqueeze(0), ratio(tp, tp + fp)))
    return -(_with_ends(ratio(tp, positives)).diff(dim=0) * precision).sum(0)


def _with_ends(rates: Tensor) -> Tensor:
    """Put 1 before the rates (τ = 0: everything is predicted) and 0 after them (τ = 1: nothing is)."""
    one = torch.ones_like(rates[:1])
    return torch.cat((one, rates, 1 - one))


def ramp_sums(step: Linear, k: int, p: Tensor, *weights: Tensor) -> list[Tensor]:
    """Return Σ w·step(p, i/k) for i = 1 … k − 1, ``(k − 1, K)`` for each of the ``(N, K)`` weights, in O(N + k).

    A linear step is a sum of ramps r(u) = max(p − u, 0), namely m₁·r(0) + (m₂ − m₁)·r(low) + (m₃ − m₂)·r(high). Σ
    w·r(u) at all knots u follows from how much weight lies in each bin between two knots, and how far in.
    """
    low, high, m1, m2, m3 = step.pieces(_between(k, p))
    if step.width == 1:  # every knot is a multiple of 1/2k, and a product finds the bin
        knots = torch.arange(2 * k, dtype=p.dtype, device=p.device) / (2 * k)
        bins = (p.detach() * (2 * k)).long().clamp(0, 2 * k - 1)  # NaN gets any bin, and stays NaN
        at_low, at_high = ((knot * (2 * k)).round().long() for knot in (low, high))
    else:
        knots, order = torch.cat((p.new_zeros(1), low, high)).sort()
        bins = torch.bucketize(p.detach().contiguous(), knots, right=True) - 1
        at_low, at_high = order.argsort()[1:].chunk(2)
    rise = p - knots[bins]
    classes, size = p.shape[1], len(knots)
    bins = (bins + size * torch.arange(classes, device=p.device)).flatten()  # the classes one after the other

    def histogram(values: Tensor) -> Tensor:
        return knots.new_zeros(classes * size).scatter_add(0, bins, values.flatten()).view(classes, size)

    sums = []
    for w in weights:
        above = _from_the_right(histogram(w))
        # From knot to knot, downwards, every ramp above grows by the gap: only positive numbers are added.
        ramps = _from_the_right(histogram(w * rise) + F.pad(knots.diff() * above[:, 1:], (0, 1)))
        sums.append((m1 * ramps[:, :1] + (m2 - m1) * ramps[:, at_low] + (m3 - m2) * ramps[:, at_high]).t())
    return sums


def _from_the_right(x: Tensor) -> Tensor:
    return x.flip(-1).cumsum(-1).flip(-1)


def step_sums(step: ProbabilityStep, k: int, p: Tensor, wy: Tensor, wn: Tensor) -> Tensor:
    """Return Σ w·step(p, i/k) for i = 1 … k − 1, ``(2, k − 1, K)``, for any step, a few thresholds at a time."""
    tau = _between(k, p).view(-1, 1, 1)
    if tracing(wy) or wy.requires_grad or wn.requires_grad:
        return _table_sums(step, tau, p, wy, wn)
    return _StepSums.apply(step, tau, p, wy, wn)  # type: ignore[no-any-return, no-untyped-call]


def _between(k: int, like: Tensor) -> Tensor:
    """Return the thresholds i/k between 0 and 1."""
    return torch.arange(1, k, dtype=like.dtype, device=like.device) / k


def _table_sums(step: ProbabilityStep, tau: Tensor, p: Tensor, wy: Tensor, wn: Tensor) -> Tensor:
    members = step.step(p, tau)
    return torch.stack(((members * wy).sum(1), (members * wn).sum(1)))


class _StepSums(torch.autograd.Function):
    """``step_sums`` without storing the memberships: the backward pass computes the slopes again."""

    @staticmethod
    def forward(ctx: Any, step: ProbabilityStep, tau: Tensor, p: Tensor, wy: Tensor, wn: Tensor) -> Tensor:
        """Sum."""
        ctx.step, ctx.rows = step, max(1, TABLE // max(1, p.numel()))
        ctx.save_for_backward(tau, p, wy, wn)
        return torch.cat([_table_sums(step, some, p, wy, wn) for some in tau.split(ctx.rows)], 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Spread the gradient of the sums over the probabilities."""
        tau, p, wy, wn = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: second derivatives need differentiable operations
            sums = _table_sums(ctx.step, tau, p, wy, wn)
            return None, None, *torch.autograd.grad(sums, p, grad, create_graph=True), None, None
        by_p = torch.zeros_like(p)
        for some, (by_tp, by_fp) in zip(tau.split(ctx.rows), grad.unsqueeze(2).split(ctx.rows, 1), strict=True):
            by_p += (ctx.step.slope(p, some) * (by_tp * wy + by_fp * wn)).sum(0)
        return None, None, by_p, None, None


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
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
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
        If a number is out of its range, or for ``task="multiclass"``.

    See Also
    --------
    AUROCLoss : The area under the curve of soft sets.

    Notes
    -----
    A class without pairs has the loss 0, without gradient. With ``process_group`` the processes gather their rows,
    since a ranking is not a sum.

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
        task: Task = "binary",
        average: Average | None = "macro",
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(task, average, ignore_index, process_group)
        if not 0 < gamma < math.inf:
            raise ValueError(f"gamma: expected a positive number, got {gamma!r}")
        if power not in (1, 2, 3):
            raise ValueError(f"power: expected 1, 2 or 3, got {power!r}")
        if on not in get_args(Scale):
            raise ValueError(f"on: expected 'probabilities' or 'logits', got {on!r}")
        self.gamma, self.power, self.on = gamma, int(power), on

    def losses(self, z: Tensor, wy: Tensor, wn: Tensor) -> Tensor:
        # Rows are classes, and scores are negated, so that the negatives within the margin come first.
        t, order = (-wide(torch.sigmoid(z) if self.on == "probabilities" else z).t()).contiguous().sort(1)
        first = torch.searchsorted(t.detach(), t.detach() + self.gamma)
        wy, wn = wy.t().gather(1, order), wn.t().gather(1, order)
        t = t - t.detach().mean(1, keepdim=True)  # centred, since powers of small numbers cancel less
        reach = t + self.gamma
        pays = torch.zeros_like(t)
        # Σ w (r − t)^p over these, expanded: Σ_m C(p, m) r^(p−m) Σ w (−t)^m.
        for m in range(self.power + 1):
            moment = F.pad((wn * (-t) ** m).cumsum(1), (1, 0)).gather(1, first)
            pays = pays + math.comb(self.power, m) * reach ** (self.power - m) * moment
        return ratio((wy * pays).sum(1), wy.sum(1) * wn.sum(1))

    def extra_repr(self) -> str:
        parts = [f"gamma={self.gamma}", f"power={self.power}", f"on={self.on!r}", super().extra_repr()]
        return ", ".join(part for part in parts if part)
