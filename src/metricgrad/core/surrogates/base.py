"""What every surrogate has: the base classes, and what several of them share."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.storable import Storable

Number = float | Tensor
"""A fixed number, or a tensor with one number per class."""

ChunkMemberships = tuple[Tensor, Any, Any]
"""What ``Surrogate.forward_chunk`` returns: memberships up to a factor, the factor or sums of rows, and a context."""


@dataclass(frozen=True)
class Surrogate(Storable, abstract=True):
    """Base class of the surrogates here; a callable of your own needs none of it.

    A subclass is a frozen dataclass with ``__call__(logits, threshold)``, which returns memberships, elementwise, for
    binary and multi-label problems; ``rows(logits)`` serves multi-class problems, and ``hard(logits, threshold)`` is
    the rule that it softens.

    See Also
    --------
    metricgrad.surrogates : The table of all surrogates.
    """

    takes_threshold: ClassVar[bool] = False
    """Whether ``threshold=`` means anything: the step is on probabilities."""
    takes_targets: ClassVar[bool] = False
    """Whether the labels are needed (training only)."""

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        """Return memberships, elementwise, for binary and multi-label problems.

        Parameters
        ----------
        logits : Tensor
            Raw scores of any shape.
        threshold : float, default 0.5
            Where a step on probabilities stands; others ignore it.

        Returns
        -------
        Tensor
            Memberships in [0, 1], of the shape of the logits.
        """
        raise NotImplementedError

    def rows(self, logits: Tensor) -> Tensor:
        """Return memberships whose rows sum to one, for multi-class problems.

        Parameters
        ----------
        logits : Tensor
            Raw scores, ``(..., d)``.

        Returns
        -------
        Tensor
            Memberships, ``(..., d)``.

        Raises
        ------
        ValueError
            If the surrogate is not for multi-class problems.
        """
        raise ValueError(f"surrogate: {self!r} is not for task='multiclass'; use TopTwo, a step, Identity or Hard")

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        """Return the 0/1 memberships of the rule that this surrogate softens.

        Parameters
        ----------
        logits : Tensor
            Raw scores of any shape.
        threshold : float, default 0.5
            The threshold of a rule on probabilities.

        Returns
        -------
        Tensor
            0 and 1, of the shape of the logits; NaN where a logit is NaN.

        Raises
        ------
        ValueError
            If the surrogate has no hard rule.
        """
        raise ValueError(f"surrogate: {self!r} has no hard rule; use Linear, Sigmoid, LogitSigmoid, Identity or TopTwo")

    def closed_form(self, rowwise: bool) -> Surrogate | None:
        """Return the surrogate that has ``forward_chunk`` and ``backward_chunk``, which the kernel uses.

        Parameters
        ----------
        rowwise : bool
            Whether memberships of whole rows (multi-class) are wanted instead of those of elements.

        Returns
        -------
        Surrogate or None
            This one, its counterpart for rows, or None, which leaves the gradient to autograd.
        """
        return None

    def forward_chunk(self, logits: Tensor, threshold: float, saved: Tensor, buffer: Tensor) -> ChunkMemberships:
        """Compute the memberships of a chunk of logits, and save what ``backward_chunk`` needs.

        Parameters
        ----------
        logits : Tensor
            ``(N, K)``, of any strides; without ``rowwise``, of any shape.
        threshold : float
            Where a step on probabilities stands.
        saved : Tensor
            Of the logits' shape; overwritten with what ``backward_chunk`` turns into the gradient.
        buffer : Tensor
            Of the logits' shape; may be overwritten.

        Returns
        -------
        memberships : Tensor
            Memberships up to a factor, in ``saved`` or ``buffer``.
        scale : float, Tensor or None
            The factor; for memberships of rows ``(N, 1)``, what each row is to be divided by, or None for 1.
        context : object
            Anything that ``backward_chunk`` needs besides.
        """
        raise NotImplementedError

    def backward_chunk(self, saved: Tensor, gradient: Tensor, context: Any, spare: Tensor | None) -> None:
        """Turn ``saved`` into the gradient with respect to the logits, in place.

        Parameters
        ----------
        saved : Tensor
            What ``forward_chunk`` wrote.
        gradient : Tensor
            With respect to the memberships that ``forward_chunk`` returned if the scale is a number, to those divided
            by the scale if it is one per row; may be overwritten.
        context : object
            What ``forward_chunk`` returned.
        spare : Tensor or None
            For memberships of rows, a buffer of the logits' shape, may be overwritten; None if ``buffer`` of
            ``forward_chunk`` still holds what it held.
        """
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """Return the fields that are tensors, for which a gradient can be computed.

        Returns
        -------
        dict
            Tensors by the name of the field.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}


@dataclass(frozen=True)
class ProbabilityStep(Surrogate, abstract=True):
    """Base class of the soft steps on probabilities, with a threshold anywhere in (0, 1)."""

    takes_threshold: ClassVar[bool] = True

    def step(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        """Return the soft version of ``p >= threshold``.

        Parameters
        ----------
        p : Tensor
            Probabilities.
        threshold : float or Tensor
            The threshold; tensors broadcast.

        Returns
        -------
        Tensor
            Memberships in [0, 1].
        """
        raise NotImplementedError

    def slope(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        """Return the derivative of ``step`` with respect to the probability.

        Parameters
        ----------
        p : Tensor
            Probabilities.
        threshold : float or Tensor
            The threshold; tensors broadcast.

        Returns
        -------
        Tensor
            The derivative, elementwise.
        """
        raise NotImplementedError

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return self.step(torch.sigmoid(logits), threshold)

    def rows(self, logits: Tensor) -> Tensor:
        p = torch.softmax(logits, -1)
        threshold = mean_of_two_largest(p)
        return normalise_rows(self.step(p, threshold))

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return reaches_threshold(torch.sigmoid(logits), threshold)


def mean_of_two_largest(scores: Tensor) -> Tensor:
    """Return the mean of the two largest scores of each row, ``(..., 1)``; of one class, half of it."""
    if scores.shape[-1] < 2:
        return scores / 2
    return scores.topk(2, -1).values.mean(-1, keepdim=True)


def normalise_rows(memberships: Tensor) -> Tensor:
    """Return memberships whose rows sum to one."""
    return ratio(memberships, memberships.sum(-1, keepdim=True))


def reaches_threshold(scores: Tensor, threshold: float) -> Tensor:
    """Return 1 where the score reaches the threshold; NaN stays NaN, which a comparison would hide."""
    reached = (scores >= threshold).to(scores.dtype)
    return reached.masked_fill(scores.isnan(), math.nan)


def one_hot(logits: Tensor) -> Tensor:
    """Return the argmax as memberships; a row with a NaN is NaN."""
    best = logits.argmax(-1, keepdim=True)
    hot = torch.zeros_like(logits).scatter(-1, best, 1.0)
    has_nan = logits.isnan().any(-1, keepdim=True)
    return hot.masked_fill(has_nan, math.nan)


def multiply_by_sigmoid_slope(gradient: Tensor, p: Tensor, out: Tensor | None = None) -> None:
    """Write gradient·p(1 − p), the chain rule through p = sigmoid(z), into ``out``, by default over the gradient."""
    _sigmoid_backward(gradient, p, grad_input=gradient if out is None else out)


_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
