"""Limits of a metric and of its slopes over boxes of counts, from the metric's own arithmetic.

A box is all pairs (TP, FP) with TP and FP between two ends. Evaluated on ``Box`` numbers instead of counts, a metric
written with ``+ - * /``, ``ratio``, ``root`` and ``log`` returns limits of its values there, by interval arithmetic
[moore1966], for as many boxes at once as the tensors are long; on a ``Jet`` of boxes it returns those of its slopes as
well. What is linear in TP and FP is kept as such while it lasts, so that TP + FN is P and not an interval around it.
The limits hold up to rounding; smaller boxes have tighter ones. Other metrics raise ``TypeError`` or
``AttributeError``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from metricgrad.core.metrics.derivatives import CountsWithDerivatives, Jet, Number

if TYPE_CHECKING:
    from metricgrad.core.metrics.signatures import Metric

Span = tuple[Tensor, Tensor, Tensor, Tensor]
"""The limits of TP, from and to, and of FP."""


class Box(Number):
    """Limits ``low`` and ``high``, tensors or floats; of c₀ + c₁·TP + c₂·FP also the three coefficients."""

    __slots__ = ("_ends", "line", "span")

    def __init__(
        self, ends: tuple[Any, Any] | None, line: tuple[float, float, float] | None = None, span: Span | None = None
    ) -> None:
        self._ends = ends
        self.line = line
        self.span = span

    @classmethod
    def of(cls, x: Any) -> Box:
        """Return ``x`` as a box; anything but a box is a constant."""
        if isinstance(x, Box):
            return x
        return cls(None, (float(x), 0.0, 0.0)) if isinstance(x, int | float) else cls((x, x))

    @property
    def ends(self) -> tuple[Any, Any]:
        """The limits."""
        if self._ends is None:
            constant, a, b = self.line  # type: ignore[misc]
            if self.span is None:
                return constant, constant
            low_tp, high_tp, low_fp, high_fp = self.span
            if a < 0:
                low_tp, high_tp = high_tp, low_tp
            if b < 0:
                low_fp, high_fp = high_fp, low_fp
            low = constant + a * low_tp + b * low_fp
            high = constant + a * high_tp + b * high_fp
            self._ends = low, high
        return self._ends

    def __add__(self, given: Any) -> Box:
        other = Box.of(given)
        if self.line and other.line:
            constant, a, b = self.line
            other_constant, other_a, other_b = other.line
            line = (constant + other_constant, a + other_a, b + other_b)
            return Box(None, line, self.span or other.span)
        low, high = self.ends
        other_low, other_high = other.ends
        return Box((low + other_low, high + other_high))

    def __neg__(self) -> Box:
        return self * -1.0

    def __sub__(self, other: Any) -> Box:
        return self + Box.of(other) * -1.0

    def __rsub__(self, other: Any) -> Box:
        return Box.of(other) + self * -1.0

    def __mul__(self, other: Any) -> Box:
        if self.line and isinstance(other, int | float):
            constant, a, b = self.line
            return Box(None, (other * constant, other * a, other * b), self.span)
        low, high = self.ends
        if isinstance(other, int | float):
            return Box((other * low, other * high) if other >= 0 else (other * high, other * low))
        return Box(_product((low, high), Box.of(other).ends))

    def __truediv__(self, other: Any) -> Box:
        return self.ratio(Box.of(other), math.nan)

    def __rtruediv__(self, other: Any) -> Box:
        return Box.of(other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def ratio(self, other: Any, empty: float) -> Box:
        """Return the limits of self / other: ±∞ where other may be zero, ``empty`` where it is zero."""
        if other.line and not any(other.line[1:]):
            return self * (1 / other.line[0]) if other.line[0] else Box.of(empty)
        low, high = (_double(end) for end in other.ends)
        may_be_zero = (low <= 0) & (high >= 0)
        is_zero = (low == 0) & (high == 0)
        inverse = (1 / high.masked_fill(may_be_zero, 1.0), 1 / low.masked_fill(may_be_zero, 1.0))
        least, most = _product(self.ends, inverse)
        least = torch.where(may_be_zero, torch.where(is_zero, empty, -math.inf), least)
        most = torch.where(may_be_zero, torch.where(is_zero, empty, math.inf), most)
        return Box((least, most))

    def root(self) -> Box:
        """Return the limits of √self, with negative numbers as zero."""
        low, high = (_double(end) for end in self.ends)
        return Box((low.clamp(min=0).sqrt(), high.clamp(min=0).sqrt()))

    def log(self, empty: float) -> Box:
        """Return the limits of the logarithm: ``empty`` where self is not positive, down to −∞ where it may not be."""
        low, high = (_double(end) for end in self.ends)
        least = torch.where(low > 0, low.clamp(min=0).log(), torch.where(high > 0, -math.inf, empty))
        most = torch.where(high > 0, high.clamp(min=0).log(), empty)
        most = torch.where(low > 0, most, most.clamp(min=empty))
        return Box((least, most))


def _double(x: Any) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64)


def _product(x: tuple[Any, Any], y: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
    """Return the limits of the product of two numbers between limits: the least and the largest of the corners."""
    first, second, third, fourth = (_double(a * b) for a in x for b in y)
    low = torch.minimum(torch.minimum(first, second), torch.minimum(third, fourth))
    high = torch.maximum(torch.maximum(first, second), torch.maximum(third, fourth))
    return low, high


class Limits(NamedTuple):
    """Limits over boxes: the least value, and least and largest slope along TP and along FP; NaN where unknown."""

    least: Tensor
    along_tp: tuple[Tensor, Tensor]
    along_fp: tuple[Tensor, Tensor]


def limits(metric: Metric, span: Span, positives: float, negatives: float) -> Limits:
    """Return the limits of a metric and of its slopes over each box of counts, P and N given.

    >>> from metricgrad.metrics import f1
    >>> one, four = torch.tensor([1.0]), torch.tensor([4.0])
    >>> limits(f1, (one, one, one, four), 2.0, 5.0).least  # TP = 1, FP from 1 to 4, P = 2: F1 at FP = 4
    tensor([0.2857], dtype=torch.float64)
    """
    tp = Box(None, (0.0, 1.0, 0.0), span)
    fp = Box(None, (0.0, 0.0, 1.0), span)
    jet: object = metric(CountsWithDerivatives(tp, fp, positives, negatives))
    if not isinstance(jet, Jet | int | float):
        raise TypeError("not arithmetic")
    found = Jet.of(jet)
    least, _most = _double_ends(found.value)
    return Limits(least, _double_ends(found.a), _double_ends(found.b))


def _double_ends(x: Any) -> tuple[Tensor, Tensor]:
    low, high = Box.of(x).ends
    return _double(low), _double(high)
