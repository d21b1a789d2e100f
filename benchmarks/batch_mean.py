"""How far the mean loss over batches is from the metric of the epoch, with a thousand classes.

    python benchmarks/batch_mean.py [--json FILE]

A class that is absent from a batch has an F1 of 0 there, so with many classes every batch has a high macro loss,
however good the model. Logits of 1,000 classes, right for 94 % of the rows, are evaluated in batches and at once.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import torch

import metricgrad as mg

CLASSES = 1000
ROWS = 8192
BATCHES = (64, 256, 1024, 8192)
ACCURACY = 0.94
SEEDS = 3


def draw(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return confident logits, most of which are right, and the labels."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (ROWS,), generator=generator)
    is_right = torch.rand(ROWS, generator=generator) < ACCURACY
    predicted = y.where(is_right, torch.randint(CLASSES, (ROWS,), generator=generator))
    logits = torch.randn(ROWS, CLASSES, generator=generator)
    return logits.scatter(1, predicted.unsqueeze(1), 20.0), y


def measure(batch_rows: int, seed: int) -> dict[str, float]:
    """Return the mean loss over batches, and what the evaluator and the counts say of all of them together."""
    logits, y = draw(seed)
    loss = mg.MetricLoss("f1", task="multiclass")
    evaluator = mg.Evaluator("f1", task="multiclass")
    batch_losses = []
    counts = []
    for z, labels in zip(logits.split(batch_rows), y.split(batch_rows), strict=True):
        batch_losses.append(loss(z, labels).item())
        counts.append(loss.counts(z, labels))
        evaluator.update(z, labels)
    return {
        "mean_batch_loss": sum(batch_losses) / len(batch_losses),
        "loss_of_the_epoch": 1 - loss.value(sum(counts[1:], counts[0])).item(),
        "macro_f1": evaluator.compute()["f1"],
    }


def main() -> None:
    """Measure every batch size, print it and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    for batch_rows in BATCHES:
        runs = [measure(batch_rows, seed) for seed in range(SEEDS)]
        found[str(batch_rows)] = {name: sorted(run[name] for run in runs) for name in runs[0]}
        ranges = "  ".join(
            f"{name} {low:.3f} to {high:.3f}" for name, (low, *_, high) in found[str(batch_rows)].items()
        )
        print(f"batches of {batch_rows:5}: {ranges}", flush=True)
    if options.json:
        about = {"torch": torch.__version__, "python": platform.python_version(), "seeds": SEEDS, "rows": ROWS}
        options.json.write_text(json.dumps(about | {"batches": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
