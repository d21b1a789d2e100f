"""The verdict: what to ship, whether its gain is real, and the few numbers behind it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from metricgrad.app.report.markup import evidence, interval, items, metric_title, number
from metricgrad.app.report.payload import REFERENCES
from metricgrad.app.report.section import Section

if TYPE_CHECKING:
    from metricgrad.app.report.payload import Payload


class Verdict(Section):
    """Its heading is the page's."""

    name = "verdict"
    title = "Verdict"

    def html(self, payload: Payload) -> str:
        """Return the whole section."""
        verdict = payload["verdict"]
        stamp, kind = ("The gain is real", "real") if verdict["gain_is_real"] else ("No gain is proven", "chance")
        return (
            f'<section id="verdict" aria-labelledby="headline">\n<p class="stamp {kind}">{stamp}</p>\n'
            f'<h1 id="headline">{escape(verdict["headline"])}</h1>\n<p class="lead">{escape(verdict["text"])}</p>\n'
            f"{_figures(payload)}\n{items(payload['data']['warnings'], 'warnings')}\n</section>\n"
        )


def _figures(payload: Payload) -> str:
    """Return the few numbers under the verdict."""
    verdict, rows = payload["verdict"], payload["leaderboard"]
    shipped = next((r for r in rows if (r["contender"], r["rule"]) == (verdict["ship"], verdict["rule"])), None)
    found = []
    if shipped is not None:
        spread = interval(shipped["low"], shipped["high"])
        found.append((number(shipped["value"]), metric_title(payload["metric"]), spread))
        for name in REFERENCES:
            if gain := shipped["against"].get(name):
                found.append((number(gain["difference"], "+"), f"against {name}", evidence(gain)))
    found.append((f"{payload['data']['rows']:,}", "rows of data", f"{payload['repeats']} splits"))
    blocks = (
        f'<div><dt>{escape(label)}</dt><dd><span class="big">{value}</span> <span class="small">{small}</span></dd>'
        "</div>"
        for value, label, small in found
    )
    return f'<dl class="figures">{"".join(blocks)}</dl>'
