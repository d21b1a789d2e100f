"""What evaluate says of the value that a run promised."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from metricgrad.cli.main import main
from metricgrad.comparison.inference.evaluate import evaluate_run
from short_training import shorten_training
from tables import binary, written


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    data = written(binary(), folder)
    with pytest.MonkeyPatch.context() as patch:
        shorten_training(patch, 3, 5)
        ask = ["--target", "ripe", "--metric", "f2", "--drop", "day"]
        only = ["--contenders", "logistic regression", "--ship", "logistic regression", "--repeats", "3", "--jobs", "1"]
        assert main(["compare", data, *ask, *only, "--out", str(folder / "compared")]) == 0
        one = ["--contender", "logistic regression", "--out", str(folder / "trained")]
        assert main(["train", data, *ask, *one]) == 0
    return folder


def test_the_new_value_stands_beside_the_promised_one(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, page = written(binary(300, seed=1), tmp_path), tmp_path / "page.html"
    assert main(["evaluate", str(runs / "compared"), data, "--report", str(page)]) == 0
    printed = capsys.readouterr()
    summary = json.loads((runs / "compared" / "summary.json").read_bytes())
    (row,) = (
        one for one in summary["leaderboard"] if one["contender"] == "logistic regression" and one["rule"] == "tuned"
    )
    shown = f"{row['value']:.4f} ({row['low']:.4f} to {row['high']:.4f}), the mean over 3 repeats of compare\n"
    (line,) = (line for line in printed.out.splitlines(keepends=True) if line.startswith("f2 "))
    assert line.endswith(f"; promised {shown}")
    assert "below what was promised" not in printed.err
    assert (
        f"Promised F2: {row['value']:.3f}, {row['low']:.3f} to {row['high']:.3f} (the mean over 3" in page.read_text()
    )
    assert evaluate_run(runs / "compared", data, ["mcc"], replicates=20).summary["promised"] is None


def test_a_broken_promise_is_a_warning(runs: Path, tmp_path: Path) -> None:
    frame = binary(600, seed=1)
    frame["size"] = np.random.default_rng(0).permutation(frame["size"])
    frame["shape"] = "flat"
    found = evaluate_run(runs / "compared", written(frame, tmp_path), replicates=50).summary
    (said,) = (text for text in found["warnings"] if "promised" in text)
    new = found["metrics"]["f2"]
    assert said.startswith(
        f"f2 is {new['value']:.4f} ({new['low']:.4f} to {new['high']:.4f}) on these rows, below what "
    )
    assert new["high"] < found["promised"]["low"]


def test_train_and_tune_promise_what_they_measured(runs: Path, tmp_path: Path) -> None:
    data = written(binary(300, seed=1), tmp_path)
    summary = json.loads((runs / "trained" / "summary.json").read_bytes())
    promised = evaluate_run(runs / "trained", data, replicates=20).summary["promised"]
    assert promised["value"] == summary["value_there"]
    assert promised["source"] == "on the out-of-fold scores of 400 rows, on which the rule was tuned"
    tuned = shutil.copytree(runs / "compared", tmp_path / "tuned")
    assert main(["tune", str(tuned), data, "--metric", "mcc"]) == 0
    found = evaluate_run(tuned, data, replicates=20).summary
    assert found["promised"]["metric"] == "mcc"
    assert found["promised"]["value"] == pytest.approx(found["metrics"]["mcc"]["value"])
    assert found["promised"]["source"].startswith("on 300 rows of data.csv, at ")
