"""What is known about a metric besides its values: its range, where it rises and falls, where it is undefined.

A metric is a plain function, and most of this can be found out by calling it: what is not declared is tested on a grid
of counts from 0 to a million, once for each metric. Such a test is numerical: a metric that behaves differently between
the points of the grid, or beyond them, is taken for what it is on them. ``declare`` overrules it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor

from metricgrad.core.counts import Confusion, Counts, cells
from metricgrad.core.metrics.signatures import Metric, of_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from metricgrad.core.metrics.class_sums import ClassSums

Direction = Literal[-1, 0, 1] | None
"""Of a metric in one of its cells: it never rises (−1), never changes (0), never falls (1), or none of these (None)."""

AnyMetric = TypeVar("AnyMetric", bound=Metric)

_ATTRIBUTE = "__metric_properties__"
_LARGE = 1e6
_GRID = (0.0, 0.5, 1.0, 2.0, 3.0, 7.0, 20.0, 1e3, _LARGE)
"""The counts of each cell that a metric is tested with."""
_TOLERANCE = 1e-9
"""By how much values may differ and count as the same, relative to their size if that is above 1."""


@dataclass(frozen=True)
class MetricProperties:
    """What is known about a metric, declared or found out: see ``properties_of``.

    Attributes
    ----------
    low : float
        The lowest value; −∞ if there is none.
    high : float
        The highest value; ∞ if there is none.
    tp : {-1, 0, 1} or None
        Whether the metric falls, does not change or rises when true positives are added; None if it depends.
    fp : {-1, 0, 1} or None
        The same for false positives.
    fn : {-1, 0, 1} or None
        The same for false negatives.
    tn : {-1, 0, 1} or None
        The same for true negatives.
    rewards_right_decisions : bool
        Whether it never falls when a false negative turns into a true positive, or a false positive into a true
        negative. P and N are the same before and after, so a metric may do so whatever its directions are.
    defined_without_positives : bool
        Whether it is a finite number where a class has negatives alone.
    same_for_both_classes : bool
        Whether a binary problem has the same value whichever of its two classes is the positive one.
    quasi_convex : bool or None
        Whether its best value, of all pairs (TP, FP) in a polygon, is at a corner; None if it was not declared. It then
        depends on the numbers of positives and negatives: see ``is_quasi_convex``.
    class_sums : callable or None
        Of a metric of the d×d matrix that is a function of sums over the classes: the function of the weighted labels
        ``(N, d)`` that returns it as ``ClassSums``, with which offsets are tuned faster.

    """

    low: float = -math.inf
    high: float = math.inf
    tp: Direction = None
    fp: Direction = None
    fn: Direction = None
    tn: Direction = None
    rewards_right_decisions: bool = False
    defined_without_positives: bool = False
    same_for_both_classes: bool = False
    quasi_convex: bool | None = None
    class_sums: Callable[..., ClassSums] | None = None

    @property
    def limits(self) -> tuple[float, float] | None:
        """The lowest and the highest value, None unless both are finite."""
        return (self.low, self.high) if math.isfinite(self.low) and math.isfinite(self.high) else None


def declare(**known: Any) -> Callable[[AnyMetric], AnyMetric]:
    """Say what is known about a metric; what is not said is found out by calling it.

    A declaration is believed and not tested, and it holds for ``functools.partial`` of the function as well.

    Parameters
    ----------
    **known : float, int, bool or callable
        Fields of ``MetricProperties``, such as ``low`` and ``high``.

    Returns
    -------
    callable
        A decorator, which returns the metric itself.

    Raises
    ------
    TypeError
        If there is no such property.

    Examples
    --------
    >>> from metricgrad.metrics import properties_of
    >>> @declare(low=-1.0, high=5.0)
    ... def profit(c: Counts) -> torch.Tensor:
    ...     return (5 * c.tp - c.fp) / c.total.clamp(min=1)
    >>> properties_of(profit).limits
    (-1.0, 5.0)
    """
    names = [field.name for field in fields(MetricProperties)]
    for name in known:
        if name not in names:
            raise TypeError(f"{name}: expected a property of a metric, one of {', '.join(names)}")

    def mark(metric: AnyMetric) -> AnyMetric:
        setattr(metric, _ATTRIBUTE, known)
        return metric

    return mark


def properties_of(metric: Metric) -> MetricProperties:
    """Return what is known about a metric: what was declared, and for the rest what a test on a grid of counts found.

    The range is that on the grid; a side on which values still grow from counts of a thousand to a million is
    unbounded. Of a metric that cannot be evaluated on the grid nothing is known.

    Parameters
    ----------
    metric : callable
        A function of ``Counts`` (or ``Confusion``).

    Returns
    -------
    MetricProperties
        Its range, directions and the rest.

    Examples
    --------
    >>> from metricgrad.metrics import f1, mcc
    >>> f1_is = properties_of(f1)
    >>> f1_is.limits, (f1_is.tp, f1_is.fp, f1_is.fn, f1_is.tn)
    ((0.0, 1.0), (1, -1, -1, 0))
    >>> properties_of(mcc).limits
    (-1.0, 1.0)
    """
    try:
        if isinstance(metric, partial):  # a new object for each use of a name such as "f2"
            return _properties_of_partial(metric.func, metric.args, tuple(sorted(metric.keywords.items())))
        return _properties_of_function(metric)
    except TypeError:  # not hashable
        return _combine(metric)


@lru_cache(maxsize=256)
def _properties_of_function(metric: Metric) -> MetricProperties:
    return _combine(metric)


@lru_cache(maxsize=256)
def _properties_of_partial(
    function: Metric, arguments: tuple[Any, ...], keywords: tuple[tuple[str, Any], ...]
) -> MetricProperties:
    return _combine(partial(function, *arguments, **dict(keywords)))


def _combine(metric: Metric) -> MetricProperties:
    """Return the properties, those that were declared instead of those found."""
    function = metric.func if isinstance(metric, partial) else metric
    declared = getattr(function, _ATTRIBUTE, {})
    found = _test_counts(metric) if of_counts(metric) else _test_matrices(metric)
    return MetricProperties(**{**found, **declared})


# Tests of a metric


def _test_counts(metric: Metric) -> dict[str, Any]:
    """Return what evaluating a metric on a grid of counts finds out; nothing if that fails."""
    grid = torch.tensor(_GRID, dtype=torch.float64)
    tp, fp, fn, tn = _span_grid(grid, grid, grid, grid)
    values = _evaluate(metric, Counts(tp, fp, fn, tn))
    # Cells between the points of the grid, all four different.
    random = torch.Generator().manual_seed(0)
    exponents = math.log10(_LARGE) * torch.rand(4, len(_GRID), generator=random, dtype=torch.float64)
    between = _evaluate(metric, Counts(*_span_grid(*(10**exponents).sort(1).values)))
    # The same classes, of which ever larger shares are predicted.
    shares = torch.rand(len(_GRID), generator=random, dtype=torch.float64).sort().values
    shares = torch.cat((shares.new_zeros(1), shares, shares.new_ones(1)))
    found, false_alarms, positives, negatives = _span_grid(shares, shares, grid, grid)
    decided = _evaluate(metric, cells(found * positives, false_alarms * negatives, positives, negatives))
    if values is None or between is None or decided is None:
        return {}
    low, high = _find_range(values, values[:-1, :-1, :-1, :-1])
    without_positives = values[0, 1:, 0, :]
    other_class = values.permute(3, 2, 1, 0, 4)  # TP and TN change places, and so do FP and FN
    return {
        "low": low,
        "high": high,
        **{cell: _find_direction((values, between), axis) for axis, cell in enumerate(("tp", "fp", "fn", "tn"))},
        "rewards_right_decisions": _find_direction([decided], 0) in (0, 1) and _find_direction([decided], 1) in (0, -1),
        "defined_without_positives": bool(without_positives.isfinite().all()),
        "same_for_both_classes": torch.allclose(values, other_class, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True),
    }


def _test_matrices(metric: Metric) -> dict[str, Any]:
    """Return what matrices of two and of three classes find out about a metric of the d×d matrix."""
    axis = torch.tensor(_GRID, dtype=torch.float64)
    two = torch.cartesian_prod(axis, axis, axis, axis).view(-1, 2, 2)
    random = torch.Generator().manual_seed(0)
    three = axis[torch.randint(len(axis), (2000, 3, 3), generator=random)]
    three = three * (torch.rand(three.shape, generator=random) < 0.4)  # extremes have many empty cells
    every = []
    smaller = []
    for matrices in (two, three):
        try:
            values = metric(Confusion(matrices))
        except Exception:  # someone else's function
            return {}
        if not isinstance(values, Tensor) or len(values) != len(matrices):
            return {}
        every.append(values.double())
        smaller.append(values.double()[(matrices < _LARGE).all(-1).all(-1)])
    low, high = _find_range(torch.cat(every), torch.cat(smaller))
    other_class = metric(Confusion(two.flip(-1, -2))).double()
    same = torch.allclose(every[0], other_class, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
    return {"low": low, "high": high, "same_for_both_classes": same}


def _span_grid(*axes: Tensor) -> tuple[Tensor, ...]:
    """Return the coordinates of all points of a grid, each of the shape of the grid and a last axis for the class."""
    return tuple(coordinate.unsqueeze(-1) for coordinate in torch.meshgrid(*axes, indexing="ij"))


def _evaluate(metric: Metric, counts: Counts) -> Tensor | None:
    """Return a metric on a grid of counts; None if it cannot be evaluated there, or is not elementwise.

    The last axis has one value, or one for each class of a metric with a parameter per class.
    """
    try:
        with torch.no_grad():
            values = metric(counts)
    except Exception:  # someone else's function
        return None
    if not isinstance(values, Tensor) or values.shape[:-1] != counts.tp.shape[:-1]:
        return None
    return values.double()


def _find_direction(grids: Sequence[Tensor], axis: int) -> Direction:
    """Return in which direction values go along one axis, the same on all grids; None if there is no such direction."""
    rises = falls = False
    for values in grids:
        ahead = values.narrow(axis, 1, values.shape[axis] - 1)
        behind = values.narrow(axis, 0, values.shape[axis] - 1)
        step = (ahead - behind) / torch.maximum(ahead.abs(), behind.abs()).clamp(min=1.0)
        if not step.isfinite().all():
            return None
        rises |= bool((step > _TOLERANCE).any())
        falls |= bool((step < -_TOLERANCE).any())
    if rises and falls:
        return None
    return 1 if rises else -1 if falls else 0


def _find_range(values: Tensor, smaller: Tensor) -> tuple[float, float]:
    """Return the lowest and the highest value; infinite if it is not reached with the smaller counts of the grid."""
    defined = values[~values.isnan()]
    defined_smaller = smaller[~smaller.isnan()]
    if not defined_smaller.numel():
        return -math.inf, math.inf
    low = defined.min().item()
    high = defined.max().item()
    tolerance = _TOLERANCE * max(1.0, abs(low), abs(high))
    if defined_smaller.min().item() - low > tolerance:
        low = -math.inf
    if high - defined_smaller.max().item() > tolerance:
        high = math.inf
    return _round_to_whole(low), _round_to_whole(high)


def _round_to_whole(x: float) -> float:
    """Return the nearest whole number if only rounding keeps a number from it; otherwise the number itself."""
    return float(round(x)) if math.isfinite(x) and abs(x - round(x)) < _TOLERANCE else x


# Quasi-convexity


def is_quasi_convex(metric: Metric, positives: float, negatives: float) -> bool:
    """Tell whether a metric of pooled counts is at its best at a corner of the pairs (TP, FP) that can be reached.

    So it is if that was declared, and if it is a ratio of linear functions of (TP, FP) whose denominator does not
    change its sign, which is found by fitting such a ratio to the metric.
    """
    declared = properties_of(metric).quasi_convex
    if declared is not None:
        return declared
    random = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 64, generator=random, dtype=torch.float64) * 0.98 + 0.01  # TP / P and FP / N
    # Near the edges too, where a metric with a case distinction changes.
    x[::2] = x[::2] ** 6
    y[::2] = y[::2] ** 6
    counts = cells(x * positives, y * negatives, torch.full_like(x, positives), torch.full_like(x, negatives))
    value = metric(counts)
    # value = (a₀x + b₀y + c₀) / (ax + by + c): linear equations in the six coefficients.
    equations = torch.stack((x, y, torch.ones_like(x), -value * x, -value * y, -value), 1)
    if not equations.isfinite().all():
        return False
    _, size, basis = torch.linalg.svd(equations, full_matrices=False)
    # The ratio must fit, and be the only one that does: if the metric is constant here, any denominator fits.
    fits = size[-1] <= 1e-10 * size[0]
    unique = size[-2] > 1e-10 * size[0]
    if not (fits and unique):
        return False
    denominator = basis[-1, 3:]
    a, b, c = denominator
    at_corners = torch.stack((c, a + c, b + c, a + b + c)) / denominator.abs().max()
    return bool((at_corners >= -1e-8).all() or (at_corners <= 1e-8).all())
