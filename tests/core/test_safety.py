"""Nothing a batch can hold makes the loss or its gradient infinite, and NaN stays visible."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad import surrogates as s

ELEMENTWISE: list[Any] = [
    s.Linear(),
    s.Linear(0.0, 0.01),
    s.Sigmoid(),
    s.Sigmoid(1e6),
    s.LogitSigmoid(),
    s.LogitSigmoid(1e6, 3.0),
    s.Identity(),
    s.UnitsVsZeros(),
    s.Learned(s.UnitsVsZeros(), 3),
    s.Unbounded(),
    s.Hard(),
    s.StraightThrough(s.Linear()),
    s.Table(s.Sigmoid(), 3),
]
ROWWISE: list[Any] = [
    s.TopTwo(),
    s.TopTwo(0.0, 0.01),
    s.Linear(),
    s.Sigmoid(1e4),
    s.LogitSigmoid(50.0),
    s.Identity(),
    s.Hard(),
    s.StraightThrough(s.TopTwo()),
]
LOGITS = {
    "huge": torch.full((4, 3), 1e4),
    "minus huge": torch.full((4, 3), -1e4),
    "both": torch.tensor([[1e4, -1e4, 0.0]] * 4),
    "zeros": torch.zeros(4, 3),
    "infinite": torch.tensor([[torch.inf, -torch.inf, 0.0]] * 4),
}
LABELS = {
    "no positives": torch.zeros(4, 3),
    "no negatives": torch.ones(4, 3),
    "one class absent": torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
}
METRICS = [name for name in mg.metrics.names() if name not in ("subset_accuracy", "quadratic_kappa")]


def backward(loss: mg.MetricLoss, z: Tensor, y: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    z = z.clone().requires_grad_()
    value = loss(z, y, **options)
    value.sum().backward()
    assert z.grad is not None
    assert z.grad.shape == z.shape
    return value.detach(), z.grad


@pytest.mark.parametrize("surrogate", ELEMENTWISE, ids=repr)
@pytest.mark.parametrize("logits", LOGITS)
def test_extreme_multilabel_batches_are_finite(surrogate: Any, logits: str) -> None:
    if logits == "infinite" and isinstance(surrogate, s.Unbounded):
        pytest.skip("an unbounded membership is as infinite as its logit")
    average: Any
    for metric, average, labels in itertools.product(METRICS, ("micro", "macro", "weighted", "samples", None), LABELS):
        loss = mg.MetricLoss(metric, task="multilabel", surrogate=surrogate, average=average, empty_classes="skip")
        value, gradient = backward(loss, LOGITS[logits], LABELS[labels])
        assert value.isfinite().all(), (metric, average, labels)
        assert gradient.isfinite().all(), (metric, average, labels)


@pytest.mark.parametrize("surrogate", ROWWISE, ids=repr)
@pytest.mark.parametrize("logits", [name for name in LOGITS if name != "infinite"])
def test_extreme_multiclass_batches_are_finite(surrogate: Any, logits: str) -> None:
    for metric in mg.metrics.names():
        if metric == "subset_accuracy":
            continue
        for y in (torch.zeros(4, dtype=torch.long), torch.tensor([0, 1, 2, 0])):
            value, gradient = backward(mg.MetricLoss(metric, task="multiclass", surrogate=surrogate), LOGITS[logits], y)
            assert value.isfinite().all(), metric
            assert gradient.isfinite().all(), metric


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "samples", None])
def test_empty_and_single_batches(rows: int, average: Any) -> None:
    for metric in METRICS:
        z = torch.zeros(rows, 3)
        value, gradient = backward(mg.MetricLoss(metric, task="multilabel", average=average), z, torch.zeros(rows, 3))
        assert value.isfinite().all()
        assert gradient.isfinite().all()
        if average == "macro":
            backward(mg.MetricLoss(metric), torch.zeros(rows), torch.zeros(rows))
        if average != "samples":
            y = torch.zeros(rows, dtype=torch.long)
            value, gradient = backward(mg.MetricLoss(metric, task="multiclass", average=average), z, y)
            assert value.isfinite().all()
            assert gradient.isfinite().all()


@pytest.mark.parametrize("empty_classes", ["count", "skip"])
def test_nothing_to_find_gives_a_finite_loss_and_no_gradient(empty_classes: Any) -> None:
    task: Any
    average: Any
    for task, average in (("binary", "macro"), ("multilabel", "macro"), ("multilabel", "micro")):
        z = torch.randn(6, 1, generator=torch.Generator().manual_seed(0))
        loss = mg.MetricLoss("f1", task=task, average=average, empty_classes=empty_classes)
        value, gradient = backward(loss, z, torch.zeros(6, 1))
        assert value.item() == 1
        assert (gradient == 0).all()


@pytest.mark.parametrize("classes", [1, 2])
def test_a_users_division_by_zero_is_that_of_tensors(classes: int) -> None:
    """One class is summed in plain numbers, which raise where tensors answer; both must answer alike."""

    def odds(c: mg.Counts) -> Tensor:
        return mg.metrics.recall(c) + c.positives / c.negatives

    loss = mg.MetricLoss(odds, task="multilabel")
    z = torch.zeros(4, classes)
    with pytest.warns(UserWarning, match=r"^metric: odds or its gradient is not finite"):
        assert backward(loss, z, torch.ones(4, classes))[0].item() == -torch.inf
    value, gradient = backward(loss, z, torch.eye(4, classes))
    assert value.isfinite()
    assert (gradient != 0).any()


def test_everything_masked_gives_a_finite_loss_and_no_gradient() -> None:
    for average in ("micro", "macro", "weighted", "samples"):
        loss = mg.MetricLoss("f1", task="multilabel", average=average)
        value, gradient = backward(loss, torch.full((3, 2), torch.nan), torch.ones(3, 2), mask=torch.zeros(3, 2) > 0)
        assert value.isfinite()
        assert (gradient == 0).all()


def test_many_classes() -> None:
    g = torch.Generator().manual_seed(0)
    z = torch.randn(3, 100_000, generator=g)
    value, gradient = backward(mg.MetricLoss("f1", task="multilabel"), z, torch.rand(3, 100_000, generator=g) < 0.01)
    assert value.isfinite()
    assert gradient.isfinite().all()
    value, gradient = backward(mg.MetricLoss("f1", task="multiclass"), z, torch.randint(100_000, (3,), generator=g))
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("surrogate", ELEMENTWISE, ids=repr)
def test_nan_logits_stay_visible(surrogate: Any) -> None:
    z = torch.zeros(4, 3)
    z[1, 2] = torch.nan
    for average in ("micro", "macro", "samples"):
        loss = mg.MetricLoss("f1", task="multilabel", surrogate=surrogate, average=average)
        assert loss(z, torch.ones(4, 3)).isnan()


@pytest.mark.parametrize("surrogate", ROWWISE, ids=repr)
@pytest.mark.parametrize("metric", ["f1", "accuracy", "g_mean", "quadratic_kappa"])
def test_nan_logits_stay_visible_in_rows(surrogate: Any, metric: str) -> None:
    z = torch.zeros(4, 3)
    z[1, 2] = torch.nan
    assert mg.MetricLoss(metric, task="multiclass", surrogate=surrogate)(z, torch.tensor([0, 1, 2, 0])).isnan()


def test_nan_targets_stay_visible() -> None:
    y = torch.tensor([[1.0], [torch.nan]])
    assert mg.MetricLoss("f1", task="multilabel")(torch.zeros(2, 1), y).isnan()
    assert mg.MetricLoss("f1", task="multilabel", average="weighted")(torch.zeros(2, 1), y).isnan()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float64])
def test_targets_of_every_type(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    z, y = torch.randn(9, 3, generator=g), torch.rand(9, 3, generator=g) < 0.5
    for average in ("macro", "samples"):
        loss = mg.MetricLoss("f1", task="multilabel", average=average)
        torch.testing.assert_close(loss(z, y.to(dtype)), loss(z, y.float()))
    if dtype not in (torch.bool, torch.float16, torch.float64):
        loss = mg.MetricLoss("f1", task="multiclass")
        torch.testing.assert_close(loss(z, y.long().argmax(1).to(dtype)), loss(z, y.long().argmax(1)))


def test_soft_labels() -> None:
    g = torch.Generator().manual_seed(0)
    z, soft = torch.randn(9, 3, generator=g), torch.rand(9, 3, generator=g)
    counts = mg.MetricLoss("f1", task="multilabel").counts(z, soft)
    torch.testing.assert_close(counts.positives, soft.sum(0))
    hot = torch.nn.functional.one_hot(torch.arange(9) % 3, 3).float()
    for metric in ("f1", "mcc"):
        loss = mg.MetricLoss(metric, task="multiclass")
        torch.testing.assert_close(loss(z, hot), loss(z, torch.arange(9) % 3))


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
def test_dense_predictions_equal_their_flattened_rows(task: Any) -> None:
    g = torch.Generator().manual_seed(0)
    classes = 1 if task == "binary" else 3
    z = torch.randn(2, classes, 4, 5, generator=g)
    rows = z.movedim(1, -1).reshape(-1, classes)
    pixel = torch.rand(2, 4, 5, generator=g)
    loss = mg.MetricLoss("f1", task=task, ignore_index=7)
    if task == "multiclass":
        y = torch.randint(3, (2, 4, 5), generator=g)
        y[0, 0, 0] = 7
        flat = y.reshape(-1)
    elif task == "multilabel":
        y = torch.randint(2, (2, 3, 4, 5), generator=g)
        y[0, 0, 0, 0] = 7
        flat = y.movedim(1, -1).reshape(-1, 3)
    else:
        y = torch.randint(2, (2, 4, 5), generator=g)
        y[0, 0, 0] = 7
        flat = y.reshape(-1, 1)
    value, gradient = backward(loss, z, y, weight=pixel)
    expected, flat_gradient = backward(loss, rows, flat, weight=pixel.reshape(-1))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient.movedim(1, -1).reshape(-1, classes), flat_gradient)
    image = torch.tensor([1.0, 3.0])
    torch.testing.assert_close(loss(z, y, image), loss(z, y, image[:, None, None].expand(2, 4, 5)))
    if task == "multilabel":
        per_class = torch.rand(2, 3, generator=g)
        torch.testing.assert_close(loss(z, y, per_class), loss(z, y, per_class[:, :, None, None].expand(z.shape)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_binary_shapes_that_mean_the_same(dtype: torch.dtype) -> None:
    z, y = torch.tensor([1.0, -1.0, 0.5, 2.0], dtype=dtype), torch.tensor([1, 0, 0, 1])
    loss = mg.MetricLoss("f1", task="binary")
    expected, gradient = backward(loss, z, y)
    shapes = (
        (z[:, None], y),
        (z[:, None], y[:, None]),
        (z, y[:, None]),
        (z[None], y[None]),
        (z.view(2, 2), y.view(2, 2)),
    )
    for left, right in (*shapes, (z.view(2, 1, 2), y.view(2, 1, 2)), (z.view(1, 2, 2), y.view(1, 2, 2))):
        value, found = backward(loss, left, right)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(found.flatten(), gradient)
        torch.testing.assert_close(loss(left, right), expected)


def test_tensors_that_are_not_contiguous() -> None:
    g = torch.Generator().manual_seed(0)
    z, y = torch.randn(3, 8, generator=g).t(), (torch.rand(3, 8, generator=g) < 0.5).float().t()
    for average in ("macro", "samples"):
        loss = mg.MetricLoss("f1", task="multilabel", average=average)
        value, gradient = backward(loss, z, y)
        expected, dense = backward(loss, z.contiguous(), y.contiguous())
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(gradient, dense)
