"""The kernel: logits to loss and gradient, or to the sums of a statistic, as one node of the autograd graph.

Logits are worked on in chunks of rows that stay in the cache, and memberships are never stored. Maps ``(N, K, P)`` are
worked on in place: a chunk of their rows is a transposed view of some positions of one image. A surrogate with a
closed form has ``forward_chunk``, which computes the memberships of a chunk and saves one number per logit (say,
sigmoid(z)), and ``backward_chunk``, which turns these numbers into the gradient, in place. Any other surrogate is
evaluated again, chunk by chunk, and differentiated by autograd. The gradient of a loss is computed with the loss, since
the derivative of the metric is known then: backward only scales it, and forward-mode differentiation multiplies it by
the tangent. So the extra memory is that of the gradient, and the arithmetic runs from the cache.

A small batch takes its time by calls. It is computed at once, without loops, and if it is one of class indices on the
CPU and numpy is installed, in numpy: see ``small_batches``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from metricgrad.core import chunking, class_axis, small_batches
from metricgrad.core.batch import check_targets
from metricgrad.core.chunking import Chunk, convert_dtype, get_buffer, split_rows
from metricgrad.core.counts import compute_dtype
from metricgrad.core.metrics.derivatives import FLOORS, as_constant, limit_gradient
from metricgrad.core.statistics import MAX_POSITIVE_SHARE, ColumnLayout, Sums, SumsGradient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from metricgrad.core.call import Call, KernelPlan
    from metricgrad.core.statistics import Layout
    from metricgrad.core.surrogates.base import Surrogate

Gradients = tuple[Tensor, list[Tensor]]
"""The gradient with respect to the logits, and those with respect to the surrogate's tensors."""


class SavedForBackward(NamedTuple):
    """What the forward pass of a closed form leaves for the gradient, which is then written over ``values``."""

    values: Tensor
    """What ``forward_chunk`` saved, one number per logit."""
    chunks: list[tuple[Any, Any]]
    """Of each chunk, the scale and the context that ``forward_chunk`` returned."""


class Kernel(torch.autograd.Function):
    """A loss, whose gradient is computed with it, or the sums of a statistic, whose gradient has to wait for theirs."""

    @staticmethod
    def forward(ctx: Any, call: Call, is_loss: bool, logits: Tensor, *tensors: Tensor) -> Any:
        """Return the loss, or the sums."""
        ctx.call = call
        ctx.is_loss = is_loss
        ctx.save_for_backward(logits, call.targets, call.weight, call.mask, *tensors)
        if is_loss:
            loss, ctx.gradients = _compute_loss_and_gradients(call, logits, tensors)
            return loss
        sums, ctx.saved_for_backward = _forward_chunks(call, logits, tensors, save=any(ctx.needs_input_grad[2:]))
        margins = sums[2:]  # P and N, which do not depend on the logits; a matrix has none
        ctx.mark_non_differentiable(*margins)
        return sums

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the loss, already computed, times the incoming one, or that of the sums."""
        # Raises if the logits, the targets, the weights or the surrogate's tensors were changed in place since.
        logits, _targets, _weight, _mask, *tensors = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the gradient needs a graph of its own
            return None, None, *_differentiate_with_graph(ctx, output_gradients, logits, *tensors)
        if ctx.is_loss:
            return None, None, *_backward_loss(ctx, output_gradients[0], logits, tuple(tensors))
        saved = ctx.saved_for_backward
        ctx.saved_for_backward = None  # it is overwritten by the gradient; a second backward computes it again
        logits_gradient, tensor_gradients = _backward_chunks(
            ctx.call, logits, tuple(tensors), output_gradients[:2], saved
        )
        return None, None, logits_gradient.view(logits.shape), *tensor_gradients

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        """Return the derivative of the loss in a direction: its gradient times that of the logits and tensors."""
        logits_gradient, tensor_gradients = ctx.gradients
        derivative = logits_gradient.new_zeros(())
        for gradient, tangent in zip((logits_gradient, *tensor_gradients), tangents[2:], strict=True):
            if tangent is not None:
                derivative = derivative + gradient.reshape(-1) @ tangent.reshape(-1).to(gradient.dtype)
        return ctx.call.reduce_gradient(derivative).to(compute_dtype(logits_gradient))  # type: ignore[no-any-return]


def _backward_loss(
    ctx: Any, loss_gradient: Tensor, logits: Tensor, tensors: tuple[Tensor, ...]
) -> tuple[Tensor, *tuple[Tensor, ...]]:
    """Return the gradients that were computed with the loss, times that of the loss."""
    call = ctx.call
    gradients = ctx.gradients
    ctx.gradients = None  # they are scaled in place and handed out; a second backward computes them again
    if gradients is None:
        _, gradients = _compute_loss_and_gradients(call, logits, tensors)
    logits_gradient, tensor_gradients = gradients
    factor = call.reduce_gradient(loss_gradient)
    if not (factor.is_cpu and factor.item() == 1.0):  # a loss that is not scaled spares a pass over the logits
        logits_gradient.mul_(factor)
        for gradient in tensor_gradients:
            gradient.mul_(factor)
    if logits_gradient.shape != logits.shape:
        logits_gradient = logits_gradient.view(logits.shape)
    return logits_gradient, *(call.reduce_gradient(gradient, mean=True) for gradient in tensor_gradients)


def _differentiate_with_graph(ctx: Any, output_gradients: Sequence[Tensor], *inputs: Tensor) -> Iterator[Tensor | None]:
    """Yield the gradients that ``backward`` returns, with a graph of their own, by plain operations."""
    outputs = [ctx.call.plain_loss(*inputs)] if ctx.is_loss else ctx.call.plain_cells(*inputs)[:2]
    is_needed = ctx.needs_input_grad[2:]
    needed = [x for x, need in zip(inputs, is_needed, strict=True) if need]
    gradients = iter(torch.autograd.grad(outputs, needed, output_gradients[: len(outputs)], create_graph=True))
    return (next(gradients) if need else None for need in is_needed)


def _compute_loss_and_gradients(call: Call, logits: Tensor, tensors: tuple[Tensor, ...]) -> tuple[Tensor, Gradients]:
    if _fits_one_piece(call, logits):
        if call.plan.rowwise:
            in_numpy = small_batches.compute_loss_and_gradient(call, logits)
            if in_numpy is None:
                return _compute_rows_at_once(call, logits)
            loss, logits_gradient = in_numpy
            return loss, (logits_gradient, [])
        return _compute_elements_at_once(call, logits)
    sums, saved = _forward_chunks(call, logits, tensors, save=True)
    loss, sums_gradient = call.objective.differentiate(sums, call.row_weight, call.group, call.image_weight)
    if call.weight is not None:
        dtype = compute_dtype(logits)
        sums_gradient = tuple(_bound_derivative(derivative, dtype) for derivative in sums_gradient)
    return loss, _backward_chunks(call, logits, tensors, sums_gradient, saved)


_COMPUTE_DTYPES = (torch.float32, torch.float64)


def _fits_one_piece(call: Call, logits: Tensor) -> bool:
    """Return whether a batch is small and plain: one chunk, no weights, no images."""
    return (
        call.plan.fits_one_piece
        and call.weight is None
        and call.image_weight is None
        and logits.dtype in _COMPUTE_DTYPES
        and logits.numel() <= chunking.MAX_UNSPLIT_ELEMENTS
        and not call.has_maps
        and not (call.plan.rowwise and logits.shape[1] == 1)
    )


def _bound_derivative(x: Any, dtype: torch.dtype) -> Any:
    """Return a derivative within the range of the type: with tiny weights it can be far outside."""
    if isinstance(x, Tensor):
        return limit_gradient(x, dtype)
    bound = 1 / FLOORS[dtype]
    return min(max(x, -bound), bound)


def _compute_elements_at_once(call: Call, logits: Tensor) -> tuple[Tensor, Gradients]:
    """Compute loss and gradient without loops: for a small batch each call into torch counts, and each line of Python.

    The surrogate has a closed form of elements, and there is one threshold and no weight.
    """
    objective = call.objective
    layout = call.plan.layout
    closed_form: Any = call.plan.closed_form
    targets = call.targets
    # One class is summed in plain numbers, in any shape: tensors of one number take several times as long.
    has_one_class = objective.task == "binary" or logits.shape[1] == 1
    in_numbers = (
        has_one_class
        and logits.dtype is torch.float32
        and logits.is_cpu
        and objective.labels is None
        and call.group is None
    )
    if not in_numbers:
        logits = call.without_extra_axes(logits)
        targets = call.without_extra_axes(targets)
    must_check = call.must_check_targets and targets.dtype is not torch.bool
    targets = convert_dtype(targets, logits.dtype)
    if must_check:
        check_targets(targets)
    saved = _empty_contiguous(logits)
    buffer = get_buffer(logits, 0)
    memberships, scale, context = closed_form.forward_chunk(logits, call.plan.thresholds[0], saved, buffer)
    if in_numbers:
        sums = _sum_one_class(memberships, scale, targets, buffer)
    else:
        sums = _sum_memberships(layout, memberships, scale, targets, None, buffer)
    loss, sums_gradient = objective.differentiate(sums, group=call.group)
    memberships_gradient = layout.spread_gradient(_scale_gradient(sums_gradient, scale), targets, None, buffer)
    closed_form.backward_chunk(saved, memberships_gradient, context, None)
    return loss, (saved, [])


def _compute_rows_at_once(call: Call, logits: Tensor) -> tuple[Tensor, Gradients]:
    """Do the same for a closed form of rows, and class indices."""
    closed_form: Any = call.plan.closed_form
    targets = call.targets
    classes = logits.shape[1]
    if call.must_check_targets and not targets.is_cpu:
        check_targets(targets, classes)
    saved = _empty_contiguous(logits)
    buffer = get_buffer(saved, 0)
    memberships, row_sums, context = closed_form.forward_chunk(logits, call.plan.thresholds[0], saved, buffer)
    layout = call.plan.layout
    has_few_classes = classes <= MAX_ONE_HOT_CLASSES
    try:
        if has_few_classes:  # indices one by one take more calls than a product with all classes
            layout = _ONE_HOT_LAYOUT
            targets = _identity_matrix(classes, logits.dtype, logits.device).index_select(0, targets)
            memberships = memberships if row_sums is None else memberships / row_sums
            # Not into the buffer: it may hold the heights, which the gradient needs.
            sums = layout.sum_chunk(memberships, targets, None, None, get_buffer(saved, 1))
        else:
            true_class = targets.unsqueeze(1)
            hits = class_axis.gather(memberships, true_class)
            sums = layout.sum_chunk(memberships, targets, _row_scale(row_sums, None), None, buffer)
            if memberships is buffer:  # then the sum wrote zeros over the hits, which the gradient needs again
                class_axis.scatter(buffer, true_class, hits)
    except (IndexError, RuntimeError):  # on the CPU torch itself finds an index that is none
        check_targets(call.targets, classes)
        raise
    sums = tuple(convert_dtype(cell, logits.dtype) for cell in sums)
    loss, sums_gradient = call.objective.differentiate(sums, None, call.group)
    gradient_buffer = get_buffer(saved, 1)
    memberships_gradient = layout.spread_gradient(sums_gradient, targets, None, gradient_buffer)
    spare = None if has_few_classes or memberships is buffer else buffer
    closed_form.backward_chunk(saved, memberships_gradient, context, spare)
    return loss, (saved, [])


MAX_ONE_HOT_CLASSES = 64
"""Up to this many classes a small batch has its class indices as rows of zeros and a one."""

_ONE_HOT_LAYOUT = ColumnLayout()


@lru_cache(maxsize=64)
def _identity_matrix(classes: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a tensor created in inference mode cannot be used in training afterwards
        return torch.eye(classes, dtype=dtype, device=device)


def _forward_chunks(
    call: Call, logits: Tensor, tensors: tuple[Tensor, ...], save: bool
) -> tuple[Sums, SavedForBackward | None]:
    """Return the sums of the statistic and, if ``save`` and there is a closed form, what the gradient needs."""
    plan = call.plan
    layout = plan.layout
    logits = call.without_extra_axes(logits)
    dtype = compute_dtype(logits)
    closed_form = _find_closed_form(plan, logits)
    saved: SavedForBackward | None = None
    # A saved number per logit pays only if the gradient can be written over it: one threshold, no change of type.
    if save and closed_form is not None and not plan.has_threshold_axis and logits.dtype is dtype:
        saved = SavedForBackward(_empty_contiguous(logits), [])
    surrogate = plan.with_tensors(tensors)
    batch_rows = logits.numel() // logits.shape[1]
    sums_of_images: list[Sums] = [() for _ in range(call.images or 1)]
    sums_of_rows: list[Sums] = []
    for image, (z, y, weight, mask, saved_chunk) in _split(call, logits, None if saved is None else saved.values):
        image = image if call.images else 0
        total = sums_of_images[image]
        z = convert_dtype(z, dtype)
        y = y if y.dim() == 1 else convert_dtype(y, dtype)
        if call.must_check_targets:
            check_targets(y, logits.shape[1])
        sums_per_threshold = []
        if closed_form is None:
            for memberships in plan.compute_memberships(surrogate, z, y, mask):
                buffer = torch.empty_like(memberships)
                sums_per_threshold.append(layout.sum_chunk(memberships, y, weight, weight, buffer))
        else:
            buffer = get_buffer(z, 0)
            for threshold in plan.thresholds:
                values = get_buffer(z, 1) if saved_chunk is None else saved_chunk
                memberships, scale, context = closed_form.forward_chunk(z, threshold, values, buffer)
                if saved is not None:
                    saved.chunks.append((scale, context))
                if plan.rowwise:  # one threshold; the scale is the sums of the rows, or none
                    row_scale = _row_scale(scale, weight)
                    total = layout.add_chunk(total, memberships, y, row_scale, weight, buffer, batch_rows)
                else:
                    sums_per_threshold.append(_sum_memberships(layout, memberships, scale, y, weight, buffer))
        if sums_per_threshold:  # otherwise the chunk has been added to the total
            sums = _stack_cells(sums_per_threshold) if plan.has_threshold_axis else sums_per_threshold[0]
            if layout.adds_over_rows:
                total = layout.merge_sums(total, sums)
            else:
                sums_of_rows.append(sums)
        sums_of_images[image] = total
    if call.images:
        total = _stack_cells(sums_of_images, axis=-2)
    elif layout.adds_over_rows:
        (total,) = sums_of_images
    else:
        total = tuple(torch.cat(cell, -1) for cell in zip(*sums_of_rows, strict=True))
    return tuple(convert_dtype(cell, dtype) for cell in total), saved


def _split(call: Call, logits: Tensor, values: Tensor | None) -> Iterable[Chunk]:
    """Return the chunks of logits, targets, weight, mask and another tensor of the logits' shape."""
    targets = call.without_extra_axes(call.targets)
    return split_rows(call.plan.rowwise, call.images, logits, targets, call.weight, call.mask, values)


def _row_scale(row_sums: Tensor | None, weight: Tensor | None) -> Tensor | None:
    """Return the factor of each row, its weight over the sum of its memberships; either may be None, for 1."""
    if row_sums is None:
        return weight
    return row_sums.reciprocal() if weight is None else weight / row_sums


def _stack_cells(sums: list[Sums], axis: int = 0) -> Sums:
    """Return the sums of thresholds, or of images, with these as an axis of each cell."""
    return tuple(torch.stack(cell, axis) for cell in zip(*sums, strict=True))


def _backward_chunks(
    call: Call,
    logits: Tensor,
    tensors: tuple[Tensor, ...],
    sums_gradient: SumsGradient,
    saved: SavedForBackward | None,
) -> Gradients:
    """Return the gradients, given that with respect to the sums: a and b of a ``Jet``, or that of the matrix.

    ``saved``, if given, is consumed: the gradient is written over its values.
    """
    plan = call.plan
    layout = plan.layout
    logits = call.without_extra_axes(logits)
    dtype = compute_dtype(logits)
    closed_form = _find_closed_form(plan, logits)
    logits_gradient = _empty_contiguous(logits) if saved is None else saved.values
    tensor_gradients = [torch.zeros_like(tensor) for tensor in tensors]
    first_row = 0
    for number, (image, (z, y, weight, mask, out)) in enumerate(_split(call, logits, logits_gradient)):
        y = y if y.dim() == 1 else convert_dtype(y, dtype)
        chunk_gradient = sums_gradient
        if call.images:
            chunk_gradient = tuple(g.select(-2, image) for g in sums_gradient)
        elif not layout.adds_over_rows:
            chunk_gradient = tuple(g[..., first_row : first_row + len(z)] for g in sums_gradient)
        first_row += len(z)
        if saved is not None:
            scale, context = saved.chunks[number]
            _backward_chunk(plan, chunk_gradient, y, weight, out, scale, context)
            continue
        z = convert_dtype(z, dtype)
        if plan.has_threshold_axis:
            gradient_per_threshold = list(zip(*(g.unbind(0) for g in chunk_gradient), strict=True))
        else:
            gradient_per_threshold = [chunk_gradient]
        if closed_form is not None:
            out.copy_(_recompute_chunk(plan, closed_form, gradient_per_threshold, z, y, weight))
            continue
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in (z, *tensors)]
            surrogate = plan.with_tensors(tuple(leaves[1:]))
            memberships = plan.compute_memberships(surrogate, leaves[0], y, mask)
        spread = [layout.spread_gradient(g, y, weight, torch.empty_like(z)) for g in gradient_per_threshold]
        z_gradient, *gradients_of_chunk = torch.autograd.grad(memberships, leaves, spread)
        out.copy_(z_gradient)
        for tensor_gradient, gradient_of_chunk in zip(tensor_gradients, gradients_of_chunk, strict=True):
            tensor_gradient += gradient_of_chunk
    return logits_gradient, tensor_gradients


def _recompute_chunk(
    plan: KernelPlan,
    closed_form: Surrogate,
    gradient_per_threshold: list[SumsGradient],
    z: Tensor,
    y: Tensor,
    weight: Tensor | None,
) -> Tensor:
    """Return the gradient of a chunk of which nothing was saved, summed over the thresholds."""
    z_gradient = torch.zeros_like(z)
    for threshold, gradient in zip(plan.thresholds, gradient_per_threshold, strict=True):
        values = torch.empty_like(z)
        _, scale, context = closed_form.forward_chunk(z, threshold, values, get_buffer(z, 0))
        _backward_chunk(plan, gradient, y, weight, values, scale, context)
        z_gradient += values
    return z_gradient


def _backward_chunk(
    plan: KernelPlan,
    sums_gradient: SumsGradient,
    y: Tensor,
    weight: Tensor | None,
    values: Tensor,
    scale: Any,
    context: Any,
) -> None:
    """Turn the values that ``forward_chunk`` saved into the gradient, in place, given that with respect to the sums."""
    closed_form: Any = plan.closed_form
    spare = None
    if plan.rowwise:
        spare = get_buffer(values, 1)
    else:
        sums_gradient = _scale_gradient(sums_gradient, scale)
    memberships_gradient = plan.layout.spread_gradient(sums_gradient, y, weight, get_buffer(values, 0))
    closed_form.backward_chunk(values, memberships_gradient, context, spare)


def _empty_contiguous(like: Tensor) -> Tensor:
    return torch.empty_like(like, memory_format=torch.contiguous_format)


def _find_closed_form(plan: KernelPlan, logits: Tensor) -> Surrogate | None:
    """Return the surrogate with ``forward_chunk`` and ``backward_chunk``, if it has them for this number of classes."""
    return None if plan.rowwise and logits.shape[1] == 1 else plan.closed_form


def _scale_gradient(sums_gradient: SumsGradient, scale: float) -> SumsGradient:
    """Return the gradient with respect to the sums of memberships before they are multiplied by ``scale``."""
    if scale == 1.0:
        return sums_gradient
    a, b = sums_gradient
    factor = as_constant(scale, a) if isinstance(a, Tensor) else scale
    return a * factor, b * factor


def _sum_memberships(
    layout: Layout, memberships: Tensor, scale: float, y: Tensor, weight: Tensor | None, buffer: Tensor
) -> Sums:
    """Return the sums of scale·memberships; ``memberships`` may be overwritten."""
    if scale == 1.0:
        return layout.sum_chunk(memberships, y, weight, weight, buffer)
    if weight is not None:
        # Before weighting, so that a full membership is exactly 1 and its sum exactly that of the weights.
        memberships.mul_(as_constant(scale, memberships)).clamp_max_(1.0)
        return layout.sum_chunk(memberships, y, weight, weight, buffer)
    tp, fp, positives, negatives = layout.sum_chunk(memberships, y, None, None, buffer)
    factor = as_constant(scale, tp)
    # A scaled membership reaches 1 up to rounding; the cells it leaves over must not become negative.
    tp = torch.minimum(tp * factor, positives)
    fp = torch.minimum(fp * factor, negatives)
    return tp, fp, positives, negatives


def _sum_one_class(memberships: Tensor, scale: float, targets: Tensor, buffer: Tensor) -> Sums:
    """Return the sums of scale·memberships of one class, of any shape, as plain numbers."""
    size = targets.numel()
    positives = targets.sum().item()
    negatives = size - positives
    if positives > MAX_POSITIVE_SHARE * size:
        inside = memberships * targets
        tp = inside.sum().item()
        fp = torch.sub(memberships, inside, out=inside).sum().item()
    else:
        predicted = memberships.sum().item()
        tp = torch.mul(memberships, targets, out=buffer).sum().item()
        fp = predicted - tp
    if scale != 1.0:
        # The order of min's arguments lets NaN through.
        tp = min(tp * scale, positives)
        fp = min(fp * scale, negatives)
    return tp, fp, positives, negatives
