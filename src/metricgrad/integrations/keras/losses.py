"""``MetricLoss`` and ``HybridLoss`` as losses of Keras 3: on TensorFlow, JAX and torch."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import keras
import torch
from keras import ops

from metricgrad.integrations.keras import batch as batches
from metricgrad.integrations.keras.configs import from_config, to_config
from metricgrad.integrations.keras.functions import ratio
from metricgrad.losses.metric_loss import MetricLoss as TorchLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from metricgrad.core.batch import Task
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average, EmptyClasses
    from metricgrad.core.objective import Objective
    from metricgrad.integrations.keras.batch import KerasBatch


class _Given(keras.losses.Loss):  # type: ignore[misc]
    """A loss that was computed already: Keras reduces it, over the replicas of a strategy as well."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return y_pred


@keras.saving.register_keras_serializable(package="metricgrad")
class MetricLoss(keras.losses.Loss):  # type: ignore[misc]
    """1 − a metric of soft counts, as a loss of Keras.

    The same as ``metricgrad.MetricLoss``, in Keras's conventions: ``loss(y_true, y_pred, sample_weight)``, with the
    classes in the last axis. ``y_pred`` is always logits, never probabilities: the last layer has no activation. The
    loss is one number of the whole batch; the weights of samples enter its counts.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, ..., K)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    surrogate : callable, optional
        The soft step that turns logits into memberships; one of ``mg.surrogates`` or a function of your own, written
        in ``keras.ops``. By default ``Linear()``, for "multiclass" ``TopTwo()``.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    threshold : float or sequence of float, default 0.5
        The threshold of a step on probabilities; with several, the loss is the mean over them.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    ignore_index : int, optional
        Targets of this value do not count.
    reduction : str or None, default 'sum_over_batch_size'
        Keras's. The loss is one number already, which it leaves as it is; with ``average=None`` it says what becomes of
        the losses of the classes: their mean, their "sum", or None to keep them.
    name : str, default 'metric_loss'
        The name that Keras shows.
    dtype : str, optional
        The type to compute in, by default that of ``keras.config.floatx()``; counts are in float32 at least.

    Raises
    ------
    ValueError
        If an argument is unknown or two of them do not fit together, before any data is seen.

    See Also
    --------
    metricgrad.MetricLoss : The loss in torch, which checks values too and is exact over several processes.

    Examples
    --------
    >>> loss = MetricLoss("f1")
    >>> round(float(loss([1, 0, 1], [2.0, -1.0, 0.0])), 4)
    0.1892
    """

    def __init__(
        self,
        metric: str | Metric,
        *,
        task: Task | None = None,
        surrogate: Callable[..., Any] | None = None,
        average: Average | None = "macro",
        threshold: float | Sequence[float] = 0.5,
        labels: Iterable[int] | None = None,
        empty_classes: EmptyClasses = "count",
        ignore_index: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        name: str = "metric_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if isinstance(surrogate, torch.nn.Module):
            raise ValueError(
                f"surrogate: expected a fixed one, got {type(surrogate).__name__}, which changes in training by torch; "
                "use metricgrad.MetricLoss"
            )
        labels = None if labels is None else list(labels)
        # The loss in torch checks the arguments, and has the same meaning.
        self._torch = TorchLoss(
            metric,
            task=task,
            surrogate=surrogate,
            average=average,
            threshold=threshold,
            labels=labels,
            empty_classes=empty_classes,
            ignore_index=ignore_index,
        )
        self._options = {
            "metric": metric,
            "task": task,
            "surrogate": surrogate,
            "average": average,
            "threshold": threshold,
            "labels": labels,
            "empty_classes": empty_classes,
            "ignore_index": ignore_index,
        }
        self._reduced = _Given(name=name, reduction=reduction, dtype=batches.choose_dtype(self.dtype))

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None) -> Any:
        """Return the loss of a batch; a mask (True counts) may also come with ``y_pred``, as Keras's layers attach it.

        Parameters
        ----------
        y_true : array
            0 and 1, soft labels in between, or class indices; the shape is that of the task.
        y_pred : array
            Raw scores, never probabilities; the shape is that of the task.
        sample_weight : array, optional
            Per sample or per element.
        mask : array of bool, optional
            True for what counts.

        Returns
        -------
        array
            A scalar, or for ``average=None`` and ``reduction=None`` one loss per class, ``(K,)``.

        Raises
        ------
        ValueError
            If shapes do not fit the task.
        """
        own = self._torch
        loss = self._of(
            batches.encode(own.declared_task, y_true, y_pred, sample_weight, mask, own.ignore_index, self.dtype)
        )
        if self.reduction in (None, "none"):
            return loss
        return self._reduced(loss, loss[None] if not loss.shape else loss)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Return the loss of a batch without weights, not reduced.

        Parameters
        ----------
        y_true : array
            As in calling the loss.
        y_pred : array
            As in calling the loss.

        Returns
        -------
        array
            A scalar, or one loss per class, ``(K,)``, for ``average=None``.
        """
        own = self._torch
        return self._of(batches.encode(own.declared_task, y_true, y_pred, None, None, own.ignore_index, self.dtype))

    def _of(self, batch: KerasBatch) -> Any:
        own = self._torch
        objective = on_backend(own.objective, batch.z)
        m = batches.compute_memberships(own.surrogate, batch, own.task, own.thresholds, objective.has_threshold_axis)
        return 1 - objective.value(batches.count(m, batch, objective))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments as plain values, for files.

        Returns
        -------
        dict
            Arguments by name.

        Raises
        ------
        ValueError
            If the metric or surrogate is a function of your own that is not registered with Keras.
        """
        options = {name: to_config(name, value) for name, value in self._options.items()}
        return {**options, "reduction": self.reduction, "name": self.name, "dtype": self.dtype}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> MetricLoss:
        """Return the loss of a configuration.

        Parameters
        ----------
        config : dict
            What ``get_config`` returned.

        Returns
        -------
        MetricLoss
            A loss made alike.
        """
        return cls(**{name: from_config(name, value) for name, value in config.items()})


@keras.saving.register_keras_serializable(package="metricgrad")
class HybridLoss(MetricLoss):
    """Cross-entropy + ``metric_weight`` × metric loss, as a loss of Keras.

    The same as ``metricgrad.HybridLoss``, in Keras's conventions; see ``MetricLoss`` for these. Cross-entropy is
    binary for the tasks "binary" and "multilabel", softmax for "multiclass", the mean over what counts, weighted as
    the metric is.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    metric_weight : float, default 0.3
        The factor of the metric loss, at least 0. It stays as it is: a compiled step cannot see it change.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, ..., K)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    surrogate : callable, optional
        The soft step that turns logits into memberships; one of ``mg.surrogates`` or a function of your own, written
        in ``keras.ops``. By default ``Linear()``, for "multiclass" ``TopTwo()``.
    average : {'macro', 'micro', 'weighted', 'samples'}, default 'macro'
        How the values of the classes become one. "samples" is the mean over rows, for multi-label problems.
    threshold : float or sequence of float, default 0.5
        The threshold of a step on probabilities; with several, the loss is the mean over them.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    ignore_index : int, optional
        Targets of this value do not count.
    reduction : str or None, default 'sum_over_batch_size'
        Keras's. The loss is one number already, which it leaves as it is.
    name : str, default 'hybrid_loss'
        The name that Keras shows.
    dtype : str, optional
        The type to compute in, by default that of ``keras.config.floatx()``; counts are in float32 at least.

    Raises
    ------
    ValueError
        If ``average`` is None, or ``metric_weight`` is negative.

    See Also
    --------
    MetricLoss : The metric loss alone.

    Examples
    --------
    >>> loss = HybridLoss("f1", metric_weight=0.3)
    >>> round(float(loss([1, 0], [2.0, -1.0])), 4)
    0.2457
    """

    def __init__(
        self,
        metric: str | Metric,
        *,
        metric_weight: float = 0.3,
        task: Task | None = None,
        surrogate: Callable[..., Any] | None = None,
        average: Average | None = "macro",
        threshold: float | Sequence[float] = 0.5,
        labels: Iterable[int] | None = None,
        empty_classes: EmptyClasses = "count",
        ignore_index: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        name: str = "hybrid_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(
            metric,
            task=task,
            surrogate=surrogate,
            average=average,
            threshold=threshold,
            labels=labels,
            empty_classes=empty_classes,
            ignore_index=ignore_index,
            reduction=reduction,
            name=name,
            dtype=dtype,
        )
        if not metric_weight >= 0:
            raise ValueError(f"metric_weight: expected a number of at least 0, got {metric_weight!r}")
        if self._torch.objective.is_vector:
            raise ValueError(
                "average: expected 'micro', 'macro', 'weighted' or 'samples', got None; the mix is one number: use "
                "MetricLoss for a loss per class"
            )
        self._options["metric_weight"] = metric_weight

    def _of(self, batch: KerasBatch) -> Any:
        if self._torch.task == "multiclass":
            terms = -ops.sum(batch.y * ops.log_softmax(batch.z, axis=-1), axis=-1, keepdims=True)
        else:
            terms = ops.softplus(batch.z) - batch.y * batch.z
        weights = batch.w * ops.ones_like(terms)
        entropy = ratio(ops.sum(terms * weights), ops.sum(weights))
        return entropy + self._options["metric_weight"] * super()._of(batch)


def on_backend(objective: Objective, like: Any) -> Objective:
    """Return an objective whose metric's arguments, such as one β per class, are arrays of Keras's backend."""
    metric = objective.metric
    if not isinstance(metric, partial):
        return objective
    fixed = {
        name: ops.convert_to_tensor(value.tolist(), dtype=like.dtype) if hasattr(value, "tolist") else value
        for name, value in metric.keywords.items()
    }
    objective = copy.copy(objective)
    objective.metric = partial(metric.func, *metric.args, **fixed)
    return objective
