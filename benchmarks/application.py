"""How long the ``metricgrad`` command takes: its help, its demo, a comparison on adult, and its installation.

    python benchmarks/application.py [--data FOLDER] [--install] [--json FILE]

Needs the ``app`` extra. Every command is a process of its own. ``--help`` takes turns with ``python -c pass`` and
``python -c "import torch"``; the best of several counts, as a ratio. ``--data`` adds a comparison on adult
(``datasets.py`` says what the folder holds); ``--install`` adds the README's first command: a fresh virtual
environment, the installation into it, with whatever pip finds in its cache, and the demo from there. Seconds are one
machine's; "~" marks those during which others used more than a quarter of a core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import timing
from datasets import load

ROOT = Path(__file__).resolve().parents[1]
METRICGRAD = (sys.executable, "-m", "metricgrad")
STARTS = {
    "metricgrad --help": (*METRICGRAD, "--help"),
    "python -c pass": (sys.executable, "-c", "pass"),
    "import torch": (sys.executable, "-c", "import torch"),
}
ROUNDS = 10
REPEATS = 5
TICKS = 0.02
"""Two ticks of the kernel's clock, in seconds: fewer of others' work are no news."""


def others() -> float:
    """Return the CPU seconds of everything but this process and those it has started and awaited."""
    spent = os.times()
    return timing.others() - spent.children_user - spent.children_system


def timed(*command: str, clean: bool = False) -> tuple[bool, float, str]:
    """Return whether others were at work during a command, its seconds and what it printed.

    ``clean``: without PYTHONPATH, so that what is installed is what runs.
    """
    environment = {name: value for name, value in os.environ.items() if not (clean and name == "PYTHONPATH")}
    start, before = time.perf_counter(), others()
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    seconds = time.perf_counter() - start
    return others() - before > 0.25 * seconds + TICKS, seconds, done.stdout


def starts() -> timing.Row:
    """Return the best seconds of each way to start, all taking turns, and the ratio of our help to it."""
    turns = [{name: timed(*command)[:2] for name, command in STARTS.items()} for _ in range(ROUNDS)]
    best = {name: min(turn[name] for turn in turns) for name in STARTS}  # an undisturbed one sorts first
    ours = best["metricgrad --help"][1]
    rows = {
        name: {"seconds": seconds, "help_ratio": ours / seconds, "disturbed": disturbed}
        for name, (disturbed, seconds) in best.items()
    }
    for name, row in rows.items():
        print(f"{name:22}{_seconds(row)}, metricgrad --help / it {row['help_ratio']:.2f}")
    return rows


def comparison(title: str, *words: str, program: tuple[str, ...] = METRICGRAD) -> timing.Row:
    """Run a command that compares and return how long it took, and on what."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = (*program, *words, "--out", str(run), "--json")
        disturbed, seconds, printed = timed(*command, clean=program != METRICGRAD)
        megabytes = (run / "report.html").stat().st_size / 1e6
    told = json.loads(printed)
    names = list(dict.fromkeys(row["contender"] for row in told["leaderboard"]))
    about = {"rows": told["data"]["rows"], "repeats": told["repeats"], "contenders": names, "report_mb": megabytes}
    row = {"seconds": seconds, "disturbed": disturbed, **about}
    print(
        f"{title:22}{_seconds(row)}, {about['rows']:,} rows, {len(names)} contenders, {about['repeats']} repeats, "
        f"report {megabytes:.2f} MB",
        flush=True,
    )
    return row


def adult(data: Path) -> timing.Row:
    """Compare all contenders on adult."""
    features, y = load("adult", data)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "adult.csv"
        features.assign(income=y).to_csv(table, index=False)
        return comparison("compare on adult", "compare", str(table), "--target", "income", "--repeats", str(REPEATS))


def installed() -> timing.Row:
    """Do as the README's first command does, elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "bin"
        made = timed(sys.executable, "-m", "venv", folder, clean=True)
        brought = timed(str(place / "pip"), "install", "-q", "-c", "constraints.txt", ".[app]", clean=True)
        row = {"seconds": made[1] + brought[1], "disturbed": made[0] or brought[0]}
        print(f"{'install':22}{_seconds(row)}", flush=True)
        demo = comparison("demo, installed", "demo", program=(str(place / "metricgrad"),))
    total = {"seconds": row["seconds"] + demo["seconds"], "disturbed": row["disturbed"] or demo["disturbed"]}
    print(f"{'install and demo':22}{_seconds(total)}")
    return {"install": row, "demo": demo, "total": total}


def _seconds(row: timing.Row) -> str:
    return f"{'~' if row['disturbed'] else ''}{row['seconds']:.3g} s"


def main() -> None:
    """Run everything, print it and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="the folder of data sets; also compare on adult")
    parser.add_argument("--install", action="store_true", help="also install into a fresh environment (minutes)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    command = (
        "python benchmarks/application.py" + " --data FOLDER" * bool(options.data) + " --install" * options.install
    )
    found = {"command": command, "machine": timing.machine("typer")}
    print()
    found["start"] = starts()
    found["demo"] = comparison("demo", "demo")
    if options.data:
        found["adult"] = adult(options.data)
    if options.install:
        found["readme"] = installed()
    timing.write(found, options.json)


if __name__ == "__main__":
    main()
