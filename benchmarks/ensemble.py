"""Time and memory of ensemble selection against a plain loop that tunes every candidate, in one run.

    python benchmarks/ensemble.py [--quick] [--json FILE]

Twelve candidates, binary F1, an exact threshold in every step. The plain loop calls ``tune_threshold`` for every
candidate in every round; it runs for two rounds, and its time for all is scaled from them. CPU seconds, since the
machine may be shared; read the ratio. Targets are printed beside what was measured; a missed one does not fail the run.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import metricgrad as mg
from timing import allocated_peak, arguments, machine, marked, show_targets, write

if TYPE_CHECKING:
    from collections.abc import Callable

CANDIDATES, ROUNDS, LOOPED = 12, 25, 2


def data(rows: int) -> tuple[dict[str, Tensor], Tensor]:
    """Return the scores of candidates that know different things, and targets, one in eight positive."""
    g = torch.Generator().manual_seed(0)

    def noise() -> Tensor:
        return torch.randn(rows, generator=g, dtype=torch.float64)

    z = 3 * noise() - 4
    y = (torch.rand(rows, generator=g) < z.sigmoid()).long()
    return {f"candidate {i}": (z + (0.5 + 0.2 * i) * noise()).sigmoid() for i in range(CANDIDATES)}, y


def loop(scores: dict[str, Tensor], y: Tensor, rounds: int) -> float:
    """Select as a plain loop would, and return the value."""
    total, value = torch.zeros(len(y), dtype=torch.float64), 0.0
    for size in range(1, rounds + 1):
        values = {name: mg.tune_threshold("f1", (total + s) / size, y).value for name, s in scores.items()}
        best = max(values, key=lambda name: values[name])
        total, value = total + scores[best], values[best]
    return value


def seconds(run: Callable[[], Any], repeats: int) -> float:
    """Return the CPU seconds of the best of some runs."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def main() -> None:
    """Measure, print and write."""
    options = arguments(__doc__)
    found: dict[str, Any] = {"machine": machine("scikit-learn"), "candidates": CANDIDATES, "rounds": ROUNDS, "rows": {}}
    sizes = (10_000, 100_000) if options.quick else (10_000, 100_000, 1_000_000)
    print(
        f"\n{'rows':>9}{'once, s':>10}{'ten bags, s':>13}{'plain loop, s':>15}{'once / loop':>13}{'bytes / scores':>16}"
    )
    for rows in sizes:
        scores, y = data(rows)
        first = mg.select_ensemble("f1", scores, y, select_by="metric", rounds=LOOPED, bags=0).value
        assert abs(first - loop(scores, y, LOOPED)) < 1e-12, "the same selection"
        repeats = 3 if rows <= 100_000 else 1
        select = partial(mg.select_ensemble, "f1", scores, y, select_by="metric")
        row = {
            "once": seconds(partial(select, rounds=ROUNDS, bags=0), repeats),
            "bags": seconds(partial(select, rounds=ROUNDS, bags=10), 1),
            "loop": seconds(partial(loop, scores, y, LOOPED), 1) * ROUNDS / LOOPED,
            "memory": allocated_peak(partial(select, rounds=LOOPED, bags=0)) / (CANDIDATES * y.nbytes),
        }
        found["rows"][str(rows)] = row
        print(
            f"{rows:9}{row['once']:10.3g}{row['bags']:13.3g}{row['loop']:15.3g}{row['once'] / row['loop']:13.3g}"
            f"{row['memory']:16.3g}"
        )
    large = found["rows"]["100000"]
    found["targets"] = marked(
        [
            ("CPU seconds of 25 rounds over 12 candidates at 1e5 rows", large["once"], 5.0, False),
            ("the same, ten bags", large["bags"], 5.0, False),
        ]
    )
    show_targets(found["targets"])
    write(found, options.json)


if __name__ == "__main__":
    main()
