"""Pieces of HTML that sections share. All text that they are given is escaped here."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from metricgrad.comparison.number_texts import format_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from metricgrad.comparison.leaderboard import Difference
    from metricgrad.comparison.verdict import Claim


def capitalise(text: str) -> str:
    """Return a text with a capital first letter, the others unchanged."""
    return text[:1].upper() + text[1:]


def format_evidence(gain: Difference | Claim) -> str:
    """Return the interval and the p-value of a difference."""
    p = gain["p"]
    chance = "" if p is None else ("p &lt; 0.001" if p < 0.001 else f"p = {p:.3f}")
    found = (format_interval(gain["low"], gain["high"], "+"), chance)
    return " ".join(f'<span class="evidence">{text}</span>' for text in found if text)


def make_list(texts: Iterable[str], kind: str = "sentences") -> str:
    """Return a list, or nothing."""
    inner = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return inner and f'<ul class="{kind}">{inner}</ul>'


MOST_PRINTED_WARNINGS = 3
"""The most warnings that are on the printed sheet."""


def make_warnings(texts: Sequence[str]) -> str:
    """Return a list of warnings, which says when it is printed how many of them are not, or nothing."""
    rest = len(texts) - MOST_PRINTED_WARNINGS
    more = f'<p class="note print-only">The report has {rest} more warnings.</p>' if rest > 0 else ""
    return make_list(texts, "warnings") + more


def make_definitions(pairs: Iterable[Sequence[str]], heading: str = "") -> str:
    """Return pairs of a label and a text, or nothing."""
    inner = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(text)}</dd></div>" for label, text in pairs)
    return inner and (f"<h3>{escape(heading)}</h3>" if heading else "") + f'<dl class="pairs">{inner}</dl>'


def make_table(caption: str, heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the first cell of each row is its head."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    )
    return (
        f'<div class="scroll"><table class="plain"><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def make_chart(name: str) -> str:
    """Return a place for a chart, ``#name`` in the script."""
    return f'<figure><div class="chart" id="{name}"></div></figure>'


def make_folded(heading: str, content: str) -> str:
    """Return content that is folded below its heading, both of them markup; charts in it are drawn when it opens."""
    return f'<details class="folded"><summary>{heading}</summary>\n{content}\n</details>'


def make_folded_table() -> str:
    """Return a folded place for the numbers of a chart as a table, which ``asTable`` in the script fills."""
    return '<details class="data"><summary>As a table</summary><div class="scroll"></div></details>'
