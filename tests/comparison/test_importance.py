"""What the model looks at: importance against scikit-learn, in a whole run, and what it costs to resume one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from metricgrad.cli.main import main
from metricgrad.comparison import candidate_runs, importance, run_comparison, temporary_models
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.importance import TableColumn, TableRows
from metricgrad.decisions import rules
from short_training import shorten_training
from tables import binary, multiclass, multilabel, written

ASK = ["--repeats", "2", "--contenders", "hybrid", "--jobs", "1"]


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch, 4, 3)


def read(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_bytes())
    return found


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_drops_are_those_of_scikit_learn_with_a_scorer_that_applies_the_rule(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    features = pd.DataFrame({name: rng.normal(size=400) for name in ("a", "b", "c")})
    y = (features["a"] + 0.5 * features["b"] + rng.normal(size=400) > 0.8).astype(int).to_numpy()
    y = y + (features["c"] > 1).to_numpy() if task == "multiclass" else y
    model = LogisticRegression().fit(features, y)
    rule: rules.Rule = rules.Threshold(0.3) if task == "binary" else rules.Argmax()
    average = "binary" if task == "binary" else "macro"

    def score(some: pd.DataFrame) -> np.ndarray:
        found = model.predict_proba(some)
        return np.asarray(found[:, 1] if task == "binary" else found)

    def judge(_: object, some: pd.DataFrame, truth: np.ndarray) -> float:
        decided = np.asarray(rule(score(some))).astype(int)
        return float(f1_score(truth, decided, average=average))

    wanted = permutation_importance(model, features, y, scoring=judge, n_repeats=40, random_state=1)
    monkeypatch.setattr(importance, "ROWS_SCORED_PER_REPEAT", 10**9)
    monkeypatch.setattr(importance, "MOST_SHUFFLES", 40)
    goal = Goal(task, 2 if task == "binary" else 3, "f1")
    columns = [TableColumn(name, (name,)) for name in features]
    rows = TableRows(features, features)
    rng = np.random.default_rng(2)
    found = importance.measure_drops(lambda some: score(some.parts), goal, rule, rows, y, columns, rng)
    error = wanted.importances_std * (2 / 40) ** 0.5
    assert (np.abs(found - wanted.importances_mean) < 4 * error + 1e-9).all()
    assert found[0] > 0.1


def test_intervals_are_of_the_corrected_resampled_t_test() -> None:
    drops = np.array([0.02, 0.03, 0.01, 0.02])
    error = (drops.var(ddof=1) * (1 / 4 + 1 / 3)) ** 0.5
    low, high = stats.t.interval(0.95, 3, loc=0.02, scale=error)
    found = importance._estimate("a", drops, 1 / 3)
    assert [found["drop"], found["low"], found["high"]] == pytest.approx([0.02, low, high])
    assert importance._estimate("a", drops[:1], 1 / 3)["low"] is None


def test_parts_of_a_column_are_shuffled_together_and_others_stay() -> None:
    features = pd.DataFrame({"day": np.arange(50.0), "hour": np.arange(50.0) + 1000, "rest": np.arange(50)})
    frame = pd.DataFrame({"date": [f"day {i}" for i in range(50)], "rest": np.arange(50)})
    seen: list[TableRows] = []

    def score(some: TableRows) -> np.ndarray:
        seen.append(some)
        return np.zeros(len(some))

    columns, rng = [TableColumn("date", ("day", "hour")), TableColumn("rest", ("rest",))], np.random.default_rng(0)
    shuffled = importance._score_shuffled(score, TableRows(frame, features), columns, 3, rng)
    assert np.concatenate([places for places, _ in shuffled]).tolist() == [0, 0, 0, 1, 1, 1]
    together = pd.concat([some.parts for some in seen])
    given = pd.concat([some.frame for some in seen])
    assert given["date"].tolist() == [f"day {day:.0f}" for day in together["day"]]
    assert given["rest"].tolist() == together["rest"].tolist()
    for i in range(6):
        block = together.iloc[50 * i : 50 * (i + 1)]
        np.testing.assert_array_equal(block["hour"] - block["day"], 1000)
        for name, moved in (("day", i < 3), ("rest", i >= 3)):
            assert (block[name].to_numpy() != features[name].to_numpy()).any() == moved
            np.testing.assert_array_equal(np.sort(block[name]), features[name])
        assert block.dtypes.equals(features.dtypes)


def test_a_run_names_the_columns_that_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = written(binary(), tmp_path)
    assert main(["compare", data, "--target", "ripe", *ASK, "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    found = read(tmp_path / "run")["importance"]
    assert {one["column"] for one in found} == {"size", "weight", "shape", "farm"}
    assert found[0]["column"] in ("size", "shape")
    drops = [one["drop"] for one in found]
    assert drops == sorted(drops, reverse=True)
    assert all(one["low"] <= one["drop"] <= one["high"] for one in found)
    assert f"{found[0]['column']}" in printed
    assert f"{drops[0]:+.3f}" in printed
    page = (tmp_path / "run" / "report.html").read_text()
    assert '"importance":[{"column":' in page
    assert main(["info", str(tmp_path / "run")]) == 0
    assert f"{drops[0]:+.3f}" in capsys.readouterr().out


@pytest.mark.parametrize(("make", "target"), [(multiclass, "kind"), (multilabel, "label 0,label 1,label 2")])
def test_other_tasks_and_the_ensemble(make: Any, target: str, tmp_path: Path) -> None:
    data = written(make(), tmp_path)
    only = ["--repeats", "2", "--contenders", "hybrid,xgboost,ensemble", "--ship", "ensemble"]
    ask = ["--target", target, *only, "--jobs", "1"]
    assert main(["compare", data, *ask, "--out", str(tmp_path / "run")]) == 0
    found = {one["column"]: one["drop"] for one in read(tmp_path / "run")["importance"]}
    assert found.keys() == set(make().columns) - set(target.split(","))
    assert max(found.values()) > 0


def test_models_that_are_not_at_hand_are_fitted_again_to_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = written(binary(), tmp_path)
    ask = ["compare", data, "--target", "ripe", *ASK, "--out"]
    assert main([*ask, str(tmp_path / "whole")]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(run_comparison, "measure_importance", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main([*ask, str(tmp_path / "stopped")]) == 130
    ran: list[int] = []
    run_one = candidate_runs.run_candidate
    monkeypatch.setattr(candidate_runs, "run_candidate", lambda task: ran.append(task.repeat) or run_one(task))  # type: ignore[func-returns-value]
    assert main(["compare", "--resume", str(tmp_path / "stopped"), "--jobs", "1"]) == 0
    assert ran == [candidate_runs.ALL_ROWS, 0, 1], "the shipped model, and those that the importance needs"
    assert read(tmp_path / "stopped")["importance"] == read(tmp_path / "whole")["importance"]
    assert not list((tmp_path / "stopped").glob("**/.*"))


def test_a_failure_costs_the_importance_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*given: Any) -> Any:
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr(importance, "measure_drops", fail)
    data = written(binary(), tmp_path)
    assert main(["compare", data, "--target", "ripe", *ASK, "--out", str(tmp_path / "run")]) == 0
    assert "the importance of columns was not measured: ZeroDivisionError: no such luck" in capsys.readouterr().err
    assert "importance" not in read(tmp_path / "run")
    assert runs.load(tmp_path / "run").model


def test_of_many_columns_those_that_change_the_scores_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    noise = {f"noise {i}": rng.normal(size=300) for i in range(12)}
    y = rng.random(300) < 0.4
    frame = pd.DataFrame({**noise, "signal": y + 0.2 * rng.normal(size=300), "y": y.astype(int)})
    monkeypatch.setattr(importance, "MOST_COLUMNS", 5)
    shorten_training(monkeypatch, 10, 3)
    data = written(frame, tmp_path)
    assert main(["compare", data, "--target", "y", *ASK, "--out", str(tmp_path / "run")]) == 0
    found = [one["column"] for one in read(tmp_path / "run")["importance"]]
    assert len(found) == 5
    assert found[0] == "signal"


def test_models_are_kept_only_until_the_report_is_made() -> None:
    kept = temporary_models.TemporaryModels()
    assert kept.read_models("hybrid", 0) is None
    for repeat in (0, temporary_models.MOST_REPEATS_KEPT):
        kept.add_models("hybrid", repeat, [repeat])
    assert kept.read_models("hybrid", 0) == [0]
    assert kept.read_models("hybrid", temporary_models.MOST_REPEATS_KEPT) is None
    place = kept.path
    assert place.stat().st_mode & 0o077 == 0, "nobody else may read or write there"
    kept.clear()
    assert not place.exists()
