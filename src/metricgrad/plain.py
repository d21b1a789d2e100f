"""Values as plain data for JSON and back: numbers, texts, containers, arrays, this library's rules and surrogates.

What comes back is made from the fixed table here; a name found in a file is looked up in it and never imported.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np

from metricgrad import metrics, rules, surrogates
from metricgrad.constraints import Constraint
from metricgrad.expected import GFM, ExpectedFBeta

_VALUES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        rules.Argmax,
        rules.Offsets,
        rules.Threshold,
        rules.TopK,
        ExpectedFBeta,
        GFM,
        surrogates.Hard,
        surrogates.Identity,
        surrogates.Linear,
        surrogates.LogitSigmoid,
        surrogates.Sigmoid,
        surrogates.StraightThrough,
        surrogates.Table,
        surrogates.TopTwo,
        surrogates.Unbounded,
        surrogates.UnitsVsZeros,
        Constraint,
    )
}
_ARRAYS = "biufUO"  # the kinds of numpy arrays: bools, whole and other numbers, texts, and lists of the above


class NotPlainError(TypeError):
    """The value is none that plain data can hold."""


def encode(value: Any) -> Any:
    """Return a value as JSON's own types, so that ``decode`` returns an equal one of the same type.

    numpy's scalars become Python's, as in ``array.tolist()``.

    >>> encode((1, rules.Threshold(0.25)))
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
    if kind is np.ndarray and value.ndim == 1 and value.dtype.kind in _ARRAYS:
        return {"type": "array", "dtype": str(value.dtype), "items": encode(value.tolist())}
    name = getattr(value, "__name__", None)
    if name in metrics.names() and value is metrics.get(name):
        return {"type": "metric", "name": name}
    if kind is _VALUES.get(kind.__name__):
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
    if kind == "float":
        return float(data["text"])
    if kind == "tuple":
        return tuple(decode(data["items"]))
    if kind == "dict":
        return {decode(key): decode(item) for key, item in data["items"]}
    if kind == "array":
        return _array(np.dtype(data["dtype"]), decode(data["items"]))
    if kind == "metric" and data["name"] in metrics.names():
        return metrics.get(data["name"])
    if kind in _VALUES:
        return _VALUES[kind](**{name: decode(item) for name, item in data.items() if name != "type"})
    raise ValueError(f"expected a type of this library, got {data!r}")


def _array(dtype: Any, items: list[Any]) -> Any:
    if dtype.kind not in _ARRAYS:
        raise ValueError(f"expected an array of numbers or texts, got one of {dtype}")
    found = np.empty(len(items), dtype)
    found[:] = items
    return found
