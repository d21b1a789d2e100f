"""Time and memory of one loss step (forward + backward, float32) against torch's own cross-entropy, in one run.

    python benchmarks/loss_step.py [--quick] [--json FILE]

Needs the ``bench`` extra. All contenders get the same tensors and take turns, a block of repetitions each, for several
rounds; a block counts by its median, a contender by its best block. Read the ratios: milliseconds are one machine's.
Targets are printed beside what was measured; a missed one does not fail the run.
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
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad import MetricLoss
from metricgrad.surrogates import Linear, LogitSigmoid, Sigmoid

Shape = tuple[int, int]
Loss = Callable[[Tensor, Tensor], Tensor]
Run = Callable[[], object]
Row = dict[str, Any]
Table = dict[str, dict[str, Row]]
"""Rows by shape and contender."""

TINY: list[Shape] = [(1024, 1), (256, 80)]
LARGE: list[Shape] = [(4096, 100), (1_000_000, 1), (50_000, 100)]
MULTICLASS: list[Shape] = [(4096, 10), (4096, 1000)]
GROWTH = [10**6, 10**7, 10**8]


# The papers' formulas, as one writes them down.


def plain_f1(member: Tensor, y: Tensor) -> Tensor:
    """Return 1 − macro F1 of memberships: the soft sets of each class, summed."""
    tp = (member * y).sum(0)
    fp = (member * (1 - y)).sum(0)
    fn = ((1 - member) * y).sum(0)
    return 1 - (2 * tp / (2 * tp + fp + fn)).mean()


def linear_step(p: Tensor, tau: Any, delta: float) -> Tensor:
    """Return the five-point linear step, eq. 5 of the binary paper; ``tau`` is a number or one per row."""
    tau_m = torch.minimum(tau, 1 - tau) if isinstance(tau, Tensor) else min(tau, 1 - tau)
    low, high = tau - tau_m / 2, tau + tau_m / 2
    m1, m2, m3 = delta / low, (1 - 2 * delta) / tau_m, delta / (1 - high)
    middle = p * m2 + (0.5 - m2 * tau)
    return torch.where(p < low, p * m1, torch.where(p > high, p * m3 + (1 - delta - m3 * high), middle))


def plain_logit_sigmoid(z: Tensor, y: Tensor) -> Tensor:
    """Return sigmoidF1 with β = 1, η = 0."""
    return plain_f1(torch.sigmoid(z), y)


def plain_sigmoid(z: Tensor, y: Tensor) -> Tensor:
    """Return soft-set F1 with the sigmoid step on probabilities, k = 10, τ = ½."""
    return plain_f1(torch.sigmoid(10 * (torch.sigmoid(z) - 0.5)), y)


def plain_linear(z: Tensor, y: Tensor) -> Tensor:
    """Return soft-set F1 with the linear step, δ = 0.1, τ = ½."""
    return plain_f1(linear_step(torch.sigmoid(z), 0.5, 0.1), y)


def plain_multiclass(z: Tensor, y: Tensor) -> Tensor:
    """Return macro F1 of the multi-class paper's d×d matrix: a step midway between the two largest, δ = 0.2."""
    p = torch.softmax(z, 1)
    height = linear_step(p, p.topk(2, 1).values.mean(1, keepdim=True), 0.2)
    member = height / height.sum(1, keepdim=True)
    matrix = F.one_hot(y, z.shape[1]).to(z.dtype).T @ member
    tp = matrix.diagonal()
    fp, fn = matrix.sum(0) - tp, matrix.sum(1) - tp
    return 1 - (2 * tp / (2 * tp + fp + fn)).mean()


# The contenders.


def contenders(kind: str) -> dict[str, Loss]:
    """Return torch's loss, which comes first and has the ratio 1, ours, and the plain formulas of the same names."""
    if kind == "multiclass":
        return {
            "torch cross-entropy": F.cross_entropy,
            "ours F1": MetricLoss("f1", task="multiclass"),
            "ours accuracy (d×d)": MetricLoss("accuracy", task="multiclass"),
            "plain F1": plain_multiclass,
        }
    return {
        "torch BCE": F.binary_cross_entropy_with_logits,
        "ours LogitSigmoid": MetricLoss("f1", task="multilabel", surrogate=LogitSigmoid()),
        "ours Sigmoid(k=10)": MetricLoss("f1", task="multilabel", surrogate=Sigmoid(k=10)),
        "ours Linear": MetricLoss("f1", task="multilabel", surrogate=Linear()),
        "plain LogitSigmoid": plain_logit_sigmoid,
        "plain Sigmoid(k=10)": plain_sigmoid,
        "plain Linear": plain_linear,
    }


def monai_dice() -> Loss:
    """Return MONAI's soft Dice over the whole batch, which is F1 with LogitSigmoid; it wants a spatial axis."""
    from monai.losses.dice import DiceLoss

    dice = DiceLoss(sigmoid=True, batch=True)
    return lambda z, y: dice(z.unsqueeze(2), y.unsqueeze(2))


def torch_btg() -> Loss:
    """Return torch-btg's F1 for one class; it takes probabilities, and always averages over nine thresholds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its default arguments call the deprecated torch.range
        from torch_btg.loss import fb_loss
    loss = fb_loss(beta=1.0)

    def step(z: Tensor, y: Tensor) -> Tensor:
        with cuda_is_here():
            return loss(torch.sigmoid(z).squeeze(1), y.squeeze(1))[0]  # type: ignore[no-any-return]

    return step


@contextmanager
def cuda_is_here() -> Iterator[None]:
    """Make ``tensor.cuda()`` return the tensor itself, at about 1 µs: torch-btg calls it whatever the device."""
    name = "cuda"  # inherited by torch.Tensor, so that deleting the override brings it back
    setattr(torch.Tensor, name, lambda tensor: tensor)
    try:
        yield
    finally:
        delattr(torch.Tensor, name)


def data(kind: str, shape: Shape) -> tuple[Tensor, Tensor]:
    """Return logits and targets: 20 % positives, or class indices."""
    torch.manual_seed(0)
    z = torch.randn(shape).mul_(2.0).requires_grad_()
    return z, torch.randint(shape[1], shape[:1]) if kind == "multiclass" else torch.rand(shape).lt_(0.2)


def check(losses: dict[str, Loss], z: Tensor, y: Tensor) -> None:
    """Make sure that ours and plain are the same loss, or their times could not be compared."""
    for name in [name for name in losses if name.startswith("plain")]:
        a, b = losses[name](z, y), losses[name.replace("plain", "ours")](z, y)
        plain, ours = (torch.autograd.grad(loss, z)[0] for loss in (a, b))
        assert math.isclose(a.item(), b.item(), rel_tol=1e-4), f"{name}: {a} is not {b}"
        assert (ours - plain).norm() <= 1e-3 * plain.norm(), f"{name}: the gradients differ"


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
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def block(run: Run, z: Tensor, repeats: int) -> tuple[bool, float]:
    """Return whether others used more than a quarter of a core meanwhile, and the median of some repetitions."""
    start, before = time.perf_counter(), others()
    median = statistics.median(repetition(run, z) for _ in range(repeats))
    return others() - before > 0.25 * (time.perf_counter() - start), median


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


def time_shape(kind: str, shape: Shape, quick: bool, notes: list[str]) -> dict[str, Row]:
    """Time every contender at a shape, with its ratio to torch's loss."""
    z, y = data(kind, shape)
    losses = contenders(kind)
    reference = next(iter(losses))
    check(losses, z, y)
    if kind == "binary":
        losses["MONAI DiceLoss"] = monai_dice()
    if shape == (1024, 1):  # it is binary, and takes seconds at a million logits
        try:
            btg = torch_btg()
            step(btg, z, y)()
            losses["torch-btg (9 thresholds)"] = btg
        except Exception as error:  # whatever it is, the others can still be timed
            notes.append(f"torch-btg could not be run at {shape}: {type(error).__name__}: {error}")
    runs = {name: (step(loss, z, y), z) for name, loss in losses.items()}
    rows = race(runs | {"memory copy of the logits": (lambda: z.detach().clone(), z)}, quick)
    return {name: row | {"ratio": row["ms"] / rows[reference]["ms"]} for name, row in rows.items()}


def growth(quick: bool) -> dict[str, Row]:
    """Time ours at growing sizes, all in one race, and return the log-log slopes."""
    sizes = GROWTH[:-1] if quick else GROWTH
    tensors = {size: data("binary", (size, 1)) for size in sizes}
    losses = {name: contenders("binary")[name] for name in ("ours LogitSigmoid", "ours Linear")}
    runs = {f"{name} {n}": (step(loss, *tensors[n]), tensors[n][0]) for name, loss in losses.items() for n in sizes}
    rows = race(runs, quick)
    found: dict[str, Row] = {}
    for name in losses:
        times = {str(n): rows[f"{name} {n}"]["ms"] for n in sizes}
        fit = statistics.linear_regression([math.log(n) for n in sizes], [math.log(ms) for ms in times.values()])
        disturbed = any(rows[f"{name} {n}"]["disturbed"] for n in sizes)
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


def memory_here(kind: str, name: str, shape: Shape) -> Row:
    """Measure one contender in this process, as multiples of the logits' bytes."""
    loss = contenders(kind)[name]
    step(loss, *data(kind, (8, shape[1])))()  # what is set up once, in torch and in the loss, on next to no data
    z, y = data(kind, shape)
    found = {}
    for call in ("first", "later"):
        z.grad = None
        found[call] = allocated_peak(step(loss, z, y)) / z.nbytes
    return found


def memory() -> Table:
    """Measure every contender in a process of its own."""
    table: Table = {}
    for kind, shape in [*(("binary", shape) for shape in LARGE), ("multiclass", MULTICLASS[1])]:
        for name in contenders(kind):
            command = [sys.executable, str(Path(__file__).resolve()), "--memory", json.dumps([kind, name, shape])]
            done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
            table.setdefault(str(shape), {})[name] = json.loads(done.stdout.splitlines()[-1])
    return table


# What is printed.


def show(title: str, table: Table, cell: Callable[[Row], str]) -> None:
    """Print contenders down and shapes across."""
    names = list(dict.fromkeys(name for rows in table.values() for name in rows))
    print(f"\n{title}\n{'':26}" + "".join(f"{shape:>18}" for shape in table))
    for name in names:
        print(f"{name:26}" + "".join(f"{cell(rows[name]) if name in rows else '–':>18}" for rows in table.values()))


def targets(found: dict[str, Any]) -> list[Row]:
    """Return what was aimed at beside what was measured; a disturbed measurement meets and misses nothing."""
    wanted: list[tuple[str, float, float, bool]] = []
    for kind, shapes, limits in (
        ("binary", LARGE, {"ours LogitSigmoid": 0.6, "ours Linear": 0.9}),
        ("binary", TINY, {"ours LogitSigmoid": 2.0, "ours Sigmoid(k=10)": 2.0, "ours Linear": 2.0}),
        ("multiclass", MULTICLASS[1:], {"ours F1": 3.0, "ours accuracy (d×d)": 3.0}),
    ):
        for shape in map(str, shapes):
            reference, *_ = rows = found[kind][shape]
            for name, most in limits.items():
                disturbed = rows[name]["disturbed"] or rows[reference]["disturbed"]
                wanted.append((f"{name} / {reference} at {shape}", rows[name]["ratio"], most, disturbed))
    for shape, rows in found["memory"].items():
        ours = {name: row["first"] for name, row in rows.items() if name.startswith("ours")}
        wanted += [(f"{name}, memory / logits at {shape}", first, 2.0, False) for name, first in ours.items()]
    for name, row in found["growth"].items():
        wanted.append((f"{name}, slope of growth", row["slope"], 1.1, row["disturbed"]))
    marks = [(*each, "disturbed" if each[3] else "met" if each[1] <= each[2] else "MISSED") for each in wanted]
    return [{"what": what, "measured": got, "at_most": most, "mark": mark} for what, got, most, _, mark in marks]


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    counts = {"cores": os.cpu_count(), "torch_threads": torch.get_num_threads(), "python": platform.python_version()}
    return {"cpu": cpu, **counts, **{name: version(name) for name in ("torch", "metricgrad", "monai", "torch-btg")}}


def main() -> None:
    """Run everything, print it and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and no growth to 1e8")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--memory", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory:
        kind, name, shape = args.memory
        print(json.dumps(memory_here(kind, name, tuple(shape))))
        return
    notes: list[str] = []
    found: dict[str, Any] = {"machine": machine(), "quick": args.quick}
    print("\n".join(f"{key:14}{value}" for key, value in found["machine"].items()))
    for kind, shapes in (("binary", TINY + LARGE), ("multiclass", MULTICLASS)):
        found[kind] = {str(shape): time_shape(kind, shape, args.quick, notes) for shape in shapes}
        title = f"{kind}: forward + backward, milliseconds and ratio to torch's loss; ~ while others used the machine"
        show(title, found[kind], lambda row: f"{'~' if row['disturbed'] else ''}{row['ms']:.3g} {row['ratio']:7.2f}×")
    found["memory"] = memory()
    title = "memory: peak of a step / bytes of the logits, gradient included; first (with kept buffers) and later steps"
    show(title, found["memory"], lambda row: f"{row['first']:.2f}× {row['later']:7.2f}×")
    found["growth"] = growth(args.quick)
    print("\ngrowth: milliseconds by number of logits, and the log-log slope")
    for name, row in found["growth"].items():
        times = "  ".join(f"{float(size):.0e}: {ms:.3g}" for size, ms in row["ms"].items())
        print(f"{name:26}{'~' if row['disturbed'] else ''}{times}  slope {row['slope']:.3f}")
    found["targets"], found["notes"] = targets(found), notes
    print("\ntargets")
    for row in found["targets"]:
        print(f"{row['what']:64}{row['measured']:8.2f}  at most {row['at_most']:.1f}  {row['mark']}")
    print("\n".join(["", *notes]))
    if args.json:
        short = json.loads(json.dumps(found), parse_float=lambda digits: float(f"{float(digits):.4g}"))
        args.json.write_text(json.dumps(short, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
