"""Comparisons that stop in the middle, and counts of what they do."""

from __future__ import annotations

from typing import Any

import pytest

from metricgrad.comparison import candidate_runs
from metricgrad.estimators.cross_fitting import cross_fit


def interrupt_after(patch: pytest.MonkeyPatch, units: int) -> None:
    """Make the next unit after so many fail as Ctrl-C would."""
    done, count = candidate_runs.run_candidate, 0

    def interrupted(task: Any) -> Any:
        nonlocal count
        count += 1
        if count > units:
            patch.setattr(candidate_runs, "run_candidate", done)
            raise KeyboardInterrupt
        return done(task)

    patch.setattr(candidate_runs, "run_candidate", interrupted)


def count_fits(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of every candidate that is fitted."""
    fit, fitted = cross_fit, list[str]()

    def counted(candidate: Any, *rest: Any, **options: Any) -> Any:
        fitted.append(candidate.name)
        return fit(candidate, *rest, **options)

    patch.setattr(candidate_runs, "cross_fit", counted)
    return fitted


def break_candidates(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Make some candidates fail."""
    fit = cross_fit

    def failing(candidate: Any, *rest: Any, **options: Any) -> Any:
        if candidate.name in names:
            raise RuntimeError("no luck")
        return fit(candidate, *rest, **options)

    patch.setattr(candidate_runs, "cross_fit", failing)
