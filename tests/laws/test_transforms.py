"""The loss under torch's transformations: second derivatives, torch.func, torch.compile, autocast, half precision."""

from __future__ import annotations

import copy
import pickle
import shutil
from typing import Any

import pytest
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad import surrogates as s
from metricgrad.core.chunking import MAX_UNSPLIT_ELEMENTS

G = torch.Generator().manual_seed(3)
Z = torch.randn(14, 3, dtype=torch.float64, generator=G)
LABELS = (torch.rand(14, 3, generator=G) < 0.4).double()
CLASSES = torch.randint(3, (14,), generator=G)
WEIGHT = torch.rand(14, dtype=torch.float64, generator=G)


def loss_of(metric: str, **options: Any) -> mg.MetricLoss:
    return mg.MetricLoss(metric, **options).double()


SMOOTH: dict[str, tuple[Any, Tensor]] = {
    "sigmoid macro": (loss_of("f1", task="multilabel", surrogate=s.Sigmoid()), LABELS),
    "logit sigmoid micro": (loss_of("mcc", task="multilabel", surrogate=s.LogitSigmoid(), average="micro"), LABELS),
    "identity samples": (loss_of("f1", task="multilabel", surrogate=s.Identity(), average="samples"), LABELS),
    "per class": (loss_of("kappa", task="multilabel", surrogate=s.Sigmoid(), average=None), LABELS),
    "thresholds": (loss_of("f1", task="multilabel", surrogate=s.Sigmoid(), threshold=[0.2, 0.7]), LABELS),
    "mfom": (mg.presets.mfom_f1(3).double(), LABELS),
    "learned": (loss_of("f1", task="multilabel", surrogate=s.Learned(s.LogitSigmoid(), 3)), LABELS),
    "softmax": (loss_of("f2", task="multiclass", surrogate=s.Identity()), CLASSES),
    "matrix": (loss_of("mcc", task="multiclass", surrogate=s.Identity()), CLASSES),
    "hybrid": (mg.HybridLoss("f1", task="multilabel", surrogate=s.Sigmoid()).double(), LABELS),
}
KINKED: dict[str, tuple[Any, Tensor]] = {
    "linear": (loss_of("f1", task="multilabel"), LABELS),
    "linear, off centre": (loss_of("g_mean", task="multilabel", threshold=0.3, empty_classes="skip"), LABELS),
    "top two": (loss_of("f1", task="multiclass"), CLASSES),
    "top two, matrix": (loss_of("accuracy", task="multiclass"), CLASSES),
}
EVERY = {**SMOOTH, **KINKED}


@pytest.mark.parametrize("name", EVERY)
def test_gradcheck(name: str) -> None:
    loss, y = EVERY[name]
    assert torch.autograd.gradcheck(lambda z: loss(z, y, WEIGHT), Z.clone().requires_grad_())


@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives(name: str) -> None:
    loss, y = SMOOTH[name]
    assert torch.autograd.gradgradcheck(lambda z: loss(z, y, WEIGHT), Z.clone().requires_grad_())


@pytest.mark.parametrize("name", ["sigmoid macro", "identity samples", "matrix", "mfom", "linear", "top two"])
def test_statistics_have_gradients_of_both_orders(name: str) -> None:
    loss, y = EVERY[name]
    z = Z.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss.counts(z, y, WEIGHT).cells(), z)
    if name in SMOOTH:
        assert torch.autograd.gradgradcheck(lambda z: loss.counts(z, y, WEIGHT).cells(), z)
    value = 1 - loss.value(loss.counts(z, y, WEIGHT))
    torch.testing.assert_close(value, loss(z, y, WEIGHT))
    mine, its = torch.autograd.grad(value, z)[0], torch.autograd.grad(loss(z, y, WEIGHT), z)[0]
    torch.testing.assert_close(mine, its)


@pytest.mark.parametrize("name", EVERY)
def test_torch_func(name: str) -> None:
    loss, y = EVERY[name]
    many = torch.stack([Z, Z.flip(0), 2 * Z])
    torch.testing.assert_close(
        torch.func.vmap(loss, in_dims=(0, None))(many, y), torch.stack([loss(z, y) for z in many])
    )
    z = Z.clone().requires_grad_()
    if loss(z, y).dim() == 0:
        (expected,) = torch.autograd.grad(loss(z, y), z)
        torch.testing.assert_close(torch.func.grad(loss)(Z, y), expected)
        torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss), in_dims=(0, None))(many, y)[0], expected)
    assert torch.func.jacrev(loss)(Z, y).shape == (*loss(z, y).shape, *Z.shape)


def compiled_equals_eager(loss: Any, y: Tensor, backend: str) -> None:
    torch.compiler.reset()
    z = Z.float().clone().requires_grad_()
    y = y.float() if y.is_floating_point() else y
    loss = copy.deepcopy(loss).float()
    value = torch.compile(loss, fullgraph=True, backend=backend)(z, y)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(value, loss(z, y))
    mine, its = torch.autograd.grad(value.sum(), z)[0], torch.autograd.grad(loss(z, y).sum(), z)[0]
    torch.testing.assert_close(mine, its)


@pytest.mark.parametrize("name", EVERY)
def test_compiles_without_graph_breaks(name: str) -> None:
    compiled_equals_eager(*EVERY[name], backend="aot_eager")


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's default backend compiles C++")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # torch's own, from inside inductor
def test_compiles_with_the_default_backend() -> None:
    compiled_equals_eager(*EVERY["linear"], backend="inductor")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["linear", "sigmoid macro", "top two", "top two, matrix", "mfom"])
def test_half_precision_logits_are_counted_in_float32(name: str, dtype: torch.dtype) -> None:
    loss, y = EVERY[name]
    loss = copy.deepcopy(loss).float()
    z = Z.to(dtype).requires_grad_()
    value = loss(z, y)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(z.float(), y))
    (gradient,) = torch.autograd.grad(value, z)
    assert gradient.dtype == dtype
    wide = z.detach().float().requires_grad_()
    (expected,) = torch.autograd.grad(loss(wide, y), wide)
    torch.testing.assert_close(gradient.float(), expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("name", EVERY)
def test_autocast_leaves_the_loss_alone(name: str) -> None:
    loss, y = EVERY[name]
    loss = copy.deepcopy(loss).float()
    z = Z.float()
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(z, y)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(z, y), rtol=0, atol=0)


def test_a_thousand_small_memberships_in_bfloat16_add_up() -> None:
    z = torch.logit(torch.full((1000, 1), 0.1)).bfloat16()
    counts = mg.MetricLoss("f1", task="multilabel", surrogate=s.Identity()).counts(z, torch.ones(1000, 1))
    assert abs(counts.tp.item() - 100) < 1


@pytest.mark.parametrize("more", [0, 1], ids=["below", "above"])
def test_backward_twice_and_without_the_first_gradient(more: int) -> None:
    """On both sides of the size up to which a batch is one chunk."""
    shape = (MAX_UNSPLIT_ELEMENTS // 2 + more, 2)
    z = torch.randn(shape, generator=G).requires_grad_()
    y = (torch.rand(shape, generator=G) < 0.3).float()
    loss = mg.MetricLoss("f1", task="multilabel")
    value = loss(z, y)
    (first,) = torch.autograd.grad(value, z, retain_graph=True)
    first = first.clone()
    (second,) = torch.autograd.grad(value, z, torch.tensor(2.0))
    torch.testing.assert_close(second, 2 * first)


ONE_CLASS = {
    repr(step): (loss_of("f1", surrogate=step), LABELS[:, 0]) for step in (s.Linear(), s.Sigmoid(), s.Identity())
}


@pytest.mark.parametrize("name", [*EVERY, *ONE_CLASS])
def test_backward_is_the_same_every_time(name: str) -> None:
    """As ``gradcheck`` demands, without weights too, which is another path."""
    loss, y = {**EVERY, **ONE_CLASS}[name]
    z = (Z[:, 0] if name in ONE_CLASS else Z).clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, y), z)
    value = loss(z, y).sum()
    first, *rest = (torch.autograd.grad(value, z, retain_graph=True)[0].clone() for _ in range(3))
    assert all(torch.equal(first, other) for other in rest)


def test_losses_of_labellings_have_no_second_derivatives() -> None:
    """What README.md says of them."""
    for loss in (mg.StructuredHingeLoss("f1"), mg.AdversarialLoss("f1")):
        z = Z[:, 0].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(z, LABELS[:, 0]), z, create_graph=True)
        assert not gradient.requires_grad


def test_targets_changed_before_backward_are_noticed() -> None:
    z, y = torch.randn(5, 2, generator=G).requires_grad_(), torch.ones(5, 2)
    value = mg.MetricLoss("f1", task="multilabel")(z, y)
    y.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


@pytest.mark.parametrize("name", EVERY)
def test_losses_pickle_and_copy(name: str) -> None:
    loss, y = EVERY[name]
    expected = loss(Z, y)
    for twin in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):  # noqa: S301
        torch.testing.assert_close(twin(Z, y), expected)


def test_gradient_by_soft_labels_and_weights() -> None:
    loss = loss_of("f1", task="multilabel", surrogate=s.Sigmoid())
    soft = torch.rand(14, 3, dtype=torch.float64, generator=G).requires_grad_()
    weight = WEIGHT.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda y, w: loss(Z, y, w), (soft, weight))
