"""Baselines: values against plain float64 formulas, gradients, limits, weights and masks, extremes, bad input."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metricgrad import baselines as b

G = torch.Generator().manual_seed(11)
Z = torch.randn(9, 4, generator=G, dtype=torch.float64) * 2
Y = (torch.rand(9, 4, generator=G) < 0.4).double()
INDEX = torch.randint(4, (9,), generator=G)
WEIGHT = torch.rand(9, generator=G, dtype=torch.float64)
IMAGES = torch.randn(3, 2, 4, 5, generator=G, dtype=torch.float64)
MASKS = (torch.rand(3, 2, 4, 5, generator=G) < 0.4).double()

Scalar = Callable[[float, float], float]


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def bce_term(p: float, y: float) -> float:
    return -math.log(p) if y else -math.log(1 - p)


def focal_term(gamma: float, alpha: float | None) -> Scalar:
    def term(p: float, y: float) -> float:
        p_t = p if y else 1 - p
        share = 1.0 if alpha is None else alpha if y else 1 - alpha
        return -share * math.pow(1 - p_t, gamma) * math.log(p_t)

    return term


def asymmetric_term(gamma_neg: float, gamma_pos: float, clip: float) -> Scalar:
    def term(p: float, y: float) -> float:
        if y:
            return -math.pow(1 - p, gamma_pos) * math.log(p)
        p_m = max(p - clip, 0.0)
        return -math.pow(p_m, gamma_neg) * math.log(1 - p_m)

    return term


def smoothed_term(p: float, y: float) -> float:
    hit = 0.9 if y else 0.1
    return -hit * math.log(p) - (1 - hit) * math.log(1 - p)


def adjusted_term(p: float, y: float) -> float:
    z = math.log(p / (1 - p)) + 0.5 * math.log(10 / 90)
    return bce_term(sigmoid(z), y)


def dice_term(smooth: float) -> Scalar:
    return lambda p, y: 1 - (2 * p * y + smooth) / (p * p + y * y + smooth)


SIGMOID: dict[str, tuple[Callable[..., nn.Module], Scalar]] = {
    "bce": (b.bce, bce_term),
    "weighted bce": (
        lambda **o: b.bce(positive_weight=3.0, negative_weight=0.5, **o),
        lambda p, y: (3.0 if y else 0.5) * bce_term(p, y),
    ),
    "balanced bce": (
        lambda **o: b.bce(class_counts=[90, 10], **o),
        lambda p, y: (100 / 20 if y else 100 / 180) * bce_term(p, y),
    ),
    "label smoothing": (
        lambda **o: b.label_smoothed_cross_entropy(0.2, **o),
        smoothed_term,
    ),
    "focal": (b.focal, focal_term(2.0, None)),
    "balanced focal": (lambda **o: b.focal(1.5, 0.25, **o), focal_term(1.5, 0.25)),
    "flat focal": (lambda **o: b.focal(0.5, **o), focal_term(0.5, None)),
    "asymmetric": (b.asymmetric, asymmetric_term(4.0, 0.0, 0.05)),
    "asymmetric, both": (lambda **o: b.asymmetric(3.0, 1.0, 0.2, **o), asymmetric_term(3.0, 1.0, 0.2)),
    "asymmetric, no margin": (lambda **o: b.asymmetric(2.0, 0.5, 0.0, **o), asymmetric_term(2.0, 0.5, 0.0)),
    "poly1": (lambda **o: b.poly1(2.0, **o), lambda p, y: bce_term(p, y) + 2.0 * (1 - p if y else p)),
    "dice of each": (lambda **o: b.dice(per_image=True, **o), dice_term(0.0)),
    "smooth dice of each": (lambda **o: b.dice(per_image=True, smooth=1.0, **o), dice_term(1.0)),
}


def loop(term: Scalar, z: Tensor, y: Tensor, w: Tensor) -> float:
    total = count = 0.0
    for row, labels, weight in zip(z.tolist(), y.tolist(), w.tolist(), strict=True):
        for u, label in zip(row, labels, strict=True):
            total += weight * term(sigmoid(u), label)
            count += weight
    return total / count


@pytest.mark.parametrize("name", SIGMOID)
def test_sigmoid_losses_are_the_papers_formula(name: str) -> None:
    make, term = SIGMOID[name]
    ones = torch.ones(9, dtype=torch.float64)
    multilabel, binary = make(task="multilabel"), make(task="binary")
    assert multilabel(Z, Y).item() == pytest.approx(loop(term, Z, Y, ones), rel=1e-6)
    assert multilabel(Z, Y, WEIGHT).item() == pytest.approx(loop(term, Z, Y, WEIGHT), rel=1e-6)
    assert binary(Z[:, 0], Y[:, 0]).item() == pytest.approx(loop(term, Z[:, :1], Y[:, :1], ones), rel=1e-6)
    kept = torch.tensor([True, False, True] * 3)
    assert multilabel(Z, Y, mask=kept).item() == pytest.approx(loop(term, Z[kept], Y[kept], ones[kept]), rel=1e-6)


def test_adjusted_logits_of_two_classes() -> None:
    loss = b.logit_adjusted_cross_entropy([90, 10], tau=0.5, task="binary")
    expected = loop(adjusted_term, Z[:, :1], Y[:, :1], torch.ones(9))
    assert loss(Z[:, 0], Y[:, 0]).item() == pytest.approx(expected, rel=1e-6)
    both = b.logit_adjusted_cross_entropy([[90, 9], [10, 1]], tau=0.5, task="multilabel")
    assert both(Z[:, :2], Y[:, :2]).item() == pytest.approx(loop(adjusted_term, Z[:, :2], Y[:, :2], torch.ones(9)))
    softmax = b.logit_adjusted_cross_entropy([0.9, 0.1], tau=0.5)
    two = torch.stack((torch.zeros(9, dtype=torch.float64), Z[:, 0]), 1)
    torch.testing.assert_close(softmax(two, Y[:, 0].long()), loss(Z[:, 0], Y[:, 0]))


def softmax_loop(term: Callable[[list[float], int], tuple[float, float]], z: Tensor, w: Tensor) -> float:
    total = count = 0.0
    for row, k, weight in zip(z.tolist(), INDEX.tolist(), w.tolist(), strict=True):
        powers = [math.exp(u) for u in row]
        value, own = term([v / sum(powers) for v in powers], k)
        total += weight * value
        count += weight * own
    return total / count


CLASS_WEIGHTS = [0.5, 1.0, 2.0, 4.0]
SOFTMAX: dict[str, tuple[Callable[..., nn.Module], Callable[[list[float], int], tuple[float, float]]]] = {
    "cross-entropy": (b.cross_entropy, lambda p, k: (-math.log(p[k]), 1.0)),
    "weighted": (
        lambda: b.cross_entropy(CLASS_WEIGHTS),
        lambda p, k: (-CLASS_WEIGHTS[k] * math.log(p[k]), CLASS_WEIGHTS[k]),
    ),
    "balanced": (
        lambda: b.cross_entropy(class_counts=[40, 30, 20, 10]),
        lambda p, k: (-math.log(p[k]) * 25 / (40 - 10 * k), 25 / (40 - 10 * k)),
    ),
    "smoothed": (
        b.label_smoothed_cross_entropy,
        lambda p, k: (-0.9 * math.log(p[k]) - 0.1 / 4 * sum(math.log(q) for q in p), 1.0),
    ),
    "focal": (lambda: b.focal(task="multiclass"), lambda p, k: (-((1 - p[k]) ** 2) * math.log(p[k]), 1.0)),
    "balanced focal": (
        lambda: b.focal(0.5, CLASS_WEIGHTS, task="multiclass"),
        lambda p, k: (-CLASS_WEIGHTS[k] * math.sqrt(1 - p[k]) * math.log(p[k]), 1.0),
    ),
    "poly1": (lambda: b.poly1(task="multiclass"), lambda p, k: (-math.log(p[k]) + 1 - p[k], 1.0)),
    "logit-adjusted": (
        lambda: b.logit_adjusted_cross_entropy([4, 3, 2, 1], tau=1.5),
        lambda p, k: (-math.log(p[k] * (4 - k) ** 1.5 / sum(q * (4 - j) ** 1.5 for j, q in enumerate(p))), 1.0),
    ),
}


@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax_losses_are_the_papers_formula(name: str) -> None:
    make, term = SOFTMAX[name]
    loss = make()
    assert loss(Z, INDEX).item() == pytest.approx(softmax_loop(term, Z, torch.ones(9)), rel=1e-6)
    assert loss(Z, INDEX, WEIGHT).item() == pytest.approx(softmax_loop(term, Z, WEIGHT), rel=1e-6)
    torch.testing.assert_close(loss(Z, F.one_hot(INDEX, 4), WEIGHT), loss(Z, INDEX, WEIGHT))


def test_weights_mean_what_they_mean_in_torch() -> None:
    weights = torch.tensor(CLASS_WEIGHTS, dtype=torch.float64)
    for smoothing in (0.0, 0.1):
        theirs = F.cross_entropy(Z, INDEX, weight=weights, label_smoothing=smoothing)
        torch.testing.assert_close(b.cross_entropy(CLASS_WEIGHTS, label_smoothing=smoothing)(Z, INDEX), theirs)
    theirs = F.binary_cross_entropy_with_logits(Z, Y, pos_weight=weights)
    torch.testing.assert_close(b.bce(positive_weight=CLASS_WEIGHTS, task="multilabel")(Z, Y), theirs)


def test_balanced_weights_are_those_of_the_papers_table_8() -> None:
    for negatives, positives, expected in ((3346, 1454, (0.72, 1.65)), (37155, 11687, (0.66, 2.07))):
        weights = b.balanced_weights([negatives, positives])
        assert [round(w, 2) for w in weights.tolist()] == pytest.approx(expected, abs=0.03)
        assert (weights * torch.tensor([negatives, positives])).sum() == pytest.approx(negatives + positives)
    torch.testing.assert_close(b.balanced_weights([[90, 50], [10, 50]])[:, 0], b.balanced_weights([90, 10]))


def test_soft_labels_are_mixtures() -> None:
    """The loss is linear in the label: half a positive is half the loss of one and half that of the other."""
    z, soft = torch.tensor([1.3], dtype=torch.float64), torch.tensor([0.3], dtype=torch.float64)
    for loss in (b.bce(), b.focal(), b.poly1(), b.asymmetric(task="binary")):
        mixed = 0.3 * loss(z, torch.ones(1)) + 0.7 * loss(z, torch.zeros(1))
        torch.testing.assert_close(loss(z, soft), mixed)
    rows = torch.tensor([[0.2, 0.0, 0.5, 0.3]])
    for loss in (b.focal(task="multiclass"), b.poly1(task="multiclass"), b.cross_entropy()):
        each = torch.stack([loss(Z[:1], torch.tensor([k])) for k in range(4)])
        torch.testing.assert_close(loss(Z[:1], rows.double()), (each * rows[0]).sum())


def test_limits() -> None:
    entropy = b.bce(task="multilabel")(Z, Y)
    for loss in (
        b.focal(0.0, task="multilabel"),
        b.asymmetric(0.0, 0.0, 0.0),
        b.poly1(0.0, task="multilabel"),
        b.bce(label_smoothing=0.0, task="multilabel"),
        b.logit_adjusted_cross_entropy([3, 7], 0.0, task="binary"),
    ):
        flat = isinstance(loss, nn.Module) and loss.task == "binary"
        value = loss(Z.reshape(-1), Y.reshape(-1)) if flat else loss(Z, Y)
        torch.testing.assert_close(value, entropy)
    softmax = b.cross_entropy()(Z, INDEX)
    for loss in (b.focal(0.0, task="multiclass"), b.poly1(0.0, task="multiclass")):
        torch.testing.assert_close(loss(Z, INDEX), softmax)
    torch.testing.assert_close(b.logit_adjusted_cross_entropy([4, 3, 2, 1], tau=0.0)(Z, INDEX), softmax)
    task: Any
    for task, y in (("multilabel", Y), ("multiclass", INDEX)):
        ours = b.focal_tversky(0.3, 0.7, gamma=1.0, task=task)(Z, y)
        torch.testing.assert_close(ours, b.tversky(0.3, 0.7, task=task)(Z, y))
        torch.testing.assert_close(b.tversky(0.5, 0.5, task=task)(Z, y), b.dice(task=task)(Z, y))


def test_losses_of_the_whole_batch_are_their_formula() -> None:
    p = [[sigmoid(u) for u in row] for row in Z.tolist()]
    dice, smooth, focal = [], [], []
    for k in range(4):
        tp = sum(row[k] for row, y in zip(p, Y.tolist(), strict=True) if y[k])
        size, labels = sum(row[k] for row in p), Y[:, k].sum().item()
        dice.append(2 * tp / (size + labels))
        smooth.append((2 * tp + 1) / (size + labels + 1))
        focal.append((1 - tp / (tp + 0.2 * (size - tp) + 0.8 * (labels - tp))) ** (1 / 1.5))
    assert b.dice(task="multilabel")(Z, Y).item() == pytest.approx(1 - sum(dice) / 4)
    assert b.dice(smooth=1.0, task="multilabel")(Z, Y).item() == pytest.approx(1 - sum(smooth) / 4)
    assert b.focal_tversky(0.2, 0.8, 1.5, task="multilabel")(Z, Y).item() == pytest.approx(sum(focal) / 4)


def test_dice_of_each_image() -> None:
    weight, total = [1.0, 2.0, 0.5], 0.0
    for n, k in itertools.product(range(3), range(2)):
        p, y = [sigmoid(u) for u in IMAGES[n, k].flatten().tolist()], MASKS[n, k].flatten().tolist()
        overlap = 2 * sum(q * label for q, label in zip(p, y, strict=True))
        total += weight[n] * (1 - overlap / (sum(q * q for q in p) + sum(label * label for label in y)))
    loss = b.dice(per_image=True, task="multilabel")
    value = loss(IMAGES, MASKS, torch.tensor(weight, dtype=torch.float64))
    assert value.item() == pytest.approx(total / (2 * sum(weight)))
    flat = b.dice(per_image=True)
    torch.testing.assert_close(flat(IMAGES[:, 0], MASKS[:, 0]), loss(IMAGES[:, :1], MASKS[:, :1]))


# ------------------------------------------------------------------------------------------------ Lovász


def jaccard_loss(wrong: set[int], y: list[float]) -> float:
    positives = {i for i, label in enumerate(y) if label}
    predicted = positives ^ wrong
    union = positives | predicted
    return 1 - len(positives & predicted) / len(union) if union else 0.0


def lovasz_extension(errors: list[float], y: list[float]) -> float:
    """The definition: sort, and weigh each error with what its sample adds to the loss of the set."""
    order = sorted(range(len(y)), key=lambda i: -errors[i])
    value, wrong, before = 0.0, set[int](), jaccard_loss(set(), y)
    for i in order:
        wrong.add(i)
        now = jaccard_loss(wrong, y)
        value += max(errors[i], 0.0) * (now - before)
        before = now
    return value


def hinge(z: list[float], y: list[float]) -> float:
    return lovasz_extension([1 - u * (2 * label - 1) for u, label in zip(z, y, strict=True)], y)


def test_lovasz_hinge_is_the_extension_of_the_jaccard_loss() -> None:
    columns = [hinge(Z[:, k].tolist(), Y[:, k].tolist()) for k in range(4)]
    assert b.lovasz_hinge()(Z[:, 0], Y[:, 0]).item() == pytest.approx(columns[0])
    assert b.lovasz_hinge(task="multilabel")(Z, Y).item() == pytest.approx(sum(columns) / 4)
    images = [hinge(IMAGES[n, k].flatten().tolist(), MASKS[n, k].flatten().tolist()) for n in range(3) for k in (0, 1)]
    loss = b.lovasz_hinge(per_image=True, task="multilabel")
    assert loss(IMAGES, MASKS).item() == pytest.approx(sum(images) / 6)
    ties = torch.tensor([0.5, 0.5, -0.5, 0.5, -0.5], dtype=torch.float64)
    for labels in itertools.product((0.0, 1.0), repeat=5):
        y = list(labels)
        assert b.lovasz_hinge()(ties, torch.tensor(y)).item() == pytest.approx(hinge(ties.tolist(), y))


def test_lovasz_at_hard_predictions_is_one_minus_jaccard() -> None:
    for y, wrong in itertools.product(itertools.product((0.0, 1.0), repeat=4), itertools.product((0, 1), repeat=4)):
        labels, errors = torch.tensor(y, dtype=torch.float64), torch.tensor(wrong, dtype=torch.float64)
        z = (1 - errors) * (2 * labels - 1)  # margin 1 where right, 0 where wrong
        expected = jaccard_loss({i for i, e in enumerate(wrong) if e}, list(y))
        assert b.lovasz_hinge()(z, labels).item() == pytest.approx(expected)


def test_lovasz_weights_are_repetitions_and_steps_are_exact_on_many() -> None:
    times = torch.tensor([1, 2, 0, 3, 1, 1, 2, 1, 0])
    again = Z[:, 0].repeat_interleave(times), Y[:, 0].repeat_interleave(times)
    torch.testing.assert_close(b.lovasz_hinge()(Z[:, 0], Y[:, 0], times.double()), b.lovasz_hinge()(*again))
    z = 3 * torch.randn(20000, generator=torch.Generator().manual_seed(0))
    y = (z + torch.randn(20000, generator=torch.Generator().manual_seed(1)) > 0).float()
    single, double = z.clone().requires_grad_(), z.double().requires_grad_()
    b.lovasz_hinge()(single, y).backward()
    b.lovasz_hinge()(double, y).backward()
    assert single.grad is not None
    assert double.grad is not None
    torch.testing.assert_close(single.grad.double(), double.grad, rtol=1e-4, atol=0.0)


def softmax_errors(z: Tensor, y: Tensor, classes: str) -> float:
    """The paper's algorithm for one set, ``(K, n)`` logits: the mean over classes of the extension at |y − p|."""
    values = []
    for k, p in enumerate(z.softmax(0).tolist()):
        own = [float(label == k) for label in y.tolist()]
        if classes == "all" or any(own):
            values.append(lovasz_extension([abs(label - q) for label, q in zip(own, p, strict=True)], own))
    return sum(values) / len(values)


@pytest.mark.parametrize("classes", ["present", "all"])
def test_lovasz_softmax_is_the_papers_algorithm(classes: Any) -> None:
    masks = torch.randint(3, (4, 3, 5), generator=torch.Generator().manual_seed(2))  # the last class is nowhere
    z = torch.randn(4, 4, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    masks[0][masks[0] == 1] = 0
    masks[1, 0] = 255
    sets = [(z[n].flatten(1), masks[n].flatten()) for n in range(4)]
    sets = [(logits[:, y < 255], y[y < 255]) for logits, y in sets]
    each = [softmax_errors(logits, y, classes) for logits, y in sets]
    whole = softmax_errors(torch.cat([a for a, _ in sets], 1), torch.cat([y for _, y in sets]), classes)
    options: dict[str, Any] = {"classes": classes, "ignore_index": 255}
    assert b.lovasz_softmax(**options)(z, masks).item() == pytest.approx(whole)
    assert b.lovasz_softmax(per_image=True, **options)(z, masks).item() == pytest.approx(sum(each) / 4)
    separate = b.lovasz_softmax(per_image=True, reduction="none", **options)(z, masks)
    assert separate.tolist() == pytest.approx(each)
    weight = torch.tensor([1.0, 2.0, 0.0, 3.0])
    weighted = (weight * torch.tensor(each)).sum().item() / 6
    assert b.lovasz_softmax(per_image=True, **options)(z, masks, weight).item() == pytest.approx(weighted)
    masks[3] = 255  # an image in which nothing counts
    assert b.lovasz_softmax(per_image=True, **options)(z, masks).item() == pytest.approx(sum(each[:3]) / 3)


def test_lovasz_softmax_of_certain_predictions_is_one_minus_the_mean_jaccard() -> None:
    y, said = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 1, 1, 1, 2, 0])
    z = 1e3 * F.one_hot(said, 4).double()
    jaccards = [1 / 3, 2 / 3, 1 / 2]
    assert b.lovasz_softmax()(z, y).item() == pytest.approx(1 - sum(jaccards) / 3)
    assert b.lovasz_softmax(classes="all")(z, y).item() == pytest.approx(1 - (sum(jaccards) + 1) / 4)
    hot = F.one_hot(y, 4)
    torch.testing.assert_close(b.lovasz_softmax()(Z[:6], hot), b.lovasz_softmax()(Z[:6], y))
    times = torch.tensor([1, 2, 0, 3, 1, 1])
    again = Z[:6].repeat_interleave(times, 0), y.repeat_interleave(times)
    torch.testing.assert_close(b.lovasz_softmax()(Z[:6], y, times.double()), b.lovasz_softmax()(*again))


# ------------------------------------------------------------------------------------------------ reductions


def test_reductions_are_those_of_torch() -> None:
    dense, index = IMAGES, torch.randint(2, (3, 4, 5), generator=torch.Generator().manual_seed(4))
    index[0, 0] = -100
    class_weights = torch.tensor([0.3, 2.0], dtype=torch.float64)
    reduction: Any
    for reduction in ("mean", "sum", "none"):
        loss = b.cross_entropy([0.3, 2.0], label_smoothing=0.1, reduction=reduction, ignore_index=-100)
        options: dict[str, Any] = {"label_smoothing": 0.1, "reduction": reduction}
        theirs = F.cross_entropy(dense, index, weight=class_weights, **options)
        torch.testing.assert_close(loss(dense, index), theirs)
        for task, z, y in (("binary", Z[:, 0], Y[:, 0]), ("multilabel", Z, Y), ("multilabel", IMAGES, MASKS)):
            ours = b.bce(positive_weight=3.0, task=task, reduction=reduction)  # type: ignore[arg-type]
            three = torch.tensor(3.0)
            theirs = F.binary_cross_entropy_with_logits(z, y, pos_weight=three, reduction=reduction)
            torch.testing.assert_close(ours(z, y), theirs)
    for reduction in ("sum", "none"):
        theirs = F.binary_cross_entropy_with_logits(Z, Y, weight=WEIGHT.unsqueeze(1), reduction=reduction)
        torch.testing.assert_close(b.bce(task="multilabel", reduction=reduction)(Z, Y, WEIGHT), theirs)


REDUCED: dict[str, tuple[Callable[..., nn.Module], Tensor, Tensor, tuple[int, ...]]] = {
    "bce": (lambda **o: b.bce(task="binary", **o), IMAGES, MASKS, (3, 2, 4, 5)),
    "scalar": (lambda **o: b.bce(task="binary", **o), Z[0, 0], Y[0, 0], ()),
    "bce, an axis of one": (lambda **o: b.bce(task="binary", **o), Z[:, :1], Y[:, 0], (9, 1)),
    "focal": (lambda **o: b.focal(task="multilabel", **o), IMAGES, MASKS, (3, 2, 4, 5)),
    "focal of classes": (lambda **o: b.focal(task="multiclass", **o), IMAGES, MASKS[:, 0].long(), (3, 4, 5)),
    "poly1": (lambda **o: b.poly1(task="multiclass", **o), Z, INDEX, (9,)),
    "asymmetric": (b.asymmetric, Z, Y, (9, 4)),
    "smoothed": (b.label_smoothed_cross_entropy, Z, INDEX, (9,)),
    "smoothed labels": (lambda **o: b.label_smoothed_cross_entropy(task="multilabel", **o), Z, Y, (9, 4)),
    "adjusted": (lambda **o: b.logit_adjusted_cross_entropy([4, 3, 2, 1], **o), Z, INDEX, (9,)),
    "dice": (lambda **o: b.dice(per_image=True, task="multilabel", **o), IMAGES, MASKS, (3, 2)),
    "dice, one class": (lambda **o: b.dice(per_image=True, **o), IMAGES[:, 0], MASKS[:, 0], (3,)),
    "hinge": (lambda **o: b.lovasz_hinge(task="binary", **o), Z, Y, ()),
    "hinge of labels": (lambda **o: b.lovasz_hinge(task="multilabel", **o), Z, Y, (4,)),
    "hinge of images": (lambda **o: b.lovasz_hinge(True, task="multilabel", **o), IMAGES, MASKS, (3, 2)),
    "softmax": (b.lovasz_softmax, Z, INDEX, ()),
    "softmax of images": (lambda **o: b.lovasz_softmax(True, **o), IMAGES, MASKS[:, 0].long(), (3,)),
}


@pytest.mark.parametrize("name", REDUCED)
def test_the_sum_and_the_mean_are_those_of_the_separate_terms(name: str) -> None:
    make, z, y, shape = REDUCED[name]
    each = make(reduction="none")(z, y)
    assert each.shape == shape
    torch.testing.assert_close(make(reduction="sum")(z, y), each.sum())
    torch.testing.assert_close(make()(z, y), each.mean())
    assert "reduction='sum'" in repr(make(reduction="sum"))
    assert make(reduction="none")(z.float(), y).dtype == torch.float32
    if z.dim() > 1:
        keep = torch.arange(len(z)) > 0
        masked = make(reduction="none")(z, y, mask=keep)
        if shape[:1] == z.shape[:1]:
            assert (masked[0] == 0).all()
            torch.testing.assert_close(masked[1:], each[1:])


# ------------------------------------------------------------------------------------------------ all of them

MULTILABEL: dict[str, Callable[..., nn.Module]] = {
    **{name: make for name, (make, _) in SIGMOID.items()},
    "dice": b.dice,
    "smooth dice": lambda **o: b.dice(smooth=1.0, **o),
    "tversky": b.tversky,
    "focal tversky": b.focal_tversky,
    "lovasz": b.lovasz_hinge,
    "lovasz of images": lambda **o: b.lovasz_hinge(per_image=True, **o),
    "weights per label": lambda **o: b.bce(positive_weight=[1.0, 2.0, 3.0, 4.0], **o),
}
MULTICLASS: dict[str, Callable[..., nn.Module]] = {
    **{name: make for name, (make, _) in SOFTMAX.items()},
    "dice": lambda: b.dice(task="multiclass"),
    "lovasz": b.lovasz_softmax,
    "lovasz of images": lambda: b.lovasz_softmax(per_image=True),
    "lovasz of all": lambda: b.lovasz_softmax(classes="all"),
    "focal tversky": lambda: b.focal_tversky(task="multiclass"),
}


def every() -> list[tuple[str, nn.Module, Tensor]]:
    labels = [(name, make(task="multilabel"), Y) for name, make in MULTILABEL.items()]
    return labels + [(f"{name}, classes", make(), INDEX) for name, make in MULTICLASS.items()]


EVERY = every()
IDS = [name for name, _, _ in EVERY]


@pytest.mark.parametrize(("name", "loss", "y"), EVERY, ids=IDS)
def test_gradients(name: str, loss: nn.Module, y: Tensor) -> None:
    z = Z.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, y, WEIGHT), (z,))


@pytest.mark.parametrize(("name", "loss", "y"), EVERY, ids=IDS)
def test_masking_is_deleting_and_nothing_left_is_zero_gradient(name: str, loss: nn.Module, y: Tensor) -> None:
    kept = torch.tensor([True, True, False] * 3)
    z = Z.clone()
    z[~kept] = torch.nan
    torch.testing.assert_close(loss(z, y, WEIGHT, kept), loss(Z[kept], y[kept], WEIGHT[kept]))
    for left, options in ((Z, {"mask": torch.zeros(9) > 0}), (Z[:0], {})):
        leaf = left.clone().requires_grad_()
        value = loss(leaf, y[: len(left)], **options)
        value.backward()
        assert value.isfinite()
        assert leaf.grad is not None
        assert (leaf.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("name", "loss", "y"), EVERY, ids=IDS)
@pytest.mark.filterwarnings("ignore:logits. those of all positives:UserWarning")  # logits so low are what is tested
def test_extremes_are_finite(name: str, loss: nn.Module, y: Tensor, dtype: torch.dtype) -> None:
    for z in (torch.full((9, 4), 1e4), torch.full((9, 4), -1e4), 1e4 * Z.sign(), torch.zeros(9, 4)):
        for targets in (y, torch.zeros_like(y), torch.ones_like(y)):
            leaf = z.to(dtype).requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
                value = loss(leaf, targets)
            value.backward()
            assert value.dtype == torch.float32
            assert value.isfinite()
            assert leaf.grad is not None
            assert leaf.grad.isfinite().all()


@pytest.mark.parametrize(("name", "loss", "y"), EVERY, ids=IDS)
def test_they_pickle_copy_print_and_differentiate_by_torch_func(name: str, loss: nn.Module, y: Tensor) -> None:
    for twin in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):  # noqa: S301
        torch.testing.assert_close(twin(Z, y), loss(Z, y))
        assert repr(twin) == repr(loss)
        twin.load_state_dict(loss.state_dict())
    z = Z.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(z, y), z)
    torch.testing.assert_close(torch.func.grad(lambda z: loss(z, y))(Z), expected)


def test_lovasz_without_positives_does_not_see_what_is_masked() -> None:
    z, y, mask = torch.tensor([torch.nan, -3.0, -0.5]), torch.zeros(3), torch.tensor([False, True, True])
    torch.testing.assert_close(b.lovasz_hinge()(z, y, mask=mask), torch.tensor(0.5))
    assert b.lovasz_hinge()(z[:2], y[:2], mask=mask[:2]) == 0


def test_void_labels_do_not_count() -> None:
    y = INDEX.clone()
    y[::3] = 255
    loss = b.focal(task="multiclass", ignore_index=255)
    torch.testing.assert_close(loss(Z, y), loss(Z[y < 255], y[y < 255]))
    assert repr(loss) == "focal(gamma=2.0, task='multiclass', ignore_index=255)"
    assert repr(b.cross_entropy([1.0, 2.0])) == (
        "cross_entropy(label_smoothing=0.0, class_weights=[1.0, 2.0], task='multiclass')"
    )


def test_negatives_teach_dice_of_each_sample_only_when_it_is_smooth() -> None:
    for smooth, taught in ((0.0, False), (1.0, True)):
        z = torch.zeros(1, requires_grad=True)
        b.dice(per_image=True, smooth=smooth)(z, torch.zeros(1)).backward()
        assert z.grad is not None
        assert bool((z.grad != 0).any()) is taught


BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: b.bce(task="multiclass"), "task: bce is for 'binary' or 'multilabel', got 'multiclass'"),
    (lambda: b.cross_entropy(task="multilabel"), "task: cross_entropy is for 'multiclass', got 'multilabel'"),
    (lambda: b.asymmetric(task="multiclass"), "task: asymmetric is for 'binary' or 'multilabel'"),
    (lambda: b.lovasz_softmax(task="binary"), "task: lovasz_softmax is for 'multiclass', got 'binary'"),
    (lambda: b.lovasz_softmax(classes="some"), "classes: expected 'present' or 'all', got 'some'"),  # type: ignore[arg-type]
    (
        lambda: b.lovasz_softmax()(Z, torch.full((9, 4), 0.25)),
        "targets: expected 0 or 1 for lovasz_softmax, got values in between",
    ),
    (lambda: b.focal(reduction="total"), "reduction: expected 'mean', 'sum' or 'none', got 'total'"),  # type: ignore[arg-type]
    (
        lambda: b.bce(reduction="none", process_group="world"),
        "reduction: expected 'mean' or 'sum' with process_group, got 'none'",
    ),
    (
        lambda: b.dice(reduction="sum"),
        "reduction: expected 'mean' unless per_image, got 'sum'; use average=None per class",
    ),
    (lambda: b.lovasz_hinge(task="multiclass"), "task: lovasz_hinge is for 'binary' or 'multilabel'"),
    (
        lambda: b.dice(per_image=True, average="micro", labels=[0]),
        "per_image: expected no options of the batch, got average, labels; leave them out",
    ),
    (
        lambda: b.dice(per_image=True, threshold=torch.tensor([0.2, 0.5])),
        "per_image: expected no options of the batch, got threshold",
    ),
    (
        lambda: b.label_smoothed_cross_entropy(positive_weight=2.0),
        "positive_weight, negative_weight: expected None for task='multiclass'; use class_weights",
    ),
    (
        lambda: b.label_smoothed_cross_entropy(class_weights=[1.0], task="binary"),
        "class_weights: expected None for task='binary'; use positive_weight and negative_weight",
    ),
    (lambda: b.dice(per_image=True, task="multiclass"), "task: dice is for 'binary' or 'multilabel'"),
    (lambda: b.focal(task="multi"), "task: expected one of"),  # type: ignore[arg-type]
    (lambda: b.focal(-1.0), "gamma: expected a number of at least 0, got -1.0"),
    (lambda: b.focal(alpha=2.0), r"alpha: expected a number in \[0, 1\], got 2.0"),
    (lambda: b.focal(alpha=0.5, task="multiclass"), "alpha: expected positive numbers, one per class, got 0.5"),
    (lambda: b.asymmetric(clip=1.5), r"clip: expected a number in \[0, 1\], got 1.5"),
    (lambda: b.poly1(math.nan), "epsilon: expected a number of at least -1, got nan"),
    (lambda: b.focal_tversky(gamma=0.0), "gamma: expected a positive number, got 0.0"),
    (lambda: b.tversky(alpha=-1.0), "alpha: expected a number of at least 0, got -1.0"),
    (lambda: b.dice(smooth=-1.0), "smooth: expected a number of at least 0, got -1.0"),
    (lambda: b.bce(positive_weight=0.0), "positive_weight: expected positive numbers, one per class, got 0.0"),
    (lambda: b.bce(2.0, class_counts=[1, 2]), "class_counts: expected no positive_weight or negative_weight"),
    (lambda: b.bce(class_counts=[1, 2, 3]), r"class_counts: expected \(negative, positive\), got \[1, 2, 3\]"),
    (lambda: b.cross_entropy([1.0], class_counts=[1]), "class_counts: expected no class_weights with it, got both"),
    (lambda: b.cross_entropy(class_counts=[5, 0]), r"class_counts: expected positive numbers, .* got \[5, 0\]"),
    (lambda: b.cross_entropy(["heavy"]), "class_weights: expected positive numbers, one per class, got \\['heavy'\\]"),  # type: ignore[arg-type]
    (lambda: b.cross_entropy([1.0, 2.0])(Z, INDEX), "class_weights: expected one number per class, 4, got 2"),
    (lambda: b.label_smoothed_cross_entropy(1.5), r"label_smoothing: expected a number in \[0, 1\], got 1.5"),
    (lambda: b.logit_adjusted_cross_entropy([1, 2], tau=math.inf), "tau: expected a number, got inf"),
    (
        lambda: b.lovasz_hinge(task="binary")(Z, Y / 2),
        "targets: expected 0 or 1 for lovasz_hinge, got values in between",
    ),
    (lambda: b.focal(task="multilabel")(Z, Y + 1), r"targets: expected values in \[0, 1\]"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_gets_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
