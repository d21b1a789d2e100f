"""Layouts: how memberships of rows × classes are summed into a statistic, and how its gradient spreads back.

Every statistic is linear in the memberships, so a layout is a linear map and its transpose: ``sum_chunk`` sums one
chunk of rows, ``spread_gradient`` turns the gradient of the sums into the gradient of the memberships. For counts that
takes two numbers per class, ∂L/∂m = b + y·(a − b), with a and b the derivatives of a ``Jet``; for the matrix
∂L/∂M = Y·G. ``sum_differentiably`` is the same sum in operations that autograd can follow, for ``torch.compile``,
``torch.func`` and second derivatives.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from metricgrad.core import class_axis
from metricgrad.core.counts import Confusion, Counts, cells, count, wide
from metricgrad.core.metrics.derivatives import as_constant

Sums = tuple[Any, ...]
"""What is summed: (TP, FP, positives, negatives), or the matrix alone."""

SumsGradient = tuple[Any, ...]
"""The gradient of a loss with respect to the sums: (a, b) for TP and FP, or that of the matrix."""


class ColumnLayout:
    """Counts per class from ``(N, K)`` targets: binary, multi-label, and multi-class with soft labels."""

    adds_over_rows: ClassVar[bool] = True
    """Whether the sums of chunks are added; otherwise they are numbers per row, which are concatenated."""

    def sum_chunk(
        self, memberships: Tensor, targets: Tensor, scale: Tensor | None, weight: Tensor | None, buffer: Tensor
    ) -> Sums:
        """Sum a chunk; ``buffer`` has its shape, and may be ``memberships`` itself.

        ``scale`` multiplies the memberships: the weights, divided by the row's sum where they are not yet normalised.
        """
        return _sum_cells_and_margins(memberships, targets, scale, weight, buffer, axis=0)

    def add_chunk(
        self,
        total: Sums,
        memberships: Tensor,
        targets: Tensor,
        scale: Tensor | None,
        weight: Tensor | None,
        buffer: Tensor,
        batch_rows: int,
    ) -> Sums:
        """Sum a chunk, as ``sum_chunk`` does, and add it to the sums before it, of which there may be none."""
        return self.merge_sums(total, self.sum_chunk(memberships, targets, scale, weight, buffer))

    def merge_sums(self, total: Sums, chunk: Sums) -> Sums:
        """Add the sums of a chunk to those before it, in float64; before the first there are none."""
        if not total:
            return chunk
        return tuple(wide(before) + wide(new) for before, new in zip(total, chunk, strict=True))

    def spread_gradient(self, gradient: SumsGradient, targets: Tensor, weight: Tensor | None, out: Tensor) -> Tensor:
        """Write the gradient with respect to the memberships of a chunk into ``out``."""
        a, b = gradient
        if isinstance(a, Tensor):
            torch.lerp(b, a, targets, out=out)
        elif abs(a) < 0.05 * abs(b):  # b + (a − b) would lose digits of a
            a_tensor = torch.scalar_tensor(a, dtype=targets.dtype)
            b_tensor = torch.scalar_tensor(b, dtype=targets.dtype)
            torch.lerp(b_tensor, a_tensor, targets, out=out)
        else:  # one class on the CPU; one operation, since two with plain numbers take three times as long
            torch.add(torch.scalar_tensor(b, dtype=targets.dtype), targets, alpha=a - b, out=out)
        return out if weight is None else out.mul_(weight)

    def to_statistic(self, sums: Sums) -> Counts:
        """Return the statistic of the sums."""
        return cells(*sums)

    def sum_differentiably(self, memberships: Tensor, targets: Tensor, weight: Tensor | None) -> Counts | Confusion:
        """Return the statistic of memberships ``(..., N, K)``, in operations that autograd can follow."""
        return count(memberships, targets, weight)


class IndexLayout(ColumnLayout):
    """Counts per class from ``(N,)`` class indices, without a one-hot copy."""

    def sum_chunk(
        self, memberships: Tensor, targets: Tensor, scale: Tensor | None, weight: Tensor | None, buffer: Tensor
    ) -> Sums:
        classes = memberships.shape[1]
        true_class = targets.unsqueeze(1)
        hits = class_axis.gather(memberships, true_class)
        row_weight = as_constant(1.0, hits).expand(hits.shape) if weight is None else weight
        if scale is not None:
            hits = hits * scale
        if len(targets) > MAX_FLOAT32_ROWS:  # rows are added one by one: two numbers per row, not K
            hits = wide(hits)
            row_weight = wide(row_weight)
        no_sums = hits.new_zeros(classes)
        tp = no_sums.index_add(0, targets, hits.squeeze(1))
        positives = no_sums.index_add_(0, targets, row_weight.squeeze(1))
        if weight is None:  # all are whole numbers: their difference is exact
            negatives = as_constant(len(targets), positives) - positives
        else:  # summed, since total − P is only rounding if one class has nearly all weight
            negatives = _sum_before(positives) + _sum_before(positives.flip(0)).flip(0)
        misses = memberships if buffer is memberships else buffer.copy_(memberships)
        class_axis.scatter(misses, true_class, 0.0)
        if scale is None:  # a full membership is exactly 1, and so is its sum
            return tp, misses.sum(0), positives, negatives
        fp = _sum_weighted_rows(misses, scale).to(tp.dtype)
        return _snap_to_margins(tp, fp, positives, negatives, torch.finfo(memberships.dtype).eps)

    def spread_gradient(self, gradient: SumsGradient, targets: Tensor, weight: Tensor | None, out: Tensor) -> Tensor:
        a, b = gradient
        if isinstance(a, Tensor):
            a_of_true_class = a.index_select(0, targets).unsqueeze(1)
            class_axis.scatter(out.copy_(b), targets.unsqueeze(1), a_of_true_class)
        else:  # plain numbers: there is one class, and every sample is in it
            out.fill_(a)
        return out if weight is None else out.mul_(weight)

    def sum_differentiably(self, memberships: Tensor, targets: Tensor, weight: Tensor | None) -> Counts | Confusion:
        return count(memberships, _one_hot(targets, memberships), weight)


class RowLayout(ColumnLayout):
    """Counts per row, for the samples average: every row's labels are its own population."""

    adds_over_rows: ClassVar[bool] = False

    def sum_chunk(
        self, memberships: Tensor, targets: Tensor, scale: Tensor | None, weight: Tensor | None, buffer: Tensor
    ) -> Sums:
        return _sum_cells_and_margins(memberships, targets, scale, weight, buffer, axis=1)

    def spread_gradient(self, gradient: SumsGradient, targets: Tensor, weight: Tensor | None, out: Tensor) -> Tensor:
        a, b = gradient
        torch.lerp(b.unsqueeze(1), a.unsqueeze(1), targets, out=out)
        return out if weight is None else out.mul_(weight)

    def sum_differentiably(self, memberships: Tensor, targets: Tensor, weight: Tensor | None) -> Counts | Confusion:
        targets = targets.to(memberships.dtype)
        weight = torch.ones_like(targets) if weight is None else weight
        inside = weight * targets
        outside = weight * (1 - targets)
        tp = (memberships * inside).sum(-1)
        fp = (memberships * outside).sum(-1)
        return cells(tp, fp, inside.sum(-1), outside.sum(-1))


class MatrixLayout:
    """The d×d matrix, rows true and columns predicted, from class indices or soft labels; summed in float64."""

    adds_over_rows: ClassVar[bool] = True

    def sum_chunk(
        self, memberships: Tensor, targets: Tensor, scale: Tensor | None, weight: Tensor | None, buffer: Tensor
    ) -> Sums:
        """Sum a chunk; ``buffer`` has its shape, and may be ``memberships`` itself."""
        return self.add_chunk((), memberships, targets, scale, weight, buffer, len(memberships))

    def add_chunk(
        self,
        total: Sums,
        memberships: Tensor,
        targets: Tensor,
        scale: Tensor | None,
        weight: Tensor | None,
        buffer: Tensor,
        batch_rows: int,
    ) -> Sums:
        """Do as ``sum_chunk``, on top of the sums before it; in place, since d² numbers are many."""
        if scale is not None:
            memberships = torch.mul(memberships, scale, out=buffer)
        if targets.dim() > 1:
            return self.merge_sums(total, (_multiply_transposed(targets, memberships),))
        if batch_rows > MAX_FLOAT32_ROWS:
            memberships = wide(memberships)
        classes = memberships.shape[1]
        (matrix,) = total or (memberships.new_zeros(classes, classes),)
        return (matrix.index_add_(0, targets, memberships),)

    def merge_sums(self, total: Sums, chunk: Sums) -> Sums:
        """Add the sums of a chunk to those before it, in float64 and in place."""
        return (wide(total[0]).add_(chunk[0]),) if total else chunk

    def spread_gradient(self, gradient: SumsGradient, targets: Tensor, weight: Tensor | None, out: Tensor) -> Tensor:
        """Write the gradient with respect to the memberships of a chunk into ``out``."""
        (matrix_gradient,) = gradient
        if targets.dim() == 1:
            torch.index_select(matrix_gradient, 0, targets, out=out)
        else:
            torch.matmul(targets, matrix_gradient, out=out)
        return out if weight is None else out.mul_(weight)

    def to_statistic(self, sums: Sums) -> Confusion:
        """Return the statistic of the sums."""
        return Confusion(*sums)

    def sum_differentiably(self, memberships: Tensor, targets: Tensor, weight: Tensor | None) -> Counts | Confusion:
        """Return the statistic of memberships ``(N, d)``, in operations that autograd can follow."""
        labels = _one_hot(targets, memberships) if targets.dim() == 1 else targets.to(memberships.dtype)
        if weight is not None:
            labels = labels * weight
        return Confusion(_multiply_transposed(labels, memberships).to(memberships.dtype))


Layout = ColumnLayout | MatrixLayout


FOLD_BLOCKS = 64
"""In a long sum over rows, this many blocks of rows are first added elementwise to one block."""

MIN_FOLD_ELEMENTS = 1 << 17
"""The fewest elements of a sum over rows that is done in blocks."""

MAX_POSITIVE_SHARE = 0.98
"""Up to this share of positives FP is computed as a difference, the sum of memberships minus TP.

With more positives the rounding error of TP would be large compared with N: FP is then summed on its own.
"""

MAX_UNASKED_ELEMENTS = 1 << 15
"""Up to this many elements FP is summed on its own, without reading the share of positives first.

So it is on other devices than the CPU, which would have to wait for that value to be read.
"""

MAX_FLOAT32_ROWS = 4096
"""Rows that may be added one by one in float32, with an error around 1e-6; sums of such blocks are added in float64."""


def _sum_over(x: Tensor, axis: int) -> Tensor:
    """Sum ``(N, K)`` over an axis.

    Torch walks down the columns on one thread, or nearly so: with many rows it is two to three times as fast to add up
    blocks of rows first, which are long vectors.
    """
    rows, columns = x.shape
    if axis == 1 or columns == 1 or x.numel() < MIN_FOLD_ELEMENTS or rows < 8 * FOLD_BLOCKS:
        return x.sum(axis)
    if not (x.is_cpu and x.is_contiguous()):
        return x.sum(axis)
    folded_rows = rows - rows % FOLD_BLOCKS
    block_sum = x[:folded_rows].view(FOLD_BLOCKS, -1).sum(0)
    total = block_sum.view(-1, columns).sum(0)
    if folded_rows < rows:
        total.add_(x[folded_rows:].sum(0))
    return total


def _sum_before(x: Tensor) -> Tensor:
    """Return the sums of all elements before each."""
    return torch.cat((x.new_zeros(1), x[:-1].cumsum(0)))


def _sum_weighted_rows(x: Tensor, weight: Tensor) -> Tensor:
    """Return Σ weight·x over the rows: products of a row and a matrix, without a weighted copy."""
    if len(x) <= MAX_FLOAT32_ROWS:
        return (weight.t() @ x).squeeze(0)
    blocks = zip(weight.split(MAX_FLOAT32_ROWS), x.split(MAX_FLOAT32_ROWS), strict=True)
    block_sums = [block_weight.t() @ block for block_weight, block in blocks]
    return torch.cat(block_sums).sum(0)


def _multiply_transposed(targets: Tensor, memberships: Tensor) -> Tensor:
    """Return targetsᵀ·memberships, ``(d, d)`` in float64; differentiable."""
    block_rows = 64 * MAX_FLOAT32_ROWS  # a matrix product adds up in blocks of its own
    blocks = zip(targets.split(block_rows), memberships.split(block_rows), strict=True)
    products = [wide(y.t() @ m) for y, m in blocks]
    return torch.stack(products).sum(0)


def _snap_to_margins(tp: Tensor, fp: Tensor, positives: Tensor, negatives: Tensor, eps: float) -> Sums:
    """Return the sums, with TP = P and FP = N where only rounding separates them, so that FN and TN are 0."""
    cell = torch.stack((tp, fp))
    margin = torch.stack((positives, negatives))
    rounding = margin * as_constant(16 * eps, margin)
    is_full = (margin - cell).abs_() <= rounding
    tp, fp = torch.where(is_full, margin, cell).unbind(0)
    return tp, fp, positives, negatives


def _sum_cells_and_margins(
    memberships: Tensor, targets: Tensor, scale: Tensor | None, weight: Tensor | None, buffer: Tensor, axis: int
) -> Sums:
    """Return TP, FP, P and N, summed over rows (axis 0) or classes (axis 1)."""
    if scale is not None:
        return _sum_scaled(memberships, targets, scale, weight, buffer, axis)
    positives = _sum_over(targets, axis)
    negatives = as_constant(targets.shape[axis], positives) - positives
    if (
        memberships.numel() <= MAX_UNASKED_ELEMENTS
        or not memberships.is_cpu
        or bool((positives > MAX_POSITIVE_SHARE * targets.shape[axis]).any())
    ):
        inside = memberships * targets
        tp = _sum_over(inside, axis)
        outside = torch.sub(memberships, inside, out=inside)
        return tp, _sum_over(outside, axis), positives, negatives
    predicted = _sum_over(memberships, axis)
    tp = _sum_over(torch.mul(memberships, targets, out=buffer), axis)
    return tp, predicted - tp, positives, negatives


def _sum_scaled(
    memberships: Tensor, targets: Tensor, scale: Tensor, weight: Tensor | None, buffer: Tensor, axis: int
) -> Sums:
    """Do the same for memberships times ``scale`` and targets times ``weight``."""
    scaled = memberships * scale
    tp = _sum_over(torch.mul(scaled, targets, out=buffer), axis)
    fp = _sum_over(scaled.sub_(buffer), axis)
    if weight is None:
        positive_weight = targets
        negative_weight = as_constant(1.0, targets) - targets
    else:
        positive_weight = targets * weight
        negative_weight = weight - positive_weight
    positives = _sum_over(positive_weight, axis)
    negatives = _sum_over(negative_weight, axis)
    return _snap_to_margins(tp, fp, positives, negatives, torch.finfo(memberships.dtype).eps)


def _one_hot(targets: Tensor, like: Tensor) -> Tensor:
    # A comparison, since F.one_hot reads values back, which torch.func and torch.compile cannot.
    classes = torch.arange(like.shape[-1], device=targets.device)
    return (targets.unsqueeze(-1) == classes).to(like.dtype)
