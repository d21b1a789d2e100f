"""Forest plots of verdicts, as SVG that is the same in every run and follows the reader's light or dark mode."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import fmean

from verdicts import Difference, Verdict, mean_over_sets

TEXT_WIDTH, PLOT_WIDTH, ROW_HEIGHT, TOP = 470, 380, 18, 56
LIMIT = 1.0
"""The largest difference on the axis, linear near 0 and logarithmic far from it; what is beyond stands there."""
BEND = 0.03
"""Where the axis turns from linear to logarithmic."""
TICKS = (-0.5, -0.2, -0.1, -0.03, 0.0, 0.03, 0.1, 0.2, 0.5)
STYLE = """
svg { --ink: #24292f; --soft: #57606a; --line: #d0d7de; --card: #ffffff; --ours: #1f6feb; --theirs: #b3401a; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --soft: #9aa4af; --line: #48515c; --card: #14181e; --ours: #79b8ff; --theirs: #ff9d76; }
}
text { font: 12px system-ui, sans-serif; fill: var(--ink); } .note { fill: var(--soft); } .bold { font-weight: 700; }
.middle { text-anchor: middle; } .card { fill: var(--card); }
.grid { stroke: var(--line); } .zero { stroke: var(--soft); }
.ours { fill: var(--ours); stroke: var(--ours); stroke-width: 2; } .one { fill: var(--ours); opacity: 0.45; }
.theirs { fill: var(--theirs); } .printed { fill: none; stroke: var(--ink); stroke-width: 1.5; }
"""


@dataclass(frozen=True)
class Line:
    """A row of the plot: what our protocols give and what is printed; a row without figures is a heading."""

    label: str
    corrected: Difference | None = None
    published: float | None = None
    printed: float | None = None
    dots: Sequence[float] = ()


def summary_lines(verdicts: Iterable[tuple[int, Verdict]]) -> list[Line]:
    """Return a row for every numbered verdict that has differences: means over its data sets, and a dot for each."""
    lines = []
    for number, verdict in verdicts:
        found = verdict.corrected.differences
        if not found:
            continue
        theirs = verdict.published.differences.values() if verdict.published is not None else ()
        lines.append(
            Line(
                f"{number}. {verdict.claim.tested}",
                mean_over_sets(found),
                fmean(d.mean for d in theirs) if theirs else None,
                fmean(verdict.printed.values()) if verdict.printed else None,
                [d.mean for d in found.values()] if len(found) > 1 else (),
            )
        )
    return lines


def detailed_lines(verdicts: Iterable[tuple[int, Verdict]]) -> list[Line]:
    """Return a heading for every numbered verdict that has differences, and a row for each of its data sets."""
    lines = []
    for number, verdict in verdicts:
        found = verdict.corrected.differences
        if not found:
            continue
        lines.append(Line(f"{number}. {verdict.claim.tested}"))
        theirs = verdict.published.differences if verdict.published is not None else {}
        for name, difference in found.items():
            published = theirs[name].mean if name in theirs else None
            printed = (verdict.printed or {}).get(name)
            lines.append(Line(f"{name} ({verdict.corrected.states[name]})", difference, published, printed))
    return lines


def draw_forest(lines: Sequence[Line], title: str, file: Path) -> bool:
    """Write the picture; return whether there was anything to draw."""
    if not lines:
        return False
    height = TOP + ROW_HEIGHT * len(lines) + 12
    width = TEXT_WIDTH + PLOT_WIDTH + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="card" width="{width}" height="{height}"/>',
        *_legend(),
    ]
    for tick in TICKS:
        x = place(tick)
        kind = "zero" if tick == 0 else "grid"
        parts.append(f'<path class="{kind}" d="M{x} {TOP - 4}V{height - 8}"/>')
        parts.append(f'<text class="note middle" x="{x}" y="{TOP - 10}">{tick:g}</text>')
    for i, line in enumerate(lines):
        parts += _draw_line(line, TOP + ROW_HEIGHT * i + 12)
    file.write_text("\n".join([*parts, "</svg>"]) + "\n")
    return True


def place(value: float) -> float:
    """Return the place of a difference on the axis, in pixels; what is beyond the limit is put there."""
    scale = math.asinh(LIMIT / BEND)
    share = math.asinh(max(-LIMIT, min(LIMIT, value)) / BEND) / scale
    return round(TEXT_WIDTH + PLOT_WIDTH / 2 * (1 + share), 1)


def _legend() -> list[str]:
    """Return what the marks mean."""
    words = (
        (0, "ours", "corrected, with its 95 % interval"),
        (235, "theirs", "published"),
        (335, "printed", "printed"),
    )
    parts = []
    for left, kind, text in words:
        parts.append(_mark(kind, left + 14, 18))
        parts.append(f'<text x="{left + 24}" y="22">{text}</text>')
    parts.append('<circle class="one" cx="424" cy="18" r="2.5"/><text x="434" y="22">corrected, one data set</text>')
    return parts


def _mark(kind: str, x: float, y: float) -> str:
    """Return a mark: a disc for ours, a diamond for the published protocol, a ring for what is printed."""
    if kind == "theirs":
        return f'<path class="theirs" d="M{x} {y - 5}l5 5l-5 5l-5 -5z"/>'
    return f'<circle class="{kind}" cx="{x}" cy="{y}" r="{3 if kind == "ours" else 5}"/>'


def _draw_line(line: Line, y: int) -> list[str]:
    """Return the marks of a row."""
    is_heading = line.corrected is None and not line.dots
    style = ' class="bold"' if is_heading else ""
    indent = 6 if is_heading or line.label[0].isdigit() else 24
    shown = line.label if len(line.label) <= 76 else line.label[:75] + "…"
    parts = [f'<text{style} x="{indent}" y="{y + 4}">{escape(shown)}</text>']
    parts += [f'<circle class="one" cx="{place(value)}" cy="{y}" r="2.5"/>' for value in line.dots]
    if line.printed is not None:
        parts.append(_mark("printed", place(line.printed), y))
    if line.published is not None:
        parts.append(_mark("theirs", place(line.published), y))
    if line.corrected is not None:
        if line.corrected.n > 1:  # one trial has no interval
            low, high = place(line.corrected.low), place(line.corrected.high)
            parts.append(f'<path class="ours" d="M{low} {y}H{high}"/>')
        parts.append(_mark("ours", place(line.corrected.mean), y))
    return parts
