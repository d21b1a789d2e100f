"""Counters of requests and rows, which the processes of a service share, in the text format of Prometheus.

Every process writes to a file of its own, so that none waits for another; whoever is asked adds all files up.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from metricgrad.comparison.inference.predictor import count_predicted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from metricgrad.comparison.tables.gaps import Gaps

STATUSES = (200, 400, 404, 405, 413, 415, 422, 500)
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds of a request, of which a histogram is kept."""


class Counters:
    """Counters in a file of this process; ``folder`` holds the files of all processes."""

    def __init__(self, folder: Path, classes: Sequence[str], columns: Sequence[str]) -> None:
        self._folder = folder
        self._names = [
            *(f'metricgrad_requests_total{{status="{status}"}}' for status in STATUSES),
            *(f'metricgrad_request_seconds_bucket{{le="{bound}"}}' for bound in BOUNDS),
            'metricgrad_request_seconds_bucket{le="+Inf"}',
            "metricgrad_request_seconds_sum",
            "metricgrad_request_seconds_count",
            "metricgrad_rows_total",
            *(f'metricgrad_predicted_total{{class="{_escape(name)}"}}' for name in classes),
            *(f'metricgrad_missing_cells_total{{column="{_escape(name)}"}}' for name in columns),
            *(f'metricgrad_unknown_cells_total{{column="{_escape(name)}"}}' for name in columns),
        ]
        self._place = {name: place for place, name in enumerate(self._names)}
        path = folder / f"{os.getpid()}.counters"
        self._numbers = np.memmap(path, dtype=np.float64, mode="w+", shape=len(self._names))
        self._classes, self._columns = tuple(classes), tuple(columns)

    def count_request(self, status: int, seconds: float) -> None:
        """Count a request."""
        self._add(f'metricgrad_requests_total{{status="{status if status in STATUSES else 500}"}}')
        for bound in BOUNDS:
            if seconds <= bound:
                self._add(f'metricgrad_request_seconds_bucket{{le="{bound}"}}')
        self._add('metricgrad_request_seconds_bucket{le="+Inf"}')
        self._add("metricgrad_request_seconds_sum", seconds)
        self._add("metricgrad_request_seconds_count")

    def count_rows(self, decided: np.ndarray, gaps: Gaps) -> None:
        """Count predicted rows: how often each class was predicted, missing and unknown cells of each column."""
        self._add("metricgrad_rows_total", gaps.rows)
        numbers = count_predicted(decided, len(self._classes))
        for name, number in zip(self._classes, numbers, strict=True):
            self._add(f'metricgrad_predicted_total{{class="{_escape(name)}"}}', float(number))
        for kind, found in (("missing", gaps.missing), ("unknown", gaps.unknown)):
            for name, number in found.items():
                self._add(f'metricgrad_{kind}_cells_total{{column="{_escape(name)}"}}', number)

    def _add(self, name: str, number: float = 1) -> None:
        self._numbers[self._place[name]] += number

    def write_text(self) -> str:
        """Return the sums over all processes in the text format of Prometheus."""
        total: Any = np.zeros(len(self._names))
        for path in self._folder.glob("*.counters"):
            found = np.fromfile(path, dtype=np.float64)
            if found.shape == total.shape:  # a process that has just started may have written nothing yet
                total += found
        return "\n".join(self._write_lines(total)) + "\n"

    def _write_lines(self, total: Any) -> Iterator[str]:
        described = set()
        for name, number in zip(self._names, total, strict=True):
            family = name.partition("{")[0]
            base = family
            for ending in ("_bucket", "_sum", "_count"):
                base = base.removesuffix(ending)
            if base not in described:
                described.add(base)
                yield f"# TYPE {base} {'histogram' if base == 'metricgrad_request_seconds' else 'counter'}"
            yield f"{name} {number:.10g}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
