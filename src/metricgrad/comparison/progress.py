"""How a run shows its progress on stderr.

Names and cells come from the data, so they are printed as plain text, never as markup.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from metricgrad.comparison.candidate_runs import Failure
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from metricgrad.comparison.candidate_runs import CandidateRun

MOST_WARNINGS = 12
"""The most warnings to print; the report has all of them."""

MOST_LINES = 10
"""How often the time left is printed where there is no terminal."""


class LiveProgress:
    """Shows the progress of a run: a bar with the time left on a terminal, a line now and then elsewhere.

    ``verbose``: print a line for every unit, and all warnings.
    """

    def __init__(self, verbose: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._verbose = verbose
        self._bar: Progress | None = None
        self._bar_task = TaskID(0)
        self._total = self._done = self._earlier = 0
        self._started = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show_profile(self, lines: Sequence[tuple[str, str]], warnings: Sequence[str]) -> None:
        """Print a profile of the data."""
        for label, text in lines:
            self.say(f"{label}: {text}")
        most = len(warnings) if self._verbose else MOST_WARNINGS
        for text in warnings[:most]:
            self.say(f"warning: {text}")
        if len(warnings) > most:
            self.say(f"warning: {len(warnings) - most} more warnings are in the report")

    def start(self, total: int, done: int) -> None:
        """Show the bar."""
        if done:
            self.say(f"{done} of {total} units are finished already")
        self._total = total
        self._done = done
        self._earlier = done
        self._started = time.monotonic()
        if self.console.is_terminal:
            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(TextColumn("{task.description}"), *columns, console=self.console, transient=True)
            self._bar_task = self._bar.add_task("training", total=total, completed=done)
            self._bar.start()

    def finish_unit(self, run: CandidateRun | Failure) -> None:
        """Advance the bar, or print a line now and then."""
        self._done += 1
        if isinstance(run, Failure):
            self.say(f"{run.contender} failed: {run.why}")
        elif self._verbose:
            self.say(f"repeat {run.repeat + 1}, {run.candidate}: fitted in {run.seconds:.1f} s")
        if self._bar is not None:
            self._bar.advance(self._bar_task)
        elif self._done < self._total and self._reaches_next_line():
            each = (time.monotonic() - self._started) / (self._done - self._earlier)
            left = format_time(each * (self._total - self._done))
            self.say(f"{self._done} of {self._total} units are finished, about {left} left")

    def say(self, text: str) -> None:
        """Print a sentence."""
        self.console.print(Text(one_line(text)))

    def _reaches_next_line(self) -> bool:
        """Return whether the last unit completed another of ``MOST_LINES`` equal parts of the work."""
        parts_now = MOST_LINES * self._done // self._total
        parts_before = MOST_LINES * (self._done - 1) // self._total
        return parts_now > parts_before


class NoProgress:
    """Prints nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show_profile(self, lines: Sequence[tuple[str, str]], warnings: Sequence[str]) -> None:
        """Show nothing."""

    def start(self, total: int, done: int) -> None:
        """Show nothing."""

    def finish_unit(self, run: CandidateRun | Failure) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""


def format_time(seconds: float) -> str:
    """Return a time for people, not more exact than it can be known.

    >>> format_time(8.2), format_time(340), format_time(9000)
    ('8 s', '6 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
