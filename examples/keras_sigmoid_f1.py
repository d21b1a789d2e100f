"""Keras: sigmoidF1 as the loss of ``model.fit``, on TensorFlow, JAX or torch; log, stop and checkpoint by F1.

The data are the Yeast genes of Elisseeff and Weston (2001), 2417 genes in 14 functional groups, from the package
``river``. A batch of 256 has positives of nearly every group; the last layer has no activation: losses take logits.

KERAS_BACKEND=jax python examples/keras_sigmoid_f1.py
"""

from __future__ import annotations

import importlib.resources
import tempfile
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
    train, validation, test = np.split(np.random.default_rng(0).permutation(len(x)), [1400, 1800])
    layers = [keras.Input((x.shape[1],)), keras.layers.Dense(128, "relu"), keras.layers.Dense(len(GROUPS))]
    model = keras.Sequential(layers)
    model.compile(
        optimizer=keras.optimizers.Adam(0.003),
        loss=mk.sigmoid_f1(),
        metrics=[mk.ExactMetric("f1", task="multilabel", average="micro")],
    )
    before = model.evaluate(x[test], y[test], verbose=0, return_dict=True)["f1"]
    by_f1: Any = {"monitor": "val_f1", "mode": "max"}
    with tempfile.TemporaryDirectory() as folder:
        best = f"{folder}/best.weights.h5"
        callbacks = [
            keras.callbacks.EarlyStopping(**by_f1, patience=3),
            keras.callbacks.ModelCheckpoint(best, **by_f1, save_best_only=True, save_weights_only=True),
        ]
        held_out = (x[validation], y[validation])
        history = model.fit(  # the log; keras.callbacks.CSVLogger and TensorBoard write it to files
            x[train], y[train], epochs=20, batch_size=256, verbose=0, validation_data=held_out, callbacks=callbacks
        )
        model.load_weights(best)
    after = model.evaluate(x[test], y[test], verbose=0, return_dict=True)["f1"]
    print(f"Keras on {keras.backend.backend()}: micro F1 {before:.3f} before, {after:.3f} after")
    return {"before": before, "after": after, "best": max(history.history["val_f1"])}


if __name__ == "__main__":
    main()
