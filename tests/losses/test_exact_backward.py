"""Exact large batches: micro-batches give the gradient of the whole; running counts give what their definition says."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

import metricgrad as mg
from metricgrad import surrogates as s
from metricgrad.losses.exact_backward import exact_backward
from metricgrad.losses.running_loss import RunningLoss

ROWS, FEATURES, CLASSES = 131, 6, 3
Batch = tuple[Tensor, ...]
LABEL: dict[str, Any] = {"task": "multilabel"}
LOSSES: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "binary": ("binary", partial(mg.MetricLoss, "mcc")),
    "macro": ("multilabel", partial(mg.MetricLoss, "f1", **LABEL)),
    "micro": ("multilabel", partial(mg.MetricLoss, "f2", average="micro", **LABEL)),
    "weighted": ("multilabel", partial(mg.MetricLoss, "kappa", average="weighted", **LABEL)),
    "samples": ("multilabel", partial(mg.MetricLoss, "f1", average="samples", **LABEL)),
    "several thresholds": ("multilabel", partial(mg.MetricLoss, "f1", threshold=[0.3, 0.6], **LABEL)),
    "several, samples": ("multilabel", partial(mg.MetricLoss, "f1", threshold=[0.3, 0.6], average="samples", **LABEL)),
    "custom surrogate": ("multilabel", partial(mg.MetricLoss, "f1", surrogate=torch.sigmoid, **LABEL)),
    "multiclass": ("multiclass", partial(mg.MetricLoss, "f1", task="multiclass")),
    "matrix": ("multiclass", partial(mg.MetricLoss, "quadratic_kappa", task="multiclass")),
    "learned": ("multilabel", partial(mg.presets.mfom_f1, CLASSES)),
    "sigmoid_f1": ("multilabel", mg.presets.sigmoid_f1),
    "hybrid": ("multilabel", partial(mg.HybridLoss, "f1", **LABEL)),
    "focal": ("multilabel", partial(mg.baselines.focal, **LABEL)),
    "constrained": ("multilabel", partial(mg.ConstrainedLoss, "f1", "precision>=0.6", **LABEL)),
    "auroc": ("binary", mg.AUROCLoss),
    "wmw": ("multilabel", partial(mg.WMWLoss, **LABEL)),
    "break-even": ("binary", mg.PRBEPLoss),
    "hinge": ("binary", partial(mg.StructuredHingeLoss, "f1")),
}


def data(task: str, weights: bool = True) -> Batch:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, FEATURES, generator=g, dtype=torch.float64)
    labels = (torch.rand(ROWS, CLASSES, generator=g) < 0.3).double()
    y = {"binary": labels[:, :1], "multilabel": labels, "multiclass": torch.randint(CLASSES, (ROWS,), generator=g)}[
        task
    ]
    weight = torch.randint(0, 3, (ROWS,), generator=g).double()
    return (x, y, weight, torch.rand(ROWS, generator=g) < 0.9) if weights else (x, y)


def cut(whole: Batch, number: int) -> list[Batch]:
    return list(zip(*(column.tensor_split(number) for column in whole), strict=True))


def network(task: str, *layers: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    ends = nn.Linear(FEATURES, 8), nn.Linear(8, 1 if task == "binary" else CLASSES)
    return nn.Sequential(ends[0], nn.ReLU(), *layers, ends[1]).double()


def plain(loss: nn.Module, model: nn.Module, batches: list[Batch]) -> Tensor:
    """Return the loss of the concatenated outputs, backpropagated at once."""
    outputs = torch.cat([model(x) for x, *_ in batches])
    value: Tensor = loss(outputs, *(torch.cat(column) for column in list(zip(*batches, strict=True))[1:]))
    value.backward()
    return value.detach()


def gradients(*modules: nn.Module) -> list[Tensor]:
    found = [p.grad for module in modules for p in module.parameters()]
    assert all(grad is not None for grad in found)
    return [grad for grad in found if grad is not None]


def check(mine: list[Tensor], its: list[Tensor], rtol: float = 1e-6) -> None:
    assert any(gradient.abs().sum() > 0 for gradient in its)
    for a, b in zip(mine, its, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("number", [1, 7, 64])
@pytest.mark.parametrize("name", LOSSES)
def test_micro_batches_give_the_gradient_of_the_whole(name: str, number: int) -> None:
    task, make = LOSSES[name]
    whole = data(task)
    its, same = network(task), make().double()
    expected = same(its(whole[0]), *whole[1:])
    expected.backward()
    model, loss = network(task), make().double()
    value = exact_backward(loss, model, cut(whole, number))
    assert not value.requires_grad
    torch.testing.assert_close(value, expected.detach(), rtol=1e-6, atol=1e-9)
    check(gradients(model, loss), gradients(its, same))


@pytest.mark.parametrize("number", [1, 7, 64])
@pytest.mark.parametrize("name", ["macro", "samples", "learned", "wmw"])
def test_dropout_is_replayed_and_running_statistics_move_once(name: str, number: int) -> None:
    task, make = LOSSES[name]
    batches = cut(data(task), number)
    model, loss = network(task, nn.BatchNorm1d(8), nn.Dropout(0.4)), make().double()
    its, same = copy.deepcopy(model), copy.deepcopy(loss)
    torch.manual_seed(3)
    expected = plain(same, its, batches)
    after = torch.get_rng_state()
    torch.manual_seed(3)
    value = exact_backward(loss, model, batches)
    assert torch.equal(torch.get_rng_state(), after)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-9)
    check(gradients(model, loss), gradients(its, same))
    for (key, mine), (_, other) in zip(model.named_buffers(), its.named_buffers(), strict=True):
        torch.testing.assert_close(mine, other, msg=key)
    assert int(model.get_buffer("2.num_batches_tracked")) == number


@pytest.mark.parametrize("name", ["macro", "matrix", "hybrid", "wmw"])
def test_under_autocast_and_with_a_scaler(name: str) -> None:
    task, make = LOSSES[name]
    batches = [tuple(c.float() if c.is_floating_point() else c for c in batch) for batch in cut(data(task), 5)]
    model = network(task, nn.Dropout(0.2)).float()
    its, same, loss = copy.deepcopy(model), make(), make()
    torch.manual_seed(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = torch.cat([its(x) for x, *_ in batches])
        expected = same(outputs, *(torch.cat(column) for column in list(zip(*batches, strict=True))[1:]))
    assert outputs.dtype == torch.bfloat16
    expected.backward()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    torch.manual_seed(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = exact_backward(loss, model, batches, scaler=scaler)
    torch.testing.assert_close(value, expected.detach(), rtol=1e-5, atol=1e-6)
    assert value.dtype == torch.float32
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler.unscale_(optimiser)
    # The products of one backward pass round to bfloat16, per micro-batch or for all at once.
    for mine, other in zip(gradients(model), gradients(its), strict=True):
        assert (mine - other).norm() <= 0.02 * other.norm()
    scaler.step(optimiser)
    scaler.update()


def test_gradients_are_added_and_a_shuffling_loader_is_replayed() -> None:
    x, y = data("multilabel", weights=False)
    model, loss = network("multilabel", nn.Dropout(0.3)), mg.WMWLoss(**LABEL)
    loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
    its = copy.deepcopy(model)
    torch.manual_seed(0)
    outputs, targets = zip(*((its(inputs), labels) for inputs, labels in loader), strict=True)
    loss(torch.cat(outputs), torch.cat(targets)).backward()
    for times in (1, 2):
        torch.manual_seed(0)
        exact_backward(loss, model, loader)
        check(gradients(model), [times * gradient for gradient in gradients(its)])


def test_dense_outputs_and_any_loss() -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(10, 2, 4, 4, generator=g), torch.randint(3, (10, 4, 4), generator=g)
    for loss in (mg.MetricLoss("jaccard", task="multiclass"), nn.CrossEntropyLoss()):
        torch.manual_seed(0)
        model = nn.Conv2d(2, 3, 3, padding=1)
        its = copy.deepcopy(model)
        expected = plain(loss, its, cut((x, y), 4))
        torch.testing.assert_close(exact_backward(loss, model, cut((x, y), 4)), expected)
        check(gradients(model), gradients(its), rtol=1e-4)


def test_an_empty_micro_batch_changes_nothing() -> None:
    whole = data("multilabel")
    empty = tuple(column[:0] for column in whole)
    for make in (LOSSES["macro"][1], LOSSES["wmw"][1]):
        model = network("multilabel")
        its = copy.deepcopy(model)
        value = exact_backward(make(), model, [empty, whole, empty])
        assert value == exact_backward(make(), its, [whole])
        check(gradients(model), gradients(its))


class Unsteady(nn.Linear):
    """Another output in every call."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) + self.calls


class Reordered(Dataset[Batch]):
    """Other batches, all rows of them in another order, at every reading."""

    def __init__(self, whole: TensorDataset) -> None:
        self.whole, self.generator_ = whole, torch.Generator().manual_seed(0)

    def __iter__(self) -> Iterator[Batch]:
        order = torch.randperm(len(self.whole), generator=self.generator_)
        return (self.whole[part] for part in order.split(50))


class Readings:
    """One list of batches at the first reading, another at the second."""

    def __init__(self, first: Any, second: Any) -> None:
        self.turns = iter([first, second])

    def __iter__(self) -> Iterator[Any]:
        return iter(next(self.turns))


def test_bad_input_gets_one_line() -> None:
    x, y = data("multilabel", weights=False)
    loss, model = mg.MetricLoss("f1", **LABEL), nn.Linear(FEATURES, CLASSES).double()
    unsteady, pair = Unsteady(FEATURES, CLASSES).double(), nn.LSTM(FEATURES, CLASSES).double()
    wmw, ones = mg.WMWLoss(**LABEL), torch.ones(len(x))
    own = Reordered(TensorDataset(x, y))
    short = [(x[: 1 + i], y[: 1 + i]) for i in range(3)]
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: exact_backward(loss, model, iter([(x, y)])), "batches: expected what can be read twice"),
        (lambda: exact_backward(loss, model, []), "batches: expected at least one micro-batch"),
        (lambda: exact_backward(mg.MetricLoss("f1", average=None, **LABEL), model, short), r"got shape \(3,\)"),
        (lambda: exact_backward(loss, model, own), "batches: the second reading gave other data"),
        (lambda: exact_backward(mg.WMWLoss(**LABEL), model, own), "batches: the second reading gave other data"),
        (lambda: exact_backward(loss, unsteady, short), "a model that repeats itself"),
        (
            lambda: exact_backward(loss, model, [{"x": x, "y": y}]),
            r"batches: expected \(inputs, targets\).* got dict; pass",
        ),
        (lambda: exact_backward(loss, model, [x]), "batches: expected .* got Tensor; pass forward=lambda model, batch"),
        (lambda: exact_backward(loss, model, [(x,)]), "batches: expected .* got tuple of Tensor; pass forward="),
        (lambda: exact_backward(loss, pair, short), "model: expected a tensor of logits, got tuple of Tensor, tuple;"),
        (
            lambda: exact_backward(loss, model, short, forward=lambda model, batch: model(batch[0])),
            r"forward: expected it to return \(logits, targets\), .* got Tensor",
        ),
        (lambda: exact_backward(wmw, model, [(x, y, ones), (x, y, ones[:, None])]), r"weight .* got \(N, 1\), \(N,\)"),
        (lambda: exact_backward(wmw, model, [(x, None), (x, y)]), "expected targets in all micro-batches or in none"),
        (lambda: RunningLoss(mg.WMWLoss()), "loss: expected a MetricLoss or HybridLoss, .*, got WMWLoss"),  # type: ignore[arg-type]
        (lambda: RunningLoss(loss, 1.0), r"decay: expected a number in \[0, 1\), got 1.0"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("lacking", ["weight", "mask", "both", "shorter"])
def test_a_weight_or_mask_of_some_micro_batches_is_not_lost(name: str, lacking: str) -> None:
    task, make = LOSSES[name]
    x, y, weight, mask = data(task)
    first = len(x) // 3
    weight[:first] = 1 if lacking != "mask" else weight[:first]
    mask[:first] = True if lacking != "weight" else mask[:first]
    its, same = network(task), make().double()
    same(its(x), y, weight, mask).backward()
    parts = cut((x[first:], y[first:], weight[first:], mask[first:]), 2)
    start = {
        "weight": (None, mask[:first]),
        "mask": (weight[:first], None),
        "both": (None, None),
        "shorter": (),
    }[lacking]
    for order in (1, -1):  # the one that lacks it comes first, and last
        model, loss = network(task), make().double()
        exact_backward(loss, model, [(x[:first], y[:first], *start), *parts][::order])
        check(gradients(model, loss), gradients(its, same))


@pytest.mark.parametrize("name", ["macro", "wmw"])
def test_other_rows_targets_weights_or_masks_in_the_second_reading_are_refused(name: str) -> None:
    loss = LOSSES[name][1]().double()
    x, y, weight, mask = data("multilabel")
    swapped = torch.arange(len(x))
    swapped[[3, 4]] = swapped[[4, 3]]
    flipped, moved = y.clone(), y.clone()
    flipped[5, 1] = 1 - flipped[5, 1]
    row = int((y.sum(1) == 1).nonzero()[0])
    moved[row] = y[row].roll(1)
    other_mask, other_weight = mask.clone(), weight.clone()
    other_mask[7], other_weight[7] = not mask[7], weight[7] + 1
    good = x, y, weight, mask
    halves = cut(good, 2)
    seconds: list[list[Batch]] = [
        [tuple(column[swapped] for column in good)],
        [(x[swapped], y, weight, mask)],
        [(x, y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))], weight, mask)],
        [(x, flipped, weight, mask)],
        [(x, moved, weight, mask)],
        [(x, y, other_weight, mask)],
        [(x, y, weight, other_mask)],
        [(x, y, weight)],
        [(x.float().double(), y, weight, mask)],
        halves,
    ]
    model = network("multilabel")
    for second in seconds:
        with pytest.raises(ValueError, match="batches: the second reading gave other data or outputs than the first"):
            exact_backward(loss, model, Readings([good], second))
        with pytest.raises(ValueError, match="batches: the second reading gave other data or outputs than the first"):
            exact_backward(loss, model, Readings([{"batch": good}], [{"batch": b} for b in second]), forward=unpacked)
    with pytest.raises(ValueError, match="batches: the second reading gave other data or outputs than the first"):
        exact_backward(loss, model, Readings(halves, halves[::-1]))
    exact_backward(loss, model, Readings(halves, copy.deepcopy(halves)))


def unpacked(model: nn.Module, batch: dict[str, Batch]) -> tuple[Tensor, ...]:
    x, *rest = batch["batch"]
    return model(x), *rest


class Output(dict[str, Tensor]):
    """As Hugging Face's models return it."""

    @property
    def logits(self) -> Tensor:
        return self["logits"]


class Named(nn.Module):
    """A model that takes keywords and returns an object."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network("multilabel", nn.BatchNorm1d(8), nn.Dropout(0.3))

    def forward(self, x: Tensor, shift: Tensor) -> Output:
        return Output(logits=self.inner(x + shift[:, None]))


@pytest.mark.parametrize("name", ["macro", "wmw", "hybrid"])
def test_dict_batches_and_models_that_return_objects(name: str) -> None:
    x, y, weight, mask = data("multilabel")
    model, loss = Named(), LOSSES[name][1]().double()
    its = copy.deepcopy(model)
    names = ("x", "shift", "labels", "weight", "mask")
    batches = [dict(zip(names, part, strict=True)) for part in cut((x, weight, y, weight, mask), 5)]
    torch.manual_seed(3)
    outputs = torch.cat([its(batch["x"], batch["shift"]).logits for batch in batches])
    expected = loss(outputs, y, weight, mask)
    expected.backward()
    torch.manual_seed(3)
    value = exact_backward(
        loss,
        model,
        batches,
        forward=lambda m, b: (m(b["x"], shift=b["shift"]).logits, b["labels"], b["weight"], b["mask"]),
    )
    torch.testing.assert_close(value, expected.detach(), rtol=1e-6, atol=1e-9)
    check(gradients(model), gradients(its))
    for (key, mine), (_, other) in zip(model.named_buffers(), its.named_buffers(), strict=True):
        torch.testing.assert_close(mine, other, msg=key)


def sources() -> dict[str, Callable[[], Any]]:
    """Return what gives the batches of an epoch, and another epoch when it is read again."""
    x, y = data("multilabel", weights=False)
    whole, classes = TensorDataset(x, y), y[:, 0].long()

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(0)

    batches, over = mg.samplers.StratifiedBatchSampler, mg.samplers.OversamplingSampler
    return {
        "stream": lambda: mg.ArrayBatches(x, y, 20, buffer=40),
        "loader of a stream": lambda: mg.ArrayBatches(x, y, 20, buffer=40).loader(),
        "workers of a stream": lambda: mg.ArrayBatches(x, y, 20, buffer=40).loader(1),
        "DataLoader of a stream": lambda: DataLoader(mg.ArrayBatches(x, y, 20, buffer=40), batch_size=None),
        "batch sampler": lambda: DataLoader(whole, batch_sampler=batches(classes, 20)),
        "sampler": lambda: DataLoader(whole, sampler=over(classes), batch_size=20),
        "own generator": lambda: DataLoader(whole, 20, shuffle=True, generator=generator()),
        "generator of a sampler": lambda: DataLoader(whole, 20, sampler=RandomSampler(whole, generator=generator())),
    }


@pytest.mark.parametrize("name", sources())
def test_both_passes_see_the_same_epoch_and_the_next_call_the_next(name: str) -> None:
    pytest.importorskip("numpy")
    model, loss = network("multilabel", nn.Dropout(0.3)), mg.WMWLoss(**LABEL)
    plainly, source = sources()[name](), sources()[name]()
    values = []
    for _ in range(3):
        its = copy.deepcopy(model)
        torch.manual_seed(7)
        outputs, targets = zip(*((its(x), y) for x, y in plainly), strict=True)
        loss(torch.cat(outputs), torch.cat(targets)).backward()
        torch.manual_seed(7)
        model.zero_grad()
        values.append(exact_backward(loss, model, source).item())
        check(gradients(model), gradients(its))
        model.zero_grad()
    assert len(set(values)) == 3


def test_a_stream_stands_where_one_reading_leaves_it() -> None:
    x, y = data("multilabel", weights=False)
    plainly, stream = (mg.ArrayBatches(x, y, 20, buffer=40, seed=4) for _ in range(2))
    for each in (plainly, stream):  # in mid-epoch, as after loading a checkpoint
        each.load_state_dict({**each.state_dict(), "epoch": 2, "position": 3})
    seen = []

    def forward(model: nn.Module, batch: Batch) -> Batch:
        seen.append(batch[0])
        return model(batch[0]), batch[1]

    exact_backward(mg.MetricLoss("f1", **LABEL), network("multilabel"), stream, forward=forward)
    expected = [batch[0] for batch in plainly]
    assert len(expected) == len(plainly) - 3
    assert all(map(torch.equal, seen, expected + expected))
    assert stream.state_dict() == plainly.state_dict()
    assert stream.state_dict()["epoch"] == 3


# Running counts.


@pytest.mark.parametrize("name", ["binary", "macro", "samples", "several thresholds", "matrix"])
def test_running_counts_equal_their_definition(name: str) -> None:
    task, make = LOSSES[name]
    inner, decay = make(), 0.7
    assert isinstance(inner, mg.MetricLoss)
    loss = RunningLoss(inner, decay)
    seen: list[Any] = []
    for step, (x, y, weight, mask) in enumerate(cut(data(task), 4)):
        model = network(task)
        value = loss(model(x), y, weight, mask)
        value.backward()
        its = network(task)
        counts = inner.counts(its(x), y, weight, mask)
        seen.append([cell.detach() for cell in counts.cells()])
        shares = torch.tensor([decay ** (step - i) for i in range(step + 1)], dtype=torch.float64)
        shares /= shares.sum()
        mean = [sum(share * cells[k] for share, cells in zip(shares, seen, strict=True)) for k in range(len(seen[0]))]
        leaves = [torch.as_tensor(cell).requires_grad_() for cell in mean]
        expected = 1 - inner.value(type(counts)(*leaves))
        by_cell = torch.autograd.grad(expected, leaves, materialize_grads=True)
        moving = [(cell, g) for cell, g in zip(counts.cells(), by_cell, strict=True) if cell.requires_grad]
        torch.autograd.backward([cell for cell, _ in moving], [g for _, g in moving])
        torch.testing.assert_close(value.detach(), expected.detach(), rtol=1e-6, atol=1e-9)
        check(gradients(model), gradients(its))


def test_running_loss_without_memory_is_the_loss_and_so_it_is_when_judging() -> None:
    z, y, *_ = data("multilabel")
    inner = mg.MetricLoss("f1", **LABEL)
    loss = RunningLoss(inner, 0.0)
    loss(-z[:, :CLASSES], y)
    torch.testing.assert_close(loss(z[:, :CLASSES], y), inner(z[:, :CLASSES], y))
    slow = RunningLoss(inner, 0.9)
    slow(-z[:, :CLASSES], y)
    before = slow.state_dict()
    torch.testing.assert_close(slow.eval()(z[:, :CLASSES], y), inner(z[:, :CLASSES], y))
    assert all(torch.equal(a, b) for a, b in zip(before.values(), slow.state_dict().values(), strict=True))


def test_running_hybrid_loss_is_cross_entropy_of_the_batch_and_the_running_metric() -> None:
    z, y, *_ = data("multilabel")
    z = z[:, :CLASSES]
    hybrid = mg.HybridLoss("f1", metric_weight=0.4, warmup=2, **LABEL)
    loss, metric = RunningLoss(hybrid, 0.8), RunningLoss(mg.MetricLoss("f1", **LABEL), 0.8)
    for step, logits in enumerate((z, -z, 2 * z)):
        leaf, its = (logits.clone().requires_grad_() for _ in range(2))
        value = loss(leaf, y)
        expected = hybrid.cross_entropy(its, y) + min(step / 2, 1) * 0.4 * metric(its, y)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(torch.autograd.grad(value, leaf), torch.autograd.grad(expected, its))
        hybrid.step()
    torch.testing.assert_close(loss.eval()(z, y), hybrid(z, y))
    again = RunningLoss(mg.HybridLoss("f1", metric_weight=0.4, warmup=2, **LABEL), 0.8)
    again.load_state_dict(loss.state_dict())
    assert again.train()(z, y).item() == loss.train()(z, y).item()


def test_running_loss_is_saved_whole() -> None:
    z, y, *_ = data("multilabel")
    loss = RunningLoss(mg.MetricLoss("f1", surrogate=s.LogitSigmoid(), **LABEL), 0.8)
    loss(z[:, :CLASSES], y)
    again = RunningLoss(mg.MetricLoss("f1", surrogate=s.LogitSigmoid(), **LABEL), 0.8)
    again.load_state_dict(loss.state_dict())
    copies = [again, copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))]  # noqa: S301
    values = [one(2 * z[:, :CLASSES], y).item() for one in (loss, *copies)]
    assert len(set(values)) == 1
    assert "decay=0.8" in repr(loss)
    with pytest.raises(ValueError, match="logits: expected the classes of before, 3, got 2"):
        loss(z[:, :2], y[:, :2])


def test_running_loss_in_half_precision_is_finite() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        z = torch.tensor([1e4, -1e4, 0.5], dtype=dtype, requires_grad=True)
        loss = RunningLoss(mg.MetricLoss("f1"))
        for y in (torch.zeros(3), torch.ones(3)):
            value = loss(z, y)
            value.backward()
            assert value.isfinite()
        assert z.grad is not None
        assert z.grad.isfinite().all()


def test_a_batch_of_nan_does_not_stay_in_a_running_loss() -> None:
    """GradScaler skips such a step; the ones after it must be as if it had not been."""
    z, y = torch.tensor([2.0, -1.0, 0.0]), torch.tensor([1, 0, 1])
    loss, clean = (mg.RunningLoss(mg.MetricLoss("f1"), decay=0.9) for _ in range(2))
    for batch in (z, torch.full_like(z, torch.nan), -z, z):
        value = loss(batch, y)
        assert bool(value.isnan()) == bool(batch.isnan().any())
    for batch in (z, -z, z):
        expected = clean(batch, y)
    assert torch.equal(value, expected)


def test_nothing_predicted_and_no_positives_in_all_micro_batches() -> None:
    model = nn.Linear(2, 3)
    nn.init.constant_(model.bias, -95.0)
    batches = [(torch.ones(4, 2), torch.zeros(4, 3)) for _ in range(3)]
    for metric in ("f1", "precision", "jaccard", "kappa"):
        loss = mg.MetricLoss(metric, task="multilabel", surrogate=mg.surrogates.LogitSigmoid())
        assert mg.exact_backward(loss, model, batches).isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
