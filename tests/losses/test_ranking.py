"""AUROC of soft sets and WMW: the fast sums equal slow loops and plain tables, value and gradient, in any batch."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

import metricgrad as mg
import reference as ref
from metricgrad import surrogates as s
from metricgrad.losses import ranking

G = torch.Generator().manual_seed(11)
N = 37
Z = torch.randn(N, 3, dtype=torch.float64, generator=G) * 2
Y = (torch.rand(N, 3, generator=G) < 0.4).double()
SOFT = torch.rand(N, 3, dtype=torch.float64, generator=G)
W = torch.rand(N, 3, dtype=torch.float64, generator=G)

Step = Callable[[float, float], float]
STEPS: dict[str, tuple[Any, Step]] = {
    "linear": (s.Linear(), ref.linear_step),
    "linear, delta 0": (s.Linear(0.0), partial(ref.linear_step, delta=0.0)),
    "narrow": (s.Linear(0.05, 0.3), partial(ref.linear_step, delta=0.05, width=0.3)),
    "almost hard": (s.Linear(0.0, 1e-3), partial(ref.linear_step, delta=0.0, width=1e-3)),
    "sigmoid": (s.Sigmoid(), ref.sigmoid_step),
}
AREAS = {"roc": ref.soft_auroc, "pr": ref.soft_average_precision}


def plain_area(z: Tensor, y: Tensor, w: Tensor, step: Any, k: int, curve: str) -> Tensor:
    """The table of samples × thresholds, one class, by autograd alone."""
    tau = torch.arange(1, k, dtype=z.dtype).unsqueeze(1) / k
    members = step.step(torch.sigmoid(z), tau)
    one, zero = z.new_ones(1), z.new_zeros(1)
    tp, fp = (members * w * y).sum(1), (members * w * (1 - y)).sum(1)
    positives, negatives = (w * y).sum(), (w * (1 - y)).sum()
    tpr, fpr = torch.cat((one, tp / positives, zero)), torch.cat((one, fp / negatives, zero))
    if curve == "roc":
        return ((fpr[:-1] - fpr[1:]) * (tpr[:-1] + tpr[1:])).sum() / 2
    precision = torch.cat((positives / (positives + negatives) * one, tp / (tp + fp).clamp_min(1e-300)))
    return ((tpr[:-1] - tpr[1:]) * precision).sum()


def plain_wmw(x: Tensor, y: Tensor, w: Tensor, gamma: float, power: int) -> Tensor:
    """Every pair, one class, by autograd alone."""
    pairs = (w * y).unsqueeze(1) * (w * (1 - y))
    apart = x.unsqueeze(1) - x
    return (pairs * torch.where(apart < gamma, gamma - apart, 0.0) ** power).sum() / pairs.sum()


def value_and_gradient(loss: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    z = z.clone().requires_grad_()
    value = loss(z)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), gradient


def assert_same(mine: Callable[[Tensor], Tensor], plain: Callable[[Tensor], Tensor], z: Tensor) -> None:
    (value, gradient), (expected, slope) = value_and_gradient(mine, z), value_and_gradient(plain, z)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(gradient, slope, rtol=1e-9, atol=1e-11)


# AUROC


@pytest.mark.parametrize("k", [2, 7, 20])
@pytest.mark.parametrize("curve", AREAS)
@pytest.mark.parametrize("name", STEPS)
def test_area_equals_the_loops_of_the_equation(name: str, curve: Any, k: int) -> None:
    step, slow = STEPS[name]
    loss = mg.AUROCLoss(step, k, curve=curve)
    for weight in (None, W[:, 0]):
        weights = None if weight is None else weight.tolist()
        expected = 1 - AREAS[curve](Z[:, 0].tolist(), Y[:, 0].tolist(), k, slow, weights)
        assert loss(Z[:, 0], Y[:, 0], weight).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("k", [2, 3, 20, 101])
@pytest.mark.parametrize("curve", AREAS)
@pytest.mark.parametrize("name", STEPS)
def test_area_and_gradient_equal_the_plain_table(name: str, curve: Any, k: int) -> None:
    step, _ = STEPS[name]
    loss = mg.AUROCLoss(step, k, curve=curve)
    ties = (Z[:, 0] * 2).round() / 2 + 0.01  # many equal scores, none on a knot
    for z, y, w in ((Z[:, 0], Y[:, 0], W[:, 0]), (ties, Y[:, 0], W[:, 1]), (Z[:, 1], SOFT[:, 1], W[:, 2])):
        plain = partial(plain_area, y=y, w=w, step=step, k=k, curve=curve)
        assert_same(lambda z, y=y, w=w: loss(z, y, w), lambda z, plain=plain: 1 - plain(z), z)  # type: ignore[misc]


def test_scores_on_the_knots_and_at_both_ends() -> None:
    """p = i/2k lies on knots, where the value is that of either side; p = 0 and 1 are in the first and last bin."""
    p = torch.cat((torch.arange(0, 41, dtype=torch.float64) / 40, torch.tensor([1e-12, 1 - 1e-12]).double()))
    y = (torch.arange(43) % 3 == 0).double()
    for step in (s.Linear(), s.Linear(0.1, 0.5)):
        expected = 1 - plain_area(torch.logit(p), y, torch.ones(43).double(), step, 20, "roc")
        assert mg.AUROCLoss(step)(torch.logit(p), y).item() == pytest.approx(expected.item(), abs=1e-12)


def test_many_thresholds_at_a_time_are_those_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = mg.AUROCLoss(s.Sigmoid(), 50)
    whole = value_and_gradient(lambda z: loss(z, Y[:, 0]), Z[:, 0])
    for size in (1, 3 * N, 7 * N + 1):
        monkeypatch.setattr(ranking, "TABLE", size)
        torch.testing.assert_close(value_and_gradient(lambda z: loss(z, Y[:, 0]), Z[:, 0]), whole)


@pytest.mark.parametrize("seed", range(3))
def test_sharp_steps_and_many_thresholds_reach_the_areas_of_scikit_learn(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(80, generator=g) < 0.3).double()
    # Scores further apart than two thresholds, so that every one is seen.
    p = (torch.randperm(80, generator=g).double() + 0.5) / 80
    p = p.where(torch.rand(80, generator=g) < 0.7, (p + 0.5 * y).clamp_max(0.999))
    z, sharp = torch.logit(p), s.Linear(0.0, 1e-6)
    assert mg.AUROCLoss(sharp, 20011)(z, y).item() == pytest.approx(1 - roc_auc_score(y, p), abs=1e-8)
    expected = 1 - average_precision_score(y, p)
    assert mg.AUROCLoss(sharp, 20011, curve="pr")(z, y).item() == pytest.approx(expected, abs=1e-8)
    near = mg.AUROCLoss(s.Sigmoid(1e5), 500)(z, y).item()
    assert near == pytest.approx(1 - roc_auc_score(y, p), abs=0.01)


def test_perfect_and_reversed_rankings() -> None:
    z, y = torch.tensor([30.0, 30.0, -30.0]), torch.tensor([1, 1, 0])
    for step in (s.Linear(), s.Sigmoid(1e6)):
        assert mg.AUROCLoss(step)(z, y).item() == pytest.approx(0.0, abs=1e-6)
        assert mg.AUROCLoss(step, curve="pr")(z, y).item() == pytest.approx(0.0, abs=1e-6)
        assert mg.AUROCLoss(step)(-z, y).item() == pytest.approx(1.0, abs=1e-6)


# WMW


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("on", ["probabilities", "logits"])
@pytest.mark.parametrize("gamma", [0.2, 1.5])
def test_wmw_equals_loops_over_all_pairs(power: int, on: Any, gamma: float) -> None:
    loss = mg.WMWLoss(gamma, power, on=on)
    x = torch.sigmoid(Z[:, 0]) if on == "probabilities" else Z[:, 0]
    for weight in (None, W[:, 0]):
        expected = ref.wmw(x.tolist(), Y[:, 0].tolist(), gamma, power, None if weight is None else weight.tolist())
        assert loss(Z[:, 0], Y[:, 0], weight).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("on", ["probabilities", "logits"])
def test_wmw_and_its_gradient_equal_the_plain_pairs(power: int, on: Any) -> None:
    loss = mg.WMWLoss(0.25, power, on=on)

    def plain(z: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return plain_wmw(torch.sigmoid(z) if on == "probabilities" else z, y, w, 0.25, power)

    ones = torch.ones(N, dtype=torch.float64)
    for z, y, w in ((Z[:, 0], Y[:, 0], ones), (Z[:, 1], Y[:, 1], W[:, 1]), (Z[:, 2], SOFT[:, 2], W[:, 0])):
        assert_same(lambda z, y=y, w=w: loss(z, y, w), lambda z, y=y, w=w: plain(z, y, w), z)  # type: ignore[misc]
    if on == "logits":  # exact in binary: many ties, many pairs apart by exactly the margin
        for scale in (1, 1024):
            z = (Z[:, 0] * 4 * scale).round() / 4
            assert_same(lambda z: loss(z, Y[:, 0], W[:, 0]), lambda z: plain(z, Y[:, 0], W[:, 0]), z)


def test_wmw_of_a_larger_batch() -> None:
    g = torch.Generator().manual_seed(0)
    z, y = torch.randn(1500, dtype=torch.float64, generator=g), (torch.rand(1500, generator=g) < 0.1).double()
    ones = torch.ones_like(z)
    assert_same(lambda z: mg.WMWLoss()(z, y), lambda z: plain_wmw(torch.sigmoid(z), y, ones, 0.2, 2), z)
    single = mg.WMWLoss()(z.float(), y)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), mg.WMWLoss()(z, y), rtol=1e-6, atol=0)


def test_wmw_is_zero_when_all_pairs_are_apart_and_does_not_see_a_shift() -> None:
    z, y = torch.tensor([9.0, 8.0, -9.0]), torch.tensor([1, 1, 0])
    assert mg.WMWLoss()(z, y).item() == 0
    loss = mg.WMWLoss(1.0, 2, on="logits").double()
    torch.testing.assert_close(loss(Z[:, 0] + 100, Y[:, 0]), loss(Z[:, 0], Y[:, 0]))
    _, gradient = value_and_gradient(lambda z: loss(z, Y[:, 0]), Z[:, 0])
    assert gradient.sum().item() == pytest.approx(0.0, abs=1e-12)


# Both


LOSSES: dict[str, Callable[..., Any]] = {
    "roc": mg.AUROCLoss,
    "pr": partial(mg.AUROCLoss, curve="pr"),
    "narrow": partial(mg.AUROCLoss, s.Linear(0.1, 0.5)),
    "sigmoid": partial(mg.AUROCLoss, s.Sigmoid()),
    "wmw": mg.WMWLoss,
    "wmw on logits": partial(mg.WMWLoss, 1.0, 3, on="logits"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_averages_over_classes(name: str) -> None:
    make = LOSSES[name]
    each = torch.stack([make()(Z[:, i], Y[:, i], W[:, i]) for i in range(3)])
    torch.testing.assert_close(make(task="multilabel", average=None)(Z, Y, W), each)
    torch.testing.assert_close(make(task="multilabel")(Z, Y, W), each.mean())
    shares = (W * Y).sum(0) / (W * Y).sum()
    torch.testing.assert_close(make(task="multilabel", average="weighted")(Z, Y, W), (each * shares).sum())
    pooled = make()(Z.flatten(), Y.flatten(), W.flatten())
    torch.testing.assert_close(make(task="multilabel", average="micro")(Z, Y, W), pooled)


@pytest.mark.parametrize("name", LOSSES)
def test_masking_is_deleting_and_weights_are_repetition(name: str) -> None:
    loss = LOSSES[name]()
    z, y, w = Z[:, 0], Y[:, 0], W[:, 0]
    keep = W[:, 1] > 0.3
    masked = loss(z.where(keep, torch.nan), y.where(keep, 7), w, keep)
    torch.testing.assert_close(masked, loss(z[keep], y[keep], w[keep]))
    ignoring = LOSSES[name](ignore_index=-1)
    torch.testing.assert_close(ignoring(z, y.where(keep, -1)), loss(z[keep], y[keep]))
    times = torch.arange(N) % 3
    torch.testing.assert_close(loss(z, y, times), loss(z.repeat_interleave(times), y.repeat_interleave(times)))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_nothing_makes_it_infinite(name: str, dtype: torch.dtype) -> None:
    undefined = {"pr": (1.0, 0.0), "wmw": (0.0, 0.0), "wmw on logits": (0.0, 0.0)}.get(name, (0.5, 0.5))
    labels = (torch.zeros(6), torch.ones(6), torch.tensor([1.0, 0, 1, 0, 0, 1]))
    for scale in (1.0, 1e4):
        z = (torch.linspace(-1, 1, 6) * scale).to(dtype).requires_grad_()
        for y, expected in zip(labels, (*undefined, None), strict=True):
            value = LOSSES[name]()(z, y)
            assert value.dtype == torch.float32
            assert value.isfinite()
            (gradient,) = torch.autograd.grad(value, z)
            assert gradient.dtype == dtype
            assert gradient.isfinite().all() or (name == "wmw on logits" and dtype == torch.float16)
            if expected is not None:
                assert value.item() == pytest.approx(expected, abs=1e-6)
                assert gradient.abs().max().item() <= 1e-6
    for z, y, mask in ((torch.zeros(0), torch.zeros(0), None), (torch.ones(3), torch.ones(3), torch.zeros(3) > 0)):
        z = z.to(dtype).requires_grad_()
        value = LOSSES[name]()(z, y, mask=mask)
        assert value.isfinite()
        assert (torch.autograd.grad(value, z)[0] == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_one_absent_class_does_not_touch_the_others(name: str) -> None:
    y = Y.clone()
    y[:, 1] = 0
    loss = LOSSES[name](task="multilabel")
    _, gradient = value_and_gradient(lambda z: loss(z, y), Z)
    _, alone = value_and_gradient(lambda z: LOSSES[name]()(z, Y[:, 0]) / 3, Z[:, 0])
    torch.testing.assert_close(gradient[:, 0], alone)
    assert (gradient[:, 1] == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_nan_stays_visible(name: str) -> None:
    for y in (Y[:, 0], torch.where(torch.arange(N) == 3, torch.nan, Y[:, 0])):
        z = Z[:, 0].clone()
        if not y.isnan().any():
            z[4] = torch.nan
        assert LOSSES[name]()(z, y).isnan()


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_both_orders(name: str) -> None:
    loss = LOSSES[name](task="multilabel")
    z = Z[:12].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, Y[:12], W[:12]), z)
    assert torch.autograd.gradgradcheck(lambda z: loss(z, Y[:12], W[:12]), z)
    soft, weight = SOFT[:12].clone().requires_grad_(), W[:12].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda y, w: loss(Z[:12], y, w), (soft, weight))


@pytest.mark.parametrize("name", LOSSES)
def test_transformations(name: str) -> None:
    loss = LOSSES[name](task="multilabel")
    many = torch.stack([Z, Z.flip(0), 2 * Z])
    alone = torch.stack([loss(z, Y) for z in many])
    torch.testing.assert_close(torch.func.vmap(loss, in_dims=(0, None))(many, Y), alone)
    _, expected = value_and_gradient(lambda z: loss(z, Y), Z)
    torch.testing.assert_close(torch.func.grad(loss)(Z, Y), expected)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss), in_dims=(0, None))(many, Y)[0], expected)
    torch.compiler.reset()
    z = Z.clone().requires_grad_()
    value = torch.compile(loss, fullgraph=True, backend="aot_eager")(z, Y)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(value, loss(Z, Y))
    torch.testing.assert_close(torch.autograd.grad(value, z)[0], expected)


@pytest.mark.parametrize("name", LOSSES)
def test_autocast_pickle_copy_and_strides(name: str) -> None:
    loss = LOSSES[name](task="multilabel")
    z = Z.float()
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(loss(z, Y), loss(z, Y), rtol=0, atol=0)
        assert loss(z, Y).dtype == torch.float32
    for twin in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):  # noqa: S301
        torch.testing.assert_close(twin(Z, Y), loss(Z, Y))
    torch.testing.assert_close(loss(Z.t().contiguous().t(), Y), loss(Z, Y))


def test_the_loss_sharpens_with_its_surrogate() -> None:
    surrogate = s.Annealed(s.Linear(0.1, 1.0), s.Linear(0.0, 0.1), steps=1)
    loss = mg.AUROCLoss(surrogate)
    torch.testing.assert_close(loss(Z[:, 0], Y[:, 0]), mg.AUROCLoss()(Z[:, 0], Y[:, 0]))
    surrogate.step()
    torch.testing.assert_close(loss(Z[:, 0], Y[:, 0]), mg.AUROCLoss(s.Linear(0.0, 0.1))(Z[:, 0], Y[:, 0]))
    assert "position" in "".join(loss.state_dict())


def test_a_step_of_ones_own_goes_the_plain_way() -> None:
    class Slanted(s.Sigmoid):
        def step(self, p: Tensor, threshold: Any) -> Tensor:
            return torch.clamp(p / (p + threshold), 0, 1)

        def slope(self, p: Tensor, threshold: Any) -> Tensor:
            return torch.div(threshold, (p + threshold) ** 2)

    assert_same(
        lambda z: mg.AUROCLoss(Slanted(), 9)(z, Y[:, 0]),
        lambda z: 1 - plain_area(z, Y[:, 0], torch.ones(N).double(), Slanted(), 9, "roc"),
        Z[:, 0],
    )


def test_what_is_printed() -> None:
    expected = "AUROCLoss(surrogate=Linear(delta=0.1, width=1.0), thresholds=20, curve='roc', task='multilabel')"
    assert repr(mg.AUROCLoss(task="multilabel")) == expected
    assert repr(mg.WMWLoss(average=None)) == "WMWLoss(gamma=0.2, power=2, on='probabilities', average=None)"


def test_training_on_either_loss_improves_the_ranking() -> None:
    g = torch.Generator().manual_seed(2)
    x = torch.randn(400, 6, generator=g)
    y = (x[:, 0] - x[:, 1] + torch.randn(400, generator=g) > 1.5).float()
    for loss in (mg.AUROCLoss(), mg.WMWLoss()):
        weights = torch.zeros(6).add_(0.01).requires_grad_()
        optimiser = torch.optim.Adam([weights], 0.05)
        for _ in range(60):
            optimiser.zero_grad()
            loss(x @ weights, y).backward()
            optimiser.step()
        assert roc_auc_score(y, (x @ weights).detach()) > 0.85


AUROC: Any = mg.AUROCLoss
WMW: Any = mg.WMWLoss
BAD: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: AUROC(s.LogitSigmoid()),
        "surrogate: expected a step on probabilities, Linear or Sigmoid, got Logit",
    ),
    (lambda: AUROC(torch.sigmoid), "surrogate: expected a step on probabilities"),
    (lambda: AUROC(thresholds=1), "thresholds: expected a whole number of at least 2, got 1"),
    (lambda: AUROC(thresholds=2.5), "thresholds: expected a whole number of at least 2, got 2.5"),
    (lambda: AUROC(curve="det"), "curve: expected 'roc' or 'pr', got 'det'"),
    (lambda: AUROC(task="multiclass"), "task: expected 'binary' or 'multilabel', got 'multiclass'; use one-hot"),
    (lambda: WMW(task="multi"), "task: expected one of"),
    (lambda: WMW(average="samples"), "average: expected 'micro', 'macro', 'weighted' or None, got 'samples'"),
    (lambda: WMW(gamma=0.0), "gamma: expected a positive number, got 0.0"),
    (lambda: WMW(gamma=math.nan), "gamma: expected a positive number, got nan"),
    (lambda: WMW(power=4), "power: expected 1, 2 or 3, got 4"),
    (lambda: WMW(on="scores"), "on: expected 'probabilities' or 'logits', got 'scores'"),
    (lambda: WMW()(Z, Y[:, 0]), "targets: expected the shape of the logits"),
    (lambda: AUROC()(Z[:, 0], Y[:, 0] + 1), r"targets: expected values in \[0, 1\]"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_gets_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
