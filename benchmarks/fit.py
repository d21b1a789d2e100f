"""Time of an epoch of the estimators' training loop against skorch, and of the metric loss against cross-entropy.

    python benchmarks/fit.py [--quick] [--json FILE]

Needs the extras ``sklearn`` and ``bench``. Random data of the shape of Adult, one-hot: 36,631 rows of 104 features,
24 % positives; the 32-16 network, batches of 1024, Adam, one thread for all. Read the ratios: milliseconds are one
machine's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from skorch import NeuralNetBinaryClassifier

from metricgrad import HybridLoss, MetricLoss, baselines
from metricgrad.training.networks import mlp
from metricgrad.training.training_loop import TrainingData, TrainingSettings, one_thread, train
from timing import Row, Run, arguments, machine, marked, ms, race, show, show_targets, write

ROWS, FEATURES, BATCH = 36_631, 104, 1024


def data() -> tuple[Any, Any]:
    """Return features and targets."""
    rng = np.random.default_rng(0)
    x = (rng.random((ROWS, FEATURES)) < 0.13).astype(np.float32)
    y = (x @ rng.normal(size=FEATURES) + rng.logistic(size=ROWS) > 2.2).astype(np.float32)
    return x, y


def skorch_epoch(x: Any, y: Any) -> Run:
    """Return an epoch of the same network in skorch with its default loader."""
    net = NeuralNetBinaryClassifier(
        lambda: mlp(FEATURES, 1),
        max_epochs=1,
        batch_size=BATCH,
        optimizer=torch.optim.Adam,
        train_split=None,
        verbose=0,
    )
    net.initialize()
    return lambda: net.partial_fit(x, y)


def our_epoch(x: Any, y: Any, loss: torch.nn.Module) -> Run:
    """Return an epoch of our loop with a loss."""
    rows = TrainingData(torch.from_numpy(x), torch.from_numpy(y))
    network, settings = mlp(FEATURES, 1), TrainingSettings(epochs=1, batch_size=BATCH, optimiser="adam")
    return lambda: train(network, loss, rows, settings)


def main() -> None:
    """Measure, print and write."""
    options = arguments(__doc__)
    found: dict[str, Any] = {"machine": machine("skorch"), "quick": options.quick}
    x, y = data()
    runs: dict[str, Run] = {
        "ours, cross-entropy": our_epoch(x, y, baselines.bce()),
        "ours, metric loss": our_epoch(x, y, MetricLoss("f1")),
        "ours, hybrid": our_epoch(x, y, HybridLoss("f1", metric_weight=1.0)),
        "skorch, cross-entropy": skorch_epoch(x, y),
    }
    with one_thread():
        rows: dict[str, Row] = race({name: (run, torch.zeros(())) for name, run in runs.items()}, options.quick)
    reference = rows["ours, cross-entropy"]
    for row in rows.values():
        row["ratio"] = row["ms"] / reference["ms"]
    found["epoch"] = rows
    show(
        "an epoch: milliseconds (ratio to cross-entropy in our loop)",
        {"adult": rows},
        lambda r: f"{ms(r)} ({r['ratio']:.2f}×)",
    )
    noisy = any(row["disturbed"] for row in rows.values())
    found["targets"] = marked(
        [
            ("our epoch / skorch's", 1 / rows["skorch, cross-entropy"]["ratio"], 1 / 5, noisy),
            ("metric loss / cross-entropy, end to end", rows["ours, metric loss"]["ratio"], 1.1, noisy),
        ]
    )
    show_targets(found["targets"])
    write(found, options.json)


if __name__ == "__main__":
    main()
