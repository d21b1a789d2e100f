"""The scale of what a loss is given: a warning where probabilities come instead of logits."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

ENOUGH_LOGITS = 32
"""The number of logits from which on it is no chance that all of them lie in [0, 1]."""
NEAR_ZERO = 0.25
"""Up to here logits may all be small: an untrained network returns little more than the bias of its last layer."""


class TakesLogits(nn.Module):
    """Base class of the losses of logits: each object looks once whether it is given probabilities instead."""

    _scale_is_known = False

    def _look_at_scale(self, logits: Tensor) -> None:
        """Warn if logits look like probabilities. The first batch that tells is looked at, and none after it."""
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
    """Take it as known that a loss and its parts are given logits, as the estimators and boosted trees give them."""
    for module in loss.modules() if isinstance(loss, nn.Module) else ():
        if isinstance(module, TakesLogits):
            module._scale_is_known = True
