"""``metricgrad train``: odd data, a full disk and Ctrl-C."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from commands import GOOD, csv, failed, interrupt
from metricgrad.cli.main import main
from metricgrad.comparison import candidate_runs

pytestmark = pytest.mark.quick


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


def test_ctrl_c_while_training(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate_runs, "cross_fit", interrupt)
    words = ["train", str(place / "data.csv"), "--target", "ripe", "--quick", "--jobs", "1"]
    words += ["--out", str(tmp_path / "run")]
    failed(capsys, 130, "interrupted", words)
    assert list(tmp_path.iterdir()) == []
