"""Exact across processes: statistics that add are ``summed``, and rows that must be seen together are ``joined``.

Both give every process the same numbers, those of all data, so every process has the same loss. Under
``DistributedDataParallel`` (and ``fully_shard``), which averages gradients over the processes, the right gradient comes
out when the backward pass sums the incoming gradients of all processes too: the sum over W processes and the 1/W of
averaging cancel. Every process must take part in forward and backward, also with an empty shard.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from metricgrad.engine.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    # Here, since some builds of torch have no processes.
    ProcessGroup = dist.ProcessGroup | Literal["world"]
    """The processes that users name: a group of ``torch.distributed``, or "world" for all."""

_warned = False
_agreed: set[tuple[int, ...]] = set()
"""The shapes that all processes of a group were found to have; see ``_check_alike``."""


def resolve(process_group: ProcessGroup | None) -> dist.ProcessGroup | None:
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


def all_reduce(tensor: Tensor, group: dist.ProcessGroup | None, mean: bool = False) -> Tensor:
    """Return the sum (or mean) over the processes; not differentiable."""
    total = tensor.detach().clone().contiguous()
    if total.numel():  # which is the same on all processes
        dist.all_reduce(total, group=group)
    return total / dist.get_world_size(group) if mean else total


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


class _Gathered(torch.autograd.Function):
    """The rows of all processes, with the gradient of ``_Summed``: each process gets back that of its own rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, lengths: list[int], group: Any) -> Tensor:
        """Gather: all send as many rows as the longest has, and what was added is cut off again."""
        rank, longest = dist.get_rank(group), max(lengths)
        ctx.group, ctx.start, ctx.length = group, sum(lengths[:rank]), lengths[rank]
        if not longest:
            return rows.new_empty(rows.shape)
        own = rows.new_zeros(longest, *rows.shape[1:])
        own[: len(rows)] = rows
        parts = [torch.empty_like(own) for _ in lengths]
        dist.all_gather(parts, own, group=group)
        return torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Sum the gradients and take this process's part."""
        return all_reduce(grad, ctx.group).narrow(0, ctx.start, ctx.length), None, None


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


def summed(cells: Sequence[Tensor], group: dist.ProcessGroup) -> tuple[Tensor, ...]:
    """Return the cells of a statistic summed over the processes, differentiably, in one call."""
    _check_alike(cells, group)
    whole = _Summed.apply(torch.cat([cell.reshape(-1) for cell in cells]), group)  # type: ignore[no-untyped-call]
    return tuple(w.view(c.shape) for w, c in zip(whole.split([c.numel() for c in cells]), cells, strict=True))


def _check_alike(cells: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Refuse, on every process, to add up cells of different shapes: that would hang, or mix up numbers.

    Asked once for each shape, since asking takes as long as adding up.
    """
    own = [cells[0].shape[-1] if cells[0].dim() else 1, sum(cell.numel() for cell in cells)]
    if (id(group), *own) in _agreed:
        return
    heads = torch.empty(dist.get_world_size(group), len(own), dtype=torch.long, device=cells[0].device)
    dist.all_gather(list(heads.unbind(0)), heads.new_tensor(own), group=group)
    classes, sizes = heads.t().tolist()
    if len(set(sizes)) > 1:
        raise ValueError(
            f"process_group: expected the same classes and thresholds on all processes, got {classes} classes and "
            f"{sizes} sums; give every process logits of all classes"
        )
    _agreed.add((id(group), *own))


def total(statistic: Any, group: dist.ProcessGroup | None) -> Any:
    """Return a statistic of all processes, differentiably; without a group, of this one."""
    return statistic if group is None else type(statistic)(*summed(statistic.cells(), group))


def joined(batch: Batch, group: dist.ProcessGroup) -> Batch:
    """Return the rows of all processes in order of rank, differentiably; shards may be uneven or empty.

    A row of K classes costs K numbers of each of logits, targets and (if given, one or K) weights on the way there, and
    K logits' gradients on the way back. What is masked has no weight; the mask itself stays behind.
    """
    z, y, w = batch.logits, batch.targets, batch.weight
    own = [len(z), z.shape[1], z.element_size(), y.dim(), y.element_size(), 0 if w is None else w.shape[1]]
    # Every process raises where they disagree: a gather of different shapes would hang, or mix up numbers.
    heads = torch.empty(dist.get_world_size(group), len(own), dtype=torch.long, device=z.device)
    dist.all_gather(list(heads.unbind(0)), heads.new_tensor(own), group=group)
    lengths, *kinds = heads.t().tolist()
    if any(len(set(kind)) > 1 for kind in kinds):
        raise ValueError(
            "process_group: expected the same classes, types and kind of weight (or none) on all processes, got "
            f"(rows, classes, bytes of a logit, axes and bytes of a target, weights a row) of {heads.tolist()}"
        )
    whole = None if w is None else _gathered(w, lengths, group)
    return Batch(_gathered(z, lengths, group), _gathered(y, lengths, group), whole, None)


def _gathered(rows: Tensor, lengths: list[int], group: dist.ProcessGroup) -> Tensor:
    return _Gathered.apply(rows, lengths, group)  # type: ignore[no-any-return, no-untyped-call]


def shared(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return a parameter that all processes hold, differentiably."""
    return _Shared.apply(tensor, group)  # type: ignore[no-any-return, no-untyped-call]
