"""Constraints: a metric and the least it must reach, as in "precision >= 0.9"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.metrics import Metric, get, name_of

if TYPE_CHECKING:
    from metricgrad.counts import Counts


@dataclass(frozen=True)
class Constraint:
    """``metric`` (higher is better) must reach ``bound``."""

    metric: Metric
    bound: float

    def __str__(self) -> str:
        return f"{name_of(self.metric)} >= {self.bound:g}"


def parse(subject_to: Any) -> tuple[Constraint, ...]:
    """Read constraints: "precision >= 0.9", several of them (a comma, or a list), or {metric: bound}.

    >>> [str(c) for c in parse("precision>=0.9, recall >= .5")]
    ['precision >= 0.9', 'recall >= 0.5']
    """
    if subject_to is None:
        return ()
    if isinstance(subject_to, Constraint):
        return (subject_to,)
    if isinstance(subject_to, Mapping):
        return tuple(_checked(metric, bound) for metric, bound in subject_to.items())
    if isinstance(subject_to, str):
        return tuple(_read(part) for part in subject_to.split(","))
    if isinstance(subject_to, Iterable):
        return tuple(constraint for part in subject_to for constraint in parse(part))
    raise ValueError(f"subject_to: expected 'metric >= number' or {{metric: number}}, got {subject_to!r}")


def _read(text: str) -> Constraint:
    match = re.fullmatch(r"\s*(\S+?)\s*(?:>=|≥)\s*([-+.\deE]+)\s*", text)
    try:
        return _checked(match[1], float(match[2]))  # type: ignore[index]
    except TypeError:
        raise ValueError(f"subject_to: expected 'metric >= number', got {text!r}") from None


def _checked(metric: str | Metric, bound: Any) -> Constraint:
    if isinstance(bound, bool) or not isinstance(bound, int | float) or bound != bound:
        raise ValueError(f"subject_to: expected a number for {metric!r} to reach, got {bound!r}")
    return Constraint(get(metric), float(bound))


def lower_bound(metric: Metric, counts: Counts, confidence: float, scale: float = 1.0) -> Tensor:
    """Return a one-sided lower confidence bound of a metric of hard counts, elementwise.

    The delta method on the four cells, each with z²/2 pseudo-observations: for a proportion that is the bound of
    Agresti and Coull [agresti1998], which, unlike the plain one, does not claim certainty after a single success.
    ``scale``: the number of observations that a unit of weight stands for.
    """
    z = NormalDist().inv_cdf(confidence)
    with torch.enable_grad():
        leaf = counts.map(lambda cell: (cell * scale + z**2 / 2).detach().requires_grad_())
        values = metric(leaf)
        grads = torch.autograd.grad(values.sum(), leaf.cells(), allow_unused=True)
    slopes = [torch.zeros_like(values) if g is None else g for g in grads]
    total = sum(cell.detach() for cell in leaf.cells())
    mean = sum(g * cell.detach() for g, cell in zip(slopes, leaf.cells(), strict=True)) / total
    variance = sum(g**2 * cell.detach() for g, cell in zip(slopes, leaf.cells(), strict=True)) - total * mean**2
    return values.detach() - z * torch.sqrt(variance.clamp(min=0))
