"""Tables in memory: frames of pandas, polars, pyarrow and others that narwhals knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw
import pandas as pd
import pyarrow as pa
from narwhals.exceptions import DuplicateError

from metricgrad.comparison.errors import UserError
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Callable


def to_table(data: Any, check: Callable[[list[str]], list[str]] = lambda names: names) -> pa.Table:
    """Return a frame as an arrow table, the same one for equal frames of all libraries.

    ``check``: takes the names of the columns, and returns those to take. The index of a pandas frame is left out, and
    its column names become texts. Categories of any type are texts; so are the cells of a column of mixed types.

    >>> to_table(pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=[7, 8])).to_pydict()
    {'a': [1, 2], 'b': ['x', None]}
    """
    if isinstance(data, pa.Table):  # as it is: asking narwhals takes longer than predicting a row
        return _make_plain(data.select(check(data.column_names)))
    if isinstance(data, pd.DataFrame):
        data = data.set_axis([str(name) for name in data.columns], axis=1).reset_index(drop=True)
    try:
        frame = nw.from_native(data, eager_only=True)
    except DuplicateError as error:
        raise UserError(f"data: expected every column name once; rename them ({one_line(error, 100)})") from error
    except TypeError as error:
        hint = "; collect it first" if hasattr(data, "collect") else ""
        raise TypeError(
            f"data: expected a frame of pandas, polars or pyarrow, got {type(data).__name__}{hint}"
        ) from error
    frame = frame.select(check(frame.columns))
    try:
        table = frame.to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        table = _with_texts(frame.to_native())
    return _make_plain(table)


def _make_plain(table: pa.Table) -> pa.Table:
    """Return a table whose columns have the types that all libraries share."""
    return pa.table({name: _plain(column) for name, column in zip(table.column_names, table.columns, strict=True)})


def _with_texts(frame: pd.DataFrame) -> pa.Table:
    """Return a pandas frame as a table, columns of mixed types as texts."""
    found = {}
    for name in frame.columns:
        try:
            found[name] = pa.array(frame[name], from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            found[name] = pa.array(frame[name].map(str, na_action="ignore"), pa.string(), from_pandas=True)
    return pa.table(found)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with the types that all libraries share: texts of one kind, categories that are texts."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type).cast(pa.string()).dictionary_encode()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    return column
