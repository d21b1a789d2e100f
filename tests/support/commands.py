"""Commands in tests: data that they are given, what they are asked, and what is promised of their failures."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from metricgrad.cli.main import main
from tables import binary

GOOD = binary(200).drop(columns="day")
ASK = ["--target", "ripe", "--repeats", "2", "--contenders", "majority", "--jobs", "1"]


def as_csv(frame: pd.DataFrame) -> bytes:
    return str(frame.to_csv(index=False)).encode()


def csv(**columns: Any) -> bytes:
    return as_csv(GOOD.assign(**columns))


def failed(capsys: pytest.CaptureFixture[str], code: int, message: str, words: list[str]) -> None:
    """Run a command that must fail, and check all that is promised of failures."""
    assert main(words) == code
    error = capsys.readouterr().err
    printed = [line for line in error.splitlines() if line.startswith("metricgrad: ")]
    assert len(printed) == 1, error
    assert message in printed[0]
    assert "Traceback" not in error
    assert "unexpected" not in error


def pipe(monkeypatch: pytest.MonkeyPatch, path: str | bytes) -> None:
    raw = path if isinstance(path, bytes) else Path(path).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


def read_leaderboard(run: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((run / "summary.json").read_bytes())["leaderboard"]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def interrupt(*given: Any, **named: Any) -> Any:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which tests in the background of a shell do not have
    os.kill(os.getpid(), signal.SIGINT)
    return None
