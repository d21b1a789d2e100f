"""From the scores of candidates to the outcome of a contender: weights, decision rules, and their values on test rows.

A contender averages scores of candidates that were fitted once: a single one, the best of its own, or, for the
ensemble, those that ``select_ensemble`` chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from metricgrad.comparison.candidate_runs import Failure
from metricgrad.comparison.contenders import ENSEMBLE
from metricgrad.comparison.outcomes import Outcome
from metricgrad.comparison.protocol import evaluate_rules, make_rules
from metricgrad.decisions.ensemble_selection import select_ensemble
from metricgrad.decisions.problem import InfeasibleError
from metricgrad.training.training_loop import one_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from metricgrad.comparison.goal import Goal
    from metricgrad.core.costs import Cost

Scores = dict[str, np.ndarray]
"""The scores of some rows by each candidate."""


@dataclass(frozen=True, eq=False)
class OutcomeTask:
    """What a process needs to find the outcome of a contender in a repeat.

    ``seed``: of the selection. ``seconds``, ``histories``: of each candidate. ``out_of_fold``, ``scores``: ``Shared``;
    in the process that runs it the scores of the rows to tune on and of the test rows, and ``targets``,
    ``test_targets`` the targets of these. ``costs``, ``test_costs``: of these rows, if costs differ by row.
    """

    contender: str
    repeat: int
    goal: Goal
    also: tuple[str, ...]
    seed: int
    train_rows: int
    seconds: dict[str, float]
    histories: dict[str, list[dict[str, float]]]
    out_of_fold: Any
    targets: Any
    scores: Any
    test_targets: Any
    costs: Cost | None = None
    test_costs: Cost | None = None


def find_outcome(task: OutcomeTask) -> Outcome | Failure:
    """Choose the weights of a contender's candidates, tune its rule, and evaluate it on the test rows."""
    goal = task.goal
    try:
        with one_thread():
            chosen = weigh_candidates(task.contender, goal, task.out_of_fold, task.targets, task.seed, task.costs)
            weights = chosen.weights
            out_of_fold = _move_scores(chosen.out_of_fold, task.costs)
            rules = make_rules(goal, out_of_fold, task.targets, task.costs)
            scores = _move_scores(average_scores(weights, task.scores), task.test_costs)
            fixed, tuned = evaluate_rules(goal, list(task.also), rules, scores, task.test_targets, task.test_costs)
    except Exception as error:  # a contender that fails must not stop the others
        return Failure.of(task.contender, task.repeat, error)
    best = max(weights, key=lambda name: weights[name])
    return Outcome(
        contender=task.contender,
        repeat=task.repeat,
        train_rows=task.train_rows,
        test_rows=len(task.test_targets),
        seconds=sum(task.seconds[name] for name in weights),
        fixed=fixed,
        tuned=tuned,
        history=[] if task.contender == ENSEMBLE else task.histories[best],
        members={name: weights.get(name, 0.0) for name in task.out_of_fold},
    )


def _move_scores(scores: np.ndarray, costs: Cost | None) -> np.ndarray:
    return scores if costs is None else np.asarray(costs.adjust(scores))


class WeighedCandidates(NamedTuple):
    """The weights of a contender's candidates, largest first, and their mean scores of the rows to tune on."""

    weights: dict[str, float]
    out_of_fold: np.ndarray


def weigh_candidates(
    contender: str, goal: Goal, scores: Scores, targets: np.ndarray, seed: int, costs: Cost | None = None
) -> WeighedCandidates:
    """Return the weights of a contender's candidates, given their scores of the rows to tune on.

    The ensemble's are chosen as in ``MetricEnsembleClassifier``. If none can meet the constraint, all weigh the same.
    ``costs``: of these rows, if costs differ by row.
    """
    if contender != ENSEMBLE:
        losses = {name: compute_log_loss(one, targets) for name, one in scores.items()}
        best = min(losses, key=lambda name: losses[name])
        return WeighedCandidates({best: 1.0}, scores[best])
    try:
        selection = select_ensemble(
            goal.metric if costs is None else costs,
            scores,
            targets,
            task=goal.task,
            average=goal.average,
            subject_to=goal.subject_to,
            abstain=goal.abstain,
            seed=seed,
        )
    except InfeasibleError:  # the rule that is tuned next says so of the outcome
        equal = dict.fromkeys(scores, 1 / len(scores))
        return WeighedCandidates(equal, average_scores(equal, scores))
    return WeighedCandidates(selection.weights, np.asarray(selection.scores))


def average_scores(weights: Mapping[str, float], scores: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the weighted mean of scores; the weights sum to 1."""
    parts = [weight * scores[name] for name, weight in weights.items()]
    if len(shapes := {one.shape for one in parts}) > 1:  # numpy would broadcast them
        raise ValueError(f"members: expected scores of one shape, got {sorted(shapes)}")
    return np.sum(parts, axis=0)  # type: ignore[no-any-return]


def compute_log_loss(scores: np.ndarray, targets: np.ndarray) -> float:
    """Return the mean cross-entropy of probabilities."""
    if scores.ndim > targets.ndim:
        chance = np.take_along_axis(scores, targets[:, None], 1)
    else:
        chance = np.where(targets == 1, scores, 1 - scores)
    return float(-np.log(np.clip(chance, 1e-12, 1)).mean())


class MemberWeight(TypedDict):
    """A contender in the ensemble."""

    name: str
    weight: float  # the mean over the splits
    low: float  # in one split
    high: float


def describe_members(outcomes: Sequence[Outcome]) -> list[MemberWeight]:
    """Return the mean weight of each member over the repeats, largest first, and the least and largest of one repeat.

    ``outcomes``: those of the ensemble.
    """
    found: list[MemberWeight] = []
    for name in sorted(outcomes[0].members):
        weights = [outcome.members[name] for outcome in outcomes]
        if max(weights) > 0:
            found.append({"name": name, "weight": fmean(weights), "low": min(weights), "high": max(weights)})
    return sorted(found, key=lambda member: -member["weight"])
