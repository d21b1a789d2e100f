"""``HybridLoss``: cross-entropy plus a share of the metric loss.

A pure metric loss decides well at its threshold but ranks worse than cross-entropy, and a run that starts saturated
gets no gradient. The mix keeps the ranking and the gradient; ``warmup`` starts from cross-entropy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricgrad.losses import baselines
from metricgrad.losses.metric import MetricLoss

if TYPE_CHECKING:
    from metricgrad.metrics import Metric


class HybridLoss(nn.Module):
    """Cross-entropy + ``share`` × metric loss.

    ``metric`` is a ``MetricLoss`` or what its first argument may be; then further keywords go to ``MetricLoss``.
    During the first ``warmup`` calls of ``step()`` the share grows from 0 to ``share``. Cross-entropy is binary for
    the tasks "binary" and "multilabel", softmax for "multiclass", the mean over what counts, weighted as the metric
    is.

    >>> loss = HybridLoss("f1", share=0.3)
    >>> loss(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.2457)
    """

    position: Tensor

    def __init__(
        self, metric: MetricLoss | str | Metric, *, share: float = 0.3, warmup: int = 0, **options: Any
    ) -> None:
        super().__init__()
        if not share >= 0:
            raise ValueError(f"share: expected a number of at least 0, got {share!r}")
        if warmup < 0:
            raise ValueError(f"warmup: expected a number of steps of at least 0, got {warmup!r}")
        if isinstance(metric, MetricLoss) and options:
            raise ValueError(f"options: a MetricLoss is complete, got also {', '.join(options)}")
        self.metric_loss = metric if isinstance(metric, MetricLoss) else MetricLoss(metric, **options)
        if self.metric_loss.average == "per-class":
            raise ValueError(
                "average: expected 'micro', 'macro', 'weighted' or 'samples', got None; the mix is one number: use "
                "MetricLoss for a loss per class"
            )
        alike = {name: getattr(self.metric_loss, name) for name in ("task", "ignore_index", "process_group")}
        entropy = baselines.cross_entropy if self.metric_loss.task == "multiclass" else baselines.bce
        self.cross_entropy = entropy(**alike)
        self.share, self.warmup = share, warmup
        self.register_buffer("position", torch.tensor(0))

    def step(self) -> None:
        """Move the warm-up on by one: call it once per optimiser step or epoch."""
        self.position += 1

    @property
    def current_share(self) -> float:
        """The metric loss's share at the present step."""
        return self.share if not self.warmup else self.share * min(int(self.position) / self.warmup, 1.0)

    def forward(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the mix, a scalar; arguments as for ``MetricLoss``."""
        entropy: Tensor = self.cross_entropy(logits, targets, weight, mask)
        share = self.current_share
        return entropy if share == 0 else entropy + share * self.metric_loss(logits, targets, weight, mask)

    def extra_repr(self) -> str:
        """Return the share and warm-up."""
        return f"share={self.share}" + (f", warmup={self.warmup}" if self.warmup else "")
