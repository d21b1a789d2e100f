"""Parameters of metrics, such as one β per class, as part of a metric's name: "f_beta(beta=0.25/1/1)".

A name is text, so the same metric is trained on, tuned for, evaluated and written to files.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from metricgrad.core.metrics.registry import count_values, get
from metricgrad.core.metrics.scalars import is_number

if TYPE_CHECKING:
    from metricgrad.core.metrics.signatures import Metric

REST = "rest"
"""Stands for the classes that are not named."""


def with_parameters(metric: str | Metric, params: Mapping[str, Any] | None, classes: Sequence[Any]) -> str | Metric:
    """Return the name of a metric with parameters; without any the metric as it is.

    Parameters
    ----------
    metric : str or callable
        The name of a metric that has parameters, such as "f_beta" or "tversky".
    params : mapping or None
        {parameter: value}. A value is a number, one number per class, or {class: number}, in which "rest" stands for
        the classes that are not named.
    classes : sequence
        The classes, in order; of a binary problem the positive one alone.

    Returns
    -------
    str or callable
        A name that ``get`` knows.

    Raises
    ------
    ValueError
        If the metric has no such parameter, or a class is unknown.

    Examples
    --------
    >>> with_parameters("f_beta", {"beta": {"dog": 0.25, "rest": 1}}, ["cat", "dog", "cow"])
    'f_beta(beta=1/0.25/1)'
    """
    if not params:
        return metric
    if not isinstance(metric, str) or "(" in metric or ":" in metric:
        raise ValueError(f"metric: expected the name of a metric to give {', '.join(params)} to, got {metric!r}")
    given = " ".join(f"{name}={_as_text(name, value, [str(one) for one in classes])}" for name, value in params.items())
    found = f"{metric}({given})"
    get(found)
    return found


def check_values(metric: str | Metric, outputs: int) -> None:
    """Raise a ``ValueError`` if a metric has one value per class, but not for so many classes."""
    for name, count in count_values(get(metric)).items():
        if count != outputs:
            raise ValueError(f"metric: expected {outputs} values of {name}, one per class, got {count}")


def _as_text(name: str, value: Any, classes: Sequence[str]) -> str:
    if is_number(value):
        return _number(name, value)
    if isinstance(value, Mapping):
        return _join(name, _fill(name, {str(key): one for key, one in value.items()}, classes))
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise ValueError(f"{name}: expected a number, one per class, or {{class: number}}, got {value!r}")
    each = value.tolist() if hasattr(value, "tolist") else [*value]
    if len(each) != len(classes):
        raise ValueError(f"{name}: expected {len(classes)} numbers, one per class, got {len(each)}")
    return _join(name, each)


def _fill(name: str, value: Mapping[str, Any], classes: Sequence[str]) -> list[Any]:
    """Return one value per class."""
    for key in value:
        if key not in classes and key != REST:
            close = difflib.get_close_matches(key, classes, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"the classes are {', '.join(classes[:20])}"
            raise ValueError(f"{name}: unknown class {key!r}; {hint}")
    if missing := [one for one in classes if one not in value and REST not in value]:
        raise ValueError(f"{name}: expected a number for every class, got none for {missing[0]!r}; add rest=1")
    return [value.get(one, value.get(REST)) for one in classes]


def _join(name: str, each: Sequence[Any]) -> str:
    return "/".join(_number(name, one) for one in each)


def _number(name: str, value: Any) -> str:
    if not is_number(value) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name}: expected a number of at least 0, got {value!r}")
    return repr(float(value)).removesuffix(".0")
