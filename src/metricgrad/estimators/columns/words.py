"""Free text as numbers: TF-IDF of the words that tell classes apart, and a few topics made of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    from sklearn.feature_extraction.text import TfidfVectorizer

TOPICS = 64
"""The most topics of a column."""

_MOST_ROWS = 50_000  # words are looked for in a sample of this size
_CANDIDATES = 50_000  # the most frequent words and pairs of words, from which the most useful are chosen
_FEWEST_ROWS_OF_A_WORD = 2  # words in fewer rows are not looked at
_TEXT = 10_000  # the most characters of a word or pair of words in a file


@dataclass(frozen=True, eq=False)
class Words:
    """The words and pairs of words of a column, their inverse document frequencies, and topics ``(topics, words)``."""

    vocabulary: tuple[str, ...]
    idf: np.ndarray
    topics: np.ndarray

    @classmethod
    def checked(cls, vocabulary: Sequence[str], idf: np.ndarray, topics: np.ndarray) -> Self:
        """Return the words that were read from a file, or raise a ``ValueError``."""
        count = len(vocabulary)
        if len(set(vocabulary)) < count or any(not 0 < len(word) <= _TEXT for word in vocabulary):
            raise ValueError("words.json: expected every word once, got others")
        if idf.shape != (count,) or (idf <= 0).any() or topics.ndim != 2 or topics.shape[1] != count:
            raise ValueError(f"encoder.safetensors: expected frequencies and topics of {count} words, got others")
        return cls(tuple(vocabulary), idf, topics)

    def transform(self, texts: Iterable[str]) -> sparse.csr_matrix:
        """Return the TF-IDF of texts, float32, each row of length 1, or 0 if it has no known word."""
        texts = list(texts)
        if not self.vocabulary or not texts:  # scikit-learn refuses both
            return sparse.csr_matrix((len(texts), len(self.vocabulary)), dtype=np.float32)
        return self._vectorizer.transform(texts)

    @cached_property
    def _vectorizer(self) -> TfidfVectorizer:
        found = _make_vectorizer(vocabulary=list(self.vocabulary))
        found.idf_ = self.idf
        return found


def fit_words(texts: pd.Series, indicators: np.ndarray | None, most: int) -> Words:
    """Choose the words of training rows that tell classes apart best; ``indicators``: 0/1 per row and class.

    Without indicators, the words that are in most rows.
    """
    from sklearn.decomposition import TruncatedSVD

    if len(texts) > _MOST_ROWS:
        some = np.sort(np.random.default_rng(0).choice(len(texts), _MOST_ROWS, replace=False))
        texts = texts.iloc[some]
        indicators = None if indicators is None else indicators[some]
    found = _make_vectorizer(min_df=_FEWEST_ROWS_OF_A_WORD, max_features=_CANDIDATES)
    try:
        matrix = found.fit_transform(texts)
    except ValueError:  # no word is in two rows
        return Words((), np.zeros(0, np.float32), np.zeros((0, 0), np.float32))
    rating = np.asarray((matrix > 0).sum(0)).ravel() if indicators is None else rate_words(matrix, indicators)
    chosen = np.sort(np.argsort(-rating, kind="stable")[:most])
    words = Words(
        tuple(found.get_feature_names_out()[chosen].tolist()), found.idf_[chosen].astype(np.float32), np.zeros((0, 0))
    )
    count = min(TOPICS, len(chosen) - 1, len(texts) - 1)
    if count < 1:
        return Words(words.vocabulary, words.idf, np.eye(len(chosen), dtype=np.float32))
    topics = TruncatedSVD(count, random_state=0).fit(words.transform(texts)).components_
    return Words(words.vocabulary, words.idf, topics.astype(np.float32))


def rate_words(matrix: sparse.csr_matrix, indicators: np.ndarray) -> np.ndarray:
    """Return how well each word tells some class from the rest: the largest χ² over classes (``sklearn``'s chi2)."""
    total = np.asarray(matrix.sum(0), dtype=float).ravel()
    best = np.zeros(len(total))
    for column in indicators.T:
        expected = total * column.mean()
        rest = total * (1 - column.mean())
        if 0 < column.mean() < 1:
            observed = np.asarray(matrix.T @ column.astype(np.float64)).ravel()
            best = np.maximum(best, (observed - expected) ** 2 * (1 / expected + 1 / rest))
    return best


def _make_vectorizer(**options: Any) -> TfidfVectorizer:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32, **options)
