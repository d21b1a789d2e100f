"""Values as plain data for JSON and back: numbers, texts, containers, arrays, this library's rules and surrogates.

What comes back is made from a fixed table, the kinds of ``Storable`` that this library defines; a name found in a file
is looked up in it and never imported.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import Any

import numpy as np

from metricgrad import decisions  # noqa: F401  (they define the kinds in KINDS)
from metricgrad.core import metrics, surrogates  # noqa: F401  (they define the kinds in KINDS)
from metricgrad.core.costs import CELLS, Cost
from metricgrad.core.metrics import constraints  # noqa: F401  (so does this)
from metricgrad.core.storable import KINDS

_TYPES_OF_ITEMS: dict[str, tuple[type, ...]] = {
    "b": (bool,),
    "i": (int,),
    "u": (int,),
    "f": (int, float),
    "U": (str,),
    "O": (bool, int, float, str, type(None)),
}
"""The kinds of numpy arrays, and what their items are."""
# The types by name, with the length of texts if any. That length is not trusted: a file may claim 500 million.
_DTYPE = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|object|[<>][iuf][248]|(?P<text>[<>]U\d{1,9})")
_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class NotPlainError(TypeError):
    """Plain data cannot hold the value."""


def encode(value: Any) -> Any:
    """Return a value as JSON's own types, so that ``decode`` returns an equal one of the same type.

    numpy's scalars become Python's, as in ``array.tolist()``.

    >>> from metricgrad.decisions import Threshold
    >>> encode((1, Threshold(0.25)))
    {'type': 'tuple', 'items': [1, {'type': 'Threshold', 'threshold': 0.25}]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    kind = type(value)
    if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
        return value
    if kind is float:
        return {"type": "float", "text": repr(value)}  # JSON has no infinity
    if kind is list:
        return [encode(item) for item in value]
    if kind is tuple:
        return {"type": "tuple", "items": [encode(item) for item in value]}
    if kind is dict:
        if all(type(key) is str for key in value) and "type" not in value:
            return {key: encode(item) for key, item in value.items()}
        return {"type": "dict", "items": [[encode(key), encode(item)] for key, item in value.items()]}
    if kind is np.ndarray and value.ndim == 1 and value.dtype.kind in _TYPES_OF_ITEMS:
        return {"type": "array", "dtype": str(value.dtype), "items": encode(value.tolist())}
    if kind is Cost and value.rows is None:
        matrix = None if value.matrix is None else value.matrix.tolist()
        return {"type": "Cost", "matrix": matrix} if matrix is not None else {"type": "Cost"} | value.prices
    name = getattr(value, "__name__", None)
    if name in metrics.names() and value is metrics.get(name):
        return {"type": "metric", "name": name}
    if kind is KINDS.get(kind.__name__):
        return {"type": kind.__name__} | {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    raise NotPlainError(f"expected numbers, texts, lists, or a rule or surrogate of this library, got {value!r}")


def decode(data: Any) -> Any:
    """Return the value that ``encode`` was given.

    >>> decode(encode({2: float("inf")}))
    {2: inf}
    """
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "type" not in data:
        return {key: decode(item) for key, item in data.items()}
    kind = data["type"]
    given = {key: item for key, item in data.items() if key != "type"}
    if kind == "float" and given.get("text") in _NUMBERS:
        return _NUMBERS[given["text"]]
    if kind == "tuple" and type(given.get("items")) is list:
        return tuple(decode(given["items"]))
    if kind == "dict" and type(given.get("items")) is list:
        return _decode_dict(given["items"])
    if kind == "array" and type(given.get("items")) is list:
        return _decode_array(given.get("dtype"), decode(given["items"]))
    if kind == "Cost" and given.keys() <= {*CELLS, "matrix"}:
        return Cost(**given)
    if kind == "metric" and given.get("name") in metrics.names():
        return metrics.get(given["name"])
    if type(kind) is str and kind in KINDS and given.keys() <= {field.name for field in fields(KINDS[kind])}:
        return KINDS[kind](**{name: decode(item) for name, item in given.items()})
    raise ValueError(f"expected a type of this library with its fields, got {str(data)[:200]}")


def _decode_dict(pairs: list[Any]) -> dict[Any, Any]:
    if not all(type(pair) is list and len(pair) == 2 for pair in pairs):
        raise ValueError("expected pairs of keys and values in a dict")
    found = {decode(key): decode(item) for key, item in pairs}
    if len(found) < len(pairs):
        raise ValueError("expected every key of a dict once")
    return found


def _decode_array(name: Any, items: list[Any]) -> Any:
    """Return an array of a type of the table; each item must be of that type, and texts decide their own length."""
    match = _DTYPE.fullmatch(name) if type(name) is str else None
    if match is None:
        raise ValueError(f"expected an array of numbers or texts, got one of {name!r}")
    dtype = np.dtype(str if match["text"] else name)
    wanted = _TYPES_OF_ITEMS[dtype.kind]
    for item in items:
        is_too_large = dtype.kind in "iu" and type(item) is int and not _fits(item, dtype)
        if type(item) not in wanted or is_too_large:
            raise ValueError(f"expected items of {name}, got {item!r}")
    if dtype.kind != "O":
        return np.array(items, dtype=dtype)
    found = np.empty(len(items), dtype)
    found[:] = items
    return found


def _fits(item: int, dtype: np.dtype[Any]) -> bool:
    """Return whether a whole number is within the range of a type."""
    range_of_type = np.iinfo(dtype)
    return bool(range_of_type.min <= item <= range_of_type.max)
