"""Time and memory of deciding and judging against scikit-learn, torchmetrics and optimal-classification-cutoffs.

    python benchmarks/decide.py [--quick] [--json FILE]

Needs the ``bench`` extra. Contenders get the same arrays, each in the form it takes (torch or numpy). Read the ratios:
milliseconds are one machine's. Targets are printed beside what was measured; a missed one does not fail the run.
"""

from __future__ import annotations

import json
import math
import statistics
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.metrics import accuracy_score, f1_score, jaccard_score
from torch import Tensor

import metricgrad as mg
from timing import (
    Row,
    Run,
    Table,
    allocated_peak,
    alone,
    arguments,
    block,
    machine,
    marked,
    ms,
    race,
    show,
    show_targets,
    write,
)

TEN = ["accuracy", "precision", "recall", "specificity", "f1", "f2", "jaccard", "balanced_accuracy", "mcc", "kappa"]
GRID = 100
SWEPT = 2
"""Classes that scikit-learn's sweep is run on; its time for all is scaled from them, since it takes minutes."""
PEER = "optimal-classification-cutoffs"
FEW = 1000
GROWTH = [10**5, 10**6, 10**7]


def data(rows: int, classes: int | None = None) -> tuple[Tensor, Tensor]:
    """Return probabilities, and targets that follow them."""
    torch.manual_seed(0)
    shape = (rows,) if classes is None else (rows, classes)
    s = torch.rand(shape)
    return s, (torch.rand(shape) < s**3).long()


def swept(y: Any, s: Any) -> float:
    """Return the best F1 of a grid of thresholds, as TunedThresholdClassifierCV looks for it."""
    return float(max(f1_score(y, s >= t) for t in np.linspace(s.min(), s.max(), GRID)))


def check_optimum(s: Any, y: Any) -> None:
    """Fail unless the peer's optimum is ours, for metrics that both have, and no grid's is better."""
    from optimal_cutoffs import get_optimal_threshold  # here, since ``against.py`` needs this module without its peers

    # A few rows for two of them, for which the peer's time is quadratic.
    few = slice(0, FEW)
    for metric, score, part in (
        ("f1", f1_score, slice(None)),
        ("jaccard", jaccard_score, few),
        ("accuracy", accuracy_score, few),
    ):
        exact = mg.tune_threshold(metric, s[part], y[part]).value
        (peer,) = get_optimal_threshold(y[part], s[part], metric=metric).thresholds
        assert abs(exact - score(y[part], s[part] > peer)) < 1e-12, f"{metric}: {exact} is not that of {PEER}"
    assert swept(y, s) <= mg.tune_threshold("f1", s, y).value + 1e-12, "the exact optimum is no worse than a grid's"


def timed(runs: dict[str, Run], quick: bool) -> dict[str, Row]:
    """Let the runs take turns."""
    return race({name: (run, torch.zeros(())) for name, run in runs.items()}, quick)


def twice(run: Run) -> Row:
    """Time what takes seconds: the better of two."""
    disturbed, best = min(block(run, torch.zeros(()), 1) for _ in range(2))
    return {"ms": best, "disturbed": disturbed}


def tuning(quick: bool) -> Table:
    """Time the exact threshold against the sweep, for one class and for a hundred."""
    from optimal_cutoffs import get_optimal_threshold

    s, y = data(10**6)
    n_s, n_y = s.numpy(), y.numpy()
    check_optimum(n_s, n_y)
    both: dict[str, Run] = {
        "ours, exact": lambda: mg.tune_threshold("f1", s, y),
        PEER: lambda: get_optimal_threshold(n_y, n_s, metric="f1"),
    }
    one = timed(both, quick)
    one["scikit-learn, 100 cuts"] = twice(lambda: swept(n_y, n_s))
    many, targets = data(10**5, 100)
    few_s, few_y = many.numpy(), targets.numpy()
    hundred = timed(
        {
            "ours, exact": lambda: mg.tune_threshold("f1", many, targets, task="multilabel"),
            "ours, exact, micro": lambda: mg.tune_threshold("f1", many, targets, task="multilabel", average="micro"),
            "ours, exact, one for all": lambda: mg.tune_threshold("f1", many, targets, task="multilabel", shared=True),
        },
        quick,
    )
    sweep = twice(lambda: [swept(few_y[:, k], few_s[:, k]) for k in range(SWEPT)])
    hundred["scikit-learn, 100 cuts"] = sweep | {"ms": sweep["ms"] * 100 / SWEPT}
    table = {"1e6": one, "1e5 × 100": hundred}
    for rows in table.values():
        for row in rows.values():
            row["ratio"] = rows["scikit-learn, 100 cuts"]["ms"] / row["ms"]
    return table


def judging(quick: bool) -> Table:
    """Time macro-F1 of a hundred classes against torchmetrics and scikit-learn."""
    from torchmetrics.functional.classification import multilabel_f1_score

    s, y = data(10**5, 100)
    n_s, n_y = s.numpy(), y.numpy()
    runs: dict[str, Run] = {
        "ours": lambda: mg.evaluate(s, y, "f1", task="multilabel"),
        "torchmetrics": lambda: multilabel_f1_score(s, y, num_labels=100, average="macro"),
        "scikit-learn": lambda: f1_score(n_y, n_s >= 0.5, average="macro"),
    }
    mine, its = mg.evaluate(s, y, "f1", task="multilabel")["f1"], f1_score(n_y, n_s >= 0.5, average="macro")
    assert abs(mine - its) < 1e-12, f"{mine} is not {its}"
    rows = timed(runs, quick)
    for row in rows.values():
        row["ratio"] = row["ms"] / rows["ours"]["ms"]
    return {"1e5 × 100": rows}


def intervals(quick: bool) -> Table:
    """Time 1000 replicates of ten metrics against one pass over the data."""
    s, y = data(10**6)
    rows = timed(
        {
            "one pass": lambda: mg.evaluate(s, y, TEN),
            "with 1000 replicates": lambda: mg.bootstrap(s, y, TEN, replicates=1000),
        },
        quick,
    )
    for row in rows.values():
        row["ratio"] = row["ms"] / rows["one pass"]["ms"]
    return {"1e6, ten metrics": rows}


def growth(quick: bool) -> Row:
    """Time the exact threshold at growing sizes and return the log-log slope."""
    sizes = GROWTH[:-1] if quick else GROWTH
    runs: dict[str, Run] = {str(n): partial(mg.tune_threshold, "f1", *data(n)) for n in sizes}
    found = timed(runs, quick)
    fit = statistics.linear_regression([math.log(n) for n in sizes], [math.log(found[str(n)]["ms"]) for n in sizes])
    return {
        "ms": {name: row["ms"] for name, row in found.items()},
        "slope": fit.slope,
        "disturbed": any(row["disturbed"] for row in found.values()),
    }


def memory_here() -> Row:
    """Return the peak of what macro-F1 allocates beyond its input, as a multiple of the scores."""
    s, y = data(10**5, 100)
    mg.evaluate(s[:8], y[:8], "f1", task="multilabel")
    return {"ratio": allocated_peak(lambda: mg.evaluate(s, y, "f1", task="multilabel")) / s.nbytes}


def targets(found: dict[str, Any]) -> list[Row]:
    """Return what was aimed at beside what was measured, as ratios that should be small."""
    wanted = []
    for shape, rows in found["tuning"].items():
        ours = rows["ours, exact"]
        noisy = ours["disturbed"] or rows["scikit-learn, 100 cuts"]["disturbed"]
        wanted.append((f"exact F1 threshold / scikit-learn's sweep, {shape}", 1 / ours["ratio"], 1 / 60, noisy))
        if PEER in rows:
            noisy = ours["disturbed"] or rows[PEER]["disturbed"]
            wanted.append((f"exact F1 threshold / {PEER}, {shape}", ours["ms"] / rows[PEER]["ms"], 1.0, noisy))
    (rows,) = found["judging"].values()
    for peer, times in (("torchmetrics", 4), ("scikit-learn", 9)):
        noisy = rows["ours"]["disturbed"] or rows[peer]["disturbed"]
        wanted.append((f"macro-F1 of 1e5 × 100 / {peer}", 1 / rows[peer]["ratio"], 1 / times, noisy))
    wanted.append(("macro-F1 of 1e5 × 100, memory / scores", found["memory"]["ratio"], 1.0, False))
    (rows,) = found["intervals"].values()
    row = rows["with 1000 replicates"]
    wanted.append(("1000 replicates / one pass, 1e6", row["ratio"], 2.0, row["disturbed"]))
    wanted.append(("exact F1 threshold, slope of growth", found["growth"]["slope"], 1.15, found["growth"]["disturbed"]))
    return marked(wanted)


def main() -> None:
    """Measure, print and write."""
    options = arguments(__doc__)
    if options.memory is not None:
        print(json.dumps(memory_here()))
        return
    found: dict[str, Any] = {"machine": machine("scikit-learn", "torchmetrics", PEER), "quick": options.quick}
    found["tuning"] = tuning(options.quick)
    show(
        "exact threshold for F1: milliseconds (times faster than the sweep)",
        found["tuning"],
        lambda r: f"{ms(r)} ({r['ratio']:.1f}×)",
    )
    found["judging"] = judging(options.quick)
    show("macro-F1: milliseconds (ratio to ours)", found["judging"], lambda r: f"{ms(r)} ({r['ratio']:.2f}×)")
    found["intervals"] = intervals(options.quick)
    show("intervals: milliseconds (ratio to one pass)", found["intervals"], lambda r: f"{ms(r)} ({r['ratio']:.2f}×)")
    found["growth"] = growth(options.quick)
    print(f"\ngrowth of the exact threshold: {found['growth']['ms']}, slope {found['growth']['slope']:.3f}")
    found["memory"] = alone(__file__, "macro-F1")
    found["targets"] = targets(found)
    show_targets(found["targets"])
    write(found, options.json)


if __name__ == "__main__":
    main()
