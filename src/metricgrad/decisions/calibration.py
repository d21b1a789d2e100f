"""Calibration: scores as probabilities, by a function that is fitted to labels.

Of two classes: beta calibration [kull2017], three numbers, and isotonic regression, a step function. Of several:
temperature and vector scaling [guo2017], one number and two for each class. Which is better, or whether scores are
better left as they are, is for rows to tell that were not fitted on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from metricgrad.core.storable import Storable
from metricgrad.decisions.threshold_search import find_hull

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CalibrationKind = Literal["none", "beta", "isotonic"]

KINDS_TO_TRY: tuple[CalibrationKind, ...] = ("none", "beta", "isotonic")

ScalingKind = Literal["none", "temperature", "vector"]

SCALINGS_TO_TRY: tuple[ScalingKind, ...] = ("none", "temperature", "vector")

SCALING_RIDGE = 1.0
"""The penalty of a squared change of a slope or an offset, in units of one row's log-loss: negligible for many rows."""

LOWEST_PROBABILITY = 1e-6
"""Probabilities are limited to [this, 1 − this] before logarithms are taken."""

NEWTON_STEPS = 50

LBFGS_STEPS = 200


@dataclass(frozen=True)
class Calibration(Storable):
    """A monotone function from scores to probabilities.

    Parameters
    ----------
    kind : {'none', 'beta', 'isotonic'}, default 'none'
        "none": the scores as they are, or their sigmoid. "beta": sigmoid(a·log p − b·log(1 − p) + c). "isotonic":
        linear between knots.
    numbers : tuple of float, default ()
        a, b and c; or the knots and then, as many, the probabilities there.
    of_logits : bool, default False
        Whether the scores are logits, or a decision function, whose sigmoid is taken first.

    Examples
    --------
    >>> Calibration("isotonic", (0.0, 1.0, 0.1, 0.3))(torch.tensor([0.5]))
    tensor([0.2000], dtype=torch.float64)

    """

    kind: CalibrationKind = "none"
    numbers: tuple[float, ...] = ()
    of_logits: bool = False
    sizes: ClassVar[dict[str, str]] = {"none": "no numbers", "beta": "three numbers", "isotonic": "knots and values"}

    def __post_init__(self) -> None:
        known = self.kind in self.sizes
        fits = {"none": not self.numbers, "beta": len(self.numbers) == 3}.get(self.kind, len(self.numbers) % 2 == 0)
        if not known or not fits or (self.kind == "isotonic" and not self.numbers):
            raise ValueError(f"calibration: expected a kind with its numbers, {self.sizes}, got {self.kind!r}")

    def __call__(self, scores: Tensor) -> Tensor:
        """Return the probabilities of scores.

        Parameters
        ----------
        scores : Tensor
            Of any shape.

        Returns
        -------
        Tensor
            Of the same shape, in float64.

        """
        p = scores.double().sigmoid() if self.of_logits else scores.double()
        if self.kind == "none":
            return p
        if self.kind == "beta":
            a, b, c = self.numbers
            low, high = _take_logarithms(p)
            return (a * low + b * high + c).sigmoid()
        half = len(self.numbers) // 2
        knots = torch.tensor(self.numbers[:half], dtype=torch.float64)
        values = torch.tensor(self.numbers[half:], dtype=torch.float64)
        return _interpolate(p, knots, values)


@dataclass(frozen=True)
class Scaling(Storable):
    """A function from the scores of several classes to their probabilities, softmax(slope·log p + offset).

    Parameters
    ----------
    kind : {'none', 'temperature', 'vector'}, default 'none'
        "none": the scores as they are, or their softmax. "temperature": one slope for all classes, no offsets.
        "vector": a slope and an offset for each class.
    numbers : tuple of float, default ()
        The slope; or the slopes of all classes and then their offsets.
    of_logits : bool, default False
        Whether the scores are logits, or decision functions, whose softmax is taken first.

    Examples
    --------
    >>> Scaling("temperature", (2.0,))(torch.tensor([[0.25, 0.75]]))
    tensor([[0.1000, 0.9000]], dtype=torch.float64)

    """

    kind: ScalingKind = "none"
    numbers: tuple[float, ...] = ()
    of_logits: bool = False

    def __post_init__(self) -> None:
        fits = {
            "none": not self.numbers,
            "temperature": len(self.numbers) == 1,
            "vector": len(self.numbers) > 0 and len(self.numbers) % 2 == 0,
        }
        if not fits.get(self.kind, False):
            raise ValueError(
                "calibration: expected 'none', 'temperature' with one number or 'vector' with two for each class, got "
                f"{self.kind!r} with {len(self.numbers)}"
            )

    def __call__(self, scores: Tensor) -> Tensor:
        """Return the probabilities of scores.

        Parameters
        ----------
        scores : Tensor
            ``(N, d)``.

        Returns
        -------
        Tensor
            Of the same shape, in float64.

        """
        p = scores.double().softmax(1) if self.of_logits else scores.double()
        if self.kind == "none":
            return p
        slopes, offsets = self.split_numbers()
        levels = p.clamp(min=LOWEST_PROBABILITY).log()
        return (slopes.to(p.device) * levels + offsets.to(p.device)).softmax(1)

    def split_numbers(self) -> tuple[Tensor, Tensor]:
        """Return the slopes and the offsets, ``(1,)`` or ``(d,)``."""
        numbers = torch.tensor(self.numbers, dtype=torch.float64)
        if self.kind == "vector":
            slopes, offsets = numbers.chunk(2)
            return slopes, offsets
        return numbers, torch.zeros(1, dtype=torch.float64)

    def to_onnx(self, graph: Any, scores: str) -> str:
        """Add the probabilities of scores to a graph, and return their name there."""
        p = graph.add("Softmax", scores, axis=1) if self.of_logits else scores
        if self.kind == "none":
            return str(p)
        slopes, offsets = self.split_numbers()
        levels = graph.add("Log", graph.add("Max", p, graph.constant(LOWEST_PROBABILITY)))
        scaled = graph.add("Add", graph.add("Mul", levels, graph.constant(slopes)), graph.constant(offsets))
        return str(graph.add("Softmax", scaled, axis=1))


def _take_logarithms(p: Tensor) -> tuple[Tensor, Tensor]:
    """Return log p and −log(1 − p)."""
    p = p.clamp(LOWEST_PROBABILITY, 1 - LOWEST_PROBABILITY)
    return p.log(), -(1 - p).log()


def _interpolate(x: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Return values linear between knots, and constant beyond them."""
    if len(knots) == 1:
        return values.expand_as(x)
    above = torch.searchsorted(knots, x.contiguous(), right=True).clamp(1, len(knots) - 1)
    below = above - 1
    width = knots[above] - knots[below]
    share = torch.where(width > 0, (x - knots[below]) / width.clamp(min=1e-300), 1.0).clamp(0, 1)
    return values[below] + share * (values[above] - values[below])


# Fitting


def fit_calibration(
    kind: CalibrationKind, scores: Tensor, targets: Tensor, weight: Tensor, of_logits: bool
) -> Calibration:
    """Return the calibration of a kind that fits scores ``(N,)`` to targets best."""
    if kind == "none":
        return Calibration(of_logits=of_logits)
    p = scores.double().sigmoid() if of_logits else scores.double()
    fit = _fit_beta if kind == "beta" else _fit_isotonic
    return Calibration(kind, tuple(fit(p, targets.double(), weight.double())), of_logits)


def _fit_beta(p: Tensor, targets: Tensor, weight: Tensor) -> list[float]:
    """Return a, b and c of the least log-loss, a and b not negative."""
    low, high = _take_logarithms(p)
    ones = torch.ones_like(low)
    features = {"a": low, "b": high, "c": ones}
    while True:
        fitted = _fit_logistic(torch.stack(list(features.values()), 1), targets, weight)
        numbers = dict(zip(features, fitted.tolist(), strict=True))
        falling = [name for name in ("a", "b") if numbers.get(name, 0.0) < 0]
        if not falling:
            return [numbers.get(name, 0.0) for name in ("a", "b", "c")]
        # With a negative coefficient the function would not be monotone: fit again without the more negative one.
        del features[min(falling, key=lambda name: numbers[name])]


def _fit_logistic(features: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    """Return the coefficients of a logistic regression, by Newton's method; a small ridge keeps them finite."""
    coefficients = features.new_zeros(features.shape[1])
    ridge = 1e-3 * torch.eye(features.shape[1], dtype=features.dtype)
    for _ in range(NEWTON_STEPS):
        p = (features @ coefficients).sigmoid()
        gradient = features.t() @ (weight * (p - targets)) + ridge @ coefficients
        curvature = (features * (weight * p * (1 - p)).unsqueeze(1)).t() @ features + ridge
        step = torch.linalg.solve(curvature, gradient)
        step = step * (4.0 / step.norm()).clamp(max=1.0)  # far from the optimum a full step may lead away
        coefficients = coefficients - step
        if step.norm() < 1e-9:
            break
    return coefficients


def fit_scaling(kind: ScalingKind, scores: Tensor, targets: Tensor, weight: Tensor, of_logits: bool) -> Scaling:
    """Return the scaling of a kind that fits scores ``(N, d)`` to class indices best."""
    if kind == "none":
        return Scaling(of_logits=of_logits)
    p = scores.double().softmax(1) if of_logits else scores.double()
    levels = p.clamp(min=LOWEST_PROBABILITY).log()
    slopes = torch.ones(levels.shape[1] if kind == "vector" else 1, dtype=torch.float64)
    changes = torch.zeros(2 * len(slopes), dtype=torch.float64, requires_grad=True)

    def compute_loss() -> Tensor:
        steeper, offsets = changes.chunk(2)
        offsets = offsets if kind == "vector" else torch.zeros_like(offsets)
        own = ((slopes + steeper) * levels + offsets).log_softmax(1).gather(1, targets.unsqueeze(1)).squeeze(1)
        return (SCALING_RIDGE * changes.square().sum() - (weight * own).sum()) / weight.sum()

    _minimise(compute_loss, changes)
    steeper, offsets = changes.detach().chunk(2)
    numbers = torch.cat((slopes + steeper, offsets)) if kind == "vector" else slopes + steeper
    return Scaling(kind, tuple(numbers.tolist()), of_logits)


def _minimise(compute_loss: Callable[[], Tensor], variables: Tensor) -> None:
    """Move variables to where a convex function of them is least."""
    optimiser = torch.optim.LBFGS(
        [variables], max_iter=LBFGS_STEPS, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def step() -> Tensor:
        optimiser.zero_grad()
        loss = compute_loss()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimiser.step(step)


def _fit_isotonic(p: Tensor, targets: Tensor, weight: Tensor) -> list[float]:
    """Return the knots of the isotonic regression, and the values there.

    The shares of positives in its blocks are the slopes of the lower hull of the cumulated positives. One more row of
    the overall share in each block keeps probabilities from 0 and 1.
    """
    order = p.argsort()
    scores = p[order]
    ends = torch.cat((scores[1:] != scores[:-1], torch.ones(1, dtype=torch.bool)))  # equal scores stay together
    none = p.new_zeros(1)
    rows = torch.cat((none, weight[order].cumsum(0)[ends]))
    positives = torch.cat((none, (weight * targets)[order].cumsum(0)[ends]))
    corners = find_hull(rows, positives, -1)
    share = (positives[-1] / rows[-1]).item()
    block_rows = rows[corners].diff()
    values = (positives[corners].diff() + share) / (block_rows + 1)
    values = values.cummax(0).values  # the added rows could make it fall
    distinct = scores[ends]
    first = distinct[corners[:-1]]
    last = distinct[corners[1:] - 1]
    knots = torch.stack((first, last), 1).flatten()
    return [*knots.tolist(), *values.repeat_interleave(2).tolist()]


# Choosing


def split_rows(classes: Tensor, folds: int, seed: int) -> list[Tensor]:
    """Return masks of the rows of each fold, with as many rows of each class in each; ``classes``: their indices."""
    random = torch.rand(len(classes), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    fold = torch.empty(len(classes), dtype=torch.long)
    for k in classes.unique():
        rows = (classes == k).nonzero().squeeze(1)
        fold[rows[random[rows].argsort()]] = torch.arange(len(rows)) % folds
    return [fold == k for k in range(folds)]


def calibrate_out_of_fold(
    kind: CalibrationKind, scores: Tensor, targets: Tensor, weight: Tensor, of_logits: bool, folds: Sequence[Tensor]
) -> Tensor:
    """Return the probabilities of each row by a calibration that was fitted without its fold."""
    found = torch.empty(len(scores), dtype=torch.float64)
    for held in folds:
        rest = ~held
        calibration = fit_calibration(kind, scores[rest], targets[rest], weight[rest], of_logits)
        found[held] = calibration(scores[held])
    return found


def scale_out_of_fold(
    kind: ScalingKind, scores: Tensor, targets: Tensor, weight: Tensor, of_logits: bool, folds: Sequence[Tensor]
) -> Tensor:
    """Return the probabilities of each row by a scaling that was fitted without its fold."""
    found = torch.empty(scores.shape, dtype=torch.float64)
    for held in folds:
        rest = ~held
        scaling = fit_scaling(kind, scores[rest], targets[rest], weight[rest], of_logits)
        found[held] = scaling(scores[held])
    return found


def compute_log_loss_of_classes(p: Tensor, targets: Tensor, weight: Tensor) -> float:
    """Return the mean cross-entropy of the probabilities of several classes."""
    own = p.gather(1, targets.unsqueeze(1)).squeeze(1).clamp(LOWEST_PROBABILITY, 1)
    return (-(weight * own.log()).sum() / weight.sum()).item()


def compute_log_loss(p: Tensor, targets: Tensor, weight: Tensor) -> float:
    """Return the mean cross-entropy of probabilities."""
    p = p.clamp(LOWEST_PROBABILITY, 1 - LOWEST_PROBABILITY)
    losses = -(targets * p.log() + (1 - targets) * (1 - p).log())
    return ((weight * losses).sum() / weight.sum()).item()
