"""A run that has lost its gradient: MetricLoss says so once, HybridLoss goes on learning."""

from __future__ import annotations

import warnings
from typing import Any, Literal

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


OPTIONS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "one label": ("binary", {}, (64,)),
    "a label with an axis of its own": ("binary", {}, (64, 1)),
    "a large batch of one label": ("binary", {}, (700_000,)),
    "several thresholds": ("binary", {"threshold": (0.3, 0.5)}, (64,)),
    "images": ("binary", {"per_image": True}, (4, 8, 8)),
    "labels, macro": ("multilabel", {}, (64, 3)),
    "labels, micro": ("multilabel", {"average": "micro"}, (64, 3)),
    "labels, weighted": ("multilabel", {"average": "weighted"}, (64, 3)),
    "labels, samples": ("multilabel", {"average": "samples"}, (64, 3)),
    "labels, some": ("multilabel", {"labels": [0, 2]}, (64, 3)),
    "one of several labels": ("multilabel", {}, (64, 1)),
    "a large batch of labels": ("multilabel", {}, (200_000, 3)),
    "classes, macro": ("multiclass", {}, (64, 3)),
    "classes, micro": ("multiclass", {"average": "micro"}, (64, 3)),
    "classes, some": ("multiclass", {"labels": [1]}, (64, 3)),
    "classes, absent ones skipped": ("multiclass", {"empty_classes": "skip"}, (64, 3)),
    "maps of classes": ("multiclass", {}, (4, 3, 8, 8)),
    "a large batch of classes": ("multiclass", {}, (200_000, 3)),
}


@pytest.mark.parametrize("metric", ["f1", "precision"])
@pytest.mark.parametrize("how", ["plain", "float64", "weighted"])
@pytest.mark.parametrize("name", OPTIONS)
def test_whatever_is_counted_is_checked_without_an_error(name: str, how: str, metric: str) -> None:
    """The sums and their derivatives are numbers, tensors or arrays, by the way that they are computed."""
    task, options, shape = OPTIONS[name]
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64 if how == "float64" else torch.float32)
    logits.requires_grad_()
    if task == "multiclass":
        targets = torch.randint(0, 3, (shape[0], *shape[2:]), generator=generator)
    else:
        targets = (torch.rand(shape, generator=generator) < 0.3).float()
    weight = torch.ones(shape[0]) if how == "weighted" else None
    loss: Any = mg.MetricLoss(metric, task=task, **options)  # type: ignore[arg-type]
    loss.objective._calls_until_check = 1
    loss(logits, targets, weight).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
