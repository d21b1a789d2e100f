"""What a metric takes: ``Counts``, the d×d matrix or either, as its first argument is annotated."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

Metric = Callable[[Any], Tensor]
"""A function of ``Counts`` (or ``Confusion``), elementwise over its cells, higher is better."""


def of_matrix(metric: Metric) -> bool:
    """Return whether a metric takes the d×d matrix: whether its first argument is annotated ``Confusion``."""
    return "Confusion" in annotation_of(metric)


def of_counts(metric: Metric) -> bool:
    """Return whether a metric takes one-vs-rest cells: every metric but those of the matrix alone."""
    annotation = annotation_of(metric)
    return "Confusion" not in annotation or "Counts" in annotation


def annotation_of(metric: Metric) -> str:
    """Return the annotation of a metric's first argument as text; empty if there is none."""
    try:
        first = next(iter(inspect.signature(metric).parameters.values()))
    except (TypeError, ValueError, StopIteration):  # a built-in without a signature: taken as a function of Counts
        return ""
    return first.annotation if isinstance(first.annotation, str) else repr(first.annotation)
