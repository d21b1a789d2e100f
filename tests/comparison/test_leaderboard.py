"""The leaderboard and the verdict: what is shipped, what is proven, and how it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from metricgrad.comparison.errors import UserError
from metricgrad.comparison.leaderboard import LeaderboardRow, rank_contenders
from metricgrad.comparison.outcomes import RULE_KINDS, Decision, Outcome
from metricgrad.comparison.uncertainty import adjust_by_holm, estimate_mean
from metricgrad.comparison.verdict import Circumstances, write_verdict
from metricgrad.decisions.rules import Threshold

pytestmark = pytest.mark.quick

F1 = Circumstances("F1")


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


def ranked(
    values: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    spread: float = 0.004,
    feasible: Sequence[str] = (),
    metric: str = "f1",
) -> list[LeaderboardRow]:
    """Return the leaderboard; ``spread``: the standard error that test rows alone give to a value of one repeat."""
    rng, made = np.random.default_rng(0), outcomes(values, feasible)
    repeats = len(next(iter(values.values()))[0])
    moves = {(name, rule): spread * rng.standard_normal((repeats, 400)) for name in values for rule in RULE_KINDS}
    return rank_contenders(made, moves, metric)


def around(value: float, spread: float = 0.004, repeats: int = 5) -> list[float]:
    steps = np.resize([-1, 1, 0.5, -0.5, 0], repeats)
    return list(value + spread * steps)


def test_holm_against_its_definition() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = rng.random(6) ** 3
        ordered = np.sort(p)
        steps = np.maximum.accumulate(np.minimum(1, ordered * np.arange(6, 0, -1)))
        expected = steps[np.argsort(np.argsort(p))]
        np.testing.assert_allclose(adjust_by_holm(p.tolist()), expected)


def test_rows_are_compared_with_both_references() -> None:
    rows = ranked({"cross-entropy": (around(0.5), around(0.6)), "hybrid": (around(0.62), around(0.63))})
    assert [(row["contender"], row["rule"]) for row in rows] == [
        ("hybrid", "tuned"),
        ("hybrid", "fixed"),
        ("cross-entropy", "tuned"),
        ("cross-entropy", "fixed"),
    ]
    assert rows[0]["against"]["cross-entropy fixed"]["difference"] == pytest.approx(0.13)
    gain = rows[0]["against"]["cross-entropy tuned"]
    assert gain["difference"] == pytest.approx(0.03)
    assert set(rows[2]["against"]) == {"cross-entropy fixed"}
    assert rows[0]["seconds"] == 7.5
    assert rows[0]["others"] == {"auroc": pytest.approx(0.9)}


def test_a_proven_gain() -> None:
    found = write_verdict(
        ranked({"cross-entropy": (around(0.5), around(0.6)), "hybrid": (around(0.6), around(0.65, 0.005))}), F1
    )
    assert (found["ship"], found["rule"], found["gain_is_real"]) == ("hybrid", "tuned", True)
    assert found["headline"] == "Ship hybrid, tuned rule: its gain over cross-entropy tuned is proven."
    assert found["text"].startswith("F1: 0.650 (95 % interval 0.6")
    assert "Over cross-entropy tuned: +0.050 (+0.0" in found["text"]
    assert "proven (p < 0.001)" in found["text"]
    assert all(claim["proven"] and claim["repeats_needed"] is None for claim in found["claims"].values())


def test_two_repeats_and_many_test_rows_prove_a_large_gain() -> None:
    # The corrected t-test over two numbers could not: p = 0.2.
    two = {"cross-entropy": ([0.40, 0.41], [0.500, 0.505]), "xgboost": ([0.45, 0.46], [0.545, 0.541])}
    found = write_verdict(ranked(two, spread=0.003), F1)
    assert (found["ship"], found["gain_is_real"]) == ("xgboost", True)


def test_the_best_mean_is_shipped_even_if_its_gain_is_not_proven() -> None:
    shaky = [0.67, 0.56, 0.63, 0.60, 0.61]
    rows = ranked({"cross-entropy": (around(0.5), around(0.6)), "hybrid": (around(0.6), shaky)})
    found = write_verdict(rows, F1)
    assert (found["ship"], found["rule"], found["gain_is_real"]) == ("hybrid", "tuned", False)
    assert found["headline"] == (
        "Ship hybrid, tuned rule: the best value here, but its gain over cross-entropy tuned is not proven."
    )
    assert "Over cross-entropy tuned: +0.014" in found["text"]
    claim = found["claims"]["cross-entropy tuned"]
    assert not claim["proven"]
    assert found["claims"]["cross-entropy fixed"]["proven"]


def test_how_many_repeats_would_settle_it() -> None:
    close = {"cross-entropy": (around(0.5), around(0.6)), "hybrid": (around(0.5), around(0.606))}
    found = write_verdict(ranked(close), F1)
    needed = found["claims"]["cross-entropy tuned"]["repeats_needed"]
    assert needed is not None
    assert needed > 5
    assert f"about {needed} repeats would settle it (--resume RUN --repeats {needed})" in found["text"]
    # More repeats cannot be added to a run that goes forward in time.
    assert "repeats" not in write_verdict(ranked(close), Circumstances("F1", extensible=False))["text"]
    hopeless = {"cross-entropy": (around(0.5), around(0.6)), "hybrid": (around(0.5), around(0.6001))}
    assert "it takes more rows" in write_verdict(ranked(hopeless), F1)["text"]


def test_a_remedy_of_both_gains_is_noted_once() -> None:
    level = {"cross-entropy": (around(0.6), around(0.6)), "hybrid": (around(0.5), around(0.6001))}
    notes = write_verdict(ranked(level), F1)["notes"]
    remedy = "it takes more rows, as more repeats would hardly prove it."
    assert notes[0] == f"The gain over cross-entropy tuned and cross-entropy fixed is not proven: {remedy}"
    assert sum("it takes more rows" in note for note in notes) == 1


CLOSE = [0.618, 0.608, 0.624, 0.603, 0.612]


def test_gains_are_adjusted_for_the_two_references_and_for_nothing_else() -> None:
    two = {"cross-entropy": (around(0.5), around(0.6)), "hybrid": (around(0.5), CLOSE)}
    others = ("logistic regression", "weighted cross-entropy", "soft-set metric", "sigmoid metric", "xgboost")
    many = two | dict.fromkeys(others, (around(0.601, 0.002), around(0.602, 0.002)))
    rng, spread = np.random.default_rng(0), 0.006
    moves = {(name, rule): spread * rng.standard_normal((5, 400)) for name in many for rule in RULE_KINDS}
    best = rank_contenders(outcomes(many), moves, "f1")[0]
    assert (best["contender"], best["rule"]) == ("hybrid", "tuned")
    plain = []
    for folds, rule in zip(two["cross-entropy"], RULE_KINDS, strict=True):
        apart = moves["hybrid", "tuned"] - moves["cross-entropy", rule]
        plain.append(estimate_mean([a - b for a, b in zip(CLOSE, folds, strict=True)], apart, 1 / 3).p)
    assert [gain["p"] for gain in best["against"].values()] == pytest.approx(adjust_by_holm(plain))


@pytest.mark.parametrize("spread", [0.003, 0.006, 0.009, 0.012, 0.02])
def test_an_interval_excludes_zero_exactly_if_its_p_value_is_small(spread: float) -> None:
    rng = np.random.default_rng(1)
    found = []
    for _ in range(20):
        values = {
            name: (list(0.6 + 0.02 * rng.standard_normal(3)), list(0.62 + 0.02 * rng.standard_normal(3)))
            for name in ("cross-entropy", "hybrid", "xgboost")
        }
        for row in ranked(values, spread):
            for gain in row["against"].values():
                assert gain["p"] is not None
                assert gain["low"] is not None
                assert gain["high"] is not None
                assert (gain["low"] > 0 or gain["high"] < 0) == (gain["p"] < 0.05)
                found.append(gain["p"] < 0.05)
    assert any(found) or spread > 0.01
    assert not all(found)


@pytest.mark.parametrize(("metric", "largest"), [("f1", 1), ("mcc", 2)])
def test_no_interval_leaves_the_differences_that_are_possible(metric: str, largest: float) -> None:
    two = {"cross-entropy": ([0.1, 0.2], [0.1, 0.2]), "hybrid": ([0.9, 0.8], [0.9, 0.8])}
    for gain in ranked(two, spread=5.0, metric=metric)[0]["against"].values():
        assert (gain["low"], gain["high"]) == (-largest, largest)


def test_a_gain_that_one_comparison_would_prove_has_an_interval_around_zero() -> None:
    two = {"cross-entropy": (around(0.6), around(0.6)), "hybrid": (around(0.5), CLOSE)}
    rows = ranked(two, 0.0075)
    text = write_verdict(rows, F1)["text"]
    for name, gain in rows[0]["against"].items():
        assert gain["low"] is not None
        assert gain["high"] is not None
        assert 0.05 < (gain["p"] or 0) < 0.1
        assert gain["low"] < 0
        said = (
            f"{gain['difference']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f}), not proven (p = {gain['p']:.3f})"
        )
        assert f"Over {name}: {said}" in text


def test_the_verdict_has_the_p_values_and_intervals_of_the_leaderboard() -> None:
    for feasible in ((), ("cross-entropy", "hybrid")):  # with a constraint, the fixed rules cannot be shipped
        two = {"cross-entropy": (around(0.58), around(0.6)), "hybrid": (around(0.5), CLOSE)}
        rows = ranked(two, 0.006, feasible)
        claims = write_verdict(rows, F1)["claims"]
        assert list(claims) == (["cross-entropy tuned"] if feasible else ["cross-entropy fixed", "cross-entropy tuned"])
        for name, claim in claims.items():
            gain = rows[0]["against"][name]
            assert (claim["p"], claim["low"], claim["high"]) == (gain["p"], gain["low"], gain["high"])


def test_a_certain_loss_is_not_called_proven() -> None:
    three = {
        "cross-entropy": (around(0.5), around(0.7)),
        "hybrid": (around(0.4), around(0.6)),
        "xgboost": (around(0.7), around(0.8)),
    }
    rows = ranked(three, 0.002)
    found = write_verdict(rows, F1, "hybrid")
    claim = found["claims"]["cross-entropy tuned"]
    assert claim["difference"] < 0
    assert claim["p"] < 0.001
    assert (claim["proven"], claim["repeats_needed"], found["gain_is_real"]) == (False, None, False)
    assert "Over cross-entropy tuned: -0.100 (-0.1" in found["text"]
    assert "), no gain. Over cross-entropy fixed: +0.100" in found["text"]
    # Nor what training on the metric loses, where trees are shipped.
    text = write_verdict(rows, F1)["text"]
    assert "(hybrid, tuned rule) gains -0.100" in text
    assert text.endswith("over cross-entropy tuned: not proven.")


def test_nothing_beats_cross_entropy() -> None:
    found = write_verdict(
        ranked({"cross-entropy": (around(0.5), around(0.7)), "hybrid": (around(0.6), around(0.65))}), F1
    )
    assert found["headline"] == "Ship cross-entropy, tuned rule: nothing here beats it."
    assert "Next is hybrid, tuned rule with 0.650." in found["text"]
    assert "Over cross-entropy fixed: +0.200" in found["text"]
    assert not found["gain_is_real"]


def test_trees_that_win_do_not_hide_what_the_loss_is_worth() -> None:
    three = {
        "cross-entropy": (around(0.5), around(0.6)),
        "hybrid": (around(0.6), around(0.602, 0.006)),
        "xgboost": (around(0.6), around(0.8)),
    }
    found = write_verdict(ranked(three), F1)
    assert found["ship"] == "xgboost"
    assert "Among networks, training on the metric (hybrid, tuned rule) gains +0.002" in found["text"]
    assert found["text"].endswith("not proven.")


def test_who_cannot_meet_the_constraint_comes_last_and_is_not_shipped() -> None:
    both = {"cross-entropy": (around(0.9), around(0.9)), "hybrid": (around(0.9), around(0.4))}
    rows = ranked(both, feasible=["hybrid"])
    assert next((row["contender"], row["rule"], row["feasible"]) for row in rows) == ("hybrid", "tuned", True)
    assert rows[0]["held"] == 4
    about = Circumstances("recall", "precision>=0.9")
    found = write_verdict(rows, about)
    assert found["ship"] == "hybrid"
    assert "cross-entropy cannot meet the constraint" in found["headline"]
    assert "The constraint precision>=0.9 was met on the test rows in 4 of 5 repeats." in found["text"]
    with pytest.raises(UserError, match="--ship: cross-entropy, tuned rule cannot meet"):
        write_verdict(rows, about, "cross-entropy")


def test_a_budget_that_cut_repeats_is_in_the_headline() -> None:
    rows = ranked({"cross-entropy": (around(0.5), around(0.7)), "hybrid": (around(0.6), around(0.65))})
    assert "(The budget allowed 5 of 8 repeats.)" in write_verdict(rows, Circumstances("F1", planned=8))["headline"]
    assert "budget" not in write_verdict(rows, Circumstances("F1", planned=5))["headline"]


def test_the_user_may_overrule() -> None:
    rows = ranked({"cross-entropy": (around(0.5), around(0.6)), "hybrid": (around(0.62), around(0.65))})
    for ship, rule in (("cross-entropy", "tuned"), ("cross-entropy, fixed", "fixed"), ("cross-entropy,tuned", "tuned")):
        found = write_verdict(rows, F1, ship)
        assert (found["ship"], found["rule"], found["chosen"]) == ("cross-entropy", rule, True)
        assert "chosen by --ship; the best value here is that of hybrid, tuned rule" in found["headline"]
    assert not write_verdict(rows, F1, "hybrid")["chosen"]
    with pytest.raises(
        UserError, match="--ship: expected a contender of this run, got 'hibrid'; did you mean 'hybrid'"
    ):
        write_verdict(rows, F1, "hibrid")


def test_of_equals_the_simpler_comes_first() -> None:
    same = around(0.5)
    rows = ranked({"hybrid": (same, same), "cross-entropy": (same, same)})
    assert [(row["contender"], row["rule"]) for row in rows][:2] == [
        ("cross-entropy", "fixed"),
        ("cross-entropy", "tuned"),
    ]
