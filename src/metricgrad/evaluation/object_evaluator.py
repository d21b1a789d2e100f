"""``ObjectEvaluator``: how many objects were found, when predicted and true objects match by their overlap.

Above an intersection over union of one half an object matches at most one other, so the matching is unique, and counts
of images add [kirillov2019].
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor

from metricgrad.core.counts import Counts, Statistic
from metricgrad.core.inputs import as_tensor, name_metrics
from metricgrad.core.metrics import get, name_of, of_counts
from metricgrad.core.metrics.averages import (
    Average,
    EmptyClasses,
    check_average,
    check_empty_classes,
    class_weights,
    mean_over_classes,
)
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.metrics.properties import properties_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from metricgrad.core.inputs import ArrayLike
    from metricgrad.core.metrics import Metric


@dataclass(eq=False)
class ObjectCounts(Statistic):
    """How many objects of each class were found, ``(K,)``; those of images add with ``+``.

    Parameters
    ----------
    matched : Tensor
        True objects with a predicted one that overlaps enough.
    wrong : Tensor
        Predicted objects that match none.
    missed : Tensor
        True objects that match none.
    overlap : Tensor
        The sum of the intersections over unions of the matches.
    """

    matched: Tensor
    wrong: Tensor
    missed: Tensor
    overlap: Tensor


_ObjectMetric = Callable[[ObjectCounts], Tensor]


def _panoptic_quality(counts: ObjectCounts) -> Tensor:
    return ratio(counts.overlap, counts.matched + (counts.wrong + counts.missed) / 2)


def _segmentation_quality(counts: ObjectCounts) -> Tensor:
    return ratio(counts.overlap, counts.matched)


OVERLAP_METRICS: dict[str, Callable[[ObjectCounts], Tensor]] = {
    "panoptic_quality": _panoptic_quality,
    "segmentation_quality": _segmentation_quality,
}
"""Metrics of the overlap, beside those of counts."""


class ObjectEvaluator:
    """Evaluate objects instead of positions: ``update`` with maps of objects, ``compute`` at any time.

    A predicted object is right if its intersection over union with a true object is above ``iou``. There are no true
    negatives among objects, so a metric must not depend on them.

    Parameters
    ----------
    metrics : str, callable, sequence of these, or dict, default ('f1', 'precision', 'recall', 'panoptic_quality')
        Metrics of the counts of objects, as for ``evaluate``, and "panoptic_quality" (the sum of the overlaps of the
        matches, divided by what F1 divides its matches by) and "segmentation_quality" (the mean overlap of the
        matches).
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": maps ``(N, ...)`` of the objects of one class. "multilabel": ``(N, K, ...)``, a map for each of K
        classes; of several classes that exclude each other, the objects of each class in a map of its own.
    iou : float, default 0.5
        Two objects match if their intersection over union is above this; in [0.5, 1).
    average : {'macro', 'micro', 'weighted'} or None, default 'macro'
        For maps of several classes: how their values become one. None returns one per class.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without true objects does to the macro average.
    connectivity : int, default 1
        If masks are given instead of maps of objects: positions touch along so many axes at most; 1 is edges alone,
        the number of axes includes corners.

    Raises
    ------
    ValueError
        If a metric depends on true negatives, or an option is unknown.

    See Also
    --------
    evaluate_objects : The same at once.
    number_objects : Number the connected parts of a mask.

    Examples
    --------
    >>> evaluator = ObjectEvaluator(["f1", "recall"])
    >>> true = torch.tensor([[[1, 1, 0, 2, 2, 0]]])
    >>> predicted = torch.tensor([[[3, 3, 0, 0, 0, 4]]])
    >>> evaluator.update(predicted, true).compute()
    {'f1': 0.5, 'recall': 0.5}
    """

    def __init__(
        self,
        metrics: str | Metric | Sequence[str | Metric] | Mapping[str, str | Metric] = (
            "f1",
            "precision",
            "recall",
            "panoptic_quality",
        ),
        *,
        task: Literal["binary", "multilabel"] = "binary",
        iou: float = 0.5,
        average: Average | None = "macro",
        empty_classes: EmptyClasses = "count",
        connectivity: int = 1,
    ) -> None:
        if not 0.5 <= iou < 1:
            raise ValueError(f"iou: expected a number in [0.5, 1), above which matches are unique, got {iou!r}")
        if task not in ("binary", "multilabel"):
            raise ValueError(f"task: expected 'binary' or 'multilabel', a map of objects for each class, got {task!r}")
        self.task = task
        self.iou = iou
        self.average = check_average(average)
        if self.average == "samples":
            raise ValueError("average: expected 'macro', 'micro', 'weighted' or None, got 'samples'")
        self.empty_classes: EmptyClasses = check_empty_classes(empty_classes)
        self.connectivity = connectivity
        self.metrics = {name: _resolve_metric(metric) for name, metric in name_metrics(metrics).items()}
        self._counts: ObjectCounts | None = None

    def update(self, predicted: ArrayLike, instances: ArrayLike, mask: ArrayLike | None = None) -> Self:
        """Add images.

        Parameters
        ----------
        predicted : array-like
            Maps of predicted objects, ``(N, ...)``: 0 is none, any other number an object of its image. For several
            classes ``(N, K, ...)`` with ``instances`` of that shape. Of type bool: masks, whose connected parts are
            the objects (needs scipy, as in the extra "sklearn").
        instances : array-like
            Maps of the true objects, of the same shape; of type bool likewise.
        mask : array-like of bool, optional
            True for positions that count, of shape ``(N, ...)``. A predicted object that matches none does not count
            as wrong if more than half of it lies elsewhere.

        Returns
        -------
        ObjectEvaluator
            Itself.

        Raises
        ------
        ValueError
            If shapes or types do not fit.
        """
        found = self._as_maps("predicted", predicted)
        true = self._as_maps("instances", instances)
        if found.shape != true.shape:
            raise ValueError(
                f"instances: expected the shape of predicted, {tuple(found.shape)}, got {tuple(true.shape)}"
            )
        counted = self._as_mask(mask, found)
        if self.task == "binary":
            found = found.unsqueeze(1)
            true = true.unsqueeze(1)
        for found_in_image, true_in_image, counted_in_image in zip(found, true, counted, strict=True):
            pairs = zip(found_in_image, true_in_image, strict=True)
            per_class = [_match_objects(*maps, counted_in_image, self.iou) for maps in pairs]
            counts = ObjectCounts(*torch.tensor(per_class, dtype=torch.float64).unbind(1))
            self._counts = counts if self._counts is None else self._counts + counts
        return self

    def _as_maps(self, name: str, given: ArrayLike) -> Tensor:
        maps = as_tensor(name, given)
        least = 3 if self.task == "multilabel" else 2
        if maps.dim() < least:
            expected = "(N, K, ...)" if self.task == "multilabel" else "(N, ...)"
            raise ValueError(f"{name}: expected maps of objects, {expected}, got {tuple(maps.shape)}")
        if maps.is_floating_point() or maps.is_complex():
            raise ValueError(
                f"{name}: expected numbers of objects or a mask of bool, got {maps.dtype}; threshold scores first"
            )
        if maps.dtype is not torch.bool:
            return maps
        from metricgrad.evaluation.number_objects import number_objects  # needs scipy

        return number_objects(maps, self.connectivity, self.task)

    def _as_mask(self, mask: ArrayLike | None, maps: Tensor) -> list[Tensor | None]:
        """Return which positions count, image by image."""
        if mask is None:
            return [None] * len(maps)
        counted = as_tensor("mask", mask)
        expected = maps.shape if self.task == "binary" else maps[:, 0].shape
        if counted.dtype is not torch.bool or counted.shape != expected:
            raise ValueError(
                f"mask: expected bool of shape {tuple(expected)}, got {counted.dtype} of {tuple(counted.shape)}"
            )
        return list(counted)

    def compute(self) -> dict[str, Any]:
        """Return the values of all images together.

        Returns
        -------
        dict
            {name: value}: a number, or for ``average=None`` one per class, as a list.

        Raises
        ------
        ValueError
            If there was no image.
        """
        if self._counts is None:
            raise ValueError("compute: expected at least one update before, got none")
        values = {name: self._average(metric, self._counts) for name, metric in self.metrics.items()}
        return {name: value.item() if value.dim() == 0 else value.tolist() for name, value in values.items()}

    def _average(self, metric: _ObjectMetric, counts: ObjectCounts) -> Tensor:
        if self.average == "micro":
            return metric(counts.map(torch.sum))
        values = metric(counts)
        if self.average == "per-class":
            return values
        objects = counts.matched + counts.missed
        return mean_over_classes(values, class_weights(self.average, objects, None, self.empty_classes))

    def __add__(self, other: Self) -> Self:
        """Return an evaluator of the images of both."""
        if not isinstance(other, ObjectEvaluator):
            return NotImplemented
        both = copy.copy(self)
        parts = [evaluator._counts for evaluator in (self, other) if evaluator._counts is not None]
        both._counts = sum(parts[1:], start=parts[0]) if parts else None
        return both

    def reset(self) -> None:
        """Forget all images."""
        self._counts = None


def evaluate_objects(
    predicted: ArrayLike,
    instances: ArrayLike,
    metrics: str | Metric | Sequence[str | Metric] | Mapping[str, str | Metric] = (
        "f1",
        "precision",
        "recall",
        "panoptic_quality",
    ),
    *,
    mask: ArrayLike | None = None,
    task: Literal["binary", "multilabel"] = "binary",
    iou: float = 0.5,
    average: Average | None = "macro",
    empty_classes: EmptyClasses = "count",
    connectivity: int = 1,
) -> dict[str, Any]:
    """Evaluate objects instead of positions: which of them were found, by their overlap with the predicted ones.

    Parameters
    ----------
    predicted : array-like
        Maps of predicted objects, ``(N, ...)``: 0 is none, any other number an object of its image. Of type bool:
        masks, whose connected parts are the objects (needs scipy, as in the extra "sklearn").
    instances : array-like
        Maps of the true objects, of the same shape; of type bool likewise.
    metrics : str, callable, sequence of these, or dict, default ('f1', 'precision', 'recall', 'panoptic_quality')
        As for ``ObjectEvaluator``.
    mask : array-like of bool, optional
        True for positions that count, ``(N, ...)``.
    task : {'binary', 'multilabel'}, default 'binary'
        "multilabel": ``(N, K, ...)``, a map for each of K classes.
    iou : float, default 0.5
        Two objects match if their intersection over union is above this; in [0.5, 1).
    average : {'macro', 'micro', 'weighted'} or None, default 'macro'
        For maps of several classes: how their values become one. None returns one per class.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without true objects does to the macro average.
    connectivity : int, default 1
        If masks are given: positions touch along so many axes at most.

    Returns
    -------
    dict
        {name: value}: a number, or for ``average=None`` one per class, as a list.

    Raises
    ------
    ValueError
        If shapes or types do not fit, or a metric depends on true negatives.

    Examples
    --------
    >>> scores = torch.tensor([[[0.9, 0.8, 0.1, 0.7, 0.2, 0.1]]])
    >>> true = torch.tensor([[[1, 1, 0, 0, 0, 0]]])
    >>> evaluate_objects(scores > 0.5, true, ["precision", "recall"])
    {'precision': 0.5, 'recall': 1.0}
    """
    evaluator = ObjectEvaluator(
        metrics, task=task, iou=iou, average=average, empty_classes=empty_classes, connectivity=connectivity
    )
    return evaluator.update(predicted, instances, mask).compute()


def _resolve_metric(metric: str | Metric) -> _ObjectMetric:
    """Return a metric as a function of the counts of objects."""
    if isinstance(metric, str) and metric in OVERLAP_METRICS:
        return OVERLAP_METRICS[metric]
    of_cells = get(metric)
    if not of_counts(of_cells) or properties_of(of_cells).tn != 0:
        raise ValueError(
            f"metrics: {name_of(of_cells)} depends on true negatives, and objects have none; use f1, precision, "
            f"recall, jaccard or {', '.join(OVERLAP_METRICS)}"
        )
    return partial(_evaluate_counts, of_cells)


def _evaluate_counts(metric: Metric, counts: ObjectCounts) -> Tensor:
    no_true_negatives = torch.zeros_like(counts.matched)
    return metric(Counts(counts.matched, counts.wrong, counts.missed, no_true_negatives))


def _match_objects(
    found: Tensor, true: Tensor, counted: Tensor | None, iou: float
) -> tuple[float, float, float, float]:
    """Return matched, wrong and missed objects of one image and class, and the sum of the overlaps of the matches."""
    found_numbers, found_map = torch.unique(found, return_inverse=True)
    true_numbers, true_map = torch.unique(true, return_inverse=True)
    place = (true_map * len(found_numbers) + found_map).flatten()
    inside = None if counted is None else counted.flatten().double()
    table = torch.bincount(place, inside, minlength=len(true_numbers) * len(found_numbers)).double()
    shared = table.view(len(true_numbers), len(found_numbers))
    true_sizes = shared.sum(1, keepdim=True)
    found_sizes = shared.sum(0, keepdim=True)
    overlap = shared / (true_sizes + found_sizes - shared).clamp_min(1)
    is_pair = (true_numbers != 0).unsqueeze(1) & (found_numbers != 0)
    matches = is_pair & (overlap > iou)
    is_true_object = (true_numbers != 0) & (true_sizes.squeeze(1) > 0)
    is_found_object = found_numbers != 0
    if inside is not None:
        whole_sizes = torch.bincount(found_map.flatten(), minlength=len(found_numbers)).double()
        is_found_object &= found_sizes.squeeze(0) >= whole_sizes / 2
    matched = int(matches.sum())
    is_unmatched = ~matches.any(0)
    wrong = int((is_found_object & is_unmatched).sum())
    missed = int(is_true_object.sum()) - matched
    return matched, wrong, missed, float(overlap[matches].sum())
