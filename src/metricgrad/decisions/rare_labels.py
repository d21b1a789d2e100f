"""Rare labels: where the threshold (or offset) of a label comes from that has too few samples to be tuned on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

FEWEST_TO_TUNE = 20
"""With fewer positives or negatives than this a label is rare: a threshold tuned on them is mostly noise."""

FEWEST_TO_TUNE_ALONE = 50
"""With fewer than this a label gains from a threshold shared with others: benchmarks/rare_labels.py."""

ThresholdSource = Literal["pooled", "own", "fixed"]
"""Where a threshold comes from: shared with other rare labels, tuned on the label's own data, or the default rule."""


def check_rare_labels(rare_labels: str) -> None:
    """Raise if this is no way to treat rare labels."""
    known = get_args(ThresholdSource)
    if rare_labels not in known:
        raise ValueError(f"rare_labels: expected one of {', '.join(map(repr, known))}, got {rare_labels!r}")


@dataclass(frozen=True)
class RareLabelPlan:
    """Where the threshold of each label comes from, and in words why some are not their own; None if all are."""

    sources: tuple[ThresholdSource, ...]
    caution: str | None = None

    @classmethod
    def same_for_all(cls, source: ThresholdSource, labels: int, caution: str | None = None) -> RareLabelPlan:
        """Return the plan in which all labels are treated alike."""
        return cls((source,) * labels, caution)

    @property
    def groups(self) -> list[list[int]]:
        """The labels that share a threshold; most are alone."""
        alone = [[label] for label, source in enumerate(self.sources) if source != "pooled"]
        pooled = [label for label, source in enumerate(self.sources) if source == "pooled"]
        return [*alone, pooled] if pooled else alone

    @property
    def tunes_any(self) -> bool:
        """Whether anything is tuned."""
        return any(source != "fixed" for source in self.sources)
