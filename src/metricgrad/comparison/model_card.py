"""``model_card.md``: what the model of a run is, for those who use it without having trained it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from metricgrad import __version__
from metricgrad.comparison.metric_titles import read_metric_title
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.comparison.tables.schema import Schema


_MOST_ROWS = 10
"""The most rows of the leaderboard, and of the classes, to list; summary.json has all."""

_LOAD = """```sh
metricgrad predict RUN DATA -o predictions.csv
```

```python
import metricgrad as mg

model = mg.load_run("RUN").model  # a scikit-learn classifier of data frames, with the decision rule applied
```

RUN is the folder of this file. Loading it runs no code from it; the hash of every file is verified first."""


def escape(text: object, most: int | None = 200) -> str:
    r"""Return text from the data as Markdown that shows it as it is: one line, no markup, no HTML.

    >>> print(escape("<b>|*a*\n# b, 1.5 (http://x)"))
    \<b\>\|\*a\* \# b, 1.5 (http:\//x)
    """
    return re.sub(r"([\\`*_\[\]<>#!|~$&]|(?<=:)/(?=/))", r"\\\1", one_line(text, most))


def write_card(model: ShippedModel, summary: Mapping[str, Any]) -> str:
    """Return the model card of a run: of ``compare``, whose summary has a leaderboard, or of ``train``."""
    schema, about = model.schema, model.about
    target = ", ".join(schema.target.columns)
    compared = "leaderboard" in summary
    if about.get("guarantees"):
        expected = _expect_guaranteed(about, summary)
    else:
        expected = _expect_compared(summary) if compared else _expect_trained(about)
    sections = [
        f"# Model card\n\n{model.contender} with its {about['kind']} decision rule, by metricgrad {__version__}.",
        f"## What it is for\n\nIt predicts {escape(target)} ({schema.task}) for rows like those it was trained on: "
        f"{escape(summary['data']['file'])}. It has been compared by one metric only, named below; check that this is "
        "what matters where it is used.",
        f"## Data\n\n{_describe_data(schema)}",
        f"## Metric and decision rule\n\n{_describe_rule(model)}\n\n{expected}",
    ]
    if compared:
        sections.append(f"## How it was chosen\n\n{_describe_comparison(summary)}")
    sections.append(f"## Limits\n\n{_describe_limits(summary)}")
    sections.append(f"## How to load it\n\n{_LOAD}")
    return "\n\n".join(sections) + "\n"


def _describe_data(schema: Schema) -> str:
    """Return the number of rows, the names of the columns, and the classes."""
    first = f" The first {_MOST_ROWS} of {len(schema.classes)} classes:" if len(schema.classes) > _MOST_ROWS else ""
    names = escape(", ".join(schema.inputs), 600)
    classes = [escape(name, 60) for name in schema.classes[:_MOST_ROWS]]
    counts = [str(count) for count in schema.target.counts[:_MOST_ROWS]]
    text = f"{schema.rows} rows with a target, {len(schema.columns)} feature columns: {names}.{first}"
    return f"{text}\n\n{_make_table({'class': classes, 'rows': counts})}"


def _describe_rule(model: ShippedModel) -> str:
    """Return the rule, with the offsets of classes if it has any, and what it was chosen for."""
    about, schema = model.about, model.schema
    offsets = model.describe()["offsets"] or []
    named = [f"{escape(name, 60)} {offset:+.3f}" for name, offset in zip(schema.classes, offsets, strict=False)][
        :_MOST_ROWS
    ]
    first = f" of the first {_MOST_ROWS} classes" if len(offsets) > _MOST_ROWS else ""
    listed = f" Offsets{first}, added to the logarithms of the scores: {', '.join(named)}." if named else ""
    wish = f", subject to {escape(about['subject_to'])}" if about["subject_to"] else ""
    average = "" if schema.task == "binary" else f" ({about['average']} average)"
    how = f"tuned on {escape(about['tuned_on'])}" if about["kind"] == "tuned" else "not tuned"
    return (
        f"The rule is: {escape(model.rule.describe())}, {how}.{listed} The metric is {escape(about['metric'])}"
        f"{average}{wish}.{_describe_guarantees(about)}{_describe_coverage(about)}"
    )


def _describe_guarantees(about: Mapping[str, Any]) -> str:
    """Return what holds on new rows with a confidence, if anything was guaranteed."""
    guarantees = about.get("guarantees", [])[:_MOST_ROWS]
    return "".join(f" On new rows like those of the data: {escape(one)}." for one in guarantees)


def _describe_coverage(about: Mapping[str, Any]) -> str:
    """Return how many rows are decided, and what is predicted for the others; nothing if all are decided."""
    if "coverage" not in about:
        return ""
    label = about["abstain_label"]
    instead = "no class" if label is None else escape(label)
    decided = f"{100 * about['coverage']:.0f} % of the rows that the rule was tuned on"
    return f" Coverage: it decides {decided}; for the others it predicts {instead}."


def _expect_compared(summary: Mapping[str, Any]) -> str:
    """Return what to expect on new rows: the mean on test rows, which no model and no rule had seen."""
    verdict, repeats = summary["verdict"], summary["repeats"]
    shipped = (verdict["ship"], verdict["rule"])
    row = next(row for row in summary["leaderboard"] if (row["contender"], row["rule"]) == shipped)
    spread = "" if row["low"] is None else f" (95 % interval {row['low']:.3f} to {row['high']:.3f})"
    met = ""
    if summary["metric"]["subject_to"]:
        met = f" The constraint was met on the test rows of {row['held']} of {repeats} repeats."
    return (
        f"On new rows like those of the data, expect {escape(read_metric_title(summary['metric']))} of about "
        f"{row['value']:.3f}{spread}: the mean over {repeats} repeats, each on test rows that neither the model nor "
        f"its rule had seen.{met}"
    )


def _expect_guaranteed(about: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Return what to expect of a rule with a confidence, which the rules of the repeats do not have."""
    return (
        f"On these {escape(about['tuned_on'])} the {escape(read_metric_title(summary['metric']))} is "
        f"{about['value_there']:.3f}. The rule was chosen on them, so expect a little less on new rows. Values of the "
        "comparison below are those of rules without the confidence, which is less strict."
    )


def _expect_trained(about: Mapping[str, Any]) -> str:
    """Return the value of a model that was not compared, and why less is to be expected."""
    return (
        f"On {escape(about['tuned_on'])} the value is {about['value_there']:.3f}. Training stopped early on the same "
        "rows, and a tuned rule was tuned on them, so expect less on new rows: metricgrad evaluate measures it."
    )


def _describe_comparison(summary: Mapping[str, Any]) -> str:
    """Return the verdict and the first rows of the leaderboard."""
    verdict = summary["verdict"]
    rows = summary["leaderboard"][:_MOST_ROWS]
    table = {
        "contender": [row["contender"] for row in rows],
        "rule": [row["rule"] for row in rows],
        escape(summary["metric"]["name"]): [_format(row["value"]) for row in rows],
        "low": [_format(row["low"]) for row in rows],
        "high": [_format(row["high"]) for row in rows],
    }
    return (
        f"{escape(verdict['headline'], None)} {escape(verdict['text'], None)}\n\n"
        f"Means over {summary['repeats']} repeats on rows not trained on; low and high: the 95 % interval.\n\n"
        f"{_make_table(table)}"
    )


def _make_table(columns: Mapping[str, list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [list(columns), ["---"] * len(columns), *(list(row) for row in zip(*columns.values(), strict=True))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _describe_limits(summary: Mapping[str, Any]) -> str:
    limits = [
        "Scores of a model that was trained on a metric are not calibrated probabilities.",
        "New categories, and texts in columns of numbers, count as missing.",
        "If the data drift, the rule no longer fits; metricgrad evaluate warns of it.",
        "metricgrad tune replaces the rule; this card shows the one before.",
        *(escape(text, None) for text in (summary.get("warnings") or summary["data"].get("warnings") or [])),
    ]
    return "\n".join(f"- {text}" for text in limits)


def _format(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
