"""What became of the claims of the binary soft-set paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from binary_soft_sets import COMPARABLE, FROG, SETS, TABLES, TRAINED, TRANSPORTATION
from binary_steps import AP_PERF
from data import CREDITCARD
from verdicts import (
    NOT_RUN,
    Difference,
    Differences,
    Results,
    Verdict,
    cannot_be_tested,
    judge,
    minus,
    paired,
    state_of,
)

IMAGES = (TRANSPORTATION, FROG)
ELSEWHERE = "the same on all rows of creditcard: only a subset, with 3.66 % positives, is at hand"


@dataclass(frozen=True)
class Pair:
    """Two rows that a claim compares, each with its table."""

    row: str
    other: str
    metric: str
    table: str = "btg-1"
    other_table: str = ""
    sets: Sequence[str] = SETS

    @property
    def tables(self) -> tuple[str, str]:
        """The tables of both rows."""
        return self.table, self.other_table or self.table


PAIRS = {
    "btg-f1-bce": Pair("F1", "BCE", "f1"),
    "btg-f1-apperf": Pair("F1", "AP-Perf", "f1"),
    "btg-f1-accuracy": Pair("F1", "BCE", "accuracy"),
    "btg-f1-auroc": Pair("F1", "BCE", "auroc"),
    "btg-accuracy-bce": Pair("Accuracy", "BCE", "accuracy"),
    **{
        f"btg-{row.lower()}-lower-{metric}": Pair("BCE", row, metric)
        for row in ("AUROC", "WMW")
        for metric in ("f1", "accuracy", "auroc")
    },
    "btg-steps-imbalanced": Pair("F1, B = 1024", "F1 sigmoid, B = 1024", "f1", "btg-5", sets=("synthetic 5%",)),
    "btg-steps-balanced": Pair("F1, B = 1024", "F1 sigmoid, B = 1024", "f1", "btg-5", sets=("synthetic 33%",)),
    "btg-steps-tables": Pair("F1", "F1 sigmoid", "f1", other_table="btg-4"),
    "btg-q-steps": Pair("F1", "F1 sigmoid", "f1", other_table="btg-4", sets=SETS[2:]),
    **{f"btg-dice-{metric}": Pair("F1", "Dice", metric, other_table="btg-7") for metric in ("f1", "accuracy", "auroc")},
    "btg-svm-f1": Pair("F1", "SVMperf F1", "f1", other_table="btg-7"),
    "btg-svm-error": Pair("F1", "SVMperf error", "f1", other_table="btg-7"),
    "btg-svm-roc": Pair("F1", "SVMperf ROC", "f1", other_table="btg-7"),
    "btg-weighted-f1": Pair("F1", "F1", "f1", other_table="btg-9"),
    "btg-weighted-accuracy": Pair("Accuracy", "Accuracy", "f1", "btg-9", "btg-1"),
    "btg-weighted-bce": Pair("F1", "BCE", "f1", other_table="btg-9"),
    "btg-oversampled-f1": Pair("F1", "F1", "f1", other_table="btg-11"),
    "btg-oversampled-bce": Pair("F1", "BCE", "f1", other_table="btg-11"),
    "btg-images-f1": Pair("F1", "BCE", "f1", "btg-2", sets=IMAGES),
    "btg-images-f1-accuracy": Pair("F1", "BCE", "accuracy", "btg-2", sets=IMAGES),
    "btg-images-accuracy-f1": Pair("Accuracy", "BCE", "f1", "btg-2", sets=IMAGES),
    "btg-images-accuracy": Pair("Accuracy", "BCE", "accuracy", "btg-2", sets=IMAGES),
    "btg-images-dice": Pair("F1", "Dice", "f1", "btg-2", "btg-12", IMAGES),
}
"""The claims that compare two rows of the tables."""


def verdicts(results: Results) -> list[Verdict]:
    """Return what became of the paper's claims and of our questions, in the order of ``claims.csv``."""
    found = [judge_pair(key, pair, results) for key, pair in PAIRS.items()]
    found += [judge_time(results), judge_k(results), judge_delta(results), judge_three_points(results)]
    found += [*judge_batch_sizes(results), *judge_f_beta(results)]
    if CREDITCARD != "creditcard":
        found.append(cannot_be_tested("btg-creditcard", ELSEWHERE))
    return found


def judge_pair(key: str, pair: Pair, results: Results) -> Verdict:
    """Judge a claim about two rows; say which were cut off, and which single quirk makes the difference."""

    def differences(protocol: str) -> Differences:
        first, second = pair.tables
        return {
            name: results.difference(first, protocol, pair.row, pair.other, name, pair.metric, other_table=second)
            for name in pair.sets
        }

    published, corrected = differences("published"), differences("corrected")
    verdict = judge(key, corrected, published, printed_of(pair))
    notes = [cut_off(pair, results), blame(verdict, pair, results), longer_ap_perf(pair, results)]
    if key.startswith("btg-images"):
        notes.append("one trial: nothing can be shown")
    return judge(key, corrected, published, printed_of(pair), notes=notes)


def printed_of(pair: Pair) -> dict[str, float]:
    """Return the differences of the paper's own figures."""
    first, second = (TABLES[table].printed for table in pair.tables)
    # Table 4 repeats rows of Table 1, and the paper's Table 5 is of synthetic data.
    keys = {name: ((pair.row, name, pair.metric), (pair.other, name, pair.metric)) for name in pair.sets}
    return {name: first[a][0] - second[b][0] for name, (a, b) in keys.items() if a in first and b in second}


def cut_off(pair: Pair, results: Results) -> str:
    """Return which rows the cap of epochs ended in most of their runs, under the corrected protocol."""
    parts = []
    for row, table in dict.fromkeys(zip((pair.row, pair.other), pair.tables, strict=True)):
        values = [v for name in pair.sets for v in results.trials(table, "corrected", row, name, "met the cap")]
        if values and sum(values) > len(values) / 2:
            parts.append(f"{row} was cut off by the cap of epochs in {sum(values):.0f} of {len(values)} runs")
    return "; ".join(parts)


def longer_ap_perf(pair: Pair, results: Results) -> str:
    """Return soft F1 minus AP-Perf with a longer budget, where it was run."""
    if pair.other != "AP-Perf":
        return ""
    parts = []
    for name in pair.sets:
        d = results.difference("btg-1", "corrected", pair.row, AP_PERF, name, pair.metric, other_table="btg-apperf")
        met = results.trials("btg-apperf", "corrected", AP_PERF, name, "met the cap")
        if d is not None:
            parts.append(f"{name} {d}" + (", cut off again" if any(met) else ""))
    return f"minus AP-Perf stopped by itself: {'; '.join(parts) or NOT_RUN}"


def blame(verdict: Verdict, pair: Pair, results: Results) -> str:
    """Return the single quirks that alone turn what is shown under `published` into something that is not."""
    claim = verdict.claim
    if verdict.published is None or len(set(pair.tables)) > 1:
        return ""
    lost = [
        name
        for name, state in verdict.corrected.states.items()
        if state != "shown" and verdict.published.states.get(name) == "shown"
    ]
    blamed = []
    for variant, switched in variants_of(pair, results).items():
        flips = [
            name
            for name in lost
            if name in switched and state_of(switched[name], claim.relation, claim.margin) != "shown"
        ]
        if flips:
            blamed.append(f"{variant} ({', '.join(flips)})")
    if not lost:
        return ""
    return "one change undoes `published`: " + "; ".join(blamed) if blamed else "no quirk alone undoes `published`"


def variants_of(pair: Pair, results: Results) -> dict[str, dict[str, Difference]]:
    """Return the difference of two rows of Table 1 with one quirk switched off, by quirk and data set."""
    found: dict[str, dict[str, Difference]] = {}
    names = {
        "probabilities": "decided on probabilities",
        "at 0.5": "decided at 0.5",
        "AUROC of scores": "AUROC of scores",
    }
    for variant, words in names.items():
        metric = f"{pair.metric} ({variant})"
        by_set = {
            name: results.difference(pair.table, "published", pair.row, pair.other, name, metric) for name in pair.sets
        }
        found[words] = {name: d for name, d in by_set.items() if d is not None}
    for variant, (_, touched) in TRAINED.items():
        # A row that the quirk does not touch is that of "published".
        protocols = [f"published, {variant}" if row in touched else "published" for row in (pair.row, pair.other)]
        if set(protocols) == {"published"}:
            continue
        found[variant] = {}
        for name in COMPARABLE:
            first, second = (
                results.values.get((pair.table, protocol, row, name, pair.metric), {})
                for protocol, row in zip(protocols, (pair.row, pair.other), strict=True)
            )
            if d := minus(first, second):
                found[variant][name] = d
    return {variant: by_set for variant, by_set in found.items() if by_set}


def judge_time(results: Results) -> Verdict:
    """Judge the claim about training time, by the logarithm of CPU seconds an epoch."""
    found: dict[str, Difference | None] = {}
    ratios = []
    for name in SETS:
        seconds = [
            results.trials("btg-time", "published", row, name, "seconds an epoch") for row in ("ap-perf package", "F1")
        ]
        pairs = list(zip(*seconds, strict=False))
        found[name] = paired([math.log10(a / b) for a, b in pairs])
        if pairs:
            ratios.append(f"{name} {sum(seconds[0]) / sum(seconds[1]):,.0f} ×")
    figures = f"an epoch takes {', '.join(ratios) or NOT_RUN} as long; printed: 70 minutes against 2.3 a run"
    return judge("btg-time", found, figures=figures)


def step_values(row: str, name: str, results: Results) -> Mapping[int, float]:
    """Return F1 by trial of soft F1 with a step: k = 10 and δ = 0.1 are rows of other tables."""
    table, row = {"k = 10": ("btg-4", "F1 sigmoid"), "δ = 0.1": ("btg-1", "F1")}.get(row, ("btg-steps", row))
    return results.values.get((table, "corrected", row, name, "f1"), {})


def best_of(rows: Sequence[str], name: str, results: Results) -> Mapping[int, float]:
    """Return the values of the row with the highest mean over the trials of btg-steps; none if a row is missing."""
    values = [step_values(row, name, results) for row in rows]
    # Rows of other tables have more trials: all are compared over the trials that they share.
    trials = set.intersection(*(set(found) for found in values))
    if not trials:
        return {}
    best = max(values, key=lambda found: sum(found[trial] for trial in trials))
    return {trial: best[trial] for trial in sorted(trials)}


def judge_k(results: Results) -> Verdict:
    """Judge k = 10 against the best other k."""
    others = ("k = 1", "k = 20", "k = 50")
    found = {name: minus(step_values("k = 10", name, results), best_of(others, name, results)) for name in SETS}
    return judge("btg-k", found)


def judge_delta(results: Results) -> Verdict:
    """Judge the better of δ = 0.1 and 0.2 against the best other δ."""
    inside, outside = ("δ = 0.1", "δ = 0.2"), ("δ = 0", "δ = 0.3", "δ = 0.4")
    found = {name: minus(best_of(inside, name, results), best_of(outside, name, results)) for name in SETS}
    return judge("btg-delta", found)


def judge_three_points(results: Results) -> Verdict:
    """Judge five points against three."""
    rows = ("five points, τ = 0.1", "three points, τ = 0.1")
    return judge(
        "btg-three-points", {name: results.difference("btg-steps", "corrected", *rows, name, "f1") for name in SETS}
    )


def judge_batch_sizes(results: Results) -> list[Verdict]:
    """Judge the claim that the batch size hardly matters: the largest against the smallest."""

    def differences(protocol: str, rows: Sequence[str]) -> Differences:
        return {
            f"{row} on {name}": results.difference("btg-5", protocol, f"{row}, B = 4096", f"{row}, B = 128", name, "f1")
            for name in ("synthetic 5%", "synthetic 33%")
            for row in rows
        }

    def printed(rows: Sequence[str]) -> dict[str, float]:
        figures = TABLES["btg-5"].printed
        return {
            f"{row} on {name}": figures[f"{row}, B = 4096", name, "f1"][0] - figures[f"{row}, B = 128", name, "f1"][0]
            for name in ("synthetic 5%", "synthetic 33%")
            for row in rows
        }

    claims = {"btg-batch": ("F1", "F1 sigmoid"), "btg-q-batch": ("BCE",)}
    return [
        judge(key, differences("corrected", rows), differences("published", rows), printed(rows))
        for key, rows in claims.items()
    ]


def judge_f_beta(results: Results) -> list[Verdict]:
    """Judge the claims that F-beta losses move precision and recall as β says, and that this costs little F1."""
    tables = {name: "btg-3" if name == "mammography" else "btg-6" for name in SETS}
    claims = {
        "btg-beta-recall": ("F3", "F1", "recall"),
        "btg-beta-precision": ("F1", "F3", "precision"),
        "btg-beta-cost": ("F3", "F1", "f1"),
    }
    found = []
    for key, (row, other, metric) in claims.items():
        corrected, published = (
            {name: results.difference(table, protocol, row, other, name, metric) for name, table in tables.items()}
            for protocol in ("corrected", "published")
        )
        printed = {
            name: TABLES[table].printed[row, name, metric][0] - TABLES[table].printed[other, name, metric][0]
            for name, table in tables.items()
        }
        found.append(judge(key, corrected, published, printed))
    return found
