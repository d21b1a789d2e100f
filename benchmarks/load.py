"""How long a shipped model takes to load, and to predict one row, against an earlier checkout of this library.

    python benchmarks/load.py make /tmp/now
    PYTHONPATH=../before/src python benchmarks/load.py make /tmp/before
    python benchmarks/load.py measure src /tmp/now ../before/src /tmp/before --json benchmarks/results/load.json

``make`` writes runs of several contenders on the same made-up rows, five folds each; those that an earlier checkout
does not know are left out. ``measure`` loads each in a process of its own, which has imported torch, pandas and
scikit-learn before, and predicts one record again and again; the two checkouts take turns on the runs that both have,
and the earlier one may be left out. Times are processor time of the process, which other programs on the machine
disturb least; read the ratios. Boosted trees are tried in another process meanwhile, whose time is told apart.
Bytecode is written to a temporary folder first, as it is where the library is installed. What to reach:

- every model loads in at most one second of processor time more than torch, pandas and scikit-learn;
- one row takes at most five milliseconds, and no longer than before;
- the scores of one row are those of the same row in a batch, to the last bit for trees and to 1e-7 for networks, which
  torch adds up in float32 and in another order.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serve import make_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

CALLS = 40
ROWS_ALONE = 10
SHIPPED = ("ensemble", "logistic regression", "xgboost", "random forest")
MEMBERS = ["logistic regression", "xgboost", "random forest", "extra trees", "hybrid", "ensemble"]
ROW: dict[str, Any] = {name: cell for name, cell in make_rows(1, seed=1).iloc[0].items() if name != "churned"}


def make(folder: Path) -> None:
    """Write the runs."""
    import metricgrad as mg

    for ship in SHIPPED:
        try:
            mg.compare(
                make_rows(1500, seed=0),
                "churned",
                "f1",
                ship=ship,
                contenders=MEMBERS if ship == "ensemble" else [ship],
                repeats=2,
                jobs=1,
                out=folder / ship.replace(" ", "_"),
            )
        except ValueError as error:
            if "unknown contender" not in str(error):
                raise
            print(f"{ship}: left out ({error})")


def load(run: Path) -> dict[str, float]:
    """Load a run and predict one row; return seconds of processor time to load, and the milliseconds of a row."""
    import pandas  # noqa: F401, ICN001
    import sklearn  # noqa: F401
    import torch  # noqa: F401

    start = time.process_time()
    import metricgrad as mg

    model = mg.load_run(run).model
    model.predict(ROW)
    load_seconds = time.process_time() - start
    times = []
    for _ in range(CALLS):
        start = time.process_time()
        model.predict(ROW)
        times.append(1e3 * (time.process_time() - start))
    of_helpers = resource.getrusage(resource.RUSAGE_CHILDREN)
    helpers_seconds = of_helpers.ru_utime + of_helpers.ru_stime
    batch = make_rows(ROWS_ALONE, seed=1)
    alone = [float(model.predict_scores(batch.iloc[[place]])[0]) for place in range(len(batch))]
    apart = abs(model.predict_scores(batch) - alone).max()
    return {
        "load_s": load_seconds,
        "helpers_s": helpers_seconds,
        "row_ms": statistics.median(times),
        "row_ms_best": min(times),
        "apart": float(apart),
    }


def load_in_a_process(source: str, run: Path, bytecode: str) -> dict[str, float]:
    """Do as ``load`` with a checkout, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONPYCACHEPREFIX": bytecode, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, __file__, "load", str(run)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(
    now: str, now_runs: Path, before: str | None, before_runs: Path | None, rounds: int
) -> Iterator[dict[str, Any]]:
    """Yield medians of both checkouts, and the ratio now/before of each round where both have a run."""
    with tempfile.TemporaryDirectory() as bytecode:
        for ship in SHIPPED:
            name = ship.replace(" ", "_")
            has_both = before is not None and before_runs is not None and (before_runs / name).is_dir()
            sources = {"now": (now, now_runs)} | ({"before": (before, before_runs)} if has_both else {})
            rows: dict[str, list[dict[str, float]]] = {which: [] for which in sources}
            for turn in range(rounds + (ship == SHIPPED[0])):
                for which, (source, runs) in sources.items():
                    one = load_in_a_process(str(source), Path(str(runs)) / name, bytecode)
                    if turn or ship != SHIPPED[0]:  # the very first one writes the bytecode
                        rows[which].append(one)
            yield {"ships": ship} | summarise(rows)


def summarise(rows: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return the median of each figure and checkout, and the median, smallest and largest ratio now/before."""
    found: dict[str, Any] = {}
    for key in ("load_s", "helpers_s", "row_ms", "row_ms_best", "apart"):
        for which, each in rows.items():
            found[f"{key}_{which}"] = statistics.median(one[key] for one in each)
    for key in ("load_s", "row_ms"):
        pairs = zip(rows["now"], rows.get("before", []), strict=False)
        if ratios := [after[key] / earlier[key] for after, earlier in pairs]:
            found[f"{key}_ratio"] = [statistics.median(ratios), min(ratios), max(ratios)]
    return found


def main() -> None:
    """Make runs, load one, or measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    tasks.add_parser("make").add_argument("folder", type=Path)
    tasks.add_parser("load").add_argument("run", type=Path)
    measured = tasks.add_parser("measure")
    measured.add_argument("now")
    measured.add_argument("now_runs", type=Path)
    measured.add_argument("before", nargs="?")
    measured.add_argument("before_runs", type=Path, nargs="?")
    measured.add_argument("--rounds", type=int, default=3)
    measured.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.task == "make":
        make(options.folder)
    elif options.task == "load":
        print(json.dumps(load(options.run)))
    else:
        from timing import machine

        both = "src NOW BEFORE/src BEFORE" if options.before else "src NOW"
        command = f"python benchmarks/load.py measure {both} --json benchmarks/results/load.json"
        about: dict[str, Any] = {"command": command, "machine": machine(), "models": []}
        for row in measure(options.now, options.now_runs, options.before, options.before_runs, options.rounds):
            print(json.dumps(row), flush=True)
            about["models"].append(row)
            if options.json:
                options.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
