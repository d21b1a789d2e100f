"""``predict``, ``evaluate`` and ``tune``: runs, data and calls that cannot be used."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import GOOD, as_csv, csv, failed
from damage import change, reseal

pytestmark = pytest.mark.quick


def of_version(run: Path, number: int) -> None:
    change(run / "run.json", lambda about: about | {"format": number})
    reseal(run)


def damaged(run: Path) -> None:
    (run / "model" / "schema.json").write_text("{}")


def unfinished(run: Path) -> None:
    change(run / "run.json", lambda about: about | {"state": "running"})
    reseal(run)


def evil_rule(run: Path) -> None:
    evil = {"type": "os.system", "command": "true"}
    change(run / "model" / "manifest.json", lambda about: about | {"rule": about["rule"] | {"rule": evil}})
    reseal(run)


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "not there": (shutil.rmtree, "expected a run folder, got a path that does not exist"),
    "no run folder": (lambda run: (run / "run.json").unlink(), "expected a run folder with a run.json"),
    "of a later version": (lambda run: of_version(run, 99), "upgrade metricgrad"),
    "of an earlier version": (lambda run: of_version(run, 0), "expected a run of format 1, got 0; run again"),
    "damaged": (damaged, "was changed since it was written"),
    "without a model": (lambda run: shutil.rmtree(run / "model"), "its model cannot be used"),
    "not finished": (unfinished, "the run is not finished"),
    "with a strange rule": (evil_rule, "its model cannot be used"),
}


@pytest.mark.parametrize("command", ["predict", "evaluate", "tune"])
@pytest.mark.parametrize("case", BROKEN)
def test_run_folders_that_cannot_be_used(
    command: str, case: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(place / "run", tmp_path / "run")
    spoil, message = BROKEN[case]
    spoil(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    more = ["-o", str(tmp_path / "out.csv")] if command == "predict" else []
    failed(capsys, 4, message, [command, str(tmp_path / "run"), str(place / "data.csv"), *more])
    assert sorted(tmp_path.rglob("*")) == before


def without(*names: str) -> bytes:
    return as_csv(GOOD.drop(columns=list(names)))


# The command, the file, more words, the exit code, what the line says.
IN_USE: dict[str, tuple[str, bytes, list[str], int, str]] = {
    "missing columns": ("predict", without("size", "farm"), [], 3, "'size', 'farm' are missing"),
    "missing columns to evaluate": ("evaluate", without("size"), [], 3, "'size' is missing"),
    "missing columns to tune": ("tune", without("shape"), [], 3, "'shape' is missing"),
    "a missing target": ("evaluate", without("ripe"), [], 3, "expected the target, of which 'ripe' is missing"),
    "no labelled rows": ("tune", csv(ripe=""), [], 3, "expected labelled rows, got only missing cells"),
    "a new class": ("evaluate", csv(ripe="perhaps"), [], 3, "expected the classes 'no', 'yes', got 'perhaps'"),
    "no rows": ("predict", csv().splitlines()[0], [], 3, "expected rows to predict, got none"),
    "ragged rows later": ("predict", csv() + b"1,2\n", [], 3, "row 202: expected 5 cells"),
    "no such id": ("predict", csv(), ["--id", "frm"], 2, "did you mean 'farm'?"),
    "an id called prediction": ("predict", csv(prediction=1), ["--id", "prediction"], 2, "rename it in the data"),
    "labels of another kind": ("predict", csv(), ["--what", "all"], 2, "what: expected one of both, labels, scores"),
    "an unknown suffix": ("predict", csv(), ["-o", "out.xls"], 2, "expected a name that ends in .csv"),
    "the data as output": ("predict", csv(), ["-o", "data.csv", "--force"], 2, "expected a file other than the data"),
    "a file in the way": ("predict", csv(), ["-o", "there.csv"], 5, "exists already"),
    "no place to write": ("predict", csv(), ["-o", "there.csv/out.csv"], 5, "cannot be written (Not a directory)"),
    "no such folder": (
        "predict",
        csv(),
        ["-o", "nowhere/out.parquet"],
        5,
        "cannot be written (No such file or directory)",
    ),
    "no output": ("predict", csv(), ["-o"], 2, "-o"),
    "an unknown metric": ("evaluate", csv(), ["--metric", "f1,f-one"], 2, "f-one"),
    "a metric of order to tune": ("tune", csv(), ["--metric", "auroc"], 2, "auroc evaluates a ranking"),
    "a constraint out of reach": ("tune", csv(), ["--subject-to", "precision>=1,recall>=1"], 6, "no threshold reaches"),
    "a constraint out of range": ("tune", csv(), ["--subject-to", "precision>=90"], 2, "write 0.9 for 90 %"),
    "a bad constraint": ("tune", csv(), ["--subject-to", "precision"], 2, "'metric>=number'"),
    "an average of nothing": ("tune", csv(), ["--average", "mean"], 2, "average"),
}


@pytest.mark.parametrize("case", IN_USE)
def test_data_and_calls_that_cannot_be_used_later(
    case: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command, data, more, code, message = IN_USE[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_bytes(data)
    (tmp_path / "there.csv").write_text("mine")
    rule = (place / "run" / "model" / "manifest.json").read_bytes()
    output = ["-o", "out.csv"] if command == "predict" and "-o" not in more else []
    failed(capsys, code, message, [command, str(place / "run"), "data.csv", *output, *more])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "there.csv"]
    assert (tmp_path / "data.csv").read_bytes() == data
    assert (tmp_path / "there.csv").read_text() == "mine"
    assert (place / "run" / "model" / "manifest.json").read_bytes() == rule
