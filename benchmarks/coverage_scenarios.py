"""How often 95 % intervals contain the truth, on simulated data sets: the scenarios.

Scores of positives and negatives are normal, one standard deviation wide, so that the value of every metric in the
whole population is known. ``lift`` is how far positives score above negatives: 0.5 is an AUROC of 0.64, 1.5 of 0.86 and
3 of 0.98.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

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


class Tuned(NamedTuple):
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
TUNED = [Tuned(*each) for each in product((5, 9, 30, 100), (0.2,), LIFTS)]
