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

from metricgrad.core.metrics.derivatives import as_constant

GROUP = 32


class Row(NamedTuple):
    """What the steps of rows are made of; all ``(n, 1)``."""

    first: Tensor
    first_index: Tensor
    second_index: Tensor
    tau: Tensor
    low: Tensor
    high: Tensor
    m1: Tensor
    rise: Tensor
    """How much steeper the ramp is than below the lower knot."""
    passed: Tensor
    """Whether the largest probability is above the upper knot."""
    slope: Tensor
    """That of the step at the largest probability."""
    top: Tensor
    """The step of the largest probability."""


def top_two(p: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the largest value, its index, the second largest and its index, each ``(n, 1)``, of values above −1.

    Torch's ``topk`` and ``max`` are slow over many classes; ``amax`` is not, so find the largest of every group first.
    """
    d = p.shape[1]
    if d <= 2 * GROUP:
        return _two_largest(p)
    groups = d // GROUP
    peaks = p[:, : groups * GROUP].unflatten(1, (groups, GROUP)).amax(2)
    if groups * GROUP < d:
        peaks = torch.cat([peaks, p[:, groups * GROUP :].amax(1, keepdim=True)], 1)
    _, best, _, next_best = _two_largest(peaks)
    # The two largest are among the members of the two best groups.
    columns = torch.cat([best, next_best], 1).mul_(GROUP).unsqueeze(2) + torch.arange(GROUP, device=p.device)
    columns = columns.flatten(1)
    members = p.gather(1, columns.clamp_max(d - 1)).masked_fill_(columns >= d, -1.0)
    first, here, second, there = _two_largest(members)
    return first, columns.gather(1, here), second, columns.gather(1, there)


def _two_largest(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    first, here = x.max(1, keepdim=True)
    second, there = x.scatter(1, here, -1.0).max(1, keepdim=True)
    return first, here, second, there


def analyse(p: Tensor, delta: float, width: float) -> Row:
    """Return the thresholds, knots and slopes of every row of probabilities."""
    first, first_index, second, second_index = top_two(p)
    tau = (first + second) / 2
    low, high = tau * (1 - width / 2), tau * (1 + width / 2)
    m1, m2, m3 = delta / low, (1 - 2 * delta) / width / tau, delta / (as_constant(1.0, high) - high)
    knee, passed = m1 * low, first > high
    beyond = knee + m2 * (high - low) + m3 * (first - high)
    top = torch.where(passed, beyond, knee + m2 * (first - low))
    return Row(first, first_index, second_index, tau, low, high, m1, m2 - m1, passed, torch.where(passed, m3, m2), top)


def heights(p: Tensor, row: Row, out: Tensor) -> Tensor:
    """Write the step of every probability into ``out``, not yet normalised, and return the sum of each row."""
    torch.sub(p, row.low, out=out).clamp_min_(0.0).mul_(row.rise).addcmul_(p, row.m1)
    out.scatter_(1, row.first_index, row.top)
    return out.sum(1, keepdim=True)


def pull(p: Tensor, g: Tensor, row: Row, delta: float, width: float, spare: Tensor) -> None:
    """Turn probabilities into the gradient with respect to the logits, in place; ``g`` is that of the memberships."""
    total = heights(p, row, spare)
    mean = spare.mul_(g).sum(1, keepdim=True) / total
    g.sub_(mean).div_(total)  # now the gradient with respect to the heights: memberships are heights / total
    top = g.gather(1, row.first_index)
    torch.sub(p, row.low, out=spare)
    torch.ops.aten.threshold_backward.grad_input(g, spare, 0.0, grad_input=spare)  # the derivative of the clamp
    g.mul_(row.m1).addcmul_(spare, row.rise)
    slope = top * row.slope
    g.scatter_(1, row.first_index, slope)  # now with respect to the probabilities, at a fixed τ
    weighted = torch.mul(g, p, out=spare).sum(1, keepdim=True)
    by_tau = -torch.where(row.passed, weighted - slope * row.first, weighted) / row.tau
    # Beyond the upper knot h = 1 − δ(1 − p)/(1 − t₂), and t₂ moves with τ.
    moved = -delta * (1 - row.first) / (1 - row.high) ** 2 * (1 + width / 2)
    by_tau = by_tau + torch.where(row.passed, top * moved, 0.0)
    half = by_tau / 2
    g.scatter_add_(1, row.first_index, half).scatter_add_(1, row.second_index, half)
    p.mul_(g.sub_(weighted + by_tau * row.tau))
