"""The encoder: features of a schema into arrays, fitted on training rows; written as plain arrays and texts.

Numbers and frequent categories are encoded by scikit-learn's transformers. Columns of many categories are also encoded
by the target: each category by the mean of every class among its training rows, shrunk to the mean of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import safetensors.numpy
import skops.io
from scipy import sparse

from metricgrad import strict_json
from metricgrad.estimators.columns.words import Words, fit_words
from metricgrad.estimators.encoded_rows import Features, TextFeatures

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.compose import ColumnTransformer

    from metricgrad.comparison.tables.schema import Schema

CLASSES = 32
"""The most classes or labels whose means encode a category, the most frequent ones."""

MOST_WORDS = 2000
"""The most words and pairs of words that are columns, of all columns of text together."""

_FOLDS = 5  # the means of a training row are of the other folds
_TRUSTED = ["numpy.dtype"]
_PLAIN, _ARRAYS, _WORDS = "encoder.skops", "encoder.safetensors", "words.json"


@dataclass(frozen=True, eq=False)
class Encoder:
    """A fitted encoder.

    ``plain``: of numbers and categories. ``levels``: for each column of many categories, the means of the classes: a
    row for missing cells, one for each of ``Column.levels``, and one for new categories. ``words``: of each column of
    text. ``scaling``: mean and standard deviation of the other columns if there is a column of text.
    """

    plain: ColumnTransformer
    levels: dict[str, np.ndarray] = field(default_factory=dict)
    words: dict[str, Words] = field(default_factory=dict)
    scaling: np.ndarray | None = None

    def transform(self, features: pd.DataFrame) -> Features:
        """Return the rows of ``Schema.to_features`` encoded, in float32."""
        means = {name: table[features[name].to_numpy() + 1] for name, table in self.levels.items()}
        return self._join(features, means)

    @property
    def width(self) -> int:
        """The number of columns of encoded rows."""
        one = self.make_blank()
        return one.shape[1] if isinstance(one, np.ndarray) else sum(part.shape[1] for part in vars(one).values())

    def make_blank(self) -> Features:
        """Return one encoded row of zeros."""
        width = len(self.plain.get_feature_names_out()) + sum(table.shape[1] for table in self.levels.values())
        table = np.zeros((1, width), np.float32)
        if self.scaling is None:
            return table
        topics = sum(len(words.topics) for words in self.words.values())
        count = sum(len(words.vocabulary) for words in self.words.values())
        return TextFeatures(table, np.zeros((1, topics), np.float32), sparse.csr_matrix((1, count), dtype=np.float32))

    def _join(self, features: pd.DataFrame, means: dict[str, np.ndarray]) -> Features:
        table = self.plain.transform(features)
        table = table.toarray() if hasattr(table, "toarray") else table
        if means:
            table = np.hstack((table, *means.values()))
        if self.scaling is None:
            return np.ascontiguousarray(table, dtype=np.float32)
        words = {name: one.transform(features[name]) for name, one in self.words.items()}
        topics = [matrix @ self.words[name].topics.T for name, matrix in words.items()]
        mean, sd = self.scaling
        scaled = ((table - mean) / sd).astype(np.float32)
        return TextFeatures(scaled, np.hstack(topics).astype(np.float32), sparse.hstack([*words.values()], "csr"))

    # Files

    def to_files(self) -> dict[str, bytes]:
        """Return the files of the encoder, by name."""
        files = {_PLAIN: skops.io.dumps(self.plain)}
        arrays = {f"levels-{i}": table for i, table in enumerate(self.levels.values())}
        for i, words in enumerate(self.words.values()):
            arrays |= {f"idf-{i}": words.idf, f"topics-{i}": words.topics}
        if self.scaling is not None:
            arrays["scaling"] = self.scaling
            files[_WORDS] = strict_json.as_json([list(words.vocabulary) for words in self.words.values()])
        # safetensors writes the memory as it lies.
        packed = {name: np.ascontiguousarray(one) for name, one in arrays.items()}
        return files | ({_ARRAYS: safetensors.numpy.save(packed)} if packed else {})

    @classmethod
    def from_files(cls, files: dict[str, bytes], schema: Schema) -> Encoder:
        """Return the encoder of a schema from its files; refuse anything that ``to_files`` does not write."""
        plain = _read_plain(files[_PLAIN], schema)
        levels, texts = schema.encoded_levels, schema.texts
        arrays: dict[str, np.ndarray] = safetensors.numpy.load(files[_ARRAYS]) if levels or texts else {}
        vocabularies = strict_json.read(files[_WORDS], list[list[str]], _WORDS) if texts else []
        names = [f"levels-{i}" for i in range(len(levels))] + (["scaling"] if texts else [])
        names += [f"{part}-{i}" for i in range(len(texts)) for part in ("idf", "topics")]
        if sorted(arrays) != sorted(names) or len(vocabularies) != len(texts):
            raise ValueError(f"{_ARRAYS}: expected the arrays of the columns of schema.json, got others")
        if not all(one.dtype == np.float32 and np.isfinite(one).all() for one in arrays.values()):
            raise ValueError(f"{_ARRAYS}: expected finite float32 numbers, got others")
        tables = {column.level_part: arrays[f"levels-{i}"] for i, column in enumerate(levels)}
        for column in levels:
            rows, table = len(column.levels) + 2, tables[column.level_part]
            if table.ndim != 2 or len(table) != rows or not 1 <= table.shape[1] <= CLASSES:
                raise ValueError(f"{_ARRAYS}: expected means of {rows} categories, got shape {table.shape}")
        words = {
            column.name: Words.checked(vocabularies[i], arrays[f"idf-{i}"], arrays[f"topics-{i}"])
            for i, column in enumerate(texts)
        }
        found = cls(plain, tables, words, arrays.get("scaling"))
        if found.scaling is not None:
            width = len(plain.get_feature_names_out()) + sum(table.shape[1] for table in tables.values())
            if found.scaling.shape != (2, width) or (found.scaling[1] <= 0).any():
                raise ValueError(f"{_ARRAYS}: expected means and deviations of {width} columns, got others")
        return found


def fit_encoder(
    schema: Schema, features: pd.DataFrame, targets: np.ndarray, train: np.ndarray
) -> tuple[Encoder, Features]:
    """Return an encoder fitted on the training rows, and all rows encoded.

    The means that encode categories of a training row are of other rows (cross-fitted): its own target is not in them.
    """
    known = features.iloc[train]
    plain = schema.make_encoder().fit(known)
    indicators = _find_indicators(targets)
    tables, means = {}, {}
    for column in schema.encoded_levels:
        part = column.level_part
        tables[part], crossed = _encode_by_target(known[part].to_numpy(), len(column.levels), indicators[train])
        means[part] = tables[part][features[part].to_numpy() + 1]
        means[part][train] = crossed
    if not schema.texts:
        encoder = Encoder(plain, tables)
        return encoder, encoder._join(features, means)
    table = np.hstack((plain.transform(known), *(one[train] for one in means.values())))
    sd = table.std(0)
    scaling = np.stack((table.mean(0), np.where(sd > 0, sd, 1))).astype(np.float32)
    most = max(100, MOST_WORDS // len(schema.texts))
    words = {column.name: fit_words(known[column.name], indicators[train], most) for column in schema.texts}
    encoder = Encoder(plain, tables, words, scaling)
    return encoder, encoder._join(features, means)


def _find_indicators(targets: np.ndarray) -> np.ndarray:
    """Return 0/1 per row and class: of all labels, of all classes, or only of the positive one of two."""
    if targets.ndim == 2:
        return targets
    classes = int(targets.max()) + 1
    return targets[:, None] if classes <= 2 else (targets[:, None] == np.arange(classes)).astype(np.int8)


def _encode_by_target(codes: np.ndarray, levels: int, indicators: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of classes for codes from −1 to ``levels``, and the cross-fitted means of the training rows."""
    from sklearn.model_selection import KFold
    from sklearn.preprocessing import TargetEncoder

    frequent = np.sort(np.argsort(-indicators.sum(0), kind="stable")[:CLASSES])
    cells, every = codes[:, None], np.arange(-1, levels + 1)[:, None]
    folds = list(KFold(_FOLDS, shuffle=True, random_state=0).split(codes))
    table = np.empty((len(every), len(frequent)), np.float32)
    crossed = np.empty((len(codes), len(frequent)), np.float32)
    for i, k in enumerate(frequent):
        y = indicators[:, k].astype(float)
        # "continuous", since that takes any fold, even one without positives; the means are those of "binary".
        table[:, i] = TargetEncoder(target_type="continuous").fit(cells, y).transform(every)[:, 0]
        for others, own in folds:
            encoder = TargetEncoder(target_type="continuous").fit(cells[others], y[others])
            crossed[own, i] = encoder.transform(cells[own])[:, 0]
    return table, crossed


def _read_plain(data: bytes, schema: Schema) -> ColumnTransformer:
    """Return the fitted transformer of ``Schema.make_encoder``; refuse anything else."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    untrusted = skops.io.get_untrusted_types(data=data)
    if set(untrusted) - set(_TRUSTED):
        raise ValueError(f"{_PLAIN} holds types that are not trusted: {untrusted}")
    encoder = skops.io.loads(data, trusted=_TRUSTED)
    parts = [part for column in schema.columns for part in column.parts]
    if type(encoder) is not ColumnTransformer or list(encoder.feature_names_in_) != parts:
        raise ValueError(f"{_PLAIN}: expected an encoder of the columns of schema.json, got another")
    # "drop" stands for the columns that are encoded otherwise.
    used = [one for _, one, names in encoder.transformers_ if len(names) and one != "drop"]
    if any(type(one) not in (SimpleImputer, OneHotEncoder) for one in used):
        raise ValueError(f"{_PLAIN}: expected an imputer and a one-hot encoder, got others")
    return encoder
