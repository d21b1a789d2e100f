"""How the class and the rest are scored, and whether a score is a probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricgrad.comparison.report.markup import make_folded_table
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload


class ScoresSection(Section):
    """Histogram and calibration of each contender shown, from what ``Threshold`` measured."""

    name = "scores"
    title = "Scores"
    folded = True
    note = (
        "First chart: how many rows get each score, the class above the line, the rest below it, each to its own "
        "height; the vertical line, where there is one, is the threshold. Second chart: the observed share of the "
        "class against the score; on the diagonal a score is a probability."
    )
    drawn = True

    def body(self, payload: Payload) -> str:
        return f'<div class="multiples wide" id="score-charts"></div>\n{make_folded_table()}'
