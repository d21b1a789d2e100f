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

TABLE_ELEMENTS = 1 << 16
"""The number of memberships, samples × thresholds, computed at a time for a step that is not linear."""


def sum_linear_steps(step: Linear, k: int, p: Tensor, *weights: Tensor, groups: Tensor | None = None) -> list[Tensor]:
    """Return Σ w·step(p, i/k) for i = 1 … k − 1, ``(k − 1, K)`` for each of the weights, in O(N + k).

    A linear step is a sum of ramps r(u) = max(p − u, 0), namely m₁·r(0) + (m₂ − m₁)·r(low) + (m₃ − m₂)·r(high). Σ
    w·r(u) at all knots u follows from how much weight lies in each bin between two knots, and how far in.

    With ``groups``, one of K for each row, the sums of each group are apart, ``(k − 1, K·K)``, in the same time.
    """
    low, high, lower_slope, ramp_slope, upper_slope = step.pieces(_inner_thresholds(k, p))
    if step.width == 1:  # every knot is a multiple of 1/2k, so a multiplication finds the bin
        knots = torch.arange(2 * k, dtype=p.dtype, device=p.device) / (2 * k)
        bins = (p.detach() * (2 * k)).long().clamp(0, 2 * k - 1)  # NaN may get any bin, since its sums are NaN anyway
        low_index = (low * (2 * k)).round().long()
        high_index = (high * (2 * k)).round().long()
    else:
        knots, order = torch.cat((p.new_zeros(1), low, high)).sort()
        bins = torch.bucketize(p.detach().contiguous(), knots, right=True) - 1
        low_index, high_index = order.argsort()[1:].chunk(2)
    height_in_bin = p - knots[bins]
    # One histogram per column (and group), one after the other in memory.
    classes = p.shape[1]
    histograms = classes
    histogram_index = torch.arange(classes, device=p.device)
    if groups is not None:
        histograms = classes * classes
        histogram_index = histogram_index + classes * groups.unsqueeze(1)
    flat_bins = (bins + len(knots) * histogram_index).flatten()

    def sum_in_bins(values: Tensor) -> Tensor:
        flat_values = values.expand(p.shape).flatten()
        flat_sums = knots.new_zeros(histograms * len(knots)).scatter_add(0, flat_bins, flat_values)
        return flat_sums.view(histograms, len(knots))

    sums = []
    for weight in weights:
        weight_above = _sum_from_right(sum_in_bins(weight))
        # From knot to knot, downwards, every ramp above grows by the gap: only positive numbers are added.
        growth_over_gap = F.pad(knots.diff() * weight_above[:, 1:], (0, 1))
        ramps = _sum_from_right(sum_in_bins(weight * height_in_bin) + growth_over_gap)
        steps = (
            lower_slope * ramps[:, :1]
            + (ramp_slope - lower_slope) * ramps[:, low_index]
            + (upper_slope - ramp_slope) * ramps[:, high_index]
        )
        sums.append(steps.t())
    return sums


def _sum_from_right(x: Tensor) -> Tensor:
    """Return the sums of each element and all to its right."""
    return x.flip(-1).cumsum(-1).flip(-1)


def sum_any_steps(step: ProbabilityStep, k: int, p: Tensor, *weights: Tensor) -> Tensor:
    """Return as ``sum_linear_steps``, ``(len(weights), k − 1, K)``, for any step, a few thresholds at a time."""
    thresholds = _inner_thresholds(k, p).view(-1, 1, 1)
    if is_traced(p) or any(weight.requires_grad for weight in weights):
        return _sum_whole_table(step, thresholds, p, *weights)
    return _StepSums.apply(step, thresholds, p, *weights)  # type: ignore[no-any-return, no-untyped-call]


def _inner_thresholds(k: int, like: Tensor) -> Tensor:
    """Return the thresholds i/k between 0 and 1."""
    return torch.arange(1, k, dtype=like.dtype, device=like.device) / k


def _sum_whole_table(step: ProbabilityStep, thresholds: Tensor, p: Tensor, *weights: Tensor) -> Tensor:
    memberships = step.step(p, thresholds)
    return torch.stack([(memberships * weight).sum(1) for weight in weights])


class _StepSums(torch.autograd.Function):
    """``sum_any_steps`` without storing the memberships: the backward pass computes the slopes again."""

    @staticmethod
    def forward(ctx: Any, step: ProbabilityStep, thresholds: Tensor, p: Tensor, *weights: Tensor) -> Tensor:
        """Sum."""
        ctx.step = step
        ctx.thresholds_at_a_time = max(1, TABLE_ELEMENTS // max(1, p.numel()))
        ctx.save_for_backward(thresholds, p, *weights)
        parts = thresholds.split(ctx.thresholds_at_a_time)
        return torch.cat([_sum_whole_table(step, part, p, *weights) for part in parts], 1)

    @staticmethod
    def backward(ctx: Any, sums_gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Spread the gradient of the sums over the probabilities."""
        thresholds, p, *weights = ctx.saved_tensors
        no_gradients = [None] * len(weights)
        if torch.is_grad_enabled():  # create_graph=True: second derivatives need differentiable operations
            sums = _sum_whole_table(ctx.step, thresholds, p, *weights)
            (p_gradient,) = torch.autograd.grad(sums, p, sums_gradient, create_graph=True)
            return None, None, p_gradient, *no_gradients
        p_gradient = torch.zeros_like(p)
        threshold_parts = thresholds.split(ctx.thresholds_at_a_time)
        gradient_parts = sums_gradient.unsqueeze(2).split(ctx.thresholds_at_a_time, 1)
        for part, gradients in zip(threshold_parts, gradient_parts, strict=True):
            spread = sum(gradient * weight for gradient, weight in zip(gradients, weights, strict=True))
            p_gradient += (ctx.step.slope(p, part) * spread).sum(0)
        return None, None, p_gradient, *no_gradients
