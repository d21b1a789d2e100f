"""The values of a model on new data, in place of a verdict: for the report of ``evaluate``."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, TypedDict

from metricgrad.comparison.metric_titles import format_metric, read_metric_title
from metricgrad.comparison.number_texts import format_interval, format_value
from metricgrad.comparison.report.interval_bars import IntervalBar, make_bar_chart
from metricgrad.comparison.report.markup import capitalise, make_definitions, make_table, make_warnings
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.inference.measures import MetricValue
    from metricgrad.comparison.inference.promise import Promise
    from metricgrad.comparison.report.payload import Payload


class EvaluatedConstraint(TypedDict):
    """A constraint on the new rows."""

    constraint: str
    value: float
    met: bool


class Evaluated(TypedDict):
    """``payload["evaluation"]``."""

    rule: str
    confidence: float
    metrics: dict[str, MetricValue]  # the run's own first, if it was evaluated
    constraints: list[EvaluatedConstraint]
    promised: Promise | None  # None if its metric was not evaluated


class EvaluationSection(Section):
    """Its heading is the page's."""

    name = "evaluation"
    title = "Evaluation"
    on_sheet = True

    def html(self, payload: Payload) -> str:
        found: Evaluated = payload["evaluation"]
        name, first = next(iter(found["metrics"].items()))
        spread = _describe_interval(first)
        metric = read_metric_title(payload["metric"]) if name == payload["metric"]["name"] else format_metric(name)
        between = f", {spread}" if spread else ""
        rows = payload["data"]["rows"]
        lead = f"{payload['verdict']['ship']} with the rule: {found['rule']}. Measured on {rows:,} rows."
        if found["promised"] is not None:
            lead += f" {_describe_promise(found['promised'])}"
        content = (
            f'<h1 id="headline">{escape(capitalise(metric))} {format_value(first["value"])}{between}</h1>\n'
            f'<p class="lead">{escape(lead)}</p>\n{_draw_promise(found)}{make_warnings(payload["data"]["warnings"])}'
        )
        return self.make_place(content, "headline")


def _draw_promise(found: Evaluated) -> str:
    """Return bars of a metric on the new rows and as promised, if it was promised."""
    promise = found["promised"]
    if promise is None:
        return ""
    now = found["metrics"][promise["metric"]]
    bars = [
        ("on these rows", IntervalBar(now["value"], now["low"], now["high"])),
        ("promised", IntervalBar(promise["value"], promise["low"], promise["high"])),
    ]
    return make_bar_chart(f"{capitalise(format_metric(promise['metric']))}, and its interval.", bars)


def _describe_promise(promise: Promise) -> str:
    spread = format_interval(promise["low"], promise["high"])
    between = f", {spread}" if spread else ""
    return (
        f"Promised {format_metric(promise['metric'])}: {format_value(promise['value'])}{between} ({promise['source']})."
    )


def _describe_interval(one: MetricValue) -> str:
    """Return the interval, or why there is none."""
    return format_interval(one["low"], one["high"]) or one["note"] or ""


class MetricsSection(Section):
    """All metrics with their intervals, and whether the constraints are met."""

    name = "metrics"
    title = "Metrics"
    on_sheet = True

    def body(self, payload: Payload) -> str:
        found: Evaluated = payload["evaluation"]
        rows = (
            (capitalise(format_metric(name)), format_value(one["value"]), _describe_interval(one))
            for name, one in found["metrics"].items()
        )
        limits = (
            (one["constraint"], f"{'met' if one['met'] else 'not met'}: {format_value(one['value'])}")
            for one in found["constraints"]
        )
        spread = f"{100 * found['confidence']:g} % interval"
        return make_table("Bootstrap of the rows", ["Metric", "Value", spread], rows) + make_definitions(
            limits, "Constraints"
        )
