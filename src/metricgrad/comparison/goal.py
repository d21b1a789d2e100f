"""The goal of a comparison: the task, and the metric that everything is optimised for and evaluated by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from metricgrad import strict_json
from metricgrad.core.metrics.parameters import check_values
from metricgrad.estimators.labels import Labels

if TYPE_CHECKING:
    from metricgrad.core.batch import Task
    from metricgrad.core.metrics.averages import Average


@dataclass(frozen=True)
class Goal:
    """What models are trained and tuned for: the task with its number of classes, metric, average, constraint."""

    task: Task
    classes: int
    metric: str
    average: Average = "macro"
    subject_to: str | None = None

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
