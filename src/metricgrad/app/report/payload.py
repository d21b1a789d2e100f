"""What a report is drawn from: plain JSON, so that it can be stored beside the report and drawn again.

Everything about test rows is counted (see ``binned``), never listed, apart from the few worst mistakes. A number that
is not known is None; an empty list means that there is nothing to draw.
"""

from __future__ import annotations

from typing import Literal, TypedDict

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


class Histogram(TypedDict):
    """How many rows score within ``[edges[i], edges[i + 1])``; the last bin takes its right edge too."""

    edges: list[float]
    positives: list[int]
    negatives: list[int]


class Binned(TypedDict):
    """One class against the rest, on test rows: what ``binned`` returns."""

    cuts: list[float]  # ascending
    tp: list[int]  # positives that score at least the cut
    fp: list[int]  # negatives that do
    positives: int
    negatives: int
    average_precision: float | None
    calibration: list[tuple[float, float, int]]  # mean score, share of positives, rows
    histogram: Histogram


class ClassCurve(Binned):
    """The same with its name and the cut in use: of the positive class (binary), or of each class."""

    name: str
    threshold: float | None  # the tuned cut, the median over the splits; None where no cut decides (largest score)
    plateau: tuple[float, float] | None  # cuts around it that are hardly worse


class PerClass(TypedDict):
    """How one class is found, with the tuned rule if there is one."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


class Epoch(TypedDict):
    """One point of a learning curve: the soft value that was trained and the hard one that is judged, where known."""

    epoch: int
    loss: float
    soft: float | None
    hard: float | None


class Mistake(TypedDict):
    """A test row that was decided wrongly."""

    row: int  # in the data file, the first one being 1
    score: float
    truth: str
    decided: str
    cells: list[tuple[str, str]]  # column, text


class Details(TypedDict):
    """What the charts of one contender show, pooled over the test rows of all splits."""

    average_precision: float | None  # the mean over the classes
    classes: list[ClassCurve]
    confusion: list[
        list[int]
    ]  # rows true, columns decided, tuned rule, in the order of Data["classes"]; [] multi-label
    per_class: list[PerClass]
    history: list[Epoch]
    errors: list[Mistake]  # the worst, at most 20


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


class Payload(Summary):
    """Everything."""

    leaderboard: list[Row]  # best first
    details: dict[str, Details]  # by contender
