"""What the separate process of ``tree_sandbox`` does: loads, checks, uses trees. It imports nothing of metricgrad."""

from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np


def work(limit: Callable[[int], None], library: str) -> None:
    """Try files of trees of a library, "xgboost" or "lightgbm": on standard input, each after its length in 8 bytes."""
    # Both libraries work without scikit-learn, which takes longer to import than everything else.
    sys.modules["sklearn"] = None  # type: ignore[assignment]
    importlib.import_module(library)  # while the caller goes on
    data = sys.stdin.buffer.read()
    limit(len(data))
    start = 0
    while start < len(data):
        end = start + 8 + int.from_bytes(data[start : start + 8], "big")
        _TRY[library](data[start + 8 : end])
        start = end


def _make_rows(width: int) -> np.ndarray:
    import numpy as np

    values = (0.0, 1.0, -1.0, np.nan, 1e30, -1e30)
    few = np.repeat(np.array(values, dtype=np.float32)[:, None], width, axis=1)
    return np.tile(few, (50, 1)) if width < 10_000 else few


def _try_xgboost(data: bytes) -> None:
    import xgboost

    booster = xgboost.Booster({"nthread": 1}, model_file=bytearray(data))
    width = booster.num_features()
    if not 0 < width <= 10**7:
        raise ValueError(f"expected some features, got {width}")
    about = json.loads(booster.save_config())["learner"]["learner_model_param"]
    written = bytes(booster.save_raw("ubj"))
    _check_trees(written, width)
    _check_groups(written, max(1, int(about["num_class"]), int(about["num_target"])))
    booster.predict(xgboost.DMatrix(_make_rows(width), nthread=1))


def _check_trees(data: bytes, width: int) -> None:
    """Check that every tree is a tree: each node has one parent, and each split uses an existing feature.

    ``data`` was read and written again by XGBoost, so its arrays have one known form.
    """
    import numpy as np

    def find_arrays(key: str) -> list[np.ndarray]:
        mark = f"{key}[$l#L".encode()
        found = []
        at = 0
        while (at := data.find(mark, at)) >= 0:
            at += len(mark)
            count = int.from_bytes(data[at : at + 8], "big")
            found.append(np.frombuffer(data, ">i4", count, at + 8))
        return found

    for left, right, split in zip(*map(find_arrays, ("left_children", "right_children", "split_indices")), strict=True):
        children = np.concatenate((left, right))
        inner = left >= 0
        if len(left) != len(right) or len(split) != len(left) or not np.array_equal(inner, right >= 0):
            raise ValueError("expected trees of two children or none per node, got others")
        children = children[children >= 0]
        if ((children == 0) | (children >= len(left))).any() or len(np.unique(children)) < len(children):
            raise ValueError("expected trees in which every node has one parent, got others")
        if ((split[inner] < 0) | (split[inner] >= width)).any():
            raise ValueError(f"expected trees of {width} features, got others")


def _check_groups(data: bytes, groups: int) -> None:
    """Check that every tree adds to an existing output; XGBoost would write beyond the others."""
    mark = b"tree_info[#L"
    at = data.index(mark) + len(mark)
    count = int.from_bytes(data[at : at + 8], "big")
    at = at + 8
    sizes = {b"i": 1, b"U": 1, b"I": 2, b"l": 4, b"L": 8}
    for _ in range(count):
        kind = data[at : at + 1]
        size = sizes[kind]
        group = int.from_bytes(data[at + 1 : at + 1 + size], "big", signed=kind != b"U")
        if not 0 <= group < groups:
            raise ValueError(f"expected trees of {groups} outputs, got one of output {group}")
        at += 1 + size


def _try_lightgbm(data: bytes) -> None:
    import lightgbm

    booster = lightgbm.Booster(model_str=data.decode())
    booster.predict(_make_rows(booster.num_feature()), num_threads=1)


_TRY = {"xgboost": _try_xgboost, "lightgbm": _try_lightgbm}
