"""Splits: the parts do not share rows, classes are spread, groups stay together, time goes forward."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from metricgrad.comparison.errors import UserError
from metricgrad.comparison.splits import Split, count_left_out, find_strata, make_splits, split_all_rows

pytestmark = pytest.mark.quick


def check_parts(split: Split, rows: int) -> None:
    together = np.concatenate((split.fit, split.held_out, split.test))
    assert len(np.unique(together)) == len(together) <= rows


def test_stratified_parts_have_every_class_in_proportion() -> None:
    y = np.repeat([0, 1, 2], [800, 150, 50])
    for split in make_splits(y, "multiclass", 3, seed=1):
        check_parts(split, 1000)
        assert [len(split.fit), len(split.held_out), len(split.test)] == [600, 150, 250] or len(split.test) in (
            249,
            250,
            251,
        )
        np.testing.assert_allclose(np.bincount(y[split.test]), [200, 38, 12], atol=1)
        np.testing.assert_allclose(np.bincount(y[split.fit]), [480, 90, 30], atol=1)


def test_repeats_differ_and_the_seed_repeats_them() -> None:
    y = np.repeat([0, 1], [80, 20])
    one, again, other = (make_splits(y, "binary", 2, seed=seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a.test, b.test) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one[0].test, one[1].test)
    assert not np.array_equal(one[0].test, other[0].test)


def test_a_class_of_three_rows_is_in_every_part() -> None:
    y = np.array([0] * 50 + [1] * 3)
    for split in make_splits(y, "binary", 5, seed=0):
        assert all(1 in y[part] for part in (split.fit, split.held_out, split.test))


def test_a_stratum_is_never_wholly_in_test() -> None:
    # One row has the rarest label, two have the next: without them in training, these could not be learnt.
    y = np.zeros((60, 3), dtype=int)
    y[:, 0], y[0, 1], y[1:3, 2] = 1, 1, 1
    for seed in range(20):
        for split in [*make_splits(y, "multilabel", 2, seed), split_all_rows(y, "multilabel", seed)]:
            assert 0 in split.fit
            assert y[split.fit, 2].sum() >= 1
    # A class of two rows: one in test, one in training, none left to hold out.
    classes = np.array([0] * 40 + [1] * 2)
    for split in make_splits(classes, "binary", 5, seed=0):
        assert classes[split.test].sum() == classes[split.fit].sum() == 1


def test_multilabel_rows_are_spread_by_their_rarest_label() -> None:
    y = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 0, 1], [1, 0, 0], [0, 1, 0]])
    assert find_strata(y, "multilabel").tolist() == [1, 0, -1, 2, 0, 1]
    rng = np.random.default_rng(0)
    y = (rng.random((400, 3)) < [0.5, 0.3, 0.05]).astype(int)
    rare = [int(y[split.test, 2].sum()) for split in make_splits(y, "multilabel", 4, seed=0)]
    assert max(rare) - min(rare) == 0


def test_groups_stay_together() -> None:
    rng = np.random.default_rng(0)
    group, y = rng.integers(0, 20, 500), rng.integers(0, 2, 500)
    for split in [*make_splits(y, "binary", 4, 0, group=group), split_all_rows(y, "binary", 0, group=group)]:
        parts = [set(group[part]) for part in (split.fit, split.held_out, split.test)]
        assert not (parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2])
        check_parts(split, 500)
        assert len(split.held_out) > 0


def test_time_goes_forward_and_equal_times_stay_together() -> None:
    rng = np.random.default_rng(0)
    time, y = rng.integers(0, 60, 600), rng.integers(0, 2, 600)
    found = make_splits(y, "binary", 4, 0, time=time)
    assert len(found) == 4
    for split in found:
        check_parts(split, 600)
        assert time[split.fit].max() < time[split.held_out].min()
        assert time[split.held_out].max() < time[split.test].min()
    assert [time[s.test].max() < time[t.test].min() for s, t in itertools.pairwise(found)] == [True] * 3
    assert set(found[-1].train) | set(found[-1].test) == set(range(600))
    last = split_all_rows(y, "binary", 0, time=time)
    assert time[last.fit].max() < time[last.held_out].min()
    assert len(last.train) == 600


def test_a_class_that_comes_late_is_named() -> None:
    y, time = np.array([0] * 80 + [1] * 20), np.arange(100)
    with pytest.raises(UserError, match=r"^--time: repeat 1 has no training rows of 1 of the classes; take fewer"):
        make_splits(y, "binary", 4, 0, time=time)


def test_groups_that_keep_a_class_to_themselves_are_refused() -> None:
    y = np.repeat([0, 1], [60, 30])
    with pytest.raises(UserError, match=r"^--group: repeat 1 has no training rows of 1 of the classes"):
        make_splits(y, "binary", 2, 0, group=np.repeat([0, 1, 2], 30))


def test_groups_and_time_together() -> None:
    rng = np.random.default_rng(0)
    group, y = np.repeat(np.arange(100), 6), rng.integers(0, 2, 600)
    time = group // 2 + rng.integers(0, 20, 600)  # customers come and go
    last = split_all_rows(y, "binary", 0, group, time)
    for split in [*make_splits(y, "binary", 3, 0, group, time), last]:
        check_parts(split, 600)
        earlier = [split.fit, split.held_out, split.test] if len(split.test) else [split.fit, split.held_out]
        for before, after in itertools.pairwise(earlier):
            assert time[before].max() < time[after].min()
        for one, other in itertools.combinations(earlier, 2):
            assert not set(group[one]) & set(group[other])
        # Nothing else is left out: each such row has a group that is in a later part.
        out = np.setdiff1d(np.flatnonzero(time < time[earlier[-1]].min()), np.concatenate(earlier))
        assert set(group[out]) <= set(group[np.concatenate(earlier[1:])])
        assert count_left_out(split, time) == len(out) > 0


def test_groups_that_go_on_all_the_time_leave_nothing_to_train_on() -> None:
    group, time, y = np.arange(200) % 4, np.arange(200), np.arange(200) % 2
    with pytest.raises(UserError, match=r"^--group and --time: repeat 1 has no rows to train on; take fewer"):
        make_splits(y, "binary", 2, 0, group, time)
    with pytest.raises(UserError, match=r"^--group and --time: every group has late rows"):
        split_all_rows(y, "binary", 0, group, time)
