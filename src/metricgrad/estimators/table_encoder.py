"""``TableEncoder``: a table of numbers, categories, dates and texts as the numbers that classifiers take.

It works in two steps. ``read`` turns the cells of each column into *parts*: numbers, codes of categories, texts. This
depends on the descriptions of the columns alone. ``encode`` turns parts into a matrix, with what was fitted on the
training rows: medians, scales, the frequent categories, means of the targets, words.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

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

Parts: TypeAlias = pd.DataFrame | dict[str, np.ndarray]
"""The parts of rows by name: a frame, from which rows can be taken, or the arrays alone, which take less time."""

MOST_TARGET_MEANS = 32
"""The most classes or labels whose means encode a category; of more, the most frequent ones."""

MOST_WORDS = 2000
"""The most words and pairs of words that become columns, of all columns of text together."""

FREQUENT = 10
"""Categories with fewer training rows are encoded as one."""

_FOLDS = 5  # the target means of a training row come from the other folds

_NUMERIC = ("number", "boolean", "date")
"""The kinds of columns whose parts are numbers."""


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
        parts = self.read(frame)
        means = self.fit_parts(parts, y)
        return self.encode(parts, self.output, means)

    def transform(self, X: Any) -> Any:
        """Return rows encoded; new categories, and texts that are not written as in training, count as missing.

        Parameters
        ----------
        X : DataFrame or array-like
            With the columns of the table that was fitted. Those of a frame are found by their names: they may be in any
            order, and columns that the encoder does not know are not used. An array must have as many columns as in
            ``fit``.

        Returns
        -------
        ndarray or sparse matrix
            ``(n, features)``.

        Raises
        ------
        ValueError
            If a column is missing, an array has another number of columns, or cells cannot be read.

        """
        parts = self.read(X)
        return self.encode(parts, self.output)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the encoded columns, each of which occurs once.

        A number, or a code for trees, has the name of its column, "size". "size is missing" says where it was missing,
        "shape=round" is a category, and "shape=missing" and "shape=rare" are those cells and the rare categories
        together; "shape=(missing)" if a category is called "missing". "sold (year)" is a part of a date, "town: mean 0"
        a mean of the target, "note: good" a word and "note: topic 0" a topic. A column that is itself called
        "sold (year)" is "sold (year) (column)". Where two names are still the same, the later one ends with " (2)".

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
        names = list(self.numbers_)
        if self.output == "trees":
            names += self.codes_
        else:
            names += [f"{name} is missing" for name in np.array(self.numbers_, dtype=object)[self.often_missing_]]
            for name in self.codes_:
                names += [f"{name}={category}" for category in self._name_slots(name)]
        for name, table in self.target_means_.items():
            names += [f"{name}: mean {k}" for k in range(table.shape[1])]
        for name, words in self.words_.items():
            if self.output == "linear":
                names += [f"{name}: {word}" for word in words.vocabulary]
            else:
                names += [f"{name}: topic {i}" for i in range(len(words.topics))]
        return np.array(_number_repeated(names), dtype=object)

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
            try:
                check_date_format(self.date_format)
            except ValueError as error:
                raise ValueError(f"date_format: {error}") from error
        self.feature_names_in_ = np.asarray(frame.columns, dtype=object)
        self.n_features_in_ = frame.shape[1]
        self.dropped_ = {}
        if self.columns is not None:
            self.columns_ = tuple(self.columns)
            return
        used = []
        for name in frame.columns:
            column_or_reason = describe_column(name, frame[name], self.date_format, drop_ids=False)
            if isinstance(column_or_reason, Column):
                used.append(column_or_reason)
            else:
                self.dropped_[name] = column_or_reason
        self.columns_ = tuple(used)
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
        table = _make_frame(X)
        has_no_names = isinstance(table.columns, pd.RangeIndex)
        if has_no_names and table.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {table.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input; pass the columns that were fitted"
            )
        frame = _name_by_texts(table)
        missing = [column.name for column in self.columns_ if column.name not in frame.columns]
        if missing:
            raise ValueError(f"X: expected the columns of the table that was fitted, got none named {missing[0]!r}")
        return pd.DataFrame(read_columns(self.columns_, frame), index=frame.index)

    # Parts to matrices

    def name_parts(self) -> None:
        """Set the names of the parts that are numbers, of those that are codes of categories, and of texts."""
        self.numbers_ = tuple(part for column in self.columns_ if column.kind in _NUMERIC for part in column.parts)
        self.codes_ = tuple(column.value_part for column in self.columns_ if column.kind == "category")
        self.texts_ = tuple(column.value_part for column in self.columns_ if column.kind == "text")

    def fit_parts(self, parts: pd.DataFrame, y: Any = None, counted: Any = None) -> dict[str, np.ndarray]:
        """Learn what encodes the parts of training rows, and return the target means of all rows, cross-fitted.

        Parameters
        ----------
        parts : DataFrame
            What ``read`` returned.
        y : array-like, optional
            Labels ``(n,)`` or an indicator matrix ``(n, K)``.
        counted : ndarray, optional
            The indices of the rows to learn from, by default all; the other rows get the means of these.

        Returns
        -------
        dict of str to ndarray
            The means of every row, for each column that is encoded by the target.

        """
        counted = slice(None) if counted is None else counted
        training_parts = parts.iloc[counted]
        indicators = None if y is None else _find_indicators(y)[counted]
        self.name_parts()
        numbers = self._take_numbers(training_parts)
        self.often_missing_ = np.isnan(numbers).any(0)
        self.medians_ = _find_medians(numbers)
        self.shift_, self.scale_ = _find_scale(self._fill_missing(numbers))
        self.slots_ = {name: _assign_slots(training_parts[name].to_numpy()) for name in self.codes_}
        most_words = max(100, MOST_WORDS // max(1, len(self.texts_)))
        self.words_ = {name: fit_words(training_parts[name], indicators, most_words) for name in self.texts_}
        return self._fit_target_means(parts, indicators, counted)

    def _fit_target_means(
        self, parts: pd.DataFrame, indicators: np.ndarray | None, counted: Any
    ) -> dict[str, np.ndarray]:
        """Learn the means of the target of each category, and return those of all rows, cross-fitted where counted."""
        self.target_means_: dict[str, np.ndarray] = {}
        self.mean_scales_: dict[str, np.ndarray] = {}
        means_of_rows: dict[str, np.ndarray] = {}
        if indicators is None:
            return means_of_rows
        for column in self.columns_:
            if not column.levels:
                continue
            codes = parts[column.level_part].to_numpy()
            table, cross_fitted = _encode_by_target(codes[counted], len(column.levels), indicators)
            self.target_means_[column.name] = table
            self.mean_scales_[column.name] = np.stack(_find_scale(cross_fitted.astype(np.float64)))
            means_of_rows[column.name] = _look_up_means(table, codes)
            means_of_rows[column.name][counted] = cross_fitted
        return means_of_rows

    def encode(self, parts: Parts, output: Output, means: Mapping[str, np.ndarray] | None = None) -> Any:
        """Return parts as a matrix.

        Parameters
        ----------
        parts : DataFrame or dict of str to ndarray
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
        means = self._find_target_means(parts) if means is None else means
        if output == "trees":
            return self._encode_for_trees(parts, means)
        numbers = self._take_numbers(parts)
        scaled = (self._fill_missing(numbers) - self.shift_) / self.scale_
        is_missing = np.isnan(numbers)[:, self.often_missing_].astype(np.float64)
        blocks = [scaled, is_missing]
        for name in self.codes_:
            blocks.append(one_hot(np.asarray(parts[name]), self.slots_[name]))
        for name, means_of_rows in means.items():
            shift, scale = self.mean_scales_[name]
            blocks.append((means_of_rows - shift) / scale)
        if output == "dense":
            blocks += self._find_topics(parts)
        dense = np.hstack(blocks)
        if output == "dense" or not self.words_:
            return dense
        words = [words.transform(parts[name]) for name, words in self.words_.items()]
        return sparse.hstack((sparse.csr_matrix(dense.astype(np.float32)), *words), "csr", np.float32)

    def _encode_for_trees(self, parts: Parts, means: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return numbers as they are and codes, NaN where they are missing, means of the target, and topics."""
        blocks = [self._take_numbers(parts)]
        for name in self.codes_:
            codes = code_missing_as_nan(np.asarray(parts[name]))
            blocks.append(codes[:, None])
        blocks += means.values()
        blocks += self._find_topics(parts)
        return np.hstack([block.astype(np.float32, copy=False) for block in blocks])

    def _find_target_means(self, parts: Parts) -> dict[str, np.ndarray]:
        """Return the means of the target of each row's category, by column."""
        level_parts = {column.name: column.level_part for column in self.columns_}
        found = {}
        for name, table in self.target_means_.items():
            codes = np.asarray(parts[level_parts[name]])
            found[name] = _look_up_means(table, codes)
        return found

    def _take_numbers(self, parts: Parts) -> np.ndarray:
        if not self.numbers_:
            some_part = next(iter(parts))
            return np.empty((len(parts[some_part]), 0), np.float32)
        return np.column_stack([parts[name] for name in self.numbers_]).astype(np.float32, copy=False)

    def _fill_missing(self, numbers: np.ndarray) -> np.ndarray:
        """Return numbers with the median of their column in the place of missing ones."""
        return np.where(np.isnan(numbers), self.medians_, numbers).astype(np.float64)

    def _find_topics(self, parts: Parts) -> list[np.ndarray]:
        """Return the topics of each column of text."""
        topics = []
        for name, words in self.words_.items():
            tf_idf = words.transform(parts[name]).astype(np.float64)
            # Added in float64 and rounded once, so that the order of a sum does not decide which way a tree goes.
            sums = tf_idf @ words.topics.T.astype(np.float64)
            topics.append(np.asarray(sums, dtype=np.float32))
        return topics

    def _name_slots(self, part: str) -> list[str]:
        """Return the names of the one-hot columns of a category column, given the name of its codes."""
        categories = next(column.categories for column in self.columns_ if column.value_part == part)
        missing, others, rare = (_mark_unlike(word, categories) for word in ("missing", "others", "rare"))
        name_of_code = [missing, *categories, others, "new"]
        slots = self.slots_[part]
        names = []
        for slot in range(slots.max() + 1):
            codes = np.flatnonzero(slots == slot)
            names.append(name_of_code[codes[0]] if len(codes) == 1 else rare)
        return names


def as_frame(X: Any) -> pd.DataFrame:
    """Return a table as a frame of pandas whose columns have texts as names."""
    return _name_by_texts(_make_frame(X))


def _name_by_texts(frame: pd.DataFrame) -> pd.DataFrame:
    return frame if all(isinstance(name, str) for name in frame.columns) else frame.rename(columns=str)


def _make_frame(X: Any) -> pd.DataFrame:
    """Return a table as a frame of pandas; the columns of an array, which has no names, are a ``RangeIndex``."""
    if isinstance(X, pd.DataFrame):
        return X
    if hasattr(X, "to_pandas"):  # polars, pyarrow and others
        return X.to_pandas()
    if sparse.issparse(X):
        raise ValueError("X: expected a table, got a sparse matrix; sparse features need no TableEncoder")
    if getattr(X, "ndim", 2) != 2:
        raise ValueError(f"X: expected a table of two dimensions, got {X.ndim}; a single column is X.reshape(-1, 1)")
    return pd.DataFrame(X)


def _number_repeated(names: list[str]) -> list[str]:
    """Return distinct names: a name that occurred before gets the smallest number that makes it new.

    >>> _number_repeated(["a", "b", "a", "a (2)", "a"])
    ['a', 'b', 'a (3)', 'a (2)', 'a (4)']
    """
    taken = set(names)
    seen: set[str] = set()
    unique = []
    for name in names:
        own_name = name
        if name in seen:
            numbered = (f"{name} ({number})" for number in itertools.count(2))
            own_name = next(other for other in numbered if other not in taken)
        seen.add(own_name)
        taken.add(own_name)
        unique.append(own_name)
    return unique


def _mark_unlike(word: str, categories: Sequence[str]) -> str:
    """Return a word in brackets, as many as it takes to differ from every category."""
    while word in categories:
        word = f"({word})"
    return word


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
    """Return the one-hot column of each code, or −1 for none; the first code is −1, for missing cells.

    Rare categories share a column. The last entry is for codes that did not occur: they share it too, if there is one.
    """
    counts = np.bincount(codes + 1, minlength=int(codes.max(initial=-1)) + 3)
    frequent = counts >= FREQUENT
    rare = (counts > 0) & ~frequent
    slots = np.full(len(counts), -1)
    slots[frequent] = np.arange(frequent.sum())
    if rare.any():
        slots[~frequent] = frequent.sum()
    return slots


def one_hot(codes: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return 0/1 of rows and one-hot columns."""
    places = slots[np.minimum(codes + 1, len(slots) - 1)]
    return np.asarray(places[:, None] == np.arange(slots.max() + 1), dtype=np.float64)


def _look_up_means(table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the means of each row, given the table of those of all codes from −1 (missing) on."""
    return np.asarray(table[codes + 1])


def code_missing_as_nan(codes: np.ndarray) -> np.ndarray:
    """Return codes for trees, NaN in the place of −1."""
    return np.where(codes < 0, np.nan, codes).astype(np.float32)


def _find_indicators(y: Any) -> np.ndarray:
    """Return 0/1 for each row and label, or class; of two classes only for the second."""
    targets = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
    if targets.ndim == 2 and targets.shape[1] > 1:
        return np.asarray(targets)
    classes, index = np.unique(targets.reshape(-1), return_inverse=True)
    if len(classes) <= 2:
        return np.asarray(index[:, None])
    return np.asarray(index[:, None] == np.arange(len(classes)), dtype=np.int8)


def _encode_by_target(codes: np.ndarray, levels: int, indicators: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of classes for codes from −1 to ``levels``, and the cross-fitted means of the training rows."""
    most_frequent_first = np.argsort(-indicators.sum(0), kind="stable")
    frequent = np.sort(most_frequent_first[:MOST_TARGET_MEANS])
    cells = codes[:, None]
    every_code = np.arange(-1, levels + 1)[:, None]
    folds = list(KFold(_FOLDS, shuffle=True, random_state=0).split(codes))
    table = np.empty((len(every_code), len(frequent)), np.float32)
    crossed = np.empty((len(codes), len(frequent)), np.float32)
    for place, k in enumerate(frequent):
        y = indicators[:, k].astype(float)
        # With "continuous" the means are those of "binary", and a fold may be without positives.
        encoder = TargetEncoder(target_type="continuous").fit(cells, y)
        table[:, place] = encoder.transform(every_code)[:, 0]
        for others, own in folds:
            encoder = TargetEncoder(target_type="continuous").fit(cells[others], y[others])
            crossed[own, place] = encoder.transform(cells[own])[:, 0]
    return table, crossed
