"""What is shipped: a rule tuned on the held-out rows of all repeats, its band in the report, and what to expect."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metricgrad.cli.main import main
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.candidate_runs import ALL_ROWS, CandidateRun, run_candidate
from metricgrad.comparison.contender_outcomes import weigh_candidates
from metricgrad.comparison.inference.tune import tune
from metricgrad.comparison.options import read_options
from metricgrad.comparison.report.run_report import renew_report
from metricgrad.comparison.run_comparison import Plan
from metricgrad.comparison.workers import fill, find_shared
from metricgrad.decisions.rules import Offsets, Threshold
from metricgrad.decisions.threshold_tuning import tune_threshold
from metricgrad.evaluation.evaluator import evaluate
from report_pages import Reader, embedded
from short_training import shorten_training
from small_studies import open_run_writer
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


def fit_all_rows(run: Path, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the out-of-fold scores of all rows that a model was tuned on, fitted again, and their targets."""
    with pytest.MonkeyPatch.context() as patch:
        shorten_training(patch)
        options = read_options(runs.load(run).config)[0]
        plan = Plan.of(options)
        with tempfile.TemporaryDirectory() as folder, open_run_writer(plan, Path(folder)) as run_writer:
            tasks = plan.make_tasks(run_writer, ALL_ROWS)
            wanted = tasks.list_candidates("logistic regression")
            found = {}
            for task in tasks.yield_tasks(wanted):
                result = run_candidate(fill(task, {k: v.load() for k, v in find_shared(task).items()}))
                assert isinstance(result, CandidateRun)
                found[result.candidate] = result.out_of_fold
        rows = targets[tasks.split.left_out]
        return weigh_candidates("logistic regression", plan.dataset.goal, found, rows, 0).out_of_fold, rows


def read_targets(task: str) -> np.ndarray:
    frame = TASKS[task][0]()
    if task == "binary":
        return np.asarray(frame["ripe"] == "yes").astype(int)
    if task == "multiclass":
        return np.asarray(frame["kind"].map({"x": 0, "y": 1, "z": 2}))
    return np.asarray(frame[["label 0", "label 1", "label 2"]])


@pytest.mark.parametrize("task", TASKS)
def test_the_rule_is_tuned_on_the_out_of_fold_scores_of_all_rows(task: Any, made: Path) -> None:
    model = runs.load(made / task).model
    scores, targets = fit_all_rows(made / task, read_targets(task))
    expected = tune_threshold("f1", scores, targets, task=task, rare_labels="pooled")
    assert model.rule == expected.rule
    assert isinstance(model.rule, Offsets if task == "multiclass" else Threshold)
    assert model.about["tuned_on"] == f"the out-of-fold scores of {len(targets)} rows"
    assert model.about["value_there"] == pytest.approx(
        evaluate(scores, targets, ["f1"], task=task, rule=expected.rule)["f1"]
    )


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_the_band_is_that_of_the_shipped_threshold(task: Any, made: Path) -> None:
    scores, targets = fit_all_rows(made / task, read_targets(task))
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
    found = tune(run, data, "f2")
    assert renew_report(found.run) == []
    tuned = found.summary["new"]
    (curve,) = embedded((run / "report.html").read_text())["details"]["logistic regression"]["classes"]
    assert curve["plateau"] == list(tuned["plateau"])
    assert curve["plateau"][0] <= curve["threshold"] <= curve["plateau"][1]


def test_a_multi_class_report_has_the_offsets_and_no_thresholds(made: Path, tmp_path: Path) -> None:
    run = shutil.copytree(made / "multiclass", tmp_path / "run")
    for tuned in (False, True):
        if tuned:
            renew_report(tune(run, written(multiclass(seed=5), tmp_path), "f2").run)
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
        at_half = curve["tp"][curve["grid"].index(0.5)]
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
    tuned_on = "the out-of-fold scores of 400 rows"
    assert f"f1 {there:.3f} on {tuned_on}; expect less on new rows" in capsys.readouterr().out
    assert f"On {tuned_on} the value is {there:.3f}." in (tmp_path / "run/model_card.md").read_text()
