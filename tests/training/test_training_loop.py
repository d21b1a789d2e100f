"""The training loop moves weights as torch's own optimisers do, and averages them."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metricgrad.training.training_loop import TrainingData, TrainingSettings, _WeightAverage, train


def _data() -> TrainingData:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 4, generator=generator)
    return TrainingData(features, (features[:, 0] > 0).float())


def _network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


@pytest.mark.parametrize(
    ("optimiser", "kind"), [("adamw", torch.optim.AdamW), ("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)]
)
def test_weights_are_those_of_the_optimiser_of_torch(optimiser: Any, kind: Any) -> None:
    data = _data()
    settings = TrainingSettings(epochs=7, batch_size=60, optimiser=optimiser, batches="shuffled", learning_rate=0.02)
    model = _network()
    train(model, nn.BCEWithLogitsLoss(), data, settings, seed=3)
    wanted = _network()
    options = {"momentum": 0.9} if optimiser == "sgd" else {"fused": True}
    steps = kind(wanted.parameters(), lr=0.02, weight_decay=1e-4, **options)
    generator = torch.Generator().manual_seed(3)
    for _ in range(7):
        order = torch.randperm(60, generator=generator)
        steps.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(
            wanted(data.features[order]).squeeze(1), data.targets[order]
        ).backward()
        steps.step()
    for found, other in zip(model.parameters(), wanted.parameters(), strict=True):
        assert torch.equal(found, other)


def test_a_parameter_without_gradient_stays() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Parameter(torch.tensor(2.0))

        def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
            return nn.functional.binary_cross_entropy_with_logits(logits, targets)

    loss = Loss()
    model = _network()
    before = copy.deepcopy(model)
    train(model, loss, _data(), TrainingSettings(epochs=2))
    assert loss.unused.item() == 2.0
    assert not any(torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))


@pytest.mark.parametrize("buffers", [False, True])
def test_weights_are_averaged_and_counts_are_copied(buffers: bool) -> None:
    norm: list[nn.Module] = [nn.BatchNorm1d(4)] if buffers else []
    model = nn.Sequential(*norm, _network())
    averaged = copy.deepcopy(model)
    before = copy.deepcopy(model.state_dict())
    average = _WeightAverage(averaged, model)
    assert average.has_buffers == buffers
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    model(torch.randn(10, 4, generator=torch.Generator().manual_seed(0)))
    average.update(0.75)
    now = model.state_dict()
    for name, found in averaged.state_dict().items():
        wanted = torch.lerp(before[name], now[name], 0.25) if found.is_floating_point() else now[name]
        torch.testing.assert_close(found, wanted)


def test_training_does_not_import_the_compiler_of_torch() -> None:
    script = """
import sys, torch
from torch import nn
from metricgrad.training.training_loop import TrainingSettings, TrainingData, train
data = TrainingData(torch.randn(40, 2), torch.arange(40).remainder(2).float())
train(nn.Linear(2, 1), nn.BCEWithLogitsLoss(), data, TrainingSettings(epochs=1))
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
