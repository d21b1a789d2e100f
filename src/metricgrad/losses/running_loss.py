"""``RunningLoss``: nearly the gradient of a large batch in one pass, by counts averaged over the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricgrad.core import processes
from metricgrad.core.counts import wide
from metricgrad.losses.hybrid_loss import HybridLoss
from metricgrad.losses.metric_loss import MetricLoss
from metricgrad.losses.torch_modes import without_autocast

if TYPE_CHECKING:
    from collections.abc import Mapping


class RunningLoss(nn.Module):
    r"""A metric loss at counts averaged over the steps: nearly the gradient of a large batch, in one pass.

    $\bar c_t = d\,\bar c_{t-1} + (1 - d)\,c_t$, divided by $1 - d^t$ so that the start does not count as zeros. The
    value is the loss at $\bar c_t$, the gradient $\partial L / \partial c$ there times that of the current counts. It
    is exact where the counts of a step are those of the average, and lags behind a model that moves fast. In evaluation
    mode it is the loss of the batch alone. Of a ``HybridLoss`` only the metric is averaged over the steps, since
    cross-entropy is a mean over samples in any batch.

    Parameters
    ----------
    loss : MetricLoss or HybridLoss
        The loss whose statistic is averaged; the warm-up of a ``HybridLoss`` goes on by its own ``step()``.
    decay : float, default 0.9
        d in [0, 1), a memory of about 1 / (1 − d) steps; with 0 it is the loss itself.

    Raises
    ------
    ValueError
        If ``loss`` is no ``MetricLoss`` or ``HybridLoss``, or ``decay`` is not in [0, 1).

    See Also
    --------
    exact_backward : The exact gradient, in two passes.

    Examples
    --------
    >>> loss = RunningLoss(MetricLoss("f1"), decay=0.9)
    >>> for _ in range(3):
    ...     value = loss(torch.tensor([2.0, -1.0, 0.0]), torch.tensor([1, 0, 1]))
    >>> value
    tensor(0.1892)
    """

    average: Tensor
    weight: Tensor

    def __init__(self, loss: MetricLoss | HybridLoss, decay: float = 0.9) -> None:
        super().__init__()
        if not isinstance(loss, MetricLoss | HybridLoss):
            raise ValueError(
                f"loss: expected a MetricLoss or HybridLoss, whose statistic adds, got {type(loss).__name__}"
            )
        if not 0 <= decay < 1:
            raise ValueError(f"decay: expected a number in [0, 1), got {decay!r}")
        self.loss = loss
        self.decay = decay
        self.register_buffer("average", torch.empty(0))
        self.register_buffer("weight", torch.zeros(()))

    @without_autocast
    def forward(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the loss at the running average of the counts; in evaluation mode, of the batch alone.

        Parameters
        ----------
        logits : Tensor
            Raw scores, never probabilities; the shape is that of the task.
        targets : Tensor
            0 and 1, soft labels in between, or class indices; the shape is that of the task.
        weight : Tensor, optional
            Per sample or per element.
        mask : Tensor, optional
            True for what counts.

        Returns
        -------
        Tensor
            A scalar, or one loss per class, ``(K,)``, for ``average=None``.
        """
        if not self.training:
            return self.loss(logits, targets, weight, mask)  # type: ignore[no-any-return]
        if isinstance(self.loss, MetricLoss):
            return self._compute_running_loss(self.loss, logits, targets, weight, mask)
        cross_entropy: Tensor = self.loss.cross_entropy(logits, targets, weight, mask)
        # Also while the metric has no weight yet: the average is then known when it is needed.
        metric_loss = self._compute_running_loss(self.loss.metric_loss, logits, targets, weight, mask)
        metric_weight = self.loss.current_metric_weight
        return cross_entropy if metric_weight == 0 else cross_entropy + metric_weight * metric_loss

    def _compute_running_loss(
        self, loss: MetricLoss, logits: Tensor, targets: Tensor, weight: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """Return a metric loss at the running average of its counts, which the batch enters."""
        group = processes.resolve(loss.process_group)
        statistic = processes.sum_statistic(loss.counts(logits, targets, weight, mask), group)
        cells = torch.stack(statistic.cells())
        current = wide(cells.detach())
        if not self.average.numel():
            self.average = torch.zeros_like(current)
        elif self.average.shape != current.shape:
            raise ValueError(
                f"logits: expected the classes of before, {self.average.shape[-1]}, got {current.shape[-1]}"
            )
        average = self.decay * self.average.to(current) + (1 - self.decay) * current
        total_weight = self.decay * self.weight + (1 - self.decay)
        # The value is that of the average; the gradient with respect to the current counts is that at the average.
        running_cells = (average / total_weight).to(cells) + (cells - cells.detach())
        # A batch that is not finite, which GradScaler skips, must not enter the average.
        is_finite = current.isfinite().all()
        self.average = torch.where(is_finite, average, self.average.to(current))
        self.weight = torch.where(is_finite, total_weight, self.weight)
        return 1 - loss.value(type(statistic)(*running_cells.unbind(0)))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(f"{prefix}average")
        if saved is not None:
            self.average = torch.empty_like(saved, device=self.average.device)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Return the decay, for ``repr``.

        Returns
        -------
        str
            ``decay=value``.
        """
        return f"decay={self.decay}"
