"""The ends of intervals, and when there are too few positives for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from metricgrad.evaluation.score_metrics import AtK

if TYPE_CHECKING:
    from torch import Tensor

    from metricgrad.evaluation.metric_set import MetricSet

FEWEST_POSITIVES = 5
"""The fewest rows, or groups, with a positive of which an interval is made."""


class TooFewPositivesError(ValueError):
    """There are too few positives for an interval."""


def check_positives(metrics: MetricSet, positives: Tensor) -> None:
    """Refuse too few positives of the classes that count, ``(K,)``: of all together, or of any that is on its own.

    Means over rows need no positives.
    """
    has_metric_at_k = any(isinstance(metric, AtK) for metric in metrics.score_metrics.values())
    if not (metrics.has_cells or metrics.has_curves or has_metric_at_k):
        return
    over = metrics.over_classes
    labels = range(len(positives)) if over.labels is None else over.labels
    counted = {label: int(positives[label]) for label in labels}
    if over.average == "per-class" and len(positives) > 1:
        rarest = min(counted, key=lambda label: counted[label])
        number = counted[rarest]
        whose = f" of class {rarest}"
        advice = "choose classes with labels="
    else:
        number = sum(counted.values())
        whose = ""
        advice = "mg.evaluate returns the value alone"
    if number < FEWEST_POSITIVES:
        raise TooFewPositivesError(
            f"targets: too few positives for an interval{whose}, expected rows (or groups) with one: at least "
            f"{FEWEST_POSITIVES}, got {number}; {advice}"
        )


def find_ends(drawn: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    """Return the ends of intervals of replicates ``(2, R, ...)``, which have one more row wrong, or right.

    If lower values are better, the replicates with a wrong row are the higher ones.
    """
    tail = (1 - confidence) / 2
    low, high = torch.nanquantile(drawn, drawn.new_tensor([tail, 1 - tail]), dim=1).unbind(0)
    return low.amin(0), high.amax(0)
