"""A warning if a loss is given probabilities instead of logits."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

ENOUGH_LOGITS = 32
"""With at least this many logits it is no coincidence if all of them lie in [0, 1]."""
NEAR_ZERO = 0.25
"""Logits that are all below this are not taken for probabilities: an untrained network returns such small numbers."""


class TakesLogits(nn.Module):
    """Base class of the losses of logits: each object checks once whether it is given probabilities instead."""

    _scale_is_known = False

    def _check_scale(self, logits: Tensor) -> None:
        """Warn if logits look like probabilities. After the first batch that decides this, no other is checked."""
        if self._scale_is_known or not _can_tell(logits):
            return
        low, high = (end.item() for end in torch.aminmax(logits.detach()))
        if low == high:  # constant, as long as the last layer of a network is zero
            return
        self._scale_is_known = True
        if low >= 0 and NEAR_ZERO < high <= 1:
            warnings.warn(
                f"logits: all {logits.numel()} lie in [0, 1], as probabilities do; this loss takes the raw outputs of "
                "a model, without sigmoid or softmax, and used these as such",
                stacklevel=3,
            )


def _can_tell(logits: object) -> bool:
    return isinstance(logits, Tensor) and logits.layout is torch.strided and logits.numel() >= ENOUGH_LOGITS


def trust_logits(loss: object) -> None:
    """Switch the check off for a loss and its parts: the estimators and boosted trees always give logits."""
    for module in loss.modules() if isinstance(loss, nn.Module) else ():
        if isinstance(module, TakesLogits):
            module._scale_is_known = True
