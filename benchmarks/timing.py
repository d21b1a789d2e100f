"""What the benchmarks share: a clock that notices neighbours, memory of a fresh process, tables.

Contenders take turns, a block of repetitions each, for several rounds; a block counts by its median, a contender by its
best block. Read the ratios: milliseconds are one machine's. With ``--cpu`` the clock is the CPU time of one thread,
which neighbours hardly disturb: for comparing versions of the code (``against.py``), not for what a user waits for.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
Run = Callable[[], object]
Row = dict[str, Any]
Table = dict[str, dict[str, Row]]
"""Rows by shape and contender."""

clock: Callable[[], float] = time.perf_counter
"""Seconds; ``arguments`` replaces it by the CPU time for ``--cpu``."""

# The clock. Torch's threads wait for each other in every operation, so a neighbour that takes a core away makes each
# parallel operation some 4 ms dearer, and only those: BCE of 1024 logits then takes 8 ms instead of 0.1. So a block
# during which others were at work is run again while patience lasts. A disturbed one counts only if there is no other,
# and is marked "~".


def others() -> float:
    """Return the CPU seconds that everything but this process has used (0 where there is no /proc)."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _, _, irq, soft, steal = map(int, stat.read_text().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK") - time.process_time()


def repetition(run: Run, z: Tensor) -> float:
    """Return the milliseconds of one run from no gradient."""
    z.grad = None
    start = clock()
    run()
    return 1e3 * (clock() - start)


def block(run: Run, z: Tensor, repeats: int) -> tuple[bool, float]:
    """Return whether others used more than a quarter of a core meanwhile, and the median of some repetitions."""
    start, before = time.perf_counter(), others()
    median = statistics.median(repetition(run, z) for _ in range(repeats))
    disturbed = others() - before > 0.25 * (time.perf_counter() - start)
    return disturbed and clock is time.perf_counter, median


def race(runs: dict[str, tuple[Run, Tensor]], quick: bool) -> dict[str, Row]:
    """Let the runs take turns and return the best block of each."""
    rounds, budget, patience = (3, 150.0, 20) if quick else (7, 250.0, 60)
    once = {name: min(repetition(*run) for _ in range(3)) for name, run in runs.items()}
    repeats = {name: max(3, min(500, int(budget / ms))) for name, ms in once.items()}
    blocks: dict[str, list[tuple[bool, float]]] = {name: [] for name in runs}
    deadline = time.monotonic() + patience
    gc.disable()
    for _ in range(rounds):
        for name, run in runs.items():
            while (result := block(*run, repeats[name]))[0] and time.monotonic() < deadline:
                time.sleep(0.5)
            blocks[name].append(result)
        gc.collect()
    gc.enable()
    best = {name: min(found) for name, found in blocks.items()}  # an undisturbed block sorts first
    return {name: {"ms": ms, "disturbed": disturbed} for name, (disturbed, ms) in best.items()}


def step(loss: Loss, z: Tensor, y: Tensor) -> Run:
    """Return forward and backward as one call."""
    return lambda: loss(z, y).backward()


def check(losses: dict[str, Loss], z: Tensor, y: Tensor) -> None:
    """Make sure that ours and plain are the same loss, or their times could not be compared."""
    for name in [name for name in losses if name.startswith("plain")]:
        a, b = losses[name](z, y), losses[name.replace("plain", "ours")](z, y)
        plain, ours = (torch.autograd.grad(loss, z)[0] for loss in (a, b))
        assert math.isclose(a.item(), b.item(), rel_tol=1e-4), f"{name}: {a} is not {b}"
        assert (ours - plain).norm() <= 1e-3 * plain.norm(), f"{name}: the gradients differ"


FRESH = "filling a fresh gradient"


def growth(losses: dict[str, Loss], tensors: dict[int, tuple[Tensor, Tensor]], quick: bool) -> dict[str, Row]:
    """Time losses at growing sizes, all in one race, and return the log-log slopes."""
    runs = {f"{name} {n}": (step(loss, z, y), z) for name, loss in losses.items() for n, (z, y) in tensors.items()}
    # The floor: a gradient is fresh memory, and beyond some 30 MB the system maps and clears it anew in every step.
    fresh = {f"{FRESH} {n}": (lambda z=z: torch.empty_like(z).fill_(1.0), z) for n, (z, _) in tensors.items()}
    rows = race(runs | fresh, quick)
    found: dict[str, Row] = {}
    for name in (*losses, FRESH):
        times = {str(n): rows[f"{name} {n}"]["ms"] for n in tensors}
        fit = statistics.linear_regression([math.log(n) for n in tensors], [math.log(ms) for ms in times.values()])
        disturbed = any(rows[f"{name} {n}"]["disturbed"] for n in tensors)
        found[name] = {"ms": times, "slope": fit.slope, "disturbed": disturbed}
    return found


# Memory. The profiler counts exactly what torch's CPU allocator hands out, gradient included, on any machine; a peak of
# the resident set also holds code loaded on the way and what malloc does not give back. Each figure is from a fresh
# process, since buffers that a loss keeps from call to call would hide in any later one: "first" counts them, "later"
# is what a further step takes beyond them.


def allocated_peak(run: Run) -> int:
    """Return the peak of the bytes allocated during a run."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = [e["args"] for e in json.loads(trace.read_text())["traceEvents"] if e["name"] == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda e: e["Ev Idx"]):
        now += event["Bytes"]
        peak = max(peak, now)
    return peak


def peaks(loss: Loss, small: tuple[Tensor, Tensor], z: Tensor, y: Tensor) -> Row:
    """Measure a loss in this process, as multiples of the logits' bytes."""
    step(loss, *small)()  # what is set up once, in torch and in the loss, on next to no data
    found = {}
    for call in ("first", "later"):
        z.grad = None
        found[call] = allocated_peak(step(loss, z, y)) / z.nbytes
    return found


def alone(script: str, what: Any) -> Row:
    """Return what ``script --memory what`` prints, in a process of its own."""
    command = [sys.executable, str(Path(script).resolve()), "--memory", json.dumps(what)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


# What is asked for, printed and written.


def arguments(description: str | None, kinds: Sequence[str] = ()) -> argparse.Namespace:
    """Return --quick, --json, --only if there are ``kinds``, and, for ``alone``, --memory; set the clock by --cpu."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and not the largest sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--cpu", action="store_true", help="measure the CPU time of one thread")
    if kinds:
        parser.add_argument("--only", nargs="+", choices=kinds, help="the time of these alone, no memory and growth")
    parser.add_argument("--memory", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cpu:
        global clock
        clock = time.process_time
        torch.set_num_threads(1)
    return options


def ms(row: Row) -> str:
    """Return the milliseconds, with a mark if others used the machine meanwhile."""
    return f"{'~' if row['disturbed'] else ''}{row['ms']:.3g}"


def show(title: str, table: Table, cell: Callable[[Row], str]) -> None:
    """Print contenders down and shapes across."""
    names = list(dict.fromkeys(name for rows in table.values() for name in rows))
    print(f"\n{title}\n{'':26}" + "".join(f"{shape:>18}" for shape in table))
    for name in names:
        print(f"{name:26}" + "".join(f"{cell(rows[name]) if name in rows else '–':>18}" for rows in table.values()))


def show_growth(rows: dict[str, Row]) -> None:
    """Print what ``growth`` found."""
    print("\ngrowth: milliseconds by number of logits, and the log-log slope")
    for name, row in rows.items():
        times = "  ".join(f"{float(size):.0e}: {ms:.3g}" for size, ms in row["ms"].items())
        print(f"{name:26}{'~' if row['disturbed'] else ''}{times}  slope {row['slope']:.3f}")


def marked(wanted: list[tuple[str, float, float, bool]]) -> list[Row]:
    """Return (what, measured, at most, disturbed) with a mark; a disturbed measurement meets and misses nothing."""
    marks = [(*each, "disturbed" if each[3] else "met" if each[1] <= each[2] else "MISSED") for each in wanted]
    return [{"what": what, "measured": got, "at_most": most, "mark": mark} for what, got, most, _, mark in marks]


def show_targets(rows: list[Row]) -> None:
    """Print what ``marked`` returned."""
    print("\ntargets")
    for row in rows:
        print(f"{row['what']:64}{row['measured']:8.3g}  at most {row['at_most']:.3g}  {row['mark']}")


def write(found: dict[str, Any], path: Path | None) -> None:
    """Write the results, in four digits."""
    if path:
        short = json.loads(json.dumps(found), parse_float=lambda digits: float(f"{float(digits):.4g}"))
        path.write_text(json.dumps(short, indent=1, ensure_ascii=False) + "\n")


def machine(*peers: str) -> dict[str, Any]:
    """Return what the numbers depend on, and print it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    counts: Row = {"cores": os.cpu_count(), "torch_threads": torch.get_num_threads()}
    counts |= {"clock": "wall" if clock is time.perf_counter else "CPU time", "python": platform.python_version()}
    found = {"cpu": cpu, **counts, **{name: version(name) for name in ("torch", "metricgrad", *peers)}}
    print("\n".join(f"{key:14}{value}" for key, value in found.items()))
    return found
