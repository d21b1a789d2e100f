"""DistributedDataParallel: a stream divided among processes, the metric of the whole batch, a resumable run.

TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --standalone --nproc-per-node 2 --max-restarts 3 examples/ddp.py FOLDER

(Without the variable, restarted processes may find the addresses of the dead ones: torch 2.13.)
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import metricgrad as mg


def write_data(folder: Path) -> None:
    """Write example data with rare positives, as .npy files."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4096, 8)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", (x[:, :3].sum(1) + 0.5 * rng.normal(size=4096) > 2.5).astype(np.float32))


def main(folder: Path) -> None:
    """Train from the last checkpoint on, and evaluate."""
    dist.init_process_group("gloo")
    if dist.get_rank() == 0 and not (folder / "y.npy").exists():
        write_data(folder)
    dist.barrier()
    torch.manual_seed(0)
    stream = mg.ArrayBatches(folder / "x.npy", folder / "y.npy", batch_size=512)  # 512 over all processes
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    parallel = DistributedDataParallel(model)
    loss = mg.HybridLoss("f1", process_group="world")  # without it each process would train on the F1 of its part
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    parts = {"model": model, "optimiser": optimiser, "loss": loss, "data": stream}
    checkpoint = mg.Checkpoint(folder)
    checkpoint.load(**parts)
    while stream.epoch < 10:
        for x, y in stream:
            optimiser.zero_grad()
            loss(parallel(x), y).backward()
            optimiser.step()
        checkpoint.save(**parts)
    evaluator = mg.Evaluator("f1", threshold=0.0)
    for x, y in mg.ArrayBatches(folder / "x.npy", folder / "y.npy", 512, shuffle=False):
        evaluator.update(model(x), y)
    total = evaluator.merged()  # every process calls it
    if dist.get_rank() == 0:
        print(f"DDP: F1 {total.compute()['f1']:.4f} of {dist.get_world_size()} processes after epoch {stream.epoch}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
