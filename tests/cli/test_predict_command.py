"""``metricgrad predict``: a full disk and Ctrl-C."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from commands import failed, interrupt
from metricgrad.comparison.tables import files

pytestmark = pytest.mark.quick


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
