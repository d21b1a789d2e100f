"""The kernel: logits to loss and gradient, or to the sums of a statistic, as one node of the graph.

Logits are worked on in chunks of rows that stay in the cache, and memberships are never stored. A surrogate with a
closed form is *opened* (it writes its link, say sigmoid(z), and the memberships of a chunk) and *closed* (it turns the
link into the gradient, in place); any other surrogate is evaluated again, chunk by chunk, and differentiated by
autograd. The gradient of a loss is computed with the loss, since the derivative of the metric is known then: backward
only scales it, and forward-mode differentiation multiplies it by the tangent. So the extra memory is that of the
gradient, and the arithmetic runs from the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core import chunking
from metricgrad.core.batch import check_targets
from metricgrad.core.chunking import converted, scratch
from metricgrad.core.counts import compute_dtype
from metricgrad.core.metrics.derivatives import FLOORS, as_constant, bounded
from metricgrad.core.statistics import LOPSIDED, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from metricgrad.core.call import Call, KernelPlan
    from metricgrad.core.statistics import Layout
    from metricgrad.core.surrogates.base import Surrogate

Gradients = tuple[Tensor, list[Tensor]]
"""With respect to the logits, and to the surrogate's tensors."""

Links = tuple[Tensor, list[tuple[Any, Any]]] | None
"""What the sums leave for the gradient: the links of all logits, and of each chunk the scale and the note."""


class Kernel(torch.autograd.Function):
    """A loss, whose gradient is computed with it, or the sums of a statistic, whose gradient has to wait for theirs."""

    @staticmethod
    def forward(ctx: Any, call: Call, is_loss: bool, z: Tensor, *tensors: Tensor) -> Any:
        """Return the loss, or the sums."""
        ctx.call, ctx.is_loss = call, is_loss
        ctx.save_for_backward(z, call.y, call.w, call.mask, *tensors)
        if is_loss:
            loss, ctx.gradients = _differentiated(call, z, tensors)
            return loss
        state, ctx.links = _opened(call, z, tensors, keep=any(ctx.needs_input_grad[2:]))
        ctx.mark_non_differentiable(*state[2:])  # P and N: the prediction does not move them
        return state

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradient, which is there already, or spread that of the sums over the logits."""
        call = ctx.call
        z, _, _, _, *tensors = ctx.saved_tensors  # raises if they, the targets or the weights were changed since
        if torch.is_grad_enabled():  # create_graph=True: the gradient needs a graph of its own
            outputs = [call.plain_loss(z, *tensors)] if ctx.is_loss else call.plain_cells(z, *tensors)[:2]
            return None, None, *_with_graph(ctx.needs_input_grad[2:], outputs, grads, z, *tensors)
        if not ctx.is_loss:
            links, ctx.links = ctx.links, None
            by_z, by_tensor = _closed(call, z, tuple(tensors), grads[:2], links)
            return None, None, by_z.view(z.shape), *by_tensor
        # A second time computed again, to the same bits.
        (by_z, by_tensor), ctx.gradients = ctx.gradients or _differentiated(call, z, tuple(tensors))[1], None
        grad = grads[0] if call.group is None else call.reduced(grads[0])
        if not (grad.is_cpu and grad.item() == 1.0):  # a loss that is not scaled spares a pass over the logits
            by_z, by_tensor = by_z.mul_(grad), [g.mul_(grad) for g in by_tensor]
        by_z = by_z if by_z.shape == z.shape else by_z.view(z.shape)
        return (None, None, by_z, *(call.reduced(g, mean=True) for g in by_tensor)) if by_tensor else (None, None, by_z)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        """Return the derivative of the loss in a direction: its gradient times that of the logits and tensors."""
        by_z, by_tensor = ctx.gradients
        pairs = zip((by_z, *by_tensor), tangents[2:], strict=True)
        total = sum((g.reshape(-1) @ t.reshape(-1).to(g.dtype) for g, t in pairs if t is not None), by_z.new_zeros(()))
        return ctx.call.reduced(total).to(compute_dtype(by_z))  # type: ignore[no-any-return]


def _with_graph(
    needed: Sequence[bool], outputs: Sequence[Tensor], grads: Sequence[Tensor], *inputs: Tensor
) -> Iterator[Tensor | None]:
    """Yield the gradients that ``backward`` owes, with a graph of their own."""
    wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
    found = iter(torch.autograd.grad(outputs, wanted, grads[: len(outputs)], create_graph=True))
    return (next(found) if need else None for need in needed)


def _differentiated(call: Call, z: Tensor, tensors: tuple[Tensor, ...]) -> tuple[Tensor, Gradients]:
    """Return the loss and its gradients."""
    if call.plan.in_one_piece and call.w is None and z.dtype in _WIDE and z.numel() <= chunking.WHOLE:
        return _in_one_piece(call, z)
    state, links = _opened(call, z, tensors, keep=True)
    loss, gradient = call.objective.differentiate(state, call.row_weight, call.group)
    if call.w is not None:
        gradient = tuple(_within(g, compute_dtype(z)) for g in gradient)
    return loss, _closed(call, z, tensors, gradient, links)


def _within(x: Any, dtype: torch.dtype) -> Any:
    """Return a derivative that the type can hold: of tiny weights, the shares of shares have enormous ones."""
    if isinstance(x, Tensor):
        return bounded(x, dtype)
    bound = 1 / FLOORS[dtype]
    return min(max(x, -bound), bound)


_WIDE = (torch.float32, torch.float64)


def _in_one_piece(call: Call, z: Tensor) -> tuple[Tensor, Gradients]:
    """Do the same in straight lines: beside a small batch each call into torch counts, and each line of Python."""
    objective, plan, y, dtype = call.objective, call.plan, call.y, z.dtype
    closed: Any = plan.closed
    # One class in plain numbers, in any shape: tensors of one number take several times as long.
    one = dtype is torch.float32 and z.is_cpu and objective.labels is None and call.group is None
    one = one and (objective.task == "binary" or z.shape[1] == 1)
    if not one:
        z, y = call.rows(z), call.rows(y)
    boolean, y = y.dtype is torch.bool, converted(y, dtype)
    if call.check and not boolean:
        check_targets(y)
    link, buffer = torch.empty_like(z, memory_format=torch.contiguous_format), scratch(z, 0)
    member, scale, note = closed.open(z, plan.thresholds[0], link, buffer)
    sums = _sum_numbers(member, scale, y, buffer) if one else _sum(plan.layout, member, scale, y, None, buffer)
    loss, gradient = objective.differentiate(sums, None, call.group)
    closed.close(link, plan.layout.expand(_times(gradient, scale), y, None, buffer), note, None)
    return loss, (link, [])


def _opened(call: Call, z: Tensor, tensors: tuple[Tensor, ...], keep: bool) -> tuple[State, Links]:
    """Return the sums of the statistic and, if ``keep`` and there is a closed form, the links."""
    plan, layout, z, dtype = call.plan, call.plan.layout, call.rows(z), compute_dtype(z)
    closed = _closed_form(plan, z)
    # A number per logit pays only if it can become the gradient: one threshold, no change of type.
    kept = None
    if keep and closed is not None and not plan.leading and z.dtype is dtype:
        kept = torch.empty_like(z, memory_format=torch.contiguous_format)
    surrogate = plan.with_tensors(tensors)
    notes: list[tuple[Any, Any]] = []
    total: State = ()
    parts = []
    for zc, yc, wc, mask, link in chunking.split(plan.rowwise, z, call.rows(call.y), call.w, call.mask, kept):
        zc, yc = converted(zc, dtype), yc if yc.dim() == 1 else converted(yc, dtype)
        if call.check:
            check_targets(yc, z.shape[1])
        states = []
        if closed is None:
            members = plan.members(surrogate, zc, yc, mask)
            states = [layout.reduce(m, yc, wc, wc, torch.empty_like(m)) for m in members]
        else:
            buffer = scratch(zc, 0)
            for threshold in plan.thresholds:
                own = scratch(zc, 1) if link is None else link
                member, scale, note = closed.open(zc, threshold, own, buffer)
                notes.append((scale, note))
                if plan.rowwise:
                    weight = scale if wc is None else scale * wc
                    total = layout.add(total, member, yc, weight, wc, buffer, len(z))
                else:
                    states.append(_sum(layout, member, scale, yc, wc, buffer))
        if not states:
            continue
        state = tuple(torch.stack(cell) for cell in zip(*states, strict=True)) if plan.leading else states[0]
        if layout.additive:
            total = layout.merge(total, state)
        else:
            parts.append(state)
    if parts:
        total = parts[0] if len(parts) == 1 else tuple(torch.cat(cell, -1) for cell in zip(*parts, strict=True))
    return tuple(converted(cell, dtype) for cell in total), None if kept is None else (kept, notes)


def _closed(call: Call, z: Tensor, tensors: tuple[Tensor, ...], gradient: State, links: Links) -> Gradients:
    """Return the gradients, given that with respect to the sums (a, b or the matrix).

    ``links``, if given, are consumed: the gradient is written over them.
    """
    plan, layout, z, dtype = call.plan, call.plan.layout, call.rows(z), compute_dtype(z)
    closed = _closed_form(plan, z)
    kept, notes = links or (None, [])
    result = torch.empty_like(z, memory_format=torch.contiguous_format) if kept is None else kept
    by_tensor = [torch.zeros_like(tensor) for tensor in tensors]
    first = 0
    parts = chunking.split(plan.rowwise, z, call.rows(call.y), call.w, call.mask, result)
    for number, (zc, yc, wc, mask, out) in enumerate(parts):
        yc = yc if yc.dim() == 1 else converted(yc, dtype)
        own = gradient if layout.additive else tuple(g[..., first : first + zc.shape[0]] for g in gradient)
        first += zc.shape[0]
        if kept is not None and closed is not None:
            _close(plan, own, yc, wc, out, *notes[number])
            continue
        each = list(zip(*(g.unbind(0) for g in own), strict=True)) if plan.leading else [own]
        zc = converted(zc, dtype)
        if closed is not None:
            chunk = torch.zeros_like(zc)
            for threshold, g in zip(plan.thresholds, each, strict=True):
                link = torch.empty_like(zc)
                _, scale, note = closed.open(zc, threshold, link, scratch(zc, 0))
                _close(plan, g, yc, wc, link, scale, note)
                chunk += link
        else:
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in (zc, *tensors)]
                members = plan.members(plan.with_tensors(tuple(leaves[1:])), leaves[0], yc, mask)
            spread = [layout.expand(g, yc, wc, torch.empty_like(zc)) for g in each]
            chunk, *more = torch.autograd.grad(members, leaves, spread)
            for grown, share in zip(by_tensor, more, strict=True):
                grown += share
        out.copy_(chunk)
    return result, by_tensor


def _close(plan: KernelPlan, gradient: State, y: Tensor, w: Tensor | None, link: Tensor, scale: Any, note: Any) -> None:
    """Turn the links of a chunk into the gradient, given that with respect to the sums."""
    closed: Any = plan.closed
    if plan.rowwise:
        closed.close(link, plan.layout.expand(gradient, y, w, scratch(link, 0)), note, scratch(link, 1))
    else:
        closed.close(link, plan.layout.expand(_times(gradient, scale), y, w, scratch(link, 0)), note, None)


def _closed_form(plan: KernelPlan, z: Tensor) -> Surrogate | None:
    """Return what has ``open`` and ``close``, or None; the memberships of a row need another class."""
    return None if plan.rowwise and z.shape[1] == 1 else plan.closed


def _times(gradient: State, scale: float) -> State:
    """Return the gradient with respect to memberships of which ``scale`` is the unit."""
    if scale == 1.0:
        return gradient
    a, b = gradient
    factor = as_constant(scale, a) if isinstance(a, Tensor) else scale
    return a * factor, b * factor


def _sum(layout: Layout, member: Tensor, scale: float, y: Tensor, w: Tensor | None, buffer: Tensor) -> State:
    """Return the sums of scale·member, with labels y and weights w."""
    if scale == 1.0:
        return layout.reduce(member, y, w, w, buffer)
    if w is not None:
        # Before weighting, so that a full membership is exactly 1 and its sum exactly that of the weights.
        member.mul_(as_constant(scale, member)).clamp_max_(1.0)
        return layout.reduce(member, y, w, w, buffer)
    tp, fp, positives, negatives = layout.reduce(member, y, w, w, buffer)
    factor = as_constant(scale, tp)
    # A scaled membership reaches 1 up to rounding; the cells it leaves over must not become negative.
    return torch.minimum(tp * factor, positives), torch.minimum(fp * factor, negatives), positives, negatives


def _sum_numbers(member: Tensor, scale: float, y: Tensor, buffer: Tensor) -> State:
    """Return the sums of scale·member of one class as plain numbers."""
    size, positives = y.numel(), y.sum().item()
    negatives = size - positives
    if positives > LOPSIDED * size:
        inside = member * y
        tp, fp = inside.sum().item(), torch.sub(member, inside, out=inside).sum().item()
    else:
        predicted = member.sum().item()
        tp = torch.mul(member, y, out=buffer).sum().item()
        fp = predicted - tp
    if scale != 1.0:
        # The order of min's arguments lets NaN through.
        tp, fp = min(tp * scale, positives), min(fp * scale, negatives)
    return tp, fp, positives, negatives
