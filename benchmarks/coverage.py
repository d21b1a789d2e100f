"""How often 95 % bootstrap intervals of F1 contain the truth, on simulated data sets.

    python benchmarks/coverage.py [--sets 200] [--replicates 400] [--json FILE]

Scores of positives and negatives are normal, one standard deviation wide, so that the F1 of any threshold in the whole
population is known exactly. A tuned rule is judged by the population's F1 of the threshold tuned on that very data set,
the number its user will meet. Besides the share of intervals that hold the truth: on which side the others miss, how
wide they are, and the mean error of the value in the middle. The last row shows what a tuned rule gets if its interval
pretends that the rule was given.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
from importlib.metadata import version
from pathlib import Path
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

import metricgrad as mg

Row = dict[str, Any]

SIZES = (300, 1000)
SHARES = (0.2, 0.1, 0.3, 0.5, 0.15)
"""Positives in each class; the binary problem has the first."""
LIFT = 1.5
"""How far positives score above negatives."""
CUT = 0.75
CDF = NormalDist().cdf


def population_f1(share: float, threshold: float) -> float:
    """Return the F1 of a threshold in the whole population."""
    hit, alarm = 1 - CDF(threshold - LIFT), 1 - CDF(threshold)
    return 2 * share * hit / (share * hit + (1 - share) * alarm + share)


def data_set(n: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return scores and targets, ``(n, classes)``."""
    g = torch.Generator().manual_seed(seed)
    y = torch.rand(n, classes, generator=g) < torch.tensor(SHARES[:classes])
    return torch.randn(n, classes, generator=g, dtype=torch.float64) + LIFT * y, y.long()


def judge(kind: str, n: int, seed: int, replicates: int) -> tuple[mg.Interval, float]:
    """Return the interval of one data set, and the truth."""
    scores, targets = data_set(n, len(SHARES) if kind == "macro" else 1, seed)
    how: dict[str, Any] = {"replicates": replicates, "seed": seed}
    if kind == "macro":
        found = mg.bootstrap(scores, targets, "f1", task="multilabel", rule=mg.decisions.Threshold(CUT), **how)
        return found["f1"], sum(population_f1(share, CUT) for share in SHARES) / len(SHARES)
    scores, targets = scores[:, 0], targets[:, 0]
    if kind == "binary":
        found = mg.bootstrap(scores, targets, "f1", rule=mg.decisions.Threshold(CUT), **how)
        return found["f1"], population_f1(SHARES[0], CUT)
    best = mg.tune_threshold("f1", scores, targets)
    rule = mg.decisions.Tuned("f1") if kind == "tuned" else best.rule
    return mg.bootstrap(scores, targets, "f1", rule=rule, **how)["f1"], population_f1(SHARES[0], best.threshold)


def summarise(found: list[tuple[mg.Interval, float]]) -> Row:
    """Return what happened to many intervals."""
    below = sum(interval.high < truth for interval, truth in found)
    above = sum(interval.low > truth for interval, truth in found)
    n = len(found)
    coverage = 1 - (below + above) / n
    return {
        "coverage": coverage,
        "standard_error": math.sqrt(max(coverage * (1 - coverage), 1 / n) / n),
        "too_low": below / n,
        "too_high": above / n,
        "width": sum(interval.high - interval.low for interval, _ in found) / n,
        "bias": sum(interval.value - truth for interval, truth in found) / n,
    }


KINDS = {
    "binary": "binary, rule given",
    "macro": "macro of 5 labels, rule given",
    "tuned": "binary, tuned anew in each replicate",
    "naive": "binary, tuned but taken as given",
}


def main() -> None:
    """Run everything, print it and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200, help="data sets of each kind and size")
    parser.add_argument("--replicates", type=int, default=400, help="bootstrap replicates of each data set")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    about = {"sets": args.sets, "replicates": args.replicates, "cores": os.cpu_count()}
    about |= {"python": platform.python_version(), **{name: version(name) for name in ("torch", "metricgrad")}}
    rows: list[Row] = []
    print("95 % intervals of F1: share that holds the truth, ± its standard error\n")
    print(f"{'':40}{'n':>6}{'coverage':>18}{'too low':>10}{'too high':>10}{'width':>8}{'bias':>9}")
    for kind, text in KINDS.items():
        for n in SIZES:
            found = [judge(kind, n, seed, args.replicates) for seed in range(args.sets)]
            row = {"kind": kind, "n": n, **summarise(found)}
            rows.append(row)
            share = f"{row['coverage']:.3f} ± {row['standard_error']:.3f}"
            ends = f"{row['too_low']:10.3f}{row['too_high']:10.3f}"
            print(f"{text:40}{n:6}{share:>18}{ends}{row['width']:8.3f}{row['bias']:+9.4f}", flush=True)
    if args.json:
        short = json.loads(json.dumps({"about": about, "rows": rows}), parse_float=lambda x: float(f"{float(x):.4g}"))
        args.json.write_text(json.dumps(short, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
