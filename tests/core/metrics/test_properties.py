"""What is known about metrics: declared, or found by evaluating them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch

import metricgrad as mg
from metricgrad.core.counts import Confusion, Counts
from metricgrad.core.metrics.expressions import trace
from metricgrad.core.metrics.properties import _find_range, is_quasi_convex
from metricgrad.metrics import MetricProperties, declare, properties_of, ratio
from own_metrics import capped_profit, odds_ratio, profit_per_row, skill, total_profit

pytestmark = pytest.mark.quick

SIGNED = {"informedness", "kappa", "markedness", "mcc", "quadratic_kappa"}


@pytest.mark.parametrize("name", [*mg.metrics.names(), "f0", "f2", "savings(fp=1 fn=10)", "f_beta(beta=0.5/1/2)"])
def test_ranges_of_the_library(name: str) -> None:
    found = properties_of(mg.metrics.get(name))
    low = -1.0 if name in SIGNED else 0.0
    if name.startswith("savings"):  # an error may cost more than all that there is to save
        low = -math.inf
    assert (found.low, found.high) == (low, 1.0)


def test_ranges_of_own_metrics() -> None:
    assert properties_of(skill).limits == (-1.0, 1.0)
    assert properties_of(profit_per_row).limits == (-4.0, 30.0)
    assert properties_of(total_profit).limits is None
    assert (properties_of(total_profit).low, properties_of(total_profit).high) == (-math.inf, math.inf)
    assert properties_of(capped_profit).high == 100.0
    assert properties_of(odds_ratio).high == math.inf
    assert properties_of(lambda c: ratio(c.tp, c.tp + c.fp + 1)).high == math.inf  # never reached, so not found
    assert properties_of(partial(skill)).limits == (-1.0, 1.0)


def signs(metric: Any) -> tuple[Any, ...]:
    found = properties_of(metric)
    return found.tp, found.fp, found.fn, found.tn


def test_directions() -> None:
    assert signs(mg.metrics.f1) == (1, -1, -1, 0)
    assert signs(mg.metrics.recall) == (1, 0, -1, 0)
    assert signs(mg.metrics.accuracy) == (1, -1, -1, 1)
    assert signs(total_profit) == (1, -1, 0, 0)
    assert signs(profit_per_row) == (1, -1, None, None)  # a row more makes a profit smaller, and a loss too
    assert signs(lambda c: ratio(c.tp - c.tp, c.tp)) == (0, 0, 0, 0)
    assert properties_of(mg.metrics.f1).rewards_right_decisions
    assert properties_of(profit_per_row).rewards_right_decisions
    assert not properties_of(lambda c: ratio(c.tp * c.fp, c.total * c.total)).rewards_right_decisions
    assert not properties_of(lambda c: -c.tp).rewards_right_decisions


def test_directions_hold_on_other_counts() -> None:
    g = torch.Generator().manual_seed(3)
    before = (10 ** (4 * torch.rand(4, 5000, generator=g, dtype=torch.float64))).round() - 1
    more = torch.randint(1, 50, (5000,), generator=g)
    for name in mg.metrics.names():
        metric = mg.metrics.get(name)
        if not mg.metrics.of_counts(metric):
            continue
        for cell, sign in enumerate(signs(metric)):
            after = before.clone()
            after[cell] += more
            change = metric(Counts(*after)) - metric(Counts(*before))
            if sign is not None:
                assert (change * sign if sign else -change.abs()).min() >= -1e-12, (name, cell)


def test_where_a_metric_is_undefined() -> None:
    assert properties_of(mg.metrics.f1).defined_without_positives
    assert not properties_of(lambda c: c.tp / (c.tp + c.fn)).defined_without_positives
    assert not properties_of(partial(mg.metrics.recall, empty=math.nan)).defined_without_positives
    assert signs(partial(mg.metrics.recall, empty=math.nan))[0] is None


SAME_FOR_BOTH_CLASSES = {
    *("accuracy", "balanced_accuracy", "detection_cost", "g_mean", "informedness", "kappa", "markedness"),
    *("mcc", "quadratic_kappa", "savings", "subset_accuracy", "worst_recall"),
}


@pytest.mark.parametrize("name", mg.metrics.names())
def test_which_metrics_are_the_same_for_both_classes(name: str) -> None:
    assert properties_of(mg.metrics.get(name)).same_for_both_classes == (name in SAME_FOR_BOTH_CLASSES)


def test_costs_that_differ_are_not_the_same_for_both_classes() -> None:
    assert properties_of(mg.metrics.get("savings(fp=1 fn=1)")).same_for_both_classes
    assert not properties_of(mg.metrics.get("savings(fp=1 fn=10)")).same_for_both_classes


def test_own_metrics_that_are_the_same_for_both_classes() -> None:
    def right_matrix(c: Confusion) -> torch.Tensor:
        return c.matrix.diagonal(dim1=-2, dim2=-1).sum(-1)

    def first_class_matrix(c: Confusion) -> torch.Tensor:
        return c.matrix[..., 0, 0]

    assert properties_of(lambda c: c.tp + c.tn).same_for_both_classes
    assert properties_of(lambda c: c.tp / c.tp + c.tn / c.tn).same_for_both_classes  # NaN at the same counts
    assert not properties_of(lambda c: c.tp + 2 * c.tn).same_for_both_classes
    assert not properties_of(lambda c: c.tp + c.tn - c.fp).same_for_both_classes
    assert properties_of(right_matrix).same_for_both_classes
    assert not properties_of(first_class_matrix).same_for_both_classes
    assert not properties_of(declare(same_for_both_classes=False)(lambda c: c.tp + c.tn)).same_for_both_classes


def test_declared_properties_overrule_the_test() -> None:
    @declare(low=-7.0, high=7.0, fp=None, quasi_convex=True)
    def mine(c: Counts) -> torch.Tensor:
        return total_profit(c)

    for metric in (mine, partial(mine)):
        found = properties_of(metric)
        assert found.limits == (-7.0, 7.0)
        assert (found.tp, found.fp) == (1, None)
        assert is_quasi_convex(metric, 10.0, 20.0)
    with pytest.raises(TypeError, match="hihg: expected a property of a metric, one of low, high, tp"):
        declare(hihg=1.0)


def test_of_what_cannot_be_evaluated_nothing_is_known() -> None:
    def not_elementwise(c: Counts) -> torch.Tensor:
        return c.tp.sum()

    def fails(c: Counts) -> torch.Tensor:
        raise ValueError("mine")

    def fails_on_matrices(c: Confusion) -> torch.Tensor:
        raise ValueError("mine")

    for metric in (not_elementwise, fails, fails_on_matrices):
        assert properties_of(metric) == MetricProperties()


def test_a_metric_that_cannot_be_hashed() -> None:
    class Mine:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, c: Counts) -> torch.Tensor:
            return skill(c)

    assert properties_of(Mine()).limits == (-1.0, 1.0)


def test_a_metric_is_tested_once() -> None:
    calls = []

    def mine(c: Counts) -> torch.Tensor:
        calls.append(1)
        return skill(c)

    properties_of(mine)
    once = len(calls)
    properties_of(mine)
    assert len(calls) == once
    assert properties_of(mg.metrics.get("f3")) is properties_of(mg.metrics.get("f3"))


def test_matrix_metrics() -> None:
    def balance(c: Confusion) -> torch.Tensor:
        right = c.matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
        return ratio(2 * right, c.matrix.sum((-2, -1))) - 1

    assert properties_of(balance).limits == (-1.0, 1.0)
    assert signs(balance) == (None, None, None, None)


# Traces


def run(steps: Any, cells: dict[str, float]) -> float:
    """Compute a trace as the page does."""
    values: list[float] = []
    for operation, *rest in steps:
        operands = [values[i] for i in rest if isinstance(i, int)]
        at_zero = float(rest[-1]) if rest else 0.0
        values.append(cells[operation] if operation in cells else compute(operation, operands, at_zero))
    return values[-1]


def compute(operation: str, operands: list[float], number: float) -> float:
    x, y = [*operands, 0.0, 0.0][:2]
    if operation == "number":
        return number
    if operation == "ratio":
        return x / y if y else number
    if operation == "root":
        return math.sqrt(max(x, 0.0))
    if operation == "log":
        return math.log(x) if x > 0 else number
    return {"+": x + y, "-": x - y, "*": x * y, "/": x / (y or 1.0)}[operation]


def logarithm(c: Counts) -> torch.Tensor:
    return mg.metrics.log(c.tp, empty=-math.inf) - 1 / (1 + c.fp) + -c.fn


TRACED = [mg.metrics.get(n) for n in mg.metrics.names() if n not in ("subset_accuracy", "quadratic_kappa")]


@pytest.mark.parametrize("metric", [*TRACED, skill, total_profit, profit_per_row, odds_ratio, logarithm])
def test_a_trace_computes_the_metric(metric: Any) -> None:
    steps = trace(metric)
    assert steps is not None
    assert len(steps) < 30
    for cells in ((3, 1, 1, 5), (0, 0, 4, 6), (5, 0, 0, 0), (0, 4, 0, 3), (0, 0, 0, 0), (70, 20, 10, 4000)):
        expected = metric(Counts(*(torch.tensor(float(cell), dtype=torch.float64) for cell in cells))).item()
        found = run(steps, dict(zip(("tp", "fp", "fn", "tn"), map(float, cells), strict=True)))
        assert found == pytest.approx(expected, abs=1e-12)


def test_what_is_shared_is_listed_once() -> None:
    def power(c: Counts) -> Any:
        x: Any = c.tp
        for _ in range(60):
            x = x * x
        return x

    assert len(trace(power) or []) == 61


def test_what_cannot_be_traced() -> None:
    assert trace(capped_profit) is None
    assert trace(mg.metrics.subset_accuracy) is None
    assert trace(mg.metrics.get("f_beta(beta=0.5/1/2)")) is None
    assert trace(lambda c: 0.5) == [["number", 0.5]]  # type: ignore[arg-type, return-value]


def test_the_range_of_large_values_is_found_within_their_rounding() -> None:
    grid = torch.tensor([0.0, 1e6], dtype=torch.float64)
    smaller = torch.tensor([0.0, 1e6 - 1e-4], dtype=torch.float64)
    assert _find_range(grid, smaller) == (0.0, 1e6)
    assert _find_range(grid, smaller - 1.0) == (0.0, math.inf)
    assert _find_range(grid, smaller + 1.0) == (-math.inf, 1e6)
