"""``PerClassLoss``: base class of the losses of scores that have one value per class, which is then averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from metricgrad.counts import compute_dtype, wide
from metricgrad.engine import distributed
from metricgrad.engine.batch import check_task, encode
from metricgrad.losses.modes import tracing, without_autocast
from metricgrad.metrics.averages import check_average, class_weights, mean_over_classes

if TYPE_CHECKING:
    from metricgrad.engine.batch import Task
    from metricgrad.engine.distributed import ProcessGroup
    from metricgrad.metrics.averages import Average


class PerClassLoss(nn.Module):
    """Base class of the losses of scores: one loss per class, from ``losses``, and its average over the classes.

    A ranking is not a sum, so with ``process_group`` the processes gather their rows: with N rows of K classes on all
    of them together each receives N·K logits, as many targets, and weights if given, 5 to 16 bytes an element, and each
    does the work for all; the backward pass adds N·K numbers. ``AUROCLoss`` alone adds sums instead.

    Parameters
    ----------
    task : {'binary', 'multilabel'}
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
    average : {'macro', 'micro', 'weighted'} or None
        How the values of the classes become one. None returns one per class.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.
    """

    additive: ClassVar[bool] = False
    """Whether ``losses`` sums over the processes itself, with ``total``; otherwise it receives the rows of all."""

    def __init__(
        self, task: Task, average: Average | None, ignore_index: int | None, process_group: ProcessGroup | None = None
    ) -> None:
        super().__init__()
        self.task = check_task(task)
        if task == "multiclass":
            raise ValueError("task: expected 'binary' or 'multilabel', got 'multiclass'; use one-hot targets")
        self.average = check_average(average)
        if average == "samples":
            raise ValueError("average: expected 'micro', 'macro', 'weighted' or None, got 'samples'")
        self.ignore_index, self.process_group = ignore_index, process_group

    @without_autocast
    def forward(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the loss.

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
        batch = encode(self.task, logits, targets, weight, mask, self.ignore_index, not tracing(logits))
        group = distributed.resolve(self.process_group)
        if group is not None and not self.additive:
            batch = distributed.joined(batch, group)
        dtype = compute_dtype(batch.logits)
        z, wy = batch.logits.to(dtype), wide(batch.targets)
        wn = 1 - wy
        if batch.weight is not None:
            w = wide(batch.weight)
            wy, wn = w * wy, w * wn
        if self.average == "micro":
            z, wy, wn = z.reshape(-1, 1), wy.reshape(-1, 1), wn.reshape(-1, 1)
        losses = self.losses(z, wy, wn).to(dtype)
        if self.average == "per-class":
            return losses
        positives = wy.sum(0).to(dtype)
        if self.average == "weighted":
            (positives,) = self.total(positives)
        return mean_over_classes(losses, class_weights(self.average, positives))

    def total(self, *sums: Tensor) -> tuple[Tensor, ...]:
        """Return sums over the rows of this process as sums over the rows of all processes.

        Parameters
        ----------
        *sums : Tensor
            Sums over the rows of this process.

        Returns
        -------
        tuple of Tensor
            The same, summed over the processes if the loss is additive.
        """
        group = distributed.resolve(self.process_group) if self.additive else None
        return sums if group is None else distributed.summed(sums, group)

    def losses(self, z: Tensor, wy: Tensor, wn: Tensor) -> Tensor:
        """Return the loss of each class.

        Weights, soft labels and masks are all in ``wy`` and ``wn``; what is masked has two zeros.

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
            One loss per class, ``(K,)``.
        """
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Return the options that are not the default, for ``repr``.

        Returns
        -------
        str
            Comma-separated ``name=value``.
        """
        average = None if self.average == "per-class" else self.average
        options = [
            ("task", self.task, "binary"),
            ("average", average, "macro"),
            ("ignore_index", self.ignore_index, None),
        ]
        return ", ".join(f"{name}={value!r}" for name, value, default in options if value != default)
