"""Does a constraint with a confidence hold on new rows, and how much does it find? Against MAPIE and a plain grid.

    python benchmarks/guarantee.py [--data FOLDER] [--trials 400] [--only NAME]
    python benchmarks/guarantee.py --summary

Needs the extras ``sklearn`` and ``bench``; ``datasets.py`` says what the folder holds. Results are written after every
scenario and method; what is there is not made again: stop and start as you like.

Scores of simulated rows are normal, with a distance between the classes, so that the true value at a threshold is
known. A trial draws rows, tunes a threshold on them, and looks up the true value there. *Violated* is the share of
**all** trials in which the true value breaks the bound: nothing found breaks none. *Found* is the share in which a
threshold was found, *value* the mean true value of what is maximised (recall; under a bound on recall, precision; of a
rule that abstains the share of rows decided), 0 where nothing was found.

Methods:
- ``metricgrad``: ``tune_threshold(..., confidence=)``.
- ``grid``: precision of the m highest scores for a grid of m that is fixed beforehand, each m 1.25 times the one before
  it; an exact binomial test of each with alpha divided by their number.
- ``MAPIE``: ``BinaryClassificationController`` as it comes, with the true probabilities of the scores.

Claims, written before the run:

1. In every scenario with rows held out, the share violated by metricgrad is at most 1 − confidence, up to two standard
   errors of the simulation.
2. On the scenarios with a bound on precision, on average, metricgrad finds a threshold more often than MAPIE and the
   grid, and its mean recall is higher than theirs.
3. Cross-fitted rules on real data, without rows held out for the guarantee, are measured and reported as they are.
"""

from __future__ import annotations

import argparse
import math
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from scipy.special import expit, logit
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import metricgrad as mg
from datasets import load

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results" / "guarantee.csv"
TIE = 0.5
"""Tied scores are multiples of this number."""
POSITIVE_WEIGHT, NEGATIVE_WEIGHT = 1.0, 0.5
CONTAMINATED = 0.004
"""The share of the negatives that score as high as the best positives, where scores do not rise with the truth."""


@dataclass(frozen=True)
class Scenario:
    """Simulated rows: how many, which share is positive, how far apart the classes are, and what must hold."""

    name: str
    rows: int
    rate: float
    distance: float
    constraint: str
    confidence: float
    kind: str = "plain"
    peers: bool = True

    @property
    def bound(self) -> float:
        return float(self.constraint.split()[-1])

    @property
    def objective(self) -> str:
        return "precision" if self.constraint.startswith("recall") else "recall"


SCENARIOS = (
    Scenario("weak, 300 rows", 300, 0.10, 1.0, "precision >= 0.4", 0.95),
    Scenario("very weak, 1000 rows", 1000, 0.05, 0.5, "precision >= 0.2", 0.95),
    Scenario("very weak, 3000 rows", 3000, 0.05, 0.5, "precision >= 0.2", 0.95),
    Scenario("usual, 2000 rows", 2000, 0.10, 2.0, "precision >= 0.7", 0.90),
    Scenario("balanced, 200 rows", 200, 0.50, 1.5, "precision >= 0.8", 0.90),
    Scenario("strong, 1000 rows", 1000, 0.20, 3.0, "precision >= 0.9", 0.95),
    Scenario("rare, 10000 rows", 10000, 0.01, 2.0, "precision >= 0.3", 0.95),
    Scenario("strong, 5000 rows", 5000, 0.05, 2.5, "precision >= 0.9", 0.95),
    Scenario("ties, 1000 rows", 1000, 0.20, 1.5, "precision >= 0.6", 0.90, "ties"),
    Scenario("highest scores wrong, 2000 rows", 2000, 0.10, 2.0, "precision >= 0.7", 0.90, "contaminated"),
    Scenario("weights, 1000 rows", 1000, 0.20, 1.5, "precision >= 0.6", 0.90, "weights", peers=False),
    Scenario("recall, 1000 rows", 1000, 0.10, 2.0, "recall >= 0.9", 0.95),
    Scenario("specificity, 500 rows", 500, 0.10, 2.0, "specificity >= 0.95", 0.95),
    Scenario("capacity, 1000 rows", 1000, 0.05, 2.0, "predicted_positive_rate <= 0.05", 0.95),
    Scenario("npv, 1000 rows", 1000, 0.30, 2.0, "npv >= 0.9", 0.95, peers=False),
    Scenario("f1, 2000 rows", 2000, 0.20, 2.5, "f1 >= 0.65", 0.95, peers=False),
    Scenario("five labels together, 2000 rows", 2000, 0.15, 2.0, "precision >= 0.7", 0.90, "labels", peers=False),
    Scenario("three classes, undecided, 2000 rows", 2000, 1 / 3, 1.5, "precision >= 0.8", 0.90, "classes", peers=False),
)
LABELS = 5
NEW_ROWS = 200_000
"""Of several classes, on which the true value is measured."""


# The truth


def find_true_cells(scenario: Scenario, threshold: float) -> mg.Counts:
    """Return the shares of rows in the four cells at a threshold."""
    rate = scenario.rate
    if scenario.kind == "ties":
        threshold = math.ceil(threshold / TIE - 1e-9) * TIE - TIE / 2
    found = stats.norm.sf(threshold - scenario.distance)
    alarms = stats.norm.sf(threshold)
    if scenario.kind == "contaminated":
        alarms = (1 - CONTAMINATED) * alarms + CONTAMINATED * stats.norm.sf((threshold - 4.5) / 0.5)
    if scenario.kind == "weights":
        weight = rate * POSITIVE_WEIGHT + (1 - rate) * NEGATIVE_WEIGHT
        rate = rate * POSITIVE_WEIGHT / weight
    shares = (rate * found, (1 - rate) * alarms, rate * (1 - found), (1 - rate) * (1 - alarms))
    return mg.Counts(*(torch.tensor(share, dtype=torch.float64) for share in shares))


def evaluate_truth(name: str, cells: mg.Counts) -> float:
    """Return the true value of a metric."""
    return float(mg.metrics.get(name)(cells))


def is_violated(constraint: str, value: float) -> bool:
    """Tell whether a true value breaks a constraint."""
    _, sense, bound = constraint.split()
    return value < float(bound) if sense == ">=" else value > float(bound)


# Methods: a threshold, or None


def draw_rows(scenario: Scenario, random: Any) -> tuple[Any, Any]:
    """Return scores and 0/1 labels."""
    y = (random.random(scenario.rows) < scenario.rate).astype(int)
    scores = random.normal(size=scenario.rows) + scenario.distance * y
    if scenario.kind == "contaminated":
        wrong = (y == 0) & (random.random(scenario.rows) < CONTAMINATED)
        scores = np.where(wrong, random.normal(4.5, 0.5, scenario.rows), scores)
    if scenario.kind == "ties":
        scores = np.round(scores / TIE) * TIE
    return scores, y


def tune_ours(scenario: Scenario, scores: Any, y: Any) -> float | None:
    """Return metricgrad's threshold."""
    weight = None
    if scenario.kind == "weights":
        weight = np.where(y == 1, POSITIVE_WEIGHT, NEGATIVE_WEIGHT)
    how: dict[str, Any] = {"subject_to": scenario.constraint, "confidence": scenario.confidence, "weight": weight}
    try:
        return float(mg.tune_threshold(scenario.objective, scores, y, **how).threshold)
    except ValueError as error:
        if "no threshold reaches" not in str(error):
            raise
        return None


def tune_grid(scenario: Scenario, scores: Any, y: Any) -> float | None:
    """Return the threshold of the largest m of a grid whose precision a binomial test proves, alpha being divided."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(y[order])
    grid = []
    m = 5.0
    while m < len(y):
        grid.append(int(m))
        m *= 1.25
    sorted_scores = scores[order]
    ends_of_ties = np.flatnonzero(np.diff(sorted_scores) < 0) + 1
    grid = sorted({int(ends_of_ties[ends_of_ties <= m].max(initial=0)) for m in grid} - {0})
    alpha = (1 - scenario.confidence) / max(1, len(grid))
    proven = [m for m in grid if stats.binom.sf(hits[m - 1] - 1, m, scenario.bound) <= alpha]
    return float(sorted_scores[max(proven) - 1]) if proven else None


MAPIE_RISKS = {"precision": "precision", "recall": "recall", "specificity": "fpr"}


def tune_mapie(scenario: Scenario, scores: Any, y: Any) -> float | None:
    """Return MAPIE's threshold, by the true probabilities."""
    from mapie.risk_control import BinaryClassificationController

    name = scenario.constraint.split()[0]
    risk = {**MAPIE_RISKS, "predicted_positive_rate": "predicted_positive_fraction"}[name]
    level = 1 - scenario.bound if risk == "fpr" else scenario.bound
    slope = scenario.distance
    shift = logit(scenario.rate) - slope**2 / 2

    def predict(x: Any) -> Any:
        p = expit(slope * np.asarray(x)[:, 0] + shift)
        return np.column_stack((1 - p, p))

    controller = BinaryClassificationController(
        predict,
        risk=risk,
        target_level=level,
        confidence_level=scenario.confidence,
        best_predict_param_choice=scenario.objective,
    )
    controller.calibrate(scores[:, None], y)
    chosen = controller.best_predict_param
    return None if chosen is None else float((logit(min(max(chosen, 1e-12), 1 - 1e-12)) - shift) / slope)


METHODS: dict[str, Callable[[Scenario, Any, Any], float | None]] = {
    "metricgrad": tune_ours,
    "grid": tune_grid,
    "MAPIE": tune_mapie,
}


def try_once(scenario: Scenario, method: str, random: Any) -> tuple[bool, bool, float]:
    """Return whether a threshold was found, whether it breaks the bound, and the true value of the objective."""
    if scenario.kind == "labels":
        return _try_labels(scenario, random)
    if scenario.kind == "classes":
        return _try_classes(scenario, random)
    threshold = METHODS[method](scenario, *draw_rows(scenario, random))
    if threshold is None:
        return False, False, 0.0
    cells = find_true_cells(scenario, threshold)
    bounded = evaluate_truth(scenario.constraint.split()[0], cells)
    return True, is_violated(scenario.constraint, bounded), evaluate_truth(scenario.objective, cells)


def _try_labels(scenario: Scenario, random: Any) -> tuple[bool, bool, float]:
    """Return the same of several labels, the confidence being of all together."""
    drawn = [draw_rows(scenario, random) for _ in range(LABELS)]
    scores = np.column_stack([one for one, _ in drawn])
    y = np.column_stack([one for _, one in drawn])
    how: dict[str, Any] = {"subject_to": scenario.constraint, "confidence": scenario.confidence}
    try:
        thresholds = mg.tune_threshold("recall", scores, y, task="multilabel", **how).threshold
    except ValueError:
        return False, False, 0.0
    cells = [find_true_cells(scenario, threshold) for threshold in thresholds]
    violated = any(is_violated(scenario.constraint, evaluate_truth("precision", one)) for one in cells)
    return True, violated, float(np.mean([evaluate_truth("recall", one) for one in cells]))


def _draw_classes(rows: int, distance: float, random: Any) -> tuple[Any, Any]:
    y = random.integers(0, 3, rows)
    scores = random.normal(size=(rows, 3))
    scores[np.arange(rows), y] += distance * np.array([1.0, 1.2, 1.4])[y]
    return scores, y


def _try_classes(scenario: Scenario, random: Any) -> tuple[bool, bool, float]:
    """Return the same of three classes, one of which or none is predicted."""
    how: dict[str, Any] = {"subject_to": scenario.constraint, "confidence": scenario.confidence, "abstain": True}
    try:
        rule = mg.tune_threshold(
            "recall", *_draw_classes(scenario.rows, scenario.distance, random), task="multiclass", **how
        ).rule
    except ValueError:
        return False, False, 0.0
    scores, y = _draw_classes(NEW_ROWS, scenario.distance, np.random.default_rng(1))
    decided = rule(scores)
    precisions = [(y[decided == k] == k).mean() for k in range(3) if (decided == k).any()]
    return True, min(precisions) < scenario.bound, float((decided >= 0).mean())


# Real data: rows of a large set stand for all rows there are


@dataclass(frozen=True)
class RealScenario:
    """Rows drawn from a set, a model fitted and thresholded on them, and judged on all other rows of the set."""

    name: str
    data: str
    rows: int
    constraint: str
    confidence: float
    guarantee_rows: float | None
    forest: bool = False

    @property
    def bound(self) -> float:
        return float(self.constraint.split()[-1])


REAL = tuple(
    RealScenario(f"{data}, {model}, {how}", data, rows, constraint, 0.9, share, model == "forest")
    for data, rows, constraint, model in (
        ("adult", 1500, "precision >= 0.7", "logistic"),
        ("adult", 1500, "precision >= 0.7", "forest"),
        ("phoneme", 1000, "precision >= 0.7", "forest"),
    )
    for how, share in (("rows held out", 0.4), ("cross-fitted", None))
)


def try_real(scenario: RealScenario, features: Any, y: Any, random: Any) -> tuple[bool, bool, float]:
    """Return whether a threshold was found, whether it breaks the bound on the other rows, and the recall there."""
    order = random.permutation(len(y))
    drawn, rest = order[: scenario.rows], order[scenario.rows :]
    seed = int(random.integers(1 << 30))
    forest = RandomForestClassifier(30, min_samples_leaf=3, random_state=seed)
    model = forest if scenario.forest else make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    tuned = mg.ThresholdedClassifier(
        model,
        "recall",
        subject_to=scenario.constraint,
        confidence=scenario.confidence,
        guarantee_rows=scenario.guarantee_rows,
        random_state=seed,
    )
    try:
        tuned.fit(features[drawn], y[drawn])
    except ValueError as error:
        if "no threshold reaches" not in str(error):
            raise
        return False, False, 0.0
    predicted = tuned.predict(features[rest])
    hits = float((predicted * y[rest]).sum())
    return True, hits < scenario.bound * predicted.sum(), hits / y[rest].sum()


# The study


def run(trials: int, real_trials: int, data: Path | None, only: str) -> None:
    """Make what is not there yet."""
    for scenario in SCENARIOS:
        for method in METHODS if scenario.peers else ("metricgrad",):
            if method == "grid" and not scenario.constraint.startswith("precision"):
                continue
            outcomes = _repeat(scenario.name, method, trials, only, lambda r, s=scenario, m=method: try_once(s, m, r))
            _write(scenario.name, scenario.constraint, scenario.confidence, method, outcomes)
    for real in REAL if data is not None else ():
        features, y = load(real.data, data)  # type: ignore[arg-type]
        numbers = features.select_dtypes("number") if hasattr(features, "select_dtypes") else features
        x = np.asarray(numbers, dtype=float)
        outcomes = _repeat(
            real.name, "metricgrad", real_trials, only, lambda r, s=real, x=x, y=y: try_real(s, x, np.asarray(y), r)
        )
        _write(real.name, real.constraint, real.confidence, "metricgrad", outcomes)


def _repeat(name: str, method: str, trials: int, only: str, try_it: Any) -> list[tuple[bool, bool, float]]:
    """Return the outcomes of trials; none if they are there, or not asked for."""
    if only not in name or (RESULTS.exists() and _is_there(name, method)):
        return []
    seed = [ord(letter) for letter in name]  # the same rows for every method
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [try_it(np.random.default_rng([trial, *seed])) for trial in range(trials)]


def _is_there(name: str, method: str) -> bool:
    there = pd.read_csv(RESULTS, comment="#")
    return bool(((there["scenario"] == name) & (there["method"] == method)).any())


def _write(name: str, constraint: str, confidence: float, method: str, outcomes: list[Any]) -> None:
    if not outcomes:
        return
    found, violated, values = (np.array(column, dtype=float) for column in zip(*outcomes, strict=True))
    row = {
        "scenario": name,
        "constraint": constraint,
        "confidence": confidence,
        "method": method,
        "trials": len(outcomes),
        "violated": round(violated.mean(), 4),
        "found": round(found.mean(), 4),
        "value": round(values.mean(), 4),
        "value_error": round(values.std() / math.sqrt(len(values)), 4),
    }
    if not RESULTS.exists():
        libraries = ", ".join(f"{one} {version(one)}" for one in ("metricgrad", "MAPIE", "scikit-learn", "torch"))
        RESULTS.write_text(f"# python benchmarks/guarantee.py; {libraries}\n{','.join(row)}\n")
    with RESULTS.open("a") as file:
        pd.DataFrame([row]).to_csv(file, header=False, index=False)
    print(row, flush=True)


def summarise() -> None:
    """Print the table of the docs, and what became of the claims."""
    table = pd.read_csv(RESULTS, comment="#")
    names = list(dict.fromkeys(table["scenario"]))
    by = table.set_index(["scenario", "method"])
    print(
        "| scenario | bound | allowed | violated: metricgrad, grid, MAPIE | found | value |\n|---|---|---|---|---|---|"
    )
    for name in names:
        first = by.loc[name].iloc[0]
        cells = [
            " · ".join(f"{by.loc[(name, m), key]:.3f}" if (name, m) in by.index else "–" for m in METHODS)
            for key in ("violated", "found", "value")
        ]
        allowed_share = f"{1 - first['confidence']:.2f}"
        print(f"| {name} | {first['constraint']} | {allowed_share} | {' | '.join(cells)} |")
    held_out, broken = find_broken(table)
    print(f"\nviolated beyond two standard errors, of {len(held_out)} with rows held out: {list(broken['scenario'])}")
    shared = select_shared(table)
    print(shared.groupby("method")[["violated", "found", "value"]].mean().round(4).to_string())


def find_broken(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return our scenarios with rows held out, and those violated more often than allowed, by two standard errors."""
    ours = table[(table["method"] == "metricgrad") & ~table["scenario"].str.contains("cross-fitted")]
    allowed = 1 - ours["confidence"]
    limit = allowed + 2 * np.sqrt(allowed * (1 - allowed) / ours["trials"])
    return ours, ours[ours["violated"] > limit]


def select_shared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the scenarios with a bound on precision that every method ran."""
    precise = table[table["constraint"].str.startswith("precision")]
    return precise.groupby("scenario").filter(lambda rows: len(rows) == len(METHODS))


def main() -> None:
    """Run the study, or print its summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--real-trials", type=int, default=100)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--summary", action="store_true")
    args = parser.parse_args()
    if not args.summary:
        run(args.trials, args.real_trials, args.data, args.only)
    summarise()


if __name__ == "__main__":
    main()
