"""What helps with imbalanced classes: resampling, weights, another loss, or another decision? 60 tables.

    python benchmarks/imbalance.py --data FOLDER [--cache FOLDER] [--share 1/2] [--sets NAMES]
    python benchmarks/imbalance_results.py [--write]

Every finished split of a table is appended to the results at once, and not made again. With ``--cache`` the scores are
kept as well, so that further metrics and rules can be evaluated (``--results OTHER``) without training.
``--share 1/2`` and ``--share 2/2`` divide the tables between two processes. ``imbalance_results.py`` prints claims,
ranks and tables, and draws the pictures.

Protocol, written before the first result
-----------------------------------------
*Tables.* ``BINARY`` (53 tables, rare class at most 30 % and at least 25 rows, at most three of one origin) and
``MULTICLASS`` (7 tables, their classes thinned out so that the largest has thirty times the rows of the smallest). Of
more than 10,000 rows, 10,000 are drawn, stratified. Duplicate rows are removed before splitting.

*Splits.* Five, stratified, 30 % test. Test rows are only ever scored and evaluated. Tables are run in a random order,
each with all of its splits, so that the tables of an unfinished run are a random sample.

*Models* (``MODELS``) with fixed settings: a ridge logistic regression, XGBoost, a small network. *Treatments*
(``TREATMENTS``): nothing, class weights, random over- and under-sampling, SMOTE, SMOTE-ENN, ADASYN (imbalanced-learn's,
with their defaults; nearest neighbours are reduced where a class has too few rows); for networks also focal loss,
metric loss and hybrid loss; and the balanced forest beside them. A treatment sees training rows alone, inside every
fold. Where it cannot be applied, the untreated rows are used, and splits where the final fit is such are
counted (``untreated``).

*Rules* (``RULES``). "fixed": 0.5, or the argmax. "tuned": the threshold, or offsets, with the best metric on
out-of-fold scores of the training rows (four folds), those of rare classes pooled. "plug-in": the same scores,
calibrated (a logistic regression of their logits on the labels of the other folds); then the threshold with the best
*expected* metric. Test rows are scored by a model of all training rows.

*Metrics* (``METRICS``). Of decisions: F1, F2, MCC, balanced accuracy, savings with fn = 10 · fp; macro averages for
several classes, without savings. Of scores, whatever the rule: recall at a precision of 0.8 (two classes), log-loss
and Brier score.

*Claims*, tested with Holm's correction by Wilcoxon's signed-rank test over origins (tables of one origin are averaged
first, and splits within a table), two-sided, on the binary tables with XGBoost:

1. F1: tuned threshold, nothing else − SMOTE at 0.5 is positive.
2. F1, tuned threshold: SMOTE − nothing is at most 0.01: the Bayesian signed-rank test (region of practical equivalence
   0.01) gives "SMOTE is better by more" a probability below 0.05.
3. Log-loss: SMOTE − nothing is positive, that is worse.

Everything else is description: mean ranks with the critical difference [demsar2006], and the probabilities of the
Bayesian signed-rank test [benavoli2014].

To add a method, write a function ``(features, labels, seed) -> features, labels, weights`` and name it in
``TREATMENTS``; to add a model, one that returns a classifier, ``(task, seed) -> classifier``, in ``MODELS``.
Results that are there stay as they are.

Needs the extras ``bench`` and ``boosting``; ``datasets.py`` says what the folder of data holds.
"""

from __future__ import annotations

import argparse
import hashlib
import time
import warnings
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from imblearn.combine import SMOTEENN
from imblearn.ensemble import BalancedRandomForestClassifier
from imblearn.over_sampling import ADASYN, SMOTE, RandomOverSampler
from imblearn.under_sampling import EditedNearestNeighbours, RandomUnderSampler
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, precision_recall_curve
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit, cross_val_predict
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from xgboost import XGBClassifier

import metricgrad as mg
from datasets import load, task_of
from imbalance_results import COLUMNS, DECISION_METRICS, KEYS, RESULTS, SETS, SPLITS, TREATED
from quality import prepared

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDS = 4
TEST = 0.3
MOST_ROWS = 10_000


# Models, each fitted with weights of the rows, for a task and a seed


def logistic(task: str, seed: int) -> Any:
    """Return a ridge logistic regression."""
    return LogisticRegression(max_iter=2000)


def xgboost(task: str, seed: int) -> Any:
    """Return boosted trees."""
    return XGBClassifier(n_estimators=200, max_depth=4, learning_rate=0.1, n_jobs=1, random_state=seed)


def network(loss: Any, seed: int) -> Any:
    """Return a small network, trained on one loss with early stopping."""
    how: dict[str, Any] = {"model": (64,), "cv": None, "weight_average": 0.0, "rule": "fixed", "epochs": 60}
    return mg.MetricClassifier("f1", loss=loss, random_state=seed, **how)


def plain_network(task: str, seed: int) -> Any:
    """Return the network with cross-entropy."""
    return network("cross-entropy", seed)


def focal_network(task: Any, seed: int) -> Any:
    """Return the network with focal loss."""
    return network(mg.baselines.focal(task=task), seed)


def metric_network(task: str, seed: int) -> Any:
    """Return the network with the metric loss of F1."""
    return network("metric", seed)


def hybrid_network(task: str, seed: int) -> Any:
    """Return the network with cross-entropy and the metric loss of F1."""
    return network("hybrid", seed)


def balanced_forest(task: str, seed: int) -> Any:
    """Return a forest whose trees see as many rows of each class."""
    return BalancedRandomForestClassifier(
        300, sampling_strategy="all", replacement=True, bootstrap=False, n_jobs=1, random_state=seed
    )


MODELS: dict[str, Callable[[str, int], Any]] = {
    "logistic regression": logistic,
    "xgboost": xgboost,
    "network": plain_network,
    "network, focal": focal_network,
    "network, metric": metric_network,
    "network, hybrid": hybrid_network,
    "balanced forest": balanced_forest,
}
# Treatments


Resampled = tuple[Any, Any, Any]


def nothing(x: Any, y: Any, seed: int) -> Resampled:
    """Return the rows as they are."""
    return x, y, None


def weights(x: Any, y: Any, seed: int) -> Resampled:
    """Return the rows with weights that make the classes equal."""
    return x, y, compute_sample_weight("balanced", y)


def resample(make: Callable[[int, int], Any]) -> Callable[[Any, Any, int], Resampled]:
    """Return a treatment that a sampler of imbalanced-learn does, given the neighbours that the rarest class has."""

    def apply(x: Any, y: Any, seed: int) -> Resampled:
        neighbours = max(1, min(5, int(np.bincount(y).min()) - 1))
        try:
            found = make(neighbours, seed).fit_resample(x, y)
        except (ValueError, RuntimeError):  # such as ADASYN where no rare row has a neighbour of another class
            return x, y, None
        # Cleaning may leave a class without rows.
        return (*found, None) if len(np.unique(found[1])) == len(np.unique(y)) else (x, y, None)

    return apply


def make_smote_enn(neighbours: int, seed: int) -> Any:
    """Return SMOTE, then edited nearest neighbours."""
    return SMOTEENN(
        random_state=seed, smote=SMOTE(k_neighbors=neighbours, random_state=seed), enn=EditedNearestNeighbours()
    )


TREATMENTS: dict[str, Callable[[Any, Any, int], Resampled]] = {
    "nothing": nothing,
    "class weights": weights,
    "oversampling": resample(lambda neighbours, seed: RandomOverSampler(random_state=seed)),
    "undersampling": resample(lambda neighbours, seed: RandomUnderSampler(random_state=seed)),
    "SMOTE": resample(lambda neighbours, seed: SMOTE(k_neighbors=neighbours, random_state=seed)),
    "SMOTE-ENN": resample(make_smote_enn),
    "ADASYN": resample(lambda neighbours, seed: ADASYN(n_neighbors=neighbours, random_state=seed)),
}


def list_methods() -> list[tuple[str, str]]:
    """Return the pairs of model and treatment."""
    treated = list(product(TREATED, TREATMENTS))
    return treated + [(model, "nothing") for model in MODELS if model not in TREATED]


# Training


def load_table(name: str, folder: Path) -> tuple[Any, Any]:
    """Return features, as a frame or an array, and labels, without duplicates and of at most ``MOST_ROWS`` rows."""
    features, y = load(name, folder)
    frame = pd.DataFrame(features).assign(label_of_row=y)
    kept = np.flatnonzero(~frame.duplicated().to_numpy())
    if len(kept) > MOST_ROWS:
        draw = StratifiedShuffleSplit(1, train_size=MOST_ROWS, random_state=0)
        kept = kept[next(iter(draw.split(kept, y[kept])))[0]]
    take = features.iloc if isinstance(features, pd.DataFrame) else features
    return take[kept], np.asarray(y)[kept]


def split_rows(y: Any) -> list[tuple[Any, Any]]:
    """Return training and test rows of every split."""
    return list(StratifiedShuffleSplit(SPLITS, test_size=TEST, random_state=1).split(np.zeros(len(y)), y))


def fit_and_score(model: str, treatment: str, x: Any, y: Any, others: Any, seed: int) -> tuple[Any, bool]:
    """Return the probabilities of other rows, ``(n, classes)``, by a model of treated rows, and if they are treated."""
    treated, labels, weight = TREATMENTS[treatment](x, y, seed)
    is_treated = treated is not x or weight is not None or treatment == "nothing"
    task = "binary" if y.max() == 1 else "multiclass"
    fitted = MODELS[model](task, seed).fit(treated, labels, sample_weight=weight)
    return fitted.predict_proba(others), is_treated


def score_split(model: str, treatment: str, features: Any, y: Any, rows: Any, test: Any, seed: int) -> dict[str, Any]:
    """Return out-of-fold probabilities of the training rows, probabilities of the test rows, and CPU seconds."""
    take = features.iloc if isinstance(features, pd.DataFrame) else features
    encoder = prepared(StandardScaler(), features).fit(take[rows])
    x = encoder.transform(take[rows]).astype(np.float32)
    x_test = encoder.transform(take[test]).astype(np.float32)
    labels = y[rows]
    start = time.process_time()
    out_of_fold = np.zeros((len(rows), int(y.max()) + 1), np.float32)
    for fitted_on, held in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(x, labels):
        out_of_fold[held], _ = fit_and_score(model, treatment, x[fitted_on], labels[fitted_on], x[held], seed)
    on_test, is_treated = fit_and_score(model, treatment, x, labels, x_test, seed)
    return {
        "out_of_fold": out_of_fold,
        "test": on_test.astype(np.float32),
        "seconds": time.process_time() - start,
        "untreated": not is_treated,
    }


def find_cached(cache: Path, *key: Any) -> Path:
    """Return the file that keeps the scores of a set, split, model and treatment."""
    return cache / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.npz"


def load_or_score(cache: Path | None, name: str, split: int, model: str, treatment: str, **how: Any) -> dict[str, Any]:
    """Return what ``score_split`` does, from the cache where it is there."""
    if cache is None:
        return score_split(model, treatment, seed=split, **how)
    path = find_cached(cache, name, split, model, treatment)
    if path.exists():
        with np.load(path) as kept:
            return {key: kept[key] for key in kept.files}
    found = score_split(model, treatment, seed=split, **how)
    cache.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part.npz")
    np.savez_compressed(partial, **found)
    partial.rename(path)
    return found


def order_tables(share: str) -> list[str]:
    """Return the tables of a share, such as "1/2", in a random order that is always the same."""
    part, parts = map(int, share.split("/"))
    ordered = [SETS[place] for place in np.random.default_rng(0).permutation(len(SETS))]
    return ordered[part - 1 :: parts]


def run_all(options: argparse.Namespace) -> None:
    """Append the results that are not there yet, a split of a table at a time."""
    done: set[tuple[Any, ...]] = set()
    if options.results.exists():
        done = set(pd.read_csv(options.results)[KEYS].itertuples(index=False, name=None))
    for name in options.sets or order_tables(options.share):
        features, y = load_table(name, options.data)
        for split, (rows, test) in enumerate(split_rows(y)):
            lines = []
            for model, treatment in list_methods():
                if (name, split, model, treatment) in done:
                    continue
                how = {"features": features, "y": y, "rows": rows, "test": test}
                found = load_or_score(options.cache, name, split, model, treatment, **how)
                values = evaluate(task_of(name), found["out_of_fold"], y[rows], found["test"], y[test])
                about = {"seconds": float(found["seconds"]), "untreated": int(found["untreated"])}
                lines.append({"set": name, "split": split, "model": model, "treatment": treatment, **about, **values})
            if not lines:
                continue
            table = pd.DataFrame(lines).reindex(columns=COLUMNS).round({"seconds": 1}).round(5)
            is_new = not options.results.exists()
            table.to_csv(options.results, mode="a", header=is_new, index=False)
            print(name, split, f"{table.seconds.sum():.0f} CPU s", flush=True)


# Evaluation


def calibrate(scores: Any, labels: Any, others: Any) -> tuple[Any, Any]:
    """Return calibrated out-of-fold probabilities, by folds, and those of other rows, by a fit on all."""
    logits, other_logits = (_as_logits(part) for part in (scores, others))
    regression = LogisticRegression(C=100.0, max_iter=2000)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    crossed = cross_val_predict(regression, logits, labels, cv=folds, method="predict_proba")
    return crossed, regression.fit(logits, labels).predict_proba(other_logits)


def _as_logits(scores: Any) -> Any:
    """Return the logits of probabilities: of two classes one, otherwise one for each class."""
    logs = np.log(np.clip(scores.astype(float), 1e-6, 1))
    return logs[:, 1:] - logs[:, :1] if scores.shape[1] == 2 else logs


def evaluate_scores(task: str, scores: Any, labels: Any) -> dict[str, float]:
    """Return the metrics that need no rule."""
    clipped = np.clip(scores.astype(float), 1e-7, 1 - 1e-7)
    clipped /= clipped.sum(1, keepdims=True)
    one_hot = np.eye(scores.shape[1])[labels]
    found = {
        "log-loss": log_loss(labels, clipped, labels=np.arange(scores.shape[1])),
        "Brier score": float(((clipped - one_hot) ** 2).sum(1).mean() / 2),
    }
    if task == "binary":
        precision, recall, _ = precision_recall_curve(labels, scores[:, 1])
        found["recall at precision 0.8"] = float(recall[precision >= 0.8].max(initial=0.0))
    return found


def evaluate_rules(task: str, out_of_fold: Any, labels: Any, on_test: Any, test_labels: Any) -> dict[str, float]:
    """Return the value of every metric of decisions under every rule, by "metric, rule"."""
    crossed, calibrated = calibrate(out_of_fold, labels, on_test)
    is_binary = task == "binary"
    of_rows, of_test, of_crossed, of_calibrated = (
        part[:, 1].astype(float) if is_binary else part.astype(float)
        for part in (out_of_fold, on_test, crossed, calibrated)
    )
    fixed = mg.decisions.Threshold(0.5) if is_binary else mg.decisions.Argmax()
    found: dict[str, float] = {}
    for name, metric in DECISION_METRICS.items():
        if name == "savings" and not is_binary:
            continue
        how: dict[str, Any] = {"task": task, "average": "macro"}
        tuned = mg.tune_threshold(metric, of_rows, labels, rare_labels="pooled", **how).rule
        # The expected metric is that of the probabilities in the place of the labels.
        expected = mg.tune_threshold(metric, of_crossed, of_crossed, **how).rule
        chosen = {"fixed": (fixed, of_test), "tuned": (tuned, of_test), "plug-in": (expected, of_calibrated)}
        for rule, (decision, scores) in chosen.items():
            value = mg.evaluate(scores, test_labels, {name: metric}, rule=decision, **how)[name]
            found[f"{name}, {rule}"] = value
    return found


def evaluate(task: str, out_of_fold: Any, labels: Any, on_test: Any, test_labels: Any) -> dict[str, float]:
    """Return every metric: of decisions by "metric, rule", of scores by its name."""
    of_scores = evaluate_scores(task, on_test, test_labels)
    return of_scores | evaluate_rules(task, out_of_fold, labels, on_test, test_labels)


def main() -> None:
    """Train and evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--cache", type=Path, help="a folder that keeps the scores")
    parser.add_argument("--share", default="1/1", help="which part of the tables, such as 1/2")
    parser.add_argument("--sets", nargs="*", help="only these tables")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of samplers and of metrics without positives
    run_all(options)


if __name__ == "__main__":
    main()
