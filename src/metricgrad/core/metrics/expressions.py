"""The arithmetic of a metric as data, so that something that is not Python can compute it: the report's script.

Evaluated on ``Expression`` numbers instead of counts, a metric written with ``+ - * /``, ``ratio``, ``root`` and
``log`` returns the tree of its operations. ``trace`` lists them in order, each once, as plain JSON.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from metricgrad.core.counts import Counts
from metricgrad.core.metrics.derivatives import Number

if TYPE_CHECKING:
    from metricgrad.core.metrics.signatures import Metric

Step = list[Any]
"""An operation and its operands: numbers of earlier steps, then what ``ratio`` and ``log`` give at zero."""


class Expression(Number):
    """An operation, the expressions that it is applied to, and a number (a constant, or the value at zero)."""

    __slots__ = ("number", "operands", "operation")

    def __init__(self, operation: str, *operands: Expression, number: float | None = None) -> None:
        self.operation = operation
        self.operands = operands
        self.number = number

    @classmethod
    def of(cls, x: Any) -> Expression:
        """Return ``x`` as an expression; a number, or a tensor of one, is a constant."""
        if isinstance(x, Expression):
            return x
        if isinstance(x, Tensor) and x.numel() > 1:
            raise TypeError("expected one number, got one per class")
        return cls("number", number=float(x))

    def __add__(self, other: Any) -> Expression:
        return Expression("+", self, Expression.of(other))

    def __radd__(self, other: Any) -> Expression:
        return Expression("+", Expression.of(other), self)

    def __sub__(self, other: Any) -> Expression:
        return Expression("-", self, Expression.of(other))

    def __rsub__(self, other: Any) -> Expression:
        return Expression("-", Expression.of(other), self)

    def __mul__(self, other: Any) -> Expression:
        return Expression("*", self, Expression.of(other))

    def __rmul__(self, other: Any) -> Expression:
        return Expression("*", Expression.of(other), self)

    def __truediv__(self, other: Any) -> Expression:
        return Expression("/", self, Expression.of(other))

    def __rtruediv__(self, other: Any) -> Expression:
        return Expression("/", Expression.of(other), self)

    def __neg__(self) -> Expression:
        return Expression.of(-1.0) * self

    def ratio(self, other: Expression, empty: float) -> Expression:
        """Return self / other, and ``empty`` where other is zero."""
        return Expression("ratio", self, other, number=float(empty))

    def root(self) -> Expression:
        """Return √self, and 0 where self is not positive."""
        return Expression("root", self)

    def log(self, empty: float) -> Expression:
        """Return the logarithm of self, and ``empty`` where self is not positive."""
        return Expression("log", self, number=float(empty))


def trace(metric: Metric) -> list[Step] | None:
    """Return the operations of a metric of counts in order, the last one being its value; None if it has others.

    A step is the name of an operation, the numbers of the steps that it is applied to, and for "number", "ratio" and
    "log" a number, written as text if it is not finite, which JSON has no numbers for.

    >>> from metricgrad.metrics import precision, ratio, subset_accuracy
    >>> trace(precision)
    [['tp'], ['fp'], ['+', 0, 1], ['ratio', 0, 2, 0.0]]
    >>> trace(subset_accuracy)  # has a case distinction
    """
    cells = Counts(*(Expression(name) for name in ("tp", "fp", "fn", "tn")))  # type: ignore[arg-type]
    try:
        value = Expression.of(metric(cells))
    except (TypeError, AttributeError):
        return None
    steps: list[Step] = []
    places: dict[int, int] = {}
    waiting = [value]
    while waiting:  # a loop, since a recursion would be as deep as the metric is long
        expression = waiting[-1]
        if id(expression) in places:
            waiting.pop()
            continue
        missing = [operand for operand in expression.operands if id(operand) not in places]
        if missing:
            waiting += reversed(missing)
            continue
        step: Step = [expression.operation, *(places[id(operand)] for operand in expression.operands)]
        if expression.number is not None:
            step.append(expression.number if math.isfinite(expression.number) else str(expression.number))
        places[id(expression)] = len(steps)
        steps.append(step)
        waiting.pop()
    return steps
