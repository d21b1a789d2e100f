"""Does training on the metric help? Every contender on every data set and split, under one protocol.

    python benchmarks/quality.py --data FOLDER [--sets NAMES] [--splits 5] [--models 32-16,128-64] [--only NAMES]
    python benchmarks/quality.py --summary

Needs the extras ``sklearn``, ``boosting`` and ``bench``; ``datasets.py`` says what the folder holds. Outer splits are
random, stratified, 75 % to train and tune, 25 % to judge. Everything else happens inside the 75 %: contenders stop
early and tune their rule on rows that they do not train on. Every result is appended to a CSV file as it is made, and
what is there is not made again: stop and start as you like.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit, TunedThresholdClassifierCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from xgboost import XGBClassifier

import metricgrad as mg
from datasets import MULTILABEL, load

RESULTS = Path(__file__).parent / "results" / "quality.csv"
COLUMNS = ["set", "model", "split", "contender", "f1", "average_precision", "seconds"]
BINARY = ("mammography", "adult", "annthyroid", "campaign", "wine_quality", "churn")
SETS = (*BINARY, "yeast", "scene", "cancerHallmarks")

Make = Callable[[str, int, Any], Any]
"""Makes an estimator of the model's name, a seed, and the targets that it will be fitted on."""

GROWTH = {"n_estimators": 200, "max_depth": 4, "learning_rate": 0.1}
BINS = {"max_bin": 64}
"""What all trees share; coarser bins for several labels, since fine ones take hours."""


def network(**options: Any) -> Make:
    """Return a maker of a network of ours with these options."""

    def make(model: str, seed: int, y: Any) -> Any:
        sizes: Any = tuple(map(int, model.split("-"))) if model[0].isdigit() else model
        return mg.MetricClassifier(model=sizes, random_state=seed, **options)

    return make


def xgboost(model: str, seed: int, y: Any) -> Any:
    """Return XGBoost with logloss and tuned thresholds: scikit-learn's tuning, ours for several labels."""
    trees = XGBClassifier(random_state=seed, **GROWTH, **(BINS if y.ndim > 1 else {}))
    if y.ndim > 1:
        return mg.ThresholdedClassifier(MultiOutputClassifier(trees), "f1")
    return TunedThresholdClassifierCV(trees, scoring="f1", cv=5, random_state=seed)


def boosting(**options: Any) -> Make:
    """Return a maker of trees of ours, as they are by default but for these options, grown the same way."""

    def make(model: str, seed: int, y: Any) -> Any:
        bins = {"backend_params": BINS} if y.ndim > 1 else {}
        how: dict[str, Any] = {**GROWTH, **bins, **options}
        return mg.MetricBoostingClassifier("f1", random_state=seed, **how)

    return make


RECIPE: dict[str, Any] = {"cv": 5, "weight_average": 0.98, "monitor": "loss"}
SINGLE: dict[str, Any] = {"cv": None, "weight_average": 0.0, "monitor": "loss"}

DEFAULT = "hybrid, recipe (default)"

CONTENDERS: dict[str, Make] = {
    "cross-entropy, 0.5": network(loss="cross-entropy", rule="fixed", **SINGLE),
    "cross-entropy, tuned": network(loss="cross-entropy", **SINGLE),
    "weighted cross-entropy, tuned": network(loss="cross-entropy", class_weight="balanced", **SINGLE),
    "metric, 0.5": network(loss="metric", rule="fixed", **SINGLE),
    "hybrid, tuned": network(loss="hybrid", share=0.3, **SINGLE),
    "cross-entropy, recipe": network(loss="cross-entropy", **RECIPE),
    DEFAULT: network(loss="hybrid", share=0.3, **RECIPE),
    "xgboost, tuned": xgboost,
    "metric boosting, tuned": boosting(),
    "cross-entropy boosting, recipe": boosting(loss="cross-entropy"),
}
"""The recipe: five models, each trained without one fold, the rule tuned on these; networks also average weights."""

PAIRS = (
    (DEFAULT, "cross-entropy, 0.5"),
    (DEFAULT, "cross-entropy, tuned"),
    (DEFAULT, "weighted cross-entropy, tuned"),
    (DEFAULT, "xgboost, tuned"),
    (DEFAULT, "cross-entropy, recipe"),
    ("hybrid, tuned", "cross-entropy, tuned"),
    ("metric, 0.5", "cross-entropy, 0.5"),
    ("metric, 0.5", "cross-entropy, tuned"),
    ("metric boosting, tuned", "xgboost, tuned"),
    ("metric boosting, tuned", "cross-entropy boosting, recipe"),
)
"""What is compared with what."""

TREES = ("xgboost, tuned", "metric boosting, tuned", "cross-entropy boosting, recipe")
"""These are the same whatever the network: fitted once, and noted beside each size."""


def prepared(estimator: Any, features: Any) -> Any:
    """Put scikit-learn's own encoders before an estimator."""
    if not isinstance(features, pd.DataFrame):
        return make_pipeline(SimpleImputer(), estimator)
    words = make_column_selector(dtype_exclude="number")
    numbers = make_column_selector(dtype_include="number")
    encoder = OneHotEncoder(handle_unknown="ignore", min_frequency=20, sparse_output=False)
    return make_pipeline(make_column_transformer((encoder, words), (SimpleImputer(), numbers)), estimator)


def splits(name: str, y: Any, number: int) -> list[tuple[Any, Any]]:
    """Return the outer splits: the same rows whoever contends."""
    kind = ShuffleSplit if name in MULTILABEL else StratifiedShuffleSplit
    return list(kind(number, test_size=0.25, random_state=0).split(np.zeros(len(y)), y))


def judged(name: str, fitted: Any, features: Any, y: Any) -> dict[str, float]:
    """Return what counts: F1 (macro over labels), and average precision for the ranking."""
    average = "macro" if name in MULTILABEL else "binary"
    scores = fitted.predict_proba(features)
    scores = scores if name in MULTILABEL else scores[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a label without positives among the test rows
        return {
            "f1": f1_score(y, fitted.predict(features), average=average, zero_division=0),
            "average_precision": average_precision_score(y, scores, average="macro"),
        }


def run(options: argparse.Namespace) -> None:
    """Make every result that is not there yet."""
    done = set()
    known: dict[Any, Any] = {}
    if options.results.exists():
        for *key, f1, precision, seconds in pd.read_csv(options.results)[COLUMNS].itertuples(index=False):
            done.add(tuple(key))
            name, _, split, contender = key
            known[name, split, contender] = {"f1": f1, "average_precision": precision}, seconds
    else:
        options.results.write_text(",".join(COLUMNS) + "\n")
    for name in options.sets:
        features, y = load(name, options.data)
        for split, (rows, held) in enumerate(splits(name, y, options.splits)):
            for model in options.models:
                for contender in options.only or CONTENDERS:
                    if (name, model, split, contender) in done:
                        continue
                    weighted = "weighted" in contender and name in MULTILABEL
                    if weighted:  # class weights are for one label at a time
                        continue
                    if contender in TREES and (name, split, contender) in known:
                        result, took = known[name, split, contender]
                    else:
                        took = time.perf_counter()
                        take = features.iloc if isinstance(features, pd.DataFrame) else features
                        estimator = CONTENDERS[contender](model, split, y[rows])
                        fitted = prepared(estimator, features).fit(take[rows], y[rows])
                        result = judged(name, fitted, take[held], y[held])
                        took = time.perf_counter() - took
                        known[name, split, contender] = result, took
                    with options.results.open("a", newline="") as file:
                        row = [name, model, split, contender, *(f"{v:.6f}" for v in result.values()), f"{took:.1f}"]
                        csv.writer(file, lineterminator="\n").writerow(row)
                    print(*row, flush=True)


def summary(path: Path) -> None:
    """Print, ready for the page: means of each set, mean ranks, and paired differences with intervals."""
    table = pd.read_csv(path)
    wide = table.pivot_table(index=["model", "set", "split"], columns="contender", values="f1")
    wide = wide[[name for name in CONTENDERS if name in wide]]
    for model in table.model.unique():
        part = wide.loc[[model]]
        counts = part.groupby(level="set").count()
        sets = [name for name in (*SETS, *sorted(set(counts.index) - set(SETS))) if name in counts.index]
        # A mean over fewer splits than the others of its set have is of other rows: a dash, until the study is done.
        means = part.groupby(level="set").mean().where(counts.eq(counts.max(axis=1), axis=0)).loc[sets]
        columns = {name: name if n == 5 else f"{name} ({n} of 5)" for name, n in counts.max(axis=1).items()}
        shown = means.rename(index=columns).T.map(lambda value: "–" if np.isnan(value) else f"{value:.3f}")
        _print_table(model, shown)
        whole = means.dropna(thresh=len(means.columns) - 1)  # class weights are not for several labels
        if len(whole):
            ranks = whole.rank(axis=1, ascending=False).mean().sort_values()
            _print_table(f"mean rank, {len(whole)} sets", ranks.map("{:.2f}".format).to_frame(model))
    pairs = [pair for pair in PAIRS if {*pair} <= {*wide}]
    first = table.model.iloc[0]
    rows = {}
    for name, reference in pairs:
        # Trees are the same beside every size of network, and count once.
        part = wide.loc[[first]] if {name, reference} <= {*TREES} else wide
        rows[f"{name} − {reference}"] = _difference(part[name] - part[reference])
    heads = ["mean (95 % interval)", "positive", "p"]
    _print_table("difference", pd.DataFrame.from_dict(rows, orient="index", columns=heads))


def _difference(gaps: Any) -> list[str]:
    """Return the mean over sets and models, its t-interval, how many are positive, and Wilcoxon's p."""
    gap = gaps.groupby(level=["model", "set"]).mean().dropna()  # of the splits that have both
    if len(gap) < 3:
        return ["–"] * 3
    half = stats.t.ppf(0.975, len(gap) - 1) * gap.std() / np.sqrt(len(gap))
    mean, p = gap.mean(), stats.wilcoxon(gap).pvalue
    interval = f"{mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f})".replace("-", "−")
    return [interval, f"{int((gap > 0).sum())} of {len(gap)}", "< 0.001" if p < 0.001 else f"{p:.3f}"]


def _print_table(title: str, table: Any) -> None:
    """Print a frame as Markdown."""
    print(f"\n| {title} | {' | '.join(map(str, table.columns))} |\n" + "|---" * (len(table.columns) + 1) + "|")
    for name, values in zip(table.index, table.to_numpy(), strict=True):
        print(f"| {name} | {' | '.join(values)} |")


def main() -> None:
    """Run the study, or sum it up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--sets", type=names, default=list(SETS))
    parser.add_argument("--models", type=names, default=["32-16", "128-64"])
    parser.add_argument("--only", type=lambda text: text.split(";"), help="contenders, separated by semicolons")
    parser.add_argument("--splits", type=int, default=5)
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
