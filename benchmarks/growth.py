"""How the time of every main call grows with rows, and with labels or classes: the exponent of n in seconds ~ n^e.

    python benchmarks/growth.py --json benchmarks/results/growth.json

Each call is timed at three or four sizes, each twice as large as the one before, by the CPU time of one thread; the
shortest of several repetitions counts, and the exponent is the slope of log seconds over log size. Below a few
milliseconds a call's fixed cost hides its growth, so that sizes begin where it does not.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import metricgrad as mg
from metricgrad.decisions import GFM, ExpectedFBeta, choose_k_labels, tune_top_k
from metricgrad.decisions.ensemble_selection import select_ensemble
from timing import machine

Call = Callable[[], object]
ENOUGH_SECONDS = 0.5
"""Repetitions of a call at one size take at least this long together."""
MOST_REPETITIONS = 20


class Growth(NamedTuple):
    """A call, what grows, its sizes, and how to make the call of a size."""

    call: str
    axis: str
    sizes: tuple[int, ...]
    make: Callable[[int], Call]


def doubled(first: int, times: int = 4) -> tuple[int, ...]:
    """Return sizes, each twice as large as the one before."""
    return tuple(first * 2**i for i in range(times))


def binary(n: int) -> tuple[Tensor, Tensor]:
    """Return scores in [0, 1] and targets, one in ten positive."""
    g = torch.Generator().manual_seed(0)
    y = (torch.rand(n, generator=g) < 0.1).long()
    return (torch.rand(n, generator=g) * 0.8 + 0.2 * y).clamp(0, 1), y


def several_labels(rows: int, labels: int) -> tuple[Tensor, Tensor]:
    """Return scores in [0, 1] and targets of several labels."""
    g = torch.Generator().manual_seed(0)
    y = (torch.rand(rows, labels, generator=g) < 0.1).long()
    return (torch.rand(rows, labels, generator=g) * 0.8 + 0.2 * y).clamp(0, 1), y


def several_classes(rows: int, classes: int) -> tuple[Tensor, Tensor]:
    """Return probabilities and class indices."""
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, classes, (rows,), generator=g)
    logits = torch.randn(rows, classes, generator=g) + 2 * torch.nn.functional.one_hot(y, classes)
    return logits.softmax(1), y


def loss_step(loss: Callable[[Tensor, Tensor], Tensor], scores: Tensor, targets: Tensor) -> Call:
    """Return a call of a loss with its gradient; the scores serve as logits."""
    logits = (4 * scores - 2).requires_grad_()

    def step() -> None:
        logits.grad = None
        loss(logits, targets).backward()

    return step


def losses() -> Iterator[Growth]:
    """Yield the losses."""
    yield Growth("MetricLoss, binary", "rows", doubled(250_000), lambda n: loss_step(mg.MetricLoss("f1"), *binary(n)))
    of_labels, of_classes = mg.MetricLoss("f1", task="multilabel"), mg.MetricLoss("f1", task="multiclass")
    yield Growth(
        "MetricLoss, multilabel", "labels", doubled(200), lambda k: loss_step(of_labels, *several_labels(1000, k))
    )
    yield Growth(
        "MetricLoss, multiclass", "classes", doubled(200), lambda k: loss_step(of_classes, *several_classes(1000, k))
    )
    mcc = mg.MetricLoss("mcc", task="multiclass")
    yield Growth("MetricLoss, MCC", "classes", doubled(200), lambda k: loss_step(mcc, *several_classes(1000, k)))
    yield Growth("AUROCLoss", "rows", doubled(200_000), lambda n: loss_step(mg.AUROCLoss(), *binary(n)))
    yield Growth("WMWLoss", "rows", doubled(50_000), lambda n: loss_step(mg.WMWLoss(), *binary(n)))
    hinge = mg.StructuredHingeLoss("f1")
    yield Growth("StructuredHingeLoss", "rows", doubled(500), lambda n: loss_step(hinge, *binary(n)))
    game = mg.AdversarialLoss("f1")
    yield Growth("AdversarialLoss", "rows", doubled(150), lambda n: loss_step(game, *binary(n)))


def tuning() -> Iterator[Growth]:
    """Yield the tuning of decision rules."""
    tune = mg.tune_threshold
    labels: Any = {"task": "multilabel"}
    yield Growth("tune_threshold, binary", "rows", doubled(250_000), lambda n: partial(tune, "f1", *binary(n)))
    for average in ("macro", "micro", "samples"):
        yield Growth(
            f"tune_threshold, {average}",
            "labels",
            doubled(100),
            lambda k, average=average: partial(tune, "f1", *several_labels(300, k), average=average, **labels),  # type: ignore[misc]
        )
    yield Growth(
        "tune_threshold, samples",
        "rows",
        doubled(4000),
        lambda n: partial(tune, "f1", *several_labels(n, 50), average="samples", **labels),
    )
    classes: Any = {"task": "multiclass"}
    yield Growth(
        "tune_threshold, offsets",
        "classes",
        doubled(10),
        lambda k: partial(tune, "f1", *several_classes(2000, k), **classes),
    )
    yield Growth(
        "tune_threshold, offsets",
        "rows",
        doubled(2000),
        lambda n: partial(tune, "f1", *several_classes(n, 10), **classes),
    )


def deciding() -> Iterator[Growth]:
    """Yield decisions."""
    yield Growth(
        "choose_k_labels", "rows", doubled(8000), lambda n: partial(choose_k_labels, "f1", several_labels(n, 50)[0], 3)
    )
    yield Growth(
        "choose_k_labels",
        "labels",
        doubled(400),
        lambda k: partial(choose_k_labels, "f1", several_labels(1000, k)[0], 3),
    )
    yield Growth("tune_top_k", "labels", doubled(100), lambda k: partial(tune_top_k, "f1", *several_labels(1000, k), 3))
    rule, joint_rule = ExpectedFBeta(), GFM()
    yield Growth("ExpectedFBeta", "labels", doubled(100), lambda k: partial(rule, several_labels(200, k)[0]))
    rare = {k: several_labels(200, k)[0] * (5 / k) for k in doubled(100)}
    yield Growth("ExpectedFBeta, five labels a row", "labels", doubled(100), lambda k: partial(rule, rare[k]))

    def joint(k: int) -> Tensor:
        return torch.rand(100, k, 11, generator=torch.Generator().manual_seed(0)) / k

    yield Growth("GFM, sizes up to 10", "labels", doubled(50), lambda k: partial(joint_rule, joint(k)))


def evaluating() -> Iterator[Growth]:
    """Yield evaluation, and the selection of an ensemble."""
    many = ["f1", "mcc", "auroc", "average_precision"]
    evaluate = mg.evaluate
    yield Growth("evaluate, four metrics", "rows", doubled(100_000), lambda n: partial(evaluate, *binary(n), many))
    labels: Any = {"task": "multilabel"}
    yield Growth(
        "evaluate, four metrics",
        "labels",
        doubled(100),
        lambda k: partial(evaluate, *several_labels(1000, k), many, **labels),
    )
    classes: Any = {"task": "multiclass"}
    yield Growth(
        "evaluate, auroc_ovo",
        "classes",
        doubled(50),
        lambda k: partial(evaluate, *several_classes(4000, k), "auroc_ovo", **classes),
    )
    yield Growth("bootstrap, F1", "rows", doubled(1_000_000), lambda n: partial(mg.bootstrap, *binary(n), "f1"))
    yield Growth("bootstrap, AUROC", "rows", doubled(2000), lambda n: partial(mg.bootstrap, *binary(n), "auroc"))

    def selection(n: int, candidates: int) -> Call:
        scores, y = binary(n)
        g = torch.Generator().manual_seed(1)
        noisy = {str(i): (scores + 0.3 * torch.rand(n, generator=g)).clamp(0, 1) for i in range(candidates)}
        return partial(select_ensemble, "f1", noisy, y, rounds=10, bags=2)

    yield Growth("select_ensemble", "rows", doubled(5000), lambda n: selection(n, 5))
    yield Growth("select_ensemble", "candidates", doubled(4), lambda n: selection(2000, n))


def measure_seconds(call: Call) -> float:
    """Return the CPU seconds of the shortest of several repetitions."""
    call()
    found: list[float] = []
    while len(found) < 3 or (sum(found) < ENOUGH_SECONDS and len(found) < MOST_REPETITIONS):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


def measure_growth(growth: Growth) -> dict[str, Any]:
    """Return the milliseconds at each size, and the exponent."""
    seconds = {size: measure_seconds(growth.make(size)) for size in growth.sizes}
    logs = [(math.log(size), math.log(second)) for size, second in seconds.items()]
    fit = statistics.linear_regression(*zip(*logs, strict=True))
    return {
        "call": growth.call,
        "axis": growth.axis,
        "ms": {str(size): round(1e3 * second, 3) for size, second in seconds.items()},
        "exponent": round(fit.slope, 2),
    }


def format_row(row: dict[str, Any]) -> str:
    """Return a measured growth as a row of the table in the docs."""
    (first, _), *_, (last, _) = row["ms"].items()
    return f"| {row['call']} | {row['axis']} | {first} to {last} | {row['exponent']:.1f} |"


def main() -> None:
    """Measure, print the table and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--only", metavar="TEXT", help="calls whose name holds this text")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    print("| call | what grows | from, to | exponent |\n|---|---|---|---|")
    for growth in (*losses(), *tuning(), *deciding(), *evaluating()):
        if options.only is None or options.only in growth.call:
            rows.append(measure_growth(growth))
            print(format_row(rows[-1]), flush=True)
    if options.json is not None:
        found = {"machine": machine() | {"clock": "CPU time of one thread"}, "growth": rows}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
