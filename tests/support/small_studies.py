"""Small comparisons in tests: a plan of a frame, and the folder that it is run in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from metricgrad.comparison.options import Options, make_config
from metricgrad.comparison.run_comparison import Plan
from metricgrad.comparison.run_writer import RunWriter
from tables import written


def make_plan(frame: pd.DataFrame, target: str, folder: Path, own: dict[str, Any] | None = None, **more: Any) -> Plan:
    """Return the plan of a comparison of a frame; ``own``: estimators of the user's."""
    settings = {"repeats": 2, "own_contenders": tuple(own or ()), **more}
    data = written(frame, folder)
    return Plan.of(Options(data, tuple(target.split(",")), **settings), own)


@contextmanager
def open_run_writer(plan: Plan, folder: Path) -> Iterator[RunWriter]:
    """Give a new run folder."""
    with RunWriter.create(folder / "run", "compare", make_config(plan.options)) as run_writer:
        try:
            yield run_writer
        finally:
            run_writer.temporary.clear()
