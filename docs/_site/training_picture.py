"""Draw docs/training.svg: which loss to train with, as a decision tree that follows light or dark mode.

python docs/_site/training_picture.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path

PICTURE = Path(__file__).parents[1] / "training.svg"
# What is asked, which answer leads to the right, and what is there.
QUESTIONS = (
    (("Do you need probabilities", "or a ranking, not labels?"), "yes", ("cross-entropy;", "for a ranking AUROCLoss")),
    (
        ("Will a threshold be tuned", "on held-out rows?"),
        "no",
        ("HybridLoss, decide at 0.5;", "MetricLoss at small rates"),
    ),
    (("Are some labels or pixels", "rare?"), "yes", ("HybridLoss, tune at the end;", "positives in each batch")),
    (("Is a bound to be kept,", "as precision ≥ 0.9?"), "yes", ("any loss, tune_threshold", "with a confidence")),
)
LAST = ("cross-entropy, tuned;", "average five networks")
STYLE = """
svg { --ink: #24292f; --line: #8c959f; --card: #ffffff; --question: #f0f3f6; --answer: #ddf4ff; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --line: #8c959f; --card: #14181e; --question: #262c34; --answer: #0d3358; }
}
text { font: 20px system-ui, sans-serif; fill: var(--ink); text-anchor: middle; } .small { font-size: 18px; }
.card { fill: var(--card); } .question { fill: var(--question); } .answer { fill: var(--answer); }
.way { fill: none; stroke: var(--line); stroke-width: 2; marker-end: url(#tip); } .tip { fill: var(--line); }
"""
WIDTH, STEP, TOP, HEIGHT = 680, 104, 16, 64
QUESTION, ANSWER = (16, 280), (364, 300)
"""Left edge and width of the boxes."""


def main() -> None:
    """Draw."""
    height = TOP + STEP * len(QUESTIONS) + HEIGHT + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Which loss to train with: a decision tree</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>',
        f'<rect class="card" width="{WIDTH}" height="{height}" rx="10"/>',
    ]
    middle = QUESTION[0] + QUESTION[1] / 2
    right = QUESTION[0] + QUESTION[1]
    for i, (question, answer, then) in enumerate(QUESTIONS):
        y = TOP + STEP * i
        other = "no" if answer == "yes" else "yes"
        parts += [
            *draw_box("question", QUESTION, y, question),
            *draw_box("answer", ANSWER, y, then),
            f'<path class="way" d="M{right} {y + HEIGHT / 2}H{ANSWER[0]}"/>',
            f'<text class="small" x="{(right + ANSWER[0]) / 2 - 2}" y="{y + HEIGHT / 2 - 8}">{answer}</text>',
            f'<path class="way" d="M{middle} {y + HEIGHT}V{y + STEP}"/>',
            f'<text class="small" x="{middle + 24}" y="{y + HEIGHT + 26}">{other}</text>',
        ]
    parts += draw_box("answer", QUESTION, TOP + STEP * len(QUESTIONS), LAST)
    PICTURE.write_text("\n".join([*parts, "</svg>"]) + "\n")
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1e3:.0f} kB")


def draw_box(kind: str, place: tuple[int, int], y: int, lines: tuple[str, ...]) -> list[str]:
    """Return a box with its lines of text."""
    left, width = place
    parts = [f'<rect class="{kind}" x="{left}" y="{y}" width="{width}" height="{HEIGHT}" rx="8"/>']
    for i, line in enumerate(lines):
        parts.append(f'<text x="{left + width / 2}" y="{y + 27 + 24 * i}">{escape(line)}</text>')
    return parts


if __name__ == "__main__":
    main()
