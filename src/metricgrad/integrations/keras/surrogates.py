"""The surrogates in ``keras.ops``: the numbers are those of the same dataclasses, ``mg.surrogates``.

``elements`` gives the memberships of binary and multi-label problems, ``rows`` those of multi-class ones; each has a
function for every surrogate that is for such problems.
"""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

import torch
from keras import backend, ops

from metricgrad.core.surrogates import (
    Hard,
    Identity,
    Linear,
    LogitSigmoid,
    Sigmoid,
    StraightThrough,
    Surrogate,
    Table,
    TopTwo,
    Unbounded,
    UnitsVsZeros,
)
from metricgrad.core.surrogates.base import ProbabilityStep
from metricgrad.integrations.keras.functions import ratio


@singledispatch
def elements(surrogate: Any, z: Any, threshold: Any = 0.5) -> Any:
    """Return memberships, elementwise, of logits; a function of the user's own is called with the logits."""
    if isinstance(surrogate, Surrogate):
        raise ValueError(f"surrogate: {surrogate!r} is not written for Keras")
    return surrogate(z)


@singledispatch
def rows(surrogate: Any, z: Any) -> Any:
    """Return memberships whose rows sum to one, of logits ``(N, d)``."""
    if isinstance(surrogate, Surrogate):
        raise ValueError(f"surrogate: {surrogate!r} is not for task='multiclass'; use TopTwo, a step, Identity or Hard")
    return surrogate(z)


@singledispatch
def step(surrogate: ProbabilityStep, p: Any, threshold: Any) -> Any:
    """Return the soft version of ``p >= threshold``."""
    raise ValueError(f"surrogate: {surrogate!r} is not written for Keras")


@step.register
def _(surrogate: Linear, p: Any, threshold: Any) -> Any:
    if isinstance(threshold, float):
        low, high, m1, m2, m3 = surrogate.pieces(threshold)
    else:
        half = surrogate.width / 2 * ops.minimum(threshold, 1 - threshold)
        low = threshold - half
        high = threshold + half
        m1 = surrogate.delta / low
        m2 = (0.5 - surrogate.delta) / half
        m3 = surrogate.delta / (1 - high)
    ramp = ops.minimum(ops.maximum(p - low, 0.0), high - low)
    return ops.clip(m1 * p + (m2 - m1) * ramp + (m3 - m1) * ops.maximum(p - high, 0.0), 0.0, 1.0)


@step.register
def _(surrogate: Sigmoid, p: Any, threshold: Any) -> Any:
    return ops.sigmoid(surrogate.k * (p - threshold))


@elements.register
def _(surrogate: ProbabilityStep, z: Any, threshold: Any = 0.5) -> Any:
    return step(surrogate, ops.sigmoid(z), threshold)


@rows.register
def _(surrogate: ProbabilityStep, z: Any) -> Any:
    p = ops.softmax(z, axis=-1)
    return normalise_rows(step(surrogate, p, mean_of_two_largest(p)))


@elements.register
def _(surrogate: LogitSigmoid, z: Any, threshold: Any = 0.5) -> Any:
    return ops.sigmoid(number(surrogate.beta, z) * (z + number(surrogate.eta, z)))


@rows.register
def _(surrogate: LogitSigmoid, z: Any) -> Any:
    return normalise_rows(elements(surrogate, z - (mean_of_two_largest(z) if z.shape[-1] > 1 else z)))


@rows.register
def _(surrogate: TopTwo, z: Any) -> Any:
    return rows(Linear(surrogate.delta, surrogate.width), z)


@elements.register
def _(surrogate: Identity, z: Any, threshold: Any = 0.5) -> Any:
    return ops.sigmoid(z)


@rows.register
def _(surrogate: Identity, z: Any) -> Any:
    return ops.softmax(z, axis=-1)


@elements.register
def _(surrogate: Unbounded, z: Any, threshold: Any = 0.5) -> Any:
    return z


@elements.register
def _(surrogate: Hard, z: Any, threshold: Any = 0.5) -> Any:
    return reaches_threshold(ops.sigmoid(z), threshold) + 0 * ops.clip(
        z, -1.0, 1.0
    )  # attached, so that there is a gradient


@rows.register
def _(surrogate: Hard, z: Any) -> Any:
    return one_hot(z) + 0 * ops.softmax(z, axis=-1)


@elements.register
def _(surrogate: StraightThrough, z: Any, threshold: Any = 0.5) -> Any:
    soft = elements(surrogate.soft, z, threshold)
    if isinstance(surrogate.soft, LogitSigmoid):  # whose hard rule is on the logits
        hard = reaches_threshold(z + number(surrogate.soft.eta, z), 0.0)
    else:
        hard = reaches_threshold(ops.sigmoid(z), threshold)
    return hard + (soft - ops.stop_gradient(soft))


@rows.register
def _(surrogate: StraightThrough, z: Any) -> Any:
    soft = rows(surrogate.soft, z)
    return one_hot(z) + (soft - ops.stop_gradient(soft))


@elements.register
def _(surrogate: Table, z: Any, threshold: Any = 0.5) -> Any:
    size = 10**surrogate.decimals
    p = ops.sigmoid(z)
    grid = torch.arange(size + 1, dtype=torch.float64) / size
    fixed = ops.stop_gradient(ops.where(ops.isnan(p), 0.0, p))
    guess = ops.cast(ops.clip(ops.floor(fixed * size), 0, size - 1), "int32")
    # The product was rounded: the entry is the one whose limits hold the probability.
    low, high = (ops.take(_limits(grid / (1 + 1e-12), z), guess + k) for k in (0, 1))
    cell = guess - ops.cast(fixed < low, "int32") + ops.cast(fixed >= high, "int32")
    values, slopes = (
        ops.take(ops.convert_to_tensor(table.tolist(), dtype=z.dtype), cell)
        for table in (surrogate.step.step(grid, threshold), surrogate.step.slope(grid, threshold))
    )
    return values + slopes * (p - ops.stop_gradient(p))


def of_labels(surrogate: UnitsVsZeros, z: Any, y: Any, keep: Any) -> Any:
    """Return MFoM's memberships of logits given their labels; what ``keep`` (0 or 1) leaves out does not compete."""
    g = ops.sigmoid(z)
    on = y * keep
    off = (1 - y) * keep
    powers = ops.exp(g)
    units = ops.sum(on, axis=-1, keepdims=True)
    zeros = ops.sum(off, axis=-1, keepdims=True)
    alone = ops.logical_or(units == 0, zeros == 0)
    # log of a safe 1 where there is no competitor, so that no gradient is 0·∞.
    u, v = (
        ops.log(ops.where(alone, 1.0, ratio(ops.sum(side * powers, axis=-1, keepdims=True), total)))
        for side, total in ((on, units), (off, zeros))
    )
    psi = ops.where(alone, 0.5, (1 - y) * u + y * v) - g
    return 1 - ops.sigmoid(number(surrogate.alpha, z) * psi + number(surrogate.beta, z))


def number(value: Any, like: Any) -> Any:
    """Return a plain number as it is, one per class as an array."""
    return ops.convert_to_tensor(value.tolist(), dtype=like.dtype) if hasattr(value, "tolist") else value


def mean_of_two_largest(scores: Any) -> Any:
    """Return the mean of the two largest scores of each row, ``(..., 1)``; of one class, half of it."""
    return scores / 2 if scores.shape[-1] < 2 else ops.sum(ops.top_k(scores, 2)[0], axis=-1, keepdims=True) / 2


def normalise_rows(memberships: Any) -> Any:
    """Return memberships whose rows sum to one."""
    return ratio(memberships, ops.sum(memberships, axis=-1, keepdims=True))


def reaches_threshold(scores: Any, threshold: Any) -> Any:
    """Return 1 where the score reaches the threshold; NaN stays NaN, which a comparison would hide."""
    return ops.where(ops.isnan(scores), math.nan, ops.cast(scores >= threshold, scores.dtype))


def one_hot(z: Any) -> Any:
    """Return the argmax as memberships; a row with a NaN is NaN."""
    hot = ops.one_hot(ops.argmax(z, axis=-1), z.shape[-1], dtype=backend.standardize_dtype(z.dtype))
    return ops.where(ops.any(ops.isnan(z), axis=-1, keepdims=True), math.nan, hot)


def _limits(limits: torch.Tensor, like: Any) -> Any:
    """Return limits as the smallest numbers of an array's type that are not below them."""
    if backend.standardize_dtype(like.dtype) != "float64":
        near = limits.float()
        limits = torch.where(near.double() < limits, near.nextafter(torch.tensor(math.inf)), near)
    return ops.convert_to_tensor(limits.tolist(), dtype=like.dtype)
