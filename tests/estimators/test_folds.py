"""Folds of several labels: every label in every fold, as far as it has rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metricgrad.estimators.labels import Labels
from metricgrad.estimators.preparation import spread_labels, yield_splits

pytestmark = pytest.mark.quick


def labelled_rows(seed: int, rows: int = 200) -> np.ndarray:
    """Return targets of frequent labels, and of one with eight positives that often come with another rare one."""
    rng = np.random.default_rng(seed)
    y = (rng.random((rows, 5)) < [0.5, 0.3, 0.1, 0.0, 0.0]).astype(int)
    y[rng.permutation(rows)[:8], 3] = 1
    y[rng.permutation(np.flatnonzero(y[:, 3]))[:3], 4] = 1
    y[rng.permutation(rows)[:9], 4] = 1
    return y


def test_every_fold_has_positives_of_a_label_with_eight() -> None:
    for seed in range(200):
        y = labelled_rows(seed)
        parts = list(yield_splits(Labels(y), torch.from_numpy(y), 5, 0.5, seed))
        held = [rows.numpy() for _, rows in parts if rows is not None]
        assert len(held) == 5
        assert sorted(np.concatenate(held)) == list(range(len(y)))
        for (fitted, _), rows in zip(parts, held, strict=True):
            assert not np.intersect1d(fitted.numpy(), rows).size
            assert (y[rows].sum(0) > 0).all()
            assert abs(len(rows) - len(y) / 5) <= 3


def test_labels_are_spread_by_the_shares() -> None:
    y = labelled_rows(0, 1000)
    part = spread_labels(y, [0.7, 0.2, 0.1], 0)
    for share, i in ((0.7, 0), (0.2, 1), (0.1, 2)):
        assert abs((part == i).sum() - share * 1000) <= 3
        assert np.abs(y[part == i].sum(0) - share * y.sum(0)).max() <= 1.5


def test_one_part_held_out_has_the_rare_labels() -> None:
    y = labelled_rows(3)
    ((fitted, held),) = yield_splits(Labels(y), torch.from_numpy(y), None, 0.25, 3)
    assert held is not None
    assert abs(len(held) - 50) <= 2
    assert (y[held.numpy()].sum(0) >= np.floor(y.sum(0) / 4)).all()
    assert len(fitted) + len(held) == len(y)


def test_the_seed_decides() -> None:
    y = labelled_rows(0)
    one, again, other = (spread_labels(y, [0.5, 0.5], seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_rows_without_labels_are_spread_too() -> None:
    part = spread_labels(np.zeros((10, 2)), [0.5, 0.5], 0)
    assert np.bincount(part).tolist() == [5, 5]
