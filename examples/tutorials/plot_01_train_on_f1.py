"""
Train on F1 in plain PyTorch
============================

Swap ``BCEWithLogitsLoss`` for :class:`metricgrad.MetricLoss`, and the network is trained on the F1 that it will be
evaluated by. Everything else in the training loop stays as it is.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_classification
from torch import nn

import metricgrad as mg

# %%
# The data
# --------
#
# A made-up problem: 5 % of the rows are positive, some of them hard to find. A third of the rows is for training, a
# third for tuning the threshold, a third for evaluation.

features, labels = make_classification(
    12000, 12, n_informative=6, weights=[0.95], class_sep=1.2, flip_y=0.01, random_state=0
)
x, y = torch.tensor(features, dtype=torch.float32), torch.tensor(labels)
(x_train, x_tune, x_test), (y_train, y_tune, y_test) = x.split(4000), y.split(4000)
print(f"{y.float().mean():.1%} positives")

# %%
# Training
# --------
#
# One function trains with any loss. The last layer gives logits, and the loss takes logits: no sigmoid in between. A
# metric is one number of the whole batch, so batches must have positives; with 512 rows they have about 28.


def train(loss):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    for _epoch in range(20):
        for rows in torch.randperm(len(x_train)).split(512):
            optimiser.zero_grad()
            loss(model(x_train[rows]), y_train[rows].float()).backward()
            optimiser.step()
    return model.eval()


models = {"cross-entropy": train(nn.BCEWithLogitsLoss()), "F1 loss": train(mg.MetricLoss("f1"))}

# %%
# Evaluation
# ----------
#
# Evaluated at the usual 0.5, and at a threshold that is tuned exactly for F1 on rows that were not trained on:

with torch.no_grad():
    scores = {name: (model(x_tune).sigmoid(), model(x_test).sigmoid()) for name, model in models.items()}
for name, (on_tune, on_test) in scores.items():
    tuned = mg.tune_threshold("f1", on_tune, y_tune).threshold
    fixed = mg.evaluate(on_test, y_test, ["f1", "average_precision"])
    moved = mg.evaluate(on_test, y_test, "f1", threshold=tuned)
    print(
        f"{name:14s} F1 at 0.5: {fixed['f1']:.3f}   at {tuned:.3f}, tuned: {moved['f1']:.3f}"
        f"   average precision: {fixed['average_precision']:.3f}"
    )

# %%
# Why
# ---
#
# Cross-entropy gives probabilities, and the best threshold for F1 is below one half, since positives are rare. The F1
# loss pushes scores to both ends, so that most thresholds are nearly as good as the best, 0.5 among them. With a tuned
# threshold the two are close: what a metric loss gives here is a model that needs no tuning, not one that knows more.
# Its scores even rank a little worse, as the average precision shows; :class:`metricgrad.HybridLoss` keeps the ranking
# of cross-entropy.

figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, (_, on_test) in scores.items():
    curve = mg.curves.curve(on_test, y_test)
    ax.plot(curve.thresholds, mg.metrics.f1(curve.counts), label=name)
ax.axvline(0.5, color="grey", linestyle=":", label="0.5")
ax.set(xlabel="threshold", ylabel="F1 on test rows", xlim=(0, 1))
ax.legend()
plt.show()
