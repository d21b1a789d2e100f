"""Exact across processes: statistics that add are summed, and rows that must be seen together are joined.

Both give every process the same numbers, those of all data, so every process has the same loss. Under
``DistributedDataParallel`` (and ``fully_shard``), which averages gradients over the processes, the right gradient comes
out when the backward pass sums the incoming gradients of all processes too: the sum over W processes and the 1/W of
averaging cancel. Every process must take part in forward and backward, also with an empty shard.

Which processes, and how they exchange numbers, is a ``Processes``: those of ``torch.distributed``, which users name
with ``process_group=``, or those of an ``across`` around the call, as the workers of XGBoost (boosting/workers.py).
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from metricgrad.core.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    # Here, since some builds of torch have no processes.
    ProcessGroup = dist.ProcessGroup | Literal["world"]
    """The processes that users name: a group of ``torch.distributed``, or "world" for all."""

_warned = False
_agreed: set[tuple[int, ...]] = set()
"""The shapes that all processes of a group were found to have; see ``TorchProcesses.check_alike``."""


class Processes(Protocol):
    """Processes that compute one loss together. Every process makes the same calls in the same order."""

    @property
    def size(self) -> int:
        """How many there are."""

    @property
    def rank(self) -> int:
        """The number of this one."""

    def check_alike(self, cells: Sequence[Tensor]) -> None:
        """Refuse, on every process, to add up cells of different shapes: that would hang, or mix up numbers."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over the processes."""

    def sum_gradient(self, gradient: Tensor, mean: bool = False) -> Tensor:
        """Return the gradient that the backward pass goes on with: the sum (or mean) over those of all processes."""

    def stack(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all processes, which have one shape, along a new first axis."""


class TorchProcesses:
    """A group of ``torch.distributed``."""

    def __init__(self, group: Any) -> None:
        self.group = group

    @property
    def size(self) -> int:
        """How many there are."""
        return dist.get_world_size(self.group)

    @property
    def rank(self) -> int:
        """The number of this one."""
        return dist.get_rank(self.group)

    def check_alike(self, cells: Sequence[Tensor]) -> None:
        """Refuse different shapes. Asked once for each shape, since asking takes as long as adding up."""
        own_classes = cells[0].shape[-1] if cells[0].dim() else 1
        own_size = sum(cell.numel() for cell in cells)
        if (id(self.group), own_classes, own_size) in _agreed:
            return
        own = torch.tensor([own_classes, own_size], device=cells[0].device)
        classes, sizes = self.stack(own).t().tolist()
        if len(set(sizes)) > 1:
            raise ValueError(
                f"process_group: expected the same classes and thresholds on all processes, got {classes} classes and "
                f"{sizes} sums; give every process logits of all classes"
            )
        _agreed.add((id(self.group), own_classes, own_size))

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over the processes."""
        total = tensor.detach().clone().contiguous()
        if total.numel():  # which is the same on all processes
            dist.all_reduce(total, group=self.group)
        return total

    def sum_gradient(self, gradient: Tensor, mean: bool = False) -> Tensor:
        """Return the sum (or mean) over the processes."""
        return self.sum(gradient) / self.size if mean else self.sum(gradient)

    def stack(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all processes along a new first axis."""
        whole = tensor.new_empty(self.size, *tensor.shape)
        dist.all_gather(list(whole.unbind(0)), tensor, group=self.group)
        return whole


_surrounding: dict[int, Processes] = {}
"""The processes of ``across``, by thread. Not a ContextVar, which ``torch.compile`` cannot read."""


@contextmanager
def across(processes: Processes | None) -> Iterator[None]:
    """Let losses without a ``process_group`` add up over these processes; with None, over this process alone again."""
    thread = get_ident()
    before = _surrounding.pop(thread, None)
    if processes is not None:
        _surrounding[thread] = processes
    try:
        yield
    finally:
        _surrounding.pop(thread, None)
        if before is not None:
            _surrounding[thread] = before


def find_surrounding() -> Processes | None:
    """Return the processes of the ``across`` around this call."""
    return _surrounding.get(get_ident()) if _surrounding else None


def resolve(process_group: ProcessGroup | None) -> Processes | None:
    """Return the processes to reduce over, or None for this one alone; "world" is the default group."""
    if process_group is None:
        processes = find_surrounding()
        if processes is None and dist.is_available() and dist.is_initialized():
            _warn_once()
        return processes
    return TorchProcesses(find_group(process_group))


def find_group(process_group: ProcessGroup) -> Any:
    """Return the group of ``torch.distributed`` that is named."""
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


class _Summed(torch.autograd.Function):
    """The sum over the processes with the gradient that DDP's averaging expects: summed over the processes as well."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        """Sum."""
        ctx.group = group
        return group.sum(tensor)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Sum the gradients."""
        return ctx.group.sum_gradient(grad), None


class _Gathered(torch.autograd.Function):
    """The rows of all processes, with the gradient of ``_Summed``: each process gets back that of its own rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, lengths: list[int], group: Any) -> Tensor:
        """Gather: all send as many rows as the longest has, and what was added is cut off again."""
        rank = group.rank
        ctx.group = group
        ctx.start = sum(lengths[:rank])
        ctx.length = lengths[rank]
        longest = max(lengths)
        if not longest:
            return rows.new_empty(rows.shape)
        padded = rows.new_zeros(longest, *rows.shape[1:])
        padded[: len(rows)] = rows
        padded_parts = group.stack(padded)
        return torch.cat([part[:length] for part, length in zip(padded_parts, lengths, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Sum the gradients and take this process's part."""
        return ctx.group.sum_gradient(grad).narrow(0, ctx.start, ctx.length), None, None


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
        return ctx.group.sum_gradient(grad, mean=True), None


def sum_cells(cells: Sequence[Tensor], group: Processes) -> tuple[Tensor, ...]:
    """Return the cells of a statistic summed over the processes, differentiably, in one call."""
    group.check_alike(cells)
    flat = torch.cat([cell.reshape(-1) for cell in cells])
    flat_sum = _Summed.apply(flat, group)  # type: ignore[no-untyped-call]
    sums = flat_sum.split([cell.numel() for cell in cells])
    return tuple(part.view(cell.shape) for part, cell in zip(sums, cells, strict=True))


def sum_statistic(statistic: Any, group: Processes | None) -> Any:
    """Return a statistic of all processes, differentiably; without a group, of this one."""
    return statistic if group is None else type(statistic)(*sum_cells(statistic.cells(), group))


def join_batches(batch: Batch, group: Processes) -> Batch:
    """Return the rows of all processes in order of rank, differentiably; shards may be uneven or empty.

    A row of K classes costs K numbers of each of logits, targets and (if given, one or K) weights on the way there, and
    K logits' gradients on the way back. What is masked has no weight; the mask itself stays behind.
    """
    z = batch.logits
    y = batch.targets
    weight = batch.weight
    weight_columns = 0 if weight is None else weight.shape[1]
    own = [len(z), z.shape[1], z.element_size(), y.dim(), y.element_size(), weight_columns]
    # Every process raises where they disagree: a gather of different shapes would hang, or mix up numbers.
    heads = group.stack(torch.tensor(own, device=z.device))
    lengths, *kinds = heads.t().tolist()
    if any(len(set(kind)) > 1 for kind in kinds):
        raise ValueError(
            "process_group: expected the same classes, types and kind of weight (or none) on all processes, got "
            f"(rows, classes, bytes of a logit, axes and bytes of a target, weights a row) of {heads.tolist()}"
        )
    all_weight = None if weight is None else _gather(weight, lengths, group)
    return Batch(_gather(z, lengths, group), _gather(y, lengths, group), all_weight, None)


def gather_rows(tensors: Sequence[Tensor | None], group: Processes) -> tuple[Any, ...]:
    """Return tensors of this process's rows as those of the rows of all processes, differentiably."""
    own_length = torch.tensor(len(tensors[0]))  # type: ignore[arg-type]
    lengths: list[int] = group.stack(own_length).tolist()
    return tuple(None if rows is None else _gather(rows, lengths, group) for rows in tensors)


def _gather(rows: Tensor, lengths: list[int], group: Processes) -> Tensor:
    return _Gathered.apply(rows, lengths, group)  # type: ignore[no-any-return, no-untyped-call]


def share_parameter(tensor: Tensor, group: Processes) -> Tensor:
    """Return a parameter that all processes hold; its gradient is averaged over them."""
    return _Shared.apply(tensor, group)  # type: ignore[no-any-return, no-untyped-call]
