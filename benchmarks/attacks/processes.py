"""Two and four processes (gloo) against one: the loss and the gradient of their shards are those of the whole batch."""

from __future__ import annotations

import random
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

import metricgrad as mg
from attacks import batches
from metricgrad import surrogates as s

if TYPE_CHECKING:
    from collections.abc import Iterable

OTHERS: list[Any] = [
    partial(mg.HybridLoss, "f1"),
    mg.baselines.focal,
    mg.baselines.dice,
    partial(mg.baselines.lovasz_hinge),
    partial(mg.AUROCLoss),
    partial(mg.WMWLoss),
    partial(mg.RecallAtPrecisionLoss, 0.7),
    partial(mg.PRBEPLoss),
    partial(mg.EERLoss),
    partial(mg.StructuredHingeLoss, "f1"),
    partial(mg.ConstrainedLoss, "recall", "precision>=0.5"),
]


def make(number: int) -> tuple[Any, dict[str, Any], list[Tensor | None], list[int]]:
    """Return the loss, its options, logits, targets, weight and mask, and where the shards begin and end."""
    r, g = random.Random(f"processes {number}"), torch.Generator().manual_seed(number)  # noqa: S311
    task = r.choice(["binary", "multilabel", "multiclass"])
    rows, classes = r.choice([1, 4, 9, 30]), 1 if task == "binary" else r.choice([2, 3, 5])
    z = torch.randn(rows, classes, generator=g, dtype=torch.float64) * r.choice([1.0, 5.0, 60.0])
    y = (torch.rand(rows, classes, generator=g) < r.choice([0.0, 0.1, 0.5])).double()
    y = torch.randint(0, classes, (rows,), generator=g) if task == "multiclass" else y
    w = torch.rand(rows, generator=g, dtype=torch.float64) if r.random() < 0.4 else None
    mask = torch.rand(rows, generator=g) < 0.7 if r.random() < 0.3 else None
    if task != "multiclass" and r.random() < 0.25:
        loss, options = r.choice(OTHERS), {}
        if getattr(loss, "func", None) is mg.StructuredHingeLoss:
            w = None  # its weights are whole numbers
    else:
        loss, options = mg.MetricLoss, batches._options(r, task, classes)
        if isinstance(options["surrogate"], s.UnitsVsZeros | s.Unbounded):
            options["surrogate"] = s.Learned(s.LogitSigmoid(), classes)
            options.pop("threshold", None)
    options["task"] = task
    world = r.choice([2, 4])
    cuts = sorted(r.choice([0, rows, r.randrange(rows + 1)]) for _ in range(world - 1))
    return loss, options, [z, y, w, mask], [0, *cuts, rows]


def run(loss: Any, given: list[Tensor | None]) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient with respect to the logits."""
    z = given[0].clone().requires_grad_()  # type: ignore[union-attr]
    value = loss(z, *given[1:])
    value.sum().backward()
    assert z.grad is not None
    return value.detach(), z.grad


def check_all(numbers: Iterable[int]) -> dict[int, str]:
    """Return what is wrong, by the number of the case."""
    numbers = list(numbers)
    with tempfile.TemporaryDirectory() as folder:
        spawn(_worker, (folder, numbers), 4)
        parts = [torch.load(Path(folder) / f"{rank}.pt") for rank in range(4)]
    return {number: found for number in numbers if (found := _compare(number, parts)) is not None}


def _worker(rank: int, folder: str, numbers: list[int]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
    pair = dist.new_group([0, 1])
    found: dict[int, Any] = {}
    for number in numbers:
        loss, options, given, edges = make(number)
        world = len(edges) - 1
        if rank < world:
            part = slice(edges[rank], edges[rank + 1])
            shard = [None if x is None else x[part] for x in given]
            try:
                value, gradient = run(loss(process_group=pair if world == 2 else "world", **options), shard)
                found[number] = (value, gradient / world)  # as DistributedDataParallel averages
            except Exception as error:
                found[number] = f"{type(error).__name__}: {error}"
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _compare(number: int, parts: list[dict[int, Any]]) -> str | None:
    loss, options, given, edges = make(number)
    about = f"{loss} {options} rows {edges}"
    try:
        value, gradient = run(loss(**options), given)
    except Exception as error:
        return f"one process: {type(error).__name__}: {error} | {about}"
    shards = [part[number] for part in parts[: len(edges) - 1]]
    for shard in shards:
        if isinstance(shard, str):
            return f"{shard} | {about}"
        if not torch.allclose(shard[0], value, rtol=1e-9, atol=1e-9):
            return f"value {shard[0].tolist()} is not {value.tolist()} | {about}"
    off = (torch.cat([shard[1] for shard in shards]) - gradient).abs().max().item() if len(gradient) else 0.0
    return None if off <= 1e-9 * max(1.0, gradient.abs().max().item()) else f"gradient off by {off:.2g} | {about}"
