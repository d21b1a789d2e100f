"""Metrics against the slow reference and scikit-learn, their gradients where formulas are 0/0, and their names."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch import Tensor

import metricgrad as mg
import reference
from metricgrad import Confusion, Counts
from metricgrad.core.metrics import registry
from metricgrad.core.metrics.derivatives import FLOOR, CountsWithDerivatives, Jet

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.quick

M = mg.metrics


def moving(c: Counts) -> Any:
    return CountsWithDerivatives(c.tp, c.fp, c.positives, c.negatives)


def assert_tight(got: Tensor, expected: Tensor | list[float]) -> None:
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def subset_reference(tp: float, fp: float, fn: float, tn: float, *, empty: float = 1.0) -> float:
    """1 without any error, falling to 0 at one error."""
    return empty if tp + fp + fn + tn == 0 else max(0.0, 1.0 - fp - fn)


# library metric, reference metric, whether `empty` exists
ELEMENTWISE: dict[str, tuple[Callable[..., Any], Callable[..., float], bool]] = {
    "accuracy": (M.accuracy, reference.accuracy, True),
    "precision": (M.precision, reference.precision, True),
    "recall": (M.recall, reference.recall, True),
    "specificity": (M.specificity, reference.specificity, True),
    "npv": (M.npv, reference.npv, True),
    "predicted_positive_rate": (M.predicted_positive_rate, reference.predicted_positive_rate, True),
    "f1": (M.f1, reference.f_beta, True),
    "f_beta": (M.f_beta, reference.f_beta, True),
    "f_0.5": (partial(M.f_beta, beta=0.5), partial(reference.f_beta, beta=0.5), True),
    "f_3": (partial(M.f_beta, beta=3), partial(reference.f_beta, beta=3.0), True),
    "jaccard": (M.jaccard, reference.jaccard, True),
    "tversky": (M.tversky, reference.tversky, True),
    "tversky_skewed": (
        partial(M.tversky, alpha=0.3, beta=1.7),
        partial(reference.tversky, alpha=0.3, beta=1.7),
        True,
    ),
    "balanced_accuracy": (M.balanced_accuracy, reference.balanced_accuracy, True),
    "g_mean": (M.g_mean, reference.g_mean, True),
    "mcc": (M.mcc, reference.mcc, False),
    "kappa": (M.kappa, reference.kappa, True),
    "informedness": (M.informedness, reference.informedness, True),
    "markedness": (M.markedness, reference.markedness, True),
    "fowlkes_mallows": (M.fowlkes_mallows, reference.fowlkes_mallows, True),
    "savings": (M.savings, reference.savings, True),
    "savings_skewed": (
        partial(M.savings, fp=2.0, fn=0.1),
        partial(reference.savings, fp_cost=2.0, fn_cost=0.1),
        True,
    ),
    "detection_cost": (M.detection_cost, reference.detection_cost, False),
    "detection_cost_skewed": (
        partial(M.detection_cost, miss=10.0, false_alarm=0.5, prior=0.01),
        partial(reference.detection_cost, miss=10.0, false_alarm=0.5, prior=0.01),
        False,
    ),
    "worst_recall": (M.worst_recall, reference.worst_recall, False),
    "subset_accuracy": (M.subset_accuracy, subset_reference, True),
}
# Those written in arithmetic alone, which a jet (or a plain number) can pass through; worst_recall is one too, but the
# kink where its two rates are equal, up to rounding, lies among the cells.
ARITHMETIC = [name for name in ELEMENTWISE if name not in ("subset_accuracy", "worst_recall")]

OF_MATRIX: dict[str, tuple[Callable[..., Any], Callable[..., float], bool]] = {
    "accuracy": (M.accuracy, reference.matrix_accuracy, True),
    "balanced_accuracy": (M.balanced_accuracy, reference.matrix_balanced_accuracy, True),
    "g_mean": (M.g_mean, reference.matrix_g_mean, True),
    "mcc": (M.mcc, reference.matrix_mcc, False),
    "kappa": (M.kappa, reference.matrix_kappa, True),
    "quadratic_kappa": (M.quadratic_kappa, reference.matrix_quadratic_kappa, True),
}


def random_cells() -> Tensor:
    """``(4, n)``: soft cells from tiny to large, so also rows far out of balance."""
    generator = torch.Generator().manual_seed(0)
    return 10 ** (4 * torch.rand(4, 60, generator=generator, dtype=torch.float64) - 2)


def degenerate_cells() -> Tensor:
    """``(4, 81)``: every way in which cells can be 0, 1 or 3."""
    return torch.tensor(list(itertools.product((0.0, 1.0, 3.0), repeat=4)), dtype=torch.float64).T


def all_cells() -> Tensor:
    return torch.cat([random_cells(), degenerate_cells(), 0.37 * degenerate_cells()], 1)


def matrices(d: int = 4) -> Tensor:
    """``(n, d, d)``: soft ones, and ones with empty rows, columns or nothing at all."""
    generator = torch.Generator().manual_seed(1)
    soft = 9 * torch.rand(48, d, d, generator=generator, dtype=torch.float64)
    soft[8:16, 1] = 0  # a class that never occurs
    soft[16:24, :, 2] = 0  # one that is never predicted
    soft[24:32, 1:] = 0  # only one that occurs
    soft[32:40, :, 1:] = 0  # only one that is predicted
    single = torch.eye(d * d, dtype=torch.float64).reshape(d * d, d, d)
    diagonal = torch.diag_embed(soft[:8, 0])
    return torch.cat([soft, 3 * single, diagonal, torch.zeros(1, d, d, dtype=torch.float64)])


def settings(has_empty: bool) -> list[dict[str, float]]:
    return [{}, {"empty": 0.0}, {"empty": 1.0}] if has_empty else [{}]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_metric_of_cells_equals_reference(name: str) -> None:
    metric, slow, has_empty = ELEMENTWISE[name]
    cells = all_cells()
    for setting in settings(has_empty):
        expected = [slow(*column, **setting) for column in cells.T.tolist()]
        got = metric(Counts(*cells), **setting)
        assert_tight(got, expected)
        # Leading axes pass through.
        twice = metric(Counts(*cells.unflatten(1, (2, 1, -1))), **setting)
        torch.testing.assert_close(twice, got.unflatten(0, (2, 1, -1)), rtol=0, atol=0)


@pytest.mark.parametrize("name", ARITHMETIC)
def test_metric_of_plain_numbers_equals_that_of_tensors(name: str) -> None:
    metric, _, has_empty = ELEMENTWISE[name]
    cells = all_cells()
    for setting in settings(has_empty):
        got = [metric(Counts(*column), **setting) for column in cells.T.tolist()]
        assert all(isinstance(value, float) for value in got)
        assert_tight(metric(Counts(*cells), **setting), got)


@pytest.mark.parametrize("name", OF_MATRIX)
def test_metric_of_matrix_equals_reference(name: str) -> None:
    metric, slow, has_empty = OF_MATRIX[name]
    matrix = matrices()
    for setting in settings(has_empty):
        expected = [slow(m.numpy(), **setting) for m in matrix]
        got = metric(Confusion(matrix), **setting)
        assert_tight(got, expected)


def test_counts_of_matrix_equal_reference() -> None:
    matrix = matrices()
    counts = Confusion(matrix).counts()
    for i, m in enumerate(matrix):
        for cell, expected in reference.one_vs_rest(m.numpy()).items():
            assert_tight(getattr(counts, cell)[i], expected)


def test_metric_of_matrix_equals_scikit_learn() -> None:
    rng = np.random.default_rng(2)
    for _ in range(10):
        true, predicted = rng.integers(0, 5, 60), rng.integers(0, 5, 60)
        predicted = np.where(rng.random(60) < 0.5, true, predicted)
        weight = rng.random(60)
        matrix = sk.confusion_matrix(true, predicted, sample_weight=weight, labels=range(5))
        c = Confusion(torch.tensor(matrix))
        expected: dict[Callable[..., Tensor], float] = {
            M.accuracy: sk.accuracy_score(true, predicted, sample_weight=weight),
            M.balanced_accuracy: sk.balanced_accuracy_score(true, predicted, sample_weight=weight),
            M.mcc: sk.matthews_corrcoef(true, predicted, sample_weight=weight),
            M.kappa: sk.cohen_kappa_score(true, predicted, sample_weight=weight),
            M.quadratic_kappa: sk.cohen_kappa_score(true, predicted, sample_weight=weight, weights="quadratic"),
        }
        for metric, value in expected.items():
            assert float(metric(c)) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-30, 1e12])
@pytest.mark.parametrize("name", ["mcc", "kappa", "quadratic_kappa"])
def test_products_of_counts_do_not_overflow(name: str, scale: float) -> None:
    cells = torch.tensor([3.0, 1.0, 2.0, 5.0]) * scale
    matrix = torch.tensor([[3.0, 1.0, 0.0], [1.0, 2.0, 2.0], [0.0, 1.0, 4.0]]) * scale
    if name != "quadratic_kappa":
        metric, slow, _ = ELEMENTWISE[name]
        assert float(metric(Counts(*cells))) == pytest.approx(slow(3.0, 1.0, 2.0, 5.0), rel=1e-5)
    metric, slow, _ = OF_MATRIX[name]
    assert float(metric(Confusion(matrix))) == pytest.approx(slow(matrix.double().numpy() / scale), rel=1e-5)


# ------------------------------------------------------------------------------------------- gradients


def gradient_by_cells(metric: Callable[..., Any], cells: Tensor, **setting: float) -> tuple[Tensor, Tensor, Tensor]:
    """The value and its derivatives by autograd: d/dTP − d/dFN and d/dFP − d/dTN."""
    leaves = [cell.clone().requires_grad_() for cell in cells]
    value = metric(Counts(*leaves), **setting)
    grads = torch.autograd.grad(value.sum() + 0 * sum(leaf.sum() for leaf in leaves), leaves)
    tp, fp, fn, tn = grads
    return value.detach(), tp - fn, fp - tn


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_gradients_are_finite_at_zero(name: str) -> None:
    metric, _, has_empty = ELEMENTWISE[name]
    for setting in settings(has_empty):
        _, a, b = gradient_by_cells(metric, degenerate_cells(), **setting)
        assert a.isfinite().all()
        assert b.isfinite().all()
        # Nothing counted at all: nothing to move.
        assert a[0] == 0
        assert b[0] == 0


@pytest.mark.parametrize("name", OF_MATRIX)
def test_gradients_of_matrix_are_finite_at_zero(name: str) -> None:
    metric = OF_MATRIX[name][0]
    matrix = matrices().requires_grad_()
    (gradient,) = torch.autograd.grad(metric(Confusion(matrix)).sum(), matrix)
    assert gradient.isfinite().all()
    assert (gradient[-1] == 0).all()
    # Every matrix is of size one to a hundred: a slope of millions is noise divided by a rounded zero.
    assert gradient.abs().max() < 1e3


def test_ratio_and_root_at_zero_have_zero_gradient() -> None:
    x = torch.tensor([0.0, 0.0, 2.0, -1e-9], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0.0, 5.0, 4.0, 1.0], dtype=torch.float64, requires_grad=True)
    for empty in (0.0, 1.0):
        value = M.ratio(y, x, empty)
        assert value.tolist()[:3] == [empty, empty, 2.0]
        by_y, by_x = torch.autograd.grad(value[:3].sum(), (y, x))
        assert by_y.tolist()[:3] == [0.0, 0.0, 0.5]
        assert by_x.tolist()[:3] == [0.0, 0.0, -1.0]
    value = M.root(x)
    assert value.tolist() == [0.0, 0.0, pytest.approx(math.sqrt(2.0), rel=1e-15), 0.0]  # not all processors round alike
    (by_x,) = torch.autograd.grad(value.sum(), x)
    assert by_x.tolist() == [0.0, 0.0, pytest.approx(0.5 / math.sqrt(2.0)), 0.0]
    assert M.ratio(torch.tensor([1, 0]), torch.tensor([4, 0]), empty=1.0).tolist() == [0.25, 1.0]
    assert [M.ratio(1.0, 4.0), M.ratio(1.0, 0.0, 0.5), M.root(4.0), M.root(-1.0)] == [0.25, 0.5, 2.0, 0.0]


@pytest.mark.parametrize("kind", [float, torch.tensor, Jet], ids=["number", "tensor", "jet"])
def test_numbers_tensors_and_jets_count_as_zero_below_the_same_floor(kind: Any) -> None:
    for size, is_zero in ((FLOOR, False), (math.nextafter(FLOOR, 1), False), (FLOOR / 2, True), (0.0, True)):
        found: Any = mg.metrics.ratio(kind(3 * size), kind(size), empty=7.0)
        value = found.value if isinstance(found, Jet) else found
        assert float(value) == (7.0 if is_zero else 3.0), size


def test_log_at_zero_has_a_value_and_zero_gradient() -> None:
    x = torch.tensor([0.0, 2.0, -1e-9], dtype=torch.float64, requires_grad=True)
    for empty in (0.0, -9.0):
        value = M.log(x, empty)
        assert value.tolist() == [empty, math.log(2.0), empty]
        (by_x,) = torch.autograd.grad(value.sum(), x)
        assert by_x.tolist() == [0.0, 0.5, 0.0]
    assert M.log(torch.tensor([0, 1]), empty=-1.0).tolist() == [-1.0, 0.0]
    assert [M.log(1.0), M.log(0.0), M.log(-2.0, empty=-5.0)] == [0.0, 0.0, -5.0]


def information(c: Any) -> Any:
    """A metric with a logarithm: in a batch without positives its argument is 0."""
    return M.ratio(c.tp, c.total) * M.log(M.ratio(c.tp * c.total, c.positives * c.predicted)) + M.log(c.fp, empty=-9.0)


def test_a_metric_with_a_logarithm_is_finite_and_jets_equal_autograd() -> None:
    cells = all_cells()
    expected = gradient_by_cells(information, cells)
    assert all(part.isfinite().all() for part in expected)
    jet = information(moving(Counts(*cells)))
    plain = [information(moving(Counts(*column))) for column in cells.T.tolist()]
    for part, want in zip(("value", "a", "b"), expected, strict=True):
        torch.testing.assert_close(getattr(jet, part), want, rtol=1e-10, atol=1e-12)
        floats = torch.tensor([getattr(each, part) for each in plain], dtype=torch.float64)
        torch.testing.assert_close(floats, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("many", [False, True])
def test_a_metric_of_ones_own_that_is_not_finite_is_named_once(many: bool) -> None:
    def unsafe(c: Counts) -> torch.Tensor:
        return torch.log(c.tp / c.positives)

    shape = (4, 3) if many else (4,)
    how: dict[str, Any] = {"task": "multilabel"} if many else {}
    z, y = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_(), torch.zeros(shape)
    loss = mg.MetricLoss(unsafe, **how)
    with pytest.warns(
        UserWarning, match=r"^metric: unsafe or its gradient is not finite .* mg.metrics.ratio, root and log"
    ):
        assert loss(z, y).isnan()
    assert loss(z, y).isnan()  # not again: warnings are errors here
    assert mg.MetricLoss(unsafe, **how)(z * torch.nan, y).isnan()  # not the metric's fault
    scores = z.sigmoid().detach()
    with pytest.warns(UserWarning, match=r"^metric: unsafe "):
        mg.evaluate(scores, y, unsafe, **how)
    with pytest.raises(ValueError, match=r"^metric: expected unsafe to be defined at some threshold"):
        mg.tune_threshold(unsafe, scores, y, **how)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_gradcheck_of_cells(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    # Below ½ so that subset accuracy, flat beyond one error, is inside too.
    cells = [(0.1 + 0.3 * torch.rand(5, generator=generator, dtype=torch.float64)).requires_grad_() for _ in range(4)]
    metric = ELEMENTWISE[name][0]
    assert torch.autograd.gradcheck(lambda *c: metric(Counts(*c)), cells)
    assert torch.autograd.gradgradcheck(lambda *c: metric(Counts(*c)), cells)


@pytest.mark.parametrize("name", OF_MATRIX)
def test_gradcheck_of_matrix(name: str) -> None:
    generator = torch.Generator().manual_seed(4)
    matrix = (0.5 + torch.rand(2, 3, 3, generator=generator, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda m: OF_MATRIX[name][0](Confusion(m)), matrix)


# ------------------------------------------------------------------------------------------------ jets


@pytest.mark.parametrize("name", ARITHMETIC)
def test_jets_equal_autograd(name: str) -> None:
    metric, _, has_empty = ELEMENTWISE[name]
    cells = all_cells()
    for setting in settings(has_empty):
        expected = gradient_by_cells(metric, cells, **setting)
        jet = metric(moving(Counts(*cells)), **setting)
        plain = [metric(moving(Counts(*column)), **setting) for column in cells.T.tolist()]
        for part, want in zip(("value", "a", "b"), expected, strict=True):
            tensors = torch.as_tensor(getattr(jet, part), dtype=torch.float64).expand(want.shape)
            floats = torch.tensor([getattr(each, part) for each in plain], dtype=torch.float64)
            torch.testing.assert_close(tensors, want, rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(floats, want, rtol=1e-10, atol=1e-12)


def test_jets_do_all_arithmetic() -> None:
    """Every operator on either side, with jets, numbers and tensors."""
    beta = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)

    def odd(c: Any) -> Any:
        a = 3 - c.tp / 2 + (-c.fn) * c.tn - 1.5
        b = 1 / (1 + c.fp) - c.tn * 2 + beta * c.fn + c.tp * beta - beta / (c.tp + 1) + (beta - c.fp) / beta
        return M.root(a * a + b * b) / (2 + c.total) - M.ratio(beta, c.predicted) + M.ratio(c.tp, 4.0)

    cells = random_cells()[:, :3]
    value, a, b = gradient_by_cells(odd, cells)
    jet = odd(moving(Counts(*cells)))
    torch.testing.assert_close(jet.value, value)
    torch.testing.assert_close(jet.a, a)
    torch.testing.assert_close(jet.b, b)


def test_dividing_plain_jets_by_zero_is_as_in_torch() -> None:
    for top in (0.0, 1.0, -1.0):
        expected = float(torch.tensor(top) / torch.tensor(0.0))
        assert (Jet(top, 1.0) / Jet(0.0)).value == pytest.approx(expected, nan_ok=True)


# Metrics of one's own that leave arithmetic behind: autograd must take over, silently and exactly.


def with_torch_sqrt(c: Counts) -> Tensor:
    return torch.sqrt(M.precision(c) * M.recall(c) + 1e-6)


def with_method(c: Counts) -> Tensor:
    return (c.tp / c.total).clamp(max=0.1) + M.f1(c)


def with_power(c: Counts) -> Tensor:
    return c.tp**2 / (c.predicted * c.positives + 1e-6)


def with_comparison(c: Counts) -> Tensor:
    return torch.where(c.tp > c.fp, M.f1(c), M.precision(c))


def with_equality(c: Counts) -> Tensor:
    """The guard everyone writes: one more in a denominator that is zero."""
    return c.tp / (c.positives + (c.positives == 0))


def with_inequality(c: Counts) -> Tensor:
    return M.f1(c) + 0.5 * (c.positives != 0)


BEYOND = [with_torch_sqrt, with_method, with_power, with_comparison, with_equality, with_inequality]


@pytest.mark.parametrize("metric", BEYOND)
@pytest.mark.parametrize("average", ["macro", "micro", "samples"])
@pytest.mark.parametrize("classes", [1, 3])
def test_metric_beyond_arithmetic_trains(metric: Callable[[Counts], Tensor], average: Any, classes: int) -> None:
    generator = torch.Generator().manual_seed(5)
    z = torch.randn(8, classes, generator=generator, dtype=torch.float64).requires_grad_()
    y = (torch.rand(8, classes, generator=generator) < 0.5).double()
    y[:, 0], y[0] = 0, 0  # a class and a row without positives
    m = mg.surrogates.Linear()(z)
    along = 1 if average == "samples" else 0
    cells = [each.sum(along) for each in (m * y, m * (1 - y), (1 - m) * y, (1 - m) * (1 - y))]
    if average == "micro":
        cells = [cell.sum(0, keepdim=True) for cell in cells]
    expected = 1 - metric(Counts(*cells)).mean()
    loss = mg.MetricLoss(metric, task="multilabel", average=average)
    for _ in range(2):  # the first call finds out, the second knows
        got = loss(z, y)
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)
        by_z, wanted = (torch.autograd.grad(x, z, retain_graph=True)[0] for x in (got, expected))
        torch.testing.assert_close(by_z, wanted, rtol=1e-10, atol=1e-12)


def test_metric_that_asks_a_cell_for_its_truth_trains() -> None:
    """For one class a metric may branch; a jet that is always true would take the wrong branch."""
    z = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    loss = mg.MetricLoss(lambda c: c.tp / c.positives if c.positives else c.tn / c.total)
    got = loss(z, torch.zeros(2))
    torch.testing.assert_close(got, mg.surrogates.Linear()(z).mean())
    (by_z,) = torch.autograd.grad(got, z)
    assert (by_z > 0).all()


# ----------------------------------------------------------------------------------------------- names


def own_metric(c: Counts) -> Tensor:
    return 2 * M.f1(c)


def test_get_finds_metrics_by_name() -> None:
    c = Counts(*random_cells())
    for name in M.names():
        assert M.get(name) is getattr(M, name)
    for name, beta in (("f0.5", 0.5), ("f2", 2.0), ("f_2", 2.0), ("f.5", 0.5), ("f10", 10.0), ("f0", 0.0)):
        torch.testing.assert_close(M.get(name)(c), M.f_beta(c, beta=beta), rtol=0, atol=0)
    torch.testing.assert_close(M.get("f_beta")(c), M.get("f1")(c))
    assert M.get(own_metric) is own_metric
    assert M.get(f"{__name__}:own_metric") is own_metric
    assert M.get("metricgrad.metrics:mcc") is M.mcc


@pytest.mark.parametrize(
    "name",
    [
        "",
        "f",
        "f-1",
        "f1x",
        "F1",
        "precison",
        "no_such_package.module:function",
        "math:no_such_function",
        "math:pi",
        "math:",
        ":sqrt",
        "metricgrad..metrics:f1",
        ".metrics:f1",
        3,
        None,
    ],
)
def test_get_refuses_what_it_does_not_know(name: Any) -> None:
    with pytest.raises(ValueError, match=r"^metric: ") as caught:
        M.get(name)
    assert repr(name) in str(caught.value)
    if name == "precison":
        assert "did you mean 'precision'" in str(caught.value)


def test_names_are_complete() -> None:
    """Every function of the module that takes counts is public, has a name, and is tested above."""
    found = [
        name
        for name, function in inspect.getmembers(M, inspect.isfunction)
        if not name.startswith("_") and next(iter(inspect.signature(function).parameters), "") == "c"
    ]
    assert M.names() == sorted(found)
    others = {"Metric", "MetricProperties", "declare", "get", "log", "names", "properties_of", "ratio", "root"}
    assert set(vars(M)["__all__"]) == {*found, *others}
    assert set(found) <= {*ELEMENTWISE, *OF_MATRIX}


def test_annotation_tells_cells_from_matrix() -> None:
    for name in set(M.names()) - {"subset_accuracy"}:
        assert mg.MetricLoss(name, task="multiclass").objective.of_matrix == (name in OF_MATRIX)

    def of_matrix_alone(c: Confusion) -> Tensor:
        return M.accuracy(c)

    assert mg.MetricLoss(of_matrix_alone, task="multiclass").objective.of_matrix
    assert mg.MetricLoss(partial(of_matrix_alone), task="multiclass").objective.of_matrix
    for metric in ("quadratic_kappa", of_matrix_alone):
        for task in ("binary", "multilabel"):
            with pytest.raises(ValueError, match=r"metric: .* is of the d×d matrix"):
                mg.MetricLoss(metric, task=task)
    with pytest.raises(AttributeError, match="Confusion"):
        _ = Counts(*random_cells()).matrix


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("F1", "did you mean 'f1'?"),
        ("F0.5", "did you mean 'f0.5'?"),
        ("MCC", "did you mean 'mcc'?"),
        ("f1_score", "did you mean 'f1'?"),
        ("jaccard_score", "did you mean 'jaccard'?"),
        ("gmean", "did you mean 'g_mean'?"),
        ("Dice", "did you mean 'f1'?"),
        ("iou", "did you mean 'jaccard'?"),
        ("IoU", "did you mean 'jaccard'?"),
        ("sensitivity", "did you mean 'recall'?"),
        ("tpr", "did you mean 'recall'?"),
        ("ppv", "did you mean 'precision'?"),
        ("youden", "did you mean 'informedness'?"),
        ("fpr", "did you mean 'specificity', which is 1 - fpr?"),
        ("hamming_loss", "did you mean 'accuracy', which is 1 - hamming_loss?"),
        ("auroc", "mg.AUROCLoss() trains on it."),
        ("roc_auc", "mg.AUROCLoss() trains on it."),
        ("average_precision", "mg.AUROCLoss(curve='pr') trains on it."),
        ("wmw", "mg.WMWLoss() trains on it."),
        ("precision@5", "mg.PrecisionAtKLoss(k) trains on it."),
        ("precision_at_k", "mg.PrecisionAtKLoss(k) trains on it."),
        ("eer", "mg.EERLoss() trains on it."),
        ("recal", "did you mean 'recall'?"),
    ],
)
def test_names_from_elsewhere_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=rf"^metric: unknown name {re.escape(repr(name))}; ") as caught:
        mg.MetricLoss(name)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_hints_name_what_is_there() -> None:
    assert {*registry._OTHER_NAMES.values(), *registry._COMPLEMENTS.values()} <= set(M.names())
    for call in set(registry._LOSSES.values()):
        loss, _, arguments = call.partition("(")
        sample = {"k)": (2,), "p)": (0.5,), "fpr)": (0.1,)}.get(arguments, ())
        assert getattr(mg, loss)(*sample, **({"curve": "pr"} if "curve" in arguments else {}))
