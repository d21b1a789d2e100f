"""Forests come back from their files as they were; what the files cannot hold is left to skops."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from metricgrad.estimators.cross_fitting import predict_probabilities
from metricgrad.estimators.labels import Labels
from metricgrad.storage import forests

KINDS = [RandomForestClassifier, ExtraTreesClassifier]


def _targets(X: np.ndarray, task: str) -> Any:
    if task == "binary":
        return (X[:, 0] > 0).astype(int)
    if task == "multiclass":
        return np.digitize(X[:, 0], [-0.5, 0.5]) + 3
    return np.column_stack([X[:, 0] > 0, X[:, 1] > 0.5, np.zeros(len(X))]).astype(int)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_forests_come_back_as_they_were(kind: Any, task: str) -> None:
    X = np.random.default_rng(0).normal(size=(80, 4))
    X[::7, 2] = np.nan
    y = _targets(X, task)
    models = [kind(5, min_samples_leaf=2, random_state=seed).fit(X, y) for seed in range(2)]
    files = forests.write_forests(models, "member-0")
    assert files is not None
    again = forests.read_forests(files, "member-0")
    for model, other in zip(models, again, strict=True):
        assert type(other) is kind
        assert other.get_params() == model.get_params()
        np.testing.assert_equal(other.predict_proba(X), model.predict_proba(X))
        np.testing.assert_equal(other.predict(X), model.predict(X))
        np.testing.assert_equal(other.feature_importances_, model.feature_importances_)
        np.testing.assert_equal(clone(other).fit(X, y).predict_proba(X), model.predict_proba(X))
        for tree, other_tree in zip(model.estimators_, other.estimators_, strict=True):
            assert other_tree.get_params() == tree.get_params()
            assert other_tree.max_features_ == tree.max_features_
            assert other_tree.get_depth() == tree.get_depth()
            np.testing.assert_equal(other_tree.predict_proba(X), tree.predict_proba(X))


def test_what_the_files_cannot_hold_is_left_to_others() -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = _targets(X, "binary")
    with_more = RandomForestClassifier(60, oob_score=True, random_state=0).fit(X, y)
    own_score = RandomForestClassifier(60, random_state=0, oob_score=_score).fit(X, y)
    assert forests.write_forests([LogisticRegression().fit(X, y)], "m") is None
    assert forests.write_forests([with_more], "m") is None
    assert forests.write_forests([own_score], "m") is None
    named = RandomForestClassifier(3, random_state=0).fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    assert forests.write_forests([named], "m") is None


def _score(y: Any, p: Any) -> float:
    return 0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_scores_of_forests_are_those_of_scikit_learn(kind: Any, task: Any, n_jobs: int | None) -> None:
    X = np.random.default_rng(1).normal(size=(90, 4))
    X[::5, 1] = np.nan
    y = _targets(X, task)
    labels = Labels(y)
    forest = kind(12, random_state=0, n_jobs=n_jobs).fit(X, y)
    found = predict_probabilities(forest, X, labels).numpy()
    wanted = copy.deepcopy(forest).set_params(n_jobs=None).predict_proba(X)
    if task == "binary":
        wanted = wanted[:, 1]
    elif task == "multilabel":
        columns = [one[:, 1] if one.shape[1] == 2 else np.zeros(len(X)) for one in wanted]
        wanted = np.column_stack(columns)
    if n_jobs is None:
        np.testing.assert_array_equal(found, wanted)
    else:  # threads add up in any order
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
