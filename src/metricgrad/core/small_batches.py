"""The kernel for a small batch of class indices, in numpy: of some thousand logits nearly all time is that of calls.

A call of numpy takes 0.2 to 1 µs, one of torch 1 to 5. So memberships, sums and gradient are computed here in arrays,
by the formulas of ``surrogates.top_two`` and ``surrogates.simple``. Arrays share the memory of the logits and of their
gradient. ``compute_loss_and_gradient`` returns None for a batch that is not of this kind; it is left to torch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from metricgrad.core.batch import check_targets
from metricgrad.core.numpy_arrays import numpy, view_as_array
from metricgrad.core.surrogates.simple import Identity
from metricgrad.core.surrogates.steps import TopTwo
from metricgrad.core.surrogates.top_two import StepShape, make_step_shape

if TYPE_CHECKING:
    from metricgrad.core.call import Call

Array = Any
"""An array of numpy, which the type checker may not find installed."""

MAX_ELEMENTS = 1 << 15
"""Up to this many logits numpy is used. For four times as many torch is as fast, and beyond it has several threads."""

MAX_BLAS_ELEMENTS = 1 << 13
"""Up to this many elements of a matrix OpenBLAS multiplies on one thread; threads of its own would disturb torch's."""


def compute_loss_and_gradient(call: Call, logits: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the loss and its gradient with respect to the logits, or None if torch has to compute them.

    The batch is one of class indices, without weights, that fits one piece: see ``kernel``.
    """
    surrogate = call.plan.closed_form
    if not _fits(call, logits, surrogate):
        return None
    z = view_as_array(logits)
    targets = view_as_array(call.targets)
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    out = view_as_array(gradient)
    if z is None or targets is None or out is None:
        return None
    rows, classes = z.shape
    if targets.view(numpy.uint64).max() >= classes:  # a negative index is a huge one there
        check_targets(call.targets, classes)
    with numpy.errstate(all="ignore"):  # torch does not warn of NaN and infinity either
        row_starts = _find_row_starts(rows, classes)
        true_places = targets + row_starts
        if type(surrogate) is TopTwo:
            shape = make_step_shape(surrogate.delta, surrogate.width)
            steps = _compute_steps(z, row_starts, shape, out)
            memberships = steps.memberships
        else:
            memberships = _write_softmax(z, row_starts, out)
        hits = memberships.take(true_places)
        misses = memberships.copy()
        misses.put(true_places, 0.0)
        sums = _sum_counts(hits, misses, targets)
        loss, (a, b) = call.objective.differentiate_arrays(sums)
        # The gradient by the memberships is a of the true class and b of the others.
        true_gradient = a.take(targets)
        mean = _multiply(misses, b) + hits * true_gradient
        by_membership = numpy.empty_like(out)
        by_membership[:] = b
        by_membership.put(true_places, true_gradient)
        by_membership -= mean[:, None]
        if type(surrogate) is TopTwo:
            _write_logits_gradient(by_membership, steps, shape, out)
        else:
            numpy.multiply(memberships, by_membership, out=out)
    return loss, gradient


def _fits(call: Call, logits: Tensor, surrogate: Any) -> bool:
    return (
        numpy is not None
        and 0 < logits.numel() <= MAX_ELEMENTS
        and logits.is_cpu
        and call.targets.is_cpu
        and call.group is None
        and (type(surrogate) is TopTwo or type(surrogate) is Identity)
    )


@lru_cache(maxsize=64)
def _find_row_starts(rows: int, classes: int) -> Array:
    """Return the place of the first element of each row, among all elements."""
    starts = numpy.arange(0, rows * classes, classes)
    starts.flags.writeable = False
    return starts


@lru_cache(maxsize=64)
def _make_ones(size: int, dtype: Any) -> Array:
    ones = numpy.ones(size, dtype)
    ones.flags.writeable = False
    return ones


def _sum_rows(x: Array) -> Array:
    """Return the sum of each row: of few classes, a product with ones is several times as fast as a sum."""
    return _multiply(x, _make_ones(x.shape[1], x.dtype))


def _multiply(x: Array, vector: Array) -> Array:
    """Return the product of a matrix and a vector."""
    if x.size <= MAX_BLAS_ELEMENTS:
        return x.dot(vector)
    block_rows = MAX_BLAS_ELEMENTS // x.shape[1]
    return numpy.concatenate([x[i : i + block_rows].dot(vector) for i in range(0, len(x), block_rows)])


def _sum_counts(hits: Array, misses: Array, targets: Array) -> tuple[Array, Array, Array, Array]:
    """Return TP, FP, P and N of each class, given the memberships of the true classes and those of the others."""
    rows, classes = misses.shape
    dtype = misses.dtype
    tp = numpy.bincount(targets, hits, classes)
    fp = numpy.add.reduce(misses, 0, numpy.float64)
    positives = numpy.bincount(targets, None, classes)
    negatives = rows - positives
    return tp.astype(dtype), fp.astype(dtype), positives.astype(dtype), negatives.astype(dtype)


def _write_softmax(z: Array, row_starts: Array, out: Array) -> Array:
    """Write the softmax of each row into ``out``, and return it."""
    largest = z.take(z.argmax(1) + row_starts)
    numpy.subtract(z, largest[:, None], out=out)
    numpy.exp(out, out=out)
    out /= _sum_rows(out)[:, None]
    return out


class _Steps(NamedTuple):
    """The step of every row of probabilities, as ``RowSteps``; vectors have one number per row."""

    memberships: Array
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


def _compute_steps(z: Array, row_starts: Array, shape: StepShape, p: Array) -> _Steps:
    """Write the softmax of each row into ``p``, and return its step."""
    first_place = z.argmax(1) + row_starts
    numpy.subtract(z, z.take(first_place)[:, None], out=p)
    numpy.exp(p, out=p)
    p /= _sum_rows(p)[:, None]
    first = p.take(first_place)
    p.put(first_place, -1.0)
    second_place = p.argmax(1) + row_starts
    second = p.take(second_place)
    p.put(first_place, first)
    double_tau = first + second
    low = double_tau * (shape.lower_knot / 2)
    high = double_tau * (shape.upper_knot / 2)
    below_one = 1.0 - high
    past_high = numpy.maximum(first - high, 0.0)
    upper_slope = double_tau * (shape.upper_slope / 2) / below_one
    over_ramp = upper_slope - shape.ramp_slope
    heights = p - low[:, None]
    slopes = _make_slopes(shape, p.dtype).take(heights > 0.0)
    numpy.maximum(heights, 0.0, out=heights)
    if shape.lower_slope:
        heights *= shape.extra_slope
        heights += p
    first_height = heights.take(first_place)
    heights.put(first_place, first_height + over_ramp * past_high)
    row_sums = _sum_rows(heights)
    heights /= row_sums[:, None]
    return _Steps(
        heights,
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


@lru_cache(maxsize=64)
def _make_slopes(shape: StepShape, dtype: Any) -> Array:
    """Return the slopes of a step, below and above its lower knot."""
    slopes = numpy.array([shape.lower_slope, shape.ramp_slope], dtype)
    slopes.flags.writeable = False
    return slopes


def _write_logits_gradient(gradient: Array, steps: _Steps, shape: StepShape, p: Array) -> None:
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
    numpy.subtract(gradient, p, out=p)
