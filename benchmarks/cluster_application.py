"""The application on a cluster: ``compare`` on two Dask workers against two local processes, and what limits a study.

    python benchmarks/cluster_application.py [--quick]

Both take turns, and a ratio is the median over pairs: of the whole, which for local processes includes the time to
start them, and from the first finished unit to the last, which does not. The constants are those of
one machine and loopback; docs/scale.md says what follows from them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import distributed
import numpy as np
import pandas as pd

from metricgrad.comparison.candidate_runs import CandidateRun, Failure
from metricgrad.comparison.options import Options, prepare_dataset
from metricgrad.comparison.progress import NoProgress
from metricgrad.comparison.report.comparison_report import write_comparison_report
from metricgrad.comparison.run_comparison import compare
from metricgrad.comparison.workers import Shared, open_workers, run_tasks
from metricgrad.estimators.table_encoder import TableEncoder

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results" / "cluster_application.json"
TARGET = 1.15
LocalCluster: Any = distributed.LocalCluster  # its types are incomplete


def write_data(path: Path, rows: int, features: int) -> str:
    """Write a table of numbers with a rare class."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, features)).astype(np.float32)
    y = (x[:, :5].sum(1) + 2 * rng.normal(size=rows) > 4).astype(int)
    pd.DataFrame(x, columns=[f"x{k}" for k in range(features)]).assign(y=y).to_parquet(path)
    return str(path)


class Clock(NoProgress):
    """Keeps the seconds of every unit by candidate, and when the first and the last one finished."""

    def __init__(self) -> None:
        self.finished: list[float] = []
        self.units: dict[str, list[float]] = {}

    def finish_unit(self, run: CandidateRun | Failure) -> None:
        self.finished.append(time.perf_counter())
        assert not isinstance(run, Failure), run
        self.units.setdefault(run.candidate, []).append(run.seconds)


def time_study(options: Options, place: Path, where: dict[str, Any]) -> tuple[dict[str, float], Clock]:
    """Return the seconds of a study, in all, of its units but the first, and after the last; and its clock."""
    clock = Clock()
    start = time.perf_counter()
    compare(options, place, clock, write_comparison_report, force=True, **where)
    end, first, last = time.perf_counter(), clock.finished[0], clock.finished[-1]
    return {"all": end - start, "units": last - first, "after": end - last}, clock


def time_call(function: Callable[[], object], times: int) -> float:
    """Return the median seconds of a call."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


@dataclass(frozen=True, eq=False)
class Nothing:
    """A task that does nothing with a shared value."""

    value: Any


def do_nothing(task: Nothing) -> None:
    """Do nothing."""


def measure_constants(address: str, options: Options) -> dict[str, float]:
    """Return what a task and a byte cost on the way to a worker, and what encoding costs the caller."""
    dataset = prepare_dataset(options)
    train = dataset.split(options)[0].train
    features, targets = dataset.features.iloc[train], dataset.targets[train]
    encoder = TableEncoder("linear", columns=dataset.schema.columns)
    encode = time_call(lambda: encoder.fit_transform(features, targets), 3)
    with open_workers(1, address, "") as workers:

        def run(value: Shared, number: int) -> None:
            tasks = [Nothing(value) for _ in range(number)]
            for _ in run_tasks(workers, do_nothing, lambda: tasks.pop() if tasks else None):
                pass

        small = Shared.value(0)
        run(small, 10)
        each = time_call(partial(run, small, 100), 3) / 100
        megabytes = 64
        array = np.random.default_rng(0).random(megabytes * 2**17)
        send = time_call(lambda: run(Shared.value(array), 1), 3)
    return {
        "milliseconds per task": 1e3 * each,
        "megabytes per second to a worker": megabytes / send,
        "nanoseconds per cell to encode": 1e9 * encode / features.size,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rows, repeats, rounds = (2_000, 2, 1) if quick else (10_000, 4, 3)
    contenders = ("logistic regression", "weighted cross-entropy", "soft-set metric", "hybrid")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
    ):
        place = Path(folder)
        options = Options(write_data(place / "data.parquet", rows, 30), ("y",), repeats=repeats, contenders=contenders)
        address = cluster.scheduler_address
        ways: dict[str, dict[str, Any]] = {"local": {"jobs": 2}, "dask": {"cluster": address}}
        time_study(options, place / "warm", ways["dask"])  # the workers import torch once
        seconds: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        units = dict[str, list[float]]()
        for number in range(rounds):
            for name in list(ways)[:: -1 if number % 2 else 1]:
                found, clock = time_study(options, place / name, ways[name])
                seconds[name].append(found)
                for candidate, times in clock.units.items():
                    units.setdefault(candidate, []).extend(times)
                print(name, {phase: round(value, 1) for phase, value in found.items()}, flush=True)
        constants = measure_constants(address, options)
    pairs = list(zip(seconds["local"], seconds["dask"], strict=True))
    results = {
        "study": {"rows": rows, "features": 30, "units": len(units) * repeats, "seconds": seconds},
        "dask / local, median over pairs": {
            phase: statistics.median(dask[phase] / local[phase] for local, dask in pairs) for phase in ("all", "units")
        },
        "target": TARGET,
        "seconds of a unit, median": {name: statistics.median(times) for name, times in units.items()},
        "seconds after the last unit, median": statistics.median(one["after"] for pair in pairs for one in pair),
        "constants": constants,
    }
    print(json.dumps(results, indent=2))
    if not quick:
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
