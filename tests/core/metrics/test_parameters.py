"""Parameters of metrics: one value per class wherever a metric is used, by name, in estimators and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import fbeta_score

import metricgrad as mg
from damage import change, reseal
from metricgrad.cli.main import main
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.option_texts import split_values
from metricgrad.core.metrics.parameters import with_parameters
from metricgrad.core.metrics.registry import name_of
from short_training import shorten_training
from tables import multiclass, multilabel, written

CLASSES = ["cat", "cow", "dog"]
PARAMS: dict[str, Any] = {"beta": {"dog": 0.25, "rest": 1}}
BETAS = (1, 1, 0.25)


def animals(rows: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    return rng.normal(size=(rows, 3)) + np.eye(3)[y], np.array(CLASSES)[y]


def macro(y: np.ndarray, predicted: np.ndarray) -> float:
    return float(
        np.mean(
            [
                fbeta_score(y == one, predicted == one, beta=beta, zero_division=0)
                for one, beta in zip(CLASSES, BETAS, strict=True)
            ]
        )
    )


# Names


def test_every_class_has_its_own_beta() -> None:
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 2, (2, 60, 3))
    found = mg.evaluate(p, y, "f_beta(beta=0.25/1/2)", task="multilabel", average=None)
    expected = [fbeta_score(y[:, k], p[:, k], beta=beta) for k, beta in enumerate((0.25, 1, 2))]
    np.testing.assert_allclose(next(iter(found.values())), expected, rtol=1e-6)
    weighted = mg.evaluate(p, y, "f_beta(beta=0.25/1/2)", task="multilabel", average="weighted")
    np.testing.assert_allclose(next(iter(weighted.values())), np.average(expected, weights=y.sum(0)), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "function", "options"),
    [
        ("f_beta(beta=2)", mg.metrics.f_beta, {"beta": 2.0}),
        ("f_beta()", mg.metrics.f_beta, {}),
        ("tversky(alpha=0.3 beta=0.7)", mg.metrics.tversky, {"alpha": 0.3, "beta": 0.7}),
        ("tversky(alpha=0.3, beta=0.7)", mg.metrics.tversky, {"alpha": 0.3, "beta": 0.7}),  # as it is printed
        ("tversky(alpha=0.3/1)", mg.metrics.tversky, {"alpha": torch.tensor([0.3, 1])}),
        ("savings(fp=1 fn=10)", mg.metrics.savings, {"fp": 1.0, "fn": 10.0}),
        ("precision(empty=1)", mg.metrics.precision, {"empty": 1.0}),
    ],
)
def test_names_with_parameters(name: str, function: Any, options: dict[str, Any]) -> None:
    counts = mg.Counts(*(torch.tensor([float(k), k + 1.0]) for k in range(4)))
    torch.testing.assert_close(mg.metrics.get(name)(counts), function(counts, **options))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("f_beta(gamma=2)", "f_beta takes beta, empty, each once, got 'gamma=2'"),
        ("f1(beta=2)", "f1 takes empty, each once, got 'beta=2'; f_beta and tversky take beta"),
        ("mcc(beta=2)", "mcc takes no parameters, got 'beta=2'; f_beta and tversky take beta"),
        ("f_beta(beta=2 beta=3)", "each once"),
        ("f_beta(beta=)", "expected beta=number"),
        ("f_beta(beta=two)", "expected beta=number"),
        ("f_beta(beta=-1)", "expected beta=number"),
        ("f_beta(beta=inf)", "expected beta=number"),
        ("f_beta(beta=nan/1)", "expected beta=number"),
        ("luck(beta=2)", "unknown name 'luck'"),
        ("f_beta(beta=2", "unknown name"),
        ("f_beta(__class__=2)", "f_beta takes beta"),
    ],
)
def test_wrong_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^metric: ") as caught:
        mg.metrics.get(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_classes_become_values_in_their_order() -> None:
    assert with_parameters("f_beta", PARAMS, CLASSES) == "f_beta(beta=1/1/0.25)"
    assert with_parameters("f_beta", {"beta": [1, 2, 0.1]}, CLASSES) == "f_beta(beta=1/2/0.1)"
    assert with_parameters("f_beta", {"beta": torch.tensor([1, 2, 4])}, CLASSES) == "f_beta(beta=1/2/4)"
    assert with_parameters("tversky", {"alpha": {0: 2, 1: 1}, "beta": 3}, [0, 1]) == "tversky(alpha=2/1 beta=3)"
    assert with_parameters("f_beta", {"beta": {"rest": 1, "a": 2}}, ["a", "rest"]) == "f_beta(beta=2/1)"
    assert with_parameters("f_beta", None, CLASSES) == "f_beta"
    assert with_parameters(mg.metrics.f1, {}, CLASSES) is mg.metrics.f1
    assert name_of(mg.metrics.get("f_beta(beta=1/0.5)")) == "f_beta(beta=1.0/0.5)"
    assert split_values("beta", "a=b=2,rest=1") == {"a=b": 2.0, "rest": 1.0}


@pytest.mark.parametrize(
    ("metric", "params", "message"),
    [
        ("f_beta", {"beta": {"dgo": 0.25, "rest": 1}}, "beta: unknown class 'dgo'; did you mean 'dog'?"),
        ("f_beta", {"beta": {"zebra": 1}}, "beta: unknown class 'zebra'; the classes are cat, cow, dog"),
        ("f_beta", {"beta": {"dog": 1}}, "beta: expected a number for every class, got none for 'cat'; add rest=1"),
        ("f_beta", {"beta": [1, 2]}, "beta: expected 3 numbers, one per class, got 2"),
        ("f_beta", {"beta": -1}, "beta: expected a number of at least 0, got -1"),
        ("f_beta", {"beta": {"rest": "1"}}, "beta: expected a number of at least 0, got '1'"),
        ("f_beta", {"beta": "2"}, "beta: expected a number, one per class, or {class: number}, got '2'"),
        ("f_beta", {"beta": None}, "beta: expected a number, one per class, or {class: number}, got None"),
        ("f1", {"beta": 2}, "metric: f1 takes empty"),
        ("f2", {"beta": 2}, "metric: f2 takes no parameters"),
        ("f_beta(beta=1)", {"beta": 2}, "metric: expected the name of a metric to give beta to"),
        (mg.metrics.f_beta, {"beta": 2}, "metric: expected the name of a metric to give beta to"),
        ("f_beta(beta=1/2)", None, "metric: expected 3 values of beta, one per class, got 2"),
    ],
)
def test_wrong_parameters_are_refused(metric: Any, params: Any, message: str) -> None:
    x, y = animals(60)
    for estimator in (mg.MetricClassifier, mg.MetricBoostingClassifier):
        with pytest.raises(ValueError, match=r"^(beta|metric): ") as caught:
            estimator(metric, metric_params=params).fit(x, y)
        assert str(caught.value).startswith(message)


@pytest.mark.parametrize("average", ["micro", "samples"])
def test_averages_that_pool_classes_take_no_value_per_class(average: Any) -> None:
    with pytest.raises(ValueError, match="average: expected 'macro', 'weighted' or None"):
        mg.MetricLoss("f_beta(beta=1/2)", task="multilabel", average=average)


# Tuning


@pytest.mark.parametrize("rows", [80, 9000])  # many rows are searched in bins
def test_thresholds_of_labels_are_tuned_for_their_own_beta(rows: int) -> None:
    rng = np.random.default_rng(0)
    y = (rng.random((rows, 3)) < 0.3).astype(int)
    scores = 0.3 * y + 0.7 * rng.random((rows, 3))
    betas = (0.25, 1, 4)
    found = mg.tune_threshold("f_beta(beta=0.25/1/4)", scores, y, task="multilabel")
    alone = [mg.tune_threshold(f"f{beta}", scores[:, k], y[:, k]).threshold for k, beta in enumerate(betas)]
    np.testing.assert_allclose(found.threshold, alone)
    chosen = mg.select_ensemble("f_beta(beta=0.25/1/4)", {"good": scores, "bad": 1 - scores}, y, task="multilabel")
    assert chosen.weights == {"good": 1.0}
    if rows > 1000:  # few positives share a threshold there
        assert chosen.value == pytest.approx(found.value)
    # One threshold for all: a search by hand.
    shared = mg.tune_threshold("f_beta(beta=0.25/1/4)", scores[:80], y[:80], task="multilabel", shared=True)
    values = [
        np.mean([fbeta_score(y[:80, k], scores[:80, k] >= cut, beta=beta) for k, beta in enumerate(betas)])
        for cut in np.unique(scores[:80])
    ]
    assert shared.value == pytest.approx(max(values), rel=1e-6)


def test_one_value_per_class_needs_dense_scores() -> None:
    from scipy import sparse

    y = sparse.csr_matrix(np.eye(4, 2))
    with pytest.raises(ValueError, match="metric: expected one beta for all classes with sparse scores"):
        mg.tune_threshold("f_beta(beta=1/2)", y, y, task="multilabel")


# Estimators


@pytest.mark.parametrize(
    "estimator",
    [
        mg.MetricClassifier("f_beta", metric_params=PARAMS, cv=2, epochs=3, random_state=0),
        mg.MetricClassifier("f_beta", metric_params=PARAMS, cv=2, epochs=1, random_state=0, model="tabm"),
        mg.MetricBoostingClassifier("f_beta", metric_params=PARAMS, cv=2, n_estimators=5, random_state=0),
        mg.ThresholdedClassifier(LogisticRegression(), "f_beta", metric_params=PARAMS, cv=2),
        mg.MetricEnsembleClassifier(
            "f_beta",
            metric_params=PARAMS,
            estimators=[("a", LogisticRegression()), ("b", LogisticRegression(C=0.01))],
            cv=2,
            random_state=0,
        ),
    ],
    ids=["network", "tabm", "boosting", "thresholded", "ensemble"],
)
def test_estimators_are_tuned_for_one_beta_per_class(estimator: Any, tmp_path: Path) -> None:
    x, y = animals()
    estimator.fit(x, y)
    assert estimator.tuning_._problem.objective.name == "macro f_beta(beta=1.0/1.0/0.25)"
    mg.save(estimator, tmp_path / "saved")
    own: dict[str, Any] = {"estimators": None} if isinstance(estimator, mg.MetricEnsembleClassifier) else {}
    again = mg.load(tmp_path / "saved", **own)
    assert again.get_params()["metric_params"] == PARAMS
    np.testing.assert_array_equal(again.predict(x), estimator.predict(x))


def test_the_rule_is_the_best_for_the_metric() -> None:
    """The tuned value is at least that of the rules tuned for other metrics, on the rows of the tuning."""
    x, y = animals(400)
    fitted = LogisticRegression().fit(x, y)
    scores, index = fitted.predict_proba(x), np.searchsorted(CLASSES, y)
    tuned = mg.tune_threshold("f_beta(beta=1/1/0.25)", scores, index, task="multiclass")
    own = macro(y, np.array(CLASSES)[np.asarray(tuned.rule(scores))])
    assert tuned.value == pytest.approx(own, rel=1e-6)
    for other in ("f1", "f_beta(beta=0.25/1/1)", "accuracy"):
        rule = mg.tune_threshold(other, scores, index, task="multiclass").rule
        assert own >= macro(y, np.array(CLASSES)[np.asarray(rule(scores))]) - 1e-9


def test_beta_of_a_binary_problem_is_that_of_the_positive_class() -> None:
    x, y = animals()
    binary = np.where(y == "dog", "dog", "none")  # sorted, "none" is the positive one
    model = mg.ThresholdedClassifier(LogisticRegression(), "f_beta", metric_params={"beta": {"none": 4}}, cv=2)
    same = mg.ThresholdedClassifier(LogisticRegression(), "f4", cv=2)
    assert model.fit(x, binary).rule_ == same.fit(x, binary).rule_
    model.set_params(metric_params={"beta": {"dog": 4}})
    with pytest.raises(ValueError, match="beta: unknown class 'dog'; the classes are none"):
        model.fit(x, binary)


# The command line


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)


@pytest.mark.usefixtures("little")
def test_compare_train_evaluate_and_tune_with_one_beta_per_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(multiclass(), tmp_path)
    out = f"{tmp_path}/run"
    asked = ["compare", data, "--target", "kind", "--metric", "f_beta", "--beta", "z=0.25,rest=1", "--jobs", "1"]
    asked += ["--repeats", "2", "--contenders", "logistic regression,hybrid,metric boosting", "--out", out]
    assert main(asked) == 0
    model = runs.load(out).model
    assert model.about["metric"] == "f_beta(beta=1/1/0.25)"
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["metric"], config["beta"]) == (["f_beta"], {"z": 0.25, "rest": 1.0})
    assert "--beta z=0.25,rest=1.0" in (tmp_path / "run" / "report.html").read_text()
    capsys.readouterr()
    assert main(["evaluate", out, data, "--json", "--replicates", "10"]) == 0
    found = json.loads(capsys.readouterr().out)["metrics"]["f_beta(beta=1/1/0.25)"]["value"]
    frame = multiclass()
    predicted = np.array(["x", "y", "z"])[model.decide(model.scores(frame))]
    expected = [
        fbeta_score(frame["kind"] == one, predicted == one, beta=beta, zero_division=0)
        for one, beta in zip("xyz", BETAS, strict=True)
    ]
    assert found == pytest.approx(np.mean(expected), rel=1e-6)
    assert main(["evaluate", out, data, "--metric", "f_beta(beta=1/2)"]) == 2
    assert "--metric: expected 3 values of beta" in capsys.readouterr().err
    assert main(["tune", out, data, "--beta", "2"]) == 2
    assert "expected --metric with them" in capsys.readouterr().err
    assert main(["tune", out, data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metric"] == "f_beta(beta=1/1/0.25)"
    assert main(["tune", out, data, "--metric", "tversky", "--alpha", "2", "--beta", "x=1,rest=0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metric"] == "tversky(alpha=2 beta=1/0.5/0.5)"
    assert runs.load(out).model.about["metric"] == "tversky(alpha=2 beta=1/0.5/0.5)"


@pytest.mark.usefixtures("little")
def test_labels_have_their_own_beta(tmp_path: Path) -> None:
    data, labels = written(multilabel(), tmp_path), "label 0,label 1,label 2"
    asked = ["train", data, "--target", labels, "--contender", "hybrid", "--metric", "f_beta", "--out", f"{tmp_path}/r"]
    assert main([*asked, "--beta", "label 1=3,rest=1"]) == 0
    assert runs.load(tmp_path / "r").model.about["metric"] == "f_beta(beta=1/3/1)"


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metric", "f_beta", "--beta", "zz=0.25,rest=1"], "--beta: unknown class 'zz'; did you mean 'z'?"),
        (["--metric", "f_beta", "--beta", "z=0.25"], "--beta: expected a number for every class, got none for 'x'"),
        (["--metric", "f_beta", "--beta", "much"], "--beta: expected a number or class=number"),
        (["--metric", "f_beta", "--beta", "x=1,x=2"], "--beta: expected every class once"),
        (["--metric", "f_beta", "--beta", "x=-1,rest=1"], "--beta: expected a number of at least 0"),
        (["--metric", "f1", "--beta", "2"], "--metric: f1 takes empty"),
        (["--metric", "f_beta", "--alpha", "2"], "--metric: f_beta takes beta, empty"),
        (["--metric", "f_beta(beta=1/2)"], "--metric: expected 3 values of beta, one per class, got 2"),
        (["--metric", "f1,f_beta(beta=1/2)"], "--metric: expected 3 values of beta, one per class, got 2"),
        (["--metric", "f_beta(beta=1/2/3)", "--average", "micro"], "average: expected 'macro', 'weighted' or None"),
        (["--metric", "os:system", "--beta", "2"], "--metric: expected the name of a metric"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(multiclass(), tmp_path)
    assert main(["compare", data, "--target", "kind", *options, "--out", f"{tmp_path}/run"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("little")
def test_forged_parameters_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = written(multiclass(), tmp_path)
    asked = ["train", data, "--target", "kind", "--contender", "majority", "--metric", "f_beta", "--beta", "2"]
    assert main([*asked, "--out", f"{tmp_path}/run"]) == 0

    def forge(text: str) -> None:
        def edit(one: Any) -> Any:
            one["rule"]["metric"] = text
            return one

        change(tmp_path / "run" / "model" / "manifest.json", edit)
        reseal(tmp_path / "run")

    for text in ("f_beta(beta=1/2)", "f_beta(beta=2 beta=3)", "f_beta(beta=__import__)"):
        forge(text)
        with pytest.raises(UserError, match="metric: "):
            _ = runs.load(tmp_path / "run").model
    forge("no_such_module:f1(beta=2)")
    assert runs.load(tmp_path / "run").model.contender == "majority"  # nothing was imported
    assert main(["evaluate", f"{tmp_path}/run", data]) == 2
    assert "may not name code" in capsys.readouterr().err


def test_runs_of_before_have_no_parameters() -> None:
    from metricgrad.comparison.options import Options, read_options

    plain = {**vars(Options("data.csv", ("y",))), "data_sha256": "0" * 64}
    del plain["beta"], plain["alpha"]
    assert read_options(plain)[0] == Options("data.csv", ("y",))
