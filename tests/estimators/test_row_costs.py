"""Costs in the estimators: by metadata, by columns, in scikit-learn's tools, in files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

import metricgrad as mg
from metricgrad.decisions.calibration import Scaling

X, Y = make_classification(500, 6, weights=[0.8], flip_y=0.1, random_state=0)
COST = mg.Cost(fp=5.0, fn=np.random.default_rng(0).lognormal(3, 1, 500))
NAMED = mg.Cost(fp=5.0, fn="amount")
FRAME = pd.DataFrame(X, columns=[f"x{i}" for i in range(6)]).assign(amount=np.asarray(COST.fn))
TRAIN, TEST = slice(0, 350), slice(350, 500)

ESTIMATORS: dict[str, Any] = {
    "thresholded": mg.ThresholdedClassifier(LogisticRegression(), NAMED),
    "decision function": mg.ThresholdedClassifier(LinearSVC(), NAMED),
    "network": mg.MetricClassifier(NAMED, epochs=3, random_state=0),
    "trees": mg.MetricBoostingClassifier(NAMED, n_estimators=5, n_jobs=1, random_state=0),
    "ensemble": mg.MetricEnsembleClassifier(NAMED, estimators=[("one", LogisticRegression())], random_state=0),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_rows_are_decided_by_their_own_costs(name: str) -> None:
    estimator = sklearn.clone(ESTIMATORS[name]).fit(X[TRAIN], Y[TRAIN], costs=COST.take(TRAIN))
    costs = COST.take(TEST)
    decided = estimator.predict(X[TEST], costs=costs)
    assert estimator.score(X[TEST], Y[TEST], costs=costs) == pytest.approx(costs.savings(Y[TEST], decided))
    dear = mg.Cost(fp=5.0, fn=np.full(150, 1e6))
    assert estimator.predict(X[TEST], costs=dear).all()
    with pytest.raises(ValueError, match="costs: expected a frame with the column 'amount', got ndarray"):
        estimator.predict(X[TEST])
    with pytest.raises(ValueError, match="costs: expected one number for each of 150 rows, got 350"):
        estimator.predict(X[TEST], costs=COST.take(TRAIN))


def test_columns_of_a_frame_are_costs() -> None:
    estimator = mg.ThresholdedClassifier(LogisticRegression(), NAMED).fit(FRAME[TRAIN], Y[TRAIN])
    decided = estimator.predict(FRAME[TEST])
    assert (decided == estimator.predict(FRAME[TEST], costs=COST.take(TEST))).all()
    assert isinstance(estimator.rule_, mg.decisions.LeastCost)
    assert estimator.rule_.prices == (5.0, "amount", 0.0, 0.0)
    with pytest.raises(ValueError, match="fn: expected a column of the table, got 'amount'"):
        mg.ThresholdedClassifier(LogisticRegression(), NAMED).fit(FRAME[TRAIN].drop(columns="amount"), Y[TRAIN])


def test_metadata_routing_splits_costs_with_the_rows() -> None:
    estimator = mg.ThresholdedClassifier(LogisticRegression(), NAMED)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = estimator.set_fit_request(costs=True).set_score_request(costs=True)
        found = cross_validate(routed, X, Y, params={"costs": COST}, cv=3, return_estimator=True, return_indices=True)
    for model, rows, score in zip(found["estimator"], found["indices"]["test"], found["test_score"], strict=True):
        costs = COST.take(rows)
        assert score == pytest.approx(costs.savings(Y[rows], model.predict(X[rows], costs=costs)))


def test_an_array_belongs_to_the_rows_of_fit() -> None:
    mg.ThresholdedClassifier(LogisticRegression(), COST).fit(X, Y)
    with pytest.raises(ValueError, match="costs: expected one number for each of 350 rows, got 500"):
        mg.ThresholdedClassifier(LogisticRegression(), COST).fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(ValueError, match="costs: expected metric=Cost"):
        mg.ThresholdedClassifier(LogisticRegression(), "f1").fit(X, Y, costs=COST)
    plain = mg.ThresholdedClassifier(LogisticRegression(), mg.Cost(fp=5.0, fn=50.0)).fit(X, Y)
    with pytest.raises(ValueError, match="costs: expected none, since the rule is threshold"):
        plain.predict(X, costs=COST)


def test_the_same_costs_for_all_rows_and_a_matrix() -> None:
    cost = mg.Cost(fp=1.0, fn=9.0)
    plain = mg.ThresholdedClassifier(LogisticRegression(), cost).fit(X[TRAIN], Y[TRAIN])
    assert isinstance(plain.rule_, mg.decisions.Threshold)
    assert plain.score(X[TEST], Y[TEST]) == pytest.approx(cost.savings(Y[TEST], plain.predict(X[TEST])))
    features, labels = make_classification(300, 6, n_informative=4, n_classes=3, random_state=0)
    matrix = mg.Cost(matrix=[[0, 1, 4], [2, 0, 3], [9, 5, 0]])
    several = mg.ThresholdedClassifier(LogisticRegression(), matrix).fit(features, labels)
    assert several.score(features, labels) == pytest.approx(matrix.savings(labels, several.predict(features)))


@pytest.mark.parametrize("classifier", [GaussianNB(), LinearSVC()])
def test_scores_of_several_classes_are_calibrated(classifier: Any, tmp_path: Path) -> None:
    features, labels = make_classification(4000, 15, n_informative=3, n_redundant=12, n_classes=3, random_state=0)
    cost = mg.Cost(matrix=[[0, 1, 4], [2, 0, 3], [9, 5, 0]])
    model = mg.ThresholdedClassifier(classifier, cost).fit(features[:700], labels[:700])
    new, truth = features[700:], labels[700:]
    assert isinstance(model.rule_, mg.decisions.LeastCostOfClasses)
    assert model.rule_.calibration.kind in ("temperature", "vector")
    of_logits = isinstance(classifier, LinearSVC)
    assert model.rule_.calibration.of_logits == of_logits
    plain = replace(model.rule_, calibration=Scaling(of_logits=of_logits))
    assert cost.total(truth, model.predict(new)) < cost.total(truth, np.asarray(plain(model._scores(new))))
    mg.save(model, tmp_path / "model")
    again = mg.load(tmp_path / "model", trusted=["sklearn.svm._classes.LinearSVC", "sklearn.naive_bayes.GaussianNB"])
    assert again.rule_ == model.rule_
    assert (again.predict(features) == model.predict(features)).all()


def test_a_saved_estimator_knows_its_columns(tmp_path: Path) -> None:
    estimator = mg.ThresholdedClassifier(LogisticRegression(), NAMED).fit(FRAME[TRAIN], Y[TRAIN])
    mg.save(estimator, tmp_path / "model")
    loaded = mg.load(tmp_path / "model")
    assert loaded.metric == NAMED
    assert (loaded.predict(FRAME[TEST]) == estimator.predict(FRAME[TEST])).all()


@pytest.mark.parametrize("cost", [mg.Cost(fp=1.0, fn=9.0), mg.Cost(fp=2.0, fn=9.0, tp=-3.0)])
def test_a_saved_rule_of_costs_follows_a_base_rate(cost: mg.Cost, tmp_path: Path) -> None:
    estimator = mg.ThresholdedClassifier(LogisticRegression(), cost).fit(X, Y)
    mg.save(estimator, tmp_path / "model")
    loaded = mg.load(tmp_path / "model")
    assert estimator.tuning_ is not None
    assert loaded.tuning_ is not None
    assert loaded.tuning_.at_prevalence(0.05).rule == estimator.tuning_.at_prevalence(0.05).rule


@pytest.mark.parametrize("cost", [NAMED, mg.Cost(matrix=[[0, 1, 4], [2, 0, 3], [9, 5, 0]])])
def test_a_folder_without_a_name_for_the_costs_says_so(cost: mg.Cost, tmp_path: Path) -> None:
    classes = Y if cost is NAMED else np.arange(len(Y)) % 3
    estimator = mg.ThresholdedClassifier(LogisticRegression(), cost).fit(FRAME, classes)
    mg.save(estimator, tmp_path / "model")
    tuning = mg.load(tmp_path / "model").tuning_
    if tuning is not None:
        with pytest.raises(ValueError, match="at_prevalence: expected class-wise scores in the folder, got none"):
            tuning.at_prevalence(0.05)


def test_costs_of_rows_have_no_base_rate() -> None:
    scores = LogisticRegression().fit(X, Y).predict_proba(X)[:, 1]
    tuning = mg.tune_threshold(COST, scores, Y)
    message = "prevalence: expected costs that are the same for every row"
    with pytest.raises(ValueError, match=message):
        mg.tune_threshold(COST, scores, Y, prevalence=0.05)
    with pytest.raises(ValueError, match=message):
        tuning.at_prevalence(0.05)
