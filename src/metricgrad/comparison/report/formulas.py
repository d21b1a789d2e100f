"""What the page computes at a threshold that the reader moves: the arithmetic of the metrics, traced in Python.

The script of the page knows arithmetic and no metric. A metric whose arithmetic cannot be traced is tabulated: its
value at each threshold of each curve is part of the payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from metricgrad.comparison.metric_titles import format_metric
from metricgrad.core import metrics
from metricgrad.core.counts import Counts
from metricgrad.core.metrics.expressions import trace
from metricgrad.core.metrics.registry import count_values, of_classes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.report.payload import Payload

    Formula = dict[str, Any]
    """``title``, and ``steps`` (of ``trace``), ``steps_of_class`` (pairs of a class and its steps) or ``tabulated``."""

_ALWAYS = ("precision", "recall", "f1")
"""Metrics that the page shows beside that of the run, or instead of one that is no function of four counts."""


def add_formulas(payload: Payload) -> None:
    """Add the formulas of the metrics that a page shows, in place, also of one named package.module:function.

    That imports the module, so the name must come from the user, not from a file. Call it before ``page.render``, which
    adds those of the library's own metrics if there are none.
    """
    formulas = payload["formulas"] = find_library_formulas(payload)
    for name in _list_names(payload):
        if ":" not in name:
            continue
        metric = metrics.get(name)
        formula = _find_formula(name, metric, payload["data"]["classes"])
        if formula is None and metrics.of_counts(metric):
            formula = {"title": _write_title(name), "tabulated": True}
            _tabulate(payload, name, metric)
        if formula is not None:
            formulas[name] = formula


def find_library_formulas(payload: Payload) -> dict[str, Formula]:
    """Return the formulas of the library's own metrics that a page shows, by their names."""
    formulas: dict[str, Formula] = {}
    for name in _list_names(payload):
        if name == payload["metric"]["name"] and payload["metric"].get("cost_columns"):
            formulas[name] = {"title": "savings", "tabulated": True}  # the curves have it
            continue
        try:
            metric = None if ":" in name else metrics.get(name)
        except ValueError:  # one of scores, such as "auroc"
            metric = None
        formula = None if metric is None else _find_formula(name, metric, payload["data"]["classes"])
        if formula is not None:
            formulas[name] = formula
    return formulas


def _list_names(payload: Payload) -> list[str]:
    constraints = payload["metric"].get("constraints", ())
    names = [payload["metric"]["name"], *(constraint["metric"] for constraint in constraints), *_ALWAYS]
    return list(dict.fromkeys(names))


def _find_formula(name: str, metric: metrics.Metric, classes: Sequence[str]) -> Formula | None:
    """Return the formula of a metric; None if it has operations that the page does not know."""
    if not metrics.of_counts(metric):
        return None
    if not count_values(metric):
        steps = trace(metric)
        return None if steps is None else {"title": _write_title(name), "steps": steps}
    drawn = classes[-1:] if len(classes) == 2 and max(count_values(metric).values()) == 1 else classes
    steps_of_class = [[one, trace(of_classes(metric, [k]))] for k, one in enumerate(drawn)]
    if any(steps is None for _, steps in steps_of_class):
        return None
    return {"title": _write_title(name), "steps_of_class": steps_of_class}


def _write_title(name: str) -> str:
    """Return a metric's name as people write it, without the module of one's own."""
    return format_metric(name.rpartition(":")[2])


def _tabulate(payload: Payload, name: str, metric: metrics.Metric) -> None:
    """Add the value of a metric at every threshold to the curves of all contenders."""
    for details in payload["details"].values():
        for k, curve in enumerate(details.get("classes", ())):
            tp = torch.tensor(curve["tp"], dtype=torch.float64)
            fp = torch.tensor(curve["fp"], dtype=torch.float64)
            counts = Counts(tp, fp, curve["positives"] - tp, curve["negatives"] - fp)
            curve["tabulated"][name] = of_classes(metric, [k])(counts).tolist()
