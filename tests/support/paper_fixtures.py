"""Fixtures of the tests of the reproduction: tiny data in place of the papers'."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

# The scripts are imported by the fixtures that need them, not by every test run.


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder in which images are cached too."""
    import tiny_papers

    folder = tmp_path_factory.mktemp("papers")
    tiny_papers.write_tables(folder)
    tiny_papers.write_images(folder)
    return folder


@pytest.fixture
def tiny(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the data folder, with tiny budgets for the test."""
    import tiny_papers

    monkeypatch.setenv("REPRODUCTION_CACHE", str(tiny_folder))
    tiny_papers.shrink(monkeypatch)
    yield tiny_folder
    monkeypatch.undo()
    tiny_papers.forget()
