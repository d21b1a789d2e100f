"""Surrogates made of others: the hard value with a soft gradient, a table, and numbers that change during training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from metricgrad.core.metrics.scalars import is_number
from metricgrad.core.storable import kinds_in
from metricgrad.core.surrogates.base import ProbabilityStep, Surrogate, one_hot
from metricgrad.core.surrogates.mfom import UnitsVsZeros
from metricgrad.core.surrogates.simple import Unbounded
from metricgrad.core.surrogates.steps import Linear, LogitSigmoid, TopTwo


@dataclass(frozen=True)
class StraightThrough(Surrogate):
    """The hard value with the gradient of another surrogate [bengio2013].

    Parameters
    ----------
    soft : Surrogate, default Linear()
        The surrogate whose gradient and whose hard rule are used.

    Raises
    ------
    ValueError
        If the surrogate has no hard rule.

    Examples
    --------
    >>> from metricgrad.surrogates import Sigmoid
    >>> StraightThrough(Sigmoid())(torch.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """

    soft: Surrogate = field(default_factory=Linear)

    @property
    def takes_threshold(self) -> bool:  # type: ignore[override]
        """Whether ``threshold=`` has an effect: as for ``soft``."""
        return self.soft.takes_threshold

    def __post_init__(self) -> None:
        if self.soft.takes_targets or isinstance(self.soft, Unbounded):
            raise ValueError(f"StraightThrough: {self.soft!r} has no hard rule; use a step, Identity or TopTwo")

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        soft = self.soft(logits, threshold)
        hard = one_hot(logits) if isinstance(self.soft, TopTwo) else self.soft.hard(logits, threshold)
        return hard + (soft - soft.detach())

    def rows(self, logits: Tensor) -> Tensor:
        soft = self.soft.rows(logits)
        return one_hot(logits) + (soft - soft.detach())

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return self.soft.hard(logits, threshold)


@dataclass(frozen=True)
class Table(Surrogate):
    """A step read from a table: O(1) in its complexity [tsoi2022, supplement 3].

    The probability is truncated to ``decimals`` decimals, so the value is off by at most slope·10^−decimals, and the
    gradient is the slope in the table: it is not the derivative of the value, which is a staircase (so ``gradcheck``
    fails by design). Torch evaluates the steps themselves faster than it reads a table; this is for comparison.

    Parameters
    ----------
    step : Linear or Sigmoid, default Linear()
        A step on probabilities.
    decimals : int, default 2
        The number of decimals, 1 to 6.

    Raises
    ------
    ValueError
        If ``step`` is not a step on probabilities, or ``decimals`` is out of its range.

    Examples
    --------
    >>> Table(Linear(), decimals=2)(torch.logit(torch.tensor([0.2599, 0.5])))
    tensor([0.1000, 0.5000])
    """

    step: ProbabilityStep = field(default_factory=Linear)
    decimals: int = 2
    takes_threshold: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.step, ProbabilityStep):
            raise ValueError(f"Table: expected a step on probabilities (Linear, Sigmoid), got {self.step!r}")
        if not 1 <= self.decimals <= 6:
            raise ValueError(f"Table: decimals must be 1 to 6, got {self.decimals}")

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        entries = 10**self.decimals
        p = torch.sigmoid(logits)
        with torch.no_grad():
            grid = torch.arange(entries + 1, dtype=torch.float64, device=p.device) / entries
            values = self.step.step(grid, threshold).to(p.dtype)
            slopes = self.step.slope(grid, threshold).to(p.dtype)
            # Slightly increased, so that 0.29 × 100 = 28.999… is entry 29.
            position = p.nan_to_num(0.0).double() * entries * (1 + 1e-12)
            entry = position.floor().long().clamp_(0, entries)
        # p − p is 0 in value (NaN for NaN) and 1 in gradient: the slope is the gradient, the table the value.
        return values[entry] + slopes[entry] * (p - p.detach())

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return self.step.hard(logits, threshold)


class Learned(nn.Module):
    """A surrogate whose numbers are parameters, one per class, trained with the model.

    Give ``loss.parameters()`` to the optimizer together with the model's.

    Parameters
    ----------
    start : LogitSigmoid or UnitsVsZeros
        The surrogate with the initial numbers.
    classes : int, default 1
        The number of classes.

    Raises
    ------
    ValueError
        If ``start`` is another surrogate.

    Examples
    --------
    >>> Learned(LogitSigmoid(beta=1.0, eta=0.0), classes=3)
    Learned(LogitSigmoid(beta=1.0, eta=0.0), classes=3)
    """

    def __init__(self, start: Surrogate, classes: int = 1) -> None:
        super().__init__()
        if not isinstance(start, LogitSigmoid | UnitsVsZeros):
            raise ValueError(f"Learned: expected LogitSigmoid or UnitsVsZeros, got {start!r}")
        self.start = start
        self.classes = classes
        for number in fields(start):
            value = torch.as_tensor(getattr(start, number.name), dtype=torch.get_default_dtype())
            per_class = value.expand(classes).clone()
            self.register_parameter(number.name, nn.Parameter(per_class))

    def current(self) -> Surrogate:
        """Return the surrogate with the parameters as they are now.

        Returns
        -------
        Surrogate
            A ``LogitSigmoid`` or ``UnitsVsZeros`` of tensors.
        """
        return replace(self.start, **dict(self.named_parameters()))  # type: ignore[arg-type]

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the memberships of the current surrogate.

        Parameters
        ----------
        *args : Tensor
            The logits, for ``UnitsVsZeros`` also the targets.
        **kwargs : Any
            Further arguments of the surrogate, such as ``mask``.

        Returns
        -------
        Tensor
            Memberships, of the shape of the logits.
        """
        return self.current()(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Learned({self.start!r}, classes={self.classes})"


class Annealed(nn.Module):
    """A surrogate that sharpens: every number moves from ``start`` to ``end`` in ``steps`` calls of ``step()``.

    Call ``step()`` once per optimizer step or epoch, as with a learning-rate scheduler; the position is saved with the
    module's state.

    Parameters
    ----------
    start : Surrogate
        The surrogate at first.
    end : Surrogate
        The surrogate at last, of the same class.
    steps : int
        The number of calls of ``step()`` from one to the other, at least 1.
    shape : {'linear', 'cosine', 'exponential'}, default 'linear'
        How the numbers move; "exponential" (equal ratios) is for k and β, which span decades.

    Raises
    ------
    ValueError
        If the two surrogates are of different classes or have no numbers, or ``steps`` or ``shape`` is out of range.

    Examples
    --------
    >>> from metricgrad.surrogates import Sigmoid
    >>> surrogate = Annealed(Sigmoid(k=1.0), Sigmoid(k=100.0), steps=2, shape="exponential")
    >>> surrogate.step()
    >>> surrogate.current()
    Sigmoid(k=10.0)
    """

    position: Tensor

    def __init__(
        self,
        start: Surrogate,
        end: Surrogate,
        steps: int,
        shape: Literal["linear", "cosine", "exponential"] = "linear",
    ) -> None:
        super().__init__()
        if type(start) is not type(end) or not fields(start):
            raise ValueError(f"Annealed: expected two surrogates of one kind with numbers, got {start!r} and {end!r}")
        if steps < 1:
            raise ValueError(f"Annealed: steps must be at least 1, got {steps}")
        if shape not in ("linear", "cosine", "exponential"):
            raise ValueError(f"Annealed: shape must be 'linear', 'cosine' or 'exponential', got {shape!r}")
        names = [number.name for number in fields(start)]
        numbers = [getattr(start, name) for name in names] + [getattr(end, name) for name in names]
        if not all(is_number(number) for number in numbers):
            raise ValueError(f"Annealed: only plain numbers can be annealed, got {start!r}")
        if shape == "exponential" and min(numbers) <= 0:
            raise ValueError(f"Annealed: shape='exponential' needs positive numbers, got {start!r} and {end!r}")
        self.start = start
        self.end = end
        self.steps = steps
        self.shape = shape
        self.register_buffer("position", torch.tensor(0))

    def step(self) -> None:
        """Advance by one step; after the last one nothing changes."""
        self.position += 1

    def current(self) -> Surrogate:
        """Return the surrogate at the current step.

        Returns
        -------
        Surrogate
            Of the class of ``start`` and ``end``.
        """
        progress = min(int(self.position) / self.steps, 1.0)
        if progress == 0.0:
            return replace(self.start)
        if progress == 1.0:
            return replace(self.end)
        if self.shape == "cosine":
            progress = (1 - math.cos(math.pi * progress)) / 2
        numbers = {}
        for number in fields(self.start):
            first = getattr(self.start, number.name)
            last = getattr(self.end, number.name)
            if self.shape == "exponential":
                numbers[number.name] = first * (last / first) ** progress
            else:
                numbers[number.name] = first + progress * (last - first)
        return replace(self.start, **numbers)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the memberships of the current surrogate.

        Parameters
        ----------
        *args : Tensor
            The logits, for ``UnitsVsZeros`` also the targets.
        **kwargs : Any
            Further arguments of the surrogate, such as ``threshold``.

        Returns
        -------
        Tensor
            Memberships, of the shape of the logits.
        """
        return self.current()(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Annealed({self.start!r}, {self.end!r}, steps={self.steps}, shape={self.shape!r})"


def current_surrogate(surrogate: Any) -> Any:
    """Return the current surrogate of ``Learned`` and ``Annealed``, and any other surrogate as it is."""
    return surrogate.current() if isinstance(surrogate, Learned | Annealed) else surrogate


if not TYPE_CHECKING:  # type checkers see the classes themselves
    __all__ = ["Annealed", "Learned", *kinds_in(__name__)]
