"""What a run promised: the value to expect of its model on new rows, to set beside the value there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metricgrad.comparison.inference.measures import MetricValue
from metricgrad.comparison.summaries import read_summary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from metricgrad.comparison.leaderboard import LeaderboardRow
    from metricgrad.comparison.run_folder import Run


class Promise(MetricValue):
    """The value of a metric that the run promised; ``source``: where it was measured."""

    metric: str
    source: str


def read_promise(run: Run) -> Promise:
    """Return the value that a run promised of its model and rule, of the metric that the rule was chosen for.

    ``compare`` measured it on test rows of all repeats; ``train`` and ``tune`` only on the rows that the rule was tuned
    on, which is optimistic. So did ``compare`` with a confidence, which the rules of the repeats do not have.
    """
    about = run.model.about
    has_test_rows = run.manifest["kind"] == "compare" and "previous" not in about and not about.get("guarantees")
    row = _find_shipped(read_summary(run)) if has_test_rows else None
    if row is None:
        found: MetricValue = {"value": about["value_there"], "low": None, "high": None, "note": None}
        return {**found, "metric": about["metric"], "source": f"on {about['tuned_on']}, on which the rule was tuned"}
    found = {"value": row["value"], "low": row["low"], "high": row["high"], "note": None}
    return {**found, "metric": about["metric"], "source": f"the mean over {len(row['folds'])} repeats of compare"}


def _find_shipped(summary: dict[str, Any]) -> LeaderboardRow | None:
    """Return the row of the leaderboard that is shipped."""
    wanted = (summary["verdict"]["ship"], summary["verdict"]["rule"])
    return next((row for row in summary["leaderboard"] if (row["contender"], row["rule"]) == wanted), None)


def describe_broken(promise: Promise, found: Mapping[str, MetricValue]) -> list[str]:
    """Return a warning if the whole interval of the new value lies below that of the promised one."""
    new = found[promise["metric"]]
    if promise["low"] is None or new["high"] is None or new["high"] >= promise["low"]:
        return []
    return [
        f"{promise['metric']} is {format_metric_value(new)} on these rows, below what was promised: "
        f"{format_metric_value(promise)}, {promise['source']}"
    ]


def format_metric_value(one: MetricValue | Promise) -> str:
    """Return a value with its interval, or with why it has none.

    >>> format_metric_value({"value": 0.5, "low": 0.4, "high": 0.61, "note": None})
    '0.5000 (0.4000 to 0.6100)'
    >>> format_metric_value({"value": 0.5, "low": None, "high": None, "note": "too few positives for an interval"})
    '0.5000 (too few positives for an interval)'
    """
    value = "unknown" if one["value"] is None else f"{one['value']:.4f}"
    spread = one["note"] if one["low"] is None else f"{one['low']:.4f} to {one['high']:.4f}"
    return f"{value} ({spread})" if spread else value
