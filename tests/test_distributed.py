"""Two real processes (gloo): value, DDP gradient, learned surrogates' gradient and judgements are those of one."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import metricgrad as mg
from metricgrad import surrogates as s

ROWS, FEATURES, CLASSES = 23, 5, 4
SHARDS = {"uneven": (slice(0, 5), slice(5, ROWS)), "one empty": (slice(0, 0), slice(0, ROWS))}


def losses(**options: Any) -> dict[str, nn.Module]:
    label = {"task": "multilabel", **options}
    return {
        "macro": mg.MetricLoss("f1", **label),
        "micro with thresholds": mg.MetricLoss("mcc", average="micro", threshold=[0.3, 0.6], **label),
        "samples": mg.MetricLoss("f1", average="samples", surrogate=s.LogitSigmoid(), **label),
        "per class": mg.MetricLoss("f1", average=None, **label),
        "custom surrogate": mg.MetricLoss("f1", surrogate=torch.sigmoid, **label),
        "learned": mg.presets.mfom_f1(CLASSES, **options),
        "learned, per class": mg.MetricLoss(
            "f1", surrogate=s.Learned(s.LogitSigmoid(), CLASSES), average=None, **label
        ),
        "multiclass": mg.MetricLoss("f2", task="multiclass", **options),
        "matrix": mg.MetricLoss("quadratic_kappa", task="multiclass", **options),
        "hybrid": mg.HybridLoss("f1", **label),
        "focal": mg.baselines.focal(**label),
        "constrained": mg.ConstrainedLoss("f1", ["precision>=0.5", "recall[each]>=0.5"], **label),
    }


def evaluators() -> dict[str, mg.Evaluator]:
    def mine(c: mg.Counts) -> Tensor:  # does not pickle
        return c.tp / c.total

    label: dict[str, Any] = {"task": "multilabel", "threshold": 0.0}
    return {
        "macro": mg.Evaluator(["f1", "subset_accuracy", "auroc", mine], **label),
        "micro": mg.Evaluator(["mcc", "average_precision"], average="micro", score_bits=4, **label),
        "samples": mg.Evaluator("f1", average="samples", labels=[0, 2], **label),
        "per class": mg.Evaluator(["f1", "auroc"], average=None, class_names=list("abcd"), **label),
        "multiclass": mg.Evaluator(["f1", "quadratic_kappa", "auroc"], task="multiclass"),
    }


def judged(name: str, evaluator: mg.Evaluator, part: slice) -> mg.Evaluator:
    x, labels, classes, weight = data()
    scores = x[part, :CLASSES]
    if not len(scores):
        return evaluator  # a process without data need not even update
    return evaluator.update(scores, (classes if name == "multiclass" else labels)[part], weight[part])


def data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, FEATURES, generator=g)
    labels = (torch.rand(ROWS, CLASSES, generator=g) < 0.4).float()
    return x, labels, torch.randint(CLASSES, (ROWS,), generator=g), torch.rand(ROWS, generator=g)


def outcome(name: str, loss: nn.Module, model: nn.Module, part: slice) -> list[Tensor]:
    x, labels, classes, weight = data()
    y = classes if name in ("multiclass", "matrix") else labels
    value = loss(model(x[part]), y[part], weight[part])
    value.sum().backward()
    grads = [p.grad.clone() for p in (*model.parameters(), *loss.parameters()) if p.grad is not None]
    return [value.detach(), *grads]


BOOSTED = ("macro", "samples", "multiclass", "matrix", "hybrid", "focal")


def boosted(name: str, loss: nn.Module, part: slice) -> Tensor:
    """Return gradient and curvature of an objective of boosting."""
    x, labels, classes, weight = data()
    y = classes if name in ("multiclass", "matrix") else labels
    objective = mg.boosting.xgboost_objective(loss)
    return torch.stack([torch.from_numpy(g) for g in objective(y[part], x[part, :CLASSES], weight[part])])


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(FEATURES, CLASSES)


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    results: dict[tuple[str, str], Any] = {}
    for shard, parts in SHARDS.items():
        for name, loss in losses(process_group="world").items():
            model = DistributedDataParallel(network())
            results[shard, name] = outcome(name, loss, model, parts[rank])
            if name in BOOSTED:
                results["boosted " + shard, name] = boosted(name, loss, parts[rank])
        for name, evaluator in evaluators().items():
            results["judged " + shard, name] = judged(name, evaluator, parts[rank]).merged().compute()
    try:
        mg.Evaluator("f1" if rank else "f2").merged()
    except ValueError as error:
        results["different", ""] = str(error)
    alone = mg.MetricLoss("f1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            alone(torch.zeros(2), torch.ones(2))
    results["warnings", ""] = [str(w.message) for w in caught if "process_group" in str(w.message)]
    torch.save(results, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[tuple[str, str], Any]]:
    folder = tmp_path_factory.mktemp("gloo")
    spawn(worker, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("name", losses())
def test_two_processes_equal_one(results: list[dict[tuple[str, str], Any]], name: str, shard: str) -> None:
    expected = outcome(name, losses()[name], network(), slice(0, ROWS))
    assert len(expected) > 2
    for rank in range(2):
        got = results[rank][shard, name]
        assert len(got) == len(expected)
        for mine, its in zip(got, expected, strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("name", evaluators())
def test_judgements_of_two_processes_equal_one(
    results: list[dict[tuple[str, str], Any]], name: str, shard: str
) -> None:
    expected = judged(name, evaluators()[name], slice(0, ROWS)).compute()
    for rank in range(2):
        got = results[rank]["judged " + shard, name]
        assert list(got) == list(expected)
        for metric, value in expected.items():
            assert got[metric] == pytest.approx(value, abs=1e-12)
        assert "expected evaluators made alike" in results[rank]["different", ""]


@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("name", BOOSTED)
def test_workers_boost_with_the_gradient_of_all_data(
    results: list[dict[tuple[str, str], Any]], name: str, shard: str
) -> None:
    expected = boosted(name, losses()[name], slice(0, ROWS))
    got = torch.cat([results[rank]["boosted " + shard, name] for rank in range(2)], 1)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


def test_warns_once_when_processes_are_not_joined(results: list[dict[tuple[str, str], Any]]) -> None:
    for rank in range(2):
        assert len(results[rank]["warnings", ""]) == 1


def test_process_group_without_processes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"process_group: torch\.distributed is not initialised"):
        mg.MetricLoss("f1", process_group="world")(torch.zeros(2), torch.ones(2))
