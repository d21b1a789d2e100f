"""The model to ship: a contender fitted on all rows, with a rule tuned on the held-out rows of all repeats together.

The held-out rows of one split are few, and a threshold that is tuned on them moves with the split. Those of all repeats
are several times as many. Their scores come from the models of the repeats, each of rows that it was not trained on.
They are put below each other and not averaged: the mean of several models' scores varies less than the scores of one
model, and it is one model that is shipped. A row that was held out in several repeats counts in each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from metricgrad.comparison import protocol
from metricgrad.comparison.errors import NOTHING, UserError
from metricgrad.comparison.report.sections.threshold import list_plateaus
from metricgrad.comparison.shipped_model import Model
from metricgrad.comparison.trained_rows import TrainedRows
from metricgrad.training.training_loop import one_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.contenders.scorers import Effort
    from metricgrad.comparison.options import Dataset
    from metricgrad.comparison.protocol import Decision, Outcome
    from metricgrad.comparison.run_comparison import Plan
    from metricgrad.comparison.run_writer import Workspace


class ShippedRule(NamedTuple):
    """The rule to ship with its value and plateau on the rows that it was tuned on, and these rows in words."""

    decision: Decision
    tuned_on: str


def tune_on_repeats(plan: Plan, space: Workspace, outcomes: Sequence[Outcome], kind: str) -> ShippedRule | None:
    """Return the "fixed" or "tuned" rule of a contender for the held-out rows of all its repeats together.

    ``outcomes``: those of the contender. None if none has scores of held-out rows.
    """
    goal, targets = plan.dataset.goal, plan.dataset.targets
    kept = [o for o in sorted(outcomes, key=lambda o: o.repeat) if space.has_held_out(o)]
    if not kept:
        return None
    rows = [plan.parts[o.repeat].held_out for o in kept]
    scores = [space.read_held_out(o, len(mine), goal.score_columns) for o, mine in zip(kept, rows, strict=True)]
    with one_thread():
        decision = protocol.make_rules(goal, np.concatenate(scores), targets[np.concatenate(rows)])[kind]
    found = ShippedRule(decision, f"the held-out rows of {len(kept)} repeats together")
    _check_feasible(found, kept[0].contender, goal.subject_to)
    return found


def fit_shipped_model(
    dataset: Dataset,
    contender: str,
    kind: str,
    effort: Effort,
    seed: int,
    weights: dict[str, float] | None = None,
    rule: ShippedRule | None = None,
) -> Model:
    """Fit a contender on all rows, a fifth of them held out for early stopping; return it with its rule.

    ``kind``: "fixed" or "tuned". ``weights``: of the ensemble's members, if they are known. ``rule``: that of
    ``tune_on_repeats``; without repeats, it is tuned on the rows held out here.
    """
    split = dataset.split_all_rows(seed)
    encoder, features = dataset.encode(split.train)
    scorer, own, _ = protocol.fit_contender(
        contender, dataset.goal, effort, features, dataset.targets, split, seed, weights
    )
    if rule is None:
        rule = ShippedRule(own[kind], f"{len(split.held_out)} rows held out of training")
        _check_feasible(rule, contender, dataset.goal.subject_to)
    decision = rule.decision
    about = {
        "metric": dataset.goal.metric,
        "average": dataset.goal.average,
        "subject_to": dataset.goal.subject_to,
        "kind": kind,
        "tuned_on": rule.tuned_on,
        "value_there": decision.value,
        "plateaus": list_plateaus(decision.plateau, dataset.goal.score_columns or 1),
    }
    trained_rows = TrainedRows.of(dataset.features.iloc[split.train], dataset.targets[split.train])
    return Model(dataset.schema, encoder, scorer, contender, decision.rule, about, trained_rows)


def _check_feasible(rule: ShippedRule, contender: str, subject_to: str | None) -> None:
    if not rule.decision.feasible:
        raise UserError(f"--subject-to: {contender} cannot meet {subject_to!r} on {rule.tuned_on}; relax it", NOTHING)
