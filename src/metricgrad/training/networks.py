"""Networks for tables: linear, the papers' multi-layer perceptrons, and TabM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from metricgrad.core.metrics.scalars import is_whole
from metricgrad.training.tabm import TabM

if TYPE_CHECKING:
    from metricgrad.core.batch import Task

HIDDEN_SIZES: dict[str, tuple[int, ...]] = {"linear": (), "mlp": (32, 16), "mlp-large": (512, 256, 128)}
"""Hidden layers by name: none, and the two networks of the binary paper [tsoi2022]."""

Model = str | Sequence[int] | nn.Module | Callable[[int, int], nn.Module]


def mlp(inputs: int, outputs: int, hidden: Sequence[int] = HIDDEN_SIZES["mlp"], dropout: float = 0.0) -> nn.Sequential:
    """Return a network of ReLU layers with dropout between them [npfl129]; no hidden layer is a linear model.

    >>> mlp(4, 1, hidden=(8,))
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=1, bias=True)
    )
    """
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.ReLU()]
        if dropout:
            layers.append(nn.Dropout(dropout))
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def build_network(model: Model, inputs: int, outputs: int, dropout: float, task: Task) -> nn.Module:
    """Return the network that ``model`` names: a name, hidden sizes, a function of (inputs, outputs), or a module."""
    if isinstance(model, nn.Module):
        return model
    if isinstance(model, str):
        if model == "tabm":
            return TabM(inputs, outputs, dropout, task)
        if model not in HIDDEN_SIZES:
            known = ", ".join(map(repr, (*HIDDEN_SIZES, "tabm")))
            raise ValueError(f"model: expected one of {known}, sizes or a module, got {model!r}")
        return mlp(inputs, outputs, HIDDEN_SIZES[model], dropout)
    if callable(model):
        network: Any = model(inputs, outputs)
        if not isinstance(network, nn.Module):
            raise ValueError(f"model: expected the function to return an nn.Module, got {type(network).__name__}")
        return network
    sizes: list[Any] = list(model) if isinstance(model, Iterable) else [None]
    if not all(is_whole(size) and size > 0 for size in sizes):
        raise ValueError(f"model: expected hidden sizes as positive numbers, got {model!r}")
    return mlp(inputs, outputs, [int(size) for size in sizes], dropout)
