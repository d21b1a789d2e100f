"""The values of a model on new data, in place of a verdict: for the report of ``evaluate``."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, TypedDict

from metricgrad.comparison.report.markup import (
    capital,
    definitions,
    interval,
    items,
    metric_title,
    number,
    table,
    title,
)
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload


class Value(TypedDict):
    """A metric on the new rows, and its bootstrap interval."""

    value: float | None
    low: float | None
    high: float | None
    note: str | None  # why there is no interval


class Promise(Value):
    """The value of a metric that the run promised; ``source``: where it was measured."""

    metric: str
    source: str


class Constraint(TypedDict):
    """A constraint on the new rows."""

    constraint: str
    value: float
    met: bool


class Evaluated(TypedDict):
    """``payload["evaluation"]``."""

    rule: str
    confidence: float
    metrics: dict[str, Value]  # the run's own first, if it was evaluated
    constraints: list[Constraint]
    promised: Promise | None  # None if its metric was not evaluated


class Evaluation(Section):
    """Its heading is the page's."""

    name = "evaluation"
    title = "Evaluation"

    def html(self, payload: Payload) -> str:
        found: Evaluated = payload["evaluation"]
        name, first = next(iter(found["metrics"].items()))
        spread = _describe_interval(first)
        metric = metric_title(payload["metric"]) if name == payload["metric"]["name"] else title(name)
        between = f", {spread}" if spread else ""
        rows = payload["data"]["rows"]
        lead = f"{payload['verdict']['ship']} with the rule: {found['rule']}. Measured on {rows:,} rows."
        if found["promised"] is not None:
            lead += f" {_describe_promise(found['promised'])}"
        return (
            '<section id="evaluation" aria-labelledby="headline">\n'
            f'<h1 id="headline">{escape(capital(metric))} {number(first["value"])}{between}</h1>\n'
            f'<p class="lead">{escape(lead)}</p>\n{items(payload["data"]["warnings"], "warnings")}\n</section>\n'
        )


def _describe_promise(promise: Promise) -> str:
    spread = interval(promise["low"], promise["high"])
    between = f", {spread}" if spread else ""
    return f"Promised {title(promise['metric'])}: {number(promise['value'])}{between} ({promise['source']})."


def _describe_interval(one: Value) -> str:
    """Return the interval, or why there is none."""
    return interval(one["low"], one["high"]) or one["note"] or ""


class Metrics(Section):
    """All metrics with their intervals, and whether the constraints are met."""

    name = "metrics"
    title = "Metrics"

    def body(self, payload: Payload) -> str:
        found: Evaluated = payload["evaluation"]
        rows = (
            (capital(title(name)), number(one["value"]), _describe_interval(one))
            for name, one in found["metrics"].items()
        )
        limits = (
            (one["constraint"], f"{'met' if one['met'] else 'not met'}: {number(one['value'])}")
            for one in found["constraints"]
        )
        spread = f"{100 * found['confidence']:g} % interval"
        return table("Bootstrap of the rows", ["Metric", "Value", spread], rows) + definitions(limits, "Constraints")
