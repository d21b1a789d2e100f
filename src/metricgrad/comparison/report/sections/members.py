"""The members of the ensemble, and how much of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricgrad.comparison.number_texts import format_interval, format_value
from metricgrad.comparison.report.markup import make_table
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload


class MembersSection(Section):
    """A table, if the ensemble is in the leaderboard."""

    name = "members"
    title = "Members of the ensemble"
    note = (
        "The ensemble averages the scores of other contenders. Their weights are chosen in each split on the scores of "
        "rows that the models were not trained on, for the metric under its tuned rule; if it is shipped, once more on "
        "all rows."
    )

    def html(self, payload: Payload) -> str:
        return super().html(payload) if payload.get("members") else ""

    def body(self, payload: Payload) -> str:
        rows = [
            (member["name"], format_value(member["weight"]), format_interval(member["low"], member["high"]))
            for member in payload.get("members", ())
        ]
        return make_table("Largest weight first", ("Contender", "Mean weight", "In one split"), rows)
