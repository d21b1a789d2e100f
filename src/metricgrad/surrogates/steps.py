"""Soft steps: frozen dataclasses, callable, with a closed form of their derivative where there is one.

The public module is ``surrogates``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from metricgrad.metrics.derivatives import as_constant, ratio
from metricgrad.storable import Storable, kinds_in
from metricgrad.surrogates import top_two

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

    def closed(self, rowwise: bool) -> Surrogate | None:
        """Return the surrogate that has ``open`` and ``close``, the closed form of the kernel.

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

    def open(self, logits: Tensor, threshold: float, link: Tensor, buffer: Tensor) -> tuple[Tensor, Any, Any]:
        """Compute the memberships of a chunk of logits, and what ``close`` needs.

        Parameters
        ----------
        logits : Tensor
            ``(N, K)``.
        threshold : float
            Where a step on probabilities stands.
        link : Tensor
            Of the logits' shape; overwritten with what ``close`` turns into the gradient.
        buffer : Tensor
            Of the logits' shape; may be overwritten.

        Returns
        -------
        member : Tensor
            Memberships up to a factor, in ``link`` or ``buffer``.
        scale : float or Tensor
            The factor: a number, or ``(N, 1)``, one per row.
        note : object
            Anything that ``close`` needs besides.
        """
        raise NotImplementedError

    def close(self, link: Tensor, gradient: Tensor, threshold: float, note: Any, spare: Tensor) -> None:
        """Turn ``link`` into the gradient with respect to the logits, in place.

        Parameters
        ----------
        link : Tensor
            What ``open`` wrote.
        gradient : Tensor
            With respect to the memberships; may be overwritten.
        threshold : float
            That of ``open``.
        note : object
            What ``open`` returned.
        spare : Tensor
            Of the logits' shape; may be overwritten.
        """
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """Return the fields that are tensors, for which a gradient can be computed.

        Returns
        -------
        dict
            Tensors by the name of the field.
        """
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}


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
        return _normalised(self.step(p, _midway(p)))

    def hard(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        return _at_least(torch.sigmoid(logits), threshold)


@dataclass(frozen=True)
class Linear(ProbabilityStep):
    r"""The five-point linear step [tsoi2022, eq. 5]: slope $\delta/t_1$, then a ramp, then $\delta/(1-t_2)$.

    The knots are $t_{1,2} = \tau \mp \mathrm{width}\cdot\min(\tau, 1-\tau)/2$. The step reaches the hard rule p ≥ τ as
    width → 0 and δ → 0.

    Parameters
    ----------
    delta : float, default 0.1
        δ in [0, 0.5], the share of the height outside the ramp on each side, which keeps a gradient everywhere; 0.1 in
        the binary paper.
    width : float, default 1.0
        The width of the ramp in (0, 1]; 1 is the paper's.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Examples
    --------
    >>> Linear()(torch.logit(torch.tensor([0.25, 0.5, 0.75])))
    tensor([0.1000, 0.5000, 0.9000])
    """

    delta: float = 0.1
    width: float = 1.0

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
        """Return the knots and the slopes of the step.

        Parameters
        ----------
        threshold : float or Tensor
            The threshold.

        Returns
        -------
        tuple of float or Tensor
            The two knots, and the slopes below, between and above them.
        """
        if isinstance(threshold, Tensor):
            half = self.width / 2 * torch.minimum(threshold, 1 - threshold)
        else:
            half = self.width / 2 * min(threshold, 1 - threshold)
        low, high = threshold - half, threshold + half
        return low, high, self.delta / low, (0.5 - self.delta) / half, self.delta / (1 - high)

    def closed(self, rowwise: bool) -> Surrogate:
        return TopTwo(self.delta, self.width) if rowwise else self

    def open(self, logits: Tensor, threshold: float, link: Tensor, buffer: Tensor) -> tuple[Tensor, Any, Any]:
        low, high, m1, m2, m3 = self.pieces(threshold)
        rise = m2 - m1
        p = torch.sigmoid(logits, out=link)
        # Subtract before summing: Σp − Σlow in place of Σ(p − low) leaves rounding where nothing is predicted, which
        # precision would take for true positives. In units of m1 a full membership is a short number (2.5 by default),
        # so that sums of them are exact; without outer slopes the unit is that of the ramp.
        unit = m1 or rise
        full = (m1 + rise * (high - low) + (m3 - m1) * (1 - high)) / unit
        member = torch.sub(p, as_constant(low, p), out=buffer).clamp_(0.0, high - low)
        if m1:
            torch.add(p, member, alpha=rise / m1, out=member)
        if m3 != m1:
            member.add_(torch.clamp_min(p - high, 0.0), alpha=(m3 - m1) / unit)
        note = low, high, m1, rise, m3
        if (1024 * full).is_integer():
            return member, unit, note
        # Otherwise rounding must not decide whether a full membership leaves something over, which NPV would divide.
        return member.mul_(unit).clamp_max_(1.0).masked_fill_(p == 1.0, 1.0), 1.0, note

    def close(self, link: Tensor, gradient: Tensor, threshold: float, note: Any, spare: Tensor) -> None:
        low, high, m1, rise, m3 = note
        # The derivative of a clamp is what hardtanh's backward computes, in one pass.
        torch.ops.aten.hardtanh_backward.grad_input(gradient, link, low, high, grad_input=spare)
        spare.mul_(as_constant(rise, spare)).add_(gradient, alpha=m1)
        if m3 != m1:
            spare.addcmul_(gradient, (link > high).to(link.dtype), value=m3 - m1)
        _through_sigmoid(spare, link, link)


@dataclass(frozen=True)
class Sigmoid(ProbabilityStep):
    r"""The sigmoid step $1/(1+e^{-k(p-\tau)})$ on probabilities [tsoi2022, sec. 3.1].

    It reaches the hard rule p ≥ τ as k → ∞.

    Parameters
    ----------
    k : float, default 10.0
        The slope, positive.

    Raises
    ------
    ValueError
        If ``k`` is not positive.

    Examples
    --------
    >>> Sigmoid(k=10)(torch.zeros(1))
    tensor([0.5000])
    """

    k: float = 10.0

    def __post_init__(self) -> None:
        _positive("k", self.k)

    def step(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        return torch.sigmoid(self.k * (p - threshold))

    def slope(self, p: Tensor, threshold: float | Tensor) -> Tensor:
        height = self.step(p, threshold)
        return self.k * height * (1 - height)

    def closed(self, rowwise: bool) -> Surrogate | None:
        return None if rowwise else self

    def open(self, logits: Tensor, threshold: float, link: Tensor, buffer: Tensor) -> tuple[Tensor, Any, Any]:
        p = torch.sigmoid(logits, out=link)
        torch.add(as_constant(-self.k * threshold, p), p, alpha=self.k, out=buffer)
        member = torch.sigmoid(buffer, out=buffer)
        _through_sigmoid(as_constant(self.k, p), p, link)
        _through_sigmoid(link, member)  # now the link is the derivative
        return member, 1.0, None

    def close(self, link: Tensor, gradient: Tensor, threshold: float, note: Any, spare: Tensor) -> None:
        link.mul_(gradient)


@dataclass(frozen=True)
class LogitSigmoid(Surrogate):
    r"""The sigmoid of sigmoidF1, $1/(1+e^{-\beta(z+\eta)})$ on logits [benedict2022, eq. 6].

    It reaches the hard rule z ≥ −η as β → ∞. ``Learned(LogitSigmoid(), classes=K)`` learns both numbers.

    Parameters
    ----------
    beta : float or Tensor, default 1.0
        The slope β, positive: a number, or a tensor with one per class.
    eta : float or Tensor, default 0.0
        The shift η: a number, or a tensor with one per class.

    Raises
    ------
    ValueError
        If ``beta`` is not positive.

    Examples
    --------
    >>> LogitSigmoid(beta=2.0, eta=1.0)(torch.tensor([-1.0]))
    tensor([0.5000])
    """

    beta: Number = 1.0
    eta: Number = 0.0

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

    def closed(self, rowwise: bool) -> Surrogate | None:
        return None if rowwise or self.tensors() else self  # the gradient of tensors is autograd's

    def open(self, logits: Tensor, threshold: float, link: Tensor, buffer: Tensor) -> tuple[Tensor, Any, Any]:
        if self.beta == 1.0 and self.eta == 0.0:
            torch.sigmoid(logits, out=link)
        else:
            torch.add(logits, self.eta, out=link).mul_(self.beta)
            torch.sigmoid(link, out=link)
        return link, 1.0, None  # the derivative follows from the membership

    def close(self, link: Tensor, gradient: Tensor, threshold: float, note: Any, spare: Tensor) -> None:
        if self.beta != 1.0:
            gradient.mul_(self.beta)
        _through_sigmoid(gradient, link, link)


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
        return _at_least(torch.sigmoid(logits), threshold)

    def closed(self, rowwise: bool) -> Surrogate | None:
        return None if rowwise else LogitSigmoid()


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
class UnitsVsZeros(Surrogate):
    r"""MFoM's smooth error count $m_k = 1 - \sigma(\alpha_k\psi_k + \beta_k)$ [kukanov2020, eq. 39–43].

    $\psi_k = -g_k + v$ for a label that is on and $-g_k + u$ for one that is off, $g = \sigma(z)$, $u$ and $v$ the
    logarithmic means of $e^g$ over the labels that are on and off. A row whose labels are all on or all off has no
    competitors (0/0 in the paper): there $\psi_k = 1/2 - g_k$. It needs the labels, so it is for training only.

    Parameters
    ----------
    alpha : float or Tensor, default 1.0
        The slope α: a number, or a tensor with one per class.
    beta : float or Tensor, default 0.0
        The shift β: a number, or a tensor with one per class.

    See Also
    --------
    metricgrad.presets.mfom_f1 : The loss with this surrogate.

    Examples
    --------
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

    The threshold belongs to the sample and the gradient flows through it. τ lies in [1/d, 1/2], so the slope of the
    ramp grows with the number of classes d. It reaches the argmax as width → 0 and δ → 0.

    Parameters
    ----------
    delta : float, default 0.2
        δ in [0, 0.5], the share of the height outside the ramp on each side, which keeps a gradient everywhere; 0.2 in
        the multi-class paper.
    width : float, default 1.0
        The width of the ramp in (0, 1]; 1 is the paper's.

    Raises
    ------
    ValueError
        If a number is out of its range.

    Examples
    --------
    >>> TopTwo()(torch.log(torch.tensor([[0.6, 0.2, 0.2]])))
    tensor([[0.6667, 0.1667, 0.1667]])
    """

    delta: float = 0.2
    width: float = 1.0

    def __post_init__(self) -> None:
        _check_ramp(self.delta, self.width)

    def __call__(self, logits: Tensor, threshold: float = 0.5) -> Tensor:
        """Return memberships of ``(..., d)`` logits; the last axis is the classes."""
        return self.rows(logits)

    def rows(self, logits: Tensor) -> Tensor:
        return Linear(self.delta, self.width).rows(logits)

    def closed(self, rowwise: bool) -> Surrogate | None:
        return self if rowwise else None

    def open(self, logits: Tensor, threshold: float, link: Tensor, buffer: Tensor) -> tuple[Tensor, Any, Any]:
        p = torch.softmax(logits, 1, out=link)
        row = top_two.analyse(p, self.delta, self.width)
        return buffer, 1 / top_two.heights(p, row, buffer), row

    def close(self, link: Tensor, gradient: Tensor, threshold: float, note: Any, spare: Tensor) -> None:
        top_two.pull(link, gradient, note, self.delta, self.width, spare)


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
