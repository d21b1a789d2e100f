"""Exact across processes: the statistics add, so one small all-reduce gives every process the statistic of all data.

Under ``DistributedDataParallel``, which averages gradients over the processes, the right gradient comes out when the
backward pass sums the incoming gradients of all processes too: the sum over W processes and DDP's 1/W cancel.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_warned = False


def resolve(process_group: Any) -> Any:
    """Return the group to reduce over, or None for this process alone; "world" is the default group."""
    if process_group is None:
        if dist.is_available() and dist.is_initialized():
            _warn_once()
        return None
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError("process_group: torch.distributed is not initialised; call init_process_group first")
    return dist.group.WORLD if process_group == "world" else process_group


def _warn_once() -> None:
    global _warned
    if _warned or dist.get_world_size() == 1:
        return
    _warned = True
    warnings.warn(
        f"{dist.get_world_size()} processes run, but process_group is not set: each computes the metric of its own "
        'shard, and the mean of these is not the metric of the whole batch; pass process_group="world"',
        stacklevel=3,
    )


def all_reduce(tensor: Tensor, group: Any, mean: bool = False) -> Tensor:
    """Return the sum (or mean) over the processes; not differentiable."""
    total = tensor.detach().clone().contiguous()
    dist.all_reduce(total, group=group)
    return total / dist.get_world_size(group) if mean else total


def reduce_state(state: tuple[Tensor, ...], group: Any) -> tuple[Tensor, ...]:
    """Return the cells of a statistic summed over the processes, in one call."""
    whole = all_reduce(torch.cat([cell.reshape(-1) for cell in state]), group)
    return tuple(w.view(c.shape) for w, c in zip(whole.split([c.numel() for c in state]), state, strict=True))


class _Summed(torch.autograd.Function):
    """The sum over the processes with the gradient that DDP's averaging expects: summed over the processes as well."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        """Sum."""
        ctx.group = group
        return all_reduce(tensor, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Sum the gradients."""
        return all_reduce(grad, ctx.group), None


class _Shared(torch.autograd.Function):
    """A parameter of the loss, equal on all processes: its gradient is averaged as DDP averages the model's."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        """Pass through."""
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Average the gradients."""
        return all_reduce(grad, ctx.group, mean=True), None


def summed(tensor: Tensor, group: Any) -> Tensor:
    """Return the sum over the processes, differentiably."""
    return _Summed.apply(tensor, group)  # type: ignore[no-any-return, no-untyped-call]


def shared(tensor: Tensor, group: Any) -> Tensor:
    """Return a parameter that all processes hold, differentiably."""
    return _Shared.apply(tensor, group)  # type: ignore[no-any-return, no-untyped-call]
