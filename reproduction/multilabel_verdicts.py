"""What became of the claims of the sigmoidF1 paper."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import torch

import metricgrad as mg
from metricgrad.surrogates import LogitSigmoid
from multilabel import AVERAGES, DATA, TEXT, UNAVAILABLE
from multilabel_decisions import PICK_ALL, ROWS
from sigmoid_f1 import (
    LONGER,
    LONGER_DATA,
    LOSSES,
    SHIFTS,
    SLOPES,
    SMOOTHED,
    SMOOTHED_DATA,
    TABLES,
    THEIR_AVERAGES,
    VARIANTS,
    differs,
)
from verdicts import (
    NOT_RUN,
    Difference,
    Differences,
    Results,
    Verdict,
    cannot_be_tested,
    judge,
    judge_exactly,
    listed,
    minus,
    paired,
)

SMALL = [row for row in LOSSES if row != "ASL"]
"""The losses of Table 7."""
PUBLISHED_AS = {"published": "0.05", "corrected": "tuned"}
"""The decisions of each protocol: the paper's fixed threshold, and thresholds tuned per label."""
EVERYTHING = 0.999
"""The share of positive decisions from which a row is said to predict every label."""
HOW = "published at 0.05, corrected with thresholds tuned per label"


def verdicts(results: Results) -> list[Verdict]:
    """Return what became of the paper's claims and of our questions."""
    return [
        *(judge_best(results, average) for average in AVERAGES),
        judge_asl(results, "sigmoidf1-asl-map", "mAP"),
        judge_asl(results, "sigmoidf1-asl-precision", "precision"),
        judge_top_two(results),
        *judge_small_sets(results),
        judge_unbounded(results),
        *judge_averaging(results),
        *judge_compute(results),
        judge_formulated(),
        judge_smoothed_losses(results),
        judge_shift(results),
        *judge_decisions(results),
        judge_learned(results),
        judge_every_label(),
        cannot_be_tested("sigmoidf1-unavailable", "; ".join(f"{name}: {why}" for name, why in UNAVAILABLE.items())),
    ]


# --- Differences -----------------------------------------------------------------------------------------------------


def best_other(
    results: Results, table: str, protocol: str, row: str, rows: Iterable[str], data: str, metric: str
) -> str | None:
    """Return the other row with the highest mean, None if there is none."""
    means = {other: results.mean(table, protocol, other, data, metric) for other in rows if other != row}
    there = {other: mean for other, mean in means.items() if mean is not None}
    return max(there, key=lambda name: there[name]) if there else None


def against_best(
    results: Results, table: str, protocol: str, row: str, rows: Iterable[str], data: str, metric: str
) -> Difference | None:
    """Return the difference to the other row with the highest mean."""
    other = best_other(results, table, protocol, row, rows, data, metric)
    return None if other is None else results.difference(table, protocol, row, other, data, metric)


def find_hidden(results: Results, table: str, row: str, rows: Iterable[str], sets: Sequence[str]) -> list[str]:
    """Return the sets on which both the row and its best rival predict every label under `published`."""
    hidden = []
    for data in sets:
        rival = best_other(results, table, "published", row, rows, data, "weighted f1 @0.05")
        shares = [
            results.mean(table, "published", name, data, "predicted @0.05") for name in (row, rival) if name is not None
        ]
        if shares and all(share is not None and share >= EVERYTHING for share in shares):
            hidden.append(data)
    return hidden


def printed_against_best(row: str, rows: Iterable[str], metric: str) -> dict[str, float]:
    """Return the row minus the best other one in the paper's Table 3, by its own data sets."""
    printed = TABLES["sigmoidf1-3"].printed
    found = {}
    for data in UNAVAILABLE:
        rule = "@0.5" if data in ("MS-COCO", "Pascal-VOC") else "@0.05"
        values = {name: printed[name, data, f"{metric} {rule}"][0] for name in rows}
        found[data] = values[row] - max(value for name, value in values.items() if name != row)
    return found


def over_losses(results: Results, table: str, protocol: str, data: str, metric: str, other: str) -> Difference | None:
    """Return the difference of two metrics of the same models, as the mean over the losses in each trial."""
    by_trial: dict[int, list[float]] = {}
    rows = ROWS if table == "sigmoidf1-decisions" else LOSSES
    for row in rows:
        first = results.values.get((table, protocol, row, data, metric), {})
        second = results.values.get((table, protocol, row, data, other), {})
        for trial in first.keys() & second.keys():
            by_trial.setdefault(trial, []).append(first[trial] - second[trial])
    # A trial counts once all losses of it are there.
    trials = [trial for trial in sorted(by_trial) if len(by_trial[trial]) == len(rows)]
    return paired([fmean(by_trial[trial]) for trial in trials], trials)


# --- Tables 3 and 7 --------------------------------------------------------------------------------------------------


def judge_best(results: Results, average: str) -> Verdict:
    """Judge sigmoidF1 against the best of the paper's other losses."""
    sides: dict[str, Differences] = {
        protocol: {
            data: against_best(results, "sigmoidf1-3", protocol, "sigmoidF1", LOSSES, data, f"{average} f1 @{rule}")
            for data in DATA
        }
        for protocol, rule in PUBLISHED_AS.items()
    }
    return judge(
        f"sigmoidf1-best-{average}",
        sides["corrected"],
        sides["published"],
        printed_against_best("sigmoidF1", LOSSES, f"{average} f1"),
        notes=[HOW, with_their_steps(results, f"{average} f1 @0.05"), first_switch(results, average)],
        hidden=find_hidden(results, "sigmoidf1-3", "sigmoidF1", LOSSES, DATA),
    )


def with_their_steps(results: Results, metric: str) -> str:
    """Return sigmoidF1 minus the best other loss under `published` with as many steps as the paper's."""
    found = {
        data: against_best(results, "sigmoidf1-3", f"published, {LONGER}", "sigmoidF1", LOSSES, data, metric)
        for data in LONGER_DATA
    }
    there = {data: d for data, d in found.items() if d is not None}
    return f"published with the paper's 10,400 steps: {listed(there) or NOT_RUN}"


def first_switch(results: Results, average: str) -> str:
    """Return what each switch alone makes of sigmoidF1 − BCE on cancerHallmarks."""
    found = {}
    for protocol, rule in (
        ("published", "0.05"),
        ("published", "tuned"),
        *((f"published, {name}", "0.05") for name in VARIANTS),
        ("corrected", "0.05"),
        ("corrected", "tuned"),
    ):
        # A loss that a switch does not change has its figures under the plain protocol.
        metric = f"{average} f1 @{rule}"
        other = protocol if differs(protocol, "BCE") else "published"
        first = results.trials("sigmoidf1-7", protocol, "sigmoidF1", TEXT[0], metric)
        second = results.trials("sigmoidf1-7", other, "BCE", TEXT[0], metric)
        if first and second:
            found[f"{protocol} @{rule}"] = fmean(first) - fmean(second)
    if not found:
        return ""
    return f"sigmoidF1 − BCE on {TEXT[0]}: " + ", ".join(f"{name} {value:+.3f}" for name, value in found.items())


def judge_asl(results: Results, key: str, metric: str) -> Verdict:
    """Judge ASL against the best other loss in mAP or precision."""
    names = {"published": f"{metric} @0.05", "corrected": metric if metric == "mAP" else f"{metric} @tuned"}
    sides: dict[str, Differences] = {
        protocol: {d: against_best(results, "sigmoidf1-3", protocol, "ASL", LOSSES, d, name) for d in DATA}
        for protocol, name in names.items()
    }
    highest = sum(d is not None and d.mean > 0 for d in sides["corrected"].values())
    return judge(
        key,
        sides["corrected"],
        sides["published"],
        printed_against_best("ASL", LOSSES, metric),
        figures=f"ASL has the highest mean on {highest} of {len(DATA)} sets",
        notes=["corrected from scores" if metric == "mAP" else HOW],
        hidden=find_hidden(results, "sigmoidf1-3", "ASL", LOSSES, DATA),
    )


def judge_top_two(results: Results) -> Verdict:
    """Judge whether sigmoidF1 and BCE are the two best losses: the lower of both against the best of the others."""

    def lead(protocol: str, data: str, average: str, rule: str) -> Difference | None:
        values = {
            row: results.values.get(("sigmoidf1-3", protocol, row, data, f"{average} f1 @{rule}"), {}) for row in LOSSES
        }
        means = {row: fmean(found.values()) for row, found in values.items() if found}
        if len(means) < len(LOSSES):
            return None
        lower = min(("sigmoidF1", "BCE"), key=lambda row: means[row])
        rival = max((row for row in means if row not in ("sigmoidF1", "BCE")), key=lambda row: means[row])
        return minus(values[lower], values[rival])

    sides: dict[str, Differences] = {
        protocol: {f"{data}, {a}": lead(protocol, data, a, rule) for data, a in itertools.product(DATA, AVERAGES)}
        for protocol, rule in PUBLISHED_AS.items()
    }
    printed = {}
    for data, average in itertools.product(UNAVAILABLE, THEIR_AVERAGES):
        rule = "@0.5" if data in ("MS-COCO", "Pascal-VOC") else "@0.05"
        values = {row: TABLES["sigmoidf1-3"].printed[row, data, f"{average} f1 {rule}"][0] for row in LOSSES}
        others = [value for row, value in values.items() if row not in ("sigmoidF1", "BCE")]
        printed[f"{data}, {average}"] = min(values["sigmoidF1"], values["BCE"]) - max(others)
    hidden = [
        f"{data}, {average}"
        for data, average in itertools.product(DATA, AVERAGES)
        if all(data in find_hidden(results, "sigmoidf1-3", row, LOSSES, [data]) for row in ("sigmoidF1", "BCE"))
    ]
    return judge("sigmoidf1-top-two", sides["corrected"], sides["published"], printed, notes=[HOW], hidden=hidden)


def judge_small_sets(results: Results) -> list[Verdict]:
    """Judge the claims on the two small sets of texts, Table 7, whose averages have everyone's names."""
    printed = TABLES["sigmoidf1-7"].printed

    def theirs(row: str, others: Sequence[str], average: str) -> dict[str, float]:
        metric = f"{average} f1 @0.05"
        return {d: printed[row, d, metric][0] - max(printed[o, d, metric][0] for o in others) for d in TEXT}

    def sides(row: str, others: Sequence[str], average: str) -> tuple[Differences, Differences]:
        corrected, published = (
            {d: against_best(results, "sigmoidf1-7", protocol, row, others, d, f"{average} f1 @{rule}") for d in TEXT}
            for protocol, rule in (("corrected", "tuned"), ("published", "0.05"))
        )
        return corrected, published

    rivals = [row for row in SMALL if row != "sigmoidF1"]
    return [
        *(
            judge(
                f"sigmoidf1-small-{average}",
                *sides("sigmoidF1", rivals, average),
                theirs("sigmoidF1", rivals, average),
                notes=[HOW],
            )
            for average in ("weighted", "micro")
        ),
        judge(
            "sigmoidf1-small-unbounded",
            *sides("unboundedF1", ["sigmoidF1"], "macro"),
            theirs("unboundedF1", ["sigmoidF1"], "macro"),
            notes=[HOW],
        ),
        judge(
            "sigmoidf1-entropy",
            *sides("sigmoidF1", ["BCE"], "weighted"),
            theirs("sigmoidF1", ["BCE"], "weighted"),
            notes=[HOW, first_switch(results, "weighted")],
        ),
    ]


def judge_unbounded(results: Results) -> Verdict:
    """Judge unboundedF1 against the best loss that is no F1 loss."""
    rivals = ("BCE", "focal", "ASL")
    corrected, published = (
        {
            d: against_best(results, "sigmoidf1-3", protocol, "unboundedF1", rivals, d, f"weighted f1 @{rule}")
            for d in DATA
        }
        for protocol, rule in (("corrected", "tuned"), ("published", "0.05"))
    )
    printed = printed_against_best("unboundedF1", (*rivals, "unboundedF1"), "weighted f1")
    hidden = find_hidden(results, "sigmoidf1-3", "unboundedF1", rivals, DATA)
    return judge("sigmoidf1-unbounded", corrected, published, printed, notes=[HOW], hidden=hidden)


def judge_averaging(results: Results) -> list[Verdict]:
    """Judge threshold averaging against 0.05 and against exact thresholds, and ASL with it."""

    def differences(protocol: str, metric: str, other: str) -> Differences:
        return {d: over_losses(results, "sigmoidf1-3", protocol, d, metric, other) for d in DATA}

    fixed, averaged, tuned = (f"weighted f1 @{rule}" for rule in ("0.05", "averaged", "tuned"))
    table_3, table_4 = TABLES["sigmoidf1-3"].printed, TABLES["sigmoidf1-4"].printed
    printed = {
        f"arXiv2020, {row}": table_3[row, "arXiv2020", fixed][0] - table_4[row, "arXiv2020", averaged][0]
        for row in LOSSES
    }
    asl, asl_published = (
        {d: against_best(results, "sigmoidf1-4", protocol, "ASL", LOSSES, d, averaged) for d in TEXT}
        for protocol in ("corrected", "published")
    )
    others = max(table_4[row, "arXiv2020", averaged][0] for row in LOSSES if row != "ASL")
    theirs = {"arXiv2020": table_4["ASL", "arXiv2020", averaged][0] - others}
    return [
        judge(
            "sigmoidf1-averaging",
            differences("corrected", fixed, averaged),
            differences("published", fixed, averaged),
            printed,
        ),
        judge("sigmoidf1-averaging-asl", asl, asl_published, theirs),
        judge(
            "sigmoidf1-q-exact",
            differences("corrected", tuned, averaged),
            differences("published", tuned, averaged),
        ),
    ]


# --- Everything else -------------------------------------------------------------------------------------------------


def judge_compute(results: Results) -> list[Verdict]:
    """Judge the time of a step with the encoder, as the paper measures it, and of an epoch of the head alone."""
    data = "batch 256, 128 tokens"
    with_encoder = results.trials("sigmoidf1-encoder", "corrected", "sigmoidF1", data, "step with the encoder")
    head = {
        d: paired([1 - ratio for ratio in results.trials("sigmoidf1-6", "corrected", "sigmoidF1", d, "epoch")])
        for d in DATA
    }
    printed = {d: 1 - TABLES["sigmoidf1-6"].printed["sigmoidF1", d, "epoch"][0] for d in UNAVAILABLE}
    share = paired([100 * (ratio - 1) for ratio in with_encoder])
    figures = f"{share.mean:+.4f} % of a step" if share is not None else ""
    return [
        judge(
            "sigmoidf1-compute", {data: paired([1 - ratio for ratio in with_encoder])}, printed=printed, figures=figures
        ),
        judge("sigmoidf1-q-compute", head),
    ]


def judge_formulated() -> Verdict:
    """Judge whether each of the six smooth metrics reaches the hard one as the slope grows, and has a gradient."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(500, 4, dtype=torch.float64, generator=generator)
    y = (torch.rand(500, 4, generator=generator) < 0.3).double()
    hard = mg.evaluate(logits.sigmoid(), y, list(SMOOTHED), task="multilabel")
    holds, gaps = {}, []
    for name in SMOOTHED:
        inputs = logits.clone().requires_grad_()
        mg.MetricLoss(name, task="multilabel", surrogate=LogitSigmoid(1.0, 0.0))(inputs, y).backward()
        assert inputs.grad is not None
        steep = mg.MetricLoss(name, task="multilabel", surrogate=LogitSigmoid(1e6, 0.0))
        gap = abs(1 - float(steep(logits, y)) - float(hard[name]))
        holds[name] = gap < 1e-3 and bool(inputs.grad.isfinite().all()) and bool(inputs.grad.any())
        gaps.append(gap)
    figures = f"largest distance to the hard metric with a slope of 10⁶: {max(gaps):.0e}; all have a gradient"
    return judge_exactly("sigmoidf1-formulated", holds, figures)


def judge_smoothed_losses(results: Results) -> Verdict:
    """Judge each of the six smoothed losses against BCE in its own metric, the mean over data sets in each trial."""
    found: dict[str, Difference | None] = {}
    for metric in SMOOTHED:
        by_trial: dict[int, list[float]] = {}
        for data in SMOOTHED_DATA:
            own = results.values.get(("sigmoidf1-5", "corrected", metric, data, metric), {})
            bce = results.values.get(("sigmoidf1-5", "corrected", "BCE", data, metric), {})
            for trial in own.keys() & bce.keys():
                by_trial.setdefault(trial, []).append(own[trial] - bce[trial])
        found[metric] = paired([fmean(by_trial[trial]) for trial in sorted(by_trial)])
    return judge("sigmoidf1-q-trained", found)


def judge_shift(results: Results) -> Verdict:
    """Judge, with an interval, whether the best η of Figure 3 is positive; the best point is that of the means."""
    sides: dict[str, Differences] = {}
    places = []
    for protocol in ("corrected", "published"):
        values: dict[tuple[float, float], Mapping[int, float]] = {}
        for beta, eta in itertools.product(SLOPES, SHIFTS):
            key = ("sigmoidf1-fig3", protocol, f"β={beta:g}, η={eta:g}", TEXT[0], "weighted f1 @0.5")
            if found := results.values.get(key):
                values[beta, eta] = found
        means = {point: fmean(found.values()) for point, found in values.items()}
        above = max((p for p in means if p[1] > 0), key=lambda p: means[p], default=None)
        below = max((p for p in means if p[1] <= 0), key=lambda p: means[p], default=None)
        if above is None or below is None:
            sides[protocol] = {TEXT[0]: None}
            continue
        sides[protocol] = {TEXT[0]: minus(values[above], values[below])}
        beta, eta = max(means, key=lambda p: means[p])
        places.append(f"{protocol}: best at β = {beta:g}, η = {eta:g}")
    return judge(
        "sigmoidf1-eta",
        sides["corrected"],
        sides["published"],
        figures="; ".join(places),
        notes=["the best of 64 points is chosen by the same trials that compare it"],
    )


def judge_decisions(results: Results) -> list[Verdict]:
    """Judge label counts, pick-all-labels and the questions of §7."""
    table = "sigmoidf1-decisions"

    def values(row: str, data: str, metric: str) -> Mapping[int, float]:
        return results.values.get((table, "corrected", row, data, metric), {})

    def fewest_errors(metric: str) -> Differences:
        """Return the error of the best other loss of the paper, minus that of sigmoidF1."""
        found: dict[str, Difference | None] = {}
        for data in DATA:
            means = {row: results.mean(table, "corrected", row, data, metric) for row in LOSSES if row != "sigmoidF1"}
            known = {row: mean for row, mean in means.items() if mean is not None}
            rival = min(known, key=lambda row: known[row], default=None)
            found[data] = (
                None if rival is None else minus(values(rival, data, metric), values("sigmoidF1", data, metric))
            )
        return found

    def rules(metric: str, other: str) -> Differences:
        return {data: over_losses(results, table, "corrected", data, metric, other) for data in DATA}

    def rows(row: str, metric: str, other: str, other_metric: str) -> Differences:
        return {data: minus(values(row, data, metric), values(other, data, other_metric)) for data in DATA}

    expected, own = "row f1 @expected-F", "weighted f1 @per label, held-out"
    return [
        judge("sigmoidf1-counts", fewest_errors("labels a row @0.5")),
        judge("sigmoidf1-q-counts-tuned", fewest_errors("labels a row @per label, held-out")),
        judge("sigmoidf1-q-pal", rows("BCE", own, PICK_ALL, own)),
        judge("sigmoidf1-q-holdout", rules(own, "weighted f1 @per label, training")),
        judge("sigmoidf1-q-per-label", rules("macro f1 @per label, held-out", "macro f1 @global, held-out")),
        judge("sigmoidf1-q-expected", rows("BCE", expected, "BCE", "row f1 @global, held-out")),
        judge("sigmoidf1-q-expected-loss", rows("BCE", expected, "sigmoidF1", expected)),
    ]


def judge_learned(results: Results) -> Verdict:
    """Judge the paper's future work: β and η learned per label, against their choice from the grid."""
    rows, metric = ("sigmoidF1, learned", "sigmoidF1"), "weighted f1 @tuned"
    found = {d: results.difference("sigmoidf1-3", "corrected", *rows, d, metric) for d in DATA}
    return judge("sigmoidf1-q-learned", found)


def judge_every_label() -> Verdict:
    """Judge printed figures: who predicts every label has recall 1 and precision P, so a pooled F1 of 2P / (1 + P)."""
    figures, holds = [], {}
    printed = TABLES["sigmoidf1-3"].printed
    for data in ("arXiv2020", "moviePosters"):
        p = printed["sigmoidF1", data, "precision @0.05"][0]
        pooled = printed["sigmoidF1", data, "micro f1 @0.05"][0]
        everything = 2 * p / (1 + p)
        holds[data] = not math.isclose(everything, pooled, abs_tol=1e-4)
        figures.append(f"{data}: precision {p:.4f}, so 2P / (1 + P) = {everything:.4f}; printed {pooled:.4f}")
    return judge_exactly("sigmoidf1-q-all", holds, "; ".join(figures), ["macroF1 as in the paper's equation 9"])
