"""Scorers go wherever scikit-learn takes one, and their values are those of ``mg.evaluate``."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification, make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import f1_score, fbeta_score, get_scorer, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    TunedThresholdClassifierCV,
    cross_val_score,
    cross_validate,
    train_test_split,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import metricgrad as mg
from own_metrics import profit_per_row

X, Y = make_classification(900, 8, n_informative=4, weights=[0.85], class_sep=1.2, flip_y=0.05, random_state=0)
X_TRAIN, X_TEST, Y_TRAIN, Y_TEST = train_test_split(X, Y, stratify=Y, random_state=0)
MODEL = LogisticRegression().fit(X_TRAIN, Y_TRAIN)
WEIGHT = np.random.default_rng(0).uniform(0.2, 3.0, len(Y_TEST))


@pytest.mark.parametrize("metric", ["f2", "mcc", "precision", profit_per_row, "own_metrics:profit_per_row"])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_a_metric_of_decisions_is_that_of_what_is_predicted(metric: Any, weight: Any) -> None:
    found = mg.scorer(metric)(MODEL, X_TEST, Y_TEST, sample_weight=weight)
    scores = MODEL.predict_proba(X_TEST)[:, 1]
    assert found == mg.evaluate(scores, Y_TEST, {"m": metric}, weight=weight)["m"]


def test_values_are_those_of_scikit_learn() -> None:
    for ours, theirs in [("f2", make_scorer(fbeta_score, beta=2)), ("auroc", "roc_auc"), ("log_loss", "neg_log_loss")]:
        reference = get_scorer(theirs) if isinstance(theirs, str) else theirs
        assert mg.scorer(ours)(MODEL, X_TEST, Y_TEST) == pytest.approx(reference(MODEL, X_TEST, Y_TEST), abs=1e-12)
    ridge = RidgeClassifier().fit(X_TRAIN, Y_TRAIN)  # it has a decision function alone
    expected = get_scorer("average_precision")(ridge, X_TEST, Y_TEST)
    assert mg.scorer("average_precision")(ridge, X_TEST, Y_TEST) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", ["brier_score", "log_loss", "hamming_loss", "equal_error_rate"])
def test_a_loss_is_negative_so_that_higher_is_better(metric: str) -> None:
    value = mg.evaluate(MODEL.predict_proba(X_TEST)[:, 1], Y_TEST, metric)[metric]
    assert mg.scorer(metric)(MODEL, X_TEST, Y_TEST) == -value
    assert "lower is better" in repr(mg.scorer(metric))


def test_several_classes_count_even_if_the_scored_rows_lack_one() -> None:
    features, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = LogisticRegression(max_iter=500).fit(features, names)
    expected = mg.evaluate(model.predict_proba(features), y, ["f1", "auroc"], task="multiclass")
    assert mg.scorer("f1")(model, features, names) == expected["f1"]
    assert mg.scorer("auroc", task="multiclass")(model, features, names) == expected["auroc"]
    some = y != 2
    wanted = mg.evaluate(model.predict_proba(features[some]), y[some], "f1", task="multiclass")["f1"]
    assert mg.scorer("f1")(model, features[some], names[some]) == wanted
    of_one = mg.scorer("f_beta", metric_params={"beta": {"virginica": 2, "rest": 1}})
    assert of_one(model, features, names) != mg.scorer("f1")(model, features, names)
    only = mg.scorer("f1", labels=[1, 2])(model, features, names)
    assert only == pytest.approx(f1_score(names, model.predict(features), average=None)[1:].mean())


@pytest.mark.parametrize("labels", [2, 4])
@pytest.mark.parametrize(
    "model",
    [RandomForestClassifier(20, random_state=0), OneVsRestClassifier(LogisticRegression())],
    ids=["list", "ovr"],
)
def test_several_labels(model: Any, labels: int) -> None:
    features, y = make_multilabel_classification(300, 10, n_classes=labels, random_state=0)
    model = clone(model).fit(features[:200], y[:200])
    rest, truth = features[200:], y[200:]
    expected = f1_score(truth, model.predict(rest), average="macro", zero_division=0)
    assert mg.scorer("f1", average="macro", task="multilabel")(model, rest, truth) == pytest.approx(expected)
    raw = model.predict_proba(rest)
    scores = np.column_stack([one[:, 1] for one in raw]) if isinstance(raw, list) else raw
    for metric in ("auroc", "precision@1", "ndcg"):
        wanted = mg.evaluate(scores, truth, metric, task="multilabel")[metric]
        assert mg.scorer(metric)(model, rest, truth) == wanted
    assert 0 < mg.scorer("f1", tuned=True)(model, rest, truth) <= 1


def test_the_positive_class_can_be_chosen() -> None:
    names = np.where(Y == 1, "bad", "good")  # in sorted order good is the second
    model = LogisticRegression().fit(X, names)
    predicted = model.predict(X)
    assert mg.scorer("f1")(model, X, names) == pytest.approx(f1_score(names, predicted, pos_label="good"))
    assert mg.scorer("f1", pos_label="bad")(model, X, names) == pytest.approx(
        f1_score(names, predicted, pos_label="bad")
    )
    scores = model.predict_proba(X)[:, 0]
    wanted = mg.evaluate(scores, Y, "average_precision")["average_precision"]
    assert mg.scorer("average_precision", pos_label="bad")(model, X, names) == wanted
    by_number = mg.scorer("f1", tuned=True)(LogisticRegression().fit(X, Y), X, Y)
    assert mg.scorer("f1", pos_label="bad", tuned=True)(model, X, names) == pytest.approx(by_number, abs=0.02)
    with pytest.raises(ValueError, match="pos_label=ugly is not a valid label"):
        mg.scorer("f1", pos_label="ugly")(model, X, names)


def test_tuned_decides_each_fold_by_the_others() -> None:
    scores = torch.as_tensor(MODEL.predict_proba(X_TEST)[:, 1])
    truth = torch.as_tensor(Y_TEST)
    tuned = mg.scorer("f2", tuned=True, cv=4, random_state=3)
    found = tuned(MODEL, X_TEST, Y_TEST)
    assert found == tuned(MODEL, X_TEST, Y_TEST)
    best = mg.tune_threshold("f2", scores, truth).value
    assert mg.scorer("f2")(MODEL, X_TEST, Y_TEST) < found < best
    assert tuned(MODEL, X_TEST, Y_TEST, sample_weight=WEIGHT) != found

    class Useless(LogisticRegression):  # type: ignore[misc]
        """Scores that know nothing, and do not repeat: only rows that a rule was tuned on can look better."""

        def predict_proba(self, X: Any) -> Any:
            p = np.random.default_rng(1).random(len(X))
            return np.column_stack((1 - p, p))

    nothing = Useless().fit(X, Y)
    balanced = mg.scorer("informedness", tuned=True)
    on_all = mg.tune_threshold("informedness", nothing.predict_proba(X)[:, 1], Y).value
    assert on_all > 0.02  # what tuning and evaluating on the same rows promises
    assert balanced(nothing, X, Y) < on_all


@pytest.mark.parametrize("tuned", [False, True])
def test_everywhere_in_scikit_learn(tuned: bool) -> None:
    f2 = mg.scorer("f2", tuned=tuned)
    each = cross_val_score(LogisticRegression(), X, Y, scoring=f2, cv=3)
    assert each.shape == (3,)
    assert np.isfinite(each).all()
    many = cross_validate(LogisticRegression(), X, Y, scoring={"f2": f2, "auroc": mg.scorer("auroc")}, cv=3)
    assert (many["test_f2"] == each).all()
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    search = GridSearchCV(
        pipeline,
        {"logisticregression__class_weight": [None, {1: 20}]},
        scoring={"f2": f2, "precision": mg.scorer("precision")},
        refit="f2",
        cv=3,
    )
    search = clone(search).fit(X, Y)
    assert search.best_score_ == max(search.cv_results_["mean_test_f2"])
    if not tuned:  # without a tuned threshold, weights are what moves the decisions towards recall
        assert search.best_params_ == {"logisticregression__class_weight": {1: 20}}
    importance = permutation_importance(MODEL, X_TEST, Y_TEST, scoring=f2, n_repeats=3, random_state=0)
    assert importance.importances_mean.max() > 0
    again = pickle.loads(pickle.dumps(f2))  # noqa: S301  # what joblib does with it
    assert again(MODEL, X_TEST, Y_TEST) == f2(MODEL, X_TEST, Y_TEST)
    parallel = cross_val_score(LogisticRegression(), X, Y, scoring=f2, cv=3, n_jobs=2)
    assert (parallel == each).all()


def test_tuned_threshold_classifier_takes_it() -> None:
    ours = TunedThresholdClassifierCV(LogisticRegression(), scoring=mg.scorer("f2"), cv=3).fit(X, Y)
    theirs = TunedThresholdClassifierCV(LogisticRegression(), scoring=make_scorer(fbeta_score, beta=2), cv=3).fit(X, Y)
    assert ours.best_threshold_ == theirs.best_threshold_
    assert ours.best_score_ == pytest.approx(theirs.best_score_)
    names = np.where(Y == 1, "bad", "good")
    bad = TunedThresholdClassifierCV(LogisticRegression(), scoring=mg.scorer("f2", pos_label="bad"), cv=3).fit(X, names)
    assert bad.best_score_ == pytest.approx(ours.best_score_, abs=0.02)


def test_optuna_maximises_it() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: optuna.Trial) -> float:
        model = LogisticRegression(C=trial.suggest_float("C", 1e-5, 10.0, log=True))
        return float(cross_val_score(model, X, Y, scoring=mg.scorer("f2", tuned=True), cv=3).mean())

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=3)
    assert study.best_value == max(trial.values[0] for trial in study.trials)


def test_metadata_routing_sends_weights_to_the_scorer_that_requests_them() -> None:
    weight = np.where(Y == 1, 5.0, 1.0)
    plain = cross_val_score(LogisticRegression(), X, Y, scoring=mg.scorer("precision"), cv=3)
    with config_context(enable_metadata_routing=True):
        model = LogisticRegression().set_fit_request(sample_weight=False)
        scorers = {
            "weighted": mg.scorer("precision").set_score_request(sample_weight=True),
            "unweighted": mg.scorer("precision").set_score_request(sample_weight=False),
        }
        found = cross_validate(model, X, Y, scoring=scorers, cv=3, params={"sample_weight": weight})
        assert found["test_weighted"].sum() > plain.sum()
        assert (found["test_unweighted"] == plain).all()
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            cross_val_score(model, X, Y, scoring=mg.scorer("f1"), cv=3, params={"sample_weight": weight})


def test_skore_reports_it() -> None:
    skore = pytest.importorskip("skore")
    scorers = {"f2": mg.scorer("f2"), "f2_tuned": mg.scorer("f2", tuned=True), "ap": mg.scorer("average_precision")}
    data = {"X_train": X_TRAIN, "y_train": Y_TRAIN, "X_test": X_TEST, "y_test": Y_TEST}
    report = skore.EstimatorReport(LogisticRegression(), **data, pos_label=1)
    for name, one in scorers.items():
        report.metrics.add(one, name=name)
    found = report.metrics.summarize(metric=list(scorers)).frame()
    expected = [one(report.estimator_, X_TEST, Y_TEST) for one in scorers.values()]
    np.testing.assert_allclose(np.ravel(found.to_numpy()), expected)


def test_our_own_estimators() -> None:
    model = mg.ThresholdedClassifier(LogisticRegression(), "f2", cv=3).fit(X_TRAIN, Y_TRAIN)
    scores = model.estimator_.predict_proba(X_TEST)[:, 1]
    assert mg.scorer("f2")(model, X_TEST, Y_TEST) == mg.evaluate(scores, Y_TEST, "f2", rule=model.rule_)["f2"]
    assert mg.scorer("auroc")(model, X_TEST, Y_TEST) == pytest.approx(mg.evaluate(scores, Y_TEST, "auroc")["auroc"])


def test_rows_of_one_class() -> None:
    negative = Y_TEST == 0
    expected = mg.evaluate(MODEL.predict_proba(X_TEST[negative])[:, 1], Y_TEST[negative], "f1")["f1"]
    assert mg.scorer("f1")(MODEL, X_TEST[negative], Y_TEST[negative]) == expected
    assert mg.scorer("f1", tuned=True)(MODEL, X_TEST[negative], Y_TEST[negative]) == 0
    with pytest.raises(ValueError, match="tuned: expected at least two rows"):
        mg.scorer("f1", tuned=True)(MODEL, X_TEST[:1], Y_TEST[:1])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["f3x"], {}, "metric: unknown name 'f3x'"),
        ([3], {}, "metric: expected a name or a function, got int"),
        (["f1"], {"average": None}, "average: expected one of micro, macro, weighted, samples: a score is one number"),
        (["auroc"], {"tuned": True}, "tuned: expected a metric of decisions"),
        (["f1"], {"cv": 1}, "cv: expected a whole number of at least 2, got 1"),
        (["f1"], {"task": "regression"}, "task"),
    ],
)
def test_bad_options_are_refused_at_once(arguments: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mg.scorer(*arguments, **options)


def test_targets_of_another_task_are_refused() -> None:
    with pytest.raises(ValueError, match="task: expected y of task='multilabel', got targets of task='binary'"):
        mg.scorer("f1", task="multilabel")(MODEL, X_TEST, Y_TEST)
    with pytest.raises(TypeError, match="unknown option threshold="):
        mg.scorer("f1", threshold=0.3)  # type: ignore[call-arg]


AMOUNTS = np.random.default_rng(1).lognormal(2, 1, len(Y))
COST = mg.Cost(fp=3.0, fn=AMOUNTS)
FRAME = pd.DataFrame(X, columns=[f"x{i}" for i in range(8)]).assign(amount=AMOUNTS)


def test_costs_are_read_from_the_columns_of_the_scored_rows() -> None:
    named = mg.scorer(mg.Cost(fp=3.0, fn="amount"))
    found = cross_validate(
        LogisticRegression(max_iter=500), FRAME, Y, scoring=named, cv=3, return_estimator=True, return_indices=True
    )
    for model, rows, value in zip(found["estimator"], found["indices"]["test"], found["test_score"], strict=True):
        assert value == pytest.approx(COST.take(rows).savings(Y[rows], model.predict(FRAME.iloc[rows])))
    with pytest.raises(ValueError, match="costs: expected a frame with the column 'amount', got ndarray"):
        named(MODEL, X, Y)


@pytest.mark.parametrize("ours", [False, True])
def test_costs_come_with_the_rows_as_metadata(ours: bool) -> None:
    with config_context(enable_metadata_routing=True):
        routed = mg.scorer(mg.Cost(fp=1.0, fn=1.0)).set_score_request(costs=True)
        model: Any = LogisticRegression()
        if ours:
            model = mg.ThresholdedClassifier(model, mg.Cost(fp=1.0, fn=1.0)).set_fit_request(costs=True)
        found = cross_validate(
            model, X, Y, scoring=routed, params={"costs": COST}, cv=3, return_estimator=True, return_indices=True
        )
    for fitted, rows, value in zip(found["estimator"], found["indices"]["test"], found["test_score"], strict=True):
        costs = COST.take(rows)
        decided = fitted.predict(X[rows], costs=costs) if ours else fitted.predict(X[rows])
        assert value == pytest.approx(costs.savings(Y[rows], decided))


def test_a_rule_is_cross_fitted_for_the_costs_of_the_rows() -> None:
    costs = COST.take(slice(0, 300))
    fixed = mg.scorer(costs)(MODEL, X[:300], Y[:300])
    tuned = mg.scorer(costs, tuned=True)(MODEL, X[:300], Y[:300])
    best = mg.tune_threshold(costs, MODEL.predict_proba(X[:300])[:, 1], Y[:300]).value
    assert fixed < tuned <= best
    with pytest.raises(ValueError, match="costs: expected one number for each of 10 rows, got 300"):
        mg.scorer(costs)(MODEL, X[:10], Y[:10])


def test_undecided_rows_are_missed_as_in_evaluate() -> None:
    features, index = make_classification(900, n_informative=6, n_classes=3, class_sep=1.2, random_state=0)
    for classes, label in [(index, None), (index, -1), (np.array(list("abc"))[index], "?")]:
        model = mg.ThresholdedClassifier(
            LogisticRegression(), "recall", subject_to="precision >= 0.8", abstain=True, abstain_label=label, cv=3
        )
        model.fit(features, classes)
        scores, rule = model.estimator_.predict_proba(features), model.rule_
        assert (np.asarray(rule(scores)) < 0).any()
        for metric in ("recall", "precision"):
            expected = mg.evaluate(scores, index, metric, task="multiclass", rule=rule)[metric]
            assert mg.scorer(metric)(model, features, classes) == expected
        with pytest.raises(ValueError, match="rule: expected one that decides every row for accuracy"):
            mg.scorer("accuracy")(model, features, classes)


def test_predictions_alone_may_be_undecided() -> None:
    value = mg.scorer("recall")._score_func
    truth = np.array([0, 0, 1, 1, 2, 2])
    assert value(truth, np.array([0, None, 1, 1, 2, 2], dtype=object)) == pytest.approx((0.5 + 1 + 1) / 3)
    assert value(truth, np.array([None] * 6, dtype=object)) == 0.0
