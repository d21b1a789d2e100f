"""scikit-learn's callbacks: which tasks they are told of, how they stop training, and that nothing changes without."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import metricgrad as mg

callback = pytest.importorskip("sklearn.callback")  # scikit-learn 1.9

X, Y = make_classification(200, weights=[0.8], random_state=0)


class Recorder:
    """Keeps what it is told, and stops a level of tasks after one of a name and place."""

    def __init__(self, stop_at: tuple[str, int] | None = None) -> None:
        self.stop_at = stop_at
        self.told: list[tuple[str, str, int]] = []

    def setup(self, estimator: Any, context: Any) -> None:
        self.told.append(("setup", context.task_name, context.task_id))

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.told.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        self.told.append(("end", context.task_name, context.task_id))
        return (context.task_name, context.task_id) == self.stop_at

    def teardown(self, estimator: Any, context: Any) -> None:
        self.told.append(("teardown", context.task_name, context.task_id))

    @property
    def ended(self) -> Counter[str]:
        return Counter(name for what, name, _ in self.told if what == "end")


def make_network(**options: Any) -> mg.MetricClassifier:
    return mg.MetricClassifier("f1", model="linear", cv=2, epochs=4, random_state=0, **options)


def make_trees(backend: Any, **options: Any) -> mg.MetricBoostingClassifier:
    return mg.MetricBoostingClassifier("f1", backend=backend, cv=2, n_estimators=8, random_state=0, n_jobs=1, **options)


def make_ensemble(**options: Any) -> mg.MetricEnsembleClassifier:
    own = [("bayes", GaussianNB()), ("loose", LogisticRegression()), ("tight", LogisticRegression(C=0.01))]
    return mg.MetricEnsembleClassifier("f1", estimators=own, cv=2, random_state=0, **options)


ESTIMATORS: dict[str, tuple[Callable[[], Any], dict[str, int]]] = {
    "MetricClassifier": (make_network, {"fit": 1, "network": 2, "epoch": 8}),
    "xgboost": (lambda: make_trees("xgboost"), {"fit": 1, "model": 2, "round": 16}),
    "lightgbm": (lambda: make_trees("lightgbm"), {"fit": 1, "model": 2, "round": 16}),
    "MetricEnsembleClassifier": (make_ensemble, {"fit": 1, "bayes": 1, "loose": 1, "tight": 1}),
    "ThresholdedClassifier": (lambda: mg.ThresholdedClassifier(GaussianNB(), "f1"), {"fit": 2, "cross-fit": 1}),
    "guarantee_rows": (
        lambda: mg.ThresholdedClassifier(
            GaussianNB(), "recall", subject_to="precision >= 0.5", confidence=0.8, guarantee_rows=0.4, random_state=0
        ),
        {"fit": 2},
    ),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_callbacks_are_told_of_each_task(name: str) -> None:
    make, expected = ESTIMATORS[name]
    recorder = Recorder()
    model = make().set_callbacks(recorder).fit(X, Y)
    assert recorder.ended == expected
    assert recorder.told[:2] == [("setup", "fit", 0), ("begin", "fit", 0)]
    assert recorder.told[-2:] == [("end", "fit", 0), ("teardown", "fit", 0)]
    begun = [told[1:] for told in recorder.told if told[0] == "begin"]
    ended = [told[1:] for told in recorder.told if told[0] == "end"]
    assert sorted(begun) == sorted(ended)
    assert np.array_equal(model.predict_proba(X), make().fit(X, Y).predict_proba(X))  # watching changes nothing


def test_a_callback_stops_the_epochs_of_a_network() -> None:
    recorder = Recorder(stop_at=("epoch", 1))
    model = make_network().set_callbacks(recorder).fit(X, Y)
    assert model.history_.groupby("network").size().tolist() == [2, 2]
    assert recorder.ended["network"] == 2
    assert model.tuning_ is not None


@pytest.mark.parametrize("backend", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("patience", [None, 8])
def test_a_callback_stops_the_rounds_of_trees(backend: str, patience: int | None) -> None:
    recorder = Recorder(stop_at=("round", 2))
    model = make_trees(backend, patience=patience).set_callbacks(recorder).fit(X, Y)
    assert recorder.ended["round"] == 6
    assert all(1 <= rounds <= 3 for rounds in model.n_estimators_)
    if patience is None:
        assert model.n_estimators_ == [3, 3]
        shorter = make_trees(backend).set_params(n_estimators=3).fit(X, Y)
        np.testing.assert_allclose(model.predict_scores(X), shorter.predict_scores(X), rtol=1e-6)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_callback_stops_the_candidates_of_an_ensemble(n_jobs: int) -> None:
    model = make_ensemble(n_jobs=n_jobs).set_callbacks(Recorder(stop_at=("loose", 1))).fit(X, Y)
    assert set(model.weights_) <= {"bayes", "loose"}


def test_networks_of_other_processes_tell_too(capsys: pytest.CaptureFixture[str]) -> None:
    make_network(n_jobs=2).set_callbacks(callback.ProgressBar()).fit(X, Y)
    shown = capsys.readouterr().out
    assert "MetricClassifier - fit" in shown
    assert "network #1" in shown
    assert "100%" in shown


@pytest.mark.parametrize("name", ["MetricClassifier", "lightgbm", "ThresholdedClassifier"])
def test_the_progress_bar_of_scikit_learn(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    bar = callback.ProgressBar(max_propagation_depth=0)
    model = ESTIMATORS[name][0]().set_callbacks(bar).fit(X, Y)
    assert f"{type(model).__name__} - fit" in capsys.readouterr().out


def test_the_scoring_monitor_of_scikit_learn_scores_each_epoch() -> None:
    monitor = callback.ScoringMonitor(scoring="f1")
    model = make_network().set_callbacks(monitor).fit(X, Y)
    logged = monitor.get_logs().data_as_pandas
    assert (logged["task_name"] == "epoch").sum() == 8
    assert logged[logged["task_name"] == "fit"]["f1"].item() == pytest.approx(mg.scorer("f1")(model, X, Y))


def test_callbacks_are_passed_on_to_the_classifier_within() -> None:
    class PassedOn(Recorder):
        max_propagation_depth = None

    recorder = PassedOn()
    mg.ThresholdedClassifier(make_network(), "f1", cv=2).set_callbacks(recorder).fit(X, Y)
    assert recorder.ended["epoch"] == 8  # of the network that is fitted on all rows
    assert Counter(what for what, *_ in recorder.told)["setup"] == 1


def test_an_error_of_a_callback_ends_fit() -> None:
    class Fails(Recorder):
        def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
            raise RuntimeError("no more")

    fails = Fails()
    with pytest.raises(RuntimeError, match="no more"):
        make_network().set_callbacks(fails).fit(X, Y)
    assert fails.told[-1] == ("teardown", "fit", 0)


def test_clones_keep_callbacks() -> None:
    recorder = Recorder()
    clone(make_network().set_callbacks(recorder)).fit(X, Y)
    assert recorder.ended["epoch"] == 8


def test_older_versions_of_scikit_learn_have_no_callbacks() -> None:
    code = """
import sys
import sklearn.linear_model, sklearn.model_selection, sklearn.pipeline, sklearn.preprocessing  # they import it
sys.modules["sklearn.callback"] = None
import metricgrad as mg
model = mg.MetricClassifier("f1", model="linear", epochs=1, random_state=0).fit([[0.0], [1.0]] * 9, [0, 1] * 9)
print(hasattr(model, "set_callbacks"), model.predict([[0.0], [1.0]]).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False (2,)\n"
