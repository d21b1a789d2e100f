"""The verdict: what to ship, whether its gain is proven, and the few numbers behind it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from metricgrad.comparison.contenders import REFERENCE
from metricgrad.comparison.leaderboard import REFERENCES
from metricgrad.comparison.metric_titles import read_metric_title
from metricgrad.comparison.number_texts import format_interval, format_money, format_value
from metricgrad.comparison.report.interval_bars import IntervalBar, make_bar_chart
from metricgrad.comparison.report.markup import capitalise, format_evidence, make_warnings
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from collections.abc import Set

    from metricgrad.comparison.leaderboard import Difference, LeaderboardRow
    from metricgrad.comparison.report.payload import Payload


class VerdictSection(Section):
    """Its heading is the page's."""

    name = "verdict"
    title = "Verdict"
    on_sheet = True

    def html(self, payload: Payload) -> str:
        """Return the whole section."""
        verdict = payload["verdict"]
        stamp, kind = ("The gain is proven", "real") if verdict["gain_is_real"] else ("No gain is proven", "chance")
        notes = " ".join(verdict.get("notes", [verdict["text"]]))
        lead = f'<p class="lead">{escape(notes)}</p>\n' if notes else ""
        content = (
            f'<p class="stamp {kind}">{stamp}</p>\n<h1 id="headline">{escape(verdict["headline"])}</h1>\n{lead}'
            f"{_write_figures(payload)}\n{_draw_chart(payload)}{_describe_model(payload)}{make_warnings(payload['data']['warnings'])}"
        )
        return self.make_place(content, "headline")


def _write_figures(payload: Payload) -> str:
    """Return the few numbers under the verdict, of which three are printed."""
    verdict = payload["verdict"]
    shipped = _find_shipped(payload)
    found = []
    if shipped is not None:
        spread = format_interval(shipped["low"], shipped["high"])
        found.append((format_value(shipped["value"]), read_metric_title(payload["metric"]), spread))
        for name, gain in _find_gains(payload).items():
            claim = verdict.get("claims", {}).get(name)
            word = "" if claim is None else "proven" if claim["proven"] else "not proven"
            spread = f"{format_evidence(gain if claim is None else claim)} {word}".strip()
            found.append((format_value(gain["difference"], "+"), f"against {name}", spread))
    planned = payload.get("planned_repeats", payload["repeats"])
    splits = f"{payload['repeats']} splits" + (f" of {planned}" if planned > payload["repeats"] else "")
    found.append((f"{payload['data']['rows']:,}", "rows of data", splits))
    hardest = _find_hardest_reference(payload)
    unprinted = {f"against {name}" for name in REFERENCES if name != hardest}
    if "money" in payload["study"]:
        ours, today = payload["study"]["money"]["amounts"][:2]
        beside = f"{escape(today['rule'])}: {format_money(today['per_row'])}"
        found.append((format_money(ours["per_row"]), "cost per row", beside))
        unprinted.add("rows of data")
    blocks = (
        f'<div class="{_choose_medium(label, unprinted)}"><dt>{escape(label)}</dt>'
        f'<dd><span class="big">{value}</span> <span class="small">{small}</span></dd></div>'
        for value, label, small in found
    )
    return f'<dl class="figures">{"".join(blocks)}</dl>'


def _choose_medium(label: str, unprinted: Set[str]) -> str:
    """Return the class of a figure; the cost is printed alone, as the section below shows it on a screen."""
    if label == "cost per row":
        return "print-only"
    return "screen-only" if label in unprinted else ""


def _draw_chart(payload: Payload) -> str:
    """Return bars of what ships, of the best other contender, and of the references."""
    shipped = _find_shipped(payload)
    if shipped is None:
        return ""
    rows = [row for row in payload["leaderboard"] if row["feasible"]]
    other = [row for row in rows if row["contender"] not in (shipped["contender"], REFERENCE)][:1]
    references = [row for row in rows if row["contender"] == REFERENCE and row is not shipped]
    drawn = [shipped, *other, *references]
    bars = [
        (f"{row['contender']}, {row['rule']}", IntervalBar(row["value"], row["low"], row["high"], row["folds"]))
        for row in drawn
    ]
    caption = f"{capitalise(read_metric_title(payload['metric']))} on rows not trained on: mean, 95 % interval, splits."
    return make_bar_chart(caption, bars)


def _find_shipped(payload: Payload) -> LeaderboardRow | None:
    """Return the row of the leaderboard that ships."""
    wanted = (payload["verdict"]["ship"], payload["verdict"]["rule"])
    return next((row for row in payload["leaderboard"] if (row["contender"], row["rule"]) == wanted), None)


def _find_gains(payload: Payload) -> dict[str, Difference]:
    """Return the gains over the references, without those that do not meet the constraint: they could not ship."""
    shipped = _find_shipped(payload)
    could_ship = {f"{row['contender']} {row['rule']}" for row in payload["leaderboard"] if row["feasible"]}
    gains = {} if shipped is None else shipped["against"]
    return {name: gains[name] for name in REFERENCES if name in gains and name in could_ship}


def _find_hardest_reference(payload: Payload) -> str | None:
    """Return the reference over which the gain is smallest, the one that has to be beaten."""
    gains = _find_gains(payload)
    return min(gains, key=lambda name: gains[name]["difference"], default=None)


_MOST_GUARANTEES = 10
"""The most bounds that are shown of a model of many labels."""


def _describe_model(payload: Payload) -> str:
    """Return how the shipped model decides."""
    if "model" not in payload:
        return ""
    model = payload["model"]
    how = "" if model["kind"] == "fixed" else f", tuned on {model['tuned_on']}"
    if model.get("guarantees") and "value_there" in model:
        how += f", with the value {model['value_there']:.3f} there"
    guaranteed = "".join(f" On new rows: {escape(one)}." for one in model.get("guarantees", [])[:_MOST_GUARANTEES])
    coverage = model.get("coverage")
    covered = "" if coverage is None else f" Coverage: {100 * coverage:.0f} % of rows are decided."
    rule = f"The shipped model decides by {escape(model['rule'])}{escape(how)}."
    return f'<p class="note" id="shipped-rule">{rule}{guaranteed}{covered}</p>\n'
