"""The verdict: what to ship, whether its gain is proven, and the few numbers behind it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from metricgrad.comparison.leaderboard import REFERENCES
from metricgrad.comparison.metric_titles import read_metric_title
from metricgrad.comparison.number_texts import format_interval, format_value
from metricgrad.comparison.report.markup import format_evidence, make_list
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload


class VerdictSection(Section):
    """Its heading is the page's."""

    name = "verdict"
    title = "Verdict"

    def html(self, payload: Payload) -> str:
        """Return the whole section."""
        verdict = payload["verdict"]
        stamp, kind = ("The gain is proven", "real") if verdict["gain_is_real"] else ("No gain is proven", "chance")
        return (
            f'<section id="verdict" aria-labelledby="headline">\n<p class="stamp {kind}">{stamp}</p>\n'
            f'<h1 id="headline">{escape(verdict["headline"])}</h1>\n<p class="lead">{escape(verdict["text"])}</p>\n'
            f"{_figures(payload)}\n{_model(payload)}{make_list(payload['data']['warnings'], 'warnings')}\n</section>\n"
        )


def _figures(payload: Payload) -> str:
    """Return the few numbers under the verdict."""
    verdict, rows = payload["verdict"], payload["leaderboard"]
    shipped = next((r for r in rows if (r["contender"], r["rule"]) == (verdict["ship"], verdict["rule"])), None)
    found = []
    if shipped is not None:
        spread = format_interval(shipped["low"], shipped["high"])
        found.append((format_value(shipped["value"]), read_metric_title(payload["metric"]), spread))
        for name in REFERENCES:
            if gain := shipped["against"].get(name):
                claim = verdict.get("claims", {}).get(name)
                word = "" if claim is None else "proven" if claim["proven"] else "not proven"
                spread = f"{format_evidence(gain if claim is None else claim)} {word}".strip()
                found.append((format_value(gain["difference"], "+"), f"against {name}", spread))
    planned = payload.get("planned_repeats", payload["repeats"])
    splits = f"{payload['repeats']} splits" + (f" of {planned}" if planned > payload["repeats"] else "")
    found.append((f"{payload['data']['rows']:,}", "rows of data", splits))
    blocks = (
        f'<div><dt>{escape(label)}</dt><dd><span class="big">{value}</span> <span class="small">{small}</span></dd>'
        "</div>"
        for value, label, small in found
    )
    return f'<dl class="figures">{"".join(blocks)}</dl>'


_MOST_GUARANTEES = 10
"""Of a model of many labels, so many bounds are shown."""


def _model(payload: Payload) -> str:
    """Return how the shipped model decides."""
    if "model" not in payload:
        return ""
    model = payload["model"]
    how = "" if model["kind"] == "fixed" else f", tuned on {model['tuned_on']}"
    guaranteed = "".join(f" On new rows: {escape(one)}." for one in model.get("guarantees", [])[:_MOST_GUARANTEES])
    rule = f"The shipped model decides by {escape(model['rule'])}{escape(how)}."
    return f'<p class="note" id="shipped-rule">{rule}{guaranteed}</p>\n'
