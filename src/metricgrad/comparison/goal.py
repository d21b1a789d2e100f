"""The goal of a comparison: the task, and the metric that everything is optimised for and evaluated by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from metricgrad import strict_json
from metricgrad.core.costs import Cost
from metricgrad.core.metrics.parameters import check_values
from metricgrad.estimators.labels import Labels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from metricgrad.core.batch import Task
    from metricgrad.core.metrics.averages import Average


@dataclass(frozen=True)
class Goal:
    """What models are trained and tuned for: the task with its number of classes, metric, average, constraint.

    ``cost``: what decisions cost, as the command line takes it. The metric is then the savings, of the mean costs where
    costs differ by row: models are trained for it. Scores are moved by the costs of each row, see ``Cost.adjust``, and
    what is tuned and evaluated with these costs. ``abstain``: rows of several classes may be left undecided, and are
    predicted as ``abstain_label``.
    """

    task: Task
    classes: int
    metric: str
    average: Average = "macro"
    subject_to: str | None = None
    cost: str | None = None
    abstain: bool = False
    abstain_label: int | str | None = None

    @classmethod
    def of_rule(cls, task: Task, classes: int, about: Mapping[str, Any]) -> Goal:
        """Return what a rule was tuned for: what ``describe`` wrote."""
        names = ("metric", "average", "subject_to", "cost", "abstain", "abstain_label")
        return cls(task, classes, **{name: about[name] for name in names if name in about})

    def describe(self) -> dict[str, Any]:
        """Return what is written beside a rule that was tuned for this."""
        found: dict[str, Any] = {"metric": self.metric, "average": self.average, "subject_to": self.subject_to}
        if self.cost is not None:
            found["cost"] = self.cost
        if self.abstain:
            found |= {"abstain": True, "abstain_label": self.abstain_label}
        return found

    @property
    def prices(self) -> Cost | None:
        """What decisions cost, with the names of columns; None if the goal is another metric."""
        return None if self.cost is None else Cost.from_text(self.cost)

    @property
    def cost_columns(self) -> list[str]:
        """The columns that have the costs of each row."""
        prices = self.prices
        return [] if prices is None else prices.columns

    def find_costs(self, frame: Any) -> Cost | None:
        """Return the costs of the rows of a frame; None if these do not differ by row."""
        prices = self.prices
        if prices is None or not prices.columns:
            return None
        import pandas as pd

        missing = [name for name in prices.columns if name not in frame.columns]
        if missing:
            raise ValueError(f"cost: expected a column {missing[0]!r} in the data, got none; add it")
        numbers = {name: pd.to_numeric(frame[name], errors="coerce") for name in prices.columns}
        return prices.of_table(numbers)

    @property
    def score_columns(self) -> int | None:
        """The number of scores of a row; None for a binary task, whose scores have no columns."""
        return None if self.task == "binary" else self.classes

    @property
    def labels(self) -> Labels:
        """How the encoded targets look to estimators: class indices, or 0/1 per label."""
        import numpy as np

        return Labels.of(self.task, np.arange(self.classes))

    def check_values(self, *metrics: str) -> None:
        """Raise a ``ValueError`` if a metric has parameters with one value per class, but not for these classes."""
        for metric in metrics:
            if "(" in metric and not strict_json.names_code(metric):  # what names code must not be looked up here
                check_values(metric, 1 if self.task == "binary" else self.classes)
