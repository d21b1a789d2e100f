"""Tasks that kill the process they run in, once or always: they stand for a machine that fails, or lacks memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from metricgrad.comparison import candidate_runs
from metricgrad.comparison.inference import parts, predict_folder


def kill_once(marker: Path) -> None:
    """Kill this process, unless the marker is there already."""
    try:
        marker.open("x").close()
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def run_candidate(marker: Path | None, unit: candidate_runs.CandidateTask) -> Any:
    """Do a unit; the process of the hybrid's first is killed, always if there is no marker."""
    if (unit.contender, unit.repeat) == ("hybrid", 0):
        if marker is None:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            kill_once(marker)
    return candidate_runs.run_candidate(unit)


def predict_part(marker: Path, task: parts.PartTask, path: Path, sha256: str) -> Any:
    """Predict a file; the process of the third is killed, once."""
    if task.number == 2:
        kill_once(marker)
    return predict_folder.predict_part(task, path, sha256)


def double(task: Any) -> Any:
    """Return twice the shared value; the first process is killed, and with it the only copy of the value."""
    kill_once(task.marker)
    return 2 * task.value


class _Fragile:
    """A result whose process is killed, once, when it is sent."""

    def __init__(self, marker: Path, value: Any) -> None:
        self.marker, self.value = marker, value

    def __reduce__(self) -> tuple[Any, ...]:
        kill_once(self.marker)
        return _Fragile, (self.marker, self.value)


def double_and_lose(task: Any) -> Any:
    """Return twice the shared value; the first process is killed when it sends the finished result."""
    return _Fragile(task.marker, 2 * task.value)
