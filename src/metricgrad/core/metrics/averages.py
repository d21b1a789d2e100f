"""Averages: how the values of K classes become one.

micro pools the cells, macro is the mean over classes, weighted the mean weighted by the number of positives, samples
the mean over rows (each row's labels being its cells), None keeps one value per class. The sigmoidF1 paper calls
micro "macro" and macro "micro" (its eq. 9 and 10); the names here are those of scikit-learn.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from metricgrad.core.array_functions import constant, functions_of
from metricgrad.core.counts import Mean, compute_dtype
from metricgrad.core.metrics.derivatives import is_zero, ratio

Average = Literal["micro", "macro", "weighted", "samples", "per-class"]
Averaged = Literal["micro", "macro", "weighted", "samples"]
"""An average that makes one number of all classes."""
EmptyClasses = Literal["count", "skip"]


def check_average(average: str | None) -> Average:
    """Return the average (None is "per-class"), or raise."""
    if average is None:
        return "per-class"
    if average not in get_args(Average):
        known = ", ".join(map(repr, get_args(Average)))
        raise ValueError(f"average: expected one of {known} or None, got {average!r}")
    return average  # type: ignore[return-value]


def check_empty_classes(empty_classes: str) -> EmptyClasses:
    """Return the policy for classes without positives, or raise."""
    if empty_classes not in get_args(EmptyClasses):
        raise ValueError(f"empty_classes: expected 'count' or 'skip', got {empty_classes!r}")
    return empty_classes  # type: ignore[return-value]


def check_of_classes(task: str, average: Average, labels: tuple[int, ...] | None = None) -> None:
    """Refuse options over classes where there is one class, and they would have no effect."""
    if task != "binary":
        return
    several = "leave it out, or pass task='multilabel' or 'multiclass' if there are several"
    if average != "macro":
        given = None if average == "per-class" else average
        raise ValueError(f"average: expected 'macro' for the one class of task='binary', got {given!r}; {several}")
    if labels is not None:
        raise ValueError(f"labels: expected None for the one class of task='binary', got {list(labels)}; {several}")


def check_labels(labels: tuple[int, ...] | None, classes: int) -> None:
    """Raise if a label is not below the number of classes."""
    if labels is None or max(labels) < classes:
        return
    if classes == 1:
        raise ValueError(
            f"labels: expected None for one class, whose positives are evaluated, got {list(labels)}; leave labels= out"
        )
    raise ValueError(f"labels: expected class indices below {classes}, got {max(labels)}")


def mark_labels(labels: tuple[int, ...] | None, like: Tensor) -> Tensor | None:
    """Return ``labels`` as a 0/1 vector over the classes of ``like``'s last axis."""
    if labels is None:
        return None
    classes = like.shape[-1]
    check_labels(labels, classes)
    return constant([float(k in labels) for k in range(classes)], like)  # type: ignore[no-any-return]


def pool(cell: Tensor, labels: tuple[int, ...] | None = None) -> Tensor:
    """Return the sum of a cell over all classes, ``(..., K) -> (...)``, for the micro average."""
    counted = mark_labels(labels, cell)
    kept = cell if counted is None else cell * counted
    return functions_of(cell).sum(kept, -1)  # type: ignore[no-any-return]


def class_weights(
    average: Average, positives: Tensor, labels: tuple[int, ...] | None = None, empty_classes: EmptyClasses = "count"
) -> Tensor:
    """Return the weight of each class in the macro or weighted average, ``(..., K)``, summing to one (or to zero)."""
    counted = mark_labels(labels, positives)
    f = functions_of(positives)
    if average == "weighted":
        weights = positives
    elif empty_classes == "skip":
        # NaN is not zero, so that it shows in the result.
        weights = f.where(is_zero(positives), 0.0, f.ones_like(positives))
    else:
        weights = f.ones_like(positives)
    if counted is not None:
        weights = weights * counted
    return ratio(weights, f.sum(weights, -1, keepdim=True))


def mean_over_classes(values: Tensor, weights: Tensor) -> Tensor:
    """Return Σ weights·values over the last axis; a class of weight zero is left out, even if its value is NaN."""
    f = functions_of(values)
    counted = f.where(weights > 0, values, 0.0)
    return f.sum(counted * weights, -1)  # type: ignore[no-any-return]


def mean_of(state: Mean) -> Tensor:
    """Return the value of a running mean; 0 when nothing was counted."""
    return ratio(state.total, state.weight)


def row_weights(
    scores: Tensor, weight: Tensor | None, mask: Tensor | None, labels: tuple[int, ...] | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return the weight of each row in the samples average, and the weights inside its cells, relative to that.

    The weight of a row is the mean weight of its labels that count.
    """
    dtype = compute_dtype(scores)
    counted_labels = mark_labels(labels, scores.new_zeros(1, scores.shape[1], dtype=dtype))
    if weight is None and counted_labels is None:
        return torch.ones(len(scores), dtype=dtype, device=scores.device), None
    label_weight = torch.ones_like(scores, dtype=dtype) if weight is None else weight
    counts = torch.ones_like(label_weight) if mask is None else mask.expand(label_weight.shape).to(dtype)
    if counted_labels is not None:
        label_weight = label_weight * counted_labels
        counts = counts * counted_labels
    row_weight = ratio(label_weight.sum(1), counts.sum(1))
    return row_weight, ratio(label_weight, row_weight.unsqueeze(1))


def image_weights(images: int, like: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the weight of each image, and the weights of its rows, relative to that.

    The weight of an image is the mean weight of what counts in it.
    """
    if weight is None:
        return torch.ones(images, dtype=compute_dtype(like), device=like.device), None
    of_images = weight.reshape(images, -1) if images else weight.reshape(0, 1)
    rows_that_count = (of_images > 0).to(weight.dtype).sum(1)
    image_weight = ratio(of_images.sum(1), rows_that_count)
    relative = ratio(of_images, image_weight.unsqueeze(1))
    return image_weight, relative.reshape(weight.shape)
