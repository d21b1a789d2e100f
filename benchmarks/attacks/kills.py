"""A run that streams, trains and saves is killed with SIGKILL, up to three times, at any line of the library's code.

Started again it must end with the weights of a run that was never killed, bit for bit, and leave no file behind.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

import metricgrad as mg
from metricgrad import samplers

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCES = ("arrays", "parquet", "sampler")
ROWS, EPOCHS = 90, 2
WATCHED = (
    *("checkpoints.py", "states.py", "batch_stream.py", "parquet_batches.py", "checksums.py", "constrained_loss.py"),
    *("samplers/epochs.py", "samplers/batches.py", "samplers/oversampling.py"),
)
"""Files among whose lines a run dies."""


def train(folder: Path, source: str, kill_at: int = 0) -> int:
    """Train, saving after every step, and write the weights; die at the ``kill_at``-th line, and count the lines."""
    lines = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.endswith(WATCHED):
            return None
        if event == "line":
            lines += 1
            if lines == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 1))
    loss = mg.ConstrainedLoss("recall", "precision>=0.8")
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    data, epochs = _data(source)
    parts = {"model": model, "optimiser": optimiser, "loss": loss, "data": epochs}
    checkpoint = mg.Checkpoint(folder)
    step = (checkpoint.load(**parts) or {"step": 0})["step"]
    while epochs.epoch < EPOCHS:
        for x, y in data():
            optimiser.zero_grad()
            loss(model(x + 0.1 * torch.randn_like(x)).squeeze(1), y.float()).backward()
            optimiser.step()
            step += 1
            checkpoint.save(**parts, step=step)
    sys.settrace(None)
    torch.save(model.state_dict(), folder / "weights.pt")
    return lines


def _data(source: str) -> tuple[Any, Any]:
    """Return what gives the batches of an epoch, and what knows the place in it."""
    place = _written()
    if source == "arrays":
        stream: Any = mg.ArrayBatches(place / "x.npy", place / "y.npy", 24, buffer=32, seed=1)
    elif source == "parquet":
        stream = mg.ParquetBatches(place / "parts", ["a", "b", "c"], "y", 24, buffer=32, seed=1)
    else:
        x, y = torch.from_numpy(np.load(place / "x.npy")), torch.from_numpy(np.load(place / "y.npy"))
        batches = samplers.MinimumPositivesBatchSampler(y, 24, minimum=4, seed=1)
        return lambda: ((x[rows], y[rows]) for rows in batches), batches
    return lambda: stream, stream


@cache
def _written() -> Path:
    """Write the data, once for each process."""
    place = Path(tempfile.mkdtemp())
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 3)).astype(np.float32)
    y = (x[:, 0] > 0.3).astype(np.int64)
    np.save(place / "x.npy", x)
    np.save(place / "y.npy", y)
    (place / "parts").mkdir()
    for part in range(3):
        rows = slice(part * 30, part * 30 + 30)
        columns = {name: x[rows, k] for k, name in enumerate("abc")} | {"y": y[rows]}
        pq.write_table(pa.table(columns), place / "parts" / f"{part}.parquet", row_group_size=7)
    return place


def _started(folder: Path, source: str, kill_at: int = 0) -> int:
    """Run in a process of its own; return its exit code, negative for a signal."""
    pid = os.fork()
    if not pid:
        try:
            train(folder, source, kill_at)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@cache
def _clean(source: str) -> tuple[dict[str, Any], int]:
    """Return the weights of a run that nobody kills, and how many lines it has."""
    folder = Path(tempfile.mkdtemp())
    lines = train(folder, source)
    return torch.load(folder / "weights.pt"), lines


def check(number: int) -> str | None:
    """Return what is wrong with a case, or None."""
    r = random.Random(f"kills {number}")  # noqa: S311
    source = SOURCES[number % len(SOURCES)]
    wanted, lines = _clean(source)
    kills = [r.randrange(1, lines) for _ in range(r.choice([1, 1, 2, 3]))]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        about = f"{source}, killed at lines {kills}"
        codes = [_started(folder, source, kill) for kill in kills]
        # What is left to do may have fewer lines than that.
        if any(code not in (-signal.SIGKILL, 0) for code in codes):
            return f"exit codes {codes} | {about}"
        if (code := _started(folder, source)) != 0:
            return f"started again: exit code {code} | {about}"
        found = torch.load(folder / "weights.pt")
        if any(not torch.equal(found[name], wanted[name]) for name in wanted):
            return f"other weights than of a run that was not killed | {about}"
        left = sorted(path.name for path in folder.iterdir())
        return None if left == ["checkpoint.pt", "weights.pt"] else f"files left behind: {left} | {about}"


def check_all(numbers: Iterable[int]) -> dict[int, str]:
    """Return what is wrong, by the number of the case."""
    return {number: found for number in numbers if (found := check(number)) is not None}
