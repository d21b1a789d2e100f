"""Pictures of values with their intervals, one below the other on the same axis: they need no JavaScript."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, floor
from typing import TYPE_CHECKING

from metricgrad.comparison.number_texts import format_interval, format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class IntervalBar:
    """A value with its interval, and the values of single splits if there are any."""

    value: float | None
    low: float | None
    high: float | None
    folds: Sequence[float] = ()

    def list_known(self) -> list[float]:
        """Return all of its numbers that are known."""
        return [x for x in (self.value, self.low, self.high, *self.folds) if x is not None]


class IntervalScale:
    """The axis of several bars, which holds all of them, to whole hundredths.

    ``reference``: where a dashed line is in each.
    """

    def __init__(self, bars: Iterable[IntervalBar], reference: float | None = None) -> None:
        values = [value for bar in bars for value in bar.list_known()]
        self.low = floor(100 * min(values, default=0.0)) / 100
        self.high = ceil(100 * max(values, default=1.0)) / 100
        self.reference = reference

    def place(self, value: float) -> str:
        """Return where a value lies, in percent; what lies outside sticks to the edge."""
        share = (value - self.low) / (self.high - self.low or 1)
        return f"{4 + 92 * min(max(share, 0), 1):.2f}%"

    def draw(self, bar: IntervalBar) -> str:
        """Return the picture of a bar."""
        value = bar.value
        low = bar.low
        high = bar.high
        if value is None:
            return ""
        if value < self.low:
            shapes = '<path class="off" d="M9 5 3 10l6 5"/>'
        else:
            shapes = "".join(f'<circle class="fold" cx="{self.place(fold)}" cy="10" r="1.8"/>' for fold in bar.folds)
            if low is not None and high is not None:
                shapes = (
                    f'<line class="interval" x1="{self.place(low)}" x2="{self.place(high)}" y1="10" y2="10"/>' + shapes
                )
            shapes += f'<circle class="mean" cx="{self.place(value)}" cy="10" r="4.5"/>'
        if self.reference is not None:
            at = self.place(self.reference)
            shapes = f'<line class="reference" x1="{at}" x2="{at}" y1="0" y2="20"/>' + shapes
        spread = format_interval(low, high)
        label = f"{format_value(value)}, interval {spread}" if spread else format_value(value)
        return f'<svg class="bar" height="20" role="img" aria-label="{label}">{shapes}</svg>'

    def describe(self) -> str:
        """Return from where to where the axis runs."""
        low, high = (f"{end:.2f}".replace("-", "−") for end in (self.low, self.high))
        return f"The axis runs from {low} to {high}."


def make_bar_chart(caption: str, bars: Sequence[tuple[str, IntervalBar]]) -> str:
    """Return bars with their names, the first of them set off, or nothing if there are fewer than two to compare."""
    if len(bars) < 2:
        return ""
    scale = IntervalScale([bar for _, bar in bars])
    rows = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{scale.draw(bar)}</td></tr>\n' for name, bar in bars)
    return (
        f'<table class="bars"><caption>{escape(caption)} {scale.describe()}</caption>\n<tbody>{rows}</tbody></table>\n'
    )
