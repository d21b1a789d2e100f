"""``metricgrad tune``: a full disk."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from commands import failed

pytestmark = pytest.mark.quick


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
