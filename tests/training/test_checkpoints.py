"""Checkpoints: always whole, and a run that was killed anywhere ends with the very weights of one that was not."""

from __future__ import annotations

import copy
import errno
import hashlib
import io
import os
import random
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn

import metricgrad as mg
from metricgrad import surrogates as s
from metricgrad.training import checkpoints, states

RUN = Path(__file__).parents[1] / "support" / "killed_run.py"


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
    task: Any
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


def sealed(content: Any) -> bytes:
    """Return a file with this content and the hash that it should have."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return b"".join(checkpoints._add_checksum(buffer.getbuffer()))


def whole(**changes: Any) -> dict[str, Any]:
    return {"parts": {}, "layouts": {}, "random": [{**states.get_random_state(), "generators": {}}], **changes}


def test_bad_checkpoints_are_refused_in_one_line(tmp_path: Path) -> None:
    checkpoint = mg.Checkpoint(tmp_path)
    checkpoint.save(step=1, model=nn.Linear(1, 1))
    with pytest.raises(ValueError, match=r"parts: \['optimiser'\] are not in '.*', which has \['model', 'step'\]"):
        checkpoint.load(optimiser=nn.Linear(1, 1))
    good, none = checkpoint.path.read_bytes(), "expected a checkpoint by Checkpoint.save"
    old = io.BytesIO()
    torch.save({"format": 1, "parts": {}, "random": [{}]}, old)
    newer = hashlib.sha256(b"metricgrad checkpoint 9\n" + b"content").hexdigest().encode()
    damaged: list[tuple[bytes, str]] = [
        (good[: len(good) // 2], "was changed or cut short since it was written"),
        (good + b"0", "was changed or cut short since it was written"),
        (good[:50], none),
        (b"", none),
        (old.getvalue(), "got one of an older version, .*; load it with the version of metricgrad that wrote it"),
        (b"metricgrad checkpoint 9\n" + newer + b"\ncontent", "expected format 2, got 9; load it with a metricgrad"),
        (sealed({"a": 1}), none),
        (sealed({"f": os.getcwd}), none),
        (sealed([1]), none),
        (sealed(whole(parts=[1])), none),
        (sealed(whole(parts={1: 2})), none),
        (sealed(whole(random=[1])), none),
        (sealed(whole(random={})), none),
        (b"".join(checkpoints._add_checksum(memoryview(b"no torch file"))), none),
        (sealed(whole(random=[{}, {}])), "expected a checkpoint of 1 processes, as here, got one of 2; start as many"),
        (sealed(whole(random=[{}])), r"random state: its state in .* does not fit \('python'\)"),
        (sealed(whole(random=[{"python": (3, (1,), None)}])), "random state: its state in .* does not fit"),
    ]
    for data, message in damaged:
        checkpoint.path.write_bytes(data)
        with pytest.raises(ValueError, match=message) as caught:
            checkpoint.load()
        assert "\n" not in str(caught.value)


def test_every_flipped_bit_is_seen_before_anything_is_loaded(tmp_path: Path) -> None:
    checkpoint, model, rng = mg.Checkpoint(tmp_path), nn.Linear(8, 8), random.Random(0)  # noqa: S311
    checkpoint.save(model=model, step=3)
    before, data = copy.deepcopy(model.state_dict()), checkpoint.path.read_bytes()
    places = [*range(100), *(rng.randrange(len(data)) for _ in range(300))]
    for place in places:
        flipped = bytearray(data)
        flipped[place] ^= 1 << rng.randrange(8)
        checkpoint.path.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"^folder: .*checkpoint\.pt") as caught:
            checkpoint.load(model=model)
        assert "\n" not in str(caught.value)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    checkpoint.path.write_bytes(data)
    assert checkpoint.load(model=model) == {"step": 3}


def test_states_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    checkpoint, model, wide = mg.Checkpoint(tmp_path), nn.Linear(2, 2), nn.Linear(3, 2)
    adam = torch.optim.Adam(model.parameters())
    model(torch.zeros(1, 2)).sum().backward()
    adam.step()
    checkpoint.save(model=model, adam=adam, step=1, generator=torch.Generator(), data=parts()["data"])
    others = torch.optim.Adam(wide.parameters())
    cases: list[tuple[dict[str, Any], str]] = [
        ({"model": wide}, "model: its state in .* does not fit .*size mismatch for weight"),
        ({"model": nn.BatchNorm1d(2)}, "model: .* does not fit .*Missing key"),
        ({"adam": others}, r"adam: .* \(it is of Adam of \(2, 2\), \(2,\), here there is Adam of \(2, 3\), \(2,\)\)"),
        (
            {"adam": torch.optim.SGD(model.parameters())},
            "adam: .* does not fit .it is of Adam of .*, here there is SGD",
        ),
        ({"adam": model}, "adam: .* does not fit"),
        ({"model": adam}, "model: .* does not fit"),
        ({"step": model}, "step: .* does not fit"),
        ({"data": model}, "data: .* does not fit"),
        ({"model": torch.Generator()}, r"model: .* does not fit \('model'\)"),
        ({"generator": model}, "generator: .* does not fit"),
    ]
    for given, message in cases:
        with pytest.raises(ValueError, match=message) as caught:
            checkpoint.load(**given)
        assert "\n" not in str(caught.value)


def test_versions_of_layers_are_kept(tmp_path: Path) -> None:
    seen = []

    class Versioned(nn.Linear):
        _version = 7

        def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, *rest: Any) -> None:
            seen.append(metadata.get("version"))
            super()._load_from_state_dict(state, prefix, metadata, *rest)

    mg.Checkpoint(tmp_path).save(model=Versioned(1, 1))
    mg.Checkpoint(tmp_path).load(model=Versioned(1, 1))
    assert seen == [7]


# Two writers


def test_two_writers_do_not_touch_each_others_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, fsync = mg.Checkpoint(tmp_path), mg.Checkpoint(tmp_path), os.fsync
    left = tmp_path / ".checkpoint.pt.0123456789abcdef"  # by a process that was killed
    left.write_bytes(b"half")
    found = []

    def meanwhile(file: Any) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        second.save(step=2, weights=torch.ones(1000))
        found.append(second.load() or {})
        fsync(file)

    monkeypatch.setattr(os, "fsync", meanwhile)
    first.save(step=1)
    assert found[0]["step"] == 2
    assert first.load() == {"step": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


# Processes

WORLD = 2
OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": partial(torch.optim.Adam, lr=0.05, amsgrad=True),
    "sgd": partial(torch.optim.SGD, lr=0.05),
    "momentum": partial(torch.optim.SGD, lr=0.05, momentum=0.9),
}


class ShardedRun:
    """A sharded model, whose layers do not divide evenly, and an optimiser of two groups."""

    def __init__(self, optimiser: str, seed: int) -> None:
        torch.manual_seed(seed)
        layers = nn.Linear(5, 7), nn.Tanh(), nn.Dropout(0.2), nn.Linear(7, 3)
        self.model = nn.Sequential(*layers)
        mesh = init_device_mesh("cpu", (WORLD,))
        fully_shard(layers[0], mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        groups = [{"params": layers[0].parameters()}, {"params": layers[-1].parameters(), "lr": 0.01}]
        self.optimiser = OPTIMISERS[optimiser](groups)
        self.generator = torch.Generator().manual_seed(seed + dist.get_rank())
        self.parts = {"model": self.model, "optimiser": self.optimiser, "generator": self.generator}

    def train(self, steps: int) -> dict[str, Tensor]:
        """Train on random data, other data on each process, and return all numbers that this changes."""
        for _ in range(steps):
            x = torch.randn(6, 5, generator=self.generator)
            self.optimiser.zero_grad()
            self.model(x).square().sum().backward()
            self.optimiser.step()
        found = {**self.model.state_dict()}
        for number, parameter in enumerate(self.model.parameters()):
            found |= {f"{number} {key}": value for key, value in self.optimiser.state[parameter].items()}
        # Without whole tensors of its own, each process has to have the right shard.
        local = {key: getattr(value, "to_local", value.clone)() for key, value in found.items() if value is not None}
        return {key: value.detach().clone() for key, value in local.items()}


def sharded(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    for optimiser in OPTIMISERS:
        run = ShardedRun(optimiser, seed=1)
        first, second = (mg.Checkpoint(Path(folder) / f"{optimiser} {when}") for when in ("start", "later"))
        first.save(**run.parts)
        saved = run.train(3)
        second.save(**run.parts, step=3, weights=run.model.state_dict())
        expected = run.train(3)
        assert expected.keys() == saved.keys()
        again = ShardedRun(optimiser, seed=5)
        other = again.train(1)
        assert all(not torch.equal(other[key], saved[key]) for key in run.model.state_dict())
        rest = second.load(**again.parts)
        assert rest is not None
        assert rest["step"] == 3
        assert_equal(again.train(0), saved)
        assert_equal(again.train(3), expected)
        for key, value in again.model.state_dict().items():
            assert rest["weights"][key].shape == value.shape
        fresh = ShardedRun(optimiser, seed=9)
        first.load(**fresh.parts)
        assert_equal(fresh.train(6), expected)

    with pytest.raises(ValueError, match="folder: expected one that all processes see"):
        mg.Checkpoint(Path(folder) / ("sgd start" if rank else "nowhere")).load()
    with pytest.raises(OSError, match="could not be written: Not a directory"):
        mg.Checkpoint(Path(folder) / "rendezvous" / "below a file").save(step=1)

    class Averaged:
        def state_dict(self) -> dict[str, Any]:
            return dict(run.model.state_dict())

    with pytest.raises(ValueError, match=r"average\['0.weight'\]: expected tensors and plain values, got DTensor"):
        first.save(average=Averaged())
    state = run.optimiser.state[next(run.model.parameters())]
    state["rows"] = run.model.state_dict()["3.weight"]
    with pytest.raises(ValueError, match=r"optimiser: expected sharded states of their parameter's shape \(7, 5\)"):
        first.save(optimiser=run.optimiser)
    dist.barrier()
    dist.destroy_process_group()


def assert_equal(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(got[key], value), key


def test_sharded_parameters_and_optimiser_states_come_back_on_every_process(tmp_path: Path) -> None:
    spawn(sharded, (str(tmp_path),), nprocs=WORLD)
    with pytest.raises(ValueError, match="expected a checkpoint of 1 processes, as here, got one of 2; start as many"):
        mg.Checkpoint(tmp_path / "adam later").load()


def test_flattened_shards_are_refused(tmp_path: Path) -> None:
    class FullyShardedDataParallel(nn.Linear):
        """Named as torch's, which needs processes."""

    with pytest.raises(ValueError, match=r"model: expected no FullyShardedDataParallel \(FSDP1\), got one; use fully_"):
        mg.Checkpoint(tmp_path).save(model=nn.Sequential(FullyShardedDataParallel(1, 1)))


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
    # and after that. Then at lines of the code that saves, drawn at random: at the first save after the start.
    rng = random.Random(0)  # noqa: S311
    kills = ["0:step", "3:step", "5:writing", "6:renaming", "7:saved"]
    kills += [f"line:{rng.randrange(1, 60)}" for _ in range(12)]
    ends = [run(str(RUN), str(tmp_path / name), *at).stdout.split() for name, at in (("whole", []), ("killed", kills))]
    assert ends == [["0"], [str(-signal.SIGKILL)] * len(kills) + ["0"]]
    assert_same_weights(tmp_path)
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == ["checkpoint.pt", "weights.pt"]


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
