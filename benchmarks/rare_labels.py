"""What should the threshold of a rare label be? Rules for labels with few positives, compared on rows not tuned on.

    python benchmarks/rare_labels.py --data FOLDER [--cache FOLDER]
    python benchmarks/rare_labels.py --summary

Needs the extras ``sklearn`` and ``bench``; ``datasets.py`` says what the folder holds. Training sets are so small that
labels are rare. Out-of-fold scores of training rows and scores of test rows are made once for every set, size, split
and model, and kept in the cache folder; what is there is not made again: stop and start as you like. Then every rule is
tuned on the former and evaluated on the latter.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler

import metricgrad as mg
from datasets import load
from metricgrad.decisions import Offsets, Threshold, problem

RESULTS = Path(__file__).parent / "results" / "rare_labels.csv"
MODELS = ("cross-entropy", "hybrid", "logistic")
MULTILABEL = {"yeast": (200, 400, 800, 1800), "scene": (200, 400, 800, 1800), "cancerHallmarks": (200, 400, 800, 1389)}
"""The rows that are trained on; the last is all but the test rows."""
MULTICLASS = {"letter": (500, 1000), "segment": (150, 300, 450), "splice": (150, 300, 600)}
"""The same, with a long tail of 30 : 1."""
TABLES = (
    *("mammography", "adult", "annthyroid", "campaign", "wine_quality", "churn", "PageBlocks", "abalone_19", "kc1"),
    *("optdigits", "ozone_level_8hr", "pendigits", "phoneme", "us_crime", "yeast_me2"),
)
POSITIVES = (8, 15)
"""Of a table, so many training rows that about this number is positive."""
MOST_ROWS = 1000
SPLITS = {"multilabel": 4, "multiclass": 3, "binary": 2}
"""Random splits; two where a thousand rows or more are trained on."""
RATIO = 30


@dataclass(frozen=True)
class Cell:
    """One set at one size, split and scored by one model."""

    task: str
    name: str
    size: int
    split: int
    model: str

    @property
    def file(self) -> str:
        return f"{self.task}-{self.name}-{self.size}-{self.split}-{self.model}.npz"


def cells() -> list[Cell]:
    """Return all that is scored."""
    sizes = [("multilabel", n, s) for n, all_of in MULTILABEL.items() for s in all_of]
    sizes += [("multiclass", n, s) for n, all_of in MULTICLASS.items() for s in all_of]
    sizes += [("binary", n, s) for n in TABLES for s in POSITIVES]
    return [
        Cell(task, n, s, i, model)
        for task, n, s in sizes
        for i in range(SPLITS[task] if s < 1000 else 2)
        for model in MODELS
        if task != "binary" or model != "hybrid"
    ]


# Data


def rows(cell: Cell, folder: Path) -> tuple[Any, Any, Any, Any, Any]:
    """Return features and targets to train on and to test on, and the weights of the test rows or None."""
    generator = np.random.default_rng(1000 + cell.split)
    X, y = load(cell.name, folder)
    if cell.task == "multiclass":
        return long_tail(X, y, cell.size, generator)
    X = pd.get_dummies(X, dtype=float).fillna(0).to_numpy() if isinstance(X, pd.DataFrame) else np.nan_to_num(X)
    order = generator.permutation(len(y))
    test, rest = order[: len(y) // 4], order[len(y) // 4 :]
    size = cell.size if y.ndim > 1 else min(MOST_ROWS, round(cell.size / y.mean()))
    if y.ndim == 1 and y[rest[:size]].sum() < 5:  # two folds of nothing cannot be tuned on
        rest = np.concatenate((rest[y[rest] == 1][:5], rest[y[rest] == 0]))
    return X[rest[:size]], y[rest[:size]], X[test[:5000]], y[test[:5000]], None


def long_tail(X: Any, y: Any, size: int, generator: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Thin classes out to 30 : 1 in a random order of classes; the other rows test, weighted to the same shares."""
    classes = len(np.unique(y))
    share = RATIO ** (-np.arange(classes) / (classes - 1))
    share = (share / share.sum())[generator.permutation(classes)]
    train, test, weight = [], [], np.zeros(len(y))
    for k in range(classes):
        mine = generator.permutation(np.flatnonzero(y == k))
        count = max(4, round(size * share[k]))
        train.append(mine[:count])
        test.append(mine[count:][:400])
        weight[test[-1]] = share[k] / len(test[-1])
    training, testing = np.concatenate(train), np.concatenate(test)
    return X[training], y[training], X[testing], y[testing], weight[testing] * len(testing)


# Scores


def scored(cell: Cell, folder: Path) -> dict[str, Any]:
    """Return out-of-fold scores and targets of the training rows, and scores, targets and weights of the test rows."""
    X, y, test, truth, weight = rows(cell, folder)
    scale = StandardScaler().fit(X)
    X, test = scale.transform(X), scale.transform(test)
    if cell.model == "logistic":
        folds = (KFold if y.ndim > 1 else StratifiedKFold)(min(5, fewest(y)), shuffle=True, random_state=cell.split)
        held = [part for _, part in folds.split(X, y)]
        scores = np.concatenate([logistic(np.delete(X, part, 0), np.delete(y, part, 0), X[part]) for part in held])
        y, tested = y[np.concatenate(held)], logistic(X, y, test)
    else:
        model: Any = mg.MetricClassifier(loss=cell.model, metric_weight=0.3, model=(32, 16), random_state=cell.split)  # type: ignore[arg-type]
        model.fit(X, y)
        batch = model.tuning_._batch
        scores, y, tested = batch.logits.numpy(), batch.targets.numpy(), model.predict_scores(test)
    found = {"scores": scores, "targets": y, "test": tested, "truth": truth}
    if cell.task == "binary":
        found = {key: value.reshape(-1) for key, value in found.items()}
    return found if weight is None else found | {"weight": weight}


def fewest(y: Any) -> int:
    """Return the rows of the rarest class, of several labels all."""
    return len(y) if y.ndim > 1 else int(np.bincount(y).min())


def logistic(X: Any, y: Any, test: Any) -> Any:
    """Return the probabilities of scikit-learn's logistic regression, label by label."""
    if y.ndim == 1:
        p = LogisticRegression(max_iter=300, C=0.1).fit(X, y).predict_proba(test)
        return p[:, 1] if p.shape[1] == 2 else p
    return np.column_stack([logistic(X, t, test) if t.any() else np.zeros(len(test)) for t in y.T])


# Rules


def tuned(task: Any, metric: str, average: Any, scores: Any, targets: Any, rare_labels: Any, limit: int = 20) -> Any:
    """Return the thresholds or offsets of a tuned rule; a label with fewer than ``limit`` positives is rare."""
    with mock.patch.multiple(problem, FEWEST_TO_TUNE=limit, FEWEST_TO_TUNE_ALONE=limit):
        found = mg.tune_threshold(
            metric, scores, targets, task=task, average=average, rare_labels=rare_labels
        ).threshold
    return np.zeros(scores.shape[1]) if found is None else np.atleast_1d(found)


def candidates(task: str, metric: str, average: str, scores: Any, targets: Any) -> dict[str, Any]:
    """Return the numbers of every rule."""
    call = (task, metric, average, scores, targets)
    found = {name: tuned(*call, name) for name in ("fixed", "own")}
    if task == "multiclass":
        return found | {"pooled 20": tuned(*call, "pooled"), "half of own": found["own"] / 2}
    few = np.atleast_1d(np.minimum(targets.sum(0), (1 - targets).sum(0)))
    if task == "multilabel":
        found |= {f"pooled {limit}": tuned(*call, "pooled", limit) for limit in (10, 20, 50)}
        found["pooled all"] = tuned(*call, "pooled", 10**9)
    # Half way, on the scale of logits, between a label's own threshold and the shared one, or 0.5.
    for limit in (20, 50):
        centre, weight = found[f"pooled {limit}"] if task == "multilabel" else 0.5, few / (few + 20)
        middle = expit(weight * finite_logit(found["own"]) + (1 - weight) * finite_logit(centre))
        found[f"shrunk {limit}"] = np.where(few < limit, middle, found["own"])
    # Probabilities in the place of labels: the expected counts, if the probabilities are calibrated.
    soft = np.where(few < 20, scores, targets)
    found["plug-in"] = tuned(task, metric, average, scores, soft, "own")
    return found


def finite_logit(p: Any) -> Any:
    """Return logits of probabilities, none of them infinite."""
    return logit(np.clip(p, 1e-6, 1 - 1e-6))


METRICS = {
    "multilabel": (("f1", "macro"), ("f1", "micro"), ("f1", "samples"), ("f2", "macro"), ("mcc", "macro")),
    "multiclass": (("f1", "macro"), ("mcc", "macro")),
    "binary": (("f1", "macro"), ("f2", "macro"), ("mcc", "macro")),
}


def compared(cell: Cell, data: Any) -> list[dict[str, Any]]:
    """Return the value of every rule on the test rows, for every metric."""
    scores, targets, test, truth = (data[key] for key in ("scores", "targets", "test", "truth"))
    scores, test = scores.astype(float), test.astype(float)
    targets = targets.astype(int if cell.task == "multiclass" else float)
    of_each = np.bincount(targets) if cell.task == "multiclass" else np.atleast_1d(targets.sum(0))
    rows = []
    for metric, average in METRICS[cell.task]:
        for rule, numbers in candidates(cell.task, metric, average, scores, targets).items():
            thresholds = numbers if cell.task == "multilabel" else numbers[0]
            decide: Any = Offsets(tuple(numbers), log=True) if cell.task == "multiclass" else Threshold(thresholds)
            weight = data.get("weight")
            how: dict[str, Any] = {"task": cell.task, "average": average, "rule": decide, "weight": weight}
            value = mg.evaluate(test, truth, metric, **how)[metric]
            what = {"metric": metric, "average": average, "rule": rule, "rare": int((of_each < 50).sum())}
            rows.append(asdict(cell) | what | {"value": value})
    return rows


# The study


def study(folder: Path, cache: Path) -> None:
    """Score what is not scored yet, compare the rules, and write their values, the mean over splits."""
    cache.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for cell in cells():
        if not (file := cache / cell.file).exists():
            np.savez_compressed(file, **scored(cell, folder))
            print(cell, flush=True)
        if not (table := file.with_suffix(".csv")).exists():
            pd.DataFrame(compared(cell, np.load(file))).to_csv(table, index=False)
        rows.append(pd.read_csv(table))
    found = pd.concat(rows, ignore_index=True)
    index = ["task", "metric", "average", "set", "size", "model"]
    found = found.rename(columns={"name": "set"}).groupby([*index, "rule"])[["value", "rare"]].mean()
    wide = found.value.unstack("rule").round(5)
    wide.insert(0, "rare", found.rare.groupby(index).mean().round(1))
    versions = ", ".join(f"{name} {version(name)}" for name in ("metricgrad", "torch", "scikit-learn"))
    about = f"# python benchmarks/rare_labels.py --data FOLDER; {versions}\n"
    RESULTS.write_text(about + wide.reset_index().to_csv(index=False))


def summary() -> None:
    """Print what each rule gains on staying fixed and on tuning each label on its own, where some label is rare."""
    table = pd.read_csv(RESULTS, comment="#")
    table = table[table.rare > 0]
    keys = ["task", "metric", "average", "set", "size"]
    for reference in ("fixed", "own"):
        rules = [column for column in table.columns[7:] if column != reference]
        gains = table[rules].sub(table[reference], axis=0) * 100
        by_size = pd.concat((table[keys], gains), axis=1).groupby(keys).mean()
        print(
            f"gain on {reference!r} in points, mean over models; 95 % interval over sets and sizes; positive, negative"
        )
        for what, some in by_size.groupby(keys[:3]):
            print(*what)
            for rule in rules:
                if not (gain := some[rule].dropna()).empty:
                    mean, reach = gain.mean(), stats.t.ppf(0.975, len(gain) - 1) * gain.sem()
                    sides = f"{(gain > 1e-9).sum()}, {(gain < -1e-9).sum()} of {len(gain)}"
                    print(f"  {rule:12} {mean:+6.2f} ({mean - reach:+6.2f} to {mean + reach:+6.2f})  {sides}")


def main() -> None:
    """Run the study, or print its summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "metricgrad-scarce")
    parser.add_argument("--summary", action="store_true")
    args = parser.parse_args()
    if not args.summary:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study(args.data, args.cache)
    summary()


if __name__ == "__main__":
    main()
