"""``metricgrad evaluate``: metrics of a run's model on new labelled data with intervals, and drift since training."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.comparison.inference.base_rate import describe_due
from metricgrad.comparison.inference.drift import measure_drift
from metricgrad.comparison.inference.measures import (
    MOST_SORTED_SCORES,
    TOO_FEW,
    Measures,
    RowMeasurer,
    choose_empty_classes,
)
from metricgrad.comparison.inference.parts import (
    HOW_TO_GO_ON,
    PartTask,
    check_cluster,
    list_parts,
    map_parts,
    share_model,
)
from metricgrad.comparison.inference.promise import describe_broken, read_promise
from metricgrad.comparison.inference.row_checks import Labelled, describe_seen, describe_unlabelled
from metricgrad.comparison.tables import files
from metricgrad.comparison.tables.stability import has_moved
from metricgrad.comparison.workers import open_workers
from metricgrad.evaluation.bootstrap import bootstrap
from metricgrad.evaluation.interval_ends import TooFewPositivesError
from metricgrad.evaluation.score_tables import RANKING_METRICS
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.inference.measures import MetricValue
    from metricgrad.comparison.shipped_model import ShippedModel

_COMMON_METRICS = {
    "binary": ("f1", "precision", "recall", "mcc", "average_precision"),
    "multiclass": ("f1", "accuracy", "balanced_accuracy", "mcc"),
    "multilabel": ("f1", "precision", "recall", "subset_accuracy"),
}

_METRICS_OF_DECIDED_ROWS = ("f1", "precision", "recall")
"""For rules that may leave rows undecided, for which the d×d matrix has no place."""


@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """What was evaluated: the summary as ``metricgrad evaluate --json`` prints it, and what its report is drawn from.

    ``rows``: the rows, if they are in memory; None for a folder.
    """

    summary: dict[str, Any]
    model: ShippedModel
    measures: Measures
    rows: Labelled | None


def evaluate_run(
    run: str | Path,
    data: str | Path,
    metrics: Sequence[str] = (),
    *,
    rows: int | None = None,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    jobs: int = 1,
    cluster: str | None = None,
    allow_missing: bool = False,
) -> EvaluatedRun:
    """Return the metrics of a run's model on labelled data with bootstrap intervals, and the drift since training.

    ``data``: a file, or a folder of Parquet files, which are evaluated in parallel on ``jobs`` processes, or on the
    workers of the Dask scheduler ``cluster``. ``metrics``: names; by default the run's metric and common ones of the
    task. ``rows``: the size of a random sample of a file to evaluate on; by default all rows. ``allow_missing``: go on
    if a column of a file is mostly unknown, see ``Gaps``.
    """
    check_cluster(data, cluster)
    loaded = runs.load(run)
    model = loaded.model
    schema, goal = model.schema, model.goal
    runs.check_code_was_typed(goal.subject_to, metrics)
    own = [runs.check_code_was_typed(goal.metric, ())] if not metrics else []
    if goal.cost_columns and Path(data).is_dir():
        own = []  # the costs of each row are not kept of a folder, which is counted file by file
    common = _METRICS_OF_DECIDED_ROWS if model.rule.abstains else _COMMON_METRICS[schema.task]
    names = list(dict.fromkeys(metrics or (*own, *common)))
    try:
        goal.check_values(*names)
        measurer = RowMeasurer(model, names)
    except ValueError as error:
        raise UserError(f"--{error}", WRONG_CALL) from error
    if Path(data).is_dir():
        if rows is not None:
            raise UserError(
                "--rows: expected none for a folder, of which all rows are evaluated; leave it out", WRONG_CALL
            )
        measures = _measure_folder(loaded, Path(data), names, replicates, seed, jobs, cluster, allow_missing)
        found = measurer.find_intervals(measures, replicates, confidence, seed)
        labelled = None
    else:
        labelled = Labelled.read(model, data, rows, allow_missing)
        measures = measurer.measure(labelled)
        found = _find_intervals(measurer, measures, labelled, names, replicates, confidence, seed)
    seen, too_good = describe_seen(loaded, measures.seen, measures.rows, data)
    moved = measure_drift(measures.columns, schema)
    due = describe_due(model, np.asarray(measures.balance).tolist(), measures.rows)
    promise = read_promise(loaded)
    promised = promise if promise["metric"] in found else None
    summary = {
        "run": str(run),
        "data": str(data),
        "rows": measures.rows,
        "task": schema.task,
        "average": None if schema.task == "binary" else goal.average,
        "rule": model.rule.describe(),
        "coverage": measurer.measure_coverage(measures),
        "confidence": confidence,
        "metrics": found,
        "promised": promised,
        "constraints": [asdict(one) for one in measurer.evaluate_constraints(measures)],
        "classes": measurer.evaluate_classes(measures),
        "drift": [one.to_json() for one in moved],
        "base_rate": due,
        "unknown": dict(measures.gaps.unknown),
        "seen_in_training": seen,
        "warnings": [
            *too_good,
            *([] if promised is None else describe_broken(promised, found)),
            *describe_unlabelled(measures.unlabelled, measures.rows),
            *measures.gaps.describe(schema),
            *(str(one) for one in moved if one.suspicious),
            *_find_balance_warnings(model, measures),
            *due,
        ],
    }
    return EvaluatedRun(summary, model, measures, labelled)


def _find_intervals(
    measurer: RowMeasurer,
    measures: Measures,
    labelled: Labelled,
    names: Sequence[str],
    replicates: int,
    confidence: float,
    seed: int,
) -> dict[str, MetricValue]:
    """Return {metric: value, the ends of its interval or None, and a note if there is none}."""
    model = measurer.model
    scores = labelled.scores
    values = measurer.metrics.values(measures.metrics)
    costs = model.goal.find_costs(labelled.frame)
    found: dict[str, MetricValue] = {}
    for group in (
        [name for name in names if name not in RANKING_METRICS],
        [name for name in names if name in RANKING_METRICS],
    ):
        if not group:
            continue
        most = max(50, MOST_SORTED_SCORES // scores.size) if group[0] in RANKING_METRICS else replicates
        try:
            intervals = bootstrap(
                scores,
                labelled.targets,
                {name: costs if costs is not None and name == model.goal.metric else name for name in group},
                replicates=min(replicates, most),
                confidence=confidence,
                seed=seed,
                task=model.goal.task,
                average=model.goal.average,
                empty_classes=choose_empty_classes(model.goal.task),
                rule=model.rule,
            )
        except TooFewPositivesError:
            found |= {
                name: {"value": values[name].item(), "low": None, "high": None, "note": TOO_FEW} for name in group
            }
        else:
            found |= {
                name: {"value": one.value, "low": one.low, "high": one.high, "note": None}
                for name, one in intervals.items()
            }
    return found


# Folders


@dataclass(frozen=True)
class _About:
    """What a part is evaluated for: metrics, bootstrap replicates and their seed."""

    names: tuple[str, ...]
    replicates: int
    seed: int


def _measure_folder(
    run: runs.Run,
    folder: Path,
    names: Sequence[str],
    replicates: int,
    seed: int,
    jobs: int,
    cluster: str | None,
    allow_missing: bool,
) -> Measures:
    """Return the measures of all files of a folder, added in the order of their names."""
    parts, model, schema = list_parts(folder), share_model(run.path), run.schema
    about = _About(tuple(names), replicates, seed)
    tasks = [PartTask(part, model, about, number) for number, part in enumerate(parts)]
    found: dict[int, Measures] = {}
    with open_workers(min(jobs, len(parts)), cluster, HOW_TO_GO_ON) as workers:
        for task, measured in map_parts(workers, _measure_part, tasks):
            if isinstance(measured, Measures):  # always: nothing is known of a part before
                measured.gaps.check(schema, task.part.path, allow_missing)
                found[task.number] = measured
    measures = Measures()
    for number in sorted(found):
        measures += found[number]
    if not measures.rows:
        raise UserError(f"{folder}: expected labelled rows, got none")
    return measures


def _measure_part(task: PartTask, path: Path, sha256: str) -> Measures:
    """Return the measures of the labelled rows of a file, read in pieces."""
    model, about = task.model, task.about
    measurer = RowMeasurer(model, about.names)
    source = files.Source(path)
    schema = model.schema
    schema.check(source.names)
    schema.check_target(source.names)
    generator = torch.Generator()
    # A 63-bit number of its own for each part.
    generator.manual_seed(int(np.random.SeedSequence([about.seed, task.number]).generate_state(1, np.uint64)[0] >> 1))
    found = Measures()
    needed = [*schema.target.columns, *schema.inputs, *model.goal.cost_columns]
    for piece in source.pieces(columns=list(dict.fromkeys(needed))):
        frame = files.as_frame(piece)
        frame = frame[schema.target.has_target(frame)]
        if len(frame):
            rows = Labelled.of(model, frame)
            drawn = measurer.draw_replicates(rows.scores, rows.targets, about.replicates, generator)
            found += replace(measurer.measure(rows), replicates=drawn)
    return found


def _find_balance_warnings(model: ShippedModel, measures: Measures) -> list[str]:
    """Return warnings about classes that are missing, or much more or less frequent than in training."""
    schema = model.schema
    then = np.array(schema.target.counts) / schema.rows
    now = np.asarray(measures.balance) / measures.rows
    found = []
    for name, before, after in zip(schema.classes, then, now, strict=True):
        if not after:
            left_out = "" if schema.task == "binary" else "; averages over the classes leave it out"
            found.append(f"class {one_line(name, 40)!r} has no rows here{left_out}")
        elif has_moved(before, after, schema.rows, measures.rows):
            found.append(f"class {one_line(name, 40)!r} is {after:.1%} of the rows, and was {before:.1%} in training")
    return found
