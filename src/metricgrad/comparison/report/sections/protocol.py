"""How the numbers were measured, and what was left out of the page to keep it small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricgrad.comparison.report.markup import make_list
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload


class ProtocolSection(Section):
    """A list of sentences."""

    name = "protocol"
    title = "How this was measured"
    folded = True

    def body(self, payload: Payload) -> str:
        return make_list(payload["protocol"])
