"""Threshold averaging: a published heuristic to compare exact tuning with."""

from __future__ import annotations

from typing import Any

import torch

from metricgrad.core.counts import Counts
from metricgrad.core.inputs import as_scored_batch
from metricgrad.core.metrics import Metric, f1, get
from metricgrad.decisions.rules import Threshold


def threshold_averaging(scores: Any, targets: Any, metric: str | Metric = f1) -> Threshold:
    """Return the mean of the thresholds that are best for each row alone [decubber2018; benedict2022, §7].

    Each score of a row is tried as its threshold; the highest of the best is the row's. Rows without positive labels
    are left out: every threshold is equally good for them. A heuristic to compare with: ``tune_threshold`` with
    ``shared=True, average="samples"`` is exact for what it aims at.

    Parameters
    ----------
    scores : Tensor or array-like
        ``(N, K)`` scores on any scale, as torch, numpy, pandas or lists.
    targets : Tensor or array-like
        ``(N, K)`` labels 0 or 1.
    metric : str or callable, default 'f1'
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).

    Returns
    -------
    Threshold
        One threshold for all labels.

    Raises
    ------
    ValueError
        If no row has a positive label.

    Examples
    --------
    >>> threshold_averaging([[0.75, 0.25], [1.0, 0.5]], [[1, 0], [1, 1]])
    Threshold(threshold=0.625)

    """
    batch = as_scored_batch("multilabel", scores, targets).on_host()
    sorted_scores, order = batch.logits.sort(dim=1, descending=True)
    labels = batch.targets.double().gather(1, order)
    has_positive = labels.sum(1) > 0
    if not has_positive.any():
        raise ValueError("targets: expected at least one row with a positive label, got none")
    tp = labels.cumsum(1)
    fp = (1 - labels).cumsum(1)
    values = get(metric)(Counts(tp, fp, tp[:, -1:] - tp, fp[:, -1:] - fp))
    last_of_equals = torch.ones_like(values, dtype=torch.bool)  # a threshold takes all of equal scores or none
    last_of_equals[:, :-1] = sorted_scores[:, 1:] != sorted_scores[:, :-1]
    best = torch.where(last_of_equals, values, -torch.inf).argmax(1, keepdim=True)
    thresholds = sorted_scores.gather(1, best).squeeze(1)
    return Threshold(thresholds[has_positive].double().mean().item())
