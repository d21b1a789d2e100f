"""Multi-class objectives that can be counted incrementally: what makes the search for offsets fast.

When rows turn from one class to another, the counts of two classes change. An objective that depends on the d×d matrix
only through sums over the classes of terms of each class's own counts needs no matrix: averaged metrics of one-vs-rest
counts are of this kind, and so are metrics of the matrix that declare ``class_sums``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core.counts import Counts, cells, least_weight, subtract
from metricgrad.core.metrics.averages import class_weights, mark_labels
from metricgrad.core.metrics.class_sums import ClassSums, Terms
from metricgrad.core.metrics.properties import properties_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.metrics import Metric
    from metricgrad.core.objective import Objective


class IncrementalObjective:
    """An objective as a function of sums over the classes, see ``ClassSums``, with care for undefined terms.

    ``gain`` is kept class by class, ``(d, N)``.
    """

    def __init__(self, sums: ClassSums) -> None:
        self.gain = sums.gain.t().contiguous()
        self._terms = sums.terms
        self._value = sums.value

    def terms(self, gained: Tensor, predicted: Tensor, classes: Tensor) -> Terms:
        """Return the terms, undefined ones as 0 so that sums stay finite, and then how many are undefined, 0 or 1."""
        found = self._terms(gained, predicted, classes)
        total = sum(found[1:], found[0])
        nothing_or_nan = total - total  # 0, or NaN where a term is NaN or infinite
        if not nothing_or_nan.isnan().any():
            return *found, nothing_or_nan
        undefined = nothing_or_nan.isnan()
        return *(term.masked_fill(undefined, 0.0) for term in found), undefined.to(gained.dtype)

    def values(self, sums: Terms) -> Tensor:
        """Return the objective of summed terms; −∞ where it is undefined."""
        *found, undefined = sums
        values = self._value(*found)
        return values.masked_fill((undefined > 0.5) | values.isnan(), -torch.inf)

    def value_of_decisions(self, decided: Tensor, weight: Tensor) -> Tensor:
        """Return the objective of rows that are decided for these classes."""
        classes = torch.arange(len(self.gain))
        gain_of_rows = self.gain.gather(0, decided.unsqueeze(0)).squeeze(0)
        gained = torch.bincount(decided, gain_of_rows, len(classes))
        predicted = torch.bincount(decided, weight, len(classes))
        terms = self.terms(gained, predicted, classes)
        return self.values(tuple(term.sum() for term in terms))


def make_incremental(objective: Objective, weighted_labels: Tensor) -> IncrementalObjective | None:
    """Return an objective in this form for rows of weighted labels ``(N, d)``; None if it has no such form."""
    if objective.of_matrix:
        sums = _sum_matrix_metric(objective.metric, weighted_labels)
    elif objective.average == "micro":
        sums = _sum_pooled_counts(objective, weighted_labels)
    else:
        sums = _sum_class_values(objective, weighted_labels)
    return None if sums is None else IncrementalObjective(sums)


def _sum_matrix_metric(metric: Metric, weighted_labels: Tensor) -> ClassSums | None:
    """Return the form that a metric of the d×d matrix declares."""
    make_sums = properties_of(metric).class_sums
    options: dict[str, Any] = {}
    if isinstance(metric, partial):
        options = metric.keywords
        if metric.args or set(options) - {"empty"}:
            return None
    return None if make_sums is None else make_sums(weighted_labels, **options)


def _sum_pooled_counts(objective: Objective, weighted_labels: Tensor) -> ClassSums:
    """Return the micro average: the metric of the sums of TP and of FP over the classes that count."""
    least = least_weight(weighted_labels)
    of_classes = weighted_labels.sum(0)
    counted = mark_labels(objective.labels, of_classes)
    counted = torch.ones_like(of_classes) if counted is None else counted
    positives = (of_classes * counted).sum()
    negatives = subtract(of_classes.sum() * counted.sum(), positives, least)

    def terms(tp: Tensor, predicted: Tensor, classes: Tensor) -> Terms:
        return tp * counted[classes], (predicted - tp) * counted[classes]

    def value(tp: Tensor, fp: Tensor) -> Tensor:
        # Rows were added to these sums and subtracted again: where none is left, the sum must be exactly 0.
        tp = subtract(tp, 0.0, least)
        fp = subtract(fp, 0.0, least)
        return objective.metric(cells(tp, fp, positives.expand_as(tp), negatives.expand_as(tp), least=least))

    return ClassSums(weighted_labels, terms, value)


def _sum_class_values(objective: Objective, weighted_labels: Tensor) -> ClassSums | None:
    """Return the macro or weighted average: the sum of each class's value times its weight."""
    least = least_weight(weighted_labels)
    positives = weighted_labels.sum(0)
    total = positives.sum()
    weights = class_weights(objective.average, positives, objective.labels, objective.empty_classes)
    metric_of_classes = _choose_by_class(objective.metric, weighted_labels)
    if metric_of_classes is None:
        return None

    def terms(tp: Tensor, predicted: Tensor, classes: Tensor) -> Terms:
        weight = weights[classes]
        own = positives[classes]
        counts = cells(tp, subtract(predicted, tp, least), own, subtract(total, own, least), least=least)
        values = metric_of_classes(classes)(counts)
        return (torch.where(weight > 0, values, 0.0) * weight,)

    return ClassSums(weighted_labels, terms, lambda mean: mean)


def _choose_by_class(metric: Metric, like: Tensor) -> Callable[[Tensor], Metric] | None:
    """Return the function from indices of classes to their metric, elementwise.

    None if one class's value depends on the others.
    """
    keywords = metric.keywords if isinstance(metric, partial) else {}
    per_class = {
        key: value
        for key, value in keywords.items()
        if isinstance(value, Tensor) and value.dim() == 1 and len(value) > 1
    }
    if per_class:
        return lambda classes: partial(metric, **{key: value.to(like)[classes] for key, value in per_class.items()})
    return (lambda classes: metric) if _is_elementwise(metric, like) else None


def _is_elementwise(metric: Metric, like: Tensor) -> bool:
    """Tell whether a metric's value of a class does not change with the counts of the other classes."""
    column = torch.arange(1.0, 4.0).to(like).unsqueeze(1)
    together = cells(column, column, 2 * column, 3 * column)
    found = metric(together)
    if not isinstance(found, Tensor) or found.shape != column.shape:
        return False
    rows = zip(*(cell.unbind(0) for cell in together.cells()), strict=True)
    alone = torch.stack([metric(Counts(*row)) for row in rows])
    flat = metric(together.map(lambda cell: cell.squeeze(1))).unsqueeze(1)
    return torch.equal(found, alone) and torch.equal(found, flat)
