"""Forests of scikit-learn in files: nodes as safetensors, the rest as JSON.

skops could write them too, but takes many times as long, and imports all of scikit-learn. Here every node is checked
before scikit-learn, which follows nodes without looking, gets to see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import numpy as np
import safetensors.numpy
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree._tree import NODE_DTYPE, Tree

from metricgrad import strict_json
from metricgrad.storage import folders
from metricgrad.storage.values import NotPlainError, decode, encode
from metricgrad.strict_json import Range, first_line

if TYPE_CHECKING:
    from metricgrad.storage.folders import Files

_FORESTS: dict[str, Any] = {kind.__name__: kind for kind in (RandomForestClassifier, ExtraTreesClassifier)}
_ATTRIBUTES = {
    *("n_features_in_", "feature_names_in_", "n_outputs_", "classes_", "n_classes_", "estimator_", "estimators_"),
    *("_n_samples", "_n_samples_bootstrap", "_sample_weight"),
}
"""What a fitted forest has besides its parameters; one with more is not written here."""

Count = Annotated[int, Range(1, 10**9)]


class SavedTree(TypedDict):
    """A tree without its nodes."""

    seed: Annotated[int, Range(0, 2**32)]
    nodes: Count
    depth: Annotated[int, Range(0, 10**9)]


class SavedForest(TypedDict):
    """A forest without its nodes; ``classes``: an array, or of several labels a list of these."""

    kind: str
    parameters: Any
    features: Count
    feature_names: Any
    classes: Any
    tried_features: Count
    trees: list[SavedTree]


class SavedForests(TypedDict):
    """Forests, one per fold."""

    forests: list[SavedForest]


def write_models(models: list[Any], name: str) -> Files | None:
    """Return the files of a member, or None if it is anything else than forests as they are by default."""
    if not all(_FORESTS.get(type(one).__name__) is type(one) and _is_usual(one) for one in models):
        return None
    try:
        saved = [_about(forest) for forest in models]
    except NotPlainError:
        return None
    tensors = {}
    for place, forest in enumerate(models):
        states = [tree.tree_.__getstate__() for tree in forest.estimators_]
        for field in NODE_DTYPE.names:
            tensors[f"{place}.{field}"] = np.concatenate([state["nodes"][field] for state in states])
        tensors[f"{place}.values"] = np.concatenate([state["values"] for state in states])
    about, nodes = _name_files(name)
    return {about: folders.as_json({"forests": saved}), nodes: safetensors.numpy.save(tensors)}


def holds_models(files: Files, name: str) -> bool:
    """Return whether a member's files are those of ``write_models``."""
    return _name_files(name)[0] in files


def _name_files(name: str) -> tuple[str, str]:
    return f"{name}-forests.json", f"{name}-forests.safetensors"


def _is_usual(forest: Any) -> bool:
    """Return whether a forest has no attributes but those that are written."""
    parameters = {*forest.get_params(), "estimator", "estimator_params"}
    return vars(forest).keys() - parameters <= _ATTRIBUTES


def _about(forest: Any) -> SavedForest:
    names = getattr(forest, "feature_names_in_", None)
    return {
        "kind": type(forest).__name__,
        "parameters": encode(forest.get_params()),
        "features": forest.n_features_in_,
        "feature_names": encode(names),
        "classes": encode(forest.classes_),
        "tried_features": forest.estimators_[0].max_features_,
        "trees": [
            {"seed": int(one.random_state), "nodes": one.tree_.node_count, "depth": one.tree_.max_depth}
            for one in forest.estimators_
        ],
    }


def read_models(files: Files, name: str) -> list[Any]:
    """Return the models that ``write_models`` wrote, or raise a ``ValueError``."""
    about, nodes = _name_files(name)
    saved = strict_json.read(files[about], SavedForests, about)
    try:
        tensors = safetensors.numpy.load(files[nodes])
    except (KeyError, safetensors.SafetensorError) as error:
        raise ValueError(f"folder: {nodes} cannot be read: {first_line(error)}") from error
    if not saved["forests"]:
        raise ValueError(f"folder: expected forests in {about}, got none")
    try:
        return [_restore(forest, tensors, place) for place, forest in enumerate(saved["forests"])]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"folder: {nodes} holds a damaged forest: {first_line(error)}") from error


def _restore(about: SavedForest, tensors: dict[str, np.ndarray], place: int) -> Any:
    forest = _FORESTS[about["kind"]](**decode(about["parameters"]))
    classes = decode(about["classes"])
    several = isinstance(classes, list)
    class_counts = np.array([len(one) for one in (classes if several else [classes])], dtype=np.intp)
    outputs = len(class_counts)
    sizes = [tree["nodes"] for tree in about["trees"]]
    if not sizes or outputs < 1 or class_counts.min() < 1:
        raise ValueError("expected trees and classes")
    nodes = _read_nodes(tensors, place, sum(sizes))
    values = tensors[f"{place}.values"]
    if values.dtype != np.float64 or values.shape != (sum(sizes), outputs, class_counts.max()):
        raise ValueError(f"expected values of {sum(sizes)} nodes, got shape {values.shape}")
    forest.n_features_in_ = about["features"]
    names = decode(about["feature_names"])
    if names is not None:
        forest.feature_names_in_ = names
    forest.n_outputs_ = outputs
    forest.classes_ = classes
    forest.n_classes_ = class_counts.tolist() if several else int(class_counts[0])
    forest._validate_estimator()  # makes the tree that all of them are copies of
    forest.estimators_ = []
    start = 0
    for tree in about["trees"]:
        end = start + tree["nodes"]
        _check_nodes(nodes[start:end], about["features"])
        made = Tree(about["features"], class_counts, outputs)
        made.__setstate__(
            {
                "max_depth": tree["depth"],
                "node_count": tree["nodes"],
                "nodes": nodes[start:end],
                "values": np.ascontiguousarray(values[start:end]),
            }
        )
        one = forest._make_estimator(append=True)
        one.set_params(random_state=tree["seed"])
        one.n_features_in_ = about["features"]
        one.n_outputs_ = outputs
        # The trees of a forest count its classes.
        own = [np.arange(count, dtype=np.float64) for count in class_counts]
        one.classes_ = own if several else own[0]
        one.n_classes_ = class_counts if several else class_counts[0]
        one.max_features_ = about["tried_features"]
        one.tree_ = made
        start = end
    return forest


def _read_nodes(tensors: dict[str, np.ndarray], place: int, count: int) -> np.ndarray:
    """Return the nodes of a forest, as scikit-learn keeps them."""
    columns = {field: tensors[f"{place}.{field}"] for field in NODE_DTYPE.names}
    for field, column in columns.items():
        if column.dtype != NODE_DTYPE[field] or column.shape != (count,):
            raise ValueError(f"expected {field} of {count} nodes, got {column.dtype} of shape {column.shape}")
    nodes = np.zeros(count, dtype=NODE_DTYPE)
    for field, column in columns.items():
        nodes[field] = column
    return nodes


def _check_nodes(nodes: np.ndarray, features: int) -> None:
    """Refuse a tree that points outside itself or the features."""
    left, right, feature = nodes["left_child"], nodes["right_child"], nodes["feature"]
    own = np.arange(len(nodes))
    inner = left != -1
    for child in (left, right):  # written after their parents, so that no path goes round
        if not ((child > own) & (child < len(own)))[inner].all():
            raise ValueError("expected children among the nodes")
    if not ((feature >= 0) & (feature < features))[inner].all():
        raise ValueError("expected splits on the features")
