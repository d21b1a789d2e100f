"""Maps ``(N, K, ...)``, worked on in place, image by image, against plain operations on rows; in chunks of any size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import metricgrad as mg
from metricgrad import surrogates as s
from metricgrad.core import batch, chunking
from metricgrad.core.processes import across

G = torch.Generator().manual_seed(3)
N, K, H, W = 3, 4, 5, 6
Z = 2 * torch.randn(N, K, H, W, dtype=torch.float64, generator=G)
INDEX = torch.randint(K, (N, H, W), generator=G)
INDEX[1][INDEX[1] == 2] = 0  # a class that one image lacks
HOT = (INDEX.unsqueeze(1) == torch.arange(K).view(K, 1, 1)).double()
SOFT = torch.softmax(torch.randn(N, K, H, W, dtype=torch.float64, generator=G), 1)
TARGETS = {"indices": INDEX, "soft": SOFT}
WEIGHTS: dict[str, dict[str, Any]] = {
    "none": {},
    "per image": {"weight": torch.rand(N, dtype=torch.float64, generator=G)},
    "per position": {"weight": torch.rand(N, H, W, dtype=torch.float64, generator=G)},
    "mask": {"mask": torch.rand(N, H, W, generator=G) < 0.6},
}
MULTICLASS: dict[str, dict[str, Any]] = {
    "default": {"metric": "f1"},
    "dice": {"metric": "f1", "surrogate": s.Identity()},
    "autograd": {"metric": "f1", "surrogate": s.LogitSigmoid()},
    "micro of labels": {"metric": "jaccard", "average": "micro", "labels": [1, 3]},
    "weighted": {"metric": "f2", "average": "weighted"},
    "skip": {"metric": "f1", "empty_classes": "skip"},
}
OF_MATRIX = ["mcc", "accuracy", "balanced_accuracy", "kappa", "g_mean", "quadratic_kappa"]
MULTILABEL: dict[str, dict[str, Any]] = {
    "default": {"metric": "f1"},
    "thresholds": {"metric": "f1", "threshold": [0.3, 0.6]},
    "learned": {"metric": "f1", "surrogate": s.LogitSigmoid(torch.ones(K).double(), torch.zeros(K).double())},
}


@pytest.fixture(autouse=True, params=["an image a chunk", "uneven chunks"])
def small_images_are_maps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MIN_MAP_ELEMENTS", 1)
    if request.param == "uneven chunks":
        monkeypatch.setattr(chunking, "MAX_IMAGE_CHUNK_ELEMENTS", 7 * K)
        monkeypatch.setattr(chunking, "MAX_NEW_BUFFER_ELEMENTS", 1)


def assert_equals_plain(loss: Any, z: Tensor, y: Tensor, tolerance: float = 1e-11, **more: Any) -> None:
    """Check value, gradient and statistic against plain operations in float64, which ``torch.func`` makes it use."""
    gradient, value = torch.func.grad_and_value(lambda x: loss(x, y, **more))(z.double())
    leaf = z.detach().requires_grad_()
    found = loss(leaf, y, **more)
    assert type(found.grad_fn).__name__ == "KernelBackward"
    scale = gradient.abs().max().item()
    for result in (found, 1 - loss.value(loss.counts(leaf, y, **more))):
        torch.testing.assert_close(result.detach().double(), value, rtol=tolerance, atol=tolerance)
        (slope,) = torch.autograd.grad(result, leaf)
        assert slope.dtype is z.dtype
        torch.testing.assert_close(slope.double(), gradient, rtol=tolerance, atol=tolerance * scale)
    torch.testing.assert_close(loss(z, y, **more).double(), value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("targets", ["indices", "soft"])
@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize("name", MULTICLASS)
def test_multiclass(name: str, per_image: bool, targets: str, weight: str) -> None:
    loss = mg.MetricLoss(task="multiclass", per_image=per_image, **MULTICLASS[name])
    assert_equals_plain(loss, Z, TARGETS[targets], **WEIGHTS[weight])


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("targets", ["indices", "soft"])
@pytest.mark.parametrize("name", OF_MATRIX)
def test_metrics_of_the_matrix(name: str, targets: str, weight: str) -> None:
    assert_equals_plain(mg.MetricLoss(name, task="multiclass"), Z, TARGETS[targets], **WEIGHTS[weight])


@pytest.mark.parametrize("weight", [*WEIGHTS, "per label", "per element"])
@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize("name", MULTILABEL)
def test_multilabel(name: str, per_image: bool, weight: str) -> None:
    more = WEIGHTS.get(weight, {"weight": SOFT if weight == "per element" else SOFT[:, :, 0, 0]})
    loss = mg.MetricLoss(task="multilabel", per_image=per_image, **MULTILABEL[name])
    assert_equals_plain(loss, Z, HOT, **more)


@pytest.mark.parametrize("per_image", [False, True])
def test_binary_images(per_image: bool) -> None:
    loss = mg.MetricLoss("f1", task="binary", per_image=per_image)
    assert_equals_plain(loss, Z[:, :1], HOT[:, 0])
    assert_equals_plain(loss, Z[:, 0], HOT[:, 0], **WEIGHTS["per position"])


MEMORY: dict[str, Any] = {
    "contiguous": lambda z: z,
    "channels last": lambda z: z.contiguous(memory_format=torch.channels_last),
    "cropped": lambda z: nn.functional.pad(z, (1, 1, 2, 2))[:, :, 2:-2, 1:-1],
    "flipped axes": lambda z: z.transpose(2, 3).contiguous().transpose(2, 3),
    "one axis": lambda z: z,
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("options", [{}, {"surrogate": s.Identity()}, {"per_image": True}], ids=str)
def test_types_and_memory(options: dict[str, Any], memory: str, dtype: torch.dtype) -> None:
    tolerance = {torch.float64: 1e-11, torch.float32: 5e-6, torch.bfloat16: 2e-2}[dtype]
    z = MEMORY[memory](Z.to(dtype))
    y = INDEX
    if memory == "one axis":
        z = z.flatten(2)
        y = y.flatten(1)
    assert_equals_plain(mg.MetricLoss("f1", task="multiclass", **options), z, y, tolerance)


@pytest.mark.parametrize("per_image", [False, True])
def test_ignore_index_is_a_mask(per_image: bool) -> None:
    keep = WEIGHTS["mask"]["mask"]
    options: dict[str, Any] = {"task": "multiclass", "per_image": per_image}
    unknown = Z.where(keep.unsqueeze(1), torch.nan)
    found = mg.MetricLoss("f1", **options, ignore_index=255)(unknown, INDEX.where(keep, 255))
    torch.testing.assert_close(found, mg.MetricLoss("f1", **options)(Z, INDEX, mask=keep))


@pytest.mark.parametrize("options", [{}, {"surrogate": s.Identity()}, {"per_image": True}, {"metric": "mcc"}], ids=str)
def test_transformations_and_second_derivatives(options: dict[str, Any]) -> None:
    loss = mg.MetricLoss(**{"metric": "f1", "task": "multiclass", **options})
    small = Z[:2, :, :2, :2].clone().requires_grad_()
    y = INDEX[:2, :2, :2]
    assert torch.autograd.gradcheck(lambda z: loss(z, y), small)
    assert torch.autograd.gradgradcheck(lambda z: loss(z, y), small)
    (expected,) = torch.autograd.grad(loss(small, y), small)
    torch.compiler.reset()
    value = torch.compile(loss, fullgraph=True, backend="aot_eager")(small, y)
    torch.testing.assert_close(torch.autograd.grad(value, small)[0], expected)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, in dual_level
def test_forward_mode() -> None:
    loss = mg.MetricLoss("f1", task="multiclass", per_image=True)
    leaf = Z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf, INDEX), leaf)
    tangent = torch.ones_like(Z).cumsum(-1)
    with torch.autograd.forward_ad.dual_level():
        value = loss(torch.autograd.forward_ad.make_dual(Z, tangent), INDEX)
        derivative = torch.autograd.forward_ad.unpack_dual(value).tangent
    torch.testing.assert_close(derivative, (gradient * tangent).sum())


@pytest.mark.parametrize("options", [{}, {"per_image": True}, {"metric": "mcc"}], ids=str)
def test_exact_backward_equals_one_batch(options: dict[str, Any]) -> None:
    model = nn.Conv2d(2, K, 1).double()
    x = torch.randn(N, 2, H, W, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    loss = mg.MetricLoss(**{"metric": "f1", "task": "multiclass", **options})
    value = loss(model(x), INDEX)
    expected = torch.autograd.grad(value, list(model.parameters()))
    found = mg.exact_backward(loss, model, [(x[:1], INDEX[:1]), (x[1:], INDEX[1:])])
    torch.testing.assert_close(found, value.detach())
    torch.testing.assert_close([p.grad for p in model.parameters()], list(expected))


class ThreeAlike:
    """Processes that all have the same data as this one."""

    size = 3
    rank = 0

    def check_alike(self, cells: Any) -> None:
        """Find nothing to refuse."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Return three times the own one."""
        return 3 * tensor

    def sum_gradient(self, gradient: Tensor, mean: bool = False) -> Tensor:
        """Return the sum, or the mean, of three equal gradients."""
        return gradient if mean else 3 * gradient

    def stack(self, tensor: Tensor) -> Tensor:
        """Return the own one three times."""
        return torch.stack([tensor] * 3)


@pytest.mark.parametrize("options", [{}, {"per_image": True}, {"metric": "mcc"}], ids=str)
def test_the_counts_of_all_processes(options: dict[str, Any]) -> None:
    """Of three times the same data the value is the same, and the gradient is what averaging over processes expects."""
    loss = mg.MetricLoss(**{"metric": "f1", "task": "multiclass", **options})
    leaf = Z.clone().requires_grad_()
    alone = loss(leaf, INDEX)
    (expected,) = torch.autograd.grad(alone, leaf)
    with across(ThreeAlike()):
        together = loss(leaf, INDEX)
        (found,) = torch.autograd.grad(together, leaf)
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(found, expected)


def test_one_loss_per_class() -> None:
    loss = mg.MetricLoss("f1", task="multiclass", average=None, per_image=True)
    leaf = Z.clone().requires_grad_()
    values = loss(leaf, INDEX)
    assert values.shape == (K,)
    torch.testing.assert_close(values.mean(), mg.MetricLoss("f1", task="multiclass", per_image=True)(leaf, INDEX))


def test_equal_logits_have_a_gradient_that_sums_to_zero() -> None:
    """The two largest of equal probabilities are any two of them."""
    leaf = torch.zeros(1, K, 2, 3, dtype=torch.float64, requires_grad=True)
    y = INDEX[:1, :2, :3]
    (gradient,) = torch.autograd.grad(mg.MetricLoss("f1", task="multiclass")(leaf, y), leaf)
    assert gradient.isfinite().all()
    torch.testing.assert_close(gradient.sum(1), torch.zeros(1, 2, 3, dtype=torch.float64))


@pytest.mark.parametrize("surrogate", [s.TopTwo(), s.Identity()], ids=repr)
@pytest.mark.parametrize("rows", [1, 7, N * H * W])
def test_rows_whose_memory_is_class_by_class(surrogate: Any, rows: int) -> None:
    z = Z.movedim(1, 0).reshape(K, -1)[:, :rows].t()
    assert_equals_plain(mg.MetricLoss("f1", task="multiclass", surrogate=surrogate), z, INDEX.flatten()[:rows])


def test_nan_stays_visible() -> None:
    z = Z.clone()
    z[0, 1, 2, 3] = torch.nan
    for surrogate in (s.TopTwo(), s.Identity()):
        assert mg.MetricLoss("f1", task="multiclass", surrogate=surrogate)(z.requires_grad_(), INDEX).isnan()


def test_the_gradient_is_the_only_memory_of_the_size_of_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No copy with the classes last: the kernel gets a view of the logits, and writes their gradient in this order."""
    leaf = Z.clone().requires_grad_()
    for options in ({}, {"per_image": True}, {"surrogate": s.Identity()}):
        loss = mg.MetricLoss("f1", task="multiclass", **options)
        call = loss._prepare_call(leaf, INDEX, None, None)
        assert call.logits.shape == (N, K, H * W)
        assert call.logits.data_ptr() == leaf.data_ptr()
        (gradient,) = torch.autograd.grad(loss(leaf, INDEX), leaf)
        assert gradient.is_contiguous()
    channels_last = leaf.detach().contiguous(memory_format=torch.channels_last)
    call = mg.MetricLoss("f1", task="multiclass")._prepare_call(channels_last, INDEX, None, None)
    assert call.logits.shape == (N * H * W, K)
    assert call.logits.data_ptr() == channels_last.data_ptr()
    monkeypatch.setattr(batch, "MIN_MAP_ELEMENTS", K * H * W + 1)
    call = mg.MetricLoss("f1", task="multiclass")._prepare_call(leaf, INDEX, None, None)
    assert call.logits.shape == (N * H * W, K)


@pytest.mark.parametrize("label", [-1, K])
@pytest.mark.parametrize("metric", ["f1", "mcc"])
def test_wrong_labels_of_rows_get_one_line(metric: str, label: int) -> None:
    leaf = Z.flatten(1)[:, :K].clone().requires_grad_()
    with pytest.raises(ValueError, match="targets: expected class indices 0 to 3"):
        mg.MetricLoss(metric, task="multiclass")(leaf, torch.tensor([0, label, 2]))


def test_wrong_labels_get_one_line() -> None:
    leaf = Z.clone().requires_grad_()
    y = INDEX.clone()
    y[2, 4, 5] = K
    with pytest.raises(ValueError, match="targets: expected class indices 0 to 3"):
        mg.MetricLoss("f1", task="multiclass")(leaf, y)
    with pytest.raises(ValueError, match=r"targets: expected values in \[0, 1\]"):
        mg.MetricLoss("f1", task="multilabel")(leaf, 2 * HOT)
    with pytest.raises(ValueError, match="weight: expected one value per sample for task='multiclass', got 4"):
        mg.MetricLoss("f1", task="multiclass")(leaf, INDEX, SOFT)


CROSS_ENTROPIES: dict[str, Any] = {
    "hybrid": lambda task: mg.HybridLoss("f1", task=task),
    "cross-entropy": lambda task: (mg.baselines.cross_entropy if task == "multiclass" else mg.baselines.bce)(task=task),
    "smoothed": lambda task: (
        mg.baselines.bce(task=task, label_smoothing=0.1)
        if task == "multilabel"
        else mg.baselines.cross_entropy(task=task, label_smoothing=0.1)
    ),
}


@pytest.mark.parametrize("name", CROSS_ENTROPIES)
@pytest.mark.parametrize("targets", ["indices", "soft", "labels"])
@pytest.mark.parametrize("weight", WEIGHTS)
def test_cross_entropy_of_maps_is_that_of_their_rows(name: str, targets: str, weight: str) -> None:
    loss = CROSS_ENTROPIES[name]("multilabel" if targets == "labels" else "multiclass")
    y = HOT if targets == "labels" else TARGETS[targets]
    given = WEIGHTS[weight]
    maps = Z.clone().requires_grad_()
    value = loss(maps, y, **given)
    (gradient,) = torch.autograd.grad(value, maps)
    rows = batch.to_rows(Z).clone().requires_grad_()
    of_rows = {key: part.reshape(N, *part.shape[1:] or (1, 1)).expand(N, H, W).flatten() for key, part in given.items()}
    expected = loss(rows, batch.to_rows(y) if y.dim() == 4 else y.flatten(), **of_rows)
    (row_gradient,) = torch.autograd.grad(expected, rows)
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(batch.to_rows(gradient), row_gradient, rtol=1e-9, atol=1e-15)
