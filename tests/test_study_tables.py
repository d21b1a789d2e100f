"""The tables of the study in the docs are those that its script makes of the committed results."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["quality.md", "quality-appendix.md"])
def test_a_page_of_the_study_holds_what_its_script_prints(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    quality = importlib.import_module("quality")
    tables = quality.summarise(quality.RESULTS)
    text = (ROOT / "docs" / page).read_text()
    assert any(f"| {heading} |" in text for heading in tables)
    (tmp_path / "page.md").write_text(text)
    quality.write_tables(tables, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == text


@pytest.fixture(scope="module")
def gains() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module("gains")


@pytest.mark.parametrize(
    ("page", "headings"),
    [
        ("README.md", ["problem"]),
        (
            "docs/training.md",
            ["loss", "optimiser, learning rate", "positives in a batch", "0.5 % positives", "rare pixels"],
        ),
        ("docs/decisions.md", ["threshold", "claim, written before the run"]),
        ("docs/images.md", ["small objects", "small objects, difference"]),
        (
            "docs/field.md",
            ["two classes, F1", "several classes, macro-F1", "several labels, macro-F1", "against AutoGluon"],
        ),
    ],
)
def test_gains_are_those_of_the_results(page: str, headings: list[str], gains: Any, tmp_path: Path) -> None:
    text = (ROOT / page).read_text()
    tables = gains.make_tables()
    assert [heading for heading in tables if f"| {heading} |" in text] == headings
    (tmp_path / "page.md").write_text(text)
    gains.write_page(tmp_path / "page.md", tables)
    assert (tmp_path / "page.md").read_text() == text


def test_the_first_page_types_no_figure_of_a_study(gains: Any) -> None:
    """Figures with three decimals, or of sets won, stand in the pitch and in the five rows, which a script writes."""
    text = (ROOT / "README.md").read_text()
    pitch = gains.write_pitch()
    rows = gains.quality.as_markdown("problem", gains.list_rows())
    assert pitch in text
    assert rows.count("\n") == 2 + 5
    rest = text.replace(pitch, "").replace(rows, "")
    assert re.findall(r"\d\.\d{3}|\d+ of \d+", rest) == []


def test_what_evidence_says_of_runs_and_guarantees_is_counted(gains: Any) -> None:
    text = " ".join((ROOT / "docs" / "evidence.md").read_text().split())
    runs = gains.survival.read_results(gains.survival.RESULTS).query("part == 'judge'").groupby("contender").dead
    held_out, broken = gains.guarantee.find_broken(gains.pd.read_csv(gains.guarantee.RESULTS, comment="#"))
    assert runs.sum()["hybrid"] == 0
    assert f"Of {runs.size()['hybrid']} runs at good and bad settings, none died with `HybridLoss`" in text
    assert f"; {runs.sum()['soft set']} did with the metric alone" in text
    assert broken.empty
    assert f"in {len(held_out)} scenarios" in text


def test_the_picture_of_gains_is_that_of_the_results(gains: Any) -> None:
    assert gains.PICTURE.read_text() == gains.draw_gains()


def test_the_page_of_imbalance_holds_what_its_script_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    imbalance = importlib.import_module("imbalance_results")
    tables = imbalance.make_tables()
    text = imbalance.PAGE.read_text()
    assert all(f"| {heading} |" in text for heading in tables)
    (tmp_path / "page.md").write_text(text)
    imbalance.write_tables(tables, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == text
    binary = imbalance.Results(imbalance.RESULTS, imbalance.BINARY)
    for metric in imbalance.METRICS:
        assert imbalance.find_picture(metric).read_text() == imbalance.draw_ranks(binary, metric)


def test_a_gain_says_when_it_is_not_proven(gains: Any) -> None:
    assert str(gains.Gain(0.04, 0.01, 0.07, 3, 4)) == "+0.040 (+0.010 to +0.070)"
    assert str(gains.Gain(0.04, -0.01, 0.09, 3, 4)) == "+0.040 (−0.010 to +0.090), not proven"
    assert gains.Gain(0.04, -0.01, 0.09, 3, 4).score == "3 of 4"


def test_a_table_takes_the_place_of_the_one_with_its_heading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    quality = importlib.import_module("quality")
    page = tmp_path / "page.md"
    page.write_text("before\n\n| a, difference | x |\n|---|---|\n| old | 1 |\n| older | 2 |\n\n| b | x |\n|---|---|\n")
    quality.write_tables({"a, difference": pd.DataFrame({"y": ["+0.1"]}, index=["new"])}, page)
    assert page.read_text() == "before\n\n| a, difference | y |\n|---|---|\n| new | +0.1 |\n\n| b | x |\n|---|---|\n"
