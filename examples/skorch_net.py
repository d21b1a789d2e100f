"""skorch: a metric loss as the criterion of a scikit-learn estimator.

skorch takes a step per batch and does not accumulate gradients: choose a batch size that gives positives.

python examples/skorch_net.py
"""

from __future__ import annotations

import torch
from skorch import NeuralNetBinaryClassifier
from torch import Tensor, nn

import metricgrad as mg


def both_classes(logits: Tensor) -> Tensor:
    """Return the probabilities of both classes, which skorch infers only for ``BCEWithLogitsLoss``."""
    p = torch.sigmoid(logits)
    return torch.stack((1 - p, p), 1)


def main() -> dict[str, float]:
    """Train and evaluate."""
    torch.manual_seed(0)
    x = torch.randn(4096, 8)
    y = (x[:, :3].sum(1) + 0.5 * torch.randn(4096) > 2.5).float()
    net = NeuralNetBinaryClassifier(
        nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0)),
        criterion=mg.HybridLoss,
        criterion__metric="f1",
        predict_nonlinearity=both_classes,
        optimizer=torch.optim.Adam,
        lr=0.01,
        batch_size=1024,
        max_epochs=10,
        train_split=None,
        verbose=0,
    ).initialize()
    before = mg.evaluate(net.predict_proba(x.numpy())[:, 1], y, "f1")["f1"]
    net.fit(x.numpy(), y.numpy())
    after = mg.evaluate(net.predict_proba(x.numpy())[:, 1], y, "f1")["f1"]
    print(f"skorch: F1 {before:.3f} before, {after:.3f} after")
    return {"before": before, "after": after}


if __name__ == "__main__":
    main()
