"""The cheapest rule: calibration against scikit-learn, decisions, corrections that must pay, selection by costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import metricgrad as mg
from metricgrad.decisions.calibration import Calibration, Scaling, compute_log_loss, fit_calibration, fit_scaling
from metricgrad.decisions.least_cost import tune_cost_rule
from metricgrad.storage.values import decode, encode

pytestmark = pytest.mark.quick


def make_rows(rows: int = 2000, sharpness: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, mg.Cost]:
    """Return logits that are too sharp by a factor, labels drawn by the true ones, and costs per row."""
    random = np.random.default_rng(seed)
    true = random.normal(-1.5, 1.5, rows)
    targets = (random.random(rows) < 1 / (1 + np.exp(-true))).astype(int)
    return true * sharpness, targets, mg.Cost(fp=5.0, fn=random.lognormal(3, 1, rows))


def sigmoid(z: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-z)))


def test_isotonic_calibration_is_that_of_scikit_learn_but_for_one_row_in_each_block() -> None:
    z, y, _ = make_rows()
    p = torch.from_numpy(sigmoid(z))
    found = fit_calibration("isotonic", p, torch.from_numpy(y), torch.ones(len(y)), False)
    plain = IsotonicRegression(out_of_bounds="clip").fit(p.numpy(), y).predict(p.numpy())
    assert np.abs(found(p).numpy() - plain).mean() < 0.005
    assert (found(torch.linspace(0, 1, 101)).diff() >= 0).all()
    assert found(p).min() > 0
    assert found(p).max() < 1


def test_beta_calibration_is_the_logistic_regression_of_two_logarithms() -> None:
    z, y, _ = make_rows(sharpness=2.0)
    p = sigmoid(z)
    features = np.column_stack((np.log(p), -np.log1p(-p)))
    plain = LogisticRegression(C=1e3, tol=1e-10, max_iter=1000).fit(features, y)
    found = fit_calibration("beta", torch.from_numpy(p), torch.from_numpy(y), torch.ones(len(y)), False)
    assert found.numbers == pytest.approx([*plain.coef_[0], plain.intercept_[0]], rel=1e-2)
    better = compute_log_loss(found(torch.from_numpy(p)), torch.from_numpy(y).double(), torch.ones(len(y)))
    assert better < compute_log_loss(torch.from_numpy(p), torch.from_numpy(y).double(), torch.ones(len(y)))


def test_scores_that_are_not_calibrated_are() -> None:
    z, y, cost = make_rows(4000, sharpness=3.0)
    p = sigmoid(z)
    tuned = tune_cost_rule(cost, p, y)
    rule = tuned.rule
    assert isinstance(rule, mg.decisions.LeastCost)
    assert rule.calibration.kind == "beta"
    new_z, new_y, new_cost = make_rows(4000, sharpness=3.0, seed=1)
    new_p = torch.from_numpy(sigmoid(new_z))
    calibrated = new_cost.savings(new_y, rule.decide_rows(new_p, new_cost))
    as_they_are = new_cost.savings(new_y, new_cost.decide(new_p))
    best = new_cost.savings(new_y, new_cost.decide(sigmoid(new_z / 3)))
    assert as_they_are < calibrated
    assert calibrated == pytest.approx(best, abs=0.02)


def test_a_correction_that_does_not_pay_is_not_kept() -> None:
    z, y, cost = make_rows()
    tuned = tune_cost_rule(cost, sigmoid(z), y)
    assert isinstance(tuned.rule, mg.decisions.LeastCost)
    assert tuned.rule.threshold == 0.5
    assert tuned.tuning.rule == mg.decisions.Threshold(0.5)


def test_costs_of_all_rows_alike_give_a_threshold_on_the_scores() -> None:
    z, y, _ = make_rows(sharpness=2.0)
    cost = mg.Cost(fp=1.0, fn=9.0)
    tuned = tune_cost_rule(cost, z, y, of_logits=True)
    assert isinstance(tuned.rule, mg.decisions.Threshold)
    # The best threshold of true probabilities is 0.1.
    assert tuned.rule.threshold == pytest.approx(2 * np.log(1 / 9), abs=0.6)
    assert tuned.tuning.value == pytest.approx(cost.savings(y, z >= tuned.rule.threshold))


def test_few_rows_are_taken_as_they_are() -> None:
    tuned = tune_cost_rule(mg.Cost(fp=1.0, fn=[5.0] * 6), [0.9, 0.1, 0.2, 0.6, 0.3, 0.1], [1, 0, 0, 1, 0, 0])
    assert tuned.rule == mg.decisions.LeastCost((1.0, "", 0.0, 0.0))


def test_several_classes_are_decided_by_the_least_expected_cost() -> None:
    random = np.random.default_rng(0)
    p = random.dirichlet(np.ones(3), 600)
    y = np.array([random.choice(3, p=row) for row in p])
    cost = mg.Cost(matrix=[[0, 1, 4], [2, 0, 3], [9, 5, 0]])
    tuned = tune_cost_rule(cost, p, y)
    decided = tuned.rule(p)
    assert cost.total(y, decided) <= cost.total(y, p.argmax(1))
    rule = mg.decisions.LeastCostOfClasses(((0, 1, 4), (2, 0, 3), (9, 5, 0)))
    assert (rule(p) == cost.decide(p)).all()


MATRIX = mg.Cost(matrix=[[0, 1, 4], [2, 0, 3], [9, 5, 0]])


def draw_classes(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the true probabilities of three classes, and labels drawn by them."""
    random = np.random.default_rng(seed)
    p = random.dirichlet(np.ones(3), rows)
    return p, (p.cumsum(1) < random.random((rows, 1))).sum(1).clip(max=2)


def sharpen(p: np.ndarray) -> np.ndarray:
    return np.asarray(p**3 / (p**3).sum(1, keepdims=True))


def favour(p: np.ndarray) -> np.ndarray:
    """Return the probabilities at another base rate of the classes."""
    weighted = p * [1.0, 3.0, 0.3]
    return np.asarray(weighted / weighted.sum(1, keepdims=True))


@pytest.mark.parametrize(("distort", "kind", "gain"), [(sharpen, "temperature", 0.05), (favour, "vector", 0.2)])
def test_distorted_scores_of_several_classes_are_mended(distort: Any, kind: str, gain: float) -> None:
    p, y = draw_classes(1000, 0)
    new_p, new_y = draw_classes(20_000, 1)
    rule = tune_cost_rule(MATRIX, distort(p), y).rule
    assert isinstance(rule, mg.decisions.LeastCostOfClasses)
    assert rule.calibration.kind == kind
    assert np.abs(rule.calibration(torch.from_numpy(distort(new_p))).numpy() - new_p).mean() < 0.02
    least = MATRIX.total(new_y, MATRIX.decide(new_p))
    paid = MATRIX.total(new_y, rule(distort(new_p)))
    assert paid < 1.01 * least
    assert MATRIX.total(new_y, MATRIX.decide(distort(new_p))) > (1 + gain) * least


def test_logits_of_several_classes_become_probabilities() -> None:
    p, y = draw_classes(1000, 0)
    rule = tune_cost_rule(MATRIX, 2.5 * np.log(p) + 7, y, of_logits=True).rule
    same = tune_cost_rule(MATRIX, p**2.5 / (p**2.5).sum(1, keepdims=True), y).rule
    found, probabilities = rule(2.5 * np.log(p) + 7), same(p**2.5 / (p**2.5).sum(1, keepdims=True))
    assert (found != probabilities).mean() < 0.005


@pytest.mark.parametrize("kind", ["temperature", "vector"])
def test_calibrated_scores_of_several_classes_stay_nearly_unchanged(kind: Any) -> None:
    p, y = (torch.from_numpy(one) for one in draw_classes(20_000, 0))
    scaling = fit_scaling(kind, p, y, torch.ones(len(y)), False)
    assert (scaling(p) - p).abs().mean() < 0.01
    rule = tune_cost_rule(MATRIX, p[:2000], y[:2000]).rule
    assert (rule(p).numpy() != MATRIX.decide(p.numpy())).mean() < 0.02


@pytest.mark.parametrize("kind", ["temperature", "vector"])
def test_a_scaling_has_the_least_log_loss(kind: Any) -> None:
    """Against a search with scipy, of the function written out in numpy."""
    p, y = draw_classes(200, 0)
    weight = np.random.default_rng(1).random(200)
    levels = np.log(sharpen(p).clip(1e-6))

    def compute_loss(numbers: np.ndarray) -> float:
        slopes, offsets = (numbers, 0.0) if kind == "temperature" else (numbers[:3], numbers[3:])
        scaled = slopes * levels + offsets
        logs = scaled - np.log(np.exp(scaled).sum(1, keepdims=True))
        ridge = ((slopes - 1) ** 2).sum() + np.square(offsets).sum()
        return float(ridge - (weight * logs[np.arange(200), y]).sum())

    scores, targets, weights = (torch.from_numpy(one) for one in (sharpen(p), y, weight))
    found = fit_scaling(kind, scores, targets, weights, False).numbers
    start = [1.0] if kind == "temperature" else [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    best = minimize(compute_loss, start, method="BFGS", options={"gtol": 1e-8})
    assert found == pytest.approx(best.x, abs=1e-4)


def test_a_scaling_of_few_rows_of_a_class_is_none() -> None:
    p, y = draw_classes(400, 0)
    some = np.concatenate((np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:5]))
    rule = tune_cost_rule(MATRIX, sharpen(p)[some], y[some]).rule
    assert rule == mg.decisions.LeastCostOfClasses(((0, 1, 4), (2, 0, 3), (9, 5, 0)))


def test_rules_are_plain_data() -> None:
    rules = [
        mg.decisions.LeastCost((5.0, "amount", 0.0, -1.0), Calibration("beta", (1.0, 2.0, 0.5), True), 0.4),
        mg.decisions.LeastCostOfClasses(((0.0, 1.0), (2.0, 0.0))),
        mg.decisions.LeastCostOfClasses(((0.0, 1.0), (2.0, 0.0)), Scaling("vector", (1.0, 2.0, 0.5, 0.0), True)),
    ]
    for rule in rules:
        assert decode(encode(rule)) == rule
    for cost in (mg.Cost(fp=5, fn="amount", tp=-1), mg.Cost(matrix=[[0, 1], [2, 0]])):
        assert decode(encode(cost)) == cost
    assert "amount" in rules[0].describe()


def test_an_ensemble_is_selected_by_the_money_of_each_row() -> None:
    z, y, cost = make_rows()
    random = np.random.default_rng(2)
    scores = {"good": sigmoid(z), "noise": random.random(len(y))}
    found = mg.select_ensemble(cost, scores, y, select_by="metric")
    assert found.weights["good"] > 0.8
    assert isinstance(found.rule, mg.decisions.LeastCost)
    assert found.alone["good"] == pytest.approx(cost.savings(y, cost.decide(sigmoid(z))))


def test_bad_use_is_refused_in_one_line() -> None:
    rule = mg.decisions.LeastCost((5.0, "", 0.0, 0.0))
    with pytest.raises(ValueError, match="costs: expected those of the rows"):
        rule([0.5])
    with pytest.raises(ValueError, match="prices: expected four"):
        mg.decisions.LeastCost((1.0, 2.0))
    with pytest.raises(ValueError, match="matrix: expected d rows of d numbers"):
        mg.decisions.LeastCostOfClasses(((1.0, 2.0),))
    with pytest.raises(ValueError, match="calibration: expected a kind with its numbers"):
        Calibration("beta", (1.0,))
    with pytest.raises(ValueError, match="calibration: expected 'none', 'temperature' with one number or 'vector'"):
        Scaling("temperature", (1.0, 2.0))
    p, y = draw_classes(60, 0)
    with pytest.raises(ValueError, match=r"matrix: expected several classes with it, got two; write Cost\(fp="):
        tune_cost_rule(MATRIX, p[:, 0], y == 0)
    with pytest.raises(ValueError, match="matrix: expected costs of 2 classes, got 3"):
        tune_cost_rule(MATRIX, p[:, :2], y.clip(max=1))
    with pytest.raises(ValueError, match="expected one number for each of 1 rows, got 2"):
        rule.decide_rows(torch.tensor([0.5]), mg.Cost(fp=5.0, fn=[1.0, 2.0]))
