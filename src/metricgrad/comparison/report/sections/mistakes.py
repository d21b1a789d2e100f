"""The worst mistakes: test rows that were predicted wrongly with the most confidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from metricgrad.comparison.number_texts import format_value
from metricgrad.comparison.report.column_summaries import describe_cells
from metricgrad.comparison.report.markup import make_table
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Details, Payload
    from metricgrad.comparison.report.section_inputs import Predictions

MOST_MISTAKES = 20
MOST_CELLS = 12
"""The most cells of each mistake that are shown."""


class Mistake(TypedDict):
    """A test row that was predicted wrongly."""

    row: int  # in the data file, the first one being 1
    score: float
    truth: str
    decided: str
    cells: list[tuple[str, str]]  # column, text


class MistakesSection(Section):
    """A table with the cells of each row."""

    name = "mistakes"
    title = "Worst mistakes"
    note = "Test rows that were predicted wrongly with the most confidence. A mislabelled row looks like this too."
    drawn = True
    sizes = ((3, 5),)
    size_note = "Of each contender the {} worst mistakes are listed, with twelve columns."

    def measure(self, predictions: Predictions) -> dict[str, Any]:
        """Return a ``Mistake`` for the surest of the wrong predictions, every row once."""
        frame = predictions.table.frame
        label, score, sure = _find_confidence(predictions)
        found: dict[int, Mistake] = {}
        for i in np.argsort(-sure, kind="stable"):
            if len(found) == MOST_MISTAKES or not np.isfinite(sure[i]):
                break
            row = int(predictions.rows[i])
            truth, decided = _describe_row(predictions, int(i), int(label[i]))
            mistake: Mistake = {
                "row": int(frame.index[row]) + 1,
                "score": float(score[i]),
                "truth": truth,
                "decided": decided,
                "cells": describe_cells(frame, row, MOST_CELLS),
            }
            found.setdefault(row, mistake)
        return {"errors": list(found.values())}

    def shrink(self, details: Details, size: int) -> None:
        details["errors"] = [{**error, "cells": error["cells"][:12]} for error in details["errors"][:size]]

    def body(self, payload: Payload) -> str:
        return '<div class="scroll" id="mistake-table"></div>'

    def table(self, payload: Payload, details: Details) -> str:
        errors: list[Mistake] = details["errors"]
        rows = (
            [
                str(e["row"]),
                e["truth"],
                e["decided"],
                format_value(e["score"]),
                "; ".join(f"{a}: {b}" for a, b in e["cells"]),
            ]
            for e in errors
        )
        return make_table(self.title, ["Row", "True", "Predicted", "Score", "Cells"], rows) if errors else ""


def _find_confidence(predictions: Predictions) -> tuple[Any, Any, Any]:
    """Return, of each row, the label that is most wrong (-1 if there is one for all), its score, and how sure it was.

    A row that was predicted correctly has −∞ there.
    """
    s = predictions.scores
    y = predictions.targets
    decided = predictions.decided
    everyone = np.arange(len(y))
    one = np.full(len(y), -1)
    if predictions.goal.task == "multiclass":
        score = s[everyone, decided]
        is_wrong = (decided != y) & (decided >= 0)  # an undecided row is no mistake
        return one, score, np.where(is_wrong, score - s[everyone, y], -np.inf)
    wrong = np.where(decided != y, np.abs(s - (1 - decided)), -np.inf)
    if predictions.goal.task == "binary":
        return one, s, wrong
    label = wrong.argmax(1)
    return label, s[everyone, label], wrong.max(1)


def _describe_row(predictions: Predictions, i: int, k: int) -> tuple[str, str]:
    """Return what a row is and what was predicted, in words."""
    names = predictions.table.names
    y = predictions.targets[i]
    decided = predictions.decided[i]
    if k < 0:
        return names[int(y)], names[int(decided)]
    yes, said = ("yes" if value[k] else "no" for value in (y, decided))
    return f"{names[k]}: {yes}", f"{names[k]}: {said}"
