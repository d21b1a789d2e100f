"""Losses at a threshold set by the batch: precision at k, break-even, equal error, recall under a constraint.

All five work in the same way. One sort gives the hard counts at every cut, and the cut that meets the constraint; the
threshold is midway between the two scores beside it, and the metric is that of soft memberships σ(β(z − t)).

The threshold moves with the scores, and that part of the gradient is what makes these losses work: at a fixed
threshold recall grows by raising all scores. The gradient is that of the constraint which the threshold keeps
(predicted = k, FPR = f, …), with soft memberships in the place of hard ones [kumar2021]: ∂t/∂z_i = c_i m'_i / Σ_j c_j
m'_j, with c_i the price of sample i, what it takes from the budget, and m' the slope of its membership. So every
sample near the threshold has its share, where the exact derivative would move the two samples beside the threshold
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metricgrad.counts import Counts, cells, wide
from metricgrad.losses.ranking import PerClassLoss
from metricgrad.metrics import balanced_accuracy, precision, recall
from metricgrad.metrics.derivatives import ratio
from metricgrad.metrics.scalars import is_number, is_whole
from metricgrad.surrogates import current
from metricgrad.surrogates.steps import LogitSigmoid

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.engine.batch import Task
    from metricgrad.metrics.averages import Average
    from metricgrad.surrogates import Annealed

__all__ = ["EERLoss", "OperatingPointLoss", "PRBEPLoss", "PrecisionAtKLoss", "RecallAtFPRLoss", "RecallAtPrecisionLoss"]

SLACK = 1e-9
"""The relative tolerance of a constraint: 0.1 · 30 is not exactly 3 in floating point."""


class OperatingPointLoss(PerClassLoss):
    """1 − a metric at a threshold that the batch sets; base class of the losses here.

    Equal scores are predicted together or not at all. A sample of weight w counts as w samples, in the constraint too.
    With ``average="micro"`` all classes share one threshold. The gradient through the threshold is that of the soft
    constraint, not of the threshold's value, so ``gradcheck`` fails by design.

    Parameters
    ----------
    surrogate : LogitSigmoid or Annealed, optional
        ``LogitSigmoid(beta)``, or ``Annealed`` from one to another, applied to logits minus the threshold; as β grows,
        the loss approaches 1 − the hard metric. By default ``LogitSigmoid()``.
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
    average : {'macro', 'micro', 'weighted'} or None, default 'macro'
        How the values of the classes become one. None returns one per class.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.
    """

    metric: Callable[[Counts], Tensor]
    """The metric at the threshold."""

    def __init__(
        self,
        *,
        surrogate: LogitSigmoid | Annealed | None = None,
        task: Task = "binary",
        average: Average | None = "macro",
        ignore_index: int | None = None,
        process_group: Any = None,
    ) -> None:
        super().__init__(task, average, ignore_index, process_group)
        self.surrogate: Any = LogitSigmoid() if surrogate is None else surrogate
        step = current(self.surrogate)
        if not isinstance(step, LogitSigmoid) or step.tensors() or step.eta != 0:
            raise ValueError(
                f"surrogate: expected LogitSigmoid(beta) with eta=0, which the threshold is, got {surrogate!r}"
            )

    def distance(self, c: Counts) -> Tensor:
        """Return how far each cut is from the one that the constraint asks for, elementwise.

        Parameters
        ----------
        c : Counts
            The hard counts at every cut, cells ``(N + 1, K)``.

        Returns
        -------
        Tensor
            ``(N + 1, K)``, ∞ where a cut is not allowed.
        """
        raise NotImplementedError

    def prices(self, positives: Tensor, negatives: Tensor) -> tuple[Any, Any]:
        """Return what one more true positive and one more false positive take from the budget of the constraint.

        Parameters
        ----------
        positives : Tensor
            The weight of the positives of each class, ``(K,)``.
        negatives : Tensor
            The weight of the negatives of each class, ``(K,)``.

        Returns
        -------
        tuple of float or Tensor
            The price of a true positive and that of a false positive.
        """
        return 1.0, 1.0

    def losses(self, z: Tensor, wy: Tensor, wn: Tensor) -> Tensor:
        step = current(self.surrogate)
        top = torch.finfo(z.dtype).max / 4
        z = wide(z.clamp(-top, top))  # finite, so that no difference of infinities is NaN
        start = self.threshold(z, wy, wn)
        positives, negatives = wy.sum(0), wn.sum(0)
        member = step(z - start)
        of_tp, of_fp = self.prices(positives, negatives)
        price = of_tp * wy + of_fp * wn
        with torch.no_grad():
            slope = step.beta * member * (1 - member)
            growth = (price * slope).sum(0)
            # Prices of both signs can cancel, where soft precision hardly changes with the threshold: keep a tenth.
            growth = torch.maximum(growth, 0.1 * (price.abs() * slope).sum(0))
            growth = growth.masked_fill(growth < torch.finfo(growth.dtype).tiny, 0.0)
        spent = (price * member).sum(0)
        member = step(z - (start + ratio(spent - spent.detach(), growth)))
        return 1 - self.metric(cells((wy * member).sum(0), (wn * member).sum(0), positives, negatives))

    @torch.no_grad()
    def threshold(self, z: Tensor, wy: Tensor, wn: Tensor) -> Tensor:
        """Return the threshold of each class.

        Midway between the lowest score that is predicted and the highest that is not; −∞ if all are, and the highest
        score itself if none is, since above it there would be no gradient.

        Parameters
        ----------
        z : Tensor
            The logits, ``(N, K)``.
        wy : Tensor
            The weight with which each element is a positive, ``(N, K)``.
        wn : Tensor
            The weight with which each element is a negative, ``(N, K)``.

        Returns
        -------
        Tensor
            ``(K,)``, on the scale of the logits.
        """
        # Samples of weight zero come last, as if they were absent.
        s, order = z.masked_fill(wy + wn == 0, -torch.inf).sort(0, descending=True)
        tp, fp = (F.pad(w.gather(0, order).cumsum(0), (0, 0, 1, 0)) for w in (wy, wn))
        distance = self.distance(cells(tp, fp, tp[-1:], fp[-1:]))
        lower, upper = F.pad(s, (0, 0, 0, 1), value=-torch.inf), F.pad(s, (0, 0, 1, 0), value=torch.inf)
        distance = distance.masked_fill((lower == upper) & lower.isfinite(), torch.inf)  # no cut between equal scores
        cut = len(s) - distance.flip(0).argmin(0, keepdim=True)  # the lowest of the nearest
        lower, upper = (side.gather(0, cut).squeeze(0) for side in (lower, upper))
        return torch.where(cut.squeeze(0) == 0, lower, (lower + upper) / 2)

    def extra_repr(self) -> str:
        surrogate = "" if isinstance(self.surrogate, nn.Module) else f"surrogate={self.surrogate!r}"
        return ", ".join(part for part in (surrogate, super().extra_repr()) if part)


def _nearest(c: Counts, wanted: Any) -> Tensor:
    """Return how far the predicted weight is from the wanted one; ∞ if nothing is predicted, which has no precision."""
    return torch.where(c.predicted > 0, (c.predicted - wanted).abs(), torch.inf)


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
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
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
        If ``k`` is out of its range, the surrogate is another one, or for ``task="multiclass"``.

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
        task: Task = "binary",
        average: Average | None = "macro",
        ignore_index: int | None = None,
        process_group: Any = None,
    ) -> None:
        super().__init__(
            surrogate=surrogate, task=task, average=average, ignore_index=ignore_index, process_group=process_group
        )
        whole = is_whole(k)
        if not (k >= 1 if whole else is_number(k) and 0 < k < 1):
            raise ValueError(f"k: expected a number of at least 1 (an int) or a share in (0, 1) (a float), got {k!r}")
        self.k = int(k) if whole else float(k)

    def distance(self, c: Counts) -> Tensor:
        return _nearest(c, self.k * c.total if isinstance(self.k, float) else self.k)

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
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
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
        If the surrogate is another one, or for ``task="multiclass"``.

    Examples
    --------
    >>> PRBEPLoss()(torch.tensor([3.0, -2.0, 2.0, -3.0]), torch.tensor([1, 1, 0, 0]))
    tensor(0.4641)
    """

    metric = staticmethod(precision)

    def distance(self, c: Counts) -> Tensor:
        return _nearest(c, c.positives)


class EERLoss(OperatingPointLoss):
    r"""The equal error rate: (FNR + FPR) / 2 where the two are nearest to each other; the constraint is FNR = FPR.

    The threshold is the hard one of the batch [kumar2021], the memberships are $\sigma(\beta(z - t))$, and the gradient
    flows through the threshold. A class without positives or negatives counts as chance, ½, without gradient.

    Parameters
    ----------
    surrogate : LogitSigmoid or Annealed, optional
        ``LogitSigmoid(beta)``, or ``Annealed`` from one to another, applied to logits minus the threshold; as β grows,
        the loss approaches 1 − the hard metric. By default ``LogitSigmoid()``.
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
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
        If the surrogate is another one, or for ``task="multiclass"``.

    See Also
    --------
    metricgrad.presets.mfom_eer : The equal error rate of smooth errors, without a threshold.

    Examples
    --------
    >>> EERLoss()(torch.tensor([3.0, -2.0, 2.0, -3.0]), torch.tensor([1, 1, 0, 0]))
    tensor(0.4641)
    """

    metric = staticmethod(balanced_accuracy)

    def distance(self, c: Counts) -> Tensor:
        return (ratio(c.fn, c.positives) - ratio(c.fp, c.negatives)).abs()

    def prices(self, positives: Tensor, negatives: Tensor) -> tuple[Any, Any]:
        return ratio(1.0, positives), ratio(1.0, negatives)

    def losses(self, z: Tensor, wy: Tensor, wn: Tensor) -> Tensor:
        return torch.where((wy.sum(0) == 0) | (wn.sum(0) == 0), 0.5, super().losses(z, wy, wn))


class RecallAtPrecisionLoss(OperatingPointLoss):
    r"""1 − the largest recall at a precision of at least ``p``; the constraint is precision = p [kumar2021].

    The threshold is the hard one of the batch, the memberships are $\sigma(\beta(z - t))$, and the gradient flows
    through the threshold. If no cut reaches ``p``, the hard recall is 0 and the threshold is the highest score: the
    loss is finite, and its gradient raises the positives and lowers the negatives above them until some cut does.
    Without positives the loss is 1, without negatives 0.

    Parameters
    ----------
    p : float
        The least precision, in (0, 1].
    surrogate : LogitSigmoid or Annealed, optional
        ``LogitSigmoid(beta)``, or ``Annealed`` from one to another, applied to logits minus the threshold; as β grows,
        the loss approaches 1 − the hard metric. By default ``LogitSigmoid()``.
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
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
        If ``p`` is out of its range, the surrogate is another one, or for ``task="multiclass"``.

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
        task: Task = "binary",
        average: Average | None = "macro",
        ignore_index: int | None = None,
        process_group: Any = None,
    ) -> None:
        super().__init__(
            surrogate=surrogate, task=task, average=average, ignore_index=ignore_index, process_group=process_group
        )
        if not 0 < p <= 1:
            raise ValueError(f"p: expected a precision in (0, 1], got {p!r}")
        self.p = p

    def distance(self, c: Counts) -> Tensor:
        return torch.where(c.tp >= self.p * (1 - SLACK) * c.predicted, c.fn, torch.inf)

    def prices(self, positives: Tensor, negatives: Tensor) -> tuple[Any, Any]:
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
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
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
        If ``fpr`` is out of its range, the surrogate is another one, or for ``task="multiclass"``.

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
        task: Task = "binary",
        average: Average | None = "macro",
        ignore_index: int | None = None,
        process_group: Any = None,
    ) -> None:
        super().__init__(
            surrogate=surrogate, task=task, average=average, ignore_index=ignore_index, process_group=process_group
        )
        if not 0 <= fpr < 1:
            raise ValueError(f"fpr: expected a rate in [0, 1), got {fpr!r}")
        self.fpr = fpr

    def distance(self, c: Counts) -> Tensor:
        return torch.where(c.fp <= self.fpr * (1 + SLACK) * c.negatives, c.fn, torch.inf)

    def prices(self, positives: Tensor, negatives: Tensor) -> tuple[Any, Any]:
        return 0.0, 1.0

    def extra_repr(self) -> str:
        return f"fpr={self.fpr}, {super().extra_repr()}"
