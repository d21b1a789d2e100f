"""``OperatingPointLoss``: a metric at a threshold that the batch sets, and how the gradient passes through it.

One sort gives the hard counts at every threshold, and the one that meets the constraint: it is midway between the two
scores beside it, and the metric is that of soft memberships σ(β(z − t)).

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

from metricgrad.core.counts import Counts, cells, wide
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.surrogates import current_surrogate
from metricgrad.core.surrogates.steps import LogitSigmoid
from metricgrad.losses.per_class import PerClassLoss

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.batch import Task
    from metricgrad.core.metrics.averages import Average
    from metricgrad.core.processes import ProcessGroup
    from metricgrad.core.surrogates import Annealed


class OperatingPointLoss(PerClassLoss):
    """1 − a metric at a threshold that the batch sets; base class of the losses in ``at_threshold``.

    Equal scores are predicted together or not at all. A sample of weight w counts as w samples, in the constraint too.
    With ``average="micro"`` all classes share one threshold. The gradient through the threshold is that of the soft
    constraint, not of the threshold's value, so ``gradcheck`` fails by design.

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
    """

    metric: Callable[[Counts], Tensor]
    """The metric at the threshold."""

    def __init__(
        self,
        *,
        surrogate: LogitSigmoid | Annealed | None = None,
        task: Task | None = None,
        average: Average | None = "macro",
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(task, average, ignore_index, process_group)
        self.surrogate: Any = LogitSigmoid() if surrogate is None else surrogate
        step = current_surrogate(self.surrogate)
        if not isinstance(step, LogitSigmoid) or step.tensors() or step.eta != 0:
            raise ValueError(
                f"surrogate: expected LogitSigmoid(beta) with eta=0, which the threshold is, got {surrogate!r}"
            )

    def measure_distance(self, c: Counts) -> Tensor:
        """Return how far each threshold is from the one that meets the constraint, elementwise.

        Parameters
        ----------
        c : Counts
            The hard counts at every threshold, from the highest on, cells ``(N + 1, K)``.

        Returns
        -------
        Tensor
            ``(N + 1, K)``, ∞ where a threshold is not allowed.
        """
        raise NotImplementedError

    def list_prices(self, positives: Tensor, negatives: Tensor) -> tuple[float | Tensor, float | Tensor]:
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

    def compute_losses(self, z: Tensor, positive_weight: Tensor, negative_weight: Tensor) -> Tensor:
        step = current_surrogate(self.surrogate)
        largest = torch.finfo(z.dtype).max / 4
        z = wide(z.clamp(-largest, largest))  # finite, so that no difference of infinities is NaN
        threshold = self.find_threshold(z, positive_weight, negative_weight)
        positives = positive_weight.sum(0)
        negatives = negative_weight.sum(0)
        tp_price, fp_price = self.list_prices(positives, negatives)
        price = tp_price * positive_weight + fp_price * negative_weight
        membership = step(z - threshold)
        with torch.no_grad():
            slope = step.beta * membership * (1 - membership)
            growth = (price * slope).sum(0)
            # Where soft precision hardly changes with the threshold, prices of both signs cancel: the sum is kept at a
            # tenth of that of their absolute values at least.
            growth = torch.maximum(growth, 0.1 * (price.abs() * slope).sum(0))
            growth = growth.masked_fill(growth < torch.finfo(growth.dtype).tiny, 0.0)
        # Zero in value; its gradient is that of the threshold which keeps what is spent of the budget.
        spent = (price * membership).sum(0)
        threshold_shift = ratio(spent - spent.detach(), growth)
        membership = step(z - (threshold + threshold_shift))
        tp = (positive_weight * membership).sum(0)
        fp = (negative_weight * membership).sum(0)
        return 1 - self.metric(cells(tp, fp, positives, negatives))

    @torch.no_grad()
    def find_threshold(self, z: Tensor, positive_weight: Tensor, negative_weight: Tensor) -> Tensor:
        """Return the threshold of each class.

        Midway between the lowest score that is predicted and the highest that is not; −∞ if all are, and the highest
        score itself if none is, since above it there would be no gradient.

        Parameters
        ----------
        z : Tensor
            The logits, ``(N, K)``.
        positive_weight : Tensor
            The weight with which each element is a positive, ``(N, K)``.
        negative_weight : Tensor
            The weight with which each element is a negative, ``(N, K)``.

        Returns
        -------
        Tensor
            ``(K,)``, on the scale of the logits.
        """
        # Samples of weight zero come last, so that they change no count before.
        is_absent = positive_weight + negative_weight == 0
        scores, order = z.masked_fill(is_absent, -torch.inf).sort(0, descending=True)
        # The counts if none, one, two, … of the highest scores are predicted.
        tp = F.pad(positive_weight.gather(0, order).cumsum(0), (0, 0, 1, 0))
        fp = F.pad(negative_weight.gather(0, order).cumsum(0), (0, 0, 1, 0))
        distance = self.measure_distance(cells(tp, fp, tp[-1:], fp[-1:]))
        score_below = F.pad(scores, (0, 0, 0, 1), value=-torch.inf)
        score_above = F.pad(scores, (0, 0, 1, 0), value=torch.inf)
        splits_equal_scores = (score_below == score_above) & score_below.isfinite()
        distance = distance.masked_fill(splits_equal_scores, torch.inf)
        predicted = len(scores) - distance.flip(0).argmin(0, keepdim=True)  # the lowest of the nearest thresholds
        below = score_below.gather(0, predicted).squeeze(0)
        above = score_above.gather(0, predicted).squeeze(0)
        return torch.where(predicted.squeeze(0) == 0, below, (below + above) / 2)

    def extra_repr(self) -> str:
        surrogate = "" if isinstance(self.surrogate, nn.Module) else f"surrogate={self.surrogate!r}"
        return ", ".join(part for part in (surrogate, super().extra_repr()) if part)
