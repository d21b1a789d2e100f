"""Accelerate: the same loop on any hardware; large batches in parts, exactly.

``accelerator.accumulate`` would average the gradients of the parts, which is not the gradient of the batch's F1.

accelerate launch examples/accelerate_loop.py
"""

from __future__ import annotations

from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import metricgrad as mg


def main(micro: int = 128) -> dict[str, Any]:
    """Train on batches of 1024 in parts of ``micro``, and evaluate."""
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    x = torch.randn(4096, 8)
    y = (x[:, :3].sum(1) + 0.5 * torch.randn(4096) > 2.5).float()
    network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    before = mg.evaluate(network(x), y, "f1", threshold=0.0)["f1"]
    model, optimiser, loader = accelerator.prepare(
        network, torch.optim.Adam(network.parameters(), lr=0.01), DataLoader(TensorDataset(x, y), 1024, shuffle=True)
    )
    # The metric of the batch over all processes, if there are several.
    loss = mg.HybridLoss("f1", process_group="world" if accelerator.num_processes > 1 else None)
    for _ in range(10):
        for features, targets in loader:
            optimiser.zero_grad()
            if micro < 1024:
                parts = zip(features.split(micro), targets.split(micro), strict=True)
                mg.exact_backward(loss, model, list(parts), scaler=accelerator.scaler)
            else:
                accelerator.backward(loss(model(features), targets))
            optimiser.step()
    after = mg.evaluate(network(x), y, "f1", threshold=0.0)["f1"]
    accelerator.print(f"Accelerate: F1 {before:.3f} before, {after:.3f} after")
    return {"before": before, "after": after, "weights": network.state_dict()}


if __name__ == "__main__":
    main()
