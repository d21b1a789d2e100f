"""Intervals and tests of means over repeats: against plain loops, scikit-learn and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from metricgrad.comparison import uncertainty
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.uncertainty import Draws, Estimate, estimate_mean, find_limits, resample
from metricgrad.decisions.rules import Argmax, Rule, Threshold

pytestmark = pytest.mark.quick


def drawn(repeats: int, spread: float, replicates: int = 200, seed: int = 0) -> np.ndarray:
    return spread * np.random.default_rng(seed).standard_normal((repeats, replicates))


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_moves_are_those_of_resampled_rows(task: str) -> None:
    rng = np.random.default_rng(1)
    shape, classes = {"binary": ((40,), 2), "multiclass": ((40, 3), 3), "multilabel": ((40, 3), 3)}[task]
    scores = rng.random(shape)
    targets = rng.integers(0, 3 if task == "multiclass" else 2, 40 if task != "multilabel" else shape)
    rules: list[Rule] = [Argmax()] if task == "multiclass" else [Threshold(0.5), Threshold(0.3)]
    goal = Goal(task, classes, "mcc" if task == "multiclass" else "f1", "macro", None)  # type: ignore[arg-type]
    times = Draws(40, None, 0, replicates=7).of_rows(np.arange(40))

    def value(rule: Rule, rows: np.ndarray) -> float:
        decided = np.asarray(rule(scores)).astype(int)[rows]
        if task == "multiclass":
            return float(matthews_corrcoef(targets[rows], decided))
        average = "binary" if task == "binary" else "macro"
        return float(f1_score(targets[rows], decided, average=average, zero_division=0.0))

    for rule, moves in zip(rules, resample(goal, rules, scores, targets, times), strict=True):
        wanted = [value(rule, np.repeat(np.arange(40), row)) - value(rule, np.arange(40)) for row in times.numpy()]
        np.testing.assert_allclose(moves, wanted, atol=1e-6)


def test_a_row_counts_as_often_in_every_repeat_and_a_group_as_a_whole() -> None:
    draws = Draws(30, None, 3)
    np.testing.assert_array_equal(draws.of_rows(np.array([4, 7])), draws.of_rows(np.array([7, 1, 4]))[:, [2, 0]])
    assert (draws.of_rows(np.arange(30)).sum(1) == 30).all()
    group = np.repeat([5, 2, 9], 10)
    together = Draws(30, group, 3).of_rows(np.arange(30)).numpy()
    assert (together.reshape(-1, 3, 10) == together.reshape(-1, 3, 10)[:, :, :1]).all()


def test_many_rows_are_drawn_in_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uncertainty, "MOST_DRAWN_UNITS", 200)
    y = np.random.default_rng(0).random(2000) < 0.3
    times = Draws(2000, None, 0, replicates=1000).of_rows(np.arange(2000)).numpy()
    assert len(np.unique(times, axis=1).T) <= 200
    # The variance of a mean is what it is for single rows.
    times = times.astype(float)
    means = times @ y / times.sum(1)
    assert means.var() == pytest.approx(y.var() / 2000, rel=0.3)


def test_the_mean_and_its_variance_against_the_formula() -> None:
    values, moves, ratio = [0.50, 0.58, 0.53], drawn(3, 0.02), 1 / 3
    by_rows = np.var([np.mean(moves[:, b]) for b in range(200)])
    between = np.mean([np.var(moves[:, b], ddof=1) for b in range(200)])
    seen = np.var(values, ddof=1) - between
    assert seen > 0
    models = (2 * 0.5 * between + 2 * seen) / 4
    variance = by_rows + models * (1 / 3 + ratio)
    found = estimate_mean(values, moves, ratio)
    assert found.value == pytest.approx(np.mean(values))
    assert found.error() ** 2 == pytest.approx(variance)
    assert found.freedom == pytest.approx(4 * (variance / (models * (1 / 3 + ratio))) ** 2)
    assert found.p == pytest.approx(2 * stats.t.sf(found.value / math.sqrt(variance), found.freedom))
    low, high = found.interval(None) or (0.0, 0.0)
    assert (low + high) / 2 == pytest.approx(found.value)
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, found.freedom) * math.sqrt(variance))
    assert found.error(30) < found.error(3) < estimate_mean(values, 2 * moves, ratio).error()


def test_equal_repeats_do_not_make_a_value_certain() -> None:
    low, high = estimate_mean([0.986, 0.986], drawn(2, 0.01), 1 / 3).interval((0.0, 1.0)) or (0.0, 0.0)
    assert 0.9 < low < 0.98
    assert 0.99 < high < 1
    assert estimate_mean([0.3, 0.3], np.zeros((2, 9)), 1 / 3).interval((0.0, 1.0)) is None


@pytest.mark.parametrize("values", [[0.2, 0.9], [0.0, 0.02], [0.99, 1.0], [1.0, 1.0]])
def test_intervals_stay_within_the_range_of_the_metric(values: list[float]) -> None:
    found = estimate_mean(values, drawn(2, 0.1), 1 / 3)
    low, high = found.interval((0.0, 1.0)) or (-1.0, 2.0)
    assert 0 <= low <= found.value <= high + 1e-6 <= 1 + 2e-6
    low, high = found.interval((-1.0, 1.0)) or (-2.0, 2.0)
    assert -1 <= low < high <= 1


def test_p_is_never_zero() -> None:
    assert estimate_mean([1.0, 1.0], np.zeros((2, 9)), 1 / 3).p == pytest.approx(1 / 401)
    assert estimate_mean([0.0, 0.0], np.zeros((2, 9)), 1 / 3).p == 1.0
    assert estimate_mean([1.0, 1.0], drawn(2, 1e-9), 1 / 3).p > 0


def test_ranges_of_metrics() -> None:
    assert find_limits("f0.5") == find_limits("f_2") == (0.0, 1.0)
    assert find_limits("savings(fp=1 fn=10)") is None
    assert find_limits("kappa") == (-1.0, 1.0)
    assert find_limits("own_metrics:skill") == (-1.0, 1.0)
    assert find_limits("own_metrics:odds_ratio") is None
    assert find_limits("not_a_module:half") is None


def test_how_many_repeats_would_prove_a_gain() -> None:
    needed = Estimate(0.02, 0.00002, 0.001, 2, 1e6).count_repeats(claims=1)
    assert needed is not None
    assert 0 <= needed - 0.001 / ((0.02 / stats.norm.isf(0.025)) ** 2 - 0.00002) < 1
    assert (Estimate(0.02, 0.00002, 0.001, 2, 1e6).count_repeats(claims=2) or 0) > needed
    assert Estimate(0.02, 0.001, 0.001, 2, 1e6).count_repeats(claims=1) is None
    assert Estimate(-0.02, 0.0, 0.001, 2, 1e6).count_repeats(claims=1) is None
