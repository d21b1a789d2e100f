"""Rows for a guarantee alone: held out from fitting, so that they are to the model what new rows will be.

Out-of-fold scores are not: each comes from a model of fewer rows than the one that scores new rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from metricgrad.core.metrics.scalars import is_number, is_whole
from metricgrad.decisions.default_rule import RARE_LABELS
from metricgrad.decisions.threshold_tuning import TuningResult, tune_threshold

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def check_guarantee_rows(share: Any, confidence: float | None, subject_to: Any, groups: Any = None) -> None:
    """Refuse a confidence without a constraint, and held-out rows without a confidence or of an impossible share."""
    if confidence is not None and subject_to is None:
        raise ValueError(f"confidence: expected a constraint to hold with it, subject_to=, got {confidence!r} alone")
    if confidence is not None and groups is not None:
        raise ValueError("groups: expected none with confidence=, since rows of a group are not independent")
    if share is None:
        return
    if not is_number(share) or not 0 < share < 1:
        raise ValueError(f"guarantee_rows: expected a share of the rows in (0, 1) or None, got {share!r}")
    if confidence is None:
        raise ValueError("guarantee_rows: expected a confidence= to guarantee, got None")


def check_abstain_label(abstain: bool, abstain_label: Any, classes: NDArray[Any]) -> None:
    """Refuse what cannot be predicted for undecided rows: a class, or another type than that of the classes."""
    if abstain_label is None:
        return
    if not abstain:
        raise ValueError(f"abstain_label: expected abstain=True with it, got {abstain_label!r} alone")
    known = classes.tolist()
    if abstain_label in known:
        raise ValueError(f"abstain_label: expected a value that is no class, got {abstain_label!r}")
    if all(isinstance(label, str) for label in known):
        wanted, is_like = "a text", isinstance(abstain_label, str)
    elif all(is_whole(label) for label in known):
        wanted, is_like = "a whole number", is_whole(abstain_label)
    else:
        return
    if not is_like:  # an array of both would turn the classes into texts, or into other numbers
        raise ValueError(f"abstain_label: expected {wanted}, like the classes, or None, got {abstain_label!r}")


def hold_out_rows(rows: int, share: float, random_state: Any) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows to fit on and those held out. They are not stratified, since new rows are not either."""
    held_out = max(1, round(share * rows))
    if held_out >= rows:
        raise ValueError(f"guarantee_rows: expected a share that leaves rows to fit on, got {share!r} of {rows}")
    order = check_random_state(random_state).permutation(rows)
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def tune_on_scores(
    model: Any, scores: Tensor, targets: Tensor, weight: Any = None, default_threshold: float = 0.5, **options: Any
) -> TuningResult:
    """Tune the rule of an estimator on scores, under its constraints and with its confidence."""
    return tune_threshold(
        model._metric,
        scores,
        targets,
        task=model.labels_.task,
        average=model.average,
        subject_to=model.subject_to,
        confidence=model.confidence,
        confidence_over=model.confidence_over,
        weight=None if weight is None else np.asarray(weight, dtype=float),
        rare_labels=RARE_LABELS,
        default_threshold=default_threshold,
        **options,
    )
