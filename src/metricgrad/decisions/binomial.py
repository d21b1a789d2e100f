"""Binomial numbers: exact tails and limits, and the chance that a walk of binomial numbers crosses a boundary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_TERMS = 20_000
"""The most terms of the continued fraction; it needs about as many as the square root of the number of trials."""
_WIDTH = 12.0
"""Numbers further from the mean than this many standard deviations are left out: their probability is below 1e-30."""
_ROUNDING = 1e-9
"""The relative error that a probability may have."""


def find_tail(successes: int, trials: int, share: float) -> float:
    """Return the probability of at least so many successes, ``share`` being the probability of one in each trial.

    >>> round(find_tail(2, 2, 0.5), 12)
    0.25
    """
    if successes <= 0 or share >= 1:
        return 1.0
    if successes > trials or share <= 0:
        return 0.0
    return _integrate_beta(share, successes, trials - successes + 1)


def _integrate_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, by the continued fraction that converges faster."""
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    front = math.exp(log_front)
    if x < (a + 1) / (a + b + 2):
        return min(1.0, front * _continue_fraction(x, a, b) / a)
    return max(0.0, 1 - front * _continue_fraction(1 - x, b, a) / b)


def _continue_fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, by the method of Lentz."""
    tiny = 1e-300
    c = 1.0
    d = 1 / _away_from_zero(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for i in range(1, _MOST_TERMS):
        even = i * (b - i) * x / ((a + 2 * i - 1) * (a + 2 * i))
        d = 1 / _away_from_zero(1 + even * d, tiny)
        c = _away_from_zero(1 + even / c, tiny)
        value *= c * d
        odd = -(a + i) * (a + b + i) * x / ((a + 2 * i) * (a + 2 * i + 1))
        d = 1 / _away_from_zero(1 + odd * d, tiny)
        c = _away_from_zero(1 + odd / c, tiny)
        change = c * d
        value *= change
        if abs(change - 1) < 1e-15:
            break
    return value


def _away_from_zero(x: float, tiny: float) -> float:
    return x if abs(x) > tiny else tiny


def find_most_errors(trials: int, share: float, alpha: float) -> int:
    """Return the largest number of errors that proves a rate of at most ``share``, at the significance level alpha.

    −1 if not even zero errors prove it, since there are too few trials.

    >>> find_most_errors(59, 0.05, 0.05), find_most_errors(58, 0.05, 0.05)
    (0, -1)
    """
    if share >= 1:
        return trials
    low = -1  # the most errors known to prove it, if any
    high = trials  # the fewest errors known not to prove it
    while high - low > 1:
        middle = (low + high) // 2
        at_most = 1 - find_tail(middle + 1, trials, share) if middle >= 0 else 0.0
        if _is_at_most(at_most, middle, trials, share, alpha):
            low = middle
        else:
            high = middle
    return low


def _is_at_most(at_most: float, errors: int, trials: int, share: float, alpha: float) -> bool:
    """Tell whether P(errors or fewer) is at most alpha; ``at_most`` is that probability, up to rounding."""
    if errors == 0:
        return trials * math.log1p(-share) <= math.log(alpha) + _ROUNDING if share > 0 else False
    return at_most <= alpha


def find_upper_limit(errors: int, trials: int, alpha: float) -> float:
    """Return the upper confidence limit of the rate of errors, of which so many trials had one [clopper1934].

    >>> round(find_upper_limit(0, 59, 0.05), 3)
    0.05
    """
    if errors >= trials:
        return 1.0
    low, high = errors / trials, 1.0
    for _ in range(44):
        middle = (low + high) / 2
        # Above the limit, the probability of so few errors is at most alpha.
        if 1 - find_tail(errors + 1, trials, middle) <= alpha:
            high = middle
        else:
            low = middle
    return high


def find_walk_tail(sizes: Sequence[int], share: float, level: float, stop_above: float = 1.0) -> float:
    """Return the chance that some of the first ``sizes`` of independent trials has a tail of at most ``level``.

    Once the chance is known to be above ``stop_above``, what was added up so far is returned: a lower bound of it.

    The successes among the first ``sizes[0]``, ``sizes[1]``, … trials are a walk of binomial steps. The probabilities
    of its places that have not crossed are passed on from size to size: the chance is exact, unlike a sum over sizes.

    >>> round(find_walk_tail([5], 0.5, 1 / 32), 12), find_walk_tail([5, 10], 0.5, 1 / 32) < 2 / 32
    (0.03125, True)
    """
    places = torch.ones(1, dtype=torch.float64)
    first = 0  # the number of successes that places[0] stands for
    crossed = 0.0
    before = 0
    for size in sizes:
        step = _list_probabilities(size - before, share)
        places = _convolve(places, step.probabilities)
        first += step.low
        boundary = _find_boundary(size, share, level)
        beyond = max(0, boundary - first)
        crossed += float(places[beyond:].sum())
        places = places[:beyond]
        if not len(places) or crossed > stop_above:
            break
        # Places that hardly any walk reaches are left out: they are far below the boundary.
        reached = places.cumsum(0) > 1e-18
        skipped = int((~reached).sum())
        skipped = min(skipped, len(places) - 1)
        places = places[skipped:]
        first += skipped
        before = size
    return min(1.0, crossed)


def _convolve(a: Tensor, b: Tensor) -> Tensor:
    """Return the probabilities of a sum."""
    length = len(a) + len(b) - 1
    size = 1 << (length - 1).bit_length()
    product = torch.fft.rfft(a, size) * torch.fft.rfft(b, size)
    sums: Tensor = torch.fft.irfft(product, size)
    return sums[:length].clamp(min=0)


@dataclass(frozen=True, eq=False)
class _Binomial:
    """The likely numbers of successes, from the lowest on: their probabilities, and those of at least so many."""

    low: int
    probabilities: Tensor
    tails: Tensor


@lru_cache(maxsize=4096)
def _list_probabilities(trials: int, share: float) -> _Binomial:
    """Return the probabilities of the numbers of successes that are likely at all."""
    mean = trials * share
    reach = _WIDTH * math.sqrt(mean * (1 - share)) + 30
    low = max(0, math.floor(mean - reach))
    high = min(trials, math.ceil(mean + reach))
    k = torch.arange(low, high + 1, dtype=torch.float64)
    n = torch.tensor(float(trials), dtype=torch.float64)
    ways = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    probabilities = (ways + k * math.log(share) + (n - k) * math.log1p(-share)).exp()
    return _Binomial(low, probabilities, probabilities.flip(0).cumsum(0).flip(0))


def _find_boundary(trials: int, share: float, level: float) -> int:
    """Return the fewest successes that have a tail of at most ``level``; more than there are trials if none have."""
    binomial = _list_probabilities(trials, share)
    too_likely = binomial.tails > level * (1 + _ROUNDING)  # tails fall, so these come first
    return binomial.low + int(too_likely.sum())
