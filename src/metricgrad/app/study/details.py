"""What the sections of the report measure of each contender, on the test rows of all repeats together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metricgrad.app.report.evidence import Predictions
from metricgrad.app.report.sections import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.app.contenders.scorers import Goal
    from metricgrad.app.report.evidence import Table
    from metricgrad.app.report.payload import Details
    from metricgrad.app.study.protocol import Outcome
    from metricgrad.decisions.rules import Rule


def details(
    goal: Goal,
    table: Table,
    outcomes: Sequence[Outcome],
    scores: Sequence[Any],
    rows: Sequence[Any],
    shipped: Rule | None = None,
) -> Details:
    """Return the details of one contender, given its outcome, scores and test rows in each repeat.

    ``shipped``: the rule of the shipped model, if it is of this contender.
    """
    decided = [np.asarray(o.tuned.rule(s)).astype(int) for o, s in zip(outcomes, scores, strict=True)]
    predictions = Predictions(
        contender=outcomes[0].contender,
        goal=goal,
        table=table,
        rows=np.concatenate(list(rows)),
        scores=np.concatenate(list(scores)),
        targets=np.concatenate([table.targets[mine] for mine in rows]),
        decided=np.concatenate(decided),
        rules=[o.tuned.rule for o in outcomes],
        plateaus=[o.tuned.plateau for o in outcomes],
        history=outcomes[0].history,
        shipped=shipped,
    )
    return {key: value for section in SECTIONS for key, value in section.measure(predictions).items()}
