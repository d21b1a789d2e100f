"""Layouts: how memberships of rows × classes are summed into a statistic, and how its gradient spreads back.

Every statistic is linear in the memberships, so a layout is a linear map and its transpose: ``reduce`` sums one chunk
of rows, ``expand`` turns the gradient of the sums into the gradient of the memberships. For cells that is two numbers
per class, ∂L/∂m = b + y·(a − b), with a and b the derivatives of a ``Jet``; for the matrix ∂L/∂M = Y·G. ``plain`` is
the same sum in differentiable operations, for ``torch.compile``, ``torch.func`` and second derivatives.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from metricgrad.core.counts import Confusion, Counts, cells, count, wide
from metricgrad.core.metrics.derivatives import as_constant

State = tuple[Any, ...]
"""The sums of a statistic: (TP, FP, positives, negatives), or the matrix alone."""


class Columns:
    """Cells per class from ``(N, K)`` targets: binary, multi-label, and multi-class with soft labels."""

    additive: ClassVar[bool] = True

    def reduce(self, m: Tensor, y: Tensor, scale: Tensor | None, w: Tensor | None, out: Tensor) -> State:
        """Sum a chunk; ``out`` is a buffer of its shape, and may be ``m`` itself.

        ``scale`` multiplies the memberships: the weights, divided by the row's sum where ``m`` is not yet normalised.
        """
        return _margins(m, y, scale, w, out, axis=0)

    def expand(self, gradient: State, y: Tensor, w: Tensor | None, out: Tensor) -> Tensor:
        """Write the gradient with respect to the memberships of a chunk into ``out``."""
        a, b = gradient
        if isinstance(a, Tensor):
            torch.lerp(b, a, y, out=out)
        elif abs(a) < 0.05 * abs(b):  # b + (a − b) would lose digits of a
            low, high = (torch.scalar_tensor(x, dtype=y.dtype) for x in (b, a))
            torch.lerp(low, high, y, out=out)
        else:  # one class on the CPU; one operation, since two with plain numbers take three times as long
            torch.add(torch.scalar_tensor(b, dtype=y.dtype), y, alpha=a - b, out=out)
        return out if w is None else out.mul_(w)

    def merge(self, total: State, state: State) -> State:
        """Add the sums of a chunk to those before it, in float64; before the first there are none."""
        return tuple(wide(a) + wide(b) for a, b in zip(total, state, strict=True)) if total else state

    def add(
        self, total: State, m: Tensor, y: Tensor, scale: Tensor | None, w: Tensor | None, out: Tensor, rows: int
    ) -> State:
        """Sum a chunk, as ``reduce`` does, and add it to the sums before it; ``rows``: those of the whole batch."""
        return self.merge(total, self.reduce(m, y, scale, w, out))

    def finish(self, state: State) -> Counts:
        """Return the statistic."""
        return cells(*state)

    def plain(self, m: Tensor, y: Tensor, w: Tensor | None) -> Counts | Confusion:
        """Return the statistic, differentiably, of memberships ``(..., N, K)``."""
        return count(m, y, w)


class Indices(Columns):
    """Cells per class from ``(N,)`` class indices, without a one-hot copy."""

    def reduce(self, m: Tensor, y: Tensor, scale: Tensor | None, w: Tensor | None, out: Tensor) -> State:
        index = y.unsqueeze(1)
        own = m.gather(1, index)
        ones = torch.ones_like(own) if w is None else w
        hits = own if scale is None else own * scale
        # Added one by one, so in float64: two numbers per row, not K.
        each = wide(torch.cat((hits, ones), 1))
        tp, positives = each.new_zeros(2, m.shape[1]).index_add_(1, y, each.t()).unbind(0)
        if w is None:  # whole numbers, which are exact
            negatives = as_constant(len(y), positives) - positives
        else:  # the sum of all others: beside a class of nearly all weight a difference would have nothing left of it
            negatives = _before(positives) + _before(positives.flip(0)).flip(0)
        others = out.copy_(m).scatter_(1, index, 0.0)
        fp = wide(others.sum(0) if scale is None else _weighted_sum(others, scale))
        return _up_to_margins(tp, fp, positives, negatives, torch.finfo(m.dtype).eps)

    def expand(self, gradient: State, y: Tensor, w: Tensor | None, out: Tensor) -> Tensor:
        a, b = gradient
        if not isinstance(a, Tensor):  # plain numbers: there is one class, and every sample is in it
            return out.fill_(a) if w is None else out.fill_(a).mul_(w)
        out.copy_(b.expand(out.shape))
        out.scatter_(1, y.unsqueeze(1), a.expand(out.shape[1])[y].unsqueeze(1))
        return out if w is None else out.mul_(w)

    def plain(self, m: Tensor, y: Tensor, w: Tensor | None) -> Counts | Confusion:
        return count(m, _one_hot(y, m), w)


class PerRow(Columns):
    """Cells per row, for the samples average: every row's labels are its own population."""

    additive: ClassVar[bool] = False

    def reduce(self, m: Tensor, y: Tensor, scale: Tensor | None, w: Tensor | None, out: Tensor) -> State:
        return _margins(m, y, scale, w, out, axis=1)

    def expand(self, gradient: State, y: Tensor, w: Tensor | None, out: Tensor) -> Tensor:
        a, b = gradient
        torch.lerp(b.unsqueeze(1), a.unsqueeze(1), y, out=out)
        return out if w is None else out.mul_(w)

    def plain(self, m: Tensor, y: Tensor, w: Tensor | None) -> Counts | Confusion:
        y = y.to(m.dtype)
        w = torch.ones_like(y) if w is None else w
        wy, wn = w * y, w * (1 - y)
        return cells((m * wy).sum(-1), (m * wn).sum(-1), wy.sum(-1), wn.sum(-1))


class Matrix:
    """The d×d matrix, rows true and columns predicted, from class indices or soft labels; summed in float64."""

    additive: ClassVar[bool] = True

    def reduce(self, m: Tensor, y: Tensor, scale: Tensor | None, w: Tensor | None, out: Tensor) -> State:
        """Sum a chunk; ``out`` is a buffer of its shape, and may be ``m`` itself."""
        return self.add((), m, y, scale, w, out, len(m))

    def add(
        self, total: State, m: Tensor, y: Tensor, scale: Tensor | None, w: Tensor | None, out: Tensor, rows: int
    ) -> State:
        """Do as ``reduce``, on top of the sums before it; in place, since d² numbers are many."""
        if scale is not None:
            m = torch.mul(m, scale, out=out)
        if y.dim() > 1:
            return self.merge(total, (_product(y, m),))
        m = m if rows <= BLOCK else wide(m)
        (matrix,) = total or (m.new_zeros(m.shape[1], m.shape[1]),)
        return (matrix.index_add_(0, y, m),)

    def expand(self, gradient: State, y: Tensor, w: Tensor | None, out: Tensor) -> Tensor:
        """Write the gradient with respect to the memberships of a chunk into ``out``."""
        (g,) = gradient
        torch.index_select(g, 0, y, out=out) if y.dim() == 1 else torch.matmul(y, g, out=out)
        return out if w is None else out.mul_(w)

    def merge(self, total: State, state: State) -> State:
        """Add the sums of a chunk to those before it, in float64 and in place."""
        return (wide(total[0]).add_(state[0]),) if total else state

    def finish(self, state: State) -> Confusion:
        """Return the statistic."""
        return Confusion(*state)

    def plain(self, m: Tensor, y: Tensor, w: Tensor | None) -> Counts | Confusion:
        """Return the statistic, differentiably, of memberships ``(N, d)``."""
        hot = _one_hot(y, m) if y.dim() == 1 else y.to(m.dtype)
        return Confusion(_product(hot if w is None else hot * w, m).to(m.dtype))


Layout = Columns | Matrix


FOLDED, MANY = 64, 1 << 17
"""From MANY elements on, FOLDED blocks of rows are laid one upon another before their columns are summed."""

LOPSIDED, FEW = 0.98, 1 << 15
"""FP as the difference of two sums is off by the rounding of TP: too much beside N if more than LOPSIDED are positive.

Up to FEW elements, and where looking at a value makes a device wait, FP is summed on its own without asking.
"""

BLOCK = 4096
"""Rows that may be added one by one in float32, with an error around 1e-6; sums of such blocks are added in float64."""


def _sum(x: Tensor, axis: int) -> Tensor:
    """Sum ``(N, K)`` over an axis.

    Torch walks down the columns on one thread, or nearly so: with many rows it is two to three times as fast to add up
    blocks of rows first, which are long vectors.
    """
    rows, columns = x.shape
    if axis == 1 or columns == 1 or x.numel() < MANY or rows < 8 * FOLDED or not (x.is_cpu and x.is_contiguous()):
        return x.sum(axis)
    whole = rows - rows % FOLDED
    total = x[:whole].view(FOLDED, -1).sum(0).view(-1, columns).sum(0)
    return total if whole == rows else total.add_(x[whole:].sum(0))


def _before(x: Tensor) -> Tensor:
    """Return at each place the sum of all before it."""
    return torch.cat((x.new_zeros(1), x[:-1].cumsum(0)))


def _weighted_sum(x: Tensor, weight: Tensor) -> Tensor:
    """Return Σ weight·x over the rows: products of a row and a matrix, without a weighted copy."""
    if len(x) <= BLOCK:
        return (weight.t() @ x).squeeze(0)
    parts = zip(weight.split(BLOCK), x.split(BLOCK), strict=True)
    return torch.cat([w.t() @ block for w, block in parts]).sum(0)


def _product(y: Tensor, m: Tensor) -> Tensor:
    """Return yᵀ·m, ``(d, d)`` in float64; differentiable."""
    size = 64 * BLOCK  # a matrix product adds up in blocks of its own
    parts = zip(y.split(size), m.split(size), strict=True)
    return torch.stack([wide(a.t() @ b) for a, b in parts]).sum(0)


def _up_to_margins(tp: Tensor, fp: Tensor, positives: Tensor, negatives: Tensor, eps: float) -> State:
    """Return cells, each its margin if it differs from it by rounding alone: what is left over is exactly zero."""
    cell, margin = torch.stack((tp, fp)), torch.stack((positives, negatives))
    near = (margin - cell).abs_() <= margin * as_constant(16 * eps, margin)
    tp, fp = torch.where(near, margin, cell).unbind(0)
    return tp, fp, positives, negatives


def _margins(m: Tensor, y: Tensor, scale: Tensor | None, w: Tensor | None, out: Tensor, axis: int) -> State:
    """Sum the cells and their margins over rows or classes."""
    if scale is not None:
        m = m * scale
        tp, fp = _sum(torch.mul(m, y, out=out), axis), _sum(m.sub_(out), axis)
        inside = y if w is None else y * w
        positives = _sum(inside, axis)
        outside = as_constant(1.0, y) - y if w is None else w - inside
        return _up_to_margins(tp, fp, positives, _sum(outside, axis), torch.finfo(m.dtype).eps)
    positives = _sum(y, axis)
    negatives = as_constant(y.shape[axis], positives) - positives
    if m.numel() <= FEW or not m.is_cpu or bool((positives > LOPSIDED * y.shape[axis]).any()):
        inside = m * y
        return _sum(inside, axis), _sum(torch.sub(m, inside, out=inside), axis), positives, negatives
    predicted = _sum(m, axis)
    tp = _sum(torch.mul(m, y, out=out), axis)
    return tp, predicted - tp, positives, negatives


def _one_hot(y: Tensor, m: Tensor) -> Tensor:
    # A comparison, since F.one_hot reads values back, which torch.func and torch.compile cannot.
    return (y.unsqueeze(-1) == torch.arange(m.shape[-1], device=y.device)).to(m.dtype)
