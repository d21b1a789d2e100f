"""What the sections of the report measure, against counting by hand, and in a whole run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from metricgrad.cli.main import main
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.report import comparison_report
from metricgrad.comparison.report.section import Section
from metricgrad.comparison.report.section_inputs import Predictions, ShippedModelInputs
from metricgrad.comparison.report.sections import SECTIONS
from metricgrad.comparison.report.sections.classes import ClassesSection
from metricgrad.comparison.report.sections.decision import DecisionRuleSection
from metricgrad.comparison.report.sections.mistakes import MOST_CELLS, MOST_MISTAKES, MistakesSection
from metricgrad.comparison.report.sections.threshold import ThresholdSection
from metricgrad.comparison.tables.labelled_table import LabelledTable
from metricgrad.decisions import rules
from short_training import shorten_training
from tables import binary, written


def predicted(task: Any, rows: int = 60) -> Predictions:
    """Return random predictions of two splits that share rows."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({f"column {k}": rng.random(rows) for k in range(MOST_CELLS + 3)})
    tested = np.concatenate([rng.permutation(rows)[:40], rng.permutation(rows)[:40]])
    width = {"binary": (), "multiclass": (3,), "multilabel": (3,)}[task]
    scores = rng.random((80, *width))
    if task == "multiclass":
        targets, decided = rng.integers(0, 3, rows), scores.argmax(1)
        rule: rules.Rule = rules.Argmax()
    else:
        targets, decided = rng.integers(0, 2, (rows, *width)), (scores >= 0.4).astype(int)
        rule = rules.Threshold(0.4 if task == "binary" else (0.4, 0.4, 0.4))
    names = ("no", "yes") if task == "binary" else ("a", "b", "c")
    table = LabelledTable(frame, targets, names)
    goal = Goal(task, len(names), "f1")
    history = [{"epoch": 0.0, "loss": 0.5}]
    plateaus = [(0.3, 0.5), None]
    return Predictions("hybrid", goal, table, tested, scores, targets[tested], decided, [rule, rule], plateaus, history)


def test_the_threshold_of_the_contender_that_ships_is_the_shipped_one() -> None:
    predictions = predicted("binary")
    (tuned,) = ThresholdSection().measure(predictions)["classes"]
    assert (tuned["threshold"], tuned["ships"]) == (0.4, False)
    shipped = replace(predictions, shipped=rules.Threshold(0.3125), shipped_plateaus=[(0.31, 0.32)])
    (curve,) = ThresholdSection().measure(shipped)["classes"]
    assert (curve["threshold"], curve["ships"], curve["plateau"]) == (0.3125, True, (0.31, 0.32))
    at = curve["grid"].index(0.3125)
    taken = predictions.scores >= 0.3125
    assert curve["tp"][at] == (taken & (predictions.targets == 1)).sum()
    plateaus = [(0.05, 0.15), None, (0.25, 0.3)]
    labels = replace(predicted("multilabel"), shipped=rules.Threshold((0.1, 0.2, 0.3)), shipped_plateaus=plateaus)
    several = ThresholdSection().measure(labels)["classes"]
    assert [one["threshold"] for one in several] == [0.1, 0.2, 0.3]
    assert [one["plateau"] for one in several] == plateaus


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_sections_measure_json_under_keys_of_their_own(task: str) -> None:
    found = [section.measure(predicted(task)) for section in SECTIONS]
    keys = [key for each in found for key in each]
    assert len(set(keys)) == len(keys)
    of_task = {"decision"} if task == "multiclass" else set()
    assert set(keys) == {"classes", "per_class", "confusion", "history", "step", "errors"} | of_task
    json.dumps(found, allow_nan=False)


def test_the_decision_of_classes_is_shown_by_offsets() -> None:
    predictions = predicted("multiclass")
    found = DecisionRuleSection().measure(predictions)["decision"]
    assert [(one["name"], one["offset"]) for one in found["classes"]] == [("a", None), ("b", None), ("c", None)]
    assert [one["rows"] for one in found["classes"]] == [int((predictions.targets == k).sum()) for k in range(3)]
    assert [one["predicted"] for one in found["classes"]] == [int((predictions.decided == k).sum()) for k in range(3)]
    assert not found["ships"]
    split = [rules.Offsets((0.0, 0.2, 0.4), log=True), rules.Argmax(), rules.Offsets((1.0, 2.0, 1.3), log=True)]
    medians = DecisionRuleSection().measure(replace(predictions, rules=split))["decision"]["classes"]
    assert [one["offset"] for one in medians] == pytest.approx([0.0, 0.2, 0.3])
    shipped = rules.Offsets((0.0, 0.7, -0.1), log=True)
    found = DecisionRuleSection().measure(replace(predictions, shipped=shipped, shipped_plateaus=[None] * 3))[
        "decision"
    ]
    assert [one["offset"] for one in found["classes"]] == [0.0, 0.7, -0.1]
    assert found["ships"]
    page = DecisionRuleSection().table({}, {"decision": found})  # type: ignore[typeddict-item]
    assert "+0.700" in page
    assert "−0.100" in page


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_classes_are_counted(task: str) -> None:
    predictions = predicted(task)
    y, decided, names = predictions.targets, predictions.decided, predictions.table.names
    found = ClassesSection().measure(predictions)
    assert [row["name"] for row in found["per_class"]] == list(names)
    for k, row in enumerate(found["per_class"]):
        truth, said = (y[:, k] == 1, decided[:, k] == 1) if y.ndim == 2 else (y == k, decided == k)
        assert row["support"] == truth.sum()
        assert row["precision"] == pytest.approx((truth & said).sum() / said.sum())
        assert row["recall"] == pytest.approx((truth & said).sum() / truth.sum())
    if task == "multilabel":
        assert found["confusion"] == []
    else:
        every = range(len(names))
        assert found["confusion"] == [[int(((y == i) & (decided == j)).sum()) for j in every] for i in every]


def test_the_threshold_and_its_plateau_are_medians_of_the_splits() -> None:
    predictions = predicted("binary")
    (curve,) = ThresholdSection().measure(predictions)["classes"]
    # The plateau of one split alone is not that of the median.
    assert (curve["name"], curve["threshold"], curve["plateau"]) == ("yes", 0.4, None)
    every = replace(predictions, rules=[rules.Threshold(0.2), rules.Threshold(0.6)], plateaus=[(0.1, 0.3), (0.5, 0.6)])
    (curve,) = ThresholdSection().measure(every)["classes"]
    assert curve["threshold"] == pytest.approx(0.4)
    assert curve["plateau"] == pytest.approx((0.3, 0.45))
    curves = ThresholdSection().measure(predicted("multiclass"))["classes"]
    assert [(curve["name"], curve["threshold"]) for curve in curves] == [("a", None), ("b", None), ("c", None)]


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_mistakes_are_wrong_rows_the_surest_first_and_once(task: str) -> None:
    predictions = predicted(task)
    y, decided = predictions.targets, predictions.decided
    wrong = set((predictions.rows[(y != decided).reshape(len(y), -1).any(1)] + 1).tolist())
    found = MistakesSection().measure(predictions)["errors"]
    rows = [error["row"] for error in found]
    assert len(rows) == len(set(rows)) == MOST_MISTAKES
    assert set(rows) <= wrong
    for error in found:
        assert error["truth"] != error["decided"]
        assert len(error["cells"]) == MOST_CELLS
    if task == "binary":  # rows that are not shown are decided with less confidence
        sure = np.where(y != decided, np.abs(predictions.scores - (1 - decided)), 0)
        assert abs(found[0]["score"] - (found[0]["decided"] == "no")) == sure.max()


class Medians(Section):
    """The mean score of the model where a column is set to its median."""

    name = "medians"
    title = "Medians"

    def measure_study(self, model: ShippedModelInputs) -> dict[str, Any]:
        held = model.table.frame.iloc[model.held]
        scores = model.score(held)
        assert len(model.rule(scores)) == len(held) == len(model.held)
        return {"medians": {"size": float(model.score(held.assign(size=held["size"].median())).mean() - scores.mean())}}


def test_a_run_measures_the_study_for_the_page_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shorten_training(monkeypatch)
    monkeypatch.setattr(comparison_report, "SECTIONS", [*SECTIONS, Medians()])
    ask = ["--target", "ripe", "--repeats", "2", "--contenders", "majority", "--jobs", "1", "--json"]
    assert main(["compare", written(binary(), tmp_path), *ask, "--out", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert '"medians":{"size":' in page
    for summary in (capsys.readouterr().out, (tmp_path / "run" / "summary.json").read_text()):
        assert not {"study", "details"} & set(json.loads(summary))
