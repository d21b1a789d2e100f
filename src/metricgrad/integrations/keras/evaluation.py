"""``ExactMetric``: a metric of the hard counts of all batches together, as a metric of Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from metricgrad.core.batch import check_task
from metricgrad.core.counts import Confusion, Counts, Mean
from metricgrad.core.metrics import get, name_of
from metricgrad.core.objective import Objective
from metricgrad.core.surrogates import Hard
from metricgrad.integrations.keras import batch as batches
from metricgrad.integrations.keras.configs import from_config, to_config
from metricgrad.integrations.keras.losses import on_backend
from metricgrad.integrations.keras.surrogates import elements, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from metricgrad.core.batch import Task
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average, EmptyClasses


@keras.saving.register_keras_serializable(package="metricgrad")
class ExactMetric(keras.metrics.Metric):  # type: ignore[misc]
    """A metric of the predictions of all batches together, as a metric of Keras.

    Its state is the counts of everything since ``reset_state``, so the result is that of the whole data, as
    ``metricgrad.evaluate`` computes it, not a mean over batches. As in the losses, ``y_pred`` is always logits, with
    the classes in the last axis: a label is predicted where the probability reaches ``threshold``, a class of
    "multiclass" by argmax. Counts are exact up to 2^48 samples, in two float32 numbers each, on every backend.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, ..., K)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    threshold : float or sequence of float, default 0.5
        On the scale of probabilities, one for all or one per class. Not for "multiclass".
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    ignore_index : int, optional
        Targets of this value do not count.
    name : str, optional
        The name that Keras shows, by default that of the metric.
    dtype : str, optional
        The type to compute in, by default that of ``keras.config.floatx()``; counts are in float32 at least.

    Raises
    ------
    ValueError
        If an argument is unknown or two of them do not fit together, before any data is seen.

    See Also
    --------
    metricgrad.evaluate : The same of arrays, with other decision rules and curves.

    Examples
    --------
    >>> metric = ExactMetric("f1")
    >>> metric.update_state([1, 0], [2.0, -1.0])
    >>> metric.update_state([0, 1], [1.0, -1.0])
    >>> float(metric.result())
    0.5
    """

    def __init__(
        self,
        metric: str | Metric,
        *,
        task: Task | None = None,
        threshold: float | Sequence[float] = 0.5,
        average: Average | None = "macro",
        labels: Iterable[int] | None = None,
        empty_classes: EmptyClasses = "count",
        ignore_index: int | None = None,
        name: str | None = None,
        dtype: str | None = None,
    ) -> None:
        labels = None if labels is None else list(labels)
        self._objective = Objective(check_task(task), get(metric), average, labels, empty_classes)
        if task == "multiclass" and threshold != 0.5:
            raise ValueError(f"threshold: task='multiclass' decides by argmax and takes no threshold, got {threshold}")
        super().__init__(name=name or name_of(self._objective.metric), dtype=dtype)
        self._options = {
            "metric": metric,
            "task": task,
            "threshold": threshold,
            "average": average,
            "labels": labels,
            "empty_classes": empty_classes,
            "ignore_index": ignore_index,
        }
        self._total: Any = None
        if self._objective.task == "binary":
            self.build(1)

    def build(self, classes: int) -> None:
        """Make the state; the first batch does, which outside ``fit`` and ``evaluate`` must not be under ``jax.jit``.

        Parameters
        ----------
        classes : int
            The number of classes.
        """
        shape: tuple[int, ...] = (4, classes)
        if self._objective.of_matrix:
            shape = (1, classes, classes)
        elif self._objective.average == "samples":
            shape = (2,)
        dtype = batches.choose_dtype(self.dtype)
        # Two numbers for each cell: the sum, and the rounding error of that sum.
        self._total, self._rest = (
            self.add_variable(shape=shape, initializer="zeros", dtype=dtype, name=name) for name in ("total", "rest")
        )

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch.

        Parameters
        ----------
        y_true : array
            0 and 1, soft labels in between, or class indices; the shape is that of the task.
        y_pred : array
            Raw scores, never probabilities; the shape is that of the task.
        sample_weight : array, optional
            Per sample or per element.
        """
        task, declared, threshold = self._objective.task, self._options["task"], self._options["threshold"]
        ignored = self._options["ignore_index"]
        batch = batches.encode(declared, y_true, y_pred, sample_weight, None, ignored, self.dtype)  # type: ignore[arg-type]
        if self._total is None:
            self.build(batch.z.shape[-1])
        if task == "multiclass":
            m = rows(Hard(), batch.z)
        else:
            m = elements(Hard(), batch.z, ops.convert_to_tensor(threshold, dtype=batch.z.dtype))
        new = ops.stack(batches.count(m, batch, on_backend(self._objective, batch.z)).cells())
        old = ops.convert_to_tensor(self._total)
        total = old + new
        part = total - old
        self._rest.assign(self._rest + ((old - (total - part)) + (new - part)))
        self._total.assign(total)

    def result(self) -> Any:
        """Return the value of all batches together.

        Returns
        -------
        array
            A scalar, or one value per class, ``(K,)``, for ``average=None``; 0 before the first batch.
        """
        if self._total is None:
            return ops.zeros(())
        cells = ops.unstack(ops.convert_to_tensor(self._total) + ops.convert_to_tensor(self._rest))
        kind = {1: Confusion, 2: Mean, 4: Counts}[len(cells)]
        return on_backend(self._objective, cells[0]).value(kind(*cells))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments as plain values, for files.

        Returns
        -------
        dict
            Arguments by name.

        Raises
        ------
        ValueError
            If the metric is a function of your own that is not registered with Keras.
        """
        options = {name: to_config(name, value) for name, value in self._options.items()}
        return {**options, "name": self.name, "dtype": self.dtype}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ExactMetric:
        """Return the metric of a configuration.

        Parameters
        ----------
        config : dict
            What ``get_config`` returned.

        Returns
        -------
        ExactMetric
            A metric made alike, without batches.
        """
        return cls(**{name: from_config(name, value) for name, value in config.items()})
