"""The additive statistics that every metric here is a function of.

``Counts`` holds the four one-vs-rest cells of each class, ``Confusion`` the d×d matrix of a multi-class problem, and
``Mean`` the running mean behind the *samples* average. All three add over batches, processes and shards.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable


class _Additive:
    """Named tensors that add: what ``Counts``, ``Confusion`` and ``Mean`` have in common."""

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Apply ``function`` to every cell, keeping the names."""
        return type(self)(*(function(cell) for cell in self.cells()))

    def cells(self) -> tuple[Any, ...]:
        """Return the cells in the order of the fields."""
        return tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        return type(self)(*(mine + its for mine, its in zip(self.cells(), other.cells(), strict=True)))


@dataclass(frozen=True, eq=False)
class Counts(_Additive):
    """One-vs-rest cells, each of shape ``(..., K)``: soft while training, hard while judging.

    The cells are named because their order differs in every library; leading axes (thresholds, replicates) broadcast
    through every metric. A sum keeps the type of its cells: to add up more than 2²⁴ samples over batches, widen them
    first, ``counts.map(torch.Tensor.double)``; ``Evaluator`` does.

    >>> a = Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0)))
    >>> (a + a).tp
    tensor(6.)
    """

    tp: Tensor
    fp: Tensor
    fn: Tensor
    tn: Tensor

    @property
    def positives(self) -> Tensor:
        """P = TP + FN, the weight of what is truly in the class."""
        return self.tp + self.fn

    @property
    def negatives(self) -> Tensor:
        """N = FP + TN, the weight of what is truly outside the class."""
        return self.fp + self.tn

    @property
    def predicted(self) -> Tensor:
        """PP = TP + FP, the weight of what is predicted to be in the class."""
        return self.tp + self.fp

    @property
    def total(self) -> Tensor:
        """The weight of everything counted."""
        return self.tp + self.fp + self.fn + self.tn

    @property
    def matrix(self) -> NoReturn:
        """Not here: one-vs-rest cells do not hold the d×d matrix."""
        raise AttributeError(
            "Counts has no 'matrix': a metric of the d×d matrix annotates its argument, def metric(c: mg.Confusion), "
            "and is used with task='multiclass'"
        )


@dataclass(frozen=True, eq=False)
class Confusion(_Additive):
    """The d×d matrix of a multi-class problem, ``(..., d, d)``: rows are true classes, columns predicted ones.

    >>> Confusion(torch.tensor([[4.0, 1.0], [2.0, 3.0]])).counts().fp
    tensor([2., 1.])
    """

    matrix: Tensor

    def counts(self) -> Counts:
        """Return the one-vs-rest cells of every class [tsoi2024, eq. 3]."""
        tp = self.matrix.diagonal(dim1=-2, dim2=-1)
        fn = self.matrix.sum(-1) - tp
        fp = self.matrix.sum(-2) - tp
        return Counts(tp, fp, fn, self.matrix.sum((-2, -1)).unsqueeze(-1) - tp - fn - fp)


@dataclass(frozen=True, eq=False)
class Mean(_Additive):
    """A weighted mean that adds: Σ w·value and Σ w, the state of the *samples* average."""

    total: Tensor
    weight: Tensor


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """Return the type to count in: float32 at least, since a bfloat16 running sum stops growing at 256."""
    return torch.promote_types(tensor.dtype, torch.float32)


def wide(x: Tensor) -> Tensor:
    """Return ``x`` in float64, where many numbers are to be added: float32 stops at 2^24."""
    return x if x.device.type == "mps" else x.double()  # which has no float64


def cells(tp: Tensor, fp: Tensor, positives: Tensor, negatives: Tensor) -> Counts:
    """Complete the four cells; TP + FN = P and FP + TN = N hold by construction."""
    return Counts(tp, fp, positives - tp, negatives - fp)


def count(memberships: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None) -> Counts:
    r"""Sum memberships into cells: $TP_k = \sum_i w_{ik} y_{ik} m_{ik}$ and so on [tsoi2022, eq. 6].

    ``memberships`` is ``(..., N, K)`` in [0, 1] (how much each sample is predicted to be in each class), ``targets``
    ``(N, K)`` in [0, 1], ``weight`` ``(N,)`` or ``(N, K)``, ``mask`` the same with True for what counts.

    >>> count(torch.tensor([[1.0], [0.25]]), torch.tensor([[1], [0]])).fp
    tensor([0.2500])
    """
    dtype = compute_dtype(memberships)
    m, y = memberships.to(dtype), targets.to(dtype)
    if weight is not None:
        weight = (weight if weight.dim() > 1 else weight.unsqueeze(-1)).to(dtype)
    if mask is not None:
        keep = (mask if mask.dim() > 1 else mask.unsqueeze(-1)).expand(y.shape)
        # where, not a product: what is masked may be NaN.
        m, y = m.where(keep, 0), y.where(keep, 0)
        weight = keep.to(dtype) if weight is None else weight * keep
    weight = torch.ones_like(y) if weight is None else weight
    # Each cell and its margin are summed alike, so that what should be zero is exactly zero.
    wy, wn = weight * y, weight * (1 - y)
    return cells((m * wy).sum(-2), (m * wn).sum(-2), wy.sum(-2), wn.sum(-2))
