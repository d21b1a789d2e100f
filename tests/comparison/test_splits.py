"""Splits: the parts do not share rows, classes are spread, groups stay together, time goes forward."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from metricgrad.comparison.errors import UserError
from metricgrad.comparison.splits import Split, _move_to_next_time, count_left_out, find_strata
from split_rows import make_splits, split_all_rows

pytestmark = pytest.mark.quick


def check_parts(split: Split, rows: int) -> None:
    together = np.concatenate((split.train, split.test))
    assert len(np.unique(together)) == len(together) <= rows
    assert np.array_equal(split.train, np.sort(split.train))
    for (fit, left_out), (place, other) in zip(split.folds, split.folds_of_train, strict=True):
        assert not set(fit) & set(left_out)
        assert set(fit) | set(left_out) == set(split.train)
        assert np.array_equal(split.train[place], fit)
        assert np.array_equal(split.train[other], left_out)
    if len(split.folds) > 1:
        assert sorted(split.left_out) == split.train.tolist()


def test_stratified_parts_have_every_class_in_proportion() -> None:
    y = np.repeat([0, 1, 2], [800, 150, 50])
    for split in make_splits(y, "multiclass", 3, seed=1):
        check_parts(split, 1000)
        assert len(split.folds) == 5
        np.testing.assert_allclose(np.bincount(y[split.test]), [200, 38, 12], atol=1)
        for fit, left_out in split.folds:
            np.testing.assert_allclose(np.bincount(y[left_out]), [120, 22.5, 7.5], atol=1)
            np.testing.assert_allclose(np.bincount(y[fit]), [480, 90, 30], atol=1)


def test_repeats_differ_and_the_seed_repeats_them() -> None:
    y = np.repeat([0, 1], [80, 20])
    one, again, other = (make_splits(y, "binary", 2, seed=seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a.test, b.test) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one[0].test, one[1].test)
    assert not np.array_equal(one[0].test, other[0].test)


def test_a_class_of_few_rows_is_in_every_part() -> None:
    y = np.array([0] * 50 + [1] * 3)
    for split in make_splits(y, "binary", 5, seed=0):
        assert len(split.folds) == 2, "not more than it has training rows"
        assert all(1 in y[part] for part in (split.test, *split.folds[0], *split.folds[1]))


def test_a_stratum_is_never_wholly_in_test() -> None:
    # One row has the rarest label, two have the next: without them in training, these could not be learnt.
    y = np.zeros((60, 3), dtype=int)
    y[:, 0], y[0, 1], y[1:3, 2] = 1, 1, 1
    for seed in range(20):
        for split in [*make_splits(y, "multilabel", 2, seed), split_all_rows(y, "multilabel", seed)]:
            assert 0 in split.train
            assert y[split.train, 2].sum() >= 1
    classes = np.array([0] * 40 + [1] * 2)
    with pytest.raises(UserError, match=r"^target: expected two training rows or more of each class, got one"):
        make_splits(classes, "binary", 5, seed=0)


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
        check_parts(split, 500)
        for part in (split.test, *(left_out for _, left_out in split.folds)):
            rest = np.setdiff1d(np.arange(500), part)
            assert not set(group[part]) & set(group[rest])


def test_groups_get_fewer_folds_if_a_class_would_be_lost() -> None:
    """Three groups have the rare class: with five folds, some model would train on none or all of them."""
    group = np.repeat(np.arange(12), 10)
    y = np.isin(group, [2, 5, 9]).astype(int)
    for split in make_splits(y, "binary", 3, 0, group=group):
        assert 2 <= len(split.folds) <= 5
        assert all(set(y[fit]) == {0, 1} for fit, _ in split.folds)


def test_time_goes_forward_and_equal_times_stay_together() -> None:
    rng = np.random.default_rng(0)
    time, y = rng.integers(0, 60, 600), rng.integers(0, 2, 600)
    found = make_splits(y, "binary", 4, 0, time=time)
    assert len(found) == 4
    for split in found:
        check_parts(split, 600)
        ((fit, latest),) = split.folds
        assert time[fit].max() < time[latest].min()
        assert time[latest].max() < time[split.test].min()
    assert [time[s.test].max() < time[t.test].min() for s, t in itertools.pairwise(found)] == [True] * 3
    assert set(found[-1].train) | set(found[-1].test) == set(range(600))
    last = split_all_rows(y, "binary", 0, time=time)
    ((fit, latest),) = last.folds
    assert time[fit].max() < time[latest].min()
    assert len(last.train) == 600


def test_a_part_ends_where_it_should_unless_equal_times_move_it_forward() -> None:
    distinct = np.arange(10)
    assert [_move_to_next_time(distinct, place) for place in range(11)] == list(range(11))
    shared = np.array([0, 0, 1, 1, 1, 2])
    assert [_move_to_next_time(shared, place) for place in range(7)] == [0, 2, 2, 5, 5, 5, 6]


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
        ((fit, latest),) = split.folds
        earlier = [fit, latest, split.test] if len(split.test) else [fit, latest]
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
