"""Arrays of other libraries: metrics and averages are written once, in torch's names, and take those arrays as well.

Arithmetic is the same everywhere; the few functions beyond it (sums, ``where``, ...) are looked up by what is given. A
library is added with the functions that are needed, under torch's names; ``metricgrad.keras`` adds that of its backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LIBRARIES: list[tuple[Callable[[object], bool], Any]] = []


def add_library(is_array: Callable[[object], bool], functions: Any) -> None:
    """Let metrics take the arrays of a library, with its functions under torch's names, and the safe ones."""
    _LIBRARIES.append((is_array, functions))


def other_functions(x: object) -> Any:
    """Return the functions for an array of another library than torch, None for anything else."""
    return next((functions for is_array, functions in _LIBRARIES if is_array(x)), None)


def functions_of(x: Any) -> Any:
    """Return torch for a tensor, its stand-in for an array of another library; raise ``TypeError`` for others."""
    if isinstance(x, Tensor):
        return torch
    if (functions := other_functions(x)) is None:
        raise TypeError(f"expected a tensor, got {type(x).__name__}")
    return functions


def constant(values: Sequence[float], like: Any) -> Any:
    """Return numbers as a vector of the library, type and device of another array."""
    if isinstance(like, Tensor):
        return torch.tensor(values, dtype=like.dtype, device=like.device)
    return functions_of(like).constant(values, like)
