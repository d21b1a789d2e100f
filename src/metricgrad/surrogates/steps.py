"""Soft steps: frozen dataclasses, callable, with a closed form of their derivative where there is one.

The public module is ``surrogates``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from metricgrad.metrics.derivatives import as_constant, ratio
from metricgrad.storable import Storable, kinds_in
from metricgrad.surrogates import top_two

Reduce = Callable[[Tensor, Tensor, float], Any]
"""Sums scale·member, given (member, out, scale); ``out`` is a buffer and may be ``member``."""

Number = float | Tensor
"""A fixed number, or a tensor with one number per class."""


def _check_ramp(delta: float, width: float) -> None:
    if not 0 <= delta <= 0.5:
        raise ValueError(f"delta: expected a number in [0, 0.5], got {delta!r}")
    if not 0 < width <= 1:
        raise ValueError(f"width: expected a number in (0, 1], got {width!r}")


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name}: expected a positive number, got {value!r}")


@dataclass(frozen=True)
class Surrogate(Storable, abstract=True):
    """What the surrogates here share; a callable of your own needs none of it."""

    takes_threshold: ClassVar[bool] = False
    """Whether ``threshold=`` means anything: the step is on probabilities."""
    takes_targets: ClassVar[bool] = False
    """Whether the labels are needed (training only)."""
    closed_form: ClassVar[bool] = False
    """Whether ``fill`` exists, which the fused kernel uses instead of autograd."""
    closed_rows: ClassVar[bool] = False
    """Whether ``fill_rows`` and ``pull_rows`` exist, the same for multi-class problems."""

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        """Return memberships, elementwise, for binary and multi-label problems."""
        raise NotImplementedError

    def rows(self, logits: Tensor) -> Tensor:
        """Return memberships of ``(N, d)`` logits whose rows sum to one, for multi-class problems."""
        raise ValueError(f"surrogate: {self!r} is not for task='multiclass'; use TopTwo, a step, Identity or Hard")

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        """Return the 0/1 memberships of the rule that this surrogate softens."""
        raise ValueError(f"surrogate: {self!r} has no hard rule; use Linear, Sigmoid, LogitSigmoid, Identity or TopTwo")

    def fill(self, logits: Tensor, threshold: float, kept: Tensor | None, scratch: Tensor, reduce: Reduce) -> Any:
        """Hand the memberships to ``reduce``, return what it returns, and leave in ``kept`` what ``pull`` needs.

        ``kept`` (unless None) and ``scratch`` are buffers of the logits' shape, and all the memory there is.
        """
        raise NotImplementedError

    def pull(self, kept: Tensor, gradient: Tensor) -> None:
        """Turn ``kept`` into the gradient by the logits, in place; by default ``kept`` is the derivative."""
        kept.mul_(gradient)

    def fill_rows(self, logits: Tensor, probabilities: Tensor, member: Tensor) -> tuple[Tensor, Any]:
        """Write softmax and memberships times the row's sum into the buffers; return the sums and a note for later."""
        raise NotImplementedError

    def pull_rows(self, probabilities: Tensor, gradient: Tensor, note: Any, spare: Tensor) -> None:
        """Overwrite softmax with the gradient by the logits, given that by the memberships and ``fill_rows``'s note."""
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """Return the fields that are tensors: what a gradient may be asked for."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}


@dataclass(frozen=True)
class ProbabilityStep(Surrogate, abstract=True):
    """A soft step on probabilities, anywhere in (0, 1)."""

    takes_threshold: ClassVar[bool] = True

    def step(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        """Return the soft version of ``p >= threshold``."""
        raise NotImplementedError

    def slope(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        """Return the derivative of ``step`` by the probability."""
        raise NotImplementedError

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return self.step(torch.sigmoid(logits), threshold)

    def rows(self, logits: Tensor) -> Tensor:
        p = torch.softmax(logits, -1)
        return _normalised(self.step(p, _midway(p)))

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return _at_least(torch.sigmoid(logits), threshold)


@dataclass(frozen=True)
class Linear(ProbabilityStep):
    r"""The five-point linear step [tsoi2022, eq. 5]: slope $\delta/t_1$, then a ramp, then $\delta/(1-t_2)$.

    The knots $t_{1,2} = \tau \mp \mathrm{width}\cdot\min(\tau, 1-\tau)/2$ are the paper's at ``width=1``. ``delta``
    is the share of the height outside the ramp, which keeps a gradient everywhere; 0.1 in the binary paper.

    >>> Linear()(torch.logit(torch.tensor([0.25, 0.5, 0.75])))
    tensor([0.1000, 0.5000, 0.9000])
    """

    delta: float = 0.1
    width: float = 1.0
    closed_form: ClassVar[bool] = True
    closed_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_ramp(self.delta, self.width)

    def step(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        low, high, m1, m2, m3 = self.pieces(threshold)
        # Subtract before multiplying: a narrow ramp has a huge slope, and offsets would cancel badly.
        ramp = torch.clamp_min(p - low, 0.0)
        ramp = torch.minimum(ramp, high - low) if isinstance(low, Tensor) else ramp.clamp_max(high - low)
        height: Tensor = m1 * p + (m2 - m1) * ramp + (m3 - m1) * torch.clamp_min(p - high, 0.0)
        return height.clamp(0.0, 1.0)  # up to rounding it is there already

    def slope(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        low, high, m1, m2, m3 = self.pieces(threshold)
        slope: Tensor = m1 + (m2 - m1) * (p >= low).to(p.dtype) + (m3 - m2) * (p > high).to(p.dtype)
        return slope

    def pieces(self, threshold: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return the two knots and the slopes below, between and above them; ``threshold`` a number or a tensor."""
        if isinstance(threshold, Tensor):
            half = self.width / 2 * torch.minimum(threshold, 1 - threshold)
        else:
            half = self.width / 2 * min(threshold, 1 - threshold)
        low, high = threshold - half, threshold + half
        return low, high, self.delta / low, (0.5 - self.delta) / half, self.delta / (1 - high)

    def fill(self, logits: Tensor, threshold: float, kept: Tensor | None, scratch: Tensor, reduce: Reduce) -> Any:
        low, high, m1, m2, m3 = self.pieces(threshold)
        p = torch.sigmoid(logits, out=scratch)
        member = torch.empty_like(p) if kept is None else kept
        rise = m2 - m1
        # Subtract before summing: Σp − Σlow in place of Σ(p − low) leaves rounding where nothing is predicted, which
        # precision would take for true positives. In units of m1 a full membership is a short number (2.5 by default),
        # so that sums of them are exact; without outer slopes the unit is that of the ramp.
        unit = m1 or rise
        torch.sub(p, low, out=member).clamp_(0.0, high - low)
        if m1:
            torch.add(p, member, alpha=rise / m1, out=member)
        if m3 != m1:
            member.add_(torch.clamp_min(p - high, 0.0), alpha=(m3 - m1) / unit)
        result = reduce(member, member, unit)
        if kept is not None:
            # The derivative of a clamp is what hardtanh's backward computes, in one pass.
            steep = as_constant(rise, p)
            torch.ops.aten.hardtanh_backward.grad_input(steep, p, low, high, grad_input=kept)
            kept.add_(as_constant(m1, p))  # a plain number takes torch longer
            if m3 != m1:
                kept.add_(p > high, alpha=m3 - m1)
            _through_sigmoid(kept, p)
        return result

    def fill_rows(self, logits: Tensor, probabilities: Tensor, member: Tensor) -> tuple[Tensor, Any]:
        p = torch.softmax(logits, 1, out=probabilities)
        row = top_two.analyse(p, self.delta, self.width)
        return top_two.heights(p, row, member), row

    def pull_rows(self, probabilities: Tensor, gradient: Tensor, note: Any, spare: Tensor) -> None:
        top_two.pull(probabilities, gradient, note, self.delta, self.width, spare)


@dataclass(frozen=True)
class Sigmoid(ProbabilityStep):
    r"""The sigmoid step $1/(1+e^{-k(p-\tau)})$ on probabilities [tsoi2022, sec. 3.1].

    >>> Sigmoid(k=10)(torch.zeros(1))
    tensor([0.5000])
    """

    k: float = 10.0
    closed_form: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _positive("k", self.k)

    def step(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        return torch.sigmoid(self.k * (p - threshold))

    def slope(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        height = self.step(p, threshold)
        return self.k * height * (1 - height)

    def fill(self, logits: Tensor, threshold: float, kept: Tensor | None, scratch: Tensor, reduce: Reduce) -> Any:
        p = torch.sigmoid(logits, out=scratch if kept is None else kept)
        torch.add(as_constant(-self.k * threshold, p), p, alpha=self.k, out=scratch)
        torch.sigmoid(scratch, out=scratch)
        if kept is not None:
            _through_sigmoid(as_constant(self.k, p), p, kept)
            _through_sigmoid(kept, scratch)
        return reduce(scratch, scratch, 1.0)


@dataclass(frozen=True)
class LogitSigmoid(Surrogate):
    r"""The sigmoid of sigmoidF1, $1/(1+e^{-\beta(z+\eta)})$ on logits [benedict2022, eq. 6].

    ``beta`` and ``eta`` are numbers or tensors with one per class; ``Learned(LogitSigmoid(), classes=K)`` learns them.

    >>> LogitSigmoid(beta=2.0, eta=1.0)(torch.tensor([-1.0]))
    tensor([0.5000])
    """

    beta: Number = 1.0
    eta: Number = 0.0

    @property
    def closed_form(self) -> bool:  # type: ignore[override]
        """Plain numbers have one; tensors leave their gradient to autograd."""
        return not self.tensors()

    def __post_init__(self) -> None:
        if not isinstance(self.beta, Tensor):
            _positive("beta", self.beta)

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return torch.sigmoid(self.beta * (logits + self.eta))

    def rows(self, logits: Tensor) -> Tensor:
        # One class has no other to stand midway to; its membership is one.
        return _normalised(self(logits - (_midway(logits) if logits.shape[-1] > 1 else logits)))

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return _at_least(logits + self.eta, 0.0)

    def fill(self, logits: Tensor, threshold: float, kept: Tensor | None, scratch: Tensor, reduce: Reduce) -> Any:
        member = scratch if kept is None else kept  # the derivative follows from the membership, so it is what is kept
        if self.beta == 1.0 and self.eta == 0.0:
            torch.sigmoid(logits, out=member)
        else:
            torch.add(logits, self.eta, out=member).mul_(self.beta)
            torch.sigmoid(member, out=member)
        return reduce(member, scratch, 1.0)

    def pull(self, kept: Tensor, gradient: Tensor) -> None:
        if self.beta != 1.0:
            gradient.mul_(self.beta)
        _through_sigmoid(gradient, kept, kept)


@dataclass(frozen=True)
class Identity(Surrogate):
    """The probability itself: soft F1, soft Dice; softmax for multi-class problems.

    >>> Identity()(torch.zeros(1))
    tensor([0.5000])
    """

    closed_form: ClassVar[bool] = True

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return torch.sigmoid(logits)

    def rows(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, -1)

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return _at_least(torch.sigmoid(logits), threshold)

    def fill(self, logits: Tensor, threshold: float, kept: Tensor | None, scratch: Tensor, reduce: Reduce) -> Any:
        return LogitSigmoid().fill(logits, threshold, kept, scratch, reduce)

    def pull(self, kept: Tensor, gradient: Tensor) -> None:
        LogitSigmoid().pull(kept, gradient)


@dataclass(frozen=True)
class Unbounded(Surrogate):
    """The logit itself [benedict2022, eq. 4].

    Warning: nothing keeps it in [0, 1], so one sample can outweigh all others, the value can leave [0, 1] and the
    denominator of F1 can vanish. The paper reports that it diverges; it is here to compare with.
    """

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return logits


@dataclass(frozen=True)
class UnitsVsZeros(Surrogate):
    r"""MFoM's smooth error count $m_k = 1 - \sigma(\alpha_k\psi_k + \beta_k)$ [kukanov2020, eq. 39–43].

    $\psi_k = -g_k + v$ for a label that is on and $-g_k + u$ for one that is off, $g = \sigma(z)$, $u$ and $v$ the
    logarithmic means of $e^g$ over the labels that are on and off. A row whose labels are all on or all off has no
    competitors (0/0 in the paper): there $\psi_k = 1/2 - g_k$. It needs the labels, so it serves training only.

    >>> UnitsVsZeros()(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))
    tensor([[0.5000, 0.5000]])
    """

    alpha: Number = 1.0
    beta: Number = 0.0
    takes_targets: ClassVar[bool] = True

    def __call__(  # type: ignore[override]
        self, logits: Tensor, targets: Tensor, mask: Tensor | None = None, threshold: float = 0.5
    ) -> Tensor:
        """Return memberships of ``(..., K)`` logits given their labels; what ``mask`` leaves out does not compete."""
        g = torch.sigmoid(logits)
        on = targets.to(g.dtype)
        off = 1 - on
        if mask is not None:
            on, off = on * mask, off * mask
        units, zeros = on.sum(-1, keepdim=True), off.sum(-1, keepdim=True)
        powers = torch.exp(g)
        alone = (units == 0) | (zeros == 0)
        # log of a safe 1 where there is no competitor, so that no gradient is 0·∞.
        u = ratio((on * powers).sum(-1, keepdim=True), units).masked_fill(alone, 1.0).log()
        v = ratio((off * powers).sum(-1, keepdim=True), zeros).masked_fill(alone, 1.0).log()
        y = targets.to(g.dtype)
        psi = torch.where(alone, 0.5, (1 - y) * u + y * v) - g
        return 1 - torch.sigmoid(self.alpha * psi + self.beta)


@dataclass(frozen=True)
class TopTwo(Surrogate):
    r"""The multi-class step [tsoi2024, eq. 5]: softmax stepped at $\tau$ = mean of the two largest, L1-normalised.

    The threshold belongs to the sample and the gradient flows through it. ``delta`` is 0.2 in the paper; ``width`` as
    in ``Linear``. τ lies in [1/d, 1/2], so the slope of the ramp grows with the number of classes.

    >>> TopTwo()(torch.log(torch.tensor([[0.6, 0.2, 0.2]])))
    tensor([[0.6667, 0.1667, 0.1667]])
    """

    delta: float = 0.2
    width: float = 1.0
    closed_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_ramp(self.delta, self.width)

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        """Return memberships of ``(..., d)`` logits; the last axis is the classes."""
        return self.rows(logits)

    def rows(self, logits: Tensor) -> Tensor:
        return Linear(self.delta, self.width).rows(logits)

    def fill_rows(self, logits: Tensor, probabilities: Tensor, member: Tensor) -> tuple[Tensor, Any]:
        return Linear(self.delta, self.width).fill_rows(logits, probabilities, member)

    def pull_rows(self, probabilities: Tensor, gradient: Tensor, note: Any, spare: Tensor) -> None:
        Linear(self.delta, self.width).pull_rows(probabilities, gradient, note, spare)


@dataclass(frozen=True)
class Hard(Surrogate):
    """The hard step: what is judged. It has no gradient; see ``StraightThrough``.

    >>> Hard()(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([0., 1., 1.])
    """

    takes_threshold: ClassVar[bool] = True

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return _at_least(torch.sigmoid(logits), threshold) + 0 * logits.clamp(-1, 1)  # attached, so backward() works

    def rows(self, logits: Tensor) -> Tensor:
        return one_hot(logits) + 0 * torch.softmax(logits, -1)

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return self(logits, threshold)


def _midway(scores: Tensor) -> Tensor:
    """Return the mean of the two largest scores of each row, ``(..., 1)``; of one class, half of it."""
    if scores.shape[-1] < 2:
        return scores / 2
    return scores.topk(2, -1).values.mean(-1, keepdim=True)


def _normalised(memberships: Tensor) -> Tensor:
    return ratio(memberships, memberships.sum(-1, keepdim=True))


def _at_least(scores: Tensor, threshold: float) -> Tensor:
    """Return 1 where the score reaches the threshold; NaN stays NaN, which a comparison would hide."""
    return (scores >= threshold).to(scores.dtype).masked_fill(scores.isnan(), math.nan)


def one_hot(logits: Tensor) -> Tensor:
    """Return the argmax as memberships; a row with a NaN is NaN."""
    hot = torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    return hot.masked_fill(logits.isnan().any(-1, keepdim=True), math.nan)


def _through_sigmoid(gradient: Tensor, p: Tensor, out: Tensor | None = None) -> None:
    """Write gradient·p(1 − p), the chain rule through p = sigmoid(z), into ``out``, by default over the gradient."""
    torch.ops.aten.sigmoid_backward.grad_input(gradient, p, grad_input=gradient if out is None else out)


if not TYPE_CHECKING:  # type checkers see the classes themselves
    __all__ = ["Surrogate", *kinds_in(__name__)]
