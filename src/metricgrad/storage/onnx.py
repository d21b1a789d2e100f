"""``to_onnx``: a fitted ``MetricClassifier`` as one ONNX file, from features to labels. Needs the extra "onnx"."""

from __future__ import annotations

import json
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn, ones_like, zeros_like

from metricgrad.atomic_files import write_file
from metricgrad.core.storable import KINDS
from metricgrad.decisions.rules import Rule
from metricgrad.estimators.metric_classifier import MetricClassifier
from metricgrad.estimators.thresholded_classifier import ThresholdedClassifier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metricgrad.estimators.labels import Labels

_ACTIVATIONS: dict[type[nn.Module], str] = {nn.ReLU: "Relu", nn.Tanh: "Tanh", nn.Sigmoid: "Sigmoid"}
_NOTHING = (nn.Dropout, nn.Identity)  # when predicting


def to_onnx(
    estimator: Any,
    file: str | Path,
    *,
    dtype: Literal["float32", "float64"] = "float32",
    overwrite: bool = False,
) -> Path:
    """Write scaler, networks, their mean and the decision rule of a ``MetricClassifier`` into one ONNX file.

    Input "features" ``(rows, features)`` of ``dtype``, any number of rows; outputs "scores", what ``predict_scores``
    returns, and "labels", what ``predict`` returns. Networks are made of Sequential, Linear, BatchNorm1d, ReLU, Tanh,
    Sigmoid, Dropout and Identity. The file is run on a few rows, by onnx's own reference, before it is written.

    Parameters
    ----------
    estimator : MetricClassifier
        A fitted one.
    file : str or Path
        Where to write, in a folder that exists.
    dtype : {'float32', 'float64'}, default 'float32'
        The type of the features; take "float64" for features that are large compared with their spread, such as times
        in seconds.
    overwrite : bool, default False
        Replace a file that exists.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        If the estimator, its networks or its rule cannot be written, or the file exists.

    Examples
    --------
    >>> import tempfile
    >>> model = MetricClassifier(epochs=1, random_state=0).fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     graph = onnx.load(to_onnx(model, f"{place}/model.onnx")).graph
    >>> [output.name for output in graph.output]
    ['scores', 'labels']

    """
    if isinstance(estimator, ThresholdedClassifier):
        raise ValueError(
            "estimator: expected a MetricClassifier; convert the estimator_ of a ThresholdedClassifier with skl2onnx, "
            "and apply its rule_ to the scores"
        )
    if not isinstance(estimator, MetricClassifier):
        raise ValueError(f"estimator: expected a MetricClassifier, got {type(estimator).__name__}")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype: expected 'float32' or 'float64', got {dtype!r}")
    check_is_fitted(estimator, "networks_")
    path = Path(file)
    if not path.parent.is_dir():
        raise ValueError(f"file: expected a place in a folder that exists, got {str(path)!r}")
    if path.exists() and not overwrite:
        raise ValueError(f"file: {str(path)!r} exists; choose another, or pass overwrite=True")
    model = _make_model(estimator, np.dtype(dtype))
    onnx.checker.check_model(model, full_check=True)
    _check_against_estimator(estimator, model, dtype)
    write_file(path, model.SerializeToString())
    return path


class _Graph:
    """Nodes and constants under construction; every method returns the name of what it adds."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str, name: str | None = None, output: int = 0, **attributes: Any) -> str:
        name = name or f"{kind}_{len(self.nodes)}"
        outputs = [*(f"{name}_{i}" for i in range(output)), name]  # those before the one wanted are not used
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))
        return name

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self.constants)}"
        array = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def cast(self, x: str, dtype: Any, name: str | None = None) -> str:
        return self.add("Cast", x, name=name, to=_onnx_type(dtype))


def _make_model(estimator: MetricClassifier, dtype: Any) -> Any:
    """Return the model; as the estimator does, it scales and decides in float64 and runs the networks in float32."""
    graph = _Graph()
    labels = estimator.labels_
    x = "features"
    scaler = estimator.scaler_
    if scaler is not None:
        x = graph.cast(x, np.float64)
        if scaler.with_mean:
            x = graph.add("Sub", x, graph.constant(scaler.mean_))
        x = graph.add("Div", x, graph.constant(scaler.scale_))
    x = graph.cast(x, np.float32)
    each = [_add_network(graph, network, x, labels.task) for network in estimator.networks_]
    p = graph.add("Div", graph.add("Sum", *each), graph.constant(float(len(each)))) if len(each) > 1 else each[0]
    if labels.task == "binary":
        p = graph.add("Squeeze", p, graph.constant([1]))
    graph.cast(p, dtype, "scores")
    kind = _add_rule(graph, estimator.rule_, p, labels)
    shape: list[Any] = ["rows", *labels.scores_shape(0)[1:]]
    made = helper.make_graph(
        graph.nodes,
        "MetricClassifier",
        [helper.make_tensor_value_info("features", _onnx_type(dtype), ["rows", estimator.n_features_in_])],
        [
            helper.make_tensor_value_info("scores", _onnx_type(dtype), shape),
            helper.make_tensor_value_info("labels", kind, shape if labels.task == "multilabel" else ["rows"]),
        ],
        graph.constants,
    )
    # An opset and a format that runtimes have known since 2022.
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "metricgrad"
    model.producer_version = version("metricgrad")
    names = getattr(estimator, "feature_names_in_", None)
    notes = {"task": labels.task, "rule": repr(estimator.rule_), "classes": json.dumps(labels.classes.tolist())}
    helper.set_model_props(model, notes if names is None else notes | {"features": json.dumps(list(names))})
    return model


def _add_network(graph: _Graph, network: nn.Module, x: str, task: str) -> str:
    for name, layer in _list_layers(network):
        x = _add_layer(graph, name, layer, x)
    x = graph.cast(x, np.float64)
    return graph.add("Softmax", x, axis=1) if task == "multiclass" else graph.add("Sigmoid", x)


def _list_layers(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of nested Sequentials in order, with their names."""
    if type(module) is not nn.Sequential:
        yield name, module
        return
    for key, child in module._modules.items():  # named_children leaves out a layer that comes twice
        yield from _list_layers(child, f"{name}.{key}" if name else key)


def _add_layer(graph: _Graph, name: str, layer: Any, x: str) -> str:
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


def _add_rule(graph: _Graph, rule: Rule, p: str, labels: Labels) -> int:
    """Add the output "labels" and return its type."""
    if labels.task not in rule.tasks or not _has_onnx(type(rule)):
        known = [kind for kind in KINDS.values() if issubclass(kind, Rule) and _has_onnx(kind)]
        *most, last = (kind.__name__ for kind in sorted(known, key=lambda kind: "multiclass" in kind.tasks))
        names = f"{', '.join(most)} or {last}"
        raise ValueError(f"rule_: expected a {names} that fits {labels.task}, got {rule!r}")
    index = rule.to_onnx(graph, p, len(labels.classes))
    if labels.task == "multilabel":
        graph.cast(index, np.int64, "labels")
        return TensorProto.INT64
    if labels.task == "binary":
        index = graph.cast(index, np.int64)
    classes = _convert_classes(labels.classes)
    graph.add("Gather", graph.constant(classes), index, name="labels")
    return _onnx_type(classes.dtype)


def _has_onnx(kind: type[Rule]) -> bool:
    return kind.to_onnx is not Rule.to_onnx


def _convert_classes(classes: Any) -> Any:
    """Return the classes as a type that ONNX has."""
    if classes.dtype.kind in "bf":
        return classes
    if classes.dtype.kind in "iu":
        return classes.astype(np.int64)
    if all(isinstance(name, str) for name in classes):
        return classes.astype(object)
    raise ValueError(f"classes_: expected numbers, bools or texts, got {classes.tolist()}")


def _onnx_type(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _check_against_estimator(estimator: MetricClassifier, model: Any, dtype: str) -> None:
    """Refuse a graph that is not the estimator: a hook of the user's, say, is in the networks and not in it."""
    x = np.random.default_rng(0).normal(size=(8, estimator.n_features_in_))
    if estimator.scaler_ is not None:
        x = estimator.scaler_.inverse_transform(x)
    x = x.astype(dtype)
    reference: Any = ReferenceEvaluator(model)
    (found,) = reference.run(["scores"], {"features": x})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows without feature names
        apart = np.abs(found - estimator.predict_scores(x)).max()
    if not apart < 1e-5:
        raise ValueError(
            f"model: expected layers without hooks, got networks {apart:.2g} apart from their layers alone"
        )
