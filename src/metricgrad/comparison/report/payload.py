"""What a report is drawn from: plain JSON, so that it can be stored beside the report and drawn again.

What all sections may use is described here; what a section measured for itself is described in its own file. Everything
about test rows is counted, never listed, apart from the few worst mistakes. A number that is not known is None; an
empty list means that there is nothing to draw.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

Rule = Literal["fixed", "tuned"]
"""How scores become decisions: at one half (or the largest score), or as tuned on training rows."""

REFERENCES = ("cross-entropy fixed", "cross-entropy tuned")
"""What every contender is compared with, as named in ``Row["against"]``: cross-entropy with each rule."""


class Claim(TypedDict):
    """What a verdict says about the gain of the shipped row over a reference."""

    difference: float
    low: float | None
    high: float | None
    p: float  # and the interval: those of ``Row["against"]``
    proven: bool
    repeats_needed: int | None  # about how many repeats would prove it


class Verdict(TypedDict):
    """What to ship, and whether its gain is proven."""

    headline: str  # one short sentence, set in large type
    text: str  # two or three more
    ship: str  # a contender
    rule: Rule
    gain_is_real: bool  # proven over the better of the two references
    claims: NotRequired[dict[str, Claim]]  # by REFERENCES, those that could be shipped as well
    chosen: NotRequired[bool]  # whether the user overruled the best mean


class Data(TypedDict):
    """The data set as it was read."""

    file: str
    rows: int
    task: Literal["binary", "multiclass", "multilabel"]
    target: list[str]
    classes: list[str]  # binary: the negative one, then the positive one
    balance: list[float]  # the share of rows of each class
    profile: list[tuple[str, str]]  # label, text
    warnings: list[str]


class Metric(TypedDict):
    """The judge."""

    name: str  # as ``metrics.get`` takes it
    average: str | None  # None for a binary task
    subject_to: str | None
    also: list[str]  # other metrics that ``Row["others"]`` holds
    constraints: NotRequired[list[dict[str, Any]]]  # ``subject_to`` as metric, bound, sense and over
    title: NotRequired[str]  # for people: "F1 of the class 'yes'", "macro-averaged F2"


class Difference(TypedDict):
    """How far a row of the leaderboard is above a reference, over the same splits.

    The p-value and the interval are adjusted for the number of references; the interval excludes 0 exactly if p < 5 %.
    """

    difference: float
    low: float | None
    high: float | None
    p: float | None
    repeats_needed: NotRequired[int | None]  # about how many repeats would prove the gain


class Row(TypedDict):
    """One contender with one rule."""

    contender: str
    rule: Rule
    family: str
    value: float | None  # the mean over the splits, on test rows
    low: float | None
    high: float | None
    folds: list[float]
    against: dict[str, Difference]  # by REFERENCES; a reference is not compared with itself
    others: dict[str, float]
    seconds: float | None  # of training, all splits together
    feasible: bool  # whether ``subject_to`` holds on the rows that the rule was tuned on
    held: int  # the number of repeats in which it holds on the test rows


class MemberWeight(TypedDict):
    """A contender in the ensemble."""

    name: str
    weight: float  # the mean over the splits
    low: float  # in one split
    high: float


class ColumnImportance(TypedDict):
    """What the metric loses under the shipped rule when a column is shuffled among the test rows."""

    column: str
    drop: float  # the mean over the splits
    low: float | None
    high: float | None


class Shipped(TypedDict):
    """The decision rule of the shipped model."""

    contender: str
    rule: str  # in words
    kind: str  # "fixed" or "tuned"
    thresholds: list[float | None]  # one for a binary task, otherwise one per class; None where none decides
    plateaus: NotRequired[list[tuple[float, float] | None]]  # of each threshold, where it was tuned
    offsets: NotRequired[list[float] | None]  # one per class, added to the logarithm of its score; None without
    tuned_on: str


class Reproduce(TypedDict):
    """What it takes to run the same again."""

    command: str
    seed: int
    versions: dict[str, str]
    machine: str


class Summary(TypedDict):
    """All that is small."""

    version: str  # of metricgrad
    created: str  # ISO 8601
    command: str
    verdict: Verdict
    data: Data
    metric: Metric
    repeats: int
    planned_repeats: NotRequired[int]  # those that were asked for, of which a budget may have allowed fewer
    model: NotRequired[Shipped]
    protocol: list[str]  # sentences
    left_out: list[tuple[str, str]]  # contender, why it was not tried or did not finish
    reproduce: Reproduce
    members: NotRequired[list[MemberWeight]]  # of the ensemble, if it is in the leaderboard
    importance: NotRequired[list[ColumnImportance]]  # of the columns with the largest drops, largest first


Details = dict[str, Any]
"""What the charts of one contender show: all that the sections' ``measure`` returned, together."""


class Payload(Summary):
    """Everything."""

    leaderboard: list[Row]  # best first
    details: dict[str, Details]  # by contender
    study: dict[str, Any]  # all that the sections' ``measure_study`` returned, together
    formulas: NotRequired[dict[str, Any]]  # of metrics at a threshold, by name: see ``formulas.py``
    evaluation: NotRequired[Any]  # of the report of ``evaluate``: see ``sections/evaluation.py``
    runs: NotRequired[Any]  # of the report of two runs: see ``sections/runs.py``
    slim: NotRequired[bool]  # whether it was made to fit a page


def summarise(payload: Payload) -> dict[str, Any]:
    """Return what is small: everything but what the charts show."""
    return {key: value for key, value in payload.items() if key not in ("details", "study", "formulas")}
