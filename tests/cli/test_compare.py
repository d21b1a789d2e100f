"""``metricgrad compare``: Ctrl-C and ``--resume``, and ``--verbose``."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import ASK, failed, interrupt, pipe
from metricgrad.cli.main import main
from metricgrad.comparison import candidate_runs
from short_training import shorten_training


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)


@pytest.mark.quick
def test_ctrl_c_while_comparing_can_be_resumed(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "run")
    words = ["compare", str(place / "data.csv"), "--target", "ripe", "--quick", "--jobs", "1", "--out", out]
    monkeypatch.setattr(candidate_runs, "cross_fit", interrupt)
    failed(capsys, 130, "metricgrad compare --resume", [*words, "--contenders", "majority"])
    failed(capsys, 4, "is not finished", ["predict", out, str(place / "data.csv"), "-o", str(tmp_path / "out.csv")])


def test_kept_data_that_changed_do_not_resume(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("metricgrad.comparison.run_comparison.rank_contenders", interrupt)
        pipe(patch, data)
        assert main(["compare", "-", *ASK, "--out", str(run)]) == 130
    kept = (run / "stdin.csv").read_bytes()
    (run / "stdin.csv").write_bytes(kept.replace(b"round", b"flat"))
    assert main(["compare", "--resume", str(run), "--jobs", "1"]) == 4
    assert "stdin.csv: the data changed since the run began" in capsys.readouterr().err
    (run / "stdin.csv").write_bytes(kept)
    assert main(["compare", "--resume", str(run), "--jobs", "1"]) == 0


def test_verbose_on_the_command_line(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", data, *ASK, "--out", str(tmp_path / "a")]) == 0
    assert "repeat 1, majority: " not in capsys.readouterr().err
    assert main(["compare", data, *ASK, "--out", str(tmp_path / "b"), "--verbose"]) == 0
    assert "repeat 1, majority: " in capsys.readouterr().err
