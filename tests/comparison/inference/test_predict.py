"""Runs in use: predict, evaluate, tune and drift, on trained runs of all three tasks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metricgrad as mg
from damage import change, reseal
from metricgrad.cli.main import main
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison import trained_rows
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.inference.drift import count_cells, measure_drift
from metricgrad.comparison.inference.evaluate import evaluate_run
from metricgrad.comparison.inference.predict import predict
from metricgrad.comparison.inference.tune import tune
from metricgrad.comparison.report.evaluation_report import write_evaluation_report
from metricgrad.comparison.tables import files
from metricgrad.comparison.tables.schema import Schema
from metricgrad.comparison.tables.stability import compute_psi
from metricgrad.comparison.trained_rows import TrainedRows
from tables import binary, multiclass, multilabel, written

TABLES = {
    "binary": (binary, "ripe"),
    "multiclass": (multiclass, "kind"),
    "multilabel": (multilabel, "label 0,label 1,label 2"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    for task, (make, target) in TABLES.items():
        data = written(make(), folder, f"{task}.csv")
        out = str(folder / task)
        words = ["train", data, "--target", target, "--contender", "logistic regression", "--quick", "--out", out]
        assert main(words) == 0
    return {task: folder / task for task in TABLES}


def later(task: str, rows: int = 500) -> pd.DataFrame:
    return TABLES[task][0](rows, seed=1)


@pytest.mark.parametrize("task", TABLES)
@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "csv.gz"])
def test_predictions_are_those_of_the_model_on_all_rows_at_once(
    trained: dict[str, Path], tmp_path: Path, task: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = later(task).assign(id=np.arange(500) + 10**12)
    with files.write(tmp_path / f"data.{suffix}") as file:
        file.add(frame)
    monkeypatch.setattr(files, "ROWS_PER_PIECE", 64)  # many pieces
    out = tmp_path / f"out.{suffix}"
    found = predict(trained[task], tmp_path / f"data.{suffix}", out, keep=["id"], jobs=3)
    model = runs.load(trained[task]).model
    scores = model.scores(frame)
    decided = model.decide(scores)
    got = files.read(out)
    assert got["id"].tolist() == frame["id"].tolist()
    classes = model.schema.classes
    if task == "multilabel":
        np.testing.assert_array_equal(got[[f"prediction {name}" for name in classes]], decided)
    else:
        assert got["prediction"].tolist() == [classes[k] for k in decided]
    names = ["score"] if task == "binary" else [f"score {name}" for name in classes]
    np.testing.assert_allclose(got[names].to_numpy().squeeze(), scores, rtol=1e-6, atol=1e-9)
    counts = decided.sum(0) if task == "multilabel" else np.bincount(decided, minlength=len(classes))
    assert found["predicted"] == dict(zip(classes, counts.tolist(), strict=True))
    assert found["rows"] == 500


def test_no_more_pieces_are_in_memory_than_jobs_and_two(
    trained: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = written(later("binary", 2000), tmp_path)
    read, done, most = 0, 0, 0
    pieces, add = files.Source.pieces, files.Writer.add

    def counted(self: files.Source, *given: Any) -> Iterator[Any]:
        nonlocal read
        for piece in pieces(self, *given):
            read += 1
            yield piece

    def added(self: files.Writer, table: Any) -> None:
        nonlocal done, most
        most = max(most, read - done)
        done += 1
        add(self, table)

    monkeypatch.setattr(files, "ROWS_PER_PIECE", 50)
    monkeypatch.setattr(files.Source, "pieces", counted)
    monkeypatch.setattr(files.Writer, "add", added)
    assert predict(trained["binary"], data, tmp_path / "out.csv", jobs=2)["rows"] == 2000
    assert read == done == 40
    assert most <= 4


def test_separated_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    texts = [";".join(name for name, on in zip("ab", row > 0, strict=True) if on) for row in x]
    data = written(pd.DataFrame({"x": x[:, 0], "z": x[:, 1], "tags": texts}), tmp_path)
    words = ["--contender", "logistic regression", "--quick", "--out", str(tmp_path / "run")]
    assert main(["train", data, "--target", "tags", *words]) == 0
    predict(tmp_path / "run", data, tmp_path / "out.csv")
    got = files.read(tmp_path / "out.csv")
    assert got.columns.tolist() == ["prediction a", "prediction b", "score a", "score b"]
    assert (got[["prediction a", "prediction b"]].to_numpy() == (x > 0)).mean() > 0.9
    assert (
        evaluate_run(tmp_path / "run", data, ["accuracy"], replicates=20).summary["metrics"]["accuracy"]["value"] > 0.9
    )


def test_what_and_types_of_kept_columns(trained: dict[str, Path], tmp_path: Path) -> None:
    frame = later("binary")
    table = pa.Table.from_pandas(frame).append_column("id", pa.array([None, *range(499)], pa.int64()))
    pq.write_table(table, tmp_path / "data.parquet")
    predict(trained["binary"], tmp_path / "data.parquet", tmp_path / "a.parquet", what="labels", keep=["id"])
    assert pq.read_schema(tmp_path / "a.parquet").names == ["id", "prediction"]
    assert pq.read_schema(tmp_path / "a.parquet").field("id").type == pa.int64()
    predict(trained["binary"], tmp_path / "data.parquet", tmp_path / "b.parquet", what="scores")
    assert pq.read_schema(tmp_path / "b.parquet").names == ["score"]
    with pytest.raises(UserError, match="what: expected one of both, labels, scores"):
        predict(trained["binary"], tmp_path / "data.parquet", tmp_path / "c.parquet", what="all")


def test_unknown_categories_and_extra_columns(trained: dict[str, Path], tmp_path: Path) -> None:
    frame = later("binary")
    frame.loc[:9, "shape"] = "square"
    frame["weight"] = frame["weight"].astype(str).where(frame.index > 2, "heavy")
    data = written(frame.assign(extra=1)[["extra", *frame.columns[::-1]]], tmp_path)
    found = predict(trained["binary"], data, tmp_path / "a.csv")
    assert found["unknown"] == {"weight": 3, "shape": 10}
    assert "'shape': 10 cells (2.0%) are unknown to the model" in found["warnings"][1]


def test_cells_are_written_as_they_are(trained: dict[str, Path], tmp_path: Path) -> None:
    data = written(later("binary", 30).assign(id='=cmd|"/C calc"!A0'), tmp_path)
    predict(trained["binary"], data, tmp_path / "a.csv", keep=["id"])
    assert files.read(tmp_path / "a.csv")["id"].unique().tolist() == ['=cmd|"/C calc"!A0']


# evaluate


@pytest.mark.parametrize("task", TABLES)
def test_evaluate_gives_the_bootstrap_of_the_models_scores(trained: dict[str, Path], tmp_path: Path, task: Any) -> None:
    frame = later(task)
    found = evaluate_run(trained[task], written(frame, tmp_path), replicates=100).summary
    model = runs.load(trained[task]).model
    scores, y = model.scores(frame), model.schema.encode_targets(frame)
    expected = mg.bootstrap(scores, y, "f1", task=task, rule=model.rule, replicates=100)["f1"]
    ends = {"low": expected.low, "high": expected.high}
    assert found["metrics"]["f1"] == {"value": expected.value, **ends, "note": None}
    assert [one["name"] for one in found["classes"]] == list(model.schema.classes)
    rows = y.sum(0) if task == "multilabel" else np.bincount(y)
    assert [one["rows"] for one in found["classes"]] == rows.tolist()
    assert found["warnings"] == []


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_evaluate_says_that_there_are_too_few_positives_for_an_interval(
    trained: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    frame = later("binary")
    schema = runs.load(trained["binary"]).model.schema
    y = schema.encode_targets(frame)
    few = pd.concat([frame[y == 1].head(4), frame[y == 0].head(60)])
    (tmp_path / "parts").mkdir()
    few.to_parquet(tmp_path / "parts" / "part.parquet")
    data = tmp_path / "parts" if kind == "folder" else tmp_path / "parts" / "part.parquet"
    page = tmp_path / "page.html"
    evaluated = evaluate_run(trained["binary"], data, ["f1", "average_precision", "brier_score"], replicates=20)
    write_evaluation_report(page, evaluated, seed=0)
    found = evaluated.summary
    for name in ("f1", "average_precision"):
        one = found["metrics"][name]
        assert (one["low"], one["high"], one["note"]) == (None, None, "too few positives for an interval")
        assert 0 <= one["value"] <= 1
    assert "too few positives for an interval" in page.read_text()


def test_evaluate_warns_of_drift_in_one_line_per_column(trained: dict[str, Path], tmp_path: Path) -> None:
    frame = later("binary")
    frame["size"] += 3
    frame["weight"] = frame["weight"].where(np.arange(500) % 3 > 0)
    frame["shape"] = np.where(np.arange(500) % 2, "square", frame["shape"])
    frame["ripe"] = np.where(np.arange(500) % 4, "yes", frame["ripe"])
    found = evaluate_run(trained["binary"], written(frame, tmp_path), replicates=20).summary
    text = "\n".join(found["warnings"])
    assert "column 'size' drifted: mean moved by +" in text
    assert "column 'weight' drifted: missing 0.0% in training, 33.4% now" in text
    assert "column 'shape' drifted: 50.0% unknown categories" in text
    assert "class 'yes' is" in text
    assert text.count("column 'size'") == 1
    assert "farm" not in text


def test_no_drift_is_seen_where_there_is_none() -> None:
    said = 0
    for seed in range(30):
        schema = Schema.of(binary(300, seed=2 * seed), "ripe")
        said += sum(
            bool(one.suspicious) for one in measure_drift(count_cells(binary(60, seed=2 * seed + 1), schema), schema)
        )
    assert said <= 2  # of 120 columns


# What evaluate and tune say of the rows


@pytest.mark.parametrize("cell", ["0,221", "0.22 %", "$3"])
def test_evaluate_and_tune_see_the_cells_that_predict_sees(
    cell: str, trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = trained["binary"], written(later("binary").assign(size=cell), tmp_path, "new.csv")
    said = (
        "warning: column 'size': 500 cells (100.0%) are unknown to the model "
        "(not numbers, or not written as in training: 1234.5) and count as missing\n"
    )
    for words in (["predict", "-o", f"{tmp_path}/out.csv"], ["evaluate"], ["tune", "--dry-run"]):
        assert main([words[0], str(run), data, *words[1:], "--json", "--allow-missing"]) == 0
        printed = capsys.readouterr()
        assert said in printed.err
        assert json.loads(printed.out)["unknown"] == {"size": 500}
    folder = tmp_path / "parts"
    folder.mkdir()
    for part in range(2):
        pq.write_table(pa.Table.from_pandas(pd.read_csv(data)[part::2]), folder / f"{part}.parquet")
    assert evaluate_run(run, folder, replicates=10, allow_missing=True).summary["unknown"] == {"size": 500}


@pytest.mark.parametrize("task", TABLES)
def test_rows_that_the_model_was_trained_on_are_recognised(
    task: Any, trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = trained[task], str(trained[task]) + ".csv"
    for words in (["evaluate"], ["tune", "--dry-run"]):
        assert main([words[0], str(run), data, *words[1:], "--json"]) == 0
        printed = capsys.readouterr()
        assert "warning: these are the rows that the model was trained on; the value is too good" in printed.err
        assert json.loads(printed.out)["seen_in_training"] == {"rows": len(pd.read_csv(data)), "share": 1.0}
    some = pd.concat([later(task, 90), TABLES[task][0]().head(10)])
    parquet = tmp_path / "some.parquet"
    some.to_parquet(parquet, index=False)
    folder = tmp_path / "parts"
    folder.mkdir()
    for part in range(2):
        some[part::2].to_parquet(folder / f"{part}.parquet", index=False)
    for place in (written(some, tmp_path, "some.csv"), parquet, folder):
        found = evaluate_run(run, place, replicates=10).summary
        assert found["seen_in_training"] == {"rows": 10, "share": 0.1}
        assert found["warnings"][0].startswith(
            "the model was trained on 10 of these 100 rows (10.0%); the value is too"
        )


def test_of_many_rows_a_sample_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    features, targets = pd.DataFrame({"a": rng.normal(size=4000), "b": rng.integers(0, 9, 4000)}), np.arange(4000) % 2
    monkeypatch.setattr(trained_rows, "MOST_HASHES", 1000)
    kept = TrainedRows.of(features[:3000], targets[:3000])
    assert len(kept.to_bytes()) == 8000
    found = TrainedRows.from_bytes(kept.to_bytes()).count(features[2000:], targets[2000:])
    assert found.checked == pytest.approx(2000 / 3, rel=0.15)
    assert found.share == pytest.approx(0.5, abs=0.06)
    assert kept.is_suspicious(found)
    assert kept.count(features, 1 - targets).seen == 0


def test_rows_that_are_equal_by_chance_are_not_suspicious() -> None:
    rng = np.random.default_rng(0)
    features, targets = pd.DataFrame({"a": rng.integers(0, 9, 800), "b": rng.integers(0, 9, 800)}), np.zeros(800)
    kept = TrainedRows.of(features[:400], targets[:400])
    found = kept.count(features[400:], targets[400:])
    assert found.share > 0.9
    assert not kept.is_suspicious(found)


def test_psi_by_hand() -> None:
    value, sure = compute_psi([0.5, 0.5], [0.6, 0.4], 1000, 1000)
    assert value == pytest.approx(0.1 * np.log(1.2) - 0.1 * np.log(0.8))
    assert sure
    assert not compute_psi([0.5, 0.5], [0.6, 0.4], 20, 20)[1]
    assert np.isfinite(compute_psi([1.0, 0.0], [0.0, 1.0], 10, 10)[0])


def test_a_run_folder_cannot_name_code_to_import(trained: dict[str, Path], tmp_path: Path) -> None:
    run = trained["multiclass"]
    path, data = run / "model" / "manifest.json", written(later("multiclass"), tmp_path)
    before = path.read_bytes()
    change(path, lambda about: about | {"rule": about["rule"] | {"metric": "antigravity:fly"}})
    reseal(run)
    for command in (evaluate_run, tune):
        with pytest.raises(UserError, match="if you trust it, type --metric antigravity:fly"):
            command(run, data)
    assert "antigravity" not in sys.modules
    assert evaluate_run(run, data, ["f1"], replicates=20).summary["rows"] == 500
    assert predict(run, data, tmp_path / "out.csv")["rows"] == 500
    path.write_bytes(before)


# tune


def test_tune_writes_the_rule_and_keeps_the_old_one(trained: dict[str, Path], tmp_path: Path) -> None:
    run, frame = trained["binary"], later("binary")
    data = written(frame, tmp_path)
    path = run / "model" / "manifest.json"
    whole = path.read_bytes()
    before = json.loads(whole)["rule"]
    shown = tune(run, data, "recall", subject_to="precision>=0.6", dry_run=True).summary
    assert not shown["written"]
    assert path.read_bytes() == whole
    found = tune(run, data, "recall", subject_to="precision>=0.6").summary
    assert {**shown, "written": True} == found
    model = runs.load(run).model
    y = model.schema.encode_targets(frame)
    expected = mg.tune_threshold("recall", model.scores(frame), y, subject_to="precision>=0.6")
    assert model.rule == expected.rule
    assert found["new"]["value"] == expected.value
    after = json.loads(path.read_bytes())["rule"]
    assert (after["metric"], after["subject_to"]) == ("recall", "precision>=0.6")
    assert after["previous"] == [before]
    evaluated = evaluate_run(run, data, replicates=20).summary
    assert evaluated["constraints"][0]["met"]
    tune(run, data, "f2")
    previous = json.loads(path.read_bytes())["rule"]["previous"]
    assert [one["metric"] for one in previous] == ["f1", "recall"]
    path.write_bytes(whole)


@pytest.mark.parametrize(
    ("metric", "constraint"),
    [("recall", "precision >= 0.6"), ("precision", "recall >= 0.7"), ("recall", "accuracy <= 0.9")],
)
def test_tune_under_a_constraint_prints_it_and_expects_nothing_better_than_here(
    metric: str,
    constraint: str,
    trained: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, above = trained["binary"], 0
    for seed in range(6):
        frame = later("binary").sample(120, random_state=seed)
        data = written(frame, tmp_path)
        found = tune(run, data, metric, subject_to=constraint, dry_run=True).summary
        new, (one,) = found["new"], found["new"]["constraints"]
        model = runs.load(run).model
        y, scores = model.schema.encode_targets(frame), model.scores(frame)
        tuning = mg.tune_threshold(metric, scores, y, subject_to=constraint, replicates=50)
        assert new["expected"] == pytest.approx(min(tuning.out_of_bag, tuning.value))
        above += tuning.out_of_bag > tuning.value
        bounded = constraint.split()[0]
        assert one["constraint"] == constraint
        assert one["value"] == pytest.approx(mg.evaluate(scores, y, bounded, rule=tuning.rule)[bounded])
        assert one["met"]
        assert (one["expected"] <= one["value"]) if ">=" in constraint else (one["expected"] >= one["value"])
        warned = [text for text in found["warnings"] if text.startswith(f"{constraint}: expect {one['expected']:.4f}")]
        assert len(warned) == (not one["expected_met"])
    assert above or "precision" not in constraint  # without the limit it would have been higher
    capsys.readouterr()
    assert main(["tune", str(run), data, "--metric", metric, "--subject-to", constraint, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    for name, values in ((metric, new), (constraint, one)):
        assert f"{values['value']:.4f} on these rows, {values['expected']:.4f} expected on new ones" in printed
        assert name in printed


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_tune_of_other_tasks(trained: dict[str, Path], tmp_path: Path, task: str) -> None:
    found = tune(trained[task], written(later(task), tmp_path), "f1", average="weighted", dry_run=True).summary
    assert found["new"]["value"] >= found["old"]["value"] - 1e-12
    assert found["average"] == "weighted"


def test_json_of_every_command(trained: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, data = str(trained["binary"]), written(later("binary"), tmp_path)
    calls: dict[str, list[str]] = {
        "predict": ["-o", str(tmp_path / "p.csv")],
        "evaluate": ["--replicates", "20"],
        "tune": ["--dry-run"],
    }
    for command, more in calls.items():
        assert main([command, run, data, *more, "--json"]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert document["rows"] == 500
        assert main([command, run, data, *more, *(["--force"] if command == "predict" else [])]) == 0
        assert "500" in capsys.readouterr().out


def test_empty_lists_of_labels_are_read_as_in_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    texts = ["" if i < 60 else ";".join(["ab"[int(row[1] > 0)], "c"][: 1 + (row[0] > 0)]) for i, row in enumerate(x)]
    data = written(pd.DataFrame({"x": x[:, 0], "z": x[:, 1], "tags": texts}), tmp_path)
    for words, rows in (([], 300), (["--drop-unlabelled"], 240)):
        run = str(tmp_path / f"run{rows}")
        asked = ["--target", "tags", "--contender", "logistic regression", "--quick", *words]
        assert main(["train", data, *asked, "--out", run]) == 0
        assert ("--drop-unlabelled" in capsys.readouterr().err) is (rows == 300)
        found = evaluate_run(run, data, ["f1"], replicates=20).summary
        assert found["rows"] == rows
        said = "60 of 300 rows have an empty list of labels and count as having none, as in training"
        assert (said in found["warnings"]) is (rows == 300)
        assert (said in tune(run, data, dry_run=True).summary["warnings"]) is (rows == 300)
