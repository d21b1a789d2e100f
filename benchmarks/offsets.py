"""Several classes: offsets of their own, one number for all, or the argmax, on rows that were not tuned on.

    python benchmarks/offsets.py --data FOLDER
    python benchmarks/offsets.py --summary

Needs the extras ``sklearn`` and ``bench``; ``datasets.py`` says what the folder holds. Results are appended, and what
is there is not made again.

Protocol, written before the first result
-----------------------------------------
*Sets.* ``NAMES``, KEEL's with three classes and more, at most ``MOST_ROWS`` rows of each: as they are, and with a long
tail of 30 : 1. Those as they are overlap with the sets on which pooled offsets first looked better; the tails decide.

*Scores.* Logistic regression and extremely randomised trees, probabilities: out of fold (four folds) for the half of
the rows that tunes, and of the model fitted on that half for the other. Five splits.

*Rules.* "argmax"; "own", an offset for each class; "pooled where rare", as ``tune_threshold(rare_labels="pooled")``:
one number for all offsets where a class has fewer than 20 rows, else "own"; "pooled", one number always.

*Decision.* "pooled" becomes the default of ``tune_threshold`` for several classes if the mean over tails of its
macro-F1 minus that of "own" has a 95 % interval above 0 and the same on the sets as they are does not lie below 0. If
not, the same is asked of "pooled where rare". Else the default stays.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, matthews_corrcoef
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import metricgrad as mg
from datasets import load, thin_to_long_tail
from metricgrad.decisions import problem
from metricgrad.decisions.rare_labels import FEWEST_TO_TUNE

RESULTS = Path(__file__).parent / "results" / "offsets.csv"
NAMES = (
    *("contraceptive", "hayes-roth", "led7digit", "letter", "marketing", "movement_libras", "optdigits", "penbased"),
    *("satimage", "segment", "splice", "tae", "texture", "vehicle", "vowel", "wine"),
)
MOST_ROWS = 3000
SPLITS = 5
METRICS = ("f1", "mcc")
MODELS: dict[str, Any] = {
    "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "trees": ExtraTreesClassifier(200, min_samples_leaf=2, random_state=0),
}
RULES = ("argmax", "own", "pooled where rare", "pooled")
COLUMNS = ["set", "tail", "split", "model", "metric", *RULES]


def draw_set(name: str, has_tail: bool, folder: Path) -> tuple[Any, Any]:
    """Return the numbers and the classes of a set, of at most ``MOST_ROWS`` rows."""
    frame, targets = load(f"keel-classes/{name}", folder)
    features = pd.get_dummies(frame).fillna(0).to_numpy(float)
    if has_tail:
        features, targets = thin_to_long_tail(features, targets)
    if len(targets) > MOST_ROWS:
        features, _, targets, _ = train_test_split(
            features, targets, train_size=MOST_ROWS, stratify=targets, random_state=0
        )
    return features, targets


def tune(rule: str, metric: str, scores: Any, targets: Any) -> Any:
    """Return the tuned rule; None for the argmax."""
    if rule == "argmax":
        return None
    rare_labels: Any = "own" if rule == "own" else "pooled"
    fewest = len(targets) + 1 if rule == "pooled" else FEWEST_TO_TUNE
    with mock.patch.object(problem, "FEWEST_TO_TUNE", fewest):
        return mg.tune_threshold(metric, scores, targets, task="multiclass", rare_labels=rare_labels).rule


def evaluate(metric: str, targets: Any, decided: Any) -> float:
    """Return the metric as scikit-learn computes it."""
    if metric == "mcc":
        return float(matthews_corrcoef(targets, decided))
    return float(f1_score(targets, decided, average="macro", zero_division=0))


def run(folder: Path) -> None:
    """Append what is not there yet."""
    if not RESULTS.exists():
        RESULTS.write_text(",".join(COLUMNS) + "\n")
    done = set(pd.read_csv(RESULTS)[["set", "tail", "split", "model"]].itertuples(index=False, name=None))
    for name in NAMES:
        for has_tail in (True, False):
            features, targets = draw_set(name, has_tail, folder)
            for split in range(SPLITS):
                rows, test = train_test_split(
                    np.arange(len(targets)), test_size=0.5, stratify=targets, random_state=split
                )
                for model_name, model in MODELS.items():
                    if (name, has_tail, split, model_name) in done:
                        continue
                    folds = StratifiedKFold(4, shuffle=True, random_state=split)
                    scores = cross_val_predict(model, features[rows], targets[rows], cv=folds, method="predict_proba")
                    new_scores = model.fit(features[rows], targets[rows]).predict_proba(features[test])
                    for metric in METRICS:
                        line: dict[str, Any] = {"set": name, "tail": has_tail, "split": split, "model": model_name}
                        line["metric"] = metric
                        for rule in RULES:
                            tuned = tune(rule, metric, scores, targets[rows])
                            decided = new_scores.argmax(1) if tuned is None else np.asarray(tuned(new_scores))
                            line[rule] = round(evaluate(metric, targets[test], decided), 5)
                        frame = pd.DataFrame([line]).reindex(columns=COLUMNS)
                        frame.to_csv(RESULTS, mode="a", header=False, index=False)
            print(name, has_tail, flush=True)


def print_summary() -> None:
    """Print the means over sets, and the differences to "own" with their intervals."""
    lines = pd.read_csv(RESULTS)
    for (has_tail, metric), part in lines.groupby(["tail", "metric"]):
        of_sets = part.groupby("set")[list(RULES)].mean()
        kind = "long tails" if has_tail else "as they are"
        print(f"{kind}, {metric}, {len(of_sets)} sets:", *(f"{rule} {of_sets[rule].mean():.3f}," for rule in RULES))
        for rule in RULES:
            if rule == "own":
                continue
            difference = of_sets[rule] - of_sets["own"]
            reach = stats.t.ppf(0.975, len(difference) - 1) * difference.std(ddof=1) / len(difference) ** 0.5
            mean = difference.mean()
            print(f"  {rule} − own {mean:+.4f} ({mean - reach:+.4f} to {mean + reach:+.4f}),", end=" ")
            print(f"ahead on {(difference > 0).sum()}, behind on {(difference < 0).sum()}")


def main() -> None:
    """Run, or sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.summary:
        print_summary()
    elif options.data is None:
        parser.error("--data: expected the folder of data sets")
    else:
        run(options.data)


if __name__ == "__main__":
    main()
