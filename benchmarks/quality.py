"""Does training on the metric help? Every contender on every data set and split, under one protocol.

    python benchmarks/quality.py --data FOLDER [--sets NAMES] [--splits N] [--only NAMES] [--metric f1]
    python benchmarks/quality.py --summary [--write docs/quality.md docs/quality-appendix.md]

Needs the extras ``boosting``, ``tabm`` and ``bench``; ``datasets.py`` says what the folder holds. Outer splits are
random, stratified, 75 % to train and tune, 25 % to evaluate. Everything else happens inside the 75 %: contenders stop
early and tune their rule on rows that they do not train on. Every result is appended to a CSV file as it is made, and
what is there is not made again: stop and start as you like, or run several processes with different ``--sets``.
``--write`` puts the tables of the summary in place of those in a page that have the same first heading.
"""

from __future__ import annotations

import argparse
import csv
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import RidgeClassifierCV
from sklearn.metrics import average_precision_score, cohen_kappa_score, precision_recall_curve
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit, TunedThresholdClassifierCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from xgboost import XGBClassifier

import metricgrad as mg
from datasets import DENSE, load, task_of
from two_images import RESULTS as DENSE_RESULTS

RESULTS = Path(__file__).parent / "results" / "quality_opened_once.csv"
COLUMNS = ["metric", "set", "split", "contender", "value", "average_precision", "rare", "frequent", "seconds"]
KEY = 4
"""The number of columns, the first ones, that name a result."""

SEVERAL_LABELS = (
    "emotions",
    "chemicalExposure",
    "goemotions",
    "genbase",
    "foodtruck",
    "flags",
    "delicious",
    "corel16k",
)
ONE_LABEL = (
    *("MagicTelescope", "jm1", "spambase", "creditcard-subset"),
    *("keel/banana", "keel/bands", "keel/car-good", "keel/ecoli3", "keel/flare-F", "keel/german", "keel/haberman"),
    *("keel/mammographic", "keel/poker-8-9_vs_5", "keel/saheart", "keel/titanic", "keel/vehicle1", "keel/vehicle3"),
)
LONG_TAIL = ("satimage-tail", "vowel-tail", "contraceptive-tail", "marketing-tail")
SETS = (*SEVERAL_LABELS, *ONE_LABEL, *LONG_TAIL)
"""Opened once, when every default was fixed; none of them chose anything."""

THREE_SPLITS = ("goemotions", "delicious", "corel16k", "chemicalExposure", "MagicTelescope", "jm1", "creditcard-subset")
"""Where a fit takes minutes; five splits elsewhere."""

MATRIX: dict[str, Any] = {
    "kappa": cohen_kappa_score,
    "quadratic_kappa": partial(cohen_kappa_score, weights="quadratic"),
}
"""Metrics of the d × d matrix, as scikit-learn computes them; all others are of each label or class, and averaged."""

RECALL_AT_PRECISION = "recall_at_precision"
PRECISION = 0.8
"""What recall is evaluated at: a property of the scores of one label, whatever the rule."""

RARE = 50
"""A label or class with fewer rows than this among those to train on is rare."""


# The contenders

Make = Callable[[str, int, Any], Any]
"""Makes an estimator of the metric, a seed, and the targets that it will be fitted on."""

GROWTH: dict[str, Any] = {"n_estimators": 200, "max_depth": 4, "learning_rate": 0.1, "n_jobs": 1}
BINS = {"max_bin": 64}
"""What all trees share; coarser bins for several labels, since fine ones take hours."""


@dataclass(frozen=True)
class Contender:
    """A way to train, the tasks it is for, the number of rows beyond which it takes too long, and its only metric."""

    make: Make
    tasks: tuple[str, ...] = ("binary", "multilabel", "multiclass")
    most_rows: int | None = None
    only_metric: str | None = None


def network(**options: Any) -> Make:
    """Return a maker of a network of ours with these options."""
    return lambda metric, seed, y: mg.MetricClassifier(metric, random_state=seed, **options)


def thresholded(estimator: Callable[[int], Any]) -> Make:
    """Return a maker of a scikit-learn classifier with rules tuned out of fold."""
    return lambda metric, seed, y: mg.ThresholdedClassifier(estimator(seed), metric)


def xgboost(metric: str, seed: int, y: Any) -> Any:
    """Return XGBoost with log-loss and a tuned rule: scikit-learn's tuning of one label's F1, ours elsewhere."""
    trees = XGBClassifier(random_state=seed, **GROWTH, **(BINS if y.ndim > 1 else {}))
    if y.ndim == 1 and y.max() == 1 and metric == "f1":
        return TunedThresholdClassifierCV(trees, scoring="f1", cv=5, random_state=seed)
    return mg.ThresholdedClassifier(MultiOutputClassifier(trees) if y.ndim > 1 else trees, metric)


def boosting(metric: str, seed: int, y: Any) -> Any:
    """Return trees of ours as they are by default, but grown as the others."""
    bins = {"backend_params": BINS} if y.ndim > 1 else {}
    how: dict[str, Any] = {**GROWTH, **bins}
    return mg.MetricBoostingClassifier(metric, random_state=seed, **how)


def forest(kind: Any) -> Make:
    """Return a maker of a forest with a tuned rule."""
    return thresholded(lambda seed: kind(300, min_samples_leaf=2, n_jobs=1, random_state=seed))


def ridge(seed: int) -> Any:
    """Return a linear model whose penalty is chosen by its leave-one-out error."""
    return make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(-1, 5, 13)))


def ensemble(metric: str, seed: int, y: Any) -> Any:
    """Return the ensemble that is selected for the metric, as it is by default."""
    return mg.MetricEnsembleClassifier(metric, random_state=seed, n_jobs=1)


SINGLE: dict[str, Any] = {"cv": None, "weight_average": 0.0}
DEFAULT = "default network"
SAME = "cross-entropy, same recipe"
TABM = "tabm, hybrid"
AT_PRECISION = "recall-at-precision loss, same recipe"

CONTENDERS: dict[str, Contender] = {
    "cross-entropy, 0.5": Contender(network(loss="cross-entropy", rule="fixed", **SINGLE)),
    "cross-entropy, tuned": Contender(network(loss="cross-entropy", **SINGLE)),
    "weighted cross-entropy, tuned": Contender(
        network(loss="cross-entropy", class_weight="balanced", rule="tuned", **SINGLE), ("binary", "multiclass")
    ),
    "metric, 0.5": Contender(network(loss="metric", rule="fixed", **SINGLE)),
    SAME: Contender(network(loss="cross-entropy")),
    DEFAULT: Contender(network()),
    "tabm, cross-entropy": Contender(network(model="tabm", loss="cross-entropy"), most_rows=10_000),
    TABM: Contender(network(model="tabm"), most_rows=10_000),
    AT_PRECISION: Contender(
        network(loss=mg.RecallAtPrecisionLoss(PRECISION)), ("binary",), only_metric=RECALL_AT_PRECISION
    ),
    "ridge, tuned": Contender(thresholded(ridge)),
    "random forest, tuned": Contender(forest(RandomForestClassifier)),
    "extra trees, tuned": Contender(forest(ExtraTreesClassifier)),
    "xgboost, tuned": Contender(xgboost),
    "metric boosting": Contender(boosting),
    "ensemble": Contender(ensemble),
}
"""Networks are five, each trained without one fold, the rule tuned on these, unless they are "0.5" or "tuned"."""

CLAIMS = (
    ("several labels: default network − cross-entropy, same recipe", SEVERAL_LABELS, DEFAULT, SAME),
    ("one label: ensemble − xgboost, tuned", ONE_LABEL, "ensemble", "xgboost, tuned"),
    ("long tail: default network − cross-entropy, same recipe, tuned offsets", LONG_TAIL, DEFAULT, SAME),
)
"""What is tested, written down before the sets were opened; everything else describes."""

PAIRS = (
    (DEFAULT, SAME),
    (AT_PRECISION, SAME),
    (DEFAULT, "cross-entropy, 0.5"),
    (DEFAULT, "cross-entropy, tuned"),
    (SAME, "cross-entropy, tuned"),
    (DEFAULT, "weighted cross-entropy, tuned"),
    (DEFAULT, "xgboost, tuned"),
    ("metric, 0.5", "cross-entropy, 0.5"),
    ("metric, 0.5", "cross-entropy, tuned"),
    ("metric, tuned", "cross-entropy, tuned"),
    ("hybrid, tuned", "cross-entropy, tuned"),
    (TABM, "tabm, cross-entropy"),
    (TABM, DEFAULT),
    (TABM, "xgboost, tuned"),
    ("metric boosting", "xgboost, tuned"),
    ("ensemble", "xgboost, tuned"),
    ("ensemble", DEFAULT),
)


# The protocol


def prepared(estimator: Any, features: Any) -> Any:
    """Put scikit-learn's own encoders before an estimator."""
    if not isinstance(features, pd.DataFrame):
        return make_pipeline(SimpleImputer(), estimator)
    words = make_column_selector(dtype_exclude="number")
    numbers = make_column_selector(dtype_include="number")
    encoder = OneHotEncoder(handle_unknown="ignore", min_frequency=20, sparse_output=False)
    return make_pipeline(make_column_transformer((encoder, words), (SimpleImputer(), numbers)), estimator)


def splits(y: Any, number: int) -> list[tuple[Any, Any]]:
    """Return the outer splits: the same rows whoever contends."""
    kind = ShuffleSplit if y.ndim > 1 else StratifiedShuffleSplit
    return list(kind(number, test_size=0.25, random_state=0).split(np.zeros(len(y)), y))


def evaluated(metric: str, task: str, fitted: Any, features: Any, y: Any, known: Any) -> dict[str, float]:
    """Return the metric (macro over labels or classes), of rare and frequent ones alone, and mean average precision."""
    decided, scores = fitted.predict(features), ranking(fitted, features)
    classes = 1 if task == "binary" else scores.shape[1]
    true, said = (one_per_class(part, task, classes) for part in (y, decided))
    counts = mg.Counts(*(torch.from_numpy(part.sum(0)).double() for part in cells(true, said)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a label without positives among the test rows
        found = {"average_precision": average_precision_score(true, scores.reshape(len(y), -1), average="macro")}
    if metric == RECALL_AT_PRECISION:
        precision, recall, _ = precision_recall_curve(y, scores.reshape(-1))
        return {"value": recall[precision >= PRECISION].max(), **found}
    if metric in MATRIX:
        return {"value": MATRIX[metric](y, decided), **found}
    each = mg.metrics.get(metric)(counts).numpy()
    if task == "binary":
        return {"value": each[0], **found}
    rare = one_per_class(known, task, classes).sum(0) < RARE
    of = {"rare": each[rare], "frequent": each[~rare]}
    return {"value": each.mean(), **found, **{name: part.mean() for name, part in of.items() if len(part)}}


def one_per_class(y: Any, task: str, classes: int) -> Any:
    """Return 0/1 targets with a column for each label or class."""
    if task == "multiclass":
        return (y[:, None] == np.arange(classes)).astype(int)
    return y.reshape(len(y), -1)


def cells(true: Any, said: Any) -> tuple[Any, Any, Any, Any]:
    """Return the indicators of true positives, false positives, false negatives and true negatives."""
    return true * said, (1 - true) * said, true * (1 - said), (1 - true) * (1 - said)


def ranking(fitted: Any, features: Any) -> Any:
    """Return the scores that rank the rows: of the positive class, or of each class or label."""
    features, last = fitted[:-1].transform(features), fitted[-1]
    return last._scores(features).numpy() if hasattr(last, "_scores") else last.predict_proba(features)[:, 1]


def run(options: argparse.Namespace) -> None:
    """Make every result that is not there yet."""
    torch.set_num_threads(1)
    if not options.results.exists():
        options.results.write_text(",".join(COLUMNS) + "\n")
    done = set(pd.read_csv(options.results)[COLUMNS[:KEY]].itertuples(index=False, name=None))
    for name in options.sets:
        features, y = load(name, options.data)
        task = task_of(name)
        take = features.iloc if isinstance(features, pd.DataFrame) else features
        for split, (rows, test) in enumerate(splits(y, options.splits or (3 if name in THREE_SPLITS else 5))):
            for contender in options.only or CONTENDERS:
                how = CONTENDERS[contender]
                too_many = how.most_rows is not None and len(y) > how.most_rows
                key = (options.metric, name, split, contender)
                other = how.only_metric is not None and how.only_metric != options.metric
                if key in done or task not in how.tasks or too_many or other:
                    continue
                start = time.process_time()
                # The scores alone count there, so whatever needs a metric gets F1.
                estimator = how.make("f1" if options.metric == RECALL_AT_PRECISION else options.metric, split, y[rows])
                fitted = prepared(estimator, features).fit(take[rows], y[rows])
                seconds = time.process_time() - start
                found = evaluated(options.metric, task, fitted, take[test], y[test], y[rows])
                values = [f"{found[column]:.6f}" if column in found else "" for column in COLUMNS[KEY:-1]]
                with options.results.open("a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerow([*key, *values, f"{seconds:.1f}"])
                print(*key, *values, f"{seconds:.1f}", flush=True)


# The summary

HEADS = ("mean (95 % interval)", "positive", "p")
MAP = (
    ("one label, a table", "`MetricEnsembleClassifier`", "binary", "f1", "value", "ensemble", "xgboost, tuned"),
    (
        "one label, boosted trees",
        "`MetricBoostingClassifier` (five models)",
        "binary",
        "f1",
        "value",
        "metric boosting",
        "xgboost, tuned",
    ),
    ("one label, a network", "either loss; the recipe counts", "binary", "f1", "value", DEFAULT, SAME),
    ("one label, TabM", "either loss", "binary", "f1", "value", TABM, "tabm, cross-entropy"),
    ("one label, F2", "either loss; the recipe counts", "binary", "f2", "value", DEFAULT, SAME),
    ("one label, MCC", "either loss; the recipe counts", "binary", "mcc", "value", DEFAULT, SAME),
    (
        "one label, recall at a precision of 0.8",
        "`MetricClassifier`, not `RecallAtPrecisionLoss`",
        *("binary", RECALL_AT_PRECISION, "value", DEFAULT, SAME),
    ),
    ("several labels, the rare ones", "`MetricClassifier` (hybrid loss)", "multilabel", "f1", "rare", DEFAULT, SAME),
    (
        "several labels, TabM",
        '`MetricClassifier(model="tabm")` (hybrid loss)',
        *("multilabel", "f1", "value", TABM, "tabm, cross-entropy"),
    ),
    ("several labels, the frequent ones", "either", "multilabel", "f1", "frequent", DEFAULT, SAME),
    (
        "several labels, at 0.5, nothing tuned",
        "`MetricLoss`",
        *("multilabel", "f1", "value", "metric, 0.5", "cross-entropy, 0.5"),
    ),
    (
        "several labels, one network of cross-entropy today",
        "`MetricClassifier`",
        *("multilabel", "f1", "value", DEFAULT, "cross-entropy, tuned"),
    ),
    (
        "several labels, trees of each label today",
        "`MetricClassifier`",
        *("multilabel", "f1", "value", DEFAULT, "xgboost, tuned"),
    ),
    ("several classes, balanced", "either", "multiclass", "f1", "value", DEFAULT, SAME),
    ("several classes, kappa", "either", "multiclass", "kappa", "value", DEFAULT, SAME),
    ("ordered classes, quadratic kappa", "either", "multiclass", "quadratic_kappa", "value", DEFAULT, SAME),
    ("several classes, long tail, a network", "either", "long tail", "f1", "value", DEFAULT, SAME),
    (
        "several classes, long tail",
        "forests or `MetricEnsembleClassifier`",
        *("long tail", "f1", "value", "ensemble", "xgboost, tuned"),
    ),
    ("dense maps, at 0.5", "`MetricLoss`", "dense maps", "f1", "value", "metric, 0.5", "cross-entropy, 0.5"),
    (
        "dense maps",
        "`HybridLoss` or `MetricLoss`, for rare pixels",
        *("dense maps", "f1", "value", "hybrid, tuned", "cross-entropy, tuned"),
    ),
)
"""The map for users: the problem, what to use, and the difference that speaks for it: the kind of sets, the metric, the
column of values, a contender and its reference."""


def read_results(path: Path) -> pd.DataFrame:
    """Return the results of tables and of dense maps, with the kind of problem that a set is."""
    results = pd.concat([pd.read_csv(path), pd.read_csv(DENSE_RESULTS)])
    results["kind"] = results["set"].map(kind_of)
    return results


def summarise(path: Path) -> dict[str, pd.DataFrame]:
    """Return tables by their first heading: the map, the claims, and for every metric and kind of set the means."""
    results = read_results(path)
    tables = {"the problem": draw_map(results), "claim": adjust_claims(results)}
    for (metric, kind), part in results.groupby(["metric", "kind"], sort=False):
        wide = compared(part, "value")
        wide = wide[
            [*(name for name in CONTENDERS if name in wide), *(name for name in wide if name not in CONTENDERS)]
        ]
        means = wide.groupby(level="set").mean().loc[part["set"].unique()]
        if metric == "f1":
            tables[f"{kind}, mean F1"] = means.T.map(lambda v: "–" if np.isnan(v) else f"{v:.3f}")
        seconds = part.groupby("contender").seconds.mean()
        tables[f"{kind}, {metric}, mean over sets"] = ranked(means.dropna(axis=1), metric, seconds)
        if means.isna().any(axis=None):  # not every contender has every set
            tables[f"{kind}, {metric}, mean over the sets that all have"] = ranked(means.dropna(), metric, seconds)
        rows = {}
        for value in ("value", "average_precision", "rare", "frequent"):
            grid = compared(part, value)
            title = {"value": metric, "rare": f"{metric}, rare", "frequent": f"{metric}, frequent"}.get(value, value)
            for name, reference in PAIRS:
                if {name, reference} <= {*grid} and (value == "value" or (name, reference) == (DEFAULT, SAME)):
                    rows[f"{title}: {name} − {reference}"] = difference(grid[name] - grid[reference])[0]
        tables[f"{kind}, {metric}, difference"] = pd.DataFrame.from_dict(rows, orient="index", columns=HEADS)
    return tables


def ranked(means: pd.DataFrame, metric: str, seconds: pd.Series) -> pd.DataFrame:
    """Return the contenders by mean rank, of the mean of every set."""
    rank = means.rank(axis=1, ascending=False).mean().sort_values(kind="stable")
    found = {
        f"mean {metric}, {len(means)} sets": means.mean().map("{:.3f}".format),
        "mean rank": rank.map("{:.2f}".format),
        "CPU seconds of a fit": seconds[means.columns].map("{:.0f}".format),
    }
    return pd.DataFrame(found).loc[rank.index]


def compared(part: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return a value of every set and split, a column for each contender."""
    return part.pivot_table(index=["set", "split"], columns="contender", values=value)


def draw_map(results: pd.DataFrame) -> pd.DataFrame:
    """Return the map for users, as far as there are results."""
    rows = {}
    for problem, use, *how in MAP:
        gaps = find_gaps(results, *how)
        if gaps is not None:
            interval, won, _ = difference(gaps)[0]
            rows[problem] = [use, how[-1], interval, won]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["what to use", "against", "gain", "sets won"])


def find_gaps(results: pd.DataFrame, kind: str, metric: str, value: str, name: str, reference: str) -> pd.Series | None:
    """Return what a contender has beyond its reference in every set and split of a kind; None without results."""
    grid = compared(results[(results.metric == metric) & (results.kind == kind)], value)
    return grid[name] - grid[reference] if {name, reference} <= {*grid} else None


def adjust_claims(results: pd.DataFrame) -> pd.DataFrame:
    """Return the claims with their p-values, adjusted for their number."""
    wide = compared(results[results.metric == "f1"], "value")
    claims = {}
    for title, sets, name, reference in CLAIMS:
        part = wide[wide.index.get_level_values("set").isin(sets)]
        if {name, reference} <= {*part}:
            claims[title] = difference(part[name] - part[reference])
    adjusted = holm([p for _, p in claims.values()])
    shown = {title: [*row, f"{q:.3f}"] for (title, (row, _)), q in zip(claims.items(), adjusted, strict=True)}
    return pd.DataFrame.from_dict(shown, orient="index", columns=[*HEADS, "p, Holm"])


def kind_of(name: str) -> str:
    """Return the kind of problem that a set is summed up with: its task; a long tail and dense maps apart."""
    return "long tail" if name in LONG_TAIL else "dense maps" if name in DENSE else task_of(name)


def difference(gaps: Any) -> tuple[list[str], float]:
    """Return the mean over sets with its t-interval, how many are positive, Wilcoxon's p; and this p as a number."""
    gap = average_splits(gaps)
    won = f"{int((gap > 0).sum())} of {len(gap)}"
    if len(gap) < 3 or not gap.any():  # too few sets for an interval
        return ["–" if gap.empty else f"{gap.mean():+.3f}".replace("-", "−"), won, "–"], 1.0
    mean, low, high = mean_interval(gap)
    p = float(stats.wilcoxon(gap).pvalue)
    interval = f"{mean:+.3f} ({low:+.3f} to {high:+.3f})".replace("-", "−")
    return [interval, won, "< 0.001" if p < 0.001 else f"{p:.3f}"], p


def average_splits(gaps: pd.Series) -> pd.Series:
    """Return the mean difference of every set, over the splits that have both contenders."""
    return gaps.groupby(level="set").mean().dropna()


def mean_interval(gap: pd.Series) -> tuple[float, float, float]:
    """Return the mean over sets, and its 95 % t-interval."""
    half = stats.t.ppf(0.975, len(gap) - 1) * gap.std() / np.sqrt(len(gap))
    return gap.mean(), gap.mean() - half, gap.mean() + half


def holm(p: list[float]) -> list[float]:
    """Return Holm's adjusted p-values."""
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(np.argsort(p)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = largest
    return adjusted


def as_markdown(title: str, table: pd.DataFrame) -> str:
    """Return a table with its title as the first heading."""
    lines = [[title, *table.columns], ["---"] * (len(table.columns) + 1), *table.reset_index().to_numpy().tolist()]
    return (
        "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
        .replace("| --- ", "|---")
        .replace("--- |", "---|")
    )


def write_tables(tables: dict[str, pd.DataFrame], page: Path) -> None:
    """Put tables in place of those in a page that have the same first heading."""
    text = page.read_text()
    for title, table in tables.items():
        old = re.compile(rf"^\| {re.escape(title)} \|.*\n(\|.*\n)+", re.MULTILINE)
        # No backslash of ours is an escape of a pattern.
        text = old.sub(as_markdown(title, table).replace("\\", r"\\"), text)
    page.write_text(text)


def main() -> None:
    """Run the study, or sum it up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--sets", type=lambda text: text.split(","), default=list(SETS))
    parser.add_argument("--only", type=lambda text: text.split(";"), help="contenders, separated by semicolons")
    parser.add_argument(
        "--splits", type=int, help="the number of splits; by default five, three where a fit takes minutes"
    )
    parser.add_argument("--metric", default="f1", help="what contenders train, tune and are evaluated for")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--write", type=Path, nargs="+", default=[], help="pages whose tables are renewed")
    options = parser.parse_args()
    if not options.summary:
        if options.data is None:
            parser.error("--data: expected the folder of data sets")
        run(options)
    tables = summarise(options.results)
    print("\n".join(as_markdown(title, table) for title, table in tables.items()))
    for page in options.write:
        write_tables(tables, page)


if __name__ == "__main__":
    main()
