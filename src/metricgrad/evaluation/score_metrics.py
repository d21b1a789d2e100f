"""Metrics of scores that the counts of one rule do not hold: calibration, and the order of the labels within a row.

Each is a function of sums over rows, so that batches, processes and bootstrap resamples add up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.core.counts import Counts, compute_dtype
from metricgrad.core.metrics import get
from metricgrad.core.metrics.averages import class_weights, mean_over_classes
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.decisions import hard_counts
from metricgrad.decisions.rules import TopK
from metricgrad.evaluation.score_bins import find_bins

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.batch import Batch, Task
    from metricgrad.core.metrics import Metric
    from metricgrad.core.objective import Objective
    from metricgrad.core.sparse import SparseBatch
    from metricgrad.decisions.rules import Rule

SEVERAL: tuple[Task, ...] = ("multilabel",)
ALL: tuple[Task, ...] = ("binary", "multilabel", "multiclass")


class ScoreMetric(ABC):
    """A metric as a function of sums over rows."""

    tasks: ClassVar[tuple[Task, ...]] = ALL
    by_row: ClassVar[bool] = False
    """Whether a row has one value, so that there is nothing to average over classes."""
    decides: ClassVar[bool] = False
    """Whether it depends on the rule."""
    worst: ClassVar[float | None] = None
    best: ClassVar[float | None] = None
    """The value of a row on which all is right, of a mean over rows that has such limits."""

    @abstractmethod
    def columns(self, batch: Batch, task: Task, rule: Rule) -> Tensor:
        """Return what each row adds to the sums, weights included: ``(N, M, K)`` in float64, K = 1 with ``by_row``."""

    def sums_of_stored(self, batch: SparseBatch, name: str) -> Tensor:
        """Return the sums ``(M, K)`` of a sparse batch; most metrics are of all scores and refuse it."""
        raise ValueError(f"metrics: {name!r} needs every score, got sparse ones; pass scores.toarray()")

    @abstractmethod
    def value(self, sums: Tensor) -> Tensor:
        """Return the value of each class, ``(..., K)``, of sums ``(..., M, K)``."""

    def positives(self, sums: Tensor) -> Tensor:
        """Return the positives of each class, ``(..., K)``, for averages that depend on them."""
        return sums[..., -1, :]

    def average(self, sums: Tensor, over: Objective) -> Tensor:
        """Return the value, averaged over classes as ``over`` says; leading axes (replicates) stay."""
        if self.by_row or over.task != "multilabel":
            return self.value(sums).squeeze(-1)
        if over.average == "micro":
            kept = sums if over.labels is None else sums[..., list(over.labels)]
            return self.value(kept.sum(-1, keepdim=True)).squeeze(-1)
        values = self.value(sums)
        if over.average == "per-class":
            return values if over.labels is None else values[..., list(over.labels)]
        return mean_over_classes(
            values, class_weights(over.average, self.positives(sums), over.labels, over.empty_classes)
        )


# Calibration: probabilities against what happened


@dataclass(frozen=True)
class BrierScore(ScoreMetric):
    """The mean squared difference of probability and outcome [brier1950]; lower is better."""

    def columns(self, batch: Batch, task: Task, rule: Rule) -> Tensor:
        p, y, w = _probabilities(batch, task, "brier_score")
        error = (p - y) ** 2
        return _means(error.sum(1, keepdim=True) if task == "multiclass" else error, w, y)

    def value(self, sums: Tensor) -> Tensor:
        return ratio(sums[..., 0, :], sums[..., 1, :])


@dataclass(frozen=True)
class LogLoss(ScoreMetric):
    """Cross-entropy of probabilities, kept an epsilon of their type (float32 at least) off 0 and 1; lower is better."""

    def columns(self, batch: Batch, task: Task, rule: Rule) -> Tensor:
        p, y, w = _probabilities(batch, task, "log_loss")
        least = torch.finfo(compute_dtype(batch.logits)).eps
        p = p.clamp(least, 1 - least)
        error = -(y * p.log())
        if task == "multiclass":
            return _means(error.sum(1, keepdim=True), w, y)
        return _means(error - (1 - y) * (1 - p).log(), w, y)

    def value(self, sums: Tensor) -> Tensor:
        return ratio(sums[..., 0, :], sums[..., 1, :])


@dataclass(frozen=True)
class ExpectedCalibrationError(ScoreMetric):
    """The mean difference of confidence and frequency within bins of equal width [guo2017]; lower is better.

    The confidence is the probability of the label; for a multi-class problem that of the most likely class, and the
    frequency how often that class is right. A bin holds its lower edge, and 1 is a bin of its own, as in torchmetrics.
    """

    bins: int = 15

    def columns(self, batch: Batch, task: Task, rule: Rule) -> Tensor:
        p, y, w = _probabilities(batch, task, "expected_calibration_error")
        positives = y
        if task == "multiclass":
            p, best = p.max(1, keepdim=True)
            y = y.gather(1, best)
        bins = find_bins(p.to(batch.logits.dtype), self.bins)
        inside = F.one_hot(bins, self.bins + 1).transpose(1, 2).double()  # (N, bins + 1, K)
        parts = [inside * (w * x).unsqueeze(1) for x in (p, y, torch.ones_like(p))]
        last = (w * positives).sum(1, keepdim=True) if task == "multiclass" else w * positives
        return torch.cat((*parts, last.unsqueeze(1)), 1)

    def value(self, sums: Tensor) -> Tensor:
        confidence, right, weight = sums[..., :-1, :].unflatten(-2, (3, self.bins + 1)).unbind(-3)
        return ratio((confidence - right).abs().sum(-2), weight.sum(-2))


def _probabilities(batch: Batch, task: Task, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return probabilities, targets ``(N, K)`` and weights that fit both, in float64; refuse other scores."""
    p = batch.logits.double()
    if p.numel() and not (p.amin() >= 0 and p.amax() <= 1):
        how = "torch.softmax" if task == "multiclass" else "torch.sigmoid"
        raise ValueError(
            f"scores: expected probabilities in [0, 1] for {name}, got {p.amin().item():g} to {p.amax().item():g}; "
            f"apply {how} to logits"
        )
    kept = None if batch.mask is None else batch.mask.squeeze(1)
    if task == "multiclass" and p.numel():
        off = (p.sum(1) - 1).abs() if kept is None else (p.sum(1) - 1).abs()[kept]
        rounding = torch.finfo(batch.logits.dtype).eps  # of probabilities in half precision
        if off.numel() and off.amax() > max(1e-3, rounding):
            raise ValueError(
                f"scores: expected the probabilities of each row to add up to 1 for {name}, got a row that is off by "
                f"{off.amax().item():.3g}; apply torch.softmax to logits"
            )
    return p, _targets(batch), _weights(batch, 1 if task == "multiclass" else p.shape[1])


def _targets(batch: Batch) -> Tensor:
    y = batch.targets
    return (F.one_hot(y, batch.logits.shape[1]) if y.dim() == 1 else y).double()


def _weights(batch: Batch, classes: int) -> Tensor:
    rows = len(batch.logits)
    w = batch.logits.new_ones(rows, 1, dtype=torch.float64) if batch.weight is None else batch.weight.double()
    return w.expand(rows, classes)


def _means(values: Tensor, w: Tensor, y: Tensor) -> Tensor:
    """Return the columns of a weighted mean: value, weight, and positives for the weighted average over classes."""
    positives = w * y if w.shape == y.shape else w
    return torch.stack((w * values, w, positives), 1)


# The order of the labels within a row


class RowMetric(ScoreMetric):
    """The mean over rows of what ``values`` returns for each."""

    tasks = SEVERAL
    by_row = True
    name: ClassVar[str]

    @abstractmethod
    def values(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the value of each row, ``(N,)``, of scores and targets ``(N, K)``."""

    def columns(self, batch: Batch, task: Task, rule: Rule) -> Tensor:
        if batch.weight is not None and batch.weight.shape[1] > 1:
            raise ValueError(
                f"weight and mask: expected one per row for {self.name}, which orders the labels of a row, got one per "
                "label"
            )
        w = _weights(batch, 1)
        values = self.values(batch.logits, _targets(batch)).double().unsqueeze(1)
        return torch.stack((w * values, w), 1)

    def value(self, sums: Tensor) -> Tensor:
        return ratio(sums[..., 0, :], sums[..., 1, :])


@dataclass(frozen=True)
class NDCG(RowMetric):
    """Normalised discounted cumulative gain [jarvelin2002], of the first ``k`` labels; equal scores share their ranks.

    A row without positives has 0, as in scikit-learn.
    """

    k: int | None = None
    name: ClassVar[str] = "ndcg"
    worst, best = 0.0, 1.0

    def values(self, scores: Tensor, targets: Tensor) -> Tensor:
        labels = scores.shape[1]
        discount = 1 / torch.log2(torch.arange(2, labels + 2, dtype=torch.float64, device=scores.device))
        if self.k is not None:
            discount[self.k :] = 0
        ordered, order = scores.sort(dim=1, descending=True, stable=True)
        group = F.pad((ordered[:, 1:] != ordered[:, :-1]).long().cumsum(1), (1, 0))
        empty = discount.new_zeros(scores.shape)
        shared = empty.scatter_add(1, group, discount.expand_as(empty))
        size = empty.scatter_add(1, group, torch.ones_like(empty))
        gain = (targets.gather(1, order) * ratio(shared, size).gather(1, group)).sum(1)
        return ratio(gain, (targets.sort(1, descending=True).values * discount).sum(1))


@dataclass(frozen=True)
class TopKAccuracy(RowMetric):
    """How often the true class is among the ``k`` of the highest scores; of equal ones the last, as in scikit-learn."""

    k: int = 2
    tasks = ("multiclass",)
    name: ClassVar[str] = "top_k_accuracy"
    worst, best = 0.0, 1.0

    def values(self, scores: Tensor, targets: Tensor) -> Tensor:
        best = scores.argsort(dim=1, stable=True).flip(1)[:, : self.k]
        return targets.gather(1, best).sum(1)


@dataclass(frozen=True)
class RankingLoss(RowMetric):
    """The share of pairs, a positive and a negative label of a row, in the wrong order; lower is better.

    Equal scores are in the wrong order, and a row without positives or without negatives has 0, as in scikit-learn's
    ``label_ranking_loss``.
    """

    name: ClassVar[str] = "ranking_loss"
    worst, best = 1.0, 0.0

    def values(self, scores: Tensor, targets: Tensor) -> Tensor:
        ordered, order = scores.sort(1)
        y = targets.gather(1, order)
        last = torch.searchsorted(ordered, ordered, right=True) - 1  # the last of equal scores
        below = y.cumsum(1).gather(1, last)
        return ratio((below * (1 - y)).sum(1), y.sum(1) * (1 - y).sum(1))


@dataclass(frozen=True)
class CoverageError(RowMetric):
    """How many of the highest scores of a row it takes to have all its positives; lower is better.

    Equal scores are all needed, and a row without positives has 0, as in scikit-learn's ``coverage_error``.
    """

    name: ClassVar[str] = "coverage_error"

    def values(self, scores: Tensor, targets: Tensor) -> Tensor:
        least = scores.masked_fill(targets == 0, torch.inf).amin(1, keepdim=True)
        return (scores >= least).sum(1)


# Decisions


@dataclass(frozen=True)
class HammingLoss(ScoreMetric):
    """The share of wrong decisions among all labels of all rows (of all rows, for one class a row); lower is better."""

    by_row = True
    decides = True
    worst, best = 1.0, 0.0

    def columns(self, batch: Batch, task: Task, rule: Rule) -> Tensor:
        decided = hard_counts.decide_batch(batch, rule, classes=task == "multiclass")
        y = _targets(batch)
        wrong = 1 - y.gather(1, decided.unsqueeze(1)) if task == "multiclass" else (decided.double() - y).abs()
        w = _weights(batch, wrong.shape[1])
        return torch.stack(((w * wrong).sum(1, keepdim=True), w.sum(1, keepdim=True)), 1)

    def value(self, sums: Tensor) -> Tensor:
        return ratio(sums[..., 0, :], sums[..., 1, :])


@dataclass(frozen=True)
class AtK(ScoreMetric):
    """A metric of counts when each row gets the ``k`` labels of its highest scores."""

    metric: Metric
    k: int
    tasks = SEVERAL

    def columns(self, batch: Batch, task: Task, rule: Rule) -> Tensor:
        decided = hard_counts.decide_batch(batch, TopK(self.k)).double()
        y, w = _targets(batch), _weights(batch, decided.shape[1])
        return torch.stack(
            (w * y * decided, w * (1 - y) * decided, w * y * (1 - decided), w * (1 - y) * (1 - decided)), 1
        )

    def sums_of_stored(self, batch: SparseBatch, name: str) -> Tensor:
        # Every row gets k labels, whatever is stored: the value is that of the dense matrix.
        filled = batch.with_room_for(self.k)
        decided = filled.largest(filled.logits, self.k)
        return torch.stack(filled.counts(decided).cells())

    def value(self, sums: Tensor) -> Tensor:
        return self.metric(Counts(*sums.unbind(-2)))

    def positives(self, sums: Tensor) -> Tensor:
        return sums[..., 0, :] + sums[..., 2, :]


PLAIN: dict[str, ScoreMetric] = {
    "brier_score": BrierScore(),
    "log_loss": LogLoss(),
    "expected_calibration_error": ExpectedCalibrationError(),
    "hamming_loss": HammingLoss(),
    "ranking_loss": RankingLoss(),
    "coverage_error": CoverageError(),
    "ndcg": NDCG(),
    "top_k_accuracy": TopKAccuracy(),
}
WITH_NUMBER: dict[str, Callable[[int], ScoreMetric]] = {
    "expected_calibration_error": ExpectedCalibrationError,
    "ndcg": NDCG,
    "top_k_accuracy": TopKAccuracy,
}
"""What the number after an @ goes to: bins, or k."""


def score_metric(name: str) -> ScoreMetric | None:
    """Return the metric of a name such as "brier_score", "ndcg@5" or "f1@5" (under ``TopK(5)``); None for others."""
    if name in PLAIN:
        return PLAIN[name]
    base, at, number = name.partition("@")
    if not at or base == "auroc":
        return None
    if not (number.isdecimal() and int(number) > 0):
        raise ValueError(f"metrics: expected a whole number of at least 1 after the @, as in '{base}@5', got {name!r}")
    return WITH_NUMBER[base](int(number)) if base in WITH_NUMBER else AtK(get(base), int(number))
