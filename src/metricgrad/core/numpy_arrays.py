"""Numpy, if it is installed: on a few hundred numbers its calls take about a third of the time of torch's.

The library needs torch alone. Where numpy is missing, or torch was built for another version of it, ``np`` is None
and ``ARRAY_TYPES`` is empty: then no array comes into being, and torch does all the work.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def _import_numpy() -> Any:
    """Return numpy, or None if it is not installed or torch cannot share memory with it."""
    try:
        import numpy as np

        torch.zeros(1, device="cpu").numpy()
    except (ImportError, RuntimeError):
        return None
    return np


np: Any = _import_numpy()

ARRAY_TYPES: tuple[Any, ...] = () if np is None else (np.ndarray,)
"""What ``isinstance`` asks for an array of numpy; numpy's scalars are none."""

TENSOR_DTYPES: dict[Any, torch.dtype] = {}
"""Torch's types by numpy's, of the numbers that a loss is computed in."""
if np is not None:
    TENSOR_DTYPES[np.dtype(np.float32)] = torch.float32
    TENSOR_DTYPES[np.dtype(np.float64)] = torch.float64

_PLAIN_TENSORS = (Tensor, torch.nn.Parameter)
"""The types whose values are in their memory: a subclass, such as a fake or a distributed tensor, may have none."""


_count_dispatch_modes = torch._C._len_torch_dispatch_stack


def has_array(tensor: Tensor) -> bool:
    """Return whether the values of a tensor that needs no gradient can be had as an array."""
    return (
        np is not None
        and type(tensor) in _PLAIN_TENSORS
        and tensor.is_cpu
        and not tensor.is_neg()
        # Whoever looks at every operation of torch, to record it or to count it, would not see numpy's.
        and _count_dispatch_modes() == 0
    )
