"""The members of the ensemble, and how much of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricgrad.comparison.contenders import ENSEMBLE
from metricgrad.comparison.number_texts import format_interval, format_value
from metricgrad.comparison.report.markup import make_table
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload


class MembersSection(Section):
    """A table, if the ensemble ships."""

    name = "members"
    title = "Members of the ensemble"
    folded = True
    note = (
        "The ensemble averages the scores of other contenders. Their weights are chosen in each split on the scores of "
        "rows that the models were not trained on, for the metric under its tuned rule; once more on all rows for the "
        "shipped model."
    )

    def html(self, payload: Payload) -> str:
        if not payload.get("members") or payload["verdict"]["ship"] != ENSEMBLE:
            return ""
        return super().html(payload)

    def body(self, payload: Payload) -> str:
        rows = [
            (member["name"], format_value(member["weight"]), format_interval(member["low"], member["high"]))
            for member in payload.get("members", ())
        ]
        return make_table("Largest weight first", ("Contender", "Mean weight", "In one split"), rows)
