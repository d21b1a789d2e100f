"""Attack the library with numbered cases, for minutes or for hours, and print what got through.

    python benchmarks/attack.py --batches 20000                      # some minutes
    python benchmarks/attack.py --batches 1000000 --folders 2000 --kills 200 --processes 2000 --jobs 2
    python benchmarks/attack.py --case batches:4063                  # one case again

Kinds of cases: ``batches`` (a loss of a random, often degenerate batch against the plain path in float64), ``columns``
(binary batches of several columns), ``folders`` (damaged and forged run and model folders and checkpoints), ``kills``
(a run killed with SIGKILL goes on as if it had not been), ``processes`` (two and four processes against one),
``tables`` (damaged Parquet and Feather files), ``sparse`` (sparse scores with weights, evaluated and tuned, against
plain sums), ``budgets`` (``choose_k_labels`` against every choice), ``selections`` (``select_ensemble`` against an
independent search). A case is made from its number alone. Finished blocks of cases are kept in the file of ``--state``,
and the same command goes on where it stopped. Needs the extras ``app`` and ``test``. Exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import resource
import sys
import time
import warnings
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCKS = {
    "batches": 1000,
    "columns": 1000,
    "folders": 20,
    "kills": 10,
    "processes": 200,
    "tables": 50,
    "sparse": 500,
    "budgets": 500,
    "selections": 500,
}
"""The kinds of cases, and how many are done at a time."""
SHOWN = 20


def run_block(kind: str, block: int, size: int) -> tuple[str, int, list[list[Any]], float]:
    """Do the cases of a block; return the failures and the CPU seconds."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    start = _cpu_seconds()
    first = block * BLOCKS[kind]
    failures = importlib.import_module(f"attacks.{kind}").check_all(range(first, first + size))
    return kind, block, [[number, what] for number, what in failures.items()], _cpu_seconds() - start


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of the children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def todo(wanted: dict[str, int], state: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield the blocks that are not done: kind, number and how many cases."""
    for kind, number in wanted.items():
        done = set(state["done"].get(kind, []))
        for block in range(-(-number // BLOCKS[kind])):
            if block not in done:
                yield kind, block, min(BLOCKS[kind], number - block * BLOCKS[kind])


def attack(wanted: dict[str, int], path: Path, jobs: int, minutes: float) -> dict[str, Any]:
    """Do what is not done yet, as long as there is time, and keep the state."""
    state: dict[str, Any] = {"done": {}, "cases": {}, "cpu_seconds": {}, "failures": []}
    if path.exists():
        state = json.loads(path.read_text())
    end = time.monotonic() + 60 * minutes
    source = todo(wanted, state)
    running: set[Future[Any]] = set()
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        while True:
            while len(running) < jobs and time.monotonic() < end and (unit := next(source, None)) is not None:
                running.add(pool.submit(run_block, *unit))
            if not running:
                return state
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ready:
                kind, block, failures, seconds = future.result()
                state["done"].setdefault(kind, []).append(block)
                cases = min(BLOCKS[kind], wanted[kind] - block * BLOCKS[kind])
                state["cases"][kind] = state["cases"].get(kind, 0) + cases
                state["cpu_seconds"][kind] = round(state["cpu_seconds"].get(kind, 0) + seconds, 1)
                state["failures"] += [[f"{kind}:{number}", what] for number, what in failures]
                fresh = path.with_suffix(".part")
                fresh.write_text(json.dumps(state))
                fresh.replace(path)
                _print_progress(state, wanted)


def _print_progress(state: dict[str, Any], wanted: dict[str, int]) -> None:
    counts = ", ".join(f"{state['cases'].get(kind, 0)} of {number} {kind}" for kind, number in wanted.items())
    print(f"\r{counts}, {len(state['failures'])} failures", end="", file=sys.stderr, flush=True)


def summary(state: dict[str, Any]) -> dict[str, Any]:
    """Return what is worth keeping of a run."""
    packages = ("torch", "numpy", "xgboost-cpu", "metricgrad")
    return {
        "command": "python benchmarks/attack.py " + " ".join(sys.argv[1:]),
        "cases": state["cases"],
        "cpu_seconds": state["cpu_seconds"],
        "failures": len(state["failures"]),
        "first_failures": state["failures"][:SHOWN],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in BLOCKS:
        parser.add_argument(f"--{kind}", type=int, default=0, help=f"how many {kind}")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--minutes", type=float, default=600, help="start no block after this time (default: 600)")
    parser.add_argument("--state", type=Path, default=Path("attack-state.json"), help="where finished blocks are kept")
    parser.add_argument("--json", type=Path, help="where to write the summary")
    parser.add_argument("--case", help="do one case, KIND:NUMBER, and print what is wrong with it")
    options = parser.parse_args()
    if options.case:
        kind, _, number = options.case.partition(":")
        found = importlib.import_module(f"attacks.{kind}").check_all([int(number)])
        print(*(found.values() or ["nothing is wrong"]), sep="\n")
        return 1 if found else 0
    wanted = {kind: getattr(options, kind) for kind in BLOCKS if getattr(options, kind)}
    state = attack(wanted, options.state, options.jobs, options.minutes)
    found = summary(state)
    print(file=sys.stderr)
    for kind, number in found["cases"].items():
        print(f"{kind}: {number} cases, {found['cpu_seconds'][kind]} CPU seconds")
    print(f"failures: {found['failures']}")
    for case, what in found["first_failures"]:
        print(f"  python benchmarks/attack.py --case {case}\n    {what}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return 1 if state["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
