"""MFoM's smooth error count, the surrogate that needs the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.storable import kinds_in
from metricgrad.core.surrogates.base import Number, Surrogate


@dataclass(frozen=True)
class UnitsVsZeros(Surrogate):
    r"""MFoM's smooth error count $m_k = 1 - \sigma(\alpha_k\psi_k + \beta_k)$ [kukanov2020, eq. 39–43].

    $\psi_k = -g_k + v$ for a label that is on and $-g_k + u$ for one that is off, $g = \sigma(z)$, $u$ and $v$ the
    logarithmic means of $e^g$ over the labels that are on and off. A row whose labels are all on or all off has no
    competitors (0/0 in the paper): there $\psi_k = 1/2 - g_k$. It needs the labels, so it is for training only.

    Parameters
    ----------
    alpha : float or Tensor, default 1.0
        The slope α: a number, or a tensor with one per class.
    beta : float or Tensor, default 0.0
        The shift β: a number, or a tensor with one per class.

    See Also
    --------
    metricgrad.presets.mfom_f1 : The loss with this surrogate.

    Examples
    --------
    >>> UnitsVsZeros()(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))
    tensor([[0.5000, 0.5000]])
    """

    alpha: Number = 1.0
    beta: Number = 0.0
    takes_targets: ClassVar[bool] = True

    def __call__(  # type: ignore[override]
        self, logits: Tensor, targets: Tensor, mask: Tensor | None = None, threshold: float = 0.5
    ) -> Tensor:
        """Return memberships of ``(..., K)`` logits given their labels; what ``mask`` leaves out does not compete."""
        g = torch.sigmoid(logits)
        labels = targets.to(g.dtype)
        is_on = labels
        is_off = 1 - labels
        if mask is not None:
            is_on = is_on * mask
            is_off = is_off * mask
        number_on = is_on.sum(-1, keepdim=True)
        number_off = is_off.sum(-1, keepdim=True)
        has_no_competitor = (number_on == 0) | (number_off == 0)
        powers = torch.exp(g)
        mean_on = ratio((is_on * powers).sum(-1, keepdim=True), number_on)
        mean_off = ratio((is_off * powers).sum(-1, keepdim=True), number_off)
        # log of a safe 1 where there is no competitor, so that no gradient is 0·∞.
        u = mean_on.masked_fill(has_no_competitor, 1.0).log()
        v = mean_off.masked_fill(has_no_competitor, 1.0).log()
        competitor = torch.where(has_no_competitor, 0.5, (1 - labels) * u + labels * v)
        psi = competitor - g
        return 1 - torch.sigmoid(self.alpha * psi + self.beta)


if not TYPE_CHECKING:  # type checkers see the class itself
    __all__ = kinds_in(__name__)
