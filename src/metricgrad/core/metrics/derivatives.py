"""Division, roots and logarithms that are safe at zero, and the two first derivatives of a metric of counts.

P = TP + FN and N = FP + TN do not depend on the prediction, so a metric changes in two directions only: TP up with FN
down, and FP up with TN down. ``Jet`` carries these two derivatives forward through a metric's arithmetic. Counts are
few numbers, for which this is several times faster than a backward graph, whose overhead exceeds the cost of the loss
itself; a metric that uses anything beyond ``+ - * /``, ``ratio``, ``root`` and ``log`` raises ``TypeError`` or
``AttributeError`` here and is differentiated by autograd instead.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core.array_functions import other_functions
from metricgrad.core.numpy_arrays import ARRAY_TYPES, TENSOR_DTYPES, np

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLAIN = (float, int)  # a constant: float | int would be created in every call


@lru_cache(maxsize=256)
def _cached_tensor(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a tensor created in inference mode cannot be used in training afterwards
        return torch.tensor(value, dtype=dtype, device=device)


FLOORS = {dtype: torch.finfo(dtype).tiny * 2.0**24 for dtype in (torch.float32, torch.float64, torch.bfloat16)} | {
    torch.float16: torch.finfo(torch.float16).tiny
}
"""The size below which a denominator, or the argument of a root, counts as zero; 2e-31 in float32.

1/x of a float32 below 3e-39 is infinite, and infinity times the zero derivative of a saturated membership is NaN. The
factor leaves room for a metric's coefficients: derivatives stay below 5e30 times those.
"""

ARRAY_FLOORS = {array_dtype: FLOORS[dtype] for array_dtype, dtype in TENSOR_DTYPES.items()}
"""The same for the types of numpy's arrays."""

FLOOR = FLOORS[torch.float32]
"""The same for plain numbers, which stand for float32 sums: see ``Objective.differentiate``."""


@contextmanager
def differentiable(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield copies of tensors that require a gradient, in any mode of the caller, inference mode included."""
    with torch.inference_mode(False), torch.enable_grad():
        yield tuple(tensor.detach().clone().requires_grad_() for tensor in tensors)


def limit_gradient(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a float64 gradient in another type, limited to the largest derivative that type can give."""
    bound = 1 / FLOORS[dtype]
    return gradient.clamp(-bound, bound).to(dtype)


def is_zero(x: Any) -> Tensor:
    """Return where numbers are too small to divide by; NaN is not."""
    if not isinstance(x, Tensor):
        return other_functions(x).is_zero(x)  # type: ignore[no-any-return]
    zero: Tensor = x.abs() < FLOORS.get(x.dtype, 1)  # whole numbers: 0 alone
    return zero


def as_constant(x: Any, like: Tensor) -> Any:
    """Return a plain number as a tensor for arithmetic with another; anything else as it is.

    It is cached, since wrapping a plain number takes torch longer than the arithmetic on a small tensor.
    """
    return _cached_tensor(float(x), like.dtype, like.device) if isinstance(x, _PLAIN) else x


class Number:
    """Base class of the numbers that a metric can compute with besides tensors and floats: ``Jet``, ``bounds.Box``."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # numpy leaves ``array * number`` to the number

    @classmethod
    def of(cls, x: Any) -> Any:
        """Return ``x`` as such a number; anything else is a constant."""
        raise NotImplementedError

    def ratio(self, other: Any, empty: float) -> Any:
        """Return self / other, and ``empty`` where other is zero."""
        raise NotImplementedError

    def root(self) -> Any:
        """Return √self, and 0 where self is not positive."""
        raise NotImplementedError

    def log(self, empty: float) -> Any:
        """Return the logarithm of self, and ``empty`` where self is not positive."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        raise TypeError("arithmetic only")  # Python's default answer, identity, would be silently wrong

    def __bool__(self) -> bool:
        raise TypeError("arithmetic only")


class Jet(Number):
    """A value (a tensor, an array, a float, a ``Box``) and its derivatives ``a`` (TP↑ FN↓) and ``b`` (FP↑ TN↓)."""

    __slots__ = ("a", "b", "value")

    def __init__(self, value: Any, a: Any = 0.0, b: Any = 0.0) -> None:
        self.value = value
        self.a = a
        self.b = b

    @classmethod
    def of(cls, x: Any) -> Jet:
        """Return ``x`` as a jet; anything but a jet is a constant."""
        return x if isinstance(x, Jet) else cls(x)

    def __add__(self, other: Any) -> Jet:
        if isinstance(other, Jet):
            return Jet(self.value + other.value, self.a + other.a, self.b + other.b)
        return Jet(self.value + other, self.a, self.b)

    def __neg__(self) -> Jet:
        return Jet(-self.value, -self.a, -self.b)

    def __sub__(self, other: Any) -> Jet:
        return self + (-other)  # type: ignore[no-any-return]

    def __rsub__(self, other: Any) -> Jet:
        return Jet(other - self.value, -self.a, -self.b)

    def __mul__(self, other: Any) -> Jet:
        x = self.value
        if isinstance(other, Jet):
            y = other.value
            a = _multiply(self.a, y) + _multiply(other.a, x)
            b = _multiply(self.b, y) + _multiply(other.b, x)
            return Jet(x * y, a, b)
        return Jet(_multiply(x, other), _multiply(self.a, other), _multiply(self.b, other))

    def __truediv__(self, other: Any) -> Jet:
        other = Jet.of(other)
        quotient = _divide(self.value, other.value)
        return self._divide_by(other, quotient, other.value)

    def __rtruediv__(self, other: Any) -> Jet:
        return Jet.of(other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def _divide_by(self, other: Jet, quotient: Any, denominator: Any) -> Jet:
        """Return the quotient with its derivatives, (x/y)' = (x' − y'·x/y)/y."""
        a = _divide(_subtract(self.a, _multiply(other.a, quotient)), denominator)
        b = _divide(_subtract(self.b, _multiply(other.b, quotient)), denominator)
        return Jet(quotient, a, b)

    def ratio(self, other: Jet, empty: float) -> Jet:
        """Return self / other, and ``empty`` with zero derivatives where other is zero."""
        if isinstance(other.value, Tensor):
            zero = other.value.abs() < as_constant(FLOORS[other.value.dtype], other.value)
            # x/∞ = 0 and its derivatives are 0: the whole special case in one masked fill.
            denominator = other.value.masked_fill(zero, math.inf)
            jet = self._divide_by(other, self.value / denominator, denominator)
            if empty:
                jet.value = jet.value.masked_fill(zero, empty)
            return jet
        if isinstance(other.value, ARRAY_TYPES):
            return self._divide_by_array(other, empty)
        if isinstance(other.value, Number):
            return self._divide_by(other, ratio(self.value, other.value, empty), other.value)
        x = self.value
        y = other.value
        if abs(y) < FLOOR:
            return Jet(empty)
        quotient = x / y
        a = (self.a - other.a * quotient) / y
        b = (self.b - other.b * quotient) / y
        return Jet(quotient, a, b)

    def _divide_by_array(self, other: Jet, empty: float) -> Jet:
        """Do as ``ratio`` for an array of numpy: few have zeros, and to ask for them is cheaper than to fill them."""
        denominator = other.value
        zero = np.abs(denominator) < ARRAY_FLOORS[denominator.dtype]
        if not np.count_nonzero(zero):
            return self._divide_by(other, self.value / denominator, denominator)
        denominator = np.where(zero, math.inf, denominator)
        jet = self._divide_by(other, self.value / denominator, denominator)
        if empty:
            jet.value = np.where(zero, empty, jet.value)
        return jet

    def root(self) -> Jet:
        """Return √self, and 0 with zero derivatives where self is not positive."""
        if isinstance(self.value, Tensor):
            zero = self.value < FLOORS[self.value.dtype]
            root = self.value.masked_fill(zero, math.inf).sqrt()  # so that 1/(2√x) is 0 there
            return Jet(root.masked_fill(zero, 0.0), self.a / (2 * root), self.b / (2 * root))
        if isinstance(self.value, ARRAY_TYPES):
            zero = self.value < ARRAY_FLOORS[self.value.dtype]
            root = np.sqrt(np.where(zero, math.inf, self.value))
            return Jet(np.where(zero, 0.0, root), self.a / (2 * root), self.b / (2 * root))
        if isinstance(self.value, Number):
            root = self.value.root()
            return Jet(root, _divide(self.a, 2 * root), _divide(self.b, 2 * root))
        if self.value < FLOOR:
            return Jet(0.0)
        number = math.sqrt(self.value)
        return Jet(number, self.a / (2 * number), self.b / (2 * number))

    def log(self, empty: float) -> Jet:
        """Return the logarithm of self, and ``empty`` with zero derivatives where self is not positive."""
        if isinstance(self.value, Tensor):
            zero = self.value < FLOORS[self.value.dtype]
            x = self.value.masked_fill(zero, math.inf)  # so that 1/x is 0 there
            return Jet(x.log().masked_fill(zero, empty), self.a / x, self.b / x)
        if isinstance(self.value, ARRAY_TYPES):
            zero = self.value < ARRAY_FLOORS[self.value.dtype]
            x = np.where(zero, math.inf, self.value)
            return Jet(np.where(zero, empty, np.log(x)), self.a / x, self.b / x)
        if isinstance(self.value, Number):
            return Jet(self.value.log(empty), _divide(self.a, self.value), _divide(self.b, self.value))
        if self.value < FLOOR:
            return Jet(empty)
        return Jet(math.log(self.value), self.a / self.value, self.b / self.value)


_ARRAYS = (Tensor, Number, *ARRAY_TYPES)


def _multiply(derivative: Any, factor: Any) -> Any:
    """Multiply, but do nothing for the very common derivatives 0 and 1."""
    if isinstance(derivative, float):
        if derivative == 0.0:
            return 0.0
        if derivative == 1.0:
            return factor
    if isinstance(derivative, Tensor):
        factor = as_constant(factor, derivative)
    return derivative * factor


def _subtract(x: Any, y: Any) -> Any:
    """Subtract, also a tensor from a number."""
    if isinstance(x, _PLAIN) and isinstance(y, Tensor):
        return -y if x == 0 else as_constant(x, y) - y
    return x - y


def _divide(x: Any, y: Any) -> Any:
    """Divide as torch does, also plain numbers: x/0 is ±∞ or NaN, no exception."""
    if isinstance(x, float) and x == 0.0 and isinstance(y, _ARRAYS):
        return 0.0  # the quotient does not change in this direction
    if isinstance(y, _ARRAYS) or isinstance(x, _ARRAYS) or y != 0:
        return x / y
    return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x)


class CountsWithDerivatives:
    """Counts with derivatives, as passed to a metric: TP, FP and what follows from them are jets, P and N constants.

    FN and TN are computed on access, since every operation on a small tensor takes time.
    """

    __slots__ = ("fp", "negatives", "positives", "tp")

    def __init__(self, tp: Any, fp: Any, positives: Any, negatives: Any) -> None:
        self.tp = Jet(tp, 1.0, 0.0)
        self.fp = Jet(fp, 0.0, 1.0)
        self.positives = positives
        self.negatives = negatives

    @property
    def fn(self) -> Jet:
        """P − TP."""
        return Jet(self.positives - self.tp.value, -1.0, 0.0)

    @property
    def tn(self) -> Jet:
        """N − FP."""
        return Jet(self.negatives - self.fp.value, 0.0, -1.0)

    @property
    def predicted(self) -> Jet:
        """TP + FP."""
        return self.tp + self.fp

    @property
    def total(self) -> Any:
        """P + N."""
        return self.positives + self.negatives


class ArraysWithDerivatives(CountsWithDerivatives):
    """The same for counts in arrays of numpy; P and N are jets, too.

    An array has methods of the same names as a tensor, but not all of them do the same.
    """

    __slots__ = ()

    def __init__(self, tp: Any, fp: Any, positives: Any, negatives: Any) -> None:
        super().__init__(tp, fp, Jet(positives), Jet(negatives))

    @property
    def fn(self) -> Jet:
        """P − TP."""
        return Jet(self.positives.value - self.tp.value, -1.0, 0.0)

    @property
    def tn(self) -> Jet:
        """N − FP."""
        return Jet(self.negatives.value - self.fp.value, 0.0, -1.0)


def ratio(numerator: Any, denominator: Any, empty: float = 0.0) -> Tensor:
    """Divide, with a value and a zero gradient where the denominator is zero.

    Parameters
    ----------
    numerator : Tensor or float
        What is divided.
    denominator : Tensor or float
        What it is divided by; below about 2e-31 (in float32) it counts as zero.
    empty : float, default 0.0
        The value of 0/0, as scikit-learn's ``zero_division``; its gradient is zero.

    Returns
    -------
    Tensor
        The quotient, elementwise.

    Examples
    --------
    >>> ratio(torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0]), empty=1.0)
    tensor([0.5000, 1.0000])
    """
    if isinstance(numerator, Number) or isinstance(denominator, Number):
        kind = type(numerator if isinstance(numerator, Number) else denominator)
        return kind.of(numerator).ratio(kind.of(denominator), empty)  # type: ignore[no-any-return]
    if not isinstance(denominator, Tensor):
        if (functions := other_functions(denominator)) is not None:
            return functions.ratio(numerator, denominator, empty)  # type: ignore[no-any-return]
        return numerator / denominator if not abs(denominator) < FLOOR else empty  # type: ignore[return-value]
    if not denominator.is_floating_point():
        denominator = denominator.double()
    zero = is_zero(denominator)
    quotient = numerator / denominator.masked_fill(zero, math.inf)
    # where, not a sum: the numerator, which may be NaN, must not enter the empty case.
    return torch.where(zero, empty, quotient) if empty else quotient


def root(x: Any) -> Tensor:
    """Return the square root, with zero value and gradient where the argument is not positive.

    Parameters
    ----------
    x : Tensor or float
        The argument; below about 2e-31 (in float32) it counts as zero.

    Returns
    -------
    Tensor
        √x, elementwise.

    Examples
    --------
    >>> root(torch.tensor([4.0, 0.0, -1e-9]))
    tensor([2., 0., 0.])
    """
    if isinstance(x, Number):
        return x.root()  # type: ignore[no-any-return]
    if not isinstance(x, Tensor):
        if (functions := other_functions(x)) is not None:
            return functions.root(x)  # type: ignore[no-any-return]
        return math.sqrt(x) if not x < FLOOR else 0.0  # type: ignore[return-value]
    zero = x < FLOORS.get(x.dtype, 1)
    return x.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)


def log(x: Any, empty: float = 0.0) -> Tensor:
    """Return the natural logarithm, with a value and a zero gradient where the argument is not positive.

    Parameters
    ----------
    x : Tensor or float
        The argument; below about 2e-31 it counts as zero.
    empty : float, default 0.0
        The value of log 0; its gradient is zero. With 0, x·log x is 0 at 0.

    Returns
    -------
    Tensor
        log x, elementwise.

    Examples
    --------
    >>> log(torch.tensor([1.0, 0.0]), empty=-9.0)
    tensor([ 0., -9.])
    """
    if isinstance(x, Number):
        return x.log(empty)  # type: ignore[no-any-return]
    if not isinstance(x, Tensor):
        if (functions := other_functions(x)) is not None:
            return functions.safe_log(x, empty)  # type: ignore[no-any-return]
        return math.log(x) if not x < FLOOR else empty  # type: ignore[return-value]
    zero = x < FLOORS.get(x.dtype, 1)
    return x.masked_fill(zero, 1).log().masked_fill(zero, empty)
