"""Decision rules: small frozen values that turn scores into labels; they print, compare, pickle and apply.

``rule(scores)`` takes torch, numpy or pandas and returns bools per label (or class indices) as torch or numpy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor

from metricgrad.core.inputs import as_tensor, as_type_of, whole_number
from metricgrad.core.metrics.scalars import is_whole
from metricgrad.core.sparse import SparseBatch, as_sparse_batch, as_sparse_like, is_sparse
from metricgrad.core.storable import Storable, kinds_in

if TYPE_CHECKING:
    from metricgrad.core.batch import Task


class _OnnxGraph(Protocol):
    """An ONNX graph under construction: what ``Rule.to_onnx`` needs of it. Both methods return the name of a value."""

    def add(self, kind: str, *inputs: str, output: int = 0, **attributes: Any) -> str:
        """Add an operator of ONNX, of which one output is used."""

    def constant(self, value: Any) -> str:
        """Add a constant."""


class Rule(Storable, abstract=True):
    """What every rule is: a function of scores. A new rule is a frozen dataclass with ``decide``.

    The other methods have defaults, for a rule without numbers to tune; they are all that the estimators, files and
    the application ask of a rule.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("binary", "multiclass", "multilabel")
    """The tasks for which the rule decides."""
    abstains: ClassVar[bool] = False
    """Whether it leaves rows undecided."""

    def __call__(self, scores: Any) -> Any:
        """Return the labels that the rule decides on.

        Parameters
        ----------
        scores : Tensor or array-like
            Scores as torch, numpy, pandas or lists, without NaN; ``(N, K)`` for a rule of classes. ``Threshold``,
            ``TopK`` and ``WeightedTopK`` take scipy sparse matrices too, and never predict what is not stored.

        Returns
        -------
        Tensor, ndarray or sparse matrix
            Bools of the shape of the scores, or class indices ``(N,)`` for a rule that chooses one class; torch for
            torch, sparse for sparse, numpy otherwise.

        """
        if is_sparse(scores):
            stored = as_sparse_batch(scores)
            return as_sparse_like(scores, stored, self.decide_stored(stored))
        s = as_tensor("scores", scores)
        s = s if s.is_floating_point() else s.double()
        if s.numel() and s.amin().isnan():
            raise ValueError(f"scores: expected numbers, got {int(s.isnan().sum())} NaN")
        return as_type_of(scores, self.decide(s))

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

    def decide_stored(self, scores: SparseBatch) -> Tensor:
        """Return the decisions about the stored elements of sparse scores; what is not stored is not predicted.

        Parameters
        ----------
        scores : SparseBatch
            Rows of which only some scores are stored.

        Returns
        -------
        Tensor
            Bools, one per stored element.

        Raises
        ------
        ValueError
            If the rule needs all scores of a row.

        """
        raise ValueError(f"rule: expected Threshold, TopK or WeightedTopK for sparse scores, got {self!r}")

    @property
    def numbers(self) -> Any:
        """The numbers that tuning chooses: one, or one per class; None for a rule without."""
        return None

    def describe(self) -> str:
        """Return the rule in a few words, for people.

        Returns
        -------
        str
            Words without a full stop, by default the ``repr``.

        """
        return repr(self)

    def threshold_of(self, k: int) -> float | None:
        """Return the threshold of a class.

        Parameters
        ----------
        k : int
            The class; 0 for a binary problem.

        Returns
        -------
        float or None
            The finite threshold, or None where none decides.

        """
        return None

    def recentre_probabilities(self, probabilities: Tensor) -> Tensor:
        """Return probabilities moved so that 0.5, or the argmax, decides as the rule does.

        Parameters
        ----------
        probabilities : Tensor
            What the rule decides on.

        Returns
        -------
        Tensor
            The moved probabilities, in the same order; by default unchanged.

        """
        return probabilities

    def to_onnx(self, graph: _OnnxGraph, scores: str, classes: int) -> str:
        """Add the operators that decide to an ONNX graph.

        Parameters
        ----------
        graph : object
            The graph: ``add(kind, *inputs, **attributes)`` adds an operator and ``constant(value)`` a constant; both
            return the name of the result.
        scores : str
            The name of the scores, in float64.
        classes : int
            The number of labels or classes.

        Returns
        -------
        str
            The name of what ``decide`` returns; 0 and 1 will do for bools.

        Raises
        ------
        NotImplementedError
            If the rule has no ONNX form.

        """
        raise NotImplementedError(f"{type(self).__name__} has no ONNX form")


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
    tasks: ClassVar[tuple[Task, ...]] = ("binary", "multilabel")

    def __post_init__(self) -> None:
        given = as_tensor("threshold", self.threshold).double()
        if given.dim() > 1 or not given.numel() or given.isnan().any():
            raise ValueError(f"threshold: expected a number or one per class, got {self.threshold!r}")
        object.__setattr__(self, "threshold", given.item() if given.dim() == 0 else tuple(given.tolist()))

    def decide(self, scores: Tensor) -> Tensor:
        if isinstance(self.threshold, float):
            return scores >= self.threshold
        if scores.dim() < 2 or scores.shape[1] != len(self.threshold):
            raise ValueError(
                f"scores: expected (N, {len(self.threshold)}), one threshold each; got {tuple(scores.shape)}"
            )
        # In the scores' own type, as a plain number would be compared.
        thresholds = torch.tensor(self.threshold, dtype=torch.float64, device=scores.device).to(scores.dtype)
        further_axes = [1] * (scores.dim() - 2)
        return scores >= thresholds.view(-1, *further_axes)

    def decide_stored(self, scores: SparseBatch) -> Tensor:
        thresholds = torch.as_tensor(self.threshold, dtype=torch.float64)
        if not thresholds.min() > 0:
            raise ValueError(
                f"threshold: expected above 0 for sparse scores, since those that are not stored are 0, got "
                f"{thresholds.min().item():g}"
            )
        thresholds = thresholds.to(scores.logits.dtype)
        if not thresholds.dim():
            return scores.logits >= thresholds
        if len(thresholds) != scores.classes:
            raise ValueError(
                f"scores: expected (N, {len(thresholds)}), one threshold each; got ({scores.rows}, {scores.classes})"
            )
        return scores.logits >= thresholds[scores.label]

    @property
    def numbers(self) -> float | tuple[float, ...]:
        return self.threshold

    def describe(self) -> str:
        if isinstance(self.threshold, float):
            return f"threshold {self.threshold:.4g}"
        return f"a threshold per label, {min(self.threshold):.3g} to {max(self.threshold):.3g}"

    def threshold_of(self, k: int) -> float | None:
        threshold = self.threshold if isinstance(self.threshold, float) else self.threshold[k]
        return threshold if math.isfinite(threshold) else None

    def recentre_probabilities(self, probabilities: Tensor) -> Tensor:
        p = probabilities
        lowest_positive = 0.5 + 1e-9  # what stands exactly at the threshold is in the class
        threshold = torch.as_tensor(self.threshold, dtype=p.dtype).clamp(0, 1)
        decided = self.decide(p)
        shifted = (p.logit() - threshold.logit()).sigmoid()
        # If a threshold is next to 0 or 1, a shift would make nearly all probabilities 1 or 0: each side is stretched
        # instead.
        above = lowest_positive + (1 - lowest_positive) * (p - threshold) / (1 - threshold).clamp(min=1e-300)
        below = 0.5 * p / threshold.clamp(min=1e-300)
        stretched = torch.where(decided, above, below)
        is_extreme = (threshold - 0.5).abs() > 0.5 - 1e-6
        moved = torch.where(is_extreme, stretched, shifted).nan_to_num(0.0)
        return torch.where(decided, moved.clamp(lowest_positive, 1.0), moved.clamp(max=0.5))

    def to_onnx(self, graph: _OnnxGraph, scores: str, classes: int) -> str:
        return graph.add("GreaterOrEqual", scores, graph.constant(self.threshold))


@dataclass(frozen=True)
class Argmax(Rule):
    """The class of the highest score; of equal scores, the first.

    Takes scores ``(N, K)`` and returns class indices ``(N,)``.

    Examples
    --------
    >>> Argmax()(torch.tensor([[0.2, 0.5, 0.3]]))
    tensor([1])

    """

    tasks: ClassVar[tuple[Task, ...]] = ("multiclass",)

    def decide(self, scores: Tensor) -> Tensor:
        _check_classes(scores)
        return scores.argmax(1)

    def describe(self) -> str:
        return "largest score"

    def to_onnx(self, graph: _OnnxGraph, scores: str, classes: int) -> str:
        return graph.add("ArgMax", scores, axis=1, keepdims=0)


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
    tasks: ClassVar[tuple[Task, ...]] = ("multiclass",)

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
        offsets = torch.tensor(self.offsets, dtype=torch.float64).to(scores.device)
        return (self.levels(scores.double()) + offsets).argmax(1)

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

    @property
    def numbers(self) -> tuple[float, ...]:
        return self.offsets

    def describe(self) -> str:
        return "largest score with offsets"

    def recentre_probabilities(self, probabilities: Tensor) -> Tensor:
        offsets = torch.tensor(self.offsets, dtype=probabilities.dtype)
        return (self.levels(probabilities) + offsets).softmax(1)

    def to_onnx(self, graph: _OnnxGraph, scores: str, classes: int) -> str:
        levels = graph.add("Log", scores) if self.log else scores
        moved = graph.add("Add", levels, graph.constant(self.offsets))
        return Argmax().to_onnx(graph, moved, classes)


@dataclass(frozen=True)
class ArgmaxOrAbstain(Rule):
    """The class of the highest score if it reaches that class's threshold; otherwise the row is left undecided.

    Takes scores ``(N, K)`` and returns class indices ``(N,)``, with ``abstain_label`` where nothing is decided. In
    metrics such a row is predicted to be in no class: its own class misses it, and no class has a false alarm.

    Parameters
    ----------
    thresholds : tuple of float
        One per class, on the scale of the scores; a class with ∞ is never predicted.
    abstain_label : int, default -1
        What is returned for an undecided row; no class index.

    Examples
    --------
    >>> ArgmaxOrAbstain((0.6, 0.9))(torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.05, 0.95]]))
    tensor([ 0, -1,  1])

    """

    thresholds: tuple[float, ...]
    abstain_label: int = -1
    tasks: ClassVar[tuple[Task, ...]] = ("multiclass",)
    abstains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        given = as_tensor("thresholds", self.thresholds).double()
        if given.dim() != 1 or not given.numel() or given.isnan().any():
            raise ValueError(f"thresholds: expected one number per class, got {self.thresholds!r}")
        object.__setattr__(self, "thresholds", tuple(given.tolist()))
        if not is_whole(self.abstain_label) or 0 <= self.abstain_label < len(self.thresholds):
            classes = f"the class indices 0 to {len(self.thresholds) - 1}"
            raise ValueError(f"abstain_label: expected a whole number besides {classes}, got {self.abstain_label!r}")
        object.__setattr__(self, "abstain_label", int(self.abstain_label))

    def decide(self, scores: Tensor) -> Tensor:
        _check_classes(scores)
        if scores.shape[1] != len(self.thresholds):
            raise ValueError(
                f"scores: expected {len(self.thresholds)} classes, one threshold each; got {scores.shape[1]}"
            )
        highest, decided = scores.max(1)
        # In the scores' own type, as a plain number would be compared.
        thresholds = torch.tensor(self.thresholds, dtype=torch.float64, device=scores.device).to(scores.dtype)
        return torch.where(highest >= thresholds[decided], decided, self.abstain_label)

    @property
    def numbers(self) -> tuple[float, ...]:
        return self.thresholds

    def describe(self) -> str:
        return "largest score, or undecided below a threshold per class"

    def to_onnx(self, graph: _OnnxGraph, scores: str, classes: int) -> str:
        decided = graph.add("ArgMax", scores, axis=1, keepdims=0)
        highest = graph.add("ReduceMax", scores, axes=[1], keepdims=0)
        threshold = graph.add("Gather", graph.constant(self.thresholds), decided, axis=0)
        reached = graph.add("GreaterOrEqual", highest, threshold)
        return graph.add("Where", reached, decided, graph.constant(self.abstain_label))


@dataclass(frozen=True)
class TopK(Rule):
    """The k labels of the highest scores of each row; of equal scores, the first.

    Takes scores ``(N, K)`` and returns bools ``(N, K)``. Of sparse scores only those above 0 are chosen, so that a row
    with fewer has fewer than k labels.

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
    tasks: ClassVar[tuple[Task, ...]] = ("multilabel",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole_number("k", self.k, 0))

    def decide(self, scores: Tensor) -> Tensor:
        _check_classes(scores)
        return _mark_largest(scores, self.k)

    def decide_stored(self, scores: SparseBatch) -> Tensor:
        return scores.largest(scores.logits, self.k) & (scores.logits > 0)

    def describe(self) -> str:
        return f"the {self.k} largest scores"

    def to_onnx(self, graph: _OnnxGraph, scores: str, classes: int) -> str:
        labels = graph.add("TopK", scores, graph.constant([self.k]), output=1, axis=1)  # output 0: their scores
        one_hot = graph.add("OneHot", labels, graph.constant(classes), graph.constant([0, 1]))
        return graph.add("ReduceSum", one_hot, graph.constant([1]), keepdims=0)


@dataclass(frozen=True)
class WeightedTopK(Rule):
    """The k labels of the highest scale·score + offset of each row, one scale and offset per label.

    Of equal ones, the first. Takes scores ``(N, K)`` and returns bools ``(N, K)``; ``tune_top_k`` finds scales and
    offsets. Of sparse scores only those above 0 are chosen, so that a row with fewer has fewer than k labels.

    Parameters
    ----------
    k : int
        How many labels each row gets, from 0 to the number of labels.
    scale : tuple of float
        One number per label that its scores are multiplied with.
    offset : tuple of float
        One number per label that is added.

    Examples
    --------
    >>> WeightedTopK(1, scale=(1.0, 3.0), offset=(0.0, -0.1))(torch.tensor([[0.5, 0.3], [0.5, 0.1]]))
    tensor([[False,  True],
            [ True, False]])

    """

    k: int
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    tasks: ClassVar[tuple[Task, ...]] = ("multilabel",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole_number("k", self.k, 0))
        for name in ("scale", "offset"):
            given = as_tensor(name, getattr(self, name)).double()
            if given.dim() != 1 or not given.numel() or not given.isfinite().all():
                raise ValueError(f"{name}: expected one finite number per label, got {getattr(self, name)!r}")
            object.__setattr__(self, name, tuple(given.tolist()))
        if len(self.scale) != len(self.offset):
            raise ValueError(f"offset: expected {len(self.scale)}, one per scale, got {len(self.offset)}")

    def decide(self, scores: Tensor) -> Tensor:
        _check_classes(scores)
        self._check_labels(scores.shape[1])
        scale, offset = self._make_weights(scores.device)
        parts = scores.split(max(1, _SCORES_AT_ONCE // scores.shape[1]))  # float64 copies a part at a time
        weighted = (torch.addcmul(offset, part.double(), scale) for part in parts)
        return torch.cat([_mark_largest(values, self.k) for values in weighted])

    def decide_stored(self, scores: SparseBatch) -> Tensor:
        self._check_labels(scores.classes)
        scale, offset = (x[scores.label] for x in self._make_weights(scores.logits.device))
        may_be_chosen = scores.logits > 0
        weighted = torch.addcmul(offset, scores.logits.double(), scale)
        return scores.largest(weighted.masked_fill(~may_be_chosen, -torch.inf), self.k) & may_be_chosen

    def _make_weights(self, device: torch.device) -> tuple[Tensor, Tensor]:
        scale, offset = torch.tensor((self.scale, self.offset), dtype=torch.float64, device=device)
        return scale, offset

    def _check_labels(self, labels: int) -> None:
        if labels != len(self.scale):
            raise ValueError(f"scores: expected {len(self.scale)} labels, one scale and offset each; got {labels}")

    def describe(self) -> str:
        return f"the {self.k} largest weighted scores"

    def to_onnx(self, graph: _OnnxGraph, scores: str, classes: int) -> str:
        scaled = graph.add("Mul", scores, graph.constant(self.scale))
        weighted = graph.add("Add", scaled, graph.constant(self.offset))
        return TopK(self.k).to_onnx(graph, weighted, classes)


_SCORES_AT_ONCE = 1 << 20


def _mark_largest(values: Tensor, k: int) -> Tensor:
    """Return which are the k largest of their row; of equal ones, the first."""
    if k > values.shape[1]:
        raise ValueError(f"k: expected at most the {values.shape[1]} labels there are, got {k}")
    if not k:
        return torch.zeros_like(values, dtype=torch.bool)
    kth_largest = values.topk(k, dim=1).values[:, -1:]
    above = values > kth_largest
    equal = values == kth_largest
    places_left = k - above.sum(1, keepdim=True)
    return above | (equal & (equal.cumsum(1) <= places_left))


def _check_classes(scores: Tensor) -> None:
    if scores.dim() != 2 or not scores.shape[1]:
        raise ValueError(f"scores: expected (N, K), got {tuple(scores.shape)}")


if not TYPE_CHECKING:  # type checkers see the classes themselves
    __all__ = ["Rule", *kinds_in(__name__)]
