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

MULTILABEL_ONLY: tuple[Task, ...] = ("multilabel",)
ALL_TASKS: tuple[Task, ...] = ("binary", "multilabel", "multiclass")


class ScoreMetric(ABC):
    """A metric as a function of sums over rows."""

    tasks: ClassVar[tuple[Task, ...]] = ALL_TASKS
    by_row: ClassVar[bool] = False
    """Whether a row has one value, so that there is nothing to average over classes."""
    decides: ClassVar[bool] = False
    """Whether it depends on the rule."""
    lower_is_better: ClassVar[bool] = False
    worst: ClassVar[float | None] = None
    best: ClassVar[float | None] = None
    """The value of a row that is wholly right, for a mean over rows that has such a limit."""

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
        weights = class_weights(over.average, self.positives(sums), over.labels, over.empty_classes)
        return mean_over_classes(values, weights)


# Calibration: probabilities against what happened


@dataclass(frozen=True)
class BrierScore(ScoreMetric):
    """The mean squared difference of probability and outcome [brier1950]; lower is better."""

    lower_is_better = True

    def columns(self, batch: Batch, task: Task, rule: Rule) -> Tensor:
        probabilities, targets, weight = _check_probabilities(batch, task, "brier_score")
        squares = (probabilities - targets) ** 2
        error = squares.sum(1, keepdim=True) if task == "multiclass" else squares
        return _stack_mean(error, weight, targets)

    def value(self, sums: Tensor) -> Tensor:
        return ratio(sums[..., 0, :], sums[..., 1, :])


@dataclass(frozen=True)
class LogLoss(ScoreMetric):
    """Cross-entropy of probabilities, kept an epsilon of their type (float32 at least) off 0 and 1; lower is better."""

    lower_is_better = True

    def columns(self, batch: Batch, task: Task, rule: Rule) -> Tensor:
        probabilities, targets, weight = _check_probabilities(batch, task, "log_loss")
        lowest = torch.finfo(compute_dtype(batch.logits)).eps
        p = probabilities.clamp(lowest, 1 - lowest)
        of_positives = -(targets * p.log())
        if task == "multiclass":
            return _stack_mean(of_positives.sum(1, keepdim=True), weight, targets)
        return _stack_mean(of_positives - (1 - targets) * (1 - p).log(), weight, targets)

    def value(self, sums: Tensor) -> Tensor:
        return ratio(sums[..., 0, :], sums[..., 1, :])


@dataclass(frozen=True)
class ExpectedCalibrationError(ScoreMetric):
    """The mean difference of confidence and frequency within bins of equal width [guo2017]; lower is better.

    The confidence is the probability of the label; for a multi-class problem that of the most likely class, and the
    frequency how often that class is right. A bin holds its lower edge, and 1 is a bin of its own, as in torchmetrics.
    """

    lower_is_better = True
    bins: int = 15

    def columns(self, batch: Batch, task: Task, rule: Rule) -> Tensor:
        confidence, targets, weight = _check_probabilities(batch, task, "expected_calibration_error")
        right = targets
        if task == "multiclass":
            confidence, best = confidence.max(1, keepdim=True)
            right = targets.gather(1, best)
        bins = find_bins(confidence.to(batch.logits.dtype), self.bins)
        inside = F.one_hot(bins, self.bins + 1).transpose(1, 2).double()  # (N, bins + 1, K)
        by_bin = [inside * (weight * x).unsqueeze(1) for x in (confidence, right, torch.ones_like(confidence))]
        weighted = weight * targets
        positives = weighted.sum(1, keepdim=True) if task == "multiclass" else weighted
        return torch.cat((*by_bin, positives.unsqueeze(1)), 1)

    def value(self, sums: Tensor) -> Tensor:
        confidence, right, weight = sums[..., :-1, :].unflatten(-2, (3, self.bins + 1)).unbind(-3)
        return ratio((confidence - right).abs().sum(-2), weight.sum(-2))


def _check_probabilities(batch: Batch, task: Task, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return probabilities, targets ``(N, K)`` and weights that fit both, in float64; refuse other scores."""
    p = batch.logits.double()
    if p.numel() and not (p.amin() >= 0 and p.amax() <= 1):
        how = "torch.softmax" if task == "multiclass" else "torch.sigmoid"
        raise ValueError(
            f"scores: expected probabilities in [0, 1] for {name}, got {p.amin().item():g} to {p.amax().item():g}; "
            f"apply {how} to logits"
        )
    if task == "multiclass" and p.numel():
        off = (p.sum(1) - 1).abs()
        if batch.mask is not None:
            off = off[batch.mask.squeeze(1)]
        rounding = torch.finfo(batch.logits.dtype).eps  # of probabilities in half precision
        if off.numel() and off.amax() > max(1e-3, rounding):
            raise ValueError(
                f"scores: expected the probabilities of each row to add up to 1 for {name}, got a row that is off by "
                f"{off.amax().item():.3g}; apply torch.softmax to logits"
            )
    weighted_columns = 1 if task == "multiclass" else p.shape[1]
    return p, _expand_targets(batch), _expand_weight(batch, weighted_columns)


def _expand_targets(batch: Batch) -> Tensor:
    """Return 0 or 1 (or soft labels) for each row and class, in float64."""
    targets = batch.targets
    return (F.one_hot(targets, batch.logits.shape[1]) if targets.dim() == 1 else targets).double()


def _expand_weight(batch: Batch, columns: int) -> Tensor:
    rows = len(batch.logits)
    if batch.weight is None:
        return batch.logits.new_ones(rows, 1, dtype=torch.float64).expand(rows, columns)
    return batch.weight.double().expand(rows, columns)


def _stack_mean(values: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the columns of a weighted mean: value, weight, and positives for the weighted average over classes."""
    positives = weight * targets if weight.shape == targets.shape else weight
    return torch.stack((weight * values, weight, positives), 1)


# The order of the labels within a row


class RowMetric(ScoreMetric):
    """The mean over rows of what ``values`` returns for each."""

    tasks = MULTILABEL_ONLY
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
        weight = _expand_weight(batch, 1)
        values = self.values(batch.logits, _expand_targets(batch)).double().unsqueeze(1)
        return torch.stack((weight * values, weight), 1)

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
        sorted_scores, order = scores.sort(dim=1, descending=True, stable=True)
        # Labels of equal scores are a group, which shares the discounts of its ranks.
        differs_from_previous = sorted_scores[:, 1:] != sorted_scores[:, :-1]
        group = F.pad(differs_from_previous.long().cumsum(1), (1, 0))
        nothing = discount.new_zeros(scores.shape)
        group_discount = nothing.scatter_add(1, group, discount.expand_as(nothing))
        group_size = nothing.scatter_add(1, group, torch.ones_like(nothing))
        shared_discount = ratio(group_discount, group_size).gather(1, group)
        gain = (targets.gather(1, order) * shared_discount).sum(1)
        best_gain = (targets.sort(1, descending=True).values * discount).sum(1)
        return ratio(gain, best_gain)


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

    lower_is_better = True
    name: ClassVar[str] = "ranking_loss"
    worst, best = 1.0, 0.0

    def values(self, scores: Tensor, targets: Tensor) -> Tensor:
        sorted_scores, order = scores.sort(1)
        labels = targets.gather(1, order)
        last_of_equals = torch.searchsorted(sorted_scores, sorted_scores, right=True) - 1
        positives_not_above = labels.cumsum(1).gather(1, last_of_equals)
        wrong_pairs = (positives_not_above * (1 - labels)).sum(1)
        pairs = labels.sum(1) * (1 - labels).sum(1)
        return ratio(wrong_pairs, pairs)


@dataclass(frozen=True)
class CoverageError(RowMetric):
    """How many of the highest scores of a row it takes to have all its positives; lower is better.

    Equal scores are all needed, and a row without positives has 0, as in scikit-learn's ``coverage_error``.
    """

    lower_is_better = True
    name: ClassVar[str] = "coverage_error"

    def values(self, scores: Tensor, targets: Tensor) -> Tensor:
        lowest_positive = scores.masked_fill(targets == 0, torch.inf).amin(1, keepdim=True)
        return (scores >= lowest_positive).sum(1)


# Decisions


@dataclass(frozen=True)
class HammingLoss(ScoreMetric):
    """The share of wrong decisions among all labels of all rows (of all rows, for one class a row); lower is better."""

    lower_is_better = True
    by_row = True
    decides = True
    worst, best = 1.0, 0.0

    def columns(self, batch: Batch, task: Task, rule: Rule) -> Tensor:
        decided = hard_counts.decide_batch(batch, rule, classes=task == "multiclass")
        targets = _expand_targets(batch)
        if task == "multiclass":
            wrong = 1 - targets.gather(1, decided.unsqueeze(1))
        else:
            wrong = (decided.double() - targets).abs()
        weight = _expand_weight(batch, wrong.shape[1])
        wrong_weight = (weight * wrong).sum(1, keepdim=True)
        return torch.stack((wrong_weight, weight.sum(1, keepdim=True)), 1)

    def value(self, sums: Tensor) -> Tensor:
        return ratio(sums[..., 0, :], sums[..., 1, :])


@dataclass(frozen=True)
class AtK(ScoreMetric):
    """A metric of counts when each row gets the ``k`` labels of its highest scores."""

    metric: Metric
    k: int
    tasks = MULTILABEL_ONLY

    def columns(self, batch: Batch, task: Task, rule: Rule) -> Tensor:
        decided = hard_counts.decide_batch(batch, TopK(self.k)).double()
        targets = _expand_targets(batch)
        weight = _expand_weight(batch, decided.shape[1])
        tp = weight * targets * decided
        fp = weight * (1 - targets) * decided
        fn = weight * targets * (1 - decided)
        tn = weight * (1 - targets) * (1 - decided)
        return torch.stack((tp, fp, fn, tn), 1)

    def sums_of_stored(self, batch: SparseBatch, name: str) -> Tensor:
        # Every row gets k labels, whatever is stored: the value is that of the dense matrix.
        filled = batch.with_room_for(self.k)
        decided = filled.largest(filled.logits, self.k)
        return torch.stack(filled.counts(decided).cells())

    def value(self, sums: Tensor) -> Tensor:
        return self.metric(Counts(*sums.unbind(-2)))

    def positives(self, sums: Tensor) -> Tensor:
        return sums[..., 0, :] + sums[..., 2, :]


SCORE_METRICS: dict[str, ScoreMetric] = {
    "brier_score": BrierScore(),
    "log_loss": LogLoss(),
    "expected_calibration_error": ExpectedCalibrationError(),
    "hamming_loss": HammingLoss(),
    "ranking_loss": RankingLoss(),
    "coverage_error": CoverageError(),
    "ndcg": NDCG(),
    "top_k_accuracy": TopKAccuracy(),
}
SCORE_METRICS_WITH_NUMBER: dict[str, Callable[[int], ScoreMetric]] = {
    "expected_calibration_error": ExpectedCalibrationError,
    "ndcg": NDCG,
    "top_k_accuracy": TopKAccuracy,
}
"""What the number after an @ goes to: bins, or k."""


def find_score_metric(name: str) -> ScoreMetric | None:
    """Return the metric of a name such as "brier_score", "ndcg@5" or "f1@5" (under ``TopK(5)``); None for others."""
    if name in SCORE_METRICS:
        return SCORE_METRICS[name]
    base, at, number = name.partition("@")
    if not at or base == "auroc":
        return None
    if not (number.isdecimal() and int(number) > 0):
        raise ValueError(f"metrics: expected a whole number of at least 1 after the @, as in '{base}@5', got {name!r}")
    if base in SCORE_METRICS_WITH_NUMBER:
        return SCORE_METRICS_WITH_NUMBER[base](int(number))
    return AtK(get(base), int(number))
