"""Inputs: scores on any scale and targets, as torch tensors, numpy arrays, pandas objects or lists; whole numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, Protocol

import torch
from torch import Tensor

from metricgrad.core.batch import Batch, Task, encode
from metricgrad.core.metrics import Metric, name_of


class SupportsArray(Protocol):
    """What numpy takes as an array: its own arrays, pandas and polars objects, and others."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any: ...


ArrayLike = Tensor | SupportsArray | Sequence[Any]
"""What users pass as an array: torch, numpy, pandas, polars or (nested) lists."""


def as_tensor(name: str, x: Any) -> Tensor:
    """Return torch, numpy, pandas or plain lists as a tensor."""
    try:
        found = torch.as_tensor(_fit_for_torch(x.to_numpy() if hasattr(x, "to_numpy") else x)).detach()
        # Python's own numbers are float64, which torch would round to its default type.
        return torch.as_tensor(x, dtype=torch.float64) if found.is_floating_point() and _plain(x) else found
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: expected numbers (torch, numpy, pandas), got {type(x).__name__}") from error


def whole_number(name: str, value: Any, least: int) -> int:
    """Return a whole number of any type, numpy's too, as Python's own; raise if it is none, or less than ``least``."""
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name}: expected a whole number of at least {least}, got {value!r}")
    return number


def _fit_for_torch(x: Any) -> Any:
    """Copy what torch cannot share without complaint: read-only arrays, as pandas gives, and reversed ones."""
    strange = hasattr(x, "strides") and (not x.flags.writeable or min(x.strides, default=0) < 0)
    return x.copy() if strange else x


def _plain(x: Any) -> bool:
    return isinstance(x, int | float | list | tuple)


def as_type_of(given: Any, result: Tensor) -> Any:
    """Return a result as what was given: a tensor for a tensor, a numpy array for anything else."""
    return result if isinstance(given, Tensor) else result.cpu().numpy()


def as_scored_batch(
    task: Task | None, scores: Any, targets: Any, weight: Any = None, mask: Any = None, ignore_index: int | None = None
) -> Batch:
    """Return scores and targets as checked rows × classes; scores that are NaN are refused unless masked."""
    s = as_tensor("scores", scores)
    y = as_tensor("targets", targets)
    if task in (None, "binary") and s.dim() == 2 and s.shape[1] == 2 and y.dim() == 1:
        raise ValueError("scores: expected one per sample for task='binary', got two columns; pass scores[:, 1]")
    _check_order(s, y)
    w, keep = (None if x is None else as_tensor(name, x) for name, x in (("weight", weight), ("mask", mask)))
    s = s if s.is_floating_point() else s.double()
    try:
        # Weights are counted in float64, whatever the scores' type.
        batch = encode(task, s if w is None else s.double(), y, w, keep, ignore_index)
        batch.logits = batch.logits.to(s.dtype)
    except ValueError as error:
        raise ValueError(str(error).replace("logits", "scores")) from error
    # The minimum is NaN if any score is: that takes one pass and no copy, unlike isnan().any().
    if batch.logits.numel() and batch.logits.amin().isnan():
        bad = int(batch.logits.isnan().sum())
        raise ValueError(f"scores: expected numbers, got {bad} NaN; use mask= to leave them out")
    if batch.targets.is_floating_point() and batch.targets.isnan().any():
        raise ValueError("targets: expected numbers, got NaN; use mask= to leave them out")
    if batch.weight is not None and batch.weight.isnan().any():
        raise ValueError("weight: expected numbers, got NaN; use mask= to leave them out")
    return batch


def _check_order(scores: Tensor, targets: Tensor) -> None:
    """Refuse labels in the place of scores and scores in the place of labels, where that is evident."""
    if not targets.is_floating_point() or not targets.numel() or targets.is_meta:
        return
    labels = scores.dtype == torch.bool or not scores.is_floating_point() or bool((scores == scores.round()).all())
    if not labels or not scores.numel() or bool((targets == targets.round()).all()):
        return
    if scores.dim() < targets.dim() or (scores.shape == targets.shape and set(scores.unique().tolist()) <= {0, 1}):
        raise ValueError(
            "scores: expected scores first and then targets, got whole numbers first and then numbers between them; "
            "exchange the two"
        )


def check_scale(scores: Tensor) -> None:
    """Refuse scores that are no probabilities at the default threshold 0.5, where the mistake would not show."""
    if not scores.numel():
        return
    low, high = (x.item() for x in torch.aminmax(scores))
    if low < 0 or high > 1:
        raise ValueError(
            f"threshold: 0.5 is for scores in [0, 1], got scores from {low:g} to {high:g}; pass threshold=0.0 for "
            "logits, or probabilities, or rule=mg.decisions.Threshold(0.5) if it is meant"
        )


def name_metrics(
    metrics: str | Metric | Sequence[str | Metric] | Mapping[str, str | Metric],
) -> dict[str, str | Metric]:
    """Return one or many metrics by the names they are reported under."""
    if isinstance(metrics, Mapping):
        return dict(metrics)
    many: Sequence[str | Metric] = [metrics] if isinstance(metrics, str) or callable(metrics) else metrics
    found = {metric if isinstance(metric, str) else name_of(metric): metric for metric in many}
    if not found or len(found) < len(many):
        raise ValueError(f"metrics: expected at least one, each under a name of its own, got {list(found)}")
    return found
