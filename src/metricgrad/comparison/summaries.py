"""The declared contents of ``summary.json`` in a run folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from metricgrad.comparison.report.payload import Row, Summary
from metricgrad.strict_json import Line, Name  # noqa: TC001 (read at run time)

if TYPE_CHECKING:
    from metricgrad.comparison.run_folder import Run


class Compared(Summary):
    """The summary of ``compare`` and ``demo``."""

    leaderboard: list[Row]


class _Data(TypedDict):
    file: Line
    rows: int
    task: Line


class Trained(TypedDict):
    """The summary of ``train``."""

    contender: Name
    rule: Line
    metric: Name
    average: Line
    subject_to: Line | None
    kind: Line
    tuned_on: Line
    value_there: float
    plateaus: NotRequired[list[tuple[float, float] | None]]
    members: NotRequired[dict[Name, float]]
    data: _Data
    profile: NotRequired[list[tuple[Line, Line]]]
    warnings: list[str]


KINDS = {"compare": Compared, "train": Trained}


def read_summary(run: Run) -> dict[str, Any]:
    """Return the summary of a finished run, or raise a ``UserError``."""
    return run.read_json("summary.json", KINDS[run.manifest["kind"]])  # type: ignore[no-any-return]
