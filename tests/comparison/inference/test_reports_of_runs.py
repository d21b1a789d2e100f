"""Reports besides that of compare: of evaluate, of a run again, and of two runs side by side."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix, f1_score

from metricgrad.cli.main import main
from metricgrad.comparison import run_folder as runs
from report_pages import Reader, embedded
from short_training import shorten_training
from tables import binary, multiclass, multilabel, written

HOSTILE = '</script><img src=x onerror="alert(1)">'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with runs: two of the same data, of another metric, of other tasks, and one of train."""
    place = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        shorten_training(patch)
        data = written(binary(), place)
        hostile = binary().rename(columns={"shape": HOSTILE}).replace({"round": "<b>round</b>"})
        tables = {
            "first": (data, "ripe", []),
            "second": (data, "ripe", ["--contenders", "hybrid"]),
            "mcc": (data, "ripe", ["--metric", "mcc"]),
            "kinds": (written(multiclass(), place, "kinds.csv"), "kind", []),
            "labels": (written(multilabel(), place, "labels.csv"), "label 0,label 1,label 2", []),
            "hostile": (written(hostile, place, "hostile.csv"), "ripe", []),
        }
        for name, (file, target, more) in tables.items():
            ask = ["--target", target, "--repeats", "2", "--jobs", "1", "--contenders", "majority", *more]
            assert main(["compare", file, *ask, "--out", str(place / name)]) == 0
        assert main(["train", data, "--target", "ripe", "--out", str(place / "trained")]) == 0
    return place


def changed() -> pd.DataFrame:
    """Return new rows that drifted."""
    frame = binary(500, seed=9)
    frame["size"] += 2
    frame.loc[:99, "weight"] = np.nan
    frame["shape"] = np.where(np.arange(500) < 100, "oval", frame["shape"])
    return frame


def evaluated(run: Path, frame: pd.DataFrame, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Any, Any, str]:
    """Return what evaluate printed as JSON, the payload of its page, and the page."""
    out = folder / "report.html"
    capsys.readouterr()
    ask = [str(run), written(frame, folder, "new.csv"), "--replicates", "50", "--report", str(out), "--json"]
    assert main(["evaluate", *ask]) == 0
    page = out.read_text()
    return json.loads(capsys.readouterr().out), embedded(page), page


def test_the_report_of_evaluate_says_what_the_command_does(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = changed()
    found, payload, page = evaluated(made / "first", frame, tmp_path, capsys)
    text = Reader(page).text
    for one in found["metrics"].values():
        assert f"{one['value']:.3f}" in text
        assert f"{one['low']:.3f} to {one['high']:.3f}" in text
    assert found["report"] == str(tmp_path / "report.html")
    model = runs.load(made / "first").model
    decided, truth = model.decide(model.scores(frame)), (frame["ripe"] == "yes").astype(int)
    details = payload["details"][model.contender]
    assert details["confusion"] == confusion_matrix(truth, decided).tolist()
    assert details["per_class"][1]["f1"] == pytest.approx(f1_score(truth, decided), abs=1e-5)
    (curve,) = details["classes"]
    i = curve["grid"].index(curve["threshold"])
    assert curve["tp"][i] == (decided & truth).sum()
    assert "Leaderboard" not in text
    assert payload["study"]["segments_all"] == pytest.approx(f1_score(truth, decided), abs=1e-5)
    for warning in found["warnings"]:
        assert warning in text


def test_drift_is_drawn_then_and_now(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = changed()
    found, payload, _ = evaluated(made / "first", frame, tmp_path, capsys)
    columns = {one["column"]: one for one in payload["study"]["columns"]}
    assert list(columns) == [one["column"] for one in found["drift"]]
    schema = {column.name: column for column in runs.load(made / "first").schema.columns}
    for one in found["drift"]:
        drawn = columns[one["column"]]
        assert drawn["shares"] == pytest.approx(list(schema[one["column"]].shares), abs=1e-4)
        assert sum(drawn["now"]) == pytest.approx(1, abs=1e-3)
        assert drawn["suspicious"] == one["suspicious"]
        assert len(drawn["names"]) == len(drawn["now"]) == len(drawn["shares"])
    edges = schema["size"].edges
    now = np.bincount(np.searchsorted(edges, frame["size"].astype(np.float32), side="right"), minlength=10) / 500
    assert columns["size"]["now"] == pytest.approx(now.tolist(), abs=1e-4)
    assert columns["size"]["names"][0].startswith("below ")
    assert columns["weight"]["missing_now"] == pytest.approx(0.2)
    assert columns["shape"]["names"] == ["flat", "round"]


@pytest.mark.parametrize(("run", "make"), [("kinds", multiclass), ("labels", multilabel)])
def test_other_tasks(run: str, make: Any, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, payload, _ = evaluated(made / run, make(seed=4), tmp_path, capsys)
    details = next(iter(payload["details"].values()))
    assert [one["f1"] for one in details["per_class"]] == pytest.approx(
        [one["f1"] for one in found["classes"]], abs=1e-4
    )
    assert (details["confusion"] == []) == (run == "labels")


def test_a_run_of_train_can_be_evaluated_too(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, payload, _ = evaluated(made / "trained", changed(), tmp_path, capsys)
    assert "hybrid" in payload["details"]


def test_a_metric_that_is_code_is_not_looked_up_unless_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_training(monkeypatch)
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "own_of_reports.py"
    module.write_text("def hits(c):\n    return c.tp / (c.tp + c.fn + c.fp + 1)\n")
    data, run = written(binary(), tmp_path), str(tmp_path / "run")
    metric = "own_of_reports:hits"
    ask = ["--target", "ripe", "--metric", metric, "--repeats", "2", "--jobs", "1", "--contenders", "majority"]
    assert main(["compare", data, *ask, "--out", run]) == 0
    for typed, looked_up in ((metric, True), ("f1", False)):
        if not looked_up:
            module.unlink()
            monkeypatch.delitem(sys.modules, "own_of_reports")
        out = tmp_path / f"{looked_up}.html"
        assert main(["evaluate", run, data, "--metric", typed, "--replicates", "50", "--report", str(out)]) == 0
        assert ("segments" in embedded(out.read_text())["study"]) == looked_up


def test_a_folder_has_values_and_drift_alone(made: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    changed().to_parquet(parts / "a.parquet")
    out = tmp_path / "report.html"
    ask = [str(made / "first"), str(parts), "--replicates", "50", "--jobs", "1", "--report", str(out)]
    assert main(["evaluate", *ask]) == 0
    payload = embedded(out.read_text())
    assert payload["details"] == {}
    assert "segments" not in payload["study"]
    assert payload["study"]["columns"]
    assert "Missing now" in Reader(out.read_text()).text


def test_a_report_of_a_run_is_written_again(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "again.html"
    capsys.readouterr()
    assert main(["report", str(made / "first"), "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": [str(made / "first")], "output": str(out)}
    assert out.read_bytes() == (made / "first" / "report.html").read_bytes()


def test_two_runs_side_by_side(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "two.html"
    assert main(["report", str(made / "first"), str(made / "second"), "-o", str(out)]) == 0
    text = Reader(out.read_text()).text
    boards = []
    for name in ("first", "second"):
        summary = json.loads((made / name / "summary.json").read_bytes())
        assert summary["verdict"]["headline"] in text
        assert runs.load(made / name).model.rule.describe() in text
        boards.append({(row["contender"], row["rule"]): row for row in summary["leaderboard"]})
    cells = table_rows(out.read_text(), "boards")
    for key in boards[0].keys() | boards[1].keys():
        row = cells[", ".join(key)]
        for place, board in enumerate(boards):
            assert row[place].startswith(f"{board[key]['value']:.3f}" if key in board else "–")
        if key in boards[0] and key in boards[1]:
            a, b = (board[key] for board in boards)
            assert row[2] == f"{b['value'] - a['value']:+.3f}".replace("-", "−")
            wins = sum(y > x for x, y in zip(a["folds"], b["folds"], strict=True))
            assert row[3] == f"{wins} of 2"
        else:
            assert row[2:] == ["–", "–"]
    assert "same splits of the same rows" in text
    assert table_rows(out.read_text(), "options") == {"contenders": ["majority", "hybrid"]}
    assert set(table_rows(out.read_text(), "importances")) == {"size", "weight", "shape", "farm"}


def table_rows(page: str, section: str) -> dict[str, list[str]]:
    """Return the rows of the table of a section by their heads."""
    part = re.search(f'<section id="{section}".*?</section>', page, re.DOTALL)
    assert part
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', part[0])
    return {head: re.findall("<td>(.*?)</td>", cells) for head, cells in rows}


def test_runs_of_other_metrics_or_targets_are_not_subtracted(made: Path, tmp_path: Path) -> None:
    for other in ("mcc", "kinds"):
        out = tmp_path / f"{other}.html"
        assert main(["report", str(made / "first"), str(made / other), "-o", str(out)]) == 0
        text = Reader(out.read_text()).text
        assert "cannot be compared" in text
        assert "Second − first" not in text


def test_the_same_run_twice_and_hostile_names(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "two.html"
    assert main(["report", str(made / "hostile"), str(made / "hostile"), "-o", str(out)]) == 0
    page = out.read_text()
    assert "hostile (first)" in page
    assert "Nothing: the options and the data are the same." in page
    assert "<img" not in page
    assert "&lt;img" in page
    frame = changed().rename(columns={"shape": HOSTILE})
    report = tmp_path / "new.html"
    ask = [str(made / "hostile"), written(frame, tmp_path), "--replicates", "50", "--report", str(report)]
    assert main(["evaluate", *ask]) == 0
    assert "<img" not in report.read_text()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["report", "RUN/first", "-o", "OUT/x.txt"], 2, "--output: expected a file that ends in .html, got 'x.txt'"),
        (["report", "RUN/first", "-o", "OUT/no/x.html"], 5, "--output: expected a file in a folder that exists"),
        (["report", "RUN/first", "-o", "OUT/there.html"], 5, "there.html: exists already; choose another --output"),
        (["report", "RUN/trained", "-o", "OUT/x.html"], 4, "expected a run of compare, which has a report"),
        (["report", "RUN/none", "-o", "OUT/x.html"], 4, "expected a run folder, got a path that does not exist"),
        (["report", *["RUN/first"] * 3, "-o", "OUT/x.html"], 2, "expected one run folder, or two to compare, got 3"),
        (["evaluate", "RUN/first", "RUN/data.csv", "--report", "OUT/there.html"], 5, "choose another --report"),
        (["evaluate", "RUN/first", "RUN/data.csv", "--report", "OUT"], 2, "--report: expected a file that ends in"),
    ],
)  # fmt: skip
def test_wrong_calls(
    words: list[str], code: int, message: str, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there.html").write_text("mine")
    capsys.readouterr()
    assert main([word.replace("RUN", str(made)).replace("OUT", str(tmp_path)) for word in words]) == code
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["there.html"]
    assert (tmp_path / "there.html").read_text() == "mine"


def test_an_existing_report_is_replaced_by_force(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.html"
    out.write_text("mine")
    assert main(["report", str(made / "first"), "-o", str(out), "--force"]) == 0
    assert out.read_text().startswith("<!doctype html>")


def test_a_report_that_was_changed_is_refused(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(made / "first", tmp_path / "run")
    (tmp_path / "run" / "report.html").write_text("<p>other</p>")
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "x.html")]) == 4
    assert "report.html was changed since it was written" in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()
