"""AdversarialLoss equals the game over all pairs of labellings, with a proven gap and its subgradient."""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

import metricgrad as mg
from metricgrad import metrics
from metricgrad.losses import zero_sum_game
from metricgrad.losses.adversarial_loss import compute_payoffs

AFFINE = [
    "accuracy",
    "balanced_accuracy",
    "f1",
    "f2",
    "fowlkes_mallows",
    "informedness",
    "kappa",
    "markedness",
    "mcc",
    "npv",
    "precision",
    "recall",
    "specificity",
]


def draw(seed: int, n: int, share: float = 0.4, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=g, dtype=torch.float64) * scale, (torch.rand(n, generator=g) < share).double()


def whole_game(metric: Any, z: Tensor, y: Tensor) -> float:
    """The definition: the matrix game of all 2ⁿ × 2ⁿ labellings, as a linear program."""
    n = len(z)
    h = torch.tensor(list(itertools.product((0.0, 1.0), repeat=n)), dtype=torch.float64)
    tp, size = h @ h.T, h.sum(1)
    predicted, actual = size[:, None], size[None]
    values = metric(mg.Counts(tp, predicted - tp, actual - tp, n - predicted - actual + tp)).expand(tp.shape).clone()
    values[0, 0] = values[-1, -1] = 1.0
    pay = (1 - values + (h @ z / n)[None]).numpy()  # the predictor picks the row, the adversary the column
    count = len(pay)
    found = linprog(
        np.append(np.zeros(count), -1.0),
        A_ub=np.c_[-pay, np.ones(count)],
        b_ub=np.zeros(count),
        A_eq=np.append(np.ones(count), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * count + [(None, None)],
    )
    return float(-found.fun) - float(y @ z) / n


@pytest.mark.parametrize("metric", AFFINE)
def test_it_is_the_game_of_all_labellings(metric: str) -> None:
    loss = mg.AdversarialLoss(metric, tol=1e-6)
    for seed in range(6):
        z, y = draw(seed, n=1 + seed % 5, share=(0.4, 0.0, 1.0)[seed % 3], scale=(0.5, 3.0, 20.0)[seed % 3])
        if seed == 4:
            z = z.round()
        expected = whole_game(metrics.get(metric), z, y)
        assert float(loss(z, y)) == pytest.approx(expected, abs=2e-6)
        assert loss.gap <= 1e-6
        assert float(loss(z, y)) <= expected + 1e-9 <= float(loss(z, y)) + loss.gap + 2e-9


@pytest.mark.parametrize("metric", ["f1", "mcc"])
@pytest.mark.parametrize("scale", [1.0, 3.0, 10.0, 100.0])
def test_the_gap_is_proven(metric: str, scale: float) -> None:
    z, y = draw(0, n=40, scale=scale)
    loose, tight = mg.AdversarialLoss(metric), mg.AdversarialLoss(metric, tol=1e-5)
    low, high = float(loose(z, y)), float(tight(z, y))
    assert tight.gap <= 1e-5
    assert loose.gap <= 0.01
    assert low <= high + tight.gap
    assert high <= low + loose.gap


def test_strategies_are_strategies() -> None:
    z, _ = draw(1, n=20, scale=0.1)
    alpha, gamma, _ = compute_payoffs(metrics.f1, 20)
    point = zero_sum_game._start_point(zero_sum_game.Game(z, alpha[..., 0], gamma[..., 0]))
    for _ in range(6):
        point.improve()
        low, high, weights, values = point.best_answers()
        assert low <= high
        point = zero_sum_game._add_better_sizes(point, weights, values)
        for side in (0, 1):
            player = point.player(side)
            assert float(player.c.sum()) == pytest.approx(1.0)
            assert player.x.min() > 0
            assert (player.x < player.c[2:]).all()
            torch.testing.assert_close(player.x.sum(0), player.c[2:] * player.inner)


@pytest.mark.parametrize("metric", ["f1", "kappa"])
@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_a_subgradient(metric: str, seed: int) -> None:
    z, y = draw(seed, n=20, scale=4.0)
    loss = mg.AdversarialLoss(metric, tol=1e-5)
    leaf = z.clone().requires_grad_()
    value = loss(leaf, y)
    (slope,) = torch.autograd.grad(value, leaf)
    (scaled,) = torch.autograd.grad(5 * loss(leaf, y), leaf)
    torch.testing.assert_close(scaled, 5 * slope)
    g = torch.Generator().manual_seed(seed)
    for reach in (0.01, 0.1, 1.0, 10.0):
        other = z + reach * torch.randn(20, generator=g, dtype=torch.float64)
        assert float(loss(other, y)) >= float(value.detach() + slope @ (other - z)) - 3e-5


def test_finite_differences() -> None:
    z, y = torch.tensor([4.0, -2.5, 1.0, -6.0, 0.3, 2.1], dtype=torch.float64), torch.tensor([1.0, 0, 0, 0, 1, 1])
    loss = mg.AdversarialLoss("f1", tol=1e-7)
    leaf = z.clone().requires_grad_()
    loss(leaf, y).backward()
    steps = 1e-3 * torch.eye(6, dtype=torch.float64)
    slope = torch.stack([(loss(z + e, y) - loss(z - e, y)) / 2e-3 for e in steps])
    torch.testing.assert_close(leaf.grad, slope, rtol=0, atol=1e-3)


def test_equal_scores_are_treated_alike() -> None:
    z = torch.zeros(50, requires_grad=True)
    mg.AdversarialLoss("f1")(z, torch.zeros(50)).backward()
    assert z.grad is not None
    assert (z.grad == z.grad[0]).all()
    assert 0 < z.grad[0] < 1 / 50


def test_large_scores_decide() -> None:
    z, y = draw(0, n=30)
    z = torch.where(z > 0, 1e4, -1e4) + z
    loss = mg.AdversarialLoss("f1")
    leaf = z.clone().requires_grad_()
    value = loss(leaf, y)
    value.backward()
    chosen = (z > 0).double()
    torch.testing.assert_close(leaf.grad, (chosen - y) / 30)
    assert float(value.detach() - (chosen - y) @ z / 30) == pytest.approx(0.0, abs=0.011)


def test_classes_are_averaged_masks_delete_and_whole_weights_repeat() -> None:
    z, y = draw(3, n=36)
    table, labels = z.reshape(12, 3), y.reshape(12, 3)
    one = mg.AdversarialLoss("f1", tol=1e-6)
    each = torch.stack([one(table[:, k], labels[:, k]) for k in range(3)])
    several = mg.AdversarialLoss("f1", task="multilabel", tol=1e-6)
    torch.testing.assert_close(several(table, labels), each.mean())
    keep = torch.arange(36) % 3 > 0
    expected = one(z[keep], y[keep])
    torch.testing.assert_close(one(z.where(keep, torch.nan), y, mask=keep), expected)
    weight = torch.arange(36) % 3
    repeated = one(z.repeat_interleave(weight), y.repeat_interleave(weight))
    torch.testing.assert_close(one(z, y, weight), repeated)
    with pytest.raises(ValueError, match="weight: expected whole numbers"):
        one(z, y, weight * 0.5)


def test_a_parameter_per_class() -> None:
    z, y = draw(3, n=24)
    table, labels = z.reshape(12, 2), y.reshape(12, 2)
    loss = mg.AdversarialLoss(partial(metrics.f_beta, beta=torch.tensor([1.0, 2.0])), task="multilabel", tol=1e-6)
    each = [mg.AdversarialLoss(name, tol=1e-6)(table[:, k], labels[:, k]) for k, name in enumerate(("f1", "f2"))]
    torch.testing.assert_close(loss(table, labels), torch.stack(each).mean())


@pytest.mark.parametrize("metric", AFFINE)
def test_payoffs_are_the_metric_except_where_all_agree(metric: str) -> None:
    n = 9
    alpha, gamma, spread = compute_payoffs(metrics.get(metric), n)
    values = []
    for k, m in itertools.product(range(n + 1), repeat=2):
        for tp in range(max(0, k + m - n), min(k, m) + 1):
            cells = (float(cell) for cell in (tp, k - tp, m - tp, n - k - m + tp))
            value = float(metrics.get(metric)(mg.Counts(*(torch.tensor(cell, dtype=torch.float64) for cell in cells))))
            value = 1.0 if k == m in (0, n) else value
            assert float(alpha[k, m] + gamma[k, m] * tp) == pytest.approx(value, abs=1e-12)
            values.append(value)
    assert spread == pytest.approx(max(values) - min(values))


@pytest.mark.parametrize("metric", ["jaccard", "g_mean", "subset_accuracy"])
def test_metrics_that_are_not_affine_are_refused(metric: str) -> None:
    with pytest.raises(
        ValueError, match=rf"metric: {metric} is not α \+ γ·TP, as the game needs \(seen at \d+ predict"
    ):
        mg.AdversarialLoss(metric)


def test_metrics_that_are_not_finite_are_refused() -> None:
    def precision(c: Any) -> Any:
        return c.tp / (c.tp + c.fp)

    with pytest.raises(ValueError, match=r"metric: precision is not finite for all counts; divide with mg.metrics"):
        mg.AdversarialLoss(precision)


def test_a_gap_that_cannot_be_reached_is_told() -> None:
    z, y = draw(0, n=20, scale=5.0)
    loss = mg.AdversarialLoss("f1", tol=1e-15)
    with pytest.warns(UserWarning, match=r"AdversarialLoss: gap .* above tol=1e-15; raise tol"):
        loss(z, y)
    assert loss.gap < 1e-5


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("metric", ["f1", "mcc", "accuracy"])
def test_no_positives_no_negatives_nothing(metric: str, share: float, n: int) -> None:
    z = torch.linspace(-1, 1, n).requires_grad_()
    loss = mg.AdversarialLoss(metric)(z, torch.full((n,), share))
    loss.backward()
    assert loss.isfinite()
    assert z.grad is not None
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_any_precision(dtype: torch.dtype, scale: float) -> None:
    z, y = draw(3, n=20)
    logits = (z.clamp(-3, 3) * scale / 3).to(dtype).requires_grad_()
    loss = mg.AdversarialLoss("f1", tol=1e-6)
    value = loss(logits, y)
    value.backward()
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), loss(logits.double(), y), rtol=1e-5, atol=1e-5)
    assert logits.grad is not None
    assert logits.grad.dtype == dtype
    assert logits.grad.isfinite().all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(loss(logits, y), value)


def test_nan_stays_visible() -> None:
    z, y = draw(0, n=5)
    z[2] = torch.nan
    assert mg.AdversarialLoss("f1")(z, y).isnan()


def test_it_pickles_copies_and_prints() -> None:
    loss = mg.AdversarialLoss("f1")
    for n in range(2, 14):  # more sizes than tables are kept of
        value = loss(*draw(0, n))
    assert len(pickle.dumps(loss)) < 2000
    for again in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):  # noqa: S301
        torch.testing.assert_close(again(*draw(0, 13)), value)
    assert repr(loss) == "AdversarialLoss(f1, task='binary', tol=0.01)"
    with pytest.raises(ValueError, match=r"tol: expected a number above 0, got 0"):
        mg.AdversarialLoss("f1", tol=0)


def test_the_authors_package_finds_the_same_game() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        common = pytest.importorskip("ap_perf.common_metrics")
    loss = mg.AdversarialLoss("f1", tol=1e-6)
    for seed in range(2):
        z, y = draw(seed, n=12, scale=4.0)
        # Its scores are z/n, and its loss ours minus 1; its value sums one sample too few, its marginals are right.
        _, q = common.f1_score.objective((z / 12).numpy(), y.numpy(), max_iter=1000)
        slope = (torch.as_tensor(q) - y) / 12
        g = torch.Generator().manual_seed(seed)
        here = float(loss(z, y))
        for reach in (0.1, 1.0, 10.0):
            other = z + reach * torch.randn(12, generator=g, dtype=torch.float64)
            assert float(loss(other, y)) >= here + float(slope @ (other - z)) - 1e-2
