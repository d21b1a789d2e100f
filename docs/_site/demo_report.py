"""Make the report of the demo with the site: docs/_report/demo-report.html, which the first page links to."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from metricgrad.__main__ import main

NAME = "demo-report.html"


def write(docs: Path) -> None:
    """Run the demo in its quick form and keep its report, unless there is one."""
    report = docs / "_report" / NAME
    if report.exists():
        return
    report.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        code = main(["demo", "--quick", "--repeats", "2", "--jobs", "1", "--out", str(run)])
        if code:
            raise RuntimeError(f"the demo ended with {code}: pip install '.[app,demo]', and see what it printed")
        shutil.copy(run / "report.html", report)
