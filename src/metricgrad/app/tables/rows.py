"""Rows as numbers of 64 bits, by which equal rows are recognised."""

from __future__ import annotations

import numpy as np
import pandas as pd


def hash_rows(features: pd.DataFrame, targets: np.ndarray | None = None) -> np.ndarray:
    """Return a hash of every row of ``Schema.to_features``, and of its encoded targets if given."""
    found = pd.util.hash_pandas_object(features, index=False).to_numpy()
    if targets is None:
        return np.asarray(found)
    # The names of columns are not part of a hash, so that the layout of targets does not matter.
    return np.asarray(pd.util.hash_pandas_object(pd.DataFrame(targets).assign(features=found), index=False))
