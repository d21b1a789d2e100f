"""Learning curves: the soft value that was trained, and the hard one that is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from metricgrad.comparison.contenders import CONTENDERS
from metricgrad.comparison.report.markup import make_folded_table
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload
    from metricgrad.comparison.report.section_inputs import Predictions


class Epoch(TypedDict):
    """One point of a learning curve, with the soft and the hard value where they are known."""

    epoch: int
    loss: float
    soft: float | None
    hard: float | None


class LearningSection(Section):
    """A chart for each contender shown."""

    name = "learning"
    title = "Learning curves"
    folded = True
    note = (
        "Thin: the soft value of the metric, which is trained; thick: the hard value, which is reported. Far apart, "
        "the soft value is too optimistic. Contenders that stopped by their loss show the loss (trees by round, on "
        "held-out rows)."
    )
    drawn = True

    def measure(self, predictions: Predictions) -> dict[str, Any]:
        """Return an ``Epoch`` for each epoch of the first split, or each round of trees, and which of these it is."""
        contender = CONTENDERS.get(predictions.contender)
        soft = contender is not None and contender.shows_soft_metric
        history: list[Epoch] = [
            {
                "epoch": int(row["epoch"]) + 1,
                "loss": row["loss"],
                "soft": 1 - row["loss"] if soft else None,
                "hard": row.get("value"),
            }
            for row in predictions.history
        ]
        return {
            "history": history,
            "step": "round" if contender is not None and contender.family == "trees" else "epoch",
        }

    def body(self, payload: Payload) -> str:
        return f'<div class="multiples" id="learning-charts"></div>\n{make_folded_table()}'
