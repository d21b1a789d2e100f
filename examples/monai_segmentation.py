"""Segment small things with MONAI's network, transforms and metric, and a loss of this library.

python examples/monai_segmentation.py, with the extra "recipes"
"""

from __future__ import annotations

from typing import Any

import torch
from monai.data.dataloader import DataLoader
from monai.data.dataset import Dataset
from monai.metrics.meandice import DiceMetric
from monai.networks.nets.unet import UNet
from monai.transforms.compose import Compose
from monai.transforms.intensity.dictionary import ScaleIntensityd
from monai.transforms.spatial.dictionary import RandFlipd, RandRotate90d
from monai.utils.misc import set_determinism
from torch import Tensor, nn

import metricgrad as mg


def draw_images(images: int, seed: int) -> list[dict[str, Tensor]]:
    """Return images of noise with three small squares each, and their masks, ``(1, 32, 32)``."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(images):
        mask = torch.zeros(1, 32, 32)
        for row, column in torch.randint(0, 29, (3, 2), generator=generator):
            mask[0, row : row + 3, column : column + 3] = 1
        image = 1.5 * mask + 0.5 * torch.randn(1, 32, 32, generator=generator)
        found.append({"image": image, "mask": mask})
    return found


@torch.no_grad()
def evaluate(model: nn.Module, items: list[dict[str, Tensor]]) -> float:
    """Return the mean Dice of the images at a probability of 0.5, by MONAI."""
    model.eval()
    scale: Any = ScaleIntensityd("image")
    scaled = [scale(item) for item in items]
    logits = model(torch.stack([item["image"] for item in scaled]))
    dice = DiceMetric(reduction="mean")
    dice((logits > 0).float(), torch.stack([item["mask"] for item in scaled]))
    return float(dice.aggregate().item())  # type: ignore[union-attr]


def main() -> dict[str, float]:
    """Train for a few epochs; print and return the Dice of test images before and after."""
    set_determinism(0)
    train = draw_images(160, seed=0)
    test = draw_images(80, seed=1)
    both = ("image", "mask")
    augment = Compose([ScaleIntensityd("image"), RandFlipd(both, prob=0.5), RandRotate90d(both, prob=0.5)])
    model = UNet(spatial_dims=2, in_channels=1, out_channels=1, channels=(8, 16, 32), strides=(2, 2))
    loss = mg.HybridLoss("f1", metric_weight=1.0)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    before = evaluate(model, test)
    for _epoch in range(8):
        model.train()
        for batch in DataLoader(Dataset(train, augment), batch_size=16, shuffle=True):
            optimizer.zero_grad()
            loss(model(batch["image"]), batch["mask"]).backward()
            optimizer.step()
    after = evaluate(model, test)
    set_determinism(None)
    print(f"F1 (Dice) of test images: {before:.3f} before, {after:.3f} after")
    return {"before": before, "after": after}


if __name__ == "__main__":
    main()
