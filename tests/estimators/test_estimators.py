"""Estimators behave as scikit-learn's do, train on the metric, and tune their rule on rows they did not train on."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification, make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.metadata_routing import MetadataRouter
from torch import nn

import metricgrad as mg
from metricgrad.decisions import Argmax, Offsets, Threshold, TopK
from metricgrad.training.networks import mlp
from metricgrad.training.training_loop import TrainingData, TrainingSettings, train

SPLIT_INSIDE = "rows are split inside: weighing a row is not repeating it, since repeated rows are split apart"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": SPLIT_INSIDE,
    "check_sample_weight_equivalence_on_sparse_data": SPLIT_INSIDE,
}
QUICK: dict[str, Any] = {"epochs": 15, "random_state": 0, "cv": None, "monitor": "metric"}


@parametrize_with_checks(
    [mg.MetricClassifier(epochs=40, cv=2, random_state=0), mg.ThresholdedClassifier(LogisticRegression())],
    expected_failed_checks=lambda e: EXPECTED if isinstance(e, mg.MetricClassifier) else {},
)  # type: ignore[untyped-decorator]
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own, on the data of its checks
        check(estimator)


def imbalanced(n: int = 1500, seed: int = 0) -> tuple[Any, Any]:
    X, y = make_classification(n, 10, n_informative=5, weights=[0.9], class_sep=0.8, flip_y=0.02, random_state=seed)
    return X, y


def test_binary_with_names_for_labels() -> None:
    X, y = imbalanced()
    names = np.where(y == 1, "ill", "well")
    a, b, y_a, y_b = train_test_split(X, names, random_state=0)
    model = mg.MetricClassifier("f1", **QUICK).fit(a, y_a)
    assert list(model.classes_) == ["ill", "well"]
    assert set(model.predict(b)) <= {"ill", "well"}
    assert model.predict_proba(b).shape == (len(b), 2)
    assert f1_score(y_b, model.predict(b), pos_label="well") > 0.9


def test_metric_training_beats_cross_entropy_at_one_half() -> None:
    X, y = make_classification(4000, 10, weights=[0.93], class_sep=0.6, flip_y=0.02, random_state=1)
    a, b, y_a, y_b = train_test_split(X, y, random_state=0)
    options: dict[str, Any] = {"rule": "fixed", "model": "linear", "learning_rate": 0.03, **QUICK, "monitor": "loss"}
    plain, metric = (mg.MetricClassifier(loss=loss, **options).fit(a, y_a) for loss in ("cross-entropy", "metric"))
    assert f1_score(y_b, metric.predict(b)) > f1_score(y_b, plain.predict(b)) + 0.02


@pytest.mark.parametrize("cv", [None, 3])
def test_the_rule_is_tuned_on_rows_left_out(cv: int | None) -> None:
    X, y = imbalanced()
    model: Any = mg.MetricClassifier("f1", loss="cross-entropy", **QUICK | {"cv": cv}).fit(X, y)
    assert model.tuning_ is not None
    assert len(model.networks_) == (cv or 1)
    assert len(model.tuning_._batch.logits) == (len(X) if cv else round(0.2 * len(X)))
    assert model.rule_ == model.tuning_.rule
    scores = model.predict_scores(X)
    np.testing.assert_array_equal(model.predict(X), scores >= model.rule_.threshold)
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X).argmax(1))


def test_few_positives_are_tuned_on_with_a_caution() -> None:
    X, y = imbalanced(200)
    model: Any = mg.MetricClassifier(**QUICK).fit(X, y)
    assert "not to be trusted" in model.tuning_.caution
    assert model.tuning_.origins == ["own"]
    assert model.rule_ == model.tuning_.rule


def test_multiclass_and_its_probabilities() -> None:
    X, y = load_iris(return_X_y=True)
    model = mg.MetricClassifier("mcc", epochs=60, random_state=0, cv=3).fit(X, y)
    assert model.score(X, y) > 0.9
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_array_equal(p.argmax(1), model.predict(X))
    assert isinstance(model.rule_, Offsets | Argmax)


def test_multilabel() -> None:
    X, y = make_multilabel_classification(800, n_classes=4, random_state=0)
    model: Any = mg.MetricClassifier("f1", **QUICK).fit(X[:600], y[:600])
    predicted = model.predict(X[600:])
    assert predicted.shape == (200, 4)
    assert model.predict_proba(X[600:]).shape == (200, 4)
    assert f1_score(y[600:], predicted, average="macro") > 0.6
    assert len(model.rule_.threshold) == 4
    np.testing.assert_array_equal(predicted, model.predict_proba(X[600:]) > 0.5)
    top = clone(model).set_params(rule=TopK(2)).fit(X[:600], y[:600])
    np.testing.assert_array_equal(top.predict(X[600:]).sum(1), 2)


def test_equal_bit_for_bit_whatever_the_jobs_and_the_random_state_outside() -> None:
    X, y = imbalanced(600)
    torch.manual_seed(1)
    one = mg.MetricClassifier(cv=2, dropout=0.2, epochs=4, random_state=7).fit(X, y)
    after = torch.rand(())
    torch.manual_seed(1)
    assert torch.rand(()) == after
    two = mg.MetricClassifier(cv=2, dropout=0.2, epochs=4, random_state=7, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.predict_scores(X), two.predict_scores(X))
    assert one.rule_ == two.rule_


def test_frames_sparse_and_dense_agree() -> None:
    X, y = imbalanced(400)
    X = np.where(np.abs(X) < 0.5, 0, X)
    names = [f"x{i}" for i in range(X.shape[1])]
    options: dict[str, Any] = {"scale": False, "epochs": 4, "random_state": 0}
    dense = mg.MetricClassifier(**options).fit(X, y).predict_scores(X)
    for given in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)):
        model = mg.MetricClassifier(**options).fit(given, y)
        assert list(model.feature_names_in_) == names
        np.testing.assert_array_equal(model.predict_scores(given), dense)
    sparse = mg.MetricClassifier(**options).fit(sp.csr_matrix(X), y).predict_scores(sp.csr_matrix(X))
    np.testing.assert_allclose(sparse, dense, atol=1e-6)


def test_pipelines_searches_validation_clone_and_pickle() -> None:
    X, y = imbalanced(500)
    pipe = make_pipeline(MinMaxScaler(), mg.MetricClassifier(epochs=3, random_state=0))
    search = GridSearchCV(pipe, {"metricclassifier__metric_weight": [0.3, 1.0]}, cv=2, scoring="f1").fit(X, y)
    assert search.best_params_["metricclassifier__metric_weight"] in (0.3, 1.0)
    assert len(cross_validate(pipe, X, y, cv=2, scoring="average_precision")["test_score"]) == 2
    again = pickle.loads(pickle.dumps(search.best_estimator_))  # noqa: S301
    np.testing.assert_array_equal(again.predict(X), search.predict(X))


def test_partial_fit_and_warm_start_go_on() -> None:
    X, y = imbalanced(800)
    model = mg.MetricClassifier(random_state=0, learning_rate=0.01)
    for _ in range(20):
        for start in range(0, 800, 200):
            model.partial_fit(X[start : start + 200], y[start : start + 200], classes=[0, 1])
    assert model.rule_ == Threshold(0.5)
    assert f1_score(y, model.predict(X)) > 0.5
    warm = mg.MetricClassifier(warm_start=True, epochs=1, learning_rate=1e-9, random_state=0).fit(X, y)
    before = [p.clone() for p in warm.networks_[0].parameters()]
    warm.fit(X, y)
    for old, new in zip(before, warm.networks_[0].parameters(), strict=True):
        torch.testing.assert_close(old, new, rtol=0, atol=1e-5)


def test_weights_and_class_weights_count() -> None:
    X, y = imbalanced(600)
    options: dict[str, Any] = {
        "loss": "cross-entropy",
        "rule": "fixed",
        "model": "linear",
        "learning_rate": 0.05,
        **QUICK,
        "monitor": "loss",
    }
    plain = mg.MetricClassifier(**options).fit(X, y).predict_scores(X).mean()
    heavy = mg.MetricClassifier(class_weight="balanced", **options).fit(X, y).predict_scores(X).mean()
    same = mg.MetricClassifier(**options).fit(X, y, sample_weight=np.where(y == 1, 5.0, 0.5)).predict_scores(X).mean()
    assert heavy > plain + 0.1
    assert same > plain + 0.1


def test_balance_trains_but_does_not_judge_and_named_weights_decide() -> None:
    X, y = imbalanced(600)
    options: dict[str, Any] = {"loss": "cross-entropy", "model": "mlp", **QUICK}
    balanced: Any = mg.MetricClassifier(class_weight="balanced", **options).fit(X, y)
    assert balanced.history_["value"].max() == pytest.approx(balanced.tuning_.value)
    named = mg.MetricClassifier(class_weight={0: 1.0, 1: 50.0}, **options).fit(X, y)
    assert (named.rule_, named.tuning_) == (Threshold(0.5), None)
    assert named.predict(X).mean() > 2 * balanced.predict(X).mean()


def test_own_modules_and_losses() -> None:
    X, y = imbalanced(400)

    def wide(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 50), nn.Tanh(), nn.Linear(50, outputs))

    module = mlp(10, 1, (4,))
    before = [p.clone() for p in module.parameters()]
    for model in (wide, module, (8, 8)):
        fitted = mg.MetricClassifier(model=model, loss=mg.baselines.focal(), epochs=3, random_state=0).fit(X, y)
        assert fitted.predict(X).shape == (400,)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True)), "it is copied"


def test_history_is_a_frame_and_the_best_epoch_is_restored() -> None:
    X, y = imbalanced(800)
    model = mg.MetricClassifier(cv=2, epochs=6, random_state=0).fit(X, y)
    assert list(model.history_.columns) == ["network", "epoch", "loss", "value"]
    assert set(model.history_.network) == {0, 1}

    data = TrainingData(torch.randn(64, 2), (torch.rand(64) < 0.5).float())
    network = mlp(2, 1, ())
    values = iter([0.1, 0.9, 0.2, 0.3])
    seen: list[Any] = []

    def judge(model: nn.Module) -> tuple[float, ...]:
        seen.append([p.clone() for p in model.parameters()])
        return (next(values),)

    history = train(network, mg.MetricLoss("f1"), data, TrainingSettings(epochs=10, patience=2), judge)
    assert len(history) == 4
    for kept, best in zip(network.parameters(), seen[1], strict=True):
        torch.testing.assert_close(kept, best)


def test_batches_are_stratified() -> None:
    y = torch.zeros(1000)
    y[:20] = 1
    counts: list[float] = []

    class Watch(nn.Module):
        def forward(self, z: Any, y: Any, w: Any) -> Any:
            counts.append(float(y.sum()))
            return z.sum() * 0

    train(mlp(1, 1, ()), Watch(), TrainingData(torch.zeros(1000, 1), y), TrainingSettings(epochs=3, batch_size=100))
    assert len(counts) == 30
    assert min(counts) >= 1
    assert max(counts) <= 3


def test_converged_softmax_regression_satisfies_the_moment_constraints() -> None:
    # The maximum-entropy classifier: Σ p(class | x) x = Σ [y = class] x for every class [npfl129].
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    y = np.where(np.arange(len(y)) % 5 == 0, (y + 1) % 3, y)  # not separable, or it would not converge
    x, t = torch.tensor(X), torch.tensor(y)
    network = nn.Linear(4, 3).double()
    optimiser = torch.optim.LBFGS(network.parameters(), max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16)

    def closure() -> Any:
        optimiser.zero_grad()
        loss = mg.baselines.cross_entropy()(network(x), t)
        loss.backward()
        return loss

    optimiser.step(closure)
    p = network(x).softmax(1).detach()
    hot = torch.nn.functional.one_hot(t, 3).double()
    torch.testing.assert_close(p.T @ x, hot.T @ x, rtol=0, atol=1e-5)
    torch.testing.assert_close(p.sum(0), hot.sum(0), rtol=0, atol=1e-5)


# ThresholdedClassifier


def test_thresholded_equals_tuning_on_cross_fitted_scores() -> None:
    X, y = imbalanced()
    base = LogisticRegression()
    model: Any = mg.ThresholdedClassifier(base, "f1", cv=4).fit(X, y)
    scores = cross_val_predict(base, X, y, cv=4, method="predict_proba")[:, 1]
    assert model.rule_ == mg.tune_threshold("f1", scores, y).rule
    fitted = base.fit(X, y).predict_proba(X)[:, 1]
    np.testing.assert_array_equal(model.predict(X), fitted >= model.rule_.threshold)


def test_thresholded_prefit_multilabel_multiclass_and_decision_functions() -> None:
    X, y = make_multilabel_classification(600, n_classes=3, random_state=0)
    forest = RandomForestClassifier(20, random_state=0).fit(X[:300], y[:300])
    model = mg.ThresholdedClassifier(forest, "f1", cv="prefit").fit(X[300:], y[300:])
    assert model.estimator_ is forest
    better = f1_score(y[300:], model.predict(X[300:]), average="macro")
    assert better >= f1_score(y[300:], forest.predict(X[300:]), average="macro")
    X, y = load_iris(return_X_y=True)
    many = mg.ThresholdedClassifier(LogisticRegression(max_iter=500), "f1", cv=3).fit(X, y)
    assert many.score(X, y) > 0.9
    X, y = imbalanced()
    ridge = mg.ThresholdedClassifier(RidgeClassifier(), "f1").fit(X, y)
    assert not hasattr(ridge, "predict_proba")
    assert f1_score(y, ridge.predict(X)) > f1_score(y, RidgeClassifier().fit(X, y).predict(X))


def test_labels_of_few_samples_share_a_threshold() -> None:
    X, y = make_multilabel_classification(300, n_classes=3, random_state=0)
    for k in (1, 2):
        y[:, k] = y[:, k] * (np.arange(300) % 10 == k)  # too few to tune on
    for estimator in (RidgeClassifier(), RandomForestClassifier(5, random_state=0)):
        model: Any = mg.ThresholdedClassifier(estimator, "f1", cv=2).fit(X, y)
        assert model.tuning_.origins == ["own", "pooled", "pooled"]
        assert model.rule_ == model.tuning_.rule
        assert model.rule_.threshold[1] == model.rule_.threshold[2] != model.rule_.threshold[0]


def test_thresholded_constraint_is_met_on_the_scores_it_was_tuned_on() -> None:
    X, y = imbalanced()
    model: Any = mg.ThresholdedClassifier(LogisticRegression(), "recall", subject_to="precision>=0.8").fit(X, y)
    scores = cross_val_predict(LogisticRegression(), X, y, cv=5, method="predict_proba")[:, 1]
    found = mg.evaluate(scores, y, "precision", threshold=model.rule_.threshold)
    assert found["precision"] >= 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "focal"}, "loss: expected 'hybrid', 'metric', 'cross-entropy' or a module, got 'focal'"),
        ({"model": "huge"}, "model: expected one of 'linear', 'mlp', 'mlp-large'"),
        ({"rule": "best"}, "rule: expected 'tuned', 'fixed' or a rule"),
        ({"metric": "f-one"}, "metric: unknown name 'f-one'"),
        ({"monitor": "auc"}, "monitor: expected 'metric' or 'loss', got 'auc'"),
        ({"epochs": 0}, "epochs: expected a number of at least 1, got 0"),
        ({"optimiser": "lion"}, "optimiser: expected one of 'adamw', 'adam', 'sgd', got 'lion'"),
        ({"cv": None, "validation_fraction": 1.5}, r"validation_fraction: expected a number in \(0, 1\), got 1.5"),
        ({"cv": 1}, "cv: expected a number of at least 2, a splitter or None, got 1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    X, y = imbalanced(100)
    with pytest.raises(ValueError, match=message):
        mg.MetricClassifier(**options).fit(X, y)


def test_unknown_classes_are_refused_later() -> None:
    X, y = imbalanced(100)
    model = mg.MetricClassifier(random_state=0).partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"y: expected the classes \[.*\], got also"):
        model.partial_fit(X, y + 1)


class Weighted(LogisticRegression):  # type: ignore[misc]
    """Remembers the sum of the weights that it was fitted with."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.sum_of_weights_ = None if sample_weight is None else float(np.sum(sample_weight))
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("requested", [True, False])
def test_metadata_routing_sends_weights_where_they_are_requested(requested: bool) -> None:
    X, y = imbalanced(600)
    weight = np.where(y == 1, 5.0, 1.0)
    plain = mg.ThresholdedClassifier(LogisticRegression(), "f1", cv=3).fit(X, y, sample_weight=weight)
    with config_context(enable_metadata_routing=True):
        inner = Weighted().set_fit_request(sample_weight=requested)
        model = mg.ThresholdedClassifier(inner, "f1", cv=3).set_fit_request(sample_weight=True)
        assert isinstance(model.get_metadata_routing(), MetadataRouter)
        model.fit(X, y, sample_weight=weight)
        assert model.estimator_.sum_of_weights_ == (weight.sum() if requested else None)
        assert (model.rule_ == plain.rule_) == requested
        model.set_score_request(sample_weight=False)
        search = GridSearchCV(model, {"estimator__C": [1.0]}, cv=2).fit(X, y, sample_weight=weight)
        assert search.best_estimator_.rule_ == model.rule_


def test_metadata_routing_refuses_what_nobody_decided_about() -> None:
    X, y = imbalanced(200)
    with config_context(enable_metadata_routing=True), pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        mg.ThresholdedClassifier(LogisticRegression(), cv=2).fit(X, y, sample_weight=np.ones(200))


@pytest.mark.parametrize(
    "kind",
    [mg.MetricClassifier, mg.MetricBoostingClassifier, mg.MetricEnsembleClassifier, mg.ThresholdedClassifier],
)
def test_the_diagram_of_an_estimator_leads_to_its_section(kind: Any) -> None:
    model = kind(LogisticRegression()) if kind is mg.ThresholdedClassifier else kind()
    page, anchor = model._get_doc_link().split("#")
    text = (Path(__file__).parents[2] / page).read_text()
    headings = re.findall(r"^## `?(\w+)`?$", text, re.MULTILINE)
    assert anchor in [heading.lower() for heading in headings]
    assert model._get_doc_link() in model._repr_html_()
