"""What holds for all commands: errors in one line, names as plain text, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from commands import GOOD, failed
from metricgrad.cli.main import main
from metricgrad.comparison.tables import files


@pytest.mark.quick
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


@pytest.mark.quick
def test_errors_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data.csv").write_bytes(b"")
    out = str(tmp_path / "run")
    assert main(["train", str(tmp_path / "data.csv"), "--target", "y", "--out", out, "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["code"] == 3
    assert json.loads(captured.out)["error"]["message"] in captured.err


@pytest.mark.quick
def test_names_and_cells_from_the_data_stay_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    evil = "[red]x[/red]\x1b[31m<script>"
    frame = pd.DataFrame({evil: GOOD["size"], "y": GOOD["ripe"]})
    frame["y"] = frame["y"].where(frame.index > 2, evil)
    frame.to_csv("data.csv", index=False)
    failed(capsys, 3, "[red]x[/red]?[31m<script>", ["train", "data.csv", "--target", "y", "--out", "run"])


def run_command(words: list[str], home: Path, **environment: str) -> str:
    environment = {**os.environ, "HOME": str(home), "SHELL": "/bin/bash", **environment}
    done = subprocess.run(
        [sys.executable, "-m", "metricgrad", *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_shell_completes_commands_and_options(tmp_path: Path) -> None:
    ask = {"_METRICGRAD_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert run_command([], tmp_path, COMP_WORDS="metricgrad ev", **ask).split() == ["evaluate"]
    found = run_command([], tmp_path, COMP_WORDS="metricgrad compare --subj", **{**ask, "COMP_CWORD": "2"})
    assert found.split() == ["--subject-to"]


def test_help_names_completion(tmp_path: Path) -> None:
    assert "--install-completion" in run_command(["--help"], tmp_path)
