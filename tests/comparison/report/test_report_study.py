"""What sections of the report measure once: dependence, segments and columns, against scikit-learn and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import partial_dependence
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, matthews_corrcoef

from metricgrad.comparison.goal import Goal
from metricgrad.comparison.report.column_summaries import (
    MISSING,
    OTHERS,
    choose_examples,
    describe_cells,
    draw_bars,
    group_cells,
)
from metricgrad.comparison.report.page_size import MOST_CLASSES, shrink_payload
from metricgrad.comparison.report.section_inputs import Predictions, ShippedModelInputs
from metricgrad.comparison.report.sections.columns import ColumnsSection
from metricgrad.comparison.report.sections.importance import MOST_COLUMNS, MOST_POINTS, ImportanceSection
from metricgrad.comparison.report.sections.segments import FEWEST_POSITIVES, FEWEST_ROWS, MOST_VALUES, SegmentsSection
from metricgrad.comparison.tables.labelled_table import LabelledTable
from metricgrad.decisions import rules
from metricgrad.estimators.columns.column import Column, describe_column
from report_example import simulate

ROWS = 240


def described(frame: pd.DataFrame) -> list[Column]:
    found = [describe_column(name, frame[name]) for name in frame.columns]
    return [column for column in found if isinstance(column, Column)]


def shipped(task: Any, metric: str = "f1") -> tuple[ShippedModelInputs, LogisticRegression | None]:
    """Return a model of columns a, b, c and a category, tested in two splits that share rows."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({name: rng.normal(size=ROWS).round(2) for name in "abc"})
    frame["kind"] = rng.choice(["x", "y", "z"], ROWS, p=[0.5, 0.4, 0.1])
    numbers = ["a", "b", "c"]
    level = frame["a"] + 0.3 * frame["b"] + 0.5 * rng.normal(size=ROWS)
    names: tuple[str, ...] = ("no", "yes")
    fitted = None
    if task == "multilabel":
        names = ("p", "q")
        targets = np.column_stack([level > 0, frame["c"] + level > 1]).astype(int)

        def score(some: pd.DataFrame) -> np.ndarray:
            return np.asarray(1 / (1 + np.exp(-some[["a", "b"]].to_numpy())))

        rule: rules.Rule = rules.Threshold((0.5, 0.4))
    else:
        targets = (level > 0.3).astype(int).to_numpy()
        if task == "multiclass":
            names, targets = ("low", "middle", "high"), targets + (level > 1).to_numpy()
        fitted = LogisticRegression().fit(frame[numbers], targets)

        def score(some: pd.DataFrame) -> np.ndarray:
            found = fitted.predict_proba(some[numbers])
            return np.asarray(found[:, 1] if task == "binary" else found)

        rule = rules.Threshold(0.4) if task == "binary" else rules.Argmax()
    table, goal = LabelledTable(frame, targets, names), Goal(task, len(names), metric)
    tested = np.concatenate([rng.permutation(ROWS)[:150], rng.permutation(ROWS)[:150]])
    scores = score(frame.iloc[tested])
    decided = np.asarray(rule(scores)).astype(int)
    predictions = Predictions("hybrid", goal, table, tested, scores, targets[tested], decided, [rule], [None], [])
    columns = described(frame)
    important = ["a", "kind", "b", "c"]
    return ShippedModelInputs(goal, table, np.arange(100), score, rule, columns, [], important, predictions), fitted


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_dependence_is_that_of_scikit_learn(task: str) -> None:
    model, fitted = shipped(task)
    found = ImportanceSection().measure_study(model)["dependence"]
    assert [each["column"] for each in found] == ["a", "kind", "b", "c"]
    rows = model.table.frame.iloc[model.held]
    each = found[0]
    wanted = partial_dependence(
        fitted,
        rows[["a", "b", "c"]],
        ["a"],
        custom_values={"a": np.array(each["numbers"])},
        response_method="predict_proba",
        method="brute",
        kind="average",
    )["average"]
    # scikit-learn has the positive class of two, and all of several.
    np.testing.assert_allclose(each["scores"], wanted, atol=1e-7)  # numbers are float32
    for i, value in enumerate(each["numbers"]):
        decided = np.asarray(model.rule(model.score(rows.assign(a=value)))).astype(int)
        for k, shares in enumerate(each["shares"]):
            assert shares[i] == pytest.approx((decided == (1 if task == "binary" else k)).mean())
    assert len(each["numbers"]) == MOST_POINTS
    assert found[1]["names"] == ["x", "y", "z"]
    assert found[1]["numbers"] == []


def test_dependence_of_labels_and_of_few_columns() -> None:
    model, _ = shipped("multilabel")
    found = ImportanceSection().measure_study(model)["dependence"]
    rows = model.table.frame.iloc[model.held]
    for each in found:
        assert np.shape(each["scores"]) == np.shape(each["shares"]) == (2, len(each["names"]))
    value = found[0]["numbers"][3]
    scores = model.score(rows.assign(a=value))
    assert [one[3] for one in found[0]["scores"]] == pytest.approx(scores.mean(0))
    assert [one[3] for one in found[0]["shares"]] == pytest.approx((scores >= [0.5, 0.4]).mean(0))
    assert len(found) <= MOST_COLUMNS


def test_of_many_classes_the_dependence_is_of_those_that_are_drawn() -> None:
    labels = MOST_CLASSES + 4
    rng = np.random.default_rng(0)
    shares = np.linspace(0.1, 0.6, labels)
    targets = (rng.random((80, labels)) < shares).astype(int)
    frame = pd.DataFrame({"a": rng.normal(size=80)})
    names = tuple(f"label {k}" for k in range(labels))
    goal, table, rule = (
        Goal("multilabel", labels, "f1"),
        LabelledTable(frame, targets, names),
        rules.Threshold((0.5,) * labels),
    )

    def score(some: pd.DataFrame) -> np.ndarray:
        return np.tile(np.arange(labels) / labels, (len(some), 1))

    scores = score(frame)
    predictions = Predictions("x", goal, table, np.arange(80), scores, targets, targets, [rule], [None], [])
    model = ShippedModelInputs(goal, table, np.arange(80), score, rule, described(frame), [], ["a"], predictions)
    (each,) = ImportanceSection().measure_study(model)["dependence"]
    payload = simulate(rows=200, contenders=2, classes=list(names)).payload
    payload["data"]["balance"] = (targets.sum(0) / 80).tolist()
    kept = shrink_payload(payload, [])["data"]["classes"][:-1]
    assert [one[0] * labels for one in each["scores"]] == pytest.approx([int(name.split()[1]) for name in kept])


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_segments_are_counted_by_hand(task: str) -> None:
    model, _ = shipped(task)
    tested = model.tested
    found = {each["column"]: each["segments"] for each in SegmentsSection().measure_study(model)["segments"]}
    assert list(found) == ["a", "kind", "b", "c"]
    kinds = model.table.frame["kind"].to_numpy()[tested.rows]
    for one in found["kind"]:
        mine = kinds == one["name"]
        different, first = np.unique(tested.rows[mine], return_index=True)
        assert one["rows"] == len(different) < mine.sum()  # the two splits share test rows
        y, decided = tested.targets[mine], tested.decided[mine]
        few = len(different) < FEWEST_ROWS or (task != "multiclass" and y[first].sum() < FEWEST_POSITIVES)
        if few:
            assert one["value"] is None
        elif task == "binary":
            assert one["value"] == pytest.approx(f1_score(y, decided))
        else:  # classes without rows in a segment do not count
            labels = [k for k in range(model.goal.classes) if (y == k if y.ndim == 1 else y[:, k]).any()]
            wanted = f1_score(y, decided, labels=labels, average="macro", zero_division=0)
            assert one["value"] == pytest.approx(wanted)
        if one["low"] is not None:
            assert one["low"] <= one["value"] <= one["high"]
            assert one["low"] < one["high"]
    for segments in found.values():
        known = [one["value"] for one in segments if one["value"] is not None]
        assert known == sorted(known)
        assert [one["value"] for one in segments][: len(known)] == known
        assert sum(one["rows"] for one in segments) == len(np.unique(tested.rows))
        assert len(segments) <= MOST_VALUES + 1


def test_the_value_of_all_rows_and_another_metric() -> None:
    model, _ = shipped("binary", "mcc")
    found = SegmentsSection().measure_study(model)
    assert found["segments_all"] == pytest.approx(matthews_corrcoef(model.tested.targets, model.tested.decided))


def test_columns_that_are_no_features_can_be_segments() -> None:
    model, _ = shipped("binary")
    model.table.frame["farm"] = np.where(np.arange(ROWS) % 2, "north", "south")
    others = described(model.table.frame[["farm"]])
    more = ShippedModelInputs(**{**vars(model), "others": others})
    assert "farm" in [each["column"] for each in SegmentsSection().measure_study(more)["segments"]]
    assert "farm" not in [each["column"] for each in ColumnsSection().measure_study(more)["columns"]]


def test_rows_that_are_tested_twice_do_not_narrow_the_interval() -> None:
    model, _ = shipped("binary")
    once = np.arange(ROWS)
    scores = model.score(model.table.frame)
    decided = np.asarray(model.rule(scores)).astype(int)
    widths = []
    for copies in (1, 4):
        rows = np.tile(once, copies)
        tested = Predictions(
            "x", model.goal, model.table, rows, scores[rows], model.table.targets[rows], decided[rows], [], [], []
        )
        segments = SegmentsSection().measure_study(ShippedModelInputs(**{**vars(model), "tested": tested}))["segments"]
        one = next(s for each in segments if each["column"] == "kind" for s in each["segments"] if s["name"] == "x")
        widths.append(one["high"] - one["low"])
    assert widths[1] > 0.8 * widths[0]  # independent copies would halve it


# Cells


def column(cells: pd.Series) -> Column:
    found = describe_column("c", cells)
    assert isinstance(found, Column)
    return found


def test_groups_of_numbers_have_about_the_same_size_and_say_what_they_hold() -> None:
    cells = pd.Series([*np.arange(1000) / 8, None, None])
    groups = group_cells(column(cells), cells, 4)
    assert groups.names == ["0 to 31.12", "31.25 to 62.38", "62.5 to 93.62", "93.75 to 124.9", MISSING]
    sizes = np.bincount(groups.codes)
    assert sizes[-1] == 2
    assert np.ptp(sizes[:-1]) <= 2
    for k in range(4):
        mine = cells[groups.codes == k]
        assert mine.max() < cells[groups.codes == k + 1].min() or k == 3


def test_groups_of_few_values_and_of_many_equal_ones() -> None:
    few = pd.Series([0, 0, 1, 2] * 20)
    assert group_cells(column(few), few, 4).names == ["0", "1", "2"]
    skewed = pd.Series([0.0] * 95 + list(range(1, 21)))
    groups = group_cells(column(skewed), skewed, 5)
    assert groups.names == ["0", "1 to 7", "8 to 14", "15 to 20"]
    assert np.bincount(groups.codes).tolist() == [95, 7, 7, 6]
    heavy = pd.Series(np.repeat(np.arange(9.0), [1, 20, 1, 20, 1, 20, 1, 20, 1]))
    groups = group_cells(column(heavy), heavy, 4)
    assert len(groups.names) == 4
    assert np.bincount(groups.codes).min() >= 20


def test_groups_of_categories_dates_and_booleans() -> None:
    texts = pd.Series(["a"] * 30 + ["b"] * 20 + ["c"] * 5 + ["d"] * 4 + [None])
    groups = group_cells(column(texts), texts, 3)
    assert groups.names == ["a", "b", OTHERS, MISSING]
    assert np.bincount(groups.codes).tolist() == [30, 20, 9, 1]
    dates = pd.Series(pd.date_range("2021-01-01", periods=100)).astype(str)
    groups = group_cells(column(dates), dates, 2)
    assert groups.names == ["2021-01-01 to 2021-02-19", "2021-02-20 to 2021-04-10"]
    assert np.bincount(groups.codes).tolist() == [50, 50]
    flags = pd.Series([True, False] * 20)
    assert group_cells(column(flags), flags, 8).names == ["False", "True"]


def test_categories_named_like_the_groups_stay_apart() -> None:
    texts = pd.Series([MISSING] * 10 + [OTHERS] * 10 + [None] * 5)
    groups = group_cells(column(texts), texts, 8)
    assert np.bincount(groups.codes).tolist() == [10, 10, 5]
    names, shares = draw_bars(column(texts), texts)
    assert (names, shares) == ([MISSING, OTHERS], [0.5, 0.5])


def test_cells_of_a_row_are_short_and_missing_ones_say_so() -> None:
    frame = pd.DataFrame({"a": [1.0, -1.11149523246612], "b": [72824, 3], "c": ["x", None], "d": [np.nan, 1e9]})
    assert describe_cells(frame, 0, 4) == [("a", "1"), ("b", "72824"), ("c", "x"), ("d", MISSING)]
    assert describe_cells(frame, 1, 3) == [("a", "-1.1115"), ("b", "3"), ("c", MISSING)]


def test_examples_are_cells_of_the_column() -> None:
    cells = pd.Series(["1", "2", None, "10", "3", "3"] * 10)
    positions, names, numbers = choose_examples(column(cells), cells, 3)
    assert cells.iloc[positions].tolist() == ["1", "3", "10"] or numbers == sorted(numbers)
    assert [float(cells[i]) for i in positions] == numbers
    assert len(names) == len(numbers) <= 3
    skewed = pd.Series([0.0] * 2000 + [float(i) for i in range(1, 101)])
    _, _, numbers = choose_examples(column(skewed), skewed, 12)
    assert len(numbers) == 12  # most cells are 0, but the column has more to show


def test_bars_of_numbers_have_the_same_width_and_keep_outliers() -> None:
    rng = np.random.default_rng(0)
    cells = pd.Series([*rng.normal(size=999), 1e6])
    names, shares = draw_bars(column(cells), cells)
    assert len(names) == len(shares) == 20
    assert sum(shares) == pytest.approx(1)
    low, high = np.quantile(cells, [0.005, 0.995])
    counts = np.histogram(np.clip(cells, low, high), 20)[0]
    assert shares == pytest.approx((counts / 1000).tolist())


def test_a_profile_of_every_column() -> None:
    model, _ = shipped("binary")
    found = ColumnsSection().measure_study(model)
    assert found["columns_all"] == 4
    assert [(each["column"], each["kind"]) for each in found["columns"]] == [
        ("a", "number"),
        ("kind", "category"),
        ("b", "number"),
        ("c", "number"),
    ]
    frame = model.table.frame
    assert found["columns"][1]["shares"] == pytest.approx(frame["kind"].value_counts(normalize=True).tolist())
