"""What the results say about a claim of a paper: paired differences over trials, and the rules of a verdict.

A verdict follows from the results by one of the rules here, never by hand. A difference is the mean over trials of
(row − other row), the same trial of both having the same split and seed, with a 95 % t-interval.

* "A is at least as good as B" holds unless the difference is clearly negative (the whole interval is below 0).
* "A is better than B" holds when the difference is clearly positive (the whole interval is above 0).
* "A and B are alike" holds when the difference, either way, is at most a stated margin.

With one trial there is no interval: a difference up to the margin counts as none, and the figures say "one trial".
A claim that does not hold fails where the whole interval speaks against it; elsewhere it is neither shown nor refuted.
Where "at least as good" holds, the verdict says on which data sets A is clearly better, since a paper may have said
that much, and on which the interval reaches further below 0 than the margin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from scipy.stats import t as student

from cells import RESULTS, read, results_file

Outcome = Literal["holds", "holds only under their protocol", "does not hold here", "cannot be tested here"]
Relation = Literal["at least", "better", "alike"]
NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Verdict:
    """A claim of a paper and what became of it: ``figures`` in one line, ``reason`` what is behind it or in doubt.

    ``undecided``: it is not shown to hold, and no data set speaks against it.
    """

    claim: str
    verdict: Outcome
    figures: str
    reason: str = ""
    undecided: bool = False

    @property
    def outcome(self) -> str:
        """The verdict in words; a claim whose cells are still to be run has none yet."""
        return NOT_RUN if self.reason == NOT_RUN else self.verdict


@dataclass(frozen=True)
class Difference:
    """The mean difference over ``n`` paired trials and its 95 % t-interval (infinite for one trial)."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        if self.n < 2:
            return f"{self.mean:+.3f} (one trial)"
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


@dataclass(frozen=True)
class Results:
    """The results of all tables; a value that was not computed is None, an empty list, or absent."""

    values: dict[tuple[str, str, str, str, str], dict[int, float]]
    seconds: dict[str, float]

    @classmethod
    def load(cls, folder: Path = RESULTS, names: Iterable[str] | None = None) -> Results:
        """Return the results in a folder, of all tables or of those named."""
        names = sorted(file.stem for file in folder.glob("*.csv")) if names is None else list(names)
        values: dict[tuple[str, str, str, str, str], dict[int, float]] = {}
        seconds = {}
        for name in names:
            rows = read(results_file(name, folder))
            for row in rows:
                key = (name, row["protocol"], row["row"], row["data"], row["metric"])
                values.setdefault(key, {})[row["trial"]] = row["value"]
            # Every line of a cell repeats the seconds of the cell.
            cells: dict[tuple[Any, ...], float] = {
                (row["protocol"], row["row"], row["data"], row["trial"]): float(row["seconds"]) for row in rows
            }
            seconds[name] = math.fsum(cells.values())
        return cls(values, seconds)

    def trials(self, table: str, protocol: str, row: str, data: str, metric: str) -> list[float]:
        """Return the values of a cell, in the order of trials."""
        found = self.values.get((table, protocol, row, data, metric), {})
        return [found[trial] for trial in sorted(found)]

    def mean(self, table: str, protocol: str, row: str, data: str, metric: str) -> float | None:
        """Return the mean of a cell over its trials, None if it was not run."""
        found = self.trials(table, protocol, row, data, metric)
        return fmean(found) if found else None

    def sd(self, table: str, protocol: str, row: str, data: str, metric: str) -> float | None:
        """Return the standard deviation of a cell over its trials, None with fewer than two."""
        found = self.trials(table, protocol, row, data, metric)
        return stdev(found) if len(found) > 1 else None

    def difference(
        self,
        table: str,
        protocol: str,
        row: str,
        other: str,
        data: str,
        metric: str,
        other_metric: str | None = None,
        other_table: str | None = None,
    ) -> Difference | None:
        """Return ``row`` minus ``other`` over the trials that both have, None if there are none.

        ``other_metric`` is the metric of the other row, if it is not the same ("f1" against "f1 tuned");
        ``other_table`` is its table, if it is another one.
        """
        first = self.values.get((table, protocol, row, data, metric), {})
        second = self.values.get((other_table or table, protocol, other, data, other_metric or metric), {})
        return paired([first[trial] - second[trial] for trial in sorted(first.keys() & second.keys())])


def paired(differences: Sequence[float]) -> Difference | None:
    """Return the mean of differences and its 95 % t-interval, None if there are none."""
    n = len(differences)
    if not n:
        return None
    mean = fmean(differences)
    half = float(student.ppf(0.975, n - 1)) * stdev(differences) / math.sqrt(n) if n > 1 else math.inf
    return Difference(mean, mean - half, mean + half, n)


def satisfies(difference: Difference, relation: Relation, margin: float = 0.02) -> bool:
    """Return whether a difference agrees with a claim, by the rules at the top of this file."""
    if relation == "alike":
        return abs(difference.mean) <= margin
    if difference.n < 2:
        return difference.mean >= -margin if relation == "at least" else difference.mean > margin
    return difference.high >= 0 if relation == "at least" else difference.low > 0


def judge(
    claim: str,
    published: dict[str, Difference | None],
    corrected: dict[str, Difference | None],
    relation: Relation,
    margin: float = 0.02,
    reason: str = "",
) -> Verdict:
    """Return the verdict on a claim that must hold on every data set: the differences by data set, under each protocol.

    It holds if it holds on every data set under the corrected protocol; only under their protocol if it does so under
    the published one alone. Data sets that were not run are left out and named; with none, the claim was not tested.
    """
    there = {name: d for name, d in corrected.items() if d is not None}
    theirs = {name: d for name, d in published.items() if d is not None}
    absent = [name for name in {**published, **corrected} if name not in there]
    figures = "corrected: " + (listed(there) or NOT_RUN)
    if published:
        means = ", ".join(f"{name} {d.mean:+.3f}" for name, d in theirs.items())
        figures = f"published: {means or NOT_RUN}; {figures}"
    if absent and there:
        figures += f" ({', '.join(absent)}: {NOT_RUN})"
    if not there:
        return Verdict(claim, "cannot be tested here", figures, NOT_RUN)
    if all(satisfies(d, relation, margin) for d in there.values()):
        return Verdict(claim, "holds", figures, strength(there, margin) if relation == "at least" else "")
    outcome: Outcome = "does not hold here"
    if theirs and all(satisfies(d, relation, margin) for d in theirs.values()):
        outcome = "holds only under their protocol"
    unmet = {name: d for name, d in there.items() if not satisfies(d, relation, margin)}
    against = [name for name, d in unmet.items() if refutes(d, relation, margin)]
    parts = {"fails on": against, "not shown, nor refuted, on": [name for name in unmet if name not in against]}
    reasons = [*(f"{words} {', '.join(names)}" for words, names in parts.items() if names), *filter(None, [reason])]
    return Verdict(claim, outcome, figures, "; ".join(reasons), undecided=not against)


def strength(differences: dict[str, Difference], margin: float) -> str:
    """Return where "at least as good" is clearly better, and where the intervals are too wide to rule out worse."""
    intervals = {name: d for name, d in differences.items() if d.n > 1}
    if not intervals:
        return ""
    better = [name for name, d in intervals.items() if d.low > 0]
    wide = [name for name, d in intervals.items() if d.low < -margin]
    words = f"clearly better on {', '.join(better) or 'none'}"
    return words + (f"; worse by more than {margin:g} is not ruled out on {', '.join(wide)}" if wide else "")


def refutes(difference: Difference, relation: Relation, margin: float) -> bool:
    """Return whether a difference that does not agree with a claim speaks against it: its whole interval does."""
    if difference.n < 2:
        return relation != "better" or difference.mean < -margin
    if relation == "alike":
        return difference.low > margin or difference.high < -margin
    return difference.high < 0


def listed(differences: dict[str, Difference]) -> str:
    """Return differences in one line."""
    return ", ".join(f"{name} {difference}" for name, difference in differences.items())
