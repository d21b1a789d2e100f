"""A label for every pixel of two real images: a small U-Net, cross-entropy against training on F1 (Dice).

    python benchmarks/two_images.py --data FOLDER [--sets NAMES] [--splits N] [--epochs N --results FILE]

Needs the extra ``bench``; ``datasets.py`` says what the folder holds. The loss is all that differs: cross-entropy, the
soft F1 of the pixels of a batch, or their hybrid. Networks, batches and epochs are the same, and the epoch with the
lowest loss on the validation images is kept. Evaluated on the pixels of all test images, at 0.5 and at the threshold
that is best on the validation images. Results are appended as they are made, and what is there is not made again; their
means are printed at the end, and ``quality.py --summary`` has their tables.
"""

from __future__ import annotations

import argparse
import copy
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import metricgrad as mg
from datasets import DENSE, load_images

RESULTS = Path(__file__).parent / "results" / "two_images.csv"
COLUMNS = ["metric", "set", "split", "contender", "value", "average_precision", "seconds"]
SPLITS, EPOCHS, BATCH, WIDTH = 5, 60, 4, 8
LOSSES: dict[str, Any] = {
    "cross-entropy": nn.BCEWithLogitsLoss,
    "metric": lambda: mg.MetricLoss("f1"),
    "hybrid": lambda: mg.HybridLoss("f1", metric_weight=0.3),
}


class UNet(nn.Module):
    """Three resolutions of two convolutions each, down and up again, with shortcuts; one logit for every pixel."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.fine, self.middle, self.coarse = block(1, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up_middle, self.up_fine = block(6 * width, 2 * width), block(3 * width, width)
        self.output = nn.Conv2d(width, 1, 1)
        self.down, self.up = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of images ``(n, height, width)``."""
        fine = self.fine(images.unsqueeze(1))
        middle = self.middle(self.down(fine))
        coarse = self.coarse(self.down(middle))
        middle = self.up_middle(torch.cat([self.up(coarse), middle], 1))
        logits: Tensor = self.output(self.up_fine(torch.cat([self.up(middle), fine], 1)))
        return logits.squeeze(1)


def block(before: int, after: int) -> nn.Sequential:
    """Return two convolutions of 3 × 3 with batch normalisation."""
    layers: list[nn.Module] = []
    for width in (before, after):
        layers += [nn.Conv2d(width, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


def split_images(groups: Any, seed: int) -> list[Any]:
    """Return the images to train on, to validate and to test, about 50, 20 and 30 %, neighbours in one part."""
    order = np.random.default_rng(seed).permutation(np.unique(groups))
    edges = [round(0.5 * len(order)), round(0.7 * len(order))]
    return [np.flatnonzero(np.isin(groups, part)) for part in np.split(order, edges)]


def train(loss: nn.Module, x: Tensor, y: Tensor, held: tuple[Tensor, Tensor], seed: int, epochs: int) -> UNet:
    """Return a network with the weights of the epoch with the lowest validation loss."""
    torch.manual_seed(seed)
    model = UNet()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # faster on a CPU
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    lowest, best = float("inf"), copy.deepcopy(model.state_dict())
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            loss(model(x[batch]), y[batch]).backward()
            optimizer.step()
        value = float(loss(predict(model, held[0]), held[1]))
        if value < lowest:
            lowest, best = value, copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return model


@torch.no_grad()
def predict(model: UNet, x: Tensor) -> Tensor:
    """Return the logits of images."""
    model.eval()
    return torch.cat([model(part) for part in x.split(BATCH)])


def run(name: str, split: int, loss: str, folder: Path, epochs: int) -> list[list[str]]:
    """Return the lines of one loss on one split: at 0.5, and with a tuned threshold."""
    images, masks, groups = load_images(name, folder)
    parts = split_images(groups, split)
    x = torch.as_tensor((images - images[parts[0]].mean()) / images[parts[0]].std(), dtype=torch.float32)
    y = torch.as_tensor(masks, dtype=torch.float32)
    start = time.process_time()
    model = train(LOSSES[loss](), x[parts[0]], y[parts[0]], (x[parts[1]], y[parts[1]]), split, epochs)
    held, test = (predict(model, x[part]).sigmoid().flatten().double() for part in parts[1:])
    threshold = mg.tune_threshold("f1", held, y[parts[1]].flatten()).threshold
    seconds = time.process_time() - start
    truth = y[parts[2]].flatten()
    ranking = mg.evaluate(test, truth, "average_precision")["average_precision"]
    lines = []
    for rule, at in (("0.5", 0.5), ("tuned", threshold)):
        value = mg.evaluate(test, truth, "f1", threshold=at)["f1"]
        figures = [f"{value:.6f}", f"{ranking:.6f}", f"{seconds:.1f}"]
        lines.append(["f1", name, str(split), f"{loss}, {rule}", *figures])
    return lines


def main() -> None:
    """Make every result that is not there yet, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--sets", type=lambda text: text.split(","), default=list(DENSE))
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.results.exists():
        options.results.write_text(",".join(COLUMNS) + "\n")
    done = set(pd.read_csv(options.results)[["set", "split", "contender"]].itertuples(index=False, name=None))
    for split in range(options.splits):
        for name in options.sets:
            for loss in LOSSES:
                if (name, split, f"{loss}, tuned") in done:
                    continue
                lines = run(name, split, loss, options.data, options.epochs)
                with options.results.open("a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerows(lines)
                for line in lines:
                    print(*line, flush=True)
    print(pd.read_csv(options.results).groupby(["set", "contender"]).value.agg(["mean", "count"]).round(3))


if __name__ == "__main__":
    main()
