"""Binomial tails, limits and walks, against scipy and against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from metricgrad.decisions.binomial import find_most_errors, find_tail, find_upper_limit, find_walk_tail

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("trials", [1, 7, 100, 20_000])
@pytest.mark.parametrize("share", [0.001, 0.2, 0.5, 0.95])
def test_tails_are_those_of_scipy(trials: int, share: float) -> None:
    for successes in {0, 1, trials // 2, round(trials * share), trials}:
        expected = stats.binom.sf(successes - 1, trials, share)
        assert find_tail(successes, trials, share) == pytest.approx(expected, rel=1e-8, abs=1e-300)
    assert find_tail(trials + 1, trials, share) == 0


def test_tails_at_the_ends_of_the_shares() -> None:
    assert find_tail(1, 3, 0.0) == 0
    assert find_tail(3, 3, 1.0) == 1


@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_the_most_errors_are_the_last_whose_probability_is_at_most_alpha(alpha: float) -> None:
    for trials, share in itertools.product((0, 10, 59, 300), (0.05, 0.5, 0.9)):
        most = find_most_errors(trials, share, alpha)
        expected = max((k for k in range(trials) if stats.binom.cdf(k, trials, share) <= alpha), default=-1)
        assert most == expected
    assert find_most_errors(5, 1.0, alpha) == 5


def test_upper_limits_are_those_of_clopper_and_pearson() -> None:
    for errors, trials in ((0, 1), (0, 59), (3, 10), (40, 1000)):
        expected = stats.beta.ppf(0.98, errors + 1, trials - errors)
        assert find_upper_limit(errors, trials, 0.02) == pytest.approx(expected, rel=1e-9)
    assert find_upper_limit(4, 4, 0.02) == 1


@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.parametrize("level", [0.3, 0.05, 0.001])
def test_the_chance_of_a_walk_is_that_of_all_its_paths(share: float, level: float) -> None:
    sizes = [2, 3, 7, 9]
    chance = 0.0
    for path in itertools.product((0, 1), repeat=sizes[-1]):
        tails = [stats.binom.sf(sum(path[:size]) - 1, size, share) for size in sizes]
        if min(tails) <= level * (1 + 1e-9):
            hits = sum(path)
            chance += share**hits * (1 - share) ** (len(path) - hits)
    assert find_walk_tail(sizes, share, level) == pytest.approx(chance, abs=1e-12)


def test_a_walk_of_many_sizes_is_below_the_sum_over_sizes_and_above_each() -> None:
    sizes = list(range(20, 2000, 60))
    chance = find_walk_tail(sizes, 0.4, 0.01)
    assert 0.01 < chance < 0.25 < 0.01 * len(sizes)
    random = np.random.default_rng(0)
    hits = np.cumsum(random.random((4000, sizes[-1])) < 0.4, axis=1)[:, np.array(sizes) - 1]
    simulated = (stats.binom.sf(hits - 1, sizes, 0.4) <= 0.01).any(1).mean()
    assert chance == pytest.approx(simulated, abs=4 * np.sqrt(chance / 4000))


def test_a_walk_stops_where_its_chance_is_above_what_matters() -> None:
    sizes = [10, 20, 40, 80]
    chance = find_walk_tail(sizes, 0.5, 0.2)
    assert 0.05 < find_walk_tail(sizes, 0.5, 0.2, stop_above=0.05) <= chance
