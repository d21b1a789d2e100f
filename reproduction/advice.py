"""What to use on this evidence: the contenders for each kind of problem, compared with tuned cross-entropy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import binary_soft_sets as binary
import multiclass_f_beta as fbeta
import multilabel
from page_tables import markdown, shown
from training import DEFAULT
from verdicts import Results

ADVICE = """Means over trials on test rows under `corrected`, and their mean over the sets; "tuned" rules come from
validation rows. "Clearly" better or worse than tuned cross-entropy: the whole 95 % interval of the paired difference
is on one side of 0. Our estimators average five models, each trained without a fifth of the training and validation
rows: five times the training of the other rows, which are one network (of several labels the best of six).
"""


@dataclass(frozen=True)
class Question:
    """What to use for a kind of problem: its contenders, each a row and a metric of a table; the second is the peer."""

    title: str
    table: str
    sets: Sequence[str]
    contenders: dict[str, tuple[str, str]]


QUESTIONS = (
    Question(
        "One label: F1",
        "btg-1",
        binary.SETS,
        {
            "cross-entropy at 0.5": ("BCE", "f1"),
            "cross-entropy, tuned": ("BCE", "f1 tuned"),
            "soft F1 at 0.5": ("F1", "f1"),
            "soft F1, tuned": ("F1", "f1 tuned"),
            "MetricClassifier()": (DEFAULT, "f1 tuned"),
            "MetricBoostingClassifier()": ("MetricBoostingClassifier", "f1 tuned"),
        },
    ),
    Question(
        "Several labels: weighted F1, the best of six settings of every loss (of cross-entropy: weights of positives)",
        "sigmoidf1-3",
        multilabel.DATA,
        {
            "cross-entropy at 0.5": ("BCE", "weighted f1 @0.5"),
            "cross-entropy, tuned": ("BCE", "weighted f1 @tuned"),
            "focal, tuned": ("focal", "weighted f1 @tuned"),
            "ASL, tuned": ("ASL", "weighted f1 @tuned"),
            "sigmoidF1 at 0.5": ("sigmoidF1", "weighted f1 @0.5"),
            "sigmoidF1, tuned": ("sigmoidF1", "weighted f1 @tuned"),
            "MFoM at 0.5": ("MFoM", "weighted f1 @0.5"),
            "MFoM, tuned": ("MFoM", "weighted f1 @tuned"),
            "MetricClassifier()": (DEFAULT, "weighted f1 @tuned"),
        },
    ),
    Question(
        "Several classes: macro F1",
        "fbeta-beyond",
        fbeta.BEYOND_DATA,
        {
            "cross-entropy, argmax": ("CE", "f1"),
            "cross-entropy, tuned": ("CE, tuned", "f1"),
            "soft F1, argmax": ("F_1", "f1"),
            "MetricClassifier()": (DEFAULT, "f1"),
        },
    ),
)


def advice_section(results: Results) -> Iterator[str]:
    """Give what, on this evidence, to use for each kind of problem."""
    yield "## What should I use?\n"
    yield ADVICE
    for question in QUESTIONS:
        yield f"**{question.title}**\n"
        yield from answer(question, results)


def answer(question: Question, results: Results) -> Iterator[str]:
    """Give the table of a question, best first, and the sentences that follow from it."""
    keys = {name: (question.table, "corrected", *found) for name, found in question.contenders.items()}
    means = {
        name: [results.mean(table, protocol, row, data, metric) for data in question.sets]
        for name, (table, protocol, row, metric) in keys.items()
    }
    known = {name: [value for value in values if value is not None] for name, values in means.items()}
    full = {name: fmean(values) for name, values in known.items() if len(values) == len(question.sets)}
    default, peer = list(question.contenders)[:2]
    if not {default, peer} <= full.keys():
        yield "Not run yet.\n"
        return
    order = sorted(full, key=lambda name: -full[name])
    lines = []
    for name in order:
        (table, protocol, row, metric), (*_, other, other_metric) = keys[name], keys[peer]
        pairs = {d: results.difference(table, protocol, row, other, d, metric, other_metric) for d in question.sets}
        clearly = {
            "better on": [data for data, d in pairs.items() if d is not None and d.low > 0],
            "worse on": [data for data, d in pairs.items() if d is not None and d.high < 0],
        }
        words = "; ".join(f"{word} {', '.join(sets)}" for word, sets in clearly.items() if sets)
        difference = "" if name == peer else f"{full[name] - full[peer]:+.3f}"
        lines.append([name, *(shown(value, None) for value in means[name]), f"{full[name]:.3f}", difference, words])
    yield markdown(["", *question.sets, "mean", f"− {peer}", "clearly"], lines)
    yield (
        f"Tuning the rule of cross-entropy on validation rows changes its mean by {full[peer] - full[default]:+.3f}; "
        f"best on average here: {order[0]}.\n"
    )
