"""``predict_proba`` of scikit-learn's classifiers for rows that an encoder of this library made, bit for bit.

scikit-learn checks its input in every call, and hands every tree of a forest to joblib. For a single row that takes
much longer than to predict it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit


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
    total = sum(one.tree_.predict(rows) for one in forest.estimators_)
    mean = total / len(forest.estimators_)
    if forest.n_outputs_ == 1:
        return mean[:, : forest.n_classes_]
    return [mean[:, k, :number] for k, number in enumerate(forest.n_classes_)]


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
