"""Rows as people pass them one by one: a dict, a list of dicts, or a row of a pandas frame, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from metricgrad.comparison.errors import UserError
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Callable


def arrange_records(data: Any, choose: Callable[[list[str]], list[str]] = lambda names: names) -> Any:
    """Return records as a table of arrow; anything else as it is.

    A record is a mapping from the names of columns to one value each, or a pandas Series with these names as its index.
    A column that a record lacks is missing there, if another record has it. ``choose``: takes the names of all columns,
    and returns those to take.

    >>> arrange_records([{"a": 1, "b": "x"}, {"a": 2}]).to_pydict()
    {'a': [1, 2], 'b': ['x', None]}
    """
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping | pd.Series):
        data = [data]
    elif not isinstance(data, list | tuple):
        return data
    if not data:
        raise UserError("data: expected at least one record, got an empty list")
    for place, record in enumerate(data):
        if not isinstance(record, Mapping | pd.Series):
            raise TypeError(f"data: expected a list of records (dicts), got a {type(record).__name__} at {place}")
    records = [_name_columns(record, place) for place, record in enumerate(data)]
    names = choose(list(dict.fromkeys(name for record in records for name in record)))
    return pa.table({name: _make_column(name, [record.get(name) for record in records]) for name in names})


def _name_columns(record: Any, place: int) -> dict[str, Any]:
    """Return a record with texts as names, as in frames."""
    found = {str(name): value for name, value in record.items()}
    if len(found) < len(record):
        raise UserError(f"data: expected every column name once, got one more than once in record {place}; rename them")
    return found


def _make_column(name: str, values: list[Any]) -> pa.Array:
    """Return a column; values of mixed types become texts, as in a frame. What is no single value is refused."""
    for value in values:
        if isinstance(value, list | tuple | set | Mapping | np.ndarray | pd.Series):
            raise UserError(
                f"data: column {one_line(name, 60)!r}: expected one value in each record, got a "
                f"{type(value).__name__}; pass a frame, or a list of records"
            )
    try:
        return pa.array(values, from_pandas=True)
    except UnicodeEncodeError as error:
        raise UserError(
            f"data: column {one_line(name, 60)!r}: expected text, got a broken character ({error.reason}); correct it"
        ) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        texts = [None if pd.isna(value) else str(value) for value in values]
        return pa.array(texts, pa.string())
