"""Metrics of each image: the mean of what the same loss gives for every image alone, and MONAI's Dice and Jaccard."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import metricgrad as mg
from metricgrad import surrogates as s

G = torch.Generator().manual_seed(5)
N, K = 4, 3
Z = torch.randn(N, K, 5, 6, dtype=torch.float64, generator=G)
INDEX = torch.randint(K, (N, 5, 6), generator=G)
INDEX[1][INDEX[1] == 2] = 0  # a class that one image lacks
INDEX[2] = 0  # nothing but background
HOT = (INDEX.unsqueeze(1) == torch.arange(K).view(K, 1, 1)).double()
WEIGHT = torch.rand(N, dtype=torch.float64, generator=G)

CASES: dict[str, tuple[dict[str, Any], Tensor, Tensor]] = {
    "binary": ({"metric": "f1", "task": "binary"}, Z[:, 0], HOT[:, 0]),
    "binary, an axis of one": ({"metric": "mcc", "task": "binary"}, Z[:, :1], HOT[:, 0]),
    "multilabel": ({"metric": "jaccard", "task": "multilabel"}, Z, HOT),
    "multilabel, micro": ({"metric": "f1", "task": "multilabel", "average": "micro"}, Z, HOT),
    "multilabel, thresholds": ({"metric": "f1", "task": "multilabel", "threshold": [0.3, 0.6]}, Z, HOT),
    "multilabel, per class": ({"metric": "f1", "task": "multilabel", "average": None}, Z, HOT),
    "multiclass": ({"metric": "f1", "task": "multiclass"}, Z, INDEX),
    "multiclass, soft labels": ({"metric": "f1", "task": "multiclass"}, Z, HOT),
    "multiclass, dice": ({"metric": "f1", "task": "multiclass", "surrogate": s.Identity(), "labels": [1, 2]}, Z, INDEX),
    "multiclass, weighted": ({"metric": "jaccard", "task": "multiclass", "average": "weighted"}, Z, INDEX),
    "multiclass, per class": ({"metric": "f2", "task": "multiclass", "average": None, "labels": [0, 2]}, Z, INDEX),
    "own surrogate": ({"metric": "f1", "task": "multilabel", "surrogate": torch.sigmoid}, Z, HOT),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_mean_over_the_images_alone(name: str) -> None:
    options, z, y = CASES[name]
    loss, whole = mg.MetricLoss(**options, per_image=True), mg.MetricLoss(**options)
    leaf = z.clone().requires_grad_()
    each = torch.stack([whole(leaf[n : n + 1], y[n : n + 1]) for n in range(N)])
    for weight in (None, WEIGHT):
        w = (torch.ones(N) if weight is None else weight).to(z.dtype)
        expected = torch.tensordot(w, each, 1) / w.sum()
        value = loss(leaf, y, weight)
        torch.testing.assert_close(value, expected)
        slopes = [torch.autograd.grad(x.sum(), leaf, retain_graph=True)[0] for x in (value, expected)]
        torch.testing.assert_close(*slopes)
    assert not torch.allclose(loss(z, y), whole(z, y))


@pytest.mark.parametrize("name", CASES)
def test_gradients_and_additive_statistics(name: str) -> None:
    options, z, y = CASES[name]
    loss = mg.MetricLoss(**options, per_image=True)
    leaf = z[:2, ..., :2, :3].clone().requires_grad_()
    small = y[:2, ..., :2, :3]
    assert torch.autograd.gradcheck(lambda z: loss(z, small), leaf)
    parts = loss.counts(z[:1], y[:1]) + loss.counts(z[1:], y[1:])
    assert isinstance(parts, mg.Mean)
    torch.testing.assert_close(1 - loss.value(parts), loss(z, y))
    twin = pickle.loads(pickle.dumps(mg.MetricLoss("f1", per_image=True)))  # noqa: S301
    assert "per_image=True" in repr(twin)


@pytest.mark.parametrize("name", [name for name in CASES if "per class" not in name])
def test_transformations(name: str) -> None:
    options, z, y = CASES[name]
    loss = mg.MetricLoss(**options, per_image=True)
    whole = z.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(whole, y), whole)
    torch.testing.assert_close(torch.func.grad(loss)(z, y), expected)
    torch.compiler.reset()
    value = torch.compile(loss, fullgraph=True, backend="aot_eager")(whole, y)
    torch.testing.assert_close(torch.autograd.grad(value, whole)[0], expected)


def test_exact_backward_of_images_equals_one_batch() -> None:
    model = nn.Conv2d(2, K, 1).double()
    x = torch.randn(N, 2, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    loss = mg.MetricLoss("f1", task="multiclass", per_image=True)
    value = loss(model(x), INDEX)
    expected = torch.autograd.grad(value, list(model.parameters()))
    found = mg.exact_backward(loss, model, [(x[:1], INDEX[:1]), (x[1:], INDEX[1:])])
    torch.testing.assert_close(found, value.detach())
    torch.testing.assert_close([p.grad for p in model.parameters()], list(expected))


def test_absent_classes_and_images_without_any_are_skipped() -> None:
    options: dict[str, Any] = {"task": "multiclass", "surrogate": s.Identity(), "labels": [1, 2]}
    alone = mg.MetricLoss("f1", **{**options, "average": None})
    each = torch.stack([alone(Z[n : n + 1], INDEX[n : n + 1]) for n in range(N)])  # (images, classes)
    present = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]).double()
    skipping = mg.MetricLoss("f1", **options, empty_classes="skip", per_image=True)
    images = (each * present).sum(1)[[0, 1, 3]] / present.sum(1)[[0, 1, 3]]
    torch.testing.assert_close(skipping(Z, INDEX), images.mean())
    classes = mg.MetricLoss("f1", **options, empty_classes="skip", average=None, per_image=True)
    torch.testing.assert_close(classes(Z, INDEX), (each * present).sum(0) / present.sum(0))


def test_what_is_masked_is_deleted() -> None:
    keep = torch.rand(N, 5, 6, generator=G) < 0.6
    keep[3] = False  # an image of which nothing counts
    loss = mg.MetricLoss("f1", task="multiclass", per_image=True)
    rows = [(Z[n][:, keep[n]].t(), INDEX[n][keep[n]]) for n in range(3)]
    expected = torch.stack([mg.MetricLoss("f1", task="multiclass")(*row) for row in rows]).mean()
    torch.testing.assert_close(loss(Z.where(keep.unsqueeze(1), torch.nan), INDEX, mask=keep), expected)
    ignoring = mg.MetricLoss("f1", task="multiclass", per_image=True, ignore_index=255)
    torch.testing.assert_close(ignoring(Z, INDEX.where(keep, 255)), expected)
    times = torch.tensor([2, 0, 1, 3])
    again = loss(Z.repeat_interleave(times, 0), INDEX.repeat_interleave(times, 0))
    torch.testing.assert_close(loss(Z, INDEX, times), again)
    for z, y, mask in ((Z[:0], INDEX[:0], None), (Z, INDEX, keep & False)):
        leaf = z.clone().requires_grad_()
        value = loss(leaf, y, mask=mask)
        assert value.isfinite()
        assert (torch.autograd.grad(value, leaf)[0] == 0).all()


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("metric", ["f1", "jaccard"])
def test_dice_and_jaccard_are_those_of_monai(metric: str, background: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its imports warn
        losses = pytest.importorskip("monai.losses")
        options = {"jaccard": metric == "jaccard", "include_background": background, "smooth_nr": 0, "smooth_dr": 1e-15}
        classes = losses.DiceLoss(softmax=True, to_onehot_y=True, **options)(Z, INDEX.unsqueeze(1))
        labels = losses.DiceLoss(sigmoid=True, **options)(Z, HOT)
    chosen: dict[str, Any] = {"surrogate": s.Identity(), "labels": None if background else [1, 2], "per_image": True}
    torch.testing.assert_close(mg.MetricLoss(metric, task="multiclass", **chosen)(Z, INDEX), classes)
    torch.testing.assert_close(mg.MetricLoss(metric, task="multilabel", **chosen)(Z, HOT), labels)


BAD: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: mg.MetricLoss("kappa", task="multiclass", per_image=True),
        "per_image: expected False with kappa, of the d×d matrix, got True",
    ),
    (
        lambda: mg.MetricLoss("f1", task="multilabel", average="samples", per_image=True),
        "per_image: expected False with average='samples', got True; leave it out",
    ),
    (
        lambda: mg.MetricLoss("f1", task="multiclass", per_image=True)(Z, INDEX + 1),
        "targets: expected class indices 0 to 2",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_gets_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
