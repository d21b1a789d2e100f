"""What ``mg.compare`` ships, on rows that it never saw: the metric and the CPU seconds on ten real tables.

    python benchmarks/shipped_quality.py --data FOLDER [--quick] --csv benchmarks/results/shipped_quality.csv

A quarter of the rows of every table is held out; ``compare`` gets the others, with its defaults, in one process. The
value is that of the shipped model's predictions on the held-out rows. Finished lines are kept in the file, and the same
command goes on where it stopped; ``--version`` names the code that ran, so that two versions stand in one file.
``--summary`` prints the differences between two versions, paired by table. Needs the extra ``app``;
``datasets.py`` says what the folder holds.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import metricgrad as mg
from datasets import load, task_of

TABLES = (
    *("adult", "annthyroid", "churn", "jm1", "us_crime", "yeast_me2"),
    *("emotions", "flags", "contraceptive", "vowel"),
)
MOST_ROWS = 8000
"""Larger tables are thinned out to this many rows, so that a comparison takes minutes."""
FIELDS = ("version", "quick", "table", "split", "metric", "value", "shipped", "cpu_seconds")


def make_frame(name: str, folder: Path) -> tuple[pd.DataFrame, list[str]]:
    """Return a table with its targets as columns, and the names of these."""
    features, targets = load(name, folder)
    frame = pd.DataFrame(features).rename(columns=str)
    y = np.asarray(targets)
    columns = ["y"] if y.ndim == 1 else [f"y{k}" for k in range(y.shape[1])]
    frame[columns] = y.reshape(len(y), -1)
    some = np.random.default_rng(0).permutation(len(frame))[:MOST_ROWS]
    return frame.iloc[np.sort(some)].reset_index(drop=True), columns


def hold_out(frame: pd.DataFrame, columns: list[str], split: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows for ``compare``, and a quarter of the rows of each class that it does not see."""
    order = np.random.default_rng(split + 1).permutation(len(frame))
    place = pd.Series(np.arange(len(frame)), index=frame.index[order]).sort_index()
    rank = place.groupby([frame[column] for column in columns[:1]]).rank(method="first")
    held_out = (rank % 4 == 0).to_numpy()
    return frame[~held_out], frame[held_out]


def measure(name: str, folder: Path, split: int, quick: bool) -> dict[str, Any]:
    """Compare on most rows of a table, and evaluate what is shipped on the others."""
    frame, columns = make_frame(name, folder)
    train, test = hold_out(frame, columns, split)
    started = sum(os.times()[:4])
    study = mg.compare(train, columns if len(columns) > 1 else columns[0], "f1", quick=quick, seed=split, jobs=1)
    seconds = sum(os.times()[:4]) - started
    found = study.model.predict(test.drop(columns=columns))
    truth = test[columns].to_numpy() if len(columns) > 1 else test[columns[0]].to_numpy()
    value = _compute_f1(truth, np.asarray(found), task_of(name))
    return {
        "table": name,
        "split": split,
        "metric": "f1",
        "value": f"{value:.5f}",
        "shipped": study.verdict.ship,
        "cpu_seconds": f"{seconds:.1f}",
    }


def _compute_f1(truth: np.ndarray, found: np.ndarray, task: str) -> float:
    from sklearn.metrics import f1_score

    average = "binary" if task == "binary" else "macro"
    return float(f1_score(truth.astype(int), found.astype(int), average=average, zero_division=0))


def read_lines(path: Path) -> list[dict[str, str]]:
    """Return the lines that are done."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def summarise(lines: list[dict[str, str]], before: str, after: str) -> None:
    """Print the differences of two versions, paired by table, with a t interval over tables."""
    for quick in ("False", "True"):
        by = {
            version: {
                (one["table"], one["split"]): one
                for one in lines
                if one["version"] == version and one["quick"] == quick
            }
            for version in (before, after)
        }
        both = sorted(by[before].keys() & by[after].keys())
        if len(both) < 2:
            continue
        gains = [float(by[after][key]["value"]) - float(by[before][key]["value"]) for key in both]
        half = float(stats.t.ppf(0.975, len(gains) - 1)) * statistics.stdev(gains) / len(gains) ** 0.5
        mean = statistics.fmean(gains)
        ratios = [float(by[after][key]["cpu_seconds"]) / float(by[before][key]["cpu_seconds"]) for key in both]
        mean_ratio = statistics.geometric_mean(ratios)
        print(f"{'--quick' if quick == 'True' else 'default'}: {len(both)} tables, {after} - {before}: ", end="")
        print(
            f"{mean:+.4f} ({mean - half:+.4f} to {mean + half:+.4f}), higher on {sum(g > 0 for g in gains)}; ", end=""
        )
        print(f"CPU seconds {mean_ratio:.2f} times ({min(ratios):.2f} to {max(ratios):.2f})")
        for key, gain, ratio in zip(both, gains, ratios, strict=True):
            one, two = by[before][key], by[after][key]
            shipped = f"{one['shipped']} -> {two['shipped']}"
            print(f"  {key[0]:16}{one['value']} -> {two['value']} ({gain:+.3f})  CPU {ratio:.2f}  {shipped}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of datasets.py")
    parser.add_argument("--csv", type=Path, required=True, help="finished lines")
    parser.add_argument("--version", default="now", help="a name for the code that runs")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--summary", nargs=2, metavar=("BEFORE", "AFTER"))
    options = parser.parse_args()
    lines = read_lines(options.csv)
    if options.summary:
        summarise(lines, *options.summary)
        return
    done = {(one["version"], one["quick"], one["table"], one["split"]) for one in lines}
    new = not options.csv.exists()
    with options.csv.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            file.write("# python benchmarks/shipped_quality.py --data FOLDER [--quick] --version NAME\n")
            writer.writeheader()
        for split in range(options.splits):
            for name in options.tables.split(","):
                if (options.version, str(options.quick), name, str(split)) in done:
                    continue
                row = {
                    "version": options.version,
                    "quick": options.quick,
                    **measure(name, options.data, split, options.quick),
                }
                writer.writerow(row)
                file.flush()
                print(row, flush=True)


if __name__ == "__main__":
    main()
