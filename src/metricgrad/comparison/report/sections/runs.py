"""Two runs of ``compare`` side by side: their verdicts and rules, options that differ, leaderboards and columns."""

from __future__ import annotations

from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any, TypedDict

from metricgrad.comparison.metric_titles import read_metric_title
from metricgrad.comparison.number_texts import format_interval, format_value
from metricgrad.comparison.report.interval_bars import IntervalBar, make_bar_chart
from metricgrad.comparison.report.markup import capitalise, make_table
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.importance import ColumnImportance
    from metricgrad.comparison.leaderboard import LeaderboardRow
    from metricgrad.comparison.report.payload import Payload
    from metricgrad.comparison.summaries import ComparisonSummary


class Side(TypedDict):
    """One of ``payload["runs"]``."""

    name: str  # of its folder
    rule: str  # in words
    summary: ComparisonSummary
    leaderboard: list[LeaderboardRow]
    config: dict[str, Any]  # its options
    splits: str  # the hash of the rows of its splits


class SidesSection(Section):
    """The verdicts; the heading is the page's."""

    name = "sides"
    title = "Two runs"
    on_sheet = True

    def html(self, payload: Payload) -> str:
        runs: list[Side] = payload["runs"]
        first, second = (_find_shipped(run) for run in runs)
        same = are_comparable(runs)
        headline = f"{runs[0]['name']} and {runs[1]['name']}"
        if not same:
            lead = "The runs have different targets or metrics: their values cannot be compared."
        elif first is None or second is None or first["value"] is None or second["value"] is None:
            lead = "What a run ships is not in its leaderboard."
        else:
            difference = format_value(second["value"] - first["value"], "+")
            lead = (
                f"What the second run ships is {difference} against the first, in "
                f"{read_metric_title(payload['metric'])}. {_describe_rows(runs)}"
            )
        content = (
            f'<h1 id="headline">{escape(headline)}</h1>\n<p class="lead">{escape(lead)}</p>\n'
            f"{_draw_sides(payload, runs) if same else ''}"
            f'<div class="columns">{"".join(_describe_side(run) for run in runs)}</div>'
        )
        return self.make_place(content, "headline")


class BoardsSection(Section):
    """The leaderboards in one table."""

    name = "boards"
    title = "Leaderboards"

    def body(self, payload: Payload) -> str:
        runs: list[Side] = payload["runs"]
        boards = [{(row["contender"], row["rule"]): row for row in run["leaderboard"]} for run in runs]
        paired = runs[0]["splits"] == runs[1]["splits"]
        same = are_comparable(runs)
        heads = ["Contender, rule", *(run["name"] for run in runs)]
        heads += ["Second − first", *(["Second better in"] if paired else [])] if same else []
        rows = []
        for key in dict.fromkeys(chain(*boards)):
            mine = [board.get(key) for board in boards]
            cells = [", ".join(key), *(_format_value(row) for row in mine)]
            rows.append([*cells, *_compare_rows(mine[0], mine[1], paired)] if same else cells)
        return make_table("Mean over the splits, and its interval", heads, rows)


class OptionsSection(Section):
    """The options and the data that differ."""

    name = "options"
    title = "What differs"

    def body(self, payload: Payload) -> str:
        first, second = payload["runs"]
        keys = dict.fromkeys([*first["config"], *second["config"]])
        rows = [
            [key.replace("_", " "), *(_shorten(key, run["config"].get(key)) for run in (first, second))]
            for key in keys
            if first["config"].get(key) != second["config"].get(key)
        ]
        if not rows:
            return "<p>Nothing: the options and the data are the same.</p>"
        return make_table("Options and data", ["Option", first["name"], second["name"]], rows)


class ImportancesSection(Section):
    """The importance of columns in both runs."""

    name = "importances"
    title = "What the models look at"

    def html(self, payload: Payload) -> str:
        runs: list[Side] = payload["runs"]
        return super().html(payload) if any(run["summary"].get("importance") for run in runs) else ""

    def body(self, payload: Payload) -> str:
        runs: list[Side] = payload["runs"]
        found = [{one["column"]: one for one in run["summary"].get("importance", ())} for run in runs]
        rows = [[name, *(_format_drop(mine.get(name)) for mine in found)] for name in dict.fromkeys(chain(*found))]
        heads = ["Column", *(run["name"] for run in runs)]
        return make_table("What is lost of the metric when a column is shuffled among the test rows", heads, rows)


def are_comparable(runs: list[Side]) -> bool:
    """Return whether two runs predict the same and were evaluated by the same metric."""
    first, second = (
        (run["summary"]["metric"]["name"], run["summary"]["metric"]["average"], run["summary"]["data"]["target"])
        for run in runs
    )
    return first == second


def _draw_sides(payload: Payload, runs: list[Side]) -> str:
    """Return bars of what the runs ship."""
    shipped = [(run["name"], _find_shipped(run)) for run in runs]
    bars = [
        (name, IntervalBar(row["value"], row["low"], row["high"], row["folds"]))
        for name, row in shipped
        if row is not None
    ]
    caption = f"{capitalise(read_metric_title(payload['metric']))} of what ships: mean, 95 % interval, splits."
    return make_bar_chart(caption, bars)


def _find_shipped(run: Side) -> LeaderboardRow | None:
    verdict = run["summary"]["verdict"]
    wanted = (verdict["ship"], verdict["rule"])
    return next((row for row in run["leaderboard"] if (row["contender"], row["rule"]) == wanted), None)


def _describe_rows(runs: list[Side]) -> str:
    if runs[0]["splits"] == runs[1]["splits"]:
        return "Both were measured on the same splits of the same rows."
    return "They were measured on different rows or splits: part of the difference is due to those."


def _describe_side(run: Side) -> str:
    verdict = run["summary"]["verdict"]
    data = run["summary"]["data"]
    about = f"{data['file']}, {data['rows']:,} rows, {run['summary']['repeats']} splits"
    return (
        f"<div><h2>{escape(run['name'])}</h2><p><strong>{escape(verdict['headline'])}</strong></p>"
        f'<p>{escape(verdict["text"])}</p><p class="note">Rule: {escape(run["rule"])}</p>'
        f'<p class="note">{escape(about)}</p></div>'
    )


def _format_value(row: LeaderboardRow | None) -> str:
    if row is None:
        return "–"
    spread = format_interval(row["low"], row["high"])
    broken = "" if row["feasible"] else ", breaks the constraint"
    return format_value(row["value"]) + (f" ({spread})" if spread else "") + broken


def _compare_rows(first: LeaderboardRow | None, second: LeaderboardRow | None, paired: bool) -> list[str]:
    """Return the difference, and in how many of the same splits it is positive."""
    if first is None or second is None or first["value"] is None or second["value"] is None:
        return ["–", "–"] if paired else ["–"]
    found = [format_value(second["value"] - first["value"], "+")]
    if paired:
        wins = sum(b > a for a, b in zip(first["folds"], second["folds"], strict=False))
        found.append(f"{wins} of {min(len(first['folds']), len(second['folds']))}")
    return found


def _format_drop(one: ColumnImportance | None) -> str:
    if one is None:
        return "–"
    spread = format_interval(one["low"], one["high"], "+")
    return format_value(one["drop"], "+") + (f" ({spread})" if spread else "")


def _shorten(key: str, value: object) -> str:
    return "–" if value is None else str(value)[: 12 if key == "data_sha256" else 300]
