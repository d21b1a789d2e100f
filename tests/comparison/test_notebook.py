"""A study in a notebook that a kernel runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nbclient import NotebookClient
from nbformat import v4

CELLS = [
    """
import numpy as np
import pandas as pd
import metricgrad as mg

rng = np.random.default_rng(0)
late = rng.random(300) < 0.3
columns = {"distance": rng.normal(size=300) + late, "<b>carrier</b>": rng.choice(["x", "y"], 300), "late": late}
frame = pd.DataFrame(columns)
study = mg.compare(frame, "late", "f2", contenders="logistic regression", quick=True, jobs=1)
study
""",
    "study.model",
    "study.leaderboard.head(3)",
    "print(study.verdict)",
]


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    make: Any = v4
    notebook = make.new_notebook(cells=[make.new_code_cell(cell.strip()) for cell in CELLS])
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    asyncio.run(client.async_execute())
    return [cell["outputs"] for cell in notebook["cells"]]


def test_a_notebook_shows_the_verdict_and_the_leaderboard(outputs: list[list[Any]]) -> None:
    assert [output for cell in outputs for output in cell if output.get("name") == "stderr"] == []
    (study,), (model,), (table,), (text,) = outputs
    html, plain = study["data"]["text/html"], study["data"]["text/plain"]
    headline = text["text"].splitlines()[0]
    assert f"<h3>{headline.replace('<', '&lt;')}</h3>" in html
    assert "<td" in html
    assert "report.html" in html
    assert "<script" not in html
    assert headline in plain
    assert "&lt;b&gt;carrier&lt;/b&gt;" in model["data"]["text/html"]
    assert "<b>carrier" not in model["data"]["text/html"]
    assert "logistic regression" in table["data"]["text/html"]
