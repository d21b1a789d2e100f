"""A base rate that moved: what is lost by keeping the threshold, and what is won back without labels.

    python benchmarks/prevalence.py --data FOLDER --sets choose [--results FILE]
    python benchmarks/prevalence.py --data FOLDER --sets judge
    python benchmarks/prevalence.py --summary [--sets choose]

Needs the extra ``sklearn``. With QuaPy its estimators run in the same loop (``pip install --no-deps quapy abstention``
into an environment of its own: what it requires does not fit beside the extra ``bench``). ``datasets.py`` says what the
folder holds. Results are appended to a file; what is there is not made again: stop and start as you like.

Protocol
--------
Each set is split in half at random, by class, three times. The first half is thinned out to 10 % positives, and a
logistic regression gives its out-of-fold scores (5 folds), on which the threshold for F1 is tuned; it is then fitted on
all rows of this half, as ``ThresholdedClassifier`` does. Of the second half rows are drawn at 2 %, 10 % and 50 %
positives (× 0.2, × 1, × 5) by dropping rows of the class in surplus: these are the new rows. F1 is measured on them,
with the threshold that was kept, that tuned for the true rate, those tuned for estimated rates, and the best there is
on them (oracle). Sets that choose the default estimator and sets that judge are different; both are listed below.

As rows that did not only change in their base rate, new rows at × 1 are drawn with a probability that grows with the
first principal component of the columns, in both classes alike.

Claims, written before the run on the sets that judge
-----------------------------------------------------
1. × 1: the mean F1 with the estimated rate is not below that of the kept threshold by more than noise: the mean
   difference is above −0.005, and its 95 % interval, over sets, reaches above −0.001.
2. × 0.2: the estimated rate closes at least half of the gap between the kept threshold and the known rate.
3. × 5: it closes at least nine tenths.
4. The mean absolute error of the estimated rate, over all three, is not above that of the best estimator of QuaPy by
   more than noise.
5. The 95 % interval of the estimated rate holds the true one in at least 85 % of the cases: the model of the
   out-of-fold scores is not quite the one that scores new rows.
6. The test of the shift refuses at most 5 % of the rows of which only the base rate changed, and more than half of
   those drawn by their columns.
"""

from __future__ import annotations

import argparse
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import metricgrad as mg
from datasets import load
from metricgrad.decisions import Threshold, prevalence

RESULTS = Path(__file__).parent / "results" / "prevalence.csv"
SETS = {
    "choose": (
        *("keel/banana", "keel/ring", "keel/twonorm", "keel/german", "keel/chess", "keel/mushroom", "keel/pima"),
        *("keel/mammographic", "keel/kr-vs-k-three_vs_eleven", "keel/segment0", "keel/vowel0", "keel/titanic"),
        *("keel/tic-tac-toe", "keel/car-good", "keel/contraceptive", "keel/marketing", "keel/splice", "keel/flare-F"),
    ),
    "judge": (
        *("mammography", "adult", "creditcard-subset", "MagicTelescope", "PageBlocks", "abalone_19", "annthyroid"),
        *("campaign", "churn", "jm1", "kc1", "optdigits", "ozone_level_8hr", "pendigits", "phoneme", "satimage-2"),
        *("spambase", "us_crime", "wine_quality", "yeast_me2"),
    ),
}
SPLITS = 3
RATE = 0.1
FACTORS = (0.2, 1.0, 5.0)
MOST_ROWS = 10_000
OWN = ("em", "matching", "pacc")
DEFAULT = "em"
CONSTANTS = (("CALIBRATION_SPREAD", 0.2), ("CALIBRATION_SPREAD", 1000.0), ("PRIOR_ROWS", 0.0), ("PRIOR_ROWS", 20.0))
"""Other values of constants of the estimator than their own, tried on the sets that choose."""
QUAPY = ("EMQ", "EMQ-BCTS", "PACC", "HDy", "DMy", "KDEyML")


# Rows


def read_table(name: str, folder: Path, generator: np.random.Generator) -> tuple[Any, Any]:
    """Return the features as numbers and the targets of at most ``MOST_ROWS`` random rows."""
    X, y = load(name, folder)
    rows = generator.permutation(len(y))[:MOST_ROWS]
    X = X.iloc[rows] if isinstance(X, pd.DataFrame) else pd.DataFrame(X[rows])
    X = pd.get_dummies(X, dtype=float)
    X = X.fillna(X.median()).fillna(0.0).to_numpy(float)
    return X[:, X.std(0) > 0], np.asarray(y)[rows]


def thin_out(rows: Any, y: Any, rate: float, generator: np.random.Generator) -> Any:
    """Return rows without some of the class in surplus, so that the share of positives is ``rate``."""
    positives, negatives = (generator.permutation(rows[y[rows] == k]) for k in (1, 0))
    if len(positives) * (1 - rate) > len(negatives) * rate:
        positives = positives[: max(2, round(len(negatives) * rate / (1 - rate)))]
    else:
        negatives = negatives[: round(len(positives) * (1 - rate) / rate)]
    return np.concatenate((positives, negatives))


def draw_by_column(rows: Any, X: Any, generator: np.random.Generator) -> Any:
    """Return rows drawn with a probability that grows with their first principal component."""
    scaled = StandardScaler().fit_transform(X[rows])
    direction = np.linalg.svd(scaled, full_matrices=False)[2][0]
    place = np.argsort(np.argsort(scaled @ direction)) / len(rows)
    return rows[generator.random(len(rows)) < place**2]


# One split


def run_split(name: str, split: int, folder: Path) -> list[dict[str, Any]]:
    """Return what each way to choose the threshold gives on the new rows of one split."""
    generator = np.random.default_rng(1000 + split)
    X, y = read_table(name, folder, generator)
    halves: tuple[list[Any], list[Any]] = ([], [])
    for k in (0, 1):
        rows = generator.permutation(np.flatnonzero(y == k))
        halves[0].append(rows[: len(rows) // 2])
        halves[1].append(rows[len(rows) // 2 :])
    train = thin_out(np.concatenate(halves[0]), y, RATE, generator)
    rest = np.concatenate(halves[1])
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    scores = cross_val_predict(model, X[train], y[train], cv=5, method="predict_proba")[:, 1]
    model.fit(X[train], y[train])
    tuning = mg.tune_threshold("f1", scores, y[train])
    tries_constants = name in SETS["choose"]
    found = []
    for factor in FACTORS:
        new = thin_out(rest, y, RATE * factor, generator)
        new_scores = model.predict_proba(X[new])[:, 1]
        about = {"set": name, "split": split, "factor": factor, "rows": len(new), "rate": y[new].mean()}
        found += [about | one for one in try_rules(tuning, scores, y[train], new_scores, y[new], tries_constants)]
    drawn = draw_by_column(thin_out(rest, y, RATE, generator), X, generator)
    if y[drawn].any():
        new_scores = model.predict_proba(X[drawn])[:, 1]
        rate = mg.estimate_prevalence(scores, y[train], new_scores, check_shift=False)
        about = {"set": name, "split": split, "factor": "columns", "rows": len(drawn), "rate": y[drawn].mean()}
        found.append(about | {"method": DEFAULT, "estimate": rate.value, "p_value": rate.p_value})
    return found


def try_rules(
    tuning: Any, scores: Any, targets: Any, new_scores: Any, new_targets: Any, tries_constants: bool
) -> list[dict[str, Any]]:
    """Return the F1 of each way to choose the threshold, and the rate that it assumes."""
    true_rate = float(new_targets.mean())

    def evaluate(threshold: float) -> float:
        return float(mg.evaluate(new_scores, new_targets, "f1", rule=Threshold(threshold))["f1"])

    def use_rate(method: str, rate: float, **more: Any) -> dict[str, Any]:
        threshold = tuning.at_prevalence(min(max(rate, 0.5 / len(new_scores)), 1 - 0.5 / len(new_scores))).threshold
        return {"method": method, "estimate": rate, "f1": evaluate(threshold), **more}

    found = [
        {"method": "kept", "estimate": float(targets.mean()), "f1": evaluate(tuning.threshold)},
        {"method": "oracle", "f1": mg.tune_threshold("f1", new_scores, new_targets).value},
        use_rate("known", true_rate),
    ]
    method: Any
    for method in OWN:
        replicates = 200 if method == DEFAULT else 1
        rate = mg.estimate_prevalence(
            scores, targets, new_scores, method=method, replicates=replicates, check_shift=False
        )
        more = {"low": rate.low, "high": rate.high, "p_value": rate.p_value} if method == DEFAULT else {}
        found.append(use_rate(method, rate.value, **more))
        if method == DEFAULT:
            used = rate.value if rate.has_moved else rate.before
            found.append(use_rate(f"{method} if moved", used))
    for name, value in CONSTANTS if tries_constants else ():
        with mock.patch.object(prevalence, name, value):
            rate = mg.estimate_prevalence(scores, targets, new_scores, replicates=1, check_shift=False)
        found.append(use_rate(f"em, {name} {value:g}", rate.value))
    return found + [use_rate(f"QuaPy {method}", rate) for method, rate in ask_quapy(scores, targets, new_scores)]


def ask_quapy(scores: Any, targets: Any, new_scores: Any) -> list[tuple[str, float]]:
    """Return the rate by each estimator of QuaPy, if it is installed."""
    try:
        from quapy.method import aggregative
    except ImportError:
        return []

    # QuaPy is given posteriors, and asks a classifier that was fitted for nothing but its classes.
    fitted = LogisticRegression().fit([[0], [1]], [0, 1])
    makers = {
        "EMQ": lambda: aggregative.EMQ(fitted, fit_classifier=False),
        "EMQ-BCTS": lambda: aggregative.EMQ(
            fitted, fit_classifier=False, exact_train_prev=False, calib="bcts", on_calib_error="backup"
        ),
        "PACC": lambda: aggregative.PACC(fitted, fit_classifier=False, val_split=None),
        "HDy": lambda: aggregative.HDy(fitted, fit_classifier=False, val_split=None),
        "DMy": lambda: aggregative.DMy(fitted, fit_classifier=False, val_split=None),
        "KDEyML": lambda: aggregative.KDEyML(fitted, fit_classifier=False, val_split=None),
    }
    known, new = (np.column_stack((1 - p, p)) for p in (scores.clip(1e-6, 1 - 1e-6), new_scores.clip(1e-6, 1 - 1e-6)))
    found = []
    for method in QUAPY:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantifier = makers[method]()
            quantifier.train_prevalence = np.array([1 - targets.mean(), targets.mean()])  # what fit() would set
            quantifier.aggregation_fit(known, targets)
            found.append((method, float(quantifier.aggregate(new)[1])))
    return found


# Summary


def bootstrap_mean(values: Any, replicates: int = 10_000) -> tuple[float, float, float]:
    """Return the mean of one value per set, and its 95 % interval over sets."""
    values = np.asarray(values, float)
    drawn = np.random.default_rng(0).integers(len(values), size=(replicates, len(values)))
    low, high = np.quantile(values[drawn].mean(1), (0.025, 0.975))
    return values.mean(), low, high


def describe_mean(values: Any, digits: int = 4) -> str:
    """Return a mean with its interval in words."""
    mean, low, high = bootstrap_mean(values)
    return f"{mean:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def summarise(table: pd.DataFrame) -> None:
    """Print what the claims are about."""
    columns = table[table.factor == "columns"]
    table = table[table.factor != "columns"]
    print(f"{table.set.nunique()} sets, {table.groupby(['set', 'split']).ngroups} splits")
    f1 = table.pivot_table(index="set", columns=["factor", "method"], values="f1")
    error = table.assign(error=(table.estimate - table.rate).abs()).pivot_table(
        index="set", columns=["factor", "method"], values="error"
    )
    methods = list(dict.fromkeys(table.method))
    rows = {}
    for method in methods:
        rows[method] = {f"F1 x{factor}": f1[factor][method].mean() for factor in map(str, FACTORS)}
        if method in error[str(FACTORS[0])]:
            rows[method] |= {f"error x{factor}": error[factor][method].mean() for factor in map(str, FACTORS)}
            rows[method]["error"] = np.mean([rows[method][f"error x{factor}"] for factor in FACTORS])
    print(pd.DataFrame(rows).T.round(4).to_string())
    for factor in map(str, FACTORS):
        gap = (f1[factor]["known"] - f1[factor]["kept"]).mean()
        for method in methods:
            if method not in ("kept", "known", "oracle"):
                gain = (f1[factor][method] - f1[factor]["kept"]).dropna()
                of_gap = f"; of the gap {gain.mean() / gap:+.0%}" if gap > 0 else ""
                print(f"x{factor} {method:16s} F1 - kept {describe_mean(gain)}{of_gap}")
    own = table[table.method == DEFAULT]
    held = ((own.low <= own.rate) & (own.rate <= own.high)).groupby(own.factor).mean()
    print("interval holds the rate:", held.round(3).to_dict(), f"all {held.mean():.3f}")
    refused = (own.p_value < 0.01).groupby(own.factor).mean()
    print("refused, base rate only:", refused.round(3).to_dict(), f"all {(own.p_value < 0.01).mean():.3f}")
    print(f"refused, drawn by columns: {(columns.p_value < 0.01).mean():.3f} of {len(columns)}")


def main() -> None:
    """Run what is missing, or print the summary."""
    parser = argparse.ArgumentParser(description="A base rate that moved.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", choices=SETS, default="judge")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    names = SETS[options.sets]
    done = pd.read_csv(options.results, comment="#", dtype={"factor": str}) if options.results.exists() else None
    if options.summary:
        if done is None:
            parser.error("expected results to summarise, got none")
        summarise(done[done.set.isin(names)])
        return
    if options.data is None:
        parser.error("expected --data, the folder of the sets")
    if not options.results.exists():
        libraries = ("metricgrad", "torch", "scikit-learn", "quapy")
        versions = ", ".join(f"{name} {find_version(name)}" for name in libraries)
        options.results.write_text(f"# python benchmarks/prevalence.py --data FOLDER; {versions}\n")
    header = done is None
    finished = set() if done is None else set(zip(done.set, done.split, strict=True))
    for split in range(SPLITS):
        for name in names:
            if (name, split) in finished:
                continue
            rows = pd.DataFrame(run_split(name, split, options.data))
            order = ["set", "split", "factor", "rows", "rate", "method", "estimate", "low", "high", "p_value", "f1"]
            rows = rows.reindex(columns=order).round(6)
            rows.to_csv(options.results, mode="a", header=header, index=False)
            header = False
            print(name, split, flush=True)


def find_version(name: str) -> str:
    """Return the version of a library, or that it is missing."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


if __name__ == "__main__":
    main()
