"""The kernel: logits to loss and gradient, or to the sums of a statistic, as one node of the graph.

Logits are worked on in chunks of rows that stay in the cache, and memberships are never stored. A surrogate with a
closed form is *opened* (it writes its link, say sigmoid(z), and the memberships of a chunk) and *closed* (it turns the
link into the gradient, in place); any other surrogate is evaluated again, chunk by chunk, and differentiated by
autograd. The gradient of a loss is computed with the loss, since the derivative of the metric is known then: backward
only scales it. So the extra memory is that of the gradient, and the arithmetic runs from the cache.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.counts import compute_dtype, wide
from metricgrad.engine import distributed
from metricgrad.engine.batch import check_targets
from metricgrad.engine.statistics import LOPSIDED, Columns, State
from metricgrad.metrics.derivatives import FLOORS, as_constant, bounded
from metricgrad.surrogates.steps import Surrogate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from metricgrad.engine.objective import Objective
    from metricgrad.engine.statistics import Layout

WHOLE, LARGE = 1 << 19, 1 << 21
"""Elements worked on at a time: all of a batch up to WHOLE; half (a fifth) of a larger one, up to LARGE.

Small enough that a buffer of that size is little beside the logits and mostly in the cache, large enough that the fixed
cost of waking torch's threads, 10 µs and more a call, does not count.
"""

TINY = 1 << 15
"""Up to this many elements new buffers are as fast as reused ones."""

_local = threading.local()


class Plan:
    """What is summed: the surrogate, at which thresholds, in which layout.

    ``leading``: whether the thresholds are a leading axis of the result; otherwise there is one, and no such axis.
    ``rowwise``: whether memberships are those of whole rows (multi-class) instead of elements. ``names``: the
    surrogate's fields that are tensors; their values are passed beside the logits, in this order. ``closed``: what has
    ``open`` and ``close``, the surrogate itself or its counterpart for rows; None if autograd differentiates it.
    ``in_one_piece``: whether a small batch can do without loops over chunks and thresholds.
    """

    def __init__(
        self, surrogate: Any, layout: Layout, thresholds: tuple[float, ...], leading: bool, rowwise: bool
    ) -> None:
        self.surrogate, self.layout, self.thresholds = surrogate, layout, thresholds
        self.leading, self.rowwise = leading, rowwise
        ours = isinstance(surrogate, Surrogate)
        self.names = tuple(surrogate.tensors()) if ours else ()
        self.closed: Any = surrogate.closed(rowwise) if ours else None
        self.in_one_piece = type(layout) is Columns and self.closed is not None and not leading and not rowwise

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


class Call:
    """One call of a loss, taken apart; plain attributes, since this is made for every batch."""

    __slots__ = ("check", "group", "learned", "mask", "objective", "plan", "row_weight", "serves", "w", "y", "z")

    objective: Objective
    plan: Plan
    group: Any
    z: Tensor
    """``(N, K)``; of a single class any shape, see ``rows``."""
    y: Tensor
    """``(N, K)``, or ``(N,)`` class indices."""
    w: Tensor | None
    """The weights inside the cells."""
    mask: Tensor | None
    row_weight: Tensor | None
    """What each row counts, for the samples average."""
    learned: tuple[Tensor, ...]
    """The surrogate's tensors."""
    check: bool
    """Whether the kernel is to check the targets, which is cheapest where they are in the cache."""
    serves: bool
    """Whether the kernel serves: no tracing, a surrogate of this library, no gradient of the targets or weights."""

    def loss(self) -> Tensor:
        """Return the loss."""
        if not self.serves or self.objective.is_vector:
            return self.plain_loss(self.z, *self.learned)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (self.z, *self.learned)):
            return Kernel.apply(self, True, self.z, *self.learned)  # type: ignore[no-any-return, no-untyped-call]
        statistic = distributed.total(self.statistic(), self.group)
        return 1 - self.objective.value(statistic.map(wide)).to(compute_dtype(self.z))

    def statistic(self) -> Any:
        """Return the statistic of this process's data, differentiably."""
        learned = self._shared(self.learned)
        if not self.serves:
            return self._of_rows(self._plain_statistic(self.z, learned))
        state = Kernel.apply(self, False, self.z, *learned)  # type: ignore[no-untyped-call]
        return self._of_rows(self.plan.layout.finish(state))

    # By differentiable operations alone, for torch.compile, torch.func and second derivatives

    def plain_loss(self, z: Tensor, *learned: Tensor) -> Tensor:
        """Return the loss."""
        statistic = self._of_rows(self._plain_statistic(z, self._shared(learned)))
        return 1 - self.objective.value(distributed.total(statistic, self.group))

    def plain_cells(self, z: Tensor, *learned: Tensor) -> tuple[Tensor, ...]:
        """Return the cells of the statistic."""
        return self._plain_statistic(z, learned).cells()  # type: ignore[no-any-return]

    def _plain_statistic(self, z: Tensor, learned: tuple[Tensor, ...]) -> Any:
        plan, z = self.plan, self.rows(z)
        members = plan.members(plan.with_tensors(learned), z.to(compute_dtype(z)), self.y, self.mask)
        return plan.layout.plain(torch.stack(members) if plan.leading else members[0], self.y, self.w)

    def rows(self, z: Tensor) -> Tensor:
        """Return logits as ``(N, K)``: those of a single class come in any shape."""
        return z if z.dim() == 2 and z.shape[0] == self.y.shape[0] else z.reshape(-1, 1)

    def _of_rows(self, statistic: Any) -> Any:
        return self.objective.mean_of_rows(statistic, self.row_weight)

    def _shared(self, learned: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the surrogate's tensors, their gradients to be averaged over the processes."""
        group = self.group
        return learned if group is None else tuple(distributed.shared(tensor, group) for tensor in learned)

    def reduced(self, gradient: Tensor, mean: bool = False) -> Tensor:
        """Return a gradient summed (or averaged) over the processes."""
        return gradient if self.group is None else distributed.all_reduce(gradient, self.group, mean)


class Kernel(torch.autograd.Function):
    """A loss, whose gradient is computed with it, or the sums of a statistic, whose gradient has to wait for theirs.

    ``ctx.links`` is what the sums leave for the gradient: the links of all logits and a note per chunk.
    """

    @staticmethod
    def forward(ctx: Any, call: Call, is_loss: bool, z: Tensor, *tensors: Tensor) -> Any:
        """Return the loss, or the sums."""
        ctx.call, ctx.is_loss = call, is_loss
        ctx.save_for_backward(z, call.y, call.w, call.mask, *tensors)
        if is_loss:
            loss, ctx.gradients = _differentiated(call, z, tensors)
            return loss
        state, ctx.links = _opened(call, call.rows(z), tensors, keep=any(ctx.needs_input_grad[2:]))
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
            by_z, by_tensor = _closed(call, call.rows(z), tuple(tensors), grads[:2], links)
            return None, None, by_z.view(z.shape), *by_tensor
        # A second time computed again, to the same bits.
        gradients, ctx.gradients = ctx.gradients or _differentiated(call, z, tuple(tensors))[1], None
        by_z, by_tensor = gradients
        grad = call.reduced(grads[0])
        if not (grad.is_cpu and grad.item() == 1.0):  # a loss that is not scaled spares a pass over the logits
            by_z, by_tensor = by_z.mul_(grad), [g.mul_(grad) for g in by_tensor]
        by_z = by_z if by_z.shape == z.shape else by_z.view(z.shape)
        return None, None, by_z, *(call.reduced(g, mean=True) for g in by_tensor)


def _with_graph(
    needed: Sequence[bool], outputs: Sequence[Tensor], grads: Sequence[Tensor], *inputs: Tensor
) -> Iterator[Tensor | None]:
    """Yield the gradients that ``backward`` owes, with a graph of their own."""
    wanted = [x for x, need in zip(inputs, needed, strict=True) if need]
    found = iter(torch.autograd.grad(outputs, wanted, grads[: len(outputs)], create_graph=True))
    return (next(found) if need else None for need in needed)


Gradients = tuple[Tensor, list[Tensor]]
"""With respect to the logits, and to the surrogate's tensors."""


def _differentiated(call: Call, z: Tensor, tensors: tuple[Tensor, ...]) -> tuple[Tensor, Gradients]:
    """Return the loss and its gradients."""
    z, plan = call.rows(z), call.plan
    if plan.in_one_piece and call.w is None and z.numel() <= WHOLE and z.dtype in _WIDE:
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
    objective, plan, y = call.objective, call.plan, _as(call.y, z.dtype)
    closed, threshold = plan.closed, plan.thresholds[0]
    if call.check:
        check_targets(y)
    link, buffer = torch.empty_like(z, memory_format=torch.contiguous_format), scratch(z, 0)
    member, scale, note = closed.open(z, threshold, link, buffer)
    one = z.shape[1] == 1 and z.dtype is torch.float32 and z.is_cpu and objective.labels is None and call.group is None
    if one:  # tensors of one number take several times as long as plain numbers
        loss, gradient = objective.differentiate(_sum_numbers(member, scale, y, buffer))
    else:
        state = _sum(plan.layout, member, scale, y, None, buffer)
        loss, gradient = objective.differentiate(state, None, call.group)
    closed.close(link, plan.layout.expand(gradient, y, None, buffer), threshold, note, scratch(z, 1))
    return loss, (link, [])


Links = tuple[Tensor, list[Any]] | None


def _opened(call: Call, z: Tensor, tensors: tuple[Tensor, ...], keep: bool) -> tuple[State, Links]:
    """Return the sums of the statistic and, if ``keep`` and there is a closed form, the links."""
    plan, dtype = call.plan, compute_dtype(z)
    closed = _closed_form(plan, z)
    # A number per logit pays only if it can become the gradient: one threshold, no change of type.
    kept = None
    if keep and closed is not None and not plan.leading and z.dtype is dtype:
        kept = torch.empty_like(z, memory_format=torch.contiguous_format)
    surrogate = plan.with_tensors(tensors)
    notes: list[Any] = []
    total: State = ()
    parts = []
    for zc, yc, wc, mask, link in _chunks(call, z, kept):
        zc, yc = _as(zc, dtype), yc if yc.dim() == 1 else _as(yc, dtype)
        if call.check:
            check_targets(yc, z.shape[1])
        if closed is None:
            members = plan.members(surrogate, zc, yc, mask)
            states = [plan.layout.reduce(m, yc, wc, wc, torch.empty_like(m)) for m in members]
        else:
            states = []
            buffer = scratch(zc, 0)
            for threshold in plan.thresholds:
                own = scratch(zc, 1) if link is None else link
                member, scale, note = closed.open(zc, threshold, own, buffer)
                if plan.rowwise:
                    weight = scale if wc is None else scale * wc
                    total = plan.layout.add(total, member, yc, weight, wc, buffer, len(z))
                else:
                    states.append(_sum(plan.layout, member, scale, yc, wc, buffer))
                notes.append(note)
            if plan.rowwise:
                continue
        state = tuple(torch.stack(cell) for cell in zip(*states, strict=True)) if plan.leading else states[0]
        if plan.layout.additive:
            total = plan.layout.merge(total, state)
        else:
            parts.append(state)
    if parts:
        total = parts[0] if len(parts) == 1 else tuple(torch.cat(cell, -1) for cell in zip(*parts, strict=True))
    return tuple(_as(cell, dtype) for cell in total), None if kept is None else (kept, notes)


def _closed(call: Call, z: Tensor, tensors: tuple[Tensor, ...], gradient: State, links: Links) -> Gradients:
    """Return the gradients, given that with respect to the sums (a, b or the matrix).

    ``links``, if given, are consumed: the gradient is written over them.
    """
    plan, dtype = call.plan, compute_dtype(z)
    closed = _closed_form(plan, z)
    kept, notes = links or (None, [])
    result = torch.empty_like(z, memory_format=torch.contiguous_format) if kept is None else kept
    by_tensor = [torch.zeros_like(tensor) for tensor in tensors]
    first = 0
    for number, (zc, yc, wc, mask, out) in enumerate(_chunks(call, z, result)):
        yc = yc if yc.dim() == 1 else _as(yc, dtype)
        own = gradient if plan.layout.additive else tuple(g[..., first : first + zc.shape[0]] for g in gradient)
        first += zc.shape[0]
        if kept is not None and closed is not None:
            by_member = plan.layout.expand(own, yc, wc, scratch(out, 0))
            closed.close(out, by_member, plan.thresholds[0], notes[number], scratch(out, 1))
            continue
        each = list(zip(*(g.unbind(0) for g in own), strict=True)) if plan.leading else [own]
        zc = _as(zc, dtype)
        if closed is not None:
            chunk = torch.zeros_like(zc)
            for threshold, g in zip(plan.thresholds, each, strict=True):
                link = torch.empty_like(zc)
                _, _, note = closed.open(zc, threshold, link, scratch(zc, 0))
                by_member = plan.layout.expand(g, yc, wc, scratch(zc, 0))
                closed.close(link, by_member, threshold, note, scratch(zc, 1))
                chunk += link
        else:
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in (zc, *tensors)]
                members = plan.members(plan.with_tensors(tuple(leaves[1:])), leaves[0], yc, mask)
            spread = [plan.layout.expand(g, yc, wc, torch.empty_like(zc)) for g in each]
            chunk, *more = torch.autograd.grad(members, leaves, spread)
            for grown, share in zip(by_tensor, more, strict=True):
                grown += share
        out.copy_(chunk)
    return result, by_tensor


def _closed_form(plan: Plan, z: Tensor) -> Any:
    """Return what has ``open`` and ``close``, or None; the memberships of a row need another class."""
    return None if plan.rowwise and z.shape[1] == 1 else plan.closed


def _chunks(call: Call, z: Tensor, buffer: Tensor | None) -> Iterable[tuple[Any, ...]]:
    """Return logits, targets, weights, mask and a buffer in chunks of rows."""
    if z.numel() <= WHOLE:
        return ((z, call.y, call.w, call.mask, buffer),)
    return _parts(call, z, buffer)


def _parts(call: Call, z: Tensor, buffer: Tensor | None) -> Iterator[tuple[Any, ...]]:
    others, size = (call.y, call.w, call.mask, buffer), z.numel()
    parts = 5 if call.plan.rowwise else 2  # memberships of rows need two buffers, and a matrix; elementwise ones one
    rows = max(1, min(LARGE, size // parts + 1) // z.shape[1])
    for start in range(0, len(z), rows):
        part = slice(start, start + rows)
        yield z[part], *(None if other is None else other[part] for other in others)


def scratch(like: Tensor, which: int) -> Tensor:
    """Return a buffer of a chunk's shape, reused from call to call: new memory takes longer than the arithmetic."""
    size = like.numel()
    if size <= TINY or size > LARGE or not like.is_cpu:
        return torch.empty_like(like)
    kept: dict[tuple[torch.dtype, int], Tensor] = _local.__dict__.setdefault("kept", {})
    buffer = kept.get((like.dtype, which))
    if buffer is None or buffer.numel() < size:
        with torch.inference_mode(False):  # a buffer made in inference mode could not serve training afterwards
            buffer = kept[like.dtype, which] = torch.empty(size, dtype=like.dtype)
    return (buffer if buffer.numel() == size else buffer[:size]).view(like.shape)


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype is dtype else x.to(dtype)


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
    positives = y.sum().item()
    negatives = y.numel() - positives
    if positives > LOPSIDED * y.numel():
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
