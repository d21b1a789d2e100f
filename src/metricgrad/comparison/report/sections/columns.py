"""The columns: how the cells of each are distributed, how many are missing, and how new data differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from metricgrad.comparison.number_texts import format_share, format_value
from metricgrad.comparison.report.column_summaries import GROUPED_KINDS, draw_bars
from metricgrad.comparison.report.markup import make_table
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Details, Payload
    from metricgrad.comparison.report.section_inputs import ShippedModelInputs

MOST_COLUMNS = 60
"""The most columns that are drawn."""


class ColumnProfile(TypedDict):
    """A column of the training data, and of new data if there are any."""

    column: str
    kind: str
    missing: float  # the share of the cells
    names: list[str]  # of the bars
    shares: list[float]  # of the cells that are not missing
    now: NotRequired[list[float]]  # the same of new data
    missing_now: NotRequired[float]
    psi: NotRequired[float]
    suspicious: NotRequired[list[str]]  # what to look at


_BODY = """<p class="note" id="columns-note"></p>
<div class="multiples" id="column-charts"></div>
<p><button type="button" id="all-columns" class="quiet" aria-expanded="false" hidden></button></p>"""


class ColumnsSection(Section):
    """A small chart of each column, from ``payload["study"]["columns"]``."""

    name = "columns"
    title = "The columns"
    folded = True
    drawn = True
    alone = True

    def measure_study(self, model: ShippedModelInputs) -> dict[str, Any]:
        """Return a ``ColumnProfile`` for each column, the most important one first, and how many columns there are."""
        found = []
        for column in model.sort_by_importance(model.columns)[:MOST_COLUMNS]:
            drawn = column.kind in GROUPED_KINDS
            names, shares = draw_bars(column, model.table.frame[column.name]) if drawn else ([], [])
            profile: ColumnProfile = {
                "column": column.name,
                "kind": column.kind,
                "missing": column.missing,
                "names": names,
                "shares": shares,
            }
            found.append(profile)
        return {"columns": found, "columns_all": len(model.columns)}

    def body(self, payload: Payload) -> str:
        return _BODY

    def table(self, payload: Payload, details: Details) -> str:
        found: list[ColumnProfile] = payload["study"].get("columns", [])
        if not found:
            return ""
        if "now" not in found[0]:
            return make_table(
                self.title,
                ["Column", "Kind", "Missing"],
                ([c["column"], c["kind"], format_share(c["missing"])] for c in found),
            )
        rows = (
            [
                c["column"],
                c["kind"],
                format_share(c["missing"]),
                format_share(c["missing_now"]),
                format_value(c["psi"]),
                "; ".join(c["suspicious"]),
            ]
            for c in found
        )
        return make_table(
            self.title, ["Column", "Kind", "Missing then", "Missing now", "Stability index", "Drift"], rows
        )


class DriftSection(ColumnsSection):
    """The same of new data beside the training data, which a reader of them looks for."""

    title = "The columns, then and now"
    folded = False
