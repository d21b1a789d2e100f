"""What users write, fully typed: ``mypy --strict`` has nothing to say about it. It is checked, and not run."""

from __future__ import annotations

import torch
from torch import Tensor

import metricgrad as mg

scores, targets = torch.rand(8), torch.ones(8)


def value_of_f1() -> float:
    return mg.evaluate(scores, targets, "f1")["f1"]


def values_by_name() -> dict[str, float]:
    return mg.evaluate(scores, targets, ["f1", "mcc"], task="binary", threshold=0.3)


def best_threshold() -> float:
    return mg.tune_threshold("f1", scores, targets).threshold


def best_value() -> float:
    return mg.tune_threshold("f1", scores, targets, task="multilabel", weight=None).value


def thresholds_of_labels() -> tuple[float, ...]:
    return mg.tune_threshold("f1", scores, targets, task="multilabel", average="micro").threshold


def values_of_labels() -> list[float]:
    return mg.tune_threshold("f1", scores, targets, task="multilabel", average=None).value


def shared_threshold() -> float:
    return mg.tune_threshold("f1", scores, targets, task="multilabel", shared=True).threshold


def offsets_of_classes() -> tuple[float, ...]:
    return mg.tune_threshold("f1", scores, targets, task="multiclass").threshold


def critical_success(c: mg.Counts) -> Tensor:
    return mg.metrics.ratio(c.tp, c.tp + c.fn + 2 * c.fp)


def trace(c: mg.Confusion) -> Tensor:
    return c.matrix.diagonal().sum() / c.matrix.sum()


def losses_of_own_metrics() -> list[mg.MetricLoss | mg.HybridLoss]:
    return [
        mg.MetricLoss(critical_success),
        mg.MetricLoss(lambda c: 1 - (2 * c.fp + 5 * c.fn) / (7 * c.total)),
        mg.MetricLoss(trace, task="multiclass"),
        mg.HybridLoss("f1", metric_weight=0.3, per_image=True),
    ]
