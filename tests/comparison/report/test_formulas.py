"""What the page computes at a threshold: formulas from Python, for metrics of one's own too."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from typing import Any

import pytest
import torch

from metricgrad import metrics
from metricgrad.comparison.report.formulas import add_formulas, find_library_formulas
from metricgrad.comparison.report.page import read, render
from metricgrad.comparison.report.section import read_asset
from metricgrad.comparison.report.sections.threshold import ThresholdSection
from metricgrad.core.counts import Counts
from own_metrics import capped_profit, odds_ratio
from report_example import Example, simulate

NODE = shutil.which("node")


@pytest.fixture(scope="module")
def example() -> Example:
    return simulate(rows=1500, contenders=3)


def with_metric(example: Example, name: str, **more: Any) -> Any:
    payload: Any = copy.deepcopy(example.payload)
    payload["metric"] |= {"name": name, **more}
    return payload


def curves_of(payload: Any) -> list[Any]:
    return [curve for details in payload["details"].values() for curve in details["classes"]]


def counts_of(curve: Any) -> Counts:
    tp, fp = torch.tensor(curve["tp"]).double(), torch.tensor(curve["fp"]).double()
    return Counts(tp, fp, curve["positives"] - tp, curve["negatives"] - fp)


def test_a_page_has_the_formulas_that_it_shows(example: Example) -> None:
    bound = {"metric": "specificity", "bound": 0.9, "sense": ">=", "over": None}
    embedded: Any = read(render(with_metric(example, "f2", constraints=[bound])))
    assert set(embedded["formulas"]) == {"f2", "specificity", "precision", "recall", "f1"}
    assert embedded["formulas"]["f2"]["title"] == "F2"


def test_numbers_of_formulas_are_exact(example: Example) -> None:
    embedded: Any = read(render(with_metric(example, "f_beta(beta=0.123456789)")))
    numbers = [step[1] for step in embedded["formulas"]["f_beta(beta=0.123456789)"]["steps"] if step[0] == "number"]
    assert 0.123456789**2 in numbers


def test_metrics_of_the_matrix_have_none(example: Example) -> None:
    assert "quadratic_kappa" not in find_library_formulas(with_metric(example, "quadratic_kappa"))
    assert "subset_accuracy" not in find_library_formulas(with_metric(example, "subset_accuracy"))


def test_one_parameter_per_class(example: Example) -> None:
    payload = with_metric(example, "f_beta(beta=0.5/2)")
    found = find_library_formulas(payload)["f_beta(beta=0.5/2)"]
    assert [name for name, _ in found["steps_of_class"]] == payload["data"]["classes"]
    first, second = (steps for _, steps in found["steps_of_class"])
    assert first != second


def test_own_metrics(example: Example) -> None:
    payload = with_metric(example, "own_metrics:odds_ratio")
    add_formulas(payload)
    assert payload["formulas"]["own_metrics:odds_ratio"]["title"] == "odds ratio"
    assert "steps" in payload["formulas"]["own_metrics:odds_ratio"]
    assert not any(curve["tabulated"] for curve in curves_of(payload))


def test_own_metrics_that_cannot_be_traced_are_tabulated(example: Example) -> None:
    payload = with_metric(example, "own_metrics:capped_profit")
    add_formulas(payload)
    assert payload["formulas"]["own_metrics:capped_profit"] == {"title": "capped profit", "tabulated": True}
    for curve in curves_of(payload):
        assert curve["tabulated"]["own_metrics:capped_profit"] == capped_profit(counts_of(curve)).tolist()
    for details in payload["details"].values():
        ThresholdSection().shrink(details, 25)
    for curve in curves_of(payload):
        assert len(curve["grid"]) < 30
        assert curve["tabulated"]["own_metrics:capped_profit"] == capped_profit(counts_of(curve)).tolist()
    page = render(payload)
    assert render(read(page)) == page


def test_a_page_imports_nothing(example: Example) -> None:
    page = render(with_metric(example, "this.is.not:imported", subject_to="antigravity:mean>=0.5"))
    embedded: Any = read(page)
    assert set(embedded["formulas"]) == {"precision", "recall", "f1"}
    assert "antigravity" not in sys.modules


@pytest.mark.skipif(NODE is None, reason="no Node here")
def test_the_script_computes_what_python_does(example: Example) -> None:
    names = [*metrics.names(), "f0.5", "f_3", "savings(fp=1 fn=10)", "own_metrics:odds_ratio", "own_metrics:skill"]
    names = [name for name in names if name not in ("quadratic_kappa", "subset_accuracy")]
    bounds = [{"metric": name, "bound": 0.0, "sense": ">=", "over": None} for name in names]
    payload = with_metric(example, "own_metrics:capped_profit", constraints=bounds)
    payload["details"] = {"one": {"classes": curves_of(payload)[:1]}}
    add_formulas(payload)
    curve = curves_of(payload)[0]
    script = f"""
      const payload = {json.dumps({"formulas": payload["formulas"]})}, curve = {json.dumps(curve)};
      {read_asset("metrics.js")}
      const found = Object.keys(payload.formulas).map((name) =>
        [name, curve.grid.map((_, i) => metricNamed(name).of(cellsAt(curve, i)))]);
      console.log(JSON.stringify([Object.fromEntries(found), metricNamed("constructor")]));
    """
    done = subprocess.run([str(NODE), "-e", script], capture_output=True, text=True, check=True)
    found, unknown = json.loads(done.stdout)
    assert unknown is None
    assert set(names) < set(found)
    for name, values in found.items():
        expected = metrics.get(name)(counts_of(curve)).tolist()
        assert values == pytest.approx(expected, abs=1e-12, rel=1e-12), name
    assert max(found["own_metrics:odds_ratio"]) == pytest.approx(odds_ratio(counts_of(curve)).max().item())
