"""What the estimators that train on a metric share: the loss, the weights, and which rows to hold out."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit, check_cv
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor, nn

from metricgrad.estimators.labels import Labels
from metricgrad.losses.hybrid import HybridLoss
from metricgrad.losses.metric import MetricLoss
from metricgrad.losses.scale import trust_logits
from metricgrad.metrics.scalars import is_whole

if TYPE_CHECKING:
    from collections.abc import Iterator


def labels_to_learn(y: Any) -> Labels:
    """Return the labels of targets, which must be of at least two classes."""
    labels = Labels(y)
    if len(labels.classes) < 2 and labels.task != "multilabel":
        raise ValueError(f"y: expected at least two classes, got one class, {labels.classes[0]!r}")
    return labels


def loss_for(loss: Any, metric: Any, *, share: float = 1.0, warmup: int = 0, **options: Any) -> nn.Module:
    """Return the loss that is meant, fresh: a named one of the metric, with MetricLoss's ``options``, or a copy."""
    if isinstance(loss, nn.Module):
        found: nn.Module = copy.deepcopy(loss)
    elif loss == "hybrid":
        found = HybridLoss(metric, share=share, warmup=warmup, **options)
    elif loss == "metric":
        found = MetricLoss(metric, **options)
    elif loss == "cross-entropy":
        found = HybridLoss(metric, share=0.0, **options)
    else:
        raise ValueError(f"loss: expected 'hybrid', 'metric', 'cross-entropy' or a module, got {loss!r}")
    trust_logits(found)
    return found


def training_weight(labels: Labels, X: Any, y: Any, sample_weight: Any, class_weight: Any) -> Any:
    """Return sample weights times class weights, in float64, or None."""
    weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, ensure_non_negative=True)
    if class_weight is None:
        return weight
    if labels.task == "multilabel":
        raise ValueError("class_weight: expected None for multi-label targets; use sample_weight")
    index = labels.encode(y).long().numpy()
    balance = compute_class_weight(class_weight, classes=labels.classes, y=y)[index]
    return balance if weight is None else weight * balance


def wanted_rule(rule: Any, class_weight: Any) -> Any:
    """Return the rule that is asked for: weights named for classes say what to decide, and tuning would undo it.

    "balanced" says nothing of the kind: it helps training.
    """
    named = class_weight is not None and not isinstance(class_weight, str)
    return "fixed" if named and isinstance(rule, str) and rule == "tuned" else rule


def splits(
    labels: Labels, targets: Tensor, cv: Any, validation_fraction: float, seed: int
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield rows to train on and rows to judge and tune on; all and none where classes are too small to split.

    ``cv``: a number of folds, a splitter of scikit-learn, or None for one split of ``validation_fraction``.
    """
    y = targets.numpy()
    single = labels.task != "multilabel"
    rarest = int(np.bincount(y.astype(int)).min()) if single else len(y)
    if cv is not None:
        found = _folds(cv, y, rarest if single else None, seed)
    else:
        if not 0 < validation_fraction < 1:
            raise ValueError(f"validation_fraction: expected a number in (0, 1), got {validation_fraction!r}")
        held = max(round(validation_fraction * len(y)), len(labels.classes) if single else 1)
        split = StratifiedShuffleSplit if single else ShuffleSplit
        enough = rarest > 1 and held <= len(y) - (len(labels.classes) if single else 1)
        found = split(1, test_size=held, random_state=seed).split(np.zeros(len(y)), y) if enough else None
    if found is None:
        yield torch.arange(len(y)), None
        return
    for rows, held_out in checked_pairs(found):
        yield torch.from_numpy(rows), torch.from_numpy(held_out)


def checked_pairs(pairs: Any) -> list[tuple[Any, Any]]:
    """Return pairs of rows to fit on and rows left out as arrays of indices; they may be lists or masks."""
    found = [(_indices(rows), _indices(held)) for rows, held in pairs]
    if not found or not all(len(rows) and len(held) for rows, held in found):
        raise ValueError("cv: expected pairs of rows to fit on and rows left out, got none or an empty one")
    return found


def _indices(rows: Any) -> Any:
    rows = np.asarray(rows)
    return np.flatnonzero(rows) if rows.dtype == bool else rows


def _folds(cv: Any, y: Any, rarest: int | None, seed: int) -> Any:
    if not is_whole(cv) and not isinstance(cv, bool):
        return check_cv(cv, y, classifier=True).split(np.zeros(len(y)), y)
    if isinstance(cv, bool) or cv < 2:
        raise ValueError(f"cv: expected a number of at least 2, a splitter or None, got {cv!r}")
    folds = min(int(cv), len(y) if rarest is None else rarest)
    kind = KFold if rarest is None else StratifiedKFold
    return kind(folds, shuffle=True, random_state=seed).split(y, y) if folds > 1 else None
