"""Linear SVMperf trained on F1 against the same trained on the error rate, on a real data set.

    python benchmarks/svmperf.py --data FOLDER [--set mammography] [--json FILE]

``datasets.py`` says what the folder holds. Five random stratified splits, 75 % to train, 25 % to judge, standardised
features, decided at 0; mean test F1 and its standard deviation for each C.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler

import metricgrad as mg
from datasets import load
from timing import machine, write


def main() -> None:
    """Train, judge, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--set", default="mammography")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": machine("scikit-learn"), "set": options.set, "f1": {}}
    features, y = load(options.set, options.data)
    features = np.asarray(features, dtype=float)
    splits = list(StratifiedShuffleSplit(5, test_size=0.25, random_state=0).split(features, y))
    for c in (1e3, 1e4, 1e5):
        for metric in ("f1", "accuracy"):
            scores = []
            for rows, held in splits:
                scaler = StandardScaler().fit(features[rows])
                svm = mg.LinearSVMPerf(metric, C=c, tol=1e-4).fit(scaler.transform(features[rows]), y[rows])
                scores.append(f1_score(y[held], svm.predict(scaler.transform(features[held]))))
            found["f1"][f"{metric}, C = {c:g}"] = {"mean": float(np.mean(scores)), "std": float(np.std(scores, ddof=1))}
            print(
                f"trained on {metric:9} C = {c:<8g} F1 {np.mean(scores):.3f} ± {np.std(scores, ddof=1):.3f}", flush=True
            )
    write(found, options.json)


if __name__ == "__main__":
    main()
