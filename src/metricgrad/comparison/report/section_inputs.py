"""What sections of the report measure: the data, a contender's predictions, and the model to ship."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from metricgrad.comparison.goal import Goal
    from metricgrad.comparison.tables.labelled_table import LabelledTable
    from metricgrad.core.costs import Cost
    from metricgrad.decisions.rules import Rule
    from metricgrad.estimators.columns.column import Column


@dataclass(frozen=True, eq=False)
class Predictions:
    """One contender on the test rows of all splits together; the arrays have one entry, or row, per test row.

    Attributes
    ----------
    contender : str
        The name of the contender.
    goal : Goal
        Task, metric, average and constraint.
    table : LabelledTable
        The data; ``table.frame.iloc[rows]`` are the test rows with all their columns.
    rows : ndarray
        The position of each test row in ``table``. A row may be tested in several splits.
    scores, targets, decided : ndarray
        Scores as the contender gives them; true and predicted class indices, or 0/1 per label. Predictions are those of
        ``rules``.
    rules : sequence of Rule
        The rule of each split: the kind that is shipped for the shipped contender, the tuned one for others.
    plateaus : sequence
        For each split, the thresholds that are hardly worse: a pair, a pair per label, or None.
    history : sequence of dict
        The epochs of training in the first split, with ``epoch``, ``loss`` and, if it was measured, ``value``.
    shipped : Rule or None
        The rule of the shipped model, if it is of this contender.
    shipped_plateaus : sequence
        For each threshold of that rule, from where to where thresholds are hardly worse, or None.
    costs : Cost or None
        The costs of the test rows, if these differ by row; ``scores`` are then moved by them.
    probabilities : ndarray or None
        The scores before they were moved.

    """

    contender: str
    goal: Goal
    table: LabelledTable
    rows: Any
    scores: Any
    targets: Any
    decided: Any
    rules: Sequence[Rule]
    plateaus: Sequence[Any]
    history: Sequence[Mapping[str, float]]
    shipped: Rule | None = None
    shipped_plateaus: Sequence[tuple[float, float] | None] = ()
    costs: Cost | None = None
    probabilities: Any = None

    def metric_of(self, places: Any) -> Any:
        """Return the metric of some test rows: its name, or the costs of these rows."""
        return self.goal.metric if self.costs is None else self.costs.take(places)


@dataclass(frozen=True, eq=False)
class ShippedModelInputs:
    """The data and the model to ship, for what is measured once and not for every contender.

    Attributes
    ----------
    goal : Goal
        Task, metric, average and constraint.
    table : LabelledTable
        The data.
    held : ndarray
        The positions in ``table`` of the rows on which the model stopped training, but did not train.
    score : callable
        Takes rows of a frame with the columns of ``table.frame`` and returns the scores of the model.
    rule : Rule
        The rule of the model: scores to predictions.
    columns, others : sequence of Column
        The feature columns; columns that are not used as features, such as those that ``--drop`` and ``--group`` name.
    important : sequence of str
        The names of columns, the most important one first; empty if that is not known.
    tested : Predictions
        The contender on the test rows of all splits, decided by the shipped kind of rule.

    """

    goal: Goal
    table: LabelledTable
    held: Any
    score: Callable[[Any], Any]
    rule: Rule
    columns: Sequence[Column]
    others: Sequence[Column]
    important: Sequence[str]
    tested: Predictions

    def sort_by_importance(self, columns: Iterable[Column]) -> list[Column]:
        """Return columns, the most important one first; those whose importance is not known stay in order."""
        rank = {name: i for i, name in enumerate(self.important)}
        return sorted(columns, key=lambda column: rank.get(column.name, len(rank)))
