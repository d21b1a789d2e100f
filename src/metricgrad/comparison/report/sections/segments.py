"""Segments: the metric of the rows of each value of a column, the worst first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from metricgrad.comparison.metric_titles import read_metric_title
from metricgrad.comparison.number_texts import format_interval, format_value
from metricgrad.comparison.report.column_summaries import GROUPED_KINDS, group_cells
from metricgrad.comparison.report.markup import make_chart, make_folded_table, make_table
from metricgrad.comparison.report.section import Section
from metricgrad.decisions.rules import ArgmaxOrAbstain
from metricgrad.evaluation.bootstrap import bootstrap
from metricgrad.evaluation.evaluator import evaluate
from metricgrad.evaluation.interval_ends import TooFewPositivesError
from metricgrad.training.training_loop import one_thread

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Details, Payload
    from metricgrad.comparison.report.section_inputs import Predictions, ShippedModelInputs
    from metricgrad.estimators.columns.column import Column

MOST_COLUMNS = 30
"""The most columns to choose from."""
MOST_VALUES = 8
"""The most values of a column."""
MOST_TESTED_ROWS = 10_000
"""The most test rows that are evaluated; a row that is tested in several splits counts in each."""
FEWEST_ROWS = 20
"""The fewest rows of a segment that has a value."""
FEWEST_POSITIVES = 5
"""The fewest positive rows of one, but for multi-class problems."""
REPLICATES = 200


class Segment(TypedDict):
    """The test rows in which a column has some value; one that is tested in several splits counts once."""

    name: str
    rows: int
    value: float | None  # None if there are too few rows
    low: float | None
    high: float | None


class Segmented(TypedDict):
    """The segments of a column, the worst first."""

    column: str
    segments: list[Segment]


_BODY = f"""<p class="tools"><label>Column <select id="segment-column"></select></label></p>
{make_chart("segment-chart")}
{make_folded_table()}"""


class SegmentsSection(Section):
    """A chart and a table of the column that the reader chooses."""

    name = "segments"
    title = "Where it works and where not"
    note = (
        "The metric of the contender to ship on rows that it was not trained on, by the value of a column, the worst "
        "first; dashed: of all rows. Of many segments a few look bad by chance. Those of fewer than "
        f"{FEWEST_ROWS} rows, or {FEWEST_POSITIVES} positive ones, have no value."
    )
    drawn = True
    alone = True

    def measure_study(self, model: ShippedModelInputs) -> dict[str, Any]:
        """Return a ``Segmented`` for each column, the most important one first, and the value of all test rows."""
        grouped = [column for column in (*model.columns, *model.others) if column.kind in GROUPED_KINDS]
        columns = model.sort_by_importance(grouped)
        some = np.sort(np.random.default_rng(0).permutation(len(model.tested.rows))[:MOST_TESTED_ROWS])
        with one_thread():  # many small resamples are slower on several
            return {
                "segments": [_measure(model.tested, column, some) for column in columns[:MOST_COLUMNS]],
                "segments_all": _measure_rows(model.tested, some)["value"],
            }

    def body(self, payload: Payload) -> str:
        return _BODY

    def table(self, payload: Payload, details: Details) -> str:
        found: list[Segmented] = payload["study"].get("segments", [])
        rows = [
            [
                f"{each['column']}: {one['name']}",
                format_value(one["value"]),
                format_interval(one["low"], one["high"]),
                str(one["rows"]),
            ]
            for each in found[:3]
            for one in each["segments"]
        ]
        heads = ["Segment", read_metric_title(payload["metric"]), "95 % interval", "Rows"]
        return make_table(self.title, heads, rows) if rows else ""


def _measure(tested: Predictions, column: Column, some: np.ndarray) -> Segmented:
    groups = group_cells(column, tested.table.frame[column.name].iloc[tested.rows[some]], MOST_VALUES)
    found: list[Segment] = [
        {"name": name, **_measure_rows(tested, some[groups.codes == k])}  # type: ignore[typeddict-item]
        for k, name in enumerate(groups.names)
    ]
    return {"column": column.name, "segments": sorted(found, key=_order)}


def _order(segment: Segment) -> tuple[bool, float]:
    value = segment["value"]
    return value is None, 0.0 if value is None else value


def _measure_rows(tested: Predictions, places: np.ndarray) -> dict[str, Any]:
    """Return the metric of some test rows, with its bootstrap interval: rows tested in several splits stay together."""
    goal = tested.goal
    decided = tested.decided[places]
    targets = tested.targets[places]
    # A row that is tested in several splits is one row.
    rows, first = np.unique(tested.rows[places], return_index=True)
    nothing = {"rows": len(rows), "value": None, "low": None, "high": None}
    if len(rows) < FEWEST_ROWS or (goal.task != "multiclass" and targets[first].sum() < FEWEST_POSITIVES):
        return nothing
    how: dict[str, Any] = {"task": goal.task, "average": goal.average, "empty_classes": "skip"}
    scores = decided.astype(float)
    if goal.task == "multiclass":
        scores = (decided[:, None] == np.arange(goal.classes)).astype(float)
    if goal.abstain:  # an undecided row has no score of 1
        how["rule"] = ArgmaxOrAbstain((0.5,) * goal.classes)
    try:
        groups = tested.rows[places]
        metrics = {"": tested.metric_of(places)}
        found = bootstrap(scores, targets, metrics, groups=groups, replicates=REPLICATES, **how)[""]
    except TooFewPositivesError:  # the positives are few rows, tested in several splits
        value = float(evaluate(scores, targets, {"": tested.metric_of(places)}, **how)[""])
        return {**nothing, "value": value} if math.isfinite(value) else nothing
    if not math.isfinite(found.value):
        return nothing
    return {**nothing, "value": found.value, "low": found.low, "high": found.high}
