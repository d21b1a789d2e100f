"""Estimators on targets, folds, weights and calls that are unusual, and one line for those that are not legitimate."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

import metricgrad as mg

QUICK: dict[str, Any] = {"epochs": 3, "model": "linear", "random_state": 0}


def rows(n: int = 120, width: int = 4, seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, width))
    return X, (X[:, 0] + 0.5 * random.normal(size=n) > 0.5).astype(int)


def labels(X: Any) -> Any:
    return (X[:, :3] > [0.0, 0.8, -0.5]).astype(int)


def estimators(cv: Any = 2) -> dict[str, Any]:
    return {
        "network": mg.MetricClassifier("f1", cv=cv, **QUICK),
        "thresholded": mg.ThresholdedClassifier(KNeighborsClassifier(), "f1", cv=cv),
        "boosting": mg.MetricBoostingClassifier("f1", cv=cv, n_estimators=3, random_state=0),
        "ensemble": mg.MetricEnsembleClassifier(
            "f1", estimators=[("forest", RandomForestClassifier(5))], cv=cv, bags=0, random_state=0
        ),
    }


@pytest.mark.parametrize("classifier", [RandomForestClassifier(10, random_state=0), KNeighborsClassifier()])
def test_a_label_that_is_always_there_has_probability_one(classifier: Any) -> None:
    X, _ = rows(300)
    Y = labels(X)
    Y[:, 2] = 1
    model = mg.ThresholdedClassifier(classifier, "f1").fit(X, Y)
    assert model.predict(X)[:, 2].all()
    assert abs(model.predict(X)[:, 1].mean() - Y[:, 1].mean()) < 0.2
    prefit = mg.ThresholdedClassifier(classifier.fit(X, Y), "f1", cv="prefit").fit(X, Y)
    assert prefit.predict(X)[:, 2].all()
    Y[:, 2] = 0
    assert not mg.ThresholdedClassifier(classifier, "f1").fit(X, Y).predict(X)[:, 2].any()


def test_a_fitted_classifier_says_which_classes_there_are() -> None:
    X, _ = rows(300)
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    fitted = LogisticRegression().fit(X, y)
    some = y < 2
    model = mg.ThresholdedClassifier(fitted, "f1", cv="prefit").fit(X[some], y[some])
    assert model.classes_.tolist() == [0, 1, 2]
    assert set(model.predict(X)) == {0, 1, 2}
    with pytest.raises(ValueError, match=r"y: expected the classes \[.*0.*\], got also \[.*'a'"):
        mg.ThresholdedClassifier(fitted, "f1", cv="prefit").fit(X, np.array(["a", "b", "c"])[y])


def test_scores_of_pairs_of_classes_are_refused() -> None:
    X, _ = rows(300)
    y = np.digitize(X[:, 0], [-0.7, 0.0, 0.7])
    message = r"estimator: expected scores of shape \(300, 4\), one column per class, got \(300, 6\)"
    with pytest.raises(ValueError, match=message):
        mg.ThresholdedClassifier(SVC(decision_function_shape="ovo"), "f1").fit(X, y)


def test_a_warm_start_keeps_the_rows_that_judge() -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(200, 30)), random.integers(0, 2, 200)  # nothing to learn
    drawn = np.random.RandomState(0)  # gives every fit other numbers, as None does
    options: dict[str, Any] = {"patience": 100, "weight_average": 0, "warm_start": True, "random_state": drawn}
    model = mg.MetricClassifier("accuracy", epochs=30, **options)
    values = [model.fit(X, y).tuning_.value for _ in range(4)]  # type: ignore[union-attr]
    assert max(values) < 0.64


def test_more_rows_do_not_move_the_scaling_under_other_networks() -> None:
    X, y = rows(200)
    model = mg.MetricClassifier("f1", cv=3, **QUICK).fit(X, y)
    scaler: Any = model.scaler_
    rule, mean = model.rule_, scaler.mean_.copy()
    model.partial_fit(X + 8, y)
    assert np.array_equal(scaler.mean_, mean)
    assert model.rule_ == rule
    alone = mg.MetricClassifier("f1", **QUICK).partial_fit(X, y, classes=[0, 1])
    moving: Any = alone.scaler_
    first = moving.mean_.copy()
    alone.partial_fit(X + 8, y)
    assert not np.array_equal(moving.mean_, first)


@pytest.mark.parametrize("classifier", [KNeighborsClassifier(25), GaussianNB()])
@pytest.mark.parametrize("threshold", [0.0, 1e-12, 0.3, 1 - 1e-9, 1.0, float("inf"), float("-inf")])
def test_probabilities_keep_the_order_of_the_scores(classifier: Any, threshold: float) -> None:
    X, y = rows(400)
    scores = torch.tensor(classifier.fit(X, y).predict_proba(X)[:, 1])
    rule = mg.decisions.Threshold(threshold)
    moved = rule.recentre_probabilities(scores)
    assert torch.equal(moved > 0.5, rule(scores))
    assert moved.min() >= 0
    assert moved.max() <= 1
    assert roc_auc_score(y, moved) == pytest.approx(roc_auc_score(y, scores), abs=2e-4)


def test_bags_that_miss_the_constraint_together_give_way_to_one_selection() -> None:
    random = np.random.default_rng(112)
    n = int(random.choice([60, 200]))
    y = (random.random(n) < 0.3).astype(int)
    scores = {f"c{i}": 1 / (1 + np.exp(-(random.normal(size=n) + 1.5 * y - 1))) for i in range(4)}
    wish = "precision >= 0.6, recall >= 0.97"
    found = mg.select_ensemble("f1", scores, y, subject_to=wish)
    reached = mg.evaluate(found.scores, y, ["precision", "recall"], rule=found.rule)
    assert reached["precision"] >= 0.6
    assert reached["recall"] >= 0.97


def test_rows_of_weight_zero_count_nowhere() -> None:
    X, y = rows(150)
    far = np.full((10, 4), 1e7)
    weight = np.r_[np.ones(150), np.zeros(10)]
    options: dict[str, Any] = {"cv": 2, "bags": 0, "random_state": 0}
    whole = mg.MetricEnsembleClassifier("f1", **options).fit(
        np.r_[X, far], np.r_[y, np.tile([0, 1], 5)], sample_weight=weight
    )
    values = whole.candidates_.set_index("name")["value"]
    linear = values[[name for name in values.index if "logistic" in name]]
    assert (linear > 0.7).all()


@pytest.mark.parametrize("name", ["network", "thresholded", "boosting", "ensemble"])
def test_targets_of_any_kind_give_the_same_model(name: str) -> None:
    X, _ = rows()
    Y = labels(X)
    expected = estimators()[name].fit(X, Y).predict(X)
    frame = pd.DataFrame(Y, columns=list("abc"))
    for targets in (sparse.csr_matrix(Y), sparse.csr_array(Y), frame, Y.astype(bool), Y.astype(np.int8)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = estimators()[name].fit(X, targets).predict(X)
        assert np.array_equal(found, expected)


def test_sparse_targets_come_in_parts_too() -> None:
    X, _ = rows()
    Y = labels(X)
    plain, other = (mg.MetricClassifier("f1", **QUICK).partial_fit(X, y).predict(X) for y in (Y, sparse.csr_matrix(Y)))
    assert np.array_equal(plain, other)


@pytest.mark.parametrize("name", ["network", "thresholded", "boosting", "ensemble"])
def test_targets_of_other_numbers_are_refused(name: str) -> None:
    X, _ = rows()
    with pytest.raises(ValueError, match=r"y: expected an indicator matrix of 0 and 1, got the values \[-1, 1\]"):
        estimators()[name].fit(X, 2 * labels(X) - 1)


@pytest.mark.parametrize("loss", ["hybrid", "metric", "cross-entropy"])
def test_no_average_is_one_threshold_and_one_value_per_label(loss: Any) -> None:
    X, _ = rows()
    model = mg.MetricClassifier("f1", average=None, loss=loss, cv=2, **QUICK).fit(X, labels(X))
    assert model.tuning_ is not None
    assert len(model.tuning_.value) == 3


def test_losses_of_torch_are_taken_as_they_are() -> None:
    X, y = rows()
    model = mg.MetricClassifier("f1", loss=torch.nn.BCEWithLogitsLoss(), cv=2, **QUICK).fit(X, y)
    assert len(model.networks_) == 2


@pytest.mark.parametrize("name", ["network", "boosting", "ensemble"])
def test_folds_may_be_lists_or_masks(name: str) -> None:
    X, y = rows()
    pairs = list(StratifiedKFold(3).split(X, y))
    expected = estimators(pairs)[name].fit(X, y).predict(X)
    as_lists = [(a.tolist(), b.tolist()) for a, b in pairs]
    as_masks = [tuple(np.isin(np.arange(len(y)), part) for part in pair) for pair in pairs]
    for cv in (as_lists, as_masks):
        assert np.array_equal(estimators(cv)[name].fit(X, y).predict(X), expected)
    with pytest.raises(ValueError, match="cv: expected pairs of rows"):
        estimators([])[name].fit(X, y)


def test_sparse_features_with_missing_values_are_refused() -> None:
    X, y = rows()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="X: expected a sparse matrix without NaN, got some; pass a dense array"):
        mg.MetricEnsembleClassifier("f1", cv=2).fit(sparse.csr_matrix(X), y)


def test_labels_that_are_never_there() -> None:
    X, _ = rows(20)
    model = mg.MetricEnsembleClassifier("f1", estimators=[("a", LogisticRegression())], cv=2).fit(X, np.zeros((20, 2)))
    assert not model.predict(X).any()


def test_a_constraint_needs_a_rule_that_is_tuned() -> None:
    X, y = rows()
    options: dict[str, Any] = {"estimators": [("a", LogisticRegression())], "subject_to": "precision >= 0.9"}
    with pytest.raises(ValueError, match="subject_to: expected rule='tuned', which can meet it, got rule='fixed'"):
        mg.MetricEnsembleClassifier("f1", rule="fixed", **options).fit(X, y)
    single = np.zeros(len(y), dtype=int)
    single[0] = 1
    with pytest.raises(ValueError, match="subject_to: expected two rows or more of each class to tune on"):
        mg.MetricEnsembleClassifier("f1", **options).fit(X, single)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (mg.MetricClassifier(weight_average=1.0), "weight_average: expected a number in [0, 1), got 1.0"),
        (mg.MetricClassifier(warmup=-1), "warmup: expected a whole number of at least 0, got -1"),
        (mg.MetricClassifier(model=5), "model: expected hidden sizes as positive numbers, got 5"),  # type: ignore[arg-type]
        (mg.MetricClassifier(f1_score), "metric: expected a function of one argument, the counts, got f1_score("),
        (mg.MetricEnsembleClassifier(estimators=5), "estimators: expected a list of (name, estimator), got 5"),
        (mg.MetricBoostingClassifier(n_estimators=2.5), "n_estimators: expected a whole number of at least 1, got 2.5"),  # type: ignore[arg-type]
        (mg.MetricBoostingClassifier(backend_params=[1]), "backend_params: expected a dict of parameters, got [1]"),  # type: ignore[arg-type]
    ],
    ids=["average", "warm-up", "model", "metric of scikit-learn", "estimators", "rounds", "parameters"],
)
def test_options_of_another_kind_get_one_line(model: Any, message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        model.fit(*rows())


def test_a_candidate_that_fails_is_named() -> None:
    class Broken(LogisticRegression):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            raise RuntimeError("no luck\nand more lines")

    X, y = rows()
    with pytest.raises(ValueError, match=r"^candidate 'b' cannot be fitted: no luck$"):
        mg.MetricEnsembleClassifier("f1", estimators=[("a", LogisticRegression()), ("b", Broken())]).fit(X, y)
