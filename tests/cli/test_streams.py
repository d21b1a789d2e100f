"""Standard input as the data, and standard output for predictions."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import ASK, pipe, read_leaderboard
from metricgrad.cli.main import main
from short_training import shorten_training


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)


def test_data_from_standard_input(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped, plain_run = tmp_path / "piped", tmp_path / "plain"
    pipe(monkeypatch, data)
    assert main(["compare", "-", *ASK, "--out", str(piped)]) == 0
    assert main(["compare", data, *ASK, "--out", str(plain_run)]) == 0
    assert read_leaderboard(piped) == read_leaderboard(plain_run)
    assert (piped / "stdin.csv").read_bytes() == Path(data).read_bytes()
    assert json.loads((piped / "config.json").read_bytes())["data"] == "stdin.csv"
    moved = piped.rename(tmp_path / "moved")
    assert main(["compare", "--config", str(moved / "config.toml"), "--jobs", "1", "--out", str(tmp_path / "b")]) == 0
    assert read_leaderboard(tmp_path / "b") == read_leaderboard(plain_run)
    assert main(["compare", data, *ASK, "--out", str(moved), "--force"]) == 0
    assert not (moved / "stdin.csv").exists()
    capsys.readouterr()
    for words in (["evaluate"], ["tune", "--dry-run"]):
        pipe(monkeypatch, data)
        assert main([words[0], str(moved), "-", *words[1:], "--json"]) == 0
        from_pipe = json.loads(capsys.readouterr().out)
        assert main([words[0], str(moved), data, *words[1:], "--json"]) == 0
        assert from_pipe == {**json.loads(capsys.readouterr().out), "data": "-"}


def test_predictions_to_standard_output(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    run, output = str(tmp_path / "run"), tmp_path / "predictions.csv"
    pipe(monkeypatch, data)
    assert main(["train", "-", "--target", "ripe", "--contender", "majority", "--out", run]) == 0
    assert main(["predict", run, data, "-o", str(output), "--id", "day"]) == 0
    capfdbinary.readouterr()
    pipe(monkeypatch, data)
    assert main(["predict", run, "-", "-o", "-", "--id", "day"]) == 0
    assert capfdbinary.readouterr() == (output.read_bytes(), b"")
    for other in (["--json"], []):
        given = data if other else str(tmp_path)
        assert main(["predict", run, given, "-o", "-", *other]) == 2
        assert b"--output: expected a path together with " in capfdbinary.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "standard input: expected column names and rows, got an empty file"),
        (b"a,ripe\n1,2,3\n", "standard input: row 2: expected 2 cells"),
        (b"\x80\x04pickle", "standard input: expected CSV, JSON Lines, Parquet, Feather or Excel, got a pickle"),
    ],
)
def test_errors_name_standard_input(
    text: bytes, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pipe(monkeypatch, text)
    assert main(["compare", "-", *ASK]) == 3
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_the_model_do_not_depend_on_the_way_of_the_data(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, data)
    words = ["--target", "ripe", "--contender", "logistic regression", "--out"]
    assert main(["train", "-", *words, str(tmp_path / "piped")]) == 0
    assert main(["train", data, *words, str(tmp_path / "plain")]) == 0
    for run in ("piped", "plain"):
        assert main(["predict", str(tmp_path / run), data, "-o", str(tmp_path / f"{run}.csv")]) == 0
    frames = [pd.read_csv(tmp_path / f"{run}.csv") for run in ("piped", "plain")]
    np.testing.assert_array_equal(frames[0]["score"], frames[1]["score"])


def test_closed_streams_cost_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", None)
        assert main(["train", "-", "--target", "ripe", "--out", str(tmp_path / "run")]) == 3
    assert "standard input, which is closed" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(sys, "__stdout__", None)
        assert main(["predict", str(tmp_path), str(tmp_path / "data.csv"), "-o", "-"]) == 5
    assert "expected an open standard output, got a closed one" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main(["info"]) == 0
        sys.stdout.close()
