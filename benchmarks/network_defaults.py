"""Choose the defaults of the network: regularisation, width, and the share of the metric loss.

    python benchmarks/network_defaults.py --data FOLDER [--task NAME] [--split 0] [--only NAMES] [--sets NAMES]
    python benchmarks/network_defaults.py --summary

Needs the extras ``sklearn``, ``boosting`` and ``bench``; ``datasets.py`` says what the folder holds. One factor is
changed at a time around the plain network; what looks best is then tried again, on another split. 75 % of the rows
to train and tune, 25 % to judge; five networks each, which stop early and are decided on the rows that they were not
trained on. Sets are cut to 5,000 rows. Results are appended as they are made, and what is there is not made again.

These sets choose defaults: no set that judges them is among them.
"""

from __future__ import annotations

import argparse
import copy
import csv
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from sklearn.metrics import average_precision_score, f1_score, precision_recall_curve
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit, train_test_split
from sklearn.preprocessing import label_binarize

import metricgrad as mg
from datasets import load
from quality import as_markdown, prepared

RESULTS = Path(__file__).parent / "results" / "network_defaults.csv"
COLUMNS = ["task", "set", "split", "network", "f1", "f1_cautious", "average_precision", "log_loss", "seconds"]
ROWS, FEW = 5000, 20
SETS: dict[str, tuple[str, ...]] = {
    "several labels": ("yeast", "scene", "cancerHallmarks"),
    "several classes, long tail": ("letter-tail", "segment-tail", "splice-tail"),
    "several classes": ("letter", "segment", "splice"),
    "one label": (
        *("us_crime", "kc1", "ozone_level_8hr", "yeast_me2", "abalone_19", "churn", "wine_quality", "annthyroid"),
        *("PageBlocks", "satimage-2", "phoneme", "mammography", "campaign"),
    ),
}

PLAIN: dict[str, Any] = {
    "model": (32, 16),
    "dropout": 0.0,
    "weight_decay": 1e-4,
    "metric_weight": 0.3,
    "learning_rate": 3e-3,
}
NETWORKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "128-64": {"model": (128, 64)},
    "256": {"model": (256,)},
    "share 0": {"metric_weight": 0.0},
    "share 1": {"metric_weight": 1.0},
    "share 3": {"metric_weight": 3.0},
    "dropout 0.2": {"dropout": 0.2},
    "dropout 0.4": {"dropout": 0.4},
    "weight decay 0.01": {"weight_decay": 1e-2},
    "weight decay 0.1": {"weight_decay": 1e-1},
    "weight decay 1": {"weight_decay": 1.0},
    "256, dropout 0.4": {"model": (256,), "dropout": 0.4},
    "128-64, dropout 0.2": {"model": (128, 64), "dropout": 0.2},
    "256-128": {"model": (256, 128)},
    "256-128, dropout 0.2": {"model": (256, 128), "dropout": 0.2},
    "256-128, share 3": {"model": (256, 128), "metric_weight": 3.0},
    "256, share 0": {"model": (256,), "metric_weight": 0.0},
    "256, share 3": {"model": (256,), "metric_weight": 3.0},
    "256, weight decay 1": {"model": (256,), "weight_decay": 1.0},
    "256, dropout 0.2": {"model": (256,), "dropout": 0.2},
    "linear": {"model": "linear"},
    "linear, weight decay 1": {"model": "linear", "weight_decay": 1.0},
    "learning rate 0.001": {"learning_rate": 1e-3},
    "TabM": {"model": "tabm"},
    "TabM, share 0": {"model": "tabm", "metric_weight": 0.0},
}


def rows_of(name: str, folder: Path) -> tuple[Any, Any]:
    """Return features and targets of at most ``ROWS`` rows, always the same ones."""
    X, y = load(name, folder)
    if len(y) <= ROWS:
        return X, y
    rows, _ = train_test_split(np.arange(len(y)), train_size=ROWS, random_state=0, stratify=None if y.ndim > 1 else y)
    return _take(X, np.sort(rows)), y[np.sort(rows)]


def as_scored_batch(options: dict[str, Any], X: Any, y: Any, rows: Any, held: Any, seed: int) -> list[float]:
    """Fit five networks on ``rows``, and return what they reach on the held ones.

    The rule is tuned here, label by label, and once more with rare labels at 0.5 (rare classes: with the argmax),
    so that the choice does not hang on how the library treats these.
    """
    fold = KFold if y.ndim > 1 else StratifiedKFold
    folds = list(fold(5, shuffle=True, random_state=seed).split(rows, y[rows]))
    network = mg.MetricClassifier(cv=folds, rule="fixed", random_state=seed, **options)
    fitted = prepared(network, X).fit(_take(X, rows), y[rows])
    inputs = fitted[:-1].transform(_take(X, rows))
    several = y.ndim == 1 and y.max() > 1
    outputs = fitted[-1].predict_scores(inputs[:1]).shape[1:]
    left_out = np.empty((len(rows), *outputs))
    for one, (_, part) in zip(network.networks_, folds, strict=True):
        alone = copy.copy(network)
        alone.networks_ = [one]
        left_out[part] = alone.predict_scores(inputs[part])
    p, truth = fitted[-1].predict_scores(fitted[:-1].transform(_take(X, held))), y[held]
    if several:
        tuned = mg.tune_threshold("f1", left_out, y[rows], task="multiclass").rule
        plain = p.argmax(1)
        few = np.bincount(y[rows]).min() < FEW
        decided = tuned.decide(torch.from_numpy(p)).numpy()
        decisions = decided, plain if few else decided
        ones = label_binarize(truth, classes=np.arange(p.shape[1]))
        surprise = -float(np.log(p[np.arange(len(p)), truth].clip(1e-7)).mean())
    else:
        p, left_out, ones, known = (a.reshape(len(a), -1) for a in (p, left_out, truth, y[rows]))
        thresholds = np.array([find_best_threshold(s, k) for s, k in zip(left_out.T, known.T, strict=True)])
        cautious = np.where(np.minimum(known.sum(0), (1 - known).sum(0)) < FEW, 0.5, thresholds)
        decisions = (p >= thresholds).astype(int), (p >= cautious).astype(int)
        safe = p.clip(1e-7, 1 - 1e-7)
        surprise = -float(np.where(ones == 1, np.log(safe), np.log1p(-safe)).mean())
    average = "macro" if several or y.ndim > 1 else "binary"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a label without positives among the held rows
        f1 = [
            f1_score(truth, d if average == "macro" else d[:, 0], average=average, zero_division=0) for d in decisions
        ]
        return [*f1, average_precision_score(ones, p, average="macro"), surprise]


def find_best_threshold(scores: Any, truth: Any) -> float:
    """Return the threshold of the largest F1, half-way to the next lower score."""
    precision, recall, thresholds = precision_recall_curve(truth, scores)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    best = int(f1[:-1].argmax())
    return float((thresholds[best] + thresholds[max(best - 1, 0)]) / 2)


def _take(X: Any, rows: Any) -> Any:
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]


def run(options: argparse.Namespace) -> None:
    """Make every result that is not there yet."""
    if not options.results.exists():
        options.results.write_text(",".join(COLUMNS) + "\n")
    done = set(pd.read_csv(options.results)[COLUMNS[1:4]].itertuples(index=False, name=None))
    data: dict[str, Any] = {}
    for network in options.only or NETWORKS:
        for task in options.task or SETS:
            for name in SETS[task]:
                if (name, options.split, network) in done or (options.sets and name not in options.sets):
                    continue
                if name not in data:
                    data[name] = rows_of(name, options.data)
                X, y = data[name]
                kind = ShuffleSplit if y.ndim > 1 else StratifiedShuffleSplit
                outer = kind(options.split + 1, test_size=0.25, random_state=0).split(np.zeros(len(y)), y)
                rows, held = list(outer)[options.split]
                start = time.process_time()
                result = as_scored_batch({**PLAIN, **NETWORKS[network]}, X, y, rows, held, options.split)
                row = [task, name, options.split, network, *(f"{v:.6f}" for v in result)]
                row.append(f"{time.process_time() - start:.1f}")
                with options.results.open("a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerow(row)
                print(*row, flush=True)


def summary(path: Path) -> None:
    """Print each network's mean differences from the plain one, on the sets that both were tried on."""
    table = pd.read_csv(path)
    values = COLUMNS[4:]
    for task in SETS:
        for split in sorted(table.split.unique()):
            part = table[(table.task == task) & (table.split == split)].set_index("set")
            plain = part.loc[part.network == "plain", values]
            rows = {}
            for network in NETWORKS:
                gap = (part.loc[part.network == network, values] - plain).dropna()
                if network != "plain" and len(gap):
                    rows[network] = _cells(gap, part.loc[part.network == network, "seconds"].sum(), plain)
            heads = ["sets", "F1", "sets won", "p", "F1, rare at 0.5", "average precision", "log-loss", "CPU time"]
            if rows:
                title = f"{task}, {'first split' if split == 0 else 'second split'}"
                print(as_markdown(title, pd.DataFrame.from_dict(rows, orient="index", columns=heads)))


def _cells(gap: Any, seconds: float, plain: Any) -> list[str]:
    """Return one row of the summary; Wilcoxon's p where there are six sets or more."""
    p = f"{stats.wilcoxon(gap.f1).pvalue:.2f}" if len(gap) > 5 and gap.f1.any() else "–"
    means = [f"{gap[name].mean():+.3f}".replace("-", "−") for name in COLUMNS[4:8]]
    won = f"{int((gap.f1 > 0).sum())}"
    return [str(len(gap)), means[0], won, p, *means[1:], f"{seconds / plain.seconds[gap.index].sum():.1f}×"]


def main() -> None:
    """Run the study, or sum it up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    several = lambda text: text.split(";")  # noqa: E731
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--task", type=several, help="separated by semicolons: " + "; ".join(SETS))
    parser.add_argument("--sets", type=several)
    parser.add_argument("--only", type=several, help="networks, separated by semicolons")
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    if not options.summary:
        if options.data is None:
            parser.error("--data: expected the folder of data sets")
        run(options)
    summary(options.results)


if __name__ == "__main__":
    main()
