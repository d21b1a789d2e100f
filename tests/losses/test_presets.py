"""Every published method: value and gradient against loops written from its equations, in float64 and float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import metricgrad as mg
import reference as ref
from metricgrad import presets
from metricgrad import surrogates as s
from reference import Matrix

pytestmark = pytest.mark.quick

RNG = np.random.default_rng(7)
Z = RNG.normal(size=(9, 4)) * 1.5
Y = (RNG.random((9, 4)) < 0.4).astype(np.float64)
Y[0], Y[1] = 0.0, 1.0  # rows without competitors
INDEX = RNG.integers(4, size=9)
BETAS = [0.5, 1.0, 2.0, 5.0]


def elementwise(step: Callable[[float], float], z: Matrix) -> Matrix:
    return np.array([[step(float(u)) for u in row] for row in z])


def f_betas(cells: ref.Cells, betas: list[float]) -> list[float]:
    rows = zip(cells["tp"], cells["fp"], cells["fn"], cells["tn"], betas, strict=True)
    return [ref.f_beta(tp, fp, fn, tn, beta) for tp, fp, fn, tn, beta in rows]


def macro_f1(step: Callable[[float], float], y: Matrix) -> Callable[[Matrix], float]:
    return lambda z: 1 - float(np.mean(f_betas(ref.counts(elementwise(step, z), y), [1.0] * y.shape[1])))


def micro_f1(step: Callable[[float], float], y: Matrix) -> Callable[[Matrix], float]:
    return lambda z: 1 - ref.micro(ref.counts(elementwise(step, z), y), ref.f_beta)


def multiclass(betas: list[float]) -> Callable[[Matrix], float]:
    def loss(z: Matrix) -> float:
        members = np.array([ref.top_two_row(row) for row in z])
        return 1 - float(np.mean(f_betas(ref.one_vs_rest(ref.confusion(members, INDEX)), betas)))

    return loss


def mfom(metric: Callable[..., float], pooled: bool) -> Callable[[Matrix], float]:
    """One minus a metric of MFoM's memberships, pooled or averaged over classes."""

    def loss(z: Matrix) -> float:
        members = np.array([ref.units_vs_zeros_row(row, labels, 2.0, 0.3) for row, labels in zip(z, Y, strict=True)])
        cells = ref.counts(members, Y)
        return 1 - (ref.micro(cells, metric) if pooled else float(np.mean(list(map(metric, *cells.values())))))

    return loss


def over_thresholds(z: Matrix) -> float:
    losses = [macro_f1(lambda u, t=t: ref.linear_step(ref.sigmoid(u), t), Y[:, :1])(z) for t in (0.2, 0.5, 0.9)]  # type: ignore[misc]
    return float(np.mean(losses))


@dataclass
class Case:
    loss: Callable[[], Any]
    reference: Callable[[Matrix], float]
    z: Matrix
    y: Any


CASES = {
    "soft sets, linear": Case(
        presets.soft_set, macro_f1(lambda u: ref.linear_step(ref.sigmoid(u), 0.5), Y[:, :1]), Z[:, :1], Y[:, :1]
    ),
    "soft sets, linear, off centre": Case(
        lambda: presets.soft_set("f1", threshold=0.3),
        macro_f1(lambda u: ref.linear_step(ref.sigmoid(u), 0.3), Y[:, :1]),
        Z[:, :1],
        Y[:, :1],
    ),
    "soft sets, several thresholds": Case(
        lambda: presets.soft_set("f1", threshold=[0.2, 0.5, 0.9]), over_thresholds, Z[:, :1], Y[:, :1]
    ),
    "soft sets, sigmoid": Case(
        lambda: presets.soft_set("f1", surrogate=s.Sigmoid(k=10), threshold=0.7),
        macro_f1(lambda u: ref.sigmoid_step(ref.sigmoid(u), 0.7), Y[:, :1]),
        Z[:, :1],
        Y[:, :1],
    ),
    "AnyLoss": Case(
        lambda: presets.any_loss("f1", 20.0, task="multilabel"),
        macro_f1(lambda u: 1 / (1 + math.exp(-20 * (ref.sigmoid(u) - 0.5))), Y),
        Z,
        Y,
    ),
    "sigmoidF1": Case(
        lambda: presets.sigmoid_f1(0.75, 0.4), macro_f1(lambda u: ref.logit_sigmoid(u, 0.75, 0.4), Y), Z, Y
    ),
    "sigmoidF1, pooled": Case(
        lambda: presets.sigmoid_f1(2.0, average="micro"), micro_f1(lambda u: ref.logit_sigmoid(u, 2.0, 0.0), Y), Z, Y
    ),
    "unboundedF1": Case(presets.unbounded_f1, macro_f1(lambda u: u, Y), Z + 3, Y),
    "soft Dice": Case(lambda: presets.soft_dice(task="multilabel"), macro_f1(ref.sigmoid, Y), Z, Y),
    "MFoM": Case(lambda: presets.mfom_f1(alpha=2.0, beta=0.3), lambda z: ref.mfom_micro_f1(z, Y, 2.0, 0.3), Z, Y),
    "MFoM, EER": Case(lambda: presets.mfom_eer(alpha=2.0, beta=0.3), mfom(ref.worst_recall, pooled=False), Z, Y),
    "MFoM, detection cost": Case(
        lambda: presets.mfom_detection_cost(alpha=2.0, beta=0.3, miss=10.0, prior=0.01),
        mfom(partial(ref.detection_cost, miss=10.0, prior=0.01), pooled=True),
        Z,
        Y,
    ),
    "multi-class F-beta": Case(lambda: presets.multiclass_f_beta(2.0), multiclass([2.0] * 4), Z, INDEX),
    "multi-class F-beta per class": Case(lambda: presets.multiclass_f_beta(BETAS), multiclass(BETAS), Z, INDEX),
}


def sharp_gradient(f: Callable[[Matrix], float], x: Matrix, h: float = 3e-4) -> Matrix:
    """Central differences of sixth order: accurate to 1e-11 where f is smooth within 3h."""
    gradient = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        for step, share in ((1, 3 / 4), (2, -3 / 20), (3, 1 / 60)):
            up, down = x.copy(), x.copy()
            up[place] += step * h
            down[place] -= step * h
            gradient[place] += share * (f(up) - f(down)) / h
    return gradient


def value_and_gradient(case: Case, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    z = torch.tensor(case.z, dtype=dtype, requires_grad=True)
    value = case.loss()(z, torch.as_tensor(case.y))
    value.backward()
    assert z.grad is not None
    return value.detach(), z.grad


@pytest.mark.parametrize("name", CASES)
def test_preset_equals_its_equations(name: str) -> None:
    case = CASES[name]
    expected = torch.tensor([case.reference(case.z)], dtype=torch.float64)
    slope = torch.from_numpy(sharp_gradient(case.reference, case.z))
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        value, gradient = value_and_gradient(case, dtype)
        torch.testing.assert_close(value.double().reshape(1), expected, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(gradient.double(), slope, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("learned", [False, True])
def test_mfom_equals_the_analytic_jacobian(learned: bool) -> None:
    alpha, beta = [0.5, 1.0, 2.0, 3.0], [0.1, -0.2, 0.0, 0.4]
    loss = presets.mfom_f1(4 if learned else None).double()
    if learned:
        with torch.no_grad():
            loss.surrogate.alpha.copy_(torch.tensor(alpha, dtype=torch.float64))
            loss.surrogate.beta.copy_(torch.tensor(beta, dtype=torch.float64))
    z = torch.tensor(Z, requires_grad=True)
    loss(z, torch.tensor(Y)).backward()
    expected = ref.mfom_gradient(Z, Y, alpha if learned else 1.0, beta if learned else 0.0)
    torch.testing.assert_close(z.grad, torch.from_numpy(expected), rtol=1e-10, atol=1e-12)
    if learned:
        by_alpha = sharp_gradient(lambda a: ref.mfom_micro_f1(Z, Y, a, beta), np.array(alpha))
        torch.testing.assert_close(loss.surrogate.alpha.grad, torch.from_numpy(by_alpha), rtol=1e-9, atol=1e-11)


def test_learned_sigmoid_f1_has_the_gradient_of_its_numbers() -> None:
    loss = mg.MetricLoss("f1", task="multilabel", surrogate=s.Learned(s.LogitSigmoid(1.5, 0.2), 4)).double()
    loss(torch.tensor(Z), torch.tensor(Y)).backward()

    def of(betas: Matrix) -> float:
        members = np.array([[ref.logit_sigmoid(u, b, 0.2) for u, b in zip(row, betas, strict=True)] for row in Z])
        return 1 - float(np.mean(f_betas(ref.counts(members, Y), [1.0] * 4)))

    # Learned numbers start in float32: compare at what they are.
    betas = loss.surrogate.beta.detach().numpy().copy()
    eta = float(loss.surrogate.eta.detach()[0])
    assert abs(eta - 0.2) < 1e-7
    torch.testing.assert_close(
        loss.surrogate.beta.grad, torch.from_numpy(sharp_gradient(of, betas)), rtol=1e-6, atol=1e-8
    )


def test_sigmoid_f1_is_macro_in_the_words_of_everyone_else() -> None:
    assert presets.sigmoid_f1().average == "macro"
    assert presets.mfom_f1().average == "micro"


def test_preset_takes_further_options() -> None:
    loss = presets.soft_set("mcc", task="multilabel", average="micro", ignore_index=-1)
    assert "ignore_index=-1" in repr(loss)
