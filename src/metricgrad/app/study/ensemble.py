"""The ensemble in ``compare``: not fitted, but averaged from the scores that the other contenders' units saved.

In each repeat the weights are chosen on the scores of the held-out rows, on which the rules are tuned too. The shipped
ensemble has the mean weights over the repeats: they rest on more rows than one choice, and are known before anything is
fitted, so that only members with a weight are.
"""

from __future__ import annotations

import time
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from metricgrad.app.contenders.scorers import average_scores
from metricgrad.app.contenders.table import ENSEMBLE, choose_weights, find_shortage, select_candidates
from metricgrad.app.errors import UserError, one_line
from metricgrad.app.study.protocol import Finished, Outcome, evaluate_rules, make_rules
from metricgrad.app.study.work import Failure, make_seed
from metricgrad.estimators.selection import LEAST_WEIGHT
from metricgrad.training.loop import one_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from metricgrad.app.report.payload import MemberWeight
    from metricgrad.app.study.compare import Plan, Progress
    from metricgrad.app.study.workspace import Workspace


def run_ensembles(
    plan: Plan,
    space: Workspace,
    progress: Progress,
    outcomes: Sequence[Outcome],
    saved: Mapping[tuple[str, int], Outcome],
) -> tuple[list[Outcome], str | None]:
    """Return the ensemble's outcome in every repeat, or none and the reason.

    ``outcomes``: those of the other contenders. ``saved``: finished units by contender and repeat.
    """
    if why := find_shortage(dict.fromkeys(o.contender for o in outcomes)):
        return [], why
    found = []
    for repeat in sorted({o.repeat for o in outcomes}):
        units = {o.contender: o for o in outcomes if o.repeat == repeat}
        candidates = {name: units[name] for name in select_candidates(units)}
        before = saved.get((ENSEMBLE, repeat))
        if before is not None and before.members.keys() == candidates.keys():
            found.append(before)
            continue
        result = _run_ensemble(plan, space, candidates, repeat)
        progress.finish_unit(result)
        if isinstance(result, Failure):
            return [], result.why
        space.add_unit(*result)
        found.append(result.outcome)
    return found, None


def _run_ensemble(plan: Plan, space: Workspace, units: Mapping[str, Outcome], repeat: int) -> Finished | Failure:
    """Choose the weights of a repeat, and evaluate the mean scores as those of any contender."""
    dataset, part = plan.dataset, plan.parts[repeat]
    goal, targets = dataset.goal, dataset.targets
    classes = None if goal.task == "binary" else goal.classes
    started, held_out = time.perf_counter(), dict[str, np.ndarray]()
    for name, unit in units.items():
        scores = space.read_held_out(unit, len(part.held_out), classes)
        if scores is None:
            return Failure(ENSEMBLE, repeat, f"{name} was fitted by an earlier version, which kept no held-out scores")
        held_out[name] = scores
    try:
        with one_thread():
            weights = choose_weights(goal, held_out, targets[part.held_out], make_seed(plan.options.seed, repeat))
            mean = average_scores((weight, held_out[name]) for name, weight in weights.items())
            rules = make_rules(goal, mean, targets[part.held_out])
            seconds = time.perf_counter() - started + sum(units[name].seconds for name in weights)
            tested = ((weight, space.read_scores(units[name], classes)) for name, weight in weights.items())
            scores = average_scores(tested)
            fixed, tuned = evaluate_rules(goal, dataset.also, rules, scores, targets[part.test])
    except UserError:  # a damaged file
        raise
    except Exception as error:  # like any contender, it must not stop the others
        return Failure(ENSEMBLE, repeat, one_line(f"{type(error).__name__}: {error}", 200))
    members = weights | {name: 0.0 for name in units if name not in weights}
    outcome = Outcome(ENSEMBLE, repeat, len(part.train), len(part.test), seconds, fixed, tuned, [], members)
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
