"""The training loop that all papers share: Adam on random batches, stopped early by a value on validation rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]
"""The loss of a batch: logits and targets in, a scalar out."""


DEFAULT = "MetricClassifier"
"""The row of our estimator with its defaults: it takes training and validation rows, and tunes by cross-fitting."""


@dataclass(frozen=True)
class Rows:
    """Features and targets as tensors."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def __add__(self, other: Rows) -> Rows:
        """Return the rows of both: what our estimators are fitted on, since they make their own validation rows."""
        return Rows(torch.cat([self.x, other.x]), torch.cat([self.y, other.y]))


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train; ``patience`` counts epochs without a better validation value.

    Adam, or with a ``weight_decay`` AdamW, which is Adam without one; or another optimizer of ``OPTIMIZERS``.
    """

    learning_rate: float = 1e-3
    batch_size: int = 1024
    epochs: int = 1000
    patience: int = 100
    weight_decay: float = 0.0
    optimizer: str = "Adam"


OPTIMIZERS: dict[str, Callable[[Any, Schedule], torch.optim.Optimizer]] = {
    "Adam": lambda parameters, by: torch.optim.AdamW(
        parameters, by.learning_rate, weight_decay=by.weight_decay, fused=True
    ),
    "RMSprop": lambda parameters, by: torch.optim.RMSprop(parameters, by.learning_rate),
    "SGD": lambda parameters, by: torch.optim.SGD(parameters, by.learning_rate),
    "SGD with momentum": lambda parameters, by: torch.optim.SGD(parameters, by.learning_rate, momentum=0.9),
}


class Dropout(nn.Module):
    """Like ``nn.Dropout``, which on a CPU takes half of a training step of these networks to draw its numbers."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Return the inputs, in training each with probability ``p`` set to 0 and otherwise divided by 1 − p."""
        if not self.training or not self.p:
            return x
        return x * ((torch.rand_like(x) >= self.p) / (1 - self.p))


def dense(sizes: list[int], dropout: float = 0.0) -> nn.Sequential:
    """Return a network of dense layers with ReLU and dropout between them; the last layer gives logits."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU(), Dropout(dropout)]
    return nn.Sequential(*layers[:-2])


def train(
    model: nn.Module,
    loss: Loss,
    rows: Rows,
    validation: Rows,
    schedule: Schedule,
    seed: int,
    stop_by: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> int:
    """Train a model in place, leave it with the parameters of its best epoch, and return the number of epochs.

    The best epoch has the lowest ``stop_by`` (the training loss, unless given) on all validation rows at once.
    """
    stop_by = stop_by or loss
    generator = torch.Generator().manual_seed(seed)
    optimizer = OPTIMIZERS[schedule.optimizer](model.parameters(), schedule)
    lowest, best, since = float("inf"), copy.deepcopy(model.state_dict()), 0
    epochs = 0
    while epochs < schedule.epochs and since < schedule.patience:
        epochs += 1
        model.train()
        for batch in torch.randperm(len(rows), generator=generator).split(schedule.batch_size):
            optimizer.zero_grad()
            # Losses may have no gradient on a batch without positives; such a step changes nothing.
            loss(model(rows.x[batch]), rows.y[batch]).backward()
            optimizer.step()
        with torch.no_grad():  # a loss may have parameters of its own
            value = float(stop_by(logits_of(model, validation.x), validation.y))
        if value < lowest:
            lowest, best, since = value, copy.deepcopy(model.state_dict()), 0
        else:
            since += 1
    model.load_state_dict(best)
    return epochs


@torch.no_grad()
def logits_of(model: nn.Module, x: Tensor, batch_size: int = 8192) -> Tensor:
    """Return the logits of all rows, without dropout."""
    model.eval()
    return torch.cat([model(part) for part in x.split(batch_size)])
