"""How to combine candidates: greedy selection, the same after calibration, stacking, CatBoost as one more candidate.

    python benchmarks/ensemble_combination.py --data FOLDER [--sets NAMES] [--part choosing judging]
    python benchmarks/ensemble_combination.py --summary

Needs the extras ``bench`` and ``boosting``, and ``pip install catboost``; ``datasets.py`` says what the folder holds.
Results are appended, and what is there is not made again.

Protocol, written before the first result
-----------------------------------------
``MetricEnsembleClassifier("f1")`` cross-fits its default candidates, and CatBoost besides, once for each table and
split; every way of ``WAYS`` combines the same out-of-fold scores, and its rule is tuned on them by
``tune_threshold(rare_labels="pooled")``. "greedy": the selection as it is by default. "greedy, calibrated": of scores
that a logistic regression of their logits has calibrated. "stacking": a ridge logistic regression of the logits of all
candidates; its rule is tuned on scores that are cross-fitted once more. "greedy, CatBoost too": the selection with one
more candidate. "mean": equal weights. "best alone": the candidate with the best out-of-fold value.

F1 of two classes, macro-F1 of several classes or labels; three splits, a quarter of at most ``MOST_ROWS`` rows
evaluates.

*Decision.* The way with the best mean over the ``CHOOSING`` tables (of the two or three kinds of tasks together, splits
averaged first) is compared with "greedy" on the ``JUDGING`` tables, which chose nothing. It becomes the default if the
95 % interval of its gain there is above 0 and CatBoost, a further package, is not needed; an option is documented if
the interval is above 0 and it is.

*Not run*, for time: yeast, scene and cancerHallmarks among those that choose, chemicalExposure among those that judge.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from catboost import CatBoostClassifier
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import KFold, StratifiedKFold

import metricgrad as mg
from datasets import load, task_of
from metricgrad.estimators.metric_ensemble_classifier import MetricEnsembleClassifier
from metricgrad.estimators.preparation import make_labels

RESULTS = Path(__file__).parent / "results" / "ensemble_combination.csv"
CHOOSING = (
    *("annthyroid", "churn", "ozone_level_8hr", "phoneme", "us_crime", "wine_quality", "yeast_me2", "mammography"),
    *("segment-tail", "splice-tail", "letter-tail", "yeast", "scene", "cancerHallmarks"),
)
JUDGING = (
    *("jm1", "spambase", "creditcard-subset", "keel/banana", "keel/bands", "keel/car-good", "keel/ecoli3"),
    *("keel/german", "keel/haberman", "keel/saheart", "keel/titanic", "keel/vehicle1", "satimage-tail", "vowel-tail"),
    *("contraceptive-tail", "marketing-tail", "keel-classes/led7digit", "keel-classes/vehicle"),
    *("emotions", "flags", "foodtruck", "genbase", "chemicalExposure"),
)
PARTS = {"choosing": CHOOSING, "judging": JUDGING}
MOST_ROWS = 3000
SPLITS = 3
FOLDS = 5
CATBOOST = "CatBoost"
GREEDY = "greedy"
COLUMNS = ["set", "split", "way", "f1", "cpu_seconds"]


class CrossFittedCandidates(MetricEnsembleClassifier):
    """The ensemble, which keeps what it is chosen from."""

    def _choose_members(self, candidates: Any, found: Any, targets: Any, weight: Any, folds: Any, *others: Any) -> None:
        self.candidates_and_models = list(zip(candidates, found, strict=True))
        self.out_of_fold_targets = targets[np.concatenate([held for _, held in folds])]
        super()._choose_members(candidates, found, targets, weight, folds, *others)

    def score_candidates(self, features: Any) -> dict[str, torch.Tensor]:
        """Return the scores of rows by every candidate, whether it was chosen or not."""
        scores = {}
        chosen = self.members_
        for candidate, fitted in self.candidates_and_models:
            member = type(chosen[0])(candidate.name, 1.0, candidate.view, fitted.models)
            self.members_ = [member]
            scores[candidate.name] = self._scores(features)
        self.members_ = chosen
        return scores


Scores = dict[str, np.ndarray]


def compute_logits(scores: Any) -> Any:
    """Return logits as columns: of one label or each of several, or the logarithms of the classes' probabilities."""
    return np.log(np.clip(scores, 1e-6, 1)) - np.log(np.clip(1 - scores, 1e-6, 1))


def fit_second_level(x: Any, y: Any, x_test: Any, strength: float) -> tuple[Any, Any]:
    """Return cross-fitted probabilities of the positives, or of all classes, and those of the test rows."""
    smallest = np.bincount(y).min() if y.min() < y.max() else 0
    kind = StratifiedKFold if smallest >= FOLDS else KFold
    crossed = np.zeros((len(y), int(y.max()) + 1))
    model = LogisticRegression(C=strength, max_iter=1000)
    for rows, held in kind(FOLDS, shuffle=True, random_state=0).split(x, y):
        if len(np.unique(y[rows])) < 2:
            crossed[held, y[rows][0]] = 1
            continue
        fitted = model.fit(x[rows], y[rows])
        crossed[np.ix_(held, fitted.classes_)] = fitted.predict_proba(x[held])
    on_test = model.fit(x, y).predict_proba(x_test)
    return (crossed[:, 1], on_test[:, 1]) if crossed.shape[1] == 2 else (crossed, on_test)


def refit(parts: list[Any], targets: Any, test_parts: list[Any], strength: float) -> tuple[Any, Any]:
    """Return out-of-fold and test probabilities of a second level on the logits of some candidates."""
    logits = [compute_logits(part) for part in parts]
    test_logits = [compute_logits(part) for part in test_parts]
    if targets.ndim == 1:
        return fit_second_level(np.column_stack(logits), targets, np.column_stack(test_logits), strength)
    labels = [
        fit_second_level(
            np.column_stack([part[:, label] for part in logits]),
            targets[:, label],
            np.column_stack([part[:, label] for part in test_logits]),
            strength,
        )
        for label in range(targets.shape[1])
    ]
    crossed, on_test = zip(*labels, strict=True)
    return np.column_stack(crossed), np.column_stack(on_test)


def weigh(scores: Scores, weights: dict[str, float]) -> Any:
    """Return the weighted mean of candidates."""
    return sum(weight * scores[name] for name, weight in weights.items())


def combine(way: str, task: Any, scores: Scores, targets: Any, on_test: Scores) -> tuple[Any, Any]:
    """Return out-of-fold and test scores of one way."""
    default = {name: one for name, one in scores.items() if name != CATBOOST}
    if way == "stacking":
        return refit(list(default.values()), targets, [on_test[name] for name in default], 0.01)
    if way == "mean":
        equal = dict.fromkeys(default, 1 / len(default))
        return weigh(scores, equal), weigh(on_test, equal)
    if way == "greedy, CatBoost too":
        default = scores
    if way == "greedy, calibrated":
        pairs = {name: refit([one], targets, [on_test[name]], 100.0) for name, one in default.items()}
        default = {name: pair[0] for name, pair in pairs.items()}
        on_test = {name: pair[1] for name, pair in pairs.items()}
    selection = mg.select_ensemble("f1", default, targets, task=task)
    weights = selection.weights
    if way == "best alone":
        best = max(selection.alone, key=lambda name: selection.alone[name])
        weights = {best: 1.0}
    return weigh(default, weights), weigh(on_test, weights)


WAYS = (GREEDY, "greedy, calibrated", "stacking", "greedy, CatBoost too", "mean", "best alone")


def measure(name: str, split: int, folder: Path) -> list[dict[str, Any]]:
    """Return what came of every way on one split of a table."""
    features, targets = load(name, folder)
    task: Any = task_of(name)
    features = pd.DataFrame(features).rename(columns=str)
    targets = np.asarray(targets, int)
    rows = np.random.default_rng(split).permutation(len(targets))[:MOST_ROWS]
    test, train = rows[: len(rows) // 4], rows[len(rows) // 4 :]
    catboost = CatBoostClassifier(
        iterations=200, depth=4, learning_rate=0.1, verbose=0, thread_count=1, allow_writing_files=False
    )
    words = features.columns[~features.dtypes.map(pd.api.types.is_numeric_dtype)]
    features[words] = features[words].apply(lambda column: column.astype("category").cat.codes)
    model = CrossFittedCandidates("f1", extra_estimators=[(CATBOOST, catboost)], n_jobs=1, random_state=split)
    started = time.process_time()
    model.fit(features.iloc[train], targets[train])
    seconds = time.process_time() - started
    scores = {candidate.name: fitted.scores.numpy() for candidate, fitted in model.candidates_and_models}
    on_test = {key: one.numpy() for key, one in model.score_candidates(features.iloc[test]).items()}
    encoded = make_labels(targets[train])
    known = model.out_of_fold_targets.numpy().astype(int)
    lines = []
    for way in WAYS:
        out_of_fold, scores_of_test = combine(way, task, scores, known, on_test)
        tuning = mg.tune_threshold("f1", out_of_fold, known, task=task, rare_labels="pooled")
        decisions = tuning.rule(torch.from_numpy(np.asarray(scores_of_test))).numpy()
        true = targets[test]
        if task == "multiclass":
            decisions = np.asarray(encoded.classes)[decisions.astype(int)]
        average = "binary" if task == "binary" else "macro"
        value = f1_score(true, decisions, average=average, zero_division=0)
        line = {"set": name, "split": split, "way": way, "f1": round(float(value), 5)}
        lines.append(line | {"cpu_seconds": round(seconds, 1)})
    return lines


def run(folder: Path, names: list[str]) -> None:
    """Append what is not there yet."""
    if not RESULTS.exists():
        RESULTS.write_text(",".join(COLUMNS) + "\n")
    for name in names:
        for split in range(SPLITS):
            found = pd.read_csv(RESULTS)
            if ((found["set"] == name) & (found.split == split)).any():
                continue
            lines = pd.DataFrame(measure(name, split, folder)).reindex(columns=COLUMNS)
            lines.to_csv(RESULTS, mode="a", header=False, index=False)
            print(name, split, dict(zip(lines.way, lines.f1, strict=True)), flush=True)


def print_summary() -> None:
    """Print the mean of every way and its gain over greedy selection, on either part of the tables."""
    results = pd.read_csv(RESULTS)
    for part, names in PARTS.items():
        some = results[results["set"].isin(names)]
        if some.empty:
            continue
        values = some.pivot_table(index="set", columns="way", values="f1")
        seconds = some.groupby(["set", "split"]).cpu_seconds.first().sum()
        print(f"{part}: {len(values)} tables, CPU seconds of fits {seconds:.0f}")
        for way in WAYS:
            difference = values[way] - values[GREEDY]
            reach = stats.t.ppf(0.975, len(difference) - 1) * difference.std(ddof=1) / len(difference) ** 0.5
            mean = difference.mean()
            print(
                f"  {way:24} {values[way].mean():.4f}  {mean:+.4f} ({mean - reach:+.4f} to {mean + reach:+.4f})", end=""
            )
            print(f", ahead on {(difference > 0).sum()}")
        for task in ("binary", "multiclass", "multilabel"):
            of_task = values[[task_of(name) == task for name in values.index]]
            if of_task.empty:
                continue
            gains = of_task.sub(of_task[GREEDY], axis=0).mean()
            print(f"  {task}: " + ", ".join(f"{way} {gains[way]:+.4f}" for way in WAYS[1:]))


def main() -> None:
    """Run, or sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sets", nargs="*", help="only these tables")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of a label without positives, which counts as 0
    if options.summary:
        print_summary()
    elif options.data is None:
        parser.error("--data: expected the folder of data sets")
    else:
        run(options.data, options.sets or [name for part in options.part for name in PARTS[part]])


if __name__ == "__main__":
    main()
