"""Checkpoints: always whole, and a run that was killed anywhere ends with the very weights of one that was not."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import metricgrad as mg
from metricgrad import surrogates as s

RUN = Path(__file__).parent / "killed_run.py"


def parts() -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimiser = torch.optim.AdamW(model.parameters())
    loss = mg.ConstrainedLoss("recall", "precision>=0.9", surrogate=s.Annealed(s.Sigmoid(2), s.Sigmoid(9), steps=5))
    return {
        "model": model,
        "optimiser": optimiser,
        "schedule": torch.optim.lr_scheduler.MultiStepLR(optimiser, [2, 4]),
        "loss": loss,
        "hybrid": mg.HybridLoss("f1", warmup=3),
        "generator": torch.Generator().manual_seed(3),
        "data": mg.samplers.StratifiedBatchSampler([0, 1] * 8, 4),
    }


def train(run: dict[str, Any], steps: int) -> list[float]:
    """Train on random data, with whatever is random."""
    seen = []
    for _ in range(steps):
        x, y = torch.randn(8, 3), torch.rand(8, generator=run["generator"]) < 0.5
        x = x + random.random() + float(np.random.rand())  # noqa: S311
        value = run["loss"](run["model"](x).squeeze(1), y.float()) + run["hybrid"](
            run["model"](x).squeeze(1), y.float()
        )
        run["optimiser"].zero_grad()
        value.backward()
        run["optimiser"].step()
        run["schedule"].step()
        run["hybrid"].step()
        run["loss"].soft.surrogate.step()
        seen.append(value.item())
        if len(seen) % 3 == 0:
            run["loss"].step()
    return [*seen, *(p.sum().item() for p in run["model"].parameters()), random.random()]  # noqa: S311


def test_a_run_goes_on_from_everything(tmp_path: Path) -> None:
    checkpoint, run = mg.Checkpoint(tmp_path / "new" / "folder"), parts()
    assert checkpoint.load(**run) is None
    train(run, 4)
    batches = iter(run["data"])
    next(batches)
    checkpoint.save(**run, step=4, notes={"best": [0.5, None], "name": "a"})
    expected = [*train(run, 5), float(torch.rand(()))], [list(b) for b in batches]
    again = parts()
    random.seed(99)
    assert checkpoint.load(**again) == {"step": 4, "notes": {"best": [0.5, None], "name": "a"}}
    assert again["loss"].multipliers.tolist() == pytest.approx(run["loss"].multipliers.tolist(), abs=1)
    assert ([*train(again, 5), float(torch.rand(()))], [list(b) for b in again["data"]]) == expected
    assert [path.name for path in checkpoint.path.parent.iterdir()] == ["checkpoint.pt"]


def test_what_constraints_have_seen_is_saved(tmp_path: Path) -> None:
    for task, metrics in (("binary", ("recall", "precision>=0.9")), ("multiclass", ("accuracy", "kappa>=0.9"))):
        losses = [mg.ConstrainedLoss(*metrics, task=task) for _ in range(2)]
        logits = torch.tensor([2.0, 1.0, -1.0]) if task == "binary" else torch.eye(3)
        losses[0](logits, torch.tensor([1, 0, 1]))
        mg.Checkpoint(tmp_path).save(loss=losses[0])
        mg.Checkpoint(tmp_path).load(loss=losses[1])
        for loss in losses:
            loss.step()
        assert torch.equal(losses[0].multipliers, losses[1].multipliers)
        assert not torch.equal(losses[0].multipliers, torch.ones(1))


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    checkpoint = mg.Checkpoint(tmp_path)
    checkpoint.save(step=1)
    with pytest.raises(ValueError, match=r"best\['f1'\]: expected tensors and plain values, got float64; convert it"):
        checkpoint.save(best={"f1": np.float64(0.5)})
    with pytest.raises(ValueError, match="what: expected tensors and plain values, got PosixPath"):
        checkpoint.save(what=tmp_path)
    assert checkpoint.load() == {"step": 1}


def test_plain_values_come_back_as_they_were(tmp_path: Path) -> None:
    values = {
        "a": {1, 2},
        "b": torch.Size([2]),
        "c": torch.float32,
        "d": (1, [2.0, None]),
        "e": Counter("ab"),
        "f": b"x",
    }
    mg.Checkpoint(tmp_path).save(**values)
    assert mg.Checkpoint(tmp_path).load() == values


def test_bad_checkpoints_are_refused_in_one_line(tmp_path: Path) -> None:
    checkpoint = mg.Checkpoint(tmp_path)
    checkpoint.save(step=1, model=nn.Linear(1, 1))
    with pytest.raises(ValueError, match=r"parts: \['optimiser'\] are not in '.*', which has \['model', 'step'\]"):
        checkpoint.load(optimiser=nn.Linear(1, 1))
    whole = checkpoint.path.read_bytes()
    damaged: list[tuple[Any, str]] = [
        (lambda: checkpoint.path.write_bytes(whole[: len(whole) // 2]), "expected a checkpoint by Checkpoint.save"),
        (lambda: checkpoint.path.write_bytes(b""), "expected a checkpoint by Checkpoint.save"),
        (lambda: torch.save({"a": 1}, checkpoint.path), "expected a checkpoint by Checkpoint.save"),
        (lambda: torch.save({"f": os.getcwd}, checkpoint.path), "expected a checkpoint by Checkpoint.save"),
        (
            lambda: torch.save({"format": 99, "parts": {}, "random": [{}]}, checkpoint.path),
            "expected format 1, got the newer 99; upgrade metricgrad",
        ),
        (
            lambda: torch.save({"format": 1, "parts": {}, "random": [{}, {}]}, checkpoint.path),
            "expected a checkpoint of 1 processes, as here, got one of 2",
        ),
    ]
    for damage, message in damaged:
        damage()
        with pytest.raises(ValueError, match=message) as caught:
            checkpoint.load()
        assert "\n" not in str(caught.value)


# Failing disks


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_keeps_the_previous(failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = mg.Checkpoint(tmp_path)
    checkpoint.save(step=1)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os if failing == "fsync" else Path, failing, fail)
        with pytest.raises(
            OSError, match="could not be written: No space left on device; the previous one is kept"
        ) as caught:
            checkpoint.save(step=2)
        assert caught.value.errno == errno.ENOSPC
    assert checkpoint.load() == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    checkpoint.save(step=3)
    assert checkpoint.load() == {"step": 3}


def test_no_folder_can_be_made_under_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"checkpoint: '.*' could not be written: Not a directory$"):
        mg.Checkpoint(tmp_path / "file" / "folder").save(step=1)


def test_a_disk_that_takes_no_more_keeps_the_previous(tmp_path: Path) -> None:
    checkpoint = mg.Checkpoint(tmp_path)
    checkpoint.save(step=1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, limits[1]))
    try:
        with pytest.raises(OSError, match="could not be written: File too large; the previous one is kept"):
            checkpoint.save(step=2, weights=torch.zeros(10**6))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert checkpoint.load() == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


# Killed


def run(*words: str) -> subprocess.CompletedProcess[str]:
    # Without this the processes of a restart may find the addresses of those before in torchrun's store.
    env = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_a_run_killed_anywhere_ends_with_the_same_weights(tmp_path: Path) -> None:
    # Before the first checkpoint; after a step, not yet saved; while the file is being written; before it is renamed;
    # and after that.
    kills = ["0:step", "3:step", "5:writing", "6:renaming", "9:saved"]
    ends = [run(str(RUN), str(tmp_path / name), *at).stdout.split() for name, at in (("whole", []), ("killed", kills))]
    assert ends == [["0"], [str(-signal.SIGKILL)] * len(kills) + ["0"]]
    assert_same_weights(tmp_path)


def test_a_killed_worker_of_torchrun_is_started_again_and_goes_on(tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1", str(RUN)]
    run(*torchrun, str(tmp_path / "whole"))
    done = run(*torchrun, str(tmp_path / "killed"), "6:step")
    assert f"exitcode: {-signal.SIGKILL}" in done.stderr
    assert_same_weights(tmp_path)


def assert_same_weights(folder: Path) -> None:
    expected, got = (torch.load(folder / name / "weights.pt") for name in ("whole", "killed"))
    assert got.keys() == expected.keys()
    for name, weights in expected.items():
        assert torch.equal(got[name], weights), name
