"""Objects: counts of each object on its own, from maps that say which positions belong to which object.

An object is a set of positive positions of one image and one class. What is predicted outside all positives of the
class, the background, belongs to no object, so an object's false positives are those of the background of its image:
all of them ("full"), as in blob loss [kofler2022], or a share in proportion to the object's size ("shared").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from metricgrad.core.counts import Counts, cells, compute_dtype
from metricgrad.core.metrics.derivatives import ratio

if TYPE_CHECKING:
    from metricgrad.core.batch import Batch, Task

Background = Literal["full", "shared"]
"""How much of its image's background counts for an object."""


@dataclass(slots=True, eq=False)
class ObjectIndex:
    """Which elements of a batch, ``(rows, classes)``, belong to which object."""

    element_rows: Tensor
    """``(E,)``: the row of each element that belongs to an object."""
    element_classes: Tensor
    """``(E,)``: its class."""
    element_objects: Tensor
    """``(E,)``: its object, 0 to O − 1."""
    image_of_object: Tensor
    """``(O,)``"""
    class_of_object: Tensor
    """``(O,)``"""
    images: int
    background: Background

    @property
    def objects(self) -> int:
        """O."""
        return len(self.class_of_object)


def check_background(per_object: str | None) -> Background | None:
    """Return the option of a loss that says how objects count, or raise."""
    if per_object is not None and per_object not in get_args(Background):
        expected = ", ".join(map(repr, get_args(Background)))
        raise ValueError(f"per_object: expected {expected} or None, got {per_object!r}")
    return per_object  # type: ignore[return-value]


# The number of objects depends on values, which cannot be compiled. `torch.compiler.disable` would import the compiler
# with this module, which takes seconds; this one imports it when the function is first called.
@_disable_dynamo
def index_objects(
    task: Task,
    instances: Tensor | None,
    batch: Batch,
    shape: torch.Size,
    labels: tuple[int, ...] | None,
    background: Background,
) -> ObjectIndex:
    """Check the maps of objects, and find the object of each element; ``shape`` is that of the logits."""
    flat = _flatten_instances(task, instances, batch, shape)
    is_object = _check_against_targets(task, flat, batch, labels)
    element_rows, element_classes = is_object.nonzero(as_tuple=True)
    numbers = flat.expand(is_object.shape)[element_rows, element_classes].long()
    images = shape[0] if len(shape) else 1
    rows_per_image = max(batch.rows // max(images, 1), 1)
    element_images = element_rows // rows_per_image
    # The same number in another image, or of another class, is another object.
    keys = torch.stack((element_images, element_classes, numbers))
    objects, element_objects = torch.unique(keys, dim=1, return_inverse=True)
    image_of_object, class_of_object, _numbers = objects.unbind(0)
    return ObjectIndex(
        element_rows, element_classes, element_objects, image_of_object, class_of_object, images, background
    )


def _flatten_instances(task: Task, instances: Tensor | None, batch: Batch, shape: torch.Size) -> Tensor:
    """Return the maps as ``(rows, 1)``, or ``(rows, K)`` for several labels."""
    if not isinstance(instances, Tensor):
        got = "None" if instances is None else type(instances).__name__
        raise ValueError(f"instances: expected a tensor that numbers the objects, for per_object, got {got}")
    if instances.is_floating_point() or instances.is_complex() or instances.dtype is torch.bool:
        raise ValueError(f"instances: expected integers, 0 where there is no object, got {instances.dtype}")
    if task == "multilabel":
        if instances.shape != shape:
            raise ValueError(
                f"instances: expected a map for each label, of the shape of the logits, {tuple(shape)}, got "
                f"{tuple(instances.shape)}"
            )
        flat = instances if instances.dim() == 2 else instances.movedim(1, -1).reshape(batch.rows, batch.classes)
    else:
        positions = shape if task == "binary" else torch.Size([shape[0], *shape[2:]])
        fits = instances.shape == positions
        if task == "binary":  # an axis of one class may be there or not
            fits = instances.numel() == positions.numel() and instances.shape[:1] == positions[:1]
        if not fits:
            raise ValueError(
                f"instances: expected one number per position, {tuple(positions)}, got {tuple(instances.shape)}"
            )
        flat = instances.reshape(batch.rows, 1)
    if flat.numel() and not flat.is_meta and flat.min().item() < 0:
        raise ValueError(f"instances: expected 0 (no object) and positive numbers, got {flat.min().item()}")
    return flat


def _check_against_targets(task: Task, flat: Tensor, batch: Batch, labels: tuple[int, ...] | None) -> Tensor:
    """Return which elements, ``(rows, K)``, belong to an object; raise where maps and targets contradict each other."""
    targets = batch.targets
    if targets.dim() == 1:
        is_positive = targets.unsqueeze(1) == torch.arange(batch.classes, device=targets.device)
    else:
        is_positive = targets == 1
        if not bool((is_positive | (targets == 0)).all()):
            raise ValueError("targets: expected 0 and 1 with instances, got soft labels; threshold them first")
    if labels is not None:
        is_counted = torch.zeros(batch.classes, dtype=torch.bool, device=targets.device)
        is_counted[list(labels)] = True
        is_positive = is_positive & is_counted
    counts = batch.mask
    if counts is not None:
        is_positive = is_positive & counts
    has_number = (flat > 0).expand(is_positive.shape)
    without_object = int((is_positive & ~has_number).sum())
    if without_object:
        raise ValueError(
            f"instances: expected an object at every positive position, got 0 at {without_object}; number the objects "
            "of the targets, or mask these positions"
        )
    if task != "multiclass":
        elsewhere = has_number & ~is_positive
        if counts is not None:
            elsewhere = elsewhere & counts
        if labels is not None:
            elsewhere = elsewhere & is_counted
        if wrong := int(elsewhere.sum()):
            raise ValueError(
                f"instances: expected 0 wherever the target is 0, got an object at {wrong} positions; number the "
                "objects of the targets alone"
            )
    return is_positive


def count_objects(index: ObjectIndex, memberships: Tensor, batch_targets: Tensor, weight: Tensor | None) -> Counts:
    """Return the counts of every object, ``(..., O)``, of memberships ``(..., rows, K)``; differentiable."""
    *leading, rows, classes = memberships.shape
    if batch_targets.dim() == 1:
        all_classes = torch.arange(classes, device=batch_targets.device)
        is_background = batch_targets.unsqueeze(1) != all_classes
    else:
        is_background = batch_targets == 0
    background_weight = is_background.to(memberships.dtype)
    if weight is not None:
        background_weight = background_weight * weight
    image_shape = index.images, rows // max(index.images, 1)
    outside = (memberships * background_weight).unflatten(-2, image_shape).sum(-2)
    negatives = background_weight.unflatten(0, image_shape).sum(1)
    element_weight = memberships.new_ones(len(index.element_rows))
    if weight is not None:
        element_weight = weight.expand(rows, classes)[index.element_rows, index.element_classes]
    inside = memberships[..., index.element_rows, index.element_classes] * element_weight
    tp = memberships.new_zeros(*leading, index.objects).index_add(-1, index.element_objects, inside)
    positives = memberships.new_zeros(index.objects).index_add(0, index.element_objects, element_weight)
    share = _find_background_shares(index, positives, classes)
    fp = outside[..., index.image_of_object, index.class_of_object] * share
    negatives = negatives[index.image_of_object, index.class_of_object] * share
    return cells(tp, fp, positives.expand_as(tp), negatives.expand_as(tp))


def _find_background_shares(index: ObjectIndex, positives: Tensor, classes: int) -> Tensor:
    """Return which part of the background of its image counts for each object, ``(O,)``."""
    if index.background == "full":
        return torch.ones_like(positives)
    place = index.image_of_object * classes + index.class_of_object
    in_image = positives.new_zeros(index.images * classes).index_add(0, place, positives)
    return ratio(positives, in_image[place])


def weigh_objects(index: ObjectIndex, like: Tensor, weight: Tensor | None) -> Tensor:
    """Return what each object counts: the mean weight of its positions that count, ``(O,)``."""
    dtype = compute_dtype(like)
    if weight is None:
        return torch.ones(index.objects, dtype=dtype, device=like.device)
    of_elements = weight.expand(len(weight), max(like.shape[1], 1))[index.element_rows, index.element_classes]
    total = of_elements.new_zeros(index.objects).index_add(0, index.element_objects, of_elements)
    counted = of_elements.new_zeros(index.objects).index_add(
        0, index.element_objects, (of_elements > 0).to(of_elements.dtype)
    )
    return ratio(total, counted)
