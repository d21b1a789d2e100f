"""How often 95 % intervals contain the truth, on simulated data sets.

    python benchmarks/coverage.py [--only binary ...] [--sets 400] [--replicates 400] [--json FILE]
    python benchmarks/coverage.py --table FILE

``coverage_scenarios.py`` lists the scenarios: how many rows and positives, how strong the scores, with metrics of one
label, macro averages, differences of two models, and rules that are tuned on the rows they are evaluated on, which are
judged by the population's F1 of the threshold tuned on that very data set. Besides the share of intervals that hold the
truth: on which side the others miss, and how wide they are. ``--only methods`` compares ways to make an interval, see
``coverage_methods.py``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import coverage_scenarios as scenarios
import metricgrad as mg
from coverage_methods import compare_methods
from coverage_scenarios import METRICS, THRESHOLD, Binary, Classes, Macro, Paired, TuningSpec
from metricgrad.decisions import Threshold

Row = dict[str, Any]
Judged = Iterator[tuple[str, tuple[float, float], float]]
"""What was estimated, its interval, and the truth."""


def judge_binary(scenario: Binary, seed: int, how: Row) -> Judged:
    """Yield the intervals of one data set."""
    g = torch.Generator().manual_seed(seed)
    y = scenarios.draw_targets(scenario.n, scenario.positives, scenario.rate, scenario.drawn, g)
    s = scenarios.draw_scores(y, scenario.lift, g)
    threshold = scenarios.break_even(scenario.rate, scenario.lift)
    truth = scenarios.find_truth(scenario.rate, scenario.lift, threshold)
    for name, found in mg.bootstrap(s, y, METRICS, rule=Threshold(threshold), **how).items():
        yield name, (found.low, found.high), truth[name]


def judge_macro(scenario: Macro, seed: int, how: Row) -> Judged:
    """Yield the intervals of one data set."""
    s, y = scenarios.draw_labels(scenario, torch.Generator().manual_seed(seed))
    each = [scenarios.find_truth(rate, scenarios.LIFT, THRESHOLD) for rate in scenario.rates]
    metrics = METRICS if scenario.n <= 100 else METRICS[:3]  # curves of many labels and rows take long
    for name, found in mg.bootstrap(s, y, metrics, task="multilabel", rule=Threshold(THRESHOLD), **how).items():
        yield name, (found.low, found.high), sum(truth[name] for truth in each) / len(each)


def judge_classes(scenario: Classes, seed: int, how: Row) -> Judged:
    """Yield the interval of one data set."""
    s, y = scenarios.draw_classes(scenario, torch.Generator().manual_seed(seed))
    found = mg.bootstrap(s, y, "f1", task="multiclass", **how)["f1"]
    yield "f1", (found.low, found.high), scenarios.find_truth_of_classes(scenario.rates)


def judge_paired(scenario: Paired, seed: int, how: Row) -> Judged:
    """Yield the intervals of differences on one data set."""
    g = torch.Generator().manual_seed(seed)
    y = scenarios.draw_targets(round(scenario.positives / scenario.rate), scenario.positives, scenario.rate, False, g)
    a, b = scenarios.draw_pair(y, scenario.lifts, g)
    thresholds = [scenarios.break_even(scenario.rate, lift) for lift in scenario.lifts]
    pairs = zip(scenario.lifts, thresholds, strict=True)
    one, two = (scenarios.find_truth(scenario.rate, lift, threshold) for lift, threshold in pairs)
    rules = [Threshold(threshold) for threshold in thresholds]
    for name, found in mg.compare_paired(a, b, y, METRICS, rule=rules, **how).items():
        yield name, (found.low, found.high), one[name] - two[name]


def judge_tuned(scenario: TuningSpec, seed: int, how: Row) -> Judged:
    """Yield the interval of a tuned rule on one data set, and that which takes the rule as given."""
    g = torch.Generator().manual_seed(seed)
    y = scenarios.draw_targets(round(scenario.positives / scenario.rate), scenario.positives, scenario.rate, False, g)
    s = scenarios.draw_scores(y, scenario.lift, g)
    best = mg.tune_threshold("f1", s, y)
    truth = scenarios.find_truth(scenario.rate, scenario.lift, best.threshold)["f1"]
    for name, rule in (("tuned", mg.decisions.TuningSpec("f1")), ("taken as given", best.rule)):
        found = mg.bootstrap(s, y, "f1", rule=rule, **how)["f1"]
        yield name, (found.low, found.high), truth


def judge_paired_tuned(scenario: Paired, seed: int, how: Row) -> Judged:
    """Yield the interval of the difference of two rules, each tuned on the rows that they are compared on."""
    g = torch.Generator().manual_seed(seed)
    y = scenarios.draw_targets(round(scenario.positives / scenario.rate), scenario.positives, scenario.rate, False, g)
    scores = scenarios.draw_pair(y, scenario.lifts, g)
    truths = []
    for lift, s in zip(scenario.lifts, scores, strict=True):
        threshold = mg.tune_threshold("f1", s, y).threshold
        truths.append(scenarios.find_truth(scenario.rate, lift, threshold)["f1"])
    found = mg.compare_paired(*scores, y, "f1", rule=mg.decisions.TuningSpec("f1"), **how)["f1"]
    yield "f1", (found.low, found.high), truths[0] - truths[1]


KINDS: dict[str, tuple[Any, Any]] = {
    "binary": (judge_binary, [one for one in scenarios.BINARY if not one.drawn and one.positives < 100]),
    "binary, 100 positives": (judge_binary, [one for one in scenarios.BINARY if one.positives == 100]),
    "binary, positives drawn": (judge_binary, [one for one in scenarios.BINARY if one.drawn]),
    "macro": (judge_macro, scenarios.MACRO),
    "classes": (judge_classes, scenarios.CLASSES),
    "paired": (judge_paired, scenarios.PAIRED),
    "paired, tuned": (judge_paired_tuned, scenarios.PAIRED_TUNED),
    "tuned": (judge_tuned, scenarios.TUNED),
}


def summarise(found: list[tuple[tuple[float, float], float]]) -> Row:
    """Return what happened to many intervals."""
    n = len(found)
    if not all(math.isfinite(truth) for _, truth in found):  # which no interval would miss
        raise ValueError("truth: expected a number")
    below = sum(high < truth for (_, high), truth in found) / n
    above = sum(low > truth for (low, _), truth in found) / n
    widths = [high - low for (low, high), _ in found]
    return {
        "coverage": 1 - below - above,
        "too_low": below,
        "too_high": above,
        "width": sum(widths) / n,
        "least_width": min(widths),
    }


def simulate(kind: str, sets: int, replicates: int) -> Iterator[Row]:
    """Yield a row for each scenario and metric."""
    judge, some = KINDS[kind]
    for number, scenario in enumerate(some):
        found: dict[str, list[tuple[tuple[float, float], float]]] = {}
        for k in range(sets):
            seed = 1_000_000 * number + k
            for name, ends, truth in judge(scenario, seed, {"replicates": replicates, "seed": seed}):
                found.setdefault(name, []).append((ends, truth))
        for name, each in found.items():
            yield {"kind": kind, **scenario._asdict(), "metric": name, **summarise(each)}


def describe(row: Row) -> str:
    """Return a row as a line of text."""
    names = [key for key in row if key not in ("kind", "coverage", "too_low", "too_high", "width", "least_width")]
    about = ", ".join(f"{key} {row[key]}" for key in names)
    ends = f"{row['too_low']:8.3f}{row['too_high']:8.3f}"
    return f"{row['coverage']:.3f}{ends}{row['width']:8.3f}{row['least_width']:8.3f}  {row['kind']}: {about}"


def main() -> None:
    """Run everything, print it and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = [*KINDS, "methods"]
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds, help="kinds of scenarios")
    parser.add_argument("--sets", type=int, default=400, help="data sets of each scenario")
    parser.add_argument("--replicates", type=int, default=400, help="bootstrap replicates of each data set")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the results there; earlier ones of other kinds stay"
    )
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="print the tables of earlier results, and do no more"
    )
    args = parser.parse_args()
    if args.table:
        print_tables(json.loads(args.table.read_text()))
        return
    torch.set_num_threads(1)
    about = {
        "command": " ".join(["benchmarks/coverage.py", *sys.argv[1:]]),
        "sets": args.sets,
        "replicates": args.replicates,
        "largest_standard_error": math.sqrt(0.25 / args.sets),
        "standard_error_at_0.95": math.sqrt(0.95 * 0.05 / args.sets),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "metricgrad")},
    }
    print(f"95 % intervals, {args.sets} data sets each; standard error of a coverage of 0.95: ", end="")
    print(f"{about['standard_error_at_0.95']:.3f}\n\ncover   below   above   width   least", flush=True)
    for kind in args.only:
        started, rows = time.process_time(), []
        each = (
            compare_methods(args.sets, args.replicates)
            if kind == "methods"
            else simulate(kind, args.sets, args.replicates)
        )
        for row in each:
            rows.append(row)
            print(describe(row), flush=True)
        if args.json:
            write(args.json, kind, {"about": {**about, "cpu_seconds": time.process_time() - started}, "rows": rows})


def write(path: Path, kind: str, found: Row) -> None:
    """Write the results of a kind of scenarios, one row a line, beside those of other kinds."""
    kept: dict[str, Row] = json.loads(path.read_text()) if path.exists() else {}
    kept[kind] = json.loads(json.dumps(found), parse_float=lambda x: float(f"{float(x):.4g}"))
    parts = []
    for name, part in kept.items():
        lines = ",\n".join(json.dumps(row) for row in part["rows"])
        parts.append(f'"{name}": {{"about": {json.dumps(part["about"])},\n"rows": [\n{lines}\n]}}')
    path.write_text("{" + ",\n".join(parts) + "}\n")


def print_tables(results: dict[str, Row]) -> None:
    """Print Markdown tables of the least and the mean coverage over the scenarios of each kind and size."""
    for kind, part in results.items():
        by_method = kind == "methods"
        groups: dict[str, dict[str, list[float]]] = {}
        for row in part["rows"]:
            size = (
                f"{row['positives']} positives"
                if "positives" in row
                else f"n = {row['n']}, {len(row['rates'])} classes"
            )
            name = f"{row['method']}, {size}" if by_method else f"{kind}, {size}"
            groups.setdefault(name, {}).setdefault(row["metric"], []).append(row["coverage"])
        columns = list(dict.fromkeys(row["metric"] for row in part["rows"]))
        about = part["about"]
        print(
            f"\n{about['sets']} data sets a scenario, standard error at 0.95: {about['standard_error_at_0.95']:.3f}\n"
        )
        print(f"| least (mean) | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
        for name, found in groups.items():
            cells = [found.get(column, []) for column in columns]
            texts = [f"{min(x):.1%} ({sum(x) / len(x):.1%})" if x else "" for x in cells]
            print(f"| {name} | {' | '.join(texts)} |")


if __name__ == "__main__":
    main()
