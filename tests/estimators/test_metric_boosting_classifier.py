"""MetricBoostingClassifier: scikit-learn's contract, what follows the metric, and files of it."""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import metricgrad as mg
from metricgrad.decisions import Threshold
from metricgrad.estimators.metric_boosting_classifier import MetricBoostingClassifier
from metricgrad.integrations.boosting import libraries

BACKENDS: list[Any] = ["xgboost", "lightgbm"]
BINARY = make_classification(600, 8, weights=[0.8], flip_y=0.1, random_state=0)
CLASSES = make_classification(600, 8, n_informative=5, n_classes=3, weights=[0.5, 0.3], random_state=1)
LABELS = make_multilabel_classification(400, 8, n_classes=4, random_state=2)
PROBLEMS: dict[str, Any] = {"binary": BINARY, "multiclass": CLASSES, "multilabel": LABELS}
FAST: dict[str, Any] = {"n_estimators": 25, "cv": 2, "max_depth": 3, "n_jobs": 1, "random_state": 0}
SINGLE: dict[str, Any] = FAST | {"cv": None}

SPLIT_INSIDE = "rows are split inside, and bins of features count rows: weighing a row is not repeating it"
EXPECTED = {f"check_sample_weight_equivalence_on_{kind}_data": SPLIT_INSIDE for kind in ("dense", "sparse")}


@parametrize_with_checks(
    [MetricBoostingClassifier(backend=backend, n_estimators=5, cv=2, n_jobs=1, random_state=0) for backend in BACKENDS],
    # XGBoost makes no split of these checks' few rows, and so passes them.
    expected_failed_checks=lambda e: EXPECTED if e.backend == "lightgbm" else {},
)  # type: ignore[untyped-decorator]
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own, on the data of its checks
        check(estimator)


# What it learns


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", PROBLEMS)
def test_it_learns_each_task(task: str, backend: Any) -> None:
    X, y = PROBLEMS[task]
    model = MetricBoostingClassifier("f1", backend=backend, **FAST).fit(X[:300], y[:300])
    p, found = model.predict_proba(X[300:]), model.predict(X[300:])
    assert found.shape == y[300:].shape
    assert p.shape == (len(found), {"binary": 2, "multiclass": 3, "multilabel": 4}[task])
    np.testing.assert_array_equal(found, p > 0.5 if task == "multilabel" else p.argmax(1))
    np.testing.assert_array_equal(
        found, model.labels_.decode(torch.as_tensor(model.rule_(model.predict_scores(X[300:]))))
    )
    if task == "multilabel":
        assert model.classes_.tolist() == [0, 1, 2, 3]
    else:
        np.testing.assert_allclose(p.sum(1), 1)
    average: Any = "binary" if task == "binary" else "macro"
    never = f1_score(y[300:], np.ones_like(y[300:]), average=average, zero_division=0)
    assert f1_score(y[300:], found, average=average) > never + 0.03


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_metric_loss_decides_better_at_one_half_than_cross_entropy(backend: Any) -> None:
    X, y = make_classification(4000, 10, weights=[0.93], class_sep=0.7, flip_y=0.05, random_state=3)
    options: dict[str, Any] = {"backend": backend, "rule": "fixed", **FAST}
    models = [
        MetricBoostingClassifier(loss=loss, metric_weight=3.0, **options).fit(X[:2000], y[:2000])
        for loss in ("cross-entropy", "metric", "hybrid")
    ]
    entropy, metric, hybrid = (f1_score(y[2000:], model.predict(X[2000:])) for model in models)
    assert metric > entropy + 0.05
    assert hybrid > entropy + 0.05


def test_named_losses_are_those_of_the_library() -> None:
    X, y = BINARY
    losses: dict[Any, Any] = {
        "hybrid": mg.HybridLoss("mcc", metric_weight=2.0),
        "metric": mg.MetricLoss("mcc"),
        "cross-entropy": mg.baselines.bce(),
    }
    for name, loss in losses.items():
        named, given = (
            MetricBoostingClassifier("mcc", loss=which, metric_weight=2.0, **FAST).fit(X, y).predict_scores(X)
            for which in (name, loss)
        )
        np.testing.assert_array_equal(named, given)


def test_cross_entropy_from_the_prior_is_the_built_in_objective_but_for_the_curvature() -> None:
    X, y = BINARY
    model = MetricBoostingClassifier(loss="cross-entropy", rule="fixed", **SINGLE).fit(X, y)
    assert model.history_.empty, "nothing to tune and nothing to stop: all rows train"
    assert model.base_score_ == pytest.approx(np.log(y.mean() / (1 - y.mean())), abs=0.02)
    import xgboost

    theirs = xgboost.XGBClassifier(n_estimators=25, max_depth=3, learning_rate=0.1, n_jobs=1).fit(X, y)
    assert np.corrcoef(theirs.predict_proba(X)[:, 1], model.predict_scores(X))[0, 1] > 0.99


# The rule


def test_the_rule_is_tuned_on_rows_that_were_held_out() -> None:
    X, y = BINARY
    model = MetricBoostingClassifier("f2", **SINGLE | {"patience": 30}).fit(X, y)
    assert model.tuning_ is not None
    scores, targets = model.tuning_._batch.logits, model.tuning_._batch.targets
    assert len(scores) == 120
    assert mg.tune_threshold("f2", scores, targets).rule == model.tuning_.rule == model.rule_
    fixed = clone(model).set_params(rule="fixed").fit(X, y)
    assert fixed.rule_ == Threshold(0.5)
    assert fixed.tuning_ is None
    np.testing.assert_array_equal(fixed.predict_scores(X), model.predict_scores(X))
    given = clone(model).set_params(rule=Threshold(0.01)).fit(X, y)
    assert given.predict(X).sum() > fixed.predict(X).sum()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", PROBLEMS)
def test_the_mean_predicts_and_each_model_says_what_to_tune_on_of_the_rows_it_left_out(task: str, backend: Any) -> None:
    X, y = PROBLEMS[task]
    parts = [(np.arange(100, len(y)), np.arange(100)), (np.arange(len(y) - 100), np.arange(len(y) - 100, len(y)))]
    parts.append((np.arange(200), np.arange(200, 300)))
    model = MetricBoostingClassifier(backend=backend, **FAST | {"cv": parts}).fit(X, y)

    def probabilities(booster: Any, rows: Any) -> Any:
        if backend == "xgboost":
            z = booster.inplace_predict(rows, predict_type="margin")
        else:
            z = booster.predict(rows, raw_score=True)
        e = np.exp(z.astype(float) + model.base_score_)
        return e / e.sum(1, keepdims=True) if task == "multiclass" else e / (1 + e)

    assert len(model.boosters_) == 3
    assert model.n_estimators_ == [25, 25, 25]
    assert set(model.history_.model) == {0, 1, 2}
    each = [probabilities(booster, X) for booster in model.boosters_]
    np.testing.assert_allclose(model.predict_scores(X), np.mean(each, 0), atol=1e-6)
    assert np.abs(each[0] - each[1]).max() > 0.01
    assert model.tuning_ is not None
    left_out = np.concatenate([p[held] for p, (_, held) in zip(each, parts, strict=True)])
    np.testing.assert_allclose(model.tuning_._batch.logits.numpy().reshape(left_out.shape), left_out, atol=1e-6)
    # A fixed rule leaves the models what they are.
    fixed = clone(model).set_params(rule="fixed").fit(X, y)
    np.testing.assert_array_equal(fixed.predict_scores(X), model.predict_scores(X))
    assert fixed.tuning_ is None


def test_five_models_by_default_each_without_a_fifth_of_the_rows() -> None:
    X, y = BINARY
    seen: list[tuple[int, int]] = []
    train = libraries.XGBoost.train

    def watched(self: Any, plan: Any, rounds: int, rows: Any, held_out: Any = None) -> Any:
        seen.append((len(rows.y), 0 if held_out is None else len(held_out.y)))
        return train(self, plan, rounds, rows, held_out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libraries.XGBoost, "train", watched)
        model = MetricBoostingClassifier(n_estimators=3, n_jobs=1, random_state=0).fit(X, y)
        assert seen == [(480, 120)] * 5
        assert len(model.tuning_._batch.logits) == 600  # type: ignore[union-attr]
        del seen[:]
        model.set_params(cv=None).fit(X, y)
        model.set_params(rule="fixed", patience=2).fit(X, y)
        model.set_params(rule="fixed", patience=None).fit(X, y)
        assert seen == [(480, 120), (480, 120), (600, 0)]
        assert len(model.boosters_) == len(model.n_estimators_) == 1


def test_few_positives_are_tuned_on_with_a_caution_and_few_of_a_class_pooled() -> None:
    X, y = BINARY
    few = MetricBoostingClassifier(**SINGLE).fit(X[:200], y[:200])
    assert few.tuning_ is not None
    assert few.tuning_.caution
    assert few.rule_ == few.tuning_.rule
    X, y = CLASSES
    pooled = MetricBoostingClassifier(**SINGLE).fit(X[:100], y[:100])
    assert pooled.tuning_ is not None
    assert pooled.tuning_.origins == ["pooled"] * 3
    assert pooled.rule_ == pooled.tuning_.rule
    X, labels = LABELS
    labels = labels.copy()
    labels[:, 2] = 0
    model = MetricBoostingClassifier(**FAST).fit(X, labels)
    assert model.tuning_ is not None
    assert model.tuning_.origins[2] == "pooled"
    assert model.predict(X)[:, 2].sum() == 0
    two = MetricBoostingClassifier(**FAST).fit([[0.0], [1.0]], [0, 1])  # nothing to hold out
    assert two.tuning_ is None
    assert two.n_estimators_ == [25]


# When it stops


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("monitor", ["loss", "metric"])
def test_training_stops_where_held_out_rows_say(backend: Any, monitor: str) -> None:
    X, y = BINARY
    options: dict[str, Any] = SINGLE | {"n_estimators": 200, "patience": 5, "learning_rate": 0.5, "monitor": monitor}
    model = MetricBoostingClassifier(backend=backend, **options).fit(X, y)
    course = model.history_
    assert list(course.columns) == ["model", "round", "loss", "metric"]
    best = int(course.loss.argmin() if monitor == "loss" else course.metric.argmax())
    assert model.n_estimators_ == [best + 1]
    assert len(course) == best + 6 < 200
    if monitor == "metric":  # under the tuned rule
        assert model.tuning_ is not None
        assert course.metric[best] == pytest.approx(model.tuning_.value, abs=1e-4)
    never = clone(model).set_params(patience=None, n_estimators=best + 1).fit(X, y)
    np.testing.assert_allclose(never.predict_scores(X), model.predict_scores(X), rtol=1e-5)


def test_a_loss_that_moves_starts_anew_and_stops_by_what_it_becomes() -> None:
    X, y = BINARY
    loss = mg.HybridLoss("f1", metric_weight=1.0, warmup=10)
    model = MetricBoostingClassifier(loss=loss, patience=30, **SINGLE)
    first, second = (model.fit(X, y).predict_scores(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert loss.current_metric_weight == 0
    assert model.n_estimators_[0] > 5
    # Without the loss growing with its share, the first round would have been the best.
    last = mg.HybridLoss("f1", metric_weight=1.0)
    assert model.tuning_ is not None
    p, targets = model.tuning_._batch.logits, model.tuning_._batch.targets
    assert model.history_.loss.min() == pytest.approx(last(torch.logit(p), targets).item(), rel=1e-4)


def test_constraints_are_trained_for() -> None:
    X, y = BINARY
    free, bound = (
        MetricBoostingClassifier(loss=loss, rule="fixed", **SINGLE | {"n_estimators": 60}).fit(X, y)
        for loss in (mg.MetricLoss("recall"), mg.ConstrainedLoss("recall", "precision>=0.9"))
    )
    precision = [mg.evaluate(m.predict_scores(X), y, "precision")["precision"] for m in (free, bound)]
    assert precision[0] < 0.8
    assert precision[1] > 0.88
    loss = mg.ConstrainedLoss("recall", "precision>=0.9")
    stopped = MetricBoostingClassifier(loss=loss, patience=5, **FAST).fit(X, y)
    assert np.isfinite(stopped.history_.loss).all()


# What it takes


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_count_in_the_trees_and_in_the_rule(backend: Any) -> None:
    X, y = BINARY
    model = MetricBoostingClassifier("f1", backend=backend, **FAST)
    plain = model.fit(X, y).predict_scores(X).mean()
    weighted = model.fit(X, y, sample_weight=1.0 + 9.0 * y).predict_scores(X).mean()
    assert weighted > plain + 0.1
    assert model.tuning_ is not None
    assert sorted(set(model.tuning_._batch.weight.flatten().tolist())) == [1.0, 10.0]  # type: ignore[union-attr]
    named = clone(model).set_params(class_weight={0: 1.0, 1: 10.0}).fit(X, y)
    assert named.predict_scores(X).mean() == pytest.approx(weighted, abs=1e-6)
    assert (named.rule_, named.tuning_) == (Threshold(0.5), None)
    balanced = clone(model).set_params(class_weight="balanced").fit(X, y)
    assert balanced.tuning_._batch.weight is None


def frame(kind: Any) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    colour = random.choice(["red", "green", "blue", "grey"], 500)
    size = np.where(random.random(500) < 0.1, np.nan, random.normal(size=500))
    y = np.where(np.isin(colour, ["red", "grey"]) ^ (random.random(500) < 0.05), "yes", "no")
    if kind is pl:
        return pl.DataFrame({"size": size, "colour": pl.Series(colour, dtype=pl.Categorical)}), y
    return pd.DataFrame({"size": size, "colour": pd.Categorical(colour)}), y


@pytest.mark.parametrize("kind", [pd, pl])
@pytest.mark.parametrize("backend", BACKENDS)
def test_frames_with_categories_and_missing_values(backend: Any, kind: Any) -> None:
    X, y = frame(kind)
    model = MetricBoostingClassifier(backend=backend, **FAST).fit(X, y)
    assert model.feature_names_in_.tolist() == ["size", "colour"]
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.categories_ == {1: ["blue", "green", "grey", "red"]}
    assert (model.predict(X) == y).mean() > 0.9
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    # The same rows in the other kind of frame are the same rows.
    other, _ = frame(pl if kind is pd else pd)
    np.testing.assert_array_equal(model.predict_scores(other), model.predict_scores(X))


def test_codes_are_those_of_fit() -> None:
    X, y = frame(pd)
    model = MetricBoostingClassifier(**FAST).fit(X, y)
    colour = X.colour.astype(str)
    other = X.assign(colour=pd.Categorical(colour, categories=["grey", "blue", "green", "red"]))
    np.testing.assert_array_equal(model.predict_scores(other), model.predict_scores(X))
    words = X.assign(colour=colour.astype(object))
    np.testing.assert_array_equal(model.predict_scores(words), model.predict_scores(X))
    unknown, missing = X.assign(colour="pink"), X.assign(colour=pd.Categorical([None] * 500))
    np.testing.assert_array_equal(model.predict_scores(unknown), model.predict_scores(missing))
    assert X.colour.dtype == "category", "the frame is left as it was"
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X[["size"]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_sparse_data(backend: Any) -> None:
    X, y = BINARY
    sparse = csr_array(np.where(np.abs(X) < 0.3, 0, X))
    model = MetricBoostingClassifier(backend=backend, **FAST).fit(sparse, y)
    assert f1_score(y, model.predict(sparse)) > 0.5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", PROBLEMS)
def test_clone_pickle_and_seed(task: str, backend: Any) -> None:
    X, y = PROBLEMS[task]
    model = MetricBoostingClassifier("jaccard", backend=backend, backend_params={"subsample": 0.7}, **FAST)
    p = model.fit(X, y).predict_scores(X)
    np.testing.assert_array_equal(clone(model).fit(X, y).predict_scores(X), p)
    copy = pickle.loads(pickle.dumps(model))  # noqa: S301
    np.testing.assert_array_equal(copy.predict_scores(X), p)
    assert copy.rule_ == model.rule_
    other = clone(model).set_params(random_state=1).fit(X, y).predict_scores(X)
    assert np.abs(other - p).max() > 1e-3


def test_pipeline_and_grid_search() -> None:
    X, y = BINARY
    names = np.where(y == 1, "ill", "well")  # the positive class is the last one, "well"
    pipeline = make_pipeline(StandardScaler(), MetricBoostingClassifier(**FAST | {"cv": StratifiedKFold(2)}))
    search = GridSearchCV(pipeline, {"metricboostingclassifier__max_depth": [1, 3]}, scoring="f1_macro", cv=2)
    assert search.fit(X, names).best_score_ > 0.5
    assert set(search.predict(X)) == {"ill", "well"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters_reach_the_library(backend: Any) -> None:
    X, y = BINARY
    options = FAST | {"backend_params": {"max_depth": 1}, "n_estimators": 4, "device": "cpu"}
    model = MetricBoostingClassifier(backend=backend, **options).fit(X, y)
    for booster in model.boosters_:
        assert len(booster.trees_to_dataframe()) == 4 * 3  # all rounds; a root and two leaves each
    with pytest.raises(Exception, match=r"(?i)device"):
        model.set_params(device="abacus").fit(X, y)


# Files


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", PROBLEMS)
def test_files_predict_the_same_bit_for_bit(task: str, backend: Any, tmp_path: Path) -> None:
    X, y = PROBLEMS[task]
    options = FAST | {"cv": 3, "n_estimators": 15}
    model = MetricBoostingClassifier("f2", backend=backend, **options).fit(X, y)
    folder = mg.save(model, tmp_path / "model")
    suffix = libraries.LIBRARIES[backend].suffix
    names = {f"booster-{i}.{suffix}" for i in range(3)} | {"history.json", "manifest.json"}
    assert {path.name for path in folder.iterdir()} == names
    again = mg.load(folder)
    for name in ("predict_scores", "predict_proba", "predict"):
        np.testing.assert_array_equal(getattr(again, name)(X), getattr(model, name)(X))
    assert again.get_params() == model.get_params()
    assert again.rule_ == model.rule_
    assert again.n_estimators_ == model.n_estimators_
    assert again.tuning_.value == model.tuning_.value  # type: ignore[union-attr]
    pd.testing.assert_frame_equal(again.history_, model.history_)
    np.testing.assert_array_equal(again.fit(X, y).predict_scores(X), model.predict_scores(X))
    versions = json.loads((folder / "manifest.json").read_text())["versions"]
    assert versions[backend] == sys.modules[backend].__version__


@pytest.mark.parametrize("backend", BACKENDS)
def test_files_keep_categories_and_the_best_round(backend: Any, tmp_path: Path) -> None:
    X, y = frame(pd)
    options = FAST | {"n_estimators": 100, "patience": 3, "learning_rate": 0.5}
    model = MetricBoostingClassifier(backend=backend, **options).fit(X, y)
    assert len(model.history_) < 200
    assert len(set(model.n_estimators_)) == 2
    again = mg.load(mg.save(model, tmp_path / "model"))
    assert again.categories_ == model.categories_
    np.testing.assert_array_equal(again.predict_scores(X), model.predict_scores(X))
    np.testing.assert_array_equal(mg.load(mg.save(again, tmp_path / "again")).predict(X), model.predict(X))


@pytest.mark.parametrize("backend", BACKENDS)
def test_changed_files_are_refused(backend: Any, tmp_path: Path) -> None:
    model = MetricBoostingClassifier(backend=backend, **FAST).fit(*BINARY)
    folder = mg.save(model, tmp_path / "model")
    for name in ("booster-1.ubj" if backend == "xgboost" else "booster-1.txt", "history.json"):
        path = folder / name
        before = path.read_bytes()
        path.write_bytes(before.replace(b"1", b"2", 1))
        with pytest.raises(ValueError, match=rf"^folder: {name} in '.*' was changed since it was written"):
            mg.load(folder)
        path.unlink()
        with pytest.raises(ValueError, match=rf"^folder: expected a file '{name}' in '.*model', got none$"):
            mg.load(folder)
        path.write_bytes(before)
    mg.load(folder)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_no_model_is_refused(backend: Any, tmp_path: Path) -> None:
    library = libraries.LIBRARIES[backend]
    model = MetricBoostingClassifier(backend=backend, **FAST).fit(*BINARY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(library), "dump", lambda *_: b"\x80\x04.")
        folder = mg.save(model, tmp_path / "model")
    with pytest.raises(ValueError, match=r"^folder: booster.* cannot be read: ") as error:
        mg.load(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("backend", "name", "method", "key"),
    [("xgboost", "DMatrix", "__init__", "nthread"), ("lightgbm", "Booster", "predict", "num_threads")],
)
def test_predicting_takes_as_many_threads_as_fitting(
    backend: Any, name: str, method: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = MetricBoostingClassifier(backend=backend, **FAST).fit(*BINARY)
    again: Any = mg.load(mg.save(model, tmp_path / "model"))
    kind = getattr(importlib.import_module(backend), name)
    true, asked = getattr(kind, method), list[int]()

    def watched(*args: Any, **more: Any) -> Any:
        asked.append(more[key])
        return true(*args, **more)

    monkeypatch.setattr(kind, method, watched)
    for fitted in (model, again):
        fitted.predict_scores(BINARY[0])
        if backend == "xgboost":  # what walks the trees is the model's own number
            for booster in fitted.boosters_:
                asked.append(int(json.loads(booster.save_config())["learner"]["generic_param"]["nthread"]))
    assert set(asked) == {1}


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "catboost"}, "backend: expected 'xgboost' or 'lightgbm', got 'catboost'"),
        ({"loss": "focal"}, "loss: expected 'hybrid', 'metric', 'cross-entropy' or a module, got 'focal'"),
        ({"cv": None, "validation_fraction": 1.0}, r"validation_fraction: expected a number in \(0, 1\), got 1.0"),
        ({"cv": 1}, "cv: expected a number of at least 2, a splitter or None, got 1"),
        ({"n_estimators": 0}, "n_estimators: expected a whole number of at least 1, got 0"),
        ({"patience": 0}, "patience: expected a number of at least 1, or None to never stop, got 0"),
        ({"monitor": "f1"}, "monitor: expected 'loss' or 'metric', got 'f1'"),
        ({"rule": "best"}, "rule: expected 'tuned', 'fixed' or a rule"),
        ({"metric": "f-one"}, "metric: unknown name 'f-one'"),
        ({"average": "mean"}, "average: expected one of"),
        ({"average": None}, "average: expected 'macro' for the one class of task='binary', got None"),
    ],
)
def test_bad_parameters_get_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        MetricBoostingClassifier(**FAST | options).fit(*BINARY)
    assert "\n" not in str(error.value)


def test_bad_targets_get_one_line() -> None:
    X, y = CLASSES
    with pytest.raises(ValueError, match=r"y: expected at least two classes, got one class, np\.int64"):
        MetricBoostingClassifier(**FAST).fit(X, 0 * y)
    with pytest.raises(ValueError, match="expected binary, multi-class or a multi-label indicator"):
        MetricBoostingClassifier(**FAST).fit(X, np.stack((y, y), 1))


@pytest.mark.parametrize(("missing", "backend"), [("sklearn.base", "xgboost"), ("lightgbm", "lightgbm")])
def test_extras_are_asked_for_when_they_are_needed(missing: str, backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mg.MetricBoostingClassifier is MetricBoostingClassifier
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "metricgrad.estimators.metric_boosting_classifier")
    with pytest.raises(ImportError, match=rf"needs {missing}: pip install 'metricgrad\[boosting\]'$"):
        mg.MetricBoostingClassifier(backend=backend, **FAST).fit(*BINARY)
