"""What people see: the profile and the progress on stderr, the leaderboard and the verdict on stdout.

Names and cells come from the data: they are shown as plain text, never as markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from metricgrad.app.errors import one_line
from metricgrad.app.study.work import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from metricgrad.app.study.work import Result

WARNINGS = 12
"""So many are shown; the report has all."""


class Live:
    """Shows how a run goes: a bar with the time left on a terminal, a line per unit elsewhere."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._job: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def profile(self, lines: Sequence[tuple[str, str]], warnings: Sequence[str]) -> None:
        """Show what the data are like."""
        for label, text in lines:
            self.say(f"{label}: {text}")
        for text in warnings[:WARNINGS]:
            self.say(f"warning: {text}")
        if len(warnings) > WARNINGS:
            self.say(f"warning: {len(warnings) - WARNINGS} more warnings, in the report")

    def start(self, total: int, done: int) -> None:
        """Show the bar."""
        if done:
            self.say(f"{done} of {total} units were done before")
        if self.console.is_terminal:
            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(TextColumn("{task.description}"), *columns, console=self.console, transient=True)
            self._job = self._bar.add_task("training", total=total, completed=done)
            self._bar.start()

    def unit(self, result: Result) -> None:
        """Move the bar, or write a line."""
        if isinstance(result, Failure):
            self.say(f"{result.contender} failed: {result.why}")
        if self._bar is not None:
            self._bar.advance(self._job)
        elif not isinstance(result, Failure):
            o = result[0]
            values = f"fixed {o.fixed.value:.3f}, tuned {o.tuned.value:.3f}"
            self.say(f"repeat {o.repeat + 1}, {o.contender}: {values} ({o.seconds:.1f} s)")

    def say(self, text: str) -> None:
        """Show a sentence."""
        self.console.print(Text(one_line(text)))


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def profile(self, lines: Sequence[tuple[str, str]], warnings: Sequence[str]) -> None:
        """Show nothing."""

    def start(self, total: int, done: int) -> None:
        """Show nothing."""

    def unit(self, result: Result) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""


def leaderboard(summary: dict[str, Any]) -> None:
    """Print the leaderboard and the verdict."""
    console = _console()
    metric, constrained = summary["metric"], summary["metric"]["subject_to"] is not None
    table = Table(title=None, box=None, pad_edge=False)
    table.add_column("contender, rule", no_wrap=True)
    for name in (metric["name"], "95 % interval", "gain", "p", *metric["also"]):
        table.add_column(Text(one_line(name, 24)), justify="right", no_wrap=True)
    if constrained:
        table.add_column("held", justify="right")
    for row in summary["leaderboard"]:
        gap = row["against"].get("cross-entropy tuned")
        cells = [
            f"{row['contender']}, {row['rule']}",
            f"{row['value']:.3f}",
            "" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}",
            "" if gap is None else f"{gap['difference']:+.3f}",
            "" if gap is None or gap["p"] is None else f"{gap['p']:.2g}",
            *(f"{row['others'][name]:.3f}" if name in row["others"] else "" for name in metric["also"]),
        ]
        if constrained:
            cells.append(f"{row['held']} of {summary['repeats']}" if row["feasible"] else "cannot")
        ship = (row["contender"], row["rule"]) == (summary["verdict"]["ship"], summary["verdict"]["rule"])
        table.add_row(*(Text(one_line(cell), style="bold" if ship else "") for cell in cells))
    console.print(table)
    console.print(Text("gain: over cross-entropy tuned; p: of the gain, corrected resampled t-test, not adjusted"))
    for name, why in summary["left_out"]:
        console.print(Text(one_line(f"left out: {name}, {why}")))
    console.print()
    console.print(Text(one_line(summary["verdict"]["headline"]), style="bold"), soft_wrap=True)
    console.print(Text(one_line(summary["verdict"]["text"])), soft_wrap=True)


def lines(pairs: Sequence[tuple[str, str]]) -> None:
    """Print labels and texts."""
    console, width = _console(), max(len(label) for label, _ in pairs)
    for label, text in pairs:
        console.print(Text(f"{label:<{width}}  {one_line(text)}"), soft_wrap=True)


def _console() -> Console:
    # Into a file or a pipe nothing is cut off for want of width.
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def show_warnings(warnings: Sequence[str]) -> None:
    """Print warnings on stderr."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for text in warnings:
        console.print(Text(f"warning: {one_line(text)}"))


class RowsDone:
    """Counts rows on a terminal."""

    def __init__(self, silent: bool) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.completed:,.0f} rows"),
            TextColumn("{task.speed:,.0f} a second"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=silent or not console.is_terminal,
        )
        self._job = self._bar.add_task("rows", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def __call__(self, rows: int) -> None:
        self._bar.advance(self._job, rows)
