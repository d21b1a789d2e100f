"""CPU seconds of ``metricgrad compare``, of two versions of this library in turns, on real tables.

    python benchmarks/compare_time.py OLDER/src src --data FOLDER [--quick] --csv benchmarks/results/compare_time.csv

Every run is a process of its own with ``--jobs 1`` and one thread; the seconds are those of the process and its
children, imports and the report included. The tables are those that ``shipped_quality.py`` gives to ``compare``.
Finished lines are kept in the file, and the same command goes on where it stopped. ``--summary`` prints the ratios.
Needs the extra ``app``; ``datasets.py`` says what the folder holds.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from shipped_quality import hold_out, make_frame, read_lines

TABLES = ("yeast_me2", "emotions", "vowel", "churn")
"""Two classes of which one is rare, several labels, many classes, and two classes with categories."""
FIELDS = ("version", "quick", "table", "cpu_seconds")


def measure(source: Path, table: Path, targets: list[str], quick: bool) -> float:
    """Return the CPU seconds of a comparison by the library in a folder."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **one_thread, "PYTHONPATH": str(source.resolve())}
    command = [sys.executable, "-m", "metricgrad", "compare", str(table), "--target", ",".join(targets)]
    command += ["--jobs", "1", "--out", str(table.with_suffix("")), "--force"]
    if quick:
        command.append("--quick")
    before = _count_child_seconds()
    subprocess.run(command, env=environment, cwd=table.parent, check=True, capture_output=True)  # noqa: S603
    return _count_child_seconds() - before


def _count_child_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def summarise(lines: list[dict[str, str]]) -> None:
    """Print the seconds of both versions and their ratio for each table, and the geometric mean of the ratios."""
    for quick in ("False", "True"):
        seconds = {(one["version"], one["table"]): float(one["cpu_seconds"]) for one in lines if one["quick"] == quick}
        tables = [table for version, table in seconds if version == "older" and ("newer", table) in seconds]
        if not tables:
            continue
        ratios = {table: seconds["newer", table] / seconds["older", table] for table in tables}
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios.values()))
        print(f"{'--quick' if quick == 'True' else 'default'}: newer / older {mean:.2f}", end=" ")
        print(f"({min(ratios.values()):.2f} to {max(ratios.values()):.2f}, {len(tables)} tables)")
        for table, ratio in ratios.items():
            print(f"  {table:12}{seconds['older', table]:7.1f} -> {seconds['newer', table]:7.1f}  {ratio:.2f}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("older", type=Path, nargs="?", help="the source folder of a version")
    parser.add_argument("newer", type=Path, nargs="?", help="that of another one")
    parser.add_argument("--data", type=Path, help="the folder of datasets.py")
    parser.add_argument("--csv", type=Path, required=True, help="finished lines")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    lines = read_lines(options.csv)
    if options.summary:
        summarise(lines)
        return
    done = {(one["version"], one["quick"], one["table"]) for one in lines}
    new = not options.csv.exists()
    with options.csv.open("a", newline="") as file, tempfile.TemporaryDirectory() as folder:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            file.write("# python benchmarks/compare_time.py OLDER/src src --data FOLDER [--quick]\n")
            writer.writeheader()
        for name in options.tables.split(","):
            frame, targets = make_frame(name, options.data)
            rows, _ = hold_out(frame, targets, 0)
            table = Path(folder) / f"{name}.csv"
            rows.to_csv(table, index=False)
            for version, source in (("older", options.older), ("newer", options.newer)):
                if (version, str(options.quick), name) in done:
                    continue
                seconds = measure(source, table, targets, options.quick)
                row = {"version": version, "quick": options.quick, "table": name, "cpu_seconds": f"{seconds:.1f}"}
                writer.writerow(row)
                file.flush()
                print(row, flush=True)


if __name__ == "__main__":
    main()
