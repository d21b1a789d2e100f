"""``metricgrad tune --unlabelled``: a rule for another base rate, from rows without labels; and when that is due."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from commands import failed
from metricgrad.cli.main import main
from metricgrad.comparison import run_folder as runs
from tables import binary, multiclass, written

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with runs of two classes and of three, ``run`` and ``classes``."""
    folder = tmp_path_factory.mktemp("base_rate")
    words = ["--contender", "logistic regression", "--quick"]
    data = written(binary(600).drop(columns="day"), folder)
    assert main(["train", data, "--target", "ripe", *words, "--out", str(folder / "run")]) == 0
    data = written(multiclass(), folder, "several.csv")
    assert main(["train", data, "--target", "kind", *words, "--out", str(folder / "classes")]) == 0
    return folder


@pytest.fixture
def run(place: Path, tmp_path: Path) -> str:
    return str(shutil.copytree(place / "run", tmp_path / "run"))


def new_rows(folder: Path, share: float, **columns: object) -> str:
    frame = binary(800, seed=1, share=share).drop(columns=["day", "ripe"])
    return written(frame.assign(**columns), folder, "new.csv")


def test_a_rule_is_renewed_from_rows_without_labels(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = runs.load(run).model.rule
    assert main(["tune", run, "--unlabelled", new_rows(tmp_path, 0.6)]) == 0
    printed = capsys.readouterr().out
    assert "rate of yes" in printed
    assert "in training" in printed
    assert printed.count("expected at this rate") == 2
    model = runs.load(run).model
    assert model.rule.threshold < before.threshold  # type: ignore[attr-defined]
    assert "base rate of 800 rows of new.csv" in model.about["tuned_on"]
    assert len(model.about["previous"]) == 1


def test_the_summary_for_programs(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (Path(run) / "model" / "manifest.json").read_bytes()
    assert main(["tune", run, "--unlabelled", new_rows(tmp_path, 0.6), "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rate = found["base_rate"]
    assert rate["classes"] == ["yes"]
    assert rate["low"][0] <= 0.6 <= rate["high"][0]
    assert rate["before"][0] == pytest.approx(0.2, abs=0.05)
    assert rate["moved"]
    assert found["new"]["expected"] >= found["old"]["expected"]
    assert not found["written"]
    assert (Path(run) / "model" / "manifest.json").read_bytes() == before


def test_several_classes(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = multiclass(seed=2).drop(columns="kind")
    data = written(rows, tmp_path, "new.csv")
    assert main(["tune", str(place / "classes"), "--unlabelled", data, "--dry-run", "--json"]) == 0
    rate = json.loads(capsys.readouterr().out)["base_rate"]
    assert len(rate["value"]) == len(rate["classes"]) == 3
    assert sum(rate["value"]) == pytest.approx(1)


def test_more_than_a_base_rate_is_refused(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = binary(800, seed=1)["size"] * 4
    data = new_rows(tmp_path, 0.2, size=moved)
    failed(capsys, 6, "--unlabelled: no base rate fits those", ["tune", run, "--unlabelled", data])
    assert main(["tune", run, "--unlabelled", data, "--allow-shift", "--dry-run"]) == 0


def test_wrong_calls(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = new_rows(tmp_path, 0.2)
    failed(capsys, 2, "DATA: expected labelled rows, or --unlabelled", ["tune", run])
    failed(capsys, 2, "got both", ["tune", run, data, "--unlabelled", data])
    failed(capsys, 2, "--allow-shift: expected --unlabelled with it", ["tune", run, data, "--allow-shift"])
    words = ["tune", run, "--unlabelled", data, "--subject-to", "precision>=0.3", "--confidence", "0.9"]
    failed(capsys, 2, "--confidence: expected labelled rows with it", words)


def test_evaluate_tells_when_it_is_due(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = written(binary(800, seed=1, share=0.7), tmp_path, "labelled.csv")
    report = tmp_path / "report.html"
    assert main(["evaluate", run, data, "--json", "--report", str(report)]) == 0
    found = json.loads(capsys.readouterr().out)
    due = [text for text in found["warnings"] if "the base rate moved" in text]
    assert len(due) == 1
    assert "metricgrad tune" in due[0]
    assert found["base_rate"] == due
    assert "the base rate moved" in report.read_text()
    same = written(binary(800, seed=1), tmp_path, "same.csv")
    assert main(["evaluate", run, same, "--json"]) == 0
    assert not any("the base rate moved" in text for text in json.loads(capsys.readouterr().out)["warnings"])


def test_a_forged_summary_is_refused(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(run) / "model" / "class_scores.json").write_text("{}")
    failed(capsys, 4, "was changed since it was written", ["tune", run, "--unlabelled", new_rows(tmp_path, 0.2)])
