"""How each class is found, and which classes are taken for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch

from metricgrad.comparison.number_texts import format_value
from metricgrad.comparison.report.markup import make_chart, make_folded_table, make_table
from metricgrad.comparison.report.section import Section
from metricgrad.core import metrics
from metricgrad.core.counts import Counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.report.payload import Details, Payload
    from metricgrad.comparison.report.section_inputs import Predictions


class PerClass(TypedDict):
    """How one class is found by the rule."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


_MATRIX = "Rows by true class (down) and predicted class (across)"
_BODY = f"""<figure id="confusion">
  <figcaption>{_MATRIX}; the shade is the share of the true class.</figcaption>
  <div class="scroll" id="confusion-table"></div>
</figure>
<p class="note" id="classes-note"></p>
{make_chart("class-chart")}
{make_folded_table()}"""


class ClassesSection(Section):
    """Precision, recall and F1 of each class; the confusion matrix of a multi-class problem."""

    name = "classes"
    title = "Classes"
    drawn = True

    def measure(self, predictions: Predictions) -> dict[str, Any]:
        """Return a ``PerClass`` for each, and the matrix: true classes down, predicted ones across; [] multi-label."""
        names = predictions.table.names
        y = predictions.targets
        decided = predictions.decided
        several = predictions.goal.task == "multilabel"
        return {
            "per_class": [
                _evaluate_class(name, y[:, k] == 1, decided[:, k] == 1)
                if several
                else _evaluate_class(name, y == k, decided == k)
                for k, name in enumerate(names)
            ],
            "confusion": [] if several else _count_confusion(y, decided, len(names)),
        }

    def keep_classes(self, details: Details, kept: Sequence[int], total: int) -> None:
        if len(details["per_class"]) == total:
            details["per_class"] = [details["per_class"][k] for k in kept]
        if details["confusion"]:
            details["confusion"] = _merge_classes(details["confusion"], kept)

    def body(self, payload: Payload) -> str:
        return _BODY

    def table(self, payload: Payload, details: Details) -> str:
        per_class: list[PerClass] = details["per_class"]
        found = ""
        if per_class:
            rows = (
                [
                    row["name"],
                    format_value(row["precision"]),
                    format_value(row["recall"]),
                    format_value(row["f1"]),
                    f"{row['support']:,}",
                ]
                for row in per_class
            )
            heads = ["Class", "Precision", "Recall", "F1", "Rows"]
            found += make_table(f"Classes, {payload['verdict']['ship']}", heads, rows)
        if details["confusion"]:
            classes = payload["data"]["classes"]
            matrix = zip(classes, details["confusion"], strict=False)
            found += make_table(
                _MATRIX, ["", *classes], ([name, *(f"{cell:,}" for cell in row)] for name, row in matrix)
            )
        return found


def _evaluate_class(name: str, truth: Any, decided: Any) -> PerClass:
    cells = ((truth & decided).sum(), (~truth & decided).sum(), (truth & ~decided).sum(), (~truth & ~decided).sum())
    counts = Counts(*(torch.tensor(float(cell)) for cell in cells))
    precision, recall, f1 = (float(metrics.get(key)(counts)) for key in ("precision", "recall", "f1"))
    return {"name": name, "precision": precision, "recall": recall, "f1": f1, "support": int(truth.sum())}


def _count_confusion(y: Any, decided: Any, classes: int) -> list[list[int]]:
    is_decided = decided >= 0
    y, decided = y[is_decided], decided[is_decided]
    found: list[list[int]] = np.bincount(y * classes + decided, minlength=classes**2).reshape(classes, classes).tolist()
    return found


def _merge_classes(matrix: list[list[int]], kept: Sequence[int]) -> list[list[int]]:
    """Return the confusion matrix of the classes kept and all others as one."""
    others = sorted(set(range(len(matrix))) - set(kept))
    sides = [*([k] for k in kept), others]
    return [[sum(matrix[i][j] for i in rows for j in columns) for columns in sides] for rows in sides]
