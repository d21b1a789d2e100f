"""``predict_proba`` of scikit-learn's classifiers for rows that an encoder of this library made, bit for bit.

scikit-learn checks its input in every call, and hands every tree of a forest to joblib. For a single row that takes
much longer than to predict it; so would a call for every tree, and a single row goes down all trees at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from scipy.special import expit

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _JoinedTrees(NamedTuple):
    """The nodes of all trees of a forest, one tree after the other; a leaf leads to itself."""

    trees: list[Any]
    number: int
    roots: NDArray[np.intp]
    children: NDArray[np.intp]  # of node i: 2 i to the left, 2 i + 1 to the right
    features: NDArray[np.intp]
    thresholds: NDArray[np.float64]
    missing_goes_right: NDArray[np.bool_]
    values: NDArray[np.float64]


_JOINED: WeakKeyDictionary[Any, _JoinedTrees] = WeakKeyDictionary()
"""Of each forest that has predicted a single row, its joined trees."""


def predict_encoded(model: Any, X: Any) -> Any:
    """Return the probabilities of the classes ``(n, classes)``, or a list of these, one per label.

    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = LogisticRegression().fit(X, [0, 1, 0, 1])
    >>> bool((predict_encoded(model, X) == model.predict_proba(X)).all())
    True
    """
    if hasattr(model, "estimators_") and isinstance(X, np.ndarray) and _is_plain_forest(model):
        return _average_trees(model, X)
    if hasattr(model, "coef_") and _is_logistic_regression(model):
        return _predict_linear(model, X)
    return model.predict_proba(X)


def _is_plain_forest(model: Any) -> bool:
    """Return whether a forest adds up its trees one by one."""
    # Whoever has a forest has imported this module already.
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    return type(model) in (RandomForestClassifier, ExtraTreesClassifier) and model.n_jobs in (None, 1)


def check_width(model: Any, X: Any) -> None:
    """Raise unless rows have the features that a model was fitted on: trees would read beyond the end of a row."""
    if X.shape[1] != model.n_features_in_:
        raise ValueError(f"X: expected {model.n_features_in_} features, got {X.shape[1]}")


def _average_trees(forest: Any, X: Any) -> Any:
    check_width(forest, X)
    rows = np.ascontiguousarray(X, dtype=np.float32)
    total = (
        _add_up_row(forest, rows[0]) if len(rows) == 1 else sum(one.tree_.predict(rows) for one in forest.estimators_)
    )
    mean = total / len(forest.estimators_)
    if forest.n_outputs_ == 1:
        return mean[:, : forest.n_classes_]
    return [mean[:, k, :number] for k, number in enumerate(forest.n_classes_)]


def _add_up_row(forest: Any, row: NDArray[np.float32]) -> Any:
    """Return the sum of what the trees predict for a row, in their order: ``(1, classes)``, or one more per label."""
    joined = _join_trees(forest)
    missing = np.isnan(row)
    some_are_missing = bool(missing.any())
    nodes, before = joined.roots, None
    while before is None or not np.array_equal(nodes, before):  # until all are leaves
        before = nodes
        features = joined.features[nodes]
        goes_right = row[features] > joined.thresholds[nodes]
        if some_are_missing:
            goes_right = np.where(missing[features], joined.missing_goes_right[nodes], goes_right)
        nodes = joined.children[2 * nodes + goes_right]
    total = joined.values[nodes].cumsum(0)[-1:]  # one after the other, as the sum of the trees is
    return total[:, 0] if forest.n_outputs_ == 1 else total


def _join_trees(forest: Any) -> _JoinedTrees:
    """Return the joined trees of a forest, made when it predicts its first single row."""
    joined = _JOINED.get(forest)
    if joined is not None and joined.trees is forest.estimators_ and joined.number == len(forest.estimators_):
        return joined
    trees = [one.tree_ for one in forest.estimators_]
    sizes = [tree.node_count for tree in trees]
    roots = np.cumsum([0, *sizes[:-1]])
    first = np.repeat(roots, sizes)
    here = np.arange(len(first))
    is_leaf = np.concatenate([tree.children_left for tree in trees]) < 0
    left = np.where(is_leaf, here, np.concatenate([tree.children_left for tree in trees]) + first)
    right = np.where(is_leaf, here, np.concatenate([tree.children_right for tree in trees]) + first)
    _JOINED[forest] = joined = _JoinedTrees(
        trees=forest.estimators_,
        number=len(trees),
        roots=roots,
        children=np.stack([left, right], axis=1).ravel(),
        features=np.where(is_leaf, 0, np.concatenate([tree.feature for tree in trees])),
        thresholds=np.concatenate([tree.threshold for tree in trees]),
        missing_goes_right=np.concatenate([tree.missing_go_to_left for tree in trees]) == 0,
        values=np.concatenate([tree.value for tree in trees]),
    )
    return joined


def _is_logistic_regression(model: Any) -> bool:
    from sklearn.linear_model import LogisticRegression

    return type(model) is LogisticRegression


def _predict_linear(model: Any, X: Any) -> Any:
    logits = X @ model.coef_.T + model.intercept_
    if len(model.classes_) > 2:
        from sklearn.utils.extmath import softmax

        return softmax(logits, copy=False)
    positive = expit(logits[:, 0])
    return np.column_stack((1 - positive, positive))
