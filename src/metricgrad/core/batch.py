"""Tasks: the only place that knows binary, multi-class and multi-label apart.

A task checks and flattens what the user gave into rows and classes, so that everything after it sees one shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from metricgrad.core.counts import compute_dtype
from metricgrad.core.label_hints import explain_targets

if TYPE_CHECKING:
    from collections.abc import Sequence

Task = Literal["binary", "multiclass", "multilabel"]

MIN_MAP_ELEMENTS = 1 << 15
"""Images of at least so many logits are worked on one by one; smaller ones as rows, many at once."""


@dataclass(slots=True, eq=False)
class Batch:
    """One batch as rows and classes; dense predictions ``(N, K, H, W)`` become N·H·W rows, or maps ``(N, K, P)``.

    Maps, if asked for, have the positions of each image as a last axis of all tensors: targets ``(N, K, P)`` or class
    indices ``(N, P)``, weight and mask ``(N, 1, P)`` or ``(N, K, P)``.
    """

    logits: Tensor
    """``(N, K)``, K = 1 for binary."""
    targets: Tensor
    """``(N, K)`` in [0, 1], or ``(N,)`` class indices (int64)."""
    weight: Tensor | None
    """``(N, 1)`` or ``(N, K)`` in the type to count in; zero where masked."""
    mask: Tensor | None
    """``(N, 1)`` or ``(N, K)``, True for what counts; masked logits and targets are already zero."""

    @property
    def rows(self) -> int:
        """N."""
        return len(self.logits)

    @property
    def classes(self) -> int:
        """K."""
        return self.logits.shape[1]

    def take(self, rows: slice | Tensor) -> Batch:
        """Return the batch of some rows."""
        weight = None if self.weight is None else self.weight[rows]
        mask = None if self.mask is None else self.mask[rows]
        return Batch(self.logits[rows], self.targets[rows], weight, mask)

    def reweighted(self, weight: Tensor) -> Batch:
        """Return the same rows with other weights, ``(N, 1)`` or ``(N, K)``."""
        return Batch(self.logits, self.targets, weight, self.mask)

    def on_host(self) -> Batch:
        """Return the batch in the host's memory, for a search that asks for many single numbers; itself if it is."""
        weight = None if self.weight is None else self.weight.cpu()
        mask = None if self.mask is None else self.mask.cpu()
        return Batch(self.logits.cpu(), self.targets.cpu(), weight, mask)


def check_task(task: str | None) -> Task:
    """Return the task, or raise; None is "binary", which ``encode`` takes only where shapes leave no other reading."""
    if task is None:
        return "binary"
    if task not in get_args(Task):
        raise ValueError(f"task: expected one of {', '.join(map(repr, get_args(Task)))}, got {task!r}")
    return task  # type: ignore[return-value]


def to_probabilities(task: Task, logits: Tensor) -> Tensor:
    """Return the softmax over the classes of a multi-class problem, otherwise the sigmoid of each logit."""
    return logits.softmax(1) if task == "multiclass" else logits.sigmoid()


def check_evidently_binary(logits: Sequence[int], targets: Sequence[int]) -> None:
    """Ask for a task where shapes may be those of several classes: nothing is pooled, or averaged, by guessing."""
    if len(logits) < 2 or logits[1] < 2:
        return
    z, y = tuple(logits), tuple(targets)
    # (N, H, W) is a map of one class; (N, K) and (N, K, H, W) may be as many maps, or labels, as axis 1 is long.
    if z == y and len(z) != 3:
        raise ValueError(
            f"task: expected 'multilabel', 'multiclass' (one-hot) or 'binary' (all of it one class) for logits and "
            f"targets of shape {z}, got None"
        )
    if y == z[:1] + z[2:]:
        raise ValueError(f"task: expected 'multiclass' for logits {z} with targets {y}, got None")


def encode(
    task: Task | None,
    logits: Tensor,
    targets: Tensor,
    weight: Tensor | None = None,
    mask: Tensor | None = None,
    ignore_index: int | None = None,
    check_values: bool = True,
    check_labels: bool = True,
    allow_maps: bool = False,
) -> Batch:
    """Check shapes and values and flatten to rows × classes.

    ``task=None`` is "binary" if shapes leave no other reading, and an error otherwise. ``check_values=False`` skips
    what would read values back from the device, for ``torch.compile`` and ``torch.func``;
    ``check_labels=False`` leaves the values of the targets to the caller, but for class indices. ``allow_maps``:
    whether large images may stay maps, where rows would be a copy.
    """
    _check_tensor("logits", logits)
    _check_tensor("targets", targets)
    if task is None:
        check_evidently_binary(logits.shape, targets.shape)
        task = "binary"
    if weight is None and mask is None and ignore_index is None and _is_flat(task, logits, targets):
        if check_values and check_labels:
            check_targets(targets, logits.shape[1])
        return Batch(logits, targets, None, None)
    if not logits.is_floating_point():
        raise ValueError(f"logits: expected floating point, got {logits.dtype}")
    if targets.is_complex():
        raise ValueError(f"targets: expected bool, integers or real numbers, got {targets.dtype}")
    classes = _check_shapes(task, logits, targets)
    as_maps = allow_maps and _are_large_maps(task, logits)
    z, y = _flatten(task, logits, targets, classes, as_maps)
    has_indices = y.dim() < z.dim()
    w, keep = _flatten_weight_and_mask(task, logits, targets, y, weight, mask, ignore_index, as_maps)
    if keep is not None:
        # where, not a product: what is masked may be NaN, or a label that is no label.
        z = z.where(keep, 0)
        y = y.where(keep.squeeze(1) if has_indices else keep, 0)
    if has_indices:
        y = y.long()
    if check_values and has_indices:
        check_targets(y.flatten(), classes)
    elif check_values and check_labels:
        check_targets(y)
    if check_values and task == "multiclass" and not has_indices:
        check_distributions(y, keep)
    if check_values and w is not None:
        _check_weight(w)
    if w is not None:
        w = w.to(compute_dtype(z))
    if keep is not None:
        w = keep.to(compute_dtype(z)) if w is None else w.where(keep, 0)
    return Batch(z, y, w, keep)


def _is_flat(task: Task, logits: Tensor, targets: Tensor) -> bool:
    """Return whether logits and targets are ``(N, K)`` in one type already, as is usual."""
    return (
        logits.shape == targets.shape
        and logits.dim() == 2
        and (task == "multilabel" or (task == "binary" and logits.shape[1] == 1))
        and logits.dtype is targets.dtype in (torch.float32, torch.float64)
        and logits.shape[1] > 0
    )


def _check_weight(weight: Tensor) -> None:
    if weight.numel() and not weight.is_meta and weight.detach().min().item() < 0:
        raise ValueError(f"weight: expected no negative value, got {weight.min().item():g}")


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        dense = f"{name}.toarray()" if hasattr(value, "toarray") else name
        raise ValueError(f"{name}: expected a torch.Tensor, got {type(value).__name__}; pass torch.as_tensor({dense})")
    if value.layout is not torch.strided:
        raise ValueError(f"{name}: expected a dense tensor, got {value.layout}; pass {name}.to_dense()")


def _check_shapes(task: Task, logits: Tensor, targets: Tensor) -> int:
    """Check the two shapes against each other and return the number of classes."""
    z, y = tuple(logits.shape), tuple(targets.shape)
    if task == "binary":
        if z == y:
            return 1
        logits_have_class_axis = z[:1] + z[2:] == y and z[1] == 1
        targets_have_class_axis = y[:1] + y[2:] == z and y[1] == 1
        if logits_have_class_axis or targets_have_class_axis:
            return 1
        hint = "; for one class of several use task='multiclass' or 'multilabel'" if len(z) > 1 and z[1] > 1 else ""
        raise ValueError(f"targets: expected the shape of the logits, {z}, for task='binary', got {y}{hint}")
    if len(z) < 2:
        raise ValueError(f"logits: expected (N, K) or (N, K, ...) for task={task!r}, got {z}")
    if z[1] < 1:
        raise ValueError(f"logits: expected at least one class in axis 1, got {z}")
    if task == "multilabel" and z != y:
        raise ValueError(f"targets: expected the shape of the logits, {z}, for task='multilabel', got {y}")
    if task == "multiclass" and y not in (z, z[:1] + z[2:]):
        raise ValueError(f"targets: expected class indices {z[:1] + z[2:]} or soft labels {z}, got {y}")
    return z[1]


def _are_large_maps(task: Task, logits: Tensor) -> bool:
    """Return whether logits are of large images, and as rows would be a copy; channels-last ones are rows already."""
    if task == "binary" or logits.dim() == 2 or logits.stride(1) == 1:
        return False
    return has_large_images(logits)


def has_large_images(logits: object) -> bool:
    """Return whether each sample has so many logits that samples can be worked on one by one."""
    return (
        isinstance(logits, Tensor) and logits.dim() > 0 and logits.numel() >= MIN_MAP_ELEMENTS * max(logits.shape[0], 1)
    )


def _flatten(task: Task, logits: Tensor, targets: Tensor, classes: int, as_maps: bool) -> tuple[Tensor, Tensor]:
    """Return logits and targets as rows or maps."""
    if task == "binary":
        rows = logits.numel()
        return logits.reshape(rows, 1), targets.reshape(rows, 1)
    if targets.dim() == logits.dim():
        return _flatten_positions(logits, as_maps), _flatten_positions(targets, as_maps)
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise ValueError(
            f"targets: expected class indices of an integer type for shape {tuple(targets.shape)}, got "
            f"{targets.dtype}; soft labels have the shape of the logits, {tuple(logits.shape)}"
        )
    indices = targets.flatten(1) if as_maps else targets.reshape(targets.numel())
    return _flatten_positions(logits, as_maps), indices


def _flatten_weight_and_mask(
    task: Task,
    logits: Tensor,
    targets: Tensor,
    y: Tensor,
    weight: Tensor | None,
    mask: Tensor | None,
    ignore_index: int | None,
    as_maps: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Return the weight and what counts, each for all classes or for every one; ``y`` are the targets, flattened."""
    shape = logits.shape
    if task == "binary":
        positions = targets.shape if targets.dim() >= logits.dim() else shape
    else:
        positions = torch.Size([shape[0], *shape[2:]])
    w = None if weight is None else _flatten_option("weight", weight, positions, shape, task, as_maps)
    keep = None if mask is None else _flatten_option("mask", mask, positions, shape, task, as_maps)
    if keep is not None and keep.dtype != torch.bool:
        raise ValueError(f"mask: expected bool (True counts), got {keep.dtype}")
    if ignore_index is not None:
        has_indices = task == "multiclass" and targets.dim() < logits.dim()
        if task == "multiclass" and not has_indices:
            raise ValueError("ignore_index: expected class indices as targets; for soft labels use mask=")
        is_known = y != ignore_index
        if has_indices:
            is_known = is_known.unsqueeze(1)
        keep = is_known if keep is None else keep & is_known
    if task == "multiclass":
        for name, given in (("weight", w), ("mask", keep)):
            if given is not None and given.shape[1] != 1:
                raise ValueError(f"{name}: expected one value per sample for task='multiclass', got {given.shape[1]}")
    return w, keep


def _flatten_option(
    name: str, x: Tensor, positions: torch.Size, shape: torch.Size, task: Task, as_maps: bool
) -> Tensor:
    """Return a weight or mask with axis 1 of one or K classes; per sample, per position or per element was given.

    ``shape`` is that of the logits, ``positions`` the same without the axis of the classes.
    """
    _check_tensor(name, x)
    if task == "binary":
        if x.shape == positions or _drop_ones(x.shape) == _drop_ones(shape):
            return x.reshape(positions.numel(), 1)
    elif x.shape == shape:
        return _flatten_positions(x, as_maps)
    elif x.shape == positions:
        return _flatten_positions(x.unsqueeze(1), as_maps)
    samples = shape[0] if shape else 1
    if x.shape == (samples,) or x.shape == (samples, 1):
        of_samples = x.reshape(samples, *([1] * len(positions)))
        in_positions = of_samples.expand(samples, 1, *positions[1:])
        return _flatten_positions(in_positions, as_maps)
    if task == "multilabel" and x.shape == shape[:2]:
        of_labels = x.reshape(*x.shape, *([1] * (len(shape) - 2)))
        return _flatten_positions(of_labels.expand(shape), as_maps)
    expected = f"({samples},), {tuple(positions)}"
    if task == "multilabel":
        expected += f" or {tuple(shape)}"
    raise ValueError(f"{name}: expected shape {expected}, got {tuple(x.shape)}")


def _flatten_positions(x: Tensor, as_maps: bool) -> Tensor:
    """Return ``(N, K, ...)`` as maps ``(N, K, P)`` or as rows."""
    return x.flatten(2) if as_maps else to_rows(x)


def to_rows(x: Tensor) -> Tensor:
    """Return ``(N, K, ...)`` as ``(rows, K)``."""
    if x.dim() == 2:
        return x
    classes = x.shape[1]
    return x.movedim(1, -1).reshape(x.numel() // max(classes, 1), classes)


def _drop_ones(shape: torch.Size) -> list[int]:
    return [size for size in shape if size != 1]


def check_targets(y: Tensor, classes: int = 1) -> None:
    """Refuse targets outside their range: [0, 1], or ``(N,)`` class indices of an integer type."""
    if not y.numel() or y.dtype == torch.bool or y.is_meta:
        return
    smallest, largest = torch.aminmax(y.detach() if y.requires_grad else y)
    are_indices = y.dim() == 1 and not y.is_floating_point()
    highest_allowed = classes - 1 if are_indices else 1
    if smallest.item() < 0 or largest.item() > highest_allowed:  # NaN passes: it stays visible as NaN in the loss
        raise ValueError(explain_targets(y, classes, are_indices))


def check_distributions(y: Tensor, keep: Tensor | None) -> None:
    """Refuse soft labels of several classes, ``(N, K)``, whose rows do not sum to 1, as of several labels at once."""
    if not y.numel() or y.is_meta:
        return
    dtype = compute_dtype(y) if y.is_floating_point() else torch.float32
    sums = y.detach().to(dtype).sum(1)
    tolerance = 2e-2 if y.dtype in (torch.float16, torch.bfloat16) else 1e-3
    is_wrong = (sums - 1).abs() > tolerance
    if keep is not None:
        is_wrong = is_wrong & keep.squeeze(1)
    if is_wrong.any():
        raise ValueError(
            f"targets: expected rows that sum to 1 for task='multiclass', got {sums[is_wrong][0].item():g} in "
            f"{int(is_wrong.sum())} of {len(y)}; use task='multilabel' if a row may have several labels or none"
        )
