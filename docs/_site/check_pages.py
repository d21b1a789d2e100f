"""Look at the pages of the built site in Chromium, as wide as a phone and as a laptop, light and dark.

    python docs/_site/check_pages.py build/docs [PAGE ...]

No page may be wider than the window, complain in the console, ask another site for anything, or have text without
contrast; nothing of the first page may be cut off. Skipped where there is no Chromium, unless METRICGRAD_CHROMIUM
demands it. Pages of single names are alike: a few of them are looked at.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

WIDTHS = (390, 1280)
THEMES = ("light", "dark")
NAMES_LOOKED_AT = 12
"""How many pages of single names are looked at."""
OTHERS = ("_static", "_images", "_downloads", "demo-report.html", "genindex.html", "search.html")
"""What is not ours, or is checked elsewhere: the theme's templates, lists, and the report."""

# How much wider than the window the page is.
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# What can only be read by scrolling sideways, or not at all.
CUT_OFF = """() => [...document.querySelectorAll("article pre, article table, article img, article p, article li")]
  .filter((e) => e.checkVisibility() && !e.closest("td, th"))
  .filter((e) => {
    const box = e.getBoundingClientRect();
    const holder = e.closest(".pst-scrollable-table-container, div.highlight") ?? e;
    return box.right > window.innerWidth + 1 || holder.scrollWidth > holder.clientWidth + 1;
  })
  .map((e) => `${e.tagName} ${e.textContent.trim().replace(/\\s+/g, " ").slice(0, 40)}`)"""
# Every text of the article and its background, by the formula of the Web Content Accessibility Guidelines 2.2.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const pixel = (colour, under) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const c of [under, colour]) { if (c) { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); } }
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const css = (p) => `rgb(${p[0]} ${p[1]} ${p[2]})`;
  const known = new Map();
  const ground = (e) => {
    if (!e) return "white";
    if (!known.has(e)) known.set(e, css(pixel(getComputedStyle(e).backgroundColor, ground(e.parentElement))));
    return known.get(e);
  };
  const poor = new Map();
  for (const e of document.querySelectorAll("article *")) {
    const hasText = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!hasText || !e.checkVisibility({opacityProperty: true}) || e.closest("math, .headerlink, .copybtn")) continue;
    const style = getComputedStyle(e);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const [a, b] = [light(pixel(style.color, ground(e))), light(pixel(ground(e)))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    const words = `${e.textContent.trim().slice(0, 30)}: ${contrast.toFixed(2)}`;
    if (contrast < (isLarge ? 3 : 4.5)) poor.set(e.className + style.color, words);
  }
  return [...poor.values()];
}"""


def list_pages(site: Path) -> list[Path]:
    """Return the pages to look at."""
    pages = [page for page in sorted(site.rglob("*.html")) if not set(page.relative_to(site).parts) & set(OTHERS)]
    names = [page for page in pages if page.parent.name == "api"]
    step = max(1, len(names) // NAMES_LOOKED_AT)
    return [page for page in pages if page.parent.name != "api"] + names[::step]


def look_at(browser: Any, file: Path, is_first: bool) -> list[str]:
    """Return what is wrong with a page."""
    wrong: list[str] = []
    context = browser.new_context(viewport={"width": WIDTHS[0], "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.on("console", lambda message: wrong.append(f"console: {message.text}") if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", lambda request: None if is_local(request.url) else wrong.append(f"asks for {request.url}"))
    page.goto(file.as_uri())
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        if (beyond := page.evaluate(OVERFLOW)) > 0:
            wrong.append(f"{width} px: {beyond} px wider than the window")
        if is_first:
            wrong += [f"{width} px: cut off: {what}" for what in page.evaluate(CUT_OFF)]
    for theme in THEMES:
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        wrong += [f"{theme}: too little contrast: {what}" for what in page.evaluate(CONTRAST)]
    context.close()
    return wrong


def is_local(address: str) -> bool:
    """Return whether a request stays in the site."""
    return address.startswith(("file:", "data:"))


def main(site: Path, only: list[str]) -> int:
    """Print what is wrong with the pages, and return how the script ends."""
    wish = os.environ.get("METRICGRAD_CHROMIUM", "")
    names = (wish, "chromium", "chromium-browser", "google-chrome")
    found = [shutil.which(name) for name in names if name and shutil.which(name)]
    if not found:
        print("no Chromium here: the pages were not looked at")
        return 1 if wish else 0
    from playwright.sync_api import sync_playwright

    site = site.resolve()
    pages = [site / name for name in only] or list_pages(site)
    count = 0
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found[0], args=["--no-sandbox"])
        for page in pages:
            for what in look_at(browser, page, is_first=page == site / "index.html"):
                count += 1
                print(f"{page.relative_to(site)}: {what}")
        browser.close()
    print(f"{len(pages)} pages at {' and '.join(map(str, WIDTHS))} px, light and dark: {count} wrong")
    return 1 if count or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
