"""Rows: their numbers in words, and hashes of 64 bits by which equal rows are recognised."""

from __future__ import annotations

import numpy as np
import pandas as pd

SAMPLE = "sample"
"""The name of the index of a frame that is a sample of the rows of a file."""


def name_rows(index: pd.Index, most: int = 5) -> str:
    """Return the numbers of rows in words, counted from 1 below the column names; ``index``: their places in the data.

    >>> name_rows(pd.Index([2])), name_rows(pd.Index([2, 5])), name_rows(pd.RangeIndex(40, name=SAMPLE), most=3)
    ('row 3', 'rows 3 and 6', 'rows 1, 2, 3 and 37 more of the sample')
    """
    numbers = [str(int(place) + 1) for place in index[:most]]
    rest = len(index) - len(numbers)
    last = f"{rest} more" if rest else numbers.pop()
    shown = f"rows {', '.join(numbers)} and {last}" if numbers else f"row {last}"
    return f"{shown} of the sample" if index.name == SAMPLE else shown


def hash_rows(features: pd.DataFrame, targets: np.ndarray | None = None) -> np.ndarray:
    """Return a hash of every row of ``Schema.to_features``, and of its encoded targets if given."""
    found = pd.util.hash_pandas_object(features, index=False).to_numpy()
    if targets is None:
        return np.asarray(found)
    # The names of columns are not part of a hash, so that the layout of targets does not matter.
    return np.asarray(pd.util.hash_pandas_object(pd.DataFrame(targets).assign(features=found), index=False))
