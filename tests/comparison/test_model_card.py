"""The model card says what the run found, and text of the data is no markup in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import ASK
from metricgrad.cli.main import main
from metricgrad.comparison.model_card import escape
from short_training import shorten_training
from tables import binary, multilabel, written


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> str:
    return written(binary(), tmp_path)


def test_the_model_card_says_what_the_run_found(data: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["compare", data, *ASK, "--metric", "f2", "--subject-to", "recall>=0.1", "--out", str(run)]) == 0
    card, summary = (run / "model_card.md").read_text(), json.loads((run / "summary.json").read_bytes())
    headings = ["Model card", "What it is for", "Data", "Metric and decision rule", "How it was chosen", "Limits"]
    assert [line.lstrip("# ") for line in card.splitlines() if line.startswith("#")] == [*headings, "How to load it"]
    assert escape(summary["verdict"]["headline"], None) in card
    for row in summary["leaderboard"]:
        cells = [row["contender"], row["rule"], f"{row['value']:.3f}"]
        assert cells in [[cell.strip() for cell in line.split("|")[1:4]] for line in card.splitlines()]
    assert "subject to recall\\>=0.1" in card
    assert "It predicts ripe (binary) for rows like those it was trained on: data.csv." in card
    manifest = json.loads((run / "run.json").read_bytes())
    assert {"model_card.md", "config.toml"} <= manifest["files"].keys()


def test_text_of_the_data_is_no_markup_in_the_card(tmp_path: Path) -> None:
    frame = multilabel().rename(columns={"label 0": "<img src=x>|# x", "a": "[a](http://x)", "b": "*b*\n# c"})
    run = tmp_path / "run"
    data = tmp_path / "data.parquet"
    frame.to_parquet(data)
    words = ["--target", "<img src=x>|# x,label 1,label 2", "--contender", "majority", "--out", str(run)]
    assert main(["train", str(data), *words]) == 0
    card = (run / "model_card.md").read_text()
    assert "\\<img src=x\\>\\|\\# x" in card
    assert "\\[a\\](http:\\//x), \\*b\\* \\# c" in card
    assert "<img" not in card.replace("\\<img", "")
