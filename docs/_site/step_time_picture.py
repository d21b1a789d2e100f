"""Draw docs/step_time.svg: the time of a training step as a ratio to cross-entropy, by shape, ours and peers'.

python docs/_site/step_time_picture.py

The ratios are those of loss_step.json and loss_step_classes.json in benchmarks/results/. The picture follows the
reader's light or dark mode.
"""

from __future__ import annotations

import json
import math
from html import escape
from pathlib import Path

PICTURE = Path(__file__).parents[1] / "step_time.svg"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
# The first letters of a name in the results: the class of its mark, and its words in the legend.
FAMILIES = {"ours": "metricgrad", "plain": "the same, written plainly", "MONAI": "MONAI Dice", "torch-btg": "torch-btg"}
TASKS = {"binary": "one label or several", "multiclass": "several classes"}
TICKS = (0.5, 1, 2, 5, 10, 20, 50)
STYLE = """
svg { --ink: #24292f; --soft: #57606a; --line: #d0d7de; --card: #ffffff; }
svg { --ours: #1a7f37; --plain: #b3401a; --peer: #8250df; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --soft: #9aa4af; --line: #48515c; --card: #14181e; }
  svg { --ours: #56d364; --plain: #ff9d76; --peer: #d2a8ff; }
}
text { font: 17px system-ui, sans-serif; fill: var(--ink); } .note { fill: var(--soft); } .bold { font-weight: 700; }
.middle { text-anchor: middle; } .card { fill: var(--card); } .grid { stroke: var(--line); }
.one { stroke: var(--ink); stroke-width: 2; }
.ours { fill: var(--ours); } .plain { fill: var(--plain); }
.peer { fill: none; stroke: var(--peer); stroke-width: 2.5; }
"""
WIDTH, LEFT, RIGHT, ROW_HEIGHT, TOP = 640, 168, 24, 36, 124


def main() -> None:
    """Draw."""
    results = json.loads((RESULTS / "loss_step.json").read_text())
    results |= json.loads((RESULTS / "loss_step_classes.json").read_text())
    parts: list[str] = []
    y = TOP
    for task, words in TASKS.items():
        parts.append(f'<text class="bold" x="12" y="{y + 6}">{words}</text>')
        y += ROW_HEIGHT
        for shape, contenders in results[task].items():
            parts.append(f'<text x="24" y="{y + 6}">{escape(shape)}</text>')
            for name, found in contenders.items():
                family = find_family(name)
                if family:
                    parts.append(draw_mark(family, place(found["ratio"]), y))
            y += ROW_HEIGHT
    axis = []
    for tick in TICKS:
        kind = "one" if tick == 1 else "grid"
        axis.append(f'<path class="{kind}" d="M{place(tick)} {TOP - 14}V{y - 14}"/>')
        axis.append(f'<text class="note middle" x="{place(tick)}" y="{TOP - 22}">{tick:g}</text>')
    title = "Time of a step, as a ratio to cross-entropy (1)"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img">',
        f"<title>{title}, by shape of the logits</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="card" width="{WIDTH}" height="{y}" rx="8"/>',
        f'<text class="bold" x="12" y="26">{title}</text>',
        *draw_legend(),
        *axis,
        *parts,
        "</svg>",
    ]
    PICTURE.write_text("\n".join(lines) + "\n")
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1e3:.0f} kB")


def find_family(name: str) -> str:
    """Return the first letters of a contender that are in the legend, or nothing."""
    return next((family for family in FAMILIES if name.startswith(family)), "")


def draw_legend() -> list[str]:
    """Return what the marks mean, in one line."""
    parts = []
    x = 20
    for family, words in FAMILIES.items():
        parts.append(draw_mark(family, x, 56))
        parts.append(f'<text class="note" x="{x + 12}" y="62">{words}</text>')
        x += 50 + 8 * len(words)
    return parts


def draw_mark(family: str, x: float, y: float) -> str:
    """Return a mark: a disc for ours, a square for plain formulas, a ring or a diamond for peers."""
    if family == "ours":
        return f'<circle class="ours" cx="{x}" cy="{y}" r="6"/>'
    if family == "plain":
        return f'<rect class="plain" x="{x - 5}" y="{y - 5}" width="10" height="10"/>'
    if family == "MONAI":
        return f'<circle class="peer" cx="{x}" cy="{y}" r="6"/>'
    return f'<path class="peer" d="M{x} {y - 7}l7 7l-7 7l-7 -7z"/>'


def place(ratio: float) -> float:
    """Return the place of a ratio on the axis, which is logarithmic."""
    share = math.log(ratio / TICKS[0]) / math.log(TICKS[-1] / TICKS[0])
    return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)


if __name__ == "__main__":
    main()
