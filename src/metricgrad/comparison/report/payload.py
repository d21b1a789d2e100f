"""What a report is drawn from: plain JSON, which is part of the page, so that it can be drawn again.

It is the summary of the run, and what the charts show. What a section measured for itself is described in its own file.
Everything about test rows is counted, never listed, apart from the few worst mistakes. A number that is not known is
None; an empty list means that there is nothing to draw.
"""

from __future__ import annotations

from typing import Any, NotRequired

from metricgrad.comparison.summaries import ComparisonSummary

Details = dict[str, Any]
"""What the charts of one contender show: all that the sections' ``measure`` returned, together."""


class Payload(ComparisonSummary):
    """Everything."""

    details: dict[str, Details]  # by contender
    study: dict[str, Any]  # all that the sections' ``measure_study`` returned, together
    formulas: NotRequired[dict[str, Any]]  # of metrics at a threshold, by name: see ``formulas.py``
    evaluation: NotRequired[Any]  # of the report of ``evaluate``: see ``sections/evaluation.py``
    runs: NotRequired[Any]  # of the report of two runs: see ``sections/runs.py``
    slim: NotRequired[bool]  # whether it was made to fit a page
