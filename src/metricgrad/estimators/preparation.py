"""What the estimators that train on a metric share: the loss, the weights, and which rows to hold out."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit, check_cv
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor, nn

from metricgrad.core.metrics.scalars import is_whole
from metricgrad.estimators.labels import Labels
from metricgrad.losses.hybrid_loss import HybridLoss
from metricgrad.losses.logit_scale import trust_logits
from metricgrad.losses.metric_loss import MetricLoss

if TYPE_CHECKING:
    from collections.abc import Iterator


def make_labels(y: Any) -> Labels:
    """Return the labels of targets, which must be of at least two classes."""
    labels = Labels(y)
    if len(labels.classes) < 2 and labels.task != "multilabel":
        raise ValueError(f"y: expected at least two classes, got one class, {labels.classes[0]!r}")
    return labels


def make_loss(loss: Any, metric: Any, *, metric_weight: float = 1.0, warmup: int = 0, **options: Any) -> nn.Module:
    """Return a new loss: the named one of the metric, with the ``options`` of ``MetricLoss``, or a copy of a module."""
    if isinstance(loss, nn.Module):
        found: nn.Module = copy.deepcopy(loss)
    elif loss == "hybrid":
        found = HybridLoss(metric, metric_weight=metric_weight, warmup=warmup, **options)
    elif loss == "metric":
        found = MetricLoss(metric, **options)
    elif loss == "cross-entropy":
        found = HybridLoss(metric, metric_weight=0.0, **options)
    else:
        raise ValueError(f"loss: expected 'hybrid', 'metric', 'cross-entropy' or a module, got {loss!r}")
    trust_logits(found)
    return found


def compute_training_weight(labels: Labels, X: Any, y: Any, sample_weight: Any, class_weight: Any) -> Any:
    """Return sample weights times class weights, in float64, or None."""
    weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, ensure_non_negative=True)
    if class_weight is None:
        return weight
    if labels.task == "multilabel":
        raise ValueError("class_weight: expected None for multi-label targets; use sample_weight")
    index = labels.encode(y).long().numpy()
    balance = compute_class_weight(class_weight, classes=labels.classes, y=y)[index]
    return balance if weight is None else weight * balance


def choose_rule(rule: Any, class_weight: Any) -> Any:
    """Return the rule that is asked for: weights named for classes say what to decide, and tuning would undo it.

    "balanced" only helps training, and does not say what to decide.
    """
    named = class_weight is not None and not isinstance(class_weight, str)
    return "fixed" if named and isinstance(rule, str) and rule == "tuned" else rule


def yield_splits(
    labels: Labels, targets: Tensor, cv: Any, validation_fraction: float, seed: int
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield rows to train on and rows to evaluate and tune on; all and none where classes are too small to split.

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
        classes = len(labels.classes) if single else 1
        held = max(round(validation_fraction * len(y)), classes)
        enough = rarest > 1 and held <= len(y) - classes
        found = _hold_out(y, held, single, seed) if enough else None
    if found is None:
        yield torch.arange(len(y)), None
        return
    for rows, held_out in as_index_pairs(found):
        yield torch.from_numpy(rows), torch.from_numpy(held_out)


def as_index_pairs(pairs: Any) -> list[tuple[Any, Any]]:
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
    if folds < 2:
        return None
    if rarest is not None:
        return StratifiedKFold(folds, shuffle=True, random_state=seed).split(y, y)
    part = spread_labels(y, [1 / folds] * folds, seed)
    return [(np.flatnonzero(part != fold), np.flatnonzero(part == fold)) for fold in range(folds)]


def _hold_out(y: Any, held: int, single: bool, seed: int) -> Any:
    """Return one pair of rows to fit on and rows left out, about ``held`` of them."""
    if single:
        return StratifiedShuffleSplit(1, test_size=held, random_state=seed).split(np.zeros(len(y)), y)
    share = held / len(y)
    part = spread_labels(y, [1 - share, share], seed)
    return [(np.flatnonzero(part == 0), np.flatnonzero(part == 1))]


def spread_labels(y: Any, shares: list[float], seed: int) -> Any:
    """Return the part that each row of multi-label targets ``(N, K)`` belongs to, every label spread by these shares.

    Iterative stratification [sechidis2011]: the rows of the rarest label are given out first, each to the part that
    lacks most of that label; among equal parts, to the one that lacks most rows. So a label with at least as many rows
    as there are equal parts is in each of them.
    """
    positive = np.asarray(y) > 0
    rows, labels = positive.shape
    generator = np.random.default_rng(seed)
    share = np.asarray(shares)
    lacks_rows = share * rows
    lacks_label = share[:, None] * positive.sum(0)
    part = np.full(rows, -1)

    def assign_rows(waiting: Any, lacking: Any) -> None:
        """Give rows, in random order, to the part that lacks most; if equal, to the one that lacks most rows."""
        chance = generator.random((len(waiting), len(share))) * 1e-9  # if several are equal in both, to a random one
        for row, any_part in zip(generator.permutation(waiting), chance, strict=True):
            chosen = int((lacking + lacks_rows * (1e-6 / rows) + any_part).argmax())
            part[row] = chosen
            lacks_rows[chosen] -= 1
            lacks_label[chosen] -= positive[row]

    for _ in range(labels):
        waiting = part < 0
        number = positive[waiting].sum(0)
        if not number.any():
            break
        rarest = int(np.where(number > 0, number, rows + 1).argmin())
        assign_rows(np.flatnonzero(positive[:, rarest] & waiting), lacks_label[:, rarest])
    assign_rows(np.flatnonzero(part < 0), lacks_rows)
    return part
