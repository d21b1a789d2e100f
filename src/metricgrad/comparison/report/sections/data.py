"""The data: how frequent the classes are, and what the columns are like."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from metricgrad.comparison.number_texts import format_share
from metricgrad.comparison.report.markup import make_definitions
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload


class DataSection(Section):
    """Two tables."""

    name = "data"
    title = "The data"
    folded = True

    def body(self, payload: Payload) -> str:
        data = payload["data"]
        rows = "".join(
            f'<tr><th scope="row">{escape(name)}</th><td class="share">{format_share(share)}</td><td class="track">'
            f'<svg height="12" aria-hidden="true"><rect width="{100 * share:.2f}%" height="12"/></svg></td></tr>'
            for name, share in zip(data["classes"], data["balance"], strict=False)
        )
        caption = "<caption>Share of rows in each class</caption>"
        balance = f'<table class="balance">{caption}<tbody>{rows}</tbody></table>'
        return f'<div class="columns">{balance} {make_definitions(data["profile"])}</div>'
