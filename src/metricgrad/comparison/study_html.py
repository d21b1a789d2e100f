"""A study in a notebook: the verdict, the best rows of the leaderboard, and where the report is.

No script, no style sheet, and every text is escaped.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from metricgrad.comparison.leaderboard import REFERENCES
from metricgrad.comparison.number_texts import format_interval, format_value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MOST_ROWS = 10
"""The most rows to show."""


def render_study(summary: Mapping[str, Any], path: Path) -> str:
    """Return the study as HTML."""
    verdict = summary["verdict"]
    rows = summary["leaderboard"]
    heads = ("contender", "rule", summary["metric"]["name"], "95 % interval", "gain over cross-entropy, tuned", "p")
    head = "".join(f'<th style="text-align:left">{escape(text)}</th>' for text in heads)
    body = "".join(_row(row, (verdict["ship"], verdict["rule"])) for row in rows[:MOST_ROWS])
    more = f"<p>{len(rows) - MOST_ROWS} more rows in <code>.leaderboard</code></p>" if len(rows) > MOST_ROWS else ""
    about = f"{summary['data']['rows']:,} rows of {summary['data']['file']}, {summary['repeats']} repeats"
    warnings = "".join(f"<li>{escape(text)}</li>" for text in summary["data"]["warnings"])
    where = escape(str(path / "report.html"))
    return (
        f"<div><h3>{escape(verdict['headline'])}</h3><p>{escape(verdict['text'])}</p>"
        f"<p>{escape(about)}</p>{f'<ul>{warnings}</ul>' if warnings else ''}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
        f"<p>The whole report: <code>{where}</code>; <code>.report(path)</code> writes it elsewhere.</p></div>"
    )


def _row(row: Mapping[str, Any], ship: tuple[str, str]) -> str:
    gain = row["against"].get(REFERENCES[1])
    p = None if gain is None else gain["p"]
    cells = (
        row["contender"],
        row["rule"],
        format_value(row["value"]),
        format_interval(row["low"], row["high"]),
        "" if gain is None else format_value(gain["difference"], "+"),
        "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}",
    )
    weight = "bold" if (row["contender"], row["rule"]) == ship else "normal"
    inner = "".join(f'<td style="text-align:left;font-weight:{weight}">{escape(cell)}</td>' for cell in cells)
    return f"<tr>{inner}</tr>"
