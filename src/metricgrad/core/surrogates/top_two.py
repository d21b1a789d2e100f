"""The linear step at the sample's own threshold, in closed form: memberships of rows and their gradient.

With p = softmax(z) and τ the mean of the two largest probabilities, every probability but the largest lies at or
below τ, so the step is δ·p/t₁ below the lower knot t₁ = τ(1 − width/2) and a ramp above it; both are functions of
p/τ, which makes ∂h/∂τ = −(p/τ)·∂h/∂p. Only the largest probability can pass the upper knot. So a row needs a handful
of numbers, and the gradient a few passes over it, where autograd takes four times as long.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from metricgrad.core import class_axis
from metricgrad.core.metrics.derivatives import as_constant

GROUP_CLASSES = 32
"""Of many classes, the largest of each group of so many is found first."""


class RowSteps(NamedTuple):
    """The linear step of every row of probabilities, at its own threshold; all ``(n, 1)``."""

    first: Tensor
    """The largest probability."""
    first_index: Tensor
    second_index: Tensor
    tau: Tensor
    """The threshold: the mean of the two largest probabilities."""
    low: Tensor
    """The lower knot."""
    high: Tensor
    """The upper knot."""
    lower_slope: Tensor
    extra_slope: Tensor
    """How much steeper the ramp is than below the lower knot."""
    is_past_high: Tensor
    """Whether the largest probability is above the upper knot."""
    first_slope: Tensor
    """The slope of the step at the largest probability."""
    first_height: Tensor
    """The step of the largest probability."""


def find_two_largest(p: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the largest value, its index, the second largest and its index, each ``(n, 1)``, of values above −1.

    Torch's ``topk`` and ``max`` are slow over many classes; ``amax`` is not, so find the largest of every group first.
    ``buffer``, of the shape of ``p``, is overwritten.
    """
    classes = p.shape[1]
    if class_axis.has_classes_first(p):
        first, first_index = class_axis.find_largest(p, buffer)
        others = class_axis.scatter(p.clone(), first_index, -1.0)
        second, second_index = class_axis.find_largest(others, buffer)
        return first, first_index, second, second_index
    if classes <= 2 * GROUP_CLASSES:
        return _find_two_largest_of_few(p)
    groups = classes // GROUP_CLASSES
    grouped_classes = groups * GROUP_CLASSES
    peaks = p[:, :grouped_classes].unflatten(1, (groups, GROUP_CLASSES)).amax(2)
    if grouped_classes < classes:
        peaks = torch.cat([peaks, p[:, grouped_classes:].amax(1, keepdim=True)], 1)
    # The two largest are among the members of the two best groups.
    _, best_group, _, next_group = _find_two_largest_of_few(peaks)
    group_starts = torch.cat([best_group, next_group], 1).mul_(GROUP_CLASSES)
    columns = group_starts.unsqueeze(2) + torch.arange(GROUP_CLASSES, device=p.device)
    columns = columns.flatten(1)
    members = p.gather(1, columns.clamp_max(classes - 1)).masked_fill_(columns >= classes, -1.0)
    first, first_place, second, second_place = _find_two_largest_of_few(members)
    return first, columns.gather(1, first_place), second, columns.gather(1, second_place)


def _find_two_largest_of_few(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    first, first_index = x.max(1, keepdim=True)
    second, second_index = x.scatter(1, first_index, -1.0).max(1, keepdim=True)
    return first, first_index, second, second_index


def compute_row_steps(p: Tensor, delta: float, width: float, buffer: Tensor) -> RowSteps:
    """Return the thresholds, knots and slopes of every row of probabilities; ``buffer`` is overwritten."""
    first, first_index, second, second_index = find_two_largest(p, buffer)
    # Constants as tensors: for a small batch, wrapping plain numbers takes longer than the arithmetic.
    tau = (first + second) * as_constant(0.5, first)
    low = tau * as_constant(1 - width / 2, tau)
    high = tau * as_constant(1 + width / 2, tau)
    lower_slope = as_constant(delta, low) / low
    ramp_slope = as_constant((1 - 2 * delta) / width, tau) / tau
    upper_slope = as_constant(delta, high) / (as_constant(1.0, high) - high)
    is_past_high = first > high
    height_on_ramp = torch.addcmul(as_constant(delta, first), ramp_slope, first - low)
    height_past_high = torch.addcmul(as_constant(1 - delta, first), upper_slope, first - high)
    return RowSteps(
        first=first,
        first_index=first_index,
        second_index=second_index,
        tau=tau,
        low=low,
        high=high,
        lower_slope=lower_slope,
        extra_slope=ramp_slope - lower_slope,
        is_past_high=is_past_high,
        first_slope=torch.where(is_past_high, upper_slope, ramp_slope),
        first_height=torch.where(is_past_high, height_past_high, height_on_ramp),
    )


def write_heights(p: Tensor, steps: RowSteps, out: Tensor) -> Tensor:
    """Write the step of every probability into ``out``, not yet normalised, and return the sum of each row."""
    # Only the largest probability can be above the threshold, so all others are below the upper knot.
    torch.sub(p, steps.low, out=out).clamp_min_(0.0).mul_(steps.extra_slope).addcmul_(p, steps.lower_slope)
    class_axis.scatter(out, steps.first_index, steps.first_height)
    return out.sum(1, keepdim=True)


def write_logits_gradient(
    p: Tensor, gradient: Tensor, steps: RowSteps, delta: float, width: float, spare: Tensor
) -> None:
    """Turn probabilities into the gradient with respect to the logits, in place.

    ``gradient`` is that with respect to the memberships; it and ``spare`` are overwritten.
    """
    # From the memberships, heights / total, to the heights.
    total = write_heights(p, steps, spare)
    mean = spare.mul_(gradient).sum(1, keepdim=True) / total
    gradient.sub_(mean).div_(total)
    # To the probabilities, at a fixed τ.
    by_first_height = class_axis.gather(gradient, steps.first_index)
    torch.sub(p, steps.low, out=spare)
    # The derivative of a clamp is what threshold's backward computes, in one pass.
    torch.ops.aten.threshold_backward.grad_input(gradient, spare, 0.0, grad_input=spare)
    gradient.mul_(steps.lower_slope).addcmul_(spare, steps.extra_slope)
    by_first = by_first_height * steps.first_slope
    class_axis.scatter(gradient, steps.first_index, by_first)
    # To τ: the ramp depends on p/τ alone, so ∂/∂τ = −Σ p·∂/∂p / τ.
    weighted_sum = torch.mul(gradient, p, out=spare).sum(1, keepdim=True)
    on_ramp_sum = torch.where(steps.is_past_high, weighted_sum - by_first * steps.first, weighted_sum)
    by_tau = -on_ramp_sum / steps.tau
    # Above the upper knot t₂ the height is 1 − δ(1 − p)/(1 − t₂), and t₂ moves with τ.
    first_height_by_tau = -delta * (1 - steps.first) / (1 - steps.high) ** 2 * (1 + width / 2)
    by_tau = by_tau + torch.where(steps.is_past_high, by_first_height * first_height_by_tau, 0.0)
    # τ is the mean of the two largest probabilities.
    half = by_tau / 2
    class_axis.scatter_add(gradient, steps.first_index, half)
    class_axis.scatter_add(gradient, steps.second_index, half)
    # From the probabilities to the logits, by the derivative of softmax.
    weighted_sum = weighted_sum + by_tau * steps.tau
    p.mul_(gradient.sub_(weighted_sum))
