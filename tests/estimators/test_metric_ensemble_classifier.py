"""The ensemble is cross-fitted once, predicts the weighted mean of its members, and survives being saved."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import safetensors.numpy
import scipy.sparse as sp
import skops.io
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_classification, make_multilabel_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import metricgrad as mg
from damage import change, cuts, flips, reseal
from metricgrad.decisions import Argmax, Offsets, Threshold
from metricgrad.decisions.ensemble_selection import select_ensemble
from metricgrad.estimators import candidates
from metricgrad.estimators.cross_fitting import Member, cross_fit, predict_probabilities
from metricgrad.estimators.encoded_rows import predict_encoded
from metricgrad.estimators.labels import Labels
from metricgrad.storage import forests, linear_models

OWN = [("logistic", LogisticRegression()), ("bayes", GaussianNB())]
QUICK: dict[str, Any] = {"random_state": 0, "cv": 2, "rounds": 4, "bags": 2}


@parametrize_with_checks(
    [
        mg.MetricEnsembleClassifier(
            estimators=[("one", LogisticRegression()), ("two", LogisticRegression(C=9))], **QUICK
        )
    ],
)  # type: ignore[untyped-decorator]
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own, on the data of its checks
        check(estimator)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the default candidates small: tests look at what is done with them, not at how good they are."""
    whole = candidates.make_default_candidates

    def quick(*args: Any) -> Any:
        found = whole(*args)
        for one in found:
            settings = {"n_estimators": 5, "epochs": 3}
            one.estimator.set_params(**{k: v for k, v in settings.items() if k in one.estimator.get_params()})
        return found

    monkeypatch.setattr("metricgrad.estimators.metric_ensemble_classifier.make_default_candidates", quick)


def data(task: str = "binary", rows: int = 240) -> Any:
    if task == "multilabel":
        return make_multilabel_classification(rows, 6, n_classes=3, random_state=0)
    classes = 3 if task == "multiclass" else 2
    return make_classification(rows, 6, n_informative=4, n_classes=classes, flip_y=0.1, random_state=0)


def equal(a: Any, b: Any, X: Any) -> None:
    for method in ("predict_scores", "predict_proba", "predict"):
        np.testing.assert_array_equal(getattr(a, method)(X), getattr(b, method)(X))
    assert a.rule_ == b.rule_
    assert a.weights_ == b.weights_
    np.testing.assert_array_equal(a.classes_, b.classes_)


# Fitting and predicting


def test_out_of_fold_scores_are_those_of_scikit_learn_and_members_are_the_models_of_the_folds() -> None:
    X, y = data()
    cv = StratifiedKFold(3)
    own = [("logistic", LogisticRegression()), ("tree", DecisionTreeClassifier(max_depth=3, random_state=0))]
    model: Any = mg.MetricEnsembleClassifier("mcc", estimators=own, cv=cv, select_by="metric", bags=0).fit(X, y)
    rows = np.concatenate([held for _, held in cv.split(X, y)])
    scores = {name: cross_val_predict(one, X, y, cv=cv, method="predict_proba")[rows, 1] for name, one in own}
    expected = select_ensemble("mcc", scores, y[rows], select_by="metric", bags=0)
    assert model.weights_ == pytest.approx(expected.weights)
    assert model.rule_ == expected.rule
    mean: Any = 0
    for member in model.members_:
        assert len(member.models) == 3
        assert member.weight == model.weights_[member.name]
        mean = mean + member.weight * np.mean([one.predict_proba(X)[:, 1] for one in member.models], 0)
    np.testing.assert_allclose(model.predict_scores(X), mean, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), mean >= model.rule_.threshold)


@pytest.mark.parametrize("kind", ["network", "trees"])
def test_our_own_estimators_take_the_folds_and_show_scores_of_rows_they_did_not_see(kind: str) -> None:
    X, y = data()
    folds = list(StratifiedKFold(3).split(X, y))
    own: Any = mg.MetricClassifier(epochs=4) if kind == "network" else mg.MetricBoostingClassifier(n_estimators=5)
    model = mg.MetricEnsembleClassifier(estimators=[("own", own)], cv=folds, random_state=0).fit(X, y)
    (member,) = model.members_
    (fitted,) = member.models
    alone = clone(own).set_params(cv=folds, rule="tuned", random_state=fitted.random_state).fit(X, y)
    assert model.rule_ == alone.rule_, "tuned on the same out-of-fold scores"
    np.testing.assert_array_equal(model.predict_scores(X), alone.predict_scores(X))
    assert fitted.cv is None


@pytest.mark.parametrize("backend", ["xgboost", "lightgbm"])
def test_a_candidate_of_boosted_trees_keeps_one_history_at_most_and_is_the_same_model(backend: Any) -> None:
    X, y = make_classification(120, random_state=0)
    folds = [(rows, left_out) for rows, left_out in StratifiedKFold(3).split(X, y)]
    trees = mg.MetricBoostingClassifier("f1", backend=backend, n_estimators=6, n_jobs=1)
    candidate = candidates.Candidate("trees", trees)
    (without,) = cross_fit(candidate, X, y, None, Labels(y), folds, seed=4).models
    assert [len(history) for history in without._histories] == [0, 0, 0]
    (model,) = cross_fit(candidate, X, y, None, Labels(y), folds, seed=4, with_history=True).models
    assert [len(history) for history in model._histories] == [6, 0, 0]
    np.testing.assert_array_equal(without.predict_proba(X), model.predict_proba(X))
    plain = clone(trees).set_params(cv=folds, rule="fixed", random_state=4).fit(X, y)
    assert [len(history) for history in plain._histories] == [6, 6, 6]
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    stopped = clone(trees).set_params(patience=2)
    (model,) = cross_fit(candidates.Candidate("trees", stopped), X, y, None, Labels(y), folds, seed=4).models
    assert all(model._histories)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_the_default_candidates(task: str) -> None:
    X, y = data(task)
    model = mg.MetricEnsembleClassifier(**QUICK).fit(X, y)
    table = model.candidates_
    assert list(table.columns) == ["name", "weight", "value", "seconds"]
    assert len(table) == 8
    assert set(model.weights_) == set(table.name[table.weight > 0])
    assert [member.name for member in model.members_] == list(model.weights_)
    assert table.value.between(0, 1).all()
    assert sum(model.weights_.values()) == pytest.approx(1)
    assert model.predict(X).shape == y.shape
    assert model.score(X, y) > 0.4
    assert isinstance(model.rule_, Offsets | Argmax if task == "multiclass" else Threshold)


@pytest.mark.usefixtures("small")
def test_without_the_boosting_libraries_there_are_fewer_candidates(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in ("xgboost", "lightgbm") else find(name, *a)
    )
    model = mg.MetricEnsembleClassifier(**QUICK, verbose=True).fit(*data())
    assert not {"xgboost", "lightgbm"} & set(model.candidates_.name)
    assert len(model.candidates_) == 6
    assert "without xgboost and lightgbm, not installed: pip install 'metricgrad[boosting]'" in capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_frames_with_texts_categories_and_missing_values() -> None:
    X, y = data()
    table = pd.DataFrame(X, columns=list("abcdef"))
    table["a"] = np.where(table.a > 0, "high", "low")
    table["b"] = pd.Categorical(np.where(table.b > 0, "yes", "no"))
    table.loc[::7, "c"] = np.nan
    table.loc[::11, "a"] = None
    model = mg.MetricEnsembleClassifier(**QUICK).fit(table, y)
    kinds = {column.name: column.kind for column in model.encoder_.columns_}
    assert kinds == {name: "category" if name in "ab" else "number" for name in "abcdef"}
    assert list(model.feature_names_in_) == list("abcdef")
    assert model.n_features_in_ == 6
    same = pl.from_pandas(table.astype({"b": str})).with_columns(pl.col("b").cast(pl.Categorical))
    again = mg.MetricEnsembleClassifier(**QUICK).fit(same, y)
    assert again.encoder_.columns_ == model.encoder_.columns_
    np.testing.assert_array_equal(again.predict_scores(same), model.predict_scores(table))
    strange = table.assign(a="never seen")
    assert np.isfinite(model.predict_scores(strange)).all()
    np.testing.assert_array_equal(model.predict_scores(strange), model.predict_scores(table.assign(a=None)))
    with pytest.raises(ValueError, match=r"^X: expected the columns of the table that was fitted, got none named 'c'$"):
        model.predict(table.drop(columns="c"))


def make_visits(rows: int = 240) -> tuple[pd.DataFrame, np.ndarray]:
    """Return dates that could be read in two ways, notes in free text, one of many towns, amounts; and the class."""
    rng = np.random.default_rng(0)
    y = (rng.random(rows) < 0.4).astype(int)
    month = np.where(y, rng.integers(1, 7, rows), rng.integers(4, 12, rows))
    table = pd.DataFrame(
        {
            "when": [f"{one}/{1 + i % 11}/2021" for i, one in enumerate(month)],
            "note": [f"visit {i} was {'good and short' if one else 'bad and long'}" for i, one in enumerate(y)],
            "town": [f"town{k}" for k in rng.integers(0, 70, rows)],
            "paid": [f"{1 + i % 9},50 €" for i in range(rows)],
        }
    )
    return table, y


@pytest.mark.usefixtures("small")
def test_frames_with_dates_and_free_text() -> None:
    table, y = make_visits()
    model = mg.MetricEnsembleClassifier(**QUICK).fit(table, y)
    assert [(column.name, column.kind) for column in model.encoder_.columns_] == [
        ("note", "text"),
        ("town", "category"),
        ("paid", "number"),
    ]
    assert model.encoder_.dropped_["when"].startswith("holds dates that could be day/month/year or month/day/year")
    assert f1_score(y, model.predict(table)) > 0.95
    encoder = mg.TableEncoder(date_format="month/day/year")
    dated = mg.MetricEnsembleClassifier(encoder=encoder, **QUICK).fit(table, y)
    assert not hasattr(encoder, "columns_"), "what was given is not touched"
    assert dated.encoder_.columns_[0].date_format == "month/day/year"
    alone = mg.MetricEnsembleClassifier(encoder=encoder, **QUICK).fit(table[["when"]], y)
    late = alone.predict_scores(table.assign(when="11/5/2021"))
    early = alone.predict_scores(table.assign(when="1/5/2021"))
    assert (early > late).all()


@pytest.mark.usefixtures("small")
def test_a_table_is_encoded_as_by_the_encoder_alone() -> None:
    table, y = make_visits()
    model = mg.MetricEnsembleClassifier(**QUICK).fit(table, y)
    encoded = {view: mg.TableEncoder(view).fit(table, y).transform(table) for view in ("linear", "trees")}
    views = {member.view for member in model.members_}
    assert views <= set(encoded)
    expected = sum(member.weight * member.scores(encoded[member.view], model.labels_) for member in model.members_)
    np.testing.assert_allclose(model.predict_scores(table), expected, rtol=1e-12)


@pytest.mark.usefixtures("small")
def test_sparse_features() -> None:
    X, y = data()
    X = sp.csr_matrix(np.where(np.abs(X) < 0.5, 0, X))
    model = mg.MetricEnsembleClassifier(**QUICK).fit(X, y)
    assert f1_score(y, model.predict(X)) > 0.6


@pytest.mark.usefixtures("small")
def test_twenty_rows_three_positives_and_constant_features() -> None:
    X, y = np.random.RandomState(0).rand(20, 3), np.array([1, 1, 1] + [0] * 17)
    X[:, 1] = 4.0
    model: Any = mg.MetricEnsembleClassifier(random_state=0).fit(X, y)
    assert model.select_by_ == "log-loss"
    assert model.tuning_.caution is not None, "three positives are too few to tune on"
    assert len(model.members_[0].models) in (1, 3)
    constant = mg.MetricEnsembleClassifier(random_state=0).fit(np.ones((20, 3)), y)
    assert np.ptp(constant.predict_scores(np.ones((5, 3)))) < 1e-6
    lonely = mg.MetricEnsembleClassifier(random_state=0).fit(X, np.arange(20) == 0)
    assert set(lonely.weights_.values()) == {1 / 8}, "nothing to select on"
    assert lonely.tuning_ is None
    with pytest.raises(ValueError, match=r"^y: expected at least two classes, got one class"):
        mg.MetricEnsembleClassifier().fit(X, np.zeros(20))


def test_the_rarest_class_may_be_missing_from_a_fold() -> None:
    X, y = data("multiclass", 120)
    y[:] = np.where(np.arange(120) < 10, 2, y % 2)
    model = mg.MetricEnsembleClassifier(estimators=OWN, cv=KFold(2), select_by="log-loss").fit(X, y)
    assert model.predict_scores(X).shape == (120, 3)
    with pytest.raises(
        ValueError, match=r"^cv: expected two classes in every part that is fitted, got \d alone in one"
    ):
        mg.MetricEnsembleClassifier(estimators=OWN, cv=KFold(2)).fit(X, np.arange(120) // 60)


def test_labels_one_by_one_for_classifiers_of_one_label_and_together_for_others() -> None:
    X, y = data("multilabel")
    y[:, 2] = 0
    y[-3:, 2] = 1  # in one fold only
    own = [("logistic", LogisticRegression()), ("forest", RandomForestClassifier(5)), ("knn", KNeighborsClassifier())]
    model = mg.MetricEnsembleClassifier(
        estimators=own, cv=KFold(2), random_state=0, select_by="log-loss", rounds=6, bags=0
    ).fit(X, y)
    kinds = {member.name: member.models for member in model.members_}
    assert kinds["logistic"][0][2] in (0.0, 1.0) or kinds["logistic"][1][2] in (0.0, 1.0)
    assert all(isinstance(one, RandomForestClassifier) for one in kinds.get("forest", []))
    scores = model.predict_scores(X)
    assert scores.shape == y.shape
    assert ((scores >= 0) & (scores <= 1)).all()


def test_groups_are_never_split() -> None:
    X, y = data()
    groups = np.arange(240) // 4
    seen: list[tuple[set[int], set[int]]] = []

    class Watching(LogisticRegression):  # type: ignore[misc]
        def fit(self, X: Any, y: Any) -> Any:
            self.groups = set(X[:, 0])
            return super().fit(X, y)

        def predict_proba(self, X: Any) -> Any:
            seen.append((self.groups, set(X[:, 0])))
            return super().predict_proba(X)

    X[:, 0] = groups
    for cv in (3, GroupKFold(3)):
        seen.clear()
        mg.MetricEnsembleClassifier(estimators=[("one", Watching())], cv=cv, random_state=0).fit(X, y, groups=groups)
        assert len(seen) == 3
        assert not any(fitted & held for fitted, held in seen)
    Xm, ym = data("multilabel")
    Xm[:, 0] = groups
    seen.clear()
    mg.MetricEnsembleClassifier(estimators=[("one", Watching())], cv=3, random_state=0).fit(Xm, ym, groups=groups)
    assert not any(fitted & held for fitted, held in seen)


def test_sample_weights_reach_candidates_selection_and_rule() -> None:
    X, y = data()
    w = np.where(y == 1, 9.0, 1.0)
    own = [*OWN, ("pipe", make_pipeline(StandardScaler(), LogisticRegression()))]
    plain = mg.MetricEnsembleClassifier("accuracy", estimators=own, **QUICK).fit(X, y)
    heavy = mg.MetricEnsembleClassifier("accuracy", estimators=own, **QUICK).fit(X, y, sample_weight=w)
    assert heavy.predict_scores(X).mean() > plain.predict_scores(X).mean() + 0.1
    assert heavy.predict(X).mean() > plain.predict(X).mean()
    with pytest.raises(
        ValueError, match=r"^sample_weight: expected estimators that take it, got 'knn', which does not"
    ):
        mg.MetricEnsembleClassifier(estimators=[("knn", KNeighborsClassifier())]).fit(X, y, sample_weight=w)


def test_a_constraint_is_met_and_a_rule_is_kept() -> None:
    X, y = data()
    model: Any = mg.MetricEnsembleClassifier("recall", estimators=OWN, subject_to="precision >= 0.85", **QUICK)
    model.fit(X, y)
    scores, targets = _tuned_on(model)
    found = mg.evaluate(scores, targets, "precision", threshold=model.rule_.threshold)
    assert found["precision"] >= 0.85
    for rule in (Threshold(0.3), "fixed"):
        model = mg.MetricEnsembleClassifier(estimators=OWN, rule=rule, **QUICK).fit(X, y)
        assert model.rule_ == (Threshold(0.5) if rule == "fixed" else rule)
        assert model.tuning_ is None


def _tuned_on(model: Any) -> Any:
    batch = model.tuning_._batch
    return batch.logits.squeeze(1), batch.targets.squeeze(1)


def test_the_same_whatever_the_jobs() -> None:
    X, y = data()
    own = [("forest", RandomForestClassifier(5)), ("network", mg.MetricClassifier(epochs=2)), *OWN]
    one, two = (mg.MetricEnsembleClassifier(estimators=own, n_jobs=n, **QUICK).fit(X, y) for n in (None, 2))
    equal(one, two, X)
    other = mg.MetricEnsembleClassifier(estimators=own, **QUICK | {"random_state": 1}).fit(X, y)
    assert not np.array_equal(one.predict_scores(X), other.predict_scores(X))
    assert all(pair[1].get_params().get("random_state") is None for pair in own), "what was given is not touched"


def test_what_carries_nothing_is_dropped() -> None:
    X, y = data(rows=600)
    own = [("prior", DummyClassifier()), ("logistic", LogisticRegression())]
    model = mg.MetricEnsembleClassifier(estimators=own, random_state=0, rounds=5).fit(X, y)
    assert list(model.weights_) == ["logistic"]
    assert model.candidates_.set_index("name").weight["prior"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimators": []}, r"estimators: expected a list of \(name, estimator\), got \[\]"),
        ({"estimators": [GaussianNB()]}, r"estimators: expected a list of \(name, estimator\), got"),
        ({"estimators": [("a", GaussianNB()), ("a", GaussianNB())]}, "estimators: expected a name of its own for each"),
        (
            {"estimators": [("svm", LinearSVC())]},
            r"estimators: expected classifiers with predict_proba, got LinearSVC\(",
        ),
        ({"cv": None}, "cv: expected a number of at least 2, a splitter or pairs of rows, got None"),
        ({"cv": 1}, "cv: expected a number of at least 2, a splitter or None, got 1"),
        ({"rule": "best"}, "rule: expected 'tuned', 'fixed' or a rule"),
        ({"metric": "f-one"}, "metric: unknown name 'f-one'"),
        (
            {"select_by": "auc"},
            "select_by: expected one of 'auto', 'metric', 'average-precision', 'log-loss', got 'auc'",
        ),
        ({"rounds": 0}, "rounds: expected a whole number of at least 1, got 0"),
        ({"average": "samples"}, "average: 'samples' is for task='multilabel', got task='binary'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    X, y = data(rows=60)
    with pytest.raises(ValueError, match=message) as error:
        mg.MetricEnsembleClassifier(**{"estimators": OWN} | options).fit(X, y)
    assert "\n" not in str(error.value).replace("LinearSVC()", "")


def test_what_does_not_fit_together_is_refused_before_anything_is_fitted() -> None:
    class Never(GaussianNB):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            raise AssertionError("it was fitted")

    X, y = data("multiclass", 60)
    for options in ({"subject_to": "recall >= 0.5"}, {"bags": -1}, {"select_by": "x"}, {"average": None}):
        with pytest.raises(ValueError, match=r"^(subject_to|bags|select_by|average): expected|^average: None"):
            mg.MetricEnsembleClassifier(estimators=[("never", Never())], **options).fit(X, y)


def test_features_that_only_the_estimators_understand(tmp_path: Path) -> None:
    texts = np.array(["good fine", "bad poor", "fine good good", "poor bad bad"] * 15)
    y = np.array([1, 0, 1, 0] * 15)
    own = [("words", make_pipeline(CountVectorizer(), LogisticRegression()))]
    model = mg.MetricEnsembleClassifier(estimators=own, **QUICK).fit(texts, y)
    assert (model.predict(texts) == y).all()
    again = mg.load(mg.save(model, tmp_path / "model"), estimators=None, trusted=_untrusted(tmp_path / "model"))
    equal(model, again, texts)


def _untrusted(folder: Path) -> list[str]:
    return [kind for file in folder.glob("*.skops") for kind in skops.io.get_untrusted_types(file=file)]


def test_bad_groups_are_refused() -> None:
    X, y = data(rows=60)
    with pytest.raises(ValueError, match=r"^groups: expected one for each of 60 rows, got shape \(3,\)$"):
        mg.MetricEnsembleClassifier(estimators=OWN).fit(X, y, groups=[1, 2, 3])
    with pytest.raises(ValueError, match=r"^groups: expected at least two, and cv of at least 2"):
        mg.MetricEnsembleClassifier(estimators=OWN).fit(X, y, groups=np.zeros(60))


# Saving


@pytest.fixture
def all_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give all candidates the same weight, so that every kind of them is a member."""

    def choose_all(metric: Any, scores: Any, targets: Any, **options: Any) -> Any:
        found = select_ensemble(metric, scores, targets, **options)
        return dataclasses.replace(found, weights=dict.fromkeys(scores, 1 / len(scores)))

    monkeypatch.setattr("metricgrad.estimators.metric_ensemble_classifier.select_ensemble", choose_all)


@pytest.mark.usefixtures("small", "all_chosen")
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_every_kind_of_member_survives(task: str, tmp_path: Path) -> None:
    X, y = data(task)
    table = pd.DataFrame(X, columns=list("abcdef")).assign(a=np.where(X[:, 0] > 0, "high", "low"))
    table.loc[::9, "b"] = np.nan
    model: Any = mg.MetricEnsembleClassifier(**QUICK).fit(table, y)
    assert len(model.members_) == 8
    again: Any = mg.load(mg.save(model, tmp_path / "model"))
    equal(model, again, table)
    assert again.get_params() == model.get_params()
    pd.testing.assert_frame_equal(again.candidates_, model.candidates_)
    assert again.tuning_.value == model.tuning_.value
    equal(model, mg.load(mg.save(again, tmp_path / "again")), table)


@pytest.mark.usefixtures("small", "all_chosen")
def test_an_ensemble_of_a_table_survives(tmp_path: Path) -> None:
    table, y = make_visits()
    encoder = mg.TableEncoder(date_format="month/day/year")
    model: Any = mg.MetricEnsembleClassifier(encoder=encoder, **QUICK).fit(table, y)
    folder = mg.save(model, tmp_path / "model")
    again: Any = mg.load(folder, encoder=encoder)
    assert again.encoder_.columns_ == model.encoder_.columns_
    assert again.encoder_.dropped_ == model.encoder_.dropped_
    later = table.assign(town=None, note="a good visit", paid="1.000,00 €")
    for rows in (table, later):
        equal(model, again, rows)
    encoder_file = folder / "encoder" / "encoder.json"
    change(encoder_file, lambda about: about | {"columns": about["columns"][1:]})
    reseal(folder)
    with pytest.raises(
        ValueError, match=r"^[^\n]*encoder.safetensors: expected medians and scales of 1 columns, [^\n]*$"
    ):
        mg.load(folder, encoder=encoder)


@pytest.mark.usefixtures("small")
def test_a_damaged_encoder_is_refused_in_one_line(tmp_path: Path) -> None:
    table, y = make_visits()
    folder = mg.save(mg.MetricEnsembleClassifier(**QUICK).fit(table, y), tmp_path / "model")
    manifest = (folder / "manifest.json").read_bytes()
    for name in ("encoder.json", "encoder.safetensors", "words.json"):
        file = folder / "encoder" / name
        whole = file.read_bytes()
        for damaged in (b"", b"\xff" * 64, whole[: len(whole) // 2], whole[:-1], whole[1:], b"{}"):
            file.write_bytes(damaged)
            reseal(folder)
            with pytest.raises(ValueError, match=rf"^folder: encoder/{name}: [^\n]*$"):
                mg.load(folder)
        file.unlink()
        change(folder / "manifest.json", partial(_without_file, name=f"encoder/{name}"))
        reseal(folder)
        with pytest.raises(ValueError, match=rf"^folder: encoder/{name}: expected a file of this name, got none$"):
            mg.load(folder)
        file.write_bytes(whole)
        (folder / "manifest.json").write_bytes(manifest)
    mg.load(folder)


def _without_file(manifest: Any, name: str) -> Any:
    return manifest | {"files": {file: hashed for file, hashed in manifest["files"].items() if file != name}}


@pytest.mark.usefixtures("small", "all_chosen")
def test_damage_is_refused(tmp_path: Path) -> None:
    folder = mg.save(mg.MetricEnsembleClassifier(**QUICK).fit(*data()), tmp_path / "model")
    for damage in (flips, cuts):
        for _ in damage(folder, 30):
            with pytest.raises(ValueError, match=r"^folder: [^\n]*$"):
                mg.load(folder)
    mg.load(folder)


def test_a_folder_of_your_own_estimators_wants_their_types_and_parameters(tmp_path: Path) -> None:
    X, y = data()

    def double(X: Any) -> Any:
        return 2 * X

    own = [("logistic", LogisticRegression()), ("network", mg.MetricClassifier(_metric, epochs=2))]
    model = mg.MetricEnsembleClassifier(estimators=own, **QUICK).fit(X, y)
    folder = mg.save(model, tmp_path / "model")
    with pytest.raises(ValueError, match=r"^estimators: the folder cannot hold \[\('logistic', LogisticRegression"):
        mg.load(folder)
    again: Any = mg.load(folder, estimators=own)
    equal(model, again, X)
    assert again.estimators is own
    equal(model, mg.load(folder, estimators=None), X)
    for estimator, wanted in (
        (make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=2)), ["sklearn.tree._tree.Tree"]),
        (RandomForestClassifier(3), []),
    ):
        model = mg.MetricEnsembleClassifier(estimators=[("own", estimator)], **QUICK).fit(X, y)
        folder = mg.save(model, tmp_path / "model", overwrite=True)
        if wanted:
            with pytest.raises(ValueError, match=r"^trusted: expected \['sklearn.tree._tree.Tree'\], if you trust"):
                mg.load(folder, estimators=None)
        equal(model, mg.load(folder, estimators=None, trusted=wanted), X)
    for estimator in (
        make_pipeline(FunctionTransformer(double), LogisticRegression()),
        mg.MetricClassifier(model=_network, epochs=2),
    ):
        model = mg.MetricEnsembleClassifier(estimators=[("odd", estimator)], **QUICK).fit(X, y)
        with pytest.raises(ValueError, match=r"^estimators: 'odd' cannot be saved: [^\n]*$"):
            mg.save(model, tmp_path / "odd")
        assert not (tmp_path / "odd").exists()


def _metric(c: Any) -> Any:
    return mg.metrics.f1(c)


def _network(inputs: int, outputs: int) -> nn.Module:
    return nn.Linear(inputs, outputs)


@pytest.mark.usefixtures("small", "all_chosen")
def test_forgeries_are_refused(tmp_path: Path) -> None:
    X, y = data()
    folder = mg.save(mg.MetricEnsembleClassifier(**QUICK).fit(X, y), tmp_path / "model")
    manifest = (folder / "manifest.json").read_bytes()

    def forge(**changes: Any) -> None:
        change(folder / "manifest.json", lambda found: found | {"ensemble": found["ensemble"] | changes})
        reseal(folder)

    members = json.loads(manifest)["ensemble"]["members"]
    forgeries: tuple[dict[str, Any], ...] = (
        {"members": []},
        {"members": members[:-1]},
        {"members": [one | {"weight": 1.0} for one in members]},
        {"members": [one | {"name": "same"} for one in members]},
        {"members": [one | {"view": "os"} for one in members]},
        {"members": [one | {"kind": "os:system"} for one in members]},
        {"members": [one | {"kind": "scikit-learn"} for one in members]},
        {"members": members[::-1]},
        {"categories": {"type": "dict", "items": [[0, [["a"]]]]}},
        {"candidates": [{"name": "a"}]},
        {"select_by": 3},
    )
    for changes in forgeries:
        forge(**changes)
        with pytest.raises(ValueError, match=r"^folder: [^\n]*$"):
            mg.load(folder)
        (folder / "manifest.json").write_bytes(manifest)
    reseal(folder)
    mg.load(folder)
    place = next(i for i, one in enumerate(members) if one["name"] == "extra trees")
    other = next(i for i, one in enumerate(members) if one["name"] == "logistic regression, C=3")
    about, file = (folder / f"member-{place}.forests.{end}" for end in ("json", "safetensors"))
    written = {path: path.read_bytes() for path in (about, file)}
    sound = safetensors.numpy.load(written[file])
    for name, changed_nodes in (
        ("0.right_child", {0: 10**6}),
        ("0.left_child", {0: 0}),
        ("0.feature", {0: 99}),
        ("0.sizes", {0: 1}),
        ("0.values", {0: np.nan}),
        ("0.missing_go_to_left", {0: 7}),
    ):
        array = sound[name].copy()
        for at, value in changed_nodes.items():
            array[at] = value
        file.write_bytes(safetensors.numpy.save(sound | {name: array}))
        reseal(folder)
        with pytest.raises(ValueError, match=r"^folder: member-\d.forests.safetensors holds a damaged forest: [^\n]*$"):
            mg.load(folder)
    file.write_bytes(safetensors.numpy.save({name: array for name, array in sound.items() if name != "0.seeds"}))
    reseal(folder)
    with pytest.raises(ValueError, match=r"holds a damaged forest: [^\n]*expected the arrays left_child, [^\n]*$"):
        mg.load(folder)
    file.write_bytes(b"\xff" * 64)
    reseal(folder)
    with pytest.raises(ValueError, match=r"^folder: member-\d.forests.safetensors cannot be read: [^\n]*$"):
        mg.load(folder)
    file.write_bytes(written[file])
    for changed in (
        {"features": 99},
        {"features": 5},
        {"kind": "os:system"},
        {"kind": "RandomForestClassifier", "parameters": {"n_trees": 3}},
        {"classes": [["a"]]},
    ):
        saved_forests = json.loads(written[about])["forests"]
        about.write_text(json.dumps({"forests": [one | changed for one in saved_forests]}))
        reseal(folder)
        with pytest.raises(ValueError, match=r"^folder: [^\n]*$"):
            mg.load(folder)
    about.write_bytes(written[about])
    reseal(folder)
    mg.load(folder)
    linear = [folder / f"member-{other}.json", folder / f"member-{other}.safetensors"]
    saved = [one.read_bytes() for one in linear]
    three = LogisticRegression().fit(X, np.arange(240) % 3)
    narrow = LogisticRegression().fit(X[:, :2], np.arange(240) % 2)
    forged = [
        list((linear_models.write_models([model], f"member-{other}") or {}).values()) for model in (three, narrow)
    ]
    forged += [
        [b'{"models": []}', saved[1]],
        [saved[0], b"\xff" * 64],
        [forged[0][0], saved[1]],
        [saved[0], forged[1][1]],
    ]
    for contents in forged:
        for path, data_of_file in zip(linear, contents, strict=True):
            path.write_bytes(data_of_file)
        reseal(folder)
        with pytest.raises(ValueError, match=r"^folder: [^\n]*$"):
            mg.load(folder)


def test_forged_models_of_skops_are_refused(tmp_path: Path) -> None:
    X, y = data()
    folder = mg.save(mg.MetricEnsembleClassifier(estimators=OWN[1:], **QUICK).fit(X, y), tmp_path / "model")
    nothing: list[Any] = []
    for models in (nothing, {"a": 1}):
        (folder / "member-0.skops").write_bytes(skops.io.dumps(models))
        reseal(folder)
        with pytest.raises(ValueError, match=r"^folder: expected a list of models in member-0.skops, got (list|dict)$"):
            mg.load(folder, estimators=None)


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier, LogisticRegression])
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_encoded_rows_are_predicted_as_by_scikit_learn(kind: Any, task: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    targets = {"binary": X[:, 0] > 0, "multiclass": np.digitize(X[:, 0], [-0.5, 0.5]), "multilabel": X[:, :3] > 0}
    y = targets[task].astype(int)
    if kind is LogisticRegression and task == "multilabel":
        y = y[:, 0]
    model = (kind() if kind is LogisticRegression else kind(7, random_state=0)).fit(X, y)
    for rows in (X, X[:1], X[7:8], X[-1:], sp.csr_matrix(X)):
        found, expected = predict_encoded(model, rows), model.predict_proba(rows)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    if kind is not LogisticRegression:
        (again,) = forests.read_forests(forests.write_forests([model], "m") or {}, "m")
        np.testing.assert_array_equal(np.asarray(again.predict_proba(X)), np.asarray(model.predict_proba(X)))
        assert again.get_params() == model.get_params()
        assert vars(again).keys() == vars(model).keys()
        assert vars(again.estimators_[0]).keys() == vars(model.estimators_[0]).keys()
        np.testing.assert_array_equal(again.feature_importances_, model.feature_importances_)
        with pytest.raises(ValueError, match=r"^X: expected 4 features, got 3$"):
            predict_encoded(model, X[:, :3])


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
def test_a_single_row_with_gaps_goes_where_scikit_learn_sends_it(kind: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    X[rng.random(X.shape) < 0.3] = np.nan
    y = (np.nan_to_num(X[:, 0], nan=1.0) + np.nan_to_num(X[:, 1], nan=-1.0) > 0).astype(int)
    model = kind(9, random_state=0).fit(X, y)
    for _ in range(2):
        expected = model.predict_proba(X)
        found = np.concatenate([predict_encoded(model, X[[place]]) for place in range(len(X))])
        np.testing.assert_array_equal(found, expected)
        model.fit(X, 1 - y)  # other trees in the same forest


@pytest.mark.parametrize(
    "model", [mg.MetricClassifier(epochs=1, cv=None, scale=False), mg.MetricBoostingClassifier(n_estimators=3, cv=None)]
)
def test_encoded_rows_are_not_checked_again_but_counted(model: Any) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model.fit(X, y)
    found = predict_probabilities(model, X, model.labels_, is_encoded=True)
    assert torch.equal(found, predict_probabilities(model, X, model.labels_))
    with pytest.raises(ValueError, match=r"^X: expected 30 features, got 29$"):
        predict_probabilities(model, X[:, :29], model.labels_, is_encoded=True)


def test_the_default_network_sees_each_column_scaled_once() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"size": 5 + 2 * rng.normal(size=300), "kind": np.where(np.arange(300) % 25 == 0, "rare", "usual")}
    )
    y = (table["size"] + rng.normal(size=300) > 5).astype(int)
    spec = candidates.CandidateSpec(metric="f1", average="macro", rows=300, outputs=1)
    (network,) = (one for one in candidates.make_default_candidates(spec) if one.name == "hybrid")
    assert network.view == "linear"
    seen = mg.TableEncoder(network.view).fit_transform(table, y)
    fitted = clone(network.estimator).set_params(epochs=1, cv=None).fit(seen, y)
    np.testing.assert_allclose(fitted._features(seen), seen, rtol=1e-6)
    np.testing.assert_allclose(seen[:, 0].std(), 1, rtol=1e-6)
    assert sorted(np.unique(seen[:, 1])) == sorted(np.unique(seen[:, 2])) == [0, 1]


def test_default_candidates_and_what_they_see() -> None:
    spec = candidates.CandidateSpec(metric="f1", average="macro", rows=300, outputs=1, has_texts=True)
    found = {one.name: one for one in candidates.make_default_candidates(spec)}
    linear = [*(f"logistic regression, C={c:g}" for c in candidates.INVERSE_PENALTIES), "hybrid"]
    trees = ["xgboost", "metric boosting", "random forest", "extra trees"]
    assert {name: one.view for name, one in found.items()} == dict.fromkeys(linear, "linear") | dict.fromkeys(
        trees, "trees"
    )
    assert found["hybrid"].estimator.dropout == 0.5, "every word has weights of its own"
    quick = candidates.make_default_candidates(dataclasses.replace(spec, quick=True))
    assert [one.name for one in quick] == ["logistic regression, C=0.1", "hybrid", *trees]


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_candidates_besides_the_default_ones(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(candidates, "EPOCHS", 2)
    monkeypatch.setattr(candidates, "ROUNDS", 2)
    X, y = data(rows=90)
    if kind == "frame":
        X = pd.DataFrame(X).rename(columns=lambda column: f"x{column}")
    extra = ["hybrid tabm", ("bayes", GaussianNB()), ("neighbours", KNeighborsClassifier())]
    model = mg.MetricEnsembleClassifier("f1", extra_estimators=extra, cv=2, bags=0, random_state=0).fit(X, y)
    names = list(model.candidates_["name"])
    default = mg.MetricEnsembleClassifier("f1", cv=2, bags=0, random_state=0).fit(X, y)
    assert names == [*default.candidates_["name"], "hybrid tabm", "bayes", "neighbours"]
    assert model.candidates_["value"].notna().all()
    tabm = next(one for one in candidates.name_extra_candidates(extra, _SPEC, []) if one.name == "hybrid tabm")
    assert (tabm.view, tabm.estimator.model, tabm.estimator.loss) == ("dense", "tabm", "hybrid")

    # A member that sees the features as given beside one that sees them encoded.
    own = GaussianNB().fit(X, y)
    encoded = default.members_[0]
    mixed = _with_members(model, [Member("bayes", 0.5, "given", [own]), dataclasses.replace(encoded, weight=0.5)])
    alone = _with_members(model, [dataclasses.replace(encoded, weight=1.0)])
    expected = (own.predict_proba(X)[:, 1] + alone.predict_scores(X)) / 2
    np.testing.assert_allclose(mixed.predict_scores(X), expected, atol=1e-12)
    mg.save(mixed, tmp_path / "mixed")
    read = mg.load(tmp_path / "mixed", extra_estimators=None)
    np.testing.assert_array_equal(read.predict_scores(X), mixed.predict_scores(X))
    mg.save(alone.set_params(extra_estimators=["hybrid tabm"]), tmp_path / "names")
    assert mg.load(tmp_path / "names").extra_estimators == ["hybrid tabm"]


def _with_members(model: Any, members: list[Member]) -> Any:
    """Return an ensemble like this one, of these members."""
    other = copy.copy(model)
    other.members_ = members
    return other


_SPEC = candidates.CandidateSpec(metric="f1", average="macro", rows=300, outputs=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"extra_estimators": "tabm"}, r"extra_estimators: expected a list of 'tabm' or 'hybrid tabm' or \(name, est"),
        ({"extra_estimators": []}, r"extra_estimators: expected a list of 'tabm'"),
        ({"extra_estimators": ["catboost"]}, r"extra_estimators: expected a list of 'tabm'"),
        ({"extra_estimators": [GaussianNB()]}, r"extra_estimators: expected a list of \(name, estimator\)"),
        ({"extra_estimators": [("hybrid", GaussianNB())]}, "extra_estimators: expected names that no other candidate"),
        ({"extra_estimators": ["tabm"], "estimators": OWN}, "extra_estimators: they come besides the default"),
    ],
)
def test_bad_extra_candidates_are_refused(options: dict[str, Any], message: str) -> None:
    X, y = data(rows=60)
    with pytest.raises(ValueError, match=message):
        mg.MetricEnsembleClassifier(**options).fit(X, y)


def test_an_extra_candidate_without_its_package_is_refused_before_anything_is_fitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"extra_estimators: 'tabm' needs tabm: pip install 'metricgrad\[tabm\]'"):
        candidates.name_extra_candidates(["tabm"], _SPEC, [])


class _Clock:
    """A clock that only ``_Slow`` moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic


CLOCK = _Clock()


class _Slow(LogisticRegression):  # type: ignore[misc] # scikit-learn has no types
    """Takes so many seconds, by the clock of the test."""

    def __init__(self, seconds: float = 1.0) -> None:
        super().__init__(max_iter=500)
        self.seconds = seconds

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        CLOCK.now += self.seconds
        return super().fit(X, y, sample_weight)


def test_a_time_limit_leaves_out_what_is_expected_to_exceed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricgrad.estimators.time_limit.time", CLOCK)
    monkeypatch.setattr("metricgrad.estimators.cross_fitting.time", CLOCK)
    X, y = make_classification(80, random_state=0)
    own = [(name, _Slow(seconds)) for name, seconds in (("a", 1.0), ("b", 2.0), ("c", 1.0), ("d", 1.0))]

    def names(limit: float | None) -> list[str]:
        model = mg.MetricEnsembleClassifier("f1", estimators=own, cv=2, bags=0, time_limit=limit, random_state=0)
        return list(model.fit(X, y).candidates_["name"])

    assert names(None) == ["a", "b", "c", "d"]
    assert names(1e9) == ["a", "b", "c", "d"]
    # a takes 2 seconds, so b is expected to take 2; then both have taken 6, and c is expected to take 3.
    assert names(3.9) == ["a"]
    assert names(4.0) == ["a", "b"]
    assert names(8.9) == ["a", "b"]
    assert names(9.0) == ["a", "b", "c"]
    assert names(0.1) == ["a"]


def test_with_a_time_limit_the_cheapest_candidates_are_first_and_each_is_as_without() -> None:
    X, y = make_classification(120, random_state=0)
    limited = mg.MetricEnsembleClassifier("f1", cv=2, time_limit=1e9, random_state=0).fit(X, y)
    free = mg.MetricEnsembleClassifier("f1", cv=2, random_state=0).fit(X, y)
    first = list(limited.candidates_["name"])
    assert first[:3] == list(free.candidates_["name"])[:3]
    assert first[-1] == "hybrid"
    values = free.candidates_.set_index("name")["value"]
    assert limited.candidates_.set_index("name")["value"].to_dict() == values.to_dict()


@pytest.mark.parametrize("limit", [0, -1.0, "60", float("nan"), True])
def test_a_time_limit_that_is_none_is_refused(limit: Any) -> None:
    X, y = make_classification(40, random_state=0)
    with pytest.raises(ValueError, match="time_limit: expected a number of seconds above 0, or None, got"):
        mg.MetricEnsembleClassifier("f1", time_limit=limit).fit(X, y)
