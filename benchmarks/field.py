"""The default ensemble against AutoGluon, FLAML and scikit-learn at equal CPU seconds, on tables that chose nothing.

    python benchmarks/field.py --data FOLDER [--share 1/2] [--metrics f1 mcc] [--only NAMES] [--sets NAMES]
    python benchmarks/field.py --summary

It has an environment of its own:

    pip install torch==2.13.0 -e '.[boosting,persistence]' \
        'autogluon.tabular[lightgbm,catboost,xgboost,fastai]==1.6.3' 'flaml[automl]'
    pip uninstall -y torchvision  # fastai brings it; tables need none, and it does not load beside torch for CPUs
    pip install --force-reinstall --no-deps xgboost-cpu  # AutoGluon brings another xgboost into the same folder

Every result is appended to a file as it is made, and what is there is not made again. ``datasets.py`` says what the
folder holds.

Protocol, written before the first result
-----------------------------------------
*Tables.* ``BINARY`` and ``SEVERAL_CLASSES``: none of them chose a default of this library. Five splits, three of more
than ``LARGE`` rows; a quarter of the rows, stratified, evaluates. They are run in a random order, each with all splits.

*Contenders* (``CONTENDERS``) get the same frames, as they are, and one core. ``MetricEnsembleClassifier(metric)`` runs
first; the CPU seconds of its fit are the time limit of AutoGluon and FLAML (at least ``LEAST_LIMIT``). These count wall
time, so nothing else may run. AutoGluon's presets "medium_quality" and "best_quality" with ``eval_metric`` set, its
networks and CatBoost included, thresholds as it calibrates them; FLAML with its own optimisation of the metric;
scikit-learn's gradient boosting in ``TunedThresholdClassifierCV`` (as it is for several classes). "AutoGluon best, ten
times" has ten times the seconds, for F1, on the eight tables of ``LONG``.

*Measured*: the metric on the test rows, CPU and wall seconds of the fit, CPU seconds of predicting the test rows, peak
memory of the process and the size of the saved model. Each fit is a process of its own. One that fails counts as the
most frequent class, and is counted.

*Metrics*: F1 and MCC of two classes, macro-F1 of several.

*Claims*, two-sided t-tests over tables (splits averaged first) with Holm's correction:

1. F1, two classes: ours − AutoGluon best is positive.
2. Macro-F1, several classes: ours − AutoGluon best is positive.
3. MCC, two classes: ours − AutoGluon best is positive.

Everything else is description.

*Reductions, decided before the first result.* The tables of more than ``LARGE`` rows are left out; F1 and macro-F1 are
run on all tables first, then MCC, then "AutoGluon best, ten times".

*Changed after 15 tables.* "AutoGluon best" fits nothing for several classes in ten seconds: 22 of 23 fits had failed.
So the other tables were left, to give it ten times the seconds on those of ``LONG`` and ``LONG_SEVERAL_CLASSES``; and a
claim is not judged if more than ``MOST_FAILED`` of the rival's fits failed. Fits with a time limit that got less than
nine tenths of the core were made again.

*Continued after that:* the other tables of ``BINARY`` with at most ``LARGE`` rows, F1, all contenders but the last, so
that the first claim is judged on all tables it was written for. At the stop it was not shown (p = 0.07, 10 tables).

*Added before its first result:* tables with ``SEVERAL_LABELS``, macro-F1, three splits, description only.
AutoGluon does them as its tutorial does: one predictor for each label, which sees the labels before it. It has
``LEAST_LIMIT`` seconds for each label, or the seconds of ours if these are more. Scikit-learn's gradient boosting
has a tuned threshold for each label; FLAML has no several labels. Flags, foodtruck, emotions and genbase had tried a
candidate of the ensemble (``ensemble_candidates.py``), which then was not taken; scene chose the width of the default
network (``network_defaults.py``).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

from datasets import load

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results" / "field.csv"
COLUMNS = [
    *("set", "split", "metric", "contender", "value", "fit_cpu", "fit_wall", "predict_cpu"),
    *("memory_mb", "model_mb", "failed"),
]
BINARY = (
    *("MagicTelescope", "jm1", "spambase", "creditcard-subset"),
    *("keel/banana", "keel/bands", "keel/car-good", "keel/ecoli3", "keel/flare-F", "keel/german", "keel/haberman"),
    *("keel/mammographic", "keel/poker-8-9_vs_5", "keel/saheart", "keel/titanic", "keel/vehicle1", "keel/vehicle3"),
    *("keel/australian", "keel/bupa", "keel/crx", "keel/heart", "keel/ionosphere", "keel/sonar", "keel/wdbc"),
    *("keel/wisconsin", "keel/housevotes"),
)
SEVERAL_CLASSES = (
    *("keel-classes/hayes-roth", "keel-classes/led7digit", "keel-classes/movement_libras", "keel-classes/penbased"),
    *("keel-classes/tae", "keel-classes/texture", "keel-classes/vehicle", "keel-classes/wine"),
    *("satimage-tail", "vowel-tail", "contraceptive-tail", "marketing-tail"),
)
SEVERAL_LABELS = ("emotions", "scene", "yeast", "flags", "foodtruck", "genbase")
LONG = (
    *("keel/bands", "keel/car-good", "keel/german", "keel/haberman", "keel/mammographic", "keel/saheart"),
    *("keel/titanic", "keel/vehicle1"),
)
LONG_SEVERAL_CLASSES = ("keel-classes/vehicle", "contraceptive-tail")
LARGE = 5000
LEAST_LIMIT = 10.0
MOST_FAILED = 0.1
OURS = "ours"
MEDIUM = "AutoGluon medium"
BEST = "AutoGluon best"
TEN_TIMES = "AutoGluon best, ten times"


# The contenders: each fits on a frame with the column "y", or "y0", "y1", ... for several labels, saves its model in a
# folder, and returns a function that predicts


def fit_ours(frame: pd.DataFrame, metric: str, seconds: float, folder: Path) -> Callable[[pd.DataFrame], Any]:
    """Fit the ensemble as it is by default."""
    import metricgrad as mg

    features, target = split_frame(frame)
    model = mg.MetricEnsembleClassifier(metric, n_jobs=1, random_state=0)
    model.fit(features, target)
    mg.save(model, folder / "model")
    predict: Callable[[pd.DataFrame], Any] = model.predict
    return predict


def fit_autogluon(preset: str) -> Callable[..., Callable[[pd.DataFrame], Any]]:
    """Return a contender: AutoGluon with a preset."""

    def fit(frame: pd.DataFrame, metric: str, seconds: float, folder: Path) -> Callable[[pd.DataFrame], Any]:
        from autogluon.tabular import TabularPredictor

        if "y" not in frame:
            return fit_autogluon_labels(preset, frame, metric, seconds, folder)
        has_two_classes = frame["y"].nunique() == 2
        name = metric if has_two_classes else f"{metric}_macro"
        predictor = TabularPredictor("y", eval_metric=name, path=str(folder / "model"), verbosity=0)
        predictor.fit(frame, presets=preset, time_limit=seconds, num_cpus=1, num_gpus=0)
        return lambda rows: predictor.predict(rows).to_numpy()

    return fit


def fit_autogluon_labels(
    preset: str, frame: pd.DataFrame, metric: str, seconds: float, folder: Path
) -> Callable[[pd.DataFrame], Any]:
    """Fit one AutoGluon predictor for each label, with the labels before it as features, as its tutorial has it.

    Each predicts with what those before it predict.
    """
    from autogluon.tabular import TabularPredictor

    features, target = split_frame(frame)
    predictors = []
    for number, label in enumerate(target.columns):
        seen = pd.concat([features, target.iloc[:, : number + 1]], axis=1)
        predictor = TabularPredictor(label, eval_metric=metric, path=str(folder / label), verbosity=0)
        share = seconds / len(target.columns)
        predictor.fit(seen, presets=preset, time_limit=share, num_cpus=1, num_gpus=0)
        predictors.append(predictor)

    def predict(rows: pd.DataFrame) -> Any:
        rows = rows.copy()
        for predictor in predictors:
            rows[predictor.label] = predictor.predict(rows)
        return rows[target.columns].to_numpy()

    return predict


def fit_flaml(frame: pd.DataFrame, metric: str, seconds: float, folder: Path) -> Callable[[pd.DataFrame], Any]:
    """Fit FLAML, which optimises the metric where it knows it, and else a function."""
    import joblib
    from flaml import AutoML

    def one_minus_mcc(
        X_val: Any, y_val: Any, estimator: Any, labels: Any, X_train: Any, y_train: Any, *more: Any, **options: Any
    ) -> tuple[float, dict[str, float]]:
        loss = 1 - matthews_corrcoef(y_val, estimator.predict(X_val))
        return loss, {"loss": loss}

    has_two_classes = frame["y"].nunique() == 2
    goal: Any = one_minus_mcc if metric == "mcc" else metric if has_two_classes else f"macro_{metric}"
    model = AutoML()
    model.fit(
        X_train=frame.drop(columns="y"),
        y_train=frame["y"].to_numpy(),
        task="classification",
        metric=goal,
        time_budget=seconds,
        n_jobs=1,
        verbose=0,
        seed=0,
    )
    joblib.dump(model.model, folder / "model")
    return model.predict  # type: ignore[no-any-return]


def fit_sklearn(frame: pd.DataFrame, metric: str, seconds: float, folder: Path) -> Callable[[pd.DataFrame], Any]:
    """Fit scikit-learn's gradient boosting with a tuned threshold for each label; the argmax for several classes."""
    import joblib
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import TunedThresholdClassifierCV
    from sklearn.multioutput import MultiOutputClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    words = make_column_selector(dtype_exclude="number")
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encoder = make_column_transformer((one_hot, words), remainder="passthrough")
    pipeline = make_pipeline(encoder, HistGradientBoostingClassifier(random_state=0))
    features, target = split_frame(frame)
    scoring = "matthews_corrcoef" if metric == "mcc" else metric
    tuned = TunedThresholdClassifierCV(pipeline, scoring=scoring, cv=5, random_state=0)
    model = pipeline  # of several classes
    if target.ndim == 2:
        model = MultiOutputClassifier(tuned)
    elif target.nunique() == 2:
        model = tuned
    model.fit(features, target)
    joblib.dump(model, folder / "model")
    return model.predict  # type: ignore[no-any-return]


CONTENDERS: dict[str, Callable[..., Callable[[pd.DataFrame], Any]]] = {
    OURS: fit_ours,
    MEDIUM: fit_autogluon("medium_quality"),
    BEST: fit_autogluon("best_quality"),
    "FLAML": fit_flaml,
    "HistGradientBoosting, tuned": fit_sklearn,
    TEN_TIMES: fit_autogluon("best_quality"),
}


# A fit, in a process of its own


def make_frame(name: str, folder: Path) -> pd.DataFrame:
    """Return the features with the target as the column "y", or as "y0", "y1", ... if it has several labels."""
    features, y = load(name, folder)
    y = np.asarray(y)
    frame = pd.DataFrame(features).rename(columns=lambda column: f"x{column}")
    if y.ndim == 1:
        return frame.assign(y=y)
    return frame.join(pd.DataFrame(y).rename(columns=lambda column: f"y{column}"))


def split_frame(frame: pd.DataFrame) -> tuple[pd.DataFrame, Any]:
    """Return the features and the target, a frame if it has several labels."""
    names = [name for name in frame.columns if name.startswith("y")]
    target = frame["y"] if names == ["y"] else frame[names]
    return frame.drop(columns=names), target


def count_labels(name: str, folder: Path) -> int:
    """Return how many labels a set has; 1 unless it has several."""
    if name not in SEVERAL_LABELS:
        return 1
    _, target = split_frame(make_frame(name, folder))
    return len(target.columns)


def split_rows(y: Any, split: int) -> tuple[Any, Any]:
    """Return the rows to fit on and those to evaluate, stratified if there is one label."""
    kind = StratifiedShuffleSplit if y.ndim == 1 else ShuffleSplit
    splits = kind(5, test_size=0.25, random_state=0).split(np.zeros(len(y)), y)
    rows, test = list(splits)[split]
    return rows, test


def measure(contender: str, name: str, split: int, metric: str, seconds: float, folder: Path) -> dict[str, Any]:
    """Return what came of one fit."""
    warnings.simplefilter("ignore")
    frame = make_frame(name, folder)
    features, target = split_frame(frame)
    rows, test = split_rows(target, split)
    with tempfile.TemporaryDirectory() as place:
        started = time.perf_counter(), time.process_time()
        predict = CONTENDERS[contender](frame.iloc[rows].reset_index(drop=True), metric, seconds, Path(place))
        fit_wall = time.perf_counter() - started[0]
        fit_cpu = time.process_time() - started[1]
        size = sum(file.stat().st_size for file in Path(place).rglob("*") if file.is_file())
        started_predicting = time.process_time()
        found = np.asarray(predict(features.iloc[test]))
        predict_cpu = time.process_time() - started_predicting
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "value": round(evaluate(metric, target.iloc[test].to_numpy(), found), 5),
        "fit_cpu": round(fit_cpu, 1),
        "fit_wall": round(fit_wall, 1),
        "predict_cpu": round(predict_cpu, 3),
        "memory_mb": round(memory),
        "model_mb": round(size / 2**20, 2),
        "failed": 0,
    }


def evaluate(metric: str, true: Any, found: Any) -> float:
    """Return the metric, as scikit-learn computes it; the macro average for several classes or labels."""
    if metric == "mcc":
        return float(matthews_corrcoef(true, found))
    average = "binary" if true.ndim == 1 and true.max() == 1 else "macro"
    return float(f1_score(true, found, average=average, zero_division=0))


def measure_apart(contender: str, name: str, split: int, metric: str, seconds: float, folder: Path) -> dict[str, Any]:
    """Do the same in a process of its own; where a fit fails return the value of the most frequent class or labels."""
    one = json.dumps([contender, name, split, metric, seconds])
    command = [sys.executable, __file__, "--data", str(folder), "--one", one]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]
    print(f"{contender}, {name}, {split}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr, flush=True)
    _, target = split_frame(make_frame(name, folder))
    _, test = split_rows(target, split)
    most_frequent = np.repeat(target.mode().to_numpy()[:1], len(test), axis=0)
    return {"value": round(evaluate(metric, target.iloc[test].to_numpy(), most_frequent), 5), "failed": 1}


def order_tables(share: str) -> list[str]:
    """Return the tables of a share, such as "1/2", in a random order that is always the same."""
    part, parts = map(int, share.split("/"))
    tables = (*BINARY, *SEVERAL_CLASSES, *SEVERAL_LABELS)
    ordered = [tables[place] for place in np.random.default_rng(0).permutation(len(tables))]
    return ordered[part - 1 :: parts]


def run(options: argparse.Namespace) -> None:
    """Append the results that are not there yet."""
    results: Path = options.results
    if not results.exists():
        results.write_text(",".join(COLUMNS) + "\n")
    for name in options.sets or order_tables(options.share):
        rows = len(make_frame(name, options.data))
        if rows > LARGE and not options.large:
            continue
        for split in range(3 if rows > LARGE or name in SEVERAL_LABELS else 5):
            for metric in options.metrics:
                if metric == "mcc" and name not in BINARY:
                    continue
                make_missing(name, split, metric, options)


def make_missing(name: str, split: int, metric: str, options: argparse.Namespace) -> None:
    """Append the results of a split that are not there yet; ours comes first, since it sets the time of the others."""
    for contender in options.only or CONTENDERS:
        lines = pd.read_csv(options.results)
        done = lines[(lines["set"] == name) & (lines.split == split) & (lines.metric == metric)].set_index("contender")
        is_long = contender == TEN_TIMES
        if contender in done.index or (is_long and (name not in (*LONG, *LONG_SEVERAL_CLASSES) or metric != "f1")):
            continue
        seconds = 0.0
        if contender != OURS:
            least = LEAST_LIMIT * (count_labels(name, options.data) if contender in (MEDIUM, BEST) else 1)
            seconds = max(least, float(done.loc[OURS, "fit_cpu"])) * (10 if is_long else 1)
        found = measure_apart(contender, name, split, metric, seconds, options.data)
        line = {"set": name, "split": split, "metric": metric, "contender": contender, **found}
        pd.DataFrame([line]).reindex(columns=COLUMNS).to_csv(options.results, mode="a", header=False, index=False)
        print(line, flush=True)


# The summary


class Claim(NamedTuple):
    """A claim and what came of it: the mean of ours − the rival's, its interval, and the corrected p-value."""

    part: str
    mean: float
    low: float
    high: float
    p: float
    won: int
    tables: int
    verdict: str


def compare(lines: pd.DataFrame, other: str) -> tuple[float, float, float, float, int, int]:
    """Return the mean of ours − other over tables, its interval and p-value, tables won and tables."""
    values = lines.pivot_table(index=["set", "split"], columns="contender", values="value")
    difference = (values[OURS] - values[other]).dropna().groupby("set").mean()
    mean = float(difference.mean())
    reach = float(stats.t.ppf(0.975, len(difference) - 1) * difference.std(ddof=1) / len(difference) ** 0.5)
    p = float(stats.ttest_1samp(difference, 0.0).pvalue)
    return mean, mean - reach, mean + reach, p, int((difference > 0).sum()), len(difference)


CLAIMED = ("F1, two classes", "macro-F1, several classes", "MCC, two classes")
"""What the claims are about."""


def read_parts(path: Path) -> dict[str, pd.DataFrame]:
    """Return the results by metric and kind of table."""
    lines = pd.read_csv(path)
    f1, several_classes, mcc = CLAIMED
    return {
        f1: lines[(lines.metric == "f1") & lines["set"].isin(BINARY)],
        several_classes: lines[lines["set"].isin(SEVERAL_CLASSES)],
        mcc: lines[lines.metric == "mcc"],
        "macro-F1, several labels": lines[lines["set"].isin(SEVERAL_LABELS)],
    }


def judge_claims(parts: dict[str, pd.DataFrame]) -> list[Claim]:
    """Return what came of the claims that have results, with Holm's correction, the clearest first."""
    found = []
    for part in CLAIMED:
        lines = parts[part]
        if lines["set"].nunique() > 1:
            failed = lines[lines.contender == BEST].failed.mean()
            found.append((part, failed, *compare(lines, BEST)))
    found.sort(key=lambda claim: claim[5])
    claims = []
    corrected = 0.0
    for place, (part, failed, mean, low, high, p, won, tables) in enumerate(found):
        corrected = max(corrected, min(1.0, p * (len(found) - place)))
        verdict = "shown" if corrected < 0.05 and mean > 0 else "not shown"
        if failed > MOST_FAILED:
            verdict = f"not judged, {failed:.0%} of the fits of {BEST} failed"
        claims.append(Claim(part, mean, low, high, corrected, won, tables, verdict))
    return claims


def print_summary(path: Path) -> None:
    """Print the claims with Holm's correction, then every contender."""
    parts = read_parts(path)
    for claim in judge_claims(parts):
        print(f"{claim.part}: {OURS} − {BEST} {claim.mean:+.4f} ({claim.low:+.4f} to {claim.high:+.4f}), ", end="")
        print(f"ahead on {claim.won} of {claim.tables}, corrected p {claim.p:.4f}: {claim.verdict}")
    for name, part in parts.items():
        print(f"\n{name}: {part['set'].nunique()} tables")
        for contender in CONTENDERS:
            own = part[part.contender == contender]
            if own.empty:
                continue
            means = own[["value", "fit_cpu", "predict_cpu", "memory_mb", "model_mb"]].mean()
            print(f"  {contender:28}", *(f"{key} {value:.3f}" for key, value in means.items()), end="")
            print(f", {int(own.failed.sum())} of {len(own)} failed", end="")
            if contender != OURS and own["set"].nunique() > 1:
                mean, low, high, _, won, tables = compare(part, contender)
                print(f"; ours − it {mean:+.4f} ({low:+.4f} to {high:+.4f}), {won} of {tables}", end="")
            print()


def main() -> None:
    """Run, or sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--share", default="1/1", help="which part of the tables, such as 1/2")
    parser.add_argument("--sets", nargs="*", help="only these tables")
    parser.add_argument("--large", action="store_true", help="also the tables that were left out")
    parser.add_argument("--metrics", nargs="*", default=["f1", "mcc"])
    parser.add_argument("--only", nargs="*", help="only these contenders")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.summary:
        print_summary(options.results)
    elif options.data is None:
        parser.error("--data: expected the folder of data sets")
    elif options.one:
        contender, name, split, metric, seconds = json.loads(options.one)
        print(json.dumps(measure(contender, name, split, metric, seconds, options.data)))
    else:
        run(options)


if __name__ == "__main__":
    main()
