"""Terminal output: leaderboard and verdict on stdout, warnings on stderr.

Names and cells come from the data, so they are printed as plain text, never as markup.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

GAP = 2
"""Spaces between columns."""


def print_leaderboard(summary: Mapping[str, Any]) -> None:
    """Print the leaderboard and the verdict."""
    console = _make_console()
    metric, verdict = summary["metric"], summary["verdict"]
    rows = summary["leaderboard"]
    names, columns, dropped = _fit_columns(
        [f"{row['contender']}, {row['rule']}" for row in rows], _list_columns(summary), console.width
    )
    table = Table(title=None, box=None, pad_edge=False)
    table.add_column("contender, rule", width=names, overflow="fold")
    for column in columns:
        table.add_column(Text(column.head), justify="right", width=column.width, overflow="fold")
    for i, row in enumerate(rows):
        ship = (row["contender"], row["rule"]) == (verdict["ship"], verdict["rule"])
        cells = [f"{row['contender']}, {row['rule']}", *(column.cells[i] for column in columns)]
        table.add_row(*(Text(one_line(cell), style="bold" if ship else "") for cell in cells))
    console.print(table)
    title = metric.get("title", metric["name"])
    console.print(Text(one_line(f"{metric['name']}: {title}, mean over {summary['repeats']} repeats")))
    console.print(Text("gain: difference to cross-entropy, tuned; p: that of the gain, adjusted for two references"))
    if dropped:
        console.print(Text(one_line(f"no room for: {', '.join(dropped)} (in the report, or in a wider window)")))
    if members := ", ".join(f"{one['weight']:.2f} {one['name']}" for one in summary.get("members", ())):
        console.print(Text(one_line(f"ensemble: {members} (mean weights over the repeats)")), soft_wrap=True)
    for name, why in summary["left_out"]:
        console.print(Text(one_line(f"left out: {name}, {why}")))
    console.print()
    whole = not console.is_terminal  # a file or a pipe gets lines as long as they are
    console.print(Text(one_line(verdict["headline"]), style="bold"), soft_wrap=whole)
    console.print(Text(one_line(verdict["text"])), soft_wrap=whole)


@dataclass(frozen=True)
class _Column:
    """A column of numbers: its cells are never truncated, its head is wrapped to their width or its longest word."""

    head: str
    cells: list[str]

    @property
    def width(self) -> int:
        return max(*(len(cell) for cell in self.cells), *(min(len(word), 12) for word in self.head.split()))


def _list_columns(summary: Mapping[str, Any]) -> list[_Column]:
    """Return the columns of numbers, the most important ones first."""
    metric, rows = summary["metric"], summary["leaderboard"]
    gains = [row["against"].get("cross-entropy tuned") for row in rows]
    met = [f"{row['held']} of {summary['repeats']}" if row["feasible"] else "infeasible" for row in rows]
    return [
        _Column(one_line(metric["name"], 24), [f"{row['value']:.3f}" for row in rows]),
        *([_Column("met", met)] if metric["subject_to"] is not None else []),
        *([_Column("decided", [f"{row['coverage']:.0%}" for row in rows])] if metric.get("abstain") else []),
        _Column("gain", ["" if gain is None else f"{gain['difference']:+.3f}" for gain in gains]),
        _Column(
            "95 % interval", ["" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}" for row in rows]
        ),
        _Column("p", ["" if gain is None or gain["p"] is None else _format_p(gain["p"]) for gain in gains]),
        *(
            _Column(
                one_line(name.replace("_", " "), 24),
                [f"{row['others'][name]:.3f}" if name in row["others"] else "" for row in rows],
            )
            for name in metric["also"]
        ),
    ]


def _format_p(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _fit_columns(names: list[str], columns: list[_Column], width: int) -> tuple[int, list[_Column], list[str]]:
    """Return the width of the names, the columns that there is room for, and the heads of the others.

    Names are wrapped before columns are dropped, the least important one first.
    """
    longest = max(len(name) for name in names)
    least = min(longest, max(len(word) for name in names for word in name.split()) + 4)
    kept = list(columns)
    while len(kept) > 1 and least + sum(column.width + GAP for column in kept) > width:
        kept.pop()
    room = width - sum(column.width + GAP for column in kept)
    return max(min(longest, room), 1), kept, [column.head for column in columns[len(kept) :]]


def print_importance(summary: Mapping[str, Any]) -> None:
    """Print the columns that matter most below an empty line, if that was measured."""
    found = summary.get("importance", ())
    if not found:
        return
    print()
    console, metric = _make_console(), one_line(summary["metric"]["name"], 24)
    table = Table(title=None, box=None, pad_edge=False)
    table.add_column("column")
    for name in (f"lost {metric}", "95 % interval"):
        table.add_column(Text(name), justify="right", no_wrap=True)
    for one in found:
        interval = "" if one["low"] is None else f"{one['low']:+.3f} to {one['high']:+.3f}"
        table.add_row(Text(one_line(one["column"], 60)), f"{one['drop']:+.3f}", interval)
    console.print(table)
    console.print(Text(f"lost {metric}: under the shipped rule, when the column is shuffled among the test rows"))


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print labels and texts in two columns."""
    console, width = _make_console(), max(len(label) for label, _ in pairs)
    for label, text in pairs:
        console.print(Text(f"{label:<{width}}  {one_line(text)}"), soft_wrap=True)


def _make_console() -> Console:
    # Output to a file or a pipe must not be truncated at the width of a terminal.
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
        self._bar: Progress | None = None
        if silent or not console.is_terminal:
            return  # a bar that is not shown would still print an empty line with older versions of rich
        self._bar = Progress(
            TextColumn("{task.completed:,.0f} rows"),
            TextColumn("{task.speed:,.0f} per second"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._bar_task = self._bar.add_task("rows", total=None)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, rows: int) -> None:
        if self._bar is not None:
            self._bar.advance(self._bar_task, rows)
