"""What a cluster costs: the sums that make boosting exact on several workers, against the rounds they are part of.

    python benchmarks/cluster.py [--quick] [--json FILE]

Needs the extra ``dask``. Two worker processes of one thread on this machine train XGBoost on a million rows of twenty
features (a tenth of them with --quick), trees of depth 6, half of the rows each. Each worker times its rounds, and
within them every exchange of the objective. That includes waiting for a worker that was slower, which without these
exchanges would be waited for at the next histogram. So two more things are measured: the same exchanges without any
work in between, and rounds of an objective that keeps to its own rows, in turns with those of the exact one.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
import torch
import xgboost
from xgboost import dask as xgboost_dask

import timing
from boosting import FEATURES, ROWS, data
from metricgrad import HybridLoss
from metricgrad.boosting import base_score, xgboost_objective
from metricgrad.integrations.boosting.workers import TrainingWorkers

WORKERS, ROUNDS = 2, 20


class Clock(xgboost.callback.TrainingCallback):
    """Seconds of each round, and of the exchanges within it; left in the model by each worker in turn."""

    def __init__(self) -> None:
        self.rounds: list[float] = []
        self.exchanges: list[float] = []
        self.number = 0

    def before_training(self, model: Any) -> Any:
        """Time every exchange of this process."""
        add, clock = TrainingWorkers._add, self

        def timed(workers: TrainingWorkers, values: Any) -> Any:
            start = time.perf_counter()
            found = add(workers, values)
            clock.exchanges[-1] += time.perf_counter() - start
            clock.number += 1
            return found

        TrainingWorkers._add = timed  # type: ignore[assignment, method-assign]
        self.restore = add
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Start a round."""
        self.exchanges.append(0.0)
        self.rounds.append(time.perf_counter())
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """End a round."""
        self.rounds[-1] = time.perf_counter() - self.rounds[-1]
        return False

    def after_training(self, model: Any) -> Any:
        """Leave the times, and those of bare exchanges, in the model."""
        TrainingWorkers._add = self.restore  # type: ignore[method-assign]
        bare = time_exchanges(xgboost.collective)
        told = {"rounds": self.rounds, "exchanges": self.exchanges, "number": self.number / len(self.rounds)}
        model.set_attr(times=json.dumps(told | bare))
        return model


def time_exchanges(collective: Any) -> dict[str, float]:
    """Return the seconds of a small sum over the workers, and the bytes per second of a large one."""
    found = {}
    for name, numbers, repeats in (("small", 64, 200), ("large", 4 * 10**6, 5)):
        values = np.zeros(numbers)
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            collective.allreduce(values, collective.Op.SUM)
            times.append(time.perf_counter() - start)
        found[name] = statistics.median(times)
    return {"latency": found["small"], "bytes_per_second": 32e6 / found["large"]}


def keep_to_own_rows(scores: Any, rows: Any) -> Any:
    """Return the gradient of the loss of this worker's rows alone."""
    objective: Any = xgboost_objective(HybridLoss("f1", metric_weight=1.0))
    return objective.answer(*objective._tensors(scores, rows.get_label(), rows.get_weight()), native=True)


def train(client: Any, x: Any, y: Any, trainings: int) -> dict[str, list[dict[str, Any]]]:
    """Return what a worker's clock said of trainings with the hybrid loss of all rows, and of each worker's own."""
    workers = sorted(client.scheduler_info()["workers"])
    half = len(y) // WORKERS

    def place(column: Any) -> Any:
        kept.extend(
            client.scatter(column[i * half : (i + 1) * half], workers=[worker], hash=False)
            for i, worker in enumerate(workers)
        )
        parts = map(dask.delayed, kept[-WORKERS:])
        return da.concatenate([da.from_delayed(part, (half, *column.shape[1:]), column.dtype) for part in parts])

    kept: list[Any] = []
    matrix = xgboost_dask.DaskDMatrix(client, place(x), place(y))
    assert len(matrix.worker_map) == WORKERS
    parameters = {
        "max_depth": 6,
        "nthread": 1,
        "base_score": base_score(y),
        "disable_default_eval_metric": True,
    }
    objectives = {"all rows": xgboost_objective(HybridLoss("f1", metric_weight=1.0)), "own rows": keep_to_own_rows}
    told: dict[str, list[dict[str, Any]]] = {name: [] for name in objectives}
    for _ in range(trainings):
        for name, objective in objectives.items():
            found = xgboost_dask.train(client, parameters, matrix, ROUNDS, obj=objective, callbacks=[Clock()])
            told[name].append(json.loads(found["booster"].attr("times")))
    return told


def measure_boosting(quick: bool) -> dict[str, Any]:
    """Return the time of the exchanges of a round against that of the round."""
    rows = ROWS // 10 if quick else ROWS
    x, y = data(rows)
    with (
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1"
        ) as local,
        distributed.Client(local) as client,
    ):
        told = train(client, x, y, 1 if quick else 3)
    # The first rounds build what later ones use again.
    pairs = [pair for one in told["all rows"] for pair in list(zip(one["rounds"], one["exchanges"], strict=True))[2:]]
    alone = [seconds for one in told["own rows"] for seconds in one["rounds"][2:]]
    round_ms = 1e3 * statistics.median(whole for whole, _ in pairs)
    latency, speed = (
        statistics.median(one[name] for one in told["all rows"]) for name in ("latency", "bytes_per_second")
    )
    number = told["all rows"][0]["number"]
    return {
        "rows": rows,
        "features": FEATURES,
        "workers": WORKERS,
        "load": os.getloadavg()[0],
        "round_ms": round_ms,
        "round_ms_own_rows": 1e3 * statistics.median(alone),
        "exchanges": number,
        "latency_ms": 1e3 * latency,
        "share": number * 1e3 * latency / round_ms,
        "share_with_waiting": statistics.median(exchange / whole for whole, exchange in pairs),
        "round_ratio": round_ms / (1e3 * statistics.median(alone)),
        "bytes_per_second": speed,
    }


def main() -> None:
    """Run everything, print it and write it down."""
    args = timing.arguments(__doc__)
    torch.set_num_threads(1)
    found = measure_boosting(args.quick)
    print(f"boosting, {found['rows']} rows on {WORKERS} workers: {found['round_ms']:.0f} ms a round, ", end="")
    print(f"{found['round_ratio']:.3f} of that of an objective of each worker's own rows")
    print(f"{found['exchanges']:.0f} exchanges a round, waiting included {100 * found['share_with_waiting']:.1f} %")
    print(f"the same without waiting {100 * found['share']:.2f} %, {found['latency_ms']:.3f} ms each")
    print(f"large sums: {found['bytes_per_second'] / 1e9:.2f} GB/s")
    targets = timing.marked([("boosting, exchanges / round", found["share"], 0.1, found["load"] > 2 * WORKERS)])
    timing.show_targets(targets)
    machine = timing.machine("dask", "distributed") | {"xgboost": xgboost.__version__}
    timing.write({"machine": machine, "quick": args.quick, "boosting": found, "targets": targets}, args.json)


if __name__ == "__main__":
    main()
