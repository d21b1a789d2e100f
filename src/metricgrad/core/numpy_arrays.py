"""Numpy, if it is installed: for a few hundred numbers its calls take a third of the time of torch's.

The library needs torch alone. Where numpy is missing, or torch was built for another version of it, ``numpy`` is None
and ``ARRAY_TYPES`` is empty: then no array comes into being, and torch does all the work.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def _import_numpy() -> Any:
    """Return numpy, or None if it is not installed or torch cannot share memory with it."""
    try:
        import numpy

        torch.zeros(1, device="cpu").numpy()
    except (ImportError, RuntimeError):
        return None
    return numpy


numpy: Any = _import_numpy()

ARRAY_TYPES: tuple[type, ...] = () if numpy is None else (numpy.ndarray,)
"""What ``isinstance`` asks for an array of numpy; numpy's scalars are none."""

_PLAIN_TENSORS = (Tensor, torch.nn.Parameter)
"""The types whose values are in their memory: a subclass, such as a fake or a distributed tensor, may have none."""


def view_as_array(tensor: Tensor) -> Any:
    """Return an array that shares the memory of a tensor on the CPU, None if there cannot be one."""
    if type(tensor) not in _PLAIN_TENSORS:
        return None
    try:
        return tensor.detach().numpy()
    except (RuntimeError, TypeError):  # as for a lazily negated or conjugated tensor
        return None
