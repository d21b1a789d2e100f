"""The classes of samples: targets checked and numbered, and samples drawn from their classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from metricgrad.core.inputs import as_tensor

if TYPE_CHECKING:
    from metricgrad.core.inputs import ArrayLike


def check_targets(targets: ArrayLike, axes: tuple[int, ...] = (1, 2)) -> Tensor:
    """Return targets as whole numbers on the CPU, or raise."""
    y = as_tensor("targets", targets).cpu()
    if y.dim() not in axes or not y.numel():
        wanted = " or ".join({1: "(N,) classes", 2: "(N, K) labels"}[n] for n in axes)
        raise ValueError(f"targets: expected {wanted}, at least one sample, got shape {tuple(y.shape)}")
    whole = y.long() if y.dim() == 1 else (y != 0).to(torch.uint8)
    if (whole != y).any() or whole.min() < 0:
        raise ValueError(f"targets: expected {'class indices' if y.dim() == 1 else '0 or 1'}, got other numbers")
    return whole


def number_classes(y: Tensor) -> Tensor:
    """Return one class number per sample, 0, 1, …; of labels ``(N, K)`` one per combination, ordered by rare labels."""
    if y.dim() == 2:
        code = torch.zeros(len(y), dtype=torch.long)
        for digit, k in enumerate(y.sum(0).argsort(stable=True).tolist()):
            if digit % 32 == 31:  # keep clear of the 63 bits of an integer
                code = code.unique(return_inverse=True)[1]
            code = 2 * code + y[:, k]
        y = code
    classes: Tensor = y.unique(return_inverse=True)[1]
    return classes


def members_of_classes(classes: Tensor) -> list[Tensor]:
    """Return the samples of each class."""
    sizes = torch.bincount(classes).tolist()
    return list(classes.argsort(stable=True).split(sizes))


def shuffle_within_classes(classes: Tensor, generator: Generator) -> Tensor:
    """Return all samples in order of class, at random within."""
    shuffled = torch.randperm(len(classes), generator=generator)
    return shuffled[classes[shuffled].argsort(stable=True)]


def draw_members(members: Tensor, number: int, generator: Generator) -> Tensor:
    """Draw ``number`` members: all in random order, again and again."""
    if not number:
        return members[:0]
    rounds = -(-number // len(members))
    orders = torch.rand(rounds, len(members), generator=generator).argsort(1)
    return members[orders.view(-1)[:number]]
