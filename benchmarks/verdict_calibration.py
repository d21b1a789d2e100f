"""How often the verdict of ``compare`` calls a gain proven, and how often its intervals contain the truth.

    python benchmarks/verdict_calibration.py [--sets 100] [--sizes 1000x2,1000x5,4000x2] [--json FILE]

Data sets are drawn from a population, split as ``compare`` splits them, and ten contenders are cross-fitted in each
repeat: ridge regressions, which take milliseconds. The code that ranks them and writes the verdict is that of
``compare``.

- "rows": each contender is blind to another part of the features. All features are equally good, so that no contender
  is better than another; which one comes out best depends on the training and test rows alone.
- "seeds": each contender sees random features, drawn anew for every fit, as a network starts from random weights. Again
  none is better.
- "gain": the reference is blind to a part of the features that the others see: the gain is real.

Shown are the share of verdicts that call a gain over cross-entropy proven (of "rows" and "seeds": wrongly), and the
share of 95 % intervals of values and of differences, these adjusted for two references, that contain the truth: the
expected F1 in the whole population.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metricgrad.comparison.goal import Goal
from metricgrad.comparison.leaderboard import rank_contenders
from metricgrad.comparison.outcomes import RULE_KINDS, Decision, Outcome
from metricgrad.comparison.splits import RowsToSplit, split_repeatedly
from metricgrad.comparison.uncertainty import Draws, resample
from metricgrad.comparison.verdict import Circumstances, write_verdict
from metricgrad.decisions.rules import Threshold

REFERENCE = "cross-entropy"
NAMES = (
    REFERENCE,
    "logistic regression",
    "weighted cross-entropy",
    "soft-set metric",
    "sigmoid metric",
    "hybrid",
    "xgboost",
    "metric boosting",
    "random forest",
    "ensemble",
)
FEATURES, BLIND = 50, 5
FIXED = 0.3
FOLDS = 5
SIZES = "1000x2,1000x5,4000x2"
"""Rows x repeats."""
GOAL = Goal("binary", 2, "f1", "macro", None)
POPULATION = 50_000
"""Rows that stand for the population; the fits of the first repeat are evaluated on them."""


def draw(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and targets; one row in five is positive."""
    x = rng.standard_normal((rows, FEATURES))
    return x, (rng.random(rows) < 1 / (1 + np.exp(2.0 - 0.25 * x.sum(1)))).astype(np.int64)


def view(kind: str, number: int, rng: np.random.Generator) -> np.ndarray:
    """Return the weights of what a contender sees: ``(FEATURES, inputs)``."""
    if kind == "seeds":
        return rng.standard_normal((FEATURES, FEATURES - BLIND)) / math.sqrt(FEATURES)
    blind = 0 if kind == "gain" else number
    seen = np.ones(FEATURES)
    if kind == "rows" or number == 0:
        seen[BLIND * blind : BLIND * (blind + 1)] = 0
    return np.diag(seen)


def fit(x: np.ndarray, seen: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the weights of a ridge regression on what a contender sees, for all features, and the intercept."""
    z = np.c_[x @ seen, np.ones(len(x))]
    found: np.ndarray = np.linalg.solve(z.T @ z + np.eye(z.shape[1]), z.T @ targets)
    return np.append(seen @ found[:-1], found[-1])


def predict(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return scores."""
    return np.asarray(x @ weights[:-1] + weights[-1])


def tune(scores: np.ndarray, targets: np.ndarray) -> float:
    """Return the threshold with the best F1."""
    order = np.argsort(-scores)
    values = 2 * targets[order].cumsum() / (np.arange(1, len(scores) + 1) + targets.sum())
    return float(scores[order][values.argmax()])


def f1(scores: np.ndarray, targets: np.ndarray, threshold: float) -> float:
    """Return the F1 of a threshold."""
    taken = scores >= threshold
    return float(2 * targets[taken].sum() / (taken.sum() + targets.sum()))


def simulate(kind: str, rows: int, repeats: int, seed: int, world: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """Compare on one data set; return the leaderboard by row, the verdict, and the true values of all fits."""
    rng = np.random.default_rng([seed, rows, repeats])
    x, y = draw(rng, rows)
    draws, outcomes = Draws(rows, None, seed), list[Outcome]()
    moves: dict[Any, list[np.ndarray]] = {(name, rule): [] for name in NAMES for rule in RULE_KINDS}
    true: dict[Any, list[float]] = {place: [] for place in moves}
    parts = split_repeatedly(
        RowsToSplit(y, "binary"), repeats, FOLDS, seed, [seed + repeat for repeat in range(repeats)]
    )
    for repeat, part in enumerate(parts):
        times = draws.of_rows(part.test)
        for number, name in enumerate(NAMES):
            of_folds = [fit(x[rows], view(kind, number, rng), y[rows]) for rows, _ in part.folds]
            left_out = zip(of_folds, part.folds, strict=True)
            out_of_fold = [predict(x[rows], weights) for weights, (_, rows) in left_out]
            tuned = tune(np.concatenate(out_of_fold), y[part.left_out])
            mean = np.mean(of_folds, axis=0)  # its scores are the mean of those of the folds
            scores = predict(x[part.test], mean)
            rules = [Threshold(FIXED), Threshold(tuned)]
            found = resample(GOAL, rules, scores, y[part.test], times)
            everyone = None if repeat else predict(world[0], mean)
            for rule, moved, cut in zip(RULE_KINDS, found, (FIXED, tuned), strict=True):
                moves[name, rule].append(moved)
                true[name, rule] += [] if everyone is None else [f1(everyone, world[1], cut)]
            one, two = (Decision(Threshold(cut), f1(scores, y[part.test], cut), {}) for cut in (FIXED, tuned))
            outcomes.append(Outcome(name, repeat, len(part.train), len(part.test), 0.0, one, two, []))
    board = rank_contenders(outcomes, {place: np.stack(one) for place, one in moves.items()}, "f1")
    verdict = write_verdict(board, Circumstances("F1"))
    return {
        "board": {(row["contender"], row["rule"]): row for row in board},
        "proven": verdict["gain_is_real"],
        "true": {place: float(np.mean(values)) for place, values in true.items()},
    }


def judge(kind: str, rows: int, repeats: int, sets: int) -> dict[str, Any]:
    """Return the shares over many data sets."""
    world = draw(np.random.default_rng(12345), POPULATION)
    found = [simulate(kind, rows, repeats, seed, world) for seed in range(sets)]
    places, reference = [(name, rule) for name in NAMES for rule in RULE_KINDS], (REFERENCE, "tuned")
    truth: dict[Any, float] = {place: float(np.mean([one["true"][place] for one in found])) for place in places}
    if kind != "gain":  # equal by symmetry: the mean over contenders is a better estimate
        truth = {(name, rule): float(np.mean([truth[n, rule] for n in NAMES])) for name, rule in places}
    of_values, of_gains, widths = list[bool](), list[bool](), list[float]()
    for one in found:
        for place, row in one["board"].items():
            of_values.append(row["low"] <= truth[place] <= row["high"])
            if place != reference:
                gain = row["against"]["cross-entropy tuned"]
                of_gains.append(gain["low"] <= truth[place] - truth[reference] <= gain["high"])
                widths.append(gain["high"] - gain["low"])
    proven = float(np.mean([one["proven"] for one in found]))
    return {
        "kind": kind,
        "rows": rows,
        "repeats": repeats,
        "sets": sets,
        "proven": proven,
        "standard_error": math.sqrt(max(proven * (1 - proven), 1 / sets) / sets),
        "coverage_of_values": float(np.mean(of_values)),
        "coverage_of_differences": float(np.mean(of_gains)),
        "width_of_differences": float(np.mean(widths)),
        "true_gain": truth["hybrid", "tuned"] - truth[reference],
    }


def main() -> None:
    """Print a row for each setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--sizes", default=SIZES, help="rows x repeats of the data sets, separated by commas")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes.split(",")]
    torch.set_num_threads(1)
    results = []
    print("kind   rows  repeats  proven          coverage: values  differences  width   true gain")
    for kind in ("rows", "seeds", "gain"):
        for rows, repeats in sizes:
            row = judge(kind, rows, repeats, options.sets)
            results.append(row)
            print(
                f"{kind:<6} {rows:>4} {repeats:>8}  {row['proven']:.3f} ± {row['standard_error']:.3f} "
                f"{row['coverage_of_values']:>16.3f} {row['coverage_of_differences']:>12.3f} "
                f"{row['width_of_differences']:>6.3f} {row['true_gain']:>+11.3f}",
                flush=True,
            )
    if options.json:
        about = {"sets": options.sets, "cores": os.cpu_count(), "python": platform.python_version()}
        about |= {name: version(name) for name in ("metricgrad", "torch", "numpy")}
        found = json.dumps({"about": about, "rows": results})
        short = json.loads(found, parse_float=lambda number: float(f"{float(number):.4g}"))
        options.json.write_text(json.dumps(short, indent=1) + "\n")


if __name__ == "__main__":
    main()
