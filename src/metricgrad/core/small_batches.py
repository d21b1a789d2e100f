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
    # Copies, since a tensor that shares its memory with an array cannot be resized any more. Autograd does not follow:
    # it is off in a ``Function``.
    gradient = logits.clone(memory_format=torch.contiguous_format)
    z = gradient.numpy()
    targets = call.targets.clone().numpy()
    rows, classes = z.shape
    is_beyond = targets.view(np.uint64) >= classes  # a negative index is a huge number there
    if np.count_nonzero(is_beyond):
        check_targets(call.targets, classes)
    with np.errstate(all="ignore"):  # torch does not warn of NaN and infinity either
        row_starts = _find_row_starts(rows, classes)
        true_places = targets + row_starts
        steps = None
        if type(surrogate) is TopTwo:
            shape = make_step_shape(surrogate.delta, surrogate.width)
            memberships, steps = _compute_memberships(z, row_starts, shape)
        else:
            _exponentiate(z, row_starts)
            z /= _sum_rows(z)[:, None]
            memberships = z.copy()
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
        if steps is None:
            z *= by_memberships
        else:
            _write_logits_gradient(by_memberships, steps, z)
    return loss, gradient


def _fits(call: Call, logits: Tensor, surrogate: Any) -> bool:
    return (
        (type(surrogate) is TopTwo or type(surrogate) is Identity)
        and 0 < logits.numel() <= MAX_ELEMENTS
        and logits.shape[1] <= MAX_BLAS_ELEMENTS
        and call.group is None
        and has_array(logits)
        and has_array(call.targets)
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


def _exponentiate(z: Array, row_starts: Array) -> Array:
    """Replace logits by their exponentials, relative to the largest of the row; return its place, the first of equals.

    They are the probabilities but for a factor of the row.
    """
    largest_place = z.argmax(1) + row_starts
    z -= z.take(largest_place)[:, None]
    np.exp(z, out=z)
    return largest_place


class _Steps(NamedTuple):
    """The step of every row, as ``RowSteps``, in units of its largest probability; vectors have one number per row."""

    largest_place: Array
    second_place: Array
    second: Array
    """The second largest probability."""
    whole: Array
    """The sum of all."""
    double_tau: Array
    below_one: Array
    past_high: Array
    upper_slope: Array
    over_ramp: Array
    slopes: Array
    """The slope of the step at each probability, that above the upper knot left out."""
    height_sums: Array
    """What heights are divided by."""


def _compute_memberships(z: Array, row_starts: Array, shape: StepShape) -> tuple[Array, _Steps]:
    """Turn logits into probabilities in units of the largest, in place; return the memberships and the steps."""
    largest_place = _exponentiate(z, row_starts)
    whole = _sum_rows(z)
    z.put(largest_place, -1.0)
    second_place = z.argmax(1) + row_starts
    second = z.take(second_place)
    z.put(largest_place, 1.0)
    double_tau = second + 1.0
    low = double_tau * (shape.lower_knot / 2)
    high = double_tau * (shape.upper_knot / 2)
    below_one = whole - high
    past_high = np.maximum(1.0 - high, 0.0)
    upper_slope = double_tau * (shape.upper_slope / 2) / below_one
    over_ramp = upper_slope - shape.ramp_slope
    heights = z - low[:, None]
    slopes = _make_slopes(shape, z.dtype).take(heights > 0.0)
    np.maximum(heights, 0.0, out=heights)
    if shape.lower_slope:
        heights *= shape.extra_slope
        heights += z
    # The largest one has continued the ramp so far: beyond the upper knot the slope is another one.
    largest_height = heights.take(largest_place) + over_ramp * past_high
    heights.put(largest_place, largest_height)
    height_sums = _sum_rows(heights)
    heights /= height_sums[:, None]
    steps = _Steps(
        largest_place,
        second_place,
        second,
        whole,
        double_tau,
        below_one,
        past_high,
        upper_slope,
        over_ramp,
        slopes,
        height_sums,
    )
    return heights, steps


@lru_cache(maxsize=64)
def _make_slopes(shape: StepShape, dtype: Any) -> Array:
    """Return the slopes of a step, below and above its lower knot."""
    slopes = np.array([shape.lower_slope, shape.ramp_slope], dtype)
    slopes.flags.writeable = False
    return slopes


def _write_logits_gradient(gradient: Array, steps: _Steps, p: Array) -> None:
    """Turn probabilities, in units of the largest, into the gradient with respect to the logits, in place.

    ``gradient`` is that with respect to the memberships, minus its mean over them; it is overwritten. The steps are
    those of ``top_two.write_logits_gradient``.
    """
    gradient /= steps.height_sums[:, None]
    by_largest_height = gradient.take(steps.largest_place)
    # To the probabilities times the derivatives by them, at a fixed threshold.
    gradient *= steps.slopes
    gradient *= p
    beyond = (steps.past_high > 0.0) * steps.over_ramp * by_largest_height
    by_largest = gradient.take(steps.largest_place) + beyond
    gradient.put(steps.largest_place, by_largest)
    # To the threshold, and from there to the two largest probabilities, in proportion to them.
    correction = by_largest_height * steps.upper_slope * steps.past_high / steps.below_one
    share = (correction * steps.whole - _sum_rows(gradient)) / steps.double_tau
    by_second = gradient.take(steps.second_place)
    gradient.put(steps.largest_place, by_largest + share)
    gradient.put(steps.second_place, by_second + share * steps.second)
    # From the probabilities to the logits, by the derivative of softmax.
    p *= correction[:, None]
    np.subtract(gradient, p, out=p)
