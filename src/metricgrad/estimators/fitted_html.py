"""What an estimator shows in a notebook: what was fitted, below scikit-learn's own picture of the parameters."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def render_facts(facts: Mapping[str, object]) -> str:
    """Return labels and values as an HTML table, escaped.

    >>> render_facts({"rule": "a < b"})
    '<table><tr><th style="text-align:left">rule</th><td style="text-align:left">a &lt; b</td></tr></table>'
    """
    style = 'style="text-align:left"'
    rows = (f"<tr><th {style}>{escape(k)}</th><td {style}>{escape(str(v))}</td></tr>" for k, v in facts.items())
    return f"<table>{''.join(rows)}</table>"
