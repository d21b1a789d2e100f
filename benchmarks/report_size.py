"""How large a report is: 50 contenders on a million test rows, and the same number with 30 labels each.

python benchmarks/report_size.py [--rows N] [--write FILE]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from metricgrad.comparison.report.page import write
from report_example import simulate


def main() -> None:
    """Print the sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--contenders", type=int, default=50)
    parser.add_argument("--write", type=Path, help="keep the first report here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    labels = [f"label {k}" for k in range(30)]
    cases = [("one class", None, options.rows), ("30 labels", labels, options.rows // 100)]
    with tempfile.TemporaryDirectory() as folder:
        for name, classes, rows in cases:
            payload = simulate(rows, options.contenders, classes).payload
            keep = options.write if options.write and classes is None else Path(folder) / "report.html"
            start = time.perf_counter()
            size = write(payload, keep).stat().st_size
            took = time.perf_counter() - start
            print(
                f"{options.contenders} contenders × {rows:,} rows, {name}: {size / 1e6:.2f} MB, written in {took:.1f} s"
            )


if __name__ == "__main__":
    main()
