"""``compare --abstain``: a model that leaves rows undecided, wherever it is used."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import metricgrad as mg
from metricgrad.cli.main import main
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.inference.evaluate import evaluate_run
from metricgrad.comparison.inference.predict import predict
from metricgrad.comparison.inference.tune import tune
from metricgrad.comparison.options import Options, prepare_dataset

if TYPE_CHECKING:
    from pathlib import Path

QUICK: dict[str, Any] = {"contenders": "logistic regression", "quick": True, "jobs": 1}


def make_frame(rows: int, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    kind = random.integers(0, 3, rows)
    centres = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    x = centres[kind] + random.normal(size=(rows, 2))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "kind": np.array(["red", "green", "blue"])[kind]})


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> mg.Study:
    out = tmp_path_factory.mktemp("abstain") / "run"
    how: dict[str, Any] = {"subject_to": "precision >= 0.9", "confidence": 0.9, "abstain": True}
    return mg.compare(make_frame(2400), "kind", "recall", out=out, **how, **QUICK)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("new") / "new.csv"
    make_frame(900, 1).to_csv(path, index=False)
    return path


def test_the_shipped_rule_decides_where_the_bound_holds(study: mg.Study, new: Path) -> None:
    frame = pd.read_csv(new)
    predicted = study.model.predict(frame)
    undecided = np.array([one is None for one in predicted])
    assert 0.05 < undecided.mean() < 0.6
    for name in ("red", "green", "blue"):
        assert (frame["kind"][predicted == name] == name).mean() >= 0.88  # 0.9, with some chance of these rows
    accuracy = np.mean(predicted == frame["kind"])
    assert study.model.score(frame, frame["kind"]) == pytest.approx(accuracy)


def test_files_evaluation_and_service_agree_with_the_model(study: mg.Study, new: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(new)
    predicted = study.model.predict(frame)
    undecided = np.array([one is None for one in predicted])
    found = predict(study.path, new, tmp_path / "out.csv", what="labels")
    assert found["undecided"] == undecided.sum()
    assert sum(found["predicted"].values()) == (~undecided).sum()
    with (tmp_path / "out.csv").open() as file:
        cells = [row["prediction"] for row in csv.DictReader(file)]
    assert cells == ["" if one is None else one for one in predicted]
    predict(study.path, new, tmp_path / "out.parquet", what="labels")
    assert pd.read_parquet(tmp_path / "out.parquet")["prediction"].isna().tolist() == undecided.tolist()

    evaluated = evaluate_run(study.path, new, replicates=50).summary
    assert evaluated["coverage"] == pytest.approx(1 - undecided.mean())
    recalls = [(predicted[frame["kind"] == name] == name).mean() for name in ("blue", "green", "red")]
    assert evaluated["metrics"]["recall"]["value"] == pytest.approx(np.mean(recalls))
    assert evaluated["metrics"]["recall"]["low"] < np.mean(recalls) < evaluated["metrics"]["recall"]["high"]
    assert [one["recall"] for one in evaluated["classes"]] == pytest.approx(recalls)
    precisions = [(frame["kind"][predicted == name] == name).mean() for name in ("blue", "green", "red")]
    assert evaluated["constraints"][0]["value"] == pytest.approx(min(precisions))

    folder = tmp_path / "parts"
    folder.mkdir()
    frame.iloc[:400].to_parquet(folder / "1.parquet")
    frame.iloc[400:].to_parquet(folder / "2.parquet")
    by_file = evaluate_run(study.path, folder, replicates=50).summary
    assert by_file["coverage"] == pytest.approx(evaluated["coverage"])
    assert by_file["metrics"]["recall"]["value"] == pytest.approx(np.mean(recalls))
    assert by_file["metrics"]["recall"]["low"] == pytest.approx(evaluated["metrics"]["recall"]["low"], abs=0.02)


def test_the_service_answers_null(study: mg.Study, new: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    application = pytest.importorskip("metricgrad.integrations.serving.application")
    service = application.Service(application.ServiceSettings(run=str(study.path), counters=str(tmp_path)))
    records = pd.read_csv(new).drop(columns="kind").to_dict("records")
    predicted = [one["prediction"] for one in service.predict_records(records)]
    assert predicted == study.model.predict(pd.read_csv(new)).tolist()
    assert None in json.loads(json.dumps(predicted))
    prediction = service.description["components"]["schemas"]["prediction"]
    assert "null" in prediction["properties"]["prediction"]["type"]


def test_coverage_is_told(study: mg.Study, new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = next(one for one in study.summary["leaderboard"] if one["contender"] == study.verdict.ship)
    assert 0 < row["coverage"] <= 1
    assert "% of the test rows were decided." in study.verdict.text
    coverage = study.summary["model"]["coverage"]
    decided = f"{100 * coverage:.0f} %"
    assert 0.3 < coverage < 0.95
    card = (study.path / "model_card.md").read_text()
    assert f"Coverage: it decides {decided} of the rows that the rule was tuned on" in card
    assert f"Coverage: {decided} of rows are decided." in (study.path / "report.html").read_text()
    assert "class red: precision >= 0.9 with 90 % confidence" in card.replace("\\", "")
    main(["evaluate", str(study.path), str(new), "--replicates", "20"])
    assert "% of the rows are decided" in capsys.readouterr().out
    main(["info", str(study.path)])
    told = capsys.readouterr().out
    assert f"{decided} of the rows are decided" in " ".join(told.split())


def test_onnx_and_a_loaded_run_decide_alike(study: mg.Study, new: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    frame = pd.read_csv(new)
    predicted = study.model.predict(frame)
    again = mg.load_run(study.path).model
    assert again.predict(frame).tolist() == predicted.tolist()
    mg.to_onnx(study.model, tmp_path / "model.onnx", dtype="float64")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    feeds = {name: frame[[name]].to_numpy(np.float64) for name in ("a", "b")}
    (labels,) = session.run(["labels"], feeds)
    assert labels.tolist() == ["" if one is None else one for one in predicted]


def test_another_rule_may_leave_rows_undecided_or_not(tmp_path: Path, new: Path) -> None:
    frame = make_frame(600)
    frame["kind"] = frame["kind"].map({"red": 3, "green": 5, "blue": 7})
    rows = pd.read_csv(new).assign(kind=lambda one: one["kind"].map({"red": 3, "green": 5, "blue": 7}))
    rows.to_csv(tmp_path / "new.csv", index=False)
    run = mg.compare(frame, "kind", "f1", out=tmp_path / "run", **QUICK)
    assert (run.model.predict(rows) >= 0).all()
    how: dict[str, Any] = {"subject_to": "precision >= 0.9", "confidence": 0.9, "abstain": True}
    with pytest.raises(UserError, match="--abstain-label: expected a whole number, like the classes, got 'unsure'"):
        tune(run.path, tmp_path / "new.csv", **how, abstain_label="unsure")
    with pytest.raises(UserError, match="--abstain-label: expected a value that is no class, got '5'"):
        tune(run.path, tmp_path / "new.csv", **how, abstain_label="5")
    tuned = tune(run.path, tmp_path / "new.csv", **how, abstain_label="-9").summary
    model = mg.load_run(run.path).model
    predicted = model.predict(rows)
    assert set(predicted.tolist()) == {-9, 3, 5, 7}
    assert tuned["new"]["coverage"] == pytest.approx((predicted != -9).mean())
    assert tuned["new"]["guarantees"][0].startswith("class 3: precision >= 0.9 with 90 % confidence")
    predict(run.path, tmp_path / "new.csv", tmp_path / "out.csv", what="labels")
    assert pd.read_csv(tmp_path / "out.csv")["prediction"].tolist() == predicted.tolist()
    # A metric that has no place for undecided rows, and a rule without any.
    back = tune(run.path, tmp_path / "new.csv", "mcc").summary
    assert np.isnan(back["old"]["value"])
    assert back["new"]["coverage"] is None
    assert not mg.load_run(run.path).model.rule_.abstains


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subject_to": None}, r"^--abstain: expected a constraint that decided rows must meet"),
        ({"metric": ("mcc",)}, r"^--abstain: expected a metric of each class"),
        ({"abstain_label": "red"}, r"^--abstain-label: expected a value that is no class, got 'red'"),
        ({"abstain": False, "abstain_label": "?"}, r"^--abstain-label: expected --abstain with it"),
        ({"target": ("two",)}, r"^--abstain: expected task='multiclass' with scores \(N, K\), got 'binary'"),
        ({"target": ("two", "more")}, r"^--abstain: expected task='multiclass' with scores \(N, K\), got 'multilabel'"),
    ],
)
def test_what_cannot_abstain_is_refused_before_training(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    frame = make_frame(120)
    frame["two"] = (frame["a"] > 1).astype(int)
    frame["more"] = (frame["b"] > 1).astype(int)
    frame.to_csv(tmp_path / "table.csv", index=False)
    given: dict[str, Any] = {"target": ("kind",), "metric": ("f1",), "subject_to": "precision>=0.9", "abstain": True}
    given |= changes
    with pytest.raises(UserError, match=message):
        prepare_dataset(Options(str(tmp_path / "table.csv"), **given))
