"""Forests in files of skops: read without asking whom to trust, since they are checked before they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from metricgrad.storage import skops_files
from metricgrad.strict_json import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.storage.folders import Files

_TREE = "sklearn.tree._tree.Tree"
_FORESTS = {RandomForestClassifier: DecisionTreeClassifier, ExtraTreesClassifier: ExtraTreeClassifier}


def load_models(files: Files, name: str, trusted: Sequence[str] = ()) -> list[Any]:
    """Return the list of models in a file; the trees of plain forests need not be trusted, but must be sound."""
    unasked = _TREE not in trusted and _holds_trees(files.get(name, b""))
    models = skops_files.load(files, name, [*trusted, _TREE] if unasked else trusted)
    if not isinstance(models, list) or not models:
        raise ValueError(f"folder: expected a list of models in {name}, got {type(models).__name__}")
    for model in models if unasked else ():
        if type(model) not in _FORESTS:
            raise ValueError(f"trusted: expected {[_TREE]}, if you trust whoever wrote {name}; got {list(trusted)}")
        try:
            _check(model)
        except (AttributeError, TypeError, ValueError, IndexError) as error:
            raise ValueError(f"folder: {name} holds a damaged forest: {first_line(error)}") from error
    return models


def _holds_trees(data: bytes) -> bool:
    try:
        return _TREE in skops_files.list_untrusted_types(data)
    except Exception:  # ``skops_files.load`` says what is wrong
        return False


def _check(forest: Any) -> None:
    """Refuse trees that point outside themselves or the features: scikit-learn follows them without looking."""
    features = forest.n_features_in_
    for one in forest.estimators_:
        tree = one.tree_
        if type(one) is not _FORESTS[type(forest)] or type(features) is not int or tree.n_features != features:
            raise ValueError(f"expected trees of {features!r} features")
        if tree.capacity != tree.node_count or tree.node_count < 1:
            raise ValueError(f"expected {tree.capacity} nodes, got {tree.node_count}")
        left, right, feature = tree.children_left, tree.children_right, tree.feature
        inner, own = left != -1, np.arange(len(left))
        for child in (left, right):  # written after their parents, so that no path goes round
            if not ((child > own) & (child < len(own)))[inner].all():
                raise ValueError("expected children among the nodes")
        if not ((feature >= 0) & (feature < features))[inner].all():
            raise ValueError("expected splits on the features")
