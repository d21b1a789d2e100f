"""Free text and many categories: values as scikit-learn's, no target leaks into training rows, and strict files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from metricgrad.estimators.encoded_rows import TextFeatures, to_dense, to_wide
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import chi2
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler, TargetEncoder

from damage import change, reseal
from metricgrad.cli.main import main
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.contenders import simple
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.inference.evaluate import evaluate_run
from metricgrad.comparison.tables.schema import Schema
from metricgrad.estimators import table_encoder as encoders
from metricgrad.estimators.columns.words import fit_words, rate_words
from metricgrad.estimators.table_encoder import Encoder, fit_encoder
from short_training import shorten_training
from tables import written

N = 240
GOOD, BAD = ("lovely", "great", "a joy", "splendid"), ("awful", "a bore", "poor", "dreadful")


def reviews(rows: int = N, seed: int = 0) -> pd.DataFrame:
    """Return texts that tell the class, a number that helps, and a town of many that does not."""
    rng = np.random.default_rng(seed)
    y = rng.random(rows) < 0.4
    texts = [
        f"film {i} was {rng.choice(GOOD if one else BAD)} and {rng.choice(['long', 'short'])}"
        for i, one in enumerate(y)
    ]
    return pd.DataFrame(
        {
            "review": texts,
            "stars": rng.normal(size=rows) + y,
            "town": [f"town{k}" for k in rng.integers(0, 70, rows)],
            "liked": np.where(y, "yes", "no"),
        }
    )


def encoded(
    frame: pd.DataFrame, target: str | list[str], train: np.ndarray | None = None
) -> tuple[Schema, Any, Any, pd.DataFrame, np.ndarray]:
    """Return the schema, an encoder and what it makes of all rows, the features and the targets."""
    schema = Schema.of(frame, target)
    features, y = schema.to_features(frame), schema.encode_targets(frame)
    found, rows = fit_encoder(schema, features, y, np.arange(len(frame)) if train is None else train)
    return schema, found, rows, features, y


# Kinds


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([f"it was day {i} of rain" for i in range(N)], "text"),
        ([f"it was day {i % 100} of rain" for i in range(N)], "category"),
        ([f"it was day {i % 300} of rain" for i in range(3 * N)], "text"),  # recurs, but has sentences
        ([f"New York{i % 300}" for i in range(3 * N)], "category"),
        ([None if i % 2 else f"it was day {i} of rain" for i in range(N)], "text"),
    ],
)
def test_free_text_is_told_from_categories(cells: list[str | None], kind: str) -> None:
    data = pd.DataFrame({"odd": cells, "y": np.arange(len(cells)) % 3 == 0})
    (column,) = Schema.of(data, "y").columns
    assert column.kind == kind
    if kind == "text":
        known = [len(cell.split()) for cell in cells if cell is not None]
        assert column.mean == pytest.approx(np.mean(known))
        assert column.missing == pytest.approx(1 - len(known) / len(cells))
    else:
        assert len(column.levels) == len(set(cells))


def test_drift_of_texts_is_that_of_their_length(tmp_path: Path, trained: Path) -> None:
    new = reviews(seed=1).assign(review=lambda data: data["review"] * 3)
    found = evaluate_run(trained, written(new, tmp_path), ["f1"], replicates=10)
    (of_reviews,) = [one for one in found["warnings"] if "review" in one]
    assert "column 'review' drifted" in of_reviews


# Texts


def test_words_are_those_of_scikit_learn() -> None:
    frame = reviews()
    _, encoder, rows, _, _ = encoded(frame.drop(columns="town"), "liked", np.arange(150))
    words = encoder.words["review"]
    every = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2).fit(frame["review"][:150])
    assert set(words.vocabulary) == set(every.get_feature_names_out())
    expected = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, vocabulary=list(words.vocabulary))
    expected.fit(frame["review"][:150])
    matrix = expected.transform(frame["review"])
    assert isinstance(rows, TextFeatures)
    np.testing.assert_allclose(rows.words.toarray(), matrix.toarray(), rtol=1e-5)
    topics = TruncatedSVD(words.topics.shape[0], random_state=0).fit(matrix[:150]).transform(matrix)
    np.testing.assert_allclose(np.abs(rows.topics), np.abs(topics), atol=1e-3)
    stars = StandardScaler().fit(frame[["stars"]][:150]).transform(frame[["stars"]])
    np.testing.assert_allclose(rows.table, stars, rtol=1e-4, atol=1e-5)
    assert to_dense(rows).shape == (N, 1 + len(words.topics))
    np.testing.assert_array_equal(to_wide(rows).toarray(), np.hstack((rows.table, rows.words.toarray())))
    np.testing.assert_array_equal(to_wide(rows[5:8]).toarray(), to_wide(rows).toarray()[5:8])


def test_the_words_that_tell_a_class_are_kept() -> None:
    rng = np.random.default_rng(0)
    y = rng.random((N, 3)) < [0.5, 0.2, 0.0]
    texts = pd.Series(
        [f"{'apple' if a else 'pear'} {'plum' if b else ''} noise{rng.integers(9)} stone" for a, b, _ in y]
    )
    matrix = TfidfVectorizer().fit_transform(texts)
    expected = np.max([chi2(matrix, y[:, k])[0] for k in range(2)], axis=0)
    np.testing.assert_allclose(rate_words(matrix, y), expected, rtol=1e-9)
    found = fit_words(texts, y, 3)
    assert len(found.vocabulary) == 3
    assert all(re.search("apple|pear|plum", word) for word in found.vocabulary)


def test_texts_without_a_common_word_and_missing_ones() -> None:
    data = pd.DataFrame(
        {
            "name": [f"a{i} b{i}" for i in range(N)],
            "note": [None if i % 3 else f"note {i} of many" for i in range(N)],
            "y": np.arange(N) % 4 == 0,
        }
    )
    schema, encoder, rows, features, _ = encoded(data, "y")
    assert encoder.words["name"].vocabulary == ()
    assert rows.words[1].nnz == 0  # missing
    assert rows.words[0].nnz > 0
    assert rows.table.shape == (N, 0)
    again = Encoder.from_files(encoder.to_files(), schema)
    np.testing.assert_array_equal(to_wide(again.transform(features)).toarray(), to_wide(rows).toarray())
    assert encoder.width == rows.topics.shape[1] + rows.words.shape[1]


# Many categories


def test_means_of_categories_are_those_of_scikit_learn() -> None:
    frame = reviews(600)
    train = np.arange(400)
    schema, encoder, rows, features, y = encoded(frame.drop(columns="review"), "liked", train)
    (column,) = schema.encoded_levels
    assert len(column.levels) == frame["town"].nunique()
    table = encoder.levels["town (level)"]
    expected = TargetEncoder(target_type="binary").fit(frame[["town"]][:400], y[:400])
    np.testing.assert_allclose(rows[400:, -1], expected.transform(frame[["town"]][400:])[:, 0], rtol=1e-5)
    odd = schema.to_features(frame.assign(town=["nowhere", None] * 300))
    coded = encoder.transform(odd)
    np.testing.assert_allclose(coded[0, -1], y[:400].mean(), rtol=1e-5)
    assert coded[1, -1] == table[0, 0]
    # The training rows have the means of other rows; the plain transform has their own target in it.
    plain = encoder.transform(features)
    assert not np.allclose(rows[:400, -1], plain[:400, -1])
    np.testing.assert_array_equal(rows[400:], plain[400:])


def test_noise_of_many_categories_does_not_look_predictive() -> None:
    rng = np.random.default_rng(0)
    rows = 3000
    data = pd.DataFrame({"code": [f"c{k}" for k in rng.integers(0, 900, rows)], "y": rng.random(rows) < 0.3})
    _, encoder, found, features, y = encoded(data, "y")
    assert abs(roc_auc_score(y, found[:, -1]) - 0.5) < 0.05
    assert roc_auc_score(y, encoder.transform(features)[:, -1]) > 0.65  # what a leak would look like


def test_rare_categories_that_matter_are_not_pooled() -> None:
    rng = np.random.default_rng(0)
    rows, levels = 6000, 600
    risk = rng.random(levels) < 0.5
    code = rng.integers(0, levels, rows)
    data = pd.DataFrame({"code": [f"c{k}" for k in code], "y": rng.random(rows) < np.where(risk[code], 0.9, 0.1)})
    schema, _, found, _, y = encoded(data, "y", np.arange(4000))
    assert schema.columns[0].others
    assert roc_auc_score(y[4000:], found[4000:, -1]) > 0.85


def test_means_of_several_classes_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = 500
    town = [f"t{k}" for k in rng.integers(0, 60, rows)]
    kind = rng.choice(["x", "y", "z"], rows, p=[0.6, 0.3, 0.1])
    data = pd.DataFrame({"town": town, "kind": kind})
    _, encoder, _, _, y = encoded(data, "kind")
    assert encoder.levels["town (level)"].shape[1] == 3
    expected = TargetEncoder(target_type="multiclass").fit(data[["town"]], y)
    features = Schema.of(data, "kind").to_features(data)
    np.testing.assert_allclose(encoder.transform(features)[:, -3:], expected.transform(data[["town"]]), rtol=1e-5)
    labels = pd.DataFrame(rng.random((rows, 4)) < [0.1, 0.4, 0.02, 0.3], columns=list("abcd")).astype(int)
    monkeypatch.setattr(encoders, "CLASSES", 2)
    _, encoder, _, _, y = encoded(pd.concat((data[["town"]], labels), axis=1), ["a", "b", "c", "d"])
    assert encoder.levels["town (level)"].shape[1] == 2  # of the most frequent labels, b and d
    new = encoder.levels["town (level)"][-1]
    np.testing.assert_allclose(new, y.mean(0)[[1, 3]], rtol=1e-5)


# Logistic regression


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_logistic_regression_is_that_of_scikit_learn(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(200, 3)) * [1, 5, 100] + [0, 3, 50]).astype(np.float32)
    z = x / [1, 5, 100] + rng.normal(size=(200, 3))
    y = {"binary": (z[:, 0] > 0).astype(int), "multiclass": z.argmax(1), "multilabel": (z > 0.5).astype(int)}[task]
    monkeypatch.setattr(simple, "STRENGTHS", (1.0,))
    rows = Rows(x, y, np.arange(150), np.arange(150, 200))
    found = simple.fit_linear(Goal(task, 2 if task == "binary" else 3, "f1"), Effort(1, 1, 1), rows, 0)
    scaled = StandardScaler().fit(x[:150].astype(float)).transform(x.astype(float))

    def expect(target: np.ndarray) -> Any:
        return LogisticRegression(max_iter=1000).fit(scaled[:150], target[:150]).predict_proba(scaled)

    if task == "multilabel":
        expected = np.column_stack([expect(column)[:, 1] for column in y.T])
    else:
        expected = expect(y)[:, 1] if task == "binary" else expect(y)
    np.testing.assert_allclose(found.scores(x), expected, atol=1e-6)
    again = simple.load_linear(found.files())
    np.testing.assert_array_equal(again.scores(x), found.scores(x))


@pytest.mark.parametrize("classes", [[0], [1], [0, 2], [1, 2]])
def test_logistic_regression_without_some_classes(classes: list[int]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)).astype(np.float32)
    y = rng.choice(classes, 60)
    rows = Rows(x, y, np.arange(40), np.arange(40, 60))
    scores = simple.fit_linear(Goal("multiclass", 3, "f1"), Effort(1, 1, 1), rows, 0).scores(x)
    np.testing.assert_allclose(scores.sum(1), 1)
    empty_classes = sorted({0, 1, 2} - set(classes))
    assert (scores[:, empty_classes] < 1e-6).all()
    labels = np.column_stack((y == classes[0], np.ones(60), np.zeros(60))).astype(int)
    rows = Rows(x, labels, np.arange(40), np.arange(40, 60))
    scores = simple.fit_linear(Goal("multilabel", 3, "f1"), Effort(1, 1, 1), rows, 0).scores(x)
    assert (scores[:, 1] > 0.99).all()
    assert (scores[:, 2] < 0.01).all()


# Whole runs


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch, 3, 5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    words = ["train", written(reviews(), folder), "--target", "liked", "--contender", "logistic regression"]
    assert main([*words, "--out", f"{folder}/run"]) == 0
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    for path in trained.rglob("*"):
        if path.is_file():
            place = tmp_path / "run" / path.relative_to(trained)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    return tmp_path / "run"


@pytest.mark.parametrize("contender", ["majority", "logistic regression", "hybrid", "xgboost", "metric boosting"])
def test_a_saved_model_of_texts_predicts_the_same(contender: str, tmp_path: Path) -> None:
    data, out = written(reviews(), tmp_path), tmp_path / "out.csv"
    words = ["train", data, "--target", "liked", "--contender", contender, "--out", f"{tmp_path}/run"]
    assert main(words) == 0
    model = runs.load(tmp_path / "run").model
    new = reviews(40, seed=1).assign(town=[None, "town1"] * 20)
    assert main(["predict", f"{tmp_path}/run", written(new, tmp_path, "new.csv"), "-o", str(out)]) == 0
    found = pd.read_csv(out)["score"].to_numpy()
    np.testing.assert_allclose(found, model.scores(new), rtol=1e-6)
    if contender != "majority":
        assert roc_auc_score(new["liked"] == "yes", found) > 0.9


def test_an_encoder_is_read_as_it_was_written() -> None:
    schema, encoder, _, features, _ = encoded(reviews(), "liked")
    again = Encoder.from_files(encoder.to_files(), schema)
    for prepare in (to_dense, lambda rows: to_wide(rows).toarray()):
        np.testing.assert_array_equal(prepare(again.transform(features)), prepare(encoder.transform(features)))


def test_texts_are_compared(tmp_path: Path) -> None:
    words = ["compare", written(reviews(), tmp_path), "--target", "liked", "--repeats", "2", "--jobs", "1"]
    words += ["--contenders", "majority,logistic regression,xgboost,ensemble", "--out", f"{tmp_path}/run"]
    assert main(words) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    best = {row["contender"]: row["value"] for row in summary["leaderboard"] if row["rule"] == "tuned"}
    assert best["logistic regression"] > 0.9  # the words tell the class
    assert best["logistic regression"] > best["majority"]
    assert not [name for name in (tmp_path / "run").iterdir() if "scratch" in name.name]
    assert main([*words, "--force"]) == 0  # its own files, and no others


def test_a_schema_of_before_texts_is_read(trained: Path) -> None:
    data = reviews().drop(columns=["review", "town"])
    schema = Schema.of(data, "liked")
    plain = schema.to_json()
    for column in plain["columns"]:
        del column["levels"]
    assert Schema.from_json(json.dumps(plain).encode()) == schema


# Forgery


def of_arrays(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "model" / "encoder.safetensors"
        arrays = safetensors.numpy.load(path.read_bytes())
        changed = {name: change(arrays[name]) if name in arrays else change(None) for name, change in changes.items()}
        kept = {name: np.ascontiguousarray(one) for name, one in (arrays | changed).items() if one is not None}
        path.write_bytes(safetensors.numpy.save(kept))

    return edit


def of_json(name: str, edit: Callable[[Any], Any]) -> Callable[[Path], None]:
    return lambda folder: change(folder / "model" / name, edit)


def of_weights(**changes: np.ndarray) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "model" / "estimator" / "linear.safetensors"
        path.write_bytes(safetensors.numpy.save(safetensors.numpy.load(path.read_bytes()) | changes))

    return edit


def with_levels(data: Any) -> Any:
    data["columns"][1]["levels"] = ["a"]
    return data


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (of_arrays(extra=lambda _: np.zeros(1, np.float32)), "arrays of the columns"),
        (of_arrays(scaling=lambda _: None), "arrays of the columns"),
        (of_arrays(scaling=lambda one: one[:, 1:]), "means and deviations"),
        (of_arrays(scaling=lambda one: one * 0), "means and deviations"),
        (of_arrays(idf=lambda _: None, **{"idf-0": lambda one: one.astype(np.float64)}), "float32"),
        (of_arrays(**{"idf-0": lambda one: one * np.nan}), "finite"),
        (of_arrays(**{"idf-0": lambda one: one[1:]}), "frequencies and topics"),
        (of_arrays(**{"topics-0": lambda one: one[:, 1:]}), "frequencies and topics"),
        (of_arrays(**{"topics-0": lambda one: one[0]}), "frequencies and topics"),
        (of_arrays(**{"levels-0": lambda one: one[1:]}), "categories, got shape"),
        (of_arrays(**{"levels-0": lambda one: np.tile(one, (1, 40))}), "categories, got shape"),
        (of_arrays(**{"levels-0": lambda one: np.hstack((one, one))}), "columns"),
        (of_json("words.json", lambda one: [*one, []]), "arrays of the columns"),
        (of_json("words.json", lambda one: [[one[0][0]] * len(one[0])]), "every word once"),
        (of_json("words.json", lambda one: [["", *one[0][1:]]]), "every word once"),
        (of_json("words.json", lambda one: one[0]), "expected a list"),
        (of_json("words.json", lambda one: {"os:system": one}), "expected a list"),
        (of_json("schema.json", with_levels), "no levels of 'stars'"),
        (of_json("estimator/linear.json", lambda _: {"task": "code"}), "task: expected 'binary'"),
        (of_json("estimator/linear.json", lambda _: {"task": "multilabel"}), "expected scores of shape"),
        (of_weights(weights=np.zeros((1, 3))), "expected 3 columns"),
        (of_weights(weights=np.zeros((2, 3))), "weights of every output"),
        (of_weights(intercepts=np.full(1, np.nan)), "finite"),
        (of_weights(intercepts=np.zeros(1, np.float32)), "float64"),
        (of_weights(code=np.zeros(1)), "weights and intercepts"),
        (lambda folder: (folder / "model" / "encoder.safetensors").write_bytes(b"\xff" * 64), "cannot be used"),
    ],
)
def test_forged_files_of_texts_are_refused(edit: Callable[[Path], None], message: str, run: Path) -> None:
    edit(run)
    reseal(run)
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        _ = runs.load(run).model
    assert "\n" not in str(caught.value)


def test_blank_rows_fit(trained: Path) -> None:
    model = runs.load(trained).model
    blank = model.encoder.make_blank()
    assert isinstance(blank, TextFeatures)
    assert sparse.issparse(to_wide(blank))
    assert model.encoder.width == sum(part.shape[1] for part in vars(blank).values())
