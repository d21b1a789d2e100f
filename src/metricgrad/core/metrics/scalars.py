"""Checks of scalar arguments: numpy's numbers count too, which are not Python's own ``int`` and ``float``."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TypeGuard


def is_whole(x: object) -> TypeGuard[int]:
    """Return whether ``x`` is a whole number of any type; True and False are not."""
    return isinstance(x, Integral) and not isinstance(x, bool)


def is_number(x: object) -> TypeGuard[float]:
    """Return whether ``x`` is a real number of any type."""
    return isinstance(x, Real)
