"""The additive statistics that every metric here is a function of.

``Counts`` holds the four one-vs-rest cells of each class, ``Confusion`` the d×d matrix of a multi-class problem, and
``Mean`` the running mean behind the *samples* average. All three add over batches, processes and shards.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NoReturn, Self

import torch
from torch import Tensor

from metricgrad.core.array_functions import constant, functions_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Statistic:
    """Base class of ``Counts``, ``Confusion`` and ``Mean``: named tensors that add."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function to every cell, keeping the names.

        Parameters
        ----------
        function : callable
            Of one cell, a tensor; returns the new cell.

        Returns
        -------
        Counts, Confusion or Mean
            The same statistic with the new cells.

        Examples
        --------
        >>> Confusion(torch.eye(2)).map(torch.Tensor.double).matrix.dtype
        torch.float64
        """
        return type(self)(*(function(cell) for cell in self.cells()))

    def cells(self) -> tuple[Tensor, ...]:
        """Return the cells in the order of the fields.

        Returns
        -------
        tuple of Tensor
            (tp, fp, fn, tn) of ``Counts``, (matrix,) of ``Confusion``, (total, weight) of ``Mean``.
        """
        return tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        pairs = zip(self.cells(), other.cells(), strict=True)
        return type(self)(*(own + others for own, others in pairs))


@dataclass(frozen=True, eq=False)
class Counts(Statistic):
    """One-vs-rest cells, each of shape ``(..., K)``: soft while training, hard in evaluation.

    The cells are named because their order differs in every library; leading axes (thresholds, replicates) broadcast
    through every metric. A sum keeps the type of its cells: to add up more than 2²⁴ samples over batches, convert them
    first, ``counts.map(torch.Tensor.double)``; ``Evaluator`` does. Counts of batches add with ``+``.

    Parameters
    ----------
    tp : Tensor
        True positives.
    fp : Tensor
        False positives.
    fn : Tensor
        False negatives.
    tn : Tensor
        True negatives.

    See Also
    --------
    count : Sum memberships into counts.
    Confusion : The d×d matrix of a multi-class problem.

    Examples
    --------
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
        """P = TP + FN, the weight of what is truly in the class, ``(..., K)``."""
        return self.tp + self.fn

    @property
    def negatives(self) -> Tensor:
        """N = FP + TN, the weight of what is truly outside the class, ``(..., K)``."""
        return self.fp + self.tn

    @property
    def predicted(self) -> Tensor:
        """PP = TP + FP, the weight of what is predicted to be in the class, ``(..., K)``."""
        return self.tp + self.fp

    @property
    def total(self) -> Tensor:
        """The weight of everything counted, ``(..., K)``."""
        return self.tp + self.fp + self.fn + self.tn

    @property
    def matrix(self) -> NoReturn:
        """Not available: one-vs-rest cells do not contain the d×d matrix."""
        raise AttributeError(
            "Counts has no 'matrix': a metric of the d×d matrix annotates its argument, def metric(c: mg.Confusion), "
            "and is used with task='multiclass'"
        )


@dataclass(frozen=True, eq=False)
class Confusion(Statistic):
    """The d×d matrix of a multi-class problem: rows are true classes, columns predicted ones.

    Matrices of batches add with ``+``.

    Parameters
    ----------
    matrix : Tensor
        ``(..., d, d)``, soft or hard.

    Examples
    --------
    >>> Confusion(torch.tensor([[4.0, 1.0], [2.0, 3.0]])).counts().fp
    tensor([2., 1.])
    """

    matrix: Tensor

    @property
    def hits(self) -> Tensor:
        """The diagonal: the weight of what is predicted to be what it is, ``(..., d)``."""
        return functions_of(self.matrix).diagonal(self.matrix, dim1=-2, dim2=-1)  # type: ignore[no-any-return]

    @property
    def true(self) -> Tensor:
        """The sums of the rows: the weight of what is truly in each class, ``(..., d)``."""
        return functions_of(self.matrix).sum(self.matrix, -1)  # type: ignore[no-any-return]

    @property
    def predicted(self) -> Tensor:
        """The sums of the columns: the weight of what is predicted to be in each class, ``(..., d)``."""
        return functions_of(self.matrix).sum(self.matrix, -2)  # type: ignore[no-any-return]

    def counts(self) -> Counts:
        """Return the one-vs-rest cells of every class [tsoi2024, eq. 3].

        Returns
        -------
        Counts
            Cells of shape ``(..., d)``.
        """
        m = self.matrix
        f = functions_of(m)
        tp = self.hits
        true = self.true
        predicted = self.predicted
        # TN of class k is the sum, over the other true classes, of the weight that is not predicted to be k. The total
        # minus the three other cells would be a rounding error where TN is 0; a row minus one of its cells is
        # exactly 0 if no other cell of the row has weight.
        not_predicted = true[..., :, None] - m
        index = constant(range(m.shape[-1]), m)
        others = index[:, None] != index
        tn = f.sum(f.where(others, not_predicted, 0.0), -2)
        return Counts(tp, predicted - tp, true - tp, tn)


@dataclass(frozen=True, eq=False)
class ConfusionMargins(Statistic):
    """The diagonal of a d×d matrix and the sums of its rows and columns, ``(..., d)``, which most metrics of it need.

    They are d numbers each, where the matrix has d²; a metric that needs more finds no ``matrix`` here.
    """

    hits: Tensor
    true: Tensor
    predicted: Tensor


@dataclass(frozen=True, eq=False)
class Mean(Statistic):
    """A weighted mean that adds: Σ w·value and Σ w, the statistic of the *samples* average.

    Parameters
    ----------
    total : Tensor
        Σ w·value.
    weight : Tensor
        Σ w.

    Examples
    --------
    >>> mean = Mean(torch.tensor(3.0), torch.tensor(4.0)) + Mean(torch.tensor(1.0), torch.tensor(4.0))
    >>> mean.total / mean.weight
    tensor(0.5000)
    """

    total: Tensor
    weight: Tensor


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype for counting: float32 at least, since a bfloat16 running sum stops growing at 256."""
    return torch.promote_types(tensor.dtype, torch.float32)


def wide(x: Tensor) -> Tensor:
    """Return ``x`` in float64, for sums of many numbers: float32 stops counting at 2^24."""
    return x if x.device.type == "mps" else x.double()  # mps has no float64


def cells(tp: Tensor, fp: Tensor, positives: Tensor, negatives: Tensor, *, least: float | None = None) -> Counts:
    """Return all four cells from TP, FP, P and N, with FN = P − TP and TN = N − FP.

    ``least``: as for ``subtract``. It is not needed if TP and P, and FP and N, were summed in the same order: their
    difference is then exactly zero where it should be.
    """
    if least is None:
        return Counts(tp, fp, positives - tp, negatives - fp)
    return Counts(tp, fp, subtract(positives, tp, least), subtract(negatives, fp, least))


def subtract(whole: Tensor | float, part: Tensor | float, least: float | None) -> Tensor:
    """Return ``whole − part`` of two sums of weights, exactly zero where no weight is left.

    Sums in another order are rounded differently: their difference may be a rounding error, and the ratio of two such
    errors could be any number. ``least``: the smallest weight of a sample; if any weight is left, it is at least that.
    None for whole numbers, whose sums are exact.
    """
    difference = torch.as_tensor(whole - part)
    return difference if least is None else difference.masked_fill(difference < least / 2, 0.0)


def least_weight(*weights: Tensor) -> float | None:
    """Return the smallest positive weight, for ``subtract``; None if all are whole numbers, or there is none."""
    parts = [weight for weight in weights if weight.numel()]
    if all(bool((part == part.round()).all()) for part in parts):
        return None
    return min(part.where(part > 0, torch.inf).min().item() for part in parts)


def round_for_sums(probabilities: Tensor, rows: int) -> Tensor:
    """Round probabilities by less than rows · 2⁻⁵², so that the sum of up to ``rows`` of them is exact in float64.

    A sum from which some are subtracted, and to which they are added again in any order, is then the same as before.
    """
    unit = 2.0 ** (max(rows, 1).bit_length() - 52)
    return (probabilities / unit).round() * unit


def count(memberships: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None) -> Counts:
    r"""Sum memberships into cells: $TP_k = \sum_i w_{ik} y_{ik} m_{ik}$ and so on [tsoi2022, eq. 6].

    Parameters
    ----------
    memberships : Tensor
        ``(..., N, K)`` in [0, 1], how much each sample is predicted to be in each class.
    targets : Tensor
        ``(N, K)`` in [0, 1].
    weight : Tensor, optional
        Per sample or per element: ``(N,)`` or ``(N, K)``.
    mask : Tensor, optional
        True for what counts: ``(N,)`` or ``(N, K)``.

    Returns
    -------
    Counts
        Cells of shape ``(..., K)``, in float32 at least.

    Examples
    --------
    >>> count(torch.tensor([[1.0], [0.25]]), torch.tensor([[1], [0]])).fp
    tensor([0.2500])
    """
    dtype = compute_dtype(memberships)
    m = memberships.to(dtype)
    y = targets.to(dtype)
    if weight is not None:
        weight = (weight if weight.dim() > 1 else weight.unsqueeze(-1)).to(dtype)
    if mask is not None:
        keep = (mask if mask.dim() > 1 else mask.unsqueeze(-1)).expand(y.shape)
        # where, not a product: masked values may be NaN.
        m = m.where(keep, 0)
        y = y.where(keep, 0)
        weight = keep.to(dtype) if weight is None else weight * keep
    weight = torch.ones_like(y) if weight is None else weight
    positive_weight = weight * y
    negative_weight = weight * (1 - y)
    # All four are summed in the same order, so that a difference that should be zero is exactly zero.
    tp = (m * positive_weight).sum(-2)
    fp = (m * negative_weight).sum(-2)
    positives = positive_weight.sum(-2)
    negatives = negative_weight.sum(-2)
    return cells(tp, fp, positives, negatives)
