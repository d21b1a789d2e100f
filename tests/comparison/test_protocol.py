"""The protocol: one fit, two rules, tuned on held-out rows; every contender on every task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, fbeta_score, precision_score

from metricgrad.comparison import demo, protocol, unit_runner
from metricgrad.comparison.contenders import CONTENDERS, select_contenders
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.outcomes import Outcome
from metricgrad.comparison.protocol import Finished
from metricgrad.comparison.report.section_inputs import Table
from metricgrad.comparison.section_details import details, predict
from metricgrad.comparison.splits import Split, make_splits
from metricgrad.core.metrics.constraints import parse
from metricgrad.decisions.problem import InfeasibleError
from metricgrad.decisions.rules import Argmax, Threshold
from metricgrad.decisions.threshold_tuning import tune_threshold
from metricgrad.estimators.metric_classifier import MetricClassifier

TINY = Effort(epochs=3, patience=3, rounds=5)


def data(task: str, rows: int = 500) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    if task == "multilabel":
        y = (rng.random((rows, 3)) < [0.5, 0.3, 0.2]).astype(np.int64)
        x = rng.normal(size=(rows, 3)) + y
    else:
        y = (
            rng.choice(3, rows, p=[0.5, 0.3, 0.2])
            if task == "multiclass"
            else (rng.random(rows) < 0.3).astype(np.int64)
        )
        x = rng.normal(size=(rows, 3)) + y[:, None]
    return x.astype(np.float32), y


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_every_contender_is_evaluated_saved_and_loaded(task: Any, tmp_path: Path) -> None:
    x, y = data(task)
    goal = Goal(task, 2 if task == "binary" else 3, "f1", subject_to=None if task == "multiclass" else "recall>=0.05")
    split = make_splits(y, task, 2, 0)[0]
    names, _ = select_contenders(goal)
    assert {"majority", "cross-entropy", "hybrid", "xgboost"} <= set(names)
    for name in names:
        scorer, rules, _ = protocol.fit_contender(name, goal, TINY, x, y, split, seed=0)
        scores = scorer.scores(x)
        assert scores.dtype == np.float64
        assert scores.shape == ((len(y),) if task == "binary" else (len(y), 3))
        assert ((scores >= 0) & (scores <= 1)).all()
        assert rules["fixed"].rule == (Argmax() if task == "multiclass" else Threshold(0.5))
        again = load_scorer(type(scorer).__name__, scorer.files())
        np.testing.assert_array_equal(again.scores(x), scores)


@pytest.mark.parametrize("rows", [600, 20_000])
def test_trees_of_both_losses_grow_alike(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    xgboost = pytest.importorskip("xgboost")
    x, y = data("binary", rows)
    goal, split, train, seen = Goal("binary", 2, "f1"), make_splits(y, "binary", 2, 0)[0], xgboost.train, []

    def watched(parameters: Any, matrix: Any, rounds: int, **more: Any) -> Any:
        keys = ("learning_rate", "max_depth", "max_bin", "nthread")
        seen.append(({key: parameters.get(key) for key in keys}, matrix.num_row(), rounds))
        return train(parameters, matrix, rounds, **more)

    monkeypatch.setattr(xgboost, "train", watched)
    for name in ("xgboost", "metric boosting"):
        outcome, *_ = protocol.run_contender(name, goal, [], TINY, x, y, split, 0, 0)
        assert [row["epoch"] for row in outcome.history] == [0, 1, 2, 3, 4]
        losses = [row["loss"] for row in outcome.history]
        assert losses == sorted(losses, reverse=True)
    assert seen[0] == seen[1]
    assert seen[0][0]["max_bin"] == (64 if rows == 600 else None)
    assert seen[0][1:] == (len(split.fit), 5)


def test_both_rules_come_from_one_fit_and_match_scikit_learn() -> None:
    x, y = data("binary", 1000)
    goal, split = Goal("binary", 2, "f2"), make_splits(y, "binary", 2, 0)[1]
    outcome, scores, *_ = protocol.run_contender("cross-entropy", goal, ["precision", "auroc"], TINY, x, y, split, 0, 1)
    truth = y[split.test]
    assert outcome.fixed.value == pytest.approx(fbeta_score(truth, scores >= 0.5, beta=2))
    cut = outcome.tuned.rule.threshold  # type: ignore[attr-defined]
    assert cut != 0.5
    assert outcome.tuned.value == pytest.approx(fbeta_score(truth, scores >= cut, beta=2))
    assert outcome.tuned.others["precision"] == pytest.approx(precision_score(truth, scores >= cut))
    assert outcome.tuned.others["auroc"] == outcome.fixed.others["auroc"]
    assert (outcome.train_rows, outcome.test_rows) == (len(split.train), len(split.test))


def test_the_rule_is_tuned_on_the_held_out_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data("binary", 1000)
    goal, split = Goal("binary", 2, "f1"), make_splits(y, "binary", 2, 0)[0]
    scorer, rules, _ = protocol.fit_contender("logistic regression", goal, TINY, x, y, split, seed=0)
    expected = tune_threshold("f1", scorer.scores(x[split.held_out]), y[split.held_out])
    assert rules["tuned"].rule == expected.rule


def test_test_rows_change_nothing_in_training() -> None:
    x, y = data("binary", 600)
    goal, split = Goal("binary", 2, "f1"), make_splits(y, "binary", 2, 0)[0]
    other, turned = x.copy(), y.copy()
    other[split.test], turned[split.test] = 0, 1 - y[split.test]
    for name in ("majority", "hybrid", "xgboost"):
        one, one_rules, _ = protocol.fit_contender(name, goal, TINY, x, y, split, seed=0)
        two, two_rules, _ = protocol.fit_contender(name, goal, TINY, other, turned, split, seed=0)
        np.testing.assert_array_equal(one.scores(x), two.scores(x))
        assert one_rules == two_rules


def test_labels_of_few_held_out_positives_share_a_threshold() -> None:
    goal = Goal("multilabel", 3, "f1")
    rng = np.random.default_rng(0)
    targets = (rng.random((300, 3)) < [0.4, 0.1, 0.1]).astype(int)
    scores = rng.random((300, 3)) + 0.3 * targets
    tuning = protocol.tune_rule(goal, scores, targets)
    assert tuning.origins == ["own", "pooled", "pooled"]
    assert protocol.make_rules(goal, scores, targets)["tuned"].rule == tuning.rule


def test_a_constraint_is_met_where_tuned_and_reported_where_evaluated() -> None:
    x, y = data("binary", 2000)
    goal, split = Goal("binary", 2, "recall", subject_to="precision>=0.6"), make_splits(y, "binary", 2, 0)[0]
    scorer, rules, _ = protocol.fit_contender("logistic regression", goal, Effort(20, 5, 5), x, y, split, 0)
    held_out = scorer.scores(x[split.held_out])
    assert rules["tuned"].feasible
    assert precision_score(y[split.held_out], rules["tuned"].rule(held_out)) >= 0.6
    outcome, scores, *_ = protocol.run_contender("logistic regression", goal, [], Effort(20, 5, 5), x, y, split, 0, 0)
    assert outcome.tuned.met == (precision_score(y[split.test], outcome.tuned.rule(scores)) >= 0.6)


def test_what_cannot_be_met_is_marked_and_decides_for_nothing() -> None:
    scores, y = np.array([0.9, 0.8, 0.7, 0.1] * 10), np.array([0, 0, 1, 0] * 10)
    goal = Goal("binary", 2, "recall", subject_to="precision>=0.9")
    with pytest.raises(InfeasibleError):
        protocol.tune_rule(goal, scores, y)
    found = protocol.make_rules(goal, scores, y)
    assert not found["fixed"].feasible
    assert not found["tuned"].feasible
    assert not found["tuned"].rule(scores).any()


def test_outcomes_survive_json() -> None:
    x, y = data("multilabel")
    split = make_splits(y, "multilabel", 2, 0)[0]
    outcome, *_ = protocol.run_contender("hybrid", Goal("multilabel", 3, "f1"), ["auroc"], TINY, x, y, split, 0, 0)
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert outcome.history


@pytest.mark.parametrize(
    ("name", "subject_to", "watched"),
    [
        ("hybrid", None, True),
        ("soft-set metric", None, True),
        ("soft-set metric", "recall>=0.05", False),
        ("recipe", None, False),
        ("xgboost", None, False),
        ("metric boosting", None, False),
    ],
)
def test_learning_curves_show_the_metric_where_training_watched_it(
    name: str, subject_to: str | None, watched: bool
) -> None:
    x, y = data("binary")
    goal, split = Goal("binary", 2, "f1", subject_to=subject_to), make_splits(y, "binary", 2, 0)[0]
    outcome, scores, *_ = protocol.run_contender(name, goal, [], TINY, x, y, split, 0, 0)
    table = Table(pd.DataFrame(x), y, ("no", "yes"))
    history = details(predict(goal, table, [outcome], [scores], [split.test], "tuned"))["history"]
    assert [row["epoch"] for row in history] == list(range(1, len(history) + 1))
    assert all(row["loss"] > 0 for row in history)
    assert all((row["soft"] is None) == (name != "soft-set metric") for row in history)
    assert [row["hard"] is not None for row in history] == [watched] * len(history) != []
    assert all(0 < row["hard"] <= 1 for row in history if row["hard"] is not None)


def test_the_recipe_is_the_default_but_for_its_budget() -> None:
    x, y = data("binary")
    scorer: Any = protocol.fit_contender(
        "recipe", Goal("binary", 2, "f1"), TINY, x, y, make_splits(y, "binary", 2, 0)[0], seed=0
    )[0]
    default = MetricClassifier("f1")
    assert len(scorer.model.networks_) == default.cv
    budget = dict.fromkeys(("cv", "epochs", "patience", "batch_size", "random_state"))
    assert scorer.model.get_params() | budget == default.get_params() | budget


@pytest.mark.parametrize(
    ("goal", "also", "message"),
    [
        (Goal("binary", 2, "auroc"), [], "--metric: auroc evaluates a ranking, not decisions"),
        (Goal("binary", 2, "f_one"), [], "--metric: unknown name 'f_one'"),
        (Goal("binary", 2, "f1"), ["mmc"], "--metric: unknown name 'mmc'; did you mean 'mcc'?"),
        (Goal("binary", 2, "f1", "mean"), [], "average: expected one of"),  # type: ignore[arg-type]
        (Goal("binary", 2, "f1", subject_to="precision"), [], "--subject-to: expected 'metric>=number'"),
        (Goal("multiclass", 3, "f1", subject_to="precision>=0.9"), [], "--subject-to: expected task='binary'"),
    ],
)
def test_goals_that_make_no_sense_are_refused(goal: Goal, also: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        protocol.check_goal(goal, also)
    assert str(caught.value).startswith(message)
    assert caught.value.code == 2


def test_contenders_are_selected_by_the_goal() -> None:
    plain = Goal("binary", 2, "f1")
    names, _ = select_contenders(plain)
    assert "constrained metric" not in names
    assert "maximal figure of merit" not in names
    assert "constrained metric" in select_contenders(Goal("binary", 2, "recall", subject_to="precision>=0.9"))[0]
    assert select_contenders(plain, ["hybrid"]) == (["cross-entropy", "hybrid"], [])
    asked = select_contenders(plain, ["maximal figure of merit"])
    assert asked == (["cross-entropy"], [("maximal figure of merit", "not for binary targets")])


def test_what_is_not_installed_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert CONTENDERS["xgboost"].obstacle(Goal("binary", 2, "f1")) == "needs xgboost, which is not installed"


def test_batches_grow_with_the_rows_and_hold_rare_classes() -> None:
    assert choose_batch_size(np.repeat([0, 1], [150, 150])) == 32
    assert choose_batch_size(np.repeat([0, 1], [20_000, 10_000])) == 256
    assert choose_batch_size(np.repeat([0, 1], [29_800, 200])) == 512
    assert choose_batch_size(np.repeat([0, 1], [900_000, 100_000])) == 4096


def test_effort_is_bounded() -> None:
    assert Effort.of(300).epochs == 200
    assert Effort.of(30_000).epochs == 60
    assert Effort.of(10_000_000).epochs == 8
    assert Effort.of(300, quick=True).epochs < Effort.of(300).epochs


def test_f1_of_multiclass_is_the_macro_average() -> None:
    x, y = data("multiclass", 600)
    split: Split = make_splits(y, "multiclass", 2, 0)[0]
    outcome, scores, *_ = protocol.run_contender(
        "logistic regression", Goal("multiclass", 3, "f1"), [], TINY, x, y, split, 0, 0
    )
    assert outcome.fixed.value == pytest.approx(f1_score(y[split.test], scores.argmax(1), average="macro"))


def test_a_row_of_the_table_says_where_a_contender_takes_part() -> None:
    """The demo's choice is written into its runs: another one could not go on with them."""
    assert [name for name, row in CONTENDERS.items() if row.quick] == [
        *("majority", "logistic regression", "cross-entropy", "hybrid", "xgboost", "ensemble")
    ]
    assert ",".join(demo.make_options().only) == (
        "majority,weighted cross-entropy,soft-set metric,sigmoid metric,hybrid,recipe,xgboost,metric boosting,ensemble"
    )
    soft = [name for name, row in CONTENDERS.items() if row.shows_soft_metric]
    assert soft == ["soft-set metric", "sigmoid metric", "maximal figure of merit"]
    assert all(CONTENDERS[name].on_metric for name in soft)


@pytest.mark.parametrize("sense", [">=", "<="])
def test_a_value_that_is_not_defined_is_not_the_worst_of_a_constraint(sense: str) -> None:
    (constraint,) = parse(f"precision{sense}0.5")
    values = [float("nan"), 0.4, 0.8, float("nan")]
    found = protocol.evaluate_constraint(constraint, values)
    assert found.value == (0.4 if sense == ">=" else 0.8)
    assert not found.met
    # Nor does it break a constraint that all others meet.
    found = protocol.evaluate_constraint(constraint, [float("nan"), 0.6 if sense == ">=" else 0.3])
    assert found.value == (0.6 if sense == ">=" else 0.3)
    assert found.met


def test_every_repeat_has_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []
    monkeypatch.setattr(protocol, "run_contender", lambda *given: seeds.append((given[-2], given[-1])))
    units = [(seed, repeat) for seed in (0, 1) for repeat in range(4)]
    for seed, repeat in units:
        goal, nothing = Goal("binary", 2, "f1"), np.zeros(0)
        unit_runner.run_unit(unit_runner.Unit("hybrid", repeat, goal, (), TINY, seed, nothing, nothing, None))
    assert [repeat for _, repeat in seeds] == [repeat for _, repeat in units]
    assert len({seed for seed, _ in seeds}) == len(units)
    assert [seed for seed, _ in seeds] == [unit_runner.make_seed(seed, repeat) for seed, repeat in units]


def test_repeats_of_the_same_rows_are_fitted_differently() -> None:
    x, y = data("binary", 300)
    split, goal = make_splits(y, "binary", 2, 0)[0], Goal("binary", 2, "f1")
    units = [unit_runner.Unit("cross-entropy", repeat, goal, (), TINY, 0, x, y, split) for repeat in (0, 1, 1)]
    one, two, again = (unit_runner.run_unit(unit) for unit in units)
    assert isinstance(one, Finished)
    assert isinstance(two, Finished)
    assert isinstance(again, Finished)
    assert not np.array_equal(one.scores, two.scores)
    np.testing.assert_array_equal(two.scores, again.scores)
