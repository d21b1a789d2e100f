"""Pieces of HTML that sections share. All text that they are given is escaped here."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from metricgrad.comparison.report.payload import Claim, Difference, Metric

_NAMES = {"mcc": "MCC", "npv": "NPV", "g_mean": "G-mean", "kappa": "Cohen’s kappa"}


_OF_MATRIX = frozenset(("accuracy", "balanced_accuracy", "g_mean", "mcc", "kappa", "quadratic_kappa"))
"""Metrics of all classes together."""
_OF_BOTH = _OF_MATRIX | {"worst_recall", "informedness", "markedness"}
"""Binary metrics that are the same for either class."""


def metric_title(metric: Metric) -> str:
    """Return the metric of a study for people: "macro-averaged F2"."""
    return metric.get("title") or describe_metric(metric["name"], metric["average"], "multilabel")


def describe_metric(name: str, average: str | None, task: str, positive: str = "") -> str:
    """Return a metric for people; ``positive`` is the class that a binary metric is of.

    >>> describe_metric("f1", "macro", "binary", "yes"), describe_metric("f2", "micro", "multilabel")
    ("F1 of the class 'yes'", 'micro-averaged F2')
    """
    base = name.split("(")[0]
    if task == "binary":
        return title(name) + ("" if base in _OF_BOTH or not positive else f" of the class {positive!r}")
    whole = average is None or (task == "multiclass" and base in _OF_MATRIX)
    return title(name) if whole else f"{average}-averaged {title(name)}"


def title(name: str) -> str:
    """Return a metric's name as people write it: "F2", "MCC", "balanced accuracy".

    >>> title("balanced_accuracy"), title("f_beta(beta=1/0.25)")
    ('balanced accuracy', 'f_beta(beta=1/0.25)')
    """
    if "(" in name:  # its parameters are as they are typed
        return name
    if name in _NAMES:
        return _NAMES[name]
    beta = name.removeprefix("f").removeprefix("_")
    return f"F{beta}" if name[:1] == "f" and beta.replace(".", "").isdigit() else name.replace("_", " ")


def capital(text: str) -> str:
    """Return a text with a capital first letter, the others unchanged."""
    return text[:1].upper() + text[1:]


def number(value: float | None, sign: str = "") -> str:
    """Return three decimals, with a true minus, or a dash for what is not known."""
    return "–" if value is None else f"{value:{sign}.3f}".replace("-", "−")


def percent(share: float) -> str:
    """Return a share in percent, with three digits."""
    return f"{100 * share:.3g} %"


def interval(low: float | None, high: float | None, sign: str = "") -> str:
    """Return an interval, or nothing if it is not known."""
    return "" if low is None or high is None else f"{number(low, sign)} to {number(high, sign)}"


def evidence(gain: Difference | Claim) -> str:
    """Return the interval and the p-value of a difference."""
    p = gain["p"]
    chance = "" if p is None else ("p &lt; 0.001" if p < 0.001 else f"p = {p:.3f}")
    found = (interval(gain["low"], gain["high"], "+"), chance)
    return " ".join(f'<span class="evidence">{text}</span>' for text in found if text)


def items(texts: Iterable[str], kind: str = "sentences") -> str:
    """Return a list, or nothing."""
    inner = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return inner and f'<ul class="{kind}">{inner}</ul>'


def definitions(pairs: Iterable[Sequence[str]], heading: str = "") -> str:
    """Return pairs of a label and a text, or nothing."""
    inner = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(text)}</dd></div>" for label, text in pairs)
    return inner and (f"<h3>{escape(heading)}</h3>" if heading else "") + f'<dl class="pairs">{inner}</dl>'


def table(caption: str, heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
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


def chart(name: str) -> str:
    """Return a place for a chart, ``#name`` in the script."""
    return f'<figure><div class="chart" id="{name}"></div></figure>'


def folded_table() -> str:
    """Return a folded place for the numbers of a chart as a table, which ``asTable`` in the script fills."""
    return '<details class="data"><summary>As a table</summary><div class="scroll"></div></details>'
