"""Decision rules: small frozen values that turn scores into labels; they print, compare, pickle and apply.

``rule(scores)`` takes torch, numpy or pandas and returns bools per label (or class indices) as torch or numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.engine.inputs import as_tensor, like, whole_number

if TYPE_CHECKING:
    from metricgrad.engine.batch import Task


class Rule:
    """The base of all decision rules: a function from scores to labels."""

    def __call__(self, scores: Any) -> Any:
        """Return the labels that the rule decides on.

        Parameters
        ----------
        scores : Tensor or array-like
            Scores as torch, numpy, pandas or lists, without NaN; ``(N, K)`` for a rule of classes.

        Returns
        -------
        Tensor or ndarray
            Bools of the shape of the scores, or class indices ``(N,)`` for a rule that chooses one class; torch for
            torch, numpy otherwise.

        """
        s = as_tensor("scores", scores)
        s = s if s.is_floating_point() else s.double()
        if s.numel() and s.amin().isnan():
            raise ValueError(f"scores: expected numbers, got {int(s.isnan().sum())} NaN")
        return like(scores, self.decide(s))

    def decide(self, scores: Tensor) -> Tensor:
        """Return the labels of checked floating-point scores; calling the rule checks them first.

        Parameters
        ----------
        scores : Tensor
            Floating-point scores without NaN, of the shape that the rule takes.

        Returns
        -------
        Tensor
            Bools, one per label, or class indices ``(N,)`` for a rule that chooses one class.

        """
        raise NotImplementedError


@dataclass(frozen=True)
class Threshold(Rule):
    """In the class if the score is at least the threshold.

    Parameters
    ----------
    threshold : float or tuple of float, default 0.5
        On the scale of the scores: one for all, or one per class of ``(N, K)`` scores.

    Examples
    --------
    >>> Threshold((0.5, 0.1))(torch.tensor([[0.4, 0.4]]))
    tensor([[False,  True]])

    """

    threshold: float | tuple[float, ...] = 0.5

    def __post_init__(self) -> None:
        given = as_tensor("threshold", self.threshold).double()
        if given.dim() > 1 or not given.numel() or given.isnan().any():
            raise ValueError(f"threshold: expected a number or one per class, got {self.threshold!r}")
        object.__setattr__(self, "threshold", given.item() if given.dim() == 0 else tuple(given.tolist()))

    def decide(self, scores: Tensor) -> Tensor:
        if isinstance(self.threshold, float):
            return scores >= self.threshold
        if scores.dim() < 2 or scores.shape[1] != len(self.threshold):
            raise ValueError(f"scores: expected (N, {len(self.threshold)}), one threshold each; got {_shape(scores)}")
        # In the scores' own type, as a plain number would be compared.
        cuts = torch.tensor(self.threshold, dtype=torch.float64, device=scores.device).to(scores.dtype)
        return scores >= cuts.view(-1, *[1] * (scores.dim() - 2))


@dataclass(frozen=True)
class Argmax(Rule):
    """The class of the highest score; of equal scores, the first.

    Takes scores ``(N, K)`` and returns class indices ``(N,)``.

    Examples
    --------
    >>> Argmax()(torch.tensor([[0.2, 0.5, 0.3]]))
    tensor([1])

    """

    def decide(self, scores: Tensor) -> Tensor:
        _check_classes(scores)
        return scores.argmax(1)


@dataclass(frozen=True)
class Offsets(Rule):
    """The class of the highest log-probability plus offset.

    Takes scores ``(N, K)`` and returns class indices ``(N,)``.

    Parameters
    ----------
    offsets : tuple of float
        One number per class, added before the argmax.
    log : bool
        True: the scores are probabilities, and the offsets are added to their logarithms. False: the offsets are
        added to the scores as they are, which for logits is the same rule.

    Examples
    --------
    >>> Offsets((0.0, 1.0), log=False)(torch.tensor([[0.5, 0.0], [2.0, 0.0]]))
    tensor([1, 0])

    """

    offsets: tuple[float, ...]
    log: bool

    def __post_init__(self) -> None:
        given = as_tensor("offsets", self.offsets).double()
        if given.dim() != 1 or not given.numel() or given.isnan().any():
            raise ValueError(f"offsets: expected one number per class, got {self.offsets!r}")
        object.__setattr__(self, "offsets", tuple(given.tolist()))

    def decide(self, scores: Tensor) -> Tensor:
        _check_classes(scores)
        if scores.shape[1] != len(self.offsets):
            raise ValueError(f"scores: expected {len(self.offsets)} classes, one offset each; got {scores.shape[1]}")
        # In float64, as tuned: logarithms in a smaller type make equal what was not, and the first of equals wins.
        return (
            self.levels(scores.double()) + torch.tensor(self.offsets, dtype=torch.float64).to(scores.device)
        ).argmax(1)

    def levels(self, scores: Tensor) -> Tensor:
        """Return what the offsets are added to: the scores, or their logarithms.

        Parameters
        ----------
        scores : Tensor
            ``(N, K)``; probabilities if ``log`` is True.

        Returns
        -------
        Tensor
            ``(N, K)``.

        Raises
        ------
        ValueError
            If ``log`` is True and a score is negative.

        """
        if not self.log:
            return scores
        if scores.numel() and scores.min() < 0:
            raise ValueError(
                f"scores: expected probabilities, got {scores.min().item():g}; this rule was made for probabilities"
            )
        return scores.log()


@dataclass(frozen=True)
class TopK(Rule):
    """The k labels of the highest scores of each row; of equal scores, the first.

    Takes scores ``(N, K)`` and returns bools ``(N, K)``.

    Parameters
    ----------
    k : int
        How many labels each row gets, from 0 to the number of labels.

    Examples
    --------
    >>> TopK(2)(torch.tensor([[0.1, 0.9, 0.3]]))
    tensor([[False,  True,  True]])

    """

    k: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole_number("k", self.k, 0))

    def decide(self, scores: Tensor) -> Tensor:
        _check_classes(scores)
        if self.k > scores.shape[1]:
            raise ValueError(f"k: expected at most the {scores.shape[1]} labels there are, got {self.k}")
        best = scores.argsort(dim=1, descending=True, stable=True)[:, : self.k]
        return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, best, True)


def fixed(task: Task) -> Rule:
    """Return the rule of nobody who tunes, on probabilities: 0.5, or the argmax."""
    return Argmax() if task == "multiclass" else Threshold(0.5)


def chosen(rule: Any, task: Task) -> Rule | None:
    """Return a rule as it is or what "fixed" means, None for "tuned"; or raise."""
    if rule == "tuned":
        return None
    if rule == "fixed":
        return fixed(task)
    if not isinstance(rule, Rule):
        raise ValueError(f"rule: expected 'tuned', 'fixed' or a rule of mg.decisions, got {rule!r}")
    return rule


def _check_classes(scores: Tensor) -> None:
    if scores.dim() != 2 or not scores.shape[1]:
        raise ValueError(f"scores: expected (N, K), got {_shape(scores)}")


def _shape(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape)
