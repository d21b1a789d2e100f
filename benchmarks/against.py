"""Two versions of the library, in turns: how much longer the newer one takes for what the other benchmarks time.

    python benchmarks/against.py OLDER/src src [--rounds 15] [--only TEXT] [--json FILE]

Each version runs in a process of its own with that folder as PYTHONPATH. For every case the two take turns, a block of
repetitions each, by the CPU time of one thread, which neighbours on the machine disturb least; a block counts by its
fastest tenth. Printed are the medians over the rounds, their ratio, and the ratio of the best blocks. The cases are our
contenders of ``loss_step``, ``ranking``, ``decide``, ``fit`` and ``ensemble``. A script that cannot be imported and a
case that one of the versions cannot run are left out, and this is said. Needs the extras ``sklearn`` and ``bench``.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import timing
from timing import Row, Run

Make = Callable[[], tuple[Run, torch.Tensor]]
NOTHING = torch.zeros(())
BLOCK = 0.03
"""CPU seconds of a block, three repetitions at least."""


def steps() -> dict[str, Make]:
    """Return the loss steps, and two calls that they leave out: a vector of logits, and weights."""
    import loss_step
    from metricgrad import MetricLoss

    def step(kind: str, shape: loss_step.Shape, name: str) -> tuple[Run, torch.Tensor]:
        z, y = loss_step.data(kind, shape)
        return timing.step(loss_step.contenders(kind)[name], z, y), z

    def vector() -> tuple[Run, torch.Tensor]:
        z, y = (x.detach()[:, 0] for x in loss_step.data("binary", (1024, 1)))
        return timing.step(MetricLoss("f1"), z.requires_grad_(), y), z

    def weighted() -> tuple[Run, torch.Tensor]:
        z, y = loss_step.data("binary", (256, 80))
        loss, weight = MetricLoss("f1", task="multilabel"), torch.rand(256)
        return lambda: loss(z, y, weight).backward(), z

    found: dict[str, Make] = {"loss (1024,) Linear": vector, "loss (256, 80) Linear, weighted": weighted}
    for kind, shapes in (
        ("binary", loss_step.TINY + loss_step.LARGE),
        ("multiclass", [(64, 10), *loss_step.MULTICLASS]),
        ("segmentation", loss_step.SEGMENTATION),
    ):
        for shape in shapes:
            for name in loss_step.contenders(kind):
                if name.startswith("ours"):
                    label = f"loss {shape} {name.removeprefix('ours ')}"
                    found[label] = partial(step, kind, shape, name)
    return found


def rankings() -> dict[str, Make]:
    """Return the ranking losses."""
    import ranking

    def step(kind: str, name: str) -> tuple[Run, torch.Tensor]:
        z, y = ranking.data(ranking.SIZES[kind], kind)
        return timing.step(ranking.contenders(kind)[name], z, y), z

    return {
        f"ranking {name.removeprefix('ours ')}": partial(step, kind, name)
        for kind in ranking.SIZES
        for name in ranking.contenders(kind)
        if name.startswith("ours")
    }


def decisions() -> dict[str, Make]:
    """Return tuning, evaluation and the bootstrap."""
    import decide
    import metricgrad as mg

    def run(function: Any, rows: int, classes: int | None, *more: Any, **options: Any) -> tuple[Run, torch.Tensor]:
        s, y = decide.data(rows, classes)
        return lambda: function(s, y, *more, **options), NOTHING

    def tune(s: Any, y: Any, **options: Any) -> object:
        return mg.tune_threshold("f1", s, y, **options)

    many: dict[str, Any] = {"task": "multilabel"}
    return {
        "decide threshold of 1e6": lambda: run(tune, 10**6, None),
        "decide 100 thresholds": lambda: run(tune, 10**5, 100, **many),
        "decide 100 thresholds, micro": lambda: run(tune, 10**5, 100, **many, average="micro"),
        "decide one threshold for 100": lambda: run(tune, 10**5, 100, **many, shared=True),
        "decide macro-F1": lambda: run(mg.evaluate, 10**5, 100, "f1", **many),
        "decide ten metrics": lambda: run(mg.evaluate, 10**6, None, decide.TEN),
        "decide 1000 replicates": lambda: run(mg.bootstrap, 10**6, None, decide.TEN, replicates=1000),
    }


def epochs() -> dict[str, Make]:
    """Return epochs of the training loop."""
    import fit
    from metricgrad import HybridLoss, MetricLoss, baselines

    losses: dict[str, Callable[[], Any]] = {
        "cross-entropy": baselines.bce,
        "metric loss": lambda: MetricLoss("f1"),
        "hybrid": lambda: HybridLoss("f1", metric_weight=1.0),
    }

    def epoch(make: Callable[[], Any]) -> tuple[Run, torch.Tensor]:
        return fit.our_epoch(*fit.data(), make()), NOTHING

    return {f"fit {name}": partial(epoch, make) for name, make in losses.items()}


def ensembles() -> dict[str, Make]:
    """Return the selection of ensembles."""
    import ensemble
    import metricgrad as mg

    def select(rows: int, bags: int) -> tuple[Run, torch.Tensor]:
        scores, y = ensemble.data(rows)
        options: dict[str, Any] = {"select_by": "metric", "rounds": ensemble.ROUNDS, "bags": bags}
        return lambda: mg.select_ensemble("f1", scores, y, **options), NOTHING

    return {
        "ensemble of 1e4 rows": lambda: select(10**4, 0),
        "ensemble of 1e4 rows, ten bags": lambda: select(10**4, 10),
        "ensemble of 1e5 rows": lambda: select(10**5, 0),
    }


def cases(only: str) -> dict[str, Make]:
    """Return the cases whose name contains a text; what none of them needs is not imported."""
    kinds = {"loss": steps, "ranking": rankings, "decide": decisions, "fit": epochs, "ensemble": ensembles}
    wanted = [make for kind, make in kinds.items() if only.split(" ")[0] in kind or kind in only]
    found: dict[str, Make] = {}
    for kind in wanted or kinds.values():
        try:
            found |= kind()
        except Exception as error:  # a peer that is not installed, or that fails while it is imported
            print(f"{kind.__name__} left out: {type(error).__name__}: {error}", file=sys.stderr)
    return {name: make for name, make in found.items() if only in name}


def work(only: str) -> None:
    """Answer each name of a case on stdin with the milliseconds of a block, or NaN if this version cannot run it."""
    torch.set_num_threads(1)
    timing.clock = time.process_time
    made = cases(only)
    print(json.dumps(list(made)), flush=True)
    name, repeats = "", 0
    run: tuple[Run, torch.Tensor] = (gc.collect, NOTHING)
    gc.disable()
    for line in sys.stdin:
        if line.strip() != name:
            name = line.strip()
            try:
                run = made[name]()
                once = min(timing.repetition(*run) for _ in range(3))
                repeats = max(3, min(300, int(1e3 * BLOCK / once)))
            except Exception as error:  # an option by another name, say
                print(f"{name} left out: {type(error).__name__}: {error}", file=sys.stderr)
                repeats = 0
        if repeats == 0:
            print("nan", flush=True)
            continue
        times = sorted(timing.repetition(*run) for _ in range(repeats))
        gc.collect()
        print(times[len(times) // 10], flush=True)


def compare(paths: list[Path], rounds: int, only: str) -> dict[str, Row]:
    """Let both versions take turns at every case."""
    workers: list[Any] = []
    for path in paths:
        command = [sys.executable, __file__, "--worker", "--only", only]
        environment = {**os.environ, "PYTHONPATH": str(path.resolve()), "OMP_NUM_THREADS": "1"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        workers.append(subprocess.Popen(command, env=environment, **pipes))  # noqa: S603
    older_names, newer_names = (json.loads(worker.stdout.readline()) for worker in workers)
    names = [name for name in newer_names if name in older_names]
    found: dict[str, Row] = {}
    for name in names:
        times: list[list[float]] = [[], []]
        for number in range(rounds):
            for which in (0, 1) if number % 2 else (1, 0):
                workers[which].stdin.write(name + "\n")
                workers[which].stdin.flush()
                times[which].append(float(workers[which].stdout.readline()))
            if any(math.isnan(block[-1]) for block in times):
                break
        if any(math.isnan(block[-1]) for block in times):
            continue
        older, newer = map(statistics.median, times)
        found[name] = {"older": older, "newer": newer, "medians": newer / older, "best": min(times[1]) / min(times[0])}
        row = found[name]
        print(f"{name:40}{older:10.4g}{newer:10.4g}{row['medians']:8.2f}{row['best']:8.2f}", flush=True)
    for worker in workers:
        worker.stdin.close()
        worker.wait()
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="two folders that hold metricgrad, the older version first")
    parser.add_argument("--rounds", type=int, default=15, help="blocks of each version at each case (default: 15)")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.only)
        return
    if len(options.paths) != 2:
        parser.error(f"paths: expected two folders, got {len(options.paths)}")
    found: Row = {"machine": timing.machine() | {"clock": "CPU time", "torch_threads": 1}, "rounds": options.rounds}
    print(f"\n{'CPU milliseconds':40}{'older':>10}{'newer':>10}{'medians':>8}{'best':>8}")
    found["cases"] = compare(options.paths, options.rounds, options.only)
    timing.write(found, options.json)


if __name__ == "__main__":
    main()
