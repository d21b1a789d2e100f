"""The table of contenders: who takes part, what each is made of, and what is left out with which reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sklearn.base import clone

from metricgrad.comparison import demo
from metricgrad.comparison.candidate_runs import CandidateRun, _read_history, run_candidate
from metricgrad.comparison.contenders import CONTENDERS, ENSEMBLE, find_shortage, select_contenders
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.workers import fill, find_shared
from metricgrad.estimators.candidates import CandidateSpec, make_default_candidates
from metricgrad.estimators.metric_classifier import MetricClassifier
from short_training import shorten_training
from small_studies import make_plan, open_run_writer
from tables import binary, multiclass, multilabel

TASKS: dict[str, tuple[Any, str]] = {
    "binary": (binary, "ripe"),
    "multiclass": (multiclass, "kind"),
    "multilabel": (multilabel, "label 0,label 1,label 2"),
}


def run_all(task: str, folder: Path, **options: Any) -> dict[str, CandidateRun]:
    """Cross-fit the candidates of all contenders on the first split."""
    make, target = TASKS[task]
    plan = make_plan(make(), target, folder, **options)
    found = {}
    with open_run_writer(plan, folder) as run_writer:
        tasks = plan.make_tasks(run_writer, 0)
        for one in tasks.yield_tasks([candidate.name for candidate in tasks.candidates]):
            filled = fill(one, {name: shared.load() for name, shared in find_shared(one).items()})
            result = run_candidate(filled)
            assert isinstance(result, CandidateRun), result
            found[result.candidate] = result
        assert all(run.out_of_fold.shape[0] == len(tasks.split.train) for run in found.values())
        assert all(run.scores.shape[0] == len(tasks.split.test) for run in found.values())
    return found


@pytest.mark.parametrize("task", list(TASKS))
def test_every_contender_can_be_fitted(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)
    on_request = tuple(name for name, one in CONTENDERS.items() if one.on_request and task in one.tasks)
    subject_to = None if task == "multiclass" else "recall>=0.05"
    found = run_all(task, tmp_path, extra_contenders=on_request, subject_to=subject_to)
    fitted = {"majority", "cross-entropy", "soft-set metric", "hybrid", "xgboost", "metric boosting", "random forest"}
    assert fitted | set(on_request) <= found.keys()
    assert ("constrained metric" in found) == (task != "multiclass")
    for run in found.values():
        assert run.scores.dtype == "float64"
        assert run.scores.shape[1:] == (() if task == "binary" else (3,))
        assert ((run.scores >= 0) & (run.scores <= 1)).all()
        assert run.seconds > 0


def test_learning_curves_show_the_metric_where_training_watched_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_training(monkeypatch)
    found = run_all("binary", tmp_path)
    for name, run in found.items():
        assert [row["epoch"] for row in run.history] == list(range(len(run.history)))
        assert bool(run.history) == (
            name in CONTENDERS
            and CONTENDERS[name].family in ("network", "trees")
            and "forest" not in name
            and "extra" not in name
        )
        assert all(("value" in row) == (name == "soft-set metric") for row in run.history)


def test_learning_curves_are_those_of_the_first_network_of_the_first_fold() -> None:
    models = []
    for loss in (0.3, 0.1):
        model = MetricClassifier("f1", monitor="metric")
        model._histories = [[{"loss": loss, "value": 0.5}, {"loss": loss / 2, "value": 0.6}], [{"loss": 9.0}]]
        models.append(model)
    assert _read_history(models) == [
        {"epoch": 0.0, "loss": 0.3, "value": 0.5},
        {"epoch": 1.0, "loss": 0.15, "value": 0.6},
    ]


def test_the_ensemble_is_chosen_from_the_default_candidates_of_the_estimator(
    tmp_path: Path,
) -> None:
    plan = make_plan(binary(), "ripe", tmp_path)
    with open_run_writer(plan, tmp_path) as run_writer:
        tasks = plan.make_tasks(run_writer, 0)
        candidates = {one.name: one for one in tasks.candidates}
        members = tasks.list_candidates(ENSEMBLE)
        expected = make_default_candidates(CandidateSpec("f1", "macro", len(tasks.split.train), 1))
        assert members == [one.name for one in expected]
        for one in expected:
            assert candidates[one.name].view == one.view
            assert repr(clone(candidates[one.name].estimator)) == repr(clone(one.estimator))
        assert tasks.list_candidates(ENSEMBLE, failed=["xgboost"]) == [name for name in members if name != "xgboost"]
        assert len(tasks.list_candidates("logistic regression")) == 3


def test_hybrid_is_the_default_of_metric_classifier() -> None:
    spec = CandidateSpec("f1", "macro", 1000, 1)
    (hybrid,) = (one.estimator for one in make_default_candidates(spec) if one.name == "hybrid")
    # The encoder has scaled the features already.
    assert hybrid.get_params() == MetricClassifier("f1", scale=False).get_params()


def test_training_is_shorter_for_many_rows_and_for_a_first_look() -> None:
    def count_epochs(rows: int, quick: bool = False) -> int:
        candidates = make_default_candidates(CandidateSpec("f1", "macro", rows, 1, quick=quick))
        return next(int(one.estimator.epochs) for one in candidates if one.name == "hybrid")

    assert count_epochs(1000) == count_epochs(100_000) == 100
    assert count_epochs(1_000_000) == 10
    assert count_epochs(10**9) == 2
    assert count_epochs(5000, quick=True) == 33
    assert count_epochs(1000, quick=True) == 100


def test_contenders_are_selected_by_the_goal() -> None:
    plain = Goal("binary", 2, "f1")
    names = list(select_contenders(plain, None)[0])
    assert "constrained metric" not in names
    assert "maximal figure of merit" not in names
    constrained = Goal("binary", 2, "recall", subject_to="precision>=0.9")
    assert "constrained metric" in select_contenders(constrained, None)[0]
    chosen, left_out = select_contenders(plain, ["hybrid"])
    assert (list(chosen), left_out) == (["cross-entropy", "hybrid"], [])
    chosen, left_out = select_contenders(plain, ["maximal figure of merit"])
    assert (list(chosen), left_out) == (["cross-entropy"], [("maximal figure of merit", "not for binary targets")])
    assert "tabm" not in names
    assert "tabm" in select_contenders(plain, None, ["tabm"])[0]


def test_the_ensemble_needs_two_contenders_that_it_may_be_chosen_from() -> None:
    plain = Goal("binary", 2, "f1")
    chosen, left_out = select_contenders(plain, ["majority", "hybrid", "ensemble"])
    assert list(chosen) == ["majority", "cross-entropy", "hybrid"]
    assert left_out == [("ensemble", "needs 2 contenders to choose from, got hybrid")]
    assert list(select_contenders(plain, ["hybrid", "xgboost", "ensemble"])[0])[-1] == "ensemble"
    assert find_shortage([CONTENDERS["majority"]]) == "needs 2 contenders to choose from, got none"


def test_what_is_not_installed_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert CONTENDERS["xgboost"].find_obstacle(Goal("binary", 2, "f1")) == "needs xgboost, which is not installed"


def test_a_row_of_the_table_says_where_a_contender_takes_part() -> None:
    assert [name for name, row in CONTENDERS.items() if row.quick] == [
        *("majority", "logistic regression", "cross-entropy", "hybrid", "xgboost", "ensemble")
    ]
    pytest.importorskip("river")
    assert demo.make_options().contenders == tuple(name for name, row in CONTENDERS.items() if row.demo)
    soft = [name for name, row in CONTENDERS.items() if row.shows_soft_metric]
    assert soft == ["soft-set metric", "sigmoid metric", "maximal figure of merit"]
    assert all(CONTENDERS[name].on_metric for name in soft)
