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

from metricgrad.counts import Confusion, Counts, cells, count, wide
from metricgrad.jets import as_constant

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
        """Write the gradient by the memberships of a chunk into ``out``."""
        a, b = gradient
        if isinstance(a, Tensor):
            torch.lerp(b, a, y, out=out)
        else:  # one class on the CPU; one operation, since two with plain numbers take three times as long
            torch.add(torch.scalar_tensor(b, dtype=y.dtype), y, alpha=a - b, out=out)
        return out if w is None else out.mul_(w)

    def merge(self, total: State, state: State) -> State:
        """Add the sums of a chunk to those before it, in float64; before the first there are none."""
        return tuple(wide(a) + wide(b) for a, b in zip(total, state, strict=True)) if total else state

    def add(self, total: State, m: Tensor, y: Tensor, scale: Tensor | None, w: Tensor | None, out: Tensor) -> State:
        """Sum a chunk, as ``reduce`` does, and add it to the sums before it."""
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
        tp, positives = m.new_zeros(2, m.shape[1]).index_add_(1, y, torch.cat((hits, ones), 1).t()).unbind(0)
        negatives = positives.sum() - positives
        others = out.copy_(m).scatter_(1, index, 0.0)
        # A product of a row and a matrix is the weighted sum without a weighted copy.
        fp = others.sum(0) if scale is None else (scale.t() @ others).squeeze(0)
        if w is not None:
            # Sums of weights in different orders: what differs from N by rounding alone is N.
            fp = torch.where((negatives - fp).abs() <= 16 * torch.finfo(m.dtype).eps * negatives, negatives, fp)
        return tp, fp, positives, negatives

    def expand(self, gradient: State, y: Tensor, w: Tensor | None, out: Tensor) -> Tensor:
        a, b = gradient
        if not isinstance(a, Tensor):  # plain numbers: there is one class, and every sample is in it
            return out.fill_(a) if w is None else out.fill_(a).mul_(w)
        out.copy_(b.expand(out.shape))
        out.scatter_(1, y.unsqueeze(1), a.expand(out.shape[1])[y].unsqueeze(1))
        return out if w is None else out.mul_(w)

    def plain(self, m: Tensor, y: Tensor, w: Tensor | None) -> Counts | Confusion:
        return count(m, _one_hot(y, m), w)


class Rows(Columns):
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
    """The d×d matrix, rows true and columns predicted, from class indices or soft labels."""

    additive: ClassVar[bool] = True

    def reduce(self, m: Tensor, y: Tensor, scale: Tensor | None, w: Tensor | None, out: Tensor) -> State:
        """Sum a chunk; ``out`` is a buffer of its shape, and may be ``m`` itself."""
        return self.add((), m, y, scale, w, out)

    def add(self, total: State, m: Tensor, y: Tensor, scale: Tensor | None, w: Tensor | None, out: Tensor) -> State:
        """Do as ``reduce``, on top of the sums before it: d² numbers are many, so in place."""
        if scale is not None:
            m = torch.mul(m, scale, out=out)
        (matrix,) = total or (m.new_zeros(m.shape[1], m.shape[1]),)
        return (matrix.index_add_(0, y, m) if y.dim() == 1 else matrix.addmm_(y.t(), m),)

    def expand(self, gradient: State, y: Tensor, w: Tensor | None, out: Tensor) -> Tensor:
        """Write the gradient by the memberships of a chunk into ``out``."""
        (g,) = gradient
        torch.index_select(g, 0, y, out=out) if y.dim() == 1 else torch.matmul(y, g, out=out)
        return out if w is None else out.mul_(w)

    def merge(self, total: State, state: State) -> State:
        """Add the sums of a chunk to those before it, in place."""
        return (total[0].add_(state[0]),) if total else state

    def finish(self, state: State) -> Confusion:
        """Return the statistic."""
        return Confusion(*state)

    def plain(self, m: Tensor, y: Tensor, w: Tensor | None) -> Counts | Confusion:
        """Return the statistic, differentiably, of memberships ``(N, d)``."""
        hot = _one_hot(y, m) if y.dim() == 1 else y.to(m.dtype)
        return Confusion((hot if w is None else hot * w).transpose(-2, -1) @ m)


Layout = Columns | Matrix


FOLDED, MANY = 64, 1 << 17
"""From so many elements on, so many blocks of rows are laid one upon another before their columns are summed."""


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


def _margins(m: Tensor, y: Tensor, scale: Tensor | None, w: Tensor | None, out: Tensor, axis: int) -> State:
    """Sum the cells and their margins over rows or classes, each cell as its margin: what should be 0 is exactly 0."""
    if scale is None or w is None:
        if scale is not None:
            m = torch.mul(m, scale, out=out)
        predicted, positives = _sum(m, axis), _sum(y, axis)
        tp = _sum(torch.mul(m, y, out=out), axis)
        return tp, predicted - tp, positives, as_constant(y.shape[axis], positives) - positives
    m = m * scale
    tp = _sum(torch.mul(m, y, out=out), axis)
    return tp, _sum(m.sub_(out), axis), _sum(y * w, axis), _sum((1 - y) * w, axis)


def _one_hot(y: Tensor, m: Tensor) -> Tensor:
    # A comparison, since F.one_hot reads values back, which torch.func and torch.compile cannot.
    return (y.unsqueeze(-1) == torch.arange(m.shape[-1], device=y.device)).to(m.dtype)
