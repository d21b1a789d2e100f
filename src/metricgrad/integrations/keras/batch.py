"""A batch as Keras gives it, as rows and classes, and its sums: the classes are the last axis.

Under ``jax.jit`` and ``tf.function`` values cannot be looked at: shapes are checked, labels and weights are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from keras import ops

from metricgrad.core.batch import check_evidently_binary, check_task
from metricgrad.core.counts import Confusion, Counts
from metricgrad.core.metrics.averages import mark_labels
from metricgrad.core.surrogates import UnitsVsZeros
from metricgrad.integrations.keras.functions import ratio
from metricgrad.integrations.keras.surrogates import elements, of_labels, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.core.batch import Task
    from metricgrad.core.objective import Objective


class KerasBatch(NamedTuple):
    """Logits, labels, weights and what counts (0 or 1), each ``(N, K)``; the last two may be ``(N, 1)``."""

    z: Any
    y: Any
    w: Any
    keep: Any


def encode(
    declared: Task | None, y_true: Any, y_pred: Any, weight: Any, mask: Any, ignore_index: int | None, dtype: str
) -> KerasBatch:
    """Check shapes and flatten to rows × classes; without a task it is "binary", if shapes allow no other reading."""
    task = check_task(declared)
    dtype = choose_dtype(dtype)
    masks = [m for m in (mask, getattr(y_pred, "_keras_mask", None)) if m is not None]
    z = ops.cast(ops.convert_to_tensor(y_pred), dtype)
    y = ops.cast(ops.convert_to_tensor(y_true), dtype)
    if declared is None:
        check_evidently_binary(_classes_second(z.shape), _classes_second(y.shape, len(z.shape)))
    z, y, indices = _align_shapes(task, z, y)
    keep = ops.ones_like(z[..., :1])
    for one in masks:
        given = _spread_weight("mask", ops.convert_to_tensor(one), z, task)
        keep = ops.where(ops.cast(given, "bool"), keep, 0.0)
    if ignore_index is not None:
        if task == "multiclass" and not indices:
            raise ValueError("ignore_index: expected class indices as y_true; for soft labels use a mask")
        keep = ops.where(y == ignore_index, 0.0, keep)
    w = keep
    if weight is not None:
        w = ops.where(
            keep > 0, _spread_weight("sample_weight", ops.cast(ops.convert_to_tensor(weight), dtype), z, task), 0.0
        )
    # where, not a product: what is masked may be NaN, or a label that is no label.
    z = ops.where(keep > 0, z, 0.0)
    y = ops.where(keep > 0, y, 0.0)
    if indices:
        y = ops.one_hot(ops.cast(y[..., 0], "int32"), z.shape[-1], dtype=dtype)
    return KerasBatch(*(ops.reshape(x, (-1, x.shape[-1])) for x in (z, y, w, keep)))


def _classes_second(shape: Sequence[int | None], axes: int | None = None) -> tuple[int, ...]:
    """Return a shape in torch's order, the classes in axis 1, if it has all axes; sizes not yet known are 0."""
    sizes = tuple(size or 0 for size in shape)
    return (sizes[0], sizes[-1], *sizes[1:-1]) if len(sizes) > 1 and len(sizes) == (axes or len(sizes)) else sizes


def choose_dtype(dtype: str) -> str:
    """Return the type to count in: float32 at least, since a bfloat16 sum stops growing at 256."""
    return dtype if dtype in ("float32", "float64") else "float32"


def _align_shapes(task: Task, z: Any, y: Any) -> tuple[Any, Any, bool]:
    """Return logits and labels with the classes as the last axis, and whether the labels are indices, of size 1."""
    shapes = f"got y_pred {tuple(z.shape)} and y_true {tuple(y.shape)}"
    if task == "binary":
        if len(z.shape) == len(y.shape) + 1 and z.shape[-1] == 1:
            z = z[..., 0]
        elif len(y.shape) == len(z.shape) + 1 and y.shape[-1] == 1:
            y = y[..., 0]
        if not _are_shapes_equal(z.shape, y.shape):
            raise ValueError(f"y_true: expected the shape of y_pred for task='binary', {shapes}")
        return z[..., None], y[..., None], False
    if len(z.shape) < 2 or not z.shape[-1]:
        raise ValueError(f"y_pred: expected (N, K) or (N, ..., K) for task={task!r}, {shapes}")
    if _are_shapes_equal(z.shape, y.shape):
        return z, y, False
    if task == "multiclass":
        if _are_shapes_equal(z.shape[:-1], y.shape):
            return z, y[..., None], True
        if _are_shapes_equal((*z.shape[:-1], 1), y.shape):
            return z, y, True
    wanted = "the shape of y_pred" + (", or class indices without its last axis," if task == "multiclass" else "")
    raise ValueError(f"y_true: expected {wanted} for task={task!r}, {shapes}")


def _are_shapes_equal(one: Sequence[int | None], other: Sequence[int | None]) -> bool:
    """Return whether two shapes are equal; a size that is not known while a graph is made fits any."""
    return len(one) == len(other) and all(a == b or a is None or b is None for a, b in zip(one, other, strict=True))


def _spread_weight(name: str, x: Any, z: Any, task: Task) -> Any:
    """Return a weight or mask, given per sample, position or element, as ``(..., 1)`` or ``(..., K)``."""
    given = tuple(x.shape)
    while len(x.shape) < len(z.shape):
        x = x[..., None]
    sizes = [*z.shape[:-1], z.shape[-1] if task == "multilabel" else 1]
    if len(given) > len(z.shape) or not all(a in (1, b) or None in (a, b) for a, b in zip(x.shape, sizes, strict=True)):
        raise ValueError(f"{name}: expected one per sample, position or element of y_pred, got shape {given}")
    return x * ops.ones_like(z[..., :1], dtype=x.dtype)


def compute_memberships(
    surrogate: Any, batch: KerasBatch, task: Task, thresholds: Sequence[float], leading: bool
) -> Any:
    """Return the memberships, ``(N, K)``, with the thresholds as a leading axis if they are one."""
    if task == "multiclass":
        return rows(surrogate, batch.z)
    if isinstance(surrogate, UnitsVsZeros):
        return of_labels(surrogate, batch.z, batch.y, batch.keep)
    if leading:
        return ops.stack([elements(surrogate, batch.z, threshold) for threshold in thresholds])
    return elements(surrogate, batch.z, thresholds[0])


def count(m: Any, batch: KerasBatch, objective: Objective) -> Any:
    """Sum memberships into the statistic of an objective: ``Counts``, ``Confusion``, or ``Mean`` over rows."""
    w = batch.w
    if objective.of_matrix:
        return Confusion(ops.matmul(ops.transpose(batch.y * w), m))
    row_weight = None
    axis = -2
    if objective.average == "samples":
        row_weight, w = _row_weights(batch, objective)
        axis = -1
    # Each cell is a sum of its own: a difference could be a rounding error where it should be 0.
    yes = w * batch.y
    no = w * (1 - batch.y)
    cells = (m * yes, m * no, (1 - m) * yes, (1 - m) * no)
    return objective.mean_of_rows(Counts(*(ops.sum(cell, axis=axis) for cell in cells)), row_weight)


def _row_weights(batch: KerasBatch, objective: Objective) -> tuple[Any, Any]:
    """Return the weight of each row, the mean weight of its labels that count, and the weights inside it."""
    counted = ops.ones_like(batch.z)
    if (labels := mark_labels(objective.labels, batch.z)) is not None:
        counted = counted * labels
    weight = batch.w * counted
    row = ratio(ops.sum(weight, axis=1), ops.sum(batch.keep * counted, axis=1))
    return row, ratio(weight, row[:, None])
