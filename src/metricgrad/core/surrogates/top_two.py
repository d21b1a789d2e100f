"""The linear step at the sample's own threshold, in closed form: memberships of rows and their gradient.

With p = softmax(z) and τ the mean of the two largest probabilities, every probability but the largest lies at or
below τ. So the step is lower_slope·p, plus extra_slope·(p − t₁) above the lower knot t₁ = τ(1 − width/2), and only the
largest probability can pass the upper knot t₂ = τ(1 + width/2). Memberships are heights divided by their sum over the
row, so heights need no unit: here the lower slope is 1, and all slopes but the last are the same in all rows.

For the gradient, let E = p·∂L/∂p and T = τ·∂L/∂τ. Below t₂ a height is p times a function of p/τ, and a factor common
to all heights changes nothing, so T = −ΣE; the largest probability above t₂ adds a number C to that. τ is the mean of
two probabilities, which get a share of T each, and the derivative of softmax takes p·(ΣE + T) = p·C from everything.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from metricgrad.core import class_axis
from metricgrad.core.metrics.derivatives import as_constant

GROUP_CLASSES = 32
"""With many classes, the largest value of each group of this many classes is found first."""

LEAST_LOWER_SLOPE = 1e-30
"""A lower slope below this share of the ramp's slope counts as 0: in units of it the others could overflow."""


class StepShape(NamedTuple):
    """The slopes of a step, in units of the lower one (of the ramp's if the lower one is 0), and its knots over τ."""

    lower_knot: float
    upper_knot: float
    lower_slope: float
    """1, or 0 if there is none."""
    ramp_slope: float
    upper_slope: float
    """The slope above the upper knot is this times τ / (1 − t₂)."""

    @property
    def extra_slope(self) -> float:
        """How much steeper the ramp is than below the lower knot."""
        return self.ramp_slope - self.lower_slope


@lru_cache(maxsize=256)
def make_step_shape(delta: float, width: float) -> StepShape:
    """Return the slopes and knots of a step."""
    lower_knot = 1 - width / 2
    upper_knot = 1 + width / 2
    lower_slope = delta / lower_knot
    ramp_slope = (1 - 2 * delta) / width
    if lower_slope < LEAST_LOWER_SLOPE * ramp_slope:
        return StepShape(lower_knot, upper_knot, 0.0, 1.0, 0.0)
    return StepShape(lower_knot, upper_knot, 1.0, ramp_slope / lower_slope, lower_knot)


class RowSteps(NamedTuple):
    """The linear step of every row of probabilities, at its own threshold; ``(n, 1)`` but for the first two."""

    largest: Tensor
    """The two largest probabilities, ``(n, 2)``."""
    largest_index: Tensor
    """Their classes, ``(n, 2)``."""
    double_tau: Tensor
    """Twice the threshold: the sum of the two largest probabilities."""
    low: Tensor
    """The lower knot."""
    below_one: Tensor
    """One minus the upper knot."""
    past_high: Tensor
    """How far the largest probability is above the upper knot; 0 if it is not."""
    upper_slope: Tensor
    """The slope above the upper knot."""
    over_ramp: Tensor
    """How much steeper that is than the ramp."""


def find_two_largest(p: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
    """Return the two largest values of each row, the largest first, and their indices, of values above −1.

    Torch's ``topk`` and ``max`` are slow over many classes; ``amax`` is not, so find the largest of every group first.
    ``buffer``, of the shape of ``p``, is overwritten.
    """
    classes = p.shape[1]
    if class_axis.has_classes_first(p):
        first, first_index = class_axis.find_largest(p, buffer)
        others = class_axis.scatter(p.clone(), first_index, -1.0)
        second, second_index = class_axis.find_largest(others, buffer)
        return torch.cat((first, second), 1), torch.cat((first_index, second_index), 1)
    if classes <= 2 * GROUP_CLASSES:
        return _find_two_largest_of_few(p)
    groups = classes // GROUP_CLASSES
    grouped_classes = groups * GROUP_CLASSES
    peaks = p[:, :grouped_classes].unflatten(1, (groups, GROUP_CLASSES)).amax(2)
    if grouped_classes < classes:
        peaks = torch.cat([peaks, p[:, grouped_classes:].amax(1, keepdim=True)], 1)
    # The two largest are among the members of the two best groups.
    _, best_groups = _find_two_largest_of_few(peaks)
    group_starts = best_groups.mul_(GROUP_CLASSES)
    columns = group_starts.unsqueeze(2) + torch.arange(GROUP_CLASSES, device=p.device)
    columns = columns.flatten(1)
    members = p.gather(1, columns.clamp_max(classes - 1)).masked_fill_(columns >= classes, -1.0)
    largest, places = _find_two_largest_of_few(members)
    return largest, columns.gather(1, places)


MAX_TOPK_ELEMENTS = 1 << 14
"""Up to this many elements ``topk`` is the fastest; beyond, finding the largest twice is."""


def _find_two_largest_of_few(x: Tensor) -> tuple[Tensor, Tensor]:
    if x.numel() <= MAX_TOPK_ELEMENTS:
        largest, index = x.topk(2, 1)
        return largest, index
    first, first_index = x.max(1, keepdim=True)
    second, second_index = x.scatter(1, first_index, -1.0).max(1, keepdim=True)
    return torch.cat((first, second), 1), torch.cat((first_index, second_index), 1)


def compute_row_steps(p: Tensor, shape: StepShape, buffer: Tensor) -> RowSteps:
    """Return the thresholds, knots and slopes of every row of probabilities; ``buffer`` is overwritten."""
    largest, largest_index = find_two_largest(p, buffer)
    first = largest[:, :1]
    double_tau = largest.sum(1, keepdim=True)
    # Constants as tensors: for a small batch, wrapping plain numbers takes longer than the arithmetic.
    low = double_tau * as_constant(shape.lower_knot / 2, double_tau)
    below_one = torch.sub(as_constant(1.0, double_tau), double_tau, alpha=shape.upper_knot / 2)
    past_high = torch.sub(first, double_tau, alpha=shape.upper_knot / 2).clamp_min_(0.0)
    upper_slope = double_tau * as_constant(shape.upper_slope / 2, double_tau) / below_one
    over_ramp = upper_slope - as_constant(shape.ramp_slope, upper_slope)
    return RowSteps(largest, largest_index, double_tau, low, below_one, past_high, upper_slope, over_ramp)


def write_heights(p: Tensor, steps: RowSteps, shape: StepShape, out: Tensor) -> Tensor:
    """Write the step of every probability into ``out``, not yet normalised, and return the sum of each row."""
    torch.sub(p, steps.low, out=out).clamp_min_(0.0)
    if shape.lower_slope:
        torch.add(p, out, alpha=shape.extra_slope, out=out)
    # The largest one has continued the ramp so far: beyond the upper knot the slope is another one.
    class_axis.scatter_add(out, steps.largest_index[:, :1], steps.over_ramp * steps.past_high)
    return out.sum(1, keepdim=True)


def write_logits_gradient(
    p: Tensor, gradient: Tensor, steps: RowSteps, shape: StepShape, heights: Tensor, row_sums: Tensor
) -> None:
    """Turn probabilities into the gradient with respect to the logits, in place.

    ``gradient`` is that with respect to the memberships; it and ``heights``, which are not normalised, are overwritten.
    """
    first_index = steps.largest_index[:, :1]
    # From the memberships, heights / sum, to the heights.
    mean = heights.mul_(gradient).sum(1, keepdim=True).div_(row_sums)
    gradient.sub_(mean).div_(row_sums)
    by_first_height = class_axis.gather(gradient, first_index)
    # To E, the probabilities times the derivatives by them, at a fixed τ.
    above_low = torch.sub(p, steps.low, out=heights)
    # The derivative of a clamp is what threshold's backward computes, in one pass.
    on_ramp = _threshold_backward(gradient, above_low, 0.0, grad_input=above_low)
    if shape.lower_slope:
        gradient.add_(on_ramp, alpha=shape.extra_slope).mul_(p)
    else:
        torch.mul(on_ramp, p, out=gradient)
    over_ramp = torch.ops.aten.threshold_backward(steps.over_ramp, steps.past_high, 0.0)
    class_axis.scatter_add(gradient, first_index, over_ramp.mul_(steps.largest[:, :1]).mul_(by_first_height))
    # To τ, and from there to the two largest probabilities, in proportion to them.
    sum_by_p = gradient.sum(1, keepdim=True)
    correction = by_first_height.mul_(steps.upper_slope).mul_(steps.past_high).div_(steps.below_one)
    by_tau = correction - sum_by_p
    shares = by_tau.div_(steps.double_tau) * steps.largest
    class_axis.scatter_add(gradient, steps.largest_index, shares)
    # From the probabilities to the logits, by the derivative of softmax.
    torch.addcmul(gradient, p, correction, value=-1, out=p)


_threshold_backward = torch.ops.aten.threshold_backward.grad_input
