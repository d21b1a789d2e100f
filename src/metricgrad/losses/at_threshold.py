"""Losses at a threshold set by the batch: precision at k, break-even, equal error, recall under a constraint.

Each is an ``OperatingPointLoss`` with its metric, its constraint, and the prices by which the constraint moves the
threshold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.core.metrics import balanced_accuracy, precision, recall
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.metrics.scalars import is_number, is_whole
from metricgrad.losses.operating_point import OperatingPointLoss

if TYPE_CHECKING:
    from metricgrad.core.batch import Task
    from metricgrad.core.counts import Counts
    from metricgrad.core.metrics.averages import Average
    from metricgrad.core.processes import ProcessGroup
    from metricgrad.core.surrogates import Annealed, LogitSigmoid

__all__ = ["EERLoss", "PRBEPLoss", "PrecisionAtKLoss", "RecallAtFPRLoss", "RecallAtPrecisionLoss"]

CONSTRAINT_TOLERANCE = 1e-9
"""The relative tolerance of a constraint: 0.1 · 30 is not exactly 3 in floating point."""


def _measure_distance(c: Counts, expected: float | Tensor) -> Tensor:
    """Return how far the predicted weight is from the expected one; ∞ if nothing is predicted: it has no precision."""
    return torch.where(c.predicted > 0, (c.predicted - expected).abs(), torch.inf)


class PrecisionAtKLoss(OperatingPointLoss):
    r"""1 − precision among the k highest scores; the constraint is predicted = k [kumar2021].

    The threshold is the hard one of the batch, the memberships are $\sigma(\beta(z - t))$, and the gradient flows
    through the threshold. Equal scores at the k-th place are all in or all out, whichever is nearer to k. Without
    positives the loss is 1.

    Parameters
    ----------
    k : int or float
        A number of samples (an int; with weights, that much weight) or a share of them (a float between 0 and 1).
    surrogate : LogitSigmoid or Annealed, optional
        ``LogitSigmoid(beta)``, or ``Annealed`` from one to another, applied to logits minus the threshold; as β grows,
        the loss approaches 1 − the hard metric. By default ``LogitSigmoid()``.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    average : {'macro', 'micro', 'weighted'} or None, default 'macro'
        How the values of the classes become one. None returns one per class.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If ``k`` is out of its range or the surrogate is another one.

    Examples
    --------
    >>> PrecisionAtKLoss(2)(torch.tensor([3.0, -2.0, 2.0, -3.0]), torch.tensor([1, 1, 0, 0]))
    tensor(0.4641)
    """

    metric = staticmethod(precision)

    def __init__(
        self,
        k: float,
        *,
        surrogate: LogitSigmoid | Annealed | None = None,
        task: Task | None = None,
        average: Average | None = "macro",
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(
            surrogate=surrogate, task=task, average=average, ignore_index=ignore_index, process_group=process_group
        )
        is_number_of_samples = is_whole(k) and k >= 1
        is_share = not is_whole(k) and is_number(k) and 0 < k < 1
        if not (is_number_of_samples or is_share):
            raise ValueError(f"k: expected a number of at least 1 (an int) or a share in (0, 1) (a float), got {k!r}")
        self.k = float(k) if is_share else int(k)

    def measure_distance(self, c: Counts) -> Tensor:
        expected = self.k * c.total if isinstance(self.k, float) else self.k
        return _measure_distance(c, expected)

    def extra_repr(self) -> str:
        return f"k={self.k}, {super().extra_repr()}"


class PRBEPLoss(OperatingPointLoss):
    r"""1 − precision where as much is predicted as there are positives: the precision–recall break-even point.

    There precision = recall. The threshold is the hard one of the batch, with predicted = positives [kumar2021], the
    memberships are $\sigma(\beta(z - t))$, and the gradient flows through the threshold. Without positives the loss is
    1.

    Parameters
    ----------
    surrogate : LogitSigmoid or Annealed, optional
        ``LogitSigmoid(beta)``, or ``Annealed`` from one to another, applied to logits minus the threshold; as β grows,
        the loss approaches 1 − the hard metric. By default ``LogitSigmoid()``.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    average : {'macro', 'micro', 'weighted'} or None, default 'macro'
        How the values of the classes become one. None returns one per class.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If the surrogate is another one.

    Examples
    --------
    >>> PRBEPLoss()(torch.tensor([3.0, -2.0, 2.0, -3.0]), torch.tensor([1, 1, 0, 0]))
    tensor(0.4641)
    """

    metric = staticmethod(precision)

    def measure_distance(self, c: Counts) -> Tensor:
        return _measure_distance(c, c.positives)


class EERLoss(OperatingPointLoss):
    r"""The equal error rate: (FNR + FPR) / 2 where the two are nearest to each other; the constraint is FNR = FPR.

    The threshold is the hard one of the batch [kumar2021], the memberships are $\sigma(\beta(z - t))$, and the gradient
    flows through the threshold. A class without positives or negatives counts as chance, ½, without gradient.

    Parameters
    ----------
    surrogate : LogitSigmoid or Annealed, optional
        ``LogitSigmoid(beta)``, or ``Annealed`` from one to another, applied to logits minus the threshold; as β grows,
        the loss approaches 1 − the hard metric. By default ``LogitSigmoid()``.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    average : {'macro', 'micro', 'weighted'} or None, default 'macro'
        How the values of the classes become one. None returns one per class.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If the surrogate is another one.

    See Also
    --------
    metricgrad.presets.mfom_eer : The equal error rate of smooth errors, without a threshold.

    Examples
    --------
    >>> EERLoss()(torch.tensor([3.0, -2.0, 2.0, -3.0]), torch.tensor([1, 1, 0, 0]))
    tensor(0.4641)
    """

    metric = staticmethod(balanced_accuracy)

    def measure_distance(self, c: Counts) -> Tensor:
        false_negative_rate = ratio(c.fn, c.positives)
        false_positive_rate = ratio(c.fp, c.negatives)
        return (false_negative_rate - false_positive_rate).abs()

    def list_prices(self, positives: Tensor, negatives: Tensor) -> tuple[float | Tensor, float | Tensor]:
        return ratio(1.0, positives), ratio(1.0, negatives)

    def compute_losses(self, z: Tensor, positive_weight: Tensor, negative_weight: Tensor) -> Tensor:
        has_one_side = (positive_weight.sum(0) == 0) | (negative_weight.sum(0) == 0)
        losses = super().compute_losses(z, positive_weight, negative_weight)
        return torch.where(has_one_side, 0.5, losses)


class RecallAtPrecisionLoss(OperatingPointLoss):
    r"""1 − the largest recall at a precision of at least ``p``; the constraint is precision = p [kumar2021].

    The threshold is the hard one of the batch, the memberships are $\sigma(\beta(z - t))$, and the gradient flows
    through the threshold. If no threshold reaches ``p``, the hard recall is 0 and the threshold is the highest score:
    the loss is finite, and its gradient raises the positives and lowers the negatives above them until some threshold
    does. Without positives the loss is 1, without negatives 0.

    Parameters
    ----------
    p : float
        The least precision, in (0, 1].
    surrogate : LogitSigmoid or Annealed, optional
        ``LogitSigmoid(beta)``, or ``Annealed`` from one to another, applied to logits minus the threshold; as β grows,
        the loss approaches 1 − the hard metric. By default ``LogitSigmoid()``.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    average : {'macro', 'micro', 'weighted'} or None, default 'macro'
        How the values of the classes become one. None returns one per class.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If ``p`` is out of its range or the surrogate is another one.

    See Also
    --------
    ConstrainedLoss : Any metric subject to any bounds, at a fixed threshold.

    Examples
    --------
    >>> RecallAtPrecisionLoss(0.9)(torch.tensor([3.0, -2.0, 2.0, -3.0]), torch.tensor([1, 1, 0, 0]))
    tensor(0.6833)
    """

    metric = staticmethod(recall)

    def __init__(
        self,
        p: float,
        *,
        surrogate: LogitSigmoid | Annealed | None = None,
        task: Task | None = None,
        average: Average | None = "macro",
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(
            surrogate=surrogate, task=task, average=average, ignore_index=ignore_index, process_group=process_group
        )
        if not 0 < p <= 1:
            raise ValueError(f"p: expected a precision in (0, 1], got {p!r}")
        self.p = p

    def measure_distance(self, c: Counts) -> Tensor:
        reaches_precision = c.tp >= self.p * (1 - CONSTRAINT_TOLERANCE) * c.predicted
        return torch.where(reaches_precision, c.fn, torch.inf)

    def list_prices(self, positives: Tensor, negatives: Tensor) -> tuple[float | Tensor, float | Tensor]:
        return self.p - 1, self.p

    def extra_repr(self) -> str:
        return f"p={self.p}, {super().extra_repr()}"


class RecallAtFPRLoss(OperatingPointLoss):
    r"""1 − the largest recall at a false positive rate of at most ``fpr``; the constraint is FPR = fpr [kumar2021].

    The threshold is the hard one of the batch, the memberships are $\sigma(\beta(z - t))$, and the gradient flows
    through the threshold. Without positives the loss is 1, without negatives 0.

    Parameters
    ----------
    fpr : float
        The largest false positive rate, in [0, 1).
    surrogate : LogitSigmoid or Annealed, optional
        ``LogitSigmoid(beta)``, or ``Annealed`` from one to another, applied to logits minus the threshold; as β grows,
        the loss approaches 1 − the hard metric. By default ``LogitSigmoid()``.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    average : {'macro', 'micro', 'weighted'} or None, default 'macro'
        How the values of the classes become one. None returns one per class.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If ``fpr`` is out of its range or the surrogate is another one.

    Examples
    --------
    >>> RecallAtFPRLoss(0.1)(torch.tensor([3.0, -2.0, 2.0, -3.0]), torch.tensor([1, 1, 0, 0]))
    tensor(0.6833)
    """

    metric = staticmethod(recall)

    def __init__(
        self,
        fpr: float,
        *,
        surrogate: LogitSigmoid | Annealed | None = None,
        task: Task | None = None,
        average: Average | None = "macro",
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(
            surrogate=surrogate, task=task, average=average, ignore_index=ignore_index, process_group=process_group
        )
        if not 0 <= fpr < 1:
            raise ValueError(f"fpr: expected a rate in [0, 1), got {fpr!r}")
        self.fpr = fpr

    def measure_distance(self, c: Counts) -> Tensor:
        keeps_rate = c.fp <= self.fpr * (1 + CONSTRAINT_TOLERANCE) * c.negatives
        return torch.where(keeps_rate, c.fn, torch.inf)

    def list_prices(self, positives: Tensor, negatives: Tensor) -> tuple[float | Tensor, float | Tensor]:
        return 0.0, 1.0

    def extra_repr(self) -> str:
        return f"fpr={self.fpr}, {super().extra_repr()}"
