"""Rows held out for a guarantee, in the estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import metricgrad as mg
from metricgrad.estimators.guarantee_rows import hold_out_rows

pytestmark = pytest.mark.quick

X, y = make_classification(1500, weights=[0.7], class_sep=1.2, random_state=0)
HOW: dict[str, Any] = {"subject_to": "precision >= 0.7", "confidence": 0.9}


def test_the_rows_are_a_random_share_and_the_same_again() -> None:
    fitted, held_out = hold_out_rows(100, 0.3, 0)
    assert len(held_out) == 30
    assert sorted([*fitted, *held_out]) == list(range(100))
    assert np.array_equal(hold_out_rows(100, 0.3, 0)[1], held_out)


def test_the_classifier_does_not_see_the_rows_of_the_guarantee() -> None:
    model = mg.ThresholdedClassifier(LogisticRegression(), "recall", **HOW, guarantee_rows=0.4, random_state=0).fit(
        X, y
    )
    fitted, held_out = hold_out_rows(len(y), 0.4, 0)
    expected = LogisticRegression().fit(X[fitted], y[fitted])
    assert np.array_equal(model.estimator_.coef_, expected.coef_)
    scores = expected.predict_proba(X[held_out])[:, 1]
    assert model.rule_ == mg.tune_threshold("recall", scores, y[held_out], **HOW).rule
    assert "precision >= 0.7 with 90 % confidence" in str(model.tuning_)


def test_weights_of_rows_go_with_their_rows() -> None:
    weight = np.where(np.arange(len(y)) % 2, 1.0, 0.5)
    model = mg.ThresholdedClassifier(LogisticRegression(), "recall", **HOW, guarantee_rows=0.4, random_state=0)
    model.fit(X, y, sample_weight=weight)
    fitted, held_out = hold_out_rows(len(y), 0.4, 0)
    expected = LogisticRegression().fit(X[fitted], y[fitted], sample_weight=weight[fitted])
    assert np.array_equal(model.estimator_.coef_, expected.coef_)
    scores = expected.predict_proba(X[held_out])[:, 1]
    assert model.rule_ == mg.tune_threshold("recall", scores, y[held_out], weight=weight[held_out], **HOW).rule


@pytest.mark.parametrize("share", [None, 0.4])
def test_an_ensemble_guarantees_too(share: float | None) -> None:
    own = [("logistic", LogisticRegression()), ("bayes", GaussianNB())]
    model = mg.MetricEnsembleClassifier("recall", estimators=own, **HOW, guarantee_rows=share, cv=3, random_state=0)
    model.fit(X, y)
    assert model.tuning_ is not None
    (guarantee,) = model.tuning_.guarantees
    assert guarantee.expected > 0.7
    if share is not None:
        _, held_out = hold_out_rows(len(y), share, 0)
        scores = model.predict_scores(X[held_out])
        assert model.rule_ == mg.tune_threshold("recall", scores, y[held_out], **HOW).rule


def test_undecided_rows_have_a_label_that_is_no_class() -> None:
    features, index = make_classification(1200, n_informative=6, n_classes=3, class_sep=2.0, random_state=0)
    names = np.array(["ant", "bee", "cat"])[index]
    how: dict[str, Any] = {"subject_to": "precision >= 0.85", "abstain": True, "cv": 3}
    model = mg.ThresholdedClassifier(LogisticRegression(), "recall", **how).fit(features, names)
    predicted = model.predict(features)
    assert set(predicted.tolist()) == {"ant", "bee", "cat", None}
    assert model.tuning_.coverage < 1
    unsure = model.set_params(abstain_label="unsure").fit(features, names).predict(features)
    assert np.array_equal(unsure == "unsure", [one is None for one in predicted])
    assert unsure.dtype.kind == "U"
    with pytest.raises(ValueError, match="abstain_label: expected a value that is no class, got 'bee'"):
        model.set_params(abstain_label="bee").fit(features, names)
    with pytest.raises(ValueError, match="abstain_label: expected a text, like the classes, or None, got -1"):
        model.set_params(abstain_label=-1).fit(features, names)
    with pytest.raises(
        ValueError, match="abstain_label: expected a whole number, like the classes, or None, got '\\?'"
    ):
        model.set_params(abstain_label="?").fit(features, index)
    with pytest.raises(ValueError, match="abstain_label: expected abstain=True with it, got '\\?' alone"):
        model.set_params(abstain=False, subject_to=None).fit(features, names)


@pytest.mark.parametrize("share", [None, 0.4])
def test_an_ensemble_leaves_rows_undecided(share: float | None, tmp_path: Path) -> None:
    features, index = make_classification(1500, n_informative=6, n_classes=3, class_sep=2.0, random_state=0)
    names = np.array(["ant", "bee", "cat"])[index]
    own = [("logistic", LogisticRegression()), ("bayes", GaussianNB())]
    how: dict[str, Any] = {"subject_to": "precision >= 0.8", "confidence": 0.9, "abstain": True, "abstain_label": "?"}
    model = mg.MetricEnsembleClassifier("recall", estimators=own, guarantee_rows=share, cv=3, random_state=0, **how)
    predicted = model.fit(features, names).predict(features)
    assert set(predicted.tolist()) == {"ant", "bee", "cat", "?"}
    assert model.tuning_ is not None
    assert 0.3 < model.tuning_.coverage < 1
    assert {one.label for one in model.tuning_.guarantees} == {0, 1, 2}
    if share is not None:
        _, held_out = hold_out_rows(len(names), share, 0)
        scores = model.predict_proba(features[held_out])
        del how["abstain_label"]
        again = mg.tune_threshold("recall", scores, index[held_out], task="multiclass", **how)
        assert again.coverage == model.tuning_.coverage
    mg.save(model, tmp_path / "model")
    assert np.array_equal(mg.load(tmp_path / "model", estimators=None).predict(features), predicted)
    with pytest.raises(ValueError, match="abstain_label: expected a value that is no class, got 'bee'"):
        model.set_params(abstain_label="bee").fit(features, names)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guarantee_rows": 1.0, **HOW}, r"guarantee_rows: expected a share of the rows in \(0, 1\)"),
        ({"guarantee_rows": 0.3, "subject_to": "recall >= 0.5"}, "guarantee_rows: expected a confidence="),
        ({"guarantee_rows": 0.3, "cv": "prefit", **HOW}, "guarantee_rows: expected None with cv='prefit'"),
        ({"confidence": 0.9}, "confidence: expected a constraint to hold with it"),
        (
            {"confidence": "0.9", "subject_to": "recall >= 0.5"},
            r"confidence: expected a number in \[0.5, 1\), got '0.9'",
        ),
        ({"confidence_over": "each"}, "confidence_over: expected confidence= with it, got 'each' alone"),
        ({"abstain": "no"}, "abstain: expected True or False, got 'no'"),
    ],
)
def test_bad_options_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    estimator = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match=message):
        mg.ThresholdedClassifier(estimator, "recall", **options).fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"abstain": True}, "abstain: expected a constraint that decided rows must meet"),
        ({"shared": True}, "shared: one threshold for all classes is for task='multilabel'"),
    ],
)
def test_options_that_the_cheapest_decision_has_no_place_for_are_refused(options: dict[str, Any], message: str) -> None:
    cost = mg.Cost(matrix=[[0, 1, 4], [2, 0, 3], [9, 5, 0]])
    features, classes = make_classification(90, n_classes=3, n_informative=6, random_state=0)
    with pytest.raises(ValueError, match=message):
        mg.ThresholdedClassifier(LogisticRegression(), cost, **options).fit(features, classes)


def test_rows_of_groups_are_no_independent_rows() -> None:
    own = [("bayes", GaussianNB())]
    with pytest.raises(ValueError, match="groups: expected none with confidence="):
        mg.MetricEnsembleClassifier("recall", estimators=own, **HOW).fit(X, y, groups=np.arange(len(y)) // 2)


@pytest.mark.parametrize("metric", ["recall", mg.Cost(fp=1.0, fn=5.0)])
@pytest.mark.parametrize("make", [mg.ThresholdedClassifier, mg.MetricEnsembleClassifier])
def test_a_confidence_needs_something_to_hold(make: Any, metric: Any) -> None:
    own = [("logistic", LogisticRegression())]
    given = {"estimators": own} if make is mg.MetricEnsembleClassifier else {"estimator": LogisticRegression()}
    with pytest.raises(ValueError, match="confidence: expected a constraint to hold with it, subject_to="):
        make(metric=metric, confidence=0.9, **given).fit(X, y)


def test_a_saved_classifier_leaves_the_same_rows_undecided(tmp_path: Path) -> None:
    features, classes = make_classification(900, n_classes=3, n_informative=6, random_state=0)
    model = mg.ThresholdedClassifier(
        LogisticRegression(max_iter=500), "recall", subject_to="precision >= 0.8", abstain=True, abstain_label=-1, cv=3
    )
    model.fit(features, classes)
    mg.save(model, tmp_path / "model")
    loaded = mg.load(tmp_path / "model")
    decided = model.predict(features)
    assert -1 in decided
    assert np.array_equal(loaded.predict(features), decided)
    shares = [0.2, 0.3, 0.5]
    assert model.tuning_ is not None
    assert loaded.tuning_ is not None
    assert loaded.tuning_.at_prevalence(shares).rule == model.tuning_.at_prevalence(shares).rule
