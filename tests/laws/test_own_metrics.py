"""A metric of one's own, signed or unbounded, does everything that one of the library does."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

import metricgrad as mg
from metricgrad.core.counts import Counts
from metricgrad.core.metrics.class_sums import ClassSums, sum_accuracy
from metricgrad.core.objective import Objective
from metricgrad.decisions.incremental import make_incremental
from own_metrics import capped_profit, odds_ratio, profit_per_row, skill, total_profit

OWN = [skill, profit_per_row, total_profit, odds_ratio, capped_profit]


def data(rows: int = 400, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return probabilities and targets."""
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(rows, generator=g) < 0.2).long()
    return torch.sigmoid(2 * y - 1.5 + torch.randn(rows, generator=g)), y


def value_at(metric: Any, scores: torch.Tensor, y: torch.Tensor, threshold: float) -> float:
    """Return a metric of hard decisions, counted one by one."""
    decided = scores >= threshold
    cells = [decided & (y == 1), decided & (y == 0), ~decided & (y == 1), ~decided & (y == 0)]
    return float(metric(Counts(*(cell.sum().double() for cell in cells))))


@pytest.mark.parametrize("metric", OWN)
def test_loss(metric: Any) -> None:
    scores, y = data(60)
    z = torch.logit(scores).double().requires_grad_()
    loss = mg.MetricLoss(metric)
    value = loss(z, y)
    value.backward()
    assert torch.isfinite(value)
    assert z.grad is not None
    assert z.grad.isfinite().all()
    assert z.grad[y == 1].sum() < 0 or metric is capped_profit
    assert torch.autograd.gradcheck(partial(loss, targets=y), (z.detach().requires_grad_(),), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("metric", OWN)
def test_threshold(metric: Any) -> None:
    scores, y = data()
    found = mg.tune_threshold(metric, scores, y)
    best = max(value_at(metric, scores, y, s) for s in [*scores.tolist(), 2.0])
    assert found.value == pytest.approx(best)
    assert value_at(metric, scores, y, found.threshold) == pytest.approx(best)


def test_intervals_leave_0_to_1() -> None:
    scores, y = data()
    options: dict[str, Any] = {"threshold": 0.9, "replicates": 200}
    signed = mg.bootstrap(scores, y, skill, **options)["skill"]
    assert signed.value == pytest.approx(value_at(skill, scores, y, 0.9))
    assert -1 <= signed.low < signed.value < signed.high < 0
    profit = mg.bootstrap(scores, y, total_profit, threshold=0.5, replicates=200)["total_profit"]
    assert 1 < profit.low < profit.value < profit.high
    loss = mg.bootstrap(1 - scores, y, profit_per_row, threshold=0.7, replicates=200)["profit_per_row"]
    assert loss.low < loss.value < loss.high < 0


@pytest.mark.parametrize("metric", OWN)
@pytest.mark.parametrize("rows", [500, 9000])
def test_ensembles(metric: Any, rows: int) -> None:
    scores, y = data(rows)
    noise = torch.rand(rows, generator=torch.Generator().manual_seed(1))
    candidates = {"good": scores, "noise": noise, "better": (scores + y / 2) / 1.5}
    found = mg.select_ensemble(metric, candidates, y, rounds=4, bags=2)
    alone = max(mg.tune_threshold(metric, one, y).value for one in candidates.values())
    assert found.weights.get("better", 0.0) > 0.5 or metric is capped_profit  # which all reach
    chosen = mg.tune_threshold(metric, sum(w * candidates[name] for name, w in found.weights.items()), y).value
    assert chosen >= 0.95 * alone


def gain_over_half(c: mg.Confusion) -> torch.Tensor:
    return 2 * mg.metrics.accuracy(c) - 1


def sum_gain(weighted_labels: torch.Tensor) -> ClassSums:
    accuracy = sum_accuracy(weighted_labels)
    return accuracy._replace(value=lambda hits: 2 * accuracy.value(hits) - 1)


@mg.metrics.declare(class_sums=sum_gain)
def declared_gain(c: mg.Confusion) -> torch.Tensor:
    return gain_over_half(c)


def test_offsets_of_a_metric_that_declares_its_sums() -> None:
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 4, (300,), generator=g)
    one_hot = torch.nn.functional.one_hot(y, 4).double()
    scores = torch.softmax(torch.randn(300, 4, generator=g) + one_hot, 1)
    assert make_incremental(Objective("multiclass", gain_over_half), one_hot) is None
    assert make_incremental(Objective("multiclass", declared_gain), one_hot) is not None
    slow = mg.tune_threshold(gain_over_half, scores, y, task="multiclass")
    fast = mg.tune_threshold(declared_gain, scores, y, task="multiclass")
    assert fast.value == pytest.approx(slow.value)
    assert fast.value > gain_over_half(mg.Confusion(one_hot.T @ torch.eye(4)[scores.argmax(1)].double())).item()
