"""Score tables: what a curve needs of a stream of scores, exactly or in bounded memory with a known error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.core import curves
from metricgrad.core.batch import Batch
from metricgrad.core.curves import Curve, cumulate
from metricgrad.core.metrics.averages import class_weights, mean_over_classes
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.sparse import AnyBatch, SparseBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.objective import Objective


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """The distinct scores of one class and the weight of positives and negatives at each; tables add with ``+``.

    Weights may have leading axes (replicates), which all scores share.

    ``bits``: how many significant bits of a score are kept. None keeps float64 and is exact, at the memory of the
    distinct scores; 11 distinguishes scores that differ by 0.1 % and never holds more than the few ten thousand numbers
    that 11 bits can write. Rounding moves scores down and never past each other, so that a curve of rounded scores
    passes through points of the exact one; ``error_of`` bounds what lies between.
    """

    parts: tuple[tuple[Tensor, Tensor, Tensor], ...]
    bits: int | None = None

    @classmethod
    def of(cls, scores: Tensor, positives: Tensor, negatives: Tensor, bits: int | None = None) -> ScoreTable:
        """Return the table of ``(N,)`` scores and weights."""
        return cls((_merged(_rounded(scores, bits), positives, negatives),), bits)

    def __add__(self, other: ScoreTable) -> ScoreTable:
        _check_equal_bits(self.bits, other.bits)
        return ScoreTable(_merge_parts([*self.parts, *other.parts], _merged), self.bits)

    def curve(self) -> Curve:
        """Return the counts at every score kept."""
        return cumulate(*self.whole())

    def whole(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores and the weight of positives and negatives at each; a score may come more than once."""
        return tuple(torch.cat(column, -1) for column in zip(*self.parts, strict=True))  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class ScoreTables:
    """The score tables of all classes; they add with ``+``.

    ``dtype``: of the scores; a wider one only if shards differ. ``totals``: ``(4, K)``, by class the positives and the
    number of samples that count, and the sums of their weights and of the squares.
    """

    tables: list[ScoreTable]
    dtype: torch.dtype
    totals: Tensor

    @classmethod
    def of(cls, batch: AnyBatch, bits: int | None) -> ScoreTables:
        """Return the tables of a batch."""
        if isinstance(batch, SparseBatch):
            return cls._of_stored(batch, bits)
        s, y = batch.logits, batch.targets
        y = (F.one_hot(y, s.shape[1]) if y.dim() == 1 else y).double()
        w = torch.ones_like(y) if batch.weight is None else batch.weight.double().expand_as(y)
        tables = []
        for k in range(s.shape[1]):
            counted = w[:, k] > 0
            sk, yk, wk = s[counted, k], y[counted, k], w[counted, k]
            tables.append(ScoreTable.of(sk, wk * yk, wk * (1 - yk), bits))
        counts = w > 0
        totals = torch.stack([x.sum(0) for x in (counts * y, counts.double(), w, w**2)])
        return cls(tables, s.dtype, totals)

    @classmethod
    def _of_stored(cls, batch: SparseBatch, bits: int | None) -> ScoreTables:
        """Return the tables of a sparse batch: what is not stored is one score, 0, of negatives."""
        order, starts = batch.ranked
        wy, wn = batch.sides
        s, columns = batch.logits[order], torch.stack((wy, wn))[:, order]
        there = batch.row_weight > 0
        stored, w = there[batch.row], batch.row_weight
        seen = torch.bincount(batch.label[stored], minlength=batch.classes)
        total = torch.stack((there.sum().double(), w.sum(), (w**2).sum()))
        tables, counts = [], stored[order]
        for start, end, missing in zip(starts, starts[1:], int(there.sum()) - seen, strict=False):
            part = slice(int(start), int(end))
            (p, n), kept = columns[:, part], counts[part]
            sk, p, n = s[part][kept], p[kept], n[kept]
            if missing:
                rest = (total[1] - p.sum() - n.sum()).clamp(min=0).reshape(1)
                sk, p, n = (torch.cat(both) for both in ((sk, sk.new_zeros(1)), (p, p.new_zeros(1)), (n, rest)))
            tables.append(ScoreTable.of(sk, p, n, bits))
        positives = batch.targets.new_zeros(batch.classes).index_add_(0, batch.label, batch.targets * stored)
        return cls(tables, batch.logits.dtype, torch.stack((positives, *total.unsqueeze(1).expand(3, batch.classes))))

    def __add__(self, other: ScoreTables) -> ScoreTables:
        tables = [own + others for own, others in zip(self.tables, other.tables, strict=True)]
        return ScoreTables(tables, torch.promote_types(self.dtype, other.dtype), self.totals + other.totals)

    @property
    def bits(self) -> int | None:
        """How many significant bits of a score are kept; None if all."""
        return self.tables[0].bits

    def batch(self) -> Batch:
        """Return rows that have the curves of all batches together: each score with its positives and its negatives.

        Classes with fewer scores than others are filled up with what has no weight.
        """
        columns = []
        for table in self.tables:
            s, positives, negatives = table.whole()
            sides = (torch.cat((s, s)), torch.cat((torch.ones_like(s), torch.zeros_like(s))))
            columns.append(torch.stack((*sides, torch.cat((positives, negatives)))))
        length = max(column.shape[1] for column in columns)
        s, y, w = torch.stack([F.pad(column, (0, length - column.shape[1])) for column in columns], 2).unbind(0)
        return Batch(s.to(self.dtype), y, w, None)

    def value(self, ranking: Callable[[Curve], Tensor], over: Objective) -> Tensor:
        """Return a ranking metric, averaged."""
        classes = list(range(len(self.tables)) if over.labels is None else over.labels)
        if over.average == "micro":
            total = self.tables[classes[0]]
            for k in classes[1:]:
                total = total + self.tables[k]
            return ranking(total.curve())
        found = [table.curve() for table in self.tables]
        values = torch.stack([ranking(curve) for curve in found], -1)
        if over.task == "binary":
            return values[..., 0]
        if over.average == "per-class":
            return values[..., classes]
        positives = torch.stack([curve.counts.tp[..., -1] for curve in found], -1)
        return mean_over_classes(values, class_weights(over.average, positives, over.labels, over.empty_classes))


@dataclass(frozen=True, eq=False)
class ClassTable:
    """The distinct scores of one class and the weight of the rows of every class at each; tables add with ``+``.

    A part is the scores, the true classes and the weights of the rows that have both.
    """

    parts: tuple[tuple[Tensor, Tensor, Tensor], ...]
    bits: int | None = None

    @classmethod
    def of(cls, scores: Tensor, classes: Tensor, weight: Tensor, bits: int | None = None) -> ClassTable:
        """Return the table of ``(N,)`` scores, true classes and weights."""
        return cls((_merged_by_class(_rounded(scores, bits), classes, weight),), bits)

    def __add__(self, other: ClassTable) -> ClassTable:
        _check_equal_bits(self.bits, other.bits)
        return ClassTable(_merge_parts([*self.parts, *other.parts], _merged_by_class), self.bits)

    def pairs(self, k: int, classes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return how much weight of pairs, a row of class k and one of each class, is in order, equal, and there is.

        Each ``(classes,)``. A pair is in order if the row of class k has the higher score of class k.
        """
        scores, row_class, weight = (torch.cat(column) for column in zip(*self.parts, strict=True))
        distinct, place = scores.unique(return_inverse=True)
        own = distinct.new_zeros(len(distinct)).index_add_(0, place, weight * (row_class == k))
        above = own.sum() - own.cumsum(0)

        def sum_by_class(values: Tensor) -> Tensor:
            return values.new_zeros(classes).index_add_(0, row_class, values)

        in_order = sum_by_class(weight * above[place])
        equal = sum_by_class(weight * own[place])
        return in_order, equal, sum_by_class(weight) * own.sum()


@dataclass(frozen=True, eq=False)
class PairTables:
    """For each class, its scores of all rows by their true class: what one against one is made of."""

    tables: list[ClassTable]
    prevalence: Tensor
    """``(K,)``, the weight of the rows of each class."""

    @classmethod
    def of(cls, batch: Batch, bits: int | None) -> PairTables:
        """Return the tables of a multi-class batch."""
        s, y, classes = batch.logits, batch.targets, batch.logits.shape[1]
        if y.dim() > 1:
            raise ValueError("targets: expected class indices for one against one, got soft labels")
        w = s.new_ones(len(s), dtype=torch.float64) if batch.weight is None else batch.weight.double().squeeze(1)
        counted = w > 0
        s, y, w = s[counted], y[counted], w[counted]
        tables = [ClassTable.of(s[:, k], y, w, bits) for k in range(classes)]
        return cls(tables, w.new_zeros(classes).index_add_(0, y, w))

    def __add__(self, other: PairTables) -> PairTables:
        tables = [own + others for own, others in zip(self.tables, other.tables, strict=True)]
        return PairTables(tables, self.prevalence + other.prevalence)

    def value(self, ranking: Callable[[Curve], Tensor], over: Objective) -> Tensor:
        """Return the mean over pairs of classes [hand2001]; "weighted" weighs a pair by its rows.

        ``ranking`` is the AUROC or the bound of its error: of a pair of classes, the share of pairs of rows in order,
        equal ones counting half; or half of the equal ones.
        """
        classes = len(self.prevalence)
        in_order, equal, pairs = (
            torch.stack(rows)
            for rows in zip(*(table.pairs(k, classes) for k, table in enumerate(self.tables)), strict=True)
        )
        values = ratio(equal / 2 if ranking is auroc_error else in_order + equal / 2, pairs, torch.nan)
        kept = list(range(classes) if over.labels is None else over.labels)
        different = ~torch.eye(len(kept), dtype=torch.bool, device=values.device)
        values = values[kept][:, kept][different]
        if over.average != "weighted":
            return values.mean()
        weight = (self.prevalence[kept].unsqueeze(1) + self.prevalence[kept])[different]
        return (values * weight).sum() / weight.sum()


def auroc_error(curve: Curve, max_fpr: float | None = None) -> Tensor:
    """Return the most by which the AUROC of rounded scores may be off: half of the pairs that rounding made equal."""
    counts = curve.counts
    pairs = counts.tp.diff() * counts.fp.diff()
    whole = 2 * counts.tp[-1] * counts.fp[-1]
    if max_fpr is None:
        return ratio(pairs.sum(), whole, torch.nan)
    # A rectangle that max_fpr cuts counts whole: the scores inside it may come in any order.
    inside = counts.fp[:-1] < max_fpr * counts.fp[-1]
    scale = 2 * (max_fpr - max_fpr**2 / 2)
    return ratio(2 * pairs[inside].sum(), whole, torch.nan) / scale


def equal_error_rate_error(curve: Curve) -> Tensor:
    """Return the same for the equal error rate: the largest step of either rate where the two cross."""
    fpr, tpr = curves.roc(curve)
    crossing = int((1 - tpr - fpr > 0).sum()) - 1
    steps = torch.stack((fpr.diff(), tpr.diff()))
    return steps[:, max(crossing, 0)].amax() if steps.shape[1] else fpr.new_tensor(torch.nan)


def average_precision_error(curve: Curve) -> Tensor:
    """Return the same for the average precision: the precision's range within each score."""
    share, least, most = _within(curve)
    return (share * (most - least)).sum()


def interpolated_average_precision_error(curve: Curve) -> Tensor:
    """Return the same for the interpolated average precision: how far the best precision within a score is above."""
    share, _, most = _within(curve)
    end = ratio(curve.counts.tp, curve.counts.predicted)[1:]
    best, drawn = (x.flip(0).cummax(0).values.flip(0) for x in (torch.maximum(most, end), end))
    return (share * (best - drawn)).sum()


def _within(curve: Curve) -> tuple[Tensor, Tensor, Tensor]:
    """Return each score's share of the positives, and the least and most precision that its samples may have."""
    counts = curve.counts
    tp, fp, p, n = counts.tp[:-1], counts.fp[:-1], counts.tp.diff(), counts.fp.diff()
    return ratio(p, counts.tp[-1]), ratio(tp, tp + fp + n, 1.0), ratio(tp + p, tp + fp + p)


RANKING: dict[str, Callable[[Curve], Tensor]] = {
    "auroc": curves.auroc,
    "equal_error_rate": curves.equal_error_rate,
    "average_precision": curves.average_precision,
    "interpolated_average_precision": curves.interpolated_average_precision,
}
"""Metrics of the scores' order alone, by name: they need the curve instead of one rule's counts."""

ONE_AGAINST_ONE = "auroc_ovo"
"""The AUROC of several classes as a mean over pairs of classes; "auroc" is one against the rest."""

_ERRORS: dict[Any, Callable[..., Tensor]] = {
    curves.auroc: auroc_error,
    curves.equal_error_rate: equal_error_rate_error,
    curves.average_precision: average_precision_error,
    curves.interpolated_average_precision: interpolated_average_precision_error,
}
"""By how much each metric of a curve may be off when scores are rounded."""


def ranking_metric(name: str) -> Callable[[Curve], Tensor] | None:
    """Return the metric of a name such as "auroc", or "auroc@0.1" for the area up to that false positive rate."""
    if name in RANKING:
        return RANKING[name]
    base, at, number = name.partition("@")
    if base != "auroc" or not at:
        return None
    try:
        max_fpr = float(number)
    except ValueError:
        max_fpr = 0.0
    if not 0 < max_fpr <= 1:
        raise ValueError(
            f"metrics: expected a false positive rate in (0, 1] after the @, as in 'auroc@0.1', got {name!r}"
        )
    return partial(curves.auroc, max_fpr=max_fpr)


def error_of(ranking: Callable[[Curve], Tensor]) -> Callable[[Curve], Tensor]:
    """Return the function that bounds by how much a metric of a curve may be off when scores are rounded."""
    if isinstance(ranking, partial):
        return partial(_ERRORS[ranking.func], **ranking.keywords)
    return _ERRORS[ranking]


def _merged(scores: Tensor, positives: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    distinct, index = scores.unique(return_inverse=True)
    empty = distinct.new_zeros(*positives.shape[:-1], len(distinct))
    p, n = (empty.index_add(-1, index, side.double()) for side in (positives, negatives))
    return distinct, p, n


def _merged_by_class(scores: Tensor, classes: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    distinct, place = scores.unique(return_inverse=True)
    span = int(classes.max()) + 1 if len(classes) else 1
    both, index = (place * span + classes).unique(return_inverse=True)
    merged = weight.new_zeros(len(both)).index_add_(0, index, weight)
    return distinct[both // span], both % span, merged


def _merge_parts(
    parts: list[tuple[Tensor, Tensor, Tensor]], merge: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
    """Merge parts of like size: a row is merged O(log n) times, however it comes in, and few parts wait."""
    while len(parts) > 1 and len(parts[-2][0]) <= 2 * len(parts[-1][0]):
        scores, first, second = (torch.cat(column, -1) for column in zip(*parts[-2:], strict=True))
        parts[-2:] = [merge(scores, first, second)]
    return tuple(parts)


def _rounded(scores: Tensor, bits: int | None) -> Tensor:
    """Return scores with so many significant bits, rounded down; all of float64's if None."""
    s = scores.double()
    if bits is None:
        return s
    mantissa, exponent = torch.frexp(s)
    rounded = torch.ldexp(torch.floor(mantissa * 2.0**bits), exponent - bits)
    return torch.where(s.isfinite(), rounded, s)


def _check_equal_bits(mine: int | None, others: int | None) -> None:
    if mine != others:
        raise ValueError(f"score_bits: expected equal ones to add up, got {mine} and {others}")
