"""Trees of scikit-learn, XGBoost and LightGBM as ONNX operators that find the same leaves.

ONNX's operator for trees adds up in float32. So it is asked for the number of the leaf alone, which float32 holds
exactly; the values of leaves are looked up and added in the type and the order of the library.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from metricgrad.storage.onnx_graph import LEARNING

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.integrations.boosting.hooks import Backend
    from metricgrad.storage.onnx_graph import Graph


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree as arrays over its nodes, the root first.

    ``left``, ``right``: the places of the children, -1 in a leaf. A row goes to the left if its feature is at most the
    threshold (below it for XGBoost), or if it is missing and ``missing_left``. ``values``: ``(nodes,)`` or
    ``(nodes, outputs)``, of which those of leaves count.
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    missing_left: np.ndarray
    values: np.ndarray

    @property
    def is_leaf(self) -> np.ndarray:
        """Which of the nodes are leaves."""
        return np.asarray(self.left < 0)


def add_forest(graph: Graph, forest: Any, x: str, values_of: Callable[[Any], np.ndarray]) -> str:
    """Add the mean of scikit-learn's trees, ``(rows, outputs)``; ``values_of``: of the nodes of one of its trees."""
    # Features are float32, thresholds are not: a number of float32 is at most the threshold if and only if it is at
    # most the largest number of float32 that is.
    trees = [
        Tree(
            one.feature,
            _round_down(one.threshold),
            one.children_left,
            one.children_right,
            one.missing_go_to_left.astype(bool),
            values_of(one),
        )
        for one in (estimator.tree_ for estimator in forest)
    ]
    leaves = _add_leaves(graph, trees, graph.cast(x, np.float32), "BRANCH_LEQ")  # (rows, trees, outputs)
    return graph.add("Div", _add_up(graph, leaves, axis=1), graph.constant(float(len(trees))))


def add_boosted_trees(graph: Graph, backend: Backend, data: bytes, outputs: int, x: str) -> str:
    """Add the logits of boosted trees, ``(rows, outputs)``; ``data``: the model in the library's own format.

    Of XGBoost that is JSON, and the logits are float32; for LightGBM they are float64.
    """
    if backend == "xgboost":
        trees, classes, start = _read_xgboost(json.loads(data))
        leaves = _add_leaves(graph, trees, graph.cast(x, np.float32), "BRANCH_LT")
    else:
        trees, classes, start = _read_lightgbm(data.decode(), outputs)
        leaves = _add_leaves(graph, trees, graph.cast(x, np.float64), "BRANCH_LEQ")
    of_class = [np.flatnonzero(classes == k) for k in range(outputs)]
    if len({len(places) for places in of_class}) > 1:
        raise ValueError("model: expected as many trees for every class, got others")
    by_class = graph.add("Gather", leaves, graph.constant(np.stack(of_class)), axis=1)  # (rows, outputs, rounds)
    found = _add_up(graph, by_class, axis=2)
    return graph.add("Add", found, graph.constant(start)) if start.any() else found


def _add_leaves(graph: Graph, trees: list[Tree], x: str, mode: Literal["BRANCH_LT", "BRANCH_LEQ"]) -> str:
    """Add the values of the leaves that a row falls into: ``(rows, trees)`` or ``(rows, trees, outputs)``."""
    dtype = trees[0].threshold.dtype
    sizes = [len(tree.left) for tree in trees]
    is_leaf = np.concatenate([tree.is_leaf for tree in trees])
    nodes_modes = np.where(is_leaf, "LEAF", mode).tolist()
    tree_of_node = np.repeat(np.arange(len(trees)), sizes)
    place_of_node = np.concatenate([np.arange(size) for size in sizes])
    number_of_leaf = np.concatenate([np.arange(tree.is_leaf.sum()) for tree in trees])

    def join(name: str, in_leaves: Any) -> Any:
        return np.where(is_leaf, in_leaves, np.concatenate([getattr(tree, name) for tree in trees]))

    thresholds = join("threshold", 0).astype(dtype)
    in_own_type: dict[str, Any] = (
        {
            "nodes_values_as_tensor": _as_tensor("nodes_values", thresholds),
            "target_weights_as_tensor": _as_tensor("target_weights", number_of_leaf.astype(dtype)),
        }
        if dtype == np.float64
        else {"nodes_values": thresholds.tolist(), "target_weights": number_of_leaf.astype(float).tolist()}
    )
    numbers = graph.add(
        "TreeEnsembleRegressor",
        x,
        domain=LEARNING,
        n_targets=len(trees),
        nodes_treeids=tree_of_node.tolist(),
        nodes_nodeids=place_of_node.tolist(),
        nodes_featureids=join("feature", 0).tolist(),
        nodes_modes=nodes_modes,
        nodes_truenodeids=join("left", 0).tolist(),
        nodes_falsenodeids=join("right", 0).tolist(),
        nodes_missing_value_tracks_true=join("missing_left", False).astype(int).tolist(),
        target_treeids=tree_of_node[is_leaf].tolist(),
        target_nodeids=place_of_node[is_leaf].tolist(),
        target_ids=tree_of_node[is_leaf].tolist(),
        **in_own_type,
    )
    leaves_before = np.cumsum([0, *(tree.is_leaf.sum() for tree in trees[:-1])])
    places = graph.add("Add", graph.cast(numbers, np.int64), graph.constant(leaves_before))
    values = np.concatenate([tree.values[tree.is_leaf] for tree in trees])
    return graph.add("Gather", graph.constant(values), places)


def _add_up(graph: Graph, x: str, axis: int) -> str:
    """Add the sum over an axis, one after the other as the libraries do, so that it is rounded alike."""
    sums_so_far = graph.add("CumSum", x, graph.constant(axis))
    return graph.add("Gather", sums_so_far, graph.constant(-1), axis=axis)


def _as_tensor(name: str, values: np.ndarray) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(values, name)


def _round_down(threshold: np.ndarray) -> np.ndarray:
    """Return the largest numbers of float32 that are not above numbers of float64."""
    nearest = threshold.astype(np.float32)
    return np.where(nearest > threshold, np.nextafter(nearest, np.float32(-np.inf)), nearest)


# XGBoost


def _read_xgboost(model: Any) -> tuple[list[Tree], np.ndarray, np.ndarray]:
    """Return trees, the class of each, and where the sums start, of ``save_raw("json")``."""
    learner = model["learner"]
    booster = learner["gradient_booster"]
    if booster["name"] != "gbtree":
        raise ValueError(f"backend_params: expected booster='gbtree', got {booster['name']!r}")
    trees = [_read_xgboost_tree(one) for one in booster["model"]["trees"]]
    start = np.atleast_1d(json.loads(learner["learner_model_param"]["base_score"])).astype(np.float32)
    return trees, np.array(booster["model"]["tree_info"]), start


def _read_xgboost_tree(tree: Any) -> Tree:
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:
        raise ValueError("backend_params: expected multi_strategy='one_output_per_tree', got trees of several outputs")
    if tree["categories_nodes"]:
        raise ValueError("categories_: expected columns of numbers, got some of a categorical type; see TableEncoder")
    conditions = np.array(tree["split_conditions"], np.float32)  # the thresholds, and in leaves their values
    return Tree(
        np.array(tree["split_indices"]),
        conditions,
        np.array(tree["left_children"]),
        np.array(tree["right_children"]),
        np.array(tree["default_left"], bool),
        conditions,
    )


# LightGBM

_CATEGORICAL = 1
_DEFAULT_LEFT = 2
_ZERO_IS_MISSING = 4
_NAN_IS_MISSING = 8


def _read_lightgbm(text: str, outputs: int) -> tuple[list[Tree], np.ndarray, np.ndarray]:
    """Return trees, the class of each, and where the sums start, of ``model_to_string()``."""
    header, *blocks = text.split("\nTree=")
    if "\naverage_output" in header:
        raise ValueError("backend_params: expected boosting='gbdt', got a mean of trees")
    trees = [
        _read_lightgbm_tree(dict(line.split("=", 1) for line in block.splitlines() if "=" in line)) for block in blocks
    ]
    return trees, np.arange(len(trees)) % outputs, np.zeros(1)


def _read_lightgbm_tree(about: dict[str, str]) -> Tree:
    """Return a tree: the splits come first, then the leaves, which children name as ~place."""
    if int(about.get("is_linear", 0)):
        raise ValueError("backend_params: expected linear_tree=False, got linear trees")
    values = np.array(about["leaf_value"].split(), np.float64)
    splits = len(values) - 1
    if not splits:
        nothing = np.zeros(1, int)
        return Tree(nothing, np.zeros(1), nothing - 1, nothing - 1, nothing.astype(bool), values)

    def read(name: str, dtype: Any, of_leaves: Any) -> np.ndarray:
        return np.append(np.array(about[name].split(), dtype), np.full(splits + 1, of_leaves, dtype))

    kinds = read("decision_type", np.int64, 0)
    if (kinds & _CATEGORICAL).any():
        raise ValueError("categories_: expected columns of numbers, got some of a categorical type; see TableEncoder")
    if (kinds & _ZERO_IS_MISSING).any():
        raise ValueError("backend_params: expected zero_as_missing=False, got True")
    thresholds = read("threshold", np.float64, 0.0)
    # Where training had no missing values, NaN counts as 0.
    missing_left = np.where(kinds & _NAN_IS_MISSING, (kinds & _DEFAULT_LEFT) > 0, thresholds >= 0)
    left, right = (read(f"{side}_child", np.int64, -1) for side in ("left", "right"))
    is_split = np.arange(len(left)) < splits
    return Tree(
        read("split_feature", np.int64, 0),
        thresholds,
        np.where(is_split & (left < 0), splits + ~left, left),
        np.where(is_split & (right < 0), splits + ~right, right),
        missing_left,
        np.append(np.zeros(splits), values),
    )
