"""Money: what the decisions about the test rows cost, against today's rule, and the rows that cost most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from metricgrad.comparison.number_texts import format_interval, format_money, format_value
from metricgrad.comparison.report.column_summaries import describe_cells
from metricgrad.comparison.report.markup import make_folded, make_table
from metricgrad.comparison.report.section import Section
from metricgrad.evaluation.measured_cost import measure_cost

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload
    from metricgrad.comparison.report.section_inputs import Predictions, ShippedModelInputs
    from metricgrad.core.costs import Cost

MOST_ROWS = 10
"""The most rows that are listed."""
MOST_CELLS = 12
"""The most cells of each."""


class Amount(TypedDict):
    """What a way to decide costs."""

    rule: str
    total: float
    per_row: float
    low: float | None
    high: float | None
    savings: float


class CostlyRow(TypedDict):
    """A test row whose decision cost more than the right one."""

    row: int  # in the data file, the first one being 1
    truth: str
    decided: str
    score: float
    lost: float
    cells: list[tuple[str, str]]  # column, text


class MoneySection(Section):
    """Two tables: what ways to decide cost, and the rows where the money is lost."""

    name = "money"
    title = "Money"
    note = (
        "What decisions about the test rows cost, of all repeats together. Today's rule is 0.5 on the same scores. "
        "Savings: the share that is avoided of what the cheaper of predicting all and none costs needlessly."
    )
    tasks = ("binary",)

    def measure_study(self, model: ShippedModelInputs) -> dict[str, Any]:
        """Return amounts and costly rows, if the run has costs."""
        tested = model.tested
        cost = tested.goal.prices if tested.costs is None else tested.costs
        if cost is None or cost.columns or tested.goal.task != "binary":
            return {}
        return {"money": {"amounts": _list_amounts(tested, cost), "lost": _list_costly_rows(tested, cost)}}

    def html(self, payload: Payload) -> str:
        return super().html(payload) if payload.get("study", {}).get("money") else ""

    def body(self, payload: Payload) -> str:
        money = payload["study"]["money"]
        amounts = [
            [
                one["rule"],
                format_money(one["total"]),
                format_money(one["per_row"]),
                format_interval(one["low"], one["high"]) if one["low"] is not None else "",
                format_value(one["savings"]),
            ]
            for one in money["amounts"]
        ]
        heads = ["Decisions", "Total", "Per row", "95 % interval", "Savings"]
        lost = [
            [
                str(one["row"]),
                one["truth"],
                one["decided"],
                format_value(one["score"]),
                format_money(one["lost"]),
                "; ".join(f"{name}: {text}" for name, text in one["cells"]),
            ]
            for one in money["lost"]
        ]
        lost_heads = ["Row", "True", "Predicted", "Score", "Lost", "Cells"]
        found = make_table("What decisions cost", heads, amounts)
        if lost:
            costly = make_table("The rows on which most is lost", lost_heads, lost)
            found += make_folded("<h3>Where the money is lost</h3>", costly)
        return found


def _list_amounts(tested: Predictions, cost: Cost) -> list[Amount]:
    y = np.asarray(tested.targets)
    probabilities = tested.scores if tested.probabilities is None else tested.probabilities
    ways = {
        "this model and rule": np.asarray(tested.decided),
        "today's rule, 0.5": (np.asarray(probabilities) >= 0.5).astype(int),
        "predict none": np.zeros_like(y),
        "predict all": np.ones_like(y),
        "perfect decisions": y,
    }
    found: list[Amount] = []
    for name, decided in ways.items():
        measured = measure_cost(cost, y, decided, groups=tested.rows, replicates=400)
        is_certain = measured.per_row.low == measured.per_row.high
        found.append(
            {
                "rule": name,
                "total": measured.total.value,
                "per_row": measured.per_row.value,
                "low": None if is_certain else measured.per_row.low,
                "high": None if is_certain else measured.per_row.high,
                "savings": measured.savings.value,
            }
        )
    return found


def _list_costly_rows(tested: Predictions, cost: Cost) -> list[CostlyRow]:
    """Return the rows that cost most above the right decision, every row once."""
    y, decided = np.asarray(tested.targets), np.asarray(tested.decided)
    lost = np.asarray(cost.of_rows(y, decided)) - np.asarray(cost.of_rows(y, y))
    frame, names = tested.table.frame, tested.table.names
    found: dict[int, CostlyRow] = {}
    for i in np.argsort(-lost, kind="stable"):
        if len(found) == MOST_ROWS or lost[i] <= 0:
            break
        row = int(tested.rows[i])
        costly: CostlyRow = {
            "row": int(frame.index[row]) + 1,
            "truth": names[int(y[i])],
            "decided": names[int(decided[i])],
            "score": float(tested.scores[i]),
            "lost": float(lost[i]),
            "cells": describe_cells(frame, row, MOST_CELLS),
        }
        found.setdefault(row, costly)
    return list(found.values())
