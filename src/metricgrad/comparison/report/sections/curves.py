"""Precision against recall, of all contenders that the reader switches on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricgrad.comparison.report.markup import make_chart
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload

_BODY = f"""<div class="chips" id="chips" role="group" aria-label="Contenders shown"></div>
<details class="more" id="more-chips" hidden>
  <summary></summary>
  <div class="chips" role="group" aria-label="More contenders"></div>
</details>
<div class="explorer beside">
  {make_chart("curve-chart")}
  <div class="scroll" id="curve-table"></div>
</div>"""


class CurvesSection(Section):
    """The curves, and the switches for what this section and those below it compare."""

    name = "curves"
    title = "Precision and recall"
    folded = True
    note = (
        "The chosen class against the rest, at every score of every contender shown. Up and to the right is better; "
        "the ring is what the rule in use does. The buttons show and hide contenders here and below."
    )
    drawn = True

    def body(self, payload: Payload) -> str:
        return _BODY
