"""Money: what decisions cost in total and per row, and what they save, with bootstrap intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core.inputs import as_tensor
from metricgrad.decisions.resampling import check_replicates, index_groups, weigh_units
from metricgrad.evaluation.bootstrap import Interval

if TYPE_CHECKING:
    from metricgrad.core.costs import Cost


@dataclass(frozen=True)
class MeasuredCost:
    """What decisions cost, with intervals: ``measure_cost`` returns it.

    Attributes
    ----------
    total : Interval
        The cost of all rows.
    per_row : Interval
        The mean cost of a row.
    savings : Interval
        The share of the avoidable cost that the decisions avoid, as ``Cost.savings``.
    saved : Interval
        By how much less a row costs than by the other decisions, ``against``; by default than by the cheaper of
        predicting all rows and none.

    """

    total: Interval
    per_row: Interval
    savings: Interval
    saved: Interval

    def __str__(self) -> str:
        rows = self.total.value / self.per_row.value if self.per_row.value else 0
        lines = [f"total {self.total.value:,.2f} ({self.total.low:,.2f} to {self.total.high:,.2f})"]
        lines.append(f"per row {self.per_row}")
        lines.append(f"saved per row {self.saved}")
        lines.append(f"savings {self.savings}")
        return "\n".join(lines) + (f"\n{rows:,.0f} rows" if rows else "")


def measure_cost(
    cost: Cost,
    targets: Any,
    decisions: Any,
    *,
    against: Any = None,
    groups: Any = None,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> MeasuredCost:
    """Return what decisions cost, in total and per row, and what they save, with bootstrap intervals.

    In each replicate rows, or whole groups of them, have random weights [rubin1981]. Heavy amounts make wide intervals:
    a few large rows are most of the money.

    Parameters
    ----------
    cost : Cost
        The costs, of these rows if they differ by row.
    targets : array-like
        0 and 1, ``(N,)``; class indices for costs of several classes.
    decisions : array-like
        Bools, or 0 and 1, ``(N,)``; class indices for costs of several classes.
    against : array-like, optional
        Other decisions to compare with, such as those at 0.5; by default the cheaper of predicting all and none.
    groups : array-like, optional
        The group of each row; rows of a group are weighed together.
    replicates : int, default 1000
        The number of bootstrap replicates.
    confidence : float, default 0.95
        The confidence level of the intervals, in (0, 1).
    seed : int, default 0
        Random seed of the replicates.

    Returns
    -------
    MeasuredCost
        ``total``, ``per_row``, ``savings`` and ``saved``, each with ``value``, ``low`` and ``high``.

    Raises
    ------
    ValueError
        If shapes or values do not fit, or there are no rows.

    Examples
    --------
    >>> from metricgrad import Cost
    >>> found = measure_cost(Cost(fp=5.0, fn=100.0), [1, 0, 0, 1] * 20, [1, 1, 0, 1] * 20)
    >>> found.total.value, found.per_row.value, found.savings.value
    (100.0, 1.25, 0.5)

    """
    check_replicates(replicates, confidence)
    y = as_tensor("targets", targets).long()
    paid = as_tensor("cost", cost.of_rows(targets, decisions))
    rows = len(paid)
    if not rows:
        raise ValueError("targets: expected at least one row, got none")
    # Of each row: what was paid, what perfect decisions would pay, and what deciding all rows alike would.
    classes = 2 if cost.matrix is None else len(cost.matrix)
    alike = [as_tensor("cost", cost.of_rows(y, torch.full_like(y, k))) for k in range(classes)]
    columns = [paid, as_tensor("cost", cost.of_rows(y, y)), *alike]
    if against is not None:
        columns.append(as_tensor("cost", cost.of_rows(targets, against)))
    of_rows = torch.stack([column.double() for column in columns], 1)
    group_of_row, units = index_groups(groups, rows)
    of_units = of_rows.new_zeros(units, of_rows.shape[1]).index_add_(0, group_of_row, of_rows)
    rows_of_unit = torch.bincount(group_of_row, minlength=units).double()
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for weight in weigh_units(units, replicates, generator):
        # Scaled to the number of rows that there are.
        drawn.append((weight @ of_units) * (rows / (weight @ rows_of_unit)).unsqueeze(1))
    values = _measure(of_units.sum(0, keepdim=True), rows, classes, against is not None)
    replicated = _measure(torch.cat(drawn), rows, classes, against is not None)
    return MeasuredCost(**{name: _make_interval(values[name], replicated[name], confidence) for name in values})


def _measure(sums: Tensor, rows: int, classes: int, has_other: bool) -> dict[str, Tensor]:
    """Return the four quantities of sums over rows, ``(R, ...)``: paid, perfect, alike for each class, other."""
    paid = sums[:, 0]
    perfect = sums[:, 1]
    alike = sums[:, 2 : 2 + classes].amin(1)
    other = sums[:, -1] if has_other else alike
    avoidable = alike - perfect
    savings = torch.where(avoidable > 0, (alike - paid) / avoidable.clamp(min=1e-300), 0.0)
    return {"total": paid, "per_row": paid / rows, "savings": savings, "saved": (other - paid) / rows}


def _make_interval(value: Tensor, drawn: Tensor, confidence: float) -> Interval:
    tail = (1 - confidence) / 2
    low, high = torch.quantile(drawn, drawn.new_tensor([tail, 1 - tail])).tolist()
    return Interval(value.item(), low, high, drawn)
