"""The objective against loops over classes and plain autograd in float64: values, and derivatives by TP and FP."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from metricgrad.core.counts import Confusion, Counts, Mean, cells
from metricgrad.core.objective import Objective

TP = torch.tensor([3.0, 0.5, 2.0, 0.0], dtype=torch.float64)
FP = torch.tensor([1.0, 2.5, 0.0, 1.5], dtype=torch.float64)
POSITIVES = torch.tensor([5.0, 1.0, 2.0, 0.0], dtype=torch.float64)
NEGATIVES = torch.tensor([7.0, 11.0, 10.0, 12.0], dtype=torch.float64)
SUMS = (TP, FP, POSITIVES, NEGATIVES)


def divide(x: Tensor, y: Tensor) -> Tensor:
    return x / y if y.item() != 0 else 0 * x


def f1(tp: Tensor, fp: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    return divide(2 * tp, tp + fp + positives)


def specificity(tp: Tensor, fp: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    return divide(negatives - fp, negatives)


METRICS = {"f1": f1, "specificity": specificity}


def average_slowly(name: str, average: str, labels: Any, empty_classes: str, *sums: Tensor) -> Tensor:
    """Return the average of a metric over the classes, written out class by class."""
    metric = METRICS[name]
    chosen = range(len(sums[0])) if labels is None else labels
    if average == "micro":
        return metric(*(sum((cell[k] for k in chosen), cell.new_zeros(())) for cell in sums))
    total, weight_sum = sums[0].new_zeros(()), 0.0
    for k in chosen:
        positives = sums[2][k].item()
        weight = positives if average == "weighted" else float(positives > 0 or empty_classes == "count")
        total = total + weight * metric(*(cell[k] for cell in sums))
        weight_sum += weight
    return total / weight_sum


def differentiate_slowly(*options: Any, sums: tuple[Tensor, ...] = SUMS) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss and its derivatives by TP and FP, P and N fixed, by autograd."""
    tp, fp = sums[0].clone().requires_grad_(), sums[1].clone().requires_grad_()
    loss = 1 - average_slowly(*options, tp, fp, *sums[2:])
    a, b = torch.autograd.grad(loss, (tp, fp), allow_unused=True, materialize_grads=True)
    return loss.detach(), a, b


def assert_differentiated(found: Any, expected: tuple[Tensor, ...], tolerance: float = 1e-12) -> None:
    loss, gradient = found
    for x, y in zip((loss, *gradient), expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(x).double(), y.double(), rtol=tolerance, atol=tolerance)


def arithmetic(name: str) -> Any:
    return name


def with_tensor_functions(name: str) -> Any:
    """Return the metric in torch functions that only autograd can differentiate."""

    def metric(c: Counts) -> Tensor:
        if name == "f1":
            denominator = torch.stack((c.tp + c.fp, c.tp + c.fn)).sum(0)
            return 2 * c.tp / torch.where(denominator > 0, denominator, 1.0)
        return torch.clamp(c.tn / (c.fp + c.tn), max=2.0)

    return metric


# Derivatives


@pytest.mark.parametrize("make", [arithmetic, with_tensor_functions])
@pytest.mark.parametrize("empty_classes", ["count", "skip"])
@pytest.mark.parametrize("labels", [None, [0, 2], [1, 3]])
@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("name", METRICS)
def test_averages_and_their_derivatives(name: str, average: str, labels: Any, empty_classes: str, make: Any) -> None:
    objective = Objective("multilabel", make(name), average, labels, empty_classes)
    expected = differentiate_slowly(name, average, labels, empty_classes)
    assert_differentiated(objective.differentiate(SUMS), expected)
    assert_differentiated(objective.differentiate(SUMS), expected)  # what the first call found out does no harm
    value = objective.value(cells(*SUMS))
    torch.testing.assert_close(value, 1 - expected[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [arithmetic, with_tensor_functions])
@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("labels", [None, [0, 1]])
def test_thresholds_are_averaged(average: str, labels: Any, make: Any) -> None:
    rising = torch.tensor([[0.2], [0.5], [1.0]], dtype=torch.float64)
    sums = (TP * rising, FP * rising, POSITIVES.expand(3, 4), NEGATIVES.expand(3, 4))
    objective = Objective("multilabel", make("f1"), average, labels, "count", has_threshold_axis=True)
    each = [
        differentiate_slowly("f1", average, labels, "count", sums=(TP * share, FP * share, POSITIVES, NEGATIVES))
        for share in rising.flatten()
    ]
    losses, a, b = (torch.stack(parts) for parts in zip(*each, strict=True))
    assert_differentiated(objective.differentiate(sums), (losses.mean(), a / 3, b / 3))
    torch.testing.assert_close(objective.value(cells(*sums)), 1 - losses.mean(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [arithmetic, with_tensor_functions])
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("k", range(4))
def test_one_class_in_plain_numbers_and_in_float32(name: str, k: int, make: Any) -> None:
    numbers = tuple(cell[k].item() for cell in SUMS)
    one = tuple(cell[k : k + 1] for cell in SUMS)
    for options in (("macro", None, "count"), ("weighted", None, "count"), ("macro", None, "skip")):
        task = "binary" if options[0] == "macro" else "multilabel"
        objective = Objective(task, make(name), *options)  # type: ignore[arg-type]
        if POSITIVES[k] > 0 or options == ("macro", None, "count"):
            expected = differentiate_slowly(name, *options, sums=one)
        else:  # the one class does not count
            expected = (torch.tensor(1.0), torch.tensor(0.0), torch.tensor(0.0))
        expected = tuple(x.reshape(()) for x in expected)  # type: ignore[assignment]
        assert_differentiated(objective.differentiate(numbers), expected, 1e-6)
        loss, gradient = objective.differentiate(tuple(cell.float() for cell in one))
        assert loss.dtype is torch.float32
        assert all(isinstance(derivative, float) for derivative in gradient)
        assert_differentiated((loss, gradient), expected, 1e-6)


@pytest.mark.parametrize("make", [arithmetic, with_tensor_functions])
@pytest.mark.parametrize("leading", [False, True])
def test_rows_are_averaged_by_their_weights(make: Any, leading: bool) -> None:
    row_weight = torch.tensor([1.0, 0.0, 2.5, 0.5], dtype=torch.float64)
    sums = SUMS if not leading else tuple(torch.stack((cell, cell)) for cell in (TP, FP, POSITIVES, NEGATIVES))
    objective = Objective("multilabel", make("f1"), "samples", has_threshold_axis=leading)
    tp, fp = TP.clone().requires_grad_(), FP.clone().requires_grad_()
    values = [f1(tp[i], fp[i], POSITIVES[i], NEGATIVES[i]) for i in range(4)]
    loss = 1 - sum(row_weight[i] * values[i] for i in range(4)) / row_weight.sum()
    a, b = torch.autograd.grad(loss, (tp, fp))
    if leading:
        a, b = torch.stack((a, a)) / 2, torch.stack((b, b)) / 2
    assert_differentiated(objective.differentiate(sums, row_weight), (loss.detach(), a, b))
    mean = objective.mean_of_rows(cells(*sums), row_weight)
    assert isinstance(mean, Mean)
    torch.testing.assert_close(mean.weight, torch.full_like(mean.weight, 4.0))
    torch.testing.assert_close(objective.value(mean), 1 - loss.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("metric", ["accuracy", "mcc", "kappa", "balanced_accuracy"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_matrix_is_differentiated_entry_by_entry(metric: str, dtype: torch.dtype) -> None:
    """Against differences of the value: two for each entry of the matrix."""
    matrix = torch.tensor([[4.0, 1.0, 0.5], [1.0, 6.0, 2.0], [0.0, 1.5, 3.0]], dtype=torch.float64)
    objective = Objective("multiclass", metric)
    assert objective.of_matrix
    loss, (gradient,) = objective.differentiate((matrix.to(dtype),))
    assert loss.dtype is gradient.dtype is dtype
    assert loss.item() == pytest.approx(1 - objective.value(Confusion(matrix)).item(), rel=1e-6)
    step = 1e-6
    for i in range(3):
        for j in range(3):
            moved = torch.zeros_like(matrix)
            moved[i, j] = step
            rise = objective.value(Confusion(matrix + moved)) - objective.value(Confusion(matrix - moved))
            assert gradient[i, j].item() == pytest.approx(-rise.item() / (2 * step), abs=1e-6)


def test_a_large_matrix_stays_in_its_type() -> None:
    matrix = torch.eye(300) + 1
    loss, (gradient,) = Objective("multiclass", "accuracy").differentiate((matrix,))
    assert loss.item() == pytest.approx(1 - 600 / matrix.sum().item(), rel=1e-5)
    total = matrix.sum().item()
    assert gradient[0, 0].item() == pytest.approx(-(1 / total - 600 / total**2), rel=1e-4)
    assert gradient[0, 1].item() == pytest.approx(600 / total**2, rel=1e-4)


def test_a_constant_metric_has_a_zero_gradient() -> None:
    for metric in (lambda c: 0 * c.tp + 0.25, lambda c: torch.full_like(c.tp, 0.25)):
        objective = Objective("multilabel", metric)
        loss, (a, b) = objective.differentiate(SUMS)
        assert loss.item() == 0.75
        assert a.tolist() == b.tolist() == [0, 0, 0, 0]


def test_a_metric_of_one_direction_has_tensors_for_both_derivatives() -> None:
    loss, (a, b) = Objective("multilabel", "recall").differentiate(SUMS)
    assert isinstance(loss, Tensor)
    assert b.shape == a.shape == TP.shape
    assert b.tolist() == [0, 0, 0, 0]


def test_plain_numbers_that_divide_by_zero_are_answered_by_tensors() -> None:
    objective = Objective("binary", lambda c: c.tp / c.tp)
    with pytest.warns(UserWarning, match="is not finite for a batch of finite counts"):
        loss, gradient = objective.differentiate((0.0, 1.0, 2.0, 3.0))
    assert math.isnan(loss.item())
    loss, gradient = objective.differentiate((0.0, 1.0, 2.0, 3.0))  # said once
    assert math.isnan(gradient[0])
    assert objective.differentiate((1.0, 1.0, 2.0, 3.0))[0].item() == 0


def test_sums_that_are_not_finite_are_not_the_fault_of_the_metric() -> None:
    objective = Objective("binary", lambda c: c.tp / c.positives)
    loss, _ = objective.differentiate((math.nan, 1.0, 2.0, 3.0))
    assert math.isnan(loss.item())


class TwoProcesses:
    """Two processes that hold the same numbers."""

    size = 2
    rank = 0

    def check_alike(self, cells: Any) -> None:
        pass

    def sum(self, tensor: Tensor) -> Tensor:
        return 2 * tensor

    def sum_gradient(self, gradient: Tensor, mean: bool = False) -> Tensor:
        return gradient if mean else 2 * gradient

    def stack(self, tensor: Tensor) -> Tensor:
        return torch.stack((tensor, tensor))


def test_the_sums_of_all_processes_are_differentiated() -> None:
    """The metric is of the doubled sums; the gradient is by these, which the backward pass shares out."""
    doubled = tuple(2 * cell for cell in SUMS)
    objective = Objective("multilabel", "f1")
    expected = differentiate_slowly("f1", "macro", None, "count", sums=doubled)
    assert_differentiated(objective.differentiate(SUMS, None, TwoProcesses()), expected)
    rows = Objective("multilabel", "f1", "samples")
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    alone, (a, b) = rows.differentiate(SUMS, weight)
    together, (half_a, half_b) = rows.differentiate(SUMS, weight, TwoProcesses())
    assert together.item() == pytest.approx(alone.item(), rel=1e-12)  # the same rows twice have the same mean
    torch.testing.assert_close((2 * half_a, 2 * half_b), (a, b))


# Values


def test_one_value_per_class() -> None:
    for labels, expected in ((None, [0, 1, 2, 3]), ([2, 0], [2, 0])):
        objective = Objective("multilabel", "f1", None, labels)
        assert objective.is_vector
        values = objective.value(cells(*SUMS))
        slow = [f1(*(cell[k] for cell in SUMS)).item() for k in expected]
        assert values.tolist() == pytest.approx(slow, rel=1e-12)


def test_images_are_averaged_over_those_that_count() -> None:
    """Three images, two classes; the second class is in the last image alone."""
    tp = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    fp = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    positives = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    counts = cells(tp, fp, positives, 5 - positives)
    weight = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
    first, second, third = 2 / 4, 4 / 4, 2 / 5  # F1 of the class that is there

    def value(average: str | None, empty_classes: str) -> Any:
        objective = Objective("multilabel", "f1", average, None, empty_classes)
        return objective.value(objective.mean_of_images(counts, weight)).tolist()

    assert value("macro", "skip") == pytest.approx((1 * first + 3 * second + 2 * third) / 6)
    assert value("macro", "count") == pytest.approx((1 * first + 3 * second + 2 * third) / 6 / 2)
    assert value(None, "skip") == pytest.approx([(1 * first + 3 * second) / 4, third])
    assert value(None, "count") == pytest.approx([(1 * first + 3 * second) / 6, 2 * third / 6])
    pooled = (1 * 2 / 4 + 3 * 4 / 5 + 2 * 2 / 5) / 6
    assert value("micro", "skip") == pytest.approx(pooled)


def test_nothing_but_empty_images_is_zero() -> None:
    nothing = torch.zeros(2, 3)
    objective = Objective("multilabel", "f1", "macro", None, "skip")
    mean = objective.mean_of_images(cells(nothing, nothing, nothing, nothing + 4), torch.ones(2))
    assert mean.weight.item() == 0
    assert objective.value(mean).item() == 0


def test_the_metric_must_be_elementwise() -> None:
    objective = Objective("multilabel", lambda c: c.tp.sum() / c.total.sum())
    with pytest.raises(ValueError, match="must be elementwise"):
        objective.value(cells(*SUMS))
    with pytest.raises(ValueError, match="must be elementwise"):
        objective.differentiate(SUMS)


def test_names_and_refusals() -> None:
    assert Objective("multilabel", "f1", "micro").name == "micro f1"
    assert Objective("binary", "f1").name == Objective("multilabel", "f1", None).name == "f1"
    assert Objective("multiclass", "mcc").name == "mcc"
    for arguments, text in (
        (("binary", "quadratic_kappa"), "is of the d×d matrix"),
        (("multiclass", "f1", "samples"), "'samples' is for task='multilabel'"),
        (("multilabel", "subset_accuracy"), "expected average='samples'"),
        (("multilabel", "f1", "macro", []), "expected class indices"),
        (("multilabel", "f1", "macro", [-1]), "expected class indices"),
        (("multiclass", "mcc", "macro", [0]), "takes none"),
        (("binary", "f1", "macro", [0]), "expected None for the one class"),
    ):
        with pytest.raises(ValueError, match=text):
            Objective(*arguments)
