"""Reports besides that of ``compare``: of ``evaluate``, and of ``metricgrad report``, which shows runs again."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from metricgrad import __version__, strict_json
from metricgrad.atomic_files import write_file
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import RUN, WRITE, WRONG_CALL, UserError, writing
from metricgrad.comparison.inference.drift import measure_drift
from metricgrad.comparison.option_texts import as_text
from metricgrad.comparison.report import page
from metricgrad.comparison.report.column_summaries import format_number
from metricgrad.comparison.report.formulas import add_formulas
from metricgrad.comparison.report.section_inputs import Predictions, ShippedModelInputs, Table
from metricgrad.comparison.report.sections import EVALUATION, RUNS
from metricgrad.comparison.report.sections.columns import COLUMNS
from metricgrad.comparison.report.sections.segments import Segments
from metricgrad.comparison.summaries import read_summary
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.inference.drift import CellCounts
    from metricgrad.comparison.inference.measures import Measures
    from metricgrad.comparison.inference.row_checks import Labelled
    from metricgrad.comparison.report.payload import Payload
    from metricgrad.comparison.report.sections.columns import ColumnProfile
    from metricgrad.comparison.report.sections.runs import Side
    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.estimators.columns.column import Column

CATEGORIES = 12
"""The most categories of a column whose drift is drawn."""


def check_output(path: Path, force: bool, option: str) -> None:
    """Raise if a report cannot be written there, before anything is computed for it."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{option}: expected a file that ends in .html, got {path.name!r}", WRONG_CALL)
    if not path.parent.is_dir():
        raise UserError(f"{option}: expected a file in a folder that exists, got {path}", WRITE)
    if path.is_dir() or (path.exists() and not force):
        raise UserError(f"{path}: exists already; choose another {option}, or replace it with --force", WRITE)


# The report of evaluate


def write_evaluation(
    path: Path,
    model: ShippedModel,
    found: dict[str, Any],
    measures: Measures,
    rows: Labelled | None,
    seed: int,
) -> None:
    """Write the report of what ``evaluate_run`` found; ``rows``: the rows, if they are in memory."""
    schema, goal, name = model.schema, model.goal, model.contender
    environment, command = runs.describe_environment(), f"metricgrad evaluate {found['run']} {found['data']}"
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
        "metric": {"name": goal.metric, "average": found["average"], "subject_to": goal.subject_to, "also": []},
        "repeats": 1,
        "protocol": [
            "The model and its rule are those of the run; nothing was trained or tuned on these rows.",
            f"Intervals: bootstrap of the rows, {100 * found['confidence']:g} %.",
            "Drift: new cells are counted in the bins, or categories, of the training data.",
        ],
        "leaderboard": [],
        "left_out": [],
        "details": {},
        "study": {"columns": _profile_drift(model, measures), "columns_all": len(schema.columns)},
        "evaluation": {key: found[key] for key in ("rule", "confidence", "metrics", "constraints", "promised")},
        "reproduce": {
            "command": command,
            "seed": seed,
            "versions": environment["versions"],
            "machine": environment["machine"],
        },
    }
    if rows is not None:
        predictions, shipped = _gather(model, rows)
        payload["details"][name] = {
            key: value for section in EVALUATION for key, value in section.measure(predictions).items()
        }
        # The columns are those of drift. A metric of the run that is code is not looked up unless it was typed.
        if goal.metric in found["metrics"]:
            payload["study"] |= Segments().measure_study(shipped)
            add_formulas(cast("Payload", payload))
    with writing(path):
        page.write(cast("Payload", payload), path, EVALUATION)


def _gather(model: ShippedModel, rows: Labelled) -> tuple[Predictions, ShippedModelInputs]:
    table, everyone = Table(rows.frame, rows.targets, model.schema.classes), np.arange(len(rows.frame))
    decided = model.decide(rows.scores)
    predictions = Predictions(
        contender=model.contender,
        goal=model.goal,
        table=table,
        rows=everyone,
        scores=rows.scores,
        targets=rows.targets,
        decided=decided,
        rules=[model.rule],
        plateaus=[None],
        history=[],
        shipped=model.rule,
        shipped_plateaus=model.describe()["plateaus"],
    )
    parts = (everyone, model.scores, model.rule, model.schema.columns, (), ())
    return predictions, ShippedModelInputs(model.goal, table, *parts, predictions)


def _profile_drift(model: ShippedModel, measures: Measures) -> list[ColumnProfile]:
    """Return the columns in the order of their drift, with the shares of their bins then and now."""
    by_name = {
        column.name: (column, counts) for column, counts in zip(model.schema.columns, measures.columns, strict=True)
    }
    found = []
    for one in measure_drift(measures.columns, model.schema)[:COLUMNS]:
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
        if len(names) > CATEGORIES:
            most = CATEGORIES - 1
            names = [*names[:most], "other values"]
            then, now = (np.append(shares[:most], shares[most:].sum()) for shares in (then, now))
    elif column.kind == "number":
        edges = [format_number(edge) for edge in column.edges]
        inner = [f"{low} to {high}" for low, high in pairwise(edges)]
        names = [f"below {edges[0]}", *inner, f"{edges[-1]} or more"] if edges else ["all"]
    else:
        names = [f"part {i} of {len(then)} in training" for i in range(1, len(then) + 1)]
    return names, then.tolist(), now.tolist()


# The command "report"


def write_report(paths: Sequence[str | Path], output: Path, force: bool = False) -> dict[str, Any]:
    """Write the report of one run of ``compare`` again, or one of two runs side by side; return what was written."""
    check_output(output, force, "--output")
    if len(paths) not in (1, 2):
        raise UserError(f"report: expected one run folder, or two to compare, got {len(paths)}", WRONG_CALL)
    found = [_load_comparison(Path(path)) for path in paths]
    if len(found) == 1:
        data = runs.read_bytes(found[0].path / "report.html")
        if strict_json.sha256(data) != found[0].manifest["files"].get("report.html"):
            raise UserError(
                f"{found[0].path / 'report.html'} was changed since it was written (its sha256 differs); run again", RUN
            )
        with writing(output):
            write_file(output, data)
    else:
        with writing(output):
            page.write(_make_pair(found), output, RUNS)
    return {"runs": [str(path) for path in paths], "output": str(output)}


def _load_comparison(path: Path) -> runs.Run:
    run = runs.load(path)
    if run.manifest["kind"] != "compare":
        raise UserError(
            f"{path}: expected a run of compare, which has a report, got one of {run.manifest['kind']}", RUN
        )
    return run


def _make_pair(pair: Sequence[runs.Run]) -> Payload:
    """Return the payload of two runs."""
    sides = [_describe_side(run) for run in pair]
    first = sides[0]["summary"]
    names = [one_line(run.path.resolve().name, 60) for run in pair]
    if names[0] == names[1]:
        names = [f"{name} ({place})" for name, place in zip(names, ("first", "second"), strict=True)]
    for side, name in zip(sides, names, strict=True):
        side["name"] = name
    payload = {
        **first,
        "created": runs.now(),
        "version": __version__,
        "data": {**first["data"], "file": " and ".join(names), "classes": [], "balance": []},
        "protocol": [],
        "leaderboard": [],
        "details": {},
        "study": {},
        "runs": sides,
    }
    return cast("Payload", payload)


def _describe_side(run: runs.Run) -> Side:
    summary = read_summary(run)
    leaderboard = summary.pop("leaderboard")
    return {
        "name": "",
        "rule": run.model.rule.describe(),
        "summary": cast("Any", summary),
        "leaderboard": leaderboard,
        "config": {key: as_text(value) for key, value in run.config.items() if value not in (None, [])},
        "splits": run.manifest["files"].get("splits.npz", ""),
    }
