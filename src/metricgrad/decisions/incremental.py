"""Multi-class objectives as functions of sums over the classes: what lets the search for offsets count incrementally.

When rows turn from one class to another, the counts of two classes change. An objective that depends on the d×d matrix
only through sums over the classes of terms of each class's own counts needs no matrix: averaged metrics of one-vs-rest
counts are of this kind, and so are accuracy, balanced accuracy, G-mean, MCC and both kappas. For other metrics of the
matrix ``classwise`` returns None.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core import metrics
from metricgrad.core.counts import Counts, cells, least_weight, subtract
from metricgrad.core.metrics.averages import class_weights, selected
from metricgrad.core.metrics.derivatives import ratio, root

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.objective import Objective

Terms = tuple[Tensor, ...]


class Classwise:
    """An objective as ``value(Σ over classes of terms)``.

    ``gain``: ``(N, d)``, what a row adds to the first count of the class it is decided for: its weight in that class
    for true positives; kept class by class, ``(d, N)``. ``terms(gained, predicted, index)``: the terms of the classes
    ``index``, elementwise, given their summed gains and the weight decided for them.
    """

    def __init__(
        self, gain: Tensor, terms: Callable[[Tensor, Tensor, Tensor], Terms], value: Callable[..., Tensor]
    ) -> None:
        self.gain, self._terms, self.value = gain.t().contiguous(), terms, value

    def terms(self, gained: Tensor, predicted: Tensor, index: Tensor) -> Terms:
        """Return the terms and, last, how many are undefined, 0 or 1: an undefined one must not spoil a sum."""
        found = self._terms(gained, predicted, index)
        total = sum(found[1:], found[0])
        bad = total - total  # 0, or NaN where a term is NaN or infinite
        if not bad.isnan().any():
            return *found, bad
        bad = bad.isnan()
        return *(term.masked_fill(bad, 0.0) for term in found), bad.to(gained.dtype)

    def values(self, sums: Terms) -> Tensor:
        """Return the objective of summed terms; −∞ where it is undefined."""
        *found, bad = sums
        values = self.value(*found)
        return values.masked_fill((bad > 0.5) | values.isnan(), -torch.inf)

    def at(self, decided: Tensor, weight: Tensor) -> Tensor:
        """Return the objective of rows that are decided for these classes."""
        index = torch.arange(len(self.gain))
        gained = torch.bincount(decided, self.gain.gather(0, decided.unsqueeze(0)).squeeze(0), len(index))
        sums = self.terms(gained, torch.bincount(decided, weight, len(index)), index)
        return self.values(tuple(term.sum() for term in sums))


def classwise(objective: Objective, wy: Tensor) -> Classwise | None:
    """Return an objective in this form for rows of weighted labels ``(N, d)``; None if it has no such form."""
    return _of_matrix(objective.metric, wy) if objective.of_matrix else _of_counts(objective, wy)


def _of_counts(objective: Objective, wy: Tensor) -> Classwise | None:
    positives = wy.sum(0)
    total = positives.sum()
    least = least_weight(wy)
    if objective.average == "micro":
        keep = selected(objective.labels, positives)
        keep = torch.ones_like(positives) if keep is None else keep
        pooled = (positives * keep).sum()
        rest = subtract(total * keep.sum(), pooled, least)

        def pooled_value(tp: Tensor, fp: Tensor) -> Tensor:
            # Sums of what rows added and took away again: what is left of nothing must be nothing.
            tp, fp = subtract(tp, 0.0, least), subtract(fp, 0.0, least)
            counts = cells(tp, fp, pooled.expand_as(tp), rest.expand_as(tp), least=least)
            return objective.metric(counts)

        return Classwise(wy, lambda tp, predicted, k: (tp * keep[k], (predicted - tp) * keep[k]), pooled_value)
    weights = class_weights(objective.average, positives, objective.labels, objective.empty_classes)
    metric = _with_index(objective.metric, wy)
    if metric is None:
        return None

    def terms(tp: Tensor, predicted: Tensor, k: Tensor) -> Terms:
        share, own = weights[k], positives[k]
        counts = cells(tp, subtract(predicted, tp, least), own, subtract(total, own, least), least=least)
        values = metric(k)(counts)
        return (torch.where(share > 0, values, 0.0) * share,)

    return Classwise(wy, terms, lambda value: value)


def _with_index(metric: Any, wy: Tensor) -> Callable[[Tensor], Any] | None:
    """Return the metric of given classes, elementwise; None if its parameters per class are out of reach."""
    given = metric.keywords.items() if isinstance(metric, partial) else ()
    each = {key: value for key, value in given if isinstance(value, Tensor) and value.dim() == 1 and len(value) > 1}
    if each:
        return lambda k: partial(metric, **{key: value.to(wy)[k] for key, value in each.items()})
    return (lambda k: metric) if _elementwise(metric, wy) else None


def _elementwise(metric: Any, like: Tensor) -> bool:
    """Tell whether a metric's value of one class is the same whatever stands beside it."""
    column = torch.arange(1.0, 4.0).to(like).unsqueeze(1)
    together = cells(column, column, 2 * column, 3 * column)
    found = metric(together)
    if not isinstance(found, Tensor) or found.shape != column.shape:
        return False
    rows = zip(*(cell.unbind(0) for cell in together.cells()), strict=True)
    alone = torch.stack([metric(Counts(*row)) for row in rows])
    flat = metric(together.map(lambda cell: cell.squeeze(1))).unsqueeze(1)
    return torch.equal(found, alone) and torch.equal(found, flat)


def _of_matrix(metric: Any, wy: Tensor) -> Classwise | None:
    options: dict[str, Any] = {}
    if isinstance(metric, partial) and not metric.args:
        metric, options = metric.func, metric.keywords
    form = _FORMS.get(metric)
    if form is None or set(options) - {"empty"}:
        return None
    return form(wy, options.get("empty", 0.0))


def _accuracy(wy: Tensor, empty: float) -> Classwise:
    total = wy.sum()
    return Classwise(wy, lambda tp, predicted, k: (tp,), lambda tp: ratio(tp, total.expand_as(tp), empty))


def _balanced_accuracy(wy: Tensor, empty: float) -> Classwise:
    positives = wy.sum(0)
    present = (positives != 0).to(wy.dtype).sum()
    return Classwise(
        wy, lambda tp, predicted, k: (ratio(tp, positives[k]),), lambda s: ratio(s, present.expand_as(s), empty)
    )


def _g_mean(wy: Tensor, empty: float) -> Classwise:
    positives = wy.sum(0)
    present = (positives != 0).to(wy.dtype).sum()

    def terms(tp: Tensor, predicted: Tensor, k: Tensor) -> Terms:
        recalls = ratio(tp, positives[k])
        dead = (positives[k] != 0) & (recalls <= 0)
        return recalls.masked_fill((recalls <= 0) | (positives[k] == 0), 1.0).log(), dead.to(wy.dtype)

    def value(logs: Tensor, dead: Tensor) -> Tensor:
        mean = torch.exp(ratio(logs, present.expand_as(logs))).masked_fill(dead > 0.5, 0.0)
        return mean if present > 0 else torch.full_like(mean, empty)

    return Classwise(wy, terms, value)


def _mcc(wy: Tensor) -> Classwise:
    total = wy.sum()
    true = ratio(wy.sum(0), total)
    spread = (true * (true.sum() - true)).sum()

    def terms(tp: Tensor, predicted: Tensor, k: Tensor) -> Terms:
        tp, predicted = (ratio(x, total.expand_as(x)) for x in (tp, predicted))
        return tp - true[k] * predicted, predicted * (true.sum() - predicted)

    return Classwise(wy, terms, lambda agreement, other: ratio(agreement, root(spread * other)))


def _kappa(wy: Tensor, empty: float) -> Classwise:
    total = wy.sum()
    true = ratio(wy.sum(0), total)

    def terms(tp: Tensor, predicted: Tensor, k: Tensor) -> Terms:
        tp, predicted = (ratio(x, total.expand_as(x)) for x in (tp, predicted))
        return predicted - tp, predicted * (true.sum() - true[k])

    return Classwise(wy, terms, lambda observed, chance: ratio(chance - observed, chance, empty))


def _quadratic_kappa(wy: Tensor, empty: float) -> Classwise:
    total = wy.sum()
    true, steps = ratio(wy.sum(0), total), torch.arange(wy.shape[1], dtype=wy.dtype)
    # Σ_j wy_j (j − k)², the price of deciding for class k, without a table of d×d prices.
    price = (wy @ steps**2).unsqueeze(1) - 2 * (wy @ steps).unsqueeze(1) * steps + wy.sum(1, keepdim=True) * steps**2
    typical = (true * steps**2).sum() - 2 * (true * steps).sum() * steps + true.sum() * steps**2

    def terms(paid: Tensor, predicted: Tensor, k: Tensor) -> Terms:
        paid, predicted = (ratio(x, total.expand_as(x)) for x in (paid, predicted))
        return paid, predicted * typical[k]

    return Classwise(price, terms, lambda observed, chance: ratio(chance - observed, chance, empty))


_FORMS: dict[Any, Callable[..., Classwise]] = {
    metrics.accuracy: _accuracy,
    metrics.balanced_accuracy: _balanced_accuracy,
    metrics.g_mean: _g_mean,
    metrics.kappa: _kappa,
    metrics.mcc: lambda wy, empty: _mcc(wy),
    metrics.quadratic_kappa: _quadratic_kappa,
}
