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

    def distance(self, c: Counts) -> Tensor:
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

    def prices(self, positives: Tensor, negatives: Tensor) -> tuple[float | Tensor, float | Tensor]:
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
        step = current_surrogate(self.surrogate)
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
        distance = distance.masked_fill((lower == upper) & lower.isfinite(), torch.inf)  # equal scores stay together
        place = len(s) - distance.flip(0).argmin(0, keepdim=True)  # the lowest of the nearest
        lower, upper = (side.gather(0, place).squeeze(0) for side in (lower, upper))
        return torch.where(place.squeeze(0) == 0, lower, (lower + upper) / 2)

    def extra_repr(self) -> str:
        surrogate = "" if isinstance(self.surrogate, nn.Module) else f"surrogate={self.surrogate!r}"
        return ", ".join(part for part in (surrogate, super().extra_repr()) if part)
