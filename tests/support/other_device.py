"""Another device without one: tensors that say they are elsewhere, and a mode that forbids to fetch them.

Computing is done on the host, so values can be compared. As on a real device, a host tensor of more than one number
cannot be mixed with them. ``OtherDevice`` refuses every copy to the host but that of single numbers, which it counts.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
"""Of torch's own devices without hardware, the one that autograd and indexing work on."""


class TensorElsewhere(Tensor):
    """A tensor on ``DEVICE``."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> TensorElsewhere:
        made: TensorElsewhere = Tensor._make_wrapper_subclass(
            cls, here.shape, strides=here.stride(), dtype=here.dtype, device=DEVICE
        )
        made.here = here
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"TensorElsewhere{tuple(self.shape)}"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise RuntimeError(f"{func}: expected the mode OtherDevice, got none")


class OtherDevice(TorchDispatchMode):
    """Runs what is asked of tensors elsewhere.

    ``copies``: refuse copies of several numbers to the host, or allow and count them. ``numbers_read``: how often
    single numbers were fetched; ``tensors_read``: how often several were.
    """

    def __init__(self, copies: Literal["refuse", "allow"] = "refuse") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.copies = copies
        self.numbers_read = 0
        self.tensors_read = 0
        self.constants = _Constants()

    def __enter__(self) -> OtherDevice:
        self.constants.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self.constants.__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        is_elsewhere = any(isinstance(one, TensorElsewhere) for one in given)
        goes = kwargs.get("device")
        wanted = None if goes is None else torch.device(goes)
        if is_elsewhere:
            mixed = [one for one in given if not isinstance(one, TensorElsewhere) and one.dim()]
            if mixed and name not in ("aten::_to_copy", "aten::copy_", "aten::index", "aten::index_put_"):
                raise RuntimeError(f"{name}: expected all tensors on one device, got some on the host")
            if name == "aten::_local_scalar_dense":
                self.numbers_read += 1
            elif wanted is not None and wanted.type == "cpu":
                size = max(one.numel() for one in given)
                if size > 1 and self.copies == "refuse":
                    raise RuntimeError(f"{name}: {size} numbers are copied to the host")
                self.tensors_read += size > 1
                self.numbers_read += size <= 1
        stays = is_elsewhere if wanted is None else wanted.type == DEVICE.type
        if wanted is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        found = func(*tree_map(_fetch, args), **tree_map(_fetch, kwargs))
        if not stays or name == "aten::_local_scalar_dense":
            return found
        if func._schema.name.endswith("_") and args and isinstance(args[0], TensorElsewhere):
            return args[0]
        return tree_map(lambda one: TensorElsewhere(one) if isinstance(one, Tensor) else one, found)


class _Constants(TorchFunctionMode):
    """``torch.tensor`` with the device: torch gives its "meta" tensors no values, whatever modes there are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and device is not None and torch.device(device) == DEVICE:
            return TensorElsewhere(func(*args, **{**kwargs, "device": "cpu"}))
        return func(*args, **kwargs)


def _fetch(value: Any) -> Any:
    return value.here if isinstance(value, TensorElsewhere) else value
