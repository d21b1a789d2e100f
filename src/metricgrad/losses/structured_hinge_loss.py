"""``StructuredHingeLoss``: SVMperf's loss, the margin-rescaled hinge over all labellings of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from metricgrad.core import processes
from metricgrad.core.batch import Batch, Task, check_task, encode
from metricgrad.core.counts import compute_dtype
from metricgrad.core.metrics import Metric, get, name_of, of_counts
from metricgrad.losses.logit_scale import TakesLogits
from metricgrad.losses.torch_modes import is_traced, without_autocast
from metricgrad.losses.worst_labelling import WorstLabelling, find_worst_labelling

if TYPE_CHECKING:
    from metricgrad.core.processes import ProcessGroup

MAX_COPIES = 1 << 25
"""The largest sum of the weights of a class: more repeated samples would take over a gigabyte."""


class LabellingLoss(TakesLogits):
    """Base class of the losses over whole labellings: the mean over the classes of the values of ``find_worst``.

    Labellings are not sums, so with ``process_group`` the processes gather their rows: with N rows of K classes on all
    of them together each receives N·K logits, as many targets, and weights if given, 5 to 16 bytes an element, and each
    does the work for all; the backward pass adds N·K numbers.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    task : {'binary', 'multilabel'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. None is "binary" if the shapes leave no other reading, else an error.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.
    """

    def __init__(
        self,
        metric: str | Metric,
        *,
        task: Task | None = None,
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.task = check_task(task)
        self.declared_task = task
        if task == "multiclass":
            raise ValueError("task: expected 'binary' or 'multilabel' (a labelling is of one class), got 'multiclass'")
        self.metric = get_count_metric(metric)
        self.ignore_index = ignore_index
        self.process_group = process_group

    def find_worst(self, scores: Tensor, labels: Tensor, column: int) -> WorstLabelling:
        """Return the labelling, or the mean of several, that gives the loss of one class.

        Parameters
        ----------
        scores : Tensor
            The logits of the class, ``(n,)``.
        labels : Tensor
            Its labels, bool, ``(n,)``.
        column : int
            The class, for a metric with parameters per class.

        Returns
        -------
        WorstLabelling
            The loss without its part in the scores, and the derivative with respect to the scores.
        """
        raise NotImplementedError

    @_disable_dynamo  # a search that depends on values cannot be compiled
    @without_autocast
    def forward(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the loss, the mean over the classes.

        Parameters
        ----------
        logits : Tensor
            Raw scores, never probabilities; the shape is that of the task.
        targets : Tensor
            0 and 1; the shape is that of the task.
        weight : Tensor, optional
            Per sample or per element.
        mask : Tensor, optional
            True for what counts.

        Returns
        -------
        Tensor
            A scalar.

        Raises
        ------
        ValueError
            If targets are soft labels or weights are no whole numbers: a sample of weight 2 occurs twice.
        """
        if not is_traced(logits):
            self._check_scale(logits)
        batch = encode(self.declared_task, logits, targets, weight, mask, self.ignore_index)
        if batch.logits.is_meta:
            raise ValueError("logits: expected numbers to search among, got the meta device, which has none; use 'cpu'")
        group = processes.resolve(self.process_group)
        if group is not None:
            batch = processes.join_batches(batch, group)
        z = batch.logits.to(compute_dtype(batch.logits))
        scores = z.detach()
        labels = _read_labels(batch)
        copies = _count_copies(batch)
        slope = torch.zeros_like(scores)
        loss = scores.new_zeros(())
        for k in range(z.shape[1]):
            if copies is None:
                found = self.find_worst(scores[:, k], labels[:, k], k)
                slope[:, k] = found.slope
            else:
                copies_of_class = copies[:, min(k, copies.shape[1] - 1)]
                rows = torch.arange(len(z), device=z.device).repeat_interleave(copies_of_class)
                found = self.find_worst(scores[rows, k], labels[rows, k], k)
                slope[:, k] = slope[:, k].index_add(0, rows, found.slope.to(z.dtype))
            loss = loss + found.loss.to(z.dtype)
        # Linear in the logits for the labelling found: this is the value, and its slope a subgradient.
        return (loss + (slope * z).sum()) / z.shape[1]

    def extra_repr(self) -> str:
        """Return the metric and the options, for ``repr``.

        Returns
        -------
        str
            Comma-separated.
        """
        ignored = "" if self.ignore_index is None else f", ignore_index={self.ignore_index}"
        return f"{name_of(self.metric)}, task={self.task!r}{ignored}"


class StructuredHingeLoss(LabellingLoss):
    r"""The margin-rescaled hinge of a metric over all labellings of the batch [joachims2005, problem 2].

    $L = \max_{\hat y\in\{0,1\}^n} 1 - \text{metric}(\hat y) + \sum_i (\hat y_i - y_i) z_i / n$ with labels 0/1: convex
    in the logits, an upper bound of 1 − metric of the decision z > 0, and exact in value and subgradient, which is
    $(\hat y_i - y_i)/n$. For "multilabel" each class has a loss of its own and the mean is returned. Targets are 0 or
    1, n is the number of samples that count. Weights must be whole numbers, and a sample of weight 2 occurs twice:
    other weights would make the maximum a knapsack problem.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts``.
    task : {'binary', 'multilabel'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. None is "binary" if the shapes leave no other reading, else an error.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If the metric is one of the d×d matrix, or for ``task="multiclass"``.

    See Also
    --------
    AdversarialLoss : The same with a predictor that may randomise.
    LinearSVMPerf : A linear classifier trained on this loss.

    Notes
    -----
    Labellings are not sums: with ``process_group`` the processes gather their rows, and each does the work for all.

    Examples
    --------
    >>> loss = StructuredHingeLoss("f1")
    >>> loss(torch.tensor([2.0, -1.0, 0.5, -3.0]), torch.tensor([1, 0, 1, 0]))
    tensor(0.3750)
    """

    def find_worst(self, scores: Tensor, labels: Tensor, column: int) -> WorstLabelling:
        """Return the labelling of largest 1 − metric plus score.

        Parameters
        ----------
        scores : Tensor
            The logits of the class, ``(n,)``.
        labels : Tensor
            Its labels, bool, ``(n,)``.
        column : int
            The class, for a metric with parameters per class.

        Returns
        -------
        WorstLabelling
            The loss without its part in the scores, and the derivative with respect to the scores.
        """
        return find_worst_labelling(self.metric, scores, labels, column)


def get_count_metric(metric: str | Metric) -> Metric:
    """Return a metric of ``Counts`` by name, or raise."""
    found = get(metric)
    if not of_counts(found):
        raise ValueError(f"metric: {name_of(found)} is of the d×d matrix; expected a function of Counts")
    return found


def _read_labels(batch: Batch) -> Tensor:
    y = batch.targets.detach()
    if not ((y == 0) | (y == 1)).all():
        raise ValueError("targets: expected 0 or 1, a labelling has no soft labels; round them or use MetricLoss")
    return y == 1


def _count_copies(batch: Batch) -> Tensor | None:
    """Return how often each sample counts, or None for once."""
    if batch.weight is None:
        return None
    w = batch.weight.detach()
    if not (w == w.round()).all():
        raise ValueError("weight: expected whole numbers, which repeat samples (others make a knapsack), got fractions")
    total = w.double().sum(0)
    if total.numel() and not total.max() <= MAX_COPIES:
        raise ValueError(
            f"weight: expected whole numbers of at most {MAX_COPIES} in all, since they repeat samples, got "
            f"{total.max().item():g}; divide them by a common number, or use MetricLoss, which takes any weights"
        )
    return w.long()
