"""Curves: exact counts at every distinct threshold, and areas equal to scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve
from torch import Tensor

import metricgrad as mg
from metricgrad import curves as c

pytestmark = pytest.mark.quick


def data(kind: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    n = 60
    s = torch.randn(n, generator=g, dtype=torch.float64)
    if kind == "ties":
        s = (s * 2).round()
    elif kind == "all ties":
        s = torch.zeros(n, dtype=torch.float64)
    y = (torch.rand(n, generator=g) < 0.3).long()
    return s, y, torch.rand(n, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["distinct", "ties", "all ties"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_curves_equal_scikit_learn(kind: str, weighted: bool, seed: int) -> None:
    s, y, w = data(kind, seed)
    weight = w if weighted else None
    its = None if weight is None else weight.numpy()
    curve = c.curve(s, y, weight)
    fpr, tpr, cuts = roc_curve(y, s, sample_weight=its, drop_intermediate=False)
    mine = c.roc(curve)
    np.testing.assert_allclose(mine[0], fpr, atol=1e-12)
    np.testing.assert_allclose(mine[1], tpr, atol=1e-12)
    np.testing.assert_allclose(curve.thresholds, cuts)
    precision, recall, _ = precision_recall_curve(y, s, sample_weight=its)
    got = c.precision_recall(curve)
    np.testing.assert_allclose(got[0].flip(0)[: len(precision)], precision, atol=1e-12)
    np.testing.assert_allclose(got[1].flip(0)[: len(recall)], recall, atol=1e-12)
    assert float(c.auroc(curve)) == pytest.approx(roc_auc_score(y, s, sample_weight=its), abs=1e-12)
    expected = average_precision_score(y, s, sample_weight=its)
    assert float(c.average_precision(curve)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", ["distinct", "ties"])
def test_every_cut_has_the_counts_of_the_hard_rule(kind: str) -> None:
    s, y, w = data(kind, 5)
    curve = c.curve(s, y, w)
    assert (curve.thresholds.diff() < 0).all()
    for i, cut in enumerate(curve.thresholds):
        counts = mg.count((s >= cut).double().unsqueeze(1), y.unsqueeze(1), w)
        for mine, its in zip(curve.counts.cells(), counts.cells(), strict=True):
            torch.testing.assert_close(mine[i : i + 1], its, rtol=0, atol=1e-12)


def test_metrics_apply_unchanged() -> None:
    s, y, _ = data("ties", 1)
    curve = c.curve(s, y)
    best = max(float(mg.metrics.f1(mg.count((s >= t).double()[:, None], y[:, None]))) for t in s)
    assert float(mg.metrics.f1(curve.counts).max()) == pytest.approx(best, abs=1e-12)


def test_interpolated_average_precision_by_hand() -> None:
    # Ranked: + − + −; precision 1, 1/2, 2/3, 1/2 at recall 1/2, 1/2, 1, 1.
    curve = c.curve([4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0])
    assert float(c.average_precision(curve)) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert float(c.interpolated_average_precision(curve)) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    worse = c.curve([4.0, 3.0, 2.0, 1.0], [0, 1, 1, 1])
    assert float(c.average_precision(worse)) == pytest.approx((1 / 2 + 2 / 3 + 3 / 4) / 3)
    assert float(c.interpolated_average_precision(worse)) == pytest.approx(3 / 4)


def test_masks_delete_and_classes_have_curves_of_their_own() -> None:
    s, y, w = data("distinct", 2)
    keep = w > 0.4
    masked, deleted = c.curve(s.where(keep, torch.nan), y, w, keep), c.curve(s[keep], y[keep], w[keep])
    torch.testing.assert_close(masked.counts.tp, deleted.counts.tp)
    both = c.curves(torch.stack([s, -s], 1), torch.stack([y, y], 1), w, torch.stack([keep, keep], 1))
    torch.testing.assert_close(both[0].thresholds, masked.thresholds)
    assert float(c.auroc(both[0]) + c.auroc(both[1])) == pytest.approx(1.0)


@pytest.mark.parametrize("make", [lambda x: x.numpy(), lambda x: x.tolist(), lambda x: x.float(), lambda x: x])
def test_torch_numpy_and_lists(make: Any) -> None:
    s, y, _ = data("ties", 0)
    torch.testing.assert_close(c.curve(make(s), make(y)).counts.tp, c.curve(s, y).counts.tp)


def test_degenerate_curves() -> None:
    alone = c.curve(torch.rand(5, generator=torch.Generator().manual_seed(0)), torch.ones(5))
    assert c.auroc(alone).isnan()
    assert float(c.average_precision(alone)) == pytest.approx(1.0)
    nothing = c.curve(torch.rand(5, generator=torch.Generator().manual_seed(0)), torch.zeros(5))
    assert c.auroc(nothing).isnan()
    assert float(c.average_precision(nothing)) == 0
    empty = c.curve(torch.zeros(0), torch.zeros(0))
    assert empty.counts.tp.tolist() == [0.0]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (([0.1, float("nan")], [0, 1]), "scores: expected numbers, got 1 NaN; use mask="),
        (([0.1, 0.2], [0, 2]), r"targets: expected values in \[0, 1\], got 0 to 2"),
        (([0.1, 0.2], [0]), r"expected \(N,\) both, got \(2,\) and \(1,\)"),
        (([0.1, 0.2], [0, 1], [1.0]), r"weight: expected shape \(2,\), got \(1,\)"),
        (([0.1, 0.2], [0, 1], [1.0, -1.0]), "weight: expected no negative value, got -1"),
        (([0.1, 0.2], [0, 1], None, [1, 0]), "mask: expected bool"),
        ((["a", "b"], [0, 1]), "scores: expected numbers"),
    ],
)
def test_bad_input_is_refused(args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        c.curve(*args)
