"""Plain PyTorch, or timm's loop: F1 of batches of 1024 in the memory of 128; log, stop and checkpoint by F1; tune.

python examples/plain_pytorch.py
"""

from __future__ import annotations

import tempfile

import torch
from torch import Tensor, nn

import metricgrad as mg


def data(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return features and rare positives."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 8, generator=g)
    return x, (x[:, :3].sum(1) + 0.5 * torch.randn(rows, generator=g) > 2.5).float()


def main() -> dict[str, float]:
    """Train, tune and evaluate."""
    torch.manual_seed(0)
    x, y = data(4096, seed=0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    loss = mg.HybridLoss("f1")
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    unseen, truth = data(2000, seed=2)
    before = mg.evaluate(model(unseen), truth, "f1", threshold=0.0)["f1"]
    validation, labels = data(2000, seed=1)
    values: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = mg.Checkpoint(folder)
        while len(values) < 15 and max(values, default=0) in [0, *values[-3:]]:  # the best is one of the last three
            for rows in torch.randperm(len(x)).split(1024):
                optimiser.zero_grad()
                # The mean of the micro-batches' gradients is not the gradient of the batch; this is, in two passes.
                mg.exact_backward(loss, model, [(x[part], y[part]) for part in rows.split(128)])
                optimiser.step()
            tuning = mg.tune_threshold("f1", model(validation), labels)  # at 0 the F1 of the first epochs is low
            values.append(tuning.value)
            print(f"epoch {len(values)}: {values[-1]:.3f}")
            if values[-1] == max(values):
                rule = tuning.rule
                checkpoint.save(model=model, optimiser=optimiser)
        checkpoint.load(model=model, optimiser=optimiser)
    after = mg.evaluate(model(unseen), truth, "f1", rule=rule)["f1"]
    print(f"plain PyTorch: F1 {before:.3f} before, {after:.3f} after")
    return {"before": before, "after": after, "best": max(values)}


if __name__ == "__main__":
    main()
