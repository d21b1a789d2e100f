"""What the first page says of gains, tables of three pages, and the picture of the study.

    python benchmarks/gains.py [--write]

Every figure comes from a file in ``results/`` that a study wrote: this script runs nothing. ``--write`` puts the pitch
and the tables into README.md, docs/training.md, images.md, decisions.md and field.md, in place of those there, and
draws docs/gains.svg.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

import dense_maps
import field
import guarantee
import money
import prevalence
import quality
import survival
import two_images

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TRAINING = ROOT / "docs" / "training.md"
IMAGES = ROOT / "docs" / "images.md"
DECISIONS = ROOT / "docs" / "decisions.md"
FIELD = ROOT / "docs" / "field.md"
PICTURE = ROOT / "docs" / "gains.svg"
LINE = 126
"""The width of a line in README.md."""

PITCH = """\
**A drop-in PyTorch loss for F1, MCC, Dice or your own metric; decisions that are exact, priced and guaranteed; and one
command that finds out what to ship:** of {runs} training runs at good and bad settings {hybrid_dead} died with
`HybridLoss` ({metric_dead} with the metric alone), and of {guarantees} guarantees tested {broken} was broken more often
than it promised.

On {tables} tables its ensemble beats XGBoost with a tuned threshold, F1 {table_gain}, and on {field_tables} small ones
AutoGluon's best preset in about ten seconds each, {field_gain}; with several labels and no threshold tuned the metric
loss beats cross-entropy, macro-F1 {untuned_gain}; and on small objects in images the hybrid loss beats cross-entropy
after tuning too, Dice {map_gain}.

**Where it does not help:** once a threshold is tuned, the loss of the default network has no proven gain, {one_label}
with one label and {several_labels} with several, nor has the hybrid over MONAI's DiceCE on small objects.
"""
NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Gain(NamedTuple):
    """A mean difference over sets, its 95 % interval, and in how many sets it is positive."""

    mean: float
    low: float
    high: float
    won: int
    sets: int

    def __str__(self) -> str:
        return self.interval if self.is_clear else f"{self.interval}, not proven"

    @property
    def interval(self) -> str:
        """The mean and its interval."""
        return with_minus(f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})")

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0

    @property
    def score(self) -> str:
        """In how many sets it is positive."""
        return f"{self.won} of {self.sets}"


def with_minus(text: str) -> str:
    """Return a text of numbers with the sign that belongs to them."""
    return text.replace("-", "−")


def count_in_words(number: int) -> str:
    """Return a number as a sentence has it."""
    return NUMBERS[number] if number < len(NUMBERS) else str(number)


def measure_gain(gap: pd.Series) -> Gain:
    """Return the gain of one difference per set, with a t-interval over sets."""
    return Gain(*quality.mean_interval(gap), int((gap > 0).sum()), len(gap))


# The studies


def find_study_gain(problem: str) -> Gain:
    """Return the gain of a problem in the map of the study of quality."""
    (how,) = (how for name, _, *how in quality.MAP if name == problem)
    return measure_study_gain(*how)


def find_claimed_gain() -> Gain:
    """Return the gain of the default network with several labels, over all of them: the first claim of the study."""
    return measure_study_gain("multilabel", "f1", "value", quality.DEFAULT, quality.SAME)


def measure_study_gain(kind: str, metric: str, value: str, name: str, reference: str) -> Gain:
    """Return the gain of a contender over its reference, over the sets of a kind."""
    gaps = quality.find_gaps(quality.read_results(quality.RESULTS), kind, metric, value, name, reference)
    assert gaps is not None, (kind, metric, name, reference)
    return measure_gain(quality.average_splits(gaps))


def find_money_gain(method: str) -> Gain:
    """Return the savings beyond those of another method, over sets."""
    savings = money.read_results().pivot_table(index=["set", "split"], columns="method", values="savings")
    return measure_gain(quality.average_splits(savings["metricgrad"] - savings[method]))


def find_rate_gain(factor: str) -> Gain:
    """Return the F1 won back by estimating a base rate that moved by a factor; the interval is that of its study."""
    table = pd.read_csv(prevalence.RESULTS, comment="#", dtype={"factor": str})
    table = table[table.set.isin(prevalence.SETS["judge"]) & (table.factor == factor)]
    f1 = table.pivot_table(index="set", columns="method", values="f1")
    gap = f1[prevalence.DEFAULT] - f1["kept"]
    return Gain(*prevalence.bootstrap_mean(gap), int((gap > 0).sum()), len(gap))


def find_guarantee_gain() -> Gain:
    """Return the recall found beyond MAPIE's under a promised precision, over simulated scenarios."""
    shared = guarantee.select_shared(pd.read_csv(guarantee.RESULTS, comment="#"))
    recall = shared.pivot_table(index="scenario", columns="method", values="value")
    return measure_gain(recall["metricgrad"] - recall["MAPIE"])


def find_map_gains() -> dict[str, Gain]:
    """Return the claims about small objects by rival, and on how many targets the default is ahead in the mean."""
    runs = read_judged_maps()
    dice = runs[runs.measure == "Dice per image"].set_index(["target", "seed", "loss"]).value.unstack()
    chosen = dense_maps.better_cross_entropy(runs, dense_maps.PATIENT_STEPS)
    rivals = {
        dense_maps.MONAI: dice[dense_maps.MONAI],
        "the better cross-entropy": pd.Series({run: dice.loc[run, loss] for run, loss in chosen.items()}),
    }
    gains = {}
    for claim in pd.read_csv(dense_maps.CLAIMS).itertuples():
        gap = (dice[claim.ours] - rivals[claim.rival]).groupby(level=0).mean()
        gains[claim.rival] = Gain(claim.mean, claim.low, claim.high, int((gap > 0).sum()), len(gap))
    return gains


# The first page


def write_pitch() -> str:
    """Return the three sentences of the first page."""
    runs = survival.read_results(survival.RESULTS).query("part == 'judge'").groupby("contender")
    dead = runs.dead.sum()
    held_out, broken = guarantee.find_broken(pd.read_csv(guarantee.RESULTS, comment="#"))
    table = find_study_gain("one label, a table")
    maps = find_map_gains()
    (against_autogluon,) = [
        claim for claim in field.judge_claims(field.read_parts(field.RESULTS)) if claim.verdict == "shown"
    ]
    field_gain = Gain(*against_autogluon[1:4], against_autogluon.won, against_autogluon.tables)
    untuned = find_study_gain("several labels, at 0.5, nothing tuned")
    tuned = (find_study_gain("one label, a network"), find_claimed_gain())
    # The words of the pitch are true of these results; with others, write other words.
    assert table.low > 0, table
    assert untuned.low > 0, untuned
    assert maps["the better cross-entropy"].low > 0, maps
    assert not any(gain.is_clear for gain in (*tuned, maps[dense_maps.MONAI])), (tuned, maps)
    pitch = PITCH.format(
        runs=runs.size()["hybrid"],
        hybrid_dead=count_in_words(dead["hybrid"]),
        metric_dead=count_in_words(dead["soft set"]),
        guarantees=len(held_out),
        broken=count_in_words(len(broken)),
        tables=table.sets,
        table_gain=table.interval,
        field_tables=field_gain.sets,
        field_gain=field_gain.interval,
        untuned_gain=untuned.interval,
        one_label=tuned[0].interval,
        several_labels=tuned[1].interval,
        map_gain=maps["the better cross-entropy"].interval,
    )
    sentences = [textwrap.fill(" ".join(part.split()), LINE, break_on_hyphens=False) for part in pitch.split("\n\n")]
    return "\n\n".join(sentences) + "\n"


def list_rows() -> pd.DataFrame:
    """Return the five rows of the first page."""
    table = find_study_gain("one label, a table")
    maps = find_map_gains()
    tuned, monai = maps["the better cross-entropy"], maps[dense_maps.MONAI]
    fixed, peer = find_money_gain("0.5"), find_money_gain("empulse")
    fewer, more = find_rate_gain("0.2"), find_rate_gain("5.0")
    promised = find_guarantee_gain()
    rows = {
        "a table, one label": [
            '`mg.MetricEnsembleClassifier("f1")`',
            f"F1 {table}",
            "XGBoost, threshold tuned",
            table.score,
        ],
        "small objects in images, thresholds tuned": [
            '`mg.HybridLoss("f1", metric_weight=1.0, per_object="shared")`',
            f"Dice per image {tuned}<br>{monai}",
            f"the better cross-entropy<br>{dense_maps.MONAI}",
            f"{tuned.score}<br>{monai.score}",
        ],
        "mistakes that cost money, each row its own": [
            '`mg.Cost(fp=5, fn="amount")`',
            f"savings {fixed}<br>{peer}",
            "the same trees at 0.5<br>the best of empulse",
            f"{fixed.score}<br>{peer.score}",
        ],
        "a base rate that fell to a fifth, or rose fivefold; no new labels": [
            "`tuning.at_prevalence(rate)`",
            f"F1 {fewer}<br>F1 {more}",
            "the threshold kept",
            f"{fewer.score}<br>{more.score}",
        ],
        "recall under a precision promised for new rows": [
            '`mg.tune_threshold("recall", …, confidence=0.95)`',
            f"recall {promised}",
            "MAPIE",
            f"{promised.score}, simulated",
        ],
    }
    columns = ["call", "gain (95 % interval)", "against", "sets won"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


# Training with a metric loss

LOSSES = {
    "cross-entropy": "cross-entropy",
    '`MetricLoss("f1")`': "soft set",
    "the same value, with the gradient of a straight line for wrong samples (in the script)": "straight tail",
    '`HybridLoss("f1")`': "hybrid",
}
REMEDIES = {
    "cross-entropy": "cross-entropy",
    "`HybridLoss`": "hybrid",
    "`MetricLoss`": "metric",
    "`MetricLoss`, an eighth of each batch positive": "metric, minimum positives",
    "`HybridLoss`, an eighth positive": "hybrid, minimum positives",
    "cross-entropy, an eighth positive": "cross-entropy, minimum positives",
    "`RunningLoss(MetricLoss)`, 0.9": "running 0.9",
    "`RunningLoss(HybridLoss)`, 0.9": "running hybrid 0.9",
}


def count_dead_runs() -> pd.DataFrame:
    """Return how many runs of each loss died, and their mean F1."""
    judged = survival.read_results(survival.RESULTS).query("part == 'judge'").groupby("contender")
    rows = {}
    for words, loss in LOSSES.items():
        runs = judged.get_group(loss)
        rows[words] = [f"{runs.dead.sum()} of {len(runs)}", f"{runs.tuned.mean():.3f}", f"{runs.fixed.mean():.3f}"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["dead runs", "F1, tuned", "F1 at 0.5"])


def compare_remedies() -> pd.DataFrame:
    """Return what helps against few positives, for each size of batch."""
    few = survival.read_results(survival.RESULTS).query("part == 'few'")
    columns: dict[str, list[str]] = {}
    for batch, rows in few.groupby("batch"):
        cells = []
        for loss in REMEDIES.values():
            level, *gap = survival.find_difference(
                rows, loss, "cross-entropy", ["set", "seed"], survival.SETTING_COLUMNS
            )
            against = "" if loss == "cross-entropy" else ", {:+.3f} ({:+.3f} to {:+.3f})".format(*gap)
            cells.append(with_minus(f"{level:.3f}{against}"))
        columns[f"batch {batch}"] = cells
    by_loss = few.groupby("contender")
    columns["at 0.5, both"] = [f"{by_loss.get_group(loss).fixed.mean():.3f}" for loss in REMEDIES.values()]
    columns["dead runs"] = [
        f"{group.dead.sum()} of {len(group)}" for group in map(by_loss.get_group, REMEDIES.values())
    ]
    return pd.DataFrame(columns, index=list(REMEDIES))


RATES = {
    "SGD, 0.001 and 0.003": ("sgd", 0.001, 0.003),
    "SGD, 0.01 and 0.03": ("sgd", 0.01, 0.03),
    "SGD, 0.1": ("sgd", 0.1, 0.1),
    "Adam, 0.001 and 0.003": ("adam", 0.001, 0.003),
    "Adam, 0.01": ("adam", 0.01, 0.01),
    "Adam, 0.03 and 0.1": ("adam", 0.03, 0.1),
}
"""Optimisers with the lowest and the highest learning rate of a row."""
POSITIVES = {"up to 1": (0, 1), "1 to 4": (1, 4), "4 to 16": (4, 16), "more than 16": (16, 2**20)}
"""Mean numbers of positives in a batch: more than the first, at most the second."""


def compare_rates() -> pd.DataFrame:
    """Return what became of the runs at each learning rate."""
    judged = survival.read_results(survival.RESULTS).query("part == 'judge'")
    parts = {}
    for words, (optimiser, low, high) in RATES.items():
        parts[words] = judged[(judged.optimiser == optimiser) & judged.rate.between(low, high)]
    return describe_parts(parts)


def compare_batches() -> pd.DataFrame:
    """Return what became of the runs with few and with many positives in a batch."""
    judged = survival.read_results(survival.RESULTS).query("part == 'judge'")
    positives = judged.batch * judged.share
    return describe_parts(
        {words: judged[(positives > low) & (positives <= high)] for words, (low, high) in POSITIVES.items()}
    )


def describe_parts(parts: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return dead runs and F1 at 0.5 of each part of the runs."""
    losses = {"cross-entropy": "cross-entropy", "`MetricLoss`": "soft set", "`HybridLoss`": "hybrid"}
    rows = {}
    for words, part in parts.items():
        runs = [part[part.contender == loss] for loss in losses.values()]
        dead = [str(of_loss.dead.sum()) for of_loss in runs[1:]]  # cross-entropy is what the others are compared with
        rows[words] = [str(len(runs[0])), *dead, *(f"{of_loss.fixed.mean():.3f}" for of_loss in runs)]
    names = list(losses)
    heads = ["runs", *(f"dead, {name}" for name in names[1:]), *(f"F1 at 0.5, {name}" for name in names)]
    return pd.DataFrame.from_dict(rows, orient="index", columns=heads)


def compare_epochs() -> pd.DataFrame:
    """Return F1 of rare pixels, the borders of nuclei, after few and after many epochs."""
    columns = {}
    for epochs, file in ((60, two_images.RESULTS), (300, two_images.RESULTS.with_stem("two_images_300_epochs"))):
        results = pd.read_csv(file)
        values = results[results.set == "nuclei borders"].groupby("contender").value.mean()
        for rule in ("0.5", "tuned"):
            columns[f"{epochs} epochs, {rule}"] = [
                f"{values[f'{loss}, {rule}']:.3f}" for loss in ("cross-entropy", "metric", "hybrid")
            ]
    return pd.DataFrame(columns, index=["cross-entropy", "`MetricLoss`", "`HybridLoss`"])


MAP_LOSSES = {
    "cross-entropy": "cross-entropy",
    "cross-entropy, positives × 10": "cross-entropy, positives × 10",
    dense_maps.MONAI: dense_maps.MONAI,
    '`HybridLoss("f1", metric_weight=1.0, per_object="shared")`': "hybrid per object, shared",
}


def read_judged_maps() -> pd.DataFrame:
    """Return the long runs of all targets and seeds that every loss of the claims has."""
    results = pd.read_csv(dense_maps.RESULTS)
    judged = results[results.part == "judge"]
    return dense_maps.find_complete_runs(judged, list(MAP_LOSSES.values()), dense_maps.PATIENT_STEPS)


def compare_map_losses() -> pd.DataFrame:
    """Return what each loss found of small objects, mean over targets and seeds."""
    runs = read_judged_maps()
    rows = {}
    for words, loss in MAP_LOSSES.items():
        measures = runs[runs.loss == loss].groupby("measure")[["at_half", "value"]].mean()
        dice = measures.loc["Dice per image"]
        tuned = [measures.value[name] for name in ("F1 of pixels", "F1 of objects")]
        rows[words] = [f"{value:.3f}" for value in (dice.at_half, dice.value, *tuned)]
    columns = ["Dice per image, 0.5", "tuned", "F1 of pixels, tuned", "F1 of objects, tuned"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def list_map_claims() -> pd.DataFrame:
    """Return both claims about small objects, and what came of them."""
    rows = {}
    for claim in pd.read_csv(dense_maps.CLAIMS).itertuples():
        gain = with_minus(f"{claim.mean:+.3f} ({claim.low:+.3f} to {claim.high:+.3f})")
        verdict = "shown" if claim.p < 0.05 and claim.mean > 0 else "not shown"
        if claim.seeds < dense_maps.SEEDS:
            verdict = "open"
        seeds = f"{claim.seeds} of {dense_maps.SEEDS}"
        rows[f"`HybridLoss` per object − {claim.rival}"] = [gain, f"{claim.p:.3f}", seeds, verdict]
    columns = ["Dice per image, tuned", "p, Holm", "seeds run", "claim"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


# AutoGluon and others


def compare_with_field(part: str) -> pd.DataFrame:
    """Return every contender of a part of the field, and how far ours is ahead of it."""
    lines = field.read_parts(field.RESULTS)[part]
    rows = {}
    for contender in field.CONTENDERS:
        fits = lines[lines.contender == contender]
        if fits["set"].nunique() < 2:
            continue
        gain = "–"
        if contender != field.OURS:
            mean, low, high, _, won, tables = field.compare(lines, contender)
            gain = f"{Gain(mean, low, high, won, tables).interval}, {won} of {tables}"
        cost = fits[["fit_cpu", "predict_cpu", "memory_mb", "model_mb"]].mean()
        milliseconds = f"{1000 * cost.predict_cpu:.0f}"
        failed = f"{fits.failed.sum()} of {len(fits)}"
        name = "`MetricEnsembleClassifier()`" if contender == field.OURS else contender
        rows[name] = [
            gain,
            f"{cost.fit_cpu:.1f}",
            milliseconds,
            f"{cost.memory_mb:.0f}",
            f"{cost.model_mb:.1f}",
            failed,
        ]
    columns = ["ours − it, tables ahead", "fit, CPU s", "predict, CPU ms", "memory, MB", "model, MB", "fits failed"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def list_field_claims() -> pd.DataFrame:
    """Return the claims against AutoGluon, and what came of them."""
    rows = {}
    for claim in field.judge_claims(field.read_parts(field.RESULTS)):
        gain = Gain(claim.mean, claim.low, claim.high, claim.won, claim.tables)
        rows[claim.part] = [gain.interval, f"{claim.p:.3f}", gain.score, claim.verdict]
    columns = [f"ours − {field.BEST}", "p, Holm", "tables ahead", "claim"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


# The base rate that moved

RATE_METHODS = {
    "kept": "kept",
    "true rate known": "known",
    '**estimated, `"em"`**': "em",
    'estimated, `"matching"`': "matching",
    'estimated, `"pacc"`': "pacc",
    "QuaPy's EMQ": "QuaPy EMQ",
    "QuaPy's EMQ with BCTS": "QuaPy EMQ-BCTS",
    "QuaPy's PACC": "QuaPy PACC",
    "QuaPy's HDy": "QuaPy HDy",
    "QuaPy's DMy": "QuaPy DMy",
    "QuaPy's KDEy-ML": "QuaPy KDEyML",
    "best threshold on the new rows": "oracle",
}


def read_judged_rates() -> pd.DataFrame:
    """Return the results on the sets that judge."""
    table = pd.read_csv(prevalence.RESULTS, comment="#", dtype={"factor": str})
    return table[table.set.isin(prevalence.SETS["judge"])]


def compare_rate_methods() -> pd.DataFrame:
    """Return what each way to choose the threshold gives at each base rate, and how far its estimates are off."""
    table = read_judged_rates().query("factor != 'columns'")
    table = table.assign(error=(table.estimate - table.rate).abs())
    means = table.groupby(["method", "factor", "set"])[["f1", "error"]].mean().groupby(["method", "factor"]).mean()
    rows = {}
    for words, method in RATE_METHODS.items():
        error = means.error[method].mean()
        values = [f"{means.f1[method, str(factor)]:.3f}" for factor in prevalence.FACTORS]
        rows[words] = [*values, "" if pd.isna(error) else f"{error:.3f}"]
    columns = [*(f"F1 at × {factor:g}" for factor in prevalence.FACTORS), "mean error of the rate"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def measure_share_won(gain: pd.Series, possible: pd.Series) -> tuple[str, float, float]:
    """Return how much of a possible gain was won: in words, the share, and the low end of its interval over sets."""
    drawn = np.random.default_rng(0).integers(len(gain), size=(10_000, len(gain)))
    shares = gain.to_numpy()[drawn].mean(1) / possible.to_numpy()[drawn].mean(1)
    low, high = np.quantile(shares, (0.025, 0.975))
    share = gain.mean() / possible.mean()
    return with_minus(f"{100 * share:.0f} % ({100 * low:.0f} to {100 * high:.0f})"), share, low


def list_rate_claims() -> pd.DataFrame:
    """Return the claims about base rates, in the order of the protocol, and what came of them.

    They are about means over sets, as the protocol has it: the intervals say how sure these are.
    """
    table = read_judged_rates()
    of_rates = table[table.factor != "columns"]
    f1 = of_rates.pivot_table(index="set", columns=["factor", "method"], values="f1")
    gains = {factor: f1[factor][prevalence.DEFAULT] - f1[factor]["kept"] for factor in map(str, prevalence.FACTORS)}
    won_back = {
        factor: measure_share_won(gains[factor], f1[factor]["known"] - f1[factor]["kept"]) for factor in ("0.2", "5.0")
    }
    at_same_rate = prevalence.bootstrap_mean(gains["1.0"])
    errors = of_rates.assign(error=(of_rates.estimate - of_rates.rate).abs()).pivot_table(
        index="set", columns="method", values="error"
    )
    best_peer = min((name for name in errors if name.startswith("QuaPy")), key=lambda name: errors[name].mean())
    further_off = prevalence.bootstrap_mean(errors[prevalence.DEFAULT] - errors[best_peer])
    own = of_rates[of_rates.method == prevalence.DEFAULT]
    held = ((own.low <= own.rate) & (own.rate <= own.high)).mean()
    refused = (own.p_value < 0.01).mean()
    refused_columns = (table[table.factor == "columns"].p_value < 0.01).mean()

    def in_words(mean: float, low: float, high: float) -> str:
        return with_minus(f"{mean:+.4f} ({low:+.4f} to {high:+.4f})")

    claims: dict[str, tuple[str, bool]] = {
        "× 1: F1 is not below that of the threshold kept": (
            in_words(*at_same_rate),
            bool(at_same_rate[0] > -0.005 and at_same_rate[2] > -0.001),
        ),
        "× 0.2: half of what the known rate wins is won": (won_back["0.2"][0], won_back["0.2"][1] >= 0.5),
        "× 5: nine tenths are": (won_back["5.0"][0], won_back["5.0"][1] >= 0.9),
        f"mean error of the rate − that of {best_peer}, the best of QuaPy, is noise": (
            in_words(*further_off),
            bool(further_off[1] <= 0),
        ),
        "the interval holds the true rate in 85 % of the cases": (f"{100 * held:.1f} %", held >= 0.85),
        "the test refuses at most 5 % where only the rate changed": (f"{100 * refused:.1f} %", refused <= 0.05),
        "it refuses more than half of the rows drawn by their columns": (
            f"{100 * refused_columns:.0f} %",
            refused_columns > 0.5,
        ),
    }
    rows = {words: [found, "holds" if holds else "does not hold"] for words, (found, holds) in claims.items()}
    # By the protocol the mean decides; that its interval reaches below what is claimed must be seen.
    _, share, low = won_back["5.0"]
    if share >= 0.9 > low:
        rows["× 5: nine tenths are"][1] = "holds in the mean, not proven"
    return pd.DataFrame.from_dict(rows, orient="index", columns=["found", "claim"])


# The picture of the study

KINDS = {
    "one label": ("one label",),
    "several labels": ("several labels",),
    "several classes": ("several classes", "ordered classes"),
    "maps of pixels": ("dense maps",),
}
WIDTH, MARGIN, ROW_HEIGHT, TOP = 640, 12, 44, 100
LOWEST, HIGHEST = -0.13, 0.24
TICKS = (-0.1, 0.0, 0.1, 0.2)
STYLE = """
svg { --ink: #24292f; --soft: #57606a; --line: #d0d7de; --card: #ffffff; --gain: #1a7f37; --open: #57606a; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --soft: #9aa4af; --line: #48515c; --card: #14181e; --gain: #56d364; --open: #9aa4af; }
}
text { font: 17px system-ui, sans-serif; fill: var(--ink); }
text { paint-order: stroke; stroke: var(--card); stroke-width: 4px; }
.note { fill: var(--soft); } .bold { font-weight: 700; }
.middle { text-anchor: middle; } .card { fill: var(--card); }
.grid { stroke: var(--line); } .zero { stroke: var(--soft); }
.gain { fill: var(--gain); stroke: var(--gain); stroke-width: 3; }
.open { fill: var(--card); stroke: var(--open); stroke-width: 2; }
"""


def draw_gains() -> str:
    """Return the picture: every gain in the map of the study, by kind of problem."""
    results = quality.read_results(quality.RESULTS)
    parts: list[str] = []
    y = TOP
    for kind, beginnings in KINDS.items():
        parts.append(f'<text class="bold" x="{MARGIN}" y="{y}">{kind}</text>')
        y += 30
        for problem, _, *how in quality.MAP:
            first, _, rest = problem.partition(", ")
            gaps = quality.find_gaps(results, *how)
            if first not in beginnings or gaps is None:
                continue
            words = f"{rest or 'thresholds tuned'} · against {how[-1]}"
            gap = quality.average_splits(gaps)
            parts += draw_row(words, gap, y)
            y += ROW_HEIGHT
        y += 12
    axis = []
    for tick in TICKS:
        kind = "zero" if tick == 0 else "grid"
        axis.append(f'<path class="{kind}" d="M{place(tick)} {TOP - 24}V{y - 24}"/>')
        words = with_minus(f"{tick:+g}") if tick else "0"
        axis.append(f'<text class="note middle" x="{place(tick)}" y="{TOP - 30}">{words}</text>')
    title = "Gain in the metric: mean over sets, 95 % interval"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="card" width="{WIDTH}" height="{y}" rx="8"/>',
            f'<text class="bold" x="{MARGIN}" y="24">{title}</text>',
            f'<text class="note" x="{MARGIN}" y="47">filled: the interval is above 0</text>',
            *axis,
            *parts,
            "</svg>\n",
        ]
    )


def draw_row(words: str, gap: pd.Series, y: int) -> list[str]:
    """Return one gain: its words, its interval as a line, and its mean as a disc."""
    parts = [f'<text x="{MARGIN}" y="{y}">{escape(words)}</text>']
    y += 13
    mean = gap.mean()
    is_clear = False
    if len(gap) > 2:  # two sets have no interval to speak of
        mean, low, high = quality.mean_interval(gap)
        is_clear = low > 0
        parts.append(f'<path class="{"gain" if is_clear else "open"}" d="M{place(low)} {y}H{place(high)}"/>')
    parts.append(f'<circle class="{"gain" if is_clear else "open"}" cx="{place(mean)}" cy="{y}" r="5"/>')
    return parts


def place(value: float) -> float:
    """Return the place of a difference on the axis, in pixels."""
    share = (value - LOWEST) / (HIGHEST - LOWEST)
    return round(MARGIN + (WIDTH - 2 * MARGIN) * share, 1)


# Pages

HEADINGS: dict[str, Callable[[], pd.DataFrame]] = {
    "problem": list_rows,
    "loss": count_dead_runs,
    "optimiser, learning rate": compare_rates,
    "positives in a batch": compare_batches,
    "0.5 % positives": compare_remedies,
    "rare pixels": compare_epochs,
    "small objects": compare_map_losses,
    "small objects, difference": list_map_claims,
    "two classes, F1": partial(compare_with_field, "F1, two classes"),
    "several classes, macro-F1": partial(compare_with_field, "macro-F1, several classes"),
    "several labels, macro-F1": partial(compare_with_field, "macro-F1, several labels"),
    "against AutoGluon": list_field_claims,
    "threshold": compare_rate_methods,
    "claim, written before the run": list_rate_claims,
}


def make_tables() -> dict[str, pd.DataFrame]:
    """Return the tables by their first heading."""
    return {heading: make() for heading, make in HEADINGS.items()}


def write_page(page: Path, tables: dict[str, pd.DataFrame]) -> None:
    """Put the tables, and the pitch between its marks, in place of those in a page."""
    quality.write_tables(tables, page)
    between = re.compile(r"(?<=<!-- pitch -->\n).*?(?=<!-- end of pitch -->)", re.DOTALL)
    page.write_text(between.sub(lambda _: f"\n{write_pitch()}\n", page.read_text()))


def main() -> None:
    """Print the pitch and the tables, or write them where they belong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write README.md, four pages and docs/gains.svg")
    options = parser.parse_args()
    tables = make_tables()
    print(write_pitch())
    print("\n".join(quality.as_markdown(heading, table) for heading, table in tables.items()))
    if options.write:
        for page in (README, TRAINING, IMAGES, DECISIONS, FIELD):
            write_page(page, tables)
        PICTURE.write_text(draw_gains())


if __name__ == "__main__":
    main()
