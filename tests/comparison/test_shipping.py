"""What is shipped: a rule tuned on the held-out rows of all repeats, its band in the report, and what to expect."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metricgrad.cli.main import main
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.inference.tune import tune
from metricgrad.decisions.rules import Offsets, Threshold
from metricgrad.decisions.threshold_tuning import tune_threshold
from metricgrad.evaluation.evaluator import evaluate
from report_pages import Reader, embedded
from short_training import shorten_training
from tables import binary, multiclass, multilabel, written

TASKS: dict[str, tuple[Any, str, int]] = {
    "binary": (binary, "ripe", 400),
    "multiclass": (multiclass, "kind", 300),
    "multilabel": (multilabel, "label 0,label 1,label 2", 300),
}
REPEATS = 3


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run of each task, named like it, and one that ships a fixed rule."""
    place = tmp_path_factory.mktemp("shipped")
    with pytest.MonkeyPatch.context() as patch:
        shorten_training(patch)
        for task, (make, target, _) in TASKS.items():
            data = written(make(), place, f"{task}.csv")
            ask = ["--target", target, "--repeats", str(REPEATS), "--jobs", "1", "--contenders", "logistic regression"]
            ask += ["--ship", "logistic regression"]
            assert main(["compare", data, *ask, "--out", str(place / task)]) == 0
        ask[-1] += ", fixed"
        assert main(["compare", data, *ask, "--out", str(place / "fixed")]) == 0
    return place


def read_held_out(run: Path, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores and targets of the held-out rows of all repeats of a run, below each other."""
    with np.load(run / "splits.npz", allow_pickle=False) as parts:
        rows = [parts[f"held-{repeat}"] for repeat in range(REPEATS)]
    names = [f"logistic-regression-{repeat:03d}-held.npy" for repeat in range(REPEATS)]
    scores = [np.load(run / "results" / name, allow_pickle=False) for name in names]
    return np.concatenate(scores), targets[np.concatenate(rows)]


def read_targets(task: str) -> np.ndarray:
    frame = TASKS[task][0]()
    if task == "binary":
        return np.asarray(frame["ripe"] == "yes").astype(int)
    if task == "multiclass":
        return np.asarray(frame["kind"].map({"x": 0, "y": 1, "z": 2}))
    return np.asarray(frame[["label 0", "label 1", "label 2"]])


@pytest.mark.parametrize("task", TASKS)
def test_the_rule_is_tuned_on_the_held_out_rows_of_all_repeats(task: Any, made: Path) -> None:
    model = runs.load(made / task).model
    scores, targets = read_held_out(made / task, read_targets(task))
    expected = tune_threshold("f1", scores, targets, task=task, rare_labels="pooled")
    assert model.rule == expected.rule
    assert isinstance(model.rule, Offsets if task == "multiclass" else Threshold)
    assert model.about["tuned_on"] == f"the held-out rows of {REPEATS} repeats together"
    assert model.about["value_there"] == pytest.approx(
        evaluate(scores, targets, ["f1"], task=task, rule=expected.rule)["f1"]
    )


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_the_band_is_that_of_the_shipped_threshold(task: Any, made: Path) -> None:
    scores, targets = read_held_out(made / task, read_targets(task))
    tuning = tune_threshold("f1", scores, targets, task=task, rare_labels="pooled")
    plateaus = [tuning.plateau] if task == "binary" else tuning.plateau
    payload = embedded((made / task / "report.html").read_text())
    curves = payload["details"]["logistic regression"]["classes"]
    assert [curve["plateau"] for curve in curves] == [list(plateau) for plateau in plateaus]
    assert all(curve["plateau"][0] <= curve["threshold"] <= curve["plateau"][1] for curve in curves)
    assert [curve["threshold"] for curve in curves] == payload["model"]["thresholds"]


def test_tuning_anew_moves_the_band_with_the_threshold(made: Path, tmp_path: Path) -> None:
    run = shutil.copytree(made / "binary", tmp_path / "run")
    data = written(binary(seed=5), tmp_path)
    tuned = tune(run, data, "f2")["new"]
    (curve,) = embedded((run / "report.html").read_text())["details"]["logistic regression"]["classes"]
    assert curve["plateau"] == list(tuned["plateau"])
    assert curve["plateau"][0] <= curve["threshold"] <= curve["plateau"][1]


def test_a_multi_class_report_has_the_offsets_and_no_thresholds(made: Path, tmp_path: Path) -> None:
    run = shutil.copytree(made / "multiclass", tmp_path / "run")
    for tuned in (False, True):
        if tuned:
            tune(run, written(multiclass(seed=5), tmp_path), "f2")
        page, rule = (run / "report.html").read_text(), runs.load(run).model.rule
        assert isinstance(rule, Offsets)
        found = embedded(page)["details"]["logistic regression"]["decision"]
        assert [one["offset"] for one in found["classes"]] == pytest.approx(rule.offsets, rel=1e-4)
        assert found["ships"]
        text = Reader(page).text
        assert "Choosing the threshold" not in text
        assert "at 0.5" not in text
        assert "fixed (largest score)" in text
        assert "cross-entropy fixed" in text
    card = (made / "multiclass" / "model_card.md").read_text()
    first = runs.load(made / "multiclass").model.rule.numbers
    listed = ", ".join(f"{name} {offset:+.3f}" for name, offset in zip("xyz", first, strict=True))
    assert f"Offsets, added to the logarithms of the scores: {listed}." in card


def test_a_fixed_rule_has_no_band_and_its_own_predictions(made: Path) -> None:
    payload = embedded((made / "fixed" / "report.html").read_text())
    details = payload["details"]["logistic regression"]
    assert [(curve["threshold"], curve["plateau"]) for curve in details["classes"]] == [(0.5, None)] * 3
    for curve, found in zip(details["classes"], details["per_class"], strict=True):
        at_half = curve["tp"][curve["cuts"].index(0.5)]
        assert found["recall"] == pytest.approx(at_half / curve["positives"], abs=1e-4)


@pytest.mark.parametrize("task", TASKS)
def test_the_card_expects_what_test_rows_gave(task: str, made: Path) -> None:
    card = (made / task / "model_card.md").read_text()
    summary = json.loads((made / task / "summary.json").read_bytes())
    row = next(r for r in summary["leaderboard"] if (r["contender"], r["rule"]) == ("logistic regression", "tuned"))
    spread = f"95 % interval {row['low']:.3f} to {row['high']:.3f}"
    assert f"of about {row['value']:.3f} ({spread}): the mean over {REPEATS} repeats" in card
    assert "optimistic" not in card
    section = re.search(r"## Metric and decision rule\n(.*?)\n#", card, re.DOTALL)
    assert section is not None
    there = runs.load(made / task).model.about["value_there"]
    assert f"{there:.3f}" != f"{row['value']:.3f}"
    assert f"{there:.3f}" not in section[1]


def test_the_card_of_train_says_that_less_is_to_be_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shorten_training(monkeypatch)
    ask = ["--target", "ripe", "--contender", "logistic regression", "--out", str(tmp_path / "run")]
    assert main(["train", written(binary(), tmp_path), *ask]) == 0
    there = runs.load(tmp_path / "run").model.about["value_there"]
    assert f"f1 {there:.3f} on 80 rows held out of training; expect less on new rows" in capsys.readouterr().out
    assert f"On 80 rows held out of training the value is {there:.3f}." in (tmp_path / "run/model_card.md").read_text()
