"""``number_objects``: from masks to maps of objects; needs scipy, as in the extra "sklearn"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from scipy import ndimage
from torch import Tensor

from metricgrad.core.inputs import as_tensor

if TYPE_CHECKING:
    from metricgrad.core.inputs import ArrayLike


def number_objects(masks: ArrayLike, connectivity: int = 1, task: Literal["binary", "multilabel"] = "binary") -> Tensor:
    """Give the connected parts of each mask numbers, from 1 on in every image: maps of objects.

    Parameters
    ----------
    masks : array-like of bool
        ``(N, ...)``; for "multilabel" ``(N, K, ...)``.
    connectivity : int, default 1
        Positions touch along so many axes at most; 1 is edges alone, the number of axes includes corners.
    task : {'binary', 'multilabel'}, default 'binary'
        "multilabel": the second axis is that of the classes, whose masks are apart.

    Returns
    -------
    Tensor
        int64, of the same shape; 0 outside the masks.

    Raises
    ------
    ValueError
        If ``masks`` are not of type bool.

    Examples
    --------
    >>> number_objects(torch.tensor([[True, True, False, True]]))
    tensor([[1, 1, 0, 2]])
    """
    tensor = as_tensor("masks", masks)
    if tensor.dtype is not torch.bool:
        raise ValueError(f"masks: expected bool, got {tensor.dtype}; compare scores with a threshold first")
    leading = 2 if task == "multilabel" else 1
    space = tensor.dim() - leading
    if space < 1 or not 1 <= connectivity <= space:
        raise ValueError(
            f"connectivity: expected 1 to {max(space, 1)} for masks of {tuple(tensor.shape)}, got {connectivity!r}"
        )
    structure = ndimage.generate_binary_structure(space, connectivity)
    flat = tensor.cpu().flatten(0, leading - 1)
    numbered = [torch.from_numpy(ndimage.label(mask.numpy(), structure)[0]).long() for mask in flat]
    joined = torch.stack(numbered) if numbered else flat.long()
    return joined.reshape(tensor.shape).to(tensor.device)
