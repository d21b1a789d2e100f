"""What exactness costs at scale: across processes, over micro-batches, and how far from exact one pass is.

    python benchmarks/scale.py [--quick] [--json FILE]

Two processes (gloo, one thread each) train a small network under DDP, with the metric of each shard and with that of
all data, taking turns. Then one process: peak memory and time of ``exact_backward`` as the effective batch grows
64-fold at one micro-batch's size, against plain accumulation, which is not exact. Then how far the gradients of plain
accumulation and of ``RunningLoss`` are from the exact one. Last, training from files (``streaming.py``). Each section
is a function in ``SECTIONS``.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import timing
from metricgrad import MetricLoss, RunningLoss, WMWLoss, exact_backward
from streaming import parquet_streaming
from timing import Row

WORLD, BATCH, CLASSES = 2, 1024, 1000
MESSAGES = [4 * 10**k for k in range(1, 8)]
"""Numbers per all-reduce: the four cells of 10 to 10⁷ classes."""
MICRO, LARGEST = 256, 64
"""The size of a micro-batch, and of the effective batch in micro-batches."""
Losses = dict[str, Callable[..., nn.Module]]
LOSSES: Losses = {
    "MetricLoss": partial(MetricLoss, "f1", task="multilabel"),
    "WMWLoss": partial(WMWLoss, task="multilabel"),
}


def network(classes: int, width: int) -> nn.Module:
    """Return a small network."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)
    )


def data(rows: int, classes: int, seed: int = 0, share: float = 0.05) -> tuple[Tensor, Tensor]:
    """Return features and labels, of which the features know something."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 256, generator=g)
    score = x[:, :classes] if classes <= 256 else torch.randn(rows, classes, generator=g)
    noisy = score + torch.randn(rows, classes, generator=g)
    return x, (noisy > 2**0.5 * statistics.NormalDist().inv_cdf(1 - share)).float()


# Across processes.


def processes(quick: bool) -> Row:
    """Return the milliseconds of DDP steps with the shard's and the exact loss, and of all-reduces by size."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(worker, (folder, quick), nprocs=WORLD)
        found: Row = json.loads((Path(folder) / "found.json").read_text())
    for row in found["steps"].values():
        row["extra"] = row["exact"] / row["shard"] - 1
    print(f"\na DDP step, {WORLD} processes, batch {BATCH} each, {CLASSES} classes: milliseconds")
    for name, row in found["steps"].items():
        print(f"{name:26}shard {row['shard']:8.3g}  exact {row['exact']:8.3g}  extra {100 * row['extra']:6.2f} %")
    print("\nall-reduce of float32: microseconds by number")
    print("  ".join(f"{int(size):.0e}: {us:.3g}" for size, us in found["all_reduce"].items()))
    print(f"latency {found['latency_us']:.3g} µs, {found['bytes_per_second'] / 1e9:.3g} GB/s")
    return found


def worker(rank: int, folder: str, quick: bool) -> None:
    """Time steps and all-reduces; all processes take the same turns, and the first writes down what it saw."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    found: Row = {"steps": {}, "all_reduce": {}}
    x, y = data(BATCH, CLASSES, rank)
    for name, make in LOSSES.items():
        model = DistributedDataParallel(network(CLASSES, 512))
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
        runs: dict[str, timing.Run] = {
            kind: partial(step, model, make(process_group=group), optimiser, x, y) for kind, group in KINDS.items()
        }
        found["steps"][name] = turns(runs, rounds=5 if quick else 15, repeats=3 if name == "MetricLoss" else 1)
    for size in MESSAGES[: -2 if quick else None]:
        message = torch.zeros(size)
        once: dict[str, timing.Run] = {"ms": partial(dist.all_reduce, message)}
        found["all_reduce"][size] = 1e3 * turns(once, rounds=5, repeats=max(3, min(200, 10**6 // size)))["ms"]
    times = found["all_reduce"]
    small, large = min(times), max(times)
    found["latency_us"] = times[small]
    found["bytes_per_second"] = 4 * (large - small) / (times[large] - times[small]) * 1e6
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


KINDS = {"shard": None, "exact": "world"}


def step(model: nn.Module, loss: nn.Module, optimiser: Any, x: Tensor, y: Tensor) -> None:
    """Take one step of training."""
    optimiser.zero_grad()
    loss(model(x), y).backward()
    optimiser.step()


def turns(runs: dict[str, timing.Run], rounds: int, repeats: int) -> dict[str, float]:
    """Return the milliseconds of each run in its best round; all processes start a round together."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            dist.barrier()
            start = time.perf_counter()
            for _ in range(repeats):
                run()
            times[name].append(1e3 * (time.perf_counter() - start) / repeats)
    return {name: min(found) for name, found in times.items()}


# Over micro-batches.


def micro_batches(number: int, classes: int) -> list[tuple[Tensor, Tensor]]:
    """Return so many micro-batches."""
    x, y = data(number * MICRO, classes)
    return list(zip(x.split(MICRO), y.split(MICRO), strict=True))


def accumulated(loss: nn.Module, model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> None:
    """Accumulate the mean of the micro-batches' own gradients, as people do."""
    for x, y in batches:
        (loss(model(x), y) / len(batches)).backward()


WAYS: dict[str, Callable[..., object]] = {"accumulated": accumulated, "exact": exact_backward}


def peaks(name: str, classes: int) -> Row:
    """Return the peak of the bytes allocated beyond model, gradient and data, by number of micro-batches, / plain."""
    model, loss, batches = network(classes, 512), LOSSES[name](), micro_batches(LARGEST, classes)
    accumulated(loss, model, batches[:1])  # the gradients, and what is set up once
    one = timing.allocated_peak(lambda: accumulated(loss, model, batches[:1]))
    numbers = 1, 8, LARGEST
    return {str(n): timing.allocated_peak(partial(exact_backward, loss, model, batches[:n])) / one for n in numbers}


def accumulation(quick: bool) -> Row:
    """Return peaks and times of ``exact_backward``, as multiples of one micro-batch and of plain accumulation."""
    found: Row = {}
    for name, classes in (("MetricLoss", 100), ("WMWLoss", 1), ("WMWLoss", 100)):
        model, loss, batches = network(classes, 512), LOSSES[name](), micro_batches(8, classes)
        runs: dict[str, tuple[timing.Run, Tensor]] = {
            way: (partial(run, loss, model, batches), torch.zeros(())) for way, run in WAYS.items()
        }
        rows = timing.race(runs, quick)
        found[f"{name}, {classes} classes"] = {
            "peak": timing.alone(__file__, [name, classes]),
            "time": rows["exact"]["ms"] / rows["accumulated"]["ms"],
            "disturbed": rows["exact"]["disturbed"] or rows["accumulated"]["disturbed"],
        }
    print(f"\nexact_backward, micro-batches of {MICRO}: peak / one micro-batch's by number; time / plain accumulation")
    for name, row in found.items():
        shown = "  ".join(f"{number}: {ratio:.3f}" for number, ratio in row["peak"].items())
        print(f"{name:26}{shown}  time {'~' if row['disturbed'] else ''}{row['time']:.2f}")
    return found


# How far from exact.


def bias(quick: bool) -> Row:
    """Return ‖g − exact‖ / ‖exact‖ and the cosine of the mean gradient over an epoch, at a model partly trained."""
    found: Row = {}
    inner = MetricLoss("f1", task="multilabel")
    for share in (0.3, 0.05, 0.01):
        x, y = data(64 * 64, 10, share=share)
        batches = list(zip(x.split(64), y.split(64), strict=True))
        model = network(10, 128)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(10):
            optimiser.zero_grad()
            exact_backward(inner, model, batches)
            optimiser.step()
        model.zero_grad()
        exact_backward(inner, model, batches)
        exact = flat(model)
        rows = {}
        for name, decay in {"accumulated": 0.0, "running 0.5": 0.5, "running 0.9": 0.9, "running 0.99": 0.99}.items():
            loss = RunningLoss(inner, decay)
            accumulated(loss, model, batches)  # one epoch to fill the memory
            model.zero_grad()
            accumulated(loss, model, batches)
            got = flat(model)
            rows[name] = {
                "error": float((got - exact).norm() / exact.norm()),
                "cosine": float(torch.cosine_similarity(got, exact, 0)),
            }
        found[f"{100 * share:g} % positives"] = rows
    print("\nmean gradient of 64 micro-batches of 64 rows against the exact one: relative error (cosine)")
    for title, rows in found.items():
        print(
            f"{title:18}" + "  ".join(f"{name} {row['error']:.3f} ({row['cosine']:.3f})" for name, row in rows.items())
        )
    return found


def flat(model: nn.Module) -> Tensor:
    """Return the gradient as one vector."""
    return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])


SECTIONS: dict[str, Callable[[bool], Row]] = {
    "processes": processes,
    "accumulation": accumulation,
    "bias": bias,
    "streaming": parquet_streaming,
}


def targets(found: dict[str, Any]) -> list[Row]:
    """Return what was aimed at beside what was measured."""
    counted, across = found["accumulation"]["MetricLoss, 100 classes"], found["processes"]
    memory, parquet = (found["streaming"][name] for name in ("in memory", "Parquet"))
    noisy = memory["disturbed"] or parquet["disturbed"]
    # The statistic there and one number back: on a busy machine steps differ by more than that.
    reduces = sum(across["all_reduce"][str(size)] for size in (4 * CLASSES, MESSAGES[0])) / 1e3
    wanted = [
        ("the two all-reduces of MetricLoss / DDP step", reduces / across["steps"]["MetricLoss"]["shard"], 0.05, False),
        (f"peak memory of {LARGEST} micro-batches / one", counted["peak"][str(LARGEST)], 1.1, False),
        ("time of exact_backward / plain accumulation", counted["time"], 1.6, counted["disturbed"]),
        ("time of an epoch from Parquet / from memory", 1 / parquet["ratio"], 1 / 0.8, noisy),
    ]
    return timing.marked(wanted)


def main() -> None:
    """Run everything, print it and write it down."""
    args = timing.arguments(__doc__)
    if args.memory:
        print(json.dumps(peaks(*args.memory)))
        return
    found: dict[str, Any] = {"machine": timing.machine(), "quick": args.quick}
    for name, section in SECTIONS.items():
        found[name] = section(args.quick)
    found["targets"] = targets(found)
    timing.show_targets(found["targets"])
    timing.write(found, args.json)


if __name__ == "__main__":
    main()
