"""Surrogates without numbers of their own: the probability, the logit, the hard step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from metricgrad.core import class_axis
from metricgrad.core.storable import kinds_in
from metricgrad.core.surrogates.base import ChunkMemberships, Surrogate, one_hot, reaches_threshold
from metricgrad.core.surrogates.steps import LogitSigmoid


@dataclass(frozen=True)
class Identity(Surrogate):
    """The probability itself: soft F1, soft Dice; softmax for multi-class problems.

    See Also
    --------
    metricgrad.presets.soft_dice : The loss with this surrogate.

    Examples
    --------
    >>> Identity()(torch.zeros(1))
    tensor([0.5000])
    """

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return torch.sigmoid(logits)

    def rows(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, -1)

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return reaches_threshold(torch.sigmoid(logits), threshold)

    def closed_form(self, rowwise: bool) -> Surrogate:
        return self if rowwise else LogitSigmoid()

    def forward_chunk(self, logits: Tensor, threshold: float, saved: Tensor, buffer: Tensor) -> ChunkMemberships:
        return class_axis.write_softmax(logits, saved), None, None

    def backward_chunk(self, saved: Tensor, gradient: Tensor, context: Any, spare: Tensor | None) -> None:
        products = torch.mul(gradient, saved, out=spare)
        gradient.sub_(products.sum(1, keepdim=True))
        saved.mul_(gradient)


@dataclass(frozen=True)
class Unbounded(Surrogate):
    """The logit itself [benedict2022, eq. 4].

    Warning: nothing keeps it in [0, 1], so one sample can outweigh all others, the value can leave [0, 1] and the
    denominator of F1 can vanish. The paper reports that it diverges; it is here for comparison.

    Examples
    --------
    >>> Unbounded()(torch.tensor([3.0]))
    tensor([3.])
    """

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return logits


@dataclass(frozen=True)
class Hard(Surrogate):
    """The hard step, as in evaluation: 1 where p ≥ threshold, or at the argmax. It has no gradient.

    See Also
    --------
    StraightThrough : The hard value with the gradient of a soft step.

    Examples
    --------
    >>> Hard()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0., 1., 1.])
    """

    takes_threshold: ClassVar[bool] = True

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return reaches_threshold(torch.sigmoid(logits), threshold) + 0 * logits.clamp(
            -1, 1
        )  # attached, so backward() works

    def rows(self, logits: Tensor) -> Tensor:
        return one_hot(logits) + 0 * torch.softmax(logits, -1)

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return self(logits, threshold)


if not TYPE_CHECKING:  # type checkers see the classes themselves
    __all__ = kinds_in(__name__)
