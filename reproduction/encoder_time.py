"""The time of a training step with the encoder in it, as the sigmoidF1 paper measures it (its Table 6)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

from cells import Cell, Table
from sigmoid_f1 import BATCH, LOSSES, WIDTH, corrected_losses
from training import Loss, dense

LABELS, TOKENS, AT_ONCE, STEPS = 37, 128, 32, 40
"""The labels of cancerHallmarks, the tokens of a text, the texts that are encoded at once, and the steps timed."""


class Encoder(nn.Module):
    """A frozen text encoder of MiniLM's size: six layers of 384 numbers, with 12 heads and 1,536 hidden units."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(384, 12, 1536, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)

    @torch.inference_mode()
    def forward(self, tokens: Tensor) -> Tensor:
        """Return the mean over the tokens of their last vectors."""
        encoded: Tensor = self.layers(tokens)
        return encoded.mean(1)


def run_time(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Fill a cell: the CPU time of a step, encoder and head, over that of BCE; the encoder is the same for both."""
    torch.manual_seed(cell.trial)
    encoder = Encoder().eval()
    tokens = torch.randn(AT_ONCE, TOKENS, WIDTH)
    encoder(tokens)  # a warm-up
    start = time.process_time()
    encoder(tokens)
    encoding = (time.process_time() - start) * BATCH / AT_ONCE
    head = dense([WIDTH, WIDTH, LABELS])
    optimizer = torch.optim.Adam(head.parameters(), 1e-4)
    x, y = torch.randn(BATCH, WIDTH), (torch.rand(BATCH, LABELS) < 0.1).float()
    losses = {name: corrected_losses(name, LABELS)[0][0] for name in ("BCE", cell.row)}
    seconds: dict[str, list[float]] = {name: [] for name in losses}
    for _ in range(STEPS):
        for name, loss in losses.items():
            seconds[name].append(_time_step(head, optimizer, loss, x, y))
    # The first steps are a warm-up.
    steps = {name: median(values[5:]) for name, values in seconds.items()}
    return {
        "step with the encoder": (encoding + steps[cell.row]) / (encoding + steps["BCE"]),
        "step of the head": steps[cell.row] / steps["BCE"],
        "encoder, seconds": encoding,
    }


def _time_step(head: nn.Module, optimizer: torch.optim.Optimizer, loss: Loss, x: Tensor, y: Tensor) -> float:
    """Return the CPU seconds of one step of the head."""
    start = time.process_time()
    optimizer.zero_grad()
    loss(head(x), y).backward()
    optimizer.step()
    return time.process_time() - start


def _cells(protocol: str, trials: int) -> Iterable[Cell]:
    data = f"batch {BATCH}, {TOKENS} tokens"
    return [Cell(protocol, row, data, t) for t in range(trials) for row in LOSSES[1:]]


TABLES = {
    "sigmoidf1-encoder": Table(
        "sigmoidF1, Table 6 as measured there: the time of a training step with the encoder, over that of BCE",
        _cells,
        run_time,
        trials=5,
        reduced="made-up texts, and an encoder of MiniLM's size with random weights, since only its time counts",
        protocols=("corrected",),
    ),
}
