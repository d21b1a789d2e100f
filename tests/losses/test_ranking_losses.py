"""AUROC of soft sets and WMW: the fast sums equal slow loops and plain tables, value and gradient, in any batch."""

from __future__ import annotations

import copy
import itertools
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
from metricgrad.losses import threshold_sums
from metricgrad.losses.per_class import log_odds

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
        monkeypatch.setattr(threshold_sums, "TABLE_ELEMENTS", size)
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


# A part of the curve


@pytest.mark.parametrize("most", [0.03, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("name", STEPS)
def test_partial_area_and_gradient_equal_the_plain_curve(name: str, most: float) -> None:
    step, _ = STEPS[name]

    def plain(z: Tensor, y: Tensor, w: Tensor) -> Tensor:
        """The curve as straight lines, cut at the rate and summed one by one."""
        members = step.step(torch.sigmoid(z), torch.arange(1, 20, dtype=z.dtype).unsqueeze(1) / 20)
        tpr, fpr = (members * w * y).sum(1) / (w * y).sum(), (members * w * (1 - y)).sum(1) / (w * (1 - y)).sum()
        one, zero = z.new_ones(()), z.new_zeros(())
        points = list(zip((zero, *fpr.flip(0), one), (zero, *tpr.flip(0), one), strict=True))
        area = zero
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            if x0 < most and x1 > x0:
                end = x1.clamp_max(most)
                at_end = y0 + (y1 - y0) * (end - x0) / (x1 - x0)
                area = area + (end - x0) * (y0 + at_end) / 2
        return 1 - (1 + (area - most**2 / 2) / (most - most**2 / 2)) / 2

    loss = mg.AUROCLoss(step, max_fpr=most)
    for z, y, w in ((Z[:, 0], Y[:, 0], W[:, 0]), (Z[:, 1], SOFT[:, 1], W[:, 2])):
        assert_same(lambda z, y=y, w=w: loss(z, y, w), lambda z, y=y, w=w: plain(z, y, w), z)  # type: ignore[misc]


def spaced(seed: int, classes: int) -> tuple[Tensor, Tensor]:
    """Return probabilities that are multiples of 1/500, further apart than two of 20011 thresholds, and classes."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (60,), generator=g)
    raw = torch.rand(60, classes, dtype=torch.float64, generator=g)
    raw[torch.arange(60), y] += 0.3
    whole = 1 + (raw / raw.sum(1, keepdim=True) * (500 - classes)).floor()
    whole[:, 0] += 500 - whole.sum(1)
    return whole / 500, y


SHARP = s.Linear(0.0, 1e-5)


@pytest.mark.parametrize("most", [0.05, 0.2, 0.75, 1.0])
def test_sharp_partial_area_is_that_of_scikit_learn(most: float) -> None:
    both_p, labels = spaced(3, 2)
    y, p = (labels == 0).double(), both_p[:, 0]
    sharp = mg.AUROCLoss(SHARP, 20011, max_fpr=most)
    expected = 1 - roc_auc_score(y, p, max_fpr=most)
    assert sharp(torch.logit(p), y).item() == pytest.approx(expected, abs=1e-8)
    labelled = torch.nn.functional.one_hot(labels, 2)
    for task, z, targets in (("multilabel", torch.logit(both_p), labelled), ("multiclass", both_p.log(), labels)):
        each = mg.AUROCLoss(SHARP, 20011, max_fpr=most, task=task, average=None)(z, targets)  # type: ignore[arg-type]
        other = 1 - roc_auc_score(1 - y, both_p[:, 1], max_fpr=most)
        assert each.tolist() == pytest.approx([expected, other], abs=1e-8)


def test_the_whole_rate_is_the_whole_area_and_perfect_is_perfect() -> None:
    torch.testing.assert_close(mg.AUROCLoss(max_fpr=1.0)(Z[:, 0], Y[:, 0]), mg.AUROCLoss()(Z[:, 0], Y[:, 0]))
    near = mg.AUROCLoss(max_fpr=1 - 1e-12)(Z[:, 0], Y[:, 0])
    torch.testing.assert_close(near, mg.AUROCLoss()(Z[:, 0], Y[:, 0]))
    z, y = torch.tensor([30.0, 30.0, -30.0]), torch.tensor([1, 1, 0])
    assert mg.AUROCLoss(max_fpr=0.1)(z, y).item() == pytest.approx(0.0, abs=1e-6)


# Several classes


K = 3
INDEX = torch.randint(K, (N,), generator=G)
HOT = torch.nn.functional.one_hot(INDEX, K).double()
ROW = W[:, 0]
SEVERAL: dict[str, Callable[..., Any]] = {
    **LOSSES,
    "partial": partial(mg.AUROCLoss, max_fpr=0.3),
    "sharp": partial(mg.AUROCLoss, s.Sigmoid(40), max_fpr=0.3),
}
KINDS = [(name, kind) for name in SEVERAL for kind in ("ovr", "ovo")]


def test_log_odds_are_those_of_the_softmax_where_it_rounds_to_one() -> None:
    torch.testing.assert_close(log_odds(Z).sigmoid(), Z.softmax(1))
    assert torch.autograd.gradcheck(log_odds, Z[:5].clone().requires_grad_())
    far = torch.tensor([[90.0, 0.0, -900.0]])
    torch.testing.assert_close(log_odds(far), torch.tensor([[90.0, -90.0, -990.0]]))
    torch.testing.assert_close(log_odds(torch.tensor([[5.0, 5.0]])), torch.zeros(1, 2))


@pytest.mark.parametrize("average", ["macro", "weighted"])
@pytest.mark.parametrize("kind", ["ovr", "ovo"])
@pytest.mark.parametrize("seed", range(2))
def test_sharp_areas_of_several_classes_are_those_of_scikit_learn(kind: Any, average: Any, seed: int) -> None:
    p, y = spaced(seed, 4)
    loss = mg.AUROCLoss(SHARP, 20011, task="multiclass", multi_class=kind, average=average)
    expected = roc_auc_score(y, p, multi_class=kind, average=average)
    assert loss(p.log(), y).item() == pytest.approx(1 - expected, abs=1e-8)


@pytest.mark.parametrize("name", LOSSES)
def test_one_against_rest_is_each_class_alone(name: str) -> None:
    p = Z.softmax(1)
    each = torch.stack([LOSSES[name]()(torch.logit(p[:, k]), HOT[:, k], ROW) for k in range(K)])
    make = partial(LOSSES[name], task="multiclass")
    torch.testing.assert_close(make(average=None)(Z, INDEX, ROW), each)
    torch.testing.assert_close(make()(Z, INDEX, ROW), each.mean())
    shares = (HOT * ROW.unsqueeze(1)).sum(0) / ROW.sum()
    torch.testing.assert_close(make(average="weighted")(Z, INDEX, ROW), (each * shares).sum())
    pooled = LOSSES[name]()(torch.logit(p).flatten(), HOT.flatten(), ROW.repeat_interleave(K))
    torch.testing.assert_close(make(average="micro")(Z, INDEX, ROW), pooled)


@pytest.mark.parametrize("name", SEVERAL)
def test_one_against_one_is_each_pair_alone(name: str) -> None:
    """Value and gradient, with class indices (the fast sums of a linear step) and with soft labels."""
    soft = torch.rand(N, K, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).softmax(1)

    def plain(z: Tensor, labels: Tensor, average: str | None) -> Tensor:
        x = torch.logit(z.softmax(1))
        losses, shares = torch.zeros(K, K, dtype=z.dtype), torch.zeros(K, K, dtype=z.dtype)
        w = labels * ROW.unsqueeze(1)
        rows = []
        for i in range(K):
            row = []
            for j in range(K):
                if i != j:  # every sample as a part of a positive and a part of a negative
                    y = torch.cat((torch.ones(N), torch.zeros(N)))
                    row.append(SEVERAL[name]()(torch.cat((x[:, i], x[:, i])), y, torch.cat((w[:, i], w[:, j]))))
                    shares[i, j] = w[:, i].sum() + w[:, j].sum()
                else:
                    row.append(z.new_zeros(()))
            rows.append(torch.stack(row))
        losses = torch.stack(rows)
        if average is None:
            return losses.sum(1) / (K - 1)
        return losses.sum() / (K * (K - 1)) if average == "macro" else (losses * shares).sum() / shares.sum()

    average: Any
    for average in ("macro", "weighted", None):
        loss = SEVERAL[name](task="multiclass", multi_class="ovo", average=average)
        for y, labels in ((INDEX, HOT), (HOT, HOT), (soft, soft)):
            mine, its = partial(loss, targets=y, weight=ROW), partial(plain, labels=labels, average=average)
            assert_same(mine, its, Z)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_several_classes_mask_weigh_differentiate_and_transform(name: str, kind: Any) -> None:
    make = partial(SEVERAL[name], task="multiclass", multi_class=kind)
    loss, keep = make(), ROW > 0.3
    expected = loss(Z[keep], INDEX[keep], ROW[keep])
    rows = keep.unsqueeze(1)
    torch.testing.assert_close(loss(Z.where(rows, torch.nan), INDEX.where(keep, 7), ROW, keep), expected)
    torch.testing.assert_close(make(ignore_index=-1)(Z, INDEX.where(keep, -1), ROW), expected)
    times = torch.arange(N) % 3
    again = Z.repeat_interleave(times, 0), INDEX.repeat_interleave(times)
    torch.testing.assert_close(loss(Z, INDEX, times), loss(*again))
    images = Z[:36].view(6, 6, K).movedim(2, 1)
    torch.testing.assert_close(loss(images, INDEX[:36].view(6, 6)), loss(Z[:36], INDEX[:36]))
    z = Z[:9].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, INDEX[:9], ROW[:9]), z)
    _, gradient = value_and_gradient(lambda z: loss(z, INDEX), Z)
    torch.testing.assert_close(torch.func.grad(loss)(Z, INDEX), gradient)
    many = torch.stack([Z, Z.flip(0)])
    alone = torch.stack([loss(z, INDEX) for z in many])
    torch.testing.assert_close(torch.func.vmap(loss, in_dims=(0, None))(many, INDEX), alone)
    torch.compiler.reset()
    z = Z.clone().requires_grad_()
    value = torch.compile(loss, fullgraph=True, backend="aot_eager")(z, INDEX)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(torch.autograd.grad(value, z)[0], gradient)
    single = loss(Z.half(), INDEX)
    assert single.dtype == torch.float32
    twin = pickle.loads(pickle.dumps(loss))  # noqa: S301
    torch.testing.assert_close(twin(Z, INDEX), loss(Z, INDEX))


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_absent_classes_and_extremes_are_finite(name: str, kind: Any) -> None:
    for average in ("macro", "weighted", None):
        loss = SEVERAL[name](task="multiclass", multi_class=kind, average=average)
        for scale, y in itertools.product((1.0, 1e4), (INDEX, INDEX.clamp_max(1), torch.zeros_like(INDEX), INDEX[:0])):
            z = (scale * Z[: len(y)].float()).requires_grad_()
            value = loss(z, y).sum()
            (gradient,) = torch.autograd.grad(value, z)
            assert value.isfinite()
            assert gradient.isfinite().all()
            if not len(y) or (y == 0).all():
                assert gradient.abs().sum() < 1e-12
    one = SEVERAL[name](task="multiclass", multi_class=kind)
    z = torch.zeros(3, 1, requires_grad=True)  # a single class: nothing to rank
    value = one(z, torch.zeros(3, dtype=torch.long))
    assert value.isfinite()
    assert torch.autograd.grad(value, z)[0].abs().sum() < 1e-12


def test_the_losses_at_a_threshold_take_one_against_rest() -> None:
    losses: list[Callable[..., Any]] = [
        partial(mg.PrecisionAtKLoss, 5),
        mg.PRBEPLoss,
        mg.EERLoss,
        partial(mg.RecallAtPrecisionLoss, 0.7),
        partial(mg.RecallAtFPRLoss, 0.2),
    ]
    for make in losses:
        for average in ("macro", "weighted", "micro", None):
            labels = make(task="multilabel", average=average)
            classes = make(task="multiclass", average=average)

            def plain(z: Tensor, labels: Any = labels) -> Tensor:
                value: Tensor = labels(torch.logit(z.softmax(1)), HOT, ROW)
                return value

            assert_same(partial(classes, targets=INDEX, weight=ROW), plain, Z)


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
    some = mg.AUROCLoss(max_fpr=0.1, task="multiclass", multi_class="ovo")
    assert repr(some).endswith("curve='roc', max_fpr=0.1, task='multiclass', multi_class='ovo')")
    expected = "WMWLoss(gamma=0.2, power=2, on='probabilities', task='multilabel', average=None)"
    assert repr(mg.WMWLoss(task="multilabel", average=None)) == expected


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
    (lambda: AUROC(max_fpr=0.0), r"max_fpr: expected a rate in \(0, 1\] or None, got 0.0"),
    (lambda: AUROC(max_fpr="a"), r"max_fpr: expected a rate in \(0, 1\] or None, got 'a'"),
    (lambda: AUROC(max_fpr=0.1, curve="pr"), "max_fpr: expected None with curve='pr', which has no false"),
    (lambda: AUROC(task="multiclass", multi_class="all"), "multi_class: expected 'ovr' or 'ovo', got 'all'"),
    (
        lambda: WMW(task="multilabel", multi_class="ovo"),
        "multi_class: 'ovo' is for task='multiclass', got task='multil",
    ),
    (
        lambda: WMW(task="multiclass", multi_class="ovo", average="micro"),
        "average: expected 'macro', 'weighted' or None with multi_class='ovo', got 'micro'",
    ),
    (lambda: AUROC(task="multiclass")(Z, Y[:, 0]), "targets: expected class indices of an integer type"),
    (lambda: WMW(task="multi"), "task: expected one of"),
    (
        lambda: WMW(average="samples", task="multilabel"),
        "average: expected 'micro', 'macro', 'weighted' or None, got 'samples'",
    ),
    (lambda: WMW(gamma=0.0), "gamma: expected a positive number, got 0.0"),
    (lambda: WMW(gamma=math.nan), "gamma: expected a positive number, got nan"),
    (lambda: WMW(power=4), "power: expected 1, 2 or 3, got 4"),
    (lambda: WMW(on="scores"), "on: expected 'probabilities' or 'logits', got 'scores'"),
    (lambda: WMW()(Z, Y[:, 0]), "task: expected 'multiclass' for logits"),
    (lambda: WMW(average="micro"), "average: expected 'macro' for the one class of task='binary', got 'micro'"),
    (lambda: AUROC()(Z[:, 0], Y[:, 0] + 1), r"targets: expected values in \[0, 1\]"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_gets_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
