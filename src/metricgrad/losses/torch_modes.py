"""The modes that a loss can be called in: under autocast, while being compiled or transformed, on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

Method = TypeVar("Method", bound=Callable[..., Any])


def without_autocast(method: Method) -> Method:
    """Switch autocast off inside a method whose first argument is the logits: counts need float32."""

    @wraps(method)
    def wrapped(self: Any, logits: Tensor, *args: Any, **kwargs: Any) -> Any:
        kind = "cpu" if not isinstance(logits, Tensor) or logits.is_cpu else logits.device.type
        if kind == "meta" or not torch.is_autocast_enabled(kind):  # autocast does not know the meta device
            return method(self, logits, *args, **kwargs)
        with torch.autocast(kind, enabled=False):
            return method(self, logits, *args, **kwargs)

    return wrapped  # type: ignore[return-value]


def is_traced(logits: object = None) -> bool:
    """Return whether torch.compile, torch.func or the meta device needs plain operations that read no values."""
    if getattr(logits, "is_meta", False):
        return True
    # autograd.Function itself checks this flag; there is no public one, and the documented way, setup_context, makes
    # every call of a Function 40 µs slower.
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def can_keep_state(logits: object) -> bool:
    """Return whether what is computed from logits can be kept: not what torch.func or the meta device made."""
    return torch.compiler.is_compiling() or not is_traced(logits)
