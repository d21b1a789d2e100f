"""A picture of a report as SVG, text and all: what a browser lays out, element by element, down to a section.

python benchmarks/report_picture.py REPORT.html docs/report.svg [--until "#mistakes"] [--width 1000]

Needs playwright (extra "test") and a Chromium.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

DRAW = Path(__file__).with_suffix(".js")


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--until", default="#mistakes", help="the element above which the picture ends")
    parser.add_argument("--width", type=int, default=1000)
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": options.width, "height": 900})
        page.goto(options.report.resolve().as_uri())
        text = page.evaluate(DRAW.read_text(), options.until)
        browser.close()
    options.picture.write_text(text)
    print(f"{options.picture}: {len(text.encode()) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
