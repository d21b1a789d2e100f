"""Forward-mode differentiation: the derivative in a direction, of the loss, its statistic and its gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import metricgrad as mg
from metricgrad import surrogates as s

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, in dual_level

G = torch.Generator().manual_seed(11)
N, K = 12, 3
Z = torch.randn(N, K, dtype=torch.float64, generator=G)
DIRECTION = torch.randn(N, K, dtype=torch.float64, generator=G)
LABELS = (torch.rand(N, K, generator=G) < 0.4).double()
CLASSES = torch.randint(K, (N,), generator=G)
WEIGHT = torch.rand(N, dtype=torch.float64, generator=G)
MASK = torch.rand(N, generator=G) < 0.7

CASES: dict[str, tuple[Any, Any, Any]] = {
    "binary vector": (mg.MetricLoss("f1"), 0, LABELS[:, 0]),
    "binary columns": (mg.MetricLoss("mcc", task="binary", surrogate=s.Sigmoid()), slice(None), LABELS),
    "multilabel": (mg.MetricLoss("f1", task="multilabel"), slice(None), LABELS),
    "micro": (mg.MetricLoss("mcc", task="multilabel", average="micro", surrogate=s.Identity()), slice(None), LABELS),
    "samples": (mg.MetricLoss("f1", task="multilabel", average="samples"), slice(None), LABELS),
    "thresholds": (mg.MetricLoss("f1", task="multilabel", threshold=[0.3, 0.6]), slice(None), LABELS),
    "labels that compete": (mg.presets.mfom_f1(K), slice(None), LABELS),
    "multiclass": (mg.MetricLoss("f1", task="multiclass"), slice(None), CLASSES),
    "matrix": (mg.MetricLoss("mcc", task="multiclass"), slice(None), CLASSES),
    "per class": (mg.MetricLoss("f1", task="multilabel", average=None), slice(None), LABELS),
}
GIVEN: dict[str, dict[str, Tensor]] = {
    "nothing": {},
    "weight": {"weight": WEIGHT},
    "mask": {"mask": MASK},
    "both": {"weight": WEIGHT, "mask": MASK},
}


def given_for(name: str, given: str) -> dict[str, Tensor]:
    """Return weights and masks, one per element where all columns are one class."""
    found = GIVEN[given]
    return {key: x.unsqueeze(1).expand(N, K) for key, x in found.items()} if name == "binary columns" else found


def forward_mode(function: Any, x: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """Return value and tangent."""
    with forward_ad.dual_level():
        value, tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(x, direction)))
        assert tangent is not None
        return value.clone(), tangent.clone()


def in_direction(loss: Any, z: Tensor, y: Tensor, direction: Tensor, **given: Tensor) -> Tensor:
    """Return the derivative by plain operations in float64, one output at a time: the kernel does not take part."""
    z = z.detach().requires_grad_()
    plain = torch.func.vmap(lambda one: loss(one, y, **given))(z.unsqueeze(0))[0]
    each = [(torch.autograd.grad(value, z, retain_graph=True)[0] * direction).sum() for value in plain.reshape(-1)]
    return torch.stack(each).reshape(plain.shape)


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("name", CASES)
def test_derivative_in_a_direction(name: str, given: str) -> None:
    loss, columns, y = CASES[name]
    loss, z, direction, more = loss.double(), Z[:, columns], DIRECTION[:, columns], given_for(name, given)
    expected = in_direction(loss, z, y, direction, **more)
    assert expected.abs().min() > 1e-6
    value, tangent = forward_mode(lambda x: loss(x, y, **more), z, direction)
    torch.testing.assert_close(value, loss(z, y, **more))
    torch.testing.assert_close(tangent, expected, rtol=1e-9, atol=1e-12)
    tangent = torch.func.jvp(lambda x: loss(x, y, **more), (z,), (direction,))[1]
    torch.testing.assert_close(tangent, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in CASES if name != "labels that compete"])
def test_narrow_types(name: str, dtype: torch.dtype) -> None:
    loss, columns, y = CASES[name]
    z, direction = Z[:, columns].to(dtype), DIRECTION[:, columns].to(dtype)
    value, tangent = forward_mode(lambda x: loss(x, y), z, direction)
    assert value.dtype == tangent.dtype == torch.float32
    expected = in_direction(loss, z.double(), y, direction.double())
    rtol, atol = (1e-4, 1e-5) if dtype is torch.float32 else (3e-2, 3e-3)
    torch.testing.assert_close(tangent.double(), expected, rtol=rtol, atol=atol)


def test_learned_numbers_have_tangents() -> None:
    def loss(beta: Tensor) -> Any:
        return mg.MetricLoss("f1", task="multilabel", surrogate=s.LogitSigmoid(beta))(Z, LABELS)

    beta, direction = torch.rand(K, generator=G).double() + 1, torch.randn(K, generator=G).double()
    leaf = beta.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(forward_mode(loss, beta, direction)[1], gradient @ direction)


def test_targets_and_weights_have_tangents() -> None:
    loss = mg.MetricLoss("f1", task="multilabel", surrogate=s.Sigmoid()).double()
    soft = torch.rand(N, K, dtype=torch.float64, generator=G)
    functions: list[tuple[Any, Tensor]] = [(lambda y: loss(Z, y, WEIGHT), soft), (lambda w: loss(Z, soft, w), WEIGHT)]
    for function, x in functions:
        leaf, direction = x.clone().requires_grad_(), torch.randn(x.shape, dtype=x.dtype, generator=G)
        (gradient,) = torch.autograd.grad(function(leaf), leaf)
        torch.testing.assert_close(forward_mode(function, x, direction)[1], (gradient * direction).sum())


def test_statistics_have_tangents() -> None:
    loss = mg.MetricLoss("f1", task="multilabel").double()
    leaf = Z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss.counts(leaf, LABELS).tp.sum(), leaf)
    tangent = forward_mode(lambda z: loss.counts(z, LABELS).tp.sum(), Z, DIRECTION)[1]
    torch.testing.assert_close(tangent, (gradient * DIRECTION).sum())


@pytest.mark.parametrize("name", ["multilabel", "micro", "matrix", "multiclass", "binary vector"])
def test_hessian_times_a_vector(name: str) -> None:
    """Forward over reverse equals reverse over reverse, and the Hessian of torch.func."""
    loss, columns, y = CASES[name]
    loss, z, direction = loss.double(), Z[:, columns].clone().requires_grad_(), DIRECTION[:, columns]
    (gradient,) = torch.autograd.grad(loss(z, y), z, create_graph=True)
    (expected,) = torch.autograd.grad(gradient, z, direction)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(z, direction)
        (gradient,) = torch.autograd.grad(loss(dual, y), dual)
        tangent = forward_ad.unpack_dual(gradient).tangent
        assert tangent is not None
        torch.testing.assert_close(tangent, expected)
    hessian = torch.func.hessian(lambda x: loss(x, y))(z.detach())
    torch.testing.assert_close((hessian.reshape(z.numel(), -1) @ direction.reshape(-1)).view_as(expected), expected)
    by_columns = torch.func.jacfwd(lambda x: loss(x, y))(z.detach())
    torch.testing.assert_close(by_columns, torch.autograd.grad(loss(z, y), z)[0])


def test_every_target_is_checked_in_forward_mode() -> None:
    for average in ("macro", None):
        loss: Any = mg.MetricLoss("f1", task="multilabel", average=average)
        with pytest.raises(ValueError, match="targets: expected values in"):
            forward_mode(lambda z, loss=loss: loss(z, 2 + LABELS), Z, DIRECTION)
