"""PyTorch Lightning: the loss, exact accumulation by manual optimisation, and logging, stop and checkpoint by F1.

``Trainer(accumulate_grad_batches=...)`` would average the gradients of the parts, which is not the gradient of the
batch's F1.

python examples/lightning_module.py
"""

from __future__ import annotations

import tempfile
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import metricgrad as mg


class Classifier(lightning.LightningModule):  # type: ignore[misc]
    """A network trained on F1; ``micro``: the size of the parts of a batch, or None for whole batches."""

    def __init__(self, micro: int | None = None) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
        self.loss, self.micro = mg.HybridLoss("f1"), micro
        self.evaluator = mg.Evaluator("f1", threshold=0.0, keep_scores=True)
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

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        self.evaluator.update(self.network(batch[0]), batch[1])

    def on_validation_epoch_end(self) -> None:
        total = self.evaluator.merged() if self.trainer.world_size > 1 else self.evaluator  # all processes' rows
        self.log("f1", total.tune("f1").value)  # at the best threshold: at zero the F1 of the first epochs is low
        self.evaluator.reset()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main(micro: int | None = 128) -> dict[str, Any]:
    """Train and evaluate."""
    lightning.seed_everything(0, verbose=False)
    x = torch.randn(6144, 8)
    y = (x[:, :3].sum(1) + 0.5 * torch.randn(6144) > 2.5).float()
    train, validation, test = (TensorDataset(x[part], y[part]) for part in torch.arange(6144).split([4096, 1024, 1024]))
    model = Classifier(micro)
    before = mg.evaluate(model.network(test.tensors[0]), test.tensors[1], "f1", threshold=0.0)["f1"]
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(f"{folder}/best", monitor="f1", mode="max")
        stop = EarlyStopping("f1", mode="max", patience=3)
        quiet: Any = dict.fromkeys(("enable_progress_bar", "enable_model_summary"), False)
        trainer = lightning.Trainer(
            max_epochs=10,
            accelerator="cpu",
            logger=CSVLogger(folder),
            log_every_n_steps=4,
            callbacks=[best, stop],
            **quiet,
        )
        trainer.fit(model, DataLoader(train, 1024, shuffle=True), DataLoader(validation, 1024))
        model = Classifier.load_from_checkpoint(best.best_model_path, micro=micro)
    rule = mg.tune_threshold("f1", model.network(validation.tensors[0]), validation.tensors[1]).rule
    after = mg.evaluate(model.network(test.tensors[0]), test.tensors[1], "f1", rule=rule)["f1"]
    print(f"Lightning: F1 {before:.3f} before, {after:.3f} after")
    weights = model.network.state_dict()
    return {"before": before, "after": after, "best": float(best.best_model_score), "weights": weights}


if __name__ == "__main__":
    main()
