"""The report's words and tables as HTML: what can be read without JavaScript. All text passes through ``escape``."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from metricgrad.app.report.payload import REFERENCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from metricgrad.app.report.payload import Details, Difference, Metric, Payload, Row

TOP = 10
"""Rows of the leaderboard that are shown at first."""

_NAMES = {"mcc": "MCC", "npv": "NPV", "g_mean": "G-mean", "kappa": "Cohen’s kappa"}


def parts(payload: Payload) -> dict[str, str]:
    """Return the page's pieces by name."""
    data, verdict, reproduce = payload["data"], payload["verdict"], payload["reproduce"]
    shipped = payload["details"].get(verdict["ship"])
    versions = ((name, text) for name, text in reproduce["versions"].items())
    run = [("Command", reproduce["command"]), ("Seed", str(reproduce["seed"])), ("Machine", reproduce["machine"])]
    return {
        "headline": escape(verdict["headline"]),
        "text": escape(verdict["text"]),
        "stamp": "The gain is real" if verdict["gain_is_real"] else "No gain is proven",
        "stamp_class": "real" if verdict["gain_is_real"] else "chance",
        "figures": _figures(payload),
        "leaderboard": _leaderboard(payload),
        "constraint": _constraint(payload),
        "left_out": definitions(payload["left_out"], "Not in the table"),
        "balance": _balance(data["classes"], data["balance"]),
        "profile": definitions(data["profile"]),
        "warnings": items(data["warnings"], "warnings"),
        "protocol": items(payload["protocol"]),
        "reproduce": definitions([*run, *versions]),
        "tables": "" if shipped is None else _tables(payload, shipped),
    }


def judge(metric: Metric) -> str:
    """Return the metric's name for people: "macro-averaged F2"."""
    return (f"{metric['average']}-averaged " if metric["average"] not in (None, "binary") else "") + title(
        metric["name"]
    )


def title(name: str) -> str:
    """Return a metric's name as people write it: "F2", "MCC", "balanced accuracy"."""
    if name in _NAMES:
        return _NAMES[name]
    number = name.removeprefix("f").removeprefix("_")
    return f"F{number}" if name[:1] == "f" and number.replace(".", "").isdigit() else name.replace("_", " ")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def items(texts: Iterable[str], kind: str = "sentences") -> str:
    """Return a list, or nothing."""
    inner = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return inner and f'<ul class="{kind}">{inner}</ul>'


def definitions(pairs: Iterable[Sequence[str]], heading: str = "") -> str:
    """Return pairs of a label and a text, or nothing."""
    inner = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(text)}</dd></div>" for label, text in pairs)
    return inner and (f"<h3>{escape(heading)}</h3>" if heading else "") + f"<dl>{inner}</dl>"


def number(value: float | None, sign: str = "") -> str:
    """Return three decimals, with a true minus, or a dash for what is not known."""
    return "–" if value is None else f"{value:{sign}.3f}".replace("-", "−")


def _figures(payload: Payload) -> str:
    """Return the few numbers under the verdict."""
    verdict, rows = payload["verdict"], payload["leaderboard"]
    shipped = next((r for r in rows if (r["contender"], r["rule"]) == (verdict["ship"], verdict["rule"])), None)
    found = []
    if shipped is not None:
        found.append((number(shipped["value"]), judge(payload["metric"]), _range(shipped["low"], shipped["high"])))
        for name in REFERENCES:
            if gain := shipped["against"].get(name):
                found.append((number(gain["difference"], "+"), f"against {name}", _evidence(gain)))
    found.append((f"{payload['data']['rows']:,}", "rows of data", f"{payload['repeats']} splits"))
    blocks = (
        f'<div><dt>{escape(label)}</dt><dd><span class="big">{value}</span> <span class="small">{small}</span></dd>'
        "</div>"
        for value, label, small in found
    )
    return f'<dl class="figures">{"".join(blocks)}</dl>'


def _range(low: float | None, high: float | None, sign: str = "") -> str:
    return "" if low is None or high is None else f"{number(low, sign)} to {number(high, sign)}"


def _evidence(gain: Difference) -> str:
    p = gain["p"]
    chance = "" if p is None else ("p &lt; 0.001" if p < 0.001 else f"p = {p:.3f}")
    found = (_range(gain["low"], gain["high"], "+"), chance)
    return " ".join(f'<span class="evidence">{text}</span>' for text in found if text)


def _constraint(payload: Payload) -> str:
    wish = payload["metric"]["subject_to"]
    return f'<p class="note">Subject to {escape(wish)}; rows marked ✕ break it.</p>' if wish else ""


def _leaderboard(payload: Payload) -> str:
    rows, metric = payload["leaderboard"], payload["metric"]
    scale = _Scale(rows)
    also = metric["also"]
    heads = [
        ("Contender", "name", "name", "ascending"),
        ("Rule", "rule", "rule", "ascending"),
        (_capital(judge(metric)), "value", "value", "descending"),
        *((f"vs {name}", f"gain{i}", "gain", "descending") for i, name in enumerate(REFERENCES)),
        *((_capital(title(name)), f"also{i}", "also", "descending") for i, name in enumerate(also)),
        ("Seconds", "seconds", "seconds", "ascending"),
    ]
    cells = "".join(
        f'<th scope="col" class="{kind}" data-key="{key}" data-first="{first}">{escape(text)}</th>'
        for text, key, kind, first in heads
    )
    head = f'<tr><th scope="col" class="rank"><abbr title="rank">#</abbr></th>{cells}</tr>'
    ship = (payload["verdict"]["ship"], payload["verdict"]["rule"])
    body = "".join(_row(i, row, scale, also, ship) for i, row in enumerate(rows, 1))
    return (
        f'<table class="leaderboard"><caption>Mean over {payload["repeats"]} splits on rows not trained on; the bar is '
        f"the interval, dots are single splits, the dashed line is {escape(REFERENCES[1])}. The axis runs from "
        f"{number(scale.low)} to {number(scale.high)}.</caption><thead>{head}</thead><tbody>{body}</tbody></table>"
    )


def _row(rank: int, row: Row, scale: _Scale, also: list[str], ship: tuple[str, str]) -> str:
    gains = (row["against"].get(name) for name in REFERENCES)
    kinds = [
        kind for kind, holds in (("ship", (row["contender"], row["rule"]) == ship), ("extra", rank > TOP)) if holds
    ]
    broken = "" if row["feasible"] else ' <abbr class="broken" title="breaks the constraint">✕</abbr>'
    extra = "".join(
        f'<td class="also" data-label="{escape(_capital(title(name)))}" data-sort="{_key(row["others"].get(name))}">'
        f"{number(row['others'].get(name))}</td>"
        for name in also
    )
    seconds = row["seconds"]
    return (
        f'<tr class="{" ".join(kinds)}" data-rule="{row["rule"]}"><td class="rank">{rank}</td>'
        f'<th scope="row" class="name" data-sort="{escape(row["contender"].lower())}">{escape(row["contender"])}'
        f'{broken}<span class="family">{escape(row["family"])}</span></th>'
        f'<td class="rule" data-sort="{row["rule"]}">{row["rule"]}</td>'
        f'<td class="value" data-sort="{_key(row["value"])}"><span class="number">{number(row["value"])}</span>'
        f"{scale.bar(row)}</td>"
        f"{''.join(_gain(name, gain) for name, gain in zip(REFERENCES, gains, strict=True))}{extra}"
        f'<td class="seconds" data-label="Seconds" data-sort="{_key(seconds)}">'
        f"{'–' if seconds is None else f'{seconds:,.3g}'}</td></tr>"
    )


def _gain(name: str, gain: Difference | None) -> str:
    label = f'data-label="vs {escape(name)}"'
    if gain is None:
        return f'<td class="gain" {label} data-sort="">–</td>'
    low, high = gain["low"], gain["high"]
    sure = low is not None and high is not None and (low > 0 or high < 0)
    mark = ("▲" if gain["difference"] > 0 else "▼") if sure else "≈"
    return (
        f'<td class="gain {"sure" if sure else ""}" {label} data-sort="{gain["difference"]}"><span class="number">'
        f'<span class="mark">{mark}</span> {number(gain["difference"], "+")}</span> '
        f'<span class="small">{_evidence(gain)}</span></td>'
    )


def _key(value: float | None) -> str:
    return "" if value is None else repr(value)


class _Scale:
    """The leaderboard's axis: from the least to the most that a contender reaches, baselines aside."""

    def __init__(self, rows: list[Row]) -> None:
        shown = [row for row in rows if row["family"] != "baseline"] or rows
        values = [x for row in shown for x in (row["value"], row["low"], row["high"], *row["folds"]) if x is not None]
        self.low, self.high = (min(values), max(values)) if values else (0.0, 1.0)
        tuned = (r for r in rows if r["contender"] == "cross-entropy" and r["rule"] == "tuned")
        self.reference = next((row["value"] for row in tuned), None)

    def place(self, value: float) -> str:
        """Return where a value lies, in percent; what lies outside sticks to the edge."""
        share = (value - self.low) / (self.high - self.low or 1)
        return f"{4 + 92 * min(max(share, 0), 1):.2f}%"

    def bar(self, row: Row) -> str:
        """Return the picture of a row."""
        value, low, high = row["value"], row["low"], row["high"]
        if value is None:
            return ""
        if value < self.low:
            shapes = '<path class="off" d="M9 5 3 10l6 5"/>'
        else:
            shapes = "".join(f'<circle class="fold" cx="{self.place(fold)}" cy="10" r="1.8"/>' for fold in row["folds"])
            if low is not None and high is not None:
                shapes = (
                    f'<line class="interval" x1="{self.place(low)}" x2="{self.place(high)}" y1="10" y2="10"/>' + shapes
                )
            shapes += f'<circle class="mean" cx="{self.place(value)}" cy="10" r="4.5"/>'
        if self.reference is not None:
            at = self.place(self.reference)
            shapes = f'<line class="reference" x1="{at}" x2="{at}" y1="0" y2="20"/>' + shapes
        interval = _range(low, high)
        label = f"{number(value)}, interval {interval}" if interval else number(value)
        return f'<svg class="bar" height="20" role="img" aria-label="{label}">{shapes}</svg>'


def _balance(classes: list[str], balance: list[float]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="share">{_percent(share)}</td>'
        f'<td class="track"><svg height="12" aria-hidden="true"><rect width="{100 * share:.2f}%" height="12"/></svg>'
        "</td></tr>"
        for name, share in zip(classes, balance, strict=False)
    )
    return f'<table class="balance"><caption>Share of rows in each class</caption><tbody>{rows}</tbody></table>'


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _tables(payload: Payload, details: Details) -> str:
    """Return what the charts show of the contender to ship, for readers without JavaScript."""
    found = []
    if details["per_class"]:
        rows = (
            [row["name"], number(row["precision"]), number(row["recall"]), number(row["f1"]), f"{row['support']:,}"]
            for row in details["per_class"]
        )
        found.append(
            _table(f"Classes, {payload['verdict']['ship']}", ["Class", "Precision", "Recall", "F1", "Rows"], rows)
        )
    if details["confusion"]:
        classes = payload["data"]["classes"]
        matrix = zip(classes, details["confusion"], strict=False)
        lines = ([name, *(f"{cell:,}" for cell in row)] for name, row in matrix)
        found.append(_table("Rows by true class (down) and decided class (across)", ["", *classes], lines))
    if details["errors"]:
        wrong = (
            [str(e["row"]), e["truth"], e["decided"], number(e["score"]), "; ".join(f"{a}: {b}" for a, b in e["cells"])]
            for e in details["errors"]
        )
        found.append(_table("Worst mistakes", ["Row", "Truth", "Decided", "Score", "Cells"], wrong))
    return "".join(found)


def _table(caption: str, heads: list[str], rows: Iterable[list[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    )
    return (
        f'<div class="scroll"><table class="plain"><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
