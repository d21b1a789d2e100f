"""The leaderboard: the corrected test against the formula written plainly, Holm's method, and every kind of verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from scipy import stats

from metricgrad.app.study.leaderboard import adjust_by_holm, estimate_mean, rank_contenders, write_verdict
from metricgrad.app.study.protocol import Decision, Outcome
from metricgrad.decisions.rules import Threshold

pytestmark = pytest.mark.quick


def outcomes(
    values: Mapping[str, tuple[Sequence[float], Sequence[float]]], feasible: Sequence[str] = ()
) -> list[Outcome]:
    found = []
    for name, (plain, tuned) in values.items():
        for repeat, (a, b) in enumerate(zip(plain, tuned, strict=True)):
            able = not feasible or name in feasible
            decisions = (
                Decision(Threshold(0.5), a, {"auroc": 0.9}, feasible=not feasible),
                Decision(Threshold(0.3), b, {"auroc": 0.9}, feasible=able, met=able and repeat > 0),
            )
            found.append(Outcome(name, repeat, 300, 100, 1.5, *decisions, []))
    return found


def around(value: float, spread: float = 0.004, repeats: int = 5) -> list[float]:
    steps = np.resize([-1, 1, 0.5, -0.5, 0], repeats)
    return list(value + spread * steps)


def test_corrected_is_nadeau_and_bengio() -> None:
    d = [0.03, 0.01, 0.05, 0.02, -0.01]
    mean, sd = np.mean(d), np.std(d, ddof=1)
    error = sd * math.sqrt(1 / 5 + 100 / 300)
    found = estimate_mean(d, 100 / 300)
    half = stats.t.ppf(0.975, 4) * error
    assert found.value == pytest.approx(mean)
    assert found.low == pytest.approx(mean - half)
    assert found.high == pytest.approx(mean + half)
    assert found.p == pytest.approx(2 * (1 - stats.t.cdf(mean / error, 4)))
    plain = stats.ttest_1samp(d, 0)
    assert estimate_mean(d, 0.0).p == pytest.approx(plain.pvalue)


def test_corrected_without_spread_and_without_repeats() -> None:
    assert estimate_mean([0.5, 0.5], 0.3).p == 0.0
    assert estimate_mean([0.0, 0.0], 0.3).p == 1.0
    alone = estimate_mean([0.5], 0.3)
    assert (alone.value, alone.low, alone.p) == (0.5, None, None)


def test_holm_against_its_definition() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = rng.random(6) ** 3
        ordered = np.sort(p)
        steps = np.maximum.accumulate(np.minimum(1, ordered * np.arange(6, 0, -1)))
        expected = steps[np.argsort(np.argsort(p))]
        np.testing.assert_allclose(adjust_by_holm(p.tolist()), expected)


def test_rows_are_compared_with_both_references() -> None:
    rows = rank_contenders(
        outcomes({"cross-entropy": (around(0.5), around(0.6)), "hybrid": (around(0.62), around(0.63))})
    )
    assert [(row["contender"], row["rule"]) for row in rows] == [
        ("hybrid", "tuned"),
        ("hybrid", "fixed"),
        ("cross-entropy", "tuned"),
        ("cross-entropy", "fixed"),
    ]
    assert rows[0]["against"]["cross-entropy at 0.5"]["difference"] == pytest.approx(0.13)
    assert rows[0]["against"]["cross-entropy tuned"]["difference"] == pytest.approx(0.03)
    assert set(rows[2]["against"]) == {"cross-entropy at 0.5"}
    assert rows[0]["seconds"] == 7.5
    assert rows[0]["others"] == {"auroc": pytest.approx(0.9)}


def test_a_real_gain_is_shipped() -> None:
    steady = outcomes({"cross-entropy": (around(0.5), around(0.6)), "hybrid": (around(0.6), around(0.65, 0.005))})
    found = write_verdict(rank_contenders(steady), "f2")
    assert (found["ship"], found["rule"], found["gain_is_real"]) == ("hybrid", "tuned", True)
    assert found["headline"] == "Ship hybrid, tuned rule: its gain over cross-entropy tuned is real."
    assert "+0.050 (95 % interval +0.04" in found["text"]


def test_an_unproven_gain_is_not_shipped() -> None:
    shaky = [0.67, 0.56, 0.63, 0.60, 0.61]
    found = write_verdict(
        rank_contenders(outcomes({"cross-entropy": (around(0.5), around(0.6)), "hybrid": (around(0.6), shaky)})), "f2"
    )
    assert (found["ship"], found["rule"], found["gain_is_real"]) == ("cross-entropy", "tuned", False)
    assert "the best mean, hybrid, tuned rule, is +0.014" in found["text"]
    assert "Tuning its threshold gains +0.100" in found["text"]


def test_many_contenders_raise_the_bar() -> None:
    close = [0.628, 0.618, 0.634, 0.613, 0.622]
    two = {"cross-entropy": (around(0.5), around(0.6)), "hybrid": (around(0.5), close)}
    others = (
        "majority",
        "logistic regression",
        "weighted cross-entropy",
        "soft-set metric",
        "sigmoid metric",
        "xgboost",
    )
    noise = [0.62, 0.55, 0.60, 0.63, 0.58]
    many = two | dict.fromkeys(others, (noise, noise[::-1]))
    assert write_verdict(rank_contenders(outcomes(two)), "f1")["gain_is_real"]
    assert not write_verdict(rank_contenders(outcomes(many)), "f1")["gain_is_real"]


def test_nothing_beats_cross_entropy() -> None:
    found = write_verdict(
        rank_contenders(outcomes({"cross-entropy": (around(0.5), around(0.7)), "hybrid": (around(0.6), around(0.65))})),
        "f1",
    )
    assert found["headline"].startswith("Ship cross-entropy, tuned rule: nothing here beats it (f1 0.700")
    assert (
        found["text"] == "Next is hybrid, tuned rule with 0.650 (0.643 to 0.657)." or "Next is hybrid" in found["text"]
    )
    assert not found["gain_is_real"]


def test_trees_that_win_do_not_hide_what_the_loss_is_worth() -> None:
    three = {
        "cross-entropy": (around(0.5), around(0.6)),
        "hybrid": (around(0.6), around(0.602, 0.006)),
        "xgboost": (around(0.6), around(0.8)),
    }
    found = write_verdict(rank_contenders(outcomes(three)), "f1")
    assert found["ship"] == "xgboost"
    assert "Among networks, training on the metric (hybrid, tuned rule) gains +0.002" in found["text"]
    assert found["text"].endswith("not proven.")


def test_who_cannot_meet_the_constraint_comes_last_and_is_not_shipped() -> None:
    both = {"cross-entropy": (around(0.9), around(0.9)), "hybrid": (around(0.9), around(0.4))}
    rows = rank_contenders(outcomes(both, feasible=["hybrid"]))
    assert next((row["contender"], row["rule"], row["feasible"]) for row in rows) == ("hybrid", "tuned", True)
    assert rows[0]["held"] == 4
    found = write_verdict(rows, "recall")
    assert found["ship"] == "hybrid"
    assert "cross-entropy cannot meet the constraint" in found["headline"]


def test_of_equals_the_simpler_comes_first() -> None:
    same = around(0.5)
    rows = rank_contenders(outcomes({"hybrid": (same, same), "cross-entropy": (same, same)}))
    assert [(row["contender"], row["rule"]) for row in rows][:2] == [
        ("cross-entropy", "fixed"),
        ("cross-entropy", "tuned"),
    ]
