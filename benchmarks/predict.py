"""Rows a second of ``metricgrad predict`` on a Parquet file, against pyarrow reading the same file.

    python benchmarks/predict.py --rows 10000000

Makes a file of ten numbers, four categories and an id, trains a small network on 20 000 of its rows, then measures,
each in a process of its own: pyarrow reading the file piece by piece, and ``predict``. Prints rows a second, the ratio
and the peak memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def make(path: Path, rows: int, seed: int = 0) -> None:
    """Write the data, a million rows at a time."""
    rng = np.random.default_rng(seed)
    writer = None
    for start in range(0, rows, 1 << 20):
        n = min(1 << 20, rows - start)
        numbers = rng.normal(size=(n, 10)).astype(np.float32)
        columns: dict[str, object] = {f"x{k}": numbers[:, k] for k in range(10)}
        for k, size in enumerate((2, 5, 12, 40)):
            words = pa.array([f"word {i}" for i in range(size)])
            columns[f"c{k}"] = words.take(pa.array(rng.integers(0, size, n)))
        columns["id"] = np.arange(start, start + n)
        chance = 1 / (1 + np.exp(2 - numbers[:, 0] - numbers[:, 1] * numbers[:, 2]))
        columns["y"] = (rng.random(n) < chance).astype(np.int64)
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def read(path: Path) -> int:
    """Read the file with pyarrow, as ``predict`` does: piece by piece."""
    with pq.ParquetFile(path) as file:
        return sum(batch.num_rows for batch in file.iter_batches(1 << 16))


def measured(mode: str, folder: Path) -> dict[str, float]:
    """Run one mode in a process of its own."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, __file__, "--mode", mode, "--folder", str(folder)], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_mode(mode: str, folder: Path) -> None:
    """Do it, after a small file to warm up, and print seconds, rows and the peak memory."""
    for name in ("small", "data"):
        data = folder / f"{name}.parquet"
        if mode == "read":
            start, busy = time.perf_counter(), time.process_time()
            rows = read(data)
        else:
            from metricgrad.comparison.inference.predict import predict

            start, busy = time.perf_counter(), time.process_time()
            rows = predict(folder / "run", data, folder / "out.parquet", keep=["id"], force=True)["rows"]
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    # Not getrusage: its peak is that of the process before, too, if larger.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"seconds": seconds, "busy": busy, "rows": rows, "megabytes": int(peak.split()[1]) / 1024}))


def main() -> None:
    """Make the data, train, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--contender", default="hybrid")
    parser.add_argument("--mode", choices=["read", "predict"])
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.mode:
        run_mode(options.mode, options.folder)
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make(folder / "data.parquet", options.rows)
        make(folder / "small.parquet", 1000)
        train(folder, options.contender)
        megabytes = (folder / "data.parquet").stat().st_size / 1e6
        print(f"{options.rows:,} rows, {megabytes:.0f} MB of Parquet")
        base, ours = measured("read", folder), measured("predict", folder)
        for name, one in (("pyarrow reads", base), ("predict", ours)):
            speed = one["rows"] / one["seconds"] / 1e6
            busy = one["busy"] / one["rows"] * 1e6
            memory = one["megabytes"]
            print(
                f"{name:14} {speed:6.2f} million rows/s, {busy:.2f} µs of a core per row, peak memory {memory:.0f} MB"
            )
        times, work = (ours[key] / base[key] for key in ("seconds", "busy"))
        print(f"predict takes {times:.1f} times as long as pyarrow reading the file, and {work:.1f} times the work")


def train(folder: Path, contender: str) -> None:
    """Train a run on a sample of the rows."""
    from metricgrad.cli.main import main as metricgrad

    data, out = str(folder / "data.parquet"), str(folder / "run")
    options = ["--target", "y", "--rows", "20000", "--quick", "--contender", contender, "--out", out]
    if metricgrad(["train", data, *options]):
        sys.exit(1)


if __name__ == "__main__":
    main()
