"""
With Hugging Face's Trainer, and with Lightning
===============================================

A metric loss is an ``nn.Module`` of logits and targets, so every trainer takes it. One thing needs care: gradient
accumulation.
"""

import logging
import tempfile
import warnings

import lightning
import matplotlib.pyplot as plt
import torch
from torch import nn
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments, set_seed

import metricgrad as mg

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")
x = torch.randn(4096, 8, generator=torch.Generator().manual_seed(0))
noise = torch.randn(4096, generator=torch.Generator().manual_seed(1))
y = (x[:, :3].sum(1) + 0.5 * noise > 2.5).float()
print(f"{y.mean():.1%} positives")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))


def f1(model):
    with torch.no_grad():
        return mg.evaluate(model(x[2048:]), y[2048:], "f1", threshold=0.0)["f1"]


history = {"Hugging Face Trainer": [], "Lightning": []}
loss = mg.MetricLoss("f1")

# %%
# Hugging Face
# ------------
#
# ``compute_loss_func`` gets what the model returns (for their models: ``outputs.logits``), the
# labels, and the number of items, which a metric does not need.


class Remember(TrainerCallback):
    def on_epoch_end(self, args, state, control, model=None, **_):
        history["Hugging Face Trainer"].append(f1(model))


set_seed(0)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=512,
        num_train_epochs=10,
        learning_rate=0.01,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = Trainer(
        network(),
        arguments,
        train_dataset=[{"input": a, "labels": b} for a, b in zip(x[:2048], y[:2048], strict=True)],
        compute_loss_func=lambda logits, labels, num_items_in_batch=None: loss(logits, labels),
        callbacks=[Remember()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()

# %%
# Lightning
# ---------
#
# The loss is called in ``training_step``.


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = network()

    def training_step(self, batch, _):
        features, labels = batch
        return loss(self.network(features), labels)

    def on_train_epoch_end(self):
        history["Lightning"].append(f1(self.network))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


lightning.seed_everything(0, verbose=False)
quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
trainer = lightning.Trainer(max_epochs=10, accelerator="cpu", **dict.fromkeys(quiet, False))
batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x[:2048], y[:2048]), batch_size=512, shuffle=True)
trainer.fit(Classifier(), batches)

# %%
# Accumulation
# ------------
#
# ``gradient_accumulation_steps`` and ``accumulate_grad_batches`` average the gradients of the parts,
# and that is not the gradient of the batch: the F1 of a batch is not the mean of the F1 of its parts.
# :func:`metricgrad.exact_backward` computes the exact one, in the memory of one part:

model, rows = network(), torch.arange(512)
loss(model(x[rows]), y[rows]).backward()
whole = torch.cat([p.grad.flatten() for p in model.parameters()])
parts = [(x[part], y[part]) for part in rows.split(32)]
model.zero_grad()
for features, labels in parts:
    (loss(model(features), labels) / len(parts)).backward()
averaged = torch.cat([p.grad.flatten() for p in model.parameters()])
model.zero_grad()
mg.exact_backward(loss, model, parts)
exact = torch.cat([p.grad.flatten() for p in model.parameters()])
print(f"relative error of the gradient: averaged {(averaged - whole).norm() / whole.norm():.2f}", end="")
print(f", exact_backward {(exact - whole).norm() / whole.norm():.0e}")

# %%
# Epoch by epoch
# --------------
#
# ``examples/huggingface_trainer.py`` and ``examples/lightning_module.py`` put it into the two trainers, in a few lines.
# Below, Hugging Face's Trainer is slower because it lowers the learning rate to zero by default, not because of the
# loss.

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for name, values in history.items():
    ax.plot(range(1, len(values) + 1), values, "o-", label=name)
ax.set(xlabel="epoch", ylabel="F1 on rows not trained on")
ax.legend()
plt.show()
