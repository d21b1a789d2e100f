"""The kernel for a small batch of class indices, in numpy: nearly all of its time is that of calls, not of arithmetic.

A call of numpy takes 0.2 to 1 µs, one of torch 1 to 5. So memberships, sums and gradient are computed here in arrays,
by the formulas of ``surrogates.top_two`` and ``surrogates.simple``. A batch that is not of this kind is left to torch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from metricgrad.core.batch import check_targets
from metricgrad.core.numpy_arrays import has_array, np
from metricgrad.core.surrogates.simple import Identity
from metricgrad.core.surrogates.steps import TopTwo
from metricgrad.core.surrogates.top_two import StepShape, make_step_shape

if TYPE_CHECKING:
    from metricgrad.core.call import Call

Array = Any
"""An array of numpy, which the type checker may not find installed."""

MAX_ELEMENTS = 1 << 15
"""Up to this many logits numpy is used; torch is as fast from about three times as many, and has more threads then."""

MAX_BLAS_ELEMENTS = 1 << 13
"""Up to this many elements of a matrix OpenBLAS multiplies on one thread; threads of its own would disturb torch's."""


def compute_loss_and_gradient(call: Call, logits: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the loss and its gradient with respect to the logits, or None if the batch is left to torch.

    It is a batch of class indices, without weights, that fits one piece: see ``kernel``.
    """
    surrogate = call.plan.closed_form
    if not _fits(call, logits, surrogate):
        return None
    # Copies, since a tensor that shares its memory with an array cannot be resized any more.
    gradient = logits.detach().clone(memory_format=torch.contiguous_format)
    p = gradient.numpy()
    targets = call.targets.clone().numpy()
    rows, classes = p.shape
    if np.maximum.reduce(targets.view(np.uint64)) >= classes:  # a negative index is a huge number there
        check_targets(call.targets, classes)
    with np.errstate(all="ignore"):  # torch does not warn of NaN and infinity either
        row_starts = _find_row_starts(rows, classes)
        true_places = targets + row_starts
        if type(surrogate) is TopTwo:
            shape = make_step_shape(surrogate.delta, surrogate.width)
            memberships, steps = _compute_memberships(p, row_starts, shape)
        else:
            _apply_softmax(p, row_starts)
            memberships = p.copy()
        hits = memberships.take(true_places)
        misses = memberships
        misses.put(true_places, 0.0)
        sums = _sum_counts(hits, misses, targets)
        loss, (a, b) = call.objective.differentiate_arrays(sums)
        # The gradient by the memberships is a for the true class and b for the others. Memberships of a row have the
        # sum 1, so that only its difference from the mean over them counts.
        true_gradient = a.take(targets)
        mean = _multiply(misses, b) + hits * true_gradient
        by_memberships = np.subtract(b, mean[:, None], out=misses)
        by_memberships.put(true_places, true_gradient - mean)
        if type(surrogate) is TopTwo:
            _write_logits_gradient(by_memberships, steps, p)
        else:
            p *= by_memberships
    return loss, gradient


def _fits(call: Call, logits: Tensor, surrogate: Any) -> bool:
    return (
        0 < logits.numel() <= MAX_ELEMENTS
        and logits.shape[1] <= MAX_BLAS_ELEMENTS
        and has_array(logits)
        and has_array(call.targets)
        and call.group is None
        and (type(surrogate) is TopTwo or type(surrogate) is Identity)
    )


@lru_cache(maxsize=16)
def _find_row_starts(rows: int, classes: int) -> Array:
    """Return the place of the first element of each row, among all elements."""
    starts = np.arange(0, rows * classes, classes)
    starts.flags.writeable = False
    return starts


@lru_cache(maxsize=64)
def _make_ones(size: int, dtype: Any) -> Array:
    ones = np.ones(size, dtype)
    ones.flags.writeable = False
    return ones


def _sum_rows(x: Array) -> Array:
    """Return the sum of each row: of few classes, a product with ones is several times as fast as a sum."""
    return _multiply(x, _make_ones(x.shape[1], x.dtype))


def _multiply(x: Array, vector: Array) -> Array:
    """Return the product of a matrix and a vector."""
    if x.size <= MAX_BLAS_ELEMENTS:
        return x.dot(vector)
    block_rows = MAX_BLAS_ELEMENTS // x.shape[1]  # at least one: see ``_fits``
    return np.concatenate([x[i : i + block_rows].dot(vector) for i in range(0, len(x), block_rows)])


def _sum_counts(hits: Array, misses: Array, targets: Array) -> tuple[Array, Array, Array, Array]:
    """Return TP, FP, P and N of each class, given the memberships of the true classes and those of the others."""
    rows, classes = misses.shape
    dtype = misses.dtype
    tp = np.bincount(targets, hits, classes)
    fp = np.add.reduce(misses, 0, np.float64)
    positives = np.bincount(targets, None, classes)
    negatives = rows - positives
    return tp.astype(dtype), fp.astype(dtype), positives.astype(dtype), negatives.astype(dtype)


def _apply_softmax(z: Array, row_starts: Array) -> Array:
    """Turn logits into the softmax of each row, in place; return the places of the largest, the first of equals."""
    first_place = z.argmax(1) + row_starts
    z -= z.take(first_place)[:, None]
    np.exp(z, out=z)
    z /= _sum_rows(z)[:, None]
    return first_place


class _Steps(NamedTuple):
    """The step of every row of probabilities, as ``RowSteps``; vectors have one number per row."""

    row_sums: Array
    """The sums of the heights, which the memberships are divided by."""
    slopes: Array
    """The slope of the step at each probability, that above the upper knot left out."""
    first: Array
    """The largest probability."""
    first_place: Array
    second: Array
    second_place: Array
    double_tau: Array
    below_one: Array
    past_high: Array
    upper_slope: Array
    over_ramp: Array


def _compute_memberships(p: Array, row_starts: Array, shape: StepShape) -> tuple[Array, _Steps]:
    """Turn logits into the softmax of each row, in place, and return the memberships and their steps."""
    first_place = _apply_softmax(p, row_starts)
    first = p.take(first_place)
    p.put(first_place, -1.0)
    second_place = p.argmax(1) + row_starts
    second = p.take(second_place)
    p.put(first_place, first)
    double_tau = first + second
    low = double_tau * (shape.lower_knot / 2)
    high = double_tau * (shape.upper_knot / 2)
    below_one = 1.0 - high
    past_high = np.maximum(first - high, 0.0)
    upper_slope = double_tau * (shape.upper_slope / 2) / below_one
    over_ramp = upper_slope - shape.ramp_slope
    heights = p - low[:, None]
    slopes = _make_slopes(shape, p.dtype).take(heights > 0.0)
    np.maximum(heights, 0.0, out=heights)
    if shape.lower_slope:
        heights *= shape.extra_slope
        heights += p
    # The largest one has continued the ramp so far: beyond the upper knot the slope is another one.
    first_height = heights.take(first_place) + over_ramp * past_high
    heights.put(first_place, first_height)
    row_sums = _sum_rows(heights)
    heights /= row_sums[:, None]
    steps = _Steps(
        row_sums,
        slopes,
        first,
        first_place,
        second,
        second_place,
        double_tau,
        below_one,
        past_high,
        upper_slope,
        over_ramp,
    )
    return heights, steps


@lru_cache(maxsize=64)
def _make_slopes(shape: StepShape, dtype: Any) -> Array:
    """Return the slopes of a step, below and above its lower knot."""
    slopes = np.array([shape.lower_slope, shape.ramp_slope], dtype)
    slopes.flags.writeable = False
    return slopes


def _write_logits_gradient(gradient: Array, steps: _Steps, p: Array) -> None:
    """Turn probabilities into the gradient with respect to the logits, in place, as ``top_two`` does.

    ``gradient`` is that with respect to the memberships, minus its mean over them; it is overwritten.
    """
    gradient /= steps.row_sums[:, None]
    by_first_height = gradient.take(steps.first_place)
    # To the probabilities times the derivatives by them, at a fixed threshold.
    gradient *= steps.slopes
    gradient *= p
    beyond = steps.over_ramp * (steps.past_high > 0.0) * steps.first * by_first_height
    by_first = gradient.take(steps.first_place) + beyond
    gradient.put(steps.first_place, by_first)
    # To the threshold, and from there to the two largest probabilities, in proportion to them.
    correction = by_first_height * steps.upper_slope * steps.past_high / steps.below_one
    share = (correction - _sum_rows(gradient)) / steps.double_tau
    by_second = gradient.take(steps.second_place)
    gradient.put(steps.first_place, by_first + share * steps.first)
    gradient.put(steps.second_place, by_second + share * steps.second)
    # From the probabilities to the logits, by the derivative of softmax.
    p *= correction[:, None]
    np.subtract(gradient, p, out=p)
