"""Do decisions by the costs of each row save more money than models that were made for costs? On empulse's four sets.

    python benchmarks/money.py [--splits 5] [--sets churn,...]
    python benchmarks/money.py --summary

Needs the extras ``sklearn``, ``boosting`` and ``bench`` (empulse 0.13 brings the sets and the peers). What is in the
results already is not measured again: stop and start as you like.

Protocol
--------
Sets: churn of TV subscribers, credit scoring (PAKDD, VUB) and bank telemarketing, with the costs of each customer that
empulse gives. Texts are one-hot encoded, those in less than 1 % of the rows as one, all columns scaled. Five random
splits of each set, stratified: 60 % to train, 20 % to validate, 20 % to test.

Peers: empulse's cost-sensitive boosting (``CSBoostClassifier``), logistic regression (``CSLogitClassifier``), forest
(``CSForestClassifier``), and its threshold of each row (``CSThresholdClassifier``) on the same boosted trees, with
sigmoid and with isotonic calibration, and on a logistic regression. Each is fitted on the training rows; the one of the
highest savings on the validation rows is fitted again on training and validation rows together, and judged on the test
rows: "empulse". The boosted trees are everywhere ``XGBClassifier(n_estimators=200, max_depth=4, learning_rate=0.05)``.

Ours: ``mg.ThresholdedClassifier(XGBClassifier(...), mg.Cost(...))``, fitted once on training and validation rows
together: "metricgrad". It calibrates on out-of-fold scores by what predicts left-out rows best, and decides each row by
its own costs. "0.5" is the same trees with the usual threshold.

Judge: ``empulse.metrics.savings_score`` on the test rows, against the cheaper of predicting all and none.

Claims, written before the first run
------------------------------------
1. The mean savings of metricgrad over the four sets are higher than those of the peer chosen on validation rows.
2. On no set is the 95 % interval of the difference (ours − the peer's) below zero. The interval is that of the mean
   over the splits by Student's t, with the variance of Nadeau and Bengio for splits that share training rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xgboost
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from xgboost import XGBClassifier

import metricgrad as mg

RESULTS = Path(__file__).parent / "results" / "money.csv"
CELLS = ("fp", "fn", "tp", "tn")
TEST_SHARE = 0.2
VALIDATION_SHARE = 0.2
LEAST_SHARE = 0.01
"""Texts in a smaller share of the rows are taken together."""


class Data(NamedTuple):
    """A set: features, targets and the costs of each row."""

    features: np.ndarray
    targets: np.ndarray
    costs: dict[str, np.ndarray]

    def take(self, rows: np.ndarray) -> Data:
        """Return some rows."""
        return Data(self.features[rows], self.targets[rows], {name: each[rows] for name, each in self.costs.items()})

    @property
    def empulse_costs(self) -> dict[str, np.ndarray]:
        """The costs under the names of empulse."""
        return {f"{name}_cost": each for name, each in self.costs.items()}


def load_data(name: str) -> Data:
    """Return one of the four sets."""
    from empulse import datasets
    from sympy import lambdify

    loaders = {
        "churn": datasets.load_churn_tv_subscriptions,
        "credit pakdd": datasets.load_credit_scoring_pakdd,
        "credit vub": datasets.load_vub_credit_scoring,
        "upsell": datasets.load_upsell_bank_telemarketing,
    }
    found: Any = loaders[name](backend="pandas")
    matrix = found.cost_matrix
    aliases = {alias: str(symbol) for alias, symbol in matrix._aliases.items()}
    known = {aliases.get(key, key): value for key, value in matrix._defaults.items()} | found.instance_costs
    costs = {}
    for cell in CELLS:
        price = getattr(matrix, f"{cell}_cost")
        symbols = sorted(price.free_symbols, key=str)
        value = lambdify(symbols, price, "numpy")(*(known[str(symbol)] for symbol in symbols))
        costs[cell] = np.broadcast_to(np.asarray(value, dtype=float), len(found.target)).copy()
    columns = {name: join_rare_texts(column) for name, column in found.data.items()}
    features = pd.get_dummies(pd.DataFrame(columns), dtype=float).to_numpy(dtype=float)
    return Data(features, np.asarray(found.target).astype(int), costs)


def join_rare_texts(column: pd.Series) -> pd.Series:
    """Return a column of texts with one in the place of all that are rare; numbers as they are."""
    if pd.api.types.is_numeric_dtype(column):
        return column
    shares = column.value_counts(normalize=True)
    return column.where(column.map(shares) >= LEAST_SHARE, "other")


SETS = ("churn", "credit pakdd", "credit vub", "upsell")


def make_trees(seed: int) -> XGBClassifier:
    """Return the boosted trees that all who take some are given."""
    return XGBClassifier(n_estimators=200, max_depth=4, learning_rate=0.05, n_jobs=1, random_state=seed)


def make_peers(seed: int) -> dict[str, Any]:
    """Return empulse's models, not fitted."""
    from empulse import models

    return {
        "CSBoost": models.CSBoostClassifier(make_trees(seed)),
        "CSLogit": models.CSLogitClassifier(),
        "CSForest": models.CSForestClassifier(n_jobs=1, random_state=seed),
        "CSThreshold trees sigmoid": models.CSThresholdClassifier(make_trees(seed), random_state=seed),
        "CSThreshold trees isotonic": models.CSThresholdClassifier(
            make_trees(seed), calibrator="isotonic", random_state=seed
        ),
        "CSThreshold logistic": models.CSThresholdClassifier(LogisticRegression(max_iter=1000), random_state=seed),
    }


def decide_by_peer(name: str, model: Any, rows: Data) -> np.ndarray:
    """Return what a fitted model of empulse decides."""
    costs = rows.empulse_costs if name.startswith("CSThreshold") else {}
    return np.asarray(model.predict(rows.features, **costs)).astype(int)


def measure_savings(rows: Data, decided: np.ndarray) -> float:
    """Return the savings, by empulse."""
    from empulse.metrics import savings_score

    costs: dict[str, Any] = rows.empulse_costs
    return float(savings_score(rows.targets, decided, **costs))


def split_data(data: Data, split: int) -> tuple[Data, Data, Data]:
    """Return rows to train, to validate and to test, scaled by the first."""
    rows = np.arange(len(data.targets))
    rest, test = train_test_split(rows, test_size=TEST_SHARE, stratify=data.targets, random_state=split)
    share = VALIDATION_SHARE / (1 - TEST_SHARE)
    train, held = train_test_split(rest, test_size=share, stratify=data.targets[rest], random_state=split)
    scaler = StandardScaler().fit(data.features[train])
    scaled = data._replace(features=scaler.transform(data.features))
    return scaled.take(train), scaled.take(held), scaled.take(test)


def join_rows(one: Data, two: Data) -> Data:
    """Return the rows of both."""
    costs = {name: np.concatenate((one.costs[name], two.costs[name])) for name in CELLS}
    features = np.concatenate((one.features, two.features))
    return Data(features, np.concatenate((one.targets, two.targets)), costs)


def run_split(name: str, data: Data, split: int) -> list[dict[str, Any]]:
    """Return the savings of all methods on the test rows of a split."""
    train, held, test = split_data(data, split)
    both = join_rows(train, held)
    found: list[dict[str, Any]] = []

    def keep(method: str, decided: np.ndarray, seconds: float, detail: str = "") -> None:
        row = {"set": name, "split": split, "method": method, "savings": round(measure_savings(test, decided), 5)}
        found.append(row | {"seconds": round(seconds, 2), "detail": detail})

    start = time.perf_counter()
    plain = make_trees(split).fit(both.features, both.targets)
    keep("0.5", plain.predict(test.features), time.perf_counter() - start)

    start = time.perf_counter()
    ours = mg.ThresholdedClassifier(make_trees(split), mg.Cost(**both.costs)).fit(both.features, both.targets)
    decided = ours.predict(test.features, costs=mg.Cost(**test.costs))
    rule: Any = ours.rule_
    detail = f"{rule.calibration.kind}, threshold {rule.threshold:.3f}"
    keep("metricgrad", decided, time.perf_counter() - start, detail)

    start = time.perf_counter()
    on_validation = {}
    for peer, model in make_peers(split).items():
        model.fit(train.features, train.targets, **train.empulse_costs)
        on_validation[peer] = measure_savings(held, decide_by_peer(peer, model, held))
        keep(peer, decide_by_peer(peer, model, test), time.perf_counter() - start, "on training rows alone")
    best = max(on_validation, key=lambda peer: on_validation[peer])
    model = make_peers(split)[best].fit(both.features, both.targets, **both.empulse_costs)
    keep("empulse", decide_by_peer(best, model, test), time.perf_counter() - start, best)
    return found


def read_results() -> pd.DataFrame:
    """Return what was measured."""
    return pd.read_csv(RESULTS, comment="#") if RESULTS.exists() else pd.DataFrame(columns=["set", "split"])


def write_results(table: pd.DataFrame) -> None:
    """Write what was measured, with the command and the versions."""
    packages = ("metricgrad", "empulse", "scikit-learn")
    versions = ", ".join([*(f"{package} {version(package)}" for package in packages), f"xgboost {xgboost.__version__}"])
    text = table.sort_values(["set", "split"], kind="stable").to_csv(index=False)
    RESULTS.write_text(f"# python benchmarks/money.py; {versions}\n{text}")


def find_interval(differences: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of a mean over splits that share training rows [nadeau2003]."""
    count = len(differences)
    variance = differences.var(ddof=1) * (1 / count + TEST_SHARE / (1 - TEST_SHARE))
    half = stats.t.ppf(0.975, count - 1) * np.sqrt(variance)
    return differences.mean() - half, differences.mean() + half


def print_summary(table: pd.DataFrame) -> None:
    """Print the mean savings, and the differences with their intervals."""
    wide = table.pivot_table(index=["set", "split"], columns="method", values="savings")
    print(wide.groupby("set").mean().round(3).to_string())
    print("\nmean over the sets")
    print(wide.groupby("set").mean().mean().round(4).to_string())
    print("\nmetricgrad - empulse, 95 % interval")
    for name, of_set in wide.groupby("set"):
        differences = (of_set["metricgrad"] - of_set["empulse"]).to_numpy()
        low, high = find_interval(differences)
        print(f"{name}: {differences.mean():+.4f} ({low:+.4f} to {high:+.4f}), {len(differences)} splits")


def main() -> None:
    """Measure what is missing, and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if not options.summary:
        for split in range(options.splits):
            for name in options.sets.split(","):
                table = read_results()
                if ((table["set"] == name) & (table["split"] == split)).any():
                    continue
                rows = pd.DataFrame(run_split(name, load_data(name), split))
                write_results(rows if table.empty else pd.concat((table, rows)))
                print(rows[["set", "split", "method", "savings", "seconds"]].to_string(header=False), flush=True)
    print_summary(read_results())


if __name__ == "__main__":
    main()
