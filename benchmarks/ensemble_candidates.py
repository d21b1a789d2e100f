"""Whether TabM is worth its seconds in the ensemble of several labels.

    python benchmarks/ensemble_candidates.py --data FOLDER [--sets NAMES]
    python benchmarks/ensemble_candidates.py --summary

Needs the extras ``sklearn``, ``boosting`` and ``tabm``; ``datasets.py`` says what the folder holds. Results are
appended, and what is there is not made again.

Protocol, written before the first result
-----------------------------------------
``MetricEnsembleClassifier("f1")``, macro-F1 of several labels, with its default candidates and with "hybrid tabm"
besides; the same folds, seeds and default candidates. Two splits, a quarter of the rows evaluates, at most
``MOST_ROWS`` rows of each set. None of them chose a default; but TabM alone had been evaluated on them
(``quality.py``), which is why it is tried here.

*Decision.* "hybrid tabm" is recommended for several labels if the mean over sets of its gain (splits averaged first)
has a 95 % interval above 0; it stays an option in any case, since it needs a package and more time.

Yeast, scene and cancerHallmarks were to be described beside these sets; they were not run.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.metrics import f1_score

import metricgrad as mg
from datasets import load

RESULTS = Path(__file__).parent / "results" / "ensemble_candidates.csv"
SETS = ("flags", "foodtruck", "emotions", "genbase", "chemicalExposure")
MOST_ROWS = 1500
SPLITS = 2
EXTRA: dict[str, Any] = {"default": None, "with hybrid tabm": ["hybrid tabm"]}
COLUMNS = ["set", "split", "contender", "f1", "weight_of_tabm", "cpu_seconds"]


def measure(contender: str, name: str, split: int, folder: Path) -> dict[str, Any]:
    """Return what came of one fit."""
    features, targets = load(name, folder)
    features, targets = np.asarray(features, float), np.asarray(targets, int)
    rows = np.random.default_rng(split).permutation(len(targets))[:MOST_ROWS]
    test, train = rows[: len(rows) // 4], rows[len(rows) // 4 :]
    model = mg.MetricEnsembleClassifier("f1", extra_estimators=EXTRA[contender], random_state=split)
    started = time.process_time()
    model.fit(features[train], targets[train])
    seconds = time.process_time() - started
    value = f1_score(targets[test], model.predict(features[test]), average="macro", zero_division=0)
    return {
        "f1": round(float(value), 5),
        "weight_of_tabm": round(model.weights_.get("hybrid tabm", 0.0), 3),
        "cpu_seconds": round(seconds, 1),
    }


def run(folder: Path, names: list[str]) -> None:
    """Append what is not there yet."""
    if not RESULTS.exists():
        RESULTS.write_text(",".join(COLUMNS) + "\n")
    for name in names:
        for split in range(SPLITS):
            for contender in EXTRA:
                done = set(pd.read_csv(RESULTS)[["set", "split", "contender"]].itertuples(index=False, name=None))
                if (name, split, contender) in done:
                    continue
                line = {"set": name, "split": split, "contender": contender}
                line |= measure(contender, name, split, folder)
                pd.DataFrame([line]).reindex(columns=COLUMNS).to_csv(RESULTS, mode="a", header=False, index=False)
                print(line, flush=True)


def print_summary() -> None:
    """Print the gain on each set, and its mean with an interval."""
    lines = pd.read_csv(RESULTS).pivot_table(index=["set", "split"], columns="contender")
    gain = (lines["f1"]["with hybrid tabm"] - lines["f1"]["default"]).groupby("set").mean()
    times = lines["cpu_seconds"]["with hybrid tabm"] / lines["cpu_seconds"]["default"]
    print(", ".join(f"{name} {value:+.4f}" for name, value in gain.items()))
    reach = stats.t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / len(gain) ** 0.5
    print(f"mean {gain.mean():+.4f} ({gain.mean() - reach:+.4f} to {gain.mean() + reach:+.4f})", end="")
    print(f", ahead on {(gain > 0).sum()} of {len(gain)}, {times.mean():.1f} times the CPU seconds")


def main() -> None:
    """Run, or sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.summary:
        print_summary()
    elif options.data is None:
        parser.error("--data: expected the folder of data sets")
    else:
        run(options.data, options.sets)


if __name__ == "__main__":
    main()
