"""Forests in files: the nodes of their trees as safetensors, the rest as JSON.

skops could write them too, but to read them it imports all of scikit-learn, and it reads the trees one by one, which is
slow. What is read is checked, since scikit-learn follows the nodes of a tree without any check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import safetensors.numpy
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from sklearn.tree._tree import Tree

from metricgrad import strict_json
from metricgrad.storage import folders
from metricgrad.storage.values import NotPlainError, decode, encode
from metricgrad.strict_json import first_line

if TYPE_CHECKING:
    from metricgrad.storage.folders import Files

_FORESTS = {RandomForestClassifier: DecisionTreeClassifier, ExtraTreesClassifier: ExtraTreeClassifier}
_KINDS = {kind.__name__: kind for kind in _FORESTS}
_NODE: Any = Tree(1, np.array([2], np.intp), 1).__getstate__()["nodes"].dtype
"""The type of a node, with a field for each of its numbers."""
_OF_TREES = {"sizes": np.int64, "depths": np.int64, "seeds": np.int64}
"""The arrays of a forest with a number for each tree: its nodes, its depth, its random state."""


class SavedForest(TypedDict):
    """A forest, without its trees. ``classes``: of each output; ``several``: whether it has several outputs."""

    kind: Literal["RandomForestClassifier", "ExtraTreesClassifier"]
    parameters: dict[str, Any]
    classes: list[Any]
    several: bool
    features: int
    features_of_a_split: int
    rows: int
    rows_of_a_tree: int | None


class SavedForests(TypedDict):
    """Forests, one per fold."""

    forests: list[SavedForest]


def write_forests(models: list[Any], name: str) -> Files | None:
    """Return the files of a member; None unless its models are plain forests."""
    if not all(type(one) in _FORESTS and _is_plain(one) for one in models):
        return None
    try:
        saved = [_describe(one) for one in models]
    except NotPlainError:
        return None
    arrays: dict[str, np.ndarray] = {}
    for place, one in enumerate(models):
        arrays |= {f"{place}.{key}": np.ascontiguousarray(array) for key, array in _list_arrays(one).items()}
    about = folders.as_json({"forests": saved})
    return {f"{name}.forests.json": about, f"{name}.forests.safetensors": safetensors.numpy.save(arrays)}


def _is_plain(forest: Any) -> bool:
    """Return whether a forest has nothing that the files lack: names of features, or scores of out-of-bag rows."""
    return not hasattr(forest, "feature_names_in_") and not forest.oob_score


def _describe(forest: Any) -> SavedForest:
    several = forest.n_outputs_ > 1
    return {
        "kind": type(forest).__name__,  # type: ignore[typeddict-item]
        "parameters": encode(forest.get_params()),
        "classes": [encode(one) for one in (forest.classes_ if several else [forest.classes_])],
        "several": several,
        "features": int(forest.n_features_in_),
        "features_of_a_split": int(forest.estimators_[0].max_features_),
        "rows": int(forest._n_samples),
        "rows_of_a_tree": None if forest._n_samples_bootstrap is None else int(forest._n_samples_bootstrap),
    }


def _list_arrays(forest: Any) -> dict[str, np.ndarray]:
    """Return the nodes of all trees, one tree after the other, and what there is of each tree."""
    trees = [one.tree_ for one in forest.estimators_]
    states = [tree.__getstate__() for tree in trees]
    nodes = np.concatenate([state["nodes"] for state in states])
    found = {field: nodes[field] for field in _NODE.names}
    found["values"] = np.concatenate([state["values"] for state in states])
    found["sizes"] = np.array([tree.node_count for tree in trees], np.int64)
    found["depths"] = np.array([tree.max_depth for tree in trees], np.int64)
    found["seeds"] = np.array([one.random_state for one in forest.estimators_], np.int64)
    return found


def read_forests(files: Files, name: str) -> list[Any]:
    """Return the forests that ``write_forests`` wrote, or raise a ``ValueError``."""
    about = f"{name}.forests.json"
    tensors = f"{name}.forests.safetensors"
    try:
        saved = strict_json.read(files[about], SavedForests, about)
    except ValueError as error:  # which starts with the name of the file
        raise ValueError(f"folder: {error}") from error
    try:
        arrays = safetensors.numpy.load(files[tensors])
    except (KeyError, safetensors.SafetensorError) as error:
        raise ValueError(f"folder: {tensors} cannot be read: {first_line(error)}") from error
    if not saved["forests"]:
        raise ValueError(f"folder: expected forests in {about}, got none")
    forests = []
    for place, one in enumerate(saved["forests"]):
        own = {key.partition(".")[2]: array for key, array in arrays.items() if key.startswith(f"{place}.")}
        try:
            forests.append(_restore(one, own))
        except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"folder: {tensors} holds a damaged forest: {first_line(error)}") from error
    return forests


def _restore(about: SavedForest, arrays: dict[str, np.ndarray]) -> Any:
    """Return a forest of its parts, or raise if they do not fit together."""
    classes = [np.asarray(decode(one)) for one in about["classes"]]
    numbers = np.array([len(one) for one in classes], np.intp)
    if any(one.ndim != 1 for one in classes) or (not about["several"] and len(classes) != 1):
        raise ValueError("expected the classes of each output")
    _check_arrays(arrays, about["features"], (len(classes), int(numbers.max())))
    kind: Any = _KINDS[about["kind"]]
    forest = kind(**decode(about["parameters"]))
    forest.n_features_in_ = about["features"]
    forest.n_outputs_ = len(classes)
    forest.classes_ = classes if about["several"] else classes[0]
    forest.n_classes_ = numbers.tolist() if about["several"] else int(numbers[0])
    forest._n_samples = about["rows"]
    forest._n_samples_bootstrap = about["rows_of_a_tree"]
    forest._sample_weight = None
    forest.estimator_ = forest.estimator
    nodes = np.zeros(len(arrays["feature"]), _NODE)
    for field in _NODE.names:
        nodes[field] = arrays[field]
    codes = [np.arange(number, dtype=np.float64) for number in numbers]  # trees are fitted on class indices
    forest.estimators_ = []
    ends = np.cumsum(arrays["sizes"])
    for start, end, depth, seed in zip(ends - arrays["sizes"], ends, arrays["depths"], arrays["seeds"], strict=True):
        tree = Tree(about["features"], numbers, len(classes))
        tree.__setstate__(
            {
                "max_depth": int(depth),
                "node_count": int(end - start),
                "nodes": nodes[start:end],
                "values": arrays["values"][start:end],
            }
        )
        one = _FORESTS[kind](**{key: getattr(forest, key) for key in forest.estimator_params})
        one.random_state = int(seed)
        one.n_features_in_ = about["features"]
        one.n_outputs_ = len(classes)
        one.classes_ = codes if about["several"] else codes[0]
        one.n_classes_ = numbers if about["several"] else numbers[0]
        one.max_features_ = about["features_of_a_split"]
        one.tree_ = tree
        forest.estimators_.append(one)
    return forest


def _check_arrays(arrays: dict[str, np.ndarray], features: int, outputs: tuple[int, int]) -> None:
    """Refuse trees that point outside themselves or the features."""
    wanted = {field: _NODE[field] for field in _NODE.names} | {"values": np.float64} | _OF_TREES
    if {key: array.dtype for key, array in arrays.items()} != {key: np.dtype(one) for key, one in wanted.items()}:
        raise ValueError(f"expected the arrays {', '.join(wanted)}")
    sizes = arrays["sizes"]
    count = len(arrays["feature"])
    shapes = {key: (len(sizes),) if key in _OF_TREES else (count,) for key in wanted} | {"values": (count, *outputs)}
    if any(array.shape != shapes[key] for key, array in arrays.items()):
        raise ValueError("expected arrays of all nodes, and of all trees")
    if not len(sizes) or (sizes < 1).any() or sizes.sum() != count or features < 1:
        raise ValueError(f"expected trees of {count} nodes in all")
    start_of_tree = np.repeat(np.cumsum(sizes) - sizes, sizes)
    size_of_tree = np.repeat(sizes, sizes)
    place = np.arange(count) - start_of_tree
    is_split = arrays["left_child"] != -1
    for side in ("left_child", "right_child"):  # children come after their parents, so that no path is a circle
        child = arrays[side]
        if not ((child > place) & (child < size_of_tree))[is_split].all():
            raise ValueError("expected children among the nodes")
    if not ((arrays["feature"] >= 0) & (arrays["feature"] < features))[is_split].all():
        raise ValueError("expected splits on the features")
    if not np.isfinite(arrays["values"]).all() or (arrays["missing_go_to_left"] > 1).any():
        raise ValueError("expected finite values")
