"""What estimators show in a notebook."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression

import metricgrad as mg

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 120)
X = RNG.normal(size=(120, 3)) + Y[:, None]


def loud(counts: Any) -> Any:
    return counts.tp / (counts.tp + counts.fp + counts.fn)


ESTIMATORS: dict[str, Any] = {
    "MetricClassifier": lambda: mg.MetricClassifier(metric="f2", epochs=1),
    "MetricBoostingClassifier": lambda: mg.MetricBoostingClassifier(metric="f2", n_estimators=2),
    "MetricEnsembleClassifier": lambda: mg.MetricEnsembleClassifier(
        "f2", estimators=[("a", LogisticRegression()), ("b", LogisticRegression(C=0.1))]
    ),
    "ThresholdedClassifier": lambda: mg.ThresholdedClassifier(LogisticRegression(), "f2"),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_parameters_before_the_fit_and_facts_after_it(name: str) -> None:
    model = ESTIMATORS[name]()
    assert name in model._repr_html_()
    assert "value where it was tuned" not in model._repr_html_()
    model.fit(X, Y)
    facts = f">{model.rule_.describe()}</td>"
    assert facts in model._repr_html_()
    bundle = model._repr_mimebundle_()
    assert facts in bundle["text/html"]
    assert bundle["text/plain"] == repr(model)
    assert f">{model.tuning_.value:.4f}</td>" in model._repr_html_()
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert "text/html" not in model._repr_mimebundle_()


def test_a_metric_of_ones_own_is_shown_by_its_name() -> None:
    model = mg.ThresholdedClassifier(LogisticRegression(), loud).fit(X, Y)
    assert ">loud</td>" in model._repr_html_()


def test_linear_svm_shows_its_parameters_and_the_fit() -> None:
    model = mg.LinearSVMPerf("f1", C=2.0)
    assert "<b>LinearSVMPerf</b>" in model._repr_html_()
    assert "objective_" not in model._repr_html_()
    model.fit(X, Y)
    assert f">{model.objective_}</td>" in model._repr_html_()
    assert ">2.0</td>" in model._repr_html_()
