"""to_onnx of tables, trees and ensembles: ONNX Runtime decides as predict does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from onnx import helper
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import metricgrad as mg
from metricgrad.decisions.calibration import Scaling
from metricgrad.estimators import metric_ensemble_classifier
from metricgrad.estimators.candidates import make_default_candidates
from metricgrad.storage.onnx_graph import Graph, onnx_type
from metricgrad.storage.onnx_tables import TableInputs, add_given_matrix
from short_training import shorten_training

ROWS = 160
WORDS = ["good", "bad", "Awful", "ÜBER", "great", "12", "it", "a", "nice_one", "don't", "red", "blue,", "(big)"]


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch, 3, 6)


# Tables


def make_numbers(rng: Any, rows: int) -> pd.DataFrame:
    numbers = pd.DataFrame(rng.normal(size=(rows, 4)).astype(np.float32), columns=list("abcd"))
    numbers.loc[rng.random(rows) < 0.2, "b"] = np.nan
    numbers["c"] = numbers["c"].round(1)
    numbers.loc[rng.random(rows) < 0.05, "d"] = np.inf
    return numbers


def make_categories(rng: Any, rows: int) -> pd.DataFrame:
    common = rng.choice(
        np.array(["flat", "round", "odd", "só", None], dtype=object), rows, p=[0.5, 0.3, 0.1, 0.05, 0.05]
    )
    many = (rng.pareto(1, rows) * 20).astype(int) % 400
    return pd.DataFrame({"shape": common, "town": [f"town {k}" for k in many], "open": rng.random(rows) < 0.4})


def make_dates(rng: Any, rows: int) -> pd.DataFrame:
    seconds = rng.integers(-3_000_000_000, 4_000_000_000, rows)
    clock = pd.Series(seconds.astype("datetime64[s]"))
    clock[rng.random(rows) < 0.1] = pd.NaT
    return pd.DataFrame({"sold": clock, "made": pd.Series(seconds[::-1].astype("datetime64[s]")).dt.normalize()})


def make_texts(rng: Any, rows: int) -> pd.DataFrame:
    notes = [" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(rows)]
    is_missing = rng.random(rows) < 0.05
    return pd.DataFrame({"note": pd.Series(notes, dtype=object).mask(is_missing, None)})


MAKERS = {"numbers": make_numbers, "categories": make_categories, "dates": make_dates, "texts": make_texts}


def make_table(kinds: str, seed: int, rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.concat([MAKERS[kind](rng, rows) for kind in kinds.split("+")], axis=1)


def make_targets(table: pd.DataFrame, task: str) -> Any:
    """Return targets that follow from the table, with some noise."""
    rng = np.random.default_rng(0)
    level = rng.normal(size=len(table))
    if "a" in table:
        level = level + 2 * table["a"].to_numpy()
    if "shape" in table:
        level = level + 2 * (table["shape"] == "odd").to_numpy() - (table["town"] == "town 0").to_numpy()
    if "sold" in table:
        level = level + table["sold"].dt.month.fillna(6).to_numpy() / 3 - 2
    if "note" in table:
        level = level + 2 * table["note"].fillna("").str.contains("good").to_numpy()
    if task == "binary":
        return np.where(level > 0.8, "yes", "no")
    if task == "multiclass":
        return np.digitize(level, [-0.5, 1.0]) * 10
    return np.column_stack([level > 0, level > 1, rng.random(len(table)) < 0.3]).astype(int)


def make_new_rows(kinds: str) -> pd.DataFrame:
    """Return rows with gaps, unknown categories and unknown words."""
    table = make_table(kinds, seed=1)
    if "shape" in table:
        table.loc[:30, "shape"] = "never seen"
        table.loc[:30, "town"] = "far away"
    if "note" in table:
        table.loc[:10, "note"] = "unheard of"
    table = table.astype({"open": float} if "open" in table else {})
    gaps = pd.DataFrame({name: pd.Series([None], dtype=kind) for name, kind in table.dtypes.items()})
    return pd.concat([table, gaps], ignore_index=True)


# Running files


def make_feeds(session: Any, table: pd.DataFrame) -> dict[str, Any]:
    """Return the columns of a table as the inputs of a file."""
    feeds = {}
    for one in session.get_inputs():
        cells = table[one.name.removesuffix(" (column)")]
        if one.type == "tensor(string)":
            feeds[one.name] = cells.fillna("").astype(str).to_numpy(object)[:, None]
        elif pd.api.types.is_datetime64_any_dtype(cells.dtype):
            seconds = cells.to_numpy("datetime64[s]")
            feeds[one.name] = np.where(np.isnat(seconds), np.nan, seconds.astype(np.float64))[:, None]
        else:
            kind = np.float32 if one.type == "tensor(float)" else np.float64
            feeds[one.name] = cells.to_numpy(kind)[:, None]
    return feeds


def run(path: Path, X: Any) -> tuple[Any, Any]:
    """Return scores and labels of a file."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = make_feeds(session, X) if isinstance(X, pd.DataFrame) else {"features": X}
    scores, labels = session.run(["scores", "labels"], feeds)
    return scores, labels


def agree(model: Any, path: Path, X: Any, tolerance: float = 1e-6) -> None:
    """Labels are equal and scores close, of all rows, of one, and of none."""
    scores, labels = run(path, X)
    np.testing.assert_allclose(scores, np.asarray(model._scores(X)), rtol=0, atol=tolerance)
    np.testing.assert_array_equal(labels, model.predict(X))
    one_score, one_label = run(path, X[:1])
    np.testing.assert_allclose(one_score, scores[:1], rtol=0, atol=tolerance)
    np.testing.assert_array_equal(one_label, labels[:1])
    no_scores, no_labels = run(path, X[:0])
    assert no_scores.shape == (0, *scores.shape[1:])
    assert no_labels.shape == (0, *labels.shape[1:])


# Encoders


@pytest.mark.parametrize("view", ["linear", "dense", "trees"])
@pytest.mark.parametrize("kinds", ["numbers", "categories", "dates", "texts", "numbers+categories+dates+texts"])
def test_views_of_a_table_are_equal(kinds: str, view: Any) -> None:
    table = make_table(kinds, seed=0, rows=600)
    encoder = mg.TableEncoder(view).fit(table, make_targets(table, "multiclass"))
    graph = Graph(np.float32)
    name = TableInputs(graph, encoder).add_view(view)
    expected = encoder.transform(make_new_rows(kinds))
    expected = expected.toarray() if hasattr(expected, "toarray") else expected
    kind = onnx_type(expected.dtype)
    model = graph.make_model("view", [helper.make_tensor_value_info(name, kind, ["rows", expected.shape[1]])])
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run([name], make_feeds(session, make_new_rows(kinds)))
    np.testing.assert_array_equal(found, expected)


def test_every_day_is_the_day_of_the_calendar() -> None:
    days = pd.DataFrame(
        {"day": pd.date_range("1580-01-01", "2410-01-01", freq="D", unit="s") + pd.Timedelta("23:59:59")}
    )
    encoder = mg.TableEncoder("trees").fit(days)
    graph = Graph(np.float32)
    name = TableInputs(graph, encoder).add_view("trees")
    model = graph.make_model("days", [helper.make_tensor_value_info(name, onnx_type(np.float32), ["rows", 5])])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run([name], make_feeds(session, days))
    np.testing.assert_array_equal(found, encoder.transform(days))


# Models of tables


@pytest.mark.parametrize(
    ("kinds", "task"),
    [
        ("numbers", "binary"),
        ("categories", "binary"),
        ("dates", "binary"),
        ("texts", "binary"),
        ("numbers+categories", "multiclass"),
        ("numbers+texts", "multiclass"),
        ("numbers+categories", "multilabel"),
        ("numbers+categories+dates+texts", "multilabel"),
    ],
)
def test_labels_of_an_ensemble_are_equal(kinds: str, task: str, tmp_path: Path) -> None:
    table = make_table(kinds, seed=0)
    model = mg.MetricEnsembleClassifier("f1", cv=2, bags=0, random_state=0).fit(table, make_targets(table, task))
    agree(model, mg.to_onnx(model, tmp_path / "model.onnx"), make_new_rows(kinds))


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_every_default_candidate_is_exported(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table("numbers+categories+texts", seed=0)
    targets = make_targets(table, task)
    new_rows = make_new_rows("numbers+categories+texts")
    names: list[str] = []

    def only(place: int) -> Any:
        return lambda spec: make_default_candidates(spec)[place : place + 1]

    for place in range(8):
        monkeypatch.setattr(metric_ensemble_classifier, "make_default_candidates", only(place))
        model = mg.MetricEnsembleClassifier(rule="fixed", cv=2, bags=0, random_state=0).fit(table, targets)
        agree(model, mg.to_onnx(model, tmp_path / f"{place}.onnx"), new_rows)
        names += model.weights_
    assert len(set(names)) == 8


@pytest.mark.parametrize(
    ("task", "ship", "target"),
    [("binary", "ensemble", "ripe"), ("multilabel", "xgboost", "x,y,z")],
)
def test_labels_of_a_shipped_model_are_equal(task: str, ship: str, target: str, tmp_path: Path) -> None:
    kinds = "numbers+categories+dates+texts"
    table = make_table(kinds, seed=0).rename(columns={"a": "scores"})
    targets = make_targets(table.rename(columns={"scores": "a"}), task)
    names = target.split(",")
    data = table.assign(**dict(zip(names, targets.T if task == "multilabel" else [targets], strict=True)))
    study = mg.compare(
        data, names, "f1", ship=ship, contenders=[ship, "logistic regression", "extra trees"], repeats=2, jobs=1
    )
    path = mg.to_onnx(study.model, tmp_path / "model.onnx")
    new_rows = make_new_rows(kinds).rename(columns={"a": "scores"})
    agree(study.model, path, new_rows)
    inputs = {one.name: one.type for one in onnxruntime.InferenceSession(path).get_inputs()}
    assert inputs["scores (column)"] == "tensor(float)"
    assert inputs["shape"] == inputs["note"] == "tensor(string)"
    assert inputs["sold"] == "tensor(double)"
    again = mg.to_onnx(mg.load_run(study.path).model, tmp_path / "again.onnx")
    assert again.read_bytes() == path.read_bytes()


def test_own_members_with_an_encoder_and_a_label_of_one_value(tmp_path: Path) -> None:
    table = make_table("numbers+categories", seed=0)
    targets = make_targets(table, "multilabel")
    targets[:, 1] = 1
    mine = make_pipeline(mg.TableEncoder(), LogisticRegression())
    model = mg.MetricEnsembleClassifier(estimators=[("mine", mine)], cv=2, bags=0, random_state=0).fit(table, targets)
    agree(model, mg.to_onnx(model, tmp_path / "model.onnx"), make_new_rows("numbers+categories"))


def test_a_pipeline_behind_a_threshold(tmp_path: Path) -> None:
    table = make_table("numbers+categories+dates", seed=0)
    forest = make_pipeline(mg.TableEncoder("trees"), RandomForestClassifier(10, random_state=0))
    model = mg.ThresholdedClassifier(forest, "f2", cv=2).fit(table, make_targets(table, "binary"))
    agree(model, mg.to_onnx(model, tmp_path / "model.onnx"), make_new_rows("numbers+categories+dates"))


# Models of arrays


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
@pytest.mark.parametrize(
    "model",
    [
        mg.MetricBoostingClassifier("f1", n_estimators=20, cv=2, random_state=0, n_jobs=1),
        mg.MetricBoostingClassifier("f1", backend="lightgbm", n_estimators=20, cv=2, random_state=0, n_jobs=1),
        mg.ThresholdedClassifier(ExtraTreesClassifier(20, random_state=0), "f1", cv=2),
        mg.ThresholdedClassifier(make_pipeline(StandardScaler(), LogisticRegression()), "f1", cv=2),
        mg.ThresholdedClassifier(make_pipeline(StandardScaler(), RidgeClassifier()), "f1", cv=2),
        mg.MetricEnsembleClassifier("f1", cv=2, bags=0, random_state=0),
        mg.MetricEnsembleClassifier(
            "f1", estimators=[("forest", RandomForestClassifier(5)), ("net", mg.MetricClassifier(epochs=2))], cv=2
        ),
    ],
    ids=["xgboost", "lightgbm", "extra trees", "logistic", "ridge", "ensemble", "own"],
)
def test_labels_of_arrays_are_equal(load: Any, model: Any, tmp_path: Path) -> None:
    X, y = load(return_X_y=True)
    model.fit(X[::2], y[::2])
    agree(model, mg.to_onnx(model, tmp_path / "model.onnx", dtype="float64"), X)
    agree(model, mg.to_onnx(model, tmp_path / "coarse.onnx"), X.astype(np.float32))


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
@pytest.mark.parametrize("copies", [1, 6], ids=["embedded", "too many to embed"])
def test_labels_of_tabm_are_equal(task: str, copies: int, tmp_path: Path) -> None:
    X, kinds = load_wine(return_X_y=True)
    X = np.tile(X, copies)
    targets = {"binary": kinds == 1, "multiclass": kinds, "multilabel": np.stack([kinds > 0, kinds > 1], 1).astype(int)}
    model = mg.MetricClassifier("f1", model="tabm", cv=2, epochs=4, random_state=0).fit(X[::2], targets[task][::2])
    assert (model.networks_[0].embedding is None) == (copies > 1)
    agree(model, mg.to_onnx(model, tmp_path / "model.onnx", dtype="float64"), X)
    agree(model, mg.to_onnx(model, tmp_path / "coarse.onnx"), X.astype(np.float32))


def test_a_shipped_tabm_of_a_table(tmp_path: Path) -> None:
    kinds = "numbers+categories+dates+texts"
    table = make_table(kinds, seed=0)
    data = table.assign(ripe=make_targets(table, "binary"))
    study = mg.compare(data, "ripe", "f1", ship="tabm", contenders="tabm", repeats=2, jobs=1)
    agree(study.model, mg.to_onnx(study.model, tmp_path / "model.onnx"), make_new_rows(kinds))


@pytest.mark.parametrize("kind", ["sklearn", "xgboost", "lightgbm"])
@pytest.mark.parametrize("gaps", [False, True])
def test_trees_find_the_same_leaf_next_to_every_threshold(kind: str, gaps: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)).astype(np.float32)
    y = (X.sum(1) + rng.normal(size=300) > 0).astype(int)
    if gaps:
        X[rng.random(X.shape) < 0.2] = np.nan
    model: Any
    if kind == "sklearn":
        model = mg.ThresholdedClassifier(RandomForestClassifier(10, random_state=0), cv=2).fit(X, y)
    else:
        options: Any = {"backend": kind, "n_estimators": 20, "cv": 2, "random_state": 0, "n_jobs": 1}
        model = mg.MetricBoostingClassifier(**options).fit(X, y)
    path = mg.to_onnx(model, tmp_path / "model.onnx", dtype="float64")
    known = np.unique(X[~np.isnan(X)])
    halves = ((known[1:].astype(np.float64) + known[:-1]) / 2).astype(np.float32)
    near = np.concatenate([known, halves])
    near = np.concatenate([near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))])
    rows = np.column_stack([rng.permutation(near) for _ in range(3)])
    rows[::50, rng.integers(3)] = np.nan
    scores, labels = run(path, rows.astype(np.float64))
    np.testing.assert_allclose(scores, np.asarray(model._scores(rows)), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(labels, model.predict(rows))


# Rules


@pytest.mark.parametrize(
    ("names", "abstain_label", "undecided"),
    [
        (np.array(["a", "b", "c"]), "?", "?"),
        (np.array(["a", "b", "c"]), None, ""),
        (np.array([3, 5, 7]), -9, -9),
        (np.array([3, 5, 7]), None, -1),
    ],
)
def test_rows_left_undecided(names: Any, abstain_label: Any, undecided: Any, tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    X = X[:, :2]
    model = mg.ThresholdedClassifier(
        LogisticRegression(), "recall", subject_to="precision >= 0.9", abstain=True, abstain_label=abstain_label
    ).fit(X, names[y])
    _, labels = run(mg.to_onnx(model, tmp_path / "model.onnx", dtype="float64"), X)
    expected = model.predict(X)
    is_undecided = np.array([one == abstain_label for one in expected])
    assert 0 < is_undecided.sum() < len(X)
    assert (labels[is_undecided] == undecided).all()
    np.testing.assert_array_equal(labels[~is_undecided], expected[~is_undecided].astype(names.dtype))


@pytest.mark.parametrize("kind", ["none", "temperature", "vector"])
@pytest.mark.parametrize("of_logits", [False, True])
def test_the_cheapest_class_of_calibrated_scores(kind: Any, of_logits: bool, tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    X = X[:, :2]
    matrix = ((0.0, 1.0, 1.2), (1.0, 0.0, 1.0), (1.1, 1.0, 0.0))
    model = mg.ThresholdedClassifier(LogisticRegression(), mg.Cost(matrix=matrix))
    model.fit(X, np.array(["a", "b", "c"])[y])
    numbers = {"none": (), "temperature": (2.5,), "vector": (2.5, 0.5, 1.0, 0.7, 0.0, -0.7)}[kind]
    model.rule_ = mg.decisions.LeastCostOfClasses(matrix, Scaling(kind, numbers, of_logits))
    _, labels = run(mg.to_onnx(model, tmp_path / "model.onnx", dtype="float64"), X)
    assert len(set(labels)) >= 2
    np.testing.assert_array_equal(labels, model.predict(X))


def test_an_undecided_row_needs_a_label_of_its_type(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    options: Any = {"subject_to": "precision >= 0.9", "abstain": True}
    model = mg.ThresholdedClassifier(LogisticRegression(), "recall", **options)
    model.fit(X[:, :2], np.array([-1, 5, 7])[y])
    with pytest.raises(ValueError, match=r"^abstain_label: expected one of the type of the classes .* no None$"):
        mg.to_onnx(model, tmp_path / "model.onnx")


# What cannot be written


def test_refusals_name_the_member_or_the_column(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    X, y = load_iris(return_X_y=True)
    own = mg.MetricEnsembleClassifier(estimators=[("bayes", GaussianNB())], cv=2).fit(X, y)
    with pytest.raises(
        ValueError, match=r"^member 'bayes' cannot be exported: model: expected LogisticRegression, .*, got GaussianNB$"
    ):
        mg.to_onnx(own, path)
    table = make_table("numbers+categories", seed=0).drop(columns=["b", "d"])
    targets = make_targets(table, "binary")
    with pytest.raises(ValueError, match=r"^X: expected columns of numbers .* got 'shape', a category; put a TableEnc"):
        add_given_matrix(Graph(np.float32), mg.TableEncoder().fit(table).columns_)
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["shape"]), remainder="drop")
    mine = make_pipeline(columns, LogisticRegression())
    encoded = mg.MetricEnsembleClassifier(estimators=[("mine", mine)], cv=2).fit(table, targets)
    with pytest.raises(ValueError, match=r"^member 'mine' cannot be exported: .*, got ColumnTransformer$"):
        mg.to_onnx(encoded, path)
    frame = table.assign(shape=table["shape"].astype("category"), town=table["town"].astype("category"))
    boosted = mg.MetricBoostingClassifier(n_estimators=2, cv=None).fit(frame, targets)
    with pytest.raises(ValueError, match=r"^column 'shape': expected numbers, got categories of a frame; see TableE"):
        mg.to_onnx(boosted, path)
    inner = mg.ThresholdedClassifier(mg.MetricClassifier(epochs=1), cv=2).fit(X, y)
    with pytest.raises(ValueError, match=r"^model: expected .* or a Pipeline of these, got MetricClassifier$"):
        mg.to_onnx(inner, path)
    costly = mg.Cost(fp=1.0, fn="a")
    by_row = mg.compare(
        table.assign(a=np.abs(table["a"]) + 1, ripe=targets),
        "ripe",
        cost=costly,
        contenders="logistic regression",
        repeats=2,
        jobs=1,
    )
    with pytest.raises(ValueError, match=r"^estimator: expected costs that are the same for every row, got .* 'a'"):
        mg.to_onnx(by_row.model, path)
    assert not path.exists()


def test_own_contenders_that_are_known(tmp_path: Path) -> None:
    table = make_table("numbers", seed=0).drop(columns=["b", "d"])
    targets = make_targets(table, "binary")
    study = mg.compare(
        table.assign(ripe=targets),
        "ripe",
        extra_contenders={
            "mine": make_pipeline(
                StandardScaler(),
                LogisticRegressionCV(Cs=2, l1_ratios=(0,), use_legacy_attributes=False, scoring="neg_log_loss"),
            )
        },
        contenders="logistic regression",
        ship="mine",
        repeats=2,
        jobs=1,
    )
    agree(study.model, mg.to_onnx(study.model, tmp_path / "model.onnx"), table)
