"""The ensemble in ``compare``: not fitted, but averaged from the scores that the other contenders' units saved.

In each repeat the weights are chosen on the scores of the held-out rows, on which the rules are tuned too. The shipped
ensemble has the mean weights over the repeats: they rest on more rows than one choice, and are known before anything is
fitted, so that only members with a weight are.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from metricgrad.comparison.contenders.scorers import average_scores
from metricgrad.comparison.contenders.table import ENSEMBLE, choose_weights, find_shortage, select_candidates
from metricgrad.comparison.protocol import Finished, Outcome, evaluate_rules, make_rules
from metricgrad.comparison.unit_runner import Failure, make_seed
from metricgrad.comparison.workers import Shared, run_tasks
from metricgrad.decisions.ensemble_selection import LEAST_WEIGHT
from metricgrad.messages import one_line
from metricgrad.training.training_loop import one_thread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np

    from metricgrad.comparison.contenders.scorers import Goal
    from metricgrad.comparison.report.payload import MemberWeight
    from metricgrad.comparison.run_comparison import Plan, Progress
    from metricgrad.comparison.run_writer import Workspace
    from metricgrad.comparison.workers import Workers


@dataclass(frozen=True, eq=False)
class Scored:
    """Rows with the scores of each candidate."""

    scores: dict[str, np.ndarray]
    targets: np.ndarray


@dataclass(frozen=True, eq=False)
class Choice:
    """What a process needs to choose the ensemble of a repeat and to evaluate it.

    ``units``: the outcomes of the candidates, by name. ``held_out``, ``test``: ``Shared``; in the process that runs it
    ``Scored`` rows.
    """

    repeat: int
    goal: Goal
    also: list[str]
    seed: int
    units: dict[str, Outcome]
    held_out: Any
    test: Any


def run_ensembles(
    plan: Plan,
    space: Workspace,
    progress: Progress,
    workers: Workers,
    outcomes: Sequence[Outcome],
    saved: Mapping[tuple[str, int], Outcome],
) -> tuple[list[Outcome], str | None]:
    """Return the ensemble's outcome in every repeat, or none and the reason.

    ``outcomes``: those of the other contenders. ``saved``: finished units by contender and repeat.
    """
    if why := find_shortage(dict.fromkeys(o.contender for o in outcomes)):
        return [], why
    found, failed, candidates = dict[int, Outcome](), dict[int, str](), dict[int, dict[str, Outcome]]()
    for repeat in sorted({o.repeat for o in outcomes}):
        units = {o.contender: o for o in outcomes if o.repeat == repeat}
        candidates[repeat] = {name: units[name] for name in select_candidates(units)}
        before = saved.get((ENSEMBLE, repeat))
        if before is not None and before.members.keys() == candidates[repeat].keys():
            found[repeat] = before
    missing = {repeat: units for repeat, units in candidates.items() if repeat not in found}
    for unit in (unit for units in missing.values() for unit in units.values()):
        if not space.has_held_out(unit):
            return [], f"{unit.contender} was fitted by an earlier version, which kept no held-out scores"
    choices = _yield_choices(plan, space, missing)
    with closing(run_tasks(workers, run_choice, lambda: next(choices, None))) as results:
        for choice, result in results:
            progress.finish_unit(result)
            if isinstance(result, Failure):
                failed[choice.repeat] = result.why
            else:
                space.add_unit(*result)
                found[choice.repeat] = result.outcome
    return ([], failed[min(failed)]) if failed else ([found[repeat] for repeat in sorted(found)], None)


def _yield_choices(plan: Plan, space: Workspace, candidates: Mapping[int, dict[str, Outcome]]) -> Iterator[Choice]:
    """Yield what is to be done, given the candidates of each repeat; their scores are read when a process is free."""
    dataset = plan.dataset
    classes = dataset.goal.score_columns
    for repeat, units in candidates.items():
        part = plan.parts[repeat]
        held_out = {name: space.read_held_out(unit, len(part.held_out), classes) for name, unit in units.items()}
        test = {name: space.read_scores(unit, classes) for name, unit in units.items()}
        yield Choice(
            repeat,
            dataset.goal,
            dataset.also,
            make_seed(plan.options.seed, repeat),
            units,
            Shared.value(Scored(held_out, dataset.targets[part.held_out])),
            Shared.value(Scored(test, dataset.targets[part.test])),
        )


def run_choice(choice: Choice) -> Finished | Failure:
    """Choose the weights of a repeat, and evaluate the mean scores as those of any contender."""
    goal, held_out, test, started = choice.goal, choice.held_out, choice.test, time.perf_counter()
    try:
        with one_thread():
            weights = choose_weights(goal, held_out.scores, held_out.targets, choice.seed)
            mean = average_scores((weight, held_out.scores[name]) for name, weight in weights.items())
            rules = make_rules(goal, mean, held_out.targets)
            seconds = time.perf_counter() - started + sum(choice.units[name].seconds for name in weights)
            scores = average_scores((weight, test.scores[name]) for name, weight in weights.items())
            fixed, tuned = evaluate_rules(goal, choice.also, rules, scores, test.targets)
    except Exception as error:  # like any contender, it must not stop the others
        return Failure(ENSEMBLE, choice.repeat, one_line(f"{type(error).__name__}: {error}", 200))
    first = next(iter(choice.units.values()))
    members = weights | {name: 0.0 for name in choice.units if name not in weights}
    outcome = Outcome(ENSEMBLE, choice.repeat, first.train_rows, first.test_rows, seconds, fixed, tuned, [], members)
    return Finished(outcome, scores, mean)


def average_weights(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the weights of the ensemble that is shipped, largest first: the means over repeats, without small ones."""
    means = {member["name"]: member["weight"] for member in describe_members(outcomes)}
    kept = {name: weight for name, weight in means.items() if weight >= LEAST_WEIGHT}
    return {name: weight / sum(kept.values()) for name, weight in kept.items()}


def describe_members(outcomes: Sequence[Outcome]) -> list[MemberWeight]:
    """Return the mean weight of each member over the repeats, largest first, and the least and largest of one repeat.

    ``outcomes``: those of the ensemble.
    """
    weights = {name: [o.members[name] for o in outcomes] for name in sorted(outcomes[0].members)}
    found: list[MemberWeight] = [
        {"name": name, "weight": fmean(each), "low": min(each), "high": max(each)}
        for name, each in weights.items()
        if max(each) > 0
    ]
    return sorted(found, key=lambda member: -member["weight"])
