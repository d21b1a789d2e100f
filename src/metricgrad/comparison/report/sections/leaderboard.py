"""The leaderboard: every contender with each rule, its mean, interval and difference to the references."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from metricgrad.comparison.leaderboard import REFERENCES
from metricgrad.comparison.metric_titles import format_metric, read_metric_title
from metricgrad.comparison.number_texts import format_value
from metricgrad.comparison.report.interval_bars import IntervalBar, IntervalScale
from metricgrad.comparison.report.markup import capitalise, format_evidence, make_definitions
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.leaderboard import Difference, LeaderboardRow
    from metricgrad.comparison.report.payload import Payload

ROWS_SHOWN_FIRST = 5
"""Rows that are shown at first."""

_TOOLS = """<div class="tools scripted" role="group" aria-label="Rows of the leaderboard">
  <button type="button" data-filter="" aria-pressed="true">Both rules</button>
  <button type="button" data-filter="fixed" aria-pressed="false">Fixed</button>
  <button type="button" data-filter="tuned" aria-pressed="false">Tuned</button>
</div>
"""
_MORE = """
<p class="scripted">
  <button type="button" id="all-rows" class="quiet" aria-expanded="false" hidden>Show all</button>
</p>
"""


class LeaderboardSection(Section):
    """A table that its script can sort, filter and unfold."""

    name = "leaderboard"
    title = "Leaderboard"

    def body(self, payload: Payload) -> str:
        """Return the constraint, the table, and the contenders that are not in it."""
        wish = payload["metric"]["subject_to"]
        constraint = (
            f'<p class="note">Subject to {escape(wish)}; rows marked ✕ cannot meet it. “Met”: in how many splits '
            "it was met on the test rows.</p>\n"
            if wish
            else ""
        )
        return (
            constraint
            + _TOOLS
            + _make_rows_table(payload)
            + _MORE
            + make_definitions(payload["left_out"], "Not in the table")
        )


def _make_rows_table(payload: Payload) -> str:
    rows = payload["leaderboard"]
    metric = payload["metric"]
    scale = _make_scale(rows)
    also = metric["also"]
    heads = [
        ("Contender", "name", "name", "ascending"),
        ("Rule", "rule", "rule", "ascending"),
        (capitalise(read_metric_title(metric)), "value", "value", "descending"),
        *((f"vs {name}", f"gain{i}", "gain", "descending") for i, name in enumerate(REFERENCES)),
        *([("Met", "held", "also", "descending")] if metric["subject_to"] else []),
        *((capitalise(format_metric(name)), f"also{i}", "also", "descending") for i, name in enumerate(also)),
        ("Seconds", "seconds", "seconds", "ascending"),
    ]
    cells = "".join(
        f'<th scope="col" class="{kind}" data-key="{key}" data-first="{first}">{escape(text)}</th>'
        for text, key, kind, first in heads
    )
    head = f'<tr><th scope="col" class="rank"><abbr title="rank">#</abbr></th>{cells}</tr>'
    ship = (payload["verdict"]["ship"], payload["verdict"]["rule"])
    constrained = metric["subject_to"] is not None
    body = "".join(_make_row(i, row, scale, also, ship, constrained) for i, row in enumerate(rows, 1))
    return (
        f'<table class="leaderboard"><caption>Mean over {payload["repeats"]} splits on rows not trained on; the bar is '
        f"the 95 % interval, dots are single splits, the dashed line is {escape(REFERENCES[1])}. {scale.describe()}"
        "</caption>"
        f"<thead>{head}</thead><tbody>{body}</tbody></table>"
    )


def _make_row(
    rank: int, row: LeaderboardRow, scale: IntervalScale, also: list[str], ship: tuple[str, str], constrained: bool
) -> str:
    gains = (row["against"].get(name) for name in REFERENCES)
    kinds = []
    if (row["contender"], row["rule"]) == ship:
        kinds.append("ship")
    if rank > ROWS_SHOWN_FIRST:
        kinds.append("extra")
    broken = "" if row["feasible"] else ' <abbr class="broken" title="cannot meet the constraint">✕</abbr>'
    held = f"{row['held']} of {len(row['folds'])}"
    met = f'<td class="also" data-label="Met" data-sort="{row["held"]}">{held}</td>' if constrained else ""
    extra = met
    for name in also:
        label = escape(capitalise(format_metric(name)))
        value = row["others"].get(name)
        extra += f'<td class="also" data-label="{label}" data-sort="{_make_key(value)}">{format_value(value)}</td>'
    seconds = row["seconds"]
    return (
        f'<tr class="{" ".join(kinds)}" data-rule="{row["rule"]}"><td class="rank">{rank}</td>'
        f'<th scope="row" class="name" data-sort="{escape(row["contender"].lower())}">{escape(row["contender"])}'
        f'{broken}<span class="family">{escape(row["family"])}</span></th>'
        f'<td class="rule" data-sort="{row["rule"]}">{row["rule"]}</td>'
        f'<td class="value" data-sort="{_make_key(row["value"])}">'
        f'<span class="number">{format_value(row["value"])}</span>'
        f"{scale.draw(_make_bar(row))}</td>"
        f"{''.join(_make_gain(name, gain) for name, gain in zip(REFERENCES, gains, strict=True))}{extra}"
        f'<td class="seconds" data-label="Seconds" data-sort="{_make_key(seconds)}">'
        f"{'–' if seconds is None else f'{seconds:,.3g}'}</td></tr>"
    )


def _make_gain(name: str, gain: Difference | None) -> str:
    label = f'data-label="vs {escape(name)}"'
    if gain is None:
        return f'<td class="gain" {label} data-sort="">–</td>'
    low = gain["low"]
    high = gain["high"]
    sure = low is not None and high is not None and (low > 0 or high < 0)
    mark = ("▲" if gain["difference"] > 0 else "▼") if sure else "≈"
    return (
        f'<td class="gain {"sure" if sure else ""}" {label} data-sort="{gain["difference"]}"><span class="number">'
        f'<span class="mark">{mark}</span> {format_value(gain["difference"], "+")}</span> '
        f'<span class="small">{format_evidence(gain)}</span></td>'
    )


def _make_key(value: float | None) -> str:
    return "" if value is None else repr(value)


def _make_bar(row: LeaderboardRow) -> IntervalBar:
    return IntervalBar(row["value"], row["low"], row["high"], row["folds"])


def _make_scale(rows: list[LeaderboardRow]) -> IntervalScale:
    """Return the axis: from the least to the most that a contender reaches, baselines aside."""
    shown = [row for row in rows if row["family"] != "baseline"] or rows
    tuned = (row["value"] for row in rows if (row["contender"], row["rule"]) == ("cross-entropy", "tuned"))
    return IntervalScale(map(_make_bar, shown), next(tuned, None))
