"""Time limit: which candidates are fitted when an ensemble has so many seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from metricgrad.core.metrics.scalars import is_number

if TYPE_CHECKING:
    from metricgrad.estimators.candidates import Candidate


class TimeLimit:
    """Seconds that start now, and the guess whether another candidate still fits into them.

    A candidate is expected to take as many seconds for each unit of its ``cost`` as those that are finished.
    """

    def __init__(self, seconds: float | None) -> None:
        is_limit = is_number(seconds) and not isinstance(seconds, bool) and seconds > 0
        if seconds is not None and not is_limit:
            raise ValueError(f"time_limit: expected a number of seconds above 0, or None, got {seconds!r}")
        self.seconds = seconds
        self._start = time.monotonic()
        self._finished_cost = 0.0
        self._finished_seconds = 0.0

    def order_candidates(self, candidates: list[Candidate]) -> list[int]:
        """Return the places of the candidates in the order to fit them: with a limit the cheapest first."""
        places = list(range(len(candidates)))
        if self.seconds is None:
            return places
        return sorted(places, key=lambda place: candidates[place].cost)

    def add_finished(self, candidate: Candidate, seconds: float) -> None:
        """Take note of how long a candidate took."""
        self._finished_cost += candidate.cost
        self._finished_seconds += seconds

    def has_time_for(self, candidate: Candidate) -> bool:
        """Return whether a candidate is expected to finish in time; the first one always is."""
        if self.seconds is None or not self._finished_cost:
            return True
        expected = candidate.cost * self._finished_seconds / self._finished_cost
        return self._count_elapsed() + expected <= self.seconds

    def _count_elapsed(self) -> float:
        return time.monotonic() - self._start
