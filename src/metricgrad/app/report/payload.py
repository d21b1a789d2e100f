"""What a report is drawn from: plain JSON, so that it can be stored beside the report and drawn again.

What all sections may use is described here; what a section measured for itself is described in its own file. Everything
about test rows is counted, never listed, apart from the few worst mistakes. A number that is not known is None; an
empty list means that there is nothing to draw.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

Rule = Literal["fixed", "tuned"]
"""How scores become decisions: at one half (or the largest score), or as tuned on training rows."""

REFERENCES = ("cross-entropy at 0.5", "cross-entropy tuned")
"""What every contender is compared with, as named in ``Row["against"]``."""


class Verdict(TypedDict):
    """What to ship, and whether the gain is real."""

    headline: str  # one short sentence, set in large type
    text: str  # two or three more
    ship: str  # a contender
    rule: Rule
    gain_is_real: bool


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
    average: str | None
    subject_to: str | None
    also: list[str]  # other metrics that ``Row["others"]`` holds


class Difference(TypedDict):
    """How far a row of the leaderboard is above a reference, over the same splits."""

    difference: float
    low: float | None
    high: float | None
    p: float | None


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
    feasible: bool  # whether ``subject_to`` holds


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
    evaluation: NotRequired[Any]  # of the report of ``evaluate``: see ``sections/evaluation.py``
    runs: NotRequired[Any]  # of the report of two runs: see ``sections/runs.py``


def summarise(payload: Payload) -> dict[str, Any]:
    """Return what is small: everything but what the charts show."""
    return {key: value for key, value in payload.items() if key not in ("details", "study")}
