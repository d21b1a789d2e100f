"""How far a soft metric can be from the hard one: a bound by δ, the width of the ramp, and the scores at the threshold.

The linear step H has its knots at τ ∓ h, h = width · min(τ, 1 − τ) / 2. Its distance to the hard step falls on each
side from ½ at the threshold to δ at the knot, and then to 0 at the end. For the rows of one class, below the threshold,

    E[H; p < τ] ≤ δ a + D h ((1 + 2δ) / 4 + 1/40),

with a = E[p / (τ − h); p < τ − h], how far the scores of the tail are from 0, and D the largest of P(τ − x ≤ p < τ) / x
for h/20 ≤ x ≤ h, the density of scores at the threshold. (Write the distance on the ramp as a mean of indicators of
[τ − x, τ]; their masses are at most D x + D h/20, which gives D times the integral of the distance, h (1 + 2δ) / 4, and
½ · D h/20.) Above the threshold it is the same of 1 − p. Soft decisions exceed hard ones below the threshold and fall
short of them above it, so the rate of a class, hard, is within the one bound below its soft rate and within the other
above it. A metric that rises with the true positive rate and falls with the false positive rate is then between its
values at the ends. For F1 with a share r of positives, Δ being soft minus hard,

    ΔF1 = ((2 − F1) r Δu − F1 (1 − r) Δv) / (r + r u + (1 − r) v),   u and v soft, F1 hard:

with rare positives the error of the negatives' rate counts (1 − r) / r times. Nothing here depends on the number of
rows: the gap does not vanish with more of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from cells import Cell, Table
from metricgrad.surrogates import Linear
from theory import fit_network
from verdicts import Results, Verdict, judge_exactly

DELTAS, WIDTHS, TAU = (0.01, 0.1, 0.2), (0.1, 0.5, 1.0), 0.5
SHARPEST = 20
"""The density is taken over intervals of at least this part of half a ramp: single scores have none."""


@dataclass(frozen=True)
class Excess:
    """Bounds on how much of a class a soft step counts too much (below τ) and too little (above τ).

    Each is the sum of a part of the tail, δ a, and a part of the ramp.
    """

    too_much: float
    too_little: float
    tails: float
    ramps: float


def bound_excess(p: Tensor, step: Linear, tau: float = TAU) -> Excess:
    """Return the bounds for the scores of one class."""
    low, high = step.pieces(tau)[:2]
    below = _bound_side(p, tau, low, step.delta)
    above = _bound_side(1 - p, 1 - tau, 1 - high, step.delta)
    return Excess(sum(below), sum(above), below[0] + above[0], below[1] + above[1])


def _bound_side(p: Tensor, tau: float, knot: float, delta: float) -> tuple[float, float]:
    """Return the parts of the tail and of the ramp, of the side below a threshold."""
    h = tau - knot
    tail = delta * float(torch.where(p < knot, p / knot, 0.0).mean())
    return tail, density_at(p, tau, h) * h * ((1 + 2 * delta) / 4 + 1 / (2 * SHARPEST))


def density_at(p: Tensor, tau: float, h: float) -> float:
    """Return the largest P(τ − x ≤ p < τ) / x over h/20 ≤ x ≤ h; it is reached at a score, or at h/20."""
    distances = (tau - p[(p < tau) & (p >= tau - h)]).sort().values
    if not len(distances):
        return 0.0
    masses = torch.arange(1, len(distances) + 1, dtype=torch.float64) / len(p)
    return float((masses / distances.double().clamp_min(h / SHARPEST)).max())


def f1_of(u: float, v: float, r: float) -> float:
    """Return F1 from the true and the false positive rate and the share of positives."""
    u, v = min(max(u, 0.0), 1.0), min(max(v, 0.0), 1.0)
    return 2 * r * u / (r + r * u + (1 - r) * v)


def bound_f1(p: Tensor, y: Tensor, step: Linear, tau: float = TAU) -> dict[str, float]:
    """Return soft minus hard F1 of scores, the lowest and the highest that the bound allows, and its parts."""
    soft, hard = step.step(p, tau), (p >= tau).double()
    r = float((y == 1).double().mean())
    u, v = (float(soft[y == label].mean()) for label in (1, 0))
    of_positives, of_negatives = (bound_excess(p[y == label], step, tau) for label in (1, 0))
    value = f1_of(u, v, r)
    lowest = f1_of(u - of_positives.too_much, v + of_negatives.too_little, r)
    highest = f1_of(u + of_positives.too_little, v - of_negatives.too_much, r)
    hard_value = f1_of(float(hard[y == 1].mean()), float(hard[y == 0].mean()), r)
    return {
        "gap": value - hard_value,
        "lowest": value - highest,
        "highest": value - lowest,
        "tails": of_positives.tails + of_negatives.tails,
        "ramps": of_positives.ramps + of_negatives.ramps,
    }


def run_bound(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Fill a cell: the gap of F1 on test rows of a trained network, and its bound, for steps of many shapes."""
    data, _, shape = cell.data.partition(", ")
    z, y = fit_network(replace(cell, data=data), folder)
    delta, width = (float(part.partition(" ")[2]) for part in shape.split(", "))
    return bound_f1(torch.sigmoid(z), y, Linear(delta, width))


def _cells(protocol: str, trials: int) -> Iterable[Cell]:
    shapes = [f"δ {delta:g}, width {width:g}" for delta, width in product(DELTAS, WIDTHS)]
    return [
        Cell(protocol, row, f"{data}, {shape}", t)
        for t in range(trials)
        for data in ("mammography", "adult")
        for row in ("BCE", "F_1, linear")
        for shape in shapes
    ]


TABLES = {
    "theory-bound": Table(
        "The gap between soft and hard F1 on test rows of trained networks, and its bound, by δ and width",
        _cells,
        run_bound,
        trials=3,
        reduced="networks 32-16, at most 60 epochs, patience 15 (adult: 20 and 5)",
        protocols=("corrected",),
    ),
}


def judge_bound(results: Results) -> Verdict:
    """Judge whether every gap is within its bound, up to rounding."""
    found: dict[str, list[bool]] = {}
    spare, gaps = [], []
    for (table, protocol, row, data, metric), values in results.values.items():
        if table != "theory-bound" or metric != "gap":
            continue
        limits = [results.trials(table, protocol, row, data, name) for name in ("lowest", "highest")]
        for gap, low, high in zip(values.values(), *limits, strict=True):
            found.setdefault(f"{row} on {data.partition(',')[0]}", []).append(low - 1e-6 <= gap <= high + 1e-6)
            gaps.append(abs(gap))
            spare.append(max(-low, high) / abs(gap) if gap else 1.0)
    figures = ""
    if gaps:
        middle = sorted(spare)[len(spare) // 2]
        figures = f"{len(gaps)} gaps up to {max(gaps):.3f}; the bound is {middle:.1f} times the gap in the median"
    return judge_exactly("theory-q-bound", {case: all(inside) for case, inside in found.items()}, figures)
