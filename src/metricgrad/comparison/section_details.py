"""What the sections of the report measure of each contender, on the test rows of all repeats together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metricgrad.comparison.report.section_inputs import Predictions
from metricgrad.comparison.report.sections import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.goal import Goal
    from metricgrad.comparison.outcomes import Outcome
    from metricgrad.comparison.report.payload import Details
    from metricgrad.comparison.report.section_inputs import Table
    from metricgrad.comparison.shipped_model import ShippedModel


def predict(
    goal: Goal,
    table: Table,
    outcomes: Sequence[Outcome],
    scores: Sequence[Any],
    rows: Sequence[Any],
    rule: str,
    shipped: ShippedModel | None = None,
) -> Predictions:
    """Return one contender's predictions by its "fixed" or "tuned" rule, given its scores and test rows per repeat.

    ``shipped``: the shipped model, if it is of this contender.
    """
    rules = [getattr(o, rule).rule for o in outcomes]
    decided = [np.asarray(one(s)).astype(int) for one, s in zip(rules, scores, strict=True)]
    return Predictions(
        contender=outcomes[0].contender,
        goal=goal,
        table=table,
        rows=np.concatenate(list(rows)),
        scores=np.concatenate(list(scores)),
        targets=np.concatenate([table.targets[mine] for mine in rows]),
        decided=np.concatenate(decided),
        rules=rules,
        plateaus=[getattr(o, rule).plateau for o in outcomes],
        history=outcomes[0].history,
        shipped=None if shipped is None else shipped.rule,
        shipped_plateaus=() if shipped is None else shipped.describe()["plateaus"],
    )


def details(predictions: Predictions) -> Details:
    """Return the details of one contender."""
    return {key: value for section in SECTIONS for key, value in section.measure(predictions).items()}
