"""The leaderboard: means over repeats, their intervals, and their gains over the references.

``uncertainty`` says how intervals and p-values are made, ``verdict`` what follows from them.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np

from metricgrad.comparison.contenders import CONTENDERS, REFERENCE
from metricgrad.comparison.outcomes import RULE_KINDS, RuleKind
from metricgrad.comparison.uncertainty import LEVEL, Draws, adjust_by_holm, estimate_mean, find_limits, resample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from metricgrad.comparison.contenders import Contender
    from metricgrad.comparison.options import Dataset
    from metricgrad.comparison.outcomes import Outcome
    from metricgrad.comparison.run_writer import RunWriter
    from metricgrad.comparison.splits import Split
    from metricgrad.comparison.uncertainty import Estimate

REFERENCES = ("cross-entropy fixed", "cross-entropy tuned")
"""What every contender is compared with, as named in ``LeaderboardRow["against"]``: cross-entropy with each rule."""

Place = tuple[str, RuleKind]
"""A contender and its rule: a row of the leaderboard."""


class Difference(TypedDict):
    """How far a row of the leaderboard is above a reference, over the same splits.

    The p-value and the interval are adjusted for the number of references; the interval excludes 0 exactly if p < 5 %.
    """

    difference: float
    low: float | None
    high: float | None
    p: float | None
    repeats_needed: NotRequired[int | None]  # about how many repeats would prove the gain


class LeaderboardRow(TypedDict):
    """One contender with one rule."""

    contender: str
    rule: RuleKind
    family: str
    value: float | None  # the mean over the splits, on test rows
    low: float | None
    high: float | None
    folds: list[float]
    against: dict[str, Difference]  # by REFERENCES; a reference is not compared with itself
    others: dict[str, float]
    seconds: float | None  # of training, all splits together
    feasible: bool  # whether ``subject_to`` holds on the rows that the rule was tuned on
    held: int  # the number of repeats in which it holds on the test rows
    coverage: NotRequired[float]  # the share of the test rows that are decided


def read_moved_scores(run_writer: RunWriter, dataset: Dataset, parts: Sequence[Split], outcome: Outcome) -> np.ndarray:
    """Return a contender's scores of the test rows of a repeat, moved by the costs of each row if these differ."""
    scores = run_writer.read_outcome_scores(outcome, dataset.goal.score_columns)
    return dataset.move_scores(scores, parts[outcome.repeat].test)


def resample_outcomes(
    dataset: Dataset,
    parts: Sequence[Split],
    outcomes: Sequence[Outcome],
    read_scores: Callable[[Outcome], np.ndarray],
    seed: int,
) -> dict[Place, np.ndarray]:
    """Return, for each row of the leaderboard, how far its value in each repeat moves in each bootstrap replicate."""
    draws = Draws(len(dataset.targets), dataset.group, seed)
    moves_by_repeat: dict[Place, dict[int, np.ndarray]] = {}
    for repeat in sorted({outcome.repeat for outcome in outcomes}):
        test = parts[repeat].test
        times = draws.of_rows(test)
        targets = dataset.targets[test]
        costs = dataset.take_costs(test)
        for outcome in outcomes:
            if outcome.repeat != repeat:
                continue
            rules = [getattr(outcome, kind).rule for kind in RULE_KINDS]
            moves_of_rules = resample(dataset.goal, rules, read_scores(outcome), targets, times, costs)
            for kind, moves in zip(RULE_KINDS, moves_of_rules, strict=True):
                moves_by_repeat.setdefault((outcome.contender, kind), {})[repeat] = moves
    return {place: np.stack([moves[repeat] for repeat in sorted(moves)]) for place, moves in moves_by_repeat.items()}


def rank_contenders(
    outcomes: Sequence[Outcome],
    moves: Mapping[Place, np.ndarray],
    metric: str,
    contenders: Mapping[str, Contender] = CONTENDERS,
) -> list[LeaderboardRow]:
    """Return a row for each contender and rule, best first; the reference must be among the contenders.

    Rows that do not meet the constraint come last. ``moves``: from ``resample_outcomes``.
    """
    by_repeat = sorted(outcomes, key=lambda outcome: outcome.repeat)
    outcomes_of = {name: [outcome for outcome in by_repeat if outcome.contender == name] for name in contenders}
    ratio = fmean(outcome.test_rows / outcome.train_rows for outcome in outcomes_of[REFERENCE])
    limits = find_limits(metric)
    largest_difference = math.inf if limits is None else limits[1] - limits[0]
    rows: dict[Place, LeaderboardRow] = {}
    for name, own_outcomes in outcomes_of.items():
        if not own_outcomes:
            continue
        for rule in RULE_KINDS:
            decisions = [getattr(outcome, rule) for outcome in own_outcomes]
            values = [decision.value for decision in decisions]
            low, high = estimate_mean(values, moves[name, rule], ratio).interval(limits) or (None, None)
            others = {key: [decision.others[key] for decision in decisions] for key in decisions[0].others}
            rows[name, rule] = {
                "contender": name,
                "rule": rule,
                "family": contenders[name].family,
                "value": fmean(values),
                "low": low,
                "high": high,
                "folds": values,
                "against": {},
                "others": {key: fmean(each) for key, each in others.items() if None not in each},
                "seconds": sum(outcome.seconds for outcome in own_outcomes),
                "feasible": all(decision.feasible for decision in decisions),
                "held": sum(decision.met for decision in decisions),
                "coverage": fmean(decision.coverage for decision in decisions),
            }
    gains = {
        reference: _estimate_gains(rows, moves, (REFERENCE, rule), ratio)
        for reference, rule in zip(REFERENCES, RULE_KINDS, strict=True)
    }
    for place, row in rows.items():
        gains_of_row = {reference: of_rows[place] for reference, of_rows in gains.items() if place in of_rows}
        row["against"] = _adjust_gains(gains_of_row, largest_difference)
    # The sort is stable: among equals the simpler contender, earlier in the table, and its fixed rule come first.
    return sorted(rows.values(), key=lambda row: (not row["feasible"], -fmean(row["folds"])))


def _estimate_gains(
    rows: Mapping[Place, LeaderboardRow], moves: Mapping[Place, np.ndarray], reference: Place, ratio: float
) -> dict[Place, Estimate]:
    """Return the difference of every other row to the reference."""
    values_of_reference = np.asarray(rows[reference]["folds"])
    found: dict[Place, Estimate] = {}
    for place, row in rows.items():
        if place != reference:
            differences = np.asarray(row["folds"]) - values_of_reference
            found[place] = estimate_mean(differences.tolist(), moves[place] - moves[reference], ratio)
    return found


def _adjust_gains(gains: Mapping[str, Estimate], largest_difference: float) -> dict[str, Difference]:
    """Return the gains of a row by reference, adjusted for the number of references by Holm's method [holm1979].

    An interval is widened as its p-value is raised, so that it excludes 0 exactly if the gain, or the loss, is proven.
    ``largest_difference``: the largest one that is possible, which no interval leaves.
    """
    adjusted = adjust_by_holm([gain.p for gain in gains.values()])
    found: dict[str, Difference] = {}
    for (reference, gain), p in zip(gains.items(), adjusted, strict=True):
        ends = gain.interval(level=LEVEL * gain.p / p)
        found[reference] = {
            "difference": gain.value,
            "low": None if ends is None else max(ends[0], -largest_difference),
            "high": None if ends is None else min(ends[1], largest_difference),
            "p": p,
            "repeats_needed": gain.count_repeats(len(REFERENCES)),
        }
    return found
