"""The kernel: from logits to the sums of a statistic and back, in chunks that stay in the cache.

What the chunks buy: the memberships are never stored. A surrogate with a closed form leaves its derivative behind
(one number per logit), which the backward pass turns into the gradient in place; any other surrogate is evaluated
again, chunk by chunk. So the extra memory is that of the gradient, and the arithmetic runs from the cache.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from metricgrad.counts import compute_dtype
from metricgrad.engine.batch import check_targets
from metricgrad.metrics.derivatives import as_constant
from metricgrad.surrogates.steps import Surrogate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from metricgrad.engine.statistics import Layout, State

WHOLE, LARGE = 1 << 19, 1 << 21
"""Elements worked on at a time: all of a batch up to WHOLE; half (a fifth) of a larger one, up to LARGE.

Small enough that a buffer of that size is little beside the logits and mostly in the cache, large enough that the fixed
cost of waking torch's threads, 10 µs and more a call, does not count.
"""

TINY = 1 << 15
"""Up to so many elements fresh buffers are as quick as kept ones."""

_local = threading.local()

Kept = tuple[Tensor, list[Any]] | None
"""What the forward pass leaves for the backward pass: one number per logit, and a note per chunk."""


class Plan:
    """What is summed: the surrogate, at which thresholds, in which layout.

    ``leading``: whether the thresholds are a leading axis of the result; otherwise there is one, and no such axis.
    ``rowwise``: whether memberships are those of whole rows (multi-class) instead of elements. ``names``: the
    surrogate's fields that are tensors; their values are passed beside the logits, in this order. ``closed_form``,
    ``closed_rows``: whether the surrogate has a kernel of its own, elementwise or for rows.
    """

    def __init__(
        self, surrogate: Any, layout: Layout, thresholds: tuple[float, ...], leading: bool, rowwise: bool
    ) -> None:
        self.surrogate, self.layout, self.thresholds = surrogate, layout, thresholds
        self.leading, self.rowwise = leading, rowwise
        ours = isinstance(surrogate, Surrogate)
        self.names = tuple(surrogate.tensors()) if ours else ()
        self.closed_form = ours and not rowwise and surrogate.closed_form
        self.closed_rows = ours and rowwise and surrogate.closed_rows

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> Any:
        """Return the surrogate with its tensors replaced by the given ones."""
        return replace(self.surrogate, **dict(zip(self.names, tensors, strict=True))) if tensors else self.surrogate

    def members(self, surrogate: Any, z: Tensor, y: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Return the memberships, for each threshold."""
        if not isinstance(surrogate, Surrogate):
            return [surrogate(z)]
        if self.rowwise:
            return [surrogate.rows(z)]
        if surrogate.takes_targets:
            return [surrogate(z, y, mask)]  # type: ignore[arg-type, call-arg]
        return [surrogate(z, threshold) for threshold in self.thresholds]


def sums(call: Call, z: Tensor, tensors: tuple[Tensor, ...], keep: bool) -> tuple[State, Kept]:
    """Return the sums of the statistic and, if ``keep`` and there is a closed form, what ``pull`` needs.

    That is one number per logit: its membership's derivative, or its softmax for memberships of rows.
    """
    plan, dtype = call.plan, compute_dtype(z)
    # One derivative per logit pays only if it can become the gradient: one threshold, no change of type.
    closed = plan.closed_form or (plan.closed_rows and z.shape[1] > 1)
    slopes = torch.empty_like(z) if keep and closed and not plan.leading and z.dtype is dtype else None
    surrogate = plan.with_tensors(tensors)
    notes: list[Any] = []
    total: State = ()
    parts = []
    for zc, yc, wc, kc, slope in _chunks(call, z, slopes):
        zc, yc = _as(zc, dtype), yc if yc.dim() == 1 else _as(yc, dtype)
        if call.check:
            check_targets(yc, z.shape[1])  # cheapest here, where they are in the cache
        if plan.closed_form:
            reduce = partial(reduced, plan.layout, yc, wc)
            states = [surrogate.fill(zc, t, slope, scratch(zc, 0), reduce) for t in plan.thresholds]
        elif closed:
            member = scratch(zc, 0)
            rows, note = surrogate.fill_rows(zc, scratch(zc, 1) if slope is None else slope, member)
            notes.append(note)
            scale = 1 / rows if wc is None else wc / rows
            total = plan.layout.add(total, member, yc, scale, wc, member, len(z))
            continue
        else:
            members = plan.members(surrogate, zc, yc, kc)
            states = [plan.layout.reduce(m, yc, wc, wc, torch.empty_like(m)) for m in members]
        state = tuple(torch.stack(cell) for cell in zip(*states, strict=True)) if plan.leading else states[0]
        if plan.layout.additive:
            total = plan.layout.merge(total, state)
        else:
            parts.append(state)
    if parts:
        total = parts[0] if len(parts) == 1 else tuple(torch.cat(cell, -1) for cell in zip(*parts, strict=True))
    kept = None if slopes is None else (slopes, notes)
    return tuple(_as(cell, dtype) for cell in total), kept


def pull(
    call: Call, z: Tensor, tensors: tuple[Tensor, ...], gradient: State, kept: Kept
) -> tuple[Tensor, list[Tensor]]:
    """Return the gradient by the logits and by the surrogate's tensors, given that by the sums (a, b or the matrix).

    ``kept``, if given, is consumed: the gradient is written over it.
    """
    slopes, notes = kept or (None, [])
    plan, dtype = call.plan, compute_dtype(z)
    result = torch.empty_like(z) if slopes is None else slopes
    by_tensor = [torch.zeros_like(tensor) for tensor in tensors]
    first = 0
    for zc, yc, wc, kc, out in _chunks(call, z, result):
        yc = yc if yc.dim() == 1 else _as(yc, dtype)
        own = gradient if plan.layout.additive else tuple(g[..., first : first + len(zc)] for g in gradient)
        first += len(zc)
        if slopes is not None and plan.closed_form:
            plan.surrogate.pull(out, plan.layout.expand(own, yc, wc, scratch(out, 0)))
            continue
        if slopes is not None:
            by_member = plan.layout.expand(own, yc, wc, scratch(out, 0))
            plan.surrogate.pull_rows(out, by_member, notes.pop(0), scratch(out, 1))
            continue
        each = list(zip(*(g.unbind(0) for g in own), strict=True)) if plan.leading else [own]
        zc = _as(zc, dtype)
        if plan.closed_rows and z.shape[1] > 1:
            chunk = torch.empty_like(zc)
            _, note = plan.surrogate.fill_rows(zc, chunk, scratch(zc, 0))
            by_member = plan.layout.expand(own, yc, wc, scratch(zc, 0))
            plan.surrogate.pull_rows(chunk, by_member, note, scratch(zc, 1))
        elif plan.closed_form:
            chunk, slope = torch.zeros_like(zc), torch.empty_like(zc)
            for threshold, g in zip(plan.thresholds, each, strict=True):
                plan.surrogate.fill(zc, threshold, slope, scratch(zc, 0), lambda *_: None)
                plan.surrogate.pull(slope, plan.layout.expand(g, yc, wc, scratch(zc, 0)))
                chunk += slope
        else:
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in (zc, *tensors)]
                members = plan.members(plan.with_tensors(tuple(leaves[1:])), leaves[0], yc, kc)
            spread = [plan.layout.expand(g, yc, wc, torch.empty_like(zc)) for g in each]
            chunk, *more = torch.autograd.grad(members, leaves, spread)
            for grown, share in zip(by_tensor, more, strict=True):
                grown += share
        out.copy_(chunk)
    return result, by_tensor


class Call(Protocol):
    """One call of a loss: everything but the tensors that a gradient is asked for."""

    plan: Plan
    y: Tensor
    w: Tensor | None
    mask: Tensor | None
    check: bool

    def cells(self, z: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the cells of the statistic by differentiable operations alone."""

    def head(self, state: State) -> tuple[Tensor, State]:
        """Return the loss of the sums and its gradient by them."""

    def whole(self, z: Tensor, *tensors: Tensor) -> Tensor:
        """Return the loss by differentiable operations alone."""

    def reduce(self, gradient: Tensor, mean: bool = False) -> Tensor:
        """Sum (or average) a gradient over the processes."""


class Sums(torch.autograd.Function):
    """The sums of a statistic as one node of the graph, which keeps the logits, the labels and one number per logit."""

    @staticmethod
    def forward(ctx: Any, call: Call, z: Tensor, *tensors: Tensor) -> State:
        """Sum."""
        ctx.call = call
        ctx.save_for_backward(z, call.y, call.w, call.mask, *tensors)
        state, ctx.kept = sums(call, z, tensors, keep=ctx.needs_input_grad[1])
        ctx.mark_non_differentiable(*state[2:])  # P and N: the prediction does not move them
        return state

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Spread the gradient of the sums over the logits."""
        z, tensors = _saved(ctx)
        if torch.is_grad_enabled():  # create_graph=True: second derivatives need differentiable operations
            return _again(ctx, ctx.call.cells(z, *tensors)[:2], grads[:2], z, *tensors)
        kept, ctx.kept = ctx.kept, None
        by_z, by_tensor = pull(ctx.call, z, tensors, grads[:2], kept)
        return None, by_z, *by_tensor


class Loss(torch.autograd.Function):
    """A whole scalar loss as one node; ``small`` has another for batches in one piece."""

    @staticmethod
    def forward(ctx: Any, call: Call, z: Tensor, *tensors: Tensor) -> Tensor:
        """Return the loss."""
        ctx.call = call
        ctx.save_for_backward(z, call.y, call.w, call.mask, *tensors)
        state, ctx.kept = sums(call, z, tensors, keep=ctx.needs_input_grad[1])
        loss, ctx.gradient = call.head(state)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Spread the loss's gradient over the logits."""
        call, (z, tensors) = ctx.call, _saved(ctx)
        if torch.is_grad_enabled():
            return _again(ctx, [call.whole(z, *tensors)], [grad], z, *tensors)
        grad = call.reduce(grad)
        scale = grad if isinstance(ctx.gradient[0], Tensor) else grad.item()
        kept, ctx.kept = ctx.kept, None
        by_z, by_tensor = pull(call, z, tensors, tuple(g * scale for g in ctx.gradient), kept)
        return None, by_z, *(call.reduce(g, mean=True) for g in by_tensor)


def _saved(ctx: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the logits and the surrogate's tensors; raises if these, the targets or weights were changed since."""
    z, _, _, _, *tensors = ctx.saved_tensors
    return z, tuple(tensors)


def _again(ctx: Any, outputs: Sequence[Tensor], grads: Sequence[Tensor], *inputs: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients that ``backward`` owes, with a graph of their own."""
    wanted = [x for x, needed in zip(inputs, ctx.needs_input_grad[1:], strict=True) if needed]
    found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=True))
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)


def _chunks(call: Call, z: Tensor, buffer: Tensor | None) -> Iterator[tuple[Any, ...]]:
    """Yield logits, targets, weights, mask and a buffer in chunks of rows."""
    others, size = (call.y, call.w, call.mask, buffer), z.numel()
    if size <= WHOLE:
        yield z, *others
        return
    parts = 5 if call.plan.rowwise else 2  # memberships of rows need two buffers, and a matrix; elementwise ones one
    rows = max(1, min(LARGE, size // parts + 1) // z.shape[1])
    for start in range(0, len(z), rows):
        part = slice(start, start + rows)
        yield z[part], *(None if other is None else other[part] for other in others)


def scratch(like: Tensor, which: int) -> Tensor:
    """Return a buffer of a chunk's shape, reused from call to call: fresh memory costs more than the arithmetic."""
    size = like.numel()
    if size <= TINY or size > LARGE or like.device.type != "cpu":
        return torch.empty_like(like)
    kept: dict[tuple[torch.dtype, int], Tensor] = _local.__dict__.setdefault("kept", {})
    buffer = kept.get((like.dtype, which))
    if buffer is None or buffer.numel() < size:
        with torch.inference_mode(False):  # a buffer made in inference mode could not serve training afterwards
            buffer = kept[like.dtype, which] = torch.empty(size, dtype=like.dtype)
    return (buffer if buffer.numel() == size else buffer[:size]).view(like.shape)


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype is dtype else x.to(dtype)


def reduced(layout: Layout, y: Tensor, w: Tensor | None, member: Tensor, out: Tensor, scale: float) -> State:
    """Return the sums of scale·member, with labels y and weights w."""
    if scale == 1.0:
        return layout.reduce(member, y, w, w, out)
    if w is not None:
        # Before weighting, so that a full membership is exactly 1 and its sum exactly that of the weights.
        member.mul_(as_constant(scale, member)).clamp_max_(1.0)
        return layout.reduce(member, y, w, w, out)
    tp, fp, positives, negatives = layout.reduce(member, y, w, w, out)
    factor = as_constant(scale, tp)
    # A scaled membership reaches 1 up to rounding; the cells it leaves over must not become negative.
    return torch.minimum(tp * factor, positives), torch.minimum(fp * factor, negatives), positives, negatives
