"""``HybridLoss``: cross-entropy plus a multiple of the metric loss.

A pure metric loss decides well at its threshold but ranks worse than cross-entropy, and a run that starts saturated
gets no gradient. The mix keeps the ranking and the gradient; ``warmup`` starts from cross-entropy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricgrad.core.option_hints import explain_unknown
from metricgrad.losses import baselines
from metricgrad.losses.logit_scale import trust_logits
from metricgrad.losses.metric_loss import MetricLoss, list_changed_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from metricgrad.core.batch import Task
    from metricgrad.core.costs import Cost
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average, EmptyClasses
    from metricgrad.core.objects import Background
    from metricgrad.core.processes import ProcessGroup


class HybridLoss(nn.Module):
    """Cross-entropy + ``metric_weight`` × metric loss.

    Cross-entropy is binary for the tasks "binary" and "multilabel", softmax for "multiclass", the mean over what
    counts, weighted as the metric is.

    Parameters
    ----------
    metric : MetricLoss, str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", a function of ``Counts`` (or ``Confusion``), or a
        complete ``MetricLoss``, which allows none of the options from ``task`` on.
    metric_weight : float, default 0.3
        The factor of the metric loss, at least 0.
    warmup : int, default 0
        During the first ``warmup`` calls of ``step()`` the factor grows from 0 to ``metric_weight``.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    surrogate : callable, optional
        The soft step that turns logits into memberships; one of ``mg.surrogates`` or a function of your own. By default
        ``Linear()``, for "multiclass" ``TopTwo()``.
    average : {'macro', 'micro', 'weighted', 'samples'}, default 'macro'
        How the values of the classes become one. "samples" is the mean over rows, for multi-label problems.
    threshold : float or sequence of float, default 0.5
        The threshold of a step on probabilities; with several, the loss is the mean over them.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    per_image : bool, default False
        Average the values of the samples, each with the counts of its own positions, instead of the value of all
        positions together: for dense predictions, logits ``(N, K, ...)``.
    per_object : {'full', 'shared'} or None, default None
        Average the values of the objects that ``instances`` numbers, each with the counts of its own positions, so that
        a small object weighs as much as a large one. An object's false positives are those of the background of its
        image: all of them ("full", as in blob loss), or a share in proportion to the object's size ("shared").
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If ``average`` is None, or a ``MetricLoss`` comes with further options.

    See Also
    --------
    MetricLoss : The metric loss alone.
    RunningLoss : The same with the counts of past steps, for small batches.

    Examples
    --------
    >>> loss = HybridLoss("f1", metric_weight=0.3)
    >>> loss(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.2457)
    """

    position: Tensor

    @explain_unknown
    def __init__(
        self,
        metric: MetricLoss | str | Metric,
        *,
        metric_weight: float = 0.3,
        warmup: int = 0,
        task: Task | None = None,
        surrogate: Callable[..., Tensor] | None = None,
        average: Average | None = "macro",
        threshold: float | Sequence[float] | Tensor = 0.5,
        labels: Iterable[int] | None = None,
        empty_classes: EmptyClasses = "count",
        per_image: bool = False,
        per_object: Background | None = None,
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        if not metric_weight >= 0:
            raise ValueError(f"metric_weight: expected a number of at least 0, got {metric_weight!r}")
        if warmup < 0:
            raise ValueError(f"warmup: expected a number of steps of at least 0, got {warmup!r}")
        options: dict[str, Any] = {
            "task": task,
            "surrogate": surrogate,
            "average": average,
            "threshold": threshold,
            "labels": labels,
            "empty_classes": empty_classes,
            "per_image": per_image,
            "per_object": per_object,
            "ignore_index": ignore_index,
            "process_group": process_group,
        }
        if isinstance(metric, MetricLoss):
            if given := list_changed_options(options):
                raise ValueError(
                    f"metric: a MetricLoss is complete, got also {', '.join(given)}; give these to MetricLoss"
                )
            self.metric_loss = metric
        else:
            self.metric_loss = MetricLoss(metric, **options)
        if self.metric_loss.average == "per-class":
            raise ValueError(
                "average: expected 'micro', 'macro', 'weighted' or 'samples', got None; the mix is one number: use "
                "MetricLoss for a loss per class"
            )
        self.metric_loss.objective.warns_of_vanished_gradient = False  # cross-entropy has a gradient there
        trust_logits(self.metric_loss)  # cross-entropy sees the same, and warns of probabilities
        make_cross_entropy: Any = baselines.cross_entropy if self.metric_loss.task == "multiclass" else baselines.bce
        self.cross_entropy = make_cross_entropy(
            task=self.metric_loss.declared_task,
            ignore_index=self.metric_loss.ignore_index,
            process_group=self.metric_loss.process_group,
        )
        self.metric_weight = metric_weight
        self.warmup = warmup
        self.register_buffer("position", torch.tensor(0))

    def step(self) -> None:
        """Advance the warm-up by one: call it once per optimizer step or epoch."""
        self.position.add_(1)

    @property
    def current_metric_weight(self) -> float:
        """The factor of the metric loss at the current step, a float."""
        if not self.warmup:
            return self.metric_weight
        progress = min(int(self.position) / self.warmup, 1.0)
        return self.metric_weight * progress

    def forward(
        self,
        logits: Tensor,
        targets: Tensor,
        weight: Tensor | None = None,
        mask: Tensor | None = None,
        instances: Tensor | None = None,
        *,
        costs: Cost | None = None,
    ) -> Tensor:
        """Return cross-entropy + metric_weight × metric loss.

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
        instances : Tensor of int, optional
            For ``per_object``, which object each positive position belongs to; see ``MetricLoss.forward``.
        costs : Cost, optional
            The costs of these rows, for costs that differ by row; they weigh the rows in the metric loss alone, so that
            cross-entropy keeps probabilities calibrated. See ``MetricLoss.forward``.

        Returns
        -------
        Tensor
            A scalar.
        """
        cross_entropy: Tensor = self.cross_entropy(logits, targets, weight, mask)
        metric_weight = self.current_metric_weight
        if metric_weight == 0:
            return cross_entropy
        metric_loss: Tensor = self.metric_loss(logits, targets, weight, mask, instances, costs=costs)
        return cross_entropy + metric_weight * metric_loss

    def extra_repr(self) -> str:
        """Return the factor and the warm-up, for ``repr``.

        Returns
        -------
        str
            Comma-separated ``name=value``.
        """
        warmup = f", warmup={self.warmup}" if self.warmup else ""
        return f"metric_weight={self.metric_weight}{warmup}"
