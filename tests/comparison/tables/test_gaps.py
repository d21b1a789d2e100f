"""Columns of new data that are mostly unknown: predict, evaluate and tune stop, unless the user allows it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import metricgrad as mg
from metricgrad.cli.main import main
from metricgrad.comparison.tables import files
from metricgrad.comparison.tables.gaps import Gaps
from metricgrad.comparison.tables.schema import Schema
from metricgrad.estimators.columns.column import Column, describe_column
from short_training import shorten_training
from tables import written

NUMBERS = ["size", "weight"]


def prices(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    y = rng.random(rows) < 0.3
    return pd.DataFrame(
        {
            "size": (rng.normal(size=rows) + 2 * y).round(2),
            "weight": rng.normal(size=rows).round(2),
            "shape": np.where(rng.random(rows) < 0.3 + 0.4 * y, "round", "flat"),
            "note": [None if x < 0.6 else "seen" for x in rng.random(rows)],
            "ripe": np.where(y, "yes", "no"),
        }
    )


def with_commas(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(**{name: frame[name].map(lambda x: f"{x:.2f}".replace(".", ",")) for name in NUMBERS})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        shorten_training(patch, 3, 5)
        words = ["--target", "ripe", "--contenders", "logistic regression", "--repeats", "2", "--jobs", "1"]
        assert main(["compare", written(prices(), folder), *words, "--out", str(folder / "run")]) == 0
    return folder / "run"


MESSAGE = (
    "expected columns as in training, got mostly unknown cells in 'size' (100.0% not numbers, or not written as in"
)


@pytest.mark.parametrize("words", [["predict"], ["evaluate"], ["tune", "--dry-run"]], ids=lambda words: words[0])
def test_numbers_that_cannot_be_read_stop_a_command(
    words: list[str], run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, output = written(with_commas(prices(50, seed=1)), tmp_path, "new.csv"), tmp_path / "out.csv"
    words = [words[0], str(run), data, *words[1:], *(["-o", str(output)] if words[0] == "predict" else [])]
    assert main(words) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"metricgrad: {data}: {MESSAGE} training: 1234.5), 'weight' (100.0%")
    assert said.endswith("or go on with --allow-missing, which counts them as missing\n")
    assert said.count("\n") == 1
    assert not output.exists()
    assert main([*words, "--allow-missing"]) == 0
    assert "column 'size': 50 cells (100.0%) are unknown to the model" in capsys.readouterr().err
    plain = written(prices(50, seed=1), tmp_path, "plain.csv")
    assert main([words[0], str(run), plain, *words[3:], *(["--force"] if words[0] == "predict" else [])]) == 0
    assert "unknown" not in capsys.readouterr().err


def write_parts(folder: Path) -> Path:
    folder.mkdir()
    prices(40, seed=1).to_parquet(folder / "a.parquet")
    with_commas(prices(40, seed=2)).to_parquet(folder / "b.parquet")
    return folder


def test_a_folder_stops_at_the_file_and_goes_on_where_it_stopped(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, output = write_parts(tmp_path / "data"), tmp_path / "out"
    words = ["predict", str(run), str(data), "-o", str(output), "--jobs", "1"]
    for _ in range(2):
        assert main(words) == 3
        assert f"metricgrad: {data / 'b.parquet'}: {MESSAGE}" in capsys.readouterr().err
        assert {path.name for path in output.iterdir()} <= {"a.parquet", "_metricgrad"}
    assert main([*words, "--allow-missing"]) == 0
    assert "column 'size': 40 cells (50.0%) are unknown to the model" in capsys.readouterr().err
    assert len(files.read(output / "b.parquet")) == 40
    # What was allowed once is not allowed for ever.
    assert main(words) == 3
    assert main([*words, "--allow-missing"]) == 0
    assert "2, of which 2 were done already" in capsys.readouterr().out
    assert main(["evaluate", str(run), str(data), "--jobs", "1"]) == 3
    assert f"metricgrad: {data / 'b.parquet'}: {MESSAGE}" in capsys.readouterr().err
    assert main(["evaluate", str(run), str(data), "--jobs", "1", "--allow-missing"]) == 0


def test_the_model_in_python_stops_too(run: Path) -> None:
    model, new = mg.load_run(run).model, with_commas(prices(20, seed=1))
    message = r"^data: expected columns as in training.*'size'.*or go on with set_params\(allow_missing=True\), which"
    for method in (model.predict, model.predict_scores, model.predict_proba):
        with pytest.raises(ValueError, match=message):
            method(new)
    assert model.set_params(allow_missing=True).predict(new).shape == (20,)
    assert model.set_params(allow_missing=False).predict(prices(20, seed=1)).shape == (20,)
    with pytest.raises(ValueError, match=r"got mostly unknown cells in 'shape' \(100.0% new categories"):
        model.predict(prices(20, seed=1).assign(shape="square"))
    with pytest.raises(ValueError, match=r"got mostly unknown cells in 'weight' \(100.0% empty, 0.0% in training"):
        model.predict(prices(20, seed=1).assign(weight=np.nan))


CASES: dict[str, tuple[str, dict[str, Any], tuple[int, int, int], bool]] = {
    "one text of one row": ("number", {}, (1, 0, 1), True),
    "half of the texts": ("number", {}, (10, 0, 5), False),
    "more than half": ("number", {}, (10, 0, 6), True),
    "most of the few that are filled": ("number", {"missing": 0.8}, (100, 80, 15), True),
    "a text as seen in training": ("number", {"unreadable": 0.03}, (1, 0, 1), False),
    "many texts as in training": ("number", {"unreadable": 0.03}, (8, 0, 8), True),
    "dates": ("date", {}, (3, 0, 3), True),
    "one empty cell of one row": ("number", {}, (1, 1, 0), False),
    "a column that is empty now": ("number", {}, (20, 20, 0), True),
    "a column that was nearly empty before": ("number", {"missing": 0.9}, (20, 20, 0), False),
    "in many rows that is no chance": ("number", {"missing": 0.9}, (500, 500, 0), True),
    "as empty as before": ("number", {"missing": 0.6}, (500, 310, 0), False),
    "one new category in one row": ("category", {}, (1, 0, 1), False),
    "only new categories": ("category", {}, (20, 0, 20), True),
    "some new categories": ("category", {}, (20, 0, 8), False),
    "empty and new": ("category", {}, (40, 15, 15), True),
    "no rows": ("number", {}, (0, 0, 0), False),
}


@pytest.mark.quick
@pytest.mark.parametrize("case", CASES)
def test_what_is_mostly_unknown(case: str) -> None:
    kind, about, (rows, missing, unknown), stops = CASES[case]
    column = Column("x", kind, shares=(1.0,), **{"missing": 0.0, **about})
    gaps = Gaps(rows, Counter(x=missing), Counter(x=unknown))
    assert gaps._is_mostly_unknown(column) is stops


@pytest.mark.quick
def test_cells_that_could_not_be_read_in_training_are_stored() -> None:
    cells = pd.Series([*map(str, range(1000, 1096)), "x", "y", None, None])
    column = describe_column("size", cells.sample(frac=1, random_state=0))
    assert isinstance(column, Column)
    assert column.unreadable == pytest.approx(2 / 98)
    frame = pd.DataFrame({"size": cells, "y": [0, 1] * 50})
    schema = Schema.of(frame, "y")
    gaps = Gaps()
    schema.to_features(frame, gaps)
    assert (gaps.rows, gaps.missing, gaps.unknown) == (100, Counter(size=2), Counter(size=2))
    gaps.check(schema, "data", allow=False)


@pytest.mark.quick
def test_numbers_of_another_type_are_unknown_too() -> None:
    frame = pd.DataFrame({"size": np.arange(40.0) % 7, "y": [0, 1] * 20})
    schema, gaps = Schema.of(frame, "y"), Gaps()
    schema.to_features(frame.assign(size=np.inf), gaps)
    assert gaps.unknown == Counter(size=40)
