"""A run that has lost its gradient: MetricLoss says so once, HybridLoss goes on learning."""

from __future__ import annotations

import warnings
from typing import Literal

import pytest
import torch

import metricgrad as mg
from metricgrad.core.objective import CALLS_BETWEEN_CHECKS

pytestmark = pytest.mark.quick

TARGETS = (torch.arange(64) % 16 == 0).float()
MESSAGE = r"^logits: those of all positives .* f1 has no gradient left .*; use HybridLoss"


def test_a_batch_without_gradient_is_named_once() -> None:
    loss = mg.MetricLoss("f1")
    logits = torch.full((64,), -15.0, requires_grad=True)
    with pytest.warns(UserWarning, match=MESSAGE):
        loss(logits, TARGETS).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(logits, TARGETS).backward()


@pytest.mark.parametrize("level", [-5.0, 0.0, 15.0])
def test_batches_with_a_gradient_and_without_positives_are_silent(level: float) -> None:
    logits = torch.full((64,), level, requires_grad=True)
    mg.MetricLoss("f1")(logits, TARGETS).backward()
    mg.MetricLoss("f1")(torch.full((64,), -15.0, requires_grad=True), torch.zeros(64)).backward()


def test_torch_func_is_silent() -> None:
    torch.func.grad(mg.MetricLoss("f1"))(torch.full((64,), -15.0), TARGETS)


def train_from_below(loss: torch.nn.Module) -> float:
    """Return the F1 after 200 steps from a bias of -15."""
    torch.manual_seed(0)
    x = torch.randn(256, 2)
    y = (x[:, 0] > 1).float()
    linear = torch.nn.Linear(2, 1)
    model = torch.nn.Sequential(linear, torch.nn.Flatten(0))
    torch.nn.init.constant_(linear.bias, -15.0)
    optimiser = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    for _ in range(200):
        optimiser.zero_grad()
        loss(model(x), y).backward()
        optimiser.step()
    return mg.evaluate(model(x).detach(), y, "f1", threshold=0.0)["f1"]


def test_the_hybrid_recovers_in_silence_where_the_metric_alone_does_not() -> None:
    assert train_from_below(mg.HybridLoss("f1")) > 0.8
    with pytest.warns(UserWarning, match=MESSAGE):
        assert train_from_below(mg.MetricLoss("f1")) == 0.0


@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
def test_several_classes_are_checked_now_and_then(task: Literal["multilabel", "multiclass"]) -> None:
    loss = mg.MetricLoss("f1", task=task)
    if task == "multilabel":
        logits = torch.full((64, 3), -15.0)
        targets = TARGETS.unsqueeze(1).expand(64, 3)
    else:
        logits = torch.tensor([40.0, 0.0, 0.0]).repeat(64, 1)
        targets = torch.arange(64) % 2 + 1
    logits.requires_grad_()
    for _ in range(CALLS_BETWEEN_CHECKS - 1):
        loss(logits, targets).backward()
    with pytest.warns(UserWarning, match="has no gradient left"):
        loss(logits, targets).backward()
    alive = mg.MetricLoss("f1", task=task)
    for _ in range(CALLS_BETWEEN_CHECKS):
        alive(logits / 10, targets).backward()
