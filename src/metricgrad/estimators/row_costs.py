"""Costs that come with rows: from metadata, from the metric, or from the columns of a frame."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from metricgrad.core.costs import CELLS, Cost
from metricgrad.decisions.least_cost import PER_ROW, CostTuning, LeastCost, tune_cost_rule

if TYPE_CHECKING:
    from torch import Tensor

    from metricgrad.core.batch import Task
    from metricgrad.decisions.rules import Rule


def find_fit_costs(metric: Any, costs: Any, X: Any, rows: int) -> Cost | None:
    """Return the costs of the rows to fit on: those given, or those of the metric; None for another metric."""
    if not isinstance(metric, Cost):
        if costs is not None:
            raise ValueError(f"costs: expected metric=Cost(...) with them, got metric={metric!r}")
        return None
    found = metric if costs is None else _check_costs(costs)
    return _put_in_columns(found, X, rows)


def find_predict_costs(rule: LeastCost, costs: Any, X: Any, rows: int) -> Cost:
    """Return the costs of the rows to predict: those given, or those of the columns of a frame."""
    if costs is not None:
        return _put_in_columns(_check_costs(costs), X, rows)
    if rule.needs_costs:
        raise ValueError(
            "costs: expected those of the rows, since they differ by row, got none; pass predict(X, costs=Cost(...))"
        )
    if not hasattr(X, "columns"):
        raise ValueError(
            f"costs: expected a frame with the column {rule.columns[0]!r}, got {type(X).__name__}; pass costs=Cost(...)"
        )
    return rule.costs_of(X)


def _check_costs(costs: Any) -> Cost:
    if not isinstance(costs, Cost) or costs.matrix is not None:
        raise ValueError(f"costs: expected a Cost of these rows, Cost(fp=..., fn=...), got {costs!r}")
    return costs


def _put_in_columns(cost: Cost, X: Any, rows: int) -> Cost:
    if cost.columns:
        if not hasattr(X, "columns"):
            raise ValueError(
                f"costs: expected a frame with the column {cost.columns[0]!r}, got {type(X).__name__}; pass "
                "costs=Cost(fp=..., fn=...) with arrays"
            )
        cost = cost.of_table(X)
    if cost.rows is not None and cost.rows != rows:
        raise ValueError(
            f"costs: expected one number for each of {rows} rows, got {cost.rows}; pass costs=cost.take(rows)"
        )
    return cost


def has_cost_rule(cost: Cost | None, task: Task) -> bool:
    """Tell whether the rule is that of the least expected cost, instead of a threshold that is tuned alone."""
    return cost is not None and (task == "binary" or cost.matrix is not None)


def tune_fitted_costs(
    metric: Any, costs: Cost, scores: Tensor, targets: Tensor, weight: Any, of_logits: bool = False
) -> CostTuning:
    """Return the cheapest rule for out-of-fold scores; it knows the columns that the metric names."""
    found = tune_cost_rule(costs, scores, targets, weight=weight, of_logits=of_logits)
    return CostTuning(name_columns(found.rule, metric), found.tuning)


def name_columns(rule: Rule, metric: Any) -> Rule:
    """Return the rule with the names of the columns that have costs, if the metric has them."""
    if not isinstance(rule, LeastCost) or not isinstance(metric, Cost):
        return rule
    named = [getattr(metric, cell) for cell in CELLS]
    known = tuple(
        name if price == PER_ROW and isinstance(name, str) else price
        for name, price in zip(named, rule.prices, strict=True)
    )
    return replace(rule, prices=known)
