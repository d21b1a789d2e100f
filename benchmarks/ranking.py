"""Time and memory of the ranking losses (forward + backward, float32) against the same written plainly, in one run.

    python benchmarks/ranking.py [--quick] [--json FILE]

Plain AUROC makes a table of samples × thresholds, plain WMW one of positives × negatives; for several classes, one
against one, there is such a table for each ordered pair of classes. Ratios are plain / ours: so many times faster, so
many times less memory. Targets are printed as ours / plain.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

import timing
from loss_step import linear_step
from metricgrad import AUROCLoss, WMWLoss
from metricgrad.surrogates import Linear, Sigmoid
from timing import Loss, Row

THRESHOLDS = 100
AREA, PAIRS = 100_000, 16_000
SEVERAL, CLASSES = 20_000, 10
"""Samples and classes of the areas one against one."""
GROWTH = [10**5, 10**6, 4 * 10**6]


def plain_area(member: Tensor, y: Tensor) -> Tensor:
    """Return 1 − the area under the ROC curve of memberships, thresholds down and samples across."""
    one, zero = torch.ones(1), torch.zeros(1)
    tpr = torch.cat([one, (member * y).sum(1) / y.sum(), zero])
    fpr = torch.cat([one, (member * (1 - y)).sum(1) / (1 - y).sum(), zero])
    return 1 - ((fpr[:-1] - fpr[1:]) * (tpr[:-1] + tpr[1:])).sum() / 2


def taus() -> Tensor:
    """Return the thresholds between 0 and 1, as a column."""
    return torch.arange(1, THRESHOLDS).unsqueeze(1) / THRESHOLDS


def plain_linear(z: Tensor, y: Tensor) -> Tensor:
    """Return soft-set AUROC with the linear step, δ = 0.1."""
    return plain_area(linear_step(torch.sigmoid(z), taus(), 0.1), y)


def plain_sigmoid(z: Tensor, y: Tensor) -> Tensor:
    """Return soft-set AUROC with the sigmoid step, k = 10."""
    return plain_area(torch.sigmoid(10 * (torch.sigmoid(z) - taus())), y)


def plain_pairs(z: Tensor, y: Tensor) -> Tensor:
    """Return WMW with γ = 0.2 and p = 2 from all pairs."""
    p = torch.sigmoid(z)
    apart = p[y == 1].unsqueeze(1) - p[y == 0]
    return (0.2 - apart).clamp_min(0.0).square().mean()


def plain_ovo(z: Tensor, y: Tensor) -> Tensor:
    """Return soft-set AUROC, one against one: the mean over ordered pairs of classes, on the rows of the two."""
    p, areas = torch.softmax(z, 1), []
    for i in range(CLASSES):
        for j in range(CLASSES):
            if i != j:
                both = (y == i) | (y == j)
                areas.append(plain_area(linear_step(p[both, i], taus(), 0.1), (y[both] == i).float()))
    return torch.stack(areas).mean()


def contenders(kind: str) -> dict[str, Loss]:
    """Return ours and the plain formulas of the same names."""
    if kind == "pairs":
        return {"ours WMW": WMWLoss(), "plain WMW": plain_pairs}
    if kind == "several":
        return {
            "ours ovo": AUROCLoss(thresholds=THRESHOLDS, task="multiclass", multi_class="ovo"),
            "plain ovo": plain_ovo,
        }
    return {
        "ours Linear": AUROCLoss(thresholds=THRESHOLDS),
        "ours Linear(width=0.5)": AUROCLoss(Linear(0.1, 0.5), THRESHOLDS),
        "ours Sigmoid(k=10)": AUROCLoss(Sigmoid(), THRESHOLDS),
        "plain Linear": plain_linear,
        "plain Sigmoid(k=10)": plain_sigmoid,
    }


SIZES = {"area": AREA, "pairs": PAIRS, "several": SEVERAL}
TITLES = {
    "area": f"AUROC at {THRESHOLDS} thresholds",
    "pairs": "WMW",
    "several": f"AUROC of {CLASSES} classes, one against one, at {THRESHOLDS} thresholds",
}


def data(size: int, kind: str = "area") -> tuple[Tensor, Tensor]:
    """Return logits and 0/1 targets, 20 % positives, or as many of each of the classes."""
    torch.manual_seed(0)
    if kind == "several":
        return torch.randn(size, CLASSES).mul_(2.0).requires_grad_(), torch.arange(size) % CLASSES
    return torch.randn(size).mul_(2.0).requires_grad_(), torch.rand(size).lt_(0.2)


def measure(kind: str, quick: bool) -> dict[str, Row]:
    """Return time and memory of every contender, and how many times as much its plain version takes."""
    z, y = data(SIZES[kind], kind)
    losses = contenders(kind)
    timing.check(losses, z, y)
    rows = timing.race({name: (timing.step(loss, z, y), z) for name, loss in losses.items()}, quick)
    for name, row in rows.items():
        row["memory"] = timing.alone(__file__, [kind, name])["first"]
    for name, row in rows.items():
        # The plain version does not mind the width.
        plain = rows[name.split("(width")[0].replace("ours", "plain")]
        row |= {"faster": plain["ms"] / row["ms"], "smaller": plain["memory"] / row["memory"]}
    return rows


def against_sort(quick: bool) -> dict[str, Row]:
    """Time WMW and torch's sort of a million scores."""
    z, y = data(10**6)
    runs: dict[str, tuple[timing.Run, Tensor]] = {
        "ours WMW": (timing.step(WMWLoss(), z, y), z),
        "torch.sort": (lambda: z.detach().sort(), z),
    }
    rows = timing.race(runs, quick)
    return {name: row | {"sorts": row["ms"] / rows["torch.sort"]["ms"]} for name, row in rows.items()}


def targets(found: dict[str, Any]) -> list[Row]:
    """Return what was aimed at beside what was measured."""
    several = found["several"]["ours ovo"]
    area, wmw, slope = found["area"]["ours Linear"], found["pairs"]["ours WMW"], found["growth"]["ours WMW"]
    disturbed = {
        key: any(row["disturbed"] for row in found[key].values()) for key in ("area", "pairs", "several", "sort")
    }
    return timing.marked(
        [
            ("AUROC, time / plain", 1 / area["faster"], 1 / 10, disturbed["area"]),
            ("AUROC, memory / plain", 1 / area["smaller"], 1 / 20, False),
            ("AUROC one against one, time / plain", 1 / several["faster"], 1 / 10, disturbed["several"]),
            ("WMW, time / plain", 1 / wmw["faster"], 1 / 100, disturbed["pairs"]),
            ("WMW of 1e6 / torch.sort", found["sort"]["ours WMW"]["sorts"], 40.0, disturbed["sort"]),
            ("WMW, slope of growth", slope["slope"], 1.15, slope["disturbed"]),
        ]
    )


def main() -> None:
    """Run everything, print it and write it down."""
    args = timing.arguments(__doc__)
    if args.memory:
        kind, name = args.memory
        small = data(4 * CLASSES, kind)
        print(json.dumps(timing.peaks(contenders(kind)[name], small, *data(SIZES[kind], kind))))
        return
    found: dict[str, Any] = {"machine": timing.machine(), "quick": args.quick}
    for kind, size in SIZES.items():
        found[kind] = measure(kind, args.quick)
        print(f"\n{TITLES[kind]}, {size} samples: milliseconds and plain / ours, memory / logits and plain / ours")
        for name, row in found[kind].items():
            print(f"{name:26}{timing.ms(row):>8} {row['faster']:7.1f}× {row['memory']:10.1f} {row['smaller']:7.1f}×")
    found["sort"] = against_sort(args.quick)
    print("\na million scores: milliseconds, and in sorts")
    for name, row in found["sort"].items():
        print(f"{name:26}{timing.ms(row):>8} {row['sorts']:7.2f}")
    sizes = GROWTH[:-1] if args.quick else GROWTH
    losses: dict[str, Loss] = {"ours WMW": WMWLoss(), "ours AUROC": AUROCLoss(thresholds=THRESHOLDS)}
    found["growth"] = timing.growth(losses, {size: data(size) for size in sizes}, args.quick)
    timing.show_growth(found["growth"])
    found["targets"] = targets(found)
    timing.show_targets(found["targets"])
    timing.write(found, args.json)


if __name__ == "__main__":
    main()
