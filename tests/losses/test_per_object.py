"""Losses of objects: values and gradients against a loop over objects, and the laws of additive statistics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

import metricgrad as mg
from metricgrad.surrogates import Identity


def make_maps(seed: int = 0, images: int = 3, size: tuple[int, ...] = (8, 9)) -> tuple[Tensor, Tensor]:
    """Return logits in float64 and maps of objects: rectangles, one image without any, one object of one position."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(images, *size, generator=generator, dtype=torch.float64)
    instances = torch.zeros(images, *size, dtype=torch.int64)
    instances[0, 1:3, 1:4] = 1
    instances[0, 5:7, 5:8] = 7
    instances[1, 0, 0] = 1
    return logits, instances


def f1(tp: Tensor, fp: Tensor, fn: Tensor) -> Tensor:
    return 2 * tp / (2 * tp + fp + fn)


def jaccard(tp: Tensor, fp: Tensor, fn: Tensor) -> Tensor:
    return tp / (tp + fp + fn)


def reference_loss(
    memberships: Tensor, instances: Tensor, background: str, metric: Callable[..., Tensor], weight: Tensor | None = None
) -> Tensor:
    """Return 1 − the mean over objects, by a loop over them."""
    weight = torch.ones_like(memberships) if weight is None else weight
    values = []
    weights = []
    for m, numbers, w in zip(memberships, instances, weight, strict=True):
        is_background = numbers == 0
        for number in numbers.unique():
            if number == 0:
                continue
            inside = numbers == number
            tp = (w * m)[inside].sum()
            fn = w[inside].sum() - tp
            fp = (w * m)[is_background].sum()
            if background == "shared":
                fp = fp * w[inside].sum() / w[~is_background].sum()
            values.append(metric(tp, fp, fn))
            weights.append(w[inside].mean())
    total_weight = torch.stack(weights)
    return 1 - (torch.stack(values) * total_weight).sum() / total_weight.sum()


@pytest.mark.parametrize("background", ["full", "shared"])
@pytest.mark.parametrize(("name", "metric"), [("f1", f1), ("jaccard", jaccard)])
def test_value_and_gradient_of_a_loop_over_objects(background: Any, name: str, metric: Callable[..., Tensor]) -> None:
    logits, instances = make_maps()
    logits.requires_grad_()
    loss = mg.MetricLoss(name, surrogate=Identity(), per_object=background)
    value = loss(logits, instances > 0, instances=instances)
    expected = reference_loss(logits.sigmoid(), instances, background, metric)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    (gradient,) = torch.autograd.grad(value, logits)
    (expected_gradient,) = torch.autograd.grad(expected, logits)
    assert torch.allclose(gradient, expected_gradient, atol=1e-12)
    assert torch.autograd.gradcheck(lambda z: loss(z, instances > 0, instances=instances), logits)


def test_blob_loss_is_the_special_case_dice() -> None:
    """Blob loss: Dice of each object with all other objects of its image left out [kofler2022]."""
    logits, instances = make_maps()
    loss = mg.MetricLoss("f1", surrogate=Identity(), per_object="full")
    values = []
    for image, numbers in zip(logits.sigmoid(), instances, strict=True):
        for number in range(1, int(numbers.max()) + 1):
            target = (numbers == number).double()
            if not target.any():
                continue
            without_others = (numbers == 0) | (numbers == number)
            p = image[without_others]
            y = target[without_others]
            values.append(2 * (p * y).sum() / (p.sum() + y.sum()))
    expected = 1 - torch.stack(values).mean()
    assert loss(logits, instances > 0, instances=instances).item() == pytest.approx(expected.item(), abs=1e-12)


def test_a_small_object_weighs_as_much_as_a_large_one() -> None:
    instances = torch.zeros(1, 20, 20, dtype=torch.int64)
    instances[0, :10, :10] = 1
    instances[0, 15, 15] = 2
    targets = instances > 0
    misses_large = torch.where(instances == 2, 9.0, -9.0)
    misses_small = torch.where(instances == 1, 9.0, -9.0)
    of_objects = mg.MetricLoss("recall", per_object="full")
    of_positions = mg.MetricLoss("recall")
    assert of_objects(misses_large, targets, instances=instances) == pytest.approx(
        of_objects(misses_small, targets, instances=instances).item(), abs=1e-4
    )
    assert of_positions(misses_large, targets) > 0.9
    assert of_positions(misses_small, targets) < 0.1


def test_weights_and_masks() -> None:
    logits, instances = make_maps()
    weight = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    loss = mg.MetricLoss("f1", surrogate=Identity(), per_object="shared")
    targets = instances > 0
    value = loss(logits, targets, weight, None, instances)
    expected = reference_loss(logits.sigmoid(), instances, "shared", f1, weight)
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    # A masked position is as one of weight 0, whatever stands there; a masked object is gone.
    mask = torch.ones_like(targets)
    mask[0, 1:3, 1:4] = False
    mask[2, 0] = False
    spoiled = logits.where(mask, torch.nan)
    without = instances.where(mask, 0)
    masked = loss(spoiled, targets, None, mask, instances)
    kept = (mask.double() / mask.double()).nan_to_num(0.0)
    expected = reference_loss(logits.sigmoid() * kept, without, "shared", f1, kept)
    assert masked.item() == pytest.approx(expected.item(), abs=1e-12)


def test_ignore_index() -> None:
    logits, instances = make_maps()
    targets = (instances > 0).long()
    targets[0, 1] = -1
    loss = mg.MetricLoss("f1", per_object="full", ignore_index=-1)
    masked = mg.MetricLoss("f1", per_object="full")(logits, instances > 0, None, targets != -1, instances)
    assert loss(logits, targets, instances=instances) == masked


def test_three_dimensions() -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(2, 4, 5, 6, generator=generator, dtype=torch.float64)
    instances = torch.zeros(2, 4, 5, 6, dtype=torch.int32)
    instances[0, :2, :2, :2] = 1
    instances[1, 2:, 2:, 2:] = 3
    loss = mg.MetricLoss("f1", task="binary", surrogate=Identity(), per_object="full")
    expected = reference_loss(logits.sigmoid(), instances, "full", f1)
    assert loss(logits, instances > 0, instances=instances).item() == pytest.approx(expected.item(), abs=1e-12)


def test_an_axis_of_one_class_may_be_there() -> None:
    logits, instances = make_maps()
    loss = mg.MetricLoss("f1", task="binary", per_object="full")
    plain = loss(logits, instances > 0, instances=instances)
    assert loss(logits.unsqueeze(1), (instances > 0).unsqueeze(1), instances=instances.unsqueeze(1)) == plain
    assert loss(logits.unsqueeze(1), (instances > 0).unsqueeze(1), instances=instances) == plain


def test_images_without_objects_add_nothing() -> None:
    logits, instances = make_maps()
    loss = mg.MetricLoss("f1", per_object="full")
    first_two = loss(logits[:2], instances[:2] > 0, instances=instances[:2])
    assert loss(logits, instances > 0, instances=instances) == first_two
    empty = logits[2:].requires_grad_()
    value = loss(empty, instances[2:] > 0, instances=instances[2:])
    assert value == 1
    (gradient,) = torch.autograd.grad(value, empty)
    assert not gradient.any()


def test_several_labels_and_averages() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 3, 6, 6, generator=generator, dtype=torch.float64)
    instances = torch.zeros(2, 3, 6, 6, dtype=torch.int64)
    instances[0, 0, :2, :2] = 1
    instances[0, 0, 4:, 4:] = 2
    instances[1, 1, 2:4, 1:5] = 1
    options: dict[str, Any] = {"task": "multilabel", "surrogate": Identity(), "per_object": "full"}
    per_class = [reference_loss(logits[:, k].sigmoid(), instances[:, k], "full", f1).item() for k in (0, 1)]

    def loss_of(average: Any, **more: Any) -> Tensor:
        loss = mg.MetricLoss("f1", average=average, **options, **more)
        value: Tensor = loss(logits, instances > 0, instances=instances)
        return value

    assert loss_of(None).tolist() == pytest.approx([*per_class, 1.0], abs=1e-12)
    assert loss_of("macro").item() == pytest.approx(sum([*per_class, 1.0]) / 3, abs=1e-12)
    assert loss_of("macro", empty_classes="skip").item() == pytest.approx(sum(per_class) / 2, abs=1e-12)
    over_objects = (2 * per_class[0] + per_class[1]) / 3
    assert loss_of("micro").item() == pytest.approx(over_objects, abs=1e-12)
    assert loss_of("weighted").item() == pytest.approx(over_objects, abs=1e-12)
    assert loss_of("macro", labels=[1]).item() == pytest.approx(per_class[1], abs=1e-12)


def test_several_classes_are_as_many_labels() -> None:
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(2, 3, 6, 6, generator=generator, dtype=torch.float64)
    instances = torch.zeros(2, 6, 6, dtype=torch.int64)
    instances[0, :2, :2] = 1
    instances[0, 4:, 4:] = 2
    instances[1, 2:4, 1:5] = 1
    classes = torch.zeros_like(instances)
    classes[0, :2, :2] = 1
    classes[0, 4:, 4:] = 2
    classes[1, 2:4, 1:5] = 2
    loss = mg.MetricLoss("f1", task="multiclass", surrogate=Identity(), labels=[1, 2], per_object="full", average=None)
    memberships = logits.softmax(1)
    expected = []
    for k in (1, 2):
        values = []
        for image in (0, 1):
            background = memberships[image, k][classes[image] != k].sum()
            for number in (1, 2):
                inside = (instances[image] == number) & (classes[image] == k)
                if inside.any():
                    tp = memberships[image, k][inside].sum()
                    values.append(f1(tp, background, inside.sum() - tp))
        expected.append(1 - torch.stack(values).mean())
    value = loss(logits, classes, instances=instances)
    assert torch.allclose(value, torch.stack(expected), atol=1e-12)


def test_several_thresholds() -> None:
    logits, instances = make_maps()
    several = mg.MetricLoss("f1", threshold=[0.3, 0.6], per_object="shared")
    each = [mg.MetricLoss("f1", threshold=t, per_object="shared") for t in (0.3, 0.6)]
    mean = sum(loss(logits, instances > 0, instances=instances).item() for loss in each) / 2
    assert several(logits, instances > 0, instances=instances).item() == pytest.approx(mean, abs=1e-12)


def test_statistics_of_batches_add() -> None:
    logits, instances = make_maps()
    loss = mg.MetricLoss("f1", per_object="shared")
    parts = [loss.counts(logits[i : i + 1], instances[i : i + 1] > 0, instances=instances[i : i + 1]) for i in range(3)]
    whole = loss(logits, instances > 0, instances=instances)
    assert (1 - loss.value(parts[0] + parts[1] + parts[2])).item() == pytest.approx(whole.item(), abs=1e-12)


class AddOffset(torch.nn.Module):
    """A model of one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.offset


@pytest.mark.parametrize("make", [mg.MetricLoss, mg.HybridLoss])
def test_micro_batches_are_exact(make: Any) -> None:
    logits, instances = make_maps()
    loss = make("f1", per_object="full", task="binary")
    batches = [
        (logits[i : i + 1], (instances[i : i + 1] > 0).double(), None, None, instances[i : i + 1]) for i in range(3)
    ]
    model = AddOffset()
    value = mg.exact_backward(loss, model, batches)
    together = AddOffset()
    expected = loss(together(logits), (instances > 0).double(), instances=instances)
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), abs=1e-12)
    assert model.offset.grad is not None
    assert together.offset.grad is not None
    assert model.offset.grad.item() == pytest.approx(together.offset.grad.item(), abs=1e-12)


def compute_on_one_process(rank: int, folder: str) -> None:
    """Compute the loss of this process's images and save it with its gradient."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    logits, instances = make_maps()
    own = slice(0, 1) if rank == 0 else slice(1, 3)
    own_logits = logits[own].requires_grad_()
    loss = mg.MetricLoss("f1", per_object="shared", process_group="world")
    value = loss(own_logits, instances[own] > 0, instances=instances[own])
    value.backward()
    torch.save([value.detach(), own_logits.grad], f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_processes_are_exact(tmp_path: Path) -> None:
    spawn(compute_on_one_process, (str(tmp_path),), nprocs=2)
    logits, instances = make_maps()
    logits.requires_grad_()
    value = mg.MetricLoss("f1", per_object="shared")(logits, instances > 0, instances=instances)
    value.backward()
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    assert [part[0].item() for part in parts] == pytest.approx([value.item()] * 2, abs=1e-12)
    # Distributed training averages gradients, so each process has as many times its part as there are processes.
    assert torch.allclose(torch.cat([part[1] for part in parts]) / 2, logits.grad, atol=1e-12)  # type: ignore[arg-type]


def test_hybrid_adds_cross_entropy() -> None:
    logits, instances = make_maps()
    targets = (instances > 0).double()
    hybrid = mg.HybridLoss("f1", metric_weight=0.5, per_object="full")
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)
    metric = mg.MetricLoss("f1", per_object="full")(logits, targets, instances=instances)
    value = hybrid(logits, targets, instances=instances)
    assert value.item() == pytest.approx((cross_entropy + 0.5 * metric).item(), abs=1e-12)


def test_one_beta_per_class() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(1, 2, 6, 6, generator=generator, dtype=torch.float64)
    instances = torch.zeros(1, 2, 6, 6, dtype=torch.int64)
    instances[0, 0, :2, :2] = 1
    instances[0, 1, 4:, 4:] = 1
    both = mg.MetricLoss(
        partial(mg.metrics.f_beta, beta=torch.tensor([1.0, 2.0], dtype=torch.float64)),
        task="multilabel",
        per_object="full",
        average=None,
    )
    value = both(logits, instances > 0, instances=instances)
    for k, name in enumerate(("f1", "f2")):
        alone = mg.MetricLoss(name, per_object="full")
        assert value[k] == alone(logits[:, k], instances[:, k] > 0, instances=instances[:, k])


def test_bad_input() -> None:
    logits, instances = make_maps()
    targets = instances > 0
    loss = mg.MetricLoss("f1", per_object="full")
    with pytest.raises(ValueError, match="instances: expected a tensor that numbers the objects"):
        loss(logits, targets)
    with pytest.raises(ValueError, match="instances: expected integers"):
        loss(logits, targets, instances=instances.float())
    with pytest.raises(ValueError, match="instances: expected one number per position"):
        loss(logits, targets, instances=instances[0])
    with pytest.raises(ValueError, match="instances: expected an object at every positive position"):
        loss(logits, targets, instances=torch.where(instances == 7, 0, instances))
    with pytest.raises(ValueError, match="instances: expected 0 wherever the target is 0"):
        loss(logits, targets & (instances != 7), instances=instances)
    with pytest.raises(ValueError, match=r"expected 0 \(no object\) and positive numbers, got -7"):
        loss(logits, targets, instances=torch.where(instances == 7, -7, instances))
    with pytest.raises(ValueError, match="targets: expected 0 and 1 with instances"):
        loss(logits, targets * 0.5, instances=instances)
    with pytest.raises(ValueError, match="instances: expected None without per_object"):
        mg.MetricLoss("f1")(logits, targets, instances=instances)
    with pytest.raises(ValueError, match="per_object: expected 'full', 'shared' or None, got 'each'"):
        mg.MetricLoss("f1", per_object="each")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="per_image: expected False with per_object"):
        mg.MetricLoss("f1", per_object="full", per_image=True)
    with pytest.raises(ValueError, match="per_object: expected None with average='samples'"):
        mg.MetricLoss("f1", task="multilabel", per_object="full", average="samples")
    with pytest.raises(ValueError, match="labels: expected the classes that have objects"):
        mg.MetricLoss("f1", task="multiclass", per_object="full")
