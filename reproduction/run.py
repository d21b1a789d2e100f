"""Fill the tables of the papers with results of one's own.

    python reproduction/run.py --table btg-1 --protocol corrected --data FOLDER
    python reproduction/run.py --table btg-1 btg-3 --trials 3 --jobs 2 --data FOLDER
    python reproduction/run.py --all --data FOLDER
    python reproduction/run.py --list

Needs the extra ``reproduction``. Every cell (protocol, row, data set, trial) is computed once, from a seed
that is its trial, and appended to ``results/TABLE.csv``: stop and start as you like. Without ``--data`` the data sets
are fetched from their official sources. ``page.py`` makes the page from these files and nothing else.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import torch

from cells import PROTOCOLS, RESULTS, Cell, append, finished, note, results_file
from papers import TABLES

PACKAGES = ("torch", "numpy", "scikit-learn")


def run_cell(name: str, cell: Cell, data: Path | None) -> tuple[dict[str, float], float]:
    """Return the metrics of a cell and the CPU seconds that they took."""
    torch.set_num_threads(1)
    torch.manual_seed(cell.trial)
    start = time.process_time()
    return TABLES[name].run(cell, data), time.process_time() - start


def versions() -> str:
    """Return what the results depend on, for the comment in a results file."""
    return ", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in PACKAGES)])


def command(name: str, options: argparse.Namespace) -> str:
    """Return the command that makes a table, without the place of the data, which differs by machine."""
    trials = f" --trials {options.trials}" if options.trials else ""
    return f"python reproduction/run.py --table {name} --protocol {' '.join(options.protocol)}{trials} --data FOLDER"


def missing_cells(name: str, options: argparse.Namespace) -> list[Cell]:
    """Return the cells of a table that are asked for and not there, in the order of trials."""
    table = TABLES[name]
    trials = min(options.trials or table.trials, table.trials)
    done = finished(results_file(name, options.results))
    asked = [p for p in options.protocol if p in table.protocols]
    cells = [cell for protocol in asked for cell in table.cells(protocol, trials)]
    return sorted((cell for cell in cells if cell not in done), key=lambda cell: cell.trial)


def fill(names: list[str], options: argparse.Namespace) -> int:
    """Compute what is missing, ``options.jobs`` cells at a time; return the number of cells that failed."""
    failed = 0
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for name in names:
            missing = missing_cells(name, options)
            path = results_file(name, options.results)
            if missing:
                note(path, f"{command(name, options)} ({versions()})")
            jobs = {pool.submit(run_cell, name, cell, options.data): cell for cell in missing}
            for done, job in enumerate(as_completed(jobs), 1):
                cell = jobs[job]
                label = f"{name} {done}/{len(jobs)} {cell.protocol} | {cell.row} | {cell.data} | {cell.trial}"
                try:
                    found, seconds = job.result()
                except (OSError, ValueError, ImportError) as error:
                    # Data or a package that is not here: the other cells go on, this one stays empty.
                    print(f"{label}: {error}", file=sys.stderr, flush=True)
                    failed += 1
                    continue
                append(path, cell, found, seconds)
                shown = ", ".join(f"{key} {value:.3f}" for key, value in found.items())
                print(f"{label}: {shown} ({seconds:.1f} s)", flush=True)
    return failed


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and fill the tables; exit code 1 when cells failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", nargs="+", default=[], choices=list(TABLES), metavar="TABLE")
    parser.add_argument("--all", action="store_true", help="every table")
    parser.add_argument("--list", action="store_true", help="show the tables and what is missing of each")
    parser.add_argument("--protocol", nargs="+", default=list(PROTOCOLS), choices=PROTOCOLS)
    parser.add_argument("--data", type=Path, help="the folder of data sets; without it they are fetched")
    parser.add_argument("--trials", type=int, help="fewer trials than the table has")
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    options = parser.parse_args(arguments)
    names = list(TABLES) if options.all or options.list else options.table
    if not names:
        parser.error("--table: expected at least one of " + ", ".join(TABLES))
    if options.list:
        for name in names:
            print(f"{name:20} {len(missing_cells(name, options)):5} cells missing  {TABLES[name].title}")
        return 0
    return 1 if fill(names, options) else 0


if __name__ == "__main__":
    sys.exit(main())
