"""
Several labels, some of them rare
=================================

Yeast has 2,417 genes and 14 labels; the rarest label has 34 positives, the most frequent 1,816. Macro-F1 counts every
label alike, so that the rare ones decide. Who finds them?
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from river import datasets
from torch import nn

import metricgrad as mg

rows = list(datasets.Yeast())
x = torch.tensor(np.array([list(features.values()) for features, _ in rows]), dtype=torch.float32)
y = torch.tensor(np.array([list(labels.values()) for _, labels in rows]), dtype=torch.float32)
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
x, y = x[order], y[order]
x = (x - x.mean(0)) / x.std(0)
train, tune, test = slice(0, 1200), slice(1200, 1800), slice(1800, None)
print(*y.shape, "positives per label:", y.sum(0).int().tolist())

# %%
# Three losses
# ------------
#
# The same network with three losses: cross-entropy, macro-F1, and their sum. A batch of 300 rows has on average four
# positives of the rarest label.


def fit(loss):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(103, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 14))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    for _epoch in range(30):
        for part in torch.randperm(1200).split(300):
            optimiser.zero_grad()
            loss(model(x[train][part]), y[train][part]).backward()
            optimiser.step()
    with torch.no_grad():
        return model.eval()(x).sigmoid()


scores = {
    "cross-entropy": fit(nn.BCEWithLogitsLoss()),
    "macro-F1 loss": fit(mg.MetricLoss("f1", task="multilabel")),
    "hybrid": fit(mg.HybridLoss("f1", metric_weight=0.3, task="multilabel")),
}

# %%
# Thresholds
# ----------
#
# At 0.5 cross-entropy predicts rare labels hardly ever. A threshold for each label repairs most of that;
# ``rare_labels="pooled"`` lets labels with fewer than 50 positives share one, since a threshold tuned on a handful of
# positives is noise.

for name, p in scores.items():
    tuning = mg.tune_threshold("f1", p[tune], y[tune], task="multilabel", rare_labels="pooled")
    at_half = mg.evaluate(p[test], y[test], "f1", task="multilabel")["f1"]
    tuned = mg.evaluate(p[test], y[test], "f1", task="multilabel", rule=tuning.rule)["f1"]
    print(f"{name:14s} macro-F1 at 0.5: {at_half:.3f}   tuned: {tuned:.3f}")

# %%
# Is it more than chance?
# -----------------------
#
# One split of 617 test rows decides nothing between the tuned ones: the difference has an interval.

rules = {
    name: mg.tune_threshold("f1", p[tune], y[tune], task="multilabel", rare_labels="pooled").rule
    for name, p in scores.items()
}
decided = {name: rules[name](p[test]).float() for name, p in scores.items()}
difference = mg.compare_paired(decided["hybrid"], decided["cross-entropy"], y[test], "f1", task="multilabel")
print("hybrid − cross-entropy, both tuned:", difference["f1"])

# %%
# Which labels gain
# -----------------
#
# F1 of every label at 0.5, from the rarest label to the most frequent one. The F1 loss gains where labels are rare, and
# nothing where they are frequent. The rarest one, with 16 positives to train on, nobody finds.

by_label = {
    name: mg.evaluate(p[test], y[test], "f1", task="multilabel", average=None)["f1"]
    for name, p in scores.items()
    if name != "hybrid"
}
rank = y[train].sum(0).argsort()
figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for name, values in by_label.items():
    ax.plot([list(values)[i] for i in rank], "o-", label=name)
ax.set_xticks(range(14), [str(int(n)) for n in y[train].sum(0)[rank]])
ax.set(xlabel="positives of the label in 1,200 training rows", ylabel="F1 at 0.5, test rows")
ax.legend()
plt.show()
