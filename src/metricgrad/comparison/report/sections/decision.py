"""How one of several classes is chosen: the largest score, or the largest one after offsets."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from metricgrad.comparison.number_texts import format_value
from metricgrad.comparison.report.markup import make_table
from metricgrad.comparison.report.section import Section
from metricgrad.decisions.rules import Offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.report.payload import Details, Payload
    from metricgrad.comparison.report.section_inputs import Predictions
    from metricgrad.decisions.rules import Rule


class ClassOffset(TypedDict):
    """What the rule does for one class."""

    name: str
    offset: float | None  # added to the logarithm of its score; None if the largest score decides as it is
    rows: int  # test rows of the class
    predicted: int  # and rows predicted as it


class Decided(TypedDict):
    """The rule: that of the shipped model; of other contenders the medians over the splits."""

    ships: bool
    classes: list[ClassOffset]


class DecisionRuleSection(Section):
    """A table of the offsets, of multi-class problems: there are no thresholds."""

    name = "decision"
    title = "How it decides"
    drawn = True
    tasks = ("multiclass",)

    def measure(self, predictions: Predictions) -> dict[str, Any]:
        """Return a ``Decided``, of multi-class problems."""
        if predictions.goal.task not in self.tasks:
            return {}
        names = predictions.table.names
        rules = predictions.rules if predictions.shipped is None else [predictions.shipped]
        offsets = _take_medians(rules, len(names))
        rows = np.bincount(predictions.targets, minlength=len(names))
        decided = predictions.decided[predictions.decided >= 0]
        predicted = np.bincount(decided, minlength=len(names))
        classes: list[ClassOffset] = [
            {
                "name": name,
                "offset": None if offsets is None else offsets[k],
                "rows": int(rows[k]),
                "predicted": int(predicted[k]),
            }
            for k, name in enumerate(names)
        ]
        return {"decision": {"ships": predictions.shipped is not None, "classes": classes}}

    def keep_classes(self, details: Details, kept: Sequence[int], total: int) -> None:
        if "decision" in details and len(details["decision"]["classes"]) == total:
            details["decision"]["classes"] = [details["decision"]["classes"][k] for k in kept]

    def body(self, payload: Payload) -> str:
        return '<p class="note" id="decision-note"></p>\n<div class="scroll" id="decision-table"></div>'

    def table(self, payload: Payload, details: Details) -> str:
        classes: list[ClassOffset] = details.get("decision", {}).get("classes", [])
        rows = [
            [one["name"], format_value(one["offset"], "+"), f"{one['rows']:,}", f"{one['predicted']:,}"]
            for one in classes
        ]
        heads = ["Class", "Offset of the logarithm of the score", "Rows", "Predicted"]
        return make_table(self.title, heads, rows) if rows else ""


def _take_medians(rules: Sequence[Rule], classes: int) -> list[float] | None:
    """Return the median offset of each class over some rules, None if none of them has offsets."""
    if not any(isinstance(rule, Offsets) for rule in rules):
        return None
    # Of all offsets only differences matter: the first class has none.
    each = [
        np.subtract(rule.offsets, rule.offsets[0]) if isinstance(rule, Offsets) else [0.0] * classes for rule in rules
    ]
    return [float(median(offsets[k] for offsets in each)) for k in range(classes)]
