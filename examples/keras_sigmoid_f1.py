"""Keras: sigmoidF1 as the loss of ``model.fit``, on TensorFlow, JAX or torch.

The data are the Yeast genes of Elisseeff and Weston (2001), 2417 genes in 14 functional groups, from the package
``river``. A batch of 256 has positives of nearly every group; the last layer has no activation: losses take logits.

KERAS_BACKEND=jax python examples/keras_sigmoid_f1.py
"""

from __future__ import annotations

import importlib.resources
from typing import Any

import keras
import numpy as np
import pandas as pd

import metricgrad.keras as mk

GROUPS = [f"Class{k}" for k in range(1, 15)]


def load() -> tuple[Any, Any]:
    """Return features and labels."""
    with importlib.resources.as_file(importlib.resources.files("river") / "datasets" / "yeast.csv.gz") as path:
        table = pd.read_csv(path)
    x = table.drop(columns=GROUPS).to_numpy(np.float32)
    return (x - x.mean(0)) / x.std(0), table[GROUPS].to_numpy(np.float32)


def main() -> dict[str, float]:
    """Train and evaluate on held-out genes."""
    keras.utils.set_random_seed(0)
    x, y = load()
    train, test = np.split(np.random.default_rng(0).permutation(len(x)), [1600])
    layers = [keras.Input((x.shape[1],)), keras.layers.Dense(128, "relu"), keras.layers.Dense(len(GROUPS))]
    model = keras.Sequential(layers)
    model.compile(
        optimizer=keras.optimizers.Adam(0.003),
        loss=mk.sigmoid_f1(),
        metrics=[mk.ExactMetric("f1", task="multilabel", average="micro")],
    )
    before = model.evaluate(x[test], y[test], verbose=0, return_dict=True)["f1"]
    model.fit(x[train], y[train], epochs=10, batch_size=256, verbose=0)
    after = model.evaluate(x[test], y[test], verbose=0, return_dict=True)["f1"]
    print(f"Keras on {keras.backend.backend()}: micro F1 {before:.3f} before, {after:.3f} after")
    return {"before": before, "after": after}


if __name__ == "__main__":
    main()
