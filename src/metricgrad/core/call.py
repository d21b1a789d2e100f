"""One call of a loss: its tensors, what is computed from them, and by which way: the kernel or plain operations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from metricgrad.core import processes
from metricgrad.core.batch import check_targets
from metricgrad.core.counts import compute_dtype, wide
from metricgrad.core.kernel import Kernel
from metricgrad.core.statistics import Columns
from metricgrad.core.surrogates.base import Surrogate

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.objective import Objective
    from metricgrad.core.statistics import Layout


class KernelPlan:
    """What is summed: the surrogate, at which thresholds, in which layout.

    ``leading``: whether the thresholds are a leading axis of the result; otherwise there is one, and no such axis.
    ``rowwise``: whether memberships are those of whole rows (multi-class) instead of elements. ``names``: the
    surrogate's fields that are tensors; their values are passed beside the logits, in this order. ``closed``: what has
    ``open`` and ``close``, the surrogate itself or its counterpart for rows; None if autograd differentiates it.
    ``in_one_piece``: whether a small batch can do without loops over chunks and thresholds.
    """

    def __init__(
        self,
        surrogate: Callable[..., Tensor],
        layout: Layout,
        thresholds: tuple[float, ...],
        leading: bool,
        rowwise: bool,
    ) -> None:
        self.surrogate, self.layout, self.thresholds = surrogate, layout, thresholds
        self.leading, self.rowwise = leading, rowwise
        self.names: tuple[str, ...] = ()
        self.closed: Surrogate | None = None
        if isinstance(surrogate, Surrogate):
            self.names, self.closed = tuple(surrogate.tensors()), surrogate.closed(rowwise)
        self.in_one_piece = type(layout) is Columns and self.closed is not None and not leading and not rowwise

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        """Return the surrogate with its tensors replaced by the given ones."""
        if not tensors:
            return self.surrogate
        return replace(self.surrogate, **dict(zip(self.names, tensors, strict=True)))  # type: ignore[type-var]

    def members(self, surrogate: Callable[..., Tensor], z: Tensor, y: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Return the memberships, for each threshold."""
        if not isinstance(surrogate, Surrogate):
            return [surrogate(z)]
        if self.rowwise:
            return [surrogate.rows(z)]
        if surrogate.takes_targets:
            return [surrogate(z, y, mask)]  # type: ignore[arg-type, call-arg]
        return [surrogate(z, threshold) for threshold in self.thresholds]


class Call:
    """One call of a loss, taken apart; plain attributes, since this is made for every batch."""

    __slots__ = (
        *("check", "group", "image_weight", "learned", "mask", "objective", "plan", "row_weight", "uses_kernel"),
        *("w", "y", "z"),
    )

    objective: Objective
    plan: KernelPlan
    group: processes.Processes | None
    z: Tensor
    """``(N, K)``; for a binary task any shape, see ``rows``."""
    y: Tensor
    """``(N, K)``, or ``(N,)`` class indices; for a binary task the shape of ``z``."""
    w: Tensor | None
    """The weights inside the cells."""
    mask: Tensor | None
    row_weight: Tensor | None
    """What each row counts, for the samples average."""
    image_weight: Tensor | None
    """What each image counts, if each has a value of its own; its positions are consecutive rows."""
    learned: tuple[Tensor, ...]
    """The surrogate's tensors."""
    check: bool
    """Whether the targets are still to be checked, which is cheapest where they are in the cache."""
    uses_kernel: bool
    """Whether the kernel serves: no tracing, a surrogate of this library, no gradient of the targets or weights."""

    def loss(self) -> Tensor:
        """Return the loss."""
        inputs = (self.z, *self.learned)
        if not self.uses_kernel or self.objective.is_vector or _are_dual(self.y, self.w):
            return self.plain_loss(*inputs)
        backward = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        forward = _are_dual(*inputs)
        if backward and forward:  # which takes second derivatives: the gradient that the kernel keeps has none
            return self.plain_loss(*inputs)
        if backward or forward:
            return Kernel.apply(self, True, *inputs)  # type: ignore[no-any-return, no-untyped-call]
        statistic = processes.total(self.statistic(), self.group)
        return 1 - self.objective.value(statistic.map(wide)).to(compute_dtype(self.z))

    def statistic(self) -> Any:
        """Return the statistic of this process's data, differentiably."""
        learned = self._shared(self.learned)
        if not self.uses_kernel or _are_dual(self.z, self.y, self.w, *learned):
            return self._of_rows(self._plain_statistic(self.z, learned))
        state = Kernel.apply(self, False, self.z, *learned)  # type: ignore[no-untyped-call]
        return self._of_rows(self.plan.layout.finish(state))

    # By differentiable operations alone, for torch.compile, torch.func and second derivatives

    def plain_loss(self, z: Tensor, *learned: Tensor) -> Tensor:
        """Return the loss."""
        statistic = self._of_rows(self._plain_statistic(z, self._shared(learned)))
        return 1 - self.objective.value(processes.total(statistic, self.group))

    def plain_cells(self, z: Tensor, *learned: Tensor) -> tuple[Tensor, ...]:
        """Return the cells of the statistic."""
        return self._plain_statistic(z, learned).cells()  # type: ignore[no-any-return]

    def _plain_statistic(self, z: Tensor, learned: tuple[Tensor, ...]) -> Any:
        plan, z, y = self.plan, self.rows(z), self.rows(self.y)
        if self.check:
            check_targets(y, z.shape[1])
        members = plan.members(plan.with_tensors(learned), z.to(compute_dtype(z)), y, self.mask)
        m, w = torch.stack(members) if plan.leading else members[0], self.w
        if self.image_weight is not None:
            images = len(self.image_weight)
            folded = images, len(y) // max(images, 1)
            m, y = m.unflatten(-2, folded), y.unflatten(0, folded)
            w = None if w is None else w.unflatten(0, folded)
        return plan.layout.plain(m, y, w)

    def rows(self, x: Tensor) -> Tensor:
        """Return logits or targets as ``(N, K)``: those of a binary task come in any shape, and are of one class."""
        return x.reshape(-1, 1) if self.objective.task == "binary" else x

    def _of_rows(self, statistic: Any) -> Any:
        if self.image_weight is not None:
            return self.objective.mean_of_images(statistic, self.image_weight)
        return self.objective.mean_of_rows(statistic, self.row_weight)

    def _shared(self, learned: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the surrogate's tensors, their gradients to be averaged over the processes."""
        group = self.group
        return learned if group is None else tuple(processes.shared(tensor, group) for tensor in learned)

    def reduced(self, gradient: Tensor, mean: bool = False) -> Tensor:
        """Return a gradient summed (or averaged) over the processes."""
        return gradient if self.group is None else self.group.sum_gradient(gradient, mean)


def _are_dual(*tensors: Tensor | None) -> bool:
    """Return whether any tensor has a tangent, for forward-mode differentiation."""
    # The level spares every other call four looks; there is no public way to ask for it.
    if forward_ad._current_level < 0:
        return False
    return any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors)
