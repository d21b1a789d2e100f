"""Free text in ``metricgrad compare`` against a tuned logistic regression of scikit-learn on TF-IDF, on GoEmotions.

    python benchmarks/text_columns.py --data FOLDER [--rows 10000]

Both see the same rows and folds: in every repeat they are cross-fitted on the same training rows, tune a threshold for
each label on the scores out of fold, and are evaluated by macro-F1 on the same test rows. The peer has all words and
pairs of words of two rows, and the penalty that is best out of fold. ``FOLDER`` is that of benchmarks/datasets.py.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, precision_recall_curve
from sklearn.multiclass import OneVsRestClassifier

from metricgrad.comparison.option_texts import split_names
from metricgrad.comparison.options import Options, prepare_dataset
from metricgrad.comparison.progress import NoProgress
from metricgrad.comparison.report.comparison_report import write_comparison_report
from metricgrad.comparison.run_comparison import compare

if TYPE_CHECKING:
    from metricgrad.comparison.splits import Split

RESULTS = Path(__file__).parent / "results" / "text_columns.json"
CONTENDERS = "majority,logistic regression,cross-entropy,hybrid,xgboost,ensemble"
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)


def read_comments(folder: Path, rows: int) -> pd.DataFrame:
    """Return a random part of the comments, with a column of 0 and 1 for each emotion."""
    names = (folder / "emotions.txt").read_text().split()
    texts, labels = [], []
    for part in ("train", "dev", "test"):
        with gzip.open(folder / f"{part}.tsv.gz", "rt") as lines:
            for line in lines:
                text, numbers, _ = line.rstrip("\n").split("\t")
                texts.append(text)
                labels.append([int(number) for number in numbers.split(",")])
    some = np.sort(np.random.default_rng(0).permutation(len(texts))[:rows])
    y = np.zeros((len(some), len(names)), dtype=int)
    for i, row in enumerate(some):
        y[i, labels[row]] = 1
    return pd.DataFrame(y, columns=names).assign(text=[texts[row] for row in some])


def evaluate_peer(texts: np.ndarray, y: np.ndarray, split: Split) -> float:
    """Return the macro-F1 of scikit-learn's models on the test rows of a split."""
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2).fit(texts[split.train])
    x = words.transform(texts)
    fitted: dict[float, list[Any]] = {}
    out_of_fold: dict[float, np.ndarray] = {}
    for strength in STRENGTHS:
        model = OneVsRestClassifier(LogisticRegression(C=strength, max_iter=1000))
        models = [clone(model).fit(x[rows], y[rows]) for rows, _ in split.folds]
        parts = [one.predict_proba(x[left_out]) for one, (_, left_out) in zip(models, split.folds, strict=True)]
        fitted[strength], out_of_fold[strength] = models, np.concatenate(parts)
    known = y[split.left_out]

    def compute_loss(strength: float) -> float:
        p = out_of_fold[strength]
        return float(-np.log(np.clip(np.where(known == 1, p, 1 - p), 1e-12, 1)).mean())

    best = min(STRENGTHS, key=compute_loss)
    test = np.mean([model.predict_proba(x[split.test]) for model in fitted[best]], axis=0)
    thresholds = [tune(out_of_fold[best][:, k], known[:, k]) for k in range(y.shape[1])]
    return float(f1_score(y[split.test], test >= thresholds, average="macro", zero_division=0))


def tune(scores: np.ndarray, y: np.ndarray) -> float:
    """Return the threshold with the highest F1."""
    precision, recall, thresholds = precision_recall_curve(y, scores)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    return float(thresholds[f1[:-1].argmax()])


def main() -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--contenders", default=CONTENDERS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    frame = read_comments(asked.data / "goemotions", asked.rows)
    labels = [name for name in frame.columns if name != "text"]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "goemotions.parquet"
        frame.to_parquet(data)
        options = Options(str(data), tuple(labels), repeats=asked.repeats, contenders=split_names(asked.contenders))
        dataset = prepare_dataset(options)
        texts = frame["text"].to_numpy(object)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a label may have no positive rows to tune on
            peer = [evaluate_peer(texts, dataset.targets, split) for split in dataset.split(options)]
        print("scikit-learn", peer, flush=True)
        found = compare(options, Path(folder) / "run", NoProgress(), write_comparison_report, jobs=1)
    values = {row["contender"]: row["folds"] for row in found["leaderboard"] if row["rule"] == "tuned"}
    results = {
        "rows": len(frame),
        "labels": len(labels),
        "repeats": asked.repeats,
        "macro-F1 of every repeat": {"scikit-learn, TF-IDF and logistic regression": peer, **values},
        "ratio of means to scikit-learn": {name: float(np.mean(each) / np.mean(peer)) for name, each in values.items()},
    }
    print(json.dumps(results, indent=2))
    asked.results.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
