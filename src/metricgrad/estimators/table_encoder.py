"""``TableEncoder``: a table of numbers, categories, dates and texts as the numbers that classifiers take.

It works in two steps. ``read`` turns the cells of each column into *parts*: numbers, codes of categories, texts. This
depends on the descriptions of the columns alone. ``encode`` turns parts into a matrix, with what was fitted on the
training rows: medians, scales, the frequent categories, means of the targets, words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from metricgrad.estimators.columns.column import Column, describe_column, read_columns
from metricgrad.estimators.columns.dates import check_date_format
from metricgrad.estimators.columns.words import fit_words
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Output = Literal["linear", "dense", "trees"]

MOST_TARGET_MEANS = 32
"""The most classes or labels whose means encode a category; of more, the most frequent ones."""

MOST_WORDS = 2000
"""The most words and pairs of words that become columns, of all columns of text together."""

FREQUENT = 10
"""Categories with fewer training rows are encoded as one."""

_FOLDS = 5  # the target means of a training row come from the other folds


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn a table of numbers, categories, dates and texts into the numbers that classifiers take.

    What a column holds is found from its cells: numbers and dates may be written as texts in any usual notation
    ("1.234,50", "31.12.2024"); a date becomes day, year, month, weekday and, if there is a clock, hour. Columns that
    are constant, wholly missing or different in every row (ids that are texts) are left out; ``dropped_`` says why.

    Columns of more than 50 categories are also encoded by the target: the mean of every class among the rows of a
    category, shrunk to that of all rows. In ``fit_transform`` the means of a row come from other rows (cross-fitted),
    as in scikit-learn's ``TargetEncoder``. Of texts, the words that tell the classes apart best are kept.

    Parameters
    ----------
    output : {'linear', 'dense', 'trees'}, default 'linear'
        "linear", for linear models and networks: numbers standardised, with the median in the place of missing ones and
        a column that says where; categories one-hot, those of fewer than 10 rows together; words as TF-IDF, and the
        matrix sparse if there are any. "dense": the same with a few topics in the place of the words. "trees": numbers
        as they are and categories as codes, NaN where they are missing, and topics.
    columns : sequence of Column, optional
        Descriptions of the columns, such as ``columns_`` of another encoder; by default they are found by ``fit``.
    date_format : str, optional
        How dates are written that could be read in two ways, such as "day/month/year".

    Attributes
    ----------
    columns_ : tuple of Column
        The columns that are used: name, kind, and their distribution in training.
    dropped_ : dict of str to str
        The columns that are not, and why.
    n_features_in_ : int
        The number of columns of the table.
    feature_names_in_ : ndarray
        Their names.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> table = pd.DataFrame({"size": ["1,5", "2,0", None, "3,5"] * 10, "shape": ["flat", "round"] * 20})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['size', 'size is missing', 'shape=flat', 'shape=round']
    >>> model = make_pipeline(TableEncoder(), LogisticRegression()).fit(table, [0, 1] * 20)
    >>> model.predict(table.head(2))
    array([0, 1])

    """

    columns_: tuple[Column, ...]
    dropped_: dict[str, str]

    def __init__(
        self, output: Output = "linear", *, columns: Sequence[Column] | None = None, date_format: str | None = None
    ) -> None:
        self.output = output
        self.columns = columns
        self.date_format = date_format

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    # Tables to matrices

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the columns, and what encodes them.

        Parameters
        ----------
        X : DataFrame or array-like
            ``(n, columns)``, of pandas or whatever pandas makes a frame of.
        y : array-like, optional
            Labels ``(n,)`` or an indicator matrix ``(n, K)``. Without it categories are not encoded by the target, and
            the most frequent words are kept.

        Returns
        -------
        TableEncoder
            Itself.

        """
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Do as ``fit``, and return the training rows encoded, by target means of other rows.

        Parameters
        ----------
        X : DataFrame or array-like
            ``(n, columns)``.
        y : array-like, optional
            Labels ``(n,)`` or an indicator matrix ``(n, K)``.

        Returns
        -------
        ndarray or sparse matrix
            ``(n, features)``.

        """
        if self.output not in get_args(Output):
            raise ValueError(f"output: expected one of {', '.join(get_args(Output))}, got {self.output!r}")
        frame = as_frame(X)
        if y is not None:
            check_consistent_length(frame, y)
        self.describe(frame)
        parts = read_columns(self.columns_, frame)
        means = self.fit_parts(parts, y)
        return self.encode(parts, self.output, means)

    def transform(self, X: Any) -> Any:
        """Return rows encoded; new categories, and texts that are not written as in training, count as missing.

        Parameters
        ----------
        X : DataFrame or array-like
            With the columns of the table that was fitted.

        Returns
        -------
        ndarray or sparse matrix
            ``(n, features)``.

        """
        return self.encode(self.read(X), self.output)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the encoded columns.

        Parameters
        ----------
        input_features : array-like, optional
            Not used; scikit-learn's convention.

        Returns
        -------
        ndarray
            Of texts.

        """
        check_is_fitted(self, "columns_")
        numbers = list(self.numbers_)
        codes = list(self.codes_)
        means = [f"{name}: mean {k}" for name, table in self.target_means_.items() for k in range(table.shape[1])]
        topics = [f"{name}: topic {i}" for name, words in self.words_.items() for i in range(len(words.topics))]
        if self.output == "trees":
            return np.array([*numbers, *codes, *means, *topics], dtype=object)
        missing = [f"{name} is missing" for name, often in zip(numbers, self.often_missing_, strict=True) if often]
        one_hot = [f"{name}={text}" for name in codes for text in self._name_slots(name)]
        words = [f"{name}: {word}" for name, found in self.words_.items() for word in found.vocabulary]
        texts = words if self.output == "linear" else topics
        return np.array([*numbers, *missing, *one_hot, *means, *texts], dtype=object)

    # Tables to parts

    def describe(self, frame: pd.DataFrame) -> None:
        """Set ``columns_`` and ``dropped_``: find out what the columns of a table hold, unless they are given.

        Parameters
        ----------
        frame : DataFrame
            The table.

        """
        if not len(frame):
            raise ValueError("X: expected rows, got none")
        if not frame.columns.is_unique:
            twice = frame.columns[frame.columns.duplicated()][0]
            raise ValueError(f"X: expected every column name once, got {twice!r} twice; rename one")
        if self.date_format is not None:
            check_date_format(self.date_format)
        self.feature_names_in_ = np.asarray(frame.columns, dtype=object)
        self.n_features_in_ = frame.shape[1]
        if self.columns is not None:
            self.columns_, self.dropped_ = tuple(self.columns), {}
            return
        found = {name: describe_column(name, frame[name], self.date_format, drop_ids=False) for name in frame.columns}
        self.columns_ = tuple(column for column in found.values() if isinstance(column, Column))
        self.dropped_ = {name: why for name, why in found.items() if isinstance(why, str)}
        if not self.columns_:
            why = one_line("; ".join(f"{name!r} {reason}" for name, reason in self.dropped_.items()), 200)
            raise ValueError(f"X: expected columns that tell rows apart, got none ({why})")

    def read(self, X: Any) -> pd.DataFrame:
        """Return the parts of a table: float32 numbers with NaN for missing, codes with −1 for missing, and texts.

        Parameters
        ----------
        X : DataFrame or array-like
            With the columns of the table that was fitted.

        Returns
        -------
        DataFrame
            A column for each part.

        """
        check_is_fitted(self, "columns_")
        frame = as_frame(X)
        missing = [column.name for column in self.columns_ if column.name not in frame.columns]
        if missing:
            raise ValueError(f"X: expected the columns of the table that was fitted, got none named {missing[0]!r}")
        return read_columns(self.columns_, frame)

    # Parts to matrices

    def name_parts(self) -> None:
        """Set the names of the parts that are numbers, and of those that are codes of categories."""
        self.numbers_ = tuple(part for one in self.columns_ if one.kind in _NUMERIC for part in one.parts)
        self.codes_ = tuple(one.name for one in self.columns_ if one.kind == "category")

    def fit_parts(self, parts: pd.DataFrame, y: Any = None, counted: Any = None) -> dict[str, np.ndarray]:
        """Learn what encodes the parts of training rows, and return the cross-fitted target means of all rows given.

        Parameters
        ----------
        parts : DataFrame
            What ``read`` returned.
        y : array-like, optional
            Labels ``(n,)`` or an indicator matrix ``(n, K)``.
        counted : ndarray, optional
            The indices of the rows to learn from, if not all; the others get the means of these.

        Returns
        -------
        dict of str to ndarray
            The means of each column that is encoded by the target.

        """
        columns, every_row = self.columns_, parts
        counted = slice(None) if counted is None else counted
        parts = parts.iloc[counted]
        self.name_parts()
        numbers = self._take_numbers(parts)
        self.often_missing_ = np.isnan(numbers).any(0)
        self.medians_ = _find_medians(numbers)
        self.shift_, self.scale_ = _find_scale(self._fill_missing(numbers))
        self.slots_ = {name: _assign_slots(parts[name].to_numpy()) for name in self.codes_}
        indicators = None if y is None else _find_indicators(y)[counted]
        self.target_means_: dict[str, np.ndarray] = {}
        self.mean_scales_: dict[str, np.ndarray] = {}
        crossed: dict[str, np.ndarray] = {}
        for column in columns:
            if column.levels and indicators is not None:
                codes = parts[column.level_part].to_numpy()
                table, means = _encode_by_target(codes, len(column.levels), indicators)
                self.target_means_[column.name] = table
                self.mean_scales_[column.name] = np.stack(_find_scale(means.astype(np.float64)))
                crossed[column.name] = table[every_row[column.level_part].to_numpy() + 1]
                crossed[column.name][counted] = means
        texts = [column.name for column in columns if column.kind == "text"]
        most = max(100, MOST_WORDS // max(1, len(texts)))
        self.words_ = {name: fit_words(parts[name], indicators, most) for name in texts}
        return crossed

    def encode(self, parts: pd.DataFrame, output: Output, means: Mapping[str, np.ndarray] | None = None) -> Any:
        """Return parts as a matrix.

        Parameters
        ----------
        parts : DataFrame
            What ``read`` returned.
        output : {'linear', 'dense', 'trees'}
            As for the encoder.
        means : dict of str to ndarray, optional
            Target means of these rows, from ``fit_parts``, to use in the place of those of all rows.

        Returns
        -------
        ndarray or sparse matrix
            ``(n, features)``.

        """
        if means is None:
            level_parts = {column.name: column.level_part for column in self.columns_ if column.levels}
            means = {name: table[parts[level_parts[name]].to_numpy() + 1] for name, table in self.target_means_.items()}
        numbers = self._take_numbers(parts)
        if output == "trees":
            codes = [_code_missing_as_nan(parts[name].to_numpy()) for name in self.codes_]
            blocks = [numbers, *(one[:, None] for one in codes), *means.values(), *self._find_topics(parts)]
            return np.hstack([block.astype(np.float32, copy=False) for block in blocks])
        scaled = (self._fill_missing(numbers) - self.shift_) / self.scale_
        is_missing = np.isnan(numbers)[:, self.often_missing_].astype(np.float64)
        blocks = [scaled, is_missing]
        blocks += [_one_hot(parts[name].to_numpy(), self.slots_[name]) for name in self.codes_]
        blocks += [(table - self.mean_scales_[name][0]) / self.mean_scales_[name][1] for name, table in means.items()]
        if output == "dense":
            blocks += self._find_topics(parts)
        table = np.hstack(blocks)
        if output == "dense" or not self.words_:
            return table
        words = [one.transform(parts[name]) for name, one in self.words_.items()]
        return sparse.hstack((sparse.csr_matrix(table.astype(np.float32)), *words), "csr", np.float32)

    def _take_numbers(self, parts: pd.DataFrame) -> np.ndarray:
        if not self.numbers_:
            return np.empty((len(parts), 0), np.float32)
        return np.column_stack([parts[name].to_numpy(np.float32) for name in self.numbers_])

    def _fill_missing(self, numbers: np.ndarray) -> np.ndarray:
        """Return numbers with the median of their column in the place of missing ones."""
        return np.where(np.isnan(numbers), self.medians_, numbers).astype(np.float64)

    def _find_topics(self, parts: pd.DataFrame) -> list[np.ndarray]:
        """Return the topics of each column of text."""
        return [np.asarray(one.transform(parts[name]) @ one.topics.T) for name, one in self.words_.items()]

    def _name_slots(self, name: str) -> list[str]:
        """Return the names of the one-hot columns of a category column."""
        (column,) = (one for one in self.columns_ if one.name == name)
        texts = ["missing", *column.categories, "others", "new"]
        slots = self.slots_[name]
        members = [[texts[code] for code in np.flatnonzero(slots == k)] for k in range(slots.max() + 1)]
        return [one[0] if len(one) == 1 else "rare" for one in members]


_NUMERIC = ("number", "boolean", "date")


def as_frame(X: Any) -> pd.DataFrame:
    """Return a table as a frame of pandas whose columns have texts as names."""
    if isinstance(X, pd.DataFrame):
        return X if all(isinstance(name, str) for name in X.columns) else X.rename(columns=str)
    if hasattr(X, "to_pandas"):  # polars, pyarrow and others
        return X.to_pandas()
    if sparse.issparse(X):
        raise ValueError("X: expected a table, got a sparse matrix; sparse features need no TableEncoder")
    if getattr(X, "ndim", 2) != 2:
        raise ValueError(f"X: expected a table of two dimensions, got {X.ndim}; a single column is X.reshape(-1, 1)")
    return pd.DataFrame(X).rename(columns=str)


def _find_medians(numbers: np.ndarray) -> np.ndarray:
    """Return the median of each column, 0 of one without numbers."""
    empty = np.isnan(numbers).all(0)
    found = np.zeros(numbers.shape[1], np.float32)
    found[~empty] = np.nanmedian(numbers[:, ~empty], axis=0)
    return found


def _find_scale(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of each column, 1 where it is constant."""
    deviations = numbers.std(0)
    return numbers.mean(0), np.where(deviations > 0, deviations, 1.0)


def _assign_slots(codes: np.ndarray) -> np.ndarray:
    """Return the one-hot column of each code, from −1 (missing) on: the rare ones share one, −1 stands for none.

    The last entry is for codes that did not occur; they go to the rare ones, if there are any.
    """
    counts = np.bincount(codes + 1, minlength=int(codes.max(initial=-1)) + 3)
    frequent = counts >= FREQUENT
    rare = (counts > 0) & ~frequent
    slots = np.full(len(counts), -1)
    slots[frequent] = np.arange(frequent.sum())
    if rare.any():
        slots[~frequent] = frequent.sum()
    return slots


def _one_hot(codes: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return 0/1 of rows and one-hot columns."""
    places = slots[np.minimum(codes + 1, len(slots) - 1)]
    return np.asarray(places[:, None] == np.arange(slots.max() + 1), dtype=np.float64)


def _code_missing_as_nan(codes: np.ndarray) -> np.ndarray:
    return np.where(codes < 0, np.nan, codes).astype(np.float32)


def _find_indicators(y: Any) -> np.ndarray:
    """Return 0/1 per row and class: of all labels, of all classes, or only of the second one of two."""
    targets = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
    if targets.ndim == 2 and targets.shape[1] > 1:
        return np.asarray(targets)
    classes, index = np.unique(targets.reshape(-1), return_inverse=True)
    if len(classes) <= 2:
        return np.asarray(index[:, None])
    return np.asarray(index[:, None] == np.arange(len(classes)), dtype=np.int8)


def _encode_by_target(codes: np.ndarray, levels: int, indicators: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of classes for codes from −1 to ``levels``, and the cross-fitted means of the training rows."""
    frequent = np.sort(np.argsort(-indicators.sum(0), kind="stable")[:MOST_TARGET_MEANS])
    cells = codes[:, None]
    every_code = np.arange(-1, levels + 1)[:, None]
    folds = list(KFold(_FOLDS, shuffle=True, random_state=0).split(codes))
    table = np.empty((len(every_code), len(frequent)), np.float32)
    crossed = np.empty((len(codes), len(frequent)), np.float32)
    for place, k in enumerate(frequent):
        y = indicators[:, k].astype(float)
        # "continuous", since that takes any fold, even one without positives; the means are those of "binary".
        table[:, place] = TargetEncoder(target_type="continuous").fit(cells, y).transform(every_code)[:, 0]
        for others, own in folds:
            encoder = TargetEncoder(target_type="continuous").fit(cells[others], y[others])
            crossed[own, place] = encoder.transform(cells[own])[:, 0]
    return table, crossed
