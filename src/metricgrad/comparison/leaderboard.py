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


def read_moved_scores(space: RunWriter, dataset: Dataset, parts: Sequence[Split], outcome: Outcome) -> np.ndarray:
    """Return a contender's scores of the test rows of a repeat, moved by the costs of each row if these differ."""
    scores = space.read_outcome_scores(outcome, dataset.goal.score_columns)
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
    found: dict[Place, dict[int, np.ndarray]] = {}
    for repeat in sorted({o.repeat for o in outcomes}):
        test = parts[repeat].test
        times, targets = draws.of_rows(test), dataset.targets[test]
        costs = dataset.take_costs(test)
        for o in (o for o in outcomes if o.repeat == repeat):
            rules = [getattr(o, rule).rule for rule in RULE_KINDS]
            for rule, moves in zip(
                RULE_KINDS, resample(dataset.goal, rules, read_scores(o), targets, times, costs), strict=True
            ):
                found.setdefault((o.contender, rule), {})[repeat] = moves
    return {place: np.stack([moves[repeat] for repeat in sorted(moves)]) for place, moves in found.items()}


def rank_contenders(
    outcomes: Sequence[Outcome],
    moves: Mapping[Place, np.ndarray],
    metric: str,
    contenders: Mapping[str, Contender] = CONTENDERS,
) -> list[LeaderboardRow]:
    """Return a row for each contender and rule, best first; the reference must be among the contenders.

    Rows that do not meet the constraint come last. ``moves``: from ``resample_outcomes``.
    """
    found = {name: sorted((o for o in outcomes if o.contender == name), key=lambda o: o.repeat) for name in contenders}
    found = {name: mine for name, mine in found.items() if mine}
    ratio = fmean(o.test_rows / o.train_rows for o in found[REFERENCE])
    limits = find_limits(metric)
    largest = math.inf if limits is None else limits[1] - limits[0]  # that a difference can be
    rows: dict[Place, LeaderboardRow] = {}
    for name, mine in found.items():
        for rule in RULE_KINDS:
            decisions = [getattr(o, rule) for o in mine]
            values = [decision.value for decision in decisions]
            low, high = estimate_mean(values, moves[name, rule], ratio).interval(limits) or (None, None)
            others = {key: [d.others[key] for d in decisions] for key in decisions[0].others}
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
                "seconds": sum(o.seconds for o in mine),
                "feasible": all(d.feasible for d in decisions),
                "held": sum(d.met for d in decisions),
                "coverage": fmean(d.coverage for d in decisions),
            }
    gains = {
        reference: _estimate_gains(rows, moves, (REFERENCE, rule), ratio)
        for reference, rule in zip(REFERENCES, RULE_KINDS, strict=True)
    }
    for place, row in rows.items():
        its = {reference: each[place] for reference, each in gains.items() if place in each}
        row["against"] = _adjust_gains(its, largest)
    # The sort is stable: among equals the simpler contender, earlier in the table, and its fixed rule come first.
    return sorted(rows.values(), key=lambda row: (not row["feasible"], -fmean(row["folds"])))


def _estimate_gains(
    rows: Mapping[Place, LeaderboardRow], moves: Mapping[Place, np.ndarray], reference: Place, ratio: float
) -> dict[Place, Estimate]:
    """Return the difference of every other row to the reference."""
    theirs = np.asarray(rows[reference]["folds"])
    found: dict[Place, Estimate] = {}
    for place, row in rows.items():
        if place != reference:
            differences = np.asarray(row["folds"]) - theirs
            found[place] = estimate_mean(differences.tolist(), moves[place] - moves[reference], ratio)
    return found


def _adjust_gains(gains: Mapping[str, Estimate], largest: float) -> dict[str, Difference]:
    """Return the gains of a row by reference, adjusted for the number of references by Holm's method [holm1979].

    An interval is widened as its p-value is raised, so that it excludes 0 exactly if the gain, or the loss, is proven.
    ``largest``: the largest difference that is possible, which no interval leaves.
    """
    adjusted = adjust_by_holm([gain.p for gain in gains.values()])
    found: dict[str, Difference] = {}
    for (reference, gain), p in zip(gains.items(), adjusted, strict=True):
        ends = gain.interval(level=LEVEL * gain.p / p)
        found[reference] = {
            "difference": gain.value,
            "low": None if ends is None else max(ends[0], -largest),
            "high": None if ends is None else min(ends[1], largest),
            "p": p,
            "repeats_needed": gain.count_repeats(len(REFERENCES)),
        }
    return found
