"""Boosted trees tried in a process of their own, since a forged file can crash or hang the library that reads it.

This file is also the script of that process: it imports nothing of metricgrad, and loads, checks and uses the trees.
"""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

SECONDS = 120.0
"""How long the process may take; the usual is half a second, most of it to import the library."""
BYTES = 2 << 30
"""The memory that it may take up beyond what the library has at first, and 64 times the size of the file."""


class Trial:
    """A try that has begun: the library is imported while the caller does something else."""

    def __init__(self, name: str, library: str, data: bytes) -> None:
        self.name, self.data = name, data
        # -P: a module in the working directory must not take the place of the library.
        self.process = subprocess.Popen(  # noqa: S603 (our own file)
            [sys.executable, "-P", __file__, library],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def end(self) -> None:
        """Wait for the process; raise a ``ValueError`` that says what is wrong with the trees."""
        try:
            errors = self.process.communicate(self.data, timeout=SECONDS)[1].decode(errors="replace").strip()
        except subprocess.TimeoutExpired as error:
            self.stop()
            raise ValueError(f"{self.name} cannot be used: its library did not end reading it") from error
        code = self.process.returncode
        if code < 0:
            raise ValueError(f"{self.name} cannot be used: it crashes its library ({signal.Signals(-code).name})")
        if code:
            last = errors.splitlines()[-1] if errors else f"exit code {code}"
            raise ValueError(f"{self.name} cannot be used: {last[:200]}")

    def stop(self) -> None:
        """End the process if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def _limit(size: int) -> None:
    """Limit the memory: a length in a forged file may ask for any."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:  # not on Linux
        now = 16 << 30
    wanted, most = now + BYTES + 64 * size, resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def _rows(width: int) -> Any:
    import numpy as np

    values = (0.0, 1.0, -1.0, np.nan, 1e30, -1e30)
    few = np.repeat(np.array(values, dtype=np.float32)[:, None], width, axis=1)
    return np.tile(few, (50, 1)) if width < 10_000 else few


def _xgboost(data: bytes) -> None:
    import xgboost

    booster = xgboost.Booster({"nthread": 1}, model_file=bytearray(data))
    width = booster.num_features()
    if not 0 < width <= 10**7:
        raise ValueError(f"expected some features, got {width}")
    about = json.loads(booster.save_config())["learner"]["learner_model_param"]
    written = bytes(booster.save_raw("ubj"))
    _check_trees(written, width)
    _check_groups(written, max(1, int(about["num_class"]), int(about["num_target"])))
    booster.predict(xgboost.DMatrix(_rows(width), nthread=1))


def _check_trees(data: bytes, width: int) -> None:
    """Check that every tree is one: following children from its root must end, at features that there are.

    ``data`` is what XGBoost has read and written again, so that its arrays have one known form.
    """
    import numpy as np

    def arrays(key: str) -> list[Any]:
        mark, found, at = f"{key}[$l#L".encode(), [], 0
        while (at := data.find(mark, at)) >= 0:
            at += len(mark)
            count = int.from_bytes(data[at : at + 8], "big")
            found.append(np.frombuffer(data, ">i4", count, at + 8))
        return found

    for left, right, split in zip(*map(arrays, ("left_children", "right_children", "split_indices")), strict=True):
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
    """Check that every tree adds to an output that there is; XGBoost would write beyond them."""
    mark = b"tree_info[#L"
    at = data.index(mark) + len(mark)
    count, at = int.from_bytes(data[at : at + 8], "big"), at + 8
    sizes = {b"i": 1, b"U": 1, b"I": 2, b"l": 4, b"L": 8}
    for _ in range(count):
        kind = data[at : at + 1]
        size = sizes[kind]
        group = int.from_bytes(data[at + 1 : at + 1 + size], "big", signed=kind != b"U")
        if not 0 <= group < groups:
            raise ValueError(f"expected trees of {groups} outputs, got one of output {group}")
        at += 1 + size


def _lightgbm(data: bytes) -> None:
    import lightgbm

    booster = lightgbm.Booster(model_str=data.decode())
    booster.predict(_rows(booster.num_feature()), num_threads=1)


if __name__ == "__main__":
    try:
        use = {"xgboost": _xgboost, "lightgbm": _lightgbm}[sys.argv[1]]
        # Both libraries do without scikit-learn, which takes longer to import than all else.
        sys.modules["sklearn"] = None  # type: ignore[assignment]
        importlib.import_module(sys.argv[1])  # while the other process does something else
        trees = sys.stdin.buffer.read()
        _limit(len(trees))
        use(trees)
    except Exception as error:
        print(" ".join(f"{type(error).__name__}: {error}".split()), file=sys.stderr)
        sys.exit(3)
