"""``PerClassLoss``: base class of the losses of scores that have one value per class, which is then averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import torch
from torch import Tensor

from metricgrad.core import processes
from metricgrad.core.batch import check_task, encode
from metricgrad.core.counts import compute_dtype, wide
from metricgrad.core.metrics.averages import check_average, check_of_classes, class_weights, mean_over_classes
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.losses.logit_scale import TakesLogits
from metricgrad.losses.torch_modes import is_traced, without_autocast

if TYPE_CHECKING:
    from metricgrad.core.batch import Task
    from metricgrad.core.metrics.averages import Average
    from metricgrad.core.processes import ProcessGroup

MultiClass = Literal["ovr", "ovo"]
"""Which samples are a class's negatives: those of all other classes (one against the rest), or of one other class."""


class PerClassLoss(TakesLogits):
    """Base class of the losses of scores: one loss per class, by ``compute_losses``, and its average over the classes.

    The scores of a multi-class problem are the log-odds of each class against all others, whose sigmoid is the softmax:
    from there on a class is a label.

    A ranking is not a sum, so with ``process_group`` the processes gather their rows: with N rows of K classes on all
    of them together each receives N·K logits, as many targets, and weights if given, 5 to 16 bytes an element, and each
    does the work for all; the backward pass adds N·K numbers. ``AUROCLoss`` alone adds sums instead.

    Parameters
    ----------
    task : {'binary', 'multilabel', 'multiclass'} or None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    average : {'macro', 'micro', 'weighted'} or None
        How the values of the classes become one. None returns one per class.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.
    multi_class : {'ovr', 'ovo'}, default 'ovr'
        For "multiclass": each class against all others, "ovr", or against each other class, "ovo", from
        ``compute_pair_losses``.
    """

    adds_over_rows: ClassVar[bool] = False
    """Whether ``compute_losses`` sums over the processes itself; otherwise it receives the rows of all of them."""

    def __init__(
        self,
        task: Task | None,
        average: Average | None,
        ignore_index: int | None,
        process_group: ProcessGroup | None = None,
        multi_class: MultiClass = "ovr",
    ) -> None:
        super().__init__()
        self.task = check_task(task)
        self.declared_task = task
        self.average = check_average(average)
        check_of_classes(self.task, self.average)
        if average == "samples":
            raise ValueError("average: expected 'micro', 'macro', 'weighted' or None, got 'samples'")
        if multi_class not in get_args(MultiClass):
            raise ValueError(f"multi_class: expected 'ovr' or 'ovo', got {multi_class!r}")
        if multi_class == "ovo" and task != "multiclass":
            raise ValueError(f"multi_class: 'ovo' is for task='multiclass', got task={task!r}; leave it out")
        if multi_class == "ovo" and average == "micro":
            raise ValueError("average: expected 'macro', 'weighted' or None with multi_class='ovo', got 'micro'")
        self.multi_class = multi_class
        self.ignore_index = ignore_index
        self.process_group = process_group

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
        traced = is_traced(logits)
        if not traced:
            self._check_scale(logits)
        batch = encode(self.declared_task, logits, targets, weight, mask, self.ignore_index, not traced)
        group = processes.resolve(self.process_group)
        if group is not None and not self.adds_over_rows:
            batch = processes.join_batches(batch, group)
        dtype = compute_dtype(batch.logits)
        z = batch.logits.to(dtype)
        y = batch.targets
        has_indices = y.dim() == 1
        if self.task == "multiclass":
            z = log_odds(z)
            y = one_hot(y, z.shape[1]) if has_indices else y
        positive_weight = wide(y)
        negative_weight = 1 - positive_weight
        if batch.weight is not None:
            weight = wide(batch.weight)
            positive_weight = weight * positive_weight
            negative_weight = weight * negative_weight
        if self.multi_class == "ovo":
            pair_losses = self.compute_pair_losses(z, positive_weight, batch.targets if has_indices else None)
            return self._mean_over_pairs(pair_losses, positive_weight.sum(0)).to(dtype)
        if self.average == "micro":
            z = z.reshape(-1, 1)
            positive_weight = positive_weight.reshape(-1, 1)
            negative_weight = negative_weight.reshape(-1, 1)
        losses = self.compute_losses(z, positive_weight, negative_weight).to(dtype)
        if self.average == "per-class":
            return losses
        positives = positive_weight.sum(0).to(dtype)
        if self.average == "weighted":
            (positives,) = self.sum_over_processes(positives)
        return mean_over_classes(losses, class_weights(self.average, positives))

    def _mean_over_pairs(self, losses: Tensor, positives: Tensor) -> Tensor:
        """Average the losses of the pairs, ``(K, K)``, over two different classes each."""
        pair_weight = 1 - torch.eye(len(losses), dtype=losses.dtype, device=losses.device)
        if self.average == "per-class":
            return ratio((losses * pair_weight).sum(1), pair_weight.sum(1))
        if self.average == "weighted":  # by the share of the samples that are of either class
            (positives,) = self.sum_over_processes(positives.to(losses.dtype))
            pair_weight = pair_weight * (positives.unsqueeze(1) + positives)
        return ratio((losses * pair_weight).sum(), pair_weight.sum())

    def sum_over_processes(self, *sums: Tensor) -> tuple[Tensor, ...]:
        """Return sums over the rows of this process as sums over the rows of all processes.

        Parameters
        ----------
        *sums : Tensor
            Sums over the rows of this process.

        Returns
        -------
        tuple of Tensor
            The same, summed over the processes if the loss adds over rows.
        """
        group = processes.resolve(self.process_group) if self.adds_over_rows else None
        return sums if group is None else processes.sum_cells(sums, group)

    def compute_losses(self, z: Tensor, positive_weight: Tensor, negative_weight: Tensor) -> Tensor:
        """Return the loss of each class.

        Weights, soft labels and masks are all in the two weights; what is masked has two zeros.

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
            One loss per class, ``(K,)``.
        """
        raise NotImplementedError

    def compute_pair_losses(self, z: Tensor, positive_weight: Tensor, index: Tensor | None) -> Tensor:
        """Return the loss of each class on the samples of that class and of one other.

        Parameters
        ----------
        z : Tensor
            The log-odds of each class, ``(N, K)``.
        positive_weight : Tensor
            The weight with which each sample is of each class, ``(N, K)``.
        index : Tensor, optional
            The class of each sample, ``(N,)``; None for soft labels.

        Returns
        -------
        Tensor
            ``(K, K)``: the positives are of the row's class, the negatives of the column's. The diagonal does not
            count.
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
            ("multi_class", self.multi_class, "ovr"),
            ("average", average, "macro"),
            ("ignore_index", self.ignore_index, None),
        ]
        return ", ".join(f"{name}={value!r}" for name, value, default in options if value != default)


def log_odds(z: Tensor) -> Tensor:
    """Return log p/(1 − p) of the softmax p of each row, exactly also where p is nearly 1."""
    if z.shape[1] == 1:  # there is only one class: nothing to rank
        return z
    is_largest = one_hot(z.argmax(1), z.shape[1])
    log_total = z.logsumexp(1, keepdim=True)
    # For the largest p, 1 − p could be a difference of nearly equal numbers; all others are at most ½.
    log_others_of_largest = z.masked_fill(is_largest, -torch.inf).logsumexp(1, keepdim=True)
    p = (z - log_total).exp().masked_fill(is_largest, 0.0)
    log_others = log_total + torch.log1p(-p)
    return z - torch.where(is_largest, log_others_of_largest, log_others)


def one_hot(y: Tensor, classes: int) -> Tensor:
    """Return class indices as bool ``(N, K)``; a comparison, since F.one_hot reads values back."""
    return y.unsqueeze(1) == torch.arange(classes, device=y.device)
