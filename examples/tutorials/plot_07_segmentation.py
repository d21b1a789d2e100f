"""
Segmentation maps with void pixels
==================================

Intersection over union is a metric of counts, of pixels: ``MetricLoss("jaccard", task="multiclass")``. Borders that
nobody could label are marked 255 and do not count: ``ignore_index=255``.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import metricgrad as mg

# %%
# The data
# --------
#
# Made-up images of 32 × 32: bright disks (class 1) and small dark squares (class 2, 2 % of the pixels) in noise. The
# border of every disk is void.


def draw(images, seed):
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    masks = torch.zeros(images, 32, 32, dtype=torch.long)
    for mask in masks:
        row, column = torch.randint(8, 24, (2,), generator=g)
        away = ((y - row) ** 2 + (x - column) ** 2).sqrt()
        mask[away < 6] = 1
        mask[(away >= 6) & (away < 7)] = 255
        row, column = torch.randint(0, 28, (2,), generator=g)
        mask[row : row + 4, column : column + 4] = 2
    light = torch.tensor([0.0, 1.0, -0.7])[masks.clamp(max=2) % 255]
    light[masks == 255] = 0.5
    return (light + 0.8 * torch.randn(light.shape, generator=g)).unsqueeze(1), masks


x_train, y_train = draw(200, seed=0)
x_test, y_test = draw(100, seed=1)
shares = [(y_train == k).float().mean().item() for k in (0, 1, 2, 255)]
print("share of pixels: background {:.3f}, disk {:.3f}, square {:.3f}, void {:.3f}".format(*shares))

# %%
# Training
# --------
#
# The same small network with cross-entropy and with the Jaccard loss plus a share of cross-entropy. Both ignore void
# pixels. The mean over the classes is the mIoU of segmentation papers.


def train(loss):
    torch.manual_seed(0)
    width = 12
    layers = [nn.Conv2d(1, width, 5, padding=2), nn.ReLU(), nn.Conv2d(width, width, 5, padding=2), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(width, 3, 1))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _epoch in range(12):
        for rows in torch.randperm(200).split(20):
            optimiser.zero_grad()
            loss(model(x_train[rows]), y_train[rows]).backward()
            optimiser.step()
    with torch.no_grad():
        return model.eval()(x_test)


jaccard = mg.HybridLoss("jaccard", metric_weight=1.0, task="multiclass", ignore_index=255)
logits = {"cross-entropy": train(nn.CrossEntropyLoss(ignore_index=255)), "with Jaccard": train(jaccard)}

# %%
# Evaluation
# ----------
#
# Evaluated over all test pixels that are not void; ``average=None`` gives each class:

counts = y_test != 255
for name, z in logits.items():
    rows = z.movedim(1, -1)[counts]
    each = mg.evaluate(rows, y_test[counts], "jaccard", task="multiclass", average=None)["jaccard"]
    print(
        f"{name:14s} IoU background {each[0]:.3f}, disk {each[1]:.3f}, square {each[2]:.3f}; mean {sum(each) / 3:.3f}"
    )

# %%
# The picture
# -----------
#
# The small squares gain most, which cross-entropy hardly finds; this is one set of made-up images and one seed. An
# image, its mask (void in white), and what the two networks see:

figure, axes = plt.subplots(1, 4, figsize=(8, 2.3), layout="constrained")
shown = {
    "image": x_test[0, 0],
    "mask": y_test[0].float(),
    **{name: z[0].argmax(0).float() for name, z in logits.items()},
}
shown["mask"][y_test[0] == 255] = float("nan")
for ax, (name, image) in zip(axes, shown.items(), strict=True):
    how = {"cmap": "gray"} if name == "image" else {"vmin": 0, "vmax": 2}
    ax.imshow(image.numpy(), **how)
    ax.set_title(name, fontsize=9)
    ax.axis("off")
plt.show()
