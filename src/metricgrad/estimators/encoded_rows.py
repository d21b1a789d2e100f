"""Encoded rows: one dense array or, if there are columns of free text, blocks of which each contender takes some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """Rows with texts: the other columns, standardised (``table``), and the texts twice, as ``topics`` and ``words``.

    ``words``: TF-IDF, sparse, for linear models and networks. ``topics``: a few numbers made of them, for trees.
    """

    table: np.ndarray
    topics: np.ndarray
    words: sparse.csr_matrix

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows: Any) -> TextFeatures:
        return TextFeatures(self.table[rows], self.topics[rows], self.words[rows])

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that hold it, by name."""
        words = {name: getattr(self.words, name) for name in ("data", "indices", "indptr")}
        return {"table": self.table, "topics": self.topics, **words, "width": np.array(self.words.shape[1])}

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> TextFeatures:
        """Return the rows that ``arrays`` holds."""
        shape = (len(arrays["table"]), int(arrays["width"]))
        words = sparse.csr_matrix(tuple(arrays[name] for name in ("data", "indices", "indptr")), shape, copy=False)
        return cls(arrays["table"], arrays["topics"], words)


Features = np.ndarray | TextFeatures
"""Encoded rows; they have a length, and are indexed by rows."""


def to_dense(features: Features) -> np.ndarray:
    """Return what trees take: few columns, dense."""
    if isinstance(features, TextFeatures):
        return np.hstack((features.table, features.topics))
    return features


def to_wide(features: Features) -> Any:
    """Return what linear models and networks take: every word is a column, and the array is sparse if there are any."""
    if isinstance(features, TextFeatures):
        return sparse.hstack((sparse.csr_matrix(features.table), features.words), "csr", np.float32)
    return features
