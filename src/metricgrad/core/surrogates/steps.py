"""Soft steps: frozen dataclasses, callable, with a closed form of their derivative where there is one.

The public module is ``surrogates``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from metricgrad.core import class_axis
from metricgrad.core.metrics.derivatives import as_constant
from metricgrad.core.storable import kinds_in
from metricgrad.core.surrogates import top_two
from metricgrad.core.surrogates.base import (
    ChunkMemberships,
    Number,
    ProbabilityStep,
    Surrogate,
    mean_of_two_largest,
    multiply_by_sigmoid_slope,
    normalise_rows,
    reaches_threshold,
)


def _check_ramp(delta: float, width: float) -> None:
    if not 0 <= delta <= 0.5:
        raise ValueError(f"delta: expected a number in [0, 0.5], got {delta!r}")
    if not 0 < width <= 1:
        raise ValueError(f"width: expected a number in (0, 1], got {width!r}")


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name}: expected a positive number, got {value!r}")


@dataclass(frozen=True)
class Linear(ProbabilityStep):
    r"""The five-point linear step [tsoi2022, eq. 5]: slope $\delta/t_1$, then a ramp, then $\delta/(1-t_2)$.

    The knots are $t_{1,2} = \tau \mp \mathrm{width}\cdot\min(\tau, 1-\tau)/2$. The step reaches the hard rule p ≥ τ as
    width → 0 and δ → 0.

    Parameters
    ----------
    delta : float, default 0.1
        δ in [0, 0.5], the share of the height outside the ramp on each side, which keeps a gradient everywhere; 0.1 in
        the binary paper.
    width : float, default 1.0
        The width of the ramp in (0, 1]; 1 is the paper's.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Examples
    --------
    >>> Linear()(torch.logit(torch.tensor([0.25, 0.5, 0.75])))
    tensor([0.1000, 0.5000, 0.9000])
    """

    delta: float = 0.1
    width: float = 1.0

    def __post_init__(self) -> None:
        _check_ramp(self.delta, self.width)

    def step(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        low, high, lower_slope, ramp_slope, upper_slope = self.pieces(threshold)
        # Subtract before multiplying: a narrow ramp has a huge slope, and offsets would cancel badly.
        on_ramp = torch.clamp_min(p - low, 0.0)
        on_ramp = torch.minimum(on_ramp, high - low) if isinstance(low, Tensor) else on_ramp.clamp_max(high - low)
        beyond = torch.clamp_min(p - high, 0.0)
        height: Tensor = lower_slope * p + (ramp_slope - lower_slope) * on_ramp + (upper_slope - lower_slope) * beyond
        return height.clamp(0.0, 1.0)  # up to rounding it is there already

    def slope(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        low, high, lower_slope, ramp_slope, upper_slope = self.pieces(threshold)
        is_past_low = (p >= low).to(p.dtype)
        is_past_high = (p > high).to(p.dtype)
        slope: Tensor = (
            lower_slope + (ramp_slope - lower_slope) * is_past_low + (upper_slope - ramp_slope) * is_past_high
        )
        return slope

    def pieces(self, threshold: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return the knots and the slopes of the step.

        Parameters
        ----------
        threshold : float or Tensor
            The threshold.

        Returns
        -------
        tuple of float or Tensor
            The two knots, and the slopes below, between and above them.
        """
        if isinstance(threshold, Tensor):
            half = self.width / 2 * torch.minimum(threshold, 1 - threshold)
        else:
            half = self.width / 2 * min(threshold, 1 - threshold)
        low = threshold - half
        high = threshold + half
        lower_slope = self.delta / low
        ramp_slope = (0.5 - self.delta) / half
        upper_slope = self.delta / (1 - high)
        return low, high, lower_slope, ramp_slope, upper_slope

    def closed_form(self, rowwise: bool) -> Surrogate:
        return TopTwo(self.delta, self.width) if rowwise else self

    def forward_chunk(self, logits: Tensor, threshold: float, saved: Tensor, buffer: Tensor) -> ChunkMemberships:
        ramp = _ramp_at(self, threshold)
        p = torch.sigmoid(logits, out=saved)
        # Subtract before summing: Σp − Σlow in place of Σ(p − low) leaves rounding where nothing is predicted, which
        # precision would take for true positives.
        memberships = torch.sub(p, as_constant(ramp.low, p), out=buffer).clamp_(0.0, ramp.width)
        if self.delta:
            torch.add(p, memberships, alpha=ramp.extra_slope, out=memberships)
        if ramp.extra_upper_slope:
            memberships.add_(torch.clamp_min(p - ramp.high, 0.0), alpha=ramp.extra_upper_slope)
        if ramp.is_exact:
            return memberships, ramp.unit, ramp
        # A full membership must be exactly 1: a rounding error in FN = P − TP would count as a miss, in NPV for
        # instance.
        memberships.mul_(ramp.unit).clamp_max_(1.0).masked_fill_(p == 1.0, 1.0)
        return memberships, 1.0, ramp

    def backward_chunk(self, saved: Tensor, gradient: Tensor, context: Any, spare: Tensor | None) -> None:
        ramp: _Ramp = context
        is_past_high = (saved > ramp.high).to(saved.dtype) if ramp.extra_upper_slope else None
        multiply_by_sigmoid_slope(gradient, saved)
        # The derivative of a clamp is what hardtanh's backward computes, in one pass.
        _hardtanh_backward(gradient, saved, ramp.low, ramp.high, grad_input=saved)
        if self.delta:
            torch.add(gradient, saved, alpha=ramp.extra_slope, out=saved)
        if is_past_high is not None:
            saved.addcmul_(gradient, is_past_high, value=ramp.extra_upper_slope)
        if not ramp.is_exact:
            saved.mul_(as_constant(ramp.unit, saved))


_hardtanh_backward = torch.ops.aten.hardtanh_backward.grad_input


class _Ramp(NamedTuple):
    """A linear step at a threshold; its slopes in units of the lower slope (without outer slopes, of the ramp's)."""

    low: float
    high: float
    width: float
    unit: float
    extra_slope: float
    """How much steeper the ramp is than the lower slope."""
    extra_upper_slope: float
    """How much steeper the upper slope is than the lower one."""
    is_exact: bool
    """Whether a full membership is a short number, 2.5 by default, so that sums of them are exact."""


@lru_cache(maxsize=256)
def _ramp_at(step: Linear, threshold: float) -> _Ramp:
    low, high, lower_slope, ramp_slope, upper_slope = step.pieces(threshold)
    extra_slope = ramp_slope - lower_slope
    extra_upper_slope = upper_slope - lower_slope
    unit = lower_slope or extra_slope
    full = (lower_slope + extra_slope * (high - low) + extra_upper_slope * (1 - high)) / unit
    is_exact = (1024 * full).is_integer()
    return _Ramp(low, high, high - low, unit, extra_slope / unit, extra_upper_slope / unit, is_exact)


@dataclass(frozen=True)
class Sigmoid(ProbabilityStep):
    r"""The sigmoid step $1/(1+e^{-k(p-\tau)})$ on probabilities [tsoi2022, sec. 3.1].

    It reaches the hard rule p ≥ τ as k → ∞.

    Parameters
    ----------
    k : float, default 10.0
        The slope, positive.

    Raises
    ------
    ValueError
        If ``k`` is not positive.

    Examples
    --------
    >>> Sigmoid(k=10)(torch.zeros(1))
    tensor([0.5000])
    """

    k: float = 10.0

    def __post_init__(self) -> None:
        _check_positive("k", self.k)

    def step(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        return torch.sigmoid(self.k * (p - threshold))

    def slope(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        height = self.step(p, threshold)
        return self.k * height * (1 - height)

    def closed_form(self, rowwise: bool) -> Surrogate | None:
        return None if rowwise else self

    def forward_chunk(self, logits: Tensor, threshold: float, saved: Tensor, buffer: Tensor) -> ChunkMemberships:
        p = torch.sigmoid(logits, out=saved)
        torch.add(as_constant(-self.k * threshold, p), p, alpha=self.k, out=buffer)
        memberships = torch.sigmoid(buffer, out=buffer)
        # The derivative is saved: k·p(1 − p)·m(1 − m).
        multiply_by_sigmoid_slope(as_constant(self.k, p), p, saved)
        multiply_by_sigmoid_slope(saved, memberships)
        return memberships, 1.0, None

    def backward_chunk(self, saved: Tensor, gradient: Tensor, context: Any, spare: Tensor | None) -> None:
        saved.mul_(gradient)


@dataclass(frozen=True)
class LogitSigmoid(Surrogate):
    r"""The sigmoid of sigmoidF1, $1/(1+e^{-\beta(z+\eta)})$ on logits [benedict2022, eq. 6].

    It reaches the hard rule z ≥ −η as β → ∞. ``Learned(LogitSigmoid(), classes=K)`` learns both numbers.

    Parameters
    ----------
    beta : float or Tensor, default 1.0
        The slope β, positive: a number, or a tensor with one per class.
    eta : float or Tensor, default 0.0
        The shift η: a number, or a tensor with one per class.

    Raises
    ------
    ValueError
        If ``beta`` is not positive.

    Examples
    --------
    >>> LogitSigmoid(beta=2.0, eta=1.0)(torch.tensor([-1.0]))
    tensor([0.5000])
    """

    beta: Number = 1.0
    eta: Number = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.beta, Tensor):
            if self.beta < 0:
                raise ValueError(
                    f"beta: expected a positive number, got {self.beta!r}; the sigmoidF1 paper prints the slope with "
                    f"the sign that its code gives it: pass beta={-self.beta!r}, and eta as printed"
                )
            _check_positive("beta", self.beta)

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return torch.sigmoid(self.beta * (logits + self.eta))

    def rows(self, logits: Tensor) -> Tensor:
        # One class has no other to stand midway to; its membership is one.
        middle = mean_of_two_largest(logits) if logits.shape[-1] > 1 else logits
        return normalise_rows(self(logits - middle))

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return reaches_threshold(logits + self.eta, 0.0)

    def closed_form(self, rowwise: bool) -> Surrogate | None:
        return None if rowwise or self.tensors() else self  # the gradient of tensors is autograd's

    def forward_chunk(self, logits: Tensor, threshold: float, saved: Tensor, buffer: Tensor) -> ChunkMemberships:
        if self.beta == 1.0 and self.eta == 0.0:
            torch.sigmoid(logits, out=saved)
        else:
            torch.add(logits, self.eta, out=saved).mul_(self.beta)
            torch.sigmoid(saved, out=saved)
        return saved, 1.0, None  # the derivative follows from the membership

    def backward_chunk(self, saved: Tensor, gradient: Tensor, context: Any, spare: Tensor | None) -> None:
        if self.beta != 1.0:
            gradient.mul_(self.beta)
        multiply_by_sigmoid_slope(gradient, saved, saved)


@dataclass(frozen=True)
class TopTwo(Surrogate):
    r"""The multi-class step [tsoi2024, eq. 5]: softmax stepped at $\tau$ = mean of the two largest, L1-normalised.

    The threshold belongs to the sample and the gradient flows through it. τ lies in [1/d, 1/2], so the slope of the
    ramp grows with the number of classes d. It reaches the argmax as width → 0 and δ → 0.

    Parameters
    ----------
    delta : float, default 0.2
        δ in [0, 0.5], the share of the height outside the ramp on each side, which keeps a gradient everywhere; 0.2 in
        the multi-class paper.
    width : float, default 1.0
        The width of the ramp in (0, 1]; 1 is the paper's.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Examples
    --------
    >>> TopTwo()(torch.log(torch.tensor([[0.6, 0.2, 0.2]])))
    tensor([[0.6667, 0.1667, 0.1667]])
    """

    delta: float = 0.2
    width: float = 1.0

    def __post_init__(self) -> None:
        _check_ramp(self.delta, self.width)

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        """Return memberships of ``(..., d)`` logits; the last axis is the classes."""
        return self.rows(logits)

    def rows(self, logits: Tensor) -> Tensor:
        return Linear(self.delta, self.width).rows(logits)

    def closed_form(self, rowwise: bool) -> Surrogate | None:
        return self if rowwise else None

    def forward_chunk(self, logits: Tensor, threshold: float, saved: Tensor, buffer: Tensor) -> ChunkMemberships:
        p = class_axis.write_softmax(logits, saved)
        shape = top_two.make_step_shape(self.delta, self.width)
        steps = top_two.compute_row_steps(p, shape, buffer)
        row_sums = top_two.write_heights(p, steps, shape, buffer)
        return buffer, row_sums, (steps, shape, row_sums, buffer)

    def backward_chunk(self, saved: Tensor, gradient: Tensor, context: Any, spare: Tensor | None) -> None:
        steps, shape, row_sums, heights = context
        if spare is not None:  # the heights have been overwritten
            heights = spare
            top_two.write_heights(saved, steps, shape, heights)
        top_two.write_logits_gradient(saved, gradient, steps, shape, heights, row_sums)


if not TYPE_CHECKING:  # type checkers see the classes themselves
    __all__ = kinds_in(__name__)
