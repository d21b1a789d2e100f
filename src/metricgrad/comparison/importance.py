"""What the model looks at: how much of the metric is lost when a column of the table is shuffled among the test rows.

Permutation importance [breiman2001] of the contender to ship, with its models and rules of the repeats: the metric of
the run under the rule, not accuracy or scores. The models of the units are kept until then (``Scratch``);
those that an earlier call fitted are fitted again.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from metricgrad.comparison.contenders.scorers import Ensemble, Member, load_scorer
from metricgrad.comparison.protocol import SavedScorer, compute_metric, fit_contender
from metricgrad.comparison.temporary_models import KEPT
from metricgrad.comparison.unit_runner import Failure, make_seed
from metricgrad.comparison.workers import Shared, run_tasks
from metricgrad.messages import one_line
from metricgrad.training.training_loop import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from metricgrad.comparison.contenders.scorers import Effort, Goal, Scorer
    from metricgrad.comparison.protocol import Outcome
    from metricgrad.comparison.report.payload import ColumnImportance
    from metricgrad.comparison.run_comparison import Plan, Progress
    from metricgrad.comparison.run_writer import Workspace
    from metricgrad.comparison.shipped_model import Model
    from metricgrad.comparison.splits import Split
    from metricgrad.comparison.workers import Workers
    from metricgrad.decisions.rules import Rule
    from metricgrad.estimators.encoded_rows import Features
    from metricgrad.estimators.table_encoder import Encoder

ROWS = 3000
"""The most test rows of a repeat."""
COLUMNS = 100
"""The most columns; of more, those that change the scores of the shipped model most."""
SCORED = 120_000
"""About how many rows are scored in a repeat; it bounds how often a column is shuffled, at least once."""
MOST = 5
"""The most often that a column is shuffled in a repeat."""

_AT_ONCE = 4096  # rows to score in one call
_SCREENED = 64  # rows on which columns are chosen


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Some test rows before they are encoded, and the encoder of their repeat."""

    encoder: Encoder
    features: pd.DataFrame
    targets: np.ndarray


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """What it takes to fit a contender again."""

    features: Features
    targets: np.ndarray
    split: Split
    effort: Effort


@dataclass(frozen=True, eq=False)
class Probe:
    """What a process needs to measure the importance of columns in one repeat.

    ``weights``: of the contenders whose mean scores are decided on, a single one unless it is an ensemble. ``columns``:
    the parts of each column. ``rows``, ``models``, ``training``: ``Shared``; in the process that runs it
    ``SampledRows``, {contender: SavedScorer}, and ``TrainingRows``, or None if all models are at hand.
    """

    repeat: int
    goal: Goal
    rule: Rule
    seed: int
    weights: dict[str, float]
    columns: tuple[tuple[str, ...], ...]
    rows: Any
    models: Any
    training: Any


def measure_importance(
    plan: Plan,
    space: Workspace,
    progress: Progress,
    workers: Workers,
    outcomes: Sequence[Outcome],
    rule: str,
    model: Model,
) -> list[ColumnImportance]:
    """Return the drop of the metric for each column, largest first, with its interval over the repeats.

    ``outcomes``: those of the contender to ship. ``rule``: which of its rules. ``model``: the one that is shipped.
    """
    dataset = plan.dataset
    outcomes = sorted(outcomes, key=lambda o: o.repeat)[:KEPT]
    columns = {column.name: column.parts for column in dataset.schema.columns}
    columns = {name: columns[name] for name in _screen(plan, model, columns)}
    probes = _yield_probes(plan, space, progress, outcomes, rule, tuple(columns.values()))
    found: dict[int, np.ndarray] = {}
    with closing(run_tasks(workers, run_probe, lambda: next(probes, None))) as results:
        for probe, result in results:
            if isinstance(result, Failure):
                progress.say(f"the importance of columns was not measured: {result.why}")
                return []
            found[probe.repeat] = result
    drops = np.stack([found[repeat] for repeat in sorted(found)])
    ratio = float(np.mean([o.test_rows / o.train_rows for o in outcomes]))
    importance = [_estimate(name, each, ratio) for name, each in zip(columns, drops.T, strict=True)]
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


def _screen(plan: Plan, model: Model, columns: dict[str, tuple[str, ...]]) -> list[str]:
    """Return the names of at most ``COLUMNS`` columns: those that change the shipped model's scores most."""
    names = list(columns)
    if len(names) <= COLUMNS:
        return names
    rng = np.random.default_rng(plan.options.seed)
    features = plan.dataset.features.iloc[rng.permutation(len(plan.dataset.features))[:_SCREENED]]
    before = model.score_features(features)
    changes = np.zeros(len(names))
    for places, scores in _score_shuffled(model.score_features, features, list(columns.values()), 1, rng):
        for i, one in zip(places, scores, strict=True):
            changes[i] = np.abs(one - before).mean()
    kept = np.sort(np.argsort(-changes, kind="stable")[:COLUMNS])
    return [names[i] for i in kept]


def _yield_probes(
    plan: Plan,
    space: Workspace,
    progress: Progress,
    outcomes: Sequence[Outcome],
    rule: str,
    columns: tuple[tuple[str, ...], ...],
) -> Iterator[Probe]:
    """Yield what is to be done in each repeat."""
    dataset = plan.dataset
    for o in outcomes:
        part, seed = plan.parts[o.repeat], make_seed(plan.options.seed, o.repeat)
        weights = {name: weight for name, weight in o.members.items() if weight} or {o.contender: 1.0}
        models = {name: saved for name in weights if (saved := space.scratch.read_scorer(name, o.repeat)) is not None}
        encoder, training = space.scratch.encoders.get(o.repeat), None
        if encoder is None or len(models) < len(weights):
            progress.say(f"fitting {o.contender} again in repeat {o.repeat + 1}, to measure the importance of columns")
            encoder, encoded = dataset.encode(part.train)
            training = Shared.value(TrainingRows(encoded, dataset.targets, part, plan.effort))
        rng = np.random.default_rng([plan.options.seed, o.repeat])
        some = np.sort(rng.permutation(part.test)[:ROWS])
        rows = SampledRows(encoder, dataset.features.iloc[some], dataset.targets[some])
        chosen = getattr(o, rule).rule
        shared = (Shared.value(rows), Shared.value(models), training)
        yield Probe(o.repeat, dataset.goal, chosen, seed, weights, columns, *shared)


def run_probe(probe: Probe) -> np.ndarray | Failure:
    """Return the drop of the metric in one repeat for each column."""
    try:
        with one_thread():
            members = [
                Member(name, weight, _load_or_fit(probe, name, probe.models.get(name)))
                for name, weight in probe.weights.items()
            ]
            scorer = members[0].scorer if len(members) == 1 else Ensemble(members)
            rows = probe.rows
            return measure_drops(
                lambda features: scorer.scores(rows.encoder.transform(features)),
                probe.goal,
                probe.rule,
                rows.features,
                rows.targets,
                probe.columns,
                np.random.default_rng([probe.seed, 1]),
            )
    except Exception as error:  # a comparison must not be lost for it
        return Failure(", ".join(probe.weights), probe.repeat, one_line(f"{type(error).__name__}: {error}", 200))


def _load_or_fit(probe: Probe, name: str, saved: SavedScorer | None) -> Scorer:
    if saved is not None:
        return load_scorer(*saved)
    again = probe.training
    features, targets = again.features, np.asarray(again.targets)
    return fit_contender(name, probe.goal, again.effort, features, targets, again.split, probe.seed).scorer


def measure_drops(
    score: Callable[[pd.DataFrame], np.ndarray],
    goal: Goal,
    rule: Rule,
    features: pd.DataFrame,
    targets: np.ndarray,
    columns: Sequence[tuple[str, ...]],
    rng: np.random.Generator,
) -> np.ndarray:
    """Return by how much the metric under a rule falls when each column is shuffled, in the mean over shuffles.

    ``score``: a function from features to scores. ``columns``: the parts of each column, which are shuffled together.
    """
    times = min(max(SCORED // (len(features) * len(columns)), 1), MOST)
    drops = np.full(len(columns), compute_metric(goal, rule, score(features), targets))
    for places, scores in _score_shuffled(score, features, columns, times, rng):
        for i, one in zip(places, scores, strict=True):
            drops[i] -= compute_metric(goal, rule, one, targets) / times
    return drops


def _score_shuffled(
    score: Callable[[pd.DataFrame], np.ndarray],
    features: pd.DataFrame,
    columns: Sequence[tuple[str, ...]],
    times: int,
    rng: np.random.Generator,
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Yield places in ``columns`` and, for each, the scores of the rows with that column shuffled."""
    size = len(features)
    wanted = np.repeat(np.arange(len(columns)), times)
    for places in np.array_split(wanted, min(len(wanted), -(-len(wanted) * size // _AT_ONCE))):
        order = np.tile(np.arange(size), len(places))
        positions: dict[str, np.ndarray] = {}
        for number, place in enumerate(places):
            shuffled = rng.permutation(size)
            for part in columns[place]:
                positions.setdefault(part, order.copy())[number * size : (number + 1) * size] = shuffled
        many = features.take(order)
        for part, where in positions.items():
            many[part] = features[part].to_numpy()[where]
        yield places, np.split(score(many), len(places))
