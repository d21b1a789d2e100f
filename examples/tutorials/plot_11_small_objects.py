"""
Small things in large images
============================

Where the things to find are a few pixels of an image, cross-entropy is content to predict none of them. Its threshold
can be tuned afterwards; a loss on the metric trains for them. This tutorial shows the masks of both, side by side.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import metricgrad as mg

# %%
# The data
# --------
#
# Made-up images of 48 × 48: large disks that do not count, and small spots (half a percent of the pixels) that do, in
# noise. ``instances`` numbers the spots of each image.


def draw(images, seed):
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(48), torch.arange(48), indexing="ij")
    light = torch.zeros(images, 48, 48)
    instances = torch.zeros(images, 48, 48, dtype=torch.long)
    for picture, numbers in zip(light, instances, strict=True):
        for _disk in range(3):
            row, column = torch.randint(6, 42, (2,), generator=g)
            picture[(y - row) ** 2 + (x - column) ** 2 < 30] = 1.0
        for number in (1, 2, 3):
            row, column = torch.randint(1, 46, (2,), generator=g)
            spot = (y - row).abs() + (x - column).abs() < 2
            picture[spot] = 1.0
            numbers[spot] = number
    noisy = light + 0.6 * torch.randn(light.shape, generator=g)
    return noisy.unsqueeze(1), instances


x_train, instances_train = draw(160, seed=0)
x_tune, instances_tune = draw(60, seed=1)
x_test, instances_test = draw(60, seed=2)
print(f"share of pixels to find: {(instances_train > 0).float().mean():.4f}")

# %%
# Training
# --------
#
# One small network, three times: cross-entropy, cross-entropy plus the F1 of the pixels of a batch, and plus the F1 of
# each spot on its own.


def train(loss, of_objects=False):
    torch.manual_seed(0)
    layers = []
    for before in (1, 12, 12):
        layers += [nn.Conv2d(before, 12, 5, padding=2), nn.BatchNorm2d(12), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(12, 1, 1), nn.Flatten(1, 2))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
    for _epoch in range(6):
        for rows in torch.randperm(160).split(10):
            instances = instances_train[rows]
            optional = {"instances": instances} if of_objects else {}
            optimiser.zero_grad()
            loss(model(x_train[rows]), (instances > 0).float(), **optional).backward()
            optimiser.step()
    return model.eval()


models = {
    "cross-entropy": train(nn.BCEWithLogitsLoss()),
    "with F1 of pixels": train(mg.HybridLoss("f1", metric_weight=1.0)),
    "with F1 of spots": train(mg.HybridLoss("f1", metric_weight=1.0, per_object="shared"), of_objects=True),
}

# %%
# Evaluation
# ----------
#
# At a probability of 0.5 and at the threshold that is best on images of their own, exactly:

masks = {}
for name, model in models.items():
    with torch.no_grad():
        tune, test = model(x_tune), model(x_test)
    tuned = mg.tune_threshold("f1", tune.flatten(), (instances_tune > 0).flatten()).threshold
    for rule, threshold in (("at 0.5", 0.0), ("tuned", tuned)):
        masks[f"{name}, {rule}"] = test > threshold
        pixels = mg.evaluate(test, instances_test > 0, "f1", threshold=threshold)["f1"]
        spots = mg.evaluate_objects(test > threshold, instances_test, "f1")["f1"]
        print(f"{name + ', ' + rule:28s} F1 of pixels {pixels:.3f}, of spots {spots:.3f}")

# %%
# The masks
# ---------
#
# An image, what there is to find in it, and what the networks find. This is one set of made-up images and one seed;
# ``benchmarks/dense_maps.py`` is the study on real ones.

shown = ["cross-entropy, at 0.5", "cross-entropy, tuned", "with F1 of pixels, tuned", "with F1 of spots, tuned"]
pictures = [x_test[0, 0], instances_test[0] > 0, *(masks[name][0] for name in shown)]
titles = ["image", "to find", *shown]
figure, axes = plt.subplots(2, 3, figsize=(9, 6.4))
for axis, picture, title in zip(axes.flat, pictures, titles, strict=True):
    axis.imshow(picture, cmap="gray")
    axis.set_title(title, fontsize=11)
    axis.axis("off")
figure.tight_layout()
plt.show()
