"""Score tables: what a curve needs of a stream of scores, exactly or in bounded memory with a known error."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from metricgrad.curves import Curve, cumulate

_PENDING = 1 << 20  # rows that may wait before they are merged


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """The distinct scores of one class and the weight of positives and negatives at each; tables add with ``+``.

    ``bits``: how many significant bits of a score are kept. None keeps float64 and is exact, at the memory of the
    distinct scores; 11 tells scores apart that differ by 0.05 % and never holds more than the few ten thousand numbers
    that can be written so. Rounding moves scores down and never past each other, so that a curve of rounded scores
    passes through points of the exact one; ``auroc_error`` and ``average_precision_error`` bound what lies between.
    """

    parts: tuple[tuple[Tensor, Tensor, Tensor], ...]
    bits: int | None = None

    @classmethod
    def of(cls, scores: Tensor, positives: Tensor, negatives: Tensor, bits: int | None = None) -> ScoreTable:
        """Take in ``(N,)`` scores and weights."""
        s = scores.double()
        if bits is not None:
            mantissa, exponent = torch.frexp(s)
            rounded = torch.ldexp(torch.floor(mantissa * 2.0**bits), exponent - bits)
            s = torch.where(s.isfinite(), rounded, s)
        return cls((_merged(s, positives, negatives),), bits)

    def __add__(self, other: ScoreTable) -> ScoreTable:
        if self.bits != other.bits:
            raise ValueError(f"score_bits: expected equal ones to add up, got {self.bits} and {other.bits}")
        parts = self.parts + other.parts
        waiting = sum(len(part[0]) for part in parts[1:])
        if waiting > max(_PENDING, len(parts[0][0])):  # so that merging costs O(log n) a row, however it comes in
            parts = (_merged(*(torch.cat(column) for column in zip(*parts, strict=True))),)
        return ScoreTable(parts, self.bits)

    def curve(self) -> Curve:
        """Return the counts at every score kept."""
        return cumulate(*(torch.cat(column) for column in zip(*self.parts, strict=True)))

    def auroc_error(self) -> float:
        """Return the most by which the AUROC may be off: half of the pairs that rounding made equal."""
        if self.bits is None:
            return 0.0
        counts = self.curve().counts
        pairs = (counts.tp.diff() * counts.fp.diff()).sum()
        return float(pairs / (2 * counts.tp[-1] * counts.fp[-1]))

    def average_precision_error(self) -> float:
        """Return the most by which the average precision may be off: the precision's range within each score."""
        if self.bits is None:
            return 0.0
        counts = self.curve().counts
        tp, fp, p, n = counts.tp[:-1], counts.fp[:-1], counts.tp.diff(), counts.fp.diff()
        least = tp / (tp + fp + n).clamp(min=1e-300)
        most = (tp + p) / (tp + fp + p).clamp(min=1e-300)
        return float((p / counts.tp[-1] * (most - least)).sum())


def _merged(scores: Tensor, positives: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    distinct, index = scores.unique(return_inverse=True)
    p, n = (distinct.new_zeros(len(distinct)).index_add_(0, index, side.double()) for side in (positives, negatives))
    return distinct, p, n
