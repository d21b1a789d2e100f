"""What metrics and averages use beyond arithmetic, in torch's names, for the arrays of Keras's backend."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from keras import backend, ops

from metricgrad.core.array_functions import add_library
from metricgrad.core.metrics.derivatives import FLOOR, FLOORS

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLOORS = {str(dtype).removeprefix("torch."): floor for dtype, floor in FLOORS.items()}


def is_zero(x: Any) -> Any:
    """Return where numbers are too small to divide by; NaN is not."""
    return ops.abs(x) < _FLOORS.get(backend.standardize_dtype(x.dtype), FLOOR)


def ratio(numerator: Any, denominator: Any, empty: float = 0.0) -> Any:
    """Divide, with a value and a zero gradient where the denominator is zero."""
    zero = is_zero(denominator)
    # The inner where keeps 0·∞, which is NaN, out of the gradient; the outer one alone would not.
    return ops.where(zero, empty, numerator / ops.where(zero, 1.0, denominator))


def root(x: Any) -> Any:
    """Return the square root, with zero value and gradient where the argument is not positive."""
    zero = x < _FLOORS.get(backend.standardize_dtype(x.dtype), FLOOR)
    return ops.where(zero, 0.0, ops.sqrt(ops.where(zero, 1.0, x)))


def safe_log(x: Any, empty: float = 0.0) -> Any:
    """Return the natural logarithm, with a value and a zero gradient where the argument is not positive."""
    zero = x < _FLOORS.get(backend.standardize_dtype(x.dtype), FLOOR)
    return ops.where(zero, empty, ops.log(ops.where(zero, 1.0, x)))


def constant(values: Sequence[float], like: Any) -> Any:
    """Return numbers as a vector of the type of another array."""
    return ops.convert_to_tensor([float(value) for value in values], dtype=like.dtype)


FUNCTIONS = SimpleNamespace(
    constant=constant,
    is_zero=is_zero,
    ratio=ratio,
    root=root,
    safe_log=safe_log,
    clamp=lambda x, min: ops.maximum(x, min),  # noqa: A006  # torch's name
    diagonal=lambda x, dim1, dim2: ops.diagonal(x, axis1=dim1, axis2=dim2),
    exp=ops.exp,
    isnan=ops.isnan,
    log=ops.log,
    mean=lambda x, dim: ops.sum(x, axis=dim) / x.shape[dim],  # ops.mean rounds float64 on JAX
    ones_like=ops.ones_like,
    stack=lambda arrays, dim: ops.stack(arrays, axis=dim),
    sum=lambda x, dim, keepdim=False: ops.sum(x, axis=dim, keepdims=keepdim),
    where=ops.where,
)

add_library(ops.is_tensor, FUNCTIONS)
