"""Sums of soft steps at many thresholds, without a table of samples × thresholds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.losses.torch_modes import is_traced

if TYPE_CHECKING:
    from metricgrad.core.surrogates.base import ProbabilityStep
    from metricgrad.core.surrogates.steps import Linear

TABLE = 1 << 16
"""The number of memberships, samples × thresholds, computed at a time for a step that is not linear."""


def ramp_sums(step: Linear, k: int, p: Tensor, *weights: Tensor, groups: Tensor | None = None) -> list[Tensor]:
    """Return Σ w·step(p, i/k) for i = 1 … k − 1, ``(k − 1, K)`` for each of the weights, in O(N + k).

    A linear step is a sum of ramps r(u) = max(p − u, 0), namely m₁·r(0) + (m₂ − m₁)·r(low) + (m₃ − m₂)·r(high). Σ
    w·r(u) at all knots u follows from how much weight lies in each bin between two knots, and how far in.

    With ``groups``, one of K for each row, the sums of each group are apart, ``(k − 1, K·K)``, in the same time.
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
    columns, number = torch.arange(classes, device=p.device), classes  # one after the other
    if groups is not None:
        columns, number = columns + classes * groups.unsqueeze(1), classes * classes
    bins = (bins + size * columns).flatten()

    def histogram(values: Tensor) -> Tensor:
        whole = values.expand(p.shape).flatten()
        return knots.new_zeros(number * size).scatter_add(0, bins, whole).view(number, size)

    sums = []
    for w in weights:
        above = _from_the_right(histogram(w))
        # From knot to knot, downwards, every ramp above grows by the gap: only positive numbers are added.
        ramps = _from_the_right(histogram(w * rise) + F.pad(knots.diff() * above[:, 1:], (0, 1)))
        sums.append((m1 * ramps[:, :1] + (m2 - m1) * ramps[:, at_low] + (m3 - m2) * ramps[:, at_high]).t())
    return sums


def _from_the_right(x: Tensor) -> Tensor:
    return x.flip(-1).cumsum(-1).flip(-1)


def step_sums(step: ProbabilityStep, k: int, p: Tensor, *weights: Tensor) -> Tensor:
    """Return as ``ramp_sums``, ``(len(weights), k − 1, K)``, for any step, a few thresholds at a time."""
    tau = _between(k, p).view(-1, 1, 1)
    if is_traced(p) or any(w.requires_grad for w in weights):
        return _table_sums(step, tau, p, *weights)
    return _StepSums.apply(step, tau, p, *weights)  # type: ignore[no-any-return, no-untyped-call]


def _between(k: int, like: Tensor) -> Tensor:
    """Return the thresholds i/k between 0 and 1."""
    return torch.arange(1, k, dtype=like.dtype, device=like.device) / k


def _table_sums(step: ProbabilityStep, tau: Tensor, p: Tensor, *weights: Tensor) -> Tensor:
    members = step.step(p, tau)
    return torch.stack([(members * w).sum(1) for w in weights])


class _StepSums(torch.autograd.Function):
    """``step_sums`` without storing the memberships: the backward pass computes the slopes again."""

    @staticmethod
    def forward(ctx: Any, step: ProbabilityStep, tau: Tensor, p: Tensor, *weights: Tensor) -> Tensor:
        """Sum."""
        ctx.step, ctx.rows = step, max(1, TABLE // max(1, p.numel()))
        ctx.save_for_backward(tau, p, *weights)
        return torch.cat([_table_sums(step, some, p, *weights) for some in tau.split(ctx.rows)], 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Spread the gradient of the sums over the probabilities."""
        tau, p, *weights = ctx.saved_tensors
        fixed = [None] * len(weights)
        if torch.is_grad_enabled():  # create_graph=True: second derivatives need differentiable operations
            sums = _table_sums(ctx.step, tau, p, *weights)
            return None, None, *torch.autograd.grad(sums, p, grad, create_graph=True), *fixed
        by_p = torch.zeros_like(p)
        for some, by_sums in zip(tau.split(ctx.rows), grad.unsqueeze(2).split(ctx.rows, 1), strict=True):
            spread = sum(by_sum * w for by_sum, w in zip(by_sums, weights, strict=True))
            by_p += (ctx.step.slope(p, some) * spread).sum(0)
        return None, None, by_p, *fixed
