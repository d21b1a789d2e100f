"""How the class and the rest are scored, and whether a score is a probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricgrad.app.report.markup import folded_table
from metricgrad.app.report.section import Section

if TYPE_CHECKING:
    from metricgrad.app.report.payload import Payload


class Scores(Section):
    """Histogram and calibration of each contender shown, from what ``Threshold`` measured."""

    name = "scores"
    title = "Scores"
    note = (
        "Left: how many rows get each score, those of the class above the line, all others below it, each to its own "
        "height; the vertical line is the threshold. Right: the observed share of the class against the score; on the "
        "diagonal a score is a probability."
    )
    drawn = True

    def body(self, payload: Payload) -> str:
        return f'<div class="multiples wide" id="score-charts"></div>\n{folded_table()}'
