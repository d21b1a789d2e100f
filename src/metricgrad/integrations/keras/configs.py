"""Arguments of losses and metrics as plain values, for the files of Keras, and back.

A file can name the metrics and surrogates of this library and functions that are registered with Keras, no other code.
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

import keras
import torch

from metricgrad.core import metrics
from metricgrad.core.storable import KINDS
from metricgrad.core.surrogates import Surrogate


def to_config(name: str, value: Any) -> Any:
    """Return the value of an argument as what JSON holds."""
    if isinstance(value, partial):
        return {"metric": to_config(name, value.func), "fixed": _plain(value.keywords)}
    if isinstance(value, Surrogate):
        numbers = {field.name: to_config(field.name, getattr(value, field.name)) for field in fields(value)}
        return {"surrogate": type(value).__name__, "fixed": numbers}
    if name == "metric" and isinstance(value, str) and ":" in value:
        value = metrics.get(value)
    if not callable(value):
        return _plain(value)
    known = getattr(value, "__name__", "")
    if known in metrics.names() and metrics.get(known) is value:
        return known
    if keras.saving.get_registered_object(keras.saving.get_registered_name(value)) is not value:
        raise ValueError(
            f"{name}: expected a function that Keras can save, got {value!r}; register it with "
            "keras.saving.register_keras_serializable"
        )
    return keras.saving.serialize_keras_object(value)


def from_config(name: str, value: Any) -> Any:
    """Return the value of an argument from what ``to_config`` made of it."""
    match value:
        case {"metric": function, "fixed": fixed}:
            return partial(metrics.get(from_config(name, function)), **_numbers(fixed))
        case {"surrogate": kind, "fixed": fixed} if issubclass(KINDS.get(kind, object), Surrogate):
            return KINDS[kind](**_numbers({key: from_config(key, x) for key, x in fixed.items()}))
        case dict():
            return keras.saving.deserialize_keras_object(value)
        case str() if name == "metric" and ":" in value:
            raise ValueError(f"metric: expected the name of a metric, got {value!r}; a file cannot name code to import")
    return value


def _plain(value: Any) -> Any:
    """Return arrays and tuples as lists."""
    if isinstance(value, dict):
        return {key: _plain(x) for key, x in value.items()}
    return value.tolist() if hasattr(value, "tolist") else list(value) if isinstance(value, tuple) else value


def _numbers(fixed: dict[str, Any]) -> dict[str, Any]:
    """Return lists, one number per class, as tensors again."""
    return {key: torch.tensor(x) if isinstance(x, list) else x for key, x in fixed.items()}
