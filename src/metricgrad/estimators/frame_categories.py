"""Frames of pandas and polars with columns that are no numbers: their categories, and the frame as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

Categories = dict[int, list[Any]]
"""The categories of columns, by the index of the column."""


def find_categories(X: Any, texts: bool = False) -> Categories:
    """Return the categories of the columns that have any; with ``texts`` also the values of columns of texts.

    Parameters
    ----------
    X : Any
        A pandas or polars frame; anything else has none.
    texts : bool, default False
        Take the distinct values of a column of texts for its categories.

    Returns
    -------
    dict of int to list
        By the index of the column.

    """
    if hasattr(X, "iloc") and hasattr(X, "dtypes"):
        of_columns = {j: _list_pandas_categories(X.iloc[:, j], texts) for j in range(X.shape[1])}
        return {j: found for j, found in of_columns.items() if found is not None}
    if hasattr(X, "get_columns"):
        wanted = ("Categorical", "Enum", "String") if texts else ("Categorical", "Enum")
        kinds = [str(column.dtype).partition("(")[0] for column in X.get_columns()]
        places = [j for j, kind in enumerate(kinds) if kind in wanted]
        return {j: _read_column(X, j).unique().drop_nulls().sort().to_list() for j in places}
    return {}


def _list_pandas_categories(column: Any, texts: bool) -> list[Any] | None:
    if column.dtype == "category":
        return column.cat.categories.tolist()  # type: ignore[no-any-return]
    if not texts or column.dtype.kind != "O":
        return None
    known = column.dropna().unique().tolist()
    return sorted(known) if known and all(isinstance(value, str) for value in known) else None


def encode_categories(X: Any, known: Categories) -> Any:
    """Return a frame with the numbers of its categories; an unknown one is missing.

    Parameters
    ----------
    X : Any
        A frame, or anything else, which is returned as it is.
    known : dict of int to list
        What ``find_categories`` returned.

    Returns
    -------
    Any
        The frame.

    """
    if not known or not hasattr(X, "columns"):
        return X
    import pandas as pd

    columns: dict[int, Any] = {}
    for j, values in known.items():
        if j < X.shape[1]:
            places = pd.Index(values).get_indexer(_read_column(X, j))
            columns[j] = np.where(places < 0, np.nan, places)
    if not hasattr(X, "iloc"):  # polars
        series = [type(X[:, j])(X.columns[j], column) for j, column in columns.items()]
        return X.with_columns(series)
    X = X.copy(deep=False)
    for j, column in columns.items():
        X.isetitem(j, column)
    return X


def _read_column(X: Any, j: int) -> Any:
    """Return a column with its categories as values."""
    return X.iloc[:, j] if hasattr(X, "iloc") else X[:, j].cast(str)
