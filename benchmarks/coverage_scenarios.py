"""The scenarios of ``coverage.py``, and the truth in each.

Scores of positives and negatives are normal, one standard deviation wide, so that the value of every metric in the
whole population is known. ``lift`` is how far positives score above negatives: 0.5 is an AUROC of 0.64, 1.5 of 0.86 and
3 of 0.98.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

import metricgrad as mg

METRICS = ("f1", "precision", "recall", "auroc", "average_precision")


class Binary(NamedTuple):
    """One label. ``drawn``: every row is positive with the rate's probability, otherwise exactly ``positives`` are."""

    positives: int
    rate: float
    lift: float
    drawn: bool = False

    @property
    def n(self) -> int:
        """The rows of a data set."""
        return round(self.positives / self.rate)


class Macro(NamedTuple):
    """Several labels, independent of each other, at ``lift`` 1.5; some have few positives in a data set."""

    n: int
    rates: tuple[float, ...]


class Classes(NamedTuple):
    """One of several classes in each row: the score of the true class is 1.5 above the others', the argmax decides."""

    n: int
    rates: tuple[float, ...]


class Paired(NamedTuple):
    """Two models on the same rows, with correlated scores; ``lifts`` is that of each."""

    positives: int
    rate: float
    lifts: tuple[float, float]


class TuningSpec(NamedTuple):
    """A threshold tuned for F1 on the rows that it is evaluated on."""

    positives: int
    rate: float
    lift: float


POSITIVES = (5, 9, 30, 100)
RATES = (0.05, 0.2, 0.5)
LIFTS = (0.5, 1.5, 3.0)
FEW_LABELS = (0.2, 0.1, 0.3, 0.5, 0.15)
RARE_LABELS = (0.05, 0.1, 0.2, 0.3, 0.5)
MANY_LABELS = (0.05, 0.1, 0.15, 0.2) * 5

BINARY = [
    *(Binary(*each) for each in product(POSITIVES, RATES, LIFTS)),
    *(Binary(*each, drawn=True) for each in product((9, 30), RATES, LIFTS)),
]
MACRO = [Macro(n, rates) for rates in (FEW_LABELS, RARE_LABELS, MANY_LABELS) for n in (60, 100, 300, 1000)]
CLASSES = [Classes(n, (0.5, 0.3, 0.15, 0.05)) for n in (60, 100, 300, 1000)]
PAIRED = [Paired(*each) for each in product((5, 9, 30, 100), (0.05, 0.2), ((1.5, 1.5), (2.0, 1.0)))]
PAIRED_TUNED = [Paired(*each) for each in product((5, 9, 30), (0.2,), ((1.5, 1.5), (2.0, 1.0)))]
TUNED = [TuningSpec(*each) for each in product((5, 9, 30, 100), (0.2,), LIFTS)]

# The truth

NORMAL = NormalDist()
SHARED = 0.5
"""The correlation of the scores of two models, given the class."""
LIFT, THRESHOLD = 1.5, 0.75
"""Of several labels."""


@cache
def break_even(rate: float, lift: float) -> float:
    """Return the threshold that predicts as many positives as there are."""
    low, high = -20.0, 20.0
    for _ in range(100):
        middle = (low + high) / 2
        predicted = rate * NORMAL.cdf(lift - middle) + (1 - rate) * NORMAL.cdf(-middle)
        low, high = (middle, high) if predicted > rate else (low, middle)
    return low


@cache
def find_truth(rate: float, lift: float, threshold: float) -> dict[str, float]:
    """Return the metrics of a threshold in the whole population."""
    hit, alarm = NORMAL.cdf(lift - threshold), NORMAL.cdf(-threshold)
    found, false = rate * hit, (1 - rate) * alarm
    # Average precision is the mean precision at the score of a random positive.
    scores = torch.linspace(lift - 9, lift + 9, 20_001, dtype=torch.float64)
    # erfc keeps the far tail, where ndtr is 0 and precision would be 0 / 0.
    tp, fp = (weight * torch.erfc((scores - mean) / math.sqrt(2)) for weight, mean in ((rate, lift), (1 - rate, 0.0)))
    density = torch.exp(-((scores - lift) ** 2) / 2) / math.sqrt(2 * math.pi)
    return {
        "f1": 2 * found / (found + false + rate),
        "precision": found / (found + false),
        "recall": hit,
        "auroc": NORMAL.cdf(lift / math.sqrt(2)),
        "average_precision": float(torch.trapezoid(density * tp / (tp + fp), scores)),
    }


@cache
def find_truth_of_classes(rates: tuple[float, ...]) -> float:
    """Return the macro F1 of the argmax in the whole population, as two million rows show it."""
    scores, targets = draw_classes(Classes(2_000_000, rates), torch.Generator().manual_seed(0))
    return float(mg.evaluate(scores, targets, "f1", task="multiclass")["f1"])


# Data sets


def draw_targets(n: int, positives: int, rate: float, drawn: bool, g: torch.Generator) -> Tensor:
    """Return the targets of a data set, with at least five positives."""
    while drawn:
        y = (torch.rand(n, generator=g) < rate).long()
        if y.sum() >= 5:
            return y
    return (torch.arange(n) < positives).long()


def draw_scores(targets: Tensor, lift: float, g: torch.Generator) -> Tensor:
    """Return normal scores, ``lift`` higher for positives."""
    return torch.randn(targets.shape, generator=g, dtype=torch.float64) + lift * targets


def draw_pair(targets: Tensor, lifts: tuple[float, float], g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the scores of two models."""
    common, *own = torch.randn(3, len(targets), generator=g, dtype=torch.float64)
    noise = (math.sqrt(SHARED) * common + math.sqrt(1 - SHARED) * each for each in own)
    first, second = (each + lift * targets for each, lift in zip(noise, lifts, strict=True))
    return first, second


def draw_labels(scenario: Macro, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return scores and targets, ``(n, labels)``."""
    y = (torch.rand(scenario.n, len(scenario.rates), generator=g) < torch.tensor(scenario.rates)).long()
    return draw_scores(y, LIFT, g), y


def draw_classes(scenario: Classes, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return scores and the classes of rows."""
    y = torch.multinomial(torch.tensor(scenario.rates), scenario.n, replacement=True, generator=g)
    return draw_scores(torch.nn.functional.one_hot(y, len(scenario.rates)), LIFT, g), y
