"""What the results say about a claim of a paper: paired differences over trials, and the rules of a verdict.

A verdict follows from the results by the rules here, never by hand. A difference is the mean over trials of (row −
other row), the same trial of both having the same split and seed, with a 95 % t-interval. On one data set a claim is
*shown* or *refuted* where the whole interval says so, and *open* otherwise:

========== ================================= =====================================
relation   shown: the whole interval is      refuted: the whole interval is
========== ================================= =====================================
strict     above 0                           below 0
at least   above −margin                     below −margin
alike      between −margin and margin        below −margin, or above margin
in general above 0, in the mean over sets    below 0, in the mean over sets
========== ================================= =====================================

With one trial there is no interval, so nothing is shown or refuted. The states of all sets make the verdict, by
``outcome_of``: the same numbers have the same verdict.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from scipy.stats import t as student

from cells import RESULTS, read, results_file
from claims import Claim, Relation, load_claims

State = Literal["shown", "refuted", "open"]
Outcome = Literal[
    "shown on all sets",
    "shown in general",
    "shown on some, refuted on none",
    "open",
    "refuted on some",
    "refuted",
    "cannot be tested here",
    "not run yet",
]
NOT_RUN: Outcome = "not run yet"
Differences = Mapping[str, "Difference | None"]
"""Differences by data set; None where one was not run."""


@dataclass(frozen=True)
class Difference:
    """The mean difference over ``n`` paired trials and its 95 % t-interval (infinite for one trial).

    ``by_trial`` holds the trials and their differences, so that a mean over data sets can be taken trial by trial.
    """

    mean: float
    low: float
    high: float
    n: int
    by_trial: tuple[tuple[int, float], ...] = ()

    def __str__(self) -> str:
        if self.n < 2:
            return f"{self.mean:+.3f} (one trial)"
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


@dataclass(frozen=True)
class Side:
    """What one protocol says of a claim: the state of each case (data set), and the differences behind them.

    ``overall`` is the difference in the mean over the sets, of a claim that is made in general. ``hidden`` are sets on
    which nothing can be seen, ``absent`` those that were not run.
    """

    outcome: Outcome
    states: Mapping[str, State]
    differences: Mapping[str, Difference]
    overall: Difference | None = None
    hidden: Sequence[str] = ()
    absent: Sequence[str] = ()

    @property
    def counts(self) -> str:
        """The counts in words: "shown 2, open 2 of 4"."""
        found = Counter(self.states.values())
        listed = ", ".join(f"{state} {found[state]}" for state in ("shown", "open", "refuted") if found[state])
        more = "".join(
            f"; {words} {len(sets)}"
            for words, sets in (("nothing to be seen", self.hidden), (NOT_RUN, self.absent))
            if sets
        )
        return (f"{listed} of {len(self.states)}" if listed else "none") + more


@dataclass(frozen=True)
class Verdict:
    """A claim and what became of it under both protocols.

    ``printed`` holds the differences of the figures that the paper prints, by data set; ``figures`` what else there is
    to say in numbers, ``notes`` what limits the verdict.
    """

    claim: Claim
    corrected: Side
    published: Side | None = None
    printed: Mapping[str, float] | None = None
    figures: str = ""
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The verdict: what the corrected protocol says."""
        return self.corrected.outcome

    @property
    def refuted_by_their_own(self) -> str:
        """What is to be said if the published protocol refutes the claim, or the paper's own figures do; else ""."""
        parts = []
        if self.published is not None and self.published.outcome in ("refuted", "refuted on some"):
            parts.append(f"refuted under `published` too ({self.published.counts})")
        if self.printed:
            against = [name for name, value in self.printed.items() if not agrees(value, self.claim)]
            if against:
                parts.append(f"the printed figures say otherwise on {', '.join(against)}")
        return "; ".join(parts)


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
        return minus(first, second)


def paired(differences: Sequence[float], trials: Sequence[int] | None = None) -> Difference | None:
    """Return the mean of differences and its 95 % t-interval, None if there are none."""
    n = len(differences)
    if not n:
        return None
    mean = fmean(differences)
    half = float(student.ppf(0.975, n - 1)) * stdev(differences) / math.sqrt(n) if n > 1 else math.inf
    numbers = range(n) if trials is None else trials
    return Difference(mean, mean - half, mean + half, n, tuple(zip(numbers, differences, strict=True)))


def minus(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    """Return the difference of values by trial, over the trials that both have."""
    trials = sorted(first.keys() & second.keys())
    return paired([first[trial] - second[trial] for trial in trials], trials)


def state_of(difference: Difference, relation: Relation, margin: float = 0.0) -> State:
    """Return what a difference says of a claim, by the table at the top of this file."""
    if relation == "alike":
        if -margin < difference.low and difference.high < margin:
            return "shown"
        return "refuted" if difference.high < -margin or difference.low > margin else "open"
    edge = -margin if relation == "at least" else 0.0
    if difference.low > edge:
        return "shown"
    return "refuted" if difference.high < edge else "open"


def outcome_of(states: Iterable[State]) -> Outcome:
    """Return the verdict on a claim from its state on every data set."""
    found = Counter(states)
    total = found.total()
    if not total:
        return "cannot be tested here"
    if found["shown"] == total:
        return "shown on all sets"
    if found["refuted"]:
        return "refuted" if found["refuted"] == total else "refuted on some"
    return "shown on some, refuted on none" if found["shown"] else "open"


def agrees(printed: float, claim: Claim) -> bool:
    """Return whether a printed difference, which has no interval, agrees with a claim."""
    if claim.relation == "alike":
        return abs(printed) <= claim.margin + 1e-9
    if claim.relation == "at least":
        return printed >= -claim.margin - 1e-9
    return printed > 0


def mean_over_sets(differences: Mapping[str, Difference]) -> Difference | None:
    """Return the difference in the mean over the data sets, over the trials that all of them have."""
    by_set = [dict(difference.by_trial) for difference in differences.values()]
    if not by_set:
        return None
    trials = sorted(set.intersection(*(set(found) for found in by_set)))
    return paired([fmean(found[trial] for found in by_set) for trial in trials], trials)


def side_of(claim: Claim, differences: Differences, hidden: Sequence[str] = ()) -> Side:
    """Return what one protocol says of a claim."""
    there = {name: d for name, d in differences.items() if d is not None and name not in hidden}
    absent = [name for name, d in differences.items() if d is None]
    states = {name: state_of(d, claim.relation, claim.margin) for name, d in there.items()}
    seen = [name for name in hidden if differences.get(name) is not None]
    if not there:
        return Side("open" if seen else NOT_RUN, {}, {}, None, seen, absent)
    if claim.relation != "in general":
        return Side(outcome_of(states.values()), states, there, None, seen, absent)
    overall = mean_over_sets(there)
    assert overall is not None
    outcome: Outcome = outcome_of([state_of(overall, claim.relation)])
    if outcome == "shown on all sets" and outcome_of(states.values()) != outcome:
        outcome = "shown in general"
    return Side(outcome, states, there, overall, seen, absent)


def judge(
    key: str,
    corrected: Differences,
    published: Differences | None = None,
    printed: Mapping[str, float] | None = None,
    figures: str = "",
    notes: Iterable[str] = (),
    hidden: Sequence[str] = (),
) -> Verdict:
    """Return the verdict on a claim of ``claims.csv`` from the differences by data set under each protocol.

    ``hidden`` names the sets on which the published protocol shows nothing, whatever its numbers are.
    """
    claim = load_claims()[key]
    theirs = None if published is None else side_of(claim, published, hidden)
    ours = side_of(claim, corrected)
    notes = tuple(filter(None, (lower_within_margin(claim, ours), *notes)))
    return Verdict(claim, ours, theirs, printed, figures, notes)


def lower_within_margin(claim: Claim, side: Side) -> str:
    """Return on which sets "at least as good" is clearly lower, though not clearly by more than the margin."""
    if claim.relation != "at least":
        return ""
    lower = [name for name, d in side.differences.items() if d.high < 0 and side.states[name] != "refuted"]
    return f"clearly lower, if not by more than {claim.margin:g}, on {', '.join(lower)}" if lower else ""


def judge_exactly(key: str, holds: Mapping[str, bool], figures: str, notes: Iterable[str] = ()) -> Verdict:
    """Return the verdict on a theorem or a formula: it holds or not in each case."""
    states: dict[str, State] = {case: "shown" if value else "refuted" for case, value in holds.items()}
    outcome = outcome_of(states.values()) if states else NOT_RUN
    return Verdict(load_claims()[key], Side(outcome, states, {}), figures=figures, notes=tuple(notes))


def cannot_be_tested(key: str, why: str) -> Verdict:
    """Return the verdict on a claim whose data cannot be had."""
    return Verdict(load_claims()[key], Side("cannot be tested here", {}, {}), notes=(why,))


def listed(differences: Mapping[str, Difference]) -> str:
    """Return differences in one line."""
    return ", ".join(f"{name} {difference}" for name, difference in differences.items())
