"""The label set of one instance that maximises its expected F-beta, exactly.

F-beta of a set h of size k is (1+β²) Σ_{i∈h} y_i / (k + β²|y|), so its expectation needs P(y_i = 1, |y| = s) alone:
the sum over s of P(y_i = 1, |y| = s) / (k + β²s) is what label i adds to a set of size k [dembczynski2011]. Independent
labels give these numbers from their marginals [ye2012]; a ``SizeHead`` estimates them when labels depend on each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metricgrad.decisions.rules import Rule

if TYPE_CHECKING:
    from metricgrad.core.batch import Task

_NUMBERS_AT_ONCE = 1 << 22  # of P(y_i = 1, |y| = s)
_NEGLIGIBLE = 1e-20
"""Sizes are negligible if they are less probable than the most probable size above 0 by this factor."""


@dataclass(frozen=True)
class _ExpectedF(Rule):
    """Base class of ``ExpectedFBeta`` and ``GFM``."""

    beta: float = 1.0
    empty: float = 0.0
    tasks: ClassVar[tuple[Task, ...]] = ("multilabel",)

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise ValueError(f"beta: expected a positive number, got {self.beta!r}")


@dataclass(frozen=True)
class ExpectedFBeta(_ExpectedF):
    """The label set of the highest expected F-beta if labels are independent given the instance [ye2012].

    Takes ``(N, K)`` marginal probabilities and returns bools ``(N, K)``. The best set holds the labels of the highest
    marginals; how many follows from the distribution of |y|, in K · S numbers an instance, S being how many sizes are
    probable at all: about √K of them if labels are frequent, fewer if they are rare.

    Parameters
    ----------
    beta : float, default 1.0
        The weight of recall against precision; above 0.
    empty : float, default 0.0
        The value of an empty set for an instance without labels: 0 as for the metrics of this library, 1 in the papers.

    Examples
    --------
    >>> ExpectedFBeta()(torch.tensor([[0.9, 0.4, 0.3], [0.3, 0.2, 0.1]]))
    tensor([[ True, False, False],
            [ True,  True, False]])

    """

    def decide(self, scores: Tensor) -> Tensor:
        _check_probabilities("scores", scores, 2)
        if not len(scores):
            return scores > 0
        labels = scores.shape[1]
        decided = []
        for some_rows in scores.double().split(max(1, _NUMBERS_AT_ONCE // labels)):
            marginals, order = some_rows.sort(dim=1, descending=True, stable=True)
            sizes = _find_size_probabilities(marginals)
            first, last = _find_probable_sizes(sizes)
            rows_at_once = max(1, _NUMBERS_AT_ONCE // (labels * (last - first + 1)))
            parts = zip(marginals.split(rows_at_once), sizes.split(rows_at_once), strict=True)
            taken = torch.cat([self._take_first_labels(p, of_rows, first, last) for p, of_rows in parts])
            decided.append(torch.zeros_like(taken).scatter_(1, order, taken))
        return torch.cat(decided)

    def _take_first_labels(self, p: Tensor, sizes: Tensor, first: int, last: int) -> Tensor:
        """Return which labels the best set has: some of the first, since they are in the order of their marginals."""
        joint = p.unsqueeze(2) * _find_sizes_without_each(p, sizes, first - 1, last - 1)  # P(y_i = 1, |y| = s)
        size = torch.arange(first, last + 1, dtype=p.dtype, device=p.device)
        k = torch.arange(1, p.shape[1] + 1, dtype=p.dtype, device=p.device)
        b = self.beta**2
        hits = joint.cumsum_(1)  # E[|y ∩ first k|; |y| = s]
        expected_f = (hits * ((1 + b) / (k.unsqueeze(1) + b * size))).sum(2)
        best, last_taken = expected_f.max(1)
        is_better_than_none = best > self.empty * sizes[:, 0]
        return (k - 1 <= last_taken.unsqueeze(1)) & is_better_than_none.unsqueeze(1)


@dataclass(frozen=True)
class GFM(_ExpectedF):
    """The label set of the highest expected F-beta for any joint distribution of the labels [dembczynski2011].

    Takes ``(N, K, S + 1)`` probabilities and returns bools ``(N, K)``: at [:, i, s] the probability of y_i = 1 and |y|
    = s, and at [:, i, 0] that of |y| = 0, as ``SizeHead`` estimates them; the latter is the same for every i, and their
    mean is taken.

    Parameters
    ----------
    beta : float, default 1.0
        The weight of recall against precision; above 0.
    empty : float, default 0.0
        The value of an empty set for an instance without labels: 0 as for the metrics of this library, 1 in the papers.

    Examples
    --------
    >>> joint = torch.tensor([[[0.0, 0.8, 0.0], [0.0, 0.2, 0.0]]])  # one label, never both
    >>> GFM()(joint)
    tensor([[ True, False]])

    """

    def decide(self, scores: Tensor) -> Tensor:
        _check_probabilities("scores", scores, 3)
        labels, sizes = scores.shape[1:]
        if not len(scores):
            return scores[:, :, 0] > 0
        rows_at_once = max(1, _NUMBERS_AT_ONCE // (labels * max(labels, sizes)))
        parts = scores.double().split(rows_at_once)
        return torch.cat([self._find_best_sets(part[:, :, 1:], part[:, :, 0].mean(1)) for part in parts])

    def _find_best_sets(self, joint: Tensor, none: Tensor) -> Tensor:
        """Return the best set of each row from ``(n, K, S)`` P(y_i = 1, |y| = s), s from 1, and P(|y| = 0)."""
        rows, labels, sizes = joint.shape
        b = self.beta**2
        set_size = torch.arange(1, labels + 1, dtype=joint.dtype, device=joint.device)
        true_size = torch.arange(1, sizes + 1, dtype=joint.dtype, device=joint.device)
        gains = (1 + b) * joint @ (1 / (set_size + b * true_size.unsqueeze(1)))  # (n, K labels, K set sizes)
        ranked, order = gains.sort(dim=1, descending=True, stable=True)
        # The best set of size k takes the k largest gains.
        expected_f = ranked.cumsum(1).diagonal(dim1=1, dim2=2)
        best, last_taken = expected_f.max(1)
        labels_by_gain = order.gather(2, last_taken.view(-1, 1, 1).expand(rows, labels, 1)).squeeze(2)
        is_better_than_none = best > self.empty * none
        taken = (set_size - 1 <= last_taken.unsqueeze(1)) & is_better_than_none.unsqueeze(1)
        return torch.zeros(rows, labels, dtype=torch.bool, device=joint.device).scatter_(1, labels_by_gain, taken)


class SizeHead(nn.Module):
    """A layer that estimates P(y_i = 1, |y| = s) for every label i and size s, as ``GFM`` needs, on top of any network.

    Each label is a softmax over "not in the set" and the sizes 1 ... ``sizes`` of the sets it is in [dembczynski2013],
    and one more logit gives P(|y| = 0). Train with ``loss``, decide with ``GFM()(head.joint(features))``.

    Parameters
    ----------
    features : int
        The number of inputs.
    labels : int
        The number of labels, K.
    sizes : int, optional
        The largest size of a label set, S, at most and by default ``labels``; larger sets count as that large.

    Examples
    --------
    >>> head = SizeHead(features=8, labels=3)
    >>> head.joint(torch.zeros(5, 8)).shape
    torch.Size([5, 3, 4])

    """

    def __init__(self, features: int, labels: int, sizes: int | None = None) -> None:
        super().__init__()
        self.labels = labels
        self.sizes = labels if sizes is None else sizes
        if not 1 <= self.sizes <= labels:
            raise ValueError(f"sizes: expected 1 to {labels}, got {sizes!r}")
        self.linear = nn.Linear(features, labels * (self.sizes + 1) + 1)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the sizes for each label, and of an empty set.

        Parameters
        ----------
        features : Tensor
            ``(N, features)``.

        Returns
        -------
        tuple of Tensor
            ``(N, K, S + 1)`` logits of "not in the set" and the sizes, and ``(N,)`` logits of an empty set.

        """
        z = self.linear(features)
        return z[:, :-1].reshape(len(z), self.labels, self.sizes + 1), z[:, -1]

    def loss(self, features: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy to train with.

        Parameters
        ----------
        features : Tensor
            ``(N, features)``.
        targets : Tensor
            ``(N, K)`` labels 0 or 1.

        Returns
        -------
        Tensor
            A scalar: the mean over rows and labels, plus that of the empty set.

        """
        if targets.shape != (len(features), self.labels):
            expected = (len(features), self.labels)
            raise ValueError(f"targets: expected shape {expected}, got {tuple(targets.shape)}")
        logits, empty = self(features)
        size = targets.sum(1, keepdim=True).clamp(max=self.sizes)
        size_of_label = (targets * size).long()  # 0 for a label that is not in the set
        is_empty = (size.squeeze(1) == 0).to(empty.dtype)
        of_labels = F.cross_entropy(logits.flatten(0, 1), size_of_label.flatten())
        return of_labels + F.binary_cross_entropy_with_logits(empty, is_empty)

    def joint(self, features: Tensor) -> Tensor:
        """Return the probabilities that ``GFM`` takes.

        Parameters
        ----------
        features : Tensor
            ``(N, features)``.

        Returns
        -------
        Tensor
            ``(N, K, S + 1)``: at [:, i, s] the probability of y_i = 1 and |y| = s, at [:, i, 0] that of |y| = 0.

        """
        logits, empty = self(features)
        joint = logits.softmax(2)
        none = empty.sigmoid().view(-1, 1, 1).expand(len(joint), self.labels, 1)
        return torch.cat((none, joint[:, :, 1:]), 2)


def _find_size_probabilities(p: Tensor) -> Tensor:
    """Return P(|y| = s), ``(n, K + 1)``, of independent labels."""
    rows, labels = p.shape
    sizes = p.new_zeros(rows, labels + 1)
    sizes[:, 0] = 1
    for i in range(labels):
        q = p[:, i : i + 1]
        seen = sizes[:, : i + 2]  # with i + 1 labels no size is larger
        seen[:, 1:] = seen[:, 1:] * (1 - q) + seen[:, :-1] * q
        seen[:, :1] *= 1 - q
    return sizes


def _find_probable_sizes(sizes: Tensor) -> tuple[int, int]:
    """Return the smallest and the largest size above 0 that is not negligible in some row."""
    above = sizes[:, 1:]
    probable = (above > _NEGLIGIBLE * above.amax(1, keepdim=True)).any(0).nonzero().squeeze(1)
    if not len(probable):  # all probabilities are 0
        return 1, 1
    return int(probable[0]) + 1, int(probable[-1]) + 1


def _find_sizes_without_each(p: Tensor, sizes: Tensor, first: int, last: int) -> Tensor:
    """Return P(|y without label i| = s) of independent labels, ``(n, K, last - first + 1)``, s from first to last.

    This undoes the convolution with label i by a recurrence over the sizes: upwards if p ≤ ½, otherwise downwards. In
    that direction each step multiplies errors by odds of at most 1, those of the sizes left out included.
    """
    is_rare = p <= 0.5
    absent = (1 - p).clamp(min=0.5)
    present = p.clamp(min=0.5)
    odds = torch.where(is_rare, p / absent, 0)
    inverse_odds = torch.where(is_rare, 0, (1 - p) / present)
    without = p.new_empty(*p.shape, last - first + 1)
    from_below = torch.zeros_like(p)
    for s in range(first, last + 1):
        from_below = sizes[:, s : s + 1] / absent - odds * from_below
        without[:, :, s - first] = from_below
    from_above = torch.zeros_like(p)
    for s in reversed(range(first, last + 1)):
        from_above = sizes[:, s + 1 : s + 2] / present - inverse_odds * from_above
        without[:, :, s - first] = torch.where(is_rare, without[:, :, s - first], from_above)
    return without


def _check_probabilities(name: str, p: Tensor, axes: int) -> None:
    if p.dim() != axes:
        shape = "(N, K)" if axes == 2 else "(N, K, S + 1)"
        raise ValueError(f"{name}: expected {shape}, got {tuple(p.shape)}")
    if not p.shape[1]:
        raise ValueError(f"{name}: expected at least one label, got {tuple(p.shape)}")
    if p.numel() and not (p.min() >= 0 and p.max() <= 1):
        raise ValueError(f"{name}: expected probabilities, got {p.min().item():g} to {p.max().item():g}")
