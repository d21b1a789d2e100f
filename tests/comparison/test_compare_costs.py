"""``compare`` with costs: what ships saves most, rows are decided by their own costs, bad input is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import metricgrad as mg
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.inference.base_rate import renew
from metricgrad.comparison.inference.evaluate import evaluate_run
from metricgrad.comparison.inference.tune import tune

COST = mg.Cost(fp=5, fn="amount")


def make_frame(rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=rows), "b": rng.normal(size=rows)})
    frame["amount"] = rng.lognormal(3, 1, rows).round(2)
    chance = 1 / (1 + np.exp(-(1.5 * frame["a"] - 1)))
    frame["left"] = (rng.random(rows) < chance).astype(int)
    return frame


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> mg.Study:
    options: dict[str, Any] = {"contenders": "logistic regression", "quick": True, "jobs": 1}
    out = tmp_path_factory.mktemp("runs") / "run"
    return mg.compare(make_frame(), "left", cost=COST, out=out, **options)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "new.csv"
    make_frame(700)[400:].to_csv(path, index=False)
    return path


def test_savings_decide_what_ships(study: mg.Study) -> None:
    board = study.leaderboard
    assert board["value"].is_monotonic_decreasing
    assert "savings" in str(study.verdict)


def test_rows_are_decided_by_their_own_costs(study: mg.Study) -> None:
    frame = make_frame()
    dear = study.model.predict(frame.assign(amount=100.0))
    cheap = study.model.predict(frame.assign(amount=4.0))
    assert dear.sum() > 2 * cheap.sum()
    scores = study.model.predict_scores(frame)
    assert (study.model.predict(frame) == (scores >= study.model.rule_.numbers)).all()


def test_the_report_shows_money(study: mg.Study, tmp_path: Path) -> None:
    page = (Path(study.path) / "report.html").read_text(encoding="utf-8")
    assert '<section id="money"' in page
    assert "Where the money is lost" in page
    assert "total cost" in page  # the slider has the money at each threshold


def test_new_rows_are_evaluated_and_tuned_with_their_costs(study: mg.Study, new: Path) -> None:
    frame = pd.read_csv(new)
    costs = COST.of_table(frame)
    found = evaluate_run(study.path, new, replicates=50).summary["metrics"]
    name = next(name for name in found if name.startswith("savings"))
    decided = study.model.predict(frame)
    assert found[name]["value"] == pytest.approx(costs.savings(frame["left"], decided))
    tuned = tune(study.path, new, dry_run=True).summary
    assert tuned["old"]["value"] == pytest.approx(costs.savings(frame["left"], decided))
    assert tuned["new"]["value"] >= tuned["old"]["value"]


def test_base_rates_are_not_estimated_from_scores_that_costs_have_moved(study: mg.Study, new: Path) -> None:
    with pytest.raises(UserError, match="--unlabelled: expected a run with the same costs for every row"):
        renew(study.path, new, dry_run=True)


def test_a_missing_column_is_named(study: mg.Study, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="amount"):
        study.model.predict(make_frame().drop(columns="amount"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cost": "fp=5, fn=amnt"}, "cost: expected a column of the data, got 'amnt'; did you mean 'amount'?"),
        ({"cost": "fp=5"}, "cost: expected both fp=... and fn=..., got 'fp=5'"),
        ({"cost": "fp=5, miss=3"}, "expected fp=..., fn=..., tp=... or tn=..., each once, got 'miss=3'"),
        ({"cost": "fp=5, fn=negative"}, "fn: expected at least tp"),
        ({"cost": "fp=5, fn=gaps"}, "fn: column 'gaps': expected finite numbers, got 1 NaN or infinite"),
        ({"cost": mg.Cost(fp=5, fn=[1.0, 2.0])}, "got an array; name its column"),
        ({"cost": mg.Cost(matrix=1 - np.eye(3))}, "cost: expected fp and fn here, got a matrix; estimators take it"),
        ({"cost": 5}, "cost: expected mg.Cost"),
        ({"cost": "fp=5, fn=amount", "subject_to": "precision>=0.5"}, "expected the same costs for every row with"),
    ],
)
def test_bad_costs_are_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    frame = make_frame(60).assign(negative=-1.0, gaps=[np.nan, *[1.0] * 59])
    with pytest.raises(ValueError, match=message.replace("?", r"\?").replace("(", r"\(")) as caught:
        mg.compare(frame, "left", quick=True, jobs=1, **given)
    assert "\n" not in str(caught.value)
