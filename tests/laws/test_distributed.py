"""Four real processes (gloo), and two of them, with uneven shards, some empty: every loss, its DDP gradient, training
under DDP and FSDP, exact large batches and judgements are those of one process."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import metricgrad as mg
from metricgrad import metrics
from metricgrad import surrogates as s
from metricgrad.core import processes

ROWS, FEATURES, CLASSES, STEPS = 23, 5, 4, 20
Make = Callable[..., Any]
Results = list[dict[tuple[str, str], Any]]

WORLD = 4
SHARDS = {
    "two": [slice(0, 5), slice(5, ROWS)],
    "two, one empty": [slice(0, 0), slice(0, ROWS)],
    "four, one empty": [slice(0, 3), slice(3, 3), slice(3, 15), slice(15, ROWS)],
}


def core() -> dict[str, tuple[str, Make]]:
    """Return every metric × task × average that there is."""
    found: dict[str, tuple[str, Make]] = {}
    for name in metrics.names():
        for task in ("binary", "multilabel", "multiclass"):
            for average in ("macro",) if task == "binary" else ("macro", "micro", "weighted", "samples", None):
                make = partial(mg.MetricLoss, name, task=task, average=average)
                try:
                    loss = make()
                except ValueError:
                    continue  # not of this task or average
                if not (loss.objective.of_matrix and average != "macro"):
                    found[f"{name} {task} {average}"] = task, make
    return found


def others() -> dict[str, tuple[str, Make]]:
    b, p = mg.baselines, mg.presets
    label: dict[str, Any] = {"task": "multilabel"}

    def learned(loss: Make, *args: Any) -> Make:
        return lambda **o: loss(*args, surrogate=s.Learned(s.LogitSigmoid(), CLASSES), **label, **o)

    binary: dict[str, Make] = {
        "soft_set": p.soft_set,
        "bce": partial(b.bce, class_counts=[9, 1]),
        "hybrid binary": partial(mg.HybridLoss, "mcc"),
        "tversky": b.tversky,
        "focal_tversky": b.focal_tversky,
        "dice": b.dice,
        "lovasz_hinge": b.lovasz_hinge,
        "auroc": mg.AUROCLoss,
        "wmw": mg.WMWLoss,
        "precision at k": partial(mg.PrecisionAtKLoss, 6),
        "hinge": partial(mg.StructuredHingeLoss, "f1"),
        "adversarial": partial(mg.AdversarialLoss, "f1", tol=1e-3),
    }
    multilabel: dict[str, Make] = {
        "several thresholds": partial(mg.MetricLoss, "mcc", average="micro", threshold=[0.3, 0.6], **label),
        "several thresholds, samples": partial(mg.MetricLoss, "f1", average="samples", threshold=[0.3, 0.6], **label),
        "some labels": partial(mg.MetricLoss, "f1", labels=[0, 2], **label),
        "absent skipped": partial(mg.MetricLoss, "f1", empty_classes="skip", **label),
        "custom surrogate": partial(mg.MetricLoss, "f1", surrogate=torch.sigmoid, **label),
        "learned, per class": learned(partial(mg.MetricLoss, average=None), "f1"),
        "learned, custom": learned(mg.MetricLoss, lambda c: c.tp / c.total.clamp(min=1)),
        "sigmoid_f1": p.sigmoid_f1,
        "unbounded_f1": p.unbounded_f1,
        "mfom_f1, learned": partial(p.mfom_f1, CLASSES),
        "mfom_eer": p.mfom_eer,
        "mfom_detection_cost": p.mfom_detection_cost,
        "soft_dice": partial(p.soft_dice, **label),
        "hybrid": partial(mg.HybridLoss, "f1", **label),
        "focal": partial(b.focal, **label),
        "asymmetric": b.asymmetric,
        "poly1": partial(b.poly1, **label),
        "dice per sample": partial(b.dice, per_image=True, smooth=1.0, **label),
        "lovasz_hinge of labels": partial(b.lovasz_hinge, **label),
        "lovasz_hinge per image": partial(b.lovasz_hinge, per_image=True, **label),
        "constrained": partial(mg.ConstrainedLoss, "f1", ["precision>=0.5", "recall[each]>=0.5"], **label),
        "constrained, learned": learned(mg.ConstrainedLoss, "f1", "precision>=0.5"),
        "running": lambda **o: mg.RunningLoss(learned(mg.MetricLoss, "f1")(**o)),
        "auroc pr": partial(mg.AUROCLoss, s.Sigmoid(), curve="pr", average="weighted", **label),
        "auroc, part": partial(mg.AUROCLoss, max_fpr=0.3, **label),
        "auroc micro": partial(mg.AUROCLoss, average="micro", **label),
        "wmw on logits": partial(mg.WMWLoss, 1.0, 1, on="logits", average="weighted", **label),
        "wmw micro": partial(mg.WMWLoss, power=3, average="micro", **label),
        "wmw per class": partial(mg.WMWLoss, average=None, **label),
        "precision at a share": partial(mg.PrecisionAtKLoss, 0.3, average="micro", **label),
        "break-even": partial(mg.PRBEPLoss, **label),
        "equal error": partial(mg.EERLoss, average="weighted", **label),
        "recall at precision": partial(mg.RecallAtPrecisionLoss, 0.6, **label),
        "recall at fpr": partial(mg.RecallAtFPRLoss, 0.2, average=None, **label),
        "hinge of labels": partial(mg.StructuredHingeLoss, "mcc", **label),
        "adversarial of labels": partial(mg.AdversarialLoss, "f2", tol=1e-3, **label),
    }
    multiclass: dict[str, Make] = {
        "multiclass_f_beta": partial(p.multiclass_f_beta, [1.0, 2.0, 0.5, 1.0]),
        "cross_entropy": partial(b.cross_entropy, [1.0, 2.0, 3.0, 4.0]),
        "label_smoothed": b.label_smoothed_cross_entropy,
        "logit_adjusted": partial(b.logit_adjusted_cross_entropy, [5, 3, 2, 1]),
        "lovasz_softmax": b.lovasz_softmax,
        "lovasz_softmax per image": partial(b.lovasz_softmax, per_image=True),
        "cross_entropy, sum": partial(b.cross_entropy, [1.0, 2.0, 3.0, 4.0], reduction="sum"),
        "per image": partial(mg.MetricLoss, "f1", per_image=True, empty_classes="skip", task="multiclass"),
        "per image and class": partial(mg.MetricLoss, "f1", per_image=True, average=None, task="multiclass"),
        "auroc rest": partial(mg.AUROCLoss, average="weighted", task="multiclass"),
        "auroc pairs": partial(mg.AUROCLoss, multi_class="ovo", average="weighted", task="multiclass"),
        "auroc pairs, part": partial(mg.AUROCLoss, s.Sigmoid(), max_fpr=0.4, multi_class="ovo", task="multiclass"),
        "wmw pairs": partial(mg.WMWLoss, multi_class="ovo", average="weighted", task="multiclass"),
        "wmw rest": partial(mg.WMWLoss, on="logits", average=None, task="multiclass"),
        "hybrid multiclass": partial(mg.HybridLoss, "quadratic_kappa", task="multiclass"),
        "constrained matrix": partial(mg.ConstrainedLoss, "kappa", "recall[each]>=0.5", task="multiclass"),
    }
    tasks = {"binary": binary, "multilabel": multilabel, "multiclass": multiclass}
    return {name: (task, make) for task, group in tasks.items() for name, make in group.items()}


CASES = {**core(), **others()}
TRAINED = ("f1 multilabel macro", "constrained", "running", "wmw micro", "hinge")
EXACT = ("f1 multilabel macro", "f1 multilabel samples", "kappa multiclass macro", "wmw micro", "mfom_f1, learned")

BOOSTED = ("f1 binary macro", "f1 multilabel samples", "kappa multiclass macro", "hybrid", "focal", "auroc")


def build(name: str, **options: Any) -> nn.Module:
    loss: nn.Module = CASES[name][1](**options)
    return loss.double()


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


def as_scored_batch(name: str, evaluator: mg.Evaluator, part: slice) -> mg.Evaluator:
    x, labels, classes, weight = data()
    scores = x[part, :CLASSES]
    if not len(scores):
        return evaluator  # a process without data need not even update
    return evaluator.update(scores, (classes if name == "multiclass" else labels)[part], weight[part])


def data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, FEATURES, generator=g, dtype=torch.float64)
    labels = (torch.rand(ROWS, CLASSES, generator=g) < 0.4).double()
    return x, labels, torch.randint(CLASSES, (ROWS,), generator=g), torch.rand(ROWS, generator=g).double()


def part_of(name: str, rows: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, targets and weights of some rows."""
    task, (x, labels, classes, weight) = CASES[name][0], data()
    if "hinge" in name or "adversarial" in name:
        weight = (3 * weight).floor()  # whole numbers
    y = {"binary": labels[:, 0], "multilabel": labels, "multiclass": classes}[task]
    return x[rows], y[rows], weight[rows]


class Network(nn.Module):
    """A linear model; its first output alone for binary problems."""

    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.linear = nn.Linear(FEATURES, 1 if CASES[name][0] == "binary" else CLASSES).double()

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.linear(x)
        return z.squeeze(1) if z.shape[1] == 1 else z


def outcome(name: str, loss: nn.Module, model: nn.Module, rows: Any) -> list[Tensor]:
    """Return the loss, and its gradient by all parameters."""
    x, y, weight = part_of(name, rows)
    value = loss(model(x), y, weight)
    value.sum().backward()
    grads = [p.grad.clone() for p in (*model.parameters(), *loss.parameters()) if p.grad is not None]
    return [value.detach(), *grads]


def trained(name: str, loss: nn.Module, model: nn.Module) -> list[Tensor]:
    """Return all numbers that training changes, after some steps on class-aware batches."""
    sampler = mg.samplers.StratifiedBatchSampler(part_of(name, slice(None))[1], 12, seed=5)
    optimiser = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.3, momentum=0.9)
    for step in range(STEPS // 2):
        for rows in sampler:
            optimiser.zero_grad()
            outcome(name, loss, model, rows)
            optimiser.step()
        if step % 3 == 2 and isinstance(loss, mg.ConstrainedLoss):
            loss.step()
    assert sampler.epoch == STEPS // 2
    assert len(sampler) == 2
    tensors = [*model.parameters(), *loss.parameters(), *loss.buffers()]
    return [getattr(tensor, "full_tensor", tensor.clone)().detach() for tensor in tensors]


def exact(name: str, loss: nn.Module, model: nn.Module, rows: slice, rank: int) -> list[Tensor]:
    """Return as ``outcome`` by micro-batches, not as many on each process, one of them empty."""
    whole = range(ROWS)[rows]
    parts = [part_of(name, torch.tensor(whole[i::3], dtype=torch.long)) for i in range(3)]
    value = mg.exact_backward(loss, model, [*parts, part_of(name, slice(0, 0))][: None if rank % 2 else 3])
    grads = [p.grad.clone() for p in (*model.parameters(), *loss.parameters()) if p.grad is not None]
    return [value, *grads]


def boosted(name: str, loss: nn.Module, rows: slice) -> Tensor:
    """Return gradient and curvature of an objective of boosting."""
    x, y, weight = part_of(name, rows)
    scores = x[:, 0] if CASES[name][0] == "binary" else x[:, :CLASSES]
    return torch.stack([torch.from_numpy(g) for g in mg.boosting.xgboost_objective(loss)(y, scores, weight)])


def warned(alone: nn.Module, name: str) -> list[str]:
    """Return what a loss without a process group warns of when called twice."""
    processes._warned = False
    x, y, weight = part_of(name, slice(None))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            alone(Network(name)(x), y, weight)
    return [str(w.message) for w in caught if "process_group" in str(w.message)]


def refused(call: Callable[[], object]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    two = dist.new_group([0, 1])
    results: dict[tuple[str, str], Any] = {}
    for shard, parts in SHARDS.items():
        if rank >= len(parts):
            continue
        group: Any = two if len(parts) == 2 else "world"
        wrapped = {
            task: DistributedDataParallel(Network(name), process_group=two if len(parts) == 2 else None)
            for task, name in (("binary", "wmw"), ("multilabel", "wmw micro"), ("multiclass", "cross_entropy"))
        }
        for name, (task, _) in CASES.items():
            wrapped[task].zero_grad()
            results[shard, name] = outcome(name, build(name, process_group=group), wrapped[task], parts[rank])
        for name in EXACT:
            model = wrapped[CASES[name][0]]
            model.zero_grad()
            results["exact " + shard, name] = exact(name, build(name, process_group=group), model, parts[rank], rank)
        for name in BOOSTED:
            results["boosted " + shard, name] = boosted(name, build(name, process_group=group), parts[rank])
        for name, evaluator in evaluators().items():
            results["judged " + shard, name] = as_scored_batch(name, evaluator, parts[rank]).merged(group).compute()
    for name in TRAINED:
        model = DistributedDataParallel(Network(name))
        results["trained", name] = trained(name, build(name, process_group="world"), model)
    name = TRAINED[0]
    sharded = Network(name)
    fully_shard(sharded, mesh=init_device_mesh("cpu", (WORLD,)))
    results["sharded", name] = trained(name, build(name, process_group="world"), sharded)
    sharded.zero_grad()
    value = mg.exact_backward(
        build(name, process_group="world"), sharded, [part_of(name, slice(rank, None, WORLD))] * 2
    )
    results["sharded exact", name] = [value, *(p.grad.full_tensor() for p in sharded.parameters())]  # type: ignore[union-attr]
    results["different", ""] = refused(mg.Evaluator("f1" if rank else "f2").merged)
    z, y = torch.zeros(2), torch.ones(2)
    wmw = mg.WMWLoss(process_group="world")
    results["weights of one", ""] = refused(lambda: wmw(z, y, None if rank else torch.ones(2)))
    options: dict[str, Any] = {"task": "multilabel", "process_group": "world"}
    for kind, several in (
        ("metric", mg.MetricLoss("f1", **options)),
        ("matrix", mg.MetricLoss("mcc", task="multiclass", process_group="world")),
        ("auroc", mg.AUROCLoss(**options)),
        ("constrained", mg.ConstrainedLoss("f1", "recall>=0.5", **options)),
    ):
        logits = torch.zeros(2, 2 + (rank == 1), requires_grad=True)
        labels = torch.zeros(2, dtype=torch.long) if kind == "matrix" else torch.zeros_like(logits)
        results["classes of one", kind] = refused(partial(several, logits, labels))
    nothing = torch.zeros(0, requires_grad=True)
    values = [loss(nothing, torch.zeros(0)) for loss in (wmw, mg.MetricLoss("f1", process_group="world"))]
    torch.stack(values).sum().backward()
    results["nothing", ""] = [value.item() for value in values]
    for name in ("f1 binary macro", "bce", "auroc", "wmw", "hinge", "constrained", "running"):
        results["warnings", name] = warned(build(name), name)
    torch.save(results, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("gloo")
    spawn(worker, (str(folder),), nprocs=WORLD)
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


def found(results: Results, kind: str, name: str) -> list[Any]:
    """Return what all processes found, of all shards."""
    return [results[rank][kind + shard, name] for shard, parts in SHARDS.items() for rank in range(len(parts))]


def check(got: list[Tensor], expected: list[Tensor]) -> None:
    assert len(got) == len(expected) > 1
    for mine, its in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-6, atol=1e-9, check_dtype=False)


def test_the_table_is_whole() -> None:
    assert len(core()) > 150
    assert {name.split()[0] for name in core()} == set(metrics.names())


@pytest.mark.parametrize("name", CASES)
def test_processes_equal_one(results: Results, name: str) -> None:
    expected = outcome(name, build(name), Network(name), slice(None))
    assert "subset" in name or any(gradient.abs().sum() > 0 for gradient in expected[1:])
    for own in found(results, "", name):
        check(own, expected)


@pytest.mark.parametrize("name", EXACT)
def test_exact_backward_on_processes_equals_one_batch(results: Results, name: str) -> None:
    expected = outcome(name, build(name), Network(name), slice(None))
    for own in found(results, "exact ", name):
        check(own, expected)


@pytest.mark.parametrize("name", TRAINED)
def test_training_on_processes_gives_the_parameters_of_one(results: Results, name: str) -> None:
    expected = trained(name, build(name), Network(name))
    for own in results:
        check(own["trained", name], expected)
        if ("sharded", name) in own:
            check(own["sharded", name], expected)
            model = Network(name)
            model.load_state_dict(dict(zip(model.state_dict(), expected, strict=False)))
            check(own["sharded exact", name], outcome(name, build(name), model, [*range(ROWS)] * 2))


@pytest.mark.parametrize("name", BOOSTED)
def test_workers_boost_with_the_gradient_of_all_data(results: Results, name: str) -> None:
    expected = boosted(name, build(name), slice(None))
    for shard, parts in SHARDS.items():
        got = torch.cat([results[rank]["boosted " + shard, name] for rank in range(len(parts))], 1)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", evaluators())
def test_judgements_of_processes_equal_one(results: Results, name: str) -> None:
    expected = as_scored_batch(name, evaluators()[name], slice(0, ROWS)).compute()
    for own in found(results, "judged ", name):
        assert list(own) == list(expected)
        for metric, value in expected.items():
            assert own[metric] == pytest.approx(value, abs=1e-12)


def test_processes_that_differ_are_told(results: Results) -> None:
    for own in results:
        assert "expected evaluators made alike" in own["different", ""]
        assert "expected the same classes, types and kind of weight" in own["weights of one", ""]


@pytest.mark.parametrize("kind", ["metric", "matrix", "auroc", "constrained"])
def test_another_number_of_classes_on_one_process_is_refused_on_all(results: Results, kind: str) -> None:
    for own in results:
        assert own["classes of one", kind].startswith("process_group: expected the same classes and thresholds on all")
        assert "give every process logits of all classes" in own["classes of one", kind]


def test_nothing_on_all_processes_is_finite(results: Results) -> None:
    assert all(own["nothing", ""] == [0.0, 1.0] for own in results)


def test_warns_once_when_processes_are_not_joined(results: Results) -> None:
    for own in results:
        messages = [messages for (kind, _), messages in own.items() if kind == "warnings"]
        assert list(map(len, messages)) == 7 * [1]


def test_process_group_without_processes_is_refused() -> None:
    for loss in (mg.MetricLoss("f1", process_group="world"), mg.WMWLoss(process_group="world")):
        with pytest.raises(ValueError, match=r"process_group: torch\.distributed is not initialised"):
            loss(torch.zeros(2), torch.ones(2))
