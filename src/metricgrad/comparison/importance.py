"""What the model looks at: how much of the metric is lost when a column of the table is shuffled among the test rows.

Permutation importance [breiman2001] of the contender to ship, with its models and rules of the repeats: the metric of
the run under the rule, not accuracy or scores. The models of the repeats are kept until then (``TemporaryModels``);
those that an earlier call fitted are fitted again.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from scipy import stats

from metricgrad.comparison.candidate_runs import Failure, run_candidates
from metricgrad.comparison.protocol import compute_metric
from metricgrad.comparison.temporary_models import MOST_REPEATS_KEPT
from metricgrad.comparison.workers import Shared, run_tasks
from metricgrad.estimators.cross_fitting import Member
from metricgrad.training.training_loop import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from metricgrad.comparison.candidate_tasks import SplitTasks
    from metricgrad.comparison.goal import Goal
    from metricgrad.comparison.outcomes import Outcome
    from metricgrad.comparison.run_comparison import Plan, Progress
    from metricgrad.comparison.run_writer import RunWriter
    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.comparison.workers import Workers
    from metricgrad.core.costs import Cost
    from metricgrad.decisions.rules import Rule
    from metricgrad.estimators.table_encoder import TableEncoder

MOST_TEST_ROWS = 3000
"""The most test rows of a repeat."""
MOST_COLUMNS = 100
"""The most columns; of more, those that change the scores of the shipped model most."""
ROWS_SCORED_PER_REPEAT = 30_000
"""About how many rows are scored in a repeat; it bounds how often a column is shuffled, at least once."""
MOST_SHUFFLES = 5
"""The most often that a column is shuffled in a repeat."""

_ROWS_PER_CALL = 4096  # rows to score in one call
_SCREENING_ROWS = 64  # rows on which columns are chosen


class ColumnImportance(TypedDict):
    """What the metric loses under the shipped rule when a column is shuffled among the test rows."""

    column: str
    drop: float  # the mean over the splits
    low: float | None
    high: float | None


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of the table: as they are in the data, and the parts that they were read as."""

    frame: pd.DataFrame
    parts: pd.DataFrame

    def __len__(self) -> int:
        return len(self.parts)

    def take(self, order: np.ndarray) -> TableRows:
        """Return rows by their positions."""
        return TableRows(self.frame.take(order), self.parts.take(order))


@dataclass(frozen=True)
class TableColumn:
    """A column of the table and the parts that it is read as, which are shuffled together."""

    name: str
    parts: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class FittedMembers:
    """The fitted candidates of a contender in a repeat, and the encoder of the rows that they score."""

    encoder: TableEncoder
    members: list[Member]
    goal: Goal

    def score(self, rows: TableRows) -> np.ndarray:
        """Return the scores of rows."""
        labels = self.goal.labels
        found: Any = 0.0
        for member in self.members:
            seen = rows.frame if member.view == "given" else self.encoder.encode(rows.parts, member.view)
            found = found + member.weight * member.scores(seen, labels)
        return np.asarray(found)


@dataclass(frozen=True, eq=False)
class Probe:
    """What a process needs to measure the importance of columns in one repeat.

    ``rows``, ``targets``, ``members``: ``Shared``; in the process that runs it ``TableRows``, their targets, and
    ``FittedMembers``. ``costs``: of the rows, if they differ by row.
    """

    contender: str
    repeat: int
    goal: Goal
    rule: Rule
    seed: int
    columns: tuple[TableColumn, ...]
    rows: Any
    targets: Any
    members: Any
    costs: Cost | None = None


def measure_importance(
    plan: Plan,
    run_writer: RunWriter,
    progress: Progress,
    workers: Workers,
    outcomes: Sequence[Outcome],
    rule: str,
    model: ShippedModel,
) -> list[ColumnImportance]:
    """Return the drop of the metric for each column, largest first, with its interval over the repeats.

    ``outcomes``: those of the contender to ship. ``rule``: which of its rules. ``model``: the one that is shipped.
    """
    dataset = plan.dataset
    outcomes = sorted(outcomes, key=lambda outcome: outcome.repeat)[:MOST_REPEATS_KEPT]
    columns = tuple(TableColumn(column.name, column.parts) for column in dataset.schema.columns)
    columns = _screen(plan, model, columns)
    probes = _yield_probes(plan, run_writer, progress, workers, outcomes, rule, columns)
    found: dict[int, np.ndarray] = {}
    with closing(run_tasks(workers, run_probe, lambda: next(probes, None))) as results:
        for probe, result in results:
            if isinstance(result, Failure):
                progress.say(f"the importance of columns was not measured: {result.why}")
                return []
            found[probe.repeat] = result
    drops = np.stack([found[repeat] for repeat in sorted(found)])
    ratio = float(np.mean([o.test_rows / o.train_rows for o in outcomes]))
    importance = [_estimate(column.name, each, ratio) for column, each in zip(columns, drops.T, strict=True)]
    return sorted(importance, key=lambda one: -one["drop"])


def _estimate(column: str, drops: np.ndarray, ratio: float) -> ColumnImportance:
    """Return the mean drop of a column over repeats that share rows; ``ratio`` is test rows / training rows.

    The 95 % interval is that of the corrected resampled t-test [nadeau2003].
    """
    mean, repeats = float(drops.mean()), len(drops)
    if repeats < 2:
        return {"column": column, "drop": mean, "low": None, "high": None}
    half = float(stats.t.ppf(0.975, repeats - 1)) * (float(drops.var(ddof=1)) * (1 / repeats + ratio)) ** 0.5
    return {"column": column, "drop": mean, "low": mean - half, "high": mean + half}


def _screen(plan: Plan, model: ShippedModel, columns: tuple[TableColumn, ...]) -> tuple[TableColumn, ...]:
    """Return at most ``MOST_COLUMNS`` columns: those that change the shipped model's scores most."""
    if len(columns) <= MOST_COLUMNS:
        return columns
    rng = np.random.default_rng(plan.options.seed)
    rows = _take_rows(plan, rng.permutation(len(plan.dataset.features))[:_SCREENING_ROWS])

    def score(some: TableRows) -> np.ndarray:
        return model.score_parts(some.parts, some.frame)

    before = score(rows)
    changes = np.zeros(len(columns))
    for places, scores in _score_shuffled(score, rows, columns, 1, rng):
        for i, one in zip(places, scores, strict=True):
            changes[i] = np.abs(one - before).mean()
    kept = np.sort(np.argsort(-changes, kind="stable")[:MOST_COLUMNS])
    return tuple(columns[i] for i in kept)


def _take_rows(plan: Plan, rows: np.ndarray) -> TableRows:
    dataset = plan.dataset
    return TableRows(dataset.table.frame[dataset.schema.inputs].iloc[rows], dataset.features.iloc[rows])


def _yield_probes(
    plan: Plan,
    run_writer: RunWriter,
    progress: Progress,
    workers: Workers,
    outcomes: Sequence[Outcome],
    rule: str,
    columns: tuple[TableColumn, ...],
) -> Iterator[Probe]:
    """Yield what is to be done in each repeat."""
    dataset = plan.dataset
    for outcome in outcomes:
        repeat = outcome.repeat
        tasks = plan.make_tasks(run_writer, repeat)
        kept = {name: run_writer.temporary.read_models(name, repeat) for name in outcome.weights}
        missing = [name for name, models in kept.items() if models is None]
        if missing:
            what = f"{outcome.contender} again in repeat {repeat + 1}"
            progress.say(f"fitting {what}, to measure the importance of columns")
            kept |= _fit_again(tasks, missing, workers)
        views = {candidate.name: candidate.view for candidate in tasks.candidates}
        members = [Member(name, weight, views[name], kept[name] or []) for name, weight in outcome.weights.items()]
        rng = np.random.default_rng([plan.options.seed, repeat])
        some = np.sort(rng.permutation(tasks.split.test)[:MOST_TEST_ROWS])
        yield Probe(
            contender=outcome.contender,
            repeat=repeat,
            goal=dataset.goal,
            rule=getattr(outcome, rule).rule,
            seed=tasks.random_state,
            columns=columns,
            rows=Shared.value(_take_rows(plan, some)),
            targets=Shared.value(dataset.targets[some]),
            members=Shared.value(FittedMembers(tasks.encoder, members, dataset.goal)),
            costs=dataset.take_costs(some),
        )


def _fit_again(tasks: SplitTasks, names: list[str], workers: Workers) -> dict[str, list[Any]]:
    """Fit candidates again that an earlier call of this command fitted."""
    found = {}
    with closing(run_candidates(tasks.yield_tasks(names), workers)) as results:
        for _, result in results:
            if isinstance(result, Failure):
                raise RuntimeError(f"{result.contender} could be fitted before: {result.why}")
            found[result.candidate] = result.models
    return found


def run_probe(probe: Probe) -> np.ndarray | Failure:
    """Return the drop of the metric in one repeat for each column."""
    try:
        with one_thread():
            rng = np.random.default_rng([probe.seed, 1])
            score = probe.members.score
            return measure_drops(
                score, probe.goal, probe.rule, probe.rows, probe.targets, probe.columns, rng, probe.costs
            )
    except Exception as error:  # a comparison must not be lost for it
        return Failure.of(probe.contender, probe.repeat, error)


def measure_drops(
    score: Callable[[TableRows], np.ndarray],
    goal: Goal,
    rule: Rule,
    rows: TableRows,
    targets: np.ndarray,
    columns: Sequence[TableColumn],
    rng: np.random.Generator,
    costs: Cost | None = None,
) -> np.ndarray:
    """Return by how much the metric under a rule falls when each column is shuffled, in the mean over shuffles.

    ``score``: a function from rows to scores. ``costs``: of the rows, if they differ by row; these are not shuffled.
    """

    def evaluate_scores(scores: np.ndarray) -> float:
        moved = scores if costs is None else np.asarray(costs.adjust(scores))
        return compute_metric(goal, rule, moved, targets, costs)

    times = min(max(ROWS_SCORED_PER_REPEAT // (len(rows) * len(columns)), 1), MOST_SHUFFLES)
    drops = np.full(len(columns), evaluate_scores(score(rows)))
    for places, scores in _score_shuffled(score, rows, columns, times, rng):
        for i, one in zip(places, scores, strict=True):
            drops[i] -= evaluate_scores(one) / times
    return drops


def _score_shuffled(
    score: Callable[[TableRows], np.ndarray],
    rows: TableRows,
    columns: Sequence[TableColumn],
    times: int,
    rng: np.random.Generator,
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Yield places in ``columns`` and, for each, the scores of the rows with that column shuffled."""
    size = len(rows)
    wanted = np.repeat(np.arange(len(columns)), times)
    for places in np.array_split(wanted, min(len(wanted), -(-len(wanted) * size // _ROWS_PER_CALL))):
        order = np.tile(np.arange(size), len(places))
        cells: dict[str, np.ndarray] = {}  # of each column that is shuffled, from which row its cells come
        parts: dict[str, np.ndarray] = {}
        for number, place in enumerate(places):
            shuffled = rng.permutation(size)
            block = slice(number * size, (number + 1) * size)
            cells.setdefault(columns[place].name, order.copy())[block] = shuffled
            for part in columns[place].parts:
                parts.setdefault(part, order.copy())[block] = shuffled
        many = rows.take(order)
        for name, where in cells.items():
            many.frame[name] = rows.frame[name].array[where]
        for name, where in parts.items():
            many.parts[name] = rows.parts[name].to_numpy()[where]
        yield places, np.split(score(many), len(places))
