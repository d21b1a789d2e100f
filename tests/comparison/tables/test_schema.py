"""Schemas: tasks, classes and kinds of columns are found, later frames are encoded alike, and the profile."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metricgrad.comparison.errors import UserError
from metricgrad.comparison.tables.files import read
from metricgrad.comparison.tables.gaps import Gaps
from metricgrad.comparison.tables.profile import describe_data, find_warnings
from metricgrad.comparison.tables.schema import Schema
from metricgrad.estimators.table_encoder import TableEncoder

pytestmark = pytest.mark.quick

N = 200


def frame(**more: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": rng.normal(size=N),
            "colour": rng.choice(["red", "green", "blue"], N, p=[0.5, 0.3, 0.2]),
            "new": rng.random(N) < 0.5,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 500, N), "h"),
            "y": np.arange(N) % 3 == 0,
        }
        | more
    )


def test_kinds_of_columns() -> None:
    schema = Schema.of(frame(), "y")
    assert {c.name: c.kind for c in schema.columns} == {
        "size": "number",
        "colour": "category",
        "new": "boolean",
        "day": "date",
    }
    assert schema.columns[1].categories == ("red", "green", "blue")
    features = schema.to_features(frame())
    parts = [f"day ({part})" for part in ("days", "year", "month", "weekday", "hour")]
    assert features.columns.tolist() == ["size", "colour", "new", *parts]
    assert features["colour"].dtype == np.int32
    assert {str(kind) for kind in features.drop(columns="colour").dtypes} == {"float32"}
    day = frame()["day"]
    assert features["day (weekday)"].tolist() == day.dt.day_of_week.tolist()
    assert features["day (hour)"].tolist() == day.dt.hour.tolist()
    assert features["day (month)"].tolist() == day.dt.month.tolist()
    assert features["day (year)"].unique().tolist() == [2024]
    np.testing.assert_allclose(features["day (days)"], (day - pd.Timestamp(2000, 1, 1)).dt.total_seconds() / 86400)


def test_a_frame_of_texts_gives_the_same_numbers() -> None:
    typed = frame()
    texts = typed.astype(str)
    schema = Schema.of(typed, "y")
    pd.testing.assert_frame_equal(schema.to_features(typed), schema.to_features(texts))
    np.testing.assert_array_equal(schema.encode_targets(typed), schema.encode_targets(texts))
    again = Schema.of(texts, "y")
    assert [(c.name, c.kind) for c in again.columns] == [(c.name, c.kind) for c in schema.columns]
    categorical = typed.astype({"colour": pd.CategoricalDtype(["blue", "pink", "red", "green"])})
    pd.testing.assert_frame_equal(schema.to_features(typed), schema.to_features(categorical))


def test_types_of_parquet(tmp_path: Path) -> None:
    plain = pa.Table.from_pandas(frame(), preserve_index=False)
    table = pa.table(
        {
            "day": plain["day"].cast(pa.date32(), safe=False),
            "colour": plain["colour"].dictionary_encode(),
            "price": pa.array([Decimal(i) / 4 for i in range(N)]),
            "new": pa.array([None, *plain["new"].to_pylist()[1:]]),
            "y": plain["colour"].dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    data = read(tmp_path / "a.parquet")
    schema = Schema.of(data, "y")
    assert [column.kind for column in schema.columns] == ["date", "category", "number", "boolean"]
    assert schema.classes == ("blue", "green", "red")
    features = schema.to_features(data)
    assert features["new"].isna().tolist() == [True] + [False] * (N - 1)
    assert features["price"].iloc[3] == 0.75
    assert [schema.classes[k] for k in schema.encode_targets(data)] == frame()["colour"].tolist()
    texts = data.astype({"y": str, "colour": str, "day": str})
    pd.testing.assert_frame_equal(schema.to_features(texts), features)


def test_json_and_back() -> None:
    for target in ("y", "new"):
        schema = Schema.of(frame(), target)
        again = Schema.from_json(json.dumps(schema.to_json(), allow_nan=False).encode(), schema.columns)
        assert again == schema
    with pytest.raises(ValueError, match=r"^schema.json: expected 'target', got none$"):
        Schema.from_json(b'{"rows": 3}', schema.columns)
    with pytest.raises(ValueError, match=r"^schema.json: expected target, dropped, rows, got also 'columns'$"):
        Schema.from_json(json.dumps(schema.to_json() | {"columns": []}).encode(), schema.columns)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([None] * N, "all missing"),
        ([7] * N, "constant: always 7"),
        (["x"] * N, "constant: always x"),
        (range(1000, 1000 + N), "looks like an id"),
        ([f"u{i}" for i in range(N)], "looks like an id: 200 different texts"),
        ([[1, 2]] * N, "holds lists or objects"),
        ([np.inf] * N, "all missing"),
    ],
)
def test_columns_left_out_and_why(cells: Any, reason: str) -> None:
    schema = Schema.of(frame(odd=cells), "y")
    assert schema.dropped["odd"].startswith(reason)
    assert any("'odd' was left out" in line for line in find_warnings(frame(odd=cells), schema))


def test_ids_by_name_and_numbers_that_are_none() -> None:
    shuffled = np.random.default_rng(1).permutation(N * 7)[:N]
    schema = Schema.of(frame(customer_id=shuffled, cents=shuffled), "y")
    assert "customer_id" in schema.dropped
    assert "cents" not in schema.dropped


ROWS = np.random.default_rng(2).permutation(N + 60)[:N]  # what a random split leaves of row numbers


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("Unnamed: 0", np.random.default_rng(1).permutation(N * 7)[:N]),
        ("column 1", np.random.default_rng(1).permutation(N * 7)[:N].astype(str)),
        ("number", ROWS),
        ("number", np.sort(ROWS) + 5000),
        ("number", np.sort(np.random.default_rng(1).permutation(N * 15)[:N])),
    ],
)
def test_row_numbers_are_recognised_after_a_split(name: str, cells: Any) -> None:
    schema = Schema.of(frame(**{name: cells}), "y")
    assert schema.dropped == {name: "looks like an id: every row has a different whole number"}


def test_measurements_that_all_differ_stay() -> None:
    rng = np.random.default_rng(1)
    amounts = rng.permutation(10**6)[:N]
    schema = Schema.of(frame(amount=amounts, sorted=np.sort(amounts), real=rng.permutation(N) + 0.5), "y")
    assert schema.dropped == {}


def test_strings_among_numbers_and_infinities_count_as_missing_and_are_said() -> None:
    mixed = [*map(str, range(N - 2)), "unknown", "1e500"]
    data = frame(mixed=mixed, far=[np.inf, *np.arange(1.0, N) ** 0.5])
    schema = Schema.of(data, "y")
    features = schema.to_features(data)
    assert features["mixed"].isna().sum() == 2
    assert features["far"].isna().sum() == 1
    said = " ".join(find_warnings(data, schema))
    assert "'mixed': 2 cells that are not numbers ('unknown')" in said
    assert "'far': 1 infinite cells" in said


def test_unknown_categories_are_missing_and_counted() -> None:
    schema = Schema.of(frame(), "y")
    later = frame(colour=["pink", None, *["red"] * (N - 2)])
    gaps = Gaps()
    features = schema.to_features(later, gaps)
    assert features["colour"].tolist() == [-1, -1, *[0] * (N - 2)]
    assert (gaps.unknown["colour"], gaps.missing["colour"]) == (1, 1)


def test_many_categories_share_the_last_code() -> None:
    words = [f"w{i % 300:03}" for i in range(3000)]
    data = pd.DataFrame({"word": words, "y": np.arange(3000) % 2})
    schema = Schema.of(data, "y")
    assert schema.columns[0].others
    codes = schema.to_features(data)["word"]
    assert codes.max() == 255
    assert (codes == 255).sum() == 450
    assert schema.to_features(data.assign(word=None))["word"].eq(-1).all()
    assert sum(schema.columns[0].shares) == pytest.approx(1)


def test_missing_columns_at_prediction_are_named() -> None:
    schema = Schema.of(frame(), "y")
    with pytest.raises(UserError, match=r"'size', 'day' are missing; did you mean 'Size'\?"):
        schema.to_features(frame().drop(columns="day").rename(columns={"size": "Size"}))


# Targets


@pytest.mark.parametrize(
    ("cells", "task", "classes"),
    [
        ([0, 1], "binary", ("0", "1")),
        ([0.0, 1.0], "binary", ("0", "1")),
        ([1, 2], "binary", ("2", "1")),
        (["no", "yes"], "binary", ("no", "yes")),
        ([True, False], "binary", ("False", "True")),
        (["True", "False"], "binary", ("False", "True")),
        (["a", "a", "b"], "binary", ("a", "b")),
        (["a", "b", "b"], "binary", ("b", "a")),
        ([10, 9, 8], "multiclass", ("8", "9", "10")),
        (["x", "y", "x;y"], "multilabel", ("x", "y")),
        (["x", "y", "x | y", None], "multilabel", ("x", "y")),
        (["a;b", "c"], "binary", ("a;b", "c")),
    ],
)
def test_tasks_are_found(cells: list[Any], task: str, classes: tuple[str, ...]) -> None:
    data = frame(t=pd.Series(cells * N).head(N))
    schema = Schema.of(data, "t")
    assert schema.task == task
    assert schema.classes == classes
    if task == "multilabel":
        expected = np.array([[name in str(cell) for name in classes] for cell in data["t"]])
        np.testing.assert_array_equal(schema.encode_targets(data), expected)
    else:
        assert [classes[k] for k in schema.encode_targets(data)] == [
            str(int(c)) if type(c) is float else str(c) for c in data["t"]
        ]


def test_labels_of_few_rows_are_left_out_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    schema = Schema.of(frame(t=["x;rare"] * 3 + ["x", "y", "x;y"] * 65 + [None] * 2), "t")
    assert schema.classes == ("x", "y")
    assert "left out 1 labels with fewer than 10 positive or negative rows: 'rare'" in caplog.text


def test_several_columns_are_multilabel() -> None:
    data = frame(a=np.arange(N) % 2, b=(np.arange(N) % 4 == 0).astype(str))
    schema = Schema.of(data, ["a", "b"])
    assert (schema.task, schema.classes) == ("multilabel", ("a", "b"))
    np.testing.assert_array_equal(schema.encode_targets(data)[:8].T, [[0, 1] * 4, [1, 0, 0, 0] * 2])


def test_positive_class_and_rows_without_target() -> None:
    data = frame(t=[None, None, *["a", "b"] * (N // 2 - 1)])
    schema = Schema.of(data, "t", positive="a")
    assert schema.classes == ("b", "a")
    assert schema.rows == N - 2
    assert schema.encode_targets(schema.keep_labelled(data)).tolist() == [1, 0] * (N // 2 - 1)
    assert dict(describe_data(data, schema))["rows"] == "200, of which 2 without a target"


@pytest.mark.parametrize(
    ("cells", "options", "message", "code"),
    [
        ([1] * N, {}, "expected two classes or more, got only '1'", 3),
        ([None] * N, {}, "got only missing cells", 3),
        (["a"] * 3 + ["b"] * (N - 3), {}, "expected at least 10 rows of class 'a', got 3; merge it", 3),
        (np.linspace(0, 1, N), {}, "expected classes, got 200 different values in 200 rows", 3),
        ([f"t{i}" for i in range(N)], {}, "expected classes, got 200 different values", 3),
        (["a", "b"] * (N // 2), {"positive": "c"}, "positive: expected a class of the target", 2),
        (["a", "b"] * (N // 2), {"task": "multiclass"}, "which makes it binary, not multiclass", 2),
        (["a", "b"] * (N // 2), {"task": "multilabel"}, "expected labels separated by ; | or ,", 3),
        (["a", "b"] * (N // 2), {"task": "fancy"}, "task: expected one of binary", 2),
        (["a", "b"] * (N // 2), {"drop": ["colr"]}, "did you mean 'colour'?", 2),
        (["a", "b"] * (N // 2), {"target": "u"}, "target: expected a column of the data, got 'u'; choose one of", 2),
        (["a", "b"] * (N // 2), {"target": ["t", "colour"]}, "'t': expected 0 and 1", 3),
        (["a", "b"] * (N // 2), {"drop": ["size", "colour", "new", "day", "y"]}, "expected feature columns", 3),
    ],
)
def test_targets_that_cannot_be_used(cells: Any, options: dict[str, Any], message: str, code: int) -> None:
    with pytest.raises(UserError) as caught:
        Schema.of(frame(t=cells), **{"target": "t"} | options)
    assert message in str(caught.value)
    assert caught.value.code == code


def test_strange_labels_later() -> None:
    schema = Schema.of(frame(t=["a", "b"] * (N // 2)), "t")
    with pytest.raises(UserError, match="expected the classes 'a', 'b', got 'c'"):
        schema.encode_targets(frame(t=["a", "c"] * (N // 2)))


# The encoder


def test_an_encoder_of_the_columns_gives_finite_numbers_and_takes_what_it_has_not_seen() -> None:
    rng = np.random.default_rng(2)
    data = frame(gaps=np.where(rng.random(N) < 0.3, np.nan, rng.normal(size=N)))
    schema = Schema.of(data, "y")
    encoder = TableEncoder(columns=schema.columns).fit(data.head(100))
    later = data.assign(colour="pink", size=np.nan)
    matrix = encoder.transform(later)
    assert np.isfinite(matrix).all()
    # size, new, five of a date, gaps and its indicator, three colours
    assert matrix.shape == (N, 12)
    pd.testing.assert_frame_equal(encoder.read(later), schema.to_features(later))


# The profile


def test_profile_in_a_few_lines() -> None:
    lines = dict(describe_data(frame(), Schema.of(frame(), "y")))
    assert lines["task"] == "binary: y"
    assert lines["classes"] == "False 66.5%, True 33.5% (positive: True)"
    assert lines["features"] == "4: 1 number, 1 category, 1 boolean, 1 date"


def test_leaks_and_duplicates_are_suspected() -> None:
    rng = np.random.default_rng(3)
    y = np.arange(N) % 5 == 0
    data = frame(
        y=y,
        copy=np.where(y, "fraud", "fine"),
        nearly=y + 0.1 * rng.normal(size=N),
        missing=np.where(y, rng.normal(size=N), np.nan),
        honest=y + rng.normal(size=N),
    )
    said = " ".join(find_warnings(data, Schema.of(data, "y")))
    for name in ("copy", "nearly", "missing"):
        assert f"'{name}' alone separates the classes (AUROC 1): if it is unknown at prediction time" in said
    assert "determines" not in said
    assert "honest" not in said
    assert "repeat" not in said
    twice = pd.concat([data, data.head(10), data.head(5).assign(y=~y[:5])])
    said = " ".join(find_warnings(twice, Schema.of(twice, "y")))
    assert "10 rows (4.7%) duplicate another row" in said
    assert "15 rows" in said


def test_a_leak_names_its_measure() -> None:
    rng = np.random.default_rng(3)
    y = np.arange(N) % 4
    data = frame(y=y, twin=[f"k{0 if i == 7 else i % 4}" for i in range(N)])
    (said,) = (line for line in find_warnings(data, Schema.of(data, "y")) if "twin" in line)
    assert said.startswith("column 'twin' alone nearly separates the classes (AUROC 0.9")
    assert " or more for each of them): if it is unknown at prediction time, leave it out with --drop" in said
    data = frame(a=y > 2, b=y % 2, twin=(y > 2) + 0.1 * rng.normal(size=N))
    said = " ".join(find_warnings(data, Schema.of(data, ["a", "b"])))
    assert "column 'twin' alone separates the rows with label 'a' from the others (AUROC 1)" in said


def test_names_and_cells_cannot_break_lines() -> None:
    data = frame(**{"evil\n\x1b[31m<script>": [None] * N})
    text = " ".join(find_warnings(data, Schema.of(data, "y")))
    assert "\n" not in text
    assert "\x1b" not in text


def labels(unknown: int = 40) -> pd.DataFrame:
    tags = ["a", "b", "a;b", "b;c", "c"] * (N // 5)
    return frame(tags=[*[None] * unknown, *tags[unknown:]])


def test_an_empty_list_of_labels_is_no_label_and_that_is_said() -> None:
    data = labels()
    schema = Schema.of(data, "tags")
    assert (schema.rows, schema.classes) == (N, ("a", "b", "c"))
    assert schema.encode_targets(schema.keep_labelled(data))[:40].sum() == 0
    assert dict(describe_data(data, schema))["rows"] == "200, of which 40 with an empty list of labels"
    said = next(text for text in find_warnings(data, schema) if "tags" in text)
    assert said == (
        "target 'tags': 40 of 200 cells are empty and count as rows with none of the labels; if their labels are "
        "unknown, leave these rows out with --drop-unlabelled"
    )


def test_rows_with_an_empty_list_of_labels_can_be_left_out() -> None:
    data = labels()
    data.loc[:9, "tags"] = " "  # a frame may hold blank texts where a file has empty cells
    schema = Schema.of(data, "tags", drop_unlabelled=True)
    assert schema.rows == N - 40
    assert len(schema.keep_labelled(data)) == N - 40
    assert dict(describe_data(data, schema))["rows"] == "200, of which 40 without a target"
    assert not [text for text in find_warnings(data, schema) if "tags" in text]
    again = Schema.from_json(json.dumps(schema.to_json()).encode(), schema.columns)
    assert len(again.keep_labelled(data)) == N - 40
    assert Schema.of(data, "tags").rows == N
