"""PyTorch Lightning: the loss in ``training_step``, and exact accumulation by manual optimisation.

``Trainer(accumulate_grad_batches=...)`` would average the gradients of the parts, which is not the gradient of the
batch's F1.

python examples/lightning_module.py
"""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import metricgrad as mg


class Classifier(lightning.LightningModule):  # type: ignore[misc]
    """A network trained on F1; ``micro``: the size of the parts of a batch, or None for whole batches."""

    def __init__(self, micro: int | None = None) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
        self.loss, self.micro = mg.HybridLoss("f1"), micro
        self.automatic_optimization = micro is None

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor | None:
        x, y = batch
        if self.micro is None:
            return self.loss(self.network(x), y)  # type: ignore[no-any-return]
        optimiser: Any = self.optimizers()
        optimiser.zero_grad()
        mg.exact_backward(self.loss, self.network, list(zip(x.split(self.micro), y.split(self.micro), strict=True)))
        optimiser.step()
        return None

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main(micro: int | None = 128) -> dict[str, Any]:
    """Train and evaluate."""
    lightning.seed_everything(0, verbose=False)
    x = torch.randn(4096, 8)
    y = (x[:, :3].sum(1) + 0.5 * torch.randn(4096) > 2.5).float()
    model = Classifier(micro)
    before = mg.evaluate(model.network(x), y, "f1", threshold=0.0)["f1"]
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = lightning.Trainer(max_epochs=10, accelerator="cpu", **dict.fromkeys(quiet, False))
    trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=1024, shuffle=True))
    after = mg.evaluate(model.network(x), y, "f1", threshold=0.0)["f1"]
    print(f"Lightning: F1 {before:.3f} before, {after:.3f} after")
    return {"before": before, "after": after, "weights": model.network.state_dict()}


if __name__ == "__main__":
    main()
