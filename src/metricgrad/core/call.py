"""One call of a loss: its tensors, what is computed from them, and by which way: the kernel or plain operations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from metricgrad.core import processes
from metricgrad.core.batch import check_targets, to_rows
from metricgrad.core.counts import compute_dtype, wide
from metricgrad.core.kernel import Kernel
from metricgrad.core.objects import count_objects, weigh_objects
from metricgrad.core.statistics import ColumnLayout, IndexLayout
from metricgrad.core.surrogates.base import Surrogate

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.objective import Objective
    from metricgrad.core.objects import ObjectIndex
    from metricgrad.core.statistics import Layout


class KernelPlan:
    """What is summed: the surrogate, at which thresholds, in which layout.

    Attributes
    ----------
    has_threshold_axis : bool
        Whether the thresholds are a leading axis of the result; otherwise there is one, and no such axis.
    rowwise : bool
        Whether memberships are those of whole rows (multi-class) instead of elements.
    tensor_names : tuple of str
        The surrogate's fields that are tensors; their values are passed beside the logits, in this order.
    closed_form : Surrogate or None
        What has ``forward_chunk`` and ``backward_chunk``, the surrogate itself or its counterpart; None if autograd
        differentiates it.
    fits_one_piece : bool
        Whether a small batch can do without loops over chunks and thresholds.
    """

    def __init__(
        self,
        surrogate: Callable[..., Tensor],
        layout: Layout,
        thresholds: tuple[float, ...],
        has_threshold_axis: bool,
        rowwise: bool,
    ) -> None:
        self.surrogate = surrogate
        self.layout = layout
        self.thresholds = thresholds
        self.has_threshold_axis = has_threshold_axis
        self.rowwise = rowwise
        self.tensor_names: tuple[str, ...] = ()
        self.closed_form: Surrogate | None = None
        if isinstance(surrogate, Surrogate):
            self.tensor_names = tuple(surrogate.tensors())
            self.closed_form = surrogate.closed_form(rowwise)
        fits_layout = type(layout) is (IndexLayout if rowwise else ColumnLayout)
        self.fits_one_piece = fits_layout and not has_threshold_axis and self.closed_form is not None

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        """Return the surrogate with its tensors replaced by the given ones."""
        if not tensors:
            return self.surrogate
        by_name = dict(zip(self.tensor_names, tensors, strict=True))
        return replace(self.surrogate, **by_name)  # type: ignore[type-var]

    def compute_memberships(
        self, surrogate: Callable[..., Tensor], logits: Tensor, targets: Tensor, mask: Tensor | None
    ) -> list[Tensor]:
        """Return the memberships, for each threshold."""
        if not isinstance(surrogate, Surrogate):
            return [surrogate(logits)]
        if self.rowwise:
            return [surrogate.rows(logits)]
        if surrogate.takes_targets:
            return [surrogate(logits, targets, mask)]  # type: ignore[arg-type, call-arg]
        return [surrogate(logits, threshold) for threshold in self.thresholds]


class Call:
    """One call of a loss, taken apart; plain attributes, since this is made for every batch."""

    __slots__ = (
        "group",
        "image_weight",
        "logits",
        "mask",
        "must_check_targets",
        "object_index",
        "objective",
        "plan",
        "row_weight",
        "surrogate_tensors",
        "targets",
        "uses_kernel",
        "weight",
    )

    objective: Objective
    plan: KernelPlan
    group: processes.Processes | None
    logits: Tensor
    """Rows ``(N, K)`` or maps ``(N, K, P)``; for a binary task any shape, see ``without_extra_axes``."""
    targets: Tensor
    """``(N, K)``, or ``(N,)`` class indices, with a last axis P for maps; for a binary task the shape of the logits."""
    weight: Tensor | None
    """The weights inside the cells."""
    mask: Tensor | None
    row_weight: Tensor | None
    """What each row counts, for the samples average."""
    image_weight: Tensor | None
    """What each image counts, if each has a value of its own; its positions are consecutive rows."""
    object_index: ObjectIndex | None
    """Which elements belong to which object, if each has a value of its own."""
    surrogate_tensors: tuple[Tensor, ...]
    """The surrogate's tensors, for which a gradient can be computed."""
    must_check_targets: bool
    """Whether the targets are still to be checked, which is cheapest where they are in the cache."""
    uses_kernel: bool
    """Whether the kernel can be used: no tracing, a surrogate of this library, no gradient of targets or weights."""

    def loss(self) -> Tensor:
        """Return the loss."""
        inputs = (self.logits, *self.surrogate_tensors)
        if not self.uses_kernel or self.objective.is_vector or _have_tangents(self.targets, self.weight):
            return self.plain_loss(*inputs)
        is_backward = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        is_forward_mode = _have_tangents(*inputs)
        if is_backward and is_forward_mode:  # second derivatives: the gradient that the kernel keeps has none
            return self.plain_loss(*inputs)
        if is_backward or is_forward_mode:
            return Kernel.apply(self, True, *inputs)  # type: ignore[no-any-return, no-untyped-call]
        statistic = processes.sum_statistic(self.statistic(), self.group)
        return 1 - self.objective.value(statistic.map(wide)).to(compute_dtype(self.logits))

    def statistic(self) -> Any:
        """Return the statistic of this process's data, differentiably."""
        tensors = self._share_tensors(self.surrogate_tensors)
        if not self.uses_kernel or _have_tangents(self.logits, self.targets, self.weight, *tensors):
            return self._average_rows(self._plain_statistic(self.logits, tensors))
        sums = Kernel.apply(self, False, self.logits, *tensors)  # type: ignore[no-untyped-call]
        return self._average_rows(self.plan.layout.to_statistic(sums))

    # By differentiable operations alone, for torch.compile, torch.func and second derivatives

    def plain_loss(self, logits: Tensor, *tensors: Tensor) -> Tensor:
        """Return the loss."""
        statistic = self._average_rows(self._plain_statistic(logits, self._share_tensors(tensors)))
        return 1 - self.objective.value(processes.sum_statistic(statistic, self.group))

    def plain_cells(self, logits: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the cells of the statistic."""
        return self._plain_statistic(logits, tensors).cells()  # type: ignore[no-any-return]

    def _plain_statistic(self, logits: Tensor, tensors: tuple[Tensor, ...]) -> Any:
        plan = self.plan
        logits = self.as_rows(logits)
        targets = self.as_rows(self.targets)
        weight = None if self.weight is None else self.as_rows(self.weight)
        mask = None if self.mask is None else self.as_rows(self.mask)
        if self.must_check_targets:
            check_targets(targets, logits.shape[1])
        surrogate = plan.with_tensors(tensors)
        per_threshold = plan.compute_memberships(surrogate, logits.to(compute_dtype(logits)), targets, mask)
        memberships = torch.stack(per_threshold) if plan.has_threshold_axis else per_threshold[0]
        if self.object_index is not None:
            return count_objects(self.object_index, memberships, targets, weight)
        if self.image_weight is not None:
            images = len(self.image_weight)
            image_shape = images, len(targets) // max(images, 1)
            memberships = memberships.unflatten(-2, image_shape)
            targets = targets.unflatten(0, image_shape)
            weight = None if weight is None else weight.unflatten(0, image_shape)
        return plan.layout.sum_differentiably(memberships, targets, weight)

    def without_extra_axes(self, x: Tensor) -> Tensor:
        """Return logits or targets as rows or maps: those of a binary task come in any shape, and are of one class."""
        return x.reshape(-1, 1) if self.objective.task == "binary" else x

    def as_rows(self, x: Tensor) -> Tensor:
        """Return logits, targets, weight or mask as ``(rows, K)``, class indices as ``(rows,)``."""
        if self.objective.task == "binary":
            return x.reshape(-1, 1)
        if not self.has_maps:
            return x
        return to_rows(x) if x.dim() == 3 else x.flatten()

    @property
    def has_maps(self) -> bool:
        """Whether logits, targets, weight and mask are maps instead of rows."""
        return self.objective.task != "binary" and self.logits.dim() == 3

    @property
    def images(self) -> int | None:
        """How many images have a value of their own; None if all rows have one together."""
        return None if self.image_weight is None else len(self.image_weight)

    def _average_rows(self, statistic: Any) -> Any:
        """Return the mean of counts per object, image or row; any other statistic as it is."""
        if self.object_index is not None:
            rows = self.as_rows(self.logits)
            object_weight = weigh_objects(self.object_index, rows, self.weight)
            return self.objective.mean_of_objects(statistic, self.object_index, object_weight, rows.shape[1])
        if self.image_weight is not None:
            return self.objective.mean_of_images(statistic, self.image_weight)
        return self.objective.mean_of_rows(statistic, self.row_weight)

    def _share_tensors(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the surrogate's tensors, their gradients to be averaged over the processes."""
        group = self.group
        return tensors if group is None else tuple(processes.share_parameter(tensor, group) for tensor in tensors)

    def reduce_gradient(self, gradient: Tensor, mean: bool = False) -> Tensor:
        """Return a gradient summed (or averaged) over the processes."""
        return gradient if self.group is None else self.group.sum_gradient(gradient, mean)


def _have_tangents(*tensors: Tensor | None) -> bool:
    """Return whether any tensor has a tangent, for forward-mode differentiation."""
    # Outside forward-mode differentiation, which has no public test, this saves unpacking every tensor.
    if forward_ad._current_level < 0:
        return False
    return any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors)
