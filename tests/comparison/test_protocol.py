"""The protocol: rules tuned on scores of rows that no model saw, and evaluated on others."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score, fbeta_score, precision_score

from metricgrad.comparison import protocol
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.outcomes import Decision, Outcome
from metricgrad.core.batch import Task
from metricgrad.core.metrics.constraints import parse
from metricgrad.decisions.problem import InfeasibleError
from metricgrad.decisions.rules import Offsets, Threshold


def draw_scores(rows: int = 1000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    targets = (rng.random(rows) < 0.3).astype(int)
    return 1 / (1 + np.exp(1.5 - 1.5 * targets - rng.normal(size=rows))), targets


def test_both_rules_are_evaluated_as_scikit_learn_does() -> None:
    goal = Goal("binary", 2, "f2")
    rules = protocol.make_rules(goal, *draw_scores(seed=0))
    scores, targets = draw_scores(seed=1)
    fixed, tuned = protocol.evaluate_rules(goal, ["precision", "auroc"], rules, scores, targets)
    assert fixed.rule == Threshold(0.5)
    assert fixed.value == pytest.approx(fbeta_score(targets, scores >= 0.5, beta=2))
    threshold = tuned.rule.threshold  # type: ignore[attr-defined]
    assert threshold != 0.5
    assert tuned.value == pytest.approx(fbeta_score(targets, scores >= threshold, beta=2))
    assert tuned.others["precision"] == pytest.approx(precision_score(targets, scores >= threshold))
    assert tuned.others["auroc"] == fixed.others["auroc"]


def test_f1_of_several_classes_is_the_macro_average() -> None:
    rng = np.random.default_rng(0)
    targets, scores = rng.integers(0, 3, 300), rng.dirichlet(np.ones(3), 300)
    goal = Goal("multiclass", 3, "f1")
    rules = protocol.make_rules(goal, scores, targets)
    fixed, tuned = protocol.evaluate_rules(goal, [], rules, scores, targets)
    assert fixed.value == pytest.approx(f1_score(targets, scores.argmax(1), average="macro"))
    assert isinstance(tuned.rule, Offsets)
    assert tuned.value >= fixed.value


def test_a_constraint_is_met_where_tuned_and_reported_where_evaluated() -> None:
    goal = Goal("binary", 2, "recall", subject_to="precision>=0.6")
    scores, targets = draw_scores(seed=0)
    rules = protocol.make_rules(goal, scores, targets)
    assert rules["tuned"].feasible
    assert precision_score(targets, rules["tuned"].rule(scores)) >= 0.6
    answers = set()
    for seed in range(1, 30):
        scores, targets = draw_scores(200, seed)
        _, tuned = protocol.evaluate_rules(goal, [], rules, scores, targets)
        assert tuned.met == (precision_score(targets, tuned.rule(scores)) >= 0.6)
        answers.add(tuned.met)
    assert answers == {True, False}


def test_outcomes_survive_json() -> None:
    fixed = Decision(Threshold(0.5), 0.7, {"auroc": 0.8, "mcc": None}, met=False)
    tuned = Decision(Threshold((0.2, 0.4)), 0.75, {}, feasible=False, plateau=[(0.1, 0.3), (0.2, 0.5)])
    history = [{"epoch": 0.0, "loss": 0.3}, {"epoch": 1.0, "loss": 0.2}]
    outcome = Outcome("ensemble", 3, 30, 10, 1.5, fixed, tuned, history, {"hybrid": 0.25, "xgboost": 0.75, "tabm": 0.0})
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert outcome.weights == {"hybrid": 0.25, "xgboost": 0.75}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"members": {"hybrid": 0.4}}, "outcome: members: expected weights that sum to 1"),
        ({"members": {"hybrid": 1.4}}, "outcome: members: 'hybrid': expected a number"),
        ({"repeat": -1}, "outcome: repeat: expected a whole number"),
        ({"seconds": "1"}, "outcome: seconds: expected a number"),
        ({"held": True}, "outcome: expected contender, .* got also 'held'"),
    ],
)
def test_outcomes_are_read_strictly(changes: dict[str, object], message: str) -> None:
    decision = Decision(Threshold(0.5), 0.7, {})
    plain = Outcome("hybrid", 0, 30, 10, 1.0, decision, decision, [], {"hybrid": 1.0}).to_json()
    with pytest.raises(ValueError, match=f"^{message}"):
        Outcome.from_json({**plain, **changes})


def test_labels_of_few_held_out_positives_share_a_threshold() -> None:
    goal = Goal("multilabel", 3, "f1")
    rng = np.random.default_rng(0)
    targets = (rng.random((300, 3)) < [0.4, 0.1, 0.1]).astype(int)
    scores = rng.random((300, 3)) + 0.3 * targets
    tuning = protocol.tune_rule(goal, scores, targets)
    assert tuning.origins == ["own", "pooled", "pooled"]
    assert protocol.make_rules(goal, scores, targets)["tuned"].rule == tuning.rule


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_what_cannot_be_met_is_marked_and_decides_for_nothing(task: Task) -> None:
    scores, y = np.array([0.9, 0.8, 0.7, 0.1] * 10), np.array([0, 0, 1, 0] * 10)
    if task == "multilabel":
        scores, y = np.stack([scores] * 3, 1), np.stack([y] * 3, 1)
    goal = Goal(task, 2 if task == "binary" else 3, "recall", subject_to="precision>=0.9")
    with pytest.raises(InfeasibleError):
        protocol.tune_rule(goal, scores, y)
    found = protocol.make_rules(goal, scores, y)
    assert not found["fixed"].feasible
    assert not found["tuned"].feasible
    decided = found["tuned"].rule(scores)
    assert decided.shape == y.shape
    assert not decided.any()


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


@pytest.mark.parametrize("sense", [">=", "<="])
def test_a_value_that_is_not_defined_is_not_the_worst_of_a_constraint(sense: str) -> None:
    (constraint,) = parse(f"precision{sense}0.5")
    goal = Goal("multilabel", 4, "f1", subject_to=str(constraint))
    values = [float("nan"), 0.4, 0.8, float("nan")]
    found = protocol.evaluate_constraint(goal, constraint, {"value": values, "predicted": [0.0, 1.0, 1.0, 0.0]})
    assert found.value == (0.4 if sense == ">=" else 0.8)
    assert not found.met
    # Nor does it break a constraint that all others meet.
    values = [float("nan"), 0.6 if sense == ">=" else 0.3]
    found = protocol.evaluate_constraint(goal, constraint, {"value": values, "predicted": [0.0, 1.0]})
    assert found.value == (0.6 if sense == ">=" else 0.3)
    assert found.met
