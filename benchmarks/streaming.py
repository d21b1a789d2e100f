"""Rows per second of training from Parquet and from .npy files against the same data in memory.

A section of ``scale.py``; needs the extra ``streaming``. An epoch of a small network on the metric loss; the rows are
shuffled everywhere, torch has one thread, and the streams' reader has another. Files are in the page cache, as on the
second epoch of what fits into it; a slower disk shows as soon as it reads less than the network eats. Read the
ratios: rows per second are one machine's.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad.training.networks import mlp
from metricgrad.training.training_loop import one_thread
from timing import Row, Run, race, show

FEATURES, BATCH, GROUP = 50, 1024, 1 << 14


def epoch(batches: Any) -> Run:
    """Return a training epoch over whatever yields batches."""
    torch.manual_seed(0)
    model, loss = mlp(FEATURES, 1, (128, 64)), mg.MetricLoss("f1")
    optimiser = torch.optim.Adam(model.parameters(), fused=True)

    def run() -> None:
        for x, y in batches() if callable(batches) else batches:
            optimiser.zero_grad(set_to_none=True)
            loss(model(x).squeeze(1), y).backward()
            optimiser.step()

    return run


def parquet_streaming(quick: bool = False) -> dict[str, Row]:
    """Time an epoch from memory and from files; return milliseconds, rows per second and the ratio to memory."""
    rows = 100_000 if quick else 500_000
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    y = (x[:, :5].sum(1) + rng.normal(size=rows) > 3).astype(np.float32)
    features, targets = torch.from_numpy(x), torch.from_numpy(y)

    def in_memory() -> Any:
        order = torch.randperm(rows)
        return zip(*(part[order].split(BATCH) for part in (features, targets)), strict=True)

    with tempfile.TemporaryDirectory() as name, one_thread():
        folder = Path(name)
        table = pa.table({f"x{i}": x[:, i] for i in range(FEATURES)} | {"y": y})
        pq.write_table(table, folder / "data.parquet", row_group_size=GROUP)
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        names = [f"x{i}" for i in range(FEATURES)]
        runs = {
            "in memory": epoch(in_memory),
            "Parquet": epoch(mg.ParquetBatches(folder, names, "y", BATCH)),
            ".npy": epoch(mg.ArrayBatches(folder / "x.npy", folder / "y.npy", BATCH)),
        }
        nothing: Tensor = torch.zeros(())
        found = race({name: (run, nothing) for name, run in runs.items()}, quick)
    for row in found.values():
        row["rows_per_second"] = 1e3 * rows / row["ms"]
        row["ratio"] = found["in memory"]["ms"] / row["ms"]
    show(
        "rows per second (ratio to memory)",
        {f"{FEATURES} features": found},
        lambda r: f"{'~' if r['disturbed'] else ''}{r['rows_per_second']:.3g} ({r['ratio']:.2f}×)",
    )
    return found
