"""Draw the idea, docs/idea.svg: the hard step has no gradient, the soft step has one, and counts and metric follow.

python docs/_site/idea_picture.py

Counts, values and gradients are computed by the library. The picture follows the reader's light or dark mode.
"""

from __future__ import annotations

from pathlib import Path

import torch

import metricgrad as mg

PICTURE = Path(__file__).parents[1] / "idea.svg"
PROBABILITIES = [0.08, 0.22, 0.38, 0.44, 0.58, 0.66, 0.8, 0.93]
LABELS = [0, 0, 1, 0, 0, 1, 1, 1]
STYLE = """
svg { --ink: #24292f; --soft: #57606a; --line: #c4ccd4; --card: #ffffff; --yes: #b3401a; --no: #1f6feb; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --soft: #9aa4af; --line: #48515c; --card: #14181e; --yes: #ff9d76; --no: #79b8ff; }
}
text { font: 20px system-ui, sans-serif; fill: var(--ink); }
.title { font-weight: 700; } .note { fill: var(--soft); font-size: 18px; } .middle { text-anchor: middle; }
.curve, .axis, .box, .back { fill: none; stroke: var(--line); stroke-width: 1.5; }
.curve { stroke: var(--ink); stroke-width: 2.5; } .back { stroke: var(--yes); stroke-width: 2; }
.yes { fill: var(--yes); } .no { fill: var(--no); } .card { fill: var(--card); }
"""


def main() -> None:
    """Draw."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 420" role="img">',
        "<title>The hard step has no gradient; a soft step has one, and so have counts and metric</title>",
        f"<style>{STYLE}</style>",
        '<rect class="card" width="680" height="420" rx="10"/>',
        *panel(20, "Evaluated: the hard step", mg.surrogates.Hard(), "no gradient: training cannot use it"),
        *panel(350, "Trained on: a soft step", mg.surrogates.Linear(), "a gradient for every sample"),
        '<circle class="yes" cx="36" cy="390" r="6"/><text class="note" x="50" y="396">positive</text>',
        '<circle class="no" cx="146" cy="390" r="6"/><text class="note" x="160" y="396">negative</text>',
        '<text class="note" x="360" y="396">F1 = 2TP / (2TP + FP + FN)</text>',
        "</svg>",
    ]
    PICTURE.write_text("\n".join(parts) + "\n")
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1e3:.0f} kB")


def panel(left: int, title: str, step: mg.surrogates.Surrogate, note: str) -> list[str]:
    """Return one way from probabilities to the metric, from the top down."""
    width, top, height = 290, 50, 130
    logits = torch.logit(torch.tensor(PROBABILITIES, dtype=torch.float64)).requires_grad_()
    labels = torch.tensor(LABELS)
    loss = mg.MetricLoss("f1", surrogate=step)
    counts = loss.counts(logits, labels)
    value = loss.value(counts)

    def at(p: float, m: float) -> tuple[float, float]:
        return left + 10 + p * (width - 20), top + height - m * height

    grid = torch.linspace(0.001, 0.999, 333, dtype=torch.float64)
    curve = step(torch.logit(grid).unsqueeze(1)).flatten().tolist()
    line = " ".join("{:.1f},{:.1f}".format(*at(p, m)) for p, m in zip(grid.tolist(), curve, strict=True))
    memberships = step(logits.detach().unsqueeze(1)).flatten().tolist()
    parts = [
        f'<text class="title" x="{left}" y="28">{title}</text>',
        f'<path class="axis" d="M{left + 10} {top} V{top + height} H{left + width - 10}"/>',
        f'<polyline class="curve" points="{line}"/>',
    ]
    for p, m, label in zip(PROBABILITIES, memberships, LABELS, strict=True):
        x, y = at(p, m)
        parts.append(f'<circle class="{"yes" if label else "no"}" cx="{x:.1f}" cy="{y:.1f}" r="6"/>')
    middle = left + width / 2
    parts += [
        f'<text class="note middle" x="{middle}" y="{top + height + 22}">probability → predicted: 0 to 1</text>',
        *_boxes(left, counts, top + height + 40),
    ]
    parts += [
        f'<text class="title middle" x="{middle}" y="318">F1 = {value.item():.2f}</text>',
        f'<text class="note middle" x="{middle}" y="346">{note}</text>',
    ]
    gradient = torch.autograd.grad(loss(logits, labels), logits)[0]
    if (gradient != 0).all():
        x = left + width + 6
        parts.append(f'<path class="back" d="M{x} 325 V110 m-6 9 l6 -9 l6 9"/>')
        parts.append(f'<text class="note middle" transform="translate({x + 20} 218) rotate(-90)">gradient</text>')
    elif (gradient != 0).any():
        raise SystemExit("the picture says that all samples have a gradient, or none has; some have")
    return parts


def _boxes(left: int, counts: mg.Counts, top: int) -> list[str]:
    parts = []
    for i, name in enumerate(("tp", "fp", "fn", "tn")):
        x, value = left + 10 + 68 * i, getattr(counts, name).sum().item()
        parts.append(f'<rect class="box" x="{x}" y="{top}" width="62" height="56" rx="6"/>')
        parts.append(f'<text class="note middle" x="{x + 31}" y="{top + 22}">{name.upper()}</text>')
        number = f"{value:.2f}".rstrip("0").rstrip(".") if value != round(value) else f"{value:.0f}"
        parts.append(f'<text class="middle" x="{x + 31}" y="{top + 44}">{number}</text>')
    return parts


if __name__ == "__main__":
    main()
