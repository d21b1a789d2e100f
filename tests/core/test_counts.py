"""Counts: sums of memberships against plain loops, how statistics add, and sums that leave nothing behind."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import metricgrad as mg
import reference as ref
from metricgrad.core.counts import least_weight, round_for_sums, subtract, wide

pytestmark = pytest.mark.quick

ROWS, CLASSES = 6, 3
SHAPES = {"none": None, "per row": (ROWS,), "per row, as a column": (ROWS, 1), "per element": (ROWS, CLASSES)}


@pytest.mark.parametrize("masked", SHAPES)
@pytest.mark.parametrize("weighted", SHAPES)
def test_counts_are_weighted_sums_of_memberships(weighted: str, masked: str) -> None:
    rng = np.random.default_rng(0)
    m, y = rng.random((ROWS, CLASSES)), rng.integers(0, 2, (ROWS, CLASSES)).astype(float)
    weight_shape, mask_shape = SHAPES[weighted], SHAPES[masked]
    weight = None if weight_shape is None else rng.random(weight_shape)
    mask = None if mask_shape is None else rng.random(mask_shape) < 0.7
    full = np.ones((ROWS, CLASSES)) if weight is None else np.broadcast_to(weight.reshape(ROWS, -1), y.shape)
    keep = np.ones((ROWS, CLASSES), bool) if mask is None else np.broadcast_to(mask.reshape(ROWS, -1), y.shape)
    cells = ref.counts(m, y, np.where(keep, full, 0.0))
    given = (None if x is None else torch.tensor(x) for x in (weight, mask))
    m[~keep] = math.nan  # what is masked may be anything
    found = mg.count(torch.tensor(m), torch.tensor(y), *given)
    for name in ("tp", "fp", "fn", "tn"):
        np.testing.assert_allclose(getattr(found, name), cells[name], atol=1e-12)
    np.testing.assert_allclose(found.total, (full * keep).sum(0), atol=1e-12)


def test_counts_of_several_thresholds_and_of_half_precision() -> None:
    m = torch.tensor([[[0.25], [1.0]], [[0.5], [0.0]]], dtype=torch.bfloat16)
    found = mg.count(m, torch.tensor([[1], [0]]))
    assert found.tp.dtype == torch.float32
    assert found.tp.tolist() == [[0.25], [0.5]]
    assert found.fp.tolist() == [[1.0], [0.0]]
    assert (found.positives.tolist(), found.negatives.tolist()) == ([[1.0], [1.0]], [[1.0], [1.0]])
    assert found.predicted.tolist() == [[1.25], [0.5]]


def test_statistics_of_one_kind_add_and_others_do_not() -> None:
    counts = mg.Counts(*(torch.tensor([float(cell)]) for cell in (1, 2, 3, 4)))
    doubled = counts + counts
    assert [cell.item() for cell in doubled.cells()] == [2, 4, 6, 8]
    assert doubled.map(torch.Tensor.double).tn.dtype == torch.float64
    with pytest.raises(TypeError, match="unsupported operand"):
        counts + mg.Confusion(torch.eye(2))  # type: ignore[operator]
    with pytest.raises(AttributeError, match=r"Counts has no 'matrix': a metric of the d×d matrix annotates"):
        _ = counts.matrix


def test_the_cells_of_each_class_in_a_matrix() -> None:
    matrix = torch.tensor([[4.0, 1.0, 0.0], [2.0, 3.0, 5.0], [0.0, 0.0, 7.0]])
    counts = mg.Confusion(matrix.expand(2, 4, 3, 3)).counts()  # of two models, in four replicates each
    assert counts.tp.shape == (2, 4, 3)
    assert counts.tp[1, 3].tolist() == [4.0, 3.0, 7.0]
    assert counts.fp[1, 3].tolist() == [2.0, 1.0, 5.0]
    assert counts.fn[1, 3].tolist() == [1.0, 7.0, 0.0]
    assert counts.tn[1, 3].tolist() == [15.0, 11.0, 10.0]


def test_what_is_left_of_a_sum_of_weights_is_nothing_where_it_is_rounding() -> None:
    assert least_weight(torch.tensor([0.0, 2.0, 5.0])) is None  # sums of whole numbers are exact
    assert least_weight(torch.zeros(0)) is None
    least = least_weight(torch.tensor([0.0, 0.5, 2.0]), torch.tensor([0.25, 3.0]), torch.zeros(0))
    assert least == 0.25
    left = subtract(torch.tensor([1.0, 1.0, 1.0, 1.0]), torch.tensor([1.0 - 1e-7, 1.0 + 1e-7, 0.75, 0.8]), least)
    assert left[:2].tolist() == [0, 0]
    assert left[2:].tolist() == pytest.approx([0.25, 0.2])
    assert subtract(torch.tensor(1.0), torch.tensor(0.9), None).item() == pytest.approx(0.1)


def test_sums_of_many_numbers_are_in_float64() -> None:
    most = torch.tensor(2.0**24)  # where float32 stops counting
    assert (wide(most) + 1).item() == 2**24 + 1


@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_sums_of_rounded_probabilities_are_exact_in_any_order(rows: int) -> None:
    p = torch.rand(rows, generator=torch.Generator().manual_seed(rows), dtype=torch.float64)
    rounded = round_for_sums(p, rows)
    assert (rounded - p).abs().max() < rows * 2**-52
    assert rounded.sum().item() == math.fsum(rounded.tolist())
    assert rounded.cumsum(0)[-1].item() == rounded.flip(0).cumsum(0)[-1].item()
