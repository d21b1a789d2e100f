"""``metricgrad evaluate``: metrics of a run's model on new labelled data with intervals, and drift since training."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from metricgrad.app.errors import WRONG_CALL, UserError, one_line
from metricgrad.app.runs import folder as runs
from metricgrad.app.study.protocol import evaluate_constraints
from metricgrad.app.tables import files
from metricgrad.app.use.drift import compute_psi, measure_drift
from metricgrad.evaluation.bootstrap import bootstrap
from metricgrad.evaluation.evaluator import Evaluator, evaluate
from metricgrad.evaluation.score_tables import RANKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from metricgrad.app.runs.model import Model

_COMMON = {
    "binary": ("f1", "precision", "recall", "mcc", "average_precision"),
    "multiclass": ("f1", "accuracy", "balanced_accuracy", "mcc"),
    "multilabel": ("f1", "precision", "recall", "subset_accuracy"),
}
_SORTED_SCORES = 20_000_000  # the most scores to sort in the replicates of ranking metrics: a few seconds


def evaluate_run(
    run: str | Path,
    data: str | Path,
    metrics: Sequence[str] = (),
    *,
    rows: int | None = None,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the metrics of a run's model on labelled data with bootstrap intervals, and the drift since training.

    ``metrics``: names; by default the run's metric and common ones of the task. ``rows``: the size of a random sample
    to evaluate on; by default all rows.
    """
    model = runs.load(run).model
    schema, goal = model.schema, model.goal
    runs.check_code_was_typed(goal.subject_to, metrics)
    names = list(dict.fromkeys(metrics or (runs.check_code_was_typed(goal.metric, ()), *_COMMON[schema.task])))
    options: dict[str, Any] = {"task": schema.task, "average": goal.average, "rule": model.rule}
    try:
        Evaluator(names, **options)
    except ValueError as error:
        raise UserError(f"--{error}", WRONG_CALL) from error
    frame = schema.keep_labelled(read_labelled(model, data, rows))
    scores, targets = model.scores(frame), schema.encode_targets(frame)
    found: dict[str, Any] = {}
    for group in ([name for name in names if name not in RANKING], [name for name in names if name in RANKING]):
        if group:
            most = max(50, _SORTED_SCORES // scores.size) if group[0] in RANKING else replicates
            found |= bootstrap(
                scores,
                targets,
                group,
                replicates=min(replicates, most),
                confidence=confidence,
                seed=seed,
                **options,
            )
    moved = measure_drift(frame, schema)
    return {
        "run": str(run),
        "data": str(data),
        "rows": len(frame),
        "task": schema.task,
        "average": None if schema.task == "binary" else goal.average,
        "rule": model.rule.describe(),
        "confidence": confidence,
        "metrics": {name: {"value": one.value, "low": one.low, "high": one.high} for name, one in found.items()},
        "constraints": [asdict(one) for one in evaluate_constraints(goal, model.rule, scores, targets)],
        "classes": _evaluate_classes(model, scores, targets),
        "drift": [one.to_json() for one in moved],
        "warnings": [*(str(one) for one in moved if one.suspicious), *_find_balance_warnings(model, targets)],
    }


def read_labelled(model: Model, data: str | Path, rows: int | None) -> pd.DataFrame:
    """Read labelled data for a model, only the columns that it uses."""
    source = files.Source(data)
    names = [*model.schema.target.columns, *model.schema.inputs]
    model.schema.check(source.names)
    return files.read(source, rows, columns=[name for name in names if name in source.names])


def _evaluate_classes(model: Model, scores: np.ndarray, targets: np.ndarray) -> list[dict[str, Any]]:
    """Return precision, recall and F1 of each class."""
    task, names = model.schema.task, model.schema.classes
    decided = model.decide(scores)
    if task != "multilabel":
        decided, targets = (np.eye(len(names), dtype=int)[one] for one in (decided, targets))
    each = evaluate(decided.astype(float), targets, ["precision", "recall", "f1"], task="multilabel", average=None)
    return [
        {"name": name, "rows": int(targets[:, k].sum())} | {metric: values[k] for metric, values in each.items()}
        for k, name in enumerate(names)
    ]


def _find_balance_warnings(model: Model, targets: np.ndarray) -> list[str]:
    """Return warnings about classes that are much more or less frequent than in training."""
    schema = model.schema
    then = np.array(schema.target.counts) / schema.rows
    now = targets.mean(0) if targets.ndim == 2 else np.bincount(targets, minlength=len(then)) / len(targets)
    found = []
    for name, before, after in zip(schema.classes, then, now, strict=True):
        index, significant = compute_psi([before, 1 - before], [after, 1 - after], schema.rows, len(targets))
        if index >= 0.1 and significant:
            found.append(f"class {one_line(name, 40)!r} is {after:.1%} of the rows, and was {before:.1%} in training")
    return found
