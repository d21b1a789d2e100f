"""The tables of the study in the docs are those that its script makes of the committed results."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["README.md", "docs/quality.md"])
def test_a_page_holds_what_the_script_prints(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    quality = importlib.import_module("quality")
    tables = quality.summarise(quality.RESULTS)
    text = (ROOT / page).read_text()
    (tmp_path / "page.md").write_text(text)
    quality.write_tables(tables, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == text
    assert "| the problem |" in text or page != "README.md"


def test_a_table_takes_the_place_of_the_one_with_its_heading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    quality = importlib.import_module("quality")
    page = tmp_path / "page.md"
    page.write_text("before\n\n| a, difference | x |\n|---|---|\n| old | 1 |\n| older | 2 |\n\n| b | x |\n|---|---|\n")
    quality.write_tables({"a, difference": pd.DataFrame({"y": ["+0.1"]}, index=["new"])}, page)
    assert page.read_text() == "before\n\n| a, difference | y |\n|---|---|\n| new | +0.1 |\n\n| b | x |\n|---|---|\n"
