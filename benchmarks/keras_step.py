"""A step of the losses on Keras, value and gradient under ``jax.jit``, against Keras's binary cross-entropy.

KERAS_BACKEND=jax python benchmarks/keras_step.py --json benchmarks/results/keras_step.json

The losses are of (4096, 100) logits in float32. Read the ratios: milliseconds are one machine's.
"""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import keras
import numpy as np
import torch

import metricgrad.keras as mk
from timing import Run, arguments, machine, ms, race, write

ROWS, CLASSES = 4096, 100
LOSSES = {
    "BinaryCrossentropy": keras.losses.BinaryCrossentropy(from_logits=True),
    "MetricLoss f1": mk.MetricLoss("f1", task="multilabel"),
    "MetricLoss mcc": mk.MetricLoss("mcc", task="multilabel"),
    "sigmoid_f1": mk.sigmoid_f1(),
    "HybridLoss f1": mk.HybridLoss("f1", task="multilabel"),
}


def step(loss: keras.losses.Loss) -> Run:
    """Return value and gradient as one compiled call."""
    make = np.random.default_rng(0)
    z = jax.device_put(make.normal(size=(ROWS, CLASSES)).astype(np.float32))
    y = jax.device_put((make.random((ROWS, CLASSES)) < 0.1).astype(np.float32))
    compiled = jax.jit(jax.value_and_grad(lambda logits, targets: loss(targets, logits)))
    return lambda: jax.block_until_ready(compiled(z, y))


def main() -> None:
    """Measure, print and write."""
    options = arguments(__doc__)
    about = machine("keras", "jax")
    unused = torch.zeros(1)  # the clock resets torch's gradients
    rows = race({name: (step(loss), unused) for name, loss in LOSSES.items()}, options.quick)
    least = rows["BinaryCrossentropy"]["ms"]
    for name, row in rows.items():
        row["ratio"] = row["ms"] / least
        print(f"{name:24}{ms(row):>10} ms{row['ratio']:8.2f} ×")
    write({"machine": about, "shape": [ROWS, CLASSES], "steps": rows}, options.json)


if __name__ == "__main__":
    main()
