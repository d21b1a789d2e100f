"""How long a shipped model takes to load, and to predict one row, against an earlier checkout of this library.

    python benchmarks/load.py make /tmp/now
    PYTHONPATH=../before/src python benchmarks/load.py make /tmp/before
    python benchmarks/load.py measure src /tmp/now ../before/src /tmp/before --json benchmarks/results/load.json

``make`` writes runs of several contenders on the same made-up rows. ``measure`` loads each in a process of its own,
which has imported torch, pandas and scikit-learn before, and predicts one record again and again; the two checkouts
take turns. Times are processor time of the process, which other programs on the machine disturb least; read the
ratios. Bytecode is written to a temporary folder first, as it is where the library is installed. What to reach:

- every model loads in at most one second of processor time more than torch, pandas and scikit-learn;
- one row takes at most half as long as before for forests and ensembles, and no longer for the others;
- the scores of one row are those of the same row in a batch, to the last bit for trees and to 1e-12 for the others.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from serve import make_rows

CALLS = 40
ROWS_ALONE = 10
SHIPPED = ("logistic regression", "xgboost", "random forest", "ensemble")
MEMBERS = ["logistic regression", "xgboost", "random forest", "extra trees", "hybrid", "ensemble"]
ROW: dict[str, Any] = {name: cell for name, cell in make_rows(1, seed=1).iloc[0].items() if name != "churned"}


def make(folder: Path) -> None:
    """Write the runs."""
    import metricgrad as mg

    for ship in SHIPPED:
        mg.compare(
            make_rows(3000, seed=0),
            "churned",
            "f1",
            ship=ship,
            contenders=MEMBERS if ship == "ensemble" else [ship],
            quick=True,
            repeats=2,
            jobs=1,
            out=folder / ship.replace(" ", "_"),
        )


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
    batch = make_rows(ROWS_ALONE, seed=1)
    alone = [float(model.predict_scores(batch.iloc[[place]])[0]) for place in range(len(batch))]
    apart = abs(model.predict_scores(batch) - alone).max()
    return {"load_s": load_seconds, "row_ms": statistics.median(times), "apart": float(apart)}


def load_in_a_process(source: str, run: Path, bytecode: str) -> dict[str, float]:
    """Do as ``load`` with a checkout, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONPYCACHEPREFIX": bytecode, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, __file__, "load", str(run)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(now: str, now_runs: Path, before: str, before_runs: Path, rounds: int) -> list[dict[str, Any]]:
    """Return medians of both checkouts, and the ratio now/before of each round."""
    found = []
    with tempfile.TemporaryDirectory() as bytecode:
        for source, runs in ((now, now_runs), (before, before_runs)):
            load_in_a_process(source, runs / "ensemble", bytecode)  # writes the bytecode
        for ship in SHIPPED:
            name = ship.replace(" ", "_")
            pairs = []
            for _ in range(rounds):
                after = load_in_a_process(now, now_runs / name, bytecode)
                earlier = load_in_a_process(before, before_runs / name, bytecode)
                pairs.append((after, earlier))
            row: dict[str, Any] = {"ships": ship, "apart": max(after["apart"] for after, _ in pairs)}
            for key in ("load_s", "row_ms"):
                ratios = [after[key] / earlier[key] for after, earlier in pairs]
                row[f"{key}_now"] = statistics.median(after[key] for after, _ in pairs)
                row[f"{key}_before"] = statistics.median(earlier[key] for _, earlier in pairs)
                row[f"{key}_ratio"] = [statistics.median(ratios), min(ratios), max(ratios)]
            print(json.dumps(row), flush=True)
            found.append(row)
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
    measured.add_argument("before")
    measured.add_argument("before_runs", type=Path)
    measured.add_argument("--rounds", type=int, default=3)
    measured.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.task == "make":
        make(options.folder)
    elif options.task == "load":
        print(json.dumps(load(options.run)))
    else:
        found = measure(options.now, options.now_runs, options.before, options.before_runs, options.rounds)
        if options.json:
            from timing import machine

            command = "python benchmarks/load.py measure src NOW BEFORE/src BEFORE --json benchmarks/results/load.json"
            about = {"command": command, "machine": machine(), "models": found}
            options.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
