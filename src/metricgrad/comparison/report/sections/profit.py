"""Profit: what decisions at a threshold earn, given what a hit gains and what mistakes cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricgrad.comparison.report.markup import make_chart
from metricgrad.comparison.report.section import Section
from metricgrad.core.costs import Cost

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload

_INPUTS = (
    ("profit-hit", "A hit gains", 10),
    ("profit-alarm", "A false alarm costs", 1),
    ("profit-miss", "A miss costs", 0),
)


def find_prices(payload: Payload) -> list[float]:
    """Return what a hit gains, a false alarm costs and a miss costs: those of the run, or examples.

    A right negative counts as nothing, so what it costs is taken off a false alarm.
    """
    text = payload["metric"].get("cost")
    if text is None or payload["metric"].get("cost_columns"):
        return [value for _, _, value in _INPUTS]
    fp, fn, tp, tn = (float(price) for price in Cost.from_text(text).prices.values() if isinstance(price, float))
    return [-tp, fp - tn, fn]


class ProfitSection(Section):
    """A chart below that of the threshold, which moves with it; what the reader types stays in the page."""

    name = "profit"
    title = "What it is worth"
    folded = True
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
            for (name, text, _), value in zip(_INPUTS, find_prices(payload), strict=True)
        )
        if payload["metric"].get("cost_columns"):  # each row has its own
            inputs = f"<span hidden>{inputs}</span>"
        return (
            f'<div class="prices" role="group" aria-label="Gains and costs">{inputs}\n'
            '<button type="button" id="go-profit">Best threshold</button></div>\n'
            '<p id="profit-text" role="status"></p>\n' + make_chart("profit-chart")
        )
