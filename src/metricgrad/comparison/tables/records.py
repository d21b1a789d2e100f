"""Rows as people pass them one by one: a dict, a list of dicts, or a row of a pandas frame, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from metricgrad.comparison.errors import UserError
from metricgrad.messages import one_line


def arrange_records(data: Any) -> Any:
    """Return records as a table of arrow; anything else as it is.

    A record is a mapping from the names of columns to one value each, or a pandas Series with these names as its index.
    A column that a record lacks is missing there, if another record has it.

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
    return _make_table([_name_columns(record, place) for place, record in enumerate(data)])


def _name_columns(record: Any, place: int) -> dict[str, Any]:
    """Return a record with texts as names, as in frames; refuse what is no single value."""
    found = {str(name): value for name, value in record.items()}
    if len(found) < len(record):
        raise UserError(f"data: expected every column name once, got one more than once in record {place}; rename them")
    for name, value in found.items():
        if isinstance(value, list | tuple | set | Mapping | np.ndarray | pd.Series):
            raise UserError(
                f"data: column {one_line(name, 60)!r}: expected one value in each record, got a "
                f"{type(value).__name__}; pass a frame, or a list of records"
            )
    return found


def _make_table(records: list[dict[str, Any]]) -> pa.Table:
    names = dict.fromkeys(name for record in records for name in record)
    return pa.table({name: _make_column([record.get(name) for record in records]) for name in names})


def _make_column(values: list[Any]) -> pa.Array:
    """Return a column; values of mixed types become texts, as in a frame."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        texts = pd.Series(values, dtype=object).map(str, na_action="ignore")
        return pa.array(texts, pa.string(), from_pandas=True)
