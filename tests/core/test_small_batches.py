"""Small batches of class indices in numpy: the same loss and gradient as torch's way, and the float64 loops'."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import metricgrad as mg
import reference
from metricgrad import surrogates as s
from metricgrad.core import kernel, objective, small_batches
from metricgrad.core.counts import ConfusionMargins
from metricgrad.core.metrics import functions, get, margin_derivatives, matrix
from metricgrad.core.metrics.derivatives import FLOORS, ArraysWithDerivatives, CountsWithDerivatives, Jet, log, root
from metricgrad.core.surrogates import top_two
from own_metrics import capped_profit, odds_ratio, skill

ROWS, CLASSES = 23, 5
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-12}
"""Of the largest element of the gradient, and of the loss."""

SHAPES = {
    "few classes": (ROWS, CLASSES),
    "two classes": (ROWS, 2),
    "many classes": (ROWS, kernel.MAX_ONE_HOT_CLASSES + 6),
    "one row": (1, CLASSES),
    "last of one product": (small_batches.MAX_BLAS_ELEMENTS // 8, 8),
    "first of several products": (small_batches.MAX_BLAS_ELEMENTS // 8 + 1, 8),
    "a product for each row": (3, small_batches.MAX_BLAS_ELEMENTS),
    "last in numpy": (small_batches.MAX_ELEMENTS // 8, 8),
}
BEYOND = {
    "first in torch": (small_batches.MAX_ELEMENTS // 8 + 1, 8),
    "too many classes": (2, small_batches.MAX_BLAS_ELEMENTS + 1),
    "one class": (ROWS, 1),
}

METRICS: dict[str, dict[str, Any]] = {
    "f1": {"metric": "f1"},
    "f0.5": {"metric": "f0.5"},
    "precision": {"metric": "precision"},
    "recall": {"metric": "recall"},
    "worst_recall": {"metric": "worst_recall"},
    "informedness": {"metric": "informedness"},
    "fowlkes_mallows": {"metric": "fowlkes_mallows"},
    "f1 with a value for 0/0": {"metric": partial(functions.f1, empty=0.75)},
    "mcc of each class": {"metric": lambda c: matrix.mcc(c)},
    "accuracy": {"metric": "accuracy"},
    "balanced accuracy": {"metric": "balanced_accuracy"},
    "mcc": {"metric": "mcc"},
    "kappa": {"metric": "kappa"},
    "kappa with a value for 0/0": {"metric": partial(matrix.kappa, empty=0.75)},
    "g_mean": {"metric": "g_mean"},
    "quadratic kappa": {"metric": "quadratic_kappa"},
    "micro": {"metric": "f1", "average": "micro"},
    "weighted": {"metric": "f1", "average": "weighted"},
    "two labels": {"metric": "f1", "labels": [0, 1]},
    "micro of two labels": {"metric": "f1", "average": "micro", "labels": [0, 1]},
    "present classes": {"metric": "f1", "empty_classes": "skip"},
    "own, arithmetic": {"metric": lambda c: (2 * c.tp - c.fp) / (1.0 + c.total)},
    "own, in module": {"metric": skill},
    "own, in smoothed cells": {"metric": odds_ratio},
    "own, with a case": {"metric": capped_profit},
    "own, of torch functions": {"metric": lambda c: torch.tanh(c.tp / 8) - c.fp.sin() / 8},
    "own, of a spread": {"metric": lambda c: (c.tp - c.fp) / (1.0 + c.positives.std())},
    "own, with numpy's number": {"metric": lambda c: np.float64(0.1) * c.tp / (1.0 + c.total)},
    "own, with logarithms": {"metric": lambda c: c.tp * log(1.0 + c.fp) / (1.0 + c.positives) - root(c.fn)},
    "a constant": {"metric": lambda c: c.total / c.total},
    "one β per class": {"metric": lambda c: functions.f_beta(c, beta=torch.linspace(0.5, 2.0, c.tp.shape[0]))},
}

SURROGATES = [s.TopTwo(), s.TopTwo(0.0, 0.5), s.TopTwo(0.3, 1.0), s.TopTwo(0.5, 0.25), s.Linear(), s.Identity()]


def draw(shape: tuple[int, int], dtype: torch.dtype = torch.float64, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    """Return logits and class indices; with more than two classes the last one is absent."""
    rows, classes = shape
    generator = torch.Generator().manual_seed(rows + classes)
    z = scale * torch.randn(shape, dtype=torch.float64, generator=generator)
    y = torch.randint(max(classes - 1, 2) if classes > 1 else 1, (rows,), generator=generator)
    return z.to(dtype), y


@contextmanager
def in_torch() -> Iterator[None]:
    """Switch numpy off: what is computed inside is computed as it was before there were arrays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_batches, "MAX_ELEMENTS", 0)
        patch.setattr(objective, "has_array", lambda tensor: False)
        patch.setattr(top_two, "MAX_TOPK_ELEMENTS", 0)  # of equal probabilities topk may take any, max the first
        yield


@contextmanager
def in_numpy() -> Iterator[None]:
    """Make torch's way for small batches an error."""

    def refuse(*_: object) -> None:
        raise AssertionError("computed in torch")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_compute_rows_at_once", refuse)
        yield


def differentiate(loss: Any, z: Tensor, y: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
    """Return a loss and its gradient."""
    leaf = z.detach().requires_grad_()
    value = loss(leaf, y, *more)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def assert_same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], tolerance: float) -> None:
    """Check a loss and its gradient, to a share of the largest number; NaN where NaN is expected."""
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is other.dtype
        assert one.shape == other.shape
        finite = other[other.isfinite()]
        largest = finite.abs().max().item() if finite.numel() else 1.0
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * largest, equal_nan=True)


def make_loss(surrogate: Any = None, **options: Any) -> mg.MetricLoss:
    return mg.MetricLoss(**options, task="multiclass", surrogate=surrogate)


def assert_both_ways_agree(z: Tensor, y: Tensor, tolerance: float | None = None, **options: Any) -> None:
    """Check that numpy is used, and that torch returns the same; each with a loss that has seen nothing before."""
    with in_numpy():
        found = differentiate(make_loss(**options), z, y)
    with in_torch():
        expected = differentiate(make_loss(**options), z, y)
    assert_same(found, expected, TOLERANCES[z.dtype] if tolerance is None else tolerance)


# The same as torch


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", ["f1", "mcc", "micro", "precision"])
@pytest.mark.parametrize("surrogate", [s.TopTwo(), s.Identity()], ids=repr)
def test_shapes(shape: tuple[int, int], name: str, surrogate: Any, dtype: torch.dtype) -> None:
    z, y = draw(shape, dtype)
    assert_both_ways_agree(z, y, surrogate=surrogate, **METRICS[name])


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("classes", [2, CLASSES])
@pytest.mark.parametrize("name", [name for name in METRICS if name != "quadratic kappa"])
def test_metrics(name: str, classes: int, dtype: torch.dtype) -> None:
    assert_both_ways_agree(*draw((ROWS, classes), dtype), **METRICS[name])


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("surrogate", SURROGATES, ids=repr)
@pytest.mark.parametrize("scale", [0.01, 2.0, 30.0])
def test_surrogates(surrogate: Any, scale: float, dtype: torch.dtype) -> None:
    z, y = draw((ROWS, CLASSES), dtype, scale)
    assert_both_ways_agree(z, y, surrogate=surrogate, metric="f1")
    assert_both_ways_agree(z, y, surrogate=surrogate, metric="kappa")


EXTREMES: dict[str, Callable[[Tensor], Tensor]] = {
    "all the same": lambda z: torch.full_like(z, 2.0),
    "ties of the two largest": lambda z: z.clamp(max=z.topk(2, 1).values[:, 1:]),
    "ties of all but one": lambda z: torch.where(z == z.amax(1, keepdim=True), 2.0, 0.5).to(z.dtype),
    "whole numbers": lambda z: z.round(),
    "huge": lambda z: torch.where(z > 0, 1e4, -1e4).to(z.dtype) + z,
    "minus infinity": lambda z: z.masked_fill(z < 0, -torch.inf),
    "all minus infinity in a row": lambda z: z.index_fill(0, torch.tensor([3]), -torch.inf),
    "infinity": lambda z: z.masked_fill(z > 4, torch.inf),
    "NaN": lambda z: z.index_put((torch.tensor(1), torch.tensor(2)), torch.tensor(torch.nan, dtype=z.dtype)),
    "certain and right": lambda z: 1e3 * torch.nn.functional.one_hot(draw((ROWS, CLASSES))[1], CLASSES).to(z.dtype),
    "certain and wrong": lambda z: -1e3 * torch.nn.functional.one_hot(draw((ROWS, CLASSES))[1], CLASSES).to(z.dtype),
    "nearly a class for all": lambda z: z + 6 * torch.eye(CLASSES, dtype=z.dtype)[0],
}

NAMES = ["f1", "precision", "mcc", "kappa", "accuracy", "balanced accuracy", "g_mean", "micro"]
# Of a class that is never found G-mean has no gradient, also beside a NaN: torch's product with zeros and ones makes it
# NaN, a choice of the rows of the class does not.
EXTREME_CASES = [
    (extreme, name)
    for extreme in EXTREMES
    for name in NAMES
    if not (name == "g_mean" and extreme in ("NaN", "infinity", "all minus infinity in a row"))
]


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("surrogate", [s.TopTwo(), s.TopTwo(0.0, 0.5), s.Identity()], ids=repr)
@pytest.mark.parametrize(("extreme", "name"), EXTREME_CASES)
def test_extremes(extreme: str, surrogate: Any, name: str, dtype: torch.dtype) -> None:
    z, y = draw((ROWS, CLASSES), dtype)
    # The derivatives of kappa are a large number, the same for all classes, and differences of it, which count.
    tolerance = 2e-6 if name == "kappa" and dtype is torch.float32 else None
    assert_both_ways_agree(EXTREMES[extreme](z), y, tolerance, surrogate=surrogate, **METRICS[name])


def test_a_nan_is_seen_in_the_loss_and_in_its_row() -> None:
    z, y = draw((ROWS, CLASSES), torch.float32)
    z[4, 1] = torch.nan
    with in_numpy():
        value, gradient = differentiate(make_loss(metric="f1"), z, y)
    assert value.isnan()
    assert gradient[4].isnan().all()


# With the lead kappa has derivatives beyond the range of float32.
@pytest.mark.parametrize(("metric", "lead"), [("f1", 0.0), ("mcc", 0.0), ("f1", 86.0), ("mcc", 86.0), ("kappa", 86.0)])
def test_one_class_has_all_rows(metric: str, lead: float) -> None:
    for label in range(CLASSES):
        z, _ = draw((ROWS, CLASSES), torch.float32)
        z[:, label] += lead
        assert_both_ways_agree(z, torch.full((ROWS,), label), 1e-5, metric=metric)


MEMORY: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda z: z.t().contiguous().t(),
    "every other column": lambda z: z.repeat_interleave(2, 1)[:, ::2],
    "every other row": lambda z: z.repeat_interleave(2, 0)[::2],
    "of one row": lambda z: z[:1].expand(ROWS, CLASSES),
}


@pytest.mark.parametrize("memory", MEMORY)
def test_any_memory(memory: str) -> None:
    z, y = draw((ROWS, CLASSES))
    z = MEMORY[memory](z)
    with in_numpy():
        found = differentiate(make_loss(metric="f1"), z, y)
    assert_same(found, differentiate(make_loss(metric="f1"), z.clone().contiguous(), y), 0.0)
    with in_numpy():
        found = differentiate(make_loss(metric="f1"), z, y.repeat_interleave(2)[::2])
    assert_same(found, differentiate(make_loss(metric="f1"), z, y), 0.0)


def test_targets_of_any_integer_type() -> None:
    z, y = draw((ROWS, CLASSES))
    expected = differentiate(make_loss(metric="f1"), z, y)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        with in_numpy():
            assert_same(differentiate(make_loss(metric="f1"), z, y.to(dtype)), expected, 0.0)


def test_small_images_are_rows() -> None:
    z, y = draw((ROWS * 2 * 3, CLASSES))
    of_images = z.view(ROWS, 2, 3, CLASSES).movedim(-1, 1)
    with in_numpy():
        value, gradient = differentiate(make_loss(metric="f1"), of_images, y.view(ROWS, 2, 3))
    expected = differentiate(make_loss(metric="f1"), z, y)
    assert_same((value, gradient.movedim(1, -1).reshape(z.shape)), expected, 0.0)


# The same as the loops, and as finite differences


@pytest.mark.parametrize("name", ["f1", "precision", "accuracy", "mcc", "kappa", "balanced_accuracy", "g_mean"])
def test_loops(name: str) -> None:
    z, y = draw((11, 4))
    of_matrix = {
        "accuracy": reference.matrix_accuracy,
        "mcc": reference.matrix_mcc,
        "kappa": reference.matrix_kappa,
        "balanced_accuracy": reference.matrix_balanced_accuracy,
        "g_mean": reference.matrix_g_mean,
    }

    def loop(x: Any) -> float:
        memberships = np.array([reference.top_two_row(row) for row in x])
        confusion = reference.confusion(memberships, y.tolist())
        if name in of_matrix:
            return 1.0 - float(of_matrix[name](confusion))
        metric = partial(reference.f_beta, beta=1.0) if name == "f1" else reference.precision
        cells = reference.one_vs_rest(confusion)
        return 1.0 - sum(metric(*(cells[cell][k] for cell in ("tp", "fp", "fn", "tn"))) for k in range(4)) / 4

    with in_numpy():
        value, gradient = differentiate(make_loss(metric=name), z, y)
    assert value.item() == pytest.approx(loop(z.numpy()), rel=1e-12)
    expected = torch.tensor(reference.numeric_gradient(loop, z.numpy()))
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-9)


# Derivatives of metrics


@pytest.mark.parametrize("case", ["usual", "an absent class", "one class", "nothing predicted right", "large counts"])
@pytest.mark.parametrize("empty", [0.0, 0.75])
@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "g_mean", "mcc", "kappa"])
def test_formulas_of_the_matrix_are_those_of_the_metric(name: str, empty: float, case: str) -> None:
    metric: Any = get(name) if not empty or name == "mcc" else partial(getattr(matrix, name), empty=empty)
    tp = np.array([3.0, 0.5, 2.0])
    fp = np.array([1.0, 0.25, 3.0])
    positives = np.array([4.0, 3.75, 2.0])
    if case == "an absent class":
        tp[1] = positives[1] = 0.0
    elif case == "one class":
        tp, fp, positives = np.array([5.0, 0.0, 0.0]), np.zeros(3), np.array([5.0, 0.0, 0.0])
    elif case == "nothing predicted right":
        tp[:] = 0.0
    elif case == "large counts":
        tp, fp, positives = 1e9 * tp, 1e9 * fp, 1e9 * positives
    with np.errstate(all="ignore"):
        found = margin_derivatives.differentiate_margins(metric, tp, fp, positives)
    assert found is not None
    leaves = [torch.tensor(x, requires_grad=True) for x in (tp, fp)]
    value = metric(ConfusionMargins(leaves[0], torch.tensor(positives), leaves[0] + leaves[1]))
    expected = torch.autograd.grad(value, leaves, materialize_grads=True)
    assert found[0] == pytest.approx(value.item(), rel=1e-14)
    torch.testing.assert_close(torch.tensor(found[1]), torch.stack(expected), rtol=1e-12, atol=1e-14)


def test_enormous_derivatives_of_the_matrix_are_limited() -> None:
    tiny = 1e-36  # what is in a class, of tiny weights
    sums = [torch.tensor(cell) for cell in ([5.0, tiny / 2], [0.0, 5.0], [10.0, tiny], [tiny, 10.0])]
    balanced_accuracy = make_loss(metric="balanced_accuracy").objective
    found, derivatives = balanced_accuracy.differentiate_arrays(tuple(cell.numpy() for cell in sums))
    with in_torch():
        expected, expected_derivatives = balanced_accuracy.differentiate(tuple(sums))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    for one, other in zip(derivatives, expected_derivatives, strict=True):
        torch.testing.assert_close(torch.from_numpy(one), other, rtol=1e-6, atol=0)
    assert derivatives[0].min() == np.float32(-1 / FLOORS[torch.float32])


def test_a_metric_without_a_formula_or_counts_has_none() -> None:
    ones = np.ones(3)
    kappa: Any = matrix.kappa
    assert margin_derivatives.differentiate_margins(get("quadratic_kappa"), ones, ones, ones) is None
    assert margin_derivatives.differentiate_margins(partial(kappa, other=1), ones, ones, ones) is None
    assert margin_derivatives.differentiate_margins(partial(kappa, None), ones, ones, ones) is None
    assert margin_derivatives.differentiate_margins(get("mcc"), ones, ones, 0 * ones) is None
    assert margin_derivatives.differentiate_margins(get("mcc"), ones, ones, np.nan * ones) is None


def test_a_nan_beside_a_class_that_is_never_found_is_seen() -> None:
    with np.errstate(all="ignore"):
        found = margin_derivatives.differentiate_margins(
            get("g_mean"), np.array([np.nan, 0.0]), np.array([np.nan, np.nan]), np.ones(2)
        )
    assert found is not None
    assert np.isnan(found[0])


@pytest.mark.skipif(np.__version__ < "2", reason="a number in float64 does not widen an array before numpy 2")
def test_a_metric_of_another_type_is_left_to_torch() -> None:
    z, y = draw((ROWS, CLASSES), torch.float32)
    loss = make_loss(metric=lambda c: np.float64(0.1) * c.tp / (1.0 + c.total))
    differentiate(loss, z, y)
    assert not loss.objective._takes_arrays


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", [name for name in METRICS if name.startswith(("f", "own, in", "worst", "inf"))])
def test_jets_of_arrays_are_jets_of_tensors(name: str, dtype: torch.dtype) -> None:
    metric: Any = get(METRICS[name]["metric"])
    tp = torch.tensor([3.0, 0.0, 0.0, 1.0, FLOORS[dtype] / 2, 2 * FLOORS[dtype]], dtype=dtype)
    fp = torch.tensor([1.0, 2.0, 0.0, 0.0, 0.0, 0.0], dtype=dtype)
    positives = torch.tensor([4.0, 0.0, 0.0, 1.0, FLOORS[dtype] / 2, 2 * FLOORS[dtype]], dtype=dtype)
    negatives = 9 - positives
    expected: Any = metric(CountsWithDerivatives(tp, fp, positives, negatives))
    with np.errstate(all="ignore"):
        arrays = (cell.numpy() for cell in (tp, fp, positives, negatives))
        found: Any = metric(ArraysWithDerivatives(*arrays))
    for one, other in zip((found.value, found.a, found.b), (expected.value, expected.a, expected.b), strict=True):
        torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other), rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("function", ["root", "log", "ratio"])
def test_jets_of_arrays_at_zero(function: str) -> None:
    x = np.array([4.0, 0.0, -1.0, np.nan, FLOORS[torch.float64] / 2, FLOORS[torch.float64]])

    def evaluate(values: Any) -> Any:
        jet = Jet(values, 1.0, values)
        if function == "ratio":
            return Jet(values, 2.0, 3.0).ratio(jet, 0.25)
        return root(jet) if function == "root" else log(jet, 0.25)

    with np.errstate(all="ignore"):
        found = evaluate(x)
    expected = evaluate(torch.tensor(x))
    for one, other in zip((found.value, found.a, found.b), (expected.value, expected.a, expected.b), strict=True):
        torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other), rtol=1e-15, atol=0, equal_nan=True)


def test_an_array_times_a_jet_is_a_jet() -> None:
    product = np.array([2.0, 3.0]) * Jet(np.array([1.0, 4.0]), 1.0, 0.0)
    assert isinstance(product, Jet)
    assert product.value.tolist() == [2.0, 12.0]


# What is left to torch


@contextmanager
def count_calls() -> Iterator[list[Any]]:
    """Yield what the numpy way returned, call by call."""
    returned: list[Any] = []
    original = small_batches.compute_loss_and_gradient

    def record(*arguments: Any) -> Any:
        returned.append(original(*arguments))
        return returned[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_batches, "compute_loss_and_gradient", record)
        yield returned


class OwnTensor(Tensor):
    """A subclass without anything of its own."""


@pytest.mark.parametrize("shape", BEYOND.values(), ids=BEYOND)
def test_shapes_left_to_torch(shape: tuple[int, int]) -> None:
    z, y = draw(shape)
    with count_calls() as returned:
        differentiate(make_loss(metric="f1"), z, y)
    assert [one for one in returned if one is not None] == []


def test_the_first_batch_left_to_torch_continues_the_last_in_numpy() -> None:
    rows, classes = BEYOND["first in torch"]
    z, y = draw((rows, classes))
    expected = differentiate(make_loss(metric="f1"), z, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_batches, "MAX_ELEMENTS", z.numel())
        with in_numpy():
            assert_same(differentiate(make_loss(metric="f1"), z, y), expected, 1e-12)


def test_batches_left_to_torch() -> None:
    z, y = draw((ROWS, CLASSES))
    negated = torch.complex(z, -z).conj().imag
    assert negated.is_neg()
    cases: dict[str, tuple[Any, ...]] = {
        "bfloat16": (z.bfloat16(), y),
        "half": (z.half(), y),
        "weight": (z, y, torch.ones(ROWS)),
        "mask": (z, y, None, torch.ones(ROWS, dtype=torch.bool)),
        "soft labels": (z, torch.eye(CLASSES)[y]),
        "subclass": (z.as_subclass(OwnTensor), y),
        "subclass of targets": (z, y.as_subclass(OwnTensor)),
        "negated": (negated, y),
        "empty": (z[:0], y[:0]),
    }
    for name, arguments in cases.items():
        with count_calls() as returned:
            value, gradient = differentiate(make_loss(metric="f1"), *arguments)
        assert [one for one in returned if one is not None] == [], name
        if name not in ("empty", "bfloat16", "half"):
            assert_same(
                (value.as_subclass(Tensor), gradient.as_subclass(Tensor)),
                differentiate(make_loss(metric="f1"), z, y),
                1e-12,
            )


def test_a_group_of_processes_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = draw((ROWS, CLASSES))
    call = make_loss(metric="f1")._prepare_call(z, y, None, None, for_loss=True)
    assert small_batches.compute_loss_and_gradient(call, z) is not None
    monkeypatch.setattr(call, "group", object())
    assert small_batches.compute_loss_and_gradient(call, z) is None


class CountsOperations(TorchDispatchMode):
    """Sees every operation of torch."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("metric", ["f1", "mcc"])
def test_whoever_records_operations_sees_them(metric: str) -> None:
    z, y = draw((ROWS, CLASSES))
    expected = differentiate(make_loss(metric=metric), z, y)
    with count_calls() as returned, CountsOperations() as seen:
        found = differentiate(make_loss(metric=metric), z, y)
    assert returned == [None]
    assert seen.operations > 50
    assert_same(found, expected, 1e-12)


def test_without_numpy_torch_computes_the_same(tmp_path: Any) -> None:
    code = """
import sys

class HidesNumpy:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "numpy":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, HidesNumpy())
import torch
import metricgrad as mg
from metricgrad.core import numpy_arrays
assert numpy_arrays.np is None
z = torch.linspace(-1, 1, 30, dtype=torch.float64).sin().view(10, 3).requires_grad_()
for metric in ("f1", "mcc"):
    loss = mg.MetricLoss(metric, task="multiclass")(z, torch.arange(10) % 3)
    (gradient,) = torch.autograd.grad(loss, z)
    print(*[loss.item(), *gradient.flatten().tolist()])
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    z = torch.linspace(-1, 1, 30, dtype=torch.float64).sin().view(10, 3)
    for metric, line in zip(("f1", "mcc"), done.stdout.splitlines(), strict=True):
        with in_numpy():
            value, gradient = differentiate(make_loss(metric=metric), z, torch.arange(10) % 3)
        found = torch.tensor([value.item(), *gradient.flatten().tolist()], dtype=torch.float64)
        torch.testing.assert_close(torch.tensor([float(x) for x in line.split()]).double(), found, rtol=0, atol=1e-6)


# As any other loss


@pytest.mark.parametrize("wrong", [-1, CLASSES, 2**40, -(2**40)])
def test_wrong_targets_are_named(wrong: int) -> None:
    z, y = draw((ROWS, CLASSES))
    y[3] = wrong
    with pytest.raises(ValueError, match="targets: ") as found:
        differentiate(make_loss(metric="f1"), z, y)
    with in_torch(), pytest.raises(ValueError, match="targets: ") as expected:
        differentiate(make_loss(metric="f1"), z, y)
    assert str(found.value) == str(expected.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("metric", ["f1", "mcc"])
def test_again_and_scaled_and_twice(metric: str) -> None:
    z, y = draw((ROWS, CLASSES))
    leaf = z.clone().requires_grad_()
    loss = make_loss(metric=metric)
    with in_numpy():
        value = loss(leaf, y)
        (first,) = torch.autograd.grad(value, leaf, retain_graph=True)
        kept = first.clone()
        (second,) = torch.autograd.grad(3 * value, leaf, retain_graph=True)
        torch.testing.assert_close(second, 3 * kept, rtol=1e-15, atol=0)
        assert torch.equal(first, kept)  # the second gradient has memory of its own
        assert torch.equal(loss(leaf, y), value)
    (third,) = torch.autograd.grad(value, leaf, create_graph=True)
    torch.testing.assert_close(third.detach(), kept, rtol=1e-12, atol=1e-15)
    assert torch.autograd.gradgradcheck(lambda x: loss(x, y), leaf)
    assert torch.equal(leaf.detach(), z)  # nothing is written into the logits


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, in dual_level
def test_forward_mode_and_torch_func() -> None:
    z, y = draw((ROWS, CLASSES))
    loss = make_loss(metric="f1")
    _, gradient = differentiate(loss, z, y)
    tangent = torch.cos(z)
    with torch.autograd.forward_ad.dual_level(), in_numpy():
        dual = torch.autograd.forward_ad.make_dual(z, tangent)
        found = torch.autograd.forward_ad.unpack_dual(loss(dual, y)).tangent
    torch.testing.assert_close(found, (gradient * tangent).sum(), rtol=1e-12, atol=0)
    torch.testing.assert_close(torch.func.grad(loss)(z, y), gradient, rtol=1e-12, atol=1e-15)


def test_parameters_inference_and_other_default_devices() -> None:
    z, y = draw((ROWS, CLASSES))
    expected = differentiate(make_loss(metric="mcc"), z, y)
    parameter = torch.nn.Parameter(z.clone())
    with in_numpy():
        value = make_loss(metric="mcc")(parameter, y)
    value.backward()
    assert parameter.grad is not None
    assert_same((value.detach(), parameter.grad), expected, 0.0)
    for metric in ("f1", "mcc"):
        loss = make_loss(metric=metric)
        expected = differentiate(make_loss(metric=metric), z, y)
        torch.set_default_device("meta")
        try:
            with in_numpy():
                found = differentiate(loss, z, y)
        finally:
            torch.set_default_device(None)
        assert_same(found, expected, 0.0)
    with torch.inference_mode():
        value = make_loss(metric="mcc")(z.clone(), y.clone())
    assert value.item() == pytest.approx(expected[0].item(), rel=1e-12)


def test_logits_and_targets_can_be_resized_afterwards() -> None:
    z, y = draw((ROWS, CLASSES))
    with in_numpy():
        differentiate(make_loss(metric="f1"), z, y)
    assert len(z.resize_(2 * ROWS, CLASSES)) == 2 * ROWS
    assert len(y.resize_(2 * ROWS)) == 2 * ROWS


def test_numpy_does_not_warn() -> None:
    z, y = draw((ROWS, CLASSES), torch.float32)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for extreme in EXTREMES.values():
            for name in ("f1", "mcc", "accuracy"):
                differentiate(make_loss(**METRICS[name]), extreme(z), y)
        large, targets = draw((5000, 20), torch.float32)  # the margins of a large batch are differentiated in arrays
        differentiate(make_loss(metric="balanced_accuracy"), large, targets)  # the last class is absent


def test_an_undefined_metric_is_named_once() -> None:
    loss = make_loss(metric=lambda c: c.tp / (c.positives - c.positives))
    z, y = draw((ROWS, CLASSES))
    with in_numpy(), pytest.warns(UserWarning, match="metric: .* is not finite for a batch of finite counts"):
        differentiate(loss, z, y)
    with in_numpy(), warnings.catch_warnings():
        warnings.simplefilter("error")
        differentiate(loss, z, y)


def test_a_vanished_gradient_is_named_once() -> None:
    _, y = draw((ROWS, CLASSES))
    wrong = -30.0 * torch.nn.functional.one_hot(y, CLASSES).float()
    loss = make_loss(metric="f1", surrogate=s.Identity())

    def repeat() -> None:
        for _ in range(objective.CALLS_BETWEEN_CHECKS):
            differentiate(loss, wrong, y)

    with in_numpy():
        with pytest.warns(UserWarning, match="macro f1 has no gradient left"):
            repeat()
        repeat()


def test_the_message_of_a_wrong_metric_is_torchs() -> None:
    def sum_of_classes(c: mg.Counts) -> Tensor:
        return c.tp.sum()

    z, y = draw((ROWS, CLASSES))
    with pytest.raises(ValueError, match="metric: sum_of_classes must be elementwise"):
        differentiate(make_loss(metric=sum_of_classes), z, y)
