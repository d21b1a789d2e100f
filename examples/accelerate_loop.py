"""Accelerate: the same loop on any hardware; large batches in parts, exactly; log, stop and checkpoint by F1.

``accelerator.accumulate`` would average the gradients of the parts, which is not the gradient of the batch's F1.

accelerate launch examples/accelerate_loop.py
"""

from __future__ import annotations

import tempfile
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
    x = torch.randn(6144, 8)
    y = (x[:, :3].sum(1) + 0.5 * torch.randn(6144) > 2.5).float()
    train, validation, test = (TensorDataset(x[part], y[part]) for part in torch.arange(6144).split([4096, 1024, 1024]))
    network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    before = mg.evaluate(network(test.tensors[0]), test.tensors[1], "f1", threshold=0.0)["f1"]
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    loaders = [DataLoader(train, 1024, shuffle=True), DataLoader(validation, 1024)]
    model, optimiser, loader, validation_loader = accelerator.prepare(network, optimiser, *loaders)
    # The metric of the batch over all processes, if there are several.
    loss = mg.HybridLoss("f1", process_group="world" if accelerator.num_processes > 1 else None)
    values: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        while len(values) < 10 and max(values, default=0) in [0, *values[-3:]]:  # the best is one of the last three
            for features, targets in loader:
                optimiser.zero_grad()
                if micro < 1024:
                    parts = zip(features.split(micro), targets.split(micro), strict=True)
                    mg.exact_backward(loss, model, list(parts), scaler=accelerator.scaler)
                else:
                    accelerator.backward(loss(model(features), targets))
                optimiser.step()
            evaluator = mg.Evaluator("f1", threshold=0.0, keep_scores=True)
            for features, targets in validation_loader:
                evaluator.update(model(features), targets)
            total = evaluator.merged() if accelerator.num_processes > 1 else evaluator  # all processes' rows
            tuning = total.tune("f1")  # the best threshold: at zero the F1 of the first epochs is low
            values.append(tuning.value)
            accelerator.log({"f1": values[-1]}, step=len(values))  # to the trackers of Accelerator(log_with=...)
            if values[-1] == max(values):
                rule = tuning.rule
                accelerator.save_state(folder)
        accelerator.load_state(folder)
    after = mg.evaluate(network(test.tensors[0]), test.tensors[1], "f1", rule=rule)["f1"]
    accelerator.print(f"Accelerate: F1 {before:.3f} before, {after:.3f} after")
    return {"before": before, "after": after, "best": max(values), "weights": network.state_dict()}


if __name__ == "__main__":
    main()
