"""Classes that come and go with time: said before training, and left out of averages where they have no test rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from metricgrad.cli.main import main
from metricgrad.comparison.class_shifts import describe_absent, describe_moved
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.inference.evaluate import evaluate_run
from metricgrad.comparison.protocol import compute_metric
from metricgrad.comparison.splits import Split
from metricgrad.comparison.uncertainty import Draws, resample
from metricgrad.decisions.default_rule import default_rule
from short_training import shorten_training
from split_rows import make_splits
from tables import binary, written


def seasons(rows: int = 600) -> pd.DataFrame:
    """Return classes of which "winter" has no late rows, and "summer" becomes frequent."""
    rng = np.random.default_rng(0)
    day = np.arange(rows)
    late = day / rows
    kind = np.where(rng.random(rows) < 0.1 + 0.6 * late, "summer", "spring")
    kind = np.where((rng.random(rows) < 0.3) & (late < 0.6), "winter", kind)
    codes = np.searchsorted(["spring", "summer", "winter"], kind)
    return pd.DataFrame({"x": rng.normal(size=rows) + codes, "z": rng.normal(size=rows), "day": day, "kind": kind})


def test_shares_that_move_and_classes_without_test_rows_are_said() -> None:
    frame = seasons()
    classes, targets = np.unique(frame["kind"], return_inverse=True)
    parts = make_splits(targets, "multiclass", 3, 0, time=frame["day"].to_numpy())
    absent = describe_absent(targets, "multiclass", classes.tolist(), parts)
    assert absent == ["class 'winter' has no test rows in 1 of 3 repeats: averages leave it out there"]
    moved = describe_moved(targets, "multiclass", classes.tolist(), parts, "day")
    assert moved[0].startswith("--time day: class 'summer' is ")
    split = parts[-1]
    then, now = ((targets[rows] == 1).mean() for rows in (split.train, split.test))
    assert f"is {then:.1%} of the rows to train on and {now:.1%} of the test rows in repeat 3 (it moved in " in moved[0]
    shuffled = np.random.default_rng(0).permutation(targets)
    assert describe_moved(shuffled, "multiclass", classes.tolist(), parts, "day") == []
    assert describe_absent(shuffled, "multiclass", classes.tolist(), parts) == []


def test_of_two_classes_one_sentence_is_enough() -> None:
    rng = np.random.default_rng(0)
    targets = (rng.random(600) < np.linspace(0.05, 0.6, 600)).astype(int)
    parts = make_splits(targets, "binary", 2, 0, time=np.arange(600))
    (said,) = describe_moved(targets, "binary", ["no", "yes"], parts, "day")
    assert "class 'yes'" in said
    labels = np.column_stack((targets, np.arange(600) < 150))
    absent = describe_absent(labels, "multilabel", ["a", "b"], parts)
    assert absent == ["label 'b' has no test rows in 2 of 2 repeats: averages leave it out there"]


def test_many_classes_share_the_last_sentence() -> None:
    rng = np.random.default_rng(0)
    rows = 3000
    early = rng.integers(0, 6, rows)
    targets = np.where((np.arange(rows) < 1500) | (rng.random(rows) < 0.1), early, 5)
    parts = make_splits(targets, "multiclass", 2, 0, time=np.arange(rows))
    found = describe_moved(targets, "multiclass", [*"abcdef"], parts, "day")
    assert len(found) == 4
    assert "the shares of 3 more moved as well: " in found[-1]


@pytest.mark.parametrize("absent", ["train", "test"])
def test_a_class_that_is_absent_has_not_moved(absent: str) -> None:
    targets = np.resize([0, 1], 400)
    targets[:100] = 2
    rows = {"train": np.arange(200), "test": np.arange(200, 400)}
    if absent == "train":
        rows = {"train": rows["test"], "test": rows["train"]}
    part = Split(**rows, folds=((rows["train"], rows["train"]),))
    moved = describe_moved(targets, "multiclass", ["a", "b", "c"], [part], "day")
    assert [text.partition(" is ")[0] for text in moved] == ["--time day: class 'a'", "--time day: class 'b'"]
    purpose = "rows to train on" if absent == "train" else "test rows"
    (said,) = describe_absent(targets, "multiclass", ["a", "b", "c"], [part])
    assert said.startswith(f"class 'c' has no {purpose} in 1 of 1 repeats")


def test_a_repeat_without_positive_test_rows_is_refused() -> None:
    targets = (np.arange(200) < 100).astype(int) * (np.arange(200) % 3 == 0)
    with pytest.raises(UserError, match=r"^--time: repeat 2 has no test rows of the positive class; take fewer"):
        make_splits(targets, "binary", 3, 0, time=np.arange(200))


def test_a_class_without_test_rows_does_not_count_as_zero() -> None:
    rng = np.random.default_rng(0)
    goal, rule = Goal("multiclass", 4, "f1", "macro"), default_rule("multiclass")
    targets, scores = rng.integers(0, 3, 300), rng.dirichlet([1, 1, 1, 0.2], 300)
    expected = f1_score(targets, scores.argmax(1), labels=[0, 1, 2], average="macro")
    assert compute_metric(goal, rule, scores, targets) == pytest.approx(expected)
    draws = Draws(300, None, 0, replicates=20)
    (moves,) = resample(goal, [rule], scores, targets, draws.of_rows(np.arange(300)))
    assert np.abs(moves).max() < 0.15
    targets[0] = 3
    expected = f1_score(targets, scores.argmax(1), average="macro")
    assert compute_metric(goal, rule, scores, targets) == pytest.approx(expected)


def test_metrics_of_two_classes_do_not_need_both() -> None:
    goal, scores = Goal("binary", 2, "accuracy", "macro"), np.linspace(0, 1, 40)
    value = compute_metric(goal, default_rule("binary"), scores, np.zeros(40, dtype=int))
    assert value == pytest.approx((scores < 0.5).mean())


def test_evaluate_takes_rows_of_one_class(tmp_path: Path) -> None:
    words = ["--target", "ripe", "--contender", "logistic regression", "--quick", "--out", str(tmp_path / "run")]
    assert main(["train", written(binary(), tmp_path), *words]) == 0
    new = written(binary(200, seed=1).query("ripe == 'no'"), tmp_path, "new.csv")
    found = evaluate_run(tmp_path / "run", new, ["accuracy", "specificity"], replicates=20).summary
    assert found["metrics"]["accuracy"]["value"] == found["metrics"]["specificity"]["value"] > 0.5
    assert "class 'yes' has no rows here" in found["warnings"]


def test_compare_and_evaluate_say_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch, 3, 5)
    run, data = tmp_path / "run", written(seasons(), tmp_path)
    words = ["--target", "kind", "--time", "day", "--contenders", "majority", "--repeats", "3", "--jobs", "1"]
    assert main(["compare", data, *words, "--out", str(run)]) == 0
    said = json.loads((run / "summary.json").read_bytes())["data"]["warnings"]
    assert any("'winter' has no test rows in 1 of 3 repeats" in text for text in said)
    assert any("class 'summer' is " in text for text in said)
    new = seasons().query("kind != 'winter'")
    found = evaluate_run(run, written(new, tmp_path, "new.csv"), ["f1"], replicates=20).summary
    assert "class 'winter' has no rows here; averages over the classes leave it out" in found["warnings"]
    each = [one["f1"] for one in found["classes"] if one["name"] != "winter"]
    assert found["metrics"]["f1"]["value"] == pytest.approx(np.mean(each))
    parts = tmp_path / "parts"
    parts.mkdir()
    new.iloc[:200].to_parquet(parts / "a.parquet")
    new.iloc[200:].to_parquet(parts / "b.parquet")
    again = evaluate_run(run, parts, ["f1"], replicates=20).summary
    assert again["metrics"]["f1"]["value"] == pytest.approx(found["metrics"]["f1"]["value"])
