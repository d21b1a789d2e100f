"""Ten tables through the real commands: compare, predict on new rows, and evaluate, with scikit-learn's values."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as reference

from metricgrad.cli.main import main
from metricgrad.comparison import run_folder as runs
from short_training import shorten_training
from tables import binary, multiclass, multilabel, written


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)


def separated(rows: int, seed: int) -> pd.DataFrame:
    found = multilabel(rows, seed)
    labels = [name for name in found if name.startswith("label")]
    cells = [";".join(name for name in labels if row[name]) for _, row in found.iterrows()]
    return found.drop(columns=labels).assign(labels=cells)


def dated(how: str) -> Callable[[int, int], pd.DataFrame]:
    """Return a maker of tables with a day as people of one country write it."""

    def make(rows: int, seed: int) -> pd.DataFrame:
        days = pd.Timestamp("2021-03-01") + pd.to_timedelta(binary(rows, seed)["day"], "D")
        return binary(rows, seed).assign(day=days.dt.strftime(how))

    return make


def grouped(rows: int, seed: int) -> pd.DataFrame:
    found = binary(rows, seed)
    return found.assign(customer=[f"c{day // 7}" for day in found["day"] + found["farm"]])


def money(rows: int, seed: int) -> pd.DataFrame:
    found = binary(rows, seed).drop(columns=["farm", "day"])
    dollars = [f"{'-' if value < 0 else ''}${abs(value):,.2f}" for value in 1000 * found["size"]]
    return found.assign(
        size=dollars,
        euros=[f"{value:,.2f} €".translate(str.maketrans(",.", ".,")) for value in 1000 * found["weight"]],
        weight=[f"{value:.1f} %" for value in 10 * found["weight"]],
    )


def texts(rows: int, seed: int) -> pd.DataFrame:
    found = binary(rows, seed)
    words = np.where(found["ripe"] == "yes", "sweet and soft", "hard and green")
    return found.assign(
        note=[
            f"fruit {i} of farm {farm} was {word}"
            for i, (farm, word) in enumerate(zip(found["farm"], words, strict=True))
        ]
    )


# The maker of a table, and the words that go with it.
TABLES: dict[str, tuple[Callable[[int, int], pd.DataFrame], list[str]]] = {
    "binary": (binary, ["--target", "ripe"]),
    "multi-class": (multiclass, ["--target", "kind"]),
    "columns of labels": (multilabel, ["--target", "label 0,label 1,label 2"]),
    "separated labels": (separated, ["--target", "labels"]),
    "ISO dates": (dated("%Y-%m-%d"), ["--target", "ripe", "--time", "day"]),
    "German dates": (dated("%d.%m.%Y"), ["--target", "ripe", "--time", "day"]),
    "American dates": (dated("%m/%d/%Y"), ["--target", "ripe", "--time", "day"]),
    "groups in time": (grouped, ["--target", "ripe", "--time", "day", "--group", "customer"]),
    "money and per cent": (money, ["--target", "ripe"]),
    "texts": (texts, ["--target", "ripe"]),
}
SAID = {
    "ISO dates": "column 'day': read as year-month-day, from 2021-03-01",
    "German dates": "column 'day': read as day.month.year, from 2021-03-01",
    "American dates": "column 'day': read as month/day/year, from 2021-03-01",
    "groups in time": "warning: --group and --time: up to ",
    "money and per cent": "column 'euros': read as numbers like 1.234,5 €",
    "texts": "features: 5: 3 number, 1 category, 1 text",
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_from_the_comparison_to_its_evaluation(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, words = TABLES[case]
    table, new = make(240, 0), make(150, 1)
    data, run = written(table, tmp_path), str(tmp_path / "run")
    quick = ["--quick", "--contenders", "logistic regression", "--jobs", "1", "--out", run]
    assert main(["compare", data, *words, *quick]) == 0
    said = capsys.readouterr().err
    assert SAID.get(case, "") in said
    check_splits(case, table, Path(run))
    labelled, out = written(new, tmp_path, "new.csv"), str(tmp_path / "predictions.csv")
    assert main(["predict", run, labelled, "-o", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []
    assert main(["evaluate", run, labelled, "--json", "--replicates", "10"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seen_in_training"] == {"rows": 0, "share": 0.0}
    expected = compute_metrics(runs.load(run).schema.task, words[1], new, pd.read_csv(out, dtype=str))
    assert {name: found["metrics"][name]["value"] for name in expected} == pytest.approx(expected, abs=1e-9)


def check_splits(case: str, table: pd.DataFrame, run: Path) -> None:
    """Check that the rows of every repeat are in order of time, and groups in one part alone."""
    splits = np.load(run / "splits.npz")
    if "dates" in case or case == "groups in time":
        parts = []
        for repeat in range(2):
            train, left_out, test = (splits[f"{name}-{repeat}"] for name in ("train", "left-out", "test"))
            parts.append([np.setdiff1d(train, left_out), left_out, test])
        day = binary(240, 0)["day"].to_numpy()
        assert all(day[fit].max() < day[held].min() <= day[held].max() < day[test].min() for fit, held, test in parts)
    if case == "groups in time":
        groups = [[set(table["customer"].iloc[rows]) for rows in repeat] for repeat in parts]
        assert all(not (fit & held | fit & test | held & test) for fit, held, test in groups)
    if case == "money and per cent":
        columns = {column.name: column for column in runs.load(run).schema.columns}
        assert [columns[name].kind for name in ("size", "euros", "weight")] == ["number"] * 3
        np.testing.assert_allclose(columns["size"].to_level(table["size"]), 1000 * binary(240, 0)["size"], atol=0.01)


def compute_metrics(task: str, target: str, new: pd.DataFrame, got: pd.DataFrame) -> dict[str, float]:
    """Return metrics of saved predictions by scikit-learn."""
    average: dict[str, Any] = {"average": "macro", "zero_division": 0}
    if task == "multilabel":
        names = [name.removeprefix("prediction ") for name in got if name.startswith("prediction ")]
        predicted = got[[f"prediction {name}" for name in names]].to_numpy().astype(int)
        if target == "labels":
            truth = np.array([[name in cell.split(";") for name in names] for cell in new["labels"]]).astype(int)
        else:
            truth = new[names].to_numpy()
        return {
            "f1": reference.f1_score(truth, predicted, **average),
            "precision": reference.precision_score(truth, predicted, **average),
            "subset_accuracy": reference.accuracy_score(truth, predicted),
        }
    truth, predicted = new[target], got["prediction"]
    if task == "multiclass":
        return {
            "f1": reference.f1_score(truth, predicted, **average),
            "accuracy": reference.accuracy_score(truth, predicted),
            "balanced_accuracy": reference.balanced_accuracy_score(truth, predicted),
        }
    of_positives: dict[str, Any] = {"pos_label": "yes", "zero_division": 0}
    return {
        "f1": reference.f1_score(truth, predicted, **of_positives),
        "precision": reference.precision_score(truth, predicted, **of_positives),
        "recall": reference.recall_score(truth, predicted, **of_positives),
        "mcc": reference.matthews_corrcoef(truth, predicted),
        "average_precision": reference.average_precision_score(truth == "yes", got["score"].astype(float)),
    }


def test_the_command_ends_with_its_exit_code(tmp_path: Path) -> None:
    """A thread of pyarrow that needed Python at the end of the process aborted it in a third of the runs."""
    (tmp_path / "empty.csv").write_text("a,b,y\n")
    (tmp_path / "ragged.csv").write_text("a,b,y\n1,2,0\n1,2\n")

    def run(name: str) -> int:
        words = [sys.executable, "-m", "metricgrad", "train", name, "--target", "y", "--out", "run"]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, check=False).returncode

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, ["empty.csv", "ragged.csv"] * 2)) == [3] * 4
