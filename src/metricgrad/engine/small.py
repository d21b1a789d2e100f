"""Batches in one piece: value and gradient in one go, by the straightest way.

In a small batch the arithmetic is nothing beside the fixed costs: of each call into torch, of each node of the graph,
of Python itself. So the usual batch (labels of the logits' shape, no weights, no mask, a surrogate in closed form) that
needs no chunks is not taken apart either, one class is summed into plain numbers, and the gradient is computed with the
loss: less than coming back for it costs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.engine import kernel
from metricgrad.engine.batch import check_targets
from metricgrad.engine.statistics import LOPSIDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.engine.objective import Objective
    from metricgrad.surrogates.steps import Reduce

_WIDE = (torch.float32, torch.float64)


def is_small(z: Any, y: Any, objective: Objective) -> bool:
    """Tell whether logits and targets are such a batch, and a gradient by the logits alone is wanted."""
    return (
        isinstance(z, Tensor)
        and isinstance(y, Tensor)
        and z.requires_grad
        and not y.requires_grad
        and z.shape == y.shape
        and z.dtype in _WIDE
        and not y.is_complex()
        and 0 < z.numel() <= kernel.WHOLE
        and (_one_class(z, objective) or (z.dim() == 2 and (objective.task != "binary" or z.shape[1] == 1)))
    )


def _one_class(z: Tensor, objective: Objective) -> bool:
    """Tell whether all logits are of one class, in float32 on the CPU: then plain numbers serve, whatever the axes."""
    one = objective.task == "binary" or (z.dim() > 1 and z.shape[1] == 1)
    return one and z.is_cpu and z.dtype is torch.float32 and objective.labels is None


class SmallLoss(torch.autograd.Function):
    """The loss of such a batch as one node.

    ``again``: computes it by differentiable operations alone, for second derivatives.
    """

    @staticmethod
    def forward(
        ctx: Any,
        plan: kernel.Plan,
        objective: Objective,
        again: Callable[[Tensor, Tensor], Tensor],
        z: Tensor,
        y: Tensor,
    ) -> Tensor:
        """Return the loss, and keep its gradient."""
        ctx.plan, ctx.objective, ctx.again = plan, objective, again
        ctx.save_for_backward(z, y)
        loss, ctx.gradient = _loss_and_gradient(plan, objective, z, y)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Hand the gradient out, which is there already; a second time compute it again, to the same bits."""
        z, y = ctx.saved_tensors  # raises if they were changed since
        if torch.is_grad_enabled():  # create_graph=True: the gradient needs a graph of its own
            (by_z,) = torch.autograd.grad(ctx.again(z, y), z, grad, create_graph=True)
            return None, None, None, by_z, None
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            _, gradient = _loss_and_gradient(ctx.plan, ctx.objective, z, y)
        usual = grad.is_cpu and grad.item() == 1.0  # of a loss that is not scaled: spare a pass over the logits
        return None, None, None, gradient if usual else gradient.mul_(grad), None


def _loss_and_gradient(plan: kernel.Plan, objective: Objective, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    y = y.to(z.dtype)
    check_targets(y)
    scratch, gradient = kernel.scratch(z, 0), torch.empty_like(z)
    one = _one_class(z, objective)
    sums: Reduce = partial(_sum_numbers, y) if one else partial(kernel.reduced, plan.layout, y, None)
    state = plan.surrogate.fill(z, plan.thresholds[0], gradient, scratch, sums)
    if one:
        value, a, b = objective.differentiate_numbers(state, z)
        loss = torch.scalar_tensor(value, dtype=z.dtype)
    else:
        loss, (a, b) = objective.differentiate(state)
    plan.surrogate.pull(gradient, plan.layout.expand((a, b), y, None, scratch))
    return loss, gradient


def _sum_numbers(y: Tensor, member: Tensor, out: Tensor, scale: float) -> list[float]:
    """Sum one class without weights into plain numbers; see ``steps.Reduce``."""
    positives = y.sum().item()
    negatives = y.numel() - positives
    if positives > LOPSIDED * y.numel():
        inside = member * y
        tp, fp = inside.sum().item(), torch.sub(member, inside, out=inside).sum().item()
    else:
        predicted = member.sum().item()
        tp = torch.mul(member, y, out=out).sum().item()
        fp = predicted - tp
    if scale != 1.0:
        # The order of min's arguments lets NaN through.
        tp, fp = min(tp * scale, positives), min(fp * scale, negatives)
    return [tp, fp, positives, negatives]
