"""skorch: a metric loss as the criterion of a scikit-learn estimator; log, stop and checkpoint by F1.

skorch takes a step per batch and does not accumulate gradients: choose a batch size that gives positives.

python examples/skorch_net.py
"""

from __future__ import annotations

import tempfile

import torch
from skorch import NeuralNetBinaryClassifier
from skorch.callbacks import Checkpoint, EarlyStopping, EpochScoring
from torch import Tensor, nn

import metricgrad as mg


def both_classes(logits: Tensor) -> Tensor:
    """Return the probabilities of both classes, which skorch infers only for ``BCEWithLogitsLoss``."""
    p = torch.sigmoid(logits)
    return torch.stack((1 - p, p), 1)


def main() -> dict[str, float]:
    """Train and evaluate."""
    torch.manual_seed(0)
    x = torch.randn(5120, 8)
    y = (x[:, :3].sum(1) + 0.5 * torch.randn(5120) > 2.5).float()
    (train, test), (labels, truth) = ([part.numpy() for part in all_rows.split(4096)] for all_rows in (x, y))
    with tempfile.TemporaryDirectory() as folder:
        net = NeuralNetBinaryClassifier(
            nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0)),
            criterion=mg.HybridLoss,
            criterion__metric="f1",
            predict_nonlinearity=both_classes,
            optimizer=torch.optim.Adam,
            lr=0.01,
            batch_size=512,
            max_epochs=15,
            callbacks=[
                # Of a fifth of the rows, at a tuned threshold: at 0.5 the F1 of the first epochs is 0.
                EpochScoring(mg.scorer("f1", tuned=True), lower_is_better=False, name="f1"),
                EarlyStopping("f1", lower_is_better=False, patience=3),
                Checkpoint("f1_best", dirname=folder, load_best=True),
            ],
            verbose=0,
        ).initialize()
        before = mg.evaluate(net.predict_proba(test)[:, 1], truth, "f1")["f1"]
        net.fit(train, labels)
    after = mg.evaluate(net.predict_proba(test)[:, 1], truth, "f1")["f1"]
    print(f"skorch: F1 {before:.3f} before, {after:.3f} after")
    return {"before": before, "after": after, "best": max(net.history[:, "f1"])}


if __name__ == "__main__":
    main()
