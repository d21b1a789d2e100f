"""Hugging Face Trainer: the loss as ``compute_loss_func``; exact gradient accumulation with a small subclass.

``compute_loss_func`` sees one micro-batch at a time: it is exact only with ``gradient_accumulation_steps=1``.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments, set_seed

import metricgrad as mg

LOSS = mg.HybridLoss("f1")


def loss_of_logits(logits: Tensor, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    """Return the loss; for a model that returns named outputs, use ``outputs.logits``."""
    return LOSS(logits, labels)  # type: ignore[no-any-return]


class ExactTrainer(Trainer):  # type: ignore[misc]
    """Backpropagates all micro-batches of a step as one batch, at the last of them."""

    def get_batch_samples(self, *args: Any) -> Any:
        self.micro, items = super().get_batch_samples(*args)
        return self.micro, items

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        if inputs is not self.micro[-1]:
            return torch.zeros(())
        batches = [(batch["input"], batch["labels"]) for batch in map(self._prepare_inputs, self.micro)]
        value: Tensor = mg.exact_backward(LOSS, model.train(), batches)
        return value


def main(micro: int = 128) -> dict[str, Any]:
    """Train on batches of 1024 in parts of ``micro``, and evaluate."""
    set_seed(0)
    x = torch.randn(4096, 8)
    y = (x[:, :3].sum(1) + 0.5 * torch.randn(4096) > 2.5).float()
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    steps = 1024 // micro
    before = mg.evaluate(model(x), y, "f1", threshold=0.0)["f1"]
    quiet: Any = {"report_to": [], "logging_strategy": "no", "save_strategy": "no", "disable_tqdm": True}
    how: Any = {"use_cpu": True, "learning_rate": 0.01, "num_train_epochs": 30, "remove_unused_columns": False, **quiet}
    with tempfile.TemporaryDirectory() as folder:
        parts = {"per_device_train_batch_size": micro, "gradient_accumulation_steps": steps}
        data = [{"input": a, "labels": b} for a, b in zip(x, y, strict=True)]
        (Trainer if steps == 1 else ExactTrainer)(
            model, TrainingArguments(folder, **how, **parts), train_dataset=data, compute_loss_func=loss_of_logits
        ).train()
    after = mg.evaluate(model(x), y, "f1", threshold=0.0)["f1"]
    print(f"Hugging Face Trainer: F1 {before:.3f} before, {after:.3f} after")
    return {"before": before, "after": after, "weights": model.state_dict()}


if __name__ == "__main__":
    main()
