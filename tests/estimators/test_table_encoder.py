"""TableEncoder: values as scikit-learn's, no target leaks into training rows, odd tables, and strict files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import safetensors.numpy
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import chi2
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder

import metricgrad as mg
from metricgrad import strict_json
from metricgrad.estimators import table_encoder
from metricgrad.estimators.columns.words import fit_words, rate_words
from metricgrad.estimators.table_encoder import Output
from metricgrad.storage.table_encoders import read_encoder, write_encoder

N = 240
OUTPUTS: tuple[Output, ...] = ("linear", "dense", "trees")
GOOD, BAD = ("lovely", "great", "a joy", "splendid"), ("awful", "a bore", "poor", "dreadful")


def make_reviews(rows: int = N, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a text that tells the class, a number with gaps, few colours, many towns and a day; and the class."""
    rng = np.random.default_rng(seed)
    y = (rng.random(rows) < 0.4).astype(int)
    texts = [
        f"film {i} was {rng.choice(GOOD if one else BAD)} and {rng.choice(['long', 'short'])}"
        for i, one in enumerate(y)
    ]
    table = pd.DataFrame(
        {
            "review": texts,
            "stars": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows) + y),
            "colour": rng.choice(["red", "green", "blue", "rust", "jade"], rows, p=[0.5, 0.3, 0.16, 0.02, 0.02]),
            "town": [f"town{k}" for k in rng.integers(0, 70, rows)],
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 500, rows), "D"),
        }
    )
    return table, y


def to_array(matrix: Any) -> np.ndarray:
    return np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix)


def take(encoder: mg.TableEncoder, matrix: Any, *starts: str) -> np.ndarray:
    """Return the encoded columns whose names begin in one of these ways."""
    names = encoder.get_feature_names_out()
    return to_array(matrix)[:, [name.startswith(starts) for name in names]]


# Values


def test_numbers_are_standardised_with_the_median_for_missing_ones() -> None:
    table, y = make_reviews()
    later = table.assign(stars=[np.nan, 3.5, np.inf] * (N // 3))
    for output in ("linear", "dense"):
        encoder = mg.TableEncoder(output).fit(table, y)
        stars = table[["stars"]].to_numpy(np.float32)
        scaler = StandardScaler().fit(np.where(np.isnan(stars), np.nanmedian(stars), stars))
        expected = scaler.transform(np.tile([[np.nanmedian(stars)], [3.5], [np.nanmedian(stars)]], (N // 3, 1)))
        found = take(encoder, encoder.transform(later), "stars")
        np.testing.assert_allclose(found[:, :1], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found[:, 1], [1, 0, 1] * (N // 3))
    trees = mg.TableEncoder("trees").fit(table, y)
    plain = take(trees, trees.transform(later), "stars")
    np.testing.assert_array_equal(plain[:3], [[np.nan], [3.5], [np.nan]])


@pytest.mark.parametrize("gaps", [0, 3, 30])
@pytest.mark.parametrize("output", ["linear", "dense"])
def test_categories_are_one_hot_and_rare_ones_together(output: Output, gaps: int) -> None:
    table, _ = make_reviews()
    cells = table[["colour"]].astype(object).copy()
    cells.iloc[:gaps] = None
    encoder = mg.TableEncoder(output).fit(cells)
    later = pd.DataFrame({"colour": ["red", "rust", "jade", "green", None]}, dtype=object)
    expected = OneHotEncoder(min_frequency=10, handle_unknown="infrequent_if_exist", sparse_output=False).fit(cells)
    found, wanted = encoder.transform(later), expected.transform(later)
    names = [name.split("=")[1] for name in encoder.get_feature_names_out()]
    theirs = [name.removeprefix("colour_") for name in expected.get_feature_names_out()]
    renamed = ["missing" if name == "None" else "rare" if name == "infrequent_sklearn" else name for name in theirs]
    assert sorted(names) == sorted(renamed)
    for place, name in enumerate(renamed):
        np.testing.assert_array_equal(found[:, names.index(name)], wanted[:, place], err_msg=name)
    new = encoder.transform(later.assign(colour="never seen"))
    np.testing.assert_array_equal(new, encoder.transform(later.assign(colour=None)))


def test_categories_are_codes_for_trees() -> None:
    table, _ = make_reviews()
    encoder = mg.TableEncoder("trees").fit(table[["colour"]])
    (column,) = encoder.columns_
    later = pd.DataFrame({"colour": ["red", column.categories[3], None, "never seen"]})
    np.testing.assert_array_equal(encoder.transform(later)[:, 0], [0, 3, np.nan, np.nan])


def test_dates_become_numbers() -> None:
    table, _ = make_reviews()
    encoder = mg.TableEncoder("trees").fit(table[["day"]])
    assert encoder.get_feature_names_out().tolist() == [
        f"day ({part})" for part in ("days", "year", "month", "weekday")
    ]
    day = table["day"].dt
    days = (table["day"] - pd.Timestamp(2000, 1, 1)).dt.days
    expected = np.column_stack([days, day.year, day.month, day.day_of_week])
    np.testing.assert_array_equal(encoder.transform(table), expected)
    written = table[["day"]].assign(day=day.strftime("%d.%m.%Y"))
    again = mg.TableEncoder("trees").fit(written)
    assert again.columns_[0].date_format == "day.month.year"
    np.testing.assert_array_equal(again.transform(written), expected)
    assert np.isnan(again.transform(pd.DataFrame({"day": ["2024-01-01", None, "soon"]}))).all()


def test_dates_that_could_be_two_need_a_format() -> None:
    table = pd.DataFrame({"when": [f"{1 + i % 12}/{1 + i % 11}/2021" for i in range(60)], "x": np.arange(60) % 7})
    encoder = mg.TableEncoder("trees").fit(table)
    assert [column.name for column in encoder.columns_] == ["x"]
    said = "holds dates that could be day/month/year or month/day/year; say which with date_format='day/month/year'"
    assert encoder.dropped_["when"] == said
    for date_format, place in (("month/day/year", 0), ("day/month/year", 1)):
        encoder = mg.TableEncoder("trees", date_format=date_format).fit(table)
        month = take(encoder, encoder.transform(table), "when (month)")[:, 0]
        np.testing.assert_array_equal(month, [int(text.split("/")[place]) for text in table["when"]])


def test_numbers_written_as_texts_are_those_of_numbers() -> None:
    rng = np.random.default_rng(0)
    amounts = np.round(rng.normal(size=N) * 1000, 2)
    texts = [f"{amount:,.2f}".translate(str.maketrans(",.", ".,")) + " €" for amount in amounts]
    table = pd.DataFrame({"amount": texts})
    for output in OUTPUTS:
        encoder = mg.TableEncoder(output).fit(table)
        plain = mg.TableEncoder(output).fit(pd.DataFrame({"amount": amounts}))
        np.testing.assert_array_equal(encoder.transform(table), plain.transform(pd.DataFrame({"amount": amounts})))
    assert encoder.columns_[0].number_format == "1.234,5 €"
    later = encoder.transform(pd.DataFrame({"amount": ["1.000,5 €", "12 $", "many", None]}))
    np.testing.assert_array_equal(later[:, 0], [1000.5, np.nan, np.nan, np.nan])


def test_words_are_those_of_scikit_learn() -> None:
    table, y = make_reviews()
    table = table[["review", "stars"]].fillna(0)
    encoder = mg.TableEncoder().fit(table[:150], y[:150])
    (words,) = encoder.words_.values()
    every = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2).fit(table["review"][:150])
    assert set(words.vocabulary) == set(every.get_feature_names_out())
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, vocabulary=list(words.vocabulary))
    matrix = vectorizer.fit(table["review"][:150]).transform(table["review"])
    linear = encoder.transform(table)
    assert sparse.issparse(linear)
    assert linear.dtype == np.float32
    np.testing.assert_allclose(take(encoder, linear, "review: "), matrix.toarray(), rtol=1e-5)
    topics = TruncatedSVD(words.topics.shape[0], random_state=0).fit(matrix[:150]).transform(matrix)
    stars = StandardScaler().fit(table[["stars"]][:150]).transform(table[["stars"]])
    for output in ("dense", "trees"):
        other = mg.TableEncoder(output).fit(table[:150], y[:150])
        found = other.transform(table)
        np.testing.assert_allclose(np.abs(take(other, found, "review: topic")), np.abs(topics), atol=1e-3)
        plain = stars if output == "dense" else table[["stars"]]
        np.testing.assert_allclose(take(other, found, "stars"), plain, rtol=1e-4, atol=1e-5)


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
    without_targets = fit_words(texts, None, 1)
    assert without_targets.vocabulary == ("stone",), "the word in most rows"


def test_texts_without_a_common_word_and_missing_ones() -> None:
    table = pd.DataFrame(
        {
            "name": [f"a{i} b{i}" for i in range(N)],
            "note": [None if i % 3 else f"note {i} of many" for i in range(N)],
        }
    )
    y = np.arange(N) % 4 == 0
    encoder = mg.TableEncoder()
    found = encoder.fit_transform(table, y)
    assert encoder.words_["name"].vocabulary == ()
    assert found[1].nnz == 0, "missing"
    assert found[0].nnz > 0
    again = read_encoder(write_encoder(encoder))
    np.testing.assert_array_equal(again.transform(table).toarray(), found.toarray())


# Target means


def test_means_of_categories_are_those_of_scikit_learn() -> None:
    table, y = make_reviews(600)
    towns = table[["town"]]
    encoder = mg.TableEncoder("trees")
    training = encoder.fit_transform(towns[:400], y[:400])
    expected = TargetEncoder(target_type="binary").fit(towns[:400], y[:400])
    np.testing.assert_allclose(encoder.transform(towns)[:, -1], expected.transform(towns)[:, 0], rtol=1e-5)
    odd = encoder.transform(pd.DataFrame({"town": ["nowhere", None]}))
    np.testing.assert_allclose(odd[:, -1], y[:400].mean(), rtol=1e-5)
    # The training rows have the means of the other folds.
    for others, own in KFold(5, shuffle=True, random_state=0).split(towns[:400]):
        other = TargetEncoder(target_type="binary").fit(towns.iloc[others], y[others])
        np.testing.assert_allclose(training[own, -1], other.transform(towns.iloc[own])[:, 0], rtol=1e-5)
    # For linear models they are standardised.
    linear = mg.TableEncoder()
    scaled = take(linear, linear.fit_transform(towns[:400], y[:400]), "town: mean")
    np.testing.assert_allclose(scaled, StandardScaler().fit_transform(training[:, -1:]), rtol=1e-3, atol=1e-4)


def test_the_target_of_a_training_row_is_not_in_its_features() -> None:
    table, y = make_reviews()
    flipped = y.copy()
    flipped[7] = 1 - flipped[7]
    first, second = mg.TableEncoder("trees"), mg.TableEncoder("trees")
    towns = table[["town"]]
    one, other = first.fit_transform(towns, y), second.fit_transform(towns, flipped)
    np.testing.assert_array_equal(one[7], other[7])
    assert not np.array_equal(one, other), "but in those of other rows of its town"
    assert first.transform(towns)[7, -1] != second.transform(towns)[7, -1]


def test_noise_of_many_categories_does_not_look_predictive() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"code": [f"c{k}" for k in rng.integers(0, 900, 3000)]})
    y = rng.random(3000) < 0.3
    encoder = mg.TableEncoder("trees")
    assert abs(roc_auc_score(y, encoder.fit_transform(table, y)[:, -1]) - 0.5) < 0.05
    assert roc_auc_score(y, encoder.transform(table)[:, -1]) > 0.65  # what a leak would look like


def test_rare_categories_that_matter_are_not_pooled() -> None:
    rng = np.random.default_rng(0)
    risk = rng.random(600) < 0.5
    code = rng.integers(0, 600, 6000)
    table = pd.DataFrame({"code": [f"c{k}" for k in code]})
    y = rng.random(6000) < np.where(risk[code], 0.9, 0.1)
    encoder = mg.TableEncoder("trees").fit(table[:4000], y[:4000])
    assert encoder.columns_[0].others
    assert roc_auc_score(y[4000:], encoder.transform(table[4000:])[:, -1]) > 0.85


def test_means_of_several_classes_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    towns = pd.DataFrame({"town": [f"t{k}" for k in rng.integers(0, 60, 500)]})
    y = rng.choice(["x", "y", "z"], 500, p=[0.6, 0.3, 0.1])
    encoder = mg.TableEncoder("trees").fit(towns, y)
    expected = TargetEncoder(target_type="multiclass").fit(towns, y)
    np.testing.assert_allclose(encoder.transform(towns)[:, -3:], expected.transform(towns), rtol=1e-5)
    labels = (rng.random((500, 4)) < [0.1, 0.4, 0.02, 0.3]).astype(int)
    monkeypatch.setattr(table_encoder, "MOST_TARGET_MEANS", 2)
    for given in (labels, sparse.csr_matrix(labels)):
        encoder = mg.TableEncoder("trees").fit(towns, given)
        new = encoder.transform(pd.DataFrame({"town": ["nowhere"]}))[0, 1:]
        np.testing.assert_allclose(new, labels.mean(0)[[1, 3]], rtol=1e-5, err_msg="those of the most frequent labels")


def test_without_targets() -> None:
    table, y = make_reviews()
    for output in OUTPUTS:
        encoder = mg.TableEncoder(output)
        training = to_array(encoder.fit_transform(table))
        np.testing.assert_array_equal(training, to_array(encoder.transform(table)))
        with_targets = mg.TableEncoder(output).fit(table, y)
        assert "town: mean 0" in with_targets.get_feature_names_out()
        assert "town: mean 0" not in encoder.get_feature_names_out()


# As a scikit-learn transformer


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("targets", ["none", "two classes", "three classes", "labels"])
def test_every_encoded_column_has_a_name(output: Output, targets: str) -> None:
    table, y = make_reviews()
    three = np.arange(N) % 3
    every = {"none": None, "two classes": y, "three classes": three, "labels": np.column_stack([y, three > 0])}
    encoder = mg.TableEncoder(output)
    training = encoder.fit_transform(table, every[targets])
    names = encoder.get_feature_names_out()
    assert len(names) == training.shape[1] == encoder.transform(table.head(3)).shape[1]
    assert len(set(names)) == len(names)
    assert np.isfinite(to_array(training)).all() or output == "trees"
    assert to_array(training).dtype == (np.float64 if output == "dense" else np.float32)


def test_parameters_and_clones() -> None:
    table, y = make_reviews()
    encoder = mg.TableEncoder("trees", date_format="day/month/year")
    assert encoder.get_params() == {"output": "trees", "columns": None, "date_format": "day/month/year"}
    assert clone(encoder).get_params() == encoder.get_params()
    encoder.set_params(output="dense", date_format=None).fit(table, y)
    np.testing.assert_array_equal(encoder.transform(table), mg.TableEncoder("dense").fit(table, y).transform(table))
    with pytest.raises(NotFittedError):
        clone(encoder).transform(table)
    with pytest.raises(ValueError, match=r"^output: expected one of linear, dense, trees, got 'wide'$"):
        mg.TableEncoder("wide").fit(table)  # type: ignore[arg-type]


def test_columns_can_be_given() -> None:
    table, y = make_reviews()
    every = mg.TableEncoder("trees").fit(table, y)
    some = tuple(column for column in every.columns_ if column.name in ("stars", "colour"))
    given = mg.TableEncoder("trees", columns=some).fit(table.head(20), y[:20])
    assert given.get_feature_names_out().tolist() == ["stars", "colour"]
    np.testing.assert_array_equal(given.transform(table), every.transform(table)[:, [0, 5]])
    assert every.get_feature_names_out()[[0, 5]].tolist() == ["stars", "colour"]


def test_in_a_pipeline() -> None:
    table, y = make_reviews()
    model = make_pipeline(mg.TableEncoder(), LogisticRegression())
    assert cross_val_score(model, table, y, scoring="roc_auc").mean() > 0.95
    model.set_params(tableencoder__output="dense")
    assert cross_val_score(model, table, y, scoring="roc_auc").mean() > 0.95
    noise = pd.DataFrame({"code": [f"c{k}" for k in np.random.default_rng(1).integers(0, 100, N)]})
    assert cross_val_score(model, noise, y, scoring="roc_auc").mean() < 0.65


def test_frames_with_names() -> None:
    table, y = make_reviews()
    table = table.set_index(np.arange(N) + 1000)
    encoder = mg.TableEncoder("trees").set_output(transform="pandas")
    found = encoder.fit_transform(table, y)
    assert found.columns.tolist() == encoder.get_feature_names_out().tolist()
    assert found.index.tolist() == table.index.tolist()
    np.testing.assert_array_equal(encoder.feature_names_in_, table.columns)
    assert encoder.n_features_in_ == 5


@pytest.mark.parametrize("output", OUTPUTS)
def test_polars(output: Output) -> None:
    table, y = make_reviews()
    same = pl.from_pandas(table)
    encoder, other = mg.TableEncoder(output).fit(table, y), mg.TableEncoder(output).fit(same, y)
    assert other.columns_ == encoder.columns_
    np.testing.assert_array_equal(to_array(other.transform(same)), to_array(encoder.transform(table)))


@pytest.mark.parametrize("output", ["linear", "dense", "trees"])
def test_parts_may_be_arrays_without_a_frame(output: Output) -> None:
    table, y = make_reviews()
    encoder = mg.TableEncoder(output).fit(table, y)
    parts = encoder.read(table)
    arrays = {name: parts[name].to_numpy() for name in parts}
    np.testing.assert_array_equal(to_array(encoder.encode(arrays, output)), to_array(encoder.encode(parts, output)))


def test_arrays_and_lists() -> None:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((N, 3)) < 0.1, np.nan, rng.normal(size=(N, 3)))
    encoder = mg.TableEncoder().fit(X)
    assert encoder.get_feature_names_out().tolist() == [*"012", *(f"{k} is missing" for k in range(3))]
    filled = np.where(np.isnan(X), np.nanmedian(X.astype(np.float32), axis=0), X)
    expected = np.hstack([StandardScaler().fit_transform(filled), np.isnan(X)])
    np.testing.assert_allclose(encoder.transform(X), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(encoder.transform(X.tolist()), encoder.transform(X))
    mixed = np.array([["a", 1.5], ["b", 2.5], ["a", None]] * 20, dtype=object)
    assert mg.TableEncoder().fit(mixed).get_feature_names_out().tolist() == ["1", "1 is missing", "0=a", "0=b"]


def test_arrays_of_other_widths_are_refused() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(N, 2)), np.ones(N)])  # the last column is left out
    encoder = mg.TableEncoder().fit(X)
    assert encoder.n_features_in_ == 3
    message = "X has {} features, but TableEncoder is expecting 3 features as input; pass the columns that were fitted"
    wide = np.column_stack([X, X])
    for other in (X[:, :2], wide):
        for table in (other, other.tolist(), pd.DataFrame(other)):
            with pytest.raises(ValueError, match=f"^{re.escape(message.format(other.shape[1]))}$"):
                encoder.transform(table)
    np.testing.assert_array_equal(encoder.transform(pd.DataFrame(X)), encoder.transform(X))


def test_columns_of_frames_are_found_by_their_names() -> None:
    table, y = make_reviews()
    encoder = mg.TableEncoder("trees").fit(table, y)
    expected = encoder.transform(table)
    for other in (table[table.columns[::-1]], table.assign(unknown=1), pl.from_pandas(table.assign(unknown=1))):
        np.testing.assert_array_equal(encoder.transform(other), expected)
    cells = np.random.default_rng(0).normal(size=(N, 2))
    encoder = mg.TableEncoder().fit({"a": cells[:, 0], "b": cells[:, 1]})
    expected = encoder.transform(pd.DataFrame(cells, columns=["a", "b"]))
    np.testing.assert_array_equal(encoder.transform({"b": cells[:, 1], "c": cells[:, 0], "a": cells[:, 0]}), expected)


def test_given_columns_that_a_table_lacks_get_one_line() -> None:
    table, y = make_reviews()
    columns = mg.TableEncoder().fit(table, y).columns_
    with pytest.raises(ValueError, match=r"^X: expected the columns .*, got none named 'town'$"):
        mg.TableEncoder(columns=columns).fit(table.drop(columns="town"), y)


# Names


def make_clashes() -> pd.DataFrame:
    """Return columns whose features would have the same names."""
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, N), "D")
    gaps = np.where(rng.random(N) < 0.2, np.nan, rng.normal(size=N))
    colours = rng.choice(np.array(["red", "missing", "rare", "(rare)", "others", None], dtype=object), N)
    colours[:3] = ["one", "two", "three"]  # rare ones
    return pd.DataFrame(
        {
            "sold": days,
            "sold (year)": rng.normal(size=N),
            "sold (year) (column)": rng.normal(size=N),
            "sold (month)": days[::-1],
            "size": gaps,
            "size is missing": rng.normal(size=N),
            "size is missing (2)": rng.normal(size=N),
            "colour": colours,
            "colour=red": rng.normal(size=N),
            "town": [f"town{k}" for k in rng.integers(0, 70, N)],
            "town (level)": [f"level{k}" for k in rng.integers(0, 60, N)],
            "town: mean 0": rng.normal(size=N),
        }
    )


@pytest.mark.parametrize("output", OUTPUTS)
def test_no_two_features_have_the_same_name(output: Output) -> None:
    table = make_clashes()
    y = np.arange(N) % 2
    encoder = mg.TableEncoder(output).fit(table, y)
    names = encoder.get_feature_names_out().tolist()
    assert len(set(names)) == len(names) == encoder.transform(table).shape[1]
    again = read_encoder(write_encoder(encoder))
    assert again.get_feature_names_out().tolist() == names
    np.testing.assert_array_equal(again.transform(table), encoder.transform(table))


def test_names_that_would_be_the_same_are_told_apart() -> None:
    table = make_clashes()
    encoder = mg.TableEncoder().fit(table)
    names = encoder.get_feature_names_out().tolist()
    assert names[:12] == [
        *(f"sold ({part})" for part in ("days", "year", "month", "weekday")),
        "sold (year) (column)",
        "sold (year) (column) (column)",
        *(f"sold (month) ({part})" for part in ("days", "year", "month", "weekday")),
        "size",
        "size is missing",
    ]
    assert names[12:16] == ["size is missing (2)", "colour=red", "town: mean 0", "size is missing (3)"]
    of_colours = [name.removeprefix("colour=") for name in names if name.startswith("colour=")]
    expected = ["(missing)", "missing", "others", "rare", "(rare)", "((rare))", "red (2)"]
    assert sorted(of_colours[1:]) == sorted(expected)


def test_columns_with_the_names_of_parts_keep_their_values() -> None:
    table = make_clashes()
    encoder = mg.TableEncoder("trees").fit(table)
    encoded = pd.DataFrame(encoder.transform(table), columns=encoder.get_feature_names_out())
    for name, feature in (
        ("sold (year)", "sold (year) (column)"),
        ("sold (year) (column)", "sold (year) (column) (column)"),
        ("size is missing", "size is missing"),
        ("colour=red", "colour=red"),
    ):
        np.testing.assert_array_equal(encoded[feature], table[name].astype(np.float32))
    np.testing.assert_array_equal(encoded["sold (year)"], table["sold"].dt.year)
    np.testing.assert_array_equal(encoded["sold (month)"], table["sold"].dt.month)
    np.testing.assert_array_equal(encoded["sold (month) (year)"], table["sold (month)"].dt.year)
    codes = encoded["town (level) (column)"].astype(int)
    levels = next(column for column in encoder.columns_ if column.name == "town (level)").categories
    assert [levels[code] for code in codes] == table["town (level)"].tolist()


def test_columns_that_tell_nothing_are_left_out() -> None:
    table, y = make_reviews()
    odd = table.assign(one=1, none=None, key=[f"k{i}" for i in range(N)], lists=[[1]] * N, number=np.arange(N))
    encoder = mg.TableEncoder().fit(odd, y)
    assert encoder.dropped_ == {
        "one": "constant: always 1",
        "none": "all missing",
        "key": "looks like an id: 240 different texts in 240 rows",
        "lists": "holds lists or objects",
    }
    assert [column.name for column in encoder.columns_] == [*table.columns, "number"]
    encoder.transform(odd.drop(columns=["one", "none", "key", "lists"]))  # which are not needed later


def test_wrong_tables_get_one_line() -> None:
    table, y = make_reviews()
    encoder = mg.TableEncoder().fit(table, y)
    cases: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: encoder.transform(table.drop(columns="town")),
            "X: expected the columns of the table that was fitted, got none named 'town'",
        ),
        (
            lambda: mg.TableEncoder().fit(table.assign(a=1)[["a"]]),
            "X: expected columns that tell rows apart, got none ('a' constant: always 1)",
        ),
        (
            lambda: mg.TableEncoder().fit(np.arange(5.0)),
            "X: expected a table of two dimensions, got 1; a single column is X.reshape(-1, 1)",
        ),
        (
            lambda: encoder.transform(table.assign(stars=[[1]] * N)),
            "column 'stars', in training of kind 'number': got cells that cannot be read "
            "(TypeError: unhashable type: 'list'); correct them",
        ),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call()


def test_more_categories_than_are_distinguished_and_all_rare() -> None:
    table = pd.DataFrame({"word": [f"w{i % 300:03}" for i in range(1500)]})
    for output in OUTPUTS:
        encoder = mg.TableEncoder(output)
        assert encoder.fit_transform(table).shape[1] == len(encoder.get_feature_names_out())


def test_no_rows_later() -> None:
    table, y = make_reviews()
    for output in OUTPUTS:
        encoder = mg.TableEncoder(output).fit(table, y)
        assert encoder.transform(table.head(0)).shape == (0, len(encoder.get_feature_names_out()))


def test_tables_that_cannot_be_fitted_get_one_line() -> None:
    table, y = make_reviews()
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: mg.TableEncoder().fit(table[["stars"]], y[:10]), "inconsistent numbers of samples"),
        (lambda: mg.TableEncoder().fit(table.head(0)), "^X: expected rows, got none$"),
        (lambda: mg.TableEncoder().fit(table.rename(columns={"town": "day"})), "^X: expected every column name once"),
        (lambda: mg.TableEncoder(date_format="dd").fit(table), "expected"),
        (lambda: mg.TableEncoder().fit(sparse.eye(5, format="csr")), "^X: expected a table, got a sparse matrix"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


def test_rows_that_do_not_count() -> None:
    """The ensemble describes all rows, and learns from those with a weight."""
    table, y = make_reviews()
    counted = np.arange(0, N, 2)
    encoder = mg.TableEncoder()
    encoder.describe(table)
    parts = encoder.read(table)
    means = encoder.fit_parts(parts, y, counted)
    alone = mg.TableEncoder(columns=encoder.columns_)
    expected = to_array(alone.fit_transform(table.iloc[counted], y[counted]))
    found = to_array(encoder.encode(parts, "linear", means))
    np.testing.assert_array_equal(found[counted], expected)
    rest = np.arange(1, N, 2)
    np.testing.assert_array_equal(found[rest], to_array(alone.transform(table.iloc[rest])))


# Files


@pytest.fixture(scope="module")
def fitted() -> mg.TableEncoder:
    table, y = make_reviews()
    return mg.TableEncoder().fit(table.assign(note=[f"note {i} of many" for i in range(N)]), y)


@pytest.mark.parametrize("targets", [True, False])
@pytest.mark.parametrize("output", OUTPUTS)
def test_what_is_read_is_what_was_written(output: Output, targets: bool) -> None:
    table, y = make_reviews()
    later = make_reviews(50, seed=1)[0].assign(town=[None, "town1"] * 25)
    encoder = mg.TableEncoder(output).fit(table.assign(one=1), y if targets else None)
    files = write_encoder(encoder)
    again = read_encoder(files)
    assert again.output == output
    assert again.columns_ == encoder.columns_
    assert again.dropped_ == encoder.dropped_ == {"one": "constant: always 1"}
    assert again.n_features_in_ == 6
    np.testing.assert_array_equal(again.feature_names_in_, encoder.feature_names_in_)
    np.testing.assert_array_equal(again.get_feature_names_out(), encoder.get_feature_names_out())
    for rows in (table, later):
        np.testing.assert_array_equal(to_array(again.transform(rows)), to_array(encoder.transform(rows)))
    assert write_encoder(again) == files


Files = dict[str, bytes]
Edit = Callable[[Files], Any]


def change_arrays(**changes: Callable[[Any], Any]) -> Edit:
    """Return an edit of some arrays, "_" standing for "-"; None takes an array away."""

    def edit(files: Files) -> None:
        arrays = safetensors.numpy.load(files["encoder.safetensors"])
        for name, change in changes.items():
            key = name.replace("_", "-")
            arrays[key] = change(arrays.get(key))
        kept = {name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None}
        files["encoder.safetensors"] = safetensors.numpy.save(kept)

    return edit


def change_json(name: str, change: Callable[[Any], Any]) -> Edit:
    def edit(files: Files) -> None:
        files[name] = strict_json.as_json(change(json.loads(files[name])))

    return edit


def change_column(of_kind: str, /, **changes: Any) -> Edit:
    """Return an edit of the first column of a kind."""

    def change(about: Any) -> Any:
        column = next(one for one in about["columns"] if one["kind"] == of_kind)
        column |= changes
        return about

    return change_json("encoder.json", change)


def drop_last(array: np.ndarray) -> np.ndarray:
    return array[:-1]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (change_arrays(extra=lambda _: np.zeros(1, np.float32)), "the arrays of the columns of encoder.json"),
        (change_arrays(scale=lambda _: None), "the arrays of the columns of encoder.json"),
        (change_arrays(scale=drop_last), "medians and scales of 5 columns"),
        (change_arrays(medians=drop_last), "medians and scales of 5 columns"),
        (change_arrays(scale=lambda one: one * 0), "positive scales"),
        (change_arrays(shift=lambda one: one * np.nan), "finite numbers of float64 in shift"),
        (change_arrays(shift=lambda one: one.astype(np.float32)), "finite numbers of float64 in shift"),
        (change_arrays(often_missing=lambda one: one.astype(np.int64)), "finite numbers of bool in often-missing"),
        (change_arrays(slots_0=lambda one: one.astype(np.int32)), "finite numbers of int64 in slots-0"),
        (change_arrays(slots_0=lambda one: one + 1), "the one-hot columns of codes"),
        (change_arrays(slots_0=lambda one: one - 5), "the one-hot columns of codes"),
        (change_arrays(slots_0=lambda one: one[None]), "the one-hot columns of codes"),
        (change_arrays(slots_0=lambda one: one[:1]), "the one-hot columns of codes"),
        (change_arrays(slots_0=lambda one: np.where(one == one.max(), 10**9, one)), "the one-hot columns of codes"),
        (change_arrays(means_0=drop_last), "means of 71 categories, got shape (70, 1)"),
        (change_arrays(means_0=lambda one: np.tile(one, (1, 40))), "means of 71 categories, got shape (71, 40)"),
        (change_arrays(means_0=lambda one: np.tile(one, (1, 2))), "scales of 2 means"),
        (change_arrays(mean_scales_0=lambda one: one * 0), "scales of 1 means"),
        (change_arrays(idf_0=lambda one: one.astype(np.float64)), "finite numbers of float32 in idf-0"),
        (change_arrays(idf_0=lambda one: one * np.nan), "finite numbers of float32 in idf-0"),
        (change_arrays(idf_0=lambda one: -one), "frequencies and topics"),
        (change_arrays(idf_0=drop_last), "frequencies and topics"),
        (change_arrays(topics_0=lambda one: one[:, 1:]), "frequencies and topics"),
        (change_arrays(topics_1=lambda one: one[0]), "frequencies and topics"),
        (change_json("words.json", lambda one: [*one, []]), "the words of 2 columns, got 3"),
        (change_json("words.json", lambda one: [[one[0][0]] * len(one[0]), one[1]]), "every word once"),
        (change_json("words.json", lambda one: [["", *one[0][1:]], one[1]]), "every word once"),
        (change_json("words.json", lambda one: one[0]), "expected a list"),
        (change_json("words.json", lambda one: {"os:system": one}), "expected a list"),
        (change_json("encoder.json", lambda one: one | {"output": "os:system"}), "output: expected 'linear'"),
        (change_json("encoder.json", lambda one: one | {"more": 1}), "got also 'more'"),
        (change_json("encoder.json", lambda one: one | {"columns": []}), "columns: expected"),
        (change_json("encoder.json", lambda one: one | {"encoded_by_target": ["stars"]}), "got 'stars'"),
        (change_json("encoder.json", lambda one: one | {"encoded_by_target": ["none\n"]}), "got 'none"),
        (change_column("number", levels=["a"]), "no levels of 'stars'"),
        (change_column("number", kind="code"), "kind: expected"),
        (change_column("number", number_format="os:system"), "a format of numbers"),
        (change_column("number", shares=[1.0]), "10 shares of 'stars'"),
        (change_column("number", edges=[3.0, 2.0], shares=[0.3, 0.3, 0.4]), "3 shares of 'stars'"),
        (change_column("date", date_format="%Q"), "expected"),
        (change_column("date", date_parts=["os"]), "date_parts"),
        (change_column("category", categories=["a"]), "1 shares of 'colour'"),
        (change_column("text", kind="number"), "the arrays of the columns of encoder.json"),
        (change_column("number", name="colour"), "columns of the table, each once"),
        (change_column("number", name="unknown"), "columns of the table, each once"),
        (change_json("encoder.json", lambda one: one | {"names": one["names"][1:]}), "columns of the table, each once"),
        (change_json("encoder.json", lambda one: one | {"names": one["names"] * 2}), "every name once"),
        (change_arrays(slots_0=lambda one: np.append(one, [-1] * 9)), "the one-hot columns of codes"),
        (lambda files: files.pop("encoder.json"), "encoder.json: expected a file of this name, got none"),
        (lambda files: files.pop("encoder.safetensors"), "encoder.safetensors: expected a file of this name, got none"),
        (lambda files: files.pop("words.json"), "words.json: expected a file of this name, got none"),
    ],
)
def test_forged_files_are_refused(edit: Edit, message: str, fitted: mg.TableEncoder) -> None:
    files = write_encoder(fitted)
    read_encoder(files)
    edit(files)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_encoder(files)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["encoder.json", "encoder.safetensors", "words.json"])
def test_damaged_files_are_refused(name: str, fitted: mg.TableEncoder) -> None:
    files = write_encoder(fitted)
    half = files[name][: len(files[name]) // 2]
    unknown_type = files[name].replace(b'"F64"', b'"F8_E4M3"').replace(b'"F32"', b'"BF16"')
    for damaged in (
        b"",
        b"\xff" * 64,
        half,
        files[name][1:],
        b"\0" * 9,
        unknown_type if b"F64" in files[name] else b"{",
    ):
        with pytest.raises(ValueError, match=rf"^{name}: [^\n]*$"):
            read_encoder(files | {name: damaged})
