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
    passes through points of the exact one; ``find_error_bound`` bounds what lies between.
    """

    parts: tuple[tuple[Tensor, Tensor, Tensor], ...]
    bits: int | None = None

    @classmethod
    def of(cls, scores: Tensor, positives: Tensor, negatives: Tensor, bits: int | None = None) -> ScoreTable:
        """Return the table of ``(N,)`` scores and weights."""
        part = _merge_equal_scores(_round_down(scores, bits), positives, negatives)
        return cls((part,), bits)

    def __add__(self, other: ScoreTable) -> ScoreTable:
        _check_equal_bits(self.bits, other.bits)
        return ScoreTable(_merge_parts([*self.parts, *other.parts], _merge_equal_scores), self.bits)

    def curve(self) -> Curve:
        """Return the counts at every score kept."""
        return cumulate(*self.join_parts())

    def join_parts(self) -> tuple[Tensor, Tensor, Tensor]:
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
        scores = batch.logits
        classes = scores.shape[1]
        targets = (F.one_hot(batch.targets, classes) if batch.targets.dim() == 1 else batch.targets).double()
        weight = torch.ones_like(targets) if batch.weight is None else batch.weight.double().expand_as(targets)
        counted = weight > 0
        tables = []
        for k in range(classes):
            rows = counted[:, k]
            own_weight = weight[rows, k]
            positives = own_weight * targets[rows, k]
            negatives = own_weight * (1 - targets[rows, k])
            tables.append(ScoreTable.of(scores[rows, k], positives, negatives, bits))
        totals = torch.stack([x.sum(0) for x in (counted * targets, counted.double(), weight, weight**2)])
        return cls(tables, scores.dtype, totals)

    @classmethod
    def _of_stored(cls, batch: SparseBatch, bits: int | None) -> ScoreTables:
        """Return the tables of a sparse batch: what is not stored is one score, 0, of negatives."""
        order, starts = batch.ranked
        positive_weight, negative_weight = batch.sides
        row_weight = batch.row_weight
        row_counts = row_weight > 0
        element_counts = row_counts[batch.row]
        rows = int(row_counts.sum())
        total_weight = row_weight.sum()
        stored_rows = torch.bincount(batch.label[element_counts], minlength=batch.classes)
        tables = []
        for start, end, missing in zip(starts, starts[1:], rows - stored_rows, strict=False):
            elements = order[int(start) : int(end)]
            elements = elements[element_counts[elements]]
            scores = batch.logits[elements]
            positives = positive_weight[elements]
            negatives = negative_weight[elements]
            if missing:
                rest = (total_weight - positives.sum() - negatives.sum()).clamp(min=0).reshape(1)
                scores = torch.cat((scores, scores.new_zeros(1)))
                positives = torch.cat((positives, positives.new_zeros(1)))
                negatives = torch.cat((negatives, rest))
            tables.append(ScoreTable.of(scores, positives, negatives, bits))
        weighted_targets = batch.targets * element_counts
        positives_of_labels = batch.targets.new_zeros(batch.classes).index_add_(0, batch.label, weighted_targets)
        of_rows = torch.stack((row_counts.sum().double(), total_weight, (row_weight**2).sum()))
        totals = torch.stack((positives_of_labels, *of_rows.unsqueeze(1).expand(3, batch.classes)))
        return cls(tables, batch.logits.dtype, totals)

    def __add__(self, other: ScoreTables) -> ScoreTables:
        tables = [own + others for own, others in zip(self.tables, other.tables, strict=True)]
        return ScoreTables(tables, torch.promote_types(self.dtype, other.dtype), self.totals + other.totals)

    @property
    def bits(self) -> int | None:
        """How many significant bits of a score are kept; None if all."""
        return self.tables[0].bits

    def batch(self) -> Batch:
        """Return rows that have the curves of all batches together: each score with its positives and its negatives.

        Classes with fewer scores than others are filled up with rows of weight 0.
        """
        of_classes = []
        for table in self.tables:
            scores, positives, negatives = table.join_parts()
            targets = torch.cat((torch.ones_like(scores), torch.zeros_like(scores)))
            weight = torch.cat((positives, negatives))
            of_classes.append(torch.stack((torch.cat((scores, scores)), targets, weight)))
        rows = max(columns.shape[1] for columns in of_classes)
        filled_up = [F.pad(columns, (0, rows - columns.shape[1])) for columns in of_classes]
        scores, targets, weight = torch.stack(filled_up, 2).unbind(0)
        return Batch(scores.to(self.dtype), targets, weight, None)

    def value(self, ranking: Callable[[Curve], Tensor], over: Objective) -> Tensor:
        """Return a ranking metric, averaged."""
        classes = list(range(len(self.tables)) if over.labels is None else over.labels)
        if over.average == "micro":
            total = self.tables[classes[0]]
            for k in classes[1:]:
                total = total + self.tables[k]
            return ranking(total.curve())
        of_classes = [table.curve() for table in self.tables]
        values = torch.stack([ranking(curve) for curve in of_classes], -1)
        if over.task == "binary":
            return values[..., 0]
        if over.average == "per-class":
            return values[..., classes]
        positives = torch.stack([curve.counts.tp[..., -1] for curve in of_classes], -1)
        weights = class_weights(over.average, positives, over.labels, over.empty_classes)
        return mean_over_classes(values, weights)


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
        part = _merge_equal_scores_by_class(_round_down(scores, bits), classes, weight)
        return cls((part,), bits)

    def __add__(self, other: ClassTable) -> ClassTable:
        _check_equal_bits(self.bits, other.bits)
        return ClassTable(_merge_parts([*self.parts, *other.parts], _merge_equal_scores_by_class), self.bits)

    def weigh_pairs(self, k: int, classes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weight of the pairs of a row of class k and one of each class: in order, equal, and all.

        Each ``(classes,)``. A pair is in order if the row of class k has the higher score of class k.
        """
        scores, row_class, weight = (torch.cat(column) for column in zip(*self.parts, strict=True))
        distinct, place = scores.unique(return_inverse=True)
        own_at_score = distinct.new_zeros(len(distinct)).index_add_(0, place, weight * (row_class == k))
        own_above = own_at_score.sum() - own_at_score.cumsum(0)

        def sum_by_class(values: Tensor) -> Tensor:
            return values.new_zeros(classes).index_add_(0, row_class, values)

        in_order = sum_by_class(weight * own_above[place])
        equal = sum_by_class(weight * own_at_score[place])
        return in_order, equal, sum_by_class(weight) * own_at_score.sum()


@dataclass(frozen=True, eq=False)
class PairTables:
    """For each class, its scores of all rows by their true class: what one against one is made of."""

    tables: list[ClassTable]
    prevalence: Tensor
    """``(K,)``, the weight of the rows of each class."""

    @classmethod
    def of(cls, batch: Batch, bits: int | None) -> PairTables:
        """Return the tables of a multi-class batch."""
        rows, classes = batch.logits.shape
        if batch.targets.dim() > 1:
            raise ValueError("targets: expected class indices for one against one, got soft labels")
        if batch.weight is None:
            weight = batch.logits.new_ones(rows, dtype=torch.float64)
        else:
            weight = batch.weight.double().squeeze(1)
        counted = weight > 0
        scores = batch.logits[counted]
        targets = batch.targets[counted]
        weight = weight[counted]
        tables = [ClassTable.of(scores[:, k], targets, weight, bits) for k in range(classes)]
        return cls(tables, weight.new_zeros(classes).index_add_(0, targets, weight))

    def __add__(self, other: PairTables) -> PairTables:
        tables = [own + others for own, others in zip(self.tables, other.tables, strict=True)]
        return PairTables(tables, self.prevalence + other.prevalence)

    def value(self, ranking: Callable[[Curve], Tensor], over: Objective) -> Tensor:
        """Return the mean over pairs of classes [hand2001]; "weighted" weighs a pair by its rows.

        ``ranking`` is the AUROC or its error bound. For two classes the AUROC is the share of pairs of rows that are in
        order, equal ones counting half; the error bound is half the share of equal ones.
        """
        classes = len(self.prevalence)
        of_classes = [table.weigh_pairs(k, classes) for k, table in enumerate(self.tables)]
        in_order, equal, pairs = (torch.stack(columns) for columns in zip(*of_classes, strict=True))
        counted_pairs = equal / 2 if ranking is auroc_error else in_order + equal / 2
        values = ratio(counted_pairs, pairs, torch.nan)
        kept = list(range(classes) if over.labels is None else over.labels)
        different = ~torch.eye(len(kept), dtype=torch.bool, device=values.device)
        kept_values = values[kept][:, kept][different]
        if over.average != "weighted":
            return kept_values.mean()
        prevalence = self.prevalence[kept]
        weight = (prevalence.unsqueeze(1) + prevalence)[different]
        return (kept_values * weight).sum() / weight.sum()


def auroc_error(curve: Curve, max_fpr: float | None = None) -> Tensor:
    """Return the most by which the AUROC of rounded scores may be off: half of the pairs that rounding made equal."""
    counts = curve.counts
    pairs = counts.tp.diff() * counts.fp.diff()
    whole = 2 * counts.tp[-1] * counts.fp[-1]
    if max_fpr is None:
        return ratio(pairs.sum(), whole, torch.nan)
    # A rectangle that max_fpr divides counts as a whole: the scores in it may come in any order.
    inside = counts.fp[:-1] < max_fpr * counts.fp[-1]
    scale = 2 * (max_fpr - max_fpr**2 / 2)
    return ratio(2 * pairs[inside].sum(), whole, torch.nan) / scale


def equal_error_rate_error(curve: Curve) -> Tensor:
    """Return the error bound of the equal error rate: the largest step of either rate where the two cross."""
    fpr, tpr = curves.roc(curve)
    crossing = int((1 - tpr - fpr > 0).sum()) - 1
    steps = torch.stack((fpr.diff(), tpr.diff()))
    return steps[:, max(crossing, 0)].amax() if steps.shape[1] else fpr.new_tensor(torch.nan)


def average_precision_error(curve: Curve) -> Tensor:
    """Return the error bound of the average precision: the precision's range within each score."""
    share, lowest, highest = _bound_precisions(curve)
    return (share * (highest - lowest)).sum()


def interpolated_average_precision_error(curve: Curve) -> Tensor:
    """Return the error bound of the interpolated average precision: the best possible precision minus the one used."""
    share, _, highest = _bound_precisions(curve)
    precision = ratio(curve.counts.tp, curve.counts.predicted)[1:]
    best_possible = torch.maximum(highest, precision).flip(0).cummax(0).values.flip(0)
    interpolated = precision.flip(0).cummax(0).values.flip(0)
    return (share * (best_possible - interpolated)).sum()


def _bound_precisions(curve: Curve) -> tuple[Tensor, Tensor, Tensor]:
    """Return each score's share of the positives, and the lowest and highest precision that its samples may have."""
    tp_before = curve.counts.tp[:-1]
    fp_before = curve.counts.fp[:-1]
    positives = curve.counts.tp.diff()
    negatives = curve.counts.fp.diff()
    share = ratio(positives, curve.counts.tp[-1])
    lowest = ratio(tp_before, tp_before + fp_before + negatives, 1.0)
    highest = ratio(tp_before + positives, tp_before + fp_before + positives)
    return share, lowest, highest


RANKING_METRICS: dict[str, Callable[[Curve], Tensor]] = {
    "auroc": curves.auroc,
    "equal_error_rate": curves.equal_error_rate,
    "average_precision": curves.average_precision,
    "interpolated_average_precision": curves.interpolated_average_precision,
}
"""Metrics of the scores' order alone, by name: they need the curve instead of one rule's counts."""

ONE_AGAINST_ONE = "auroc_ovo"
"""The AUROC of several classes as a mean over pairs of classes; "auroc" is one against the rest."""

_ERROR_BOUNDS: dict[Any, Callable[..., Tensor]] = {
    curves.auroc: auroc_error,
    curves.equal_error_rate: equal_error_rate_error,
    curves.average_precision: average_precision_error,
    curves.interpolated_average_precision: interpolated_average_precision_error,
}
"""By how much each metric of a curve may be off when scores are rounded."""


def find_ranking_metric(name: str) -> Callable[[Curve], Tensor] | None:
    """Return the metric of a name such as "auroc", or "auroc@0.1" for the area up to that false positive rate."""
    if name in RANKING_METRICS:
        return RANKING_METRICS[name]
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


def find_error_bound(ranking: Callable[[Curve], Tensor]) -> Callable[[Curve], Tensor]:
    """Return the function that bounds by how much a metric of a curve may be off when scores are rounded."""
    if isinstance(ranking, partial):
        return partial(_ERROR_BOUNDS[ranking.func], **ranking.keywords)
    return _ERROR_BOUNDS[ranking]


def _merge_equal_scores(scores: Tensor, positives: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    distinct, place = scores.unique(return_inverse=True)
    nothing = distinct.new_zeros(*positives.shape[:-1], len(distinct))
    merged_positives = nothing.index_add(-1, place, positives.double())
    merged_negatives = nothing.index_add(-1, place, negatives.double())
    return distinct, merged_positives, merged_negatives


def _merge_equal_scores_by_class(scores: Tensor, classes: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    distinct, place = scores.unique(return_inverse=True)
    number_of_classes = int(classes.max()) + 1 if len(classes) else 1
    score_and_class, index = (place * number_of_classes + classes).unique(return_inverse=True)
    merged = weight.new_zeros(len(score_and_class)).index_add_(0, index, weight)
    return distinct[score_and_class // number_of_classes], score_and_class % number_of_classes, merged


def _merge_parts(
    parts: list[tuple[Tensor, Tensor, Tensor]], merge: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
    """Merge parts of similar size, so that there are few parts and each row is merged only O(log n) times."""
    while len(parts) > 1 and len(parts[-2][0]) <= 2 * len(parts[-1][0]):
        scores, first, second = (torch.cat(column, -1) for column in zip(*parts[-2:], strict=True))
        parts[-2:] = [merge(scores, first, second)]
    return tuple(parts)


def _round_down(scores: Tensor, bits: int | None) -> Tensor:
    """Return scores with so many significant bits, rounded down; all of float64's if None."""
    exact = scores.double()
    if bits is None:
        return exact
    mantissa, exponent = torch.frexp(exact)
    rounded = torch.ldexp(torch.floor(mantissa * 2.0**bits), exponent - bits)
    return torch.where(exact.isfinite(), rounded, exact)


def _check_equal_bits(mine: int | None, others: int | None) -> None:
    if mine != others:
        raise ValueError(f"score_bits: expected equal ones to add up, got {mine} and {others}")
