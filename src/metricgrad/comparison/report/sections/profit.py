"""Profit: what decisions at a threshold earn, given what a hit gains and what mistakes cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricgrad.comparison.report.markup import make_chart
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload

_INPUTS = (
    ("profit-hit", "A hit gains", 10),
    ("profit-alarm", "A false alarm costs", 1),
    ("profit-miss", "A miss costs", 0),
)


class ProfitSection(Section):
    """A chart below that of the threshold, which moves with it; what the reader types stays in the page."""

    name = "profit"
    title = "What it is worth"
    note = (
        "Say what decisions earn and cost, in any unit. The vertical line is the threshold chosen above; the best "
        "threshold is chosen on the same rows on which the profit is counted, so that profit is optimistic."
    )
    drawn = True
    tasks = ("binary", "multilabel")

    def body(self, payload: Payload) -> str:
        inputs = "".join(
            f'<label for="{name}">{text} <input type="number" id="{name}" value="{value}" step="any" '
            'inputmode="decimal"></label>'
            for name, text, value in _INPUTS
        )
        return (
            f'<div class="prices" role="group" aria-label="Gains and costs">{inputs}\n'
            '<button type="button" id="go-profit">Best threshold</button></div>\n'
            '<p id="profit-text" role="status"></p>\n' + make_chart("profit-chart")
        )
