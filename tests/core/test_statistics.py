"""Layouts against slow loops in float64: sums of a chunk, sums of several chunks, and how a gradient spreads back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from metricgrad.core import statistics
from metricgrad.core.counts import Confusion, Counts
from metricgrad.core.statistics import ColumnLayout, IndexLayout, MatrixLayout, RowLayout

ROWS, CLASSES = 40, 5
LAYOUTS = [ColumnLayout(), IndexLayout(), RowLayout(), MatrixLayout()]
WEIGHTS = ["none", "per row", "per element"]
DTYPES = [torch.float32, torch.float64]


def draw_memberships(rows: int = ROWS, classes: int = CLASSES, seed: int = 0) -> Tensor:
    return torch.rand(rows, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def draw_targets(layout: Any, soft: bool = False, rows: int = ROWS, classes: int = CLASSES) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if isinstance(layout, IndexLayout | MatrixLayout) and not soft:
        return torch.randint(classes, (rows,), generator=generator)
    numbers = torch.rand(rows, classes, dtype=torch.float64, generator=generator)
    return numbers if soft else (numbers < 0.4).double()


def draw_weight(kind: str, rows: int = ROWS, classes: int = CLASSES) -> Tensor | None:
    if kind == "none":
        return None
    columns = 1 if kind == "per row" else classes
    return torch.rand(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def label_of(targets: Tensor, row: int, k: int) -> float:
    return float(targets[row].item() == k) if targets.dim() == 1 else targets[row, k].item()


def sum_slowly(layout: Any, memberships: Tensor, targets: Tensor, weight: Tensor | None, scale: Tensor | None) -> Any:
    """Return (TP, FP, P, N), or the matrix, by loops over rows and classes."""
    rows, classes = memberships.shape
    if isinstance(layout, MatrixLayout):
        matrix = [[0.0] * classes for _ in range(classes)]
        for row in range(rows):
            factor = 1.0 if scale is None else scale[row, 0].item()
            for true in range(classes):
                for predicted in range(classes):
                    share = label_of(targets, row, true) * memberships[row, predicted].item()
                    matrix[true][predicted] += factor * share
        return (torch.tensor(matrix, dtype=torch.float64),)
    places = rows if isinstance(layout, RowLayout) else classes
    sums = [[0.0] * places for _ in range(4)]
    for row in range(rows):
        for k in range(classes):
            place = row if isinstance(layout, RowLayout) else k
            label = label_of(targets, row, k)
            w = 1.0 if weight is None else weight[row, k if weight.shape[1] > 1 else 0].item()
            factor = 1.0 if scale is None else scale[row, k if scale.shape[1] > 1 else 0].item()
            member = memberships[row, k].item()
            sums[0][place] += factor * label * member
            sums[1][place] += factor * (1 - label) * member
            sums[2][place] += w * label
            sums[3][place] += w * (1 - label)
    return tuple(torch.tensor(cell, dtype=torch.float64) for cell in sums)


def assert_sums_equal(found: Any, expected: Any, dtype: torch.dtype = torch.float64) -> None:
    tolerance = 1e-12 if dtype is torch.float64 else 2e-6
    assert len(found) == len(expected)
    for cell, slow in zip(found, expected, strict=True):
        torch.testing.assert_close(cell.double(), slow, rtol=tolerance, atol=tolerance)


def cases() -> list[Any]:
    found = []
    for layout in LAYOUTS:
        name = type(layout).__name__
        for kind in WEIGHTS:
            if kind == "per element" and isinstance(layout, IndexLayout | MatrixLayout):
                continue  # several classes have one weight per row
            for soft in (False, True):
                if soft and isinstance(layout, IndexLayout):
                    continue
                found.append(pytest.param(layout, kind, soft, id=f"{name}-{kind}-{'soft' if soft else 'hard'}"))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("layout", "kind", "soft"), cases())
def test_sums_of_a_chunk_are_those_of_loops(layout: Any, kind: str, soft: bool, dtype: torch.dtype) -> None:
    memberships, targets, weight = draw_memberships(), draw_targets(layout, soft), draw_weight(kind)
    expected = sum_slowly(layout, memberships, targets, weight, weight)
    typed_targets = targets if targets.dim() == 1 else targets.to(dtype)
    typed_weight = None if weight is None else weight.to(dtype)
    given = memberships.to(dtype)
    found = layout.sum_chunk(given, typed_targets, typed_weight, typed_weight, torch.empty_like(given))
    assert_sums_equal(found, expected, dtype)


@pytest.mark.parametrize("kind", ["none", "per row"])
@pytest.mark.parametrize("layout", [ColumnLayout(), IndexLayout(), MatrixLayout()])
def test_a_scale_per_row_multiplies_memberships_but_not_margins(layout: Any, kind: str) -> None:
    """The memberships of rows come not yet normalised: their factor is not the weight of the labels."""
    memberships, targets, weight = draw_memberships(), draw_targets(layout), draw_weight(kind)
    row_scale = 1 / memberships.sum(1, keepdim=True)
    scale = row_scale if weight is None else row_scale * weight
    expected = sum_slowly(layout, memberships, targets, weight, scale)
    found = layout.sum_chunk(memberships.clone(), targets, scale, weight, torch.empty_like(memberships))
    assert_sums_equal(found, expected)


def test_the_buffer_may_be_the_memberships() -> None:
    layouts: list[Any] = LAYOUTS
    for layout in layouts:
        memberships, targets = draw_memberships(), draw_targets(layout)
        expected = sum_slowly(layout, memberships, targets, None, None)
        given = memberships.clone()
        assert_sums_equal(layout.sum_chunk(given, targets, None, None, given), expected)


@pytest.mark.parametrize("size", [1, 7, 39, 40])
@pytest.mark.parametrize(("layout", "kind", "soft"), cases())
def test_chunks_add_up_to_the_whole(layout: Any, kind: str, soft: bool, size: int) -> None:
    memberships, targets, weight = draw_memberships(), draw_targets(layout, soft), draw_weight(kind)
    expected = sum_slowly(layout, memberships, targets, weight, weight)
    added: Any = ()
    merged: Any = ()
    parts = []
    for start in range(0, ROWS, size):
        rows = slice(start, start + size)
        w = None if weight is None else weight[rows]
        chunk = layout.sum_chunk(memberships[rows].clone(), targets[rows], w, w, torch.empty_like(memberships[rows]))
        parts.append(chunk)
        if layout.adds_over_rows:
            merged = layout.merge_sums(merged, tuple(cell.clone() for cell in chunk))
            buffer = torch.empty_like(memberships[rows])
            added = layout.add_chunk(added, memberships[rows].clone(), targets[rows], w, w, buffer, ROWS)
    if layout.adds_over_rows:
        assert_sums_equal(merged, expected)
        assert_sums_equal(added, expected)
    else:
        assert_sums_equal(tuple(torch.cat(cell) for cell in zip(*parts, strict=True)), expected)


@pytest.mark.parametrize("rows", [16, 17, 39])
@pytest.mark.parametrize("kind", ["none", "per element"])
def test_folded_blocks_and_the_difference_of_sums_change_nothing(
    rows: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ways of large batches, taken by a small one: blocks of rows first, FP as all predicted less TP."""
    monkeypatch.setattr(statistics, "FOLD_BLOCKS", 2)
    monkeypatch.setattr(statistics, "MIN_FOLD_ELEMENTS", 1)
    monkeypatch.setattr(statistics, "MAX_UNASKED_ELEMENTS", 0)
    layout = ColumnLayout()
    memberships, weight = draw_memberships(rows), draw_weight(kind, rows)
    targets = draw_targets(layout, rows=rows)
    expected = sum_slowly(layout, memberships, targets, weight, weight)
    found = layout.sum_chunk(memberships, targets, weight, weight, torch.empty_like(memberships))
    assert_sums_equal(found, expected)


@pytest.mark.parametrize("block", [1, 3, 39, 40])
@pytest.mark.parametrize("layout", [IndexLayout(), MatrixLayout()])
def test_blocks_of_float32_rows_change_nothing(layout: Any, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_FLOAT32_ROWS", block)
    memberships, weight = draw_memberships(), draw_weight("per row")
    for soft in (False, True) if isinstance(layout, MatrixLayout) else (False,):
        targets = draw_targets(layout, soft)
        expected = sum_slowly(layout, memberships, targets, weight, weight)
        found = layout.sum_chunk(memberships.clone(), targets, weight, weight, torch.empty_like(memberships))
        assert_sums_equal(found, expected)


def test_one_negative_beside_many_positives_keeps_its_digits() -> None:
    """All predicted less TP would be off by the rounding of TP, many times the one false positive."""
    rows = 200_000
    memberships = torch.rand(rows, 1, generator=torch.Generator().manual_seed(3))
    targets = torch.ones(rows, 1)
    memberships[0], targets[0] = 0.3, 0.0
    _, fp, positives, negatives = ColumnLayout().sum_chunk(memberships, targets, None, None, torch.empty(rows, 1))
    assert fp.item() == pytest.approx(0.3, rel=1e-6)
    assert (positives.item(), negatives.item()) == (rows - 1, 1)


def test_many_rows_are_added_to_the_matrix_in_float64() -> None:
    """Rows are added one by one: in float32 the sum of so many is off from the fourth digit on."""
    rows = 300_000
    memberships = torch.rand(rows, 2, generator=torch.Generator().manual_seed(7))
    targets = torch.zeros(rows, dtype=torch.int64)
    (matrix,) = MatrixLayout().sum_chunk(memberships, targets, None, None, torch.empty(rows, 2))
    torch.testing.assert_close(matrix[0].double(), memberships.double().sum(0), rtol=1e-9, atol=0)


def test_full_memberships_leave_exactly_nothing() -> None:
    """Weights that are no binary fractions: FN and TN are differences of sums, and must be zero and not rounding."""
    weight = torch.rand(1000, 1, generator=torch.Generator().manual_seed(4))
    for layout in (ColumnLayout(), IndexLayout()):
        targets = draw_targets(layout, rows=1000, classes=3)
        targets = targets if targets.dim() == 1 else targets.float()
        full = torch.ones(1000, 3)
        counts = layout.to_statistic(layout.sum_chunk(full, targets, weight, weight, torch.empty_like(full)))
        assert counts.fn.tolist() == [0, 0, 0]
        assert counts.tn.tolist() == [0, 0, 0]


def test_a_class_of_nearly_all_weight_leaves_the_others_their_negatives() -> None:
    weight = torch.tensor([[1e12], [1e-6], [2e-6]], dtype=torch.float64)
    memberships = torch.full((3, 3), 0.5, dtype=torch.float64)
    targets = torch.tensor([0, 1, 2])
    *_, negatives = IndexLayout().sum_chunk(memberships, targets, weight, weight, torch.empty_like(memberships))
    assert negatives[0].item() == pytest.approx(3e-6, rel=1e-12)


def cases_of_gradients() -> list[Any]:
    """Return the cases, each with tensors of several classes and, where there is such a way, numbers of one class."""
    found = []
    for case in cases():
        layout, kind, soft = case.values
        found.append(pytest.param(layout, kind, soft, False, id=f"{case.id}-tensors"))
        if not isinstance(layout, RowLayout | MatrixLayout):
            found.append(pytest.param(layout, kind, soft, True, id=f"{case.id}-numbers"))
    return found


@pytest.mark.parametrize(("layout", "kind", "soft", "numbers"), cases_of_gradients())
def test_the_gradient_spreads_by_the_transposed_sum(layout: Any, kind: str, soft: bool, numbers: bool) -> None:
    """For g·sums(m) the gradient of every membership is what sums(e) of that membership alone gives, times g."""
    classes = 1 if numbers else CLASSES
    memberships = draw_memberships(classes=classes)
    targets = draw_targets(layout, soft, classes=classes)
    weight = draw_weight(kind, classes=classes)
    shape = (
        (classes, classes)
        if isinstance(layout, MatrixLayout)
        else (ROWS if isinstance(layout, RowLayout) else classes,)
    )
    generator = torch.Generator().manual_seed(5)
    pieces = 1 if isinstance(layout, MatrixLayout) else 2
    gradient = tuple(torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(pieces))
    given = tuple(g.item() for g in gradient) if numbers else gradient
    found = layout.spread_gradient(given, targets, weight, torch.empty_like(memberships))
    expected = torch.zeros_like(memberships)
    for row in range(ROWS):
        for k in range(classes):
            w = 1.0 if weight is None else weight[row, k if weight.shape[1] > 1 else 0].item()
            if isinstance(layout, MatrixLayout):
                slope = sum(label_of(targets, row, true) * gradient[0][true, k].item() for true in range(classes))
            else:
                place = row if isinstance(layout, RowLayout) else k
                label = label_of(targets, row, k)
                slope = label * gradient[0][place].item() + (1 - label) * gradient[1][place].item()
            expected[row, k] = w * slope
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_tiny_derivative_beside_a_huge_one_keeps_its_digits() -> None:
    targets = torch.tensor([[1.0], [0.0]])
    for a, b in ((1e-7, 1.0), (-3e-6, 2.0), (0.5, -0.25)):
        found = ColumnLayout().spread_gradient((a, b), targets, None, torch.empty(2, 1))
        assert found.flatten().tolist() == pytest.approx([a, b], rel=1e-6)


@pytest.mark.parametrize(("layout", "kind", "soft"), cases())
def test_plain_operations_give_the_same_statistic_and_gradient(layout: Any, kind: str, soft: bool) -> None:
    memberships = draw_memberships().requires_grad_()
    targets, weight = draw_targets(layout, soft), draw_weight(kind)
    statistic = layout.sum_differentiably(memberships, targets, weight)
    sums = layout.sum_chunk(memberships.detach().clone(), targets, weight, weight, torch.empty(ROWS, CLASSES).double())
    for cell, other in zip(statistic.cells(), layout.to_statistic(sums).cells(), strict=True):
        torch.testing.assert_close(cell.detach(), other.double(), rtol=1e-12, atol=1e-12)
    if isinstance(statistic, Confusion):
        gradient: Any = (
            torch.randn(CLASSES, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(6)),
        )
        (statistic.matrix * gradient[0]).sum().backward()
    else:
        assert isinstance(statistic, Counts)
        gradient = (torch.linspace(1, 2, len(statistic.tp)).double(), torch.linspace(-3, 1, len(statistic.fp)).double())
        (statistic.tp * gradient[0] + statistic.fp * gradient[1]).sum().backward()
    spread = layout.spread_gradient(gradient, targets, weight, torch.empty(ROWS, CLASSES).double())
    torch.testing.assert_close(memberships.grad, spread, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_chunk_sums_to_zero(layout: Any) -> None:
    memberships, targets = torch.zeros(0, 3), draw_targets(layout, rows=0, classes=3)
    targets = targets if targets.dim() == 1 else targets.float()
    for cell in layout.sum_chunk(memberships, targets, None, None, torch.empty_like(memberships)):
        assert cell.sum().item() == 0
        assert cell.shape[-1] == (0 if isinstance(layout, RowLayout) else 3)
