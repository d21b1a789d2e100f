"""What can go wrong, as a table: the exit code, one line that says what to do, no traceback, nothing half-written."""

from __future__ import annotations

import gzip
import json
import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from damage import change, reseal
from metricgrad.cli.main import main
from metricgrad.comparison import candidate_runs
from metricgrad.comparison.tables import files
from tables import binary, written

pytestmark = pytest.mark.quick

GOOD = binary(200).drop(columns="day")


def as_csv(frame: pd.DataFrame) -> bytes:
    return str(frame.to_csv(index=False)).encode()


def csv(**columns: Any) -> bytes:
    return as_csv(GOOD.assign(**columns))


RARE = ["yes"] * 3 + ["no"] * 197

# What is wrong: the file, more words of the call, the exit code, what the line says.
UNUSABLE: dict[str, tuple[bytes, list[str], int, str]] = {
    "empty file": (b"", [], 3, "got an empty file"),
    "names alone": (csv().splitlines()[0], [], 3, "expected rows below the column names, got none"),
    "one class": (csv(ripe="no"), [], 3, "expected two classes or more, got only 'no'"),
    "no such target": (csv(), ["--target", "rip"], 2, "did you mean 'ripe'?"),
    "a class with three rows": (csv(ripe=RARE), [], 3, "expected at least 10 rows of class 'yes', got 3; merge it"),
    "a target of numbers": (csv(ripe=np.linspace(0, 1, 200)), [], 3, "got 200 different values in 200 rows"),
    "a target of missing cells": (csv(ripe=""), [], 3, "got only missing cells"),
    "duplicate headers": (csv().replace(b"weight", b"size", 1), [], 3, "'size' more than once"),
    "ragged rows": (csv() + b"1,2,flat\n", [], 3, "row 202: expected 5 cells"),
    "no column names": (b"1,2,3\n4,5,6\n", [], 3, "expected column names in the first line"),
    "nothing to learn from": (as_csv(GOOD[["ripe"]]), [], 3, "expected feature columns"),
    "ids alone": (as_csv(GOOD[["ripe"]].assign(id=range(200))), [], 3, "looks like an id"),
    "all missing": (as_csv(GOOD[["ripe"]].assign(a=None, b=None)), [], 3, "all missing"),
    "an Excel file": (b"PK\x03\x04 and so on", [], 3, "a zip archive or an Excel file"),
    "a pickle": (b"\x80\x04\x95 and so on", [], 3, "a pickle, which could run any code"),
    "damaged Parquet": (b"PAR1 and so on", [], 3, "write or copy the file again"),
    "damaged gzip": (gzip.compress(csv() * 50)[:-30], [], 3, "gzip stream is damaged"),
    "an unknown metric": (csv(), ["--metric", "f-one"], 2, "f-one"),
    "no metric": (csv(), ["--metric", ","], 2, "--metric: expected the name of a metric, got none"),
    "no target": (csv(), ["--target", ","], 2, "target: expected the name of a column, got none"),
    "quotes that do not end": (csv(), ["--drop", '"size,weight'], 2, "with a comma in double quotes, got"),
    "a bad constraint": (csv(), ["--subject-to", "precision=0.9"], 2, "'metric>=number'"),
    "an unknown column to drop": (csv(), ["--drop", "sice"], 2, "did you mean 'size'?"),
    "an unknown positive class": (csv(), ["--positive", "maybe"], 2, "expected a class of the target"),
    "an unknown option": (csv(), ["--tarot", "y"], 2, "No such option: --tarot"),
    "no rows asked for": (csv(), ["--rows", "0"], 2, "--rows"),
    "a folder that is there": (csv(), ["--out", "{here}"], 4, "exists already"),
    "no place to write": (csv(), ["--out", "{here}/data.csv/run"], 5, "cannot be written (Not a directory)"),
}


def failed(capsys: pytest.CaptureFixture[str], code: int, message: str, words: list[str]) -> None:
    """Run a command that must fail, and check all that is promised of failures."""
    assert main(words) == code
    error = capsys.readouterr().err
    printed = [line for line in error.splitlines() if line.startswith("metricgrad: ")]
    assert len(printed) == 1, error
    assert message in printed[0]
    assert "Traceback" not in error
    assert "unexpected" not in error


@pytest.mark.parametrize("command", ["train", "compare"])
@pytest.mark.parametrize("case", UNUSABLE)
def test_data_and_calls_that_cannot_be_used(
    command: str, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, more, code, message = UNUSABLE[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_bytes(data)
    words = [command, "data.csv", "--target", "ripe", "--quick", *(word.format(here=tmp_path) for word in more)]
    failed(capsys, code, message, words if "--out" in words else [*words, "--out", "run"])
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]
    assert (tmp_path / "data.csv").read_bytes() == data


# What is odd but can be used: the file, and what is said about it.
USABLE: dict[str, tuple[bytes, str]] = {
    "all-missing columns": (csv(gone=""), "column 'gone' was left out: all missing"),
    "strings among numbers": (
        csv(size=["big", *GOOD["size"][1:]]),
        "column 'size': 1 cells that are not numbers ('big') count as missing",
    ),
    "infinities": (csv(size=[np.inf, *GOOD["size"][1:]]), "column 'size': 1 infinite cells count as missing"),
    "ids used as features": (csv(tree_id=np.arange(200) * 7), "column 'tree_id' was left out: looks like an id"),
    "the target again": (csv(copy=GOOD["ripe"]), "column 'copy' alone separates the classes (AUROC 1)"),
    "duplicates": (csv() + b"\n".join(csv().splitlines()[1:51]), "50 rows (20.0%) duplicate another row"),
    "UTF-16": (csv().decode().encode("utf-16"), "classes"),
    "Latin-1": (csv(shape="süß").decode().encode("latin-1"), "read as Latin-1"),
    "targets missing": (csv(ripe=[None, *GOOD["ripe"][1:]]), "1 without a target"),
}


@pytest.mark.parametrize("case", USABLE)
def test_odd_data_are_used_and_it_is_said(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    data, message = USABLE[case]
    (tmp_path / "data.csv").write_bytes(data)
    out = str(tmp_path / "run")
    words = ["train", str(tmp_path / "data.csv"), "--target", "ripe", "--contender", "majority", "--out", out]
    assert main(words) == 0
    assert message in capsys.readouterr().err + caplog.text


# A run in use


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("use")
    data = written(GOOD, folder)
    words = ["--contender", "logistic regression", "--quick", "--out", str(folder / "run")]
    assert main(["train", data, "--target", "ripe", *words]) == 0
    return folder


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
    "a constraint out of reach": ("tune", csv(), ["--subject-to", "precision>=1.5"], 6, "no threshold reaches"),
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


@pytest.mark.parametrize("command", ["train", "compare", "evaluate", "tune"])
def test_a_file_too_large_for_memory(
    command: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "find_memory_limit", lambda: 1000)
    data = str(place / "data.csv")
    first = ["--target", "ripe", "--out", "run"] if command in ("train", "compare") else []
    words = [command, data, *first] if first else [command, str(place / "run"), data]
    failed(capsys, 3, "take a random sample of it with --rows", words)
    assert list(tmp_path.iterdir()) == []
    assert main(["predict", str(place / "run"), data, "-o", "out.csv"]) == 0  # in pieces, whatever the size


# The disk and the keyboard


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather"])
def test_a_full_disk_while_predicting(
    suffix: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, limits[1]))  # the system refuses to write more to any file
    try:
        words = ["predict", str(place / "run"), str(place / "data.csv"), "-o", str(tmp_path / f"out.{suffix}")]
        failed(capsys, 5, "cannot be written (File too large)", words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_while_tuning_leaves_the_old_rule(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(place / "run", tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        failed(
            capsys, 5, "cannot be written (File too large)", ["tune", str(tmp_path / "run"), str(place / "data.csv")]
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("size", [64, 3000])  # of the first file, and of the features or the model
def test_a_full_disk_while_training(size: int, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", str(place / "data.csv"), "--target", "ripe", "--quick", "--jobs", "1"]
    words += ["--out", str(tmp_path / "run")]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        failed(capsys, 5, "cannot be written (File too large)", words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def interrupt(*given: Any, **named: Any) -> Any:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which tests in the background of a shell do not have
    os.kill(os.getpid(), signal.SIGINT)
    return None


def test_ctrl_c_while_predicting(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    added = files.Writer.add

    def add(self: files.Writer, table: Any) -> None:
        added(self, table)
        interrupt()

    monkeypatch.setattr(files.Writer, "add", add)
    words = ["predict", str(place / "run"), str(place / "data.csv"), "-o", str(tmp_path / "out.parquet")]
    failed(capsys, 130, "interrupted", words)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_training(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate_runs, "cross_fit", interrupt)
    words = ["train", str(place / "data.csv"), "--target", "ripe", "--quick", "--jobs", "1"]
    words += ["--out", str(tmp_path / "run")]
    failed(capsys, 130, "interrupted", words)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_comparing_can_be_resumed(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "run")
    words = ["compare", str(place / "data.csv"), "--target", "ripe", "--quick", "--jobs", "1", "--out", out]
    monkeypatch.setattr(candidate_runs, "cross_fit", interrupt)
    failed(capsys, 130, "metricgrad compare --resume", [*words, "--contenders", "majority"])
    failed(capsys, 4, "is not finished", ["predict", out, str(place / "data.csv"), "-o", str(tmp_path / "out.csv")])


def test_errors_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data.csv").write_bytes(b"")
    out = str(tmp_path / "run")
    assert main(["train", str(tmp_path / "data.csv"), "--target", "y", "--out", out, "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["code"] == 3
    assert json.loads(captured.out)["error"]["message"] in captured.err


def test_names_and_cells_from_the_data_stay_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    evil = "[red]x[/red]\x1b[31m<script>"
    frame = pd.DataFrame({evil: GOOD["size"], "y": GOOD["ripe"]})
    frame["y"] = frame["y"].where(frame.index > 2, evil)
    frame.to_csv("data.csv", index=False)
    failed(capsys, 3, "[red]x[/red]?[31m<script>", ["train", "data.csv", "--target", "y", "--out", "run"])
