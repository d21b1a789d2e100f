"""Progress: the time left, and a line for every unit with ``--verbose``."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from metricgrad.comparison.candidate_runs import CandidateRun, Failure
from metricgrad.comparison.progress import LiveProgress


def finished(repeat: int) -> CandidateRun:
    return CandidateRun("hybrid", repeat, 1.0, [], np.zeros(1), np.zeros(1), [])


def show(monkeypatch: pytest.MonkeyPatch, total: int, done: int, verbose: bool = False, terminal: bool = False) -> str:
    clock = iter(range(0, 10_000, 60))
    monkeypatch.setattr("metricgrad.comparison.progress.time.monotonic", lambda: next(clock))
    file = io.StringIO()
    progress = LiveProgress(verbose)
    progress.console = Console(file=file, force_terminal=terminal, width=100, highlight=False)
    with progress:
        progress.show_profile([("rows", "4")], [f"{i} is odd" for i in range(14)])
        progress.start(total, done)
        for repeat in range(total - done - 1):
            progress.finish_unit(finished(repeat))
        progress.finish_unit(Failure("xgboost", 0, "no memory"))
    return file.getvalue()


def test_time_left_is_printed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = show(monkeypatch, total=40, done=20).splitlines()
    assert "warning: 2 more warnings are in the report" in lines
    assert "20 of 40 units are finished already" in lines
    left = [line for line in lines if "left" in line]
    # The clock of this test ticks once for every line, so the first four units took 1 minute, the first eight 2.
    assert left[:2] == [
        "24 of 40 units are finished, about 4 min left",
        "28 of 40 units are finished, about 3 min left",
    ]
    assert len(left) == 4
    assert lines[-1] == "xgboost failed: no memory"
    assert not any("repeat" in line for line in lines)


def test_verbose_prints_every_unit_and_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = show(monkeypatch, total=40, done=0, verbose=True).splitlines()
    assert sum(line.startswith("warning: ") for line in lines) == 14
    assert "repeat 3, hybrid: fitted in 1.0 s" in lines
    assert sum(line.startswith("repeat ") for line in lines) == 39
    on_terminal = show(monkeypatch, total=4, done=0, verbose=True, terminal=True)
    assert "repeat 2, hybrid: fitted in 1.0 s" in on_terminal
    assert "units are finished, about" not in on_terminal
