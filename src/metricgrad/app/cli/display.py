"""Terminal output: leaderboard and verdict on stdout, warnings on stderr.

Names and cells come from the data, so they are printed as plain text, never as markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from metricgrad.app.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self


def print_leaderboard(summary: dict[str, Any]) -> None:
    """Print the leaderboard and the verdict."""
    console = _make_console()
    metric, constrained = summary["metric"], summary["metric"]["subject_to"] is not None
    table = Table(title=None, box=None, pad_edge=False)
    table.add_column("contender, rule", no_wrap=True)
    for name in (metric["name"], "95 % interval", "gain", "p", *metric["also"]):
        table.add_column(Text(one_line(name, 24)), justify="right", no_wrap=True)
    if constrained:
        table.add_column("met", justify="right")
    for row in summary["leaderboard"]:
        gain = row["against"].get("cross-entropy tuned")
        cells = [
            f"{row['contender']}, {row['rule']}",
            f"{row['value']:.3f}",
            "" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}",
            "" if gain is None else f"{gain['difference']:+.3f}",
            "" if gain is None or gain["p"] is None else f"{gain['p']:.2g}",
            *(f"{row['others'][name]:.3f}" if name in row["others"] else "" for name in metric["also"]),
        ]
        if constrained:
            cells.append(f"{row['held']} of {summary['repeats']}" if row["feasible"] else "infeasible")
        ship = (row["contender"], row["rule"]) == (summary["verdict"]["ship"], summary["verdict"]["rule"])
        table.add_row(*(Text(one_line(cell), style="bold" if ship else "") for cell in cells))
    console.print(table)
    console.print(
        Text(
            "gain: difference to cross-entropy, tuned; p: of the gain, by the corrected resampled t-test, not adjusted"
        )
    )
    if members := ", ".join(f"{one['weight']:.2f} {one['name']}" for one in summary.get("members", ())):
        console.print(Text(one_line(f"ensemble: {members} (mean weights over the repeats)")), soft_wrap=True)
    for name, why in summary["left_out"]:
        console.print(Text(one_line(f"left out: {name}, {why}")))
    console.print()
    console.print(Text(one_line(summary["verdict"]["headline"]), style="bold"), soft_wrap=True)
    console.print(Text(one_line(summary["verdict"]["text"])), soft_wrap=True)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print labels and texts in two columns."""
    console, width = _make_console(), max(len(label) for label, _ in pairs)
    for label, text in pairs:
        console.print(Text(f"{label:<{width}}  {one_line(text)}"), soft_wrap=True)


def _make_console() -> Console:
    # Output to a file or a pipe must not be cut at the width of a terminal.
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def print_warnings(warnings: Sequence[str]) -> None:
    """Print warnings on stderr."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for text in warnings:
        console.print(Text(f"warning: {one_line(text)}"))


class RowProgress:
    """Shows the number of finished rows on a terminal."""

    def __init__(self, silent: bool) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.completed:,.0f} rows"),
            TextColumn("{task.speed:,.0f} per second"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=silent or not console.is_terminal,
        )
        self._bar_task = self._bar.add_task("rows", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def __call__(self, rows: int) -> None:
        self._bar.advance(self._bar_task, rows)
