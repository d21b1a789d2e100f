"""What a table of a paper is made of: cells, each computed once and kept as rows of a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PROTOCOLS = ("published", "corrected")
COLUMNS = ("protocol", "row", "data", "trial", "metric", "value", "seconds")
KEY = 4
"""The number of columns, the first ones, that name a cell."""


@dataclass(frozen=True, order=True)
class Cell:
    """One training run (or one measurement) of a table: a loss on a data set with a seed, under a protocol.

    ``protocol`` is "published", "corrected", or "published, X": the published protocol with one quirk X switched.
    """

    protocol: str
    row: str
    data: str
    trial: int


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper, and how to fill it.

    ``cells`` lists the cells of a protocol for a number of trials; ``run`` fills one of them, from the folder of data
    sets (None: fetch), and returns its metrics. ``trials`` is the most that are run, ``paper_trials`` what the paper
    ran (0: it does not say); ``reduced`` says in one sentence what else is smaller than in the paper and by how much
    ("" if nothing is). ``printed`` holds the paper's own figures: mean and standard deviation, if there is one, by row,
    data set and metric.
    """

    title: str
    cells: Callable[[str, int], Iterable[Cell]]
    run: Callable[[Cell, Path | None], dict[str, float]]
    trials: int = 10
    reduced: str = ""
    protocols: Sequence[str] = PROTOCOLS
    printed: dict[tuple[str, str, str], tuple[float, float | None]] = field(default_factory=dict)
    paper_trials: int = 0


def grid(
    rows: Iterable[str], data: Sequence[str], variants: Sequence[str] = ()
) -> Callable[[str, int], Iterable[Cell]]:
    """Return the lister of every row on every data set; ``variants`` are quirks shown beside "published"."""

    def cells(protocol: str, trials: int) -> Iterable[Cell]:
        names = [protocol, *(f"{protocol}, {quirk}" for quirk in variants)] if protocol == "published" else [protocol]
        return [Cell(name, row, d, t) for t in range(trials) for d in data for name in names for row in rows]

    return cells


def results_file(name: str, folder: Path = RESULTS) -> Path:
    """Return the file of a table's results."""
    return folder / f"{name}.csv"


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a results file; a last line that a kill cut short is left out."""
    if not path.exists():
        return []
    text = path.read_text()
    lines = [line for line in text[: text.rfind("\n") + 1].splitlines() if not line.startswith("#")]
    rows = csv.DictReader(lines)
    return [{**row, "trial": int(row["trial"]), "value": float(row["value"])} for row in rows]


def finished(path: Path) -> set[Cell]:
    """Return the cells that a results file holds."""
    return {Cell(row["protocol"], row["row"], row["data"], row["trial"]) for row in read(path)}


def append(path: Path, cell: Cell, found: dict[str, float], seconds: float) -> None:
    """Add a cell's metrics to a results file in one write, so that a kill leaves a cell whole or absent."""
    lines: list[list[str]] = [
        [cell.protocol, cell.row, cell.data, str(cell.trial), name, f"{value:.6g}", f"{seconds:.1f}"]
        for name, value in found.items()
    ]
    write_lines(path, "".join(_joined(line) for line in lines))


def note(path: Path, text: str) -> None:
    """Add a comment line, unless the file has it already; start the file if there is none."""
    line = f"# {text}\n"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line + ",".join(COLUMNS) + "\n")
    elif line not in path.read_text():
        write_lines(path, line)


def write_lines(path: Path, lines: str) -> None:
    """Append lines, after cutting off a line that a kill left without its end."""
    text = path.read_text()
    if not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1])
    with path.open("a") as file:
        file.write(lines)


def _joined(values: Sequence[str]) -> str:
    """Return a line of a CSV file."""
    return ",".join(f'"{value}"' if "," in value else value for value in values) + "\n"
