"""What the tests of several commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import GOOD
from metricgrad.cli.main import main
from tables import binary, written


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a run, ``run``, and its data, ``data.csv``; tests that change the run copy it first."""
    folder = tmp_path_factory.mktemp("use")
    data = written(GOOD, folder)
    words = ["--contender", "logistic regression", "--quick", "--out", str(folder / "run")]
    assert main(["train", data, "--target", "ripe", *words]) == 0
    return folder


@pytest.fixture
def data(tmp_path: Path) -> str:
    return written(binary(), tmp_path)
