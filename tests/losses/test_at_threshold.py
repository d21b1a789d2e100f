"""Losses through a threshold of the batch: the threshold is the hard one, the gradient that of the soft constraint."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from scipy.optimize import brentq
from sklearn.metrics import precision_recall_curve, roc_curve
from torch import Tensor

import metricgrad as mg
from metricgrad import surrogates as s

G = torch.Generator().manual_seed(21)
N = 41
Z = torch.randn(N, 3, dtype=torch.float64, generator=G) * 2
Y = (torch.rand(N, 3, generator=G) < torch.sigmoid(Z - 1)).double()
W = torch.rand(N, 3, dtype=torch.float64, generator=G) + 0.1

Cut = tuple[float, float, float, float]
"""TP, FP, P and N of a cut."""


@dataclass
class Case:
    """One loss: how it is made, which cut it must find, its metric, and what a true and a false positive cost."""

    make: Callable[..., Any]
    miss: Callable[[Cut], float]  # how far a cut is from the wanted one
    metric: Callable[[Cut], float]
    prices: Callable[[float, float], tuple[float, float]]


def precision(c: Cut) -> float:
    return c[0] / (c[0] + c[1])


def recall(c: Cut) -> float:
    return c[0] / c[2]


def best_recall(allowed: Callable[[Cut], bool]) -> Callable[[Cut], float]:
    return lambda c: c[2] - c[0] if allowed(c) else math.inf


CASES = {
    "precision at 5": Case(
        partial(mg.PrecisionAtKLoss, 5),
        lambda c: abs(c[0] + c[1] - 5) if c[0] + c[1] else math.inf,
        precision,
        lambda p, n: (1.0, 1.0),
    ),
    "precision at 30 %": Case(
        partial(mg.PrecisionAtKLoss, 0.3),
        lambda c: abs(c[0] + c[1] - 0.3 * (c[2] + c[3])) if c[0] + c[1] else math.inf,
        precision,
        lambda p, n: (1.0, 1.0),
    ),
    "break-even": Case(
        mg.PRBEPLoss,
        lambda c: abs(c[0] + c[1] - c[2]) if c[0] + c[1] else math.inf,
        precision,
        lambda p, n: (1.0, 1.0),
    ),
    "equal error": Case(
        mg.EERLoss,
        lambda c: abs((c[2] - c[0]) / c[2] - c[1] / c[3]),
        lambda c: 1 - ((c[2] - c[0]) / c[2] + c[1] / c[3]) / 2,
        lambda p, n: (1 / p, 1 / n),
    ),
    "recall at precision": Case(
        partial(mg.RecallAtPrecisionLoss, 0.6),
        best_recall(lambda c: c[0] >= 0.6 * (c[0] + c[1]) - 1e-7),
        recall,
        lambda p, n: (-0.4, 0.6),
    ),
    "recall at FPR": Case(
        partial(mg.RecallAtFPRLoss, 0.2),
        best_recall(lambda c: c[1] <= 0.2 * c[3] + 1e-7),
        recall,
        lambda p, n: (0.0, 1.0),
    ),
}


def hard_cut(case: Case, z: Tensor, y: Tensor, w: Tensor) -> tuple[Cut, float]:
    """Try every threshold there is, from the highest on, and keep the last of the best."""
    scores = sorted(set(z[w > 0].tolist()), reverse=True)
    best, found = math.inf, None
    for i in range(len(scores) + 1):
        taken = z >= (scores[i - 1] if i else math.inf)
        cells = tuple(float((w * part).sum()) for part in (taken * y, taken * (1 - y), y, 1 - y))
        if (far := case.miss(cells)) <= best + 1e-12:  # type: ignore[arg-type]
            low = scores[i] if i < len(scores) else -math.inf
            best, found = far, (cells, low if i == 0 else (scores[i - 1] + low) / 2)
    assert found is not None
    return found  # type: ignore[return-value]


def soft_cut(z: list[float], y: list[float], w: list[float], t: float, beta: float) -> Cut:
    m = [0.0 if beta * (u - t) < -700 else 1 / (1 + math.exp(-beta * (u - t))) for u in z]
    tp = sum(a * b * c for a, b, c in zip(w, y, m, strict=True))
    fp = sum(a * (1 - b) * c for a, b, c in zip(w, y, m, strict=True))
    positives = sum(a * b for a, b in zip(w, y, strict=True))
    return tp, fp, positives, sum(w) - positives


def gradient_of(loss: Any, z: Tensor, *args: Any, **options: Any) -> Tensor:
    z = z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(z, *args, **options).sum(), z)
    return gradient


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("column", range(3))
@pytest.mark.parametrize("weighted", [False, True])
def test_the_value_is_soft_at_the_hard_threshold_and_reaches_the_hard_metric(
    name: str, column: int, weighted: bool
) -> None:
    case, z, y = CASES[name], Z[:, column], Y[:, column]
    w = W[:, column] if weighted else torch.ones(N, dtype=torch.float64)
    cells, t = hard_cut(case, z, y, w)
    for beta in (1.0, 4.0):
        expected = 1 - case.metric(soft_cut(z.tolist(), y.tolist(), w.tolist(), t, beta))
        got = case.make(surrogate=s.LogitSigmoid(beta))(z, y, w)
        assert got.item() == pytest.approx(expected, abs=1e-12)
    sharp = case.make(surrogate=s.LogitSigmoid(1e9))(z, y, w)
    assert sharp.item() == pytest.approx(1 - case.metric(cells), abs=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_equal_scores_are_taken_together(name: str) -> None:
    case, ones = CASES[name], torch.ones(N, dtype=torch.float64)
    for column in range(3):
        z, y = Z[:, column].round(), Y[:, column]
        cells, _ = hard_cut(case, z, y, ones)
        sharp = case.make(surrogate=s.LogitSigmoid(1e9))(z, y)
        assert sharp.item() == pytest.approx(1 - case.metric(cells), abs=1e-9)


@pytest.mark.parametrize("fraction", [0.0, 0.05, 0.3, 0.999])
def test_recall_under_a_constraint_is_that_of_scikit_learn(fraction: float) -> None:
    z, y, sharp = Z[:, 0], Y[:, 0], s.LogitSigmoid(1e9)
    fpr, tpr, _ = roc_curve(y, z, drop_intermediate=False)
    expected = 1 - tpr[fpr <= fraction + 1e-9].max()
    assert mg.RecallAtFPRLoss(fraction, surrogate=sharp)(z, y).item() == pytest.approx(expected, abs=1e-9)
    precisions, recalls, _ = precision_recall_curve(y, z)
    expected = 1 - recalls[precisions >= 1 - fraction].max()
    assert mg.RecallAtPrecisionLoss(1 - fraction, surrogate=sharp)(z, y).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("beta", [1.0, 3.0])
def test_the_gradient_is_that_of_a_threshold_that_keeps_the_soft_budget(name: str, beta: float) -> None:
    """Move one score, solve for the threshold that spends the soft budget as before, and difference the metric."""
    case, y, w = CASES[name], Y[:, 0].tolist(), W[:, 0].tolist()
    z = (Z[:, 0] * 1.5).tolist()
    _, start = hard_cut(case, Z[:, 0] * 1.5, Y[:, 0], W[:, 0])

    def spent(scores: list[float], t: float) -> float:
        tp, fp, positives, negatives = soft_cut(scores, y, w, t, beta)
        of_tp, of_fp = case.prices(positives, negatives)
        return of_tp * tp + of_fp * fp

    def loss(scores: list[float]) -> float:
        t = brentq(lambda t: spent(scores, t) - spent(z, start), start - 0.05, start + 0.05, xtol=1e-15)
        return 1 - case.metric(soft_cut(scores, y, w, t, beta))

    got = gradient_of(case.make(surrogate=s.LogitSigmoid(beta)), Z[:, 0] * 1.5, Y[:, 0], W[:, 0])
    for i in range(N):
        up, down = list(z), list(z)
        up[i], down[i] = z[i] + 1e-5, z[i] - 1e-5
        assert got[i].item() == pytest.approx((loss(up) - loss(down)) / 2e-5, abs=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_a_shift_of_all_scores_changes_nothing(name: str) -> None:
    loss = CASES[name].make(task="multilabel")
    torch.testing.assert_close(loss(Z + 30, Y, W), loss(Z, Y, W))
    gradient = gradient_of(loss, Z, Y, W)
    if name != "recall at precision":  # where the floor of the budget's growth may be in force
        torch.testing.assert_close(gradient.sum(0), torch.zeros(3).double(), rtol=0, atol=1e-12)
    assert (gradient[Y == 1] <= 1e-12).all()
    assert (gradient[Y == 0] >= -1e-12).all()
    assert (gradient[Y == 1] < -1e-6).any()
    assert (gradient[Y == 0] > 1e-6).any()


@pytest.mark.parametrize("p", [0.5, 0.9, 1.0])
def test_a_precision_out_of_reach_is_worked_for(p: float) -> None:
    z, y = torch.tensor([4.0, 3.0, 1.0, 0.0, -1.0, -2.0]), torch.tensor([0, 0, 1, 0, 1, 0])
    assert mg.RecallAtPrecisionLoss(p, surrogate=s.LogitSigmoid(1e6))(z, y).item() == 1
    loss = mg.RecallAtPrecisionLoss(p)
    assert 0 < loss(z, y).item() < 1
    gradient = gradient_of(loss, z, y)
    assert (gradient[y == 1] < 0).all()
    assert (gradient[:2] > 0).all()
    moved = z.clone()
    for _ in range(200):
        moved -= 2 * gradient_of(loss, moved, y)
    assert mg.RecallAtPrecisionLoss(p, surrogate=s.LogitSigmoid(1e6))(moved, y).item() < 0.6


def test_a_constraint_that_everything_meets_leaves_nothing_to_learn() -> None:
    y = Y[:, 0]
    for loss, expected in (
        (mg.PrecisionAtKLoss(1000), 1 - y.mean().item()),
        (mg.RecallAtPrecisionLoss(0.01), 0.0),
        (mg.RecallAtFPRLoss(0.99999), None),
    ):
        value = loss(Z[:, 0], y).item()
        if expected is None:
            assert 0 < value < 0.1  # the last negative alone is out
        else:
            assert value == pytest.approx(expected, abs=1e-12)
            assert (gradient_of(loss, Z[:, 0], y) == 0).all()


def test_a_small_share_takes_one_sample_at_least() -> None:
    z, y = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([1, 0, 0])
    sharp = s.LogitSigmoid(1e6)
    for k in (1, 0.01, 0.3):
        assert mg.PrecisionAtKLoss(k, surrogate=sharp)(z, y).item() == 0
        assert mg.PrecisionAtKLoss(k, surrogate=sharp)(-z, y).item() == 1


@pytest.mark.parametrize("name", CASES)
def test_averages_over_classes(name: str) -> None:
    make = CASES[name].make
    each = torch.stack([make()(Z[:, i], Y[:, i], W[:, i]) for i in range(3)])
    torch.testing.assert_close(make(task="multilabel", average=None)(Z, Y, W), each)
    torch.testing.assert_close(make(task="multilabel")(Z, Y, W), each.mean())
    shares = (W * Y).sum(0) / (W * Y).sum()
    torch.testing.assert_close(make(task="multilabel", average="weighted")(Z, Y, W), (each * shares).sum())
    pooled = make()(Z.flatten(), Y.flatten(), W.flatten())
    torch.testing.assert_close(make(task="multilabel", average="micro")(Z, Y, W), pooled)


@pytest.mark.parametrize("name", CASES)
def test_masking_is_deleting_and_weights_are_repetition(name: str) -> None:
    loss, keep = CASES[name].make(), W[:, 1] > 0.5
    z, y, w = Z[:, 0], Y[:, 0], W[:, 0]
    nothing = z.where(keep, torch.nan)
    torch.testing.assert_close(loss(nothing, y.where(keep, 7), w, keep), loss(z[keep], y[keep], w[keep]))
    masked, deleted = gradient_of(loss, nothing, y, mask=keep), gradient_of(loss, z[keep], y[keep])
    torch.testing.assert_close(masked[keep], deleted)
    assert (masked[~keep] == 0).all()
    torch.testing.assert_close(CASES[name].make(ignore_index=-1)(z, y.where(keep, -1)), loss(z[keep], y[keep]))
    times = torch.arange(N) % 3
    torch.testing.assert_close(loss(z, y, times), loss(z.repeat_interleave(times), y.repeat_interleave(times)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_nothing_makes_it_infinite(name: str, dtype: torch.dtype) -> None:
    loss = CASES[name].make()
    alone = (0.5, 0.5) if name == "equal error" else (1.0, 0.0)
    labels = (torch.zeros(6), torch.ones(6), torch.tensor([1.0, 0, 1, 0, 0, 1]))
    for scale in (1.0, 1e4, math.inf):
        z = (torch.linspace(-1, 1, 6) * scale).to(dtype).requires_grad_()
        for y, expected in zip(labels, (*alone, None), strict=True):
            value = loss(z, y)
            assert value.dtype == torch.float32
            assert value.isfinite()
            (gradient,) = torch.autograd.grad(value, z)
            assert gradient.dtype == dtype
            assert gradient.isfinite().all()
            if expected is not None:
                assert value.item() == pytest.approx(expected, abs=1e-6)
                assert gradient.abs().max().item() <= 1e-6
    for z, y, mask in ((torch.zeros(0), torch.zeros(0), None), (torch.ones(3), torch.ones(3), torch.zeros(3) > 0)):
        z = z.to(dtype).requires_grad_()
        value = loss(z, y, mask=mask)
        assert value.isfinite()
        assert (torch.autograd.grad(value, z)[0] == 0).all()


@pytest.mark.parametrize("name", CASES)
def test_nan_stays_visible(name: str) -> None:
    z, y = Z[:, 0].clone(), Y[:, 0].clone()
    z[4] = torch.nan
    assert CASES[name].make()(z, y).isnan()
    y[3] = torch.nan
    assert CASES[name].make()(Z[:, 0], y).isnan()


@pytest.mark.parametrize("name", CASES)
def test_transformations(name: str) -> None:
    loss = CASES[name].make(task="multilabel")
    many = torch.stack([Z, Z.flip(0), 2 * Z])
    alone = torch.stack([loss(z, Y) for z in many])
    torch.testing.assert_close(torch.func.vmap(loss, in_dims=(0, None))(many, Y), alone)
    expected = gradient_of(loss, Z, Y)
    torch.testing.assert_close(torch.func.grad(loss)(Z, Y), expected)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss), in_dims=(0, None))(many, Y)[0], expected)
    z = Z.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(z, Y), z, create_graph=True)
    assert torch.autograd.grad(first.square().sum(), z)[0].isfinite().all()
    torch.compiler.reset()
    value = torch.compile(loss, fullgraph=True, backend="aot_eager")(z, Y)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(value, loss(Z, Y))
    torch.testing.assert_close(torch.autograd.grad(value, z)[0], expected)


@pytest.mark.parametrize("name", CASES)
def test_autocast_pickle_and_copy(name: str) -> None:
    loss = CASES[name].make(task="multilabel")
    z = Z.float()
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(z, Y)
    torch.testing.assert_close(value, loss(z, Y), rtol=0, atol=0)
    for twin in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):  # noqa: S301
        torch.testing.assert_close(twin(Z, Y), loss(Z, Y))


def test_it_sharpens_with_its_surrogate_and_prints() -> None:
    surrogate = s.Annealed(s.LogitSigmoid(1.0), s.LogitSigmoid(8.0), steps=1)
    loss = mg.EERLoss(surrogate=surrogate)
    torch.testing.assert_close(loss(Z[:, 0], Y[:, 0]), mg.EERLoss()(Z[:, 0], Y[:, 0]))
    surrogate.step()
    expected = mg.EERLoss(surrogate=s.LogitSigmoid(8.0))(Z[:, 0], Y[:, 0])
    torch.testing.assert_close(loss(Z[:, 0], Y[:, 0]), expected)
    assert repr(mg.PRBEPLoss()) == "PRBEPLoss(surrogate=LogitSigmoid(beta=1.0, eta=0.0))"
    assert repr(mg.PrecisionAtKLoss(5)).startswith("PrecisionAtKLoss(k=5, surrogate=")
    assert "Annealed" in repr(loss)


@pytest.mark.parametrize("make", [partial(mg.RecallAtFPRLoss, 0.05), partial(mg.RecallAtPrecisionLoss, 0.6)])
def test_training_raises_the_recall_under_the_constraint(make: Callable[..., Any]) -> None:
    g = torch.Generator().manual_seed(4)
    x = torch.randn(600, 6, generator=g)
    y = (x[:, 0] - x[:, 1] + torch.randn(600, generator=g) > 2.2).float()
    weights = torch.zeros(6).add_(0.01).requires_grad_()
    optimiser = torch.optim.Adam([weights], 0.05)
    judge = make(surrogate=s.LogitSigmoid(1e9))
    before = judge((x @ weights).detach(), y).item()
    for _ in range(80):
        optimiser.zero_grad()
        make()(x @ weights, y).backward()
        optimiser.step()
    assert judge((x @ weights).detach(), y).item() < min(0.55, before - 0.3)


AT_K: Any = mg.PrecisionAtKLoss
BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: AT_K(0), r"k: expected a number of at least 1 \(an int\) or a share in \(0, 1\) \(a float\), got 0"),
    (lambda: AT_K(1.0), "k: expected a number of at least 1 .* got 1.0"),
    (lambda: AT_K(True), "k: expected a number of at least 1 .* got True"),
    (lambda: AT_K("all"), "k: expected a number of at least 1 .* got 'all'"),
    (lambda: mg.RecallAtPrecisionLoss(0.0), r"p: expected a precision in \(0, 1\], got 0.0"),
    (lambda: mg.RecallAtPrecisionLoss(1.1), r"p: expected a precision in \(0, 1\], got 1.1"),
    (lambda: mg.RecallAtFPRLoss(1.0), r"fpr: expected a rate in \[0, 1\), got 1.0"),
    (lambda: mg.RecallAtFPRLoss(math.nan), r"fpr: expected a rate in \[0, 1\), got nan"),
    (lambda: mg.EERLoss(surrogate=s.LogitSigmoid(1.0, 2.0)), "surrogate: expected LogitSigmoid.* with eta=0"),
    (lambda: AT_K(3, surrogate=s.Linear()), r"surrogate: expected LogitSigmoid\(beta\) with eta=0, .* got Linear"),
    (lambda: AT_K(3, surrogate=s.Learned(s.LogitSigmoid())), "surrogate: expected LogitSigmoid"),
    (lambda: mg.PRBEPLoss(task="classes"), "task: expected one of 'binary', 'multiclass', 'multilabel', got 'classes'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_gets_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
