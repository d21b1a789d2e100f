"""A small run that streams, saves after every step and, if told so, kills itself.

``killed_run.py FOLDER [STEP:PLACE ...]`` starts the run once for each kill and once more, one process after the other,
and prints how each ended. Places: "step" (trained, not saved), "writing" (half of the file is there), "renaming" (all
of it is), "saved"; and "line:N" is the N-th line of the checkpoint's code that runs. Under ``torchrun`` it is the run
itself, of two processes, the second of which kills itself, once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import metricgrad as mg
from metricgrad import surrogates as s
from metricgrad.training import checkpoints

EPOCHS = 2


def main(folder: Path, kill: str = "") -> None:
    """Train and write the weights."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    together = "RANK" in os.environ
    group: dict[str, Any] = {"process_group": "world"} if together else {}
    if together:
        dist.init_process_group("gloo")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4)).astype(np.float32)
    stream = mg.ArrayBatches(x, (x[:, 0] > 0.5).astype(np.float32), 20, buffer=32)
    torch.manual_seed(0)
    np.random.seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
    plain = model
    model = DistributedDataParallel(model) if together else model
    surrogate = s.Annealed(s.Sigmoid(2.0), s.Sigmoid(8.0), steps=8)
    loss = mg.ConstrainedLoss("recall", "precision>=0.9", surrogate=surrogate, **group)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 3)
    parts = {"model": plain, "optimiser": optimiser, "schedule": schedule, "loss": loss, "data": stream}
    checkpoint = mg.Checkpoint(folder)
    step = (checkpoint.load(**parts) or {"step": 0})["step"]
    while stream.epoch < EPOCHS:
        for features, targets in stream:
            noise = torch.randn_like(features) * float(np.random.rand())
            optimiser.zero_grad()
            loss(model(features + 0.1 * noise).squeeze(1), targets).backward()
            optimiser.step()
            schedule.step()
            surrogate.step()
            due(kill, step, "step")
            if stream.position == len(stream):
                loss.step()
            step += 1
            saving(checkpoint, partial(due, kill, step - 1))
            if kill.startswith("line:"):
                sys.settrace(counting(int(kill.removeprefix("line:"))))
            checkpoint.save(**parts, step=step)
            due(kill, step - 1, "saved")
    if not together or dist.get_rank() == 0:
        torch.save(plain.state_dict(), folder / "weights.pt")
    if together:
        dist.barrier()  # gloo may wait for ever for a process that left while another was still writing
        dist.destroy_process_group()


def due(kill: str, step: int, place: str) -> None:
    """Die here if it is time to."""
    if kill != f"{step}:{place}":
        return
    if "RANK" in os.environ and (os.environ["RANK"] == "0" or os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"):
        return
    os.kill(os.getpid(), signal.SIGKILL)


def saving(checkpoint: mg.Checkpoint, at: Callable[[str], None]) -> None:
    """Let a checkpoint tell when it is half written and when it is about to be renamed."""
    write, replace = type(checkpoint)._write, Path.replace

    def half(data: Any) -> None:
        fresh, file = checkpoint._open_new_file()
        with file:
            file.write(data[0])
            file.flush()
            at("writing")
        fresh.unlink()
        Path.replace = renamed  # type: ignore[method-assign, assignment]
        write(checkpoint, data)
        Path.replace = replace  # type: ignore[method-assign]

    def renamed(self: Path, target: Any) -> Path:
        at("renaming")
        return replace(self, target)

    checkpoint._write = half  # type: ignore[method-assign]


def counting(line: int) -> Any:
    """Return a trace that kills this process before the so-manieth line of the checkpoint's code."""
    left = line

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != checkpoints.__file__:
            return None
        left -= event == "line"
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


def started(folder: Path, kill: str) -> int:
    """Start the run in a process of its own, with all that is imported here, and return its number."""
    if pid := os.fork():
        return pid
    main(folder, kill)
    os._exit(0)


if __name__ == "__main__":
    place, kills = Path(sys.argv[1]), sys.argv[2:]
    if "RANK" in os.environ:
        main(place, *kills)
    else:
        torch.optim.Adam([torch.zeros(1)])  # has torch import, once for all, what takes longer than a run
        for each in (*kills, ""):
            print(os.waitstatus_to_exitcode(os.waitpid(started(place, each), 0)[1]))
