"""Fitted estimators as ONNX operators: what they compute from features, up to the scores that a rule decides on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    RidgeClassifier,
    RidgeClassifierCV,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from torch import nn, ones_like, zeros_like

from metricgrad.estimators.cross_fitting import flatten_models
from metricgrad.estimators.metric_boosting_classifier import MetricBoostingClassifier
from metricgrad.estimators.metric_classifier import MetricClassifier
from metricgrad.estimators.metric_ensemble_classifier import MetricEnsembleClassifier
from metricgrad.estimators.table_encoder import TableEncoder
from metricgrad.estimators.thresholded_classifier import ThresholdedClassifier
from metricgrad.storage.onnx_tables import TableInputs, add_given_matrix
from metricgrad.storage.onnx_tabm import add_member_logits
from metricgrad.storage.onnx_trees import add_boosted_trees, add_forest
from metricgrad.training.tabm import TabM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from metricgrad.estimators.candidates import View
    from metricgrad.estimators.columns.column import Column
    from metricgrad.estimators.labels import Labels
    from metricgrad.storage.onnx_graph import Graph

_ACTIVATIONS: dict[type[nn.Module], str] = {nn.ReLU: "Relu", nn.Tanh: "Tanh", nn.Sigmoid: "Sigmoid"}
_NOTHING = (nn.Dropout, nn.Identity)  # when predicting


class GivenRows:
    """The rows as ``predict`` gets them: a matrix, or a table with an input for each column."""

    def __init__(self, graph: Graph, columns: tuple[Column, ...] | None = None) -> None:
        self.graph = graph
        self.columns = columns

    def add_matrix(self, estimator: Any) -> str:
        """Add the features of an estimator that takes numbers."""
        if self.columns is not None:
            return add_given_matrix(self.graph, self.columns)
        return self.graph.add_input("features", self.graph.dtype, estimator.n_features_in_)


def find_columns(estimator: Any) -> tuple[Column, ...] | None:
    """Return the columns of the table that an estimator takes, or None if it takes a matrix."""
    if isinstance(estimator, ThresholdedClassifier):
        return find_columns(estimator.estimator_)
    if isinstance(estimator, Pipeline):
        return find_columns(estimator.steps[0][1])
    if isinstance(estimator, MetricEnsembleClassifier):
        models = (model for member in estimator.members_ for model in flatten_models(member.models))
        return find_columns(estimator.encoder_ or next(models))
    return estimator.columns_ if isinstance(estimator, TableEncoder) else None


# The estimators of this library: scores in float64, (rows,), (rows, classes) or (rows, labels)


def add_scores(graph: Graph, estimator: Any, rows: GivenRows) -> str:
    """Add the scores of one of this library's estimators, as ``predict_scores`` returns them."""
    return _SCORES[type(estimator)](graph, estimator, rows)


def _add_network_scores(graph: Graph, estimator: MetricClassifier, rows: GivenRows) -> str:
    x = rows.add_matrix(estimator)
    return _score_by_networks(graph, estimator, x)


def _add_boosting_scores(graph: Graph, estimator: MetricBoostingClassifier, rows: GivenRows) -> str:
    x = rows.add_matrix(estimator)
    return _score_by_boosters(graph, estimator, x)


def _add_ensemble_scores(graph: Graph, estimator: MetricEnsembleClassifier, rows: GivenRows) -> str:
    views = _Views(graph, estimator, rows)
    weighted = []
    for member in estimator.members_:
        try:
            each = [_add_probabilities(graph, model, views, member.view, estimator.labels_) for model in member.models]
        except ValueError as error:
            raise ValueError(f"member {member.name!r} cannot be exported: {error}") from error
        weighted.append(graph.add("Mul", graph.average(each), graph.constant(member.weight)))
    return graph.add("Sum", *weighted)


def _add_thresholded_scores(graph: Graph, estimator: ThresholdedClassifier, rows: GivenRows) -> str:
    inner = estimator.estimator_
    if estimator._find_method() == "predict_proba":
        return _take_scores(graph, _add_classes(graph, inner, rows), inner, estimator.labels_)
    steps, last = _split_pipeline(inner)
    if type(last) not in _LINEAR:
        raise _refuse(last, _LINEAR)
    decision = _add_decision(graph, last, _add_steps(graph, steps, last, rows))
    return graph.take_columns(decision, 0) if estimator.labels_.task == "binary" else decision


_SCORES: dict[type, Callable[..., str]] = {
    MetricClassifier: _add_network_scores,
    MetricBoostingClassifier: _add_boosting_scores,
    MetricEnsembleClassifier: _add_ensemble_scores,
    ThresholdedClassifier: _add_thresholded_scores,
}
EXPORTED = tuple(_SCORES)
"""The estimators of this library that can be exported."""


class _Views:
    """The features as the members of an ensemble see them; each view is added once."""

    def __init__(self, graph: Graph, estimator: MetricEnsembleClassifier, rows: GivenRows) -> None:
        self.graph = graph
        self.rows = rows
        self.estimator = estimator
        self.encoder = estimator.encoder_
        self._table = TableInputs(graph, self.encoder) if isinstance(self.encoder, TableEncoder) else None
        self._scaled: str | None = None

    def add(self, view: View) -> Any:
        """Add what the models of a view see: a matrix, or the rows as they are given."""
        if view == "given":
            return self.rows
        if self._table is not None:
            return self._table.add_view(view)
        given = self.rows.add_matrix(self.estimator)
        if view == "trees":
            return given
        if self._scaled is None:
            steps, last = _split_pipeline(self.encoder.scaler)
            self._scaled = given
            for step in (*steps, last):
                self._scaled = _add_step(self.graph, step, self._scaled)
        return self._scaled


# The models of members: as cross_fitting.predict_probabilities returns their scores


def _add_probabilities(graph: Graph, model: Any, views: _Views, view: View, labels: Labels) -> str:
    """Add what a model of a member says: ``(rows,)``, ``(rows, classes)`` or ``(rows, labels)``."""
    x = views.add(view)
    if not isinstance(model, list):
        return _score_model(graph, model, x, labels)
    found: dict[int, str] = {}
    for place, one in enumerate(model):
        if not isinstance(one, float):
            found[place] = _take_classes(graph, _add_classes(graph, one, x), one.classes_, np.array([1]))
    if not found:
        raise ValueError("model: expected a label with two values, got none")
    some = next(iter(found.values()))
    # A label that had one value only is that number.
    return graph.concatenate([found.get(place) or graph.repeat_row([one], some) for place, one in enumerate(model)])


def _score_model(graph: Graph, model: Any, x: Any, labels: Labels) -> str:
    if type(model) in (MetricClassifier, MetricBoostingClassifier):
        matrix = x.add_matrix(model) if isinstance(x, GivenRows) else x
        add = _score_by_networks if isinstance(model, MetricClassifier) else _score_by_boosters
        return add(graph, model, matrix)
    return _take_scores(graph, _add_classes(graph, model, x), model, labels)


def _take_scores(graph: Graph, found: str, model: Any, labels: Labels) -> str:
    """Take the scores of a task from the probabilities of a model's classes."""
    if labels.task == "multilabel":
        return found
    if labels.task == "multiclass":
        return _take_classes(graph, found, model.classes_, labels.classes)
    return graph.take_columns(_take_classes(graph, found, model.classes_, labels.classes[1:]), 0)


def _take_classes(graph: Graph, found: str, known: Any, wanted: Any) -> str:
    """Take the columns of the wanted classes; one that the model does not know has 0 everywhere."""
    places = [np.flatnonzero(np.asarray(known) == one) for one in wanted]
    if all(len(place) for place in places):
        in_order = [int(place[0]) for place in places]
        return found if in_order == list(range(len(known))) else graph.take_columns(found, in_order)
    zeros = graph.repeat_row([0.0], found)
    with_zeros = graph.concatenate([found, zeros])
    return graph.take_columns(with_zeros, [int(place[0]) if len(place) else len(known) for place in places])


def _add_classes(graph: Graph, model: Any, x: Any) -> str:
    """Add ``predict_proba`` of a classifier of scikit-learn: of each class, or of each label."""
    steps, last = _split_pipeline(model)
    if type(last) not in _CLASSES:
        raise _refuse(last, _CLASSES)
    matrix = _add_steps(graph, steps, last, x)
    return _CLASSES[type(last)](graph, last, matrix)


def _split_pipeline(model: Any) -> tuple[list[Any], Any]:
    """Return the steps of a pipeline before the last one, and the last one."""
    if type(model) is not Pipeline:
        return [], model
    steps: list[Any] = [step for _, step in model.steps if step != "passthrough" and step is not None]
    return steps[:-1], steps[-1]


def _add_steps(graph: Graph, steps: list[Any], last: Any, x: Any) -> str:
    """Add the steps of a pipeline before the last one."""
    steps = list(steps)
    if isinstance(x, GivenRows):
        if steps and type(steps[0]) is TableEncoder:
            encoder = steps.pop(0)
            x = TableInputs(graph, encoder).add_view(encoder.output)
        else:
            x = x.add_matrix(steps[0] if steps else last)
    for step in steps:
        x = _add_step(graph, step, x)
    return str(x)


def _add_step(graph: Graph, step: Any, x: str) -> str:
    """Add a transformer of numbers."""
    if type(step) is StandardScaler:
        return _add_scaler(graph, step, x)
    if type(step) is SimpleImputer and not step.add_indicator and np.isnan(step.missing_values):
        statistics = np.asarray(step.statistics_, np.float64)
        if not np.isnan(statistics).any():  # a column that was wholly missing is left out
            x = graph.cast(x, np.float64)
            return graph.add("Where", graph.add("IsNaN", x), graph.constant(statistics), x)
    raise _refuse(step, (TableEncoder, StandardScaler, SimpleImputer))


def _add_scaler(graph: Graph, scaler: StandardScaler, x: str) -> str:
    x = graph.cast(x, np.float64)
    if scaler.with_mean:
        x = graph.add("Sub", x, graph.constant(scaler.mean_))
    return graph.add("Div", x, graph.constant(scaler.scale_)) if scaler.with_std else x


def _add_logistic(graph: Graph, model: Any, x: str) -> str:
    decision = _add_decision(graph, model, x)
    if len(model.classes_) > 2:
        return graph.add("Softmax", decision, axis=1)
    positive = graph.add("Sigmoid", decision)
    return graph.concatenate([graph.add("Sub", graph.constant(1.0), positive), positive])


def _add_decision(graph: Graph, model: Any, x: str) -> str:
    """Add the decision function of a linear model, ``(rows, classes)``; of two classes one."""
    weights = np.atleast_2d(np.asarray(model.coef_, np.float64)).T
    products = graph.add("MatMul", graph.cast(x, np.float64), graph.constant(np.ascontiguousarray(weights)))
    return graph.add("Add", products, graph.constant(np.atleast_1d(np.asarray(model.intercept_, np.float64))))


def _add_trees(graph: Graph, model: Any, x: str) -> str:
    trees = getattr(model, "estimators_", [model])
    if model.n_outputs_ == 1:
        return add_forest(graph, trees, x, lambda tree: tree.value[:, 0, : len(model.classes_)])
    places = [np.flatnonzero(classes == 1) for classes in model.classes_]

    def take_positive(tree: Any) -> np.ndarray:
        nothing = np.zeros(tree.node_count)  # a label that was never there
        columns = [tree.value[:, k, at[0]] if len(at) else nothing for k, at in enumerate(places)]
        return np.column_stack(columns)

    return add_forest(graph, trees, x, take_positive)


def _add_prior(graph: Graph, model: DummyClassifier, x: str) -> str:
    if model.strategy != "prior":
        raise ValueError(f"model: expected strategy='prior' of a DummyClassifier, got {model.strategy!r}")
    if model.n_outputs_ == 1:
        return graph.repeat_row(model.class_prior_, x)
    of_labels = zip(model.class_prior_, model.classes_, strict=True)
    return graph.repeat_row([prior[classes == 1].sum() for prior, classes in of_labels], x)


_LINEAR: tuple[type, ...] = (LogisticRegression, LogisticRegressionCV, RidgeClassifier, RidgeClassifierCV, LinearSVC)
_CLASSES: dict[type, Callable[..., str]] = {
    LogisticRegression: _add_logistic,
    LogisticRegressionCV: _add_logistic,
    RandomForestClassifier: _add_trees,
    ExtraTreesClassifier: _add_trees,
    DecisionTreeClassifier: _add_trees,
    ExtraTreeClassifier: _add_trees,
    DummyClassifier: _add_prior,
}


def _refuse(got: Any, known: Any) -> ValueError:
    """Return the error about an estimator that has no ONNX form here."""
    *most, last = [*dict.fromkeys(kind.__name__ for kind in known), "a Pipeline of these"]
    return ValueError(f"model: expected {', '.join(most)} or {last}, got {type(got).__name__}")


# Boosted trees


def _score_by_boosters(graph: Graph, estimator: MetricBoostingClassifier, x: str) -> str:
    labels = estimator.labels_
    if estimator.categories_:
        names = getattr(estimator, "feature_names_in_", None)
        first = min(estimator.categories_)
        column = first if names is None else names[first]
        raise ValueError(f"column {column!r}: expected numbers, got categories of a frame; see TableEncoder")
    each = []
    for booster in estimator.boosters_:
        is_xgboost = estimator.backend_ == "xgboost"
        data = bytes(booster.save_raw("json")) if is_xgboost else estimator._library.dump(booster)
        logits = add_boosted_trees(graph, estimator.backend_, data, labels.outputs, x)
        start = np.asarray(estimator.base_score_)
        if is_xgboost and not start.ndim:
            start = start.astype(np.float32)  # as numpy adds a number to float32
        else:
            logits = graph.cast(logits, np.float64)
        logits = graph.add("Add", logits, graph.constant(start))
        each.append(_add_link(graph, graph.cast(logits, np.float64), labels.task))
    return _drop_column(graph, graph.average(each), labels)


def _add_link(graph: Graph, logits: str, task: str) -> str:
    return graph.add("Softmax", logits, axis=-1) if task == "multiclass" else graph.add("Sigmoid", logits)


def _drop_column(graph: Graph, p: str, labels: Labels) -> str:
    """Turn the only column of a binary problem into a vector."""
    return graph.add("Squeeze", p, graph.constant([1])) if labels.task == "binary" else p


# Networks


def _score_by_networks(graph: Graph, estimator: MetricClassifier, x: str) -> str:
    """Add the mean of the networks; as the estimator does, it scales in float64 and runs them in float32."""
    if estimator.scaler_ is not None:
        x = _add_scaler(graph, estimator.scaler_, x)
    x = graph.cast(x, np.float32)
    each = [_add_network(graph, network, x, estimator.labels_.task) for network in estimator.networks_]
    return _drop_column(graph, graph.average(each), estimator.labels_)


def _add_network(graph: Graph, network: nn.Module, x: str, task: str) -> str:
    if type(network) is TabM:
        logits = add_member_logits(graph, network, x)
        of_each_member = _add_link(graph, graph.cast(logits, np.float64), task)
        return graph.add("ReduceMean", of_each_member, axes=[1], keepdims=0)
    for name, layer in _list_layers(network):
        x = _add_layer(graph, name, layer, x)
    return _add_link(graph, graph.cast(x, np.float64), task)


def _list_layers(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of nested Sequentials in order, with their names."""
    if type(module) is not nn.Sequential:
        yield name, module
        return
    for key, child in module._modules.items():  # named_children leaves out a layer that comes twice
        yield from _list_layers(child, f"{name}.{key}" if name else key)


def _add_layer(graph: Graph, name: str, layer: Any, x: str) -> str:
    kind = type(layer)  # not isinstance: a subclass may do anything
    if kind in _NOTHING:
        return x
    if kind in _ACTIVATIONS:
        return graph.add(_ACTIVATIONS[kind], x)
    if kind is nn.Linear:
        parts = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
        return graph.add("Gemm", x, *map(graph.constant, parts), transB=1)
    if kind is nn.BatchNorm1d and layer.running_mean is not None:
        mean = layer.running_mean
        variance = layer.running_var
        scale, shift = (layer.weight, layer.bias) if layer.affine else (ones_like(mean), zeros_like(mean))
        parts = [scale, shift, mean, variance]
        return graph.add("BatchNormalization", x, *map(graph.constant, parts), epsilon=layer.eps)
    known = ", ".join(one.__name__ for one in (nn.Sequential, nn.Linear, nn.BatchNorm1d, *_ACTIVATIONS, *_NOTHING))
    where = f"{kind.__name__} at {name!r}" if name else kind.__name__
    raise ValueError(f"model: expected layers of {known}, got {where}; for others see torch.onnx.export")
