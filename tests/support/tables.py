"""Small made-up data sets for the tests of the application."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


def binary(rows: int = 400, seed: int = 0, share: float = 0.2) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    y = (rng.random(rows) < share).astype(int)
    return pd.DataFrame(
        {
            "size": rng.normal(size=rows) + 1.5 * y,
            "weight": rng.normal(size=rows),
            "shape": np.where(rng.random(rows) < 0.3 + 0.4 * y, "round", "flat"),
            "farm": rng.integers(0, 12, rows),
            "day": rng.permutation(rows),
            "ripe": np.where(y == 1, "yes", "no"),
        }
    )


def multiclass(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    y = rng.choice(3, rows, p=[0.6, 0.25, 0.15])
    return pd.DataFrame(
        {"a": rng.normal(size=rows) + y, "b": rng.normal(size=rows) - y, "kind": np.array(["x", "y", "z"])[y]}
    )


def multilabel(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    labels = rng.random((rows, 3)) < [0.5, 0.3, 0.15]
    table = pd.DataFrame(rng.normal(size=(rows, 3)) + labels, columns=["a", "b", "c"])
    return table.assign(**{f"label {k}": labels[:, k].astype(int) for k in range(3)})


def written(frame: pd.DataFrame, folder: Path, name: str = "data.csv") -> str:
    path = folder / name
    frame.to_csv(path, index=False)
    return str(path)
