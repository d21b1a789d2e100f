"""Class-wise scores: how often each class has which scores, in bounded space, and the same rows at another base rate.

What a rule is worth at a base rate depends on the rows only through the distribution of the scores within each class.
These distributions are kept as a table of bins: with at most ``MOST_SCORES`` rows of a class it is exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.core.batch import Batch
from metricgrad.core.curves import sort_descending
from metricgrad.core.metrics.scalars import is_number
from metricgrad.core.sparse import SparseBatch
from metricgrad.core.storable import Storable

if TYPE_CHECKING:
    from metricgrad.core.batch import Task
    from metricgrad.core.sparse import AnyBatch

MOST_SCORES = 1000
"""The most bins that the scores of one class are kept in."""
MOST_SCORES_OF_ALL = 20_000
"""The most bins of all labels together, but at least ``FEWEST_SCORES`` for each class."""
FEWEST_SCORES = 50


# Base rates


def check_prevalence(prevalence: Any, task: Task, classes: int) -> tuple[float, ...]:
    """Return the share of each class, or the share of positives of each label, or raise."""
    name = "prevalence"
    if task == "binary":
        if not is_number(prevalence):
            raise ValueError(f"{name}: expected one number, the share of positives, got {prevalence!r}")
        shares = [float(prevalence)]
    else:
        per, plural = ("class", "classes") if task == "multiclass" else ("label", "labels")
        if isinstance(prevalence, Mapping):
            raise ValueError(f"{name}: expected {classes} numbers in the order of the {plural}, got a mapping")
        try:
            shares = [float(share) for share in prevalence]
        except (TypeError, ValueError):
            raise ValueError(f"{name}: expected {classes} numbers, one per {per}, got {prevalence!r}") from None
        if len(shares) != classes:
            raise ValueError(f"{name}: expected {classes} numbers, one per {per}, got {len(shares)}")
    for share in shares:
        if not 0 < share < 1:
            raise ValueError(f"{name}: expected a share above 0 and below 1, got {share:g}")
    if task != "multiclass":
        return tuple(shares)
    total = math.fsum(shares)
    if abs(total - 1) > 1e-3:
        raise ValueError(f"{name}: expected shares of all classes that sum to 1, got {total:g}")
    return tuple(share / total for share in shares)


def check_can_reweight(batch: AnyBatch, task: Task) -> None:
    """Raise unless the rows can be weighted to any base rate: all classes are there, and no scores are sparse."""
    if isinstance(batch, SparseBatch):
        raise ValueError("prevalence: expected dense scores with it, got sparse ones, whose weights are those of rows")
    missing = find_missing_class(batch, task)
    if missing is not None:
        raise ValueError(f"targets: expected some of every class to weigh by prevalence=, got no {missing}")


def find_missing_class(batch: Batch, task: Task) -> str | None:
    """Return which class has no rows, in words; None if each has some."""
    weights = sum_class_weights(batch, task)
    if task == "multiclass":
        empty = [k for k, weight in enumerate(weights.tolist()) if weight <= 0]
        return f"class {empty[0]}" if empty else None
    for label, (negatives, positives) in enumerate(weights.tolist()):
        of_label = "" if task == "binary" else f" of label {label}"
        if positives <= 0:
            return f"positives{of_label}"
        if negatives <= 0:
            return f"negatives{of_label}"
    return None


def sum_class_weights(batch: Batch, task: Task) -> Tensor:
    """Return the weight of each class, ``(d,)``, or of the negatives and positives of each label, ``(K, 2)``."""
    labels = _as_memberships(batch)
    weighted = labels if batch.weight is None else labels * batch.weight.double()
    positives = weighted.sum(0)
    if task == "multiclass":
        return positives
    rows = float(batch.rows) if batch.weight is None else batch.weight.double().expand_as(labels).sum(0)
    return torch.stack((rows - positives, positives), 1)


def _as_memberships(batch: Batch) -> Tensor:
    """Return the targets as shares of each class, ``(N, K)`` in float64."""
    if batch.targets.dim() == 1:
        return F.one_hot(batch.targets, batch.classes).double()
    return batch.targets.double()


def reweight_classes(batch: Batch, task: Task, prevalence: tuple[float, ...]) -> Batch:
    """Return the rows weighted so that each class has its share; the weight of all rows stays as it was.

    Each part of a soft label gets the factor of its class. A class without rows stays without rows.
    """
    shares = torch.tensor(prevalence, dtype=torch.float64, device=batch.logits.device)
    if task != "multiclass":
        shares = torch.stack((1 - shares, shares), 1)
    class_weights = sum_class_weights(batch, task)
    wanted = shares * class_weights.sum(-1, keepdim=True)
    factors = torch.where(class_weights > 0, wanted / class_weights, 1.0)
    weight = torch.ones(1, 1, dtype=torch.float64) if batch.weight is None else batch.weight.double()
    if batch.targets.dim() == 1:
        factor_of_row = factors[batch.targets].unsqueeze(1)
        return batch.reweighted(weight * factor_of_row)
    labels = batch.targets.double()
    if task == "multiclass":
        parts = labels * factors
        together = parts.sum(1, keepdim=True)
    else:
        parts = labels * factors[:, 1]
        together = parts + (1 - labels) * factors[:, 0]
    targets = batch.targets
    if targets.is_floating_point():
        targets = torch.where(together > 0, parts / together, labels)
    return Batch(batch.logits, targets, weight * together, batch.mask)


# The table


class ScoreCounts(NamedTuple):
    """Rows of scores, and how much each counts for each class."""

    scores: Tensor
    """``(B, 1)``, or ``(B, d)`` for d classes."""
    counts: Tensor
    """``(B, d)``; of a label: as a negative and as a positive."""


@dataclass(frozen=True)
class ClassScores(Storable):
    """The class-wise scores of one decision or, for several labels, of each: a bounded summary of the rows.

    Plain lists, so that files hold them. ``scores`` and ``counts``: of each label (one of a binary or multi-class
    problem) the entries of its ``ScoreCounts``, row by row. ``columns``: of a row of scores. ``classes``: of counts.
    """

    scores: list[list[float]]
    counts: list[list[float]]
    columns: int
    classes: int

    def __post_init__(self) -> None:
        plain = isinstance(self.scores, list) and isinstance(self.counts, list)
        if not plain or not self.scores or len(self.scores) != len(self.counts):
            raise ValueError("class scores: expected lists of scores and counts, one per label, got others")
        if type(self.columns) is not int or type(self.classes) is not int or self.columns not in (1, self.classes):
            raise ValueError("class scores: expected one column of scores, or one per class, got others")
        for scores, counts in zip(self.scores, self.counts, strict=True):
            self._check_table(scores, counts)

    def _check_table(self, scores: Any, counts: Any) -> None:
        """Refuse a table of numbers that do not fit together: files may hold any."""
        lists = isinstance(scores, list) and isinstance(counts, list) and bool(scores)
        if not lists or not all(type(x) in (int, float) and not math.isnan(x) for x in (*scores, *counts)):
            raise ValueError("class scores: expected lists of numbers, got others")
        if len(scores) * self.classes != len(counts) * self.columns or len(scores) % self.columns:
            raise ValueError("class scores: expected counts of each class for each row of scores, got others")
        if min(counts) < 0 or math.isinf(max(counts)):
            raise ValueError("class scores: expected counts of at least 0, got others")

    @classmethod
    def of(cls, batch: Batch, task: Task, seed: int = 0) -> ClassScores:
        """Return the summary of rows that count; ``seed``: of the rows of several classes that are kept."""
        labels = _as_memberships(batch)
        weight = labels.new_ones(1, 1) if batch.weight is None else batch.weight.double()
        scores = batch.logits.double()
        if task == "multiclass":
            most = _limit_scores(labels.shape[1])
            tables = [_draw_rows(ScoreCounts(scores, labels * weight), most, seed)]
        else:
            most = _limit_scores(2 * labels.shape[1])
            positives = labels * weight
            negatives = (1 - labels) * weight
            tables = []
            for k in range(labels.shape[1]):
                counts = torch.stack((negatives[:, k], positives[:, k]), 1)
                tables.append(bin_scores(ScoreCounts(scores[:, k : k + 1], counts), most))
        columns = tables[0].scores.shape[1]
        classes = tables[0].counts.shape[1]
        return cls(
            [table.scores.flatten().tolist() for table in tables],
            [table.counts.flatten().tolist() for table in tables],
            columns,
            classes,
        )

    @property
    def tables(self) -> list[ScoreCounts]:
        """The table of each label."""
        return [
            ScoreCounts(
                torch.tensor(scores, dtype=torch.float64).view(-1, self.columns),
                torch.tensor(counts, dtype=torch.float64).view(-1, self.classes),
            )
            for scores, counts in zip(self.scores, self.counts, strict=True)
        ]

    @property
    def prevalence(self) -> tuple[float, ...]:
        """The share of each class, or the share of positives of each label, where the scores come from."""
        shares = [table.counts.sum(0) / table.counts.sum() for table in self.tables]
        several_classes = self.columns > 1
        return tuple(shares[0].tolist()) if several_classes else tuple(share[1].item() for share in shares)

    def count_sides(self) -> tuple[Tensor, Tensor]:
        """Return the positives, and all rows, of each class or label."""
        in_class = [table.counts.sum(0) for table in self.tables]
        several_classes = self.columns > 1
        positives = in_class[0] if several_classes else torch.stack([counts[1] for counts in in_class])
        totals = torch.stack([counts.sum() for counts in in_class]).expand_as(positives)
        return positives, totals

    def as_batch(self, task: Task) -> Batch:
        """Return rows that have these scores and counts, by weights and soft labels."""
        tables = self.tables
        if task == "multiclass":
            scores, counts = tables[0]
            weight = counts.sum(1, keepdim=True)
            return Batch(scores, counts / weight, weight, None)
        rows = max(len(table.scores) for table in tables)
        scores = torch.zeros(rows, len(tables), dtype=torch.float64)
        targets = torch.zeros_like(scores)
        weight = torch.zeros_like(scores)  # stays 0 where a label has fewer rows than another
        for k, table in enumerate(tables):
            total = table.counts.sum(1)
            scores[: len(total), k] = table.scores[:, 0]
            targets[: len(total), k] = table.counts[:, 1] / total
            weight[: len(total), k] = total
        return Batch(scores, targets, weight, None)


def _limit_scores(classes: int) -> int:
    """Return the most bins of each of so many classes."""
    return max(FEWEST_SCORES, min(MOST_SCORES, MOST_SCORES_OF_ALL // classes))


def bin_scores(table: ScoreCounts, most: int = MOST_SCORES) -> ScoreCounts:
    """Return the table of one column of scores in bins, from the highest score down.

    A bin ends where the rows of some class, counted from the top, pass another ``most``-th of their number, and at
    equal scores it ends after all of them. Its score is the lowest in it, so that the counts at this threshold are
    exact. Of a class with at most ``most`` rows every score ends a bin.
    """
    has_weight = table.counts.sum(1) > 0
    scores, order = sort_descending(table.scores[has_weight, 0])
    counts = table.counts[has_weight][order]
    sums = counts.cumsum(0)
    passed = (sums / sums[-1].clamp(min=1e-300) * most - 1e-9).ceil()
    before = torch.cat((passed.new_zeros(1, passed.shape[1]), passed[:-1]))
    ends = (passed > before).any(1)
    same_as_next = torch.cat((scores[1:] == scores[:-1], scores.new_zeros(1, dtype=torch.bool)))
    # Within equal scores an end moves to the last of them.
    group = torch.cat((same_as_next.new_zeros(1), ~same_as_next[:-1])).cumsum(0)
    group_ends = torch.zeros(int(group[-1]) + 1, dtype=torch.bool).index_put((group[ends],), torch.tensor(True))
    ends = group_ends[group] & ~same_as_next
    ends[-1] = True
    bin_of_row = torch.cat((ends.new_zeros(1), ends[:-1])).cumsum(0)
    binned = counts.new_zeros(int(ends.sum()), counts.shape[1]).index_add(0, bin_of_row, counts)
    return ScoreCounts(scores[ends].unsqueeze(1), binned)


def _draw_rows(table: ScoreCounts, most: int, seed: int) -> ScoreCounts:
    """Return at most so many random rows of each class, weighted so that its weight stays as it was."""
    generator = torch.Generator().manual_seed(seed)
    scores: list[Tensor] = []
    counts: list[Tensor] = []
    for k in range(table.counts.shape[1]):
        weight = table.counts[:, k]
        rows = weight.nonzero().squeeze(1)
        if len(rows) > most:
            rows = rows[torch.randperm(len(rows), generator=generator)[:most].sort().values]
        kept = table.counts.new_zeros(len(rows), table.counts.shape[1])
        kept[:, k] = weight[rows] * (weight.sum() / weight[rows].sum())
        scores.append(table.scores[rows])
        counts.append(kept)
    return ScoreCounts(torch.cat(scores), torch.cat(counts))
