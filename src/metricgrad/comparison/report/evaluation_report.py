"""The report of ``evaluate``: a model on new data, and how these differ from the training data."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from metricgrad import __version__
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import writing
from metricgrad.comparison.inference.drift import measure_drift
from metricgrad.comparison.report import page
from metricgrad.comparison.report.column_summaries import format_number
from metricgrad.comparison.report.formulas import add_formulas
from metricgrad.comparison.report.section_inputs import Predictions, ShippedModelInputs
from metricgrad.comparison.report.sections import EVALUATION
from metricgrad.comparison.report.sections.columns import MOST_COLUMNS
from metricgrad.comparison.report.sections.segments import SegmentsSection
from metricgrad.comparison.tables.labelled_table import LabelledTable
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from metricgrad.comparison.inference.drift import CellCounts
    from metricgrad.comparison.inference.evaluate import EvaluatedRun
    from metricgrad.comparison.inference.measures import Measures
    from metricgrad.comparison.inference.row_checks import Labelled
    from metricgrad.comparison.report.payload import Payload
    from metricgrad.comparison.report.sections.columns import ColumnProfile
    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.estimators.columns.column import Column

MOST_CATEGORIES = 12
"""The most categories of a column whose drift is drawn."""


def write_evaluation_report(path: Path, evaluated: EvaluatedRun, seed: int) -> None:
    """Write the report of what ``evaluate_run`` found."""
    model, measures, rows, found = evaluated.model, evaluated.measures, evaluated.rows, evaluated.summary
    schema, goal, name = model.schema, model.goal, model.contender
    environment = runs.describe_environment()
    command = f"metricgrad evaluate {found['run']} {found['data']}"
    payload: dict[str, Any] = {
        "version": __version__,
        "created": runs.now(),
        "command": command,
        "verdict": {"headline": "", "text": "", "ship": name, "rule": model.about["kind"], "gain_is_real": False},
        "data": {
            "file": Path(found["data"]).name,
            "rows": measures.rows,
            "task": schema.task,
            "target": list(schema.target.columns),
            "classes": list(schema.classes),
            "balance": (np.asarray(measures.balance) / measures.rows).tolist(),
            "profile": [],
            "warnings": found["warnings"],
        },
        "metric": {
            "name": goal.metric,
            "average": found["average"],
            "subject_to": goal.subject_to,
            "also": [],
            **({} if goal.cost is None else {"cost": goal.cost, "cost_columns": goal.cost_columns}),
        },
        "repeats": 1,
        "protocol": [
            "The model and its rule are those of the run; nothing was trained or tuned on these rows.",
            f"Intervals: bootstrap of the rows, {100 * found['confidence']:g} %.",
            "Drift: new cells are counted in the bins, or categories, of the training data.",
        ],
        "leaderboard": [],
        "left_out": [],
        "details": {},
        "study": {
            "columns": _profile_drift(model, measures),
            "columns_all": len(schema.columns),
            "base_rate": found["base_rate"],
        },
        "evaluation": {key: found[key] for key in ("rule", "confidence", "metrics", "constraints", "promised")},
        "reproduce": {
            "command": command,
            "seed": seed,
            "versions": environment["versions"],
            "machine": environment["machine"],
        },
    }
    if rows is not None:
        predictions, shipped = _make_inputs(model, rows)
        payload["details"][name] = {
            key: value for section in EVALUATION for key, value in section.measure(predictions).items()
        }
        # The columns are those of drift. A metric of the run that is code is not looked up unless it was typed.
        if goal.metric in found["metrics"]:
            payload["study"] |= SegmentsSection().measure_study(shipped)
            add_formulas(cast("Payload", payload))
    with writing(path):
        page.write(cast("Payload", payload), path, EVALUATION)


def _make_inputs(model: ShippedModel, rows: Labelled) -> tuple[Predictions, ShippedModelInputs]:
    table = LabelledTable(rows.frame, rows.targets, model.schema.classes)
    every_row = np.arange(len(rows.frame))
    predictions = Predictions(
        contender=model.contender,
        goal=model.goal,
        table=table,
        rows=every_row,
        scores=rows.scores,
        targets=rows.targets,
        decided=model.decide(rows.scores),
        rules=[model.rule],
        plateaus=[None],
        history=[],
        shipped=model.rule,
        shipped_plateaus=model.describe()["plateaus"],
        costs=model.goal.find_costs(rows.frame),
    )
    shipped = ShippedModelInputs(
        goal=model.goal,
        table=table,
        held=every_row,
        score=model.scores,
        rule=model.rule,
        columns=model.schema.columns,
        others=(),
        important=(),
        tested=predictions,
    )
    return predictions, shipped


def _profile_drift(model: ShippedModel, measures: Measures) -> list[ColumnProfile]:
    """Return the columns in the order of their drift, with the shares of their bins then and now."""
    by_name = {
        column.name: (column, counts) for column, counts in zip(model.schema.columns, measures.columns, strict=True)
    }
    found = []
    for one in measure_drift(measures.columns, model.schema)[:MOST_COLUMNS]:
        column, counts = by_name[one.column]
        names, then, now = _name_bins(column, counts)
        profile: ColumnProfile = {
            "column": column.name,
            "kind": column.kind,
            "missing": column.missing,
            "names": names,
            "shares": then,
            "now": now,
            "missing_now": counts.missing / counts.cells,
            "psi": one.psi,
            "suspicious": list(one.suspicious),
        }
        found.append(profile)
    return found


def _name_bins(column: Column, counts: CellCounts) -> tuple[list[str], list[float], list[float]]:
    """Return the names of a column's bins or most frequent categories, and their shares in training and now."""
    then, now = np.asarray(column.shares), counts.bins / max(1, counts.bins.sum())
    if column.kind == "category":
        names = [one_line(text, 60) for text in column.categories] + ["other values"] * column.others
        if len(names) > MOST_CATEGORIES:
            most = MOST_CATEGORIES - 1
            names = [*names[:most], "other values"]
            then, now = (np.append(shares[:most], shares[most:].sum()) for shares in (then, now))
    elif column.kind == "number":
        edges = [format_number(edge) for edge in column.edges]
        inner = [f"{low} to {high}" for low, high in pairwise(edges)]
        names = [f"below {edges[0]}", *inner, f"{edges[-1]} or more"] if edges else ["all"]
    else:
        names = [f"part {i} of {len(then)} in training" for i in range(1, len(then) + 1)]
    return names, then.tolist(), now.tolist()
