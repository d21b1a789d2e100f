"""The kernel against plain autograd in float64 of sums written out here, in one chunk and in several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad import surrogates as s
from metricgrad.core import chunking, kernel, statistics

ROWS, CLASSES = 23, 3
CHUNKS = {
    "one chunk": {},
    "uneven": {"MAX_UNSPLIT_ELEMENTS": 1, "MAX_CHUNK_ELEMENTS": 5 * CLASSES, "MAX_NEW_BUFFER_ELEMENTS": 1},
    "a row": {"MAX_UNSPLIT_ELEMENTS": 1, "MAX_CHUNK_ELEMENTS": 1},
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16]
TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 1e-2}
"""The gradient has the type of the logits; bfloat16 has two to three digits."""

ELEMENTWISE = [
    s.Linear(),
    s.Linear(0.0),
    s.Linear(0.3, 0.5),
    s.Sigmoid(),
    s.LogitSigmoid(),
    s.LogitSigmoid(2.0, 0.5),
    s.Identity(),
    s.StraightThrough(s.Sigmoid()),
]
ROWWISE = [s.TopTwo(), s.TopTwo(0.0, 0.5), s.Linear(), s.Sigmoid(), s.LogitSigmoid(), s.Identity()]


@pytest.fixture(params=CHUNKS, ids=str)
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in CHUNKS[request.param].items():
        monkeypatch.setattr(chunking, name, value)
    return str(request.param)


def draw(*shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def draw_labels(*shape: int, seed: int = 1, share: float = 0.4) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < share).double()


def draw_uniform(*shape: int, seed: int = 2) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def f1(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    return 2 * tp / (2 * tp + fp + fn)


def cells_of(m: Tensor, y: Tensor, w: Tensor, axis: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return TP, FP, FN and TN, summed over the rows (axis 0) or the classes (axis 1)."""
    return (
        (w * y * m).sum(axis),
        (w * (1 - y) * m).sum(axis),
        (w * y * (1 - m)).sum(axis),
        (w * (1 - y) * (1 - m)).sum(axis),
    )


def matrix_of(m: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return sum(w[i] * torch.outer(y[i], m[i]) for i in range(len(m)))  # type: ignore[return-value]


def macro(m: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return f1(*cells_of(m, y, w)).mean()


def micro(m: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return f1(*(cell.sum() for cell in cells_of(m, y, w)))


def weighted(m: Tensor, y: Tensor, w: Tensor) -> Tensor:
    positives = (w * y).sum(0)
    return (f1(*cells_of(m, y, w)) * positives).sum() / positives.sum()


def samples(m: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Return the mean of the rows' values; a row counts by the mean weight of what counts in it."""
    w = w.expand(y.shape)
    row_weight = w.sum(1) / (w > 0).sum(1)
    return (f1(*cells_of(m, y, w, axis=1)) * row_weight).sum() / row_weight.sum()


def accuracy(m: Tensor, y: Tensor, w: Tensor) -> Tensor:
    matrix = matrix_of(m, y, w)
    return matrix.trace() / matrix.sum()


def mcc(m: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return mcc_of(matrix_of(m, y, w))


def mcc_of(matrix: Tensor) -> Tensor:
    total, correct, true, predicted = matrix.sum(), matrix.trace(), matrix.sum(1), matrix.sum(0)
    covariance = correct * total - true @ predicted
    return covariance / ((total**2 - predicted @ predicted) * (total**2 - true @ true)).sqrt()


def expect(value: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    """Return 1 − value and its gradient, by plain autograd."""
    leaf = z.detach().double().requires_grad_()
    loss = 1 - value(leaf)
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), gradient


def assert_loss(
    loss: Any, value: Callable[[Tensor], Tensor], z: Tensor, y: Tensor, *more: Any, dtype: torch.dtype = torch.float64
) -> None:
    """Check a loss and its gradient for logits of a type against those of ``value``, in float64."""
    typed = z.to(dtype)
    expected, expected_gradient = expect(value, typed)
    leaf = typed.detach().requires_grad_()
    found = loss(leaf, y, *more)
    assert type(found.grad_fn).__name__ == "KernelBackward"
    found.backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype is dtype
    assert leaf.grad.shape == z.shape
    loose = TOLERANCES[torch.float32 if dtype is torch.bfloat16 else dtype]
    torch.testing.assert_close(found.detach().double(), expected, rtol=10 * loose, atol=loose)
    largest = expected_gradient.abs().max().item()
    torch.testing.assert_close(
        leaf.grad.double(), expected_gradient, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype] * largest
    )


# Layouts


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weight", ["none", "per row", "per element", "mask"])
@pytest.mark.parametrize("average", [macro, micro, weighted, samples])
def test_columns_and_rows(average: Any, weight: str, dtype: torch.dtype, chunks: str) -> None:
    z, y = draw(ROWS, CLASSES), draw_labels(ROWS, CLASSES)
    y[:, 0] = 1  # so that no row and no class is empty
    w = {"none": torch.ones(1, 1), "per row": draw_uniform(ROWS, 1), "per element": draw_uniform(ROWS, CLASSES)}
    given: tuple[Any, ...] = () if weight == "none" else (w.get(weight),)
    reference_weight = w.get(weight)
    if weight == "mask":
        mask = draw_uniform(ROWS, CLASSES) < 0.7
        mask[:, 0] = True
        given, reference_weight = (None, mask), mask.double()
    loss = mg.MetricLoss("f1", task="multilabel", average=average.__name__)
    linear = s.Linear()
    assert_loss(loss, lambda x: average(linear(x), y, reference_weight), z, y, *given, dtype=dtype)


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("surrogate", ELEMENTWISE, ids=repr)
def test_every_surrogate_of_elements(surrogate: Any, weight: bool, chunks: str) -> None:
    z, y = draw(ROWS, CLASSES), draw_uniform(ROWS, CLASSES)  # soft labels
    w = draw_uniform(ROWS, 1, seed=3) if weight else torch.ones(1, 1)
    loss = mg.MetricLoss("f1", task="multilabel", surrogate=surrogate)
    more = (w,) if weight else ()
    assert_loss(loss, lambda x: macro(surrogate(x), y, w), z, y, *more)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("targets", ["indices", "soft labels"])
@pytest.mark.parametrize("weight", ["none", "weight", "mask"])
@pytest.mark.parametrize("average", [macro, micro, weighted, accuracy, mcc])
def test_indices_and_the_matrix(average: Any, weight: str, targets: str, dtype: torch.dtype, chunks: str) -> None:
    z = draw(ROWS, CLASSES)
    indices = torch.arange(ROWS) % CLASSES
    y = torch.eye(CLASSES, dtype=torch.float64)[indices]
    if targets == "soft labels":
        y = torch.softmax(draw(ROWS, CLASSES, seed=4), 1)
    w = torch.ones(ROWS, 1, dtype=torch.float64)
    given: tuple[Any, ...] = ()
    if weight == "weight":
        w = draw_uniform(ROWS, 1)
        given = (w,)
    elif weight == "mask":
        mask = draw_uniform(ROWS) < 0.7
        w = mask.double().unsqueeze(1)
        given = (None, mask)
    of_matrix = average in (accuracy, mcc)
    options = {} if of_matrix else {"average": average.__name__}
    loss = mg.MetricLoss(average.__name__ if of_matrix else "f1", task="multiclass", **options)
    top_two = s.TopTwo()
    target = indices if targets == "indices" else y
    assert_loss(loss, lambda x: average(top_two.rows(x), y, w), z, target, *given, dtype=dtype)


@pytest.mark.parametrize("surrogate", ROWWISE, ids=repr)
@pytest.mark.parametrize("average", [macro, accuracy])
def test_every_surrogate_of_rows(surrogate: Any, average: Any, chunks: str) -> None:
    z, indices, w = draw(ROWS, CLASSES), torch.arange(ROWS) % CLASSES, draw_uniform(ROWS, 1)
    y = torch.eye(CLASSES, dtype=torch.float64)[indices]
    loss = mg.MetricLoss("f1" if average is macro else "accuracy", task="multiclass", surrogate=surrogate)
    assert_loss(loss, lambda x: average(surrogate.rows(x), y, w), z, indices, w)


SIZES_OF_ONE_PIECE = {
    "small, few classes": (ROWS, 10),
    "small, many classes": (ROWS, kernel.MAX_ONE_HOT_CLASSES + 6),
    "reused buffers, few classes": (chunking.MAX_NEW_BUFFER_ELEMENTS // 10 + 1, 10),
    "reused buffers, many classes": (chunking.MAX_NEW_BUFFER_ELEMENTS // 70 + 1, 70),
}
"""Shapes on both sides of every size at which the one piece of a small batch is worked on in another way."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("surrogate", ROWWISE, ids=repr)
@pytest.mark.parametrize("average", [macro, micro, accuracy, mcc])
@pytest.mark.parametrize("shape", SIZES_OF_ONE_PIECE.values(), ids=SIZES_OF_ONE_PIECE)
def test_rows_in_one_piece(shape: tuple[int, int], average: Any, surrogate: Any, dtype: torch.dtype) -> None:
    rows, classes = shape
    z, indices = draw(rows, classes), (7 * torch.arange(rows)) % classes
    y = torch.eye(classes, dtype=torch.float64)[indices]
    metric = "accuracy" if average is accuracy else "mcc" if average is mcc else "f1"
    options: Any = {"average": "micro"} if average is micro else {}
    loss = mg.MetricLoss(metric, task="multiclass", surrogate=surrogate, **options)
    present = y.any(0)  # the F1 of the other classes is 0

    def value(x: Tensor) -> Tensor:
        m: Tensor = surrogate.rows(x)
        if average is macro:
            return f1(*cells_of(m[:, present], y[:, present], torch.ones(1, 1))).sum() / classes
        if average is micro:
            return f1(*(cell.sum() for cell in cells_of(m, y, torch.ones(1, 1))))
        matrix: Tensor = y.t() @ m
        return matrix.trace() / matrix.sum() if average is accuracy else mcc_of(matrix)

    assert_loss(loss, value, z, indices, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("surrogate", ELEMENTWISE, ids=repr)
@pytest.mark.parametrize("average", [macro, micro])
def test_elements_in_one_piece_with_reused_buffers(average: Any, surrogate: Any, dtype: torch.dtype) -> None:
    classes = 8
    rows = chunking.MAX_NEW_BUFFER_ELEMENTS // classes + 1
    z, y = draw(rows, classes), (draw_uniform(rows, classes) < 0.3).double()
    loss = mg.MetricLoss("f1", task="multilabel", average=average.__name__, surrogate=surrogate)
    assert_loss(loss, lambda x: average(surrogate(x), y, torch.ones(1, 1)), z, y, dtype=dtype)


def test_many_classes_find_their_two_largest() -> None:
    z, indices = draw(31, 150), torch.arange(31) % 150
    y = torch.eye(150, dtype=torch.float64)[indices]
    loss = mg.MetricLoss("f1", task="multiclass", average="micro")
    assert_loss(loss, lambda x: micro(s.TopTwo().rows(x), y, torch.ones(1, 1)), z, indices)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 1), (ROWS, 2, 3)])
@pytest.mark.parametrize("share", [0.05, 0.4, 0.99])
def test_one_class_in_any_shape(shape: tuple[int, ...], share: float, dtype: torch.dtype, chunks: str) -> None:
    z, y = draw(*shape), draw_labels(*shape, share=share)
    y.view(-1)[0], y.view(-1)[1] = 1, 0
    linear = s.Linear()
    flat = y.reshape(-1, 1)
    loss = mg.MetricLoss("f1", task="binary")
    assert_loss(loss, lambda x: macro(linear(x).reshape(-1, 1), flat, torch.ones(1, 1)), z, y, dtype=dtype)


@pytest.mark.parametrize("targets", [torch.bool, torch.int64, torch.uint8, torch.bfloat16])
def test_targets_of_any_type(targets: torch.dtype, chunks: str) -> None:
    z, y = draw(ROWS, CLASSES), draw_labels(ROWS, CLASSES)
    loss = mg.MetricLoss("f1", task="multilabel")
    assert_loss(loss, lambda x: macro(s.Linear()(x), y, torch.ones(1, 1)), z, y.to(targets))


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("average", [macro, micro, samples])
@pytest.mark.parametrize("surrogate", [s.Linear(), s.Sigmoid(), s.Table(s.Sigmoid(), 6)], ids=repr)
def test_several_thresholds_are_averaged(surrogate: Any, average: Any, weight: bool, chunks: str) -> None:
    z, y = draw(ROWS, CLASSES), draw_labels(ROWS, CLASSES)
    y[:, 0] = 1
    w = draw_uniform(ROWS, 1) if weight else torch.ones(1, 1)
    thresholds = [0.2, 0.5, 0.9]

    def value(x: Tensor) -> Tensor:
        return torch.stack([average(surrogate(x, threshold), y, w) for threshold in thresholds]).mean()

    loss = mg.MetricLoss("f1", task="multilabel", surrogate=surrogate, average=average.__name__, threshold=thresholds)
    assert_loss(loss, value, z, y, *((w,) if weight else ()))


def test_the_one_threshold_is_used(chunks: str) -> None:
    z, y = draw(ROWS), draw_labels(ROWS)
    loss = mg.MetricLoss("f1", threshold=0.3)
    flat = y.reshape(-1, 1)
    assert_loss(loss, lambda x: macro(s.Linear()(x, 0.3).reshape(-1, 1), flat, torch.ones(1, 1)), z, y)


# Tensors of the surrogate, and what users do with a loss


@pytest.mark.parametrize("start", [s.LogitSigmoid(2.0, 0.3), s.UnitsVsZeros(1.5, 0.2)], ids=repr)
def test_learned_numbers_get_the_gradient_of_all_chunks(start: Any, chunks: str) -> None:
    z, y = draw(ROWS, CLASSES), draw_labels(ROWS, CLASSES)
    learned = s.Learned(start, classes=CLASSES).double()
    loss = mg.MetricLoss("f1", task="multilabel", surrogate=learned)
    leaf = z.clone().requires_grad_()
    value = loss(leaf, y)
    parameters = [*learned.parameters()]
    found = torch.autograd.grad(value, [leaf, *parameters])
    plain = z.clone().requires_grad_()
    surrogate = learned.current()
    memberships = surrogate(plain, y) if surrogate.takes_targets else surrogate(plain)  # type: ignore[arg-type]
    expected = torch.autograd.grad(1 - macro(memberships, y, torch.ones(1, 1)), [plain, *parameters])
    for gradient, other in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
def test_a_scaled_loss_scales_its_gradient(task: Any, chunks: str) -> None:
    z = draw(ROWS, CLASSES)
    y = torch.arange(ROWS) % CLASSES if task == "multiclass" else draw_labels(ROWS, CLASSES)
    loss = mg.MetricLoss("f1", task=task)
    leaf = z.clone().requires_grad_()
    (plain,) = torch.autograd.grad(loss(leaf, y), leaf)
    (scaled,) = torch.autograd.grad(-3.5 * loss(leaf, y) + 2, leaf)
    torch.testing.assert_close(scaled, -3.5 * plain, rtol=1e-13, atol=0)


def test_a_scaled_loss_scales_the_gradient_of_learned_numbers(chunks: str) -> None:
    z, y = draw(ROWS, CLASSES), draw_labels(ROWS, CLASSES)
    learned = s.Learned(s.LogitSigmoid(), classes=CLASSES).double()
    loss = mg.MetricLoss("f1", task="multilabel", surrogate=learned)
    parameters = [*learned.parameters()]
    plain = torch.autograd.grad(loss(z, y), parameters)
    scaled = torch.autograd.grad(-3.5 * loss(z, y), parameters)
    for gradient, other in zip(scaled, plain, strict=True):
        torch.testing.assert_close(gradient, -3.5 * other, rtol=1e-13, atol=0)


@pytest.mark.parametrize("surrogate", [s.Linear(), s.Learned(s.LogitSigmoid(), classes=CLASSES)], ids=repr)
def test_a_second_backward_gives_the_same_bits(surrogate: Any, chunks: str) -> None:
    z, y = draw(ROWS, CLASSES).float().requires_grad_(), draw_labels(ROWS, CLASSES)
    loss = mg.MetricLoss("f1", task="multilabel", surrogate=surrogate)
    value = 2 * loss(z, y)
    inputs = [z, *loss.parameters()]
    first = [gradient.clone() for gradient in torch.autograd.grad(value, inputs, retain_graph=True)]
    second = torch.autograd.grad(value, inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    cells = loss.counts(z, y).cells()
    total = cells[0].sum() + (2 * cells[1]).sum()
    first = [gradient.clone() for gradient in torch.autograd.grad(total, inputs, retain_graph=True)]
    second = torch.autograd.grad(total, inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
@pytest.mark.parametrize("metric", ["f1", "mcc"])
def test_counts_and_their_gradient(task: Any, metric: str, chunks: str) -> None:
    z, w = draw(ROWS, CLASSES), draw_uniform(ROWS, 1)
    indices = torch.arange(ROWS) % CLASSES
    y = torch.eye(CLASSES, dtype=torch.float64)[indices] if task == "multiclass" else draw_labels(ROWS, CLASSES)
    loss = mg.MetricLoss(metric, task=task)
    leaf = z.clone().requires_grad_()
    cells = loss.counts(leaf, indices if task == "multiclass" else y, w).cells()
    plain = z.clone().requires_grad_()
    memberships = s.TopTwo().rows(plain) if task == "multiclass" else s.Linear()(plain)
    expected = (matrix_of(memberships, y, w),) if len(cells) == 1 else cells_of(memberships, y, w)
    factors = [draw(*cell.shape, seed=7 + place) for place, cell in enumerate(cells)]
    for cell, other in zip(cells, expected, strict=True):
        torch.testing.assert_close(cell.detach(), other.detach(), rtol=1e-12, atol=1e-12)
    (found,) = torch.autograd.grad(cells, leaf, factors)
    (wanted,) = torch.autograd.grad(expected, plain, factors)
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("surrogate", [s.Sigmoid(), s.Learned(s.LogitSigmoid(), classes=CLASSES)], ids=repr)
def test_second_derivatives_are_those_of_plain_autograd(surrogate: Any, chunks: str) -> None:
    z, y = draw(ROWS, CLASSES), draw_labels(ROWS, CLASSES)
    surrogate = surrogate.double() if isinstance(surrogate, torch.nn.Module) else surrogate
    loss = mg.MetricLoss("f1", task="multilabel", surrogate=surrogate)
    leaf, plain = z.clone().requires_grad_(), z.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(leaf, y), leaf, create_graph=True)
    (wanted,) = torch.autograd.grad(1 - macro(surrogate(plain), y, torch.ones(1, 1)), plain, create_graph=True)
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-13)
    direction = draw(ROWS, CLASSES, seed=8)
    (found_second,) = torch.autograd.grad((found * direction).sum(), leaf)
    (wanted_second,) = torch.autograd.grad((wanted * direction).sum(), plain)
    torch.testing.assert_close(found_second, wanted_second, rtol=1e-10, atol=1e-13)


def test_second_derivatives_of_counts(chunks: str) -> None:
    z, y = draw(ROWS, CLASSES), draw_labels(ROWS, CLASSES)
    loss = mg.MetricLoss("f1", task="multilabel", surrogate=s.Sigmoid())
    leaf, plain = z.clone().requires_grad_(), z.clone().requires_grad_()
    (found,) = torch.autograd.grad((loss.counts(leaf, y).fp ** 2).sum(), leaf, create_graph=True)
    expected = cells_of(s.Sigmoid()(plain), y, torch.ones(1, 1))[1]
    (wanted,) = torch.autograd.grad((expected**2).sum(), plain, create_graph=True)
    (found_second,) = torch.autograd.grad(found.square().sum(), leaf)
    (wanted_second,) = torch.autograd.grad(wanted.square().sum(), plain)
    torch.testing.assert_close(found_second, wanted_second, rtol=1e-10, atol=1e-13)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, in dual_level
def test_forward_mode_is_the_gradient_times_the_tangent(chunks: str) -> None:
    z, y, tangent = draw(ROWS, CLASSES), draw_labels(ROWS, CLASSES), draw(ROWS, CLASSES, seed=9)
    loss = mg.MetricLoss("f1", task="multilabel")
    _, gradient = expect(lambda x: macro(s.Linear()(x), y, torch.ones(1, 1)), z)
    with torch.autograd.forward_ad.dual_level():
        value = loss(torch.autograd.forward_ad.make_dual(z, tangent), y)
        derivative = torch.autograd.forward_ad.unpack_dual(value).tangent
    assert derivative is not None
    torch.testing.assert_close(derivative, (gradient * tangent).sum(), rtol=1e-11, atol=1e-13)


def test_what_was_changed_since_forward_is_refused(chunks: str) -> None:
    z, y = draw(ROWS, CLASSES), draw_labels(ROWS, CLASSES)
    loss = mg.MetricLoss("f1", task="multilabel")
    leaf = z.clone().requires_grad_()
    value = loss(leaf, y)
    y[0] = 1 - y[0]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_targets_are_checked_in_every_chunk(chunks: str) -> None:
    z, y = draw(ROWS, CLASSES).requires_grad_(), draw_labels(ROWS, CLASSES)
    y[-1, -1] = 2
    with pytest.raises(ValueError, match="targets: expected values in"):
        mg.MetricLoss("f1", task="multilabel")(z, y)
    indices = torch.arange(ROWS) % CLASSES
    indices[-1] = CLASSES
    with pytest.raises(ValueError, match="targets: expected class indices"):
        mg.MetricLoss("f1", task="multiclass")(z, indices)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"task": "binary"}, (0,)),
        ({"task": "multilabel"}, (0, CLASSES)),
        ({"task": "multilabel", "average": "samples"}, (0, CLASSES)),
        ({"task": "multilabel", "threshold": [0.3, 0.6]}, (0, CLASSES)),
        ({"task": "multiclass"}, (0, CLASSES)),
        ({"task": "multiclass", "metric": "accuracy"}, (0, CLASSES)),
    ],
    ids=str,
)
def test_an_empty_batch_has_a_loss_and_an_empty_gradient(
    options: dict[str, Any], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    options = {"metric": "f1", **options}
    z = torch.zeros(shape, dtype=dtype).requires_grad_()
    y = torch.zeros(0, dtype=torch.int64) if options["task"] == "multiclass" else torch.zeros(shape)
    value = mg.MetricLoss(**options)(z, y)
    value.backward()
    assert value.item() == 1
    assert z.grad is not None
    assert z.grad.shape == shape


def test_a_chunk_without_weight_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "MAX_UNSPLIT_ELEMENTS", 1)
    monkeypatch.setattr(chunking, "MAX_CHUNK_ELEMENTS", 4 * CLASSES)
    z, y = draw(8, CLASSES), draw_labels(8, CLASSES)
    w = torch.tensor([1.0] * 4 + [0.0] * 4).double().unsqueeze(1)
    loss = mg.MetricLoss("f1", task="multilabel")
    assert_loss(loss, lambda x: macro(s.Linear()(x), y, w), z, y, w)


# Numbers at their limits


def test_full_memberships_leave_exactly_nothing() -> None:
    """A ramp's membership is summed in units of its slope: scaled back, a full one must not exceed 1 by rounding."""
    for surrogate in (s.Linear(), s.Linear(0.3, 0.7), s.Linear(0.0, 0.3)):
        for shape, task in (((1000,), "binary"), ((1000, 2), "multilabel")):
            z = torch.full(shape, 50.0, requires_grad=True)
            y = draw_labels(*shape).float()
            counts = mg.MetricLoss("npv", task=task, surrogate=surrogate).counts(z, y)  # type: ignore[arg-type]
            assert counts.fn.abs().max().item() == 0
            assert counts.tn.abs().max().item() == 0
            loss = mg.MetricLoss("npv", task=task, surrogate=surrogate)(z, y)  # type: ignore[arg-type]
            assert loss.item() == 1  # nothing is predicted negative: 0/0 counts as 0


def test_a_scaled_sum_does_not_exceed_its_margin() -> None:
    """Memberships of 0.1 in units of slightly more than 10, as rounding makes them: FN and TN must not be negative."""
    scale = 10 * (1 + 1e-6)
    labels, full, weight = draw_labels(40, 1), torch.full((40, 1), 0.1).double(), draw_uniform(40, 1)
    layout = statistics.ColumnLayout()
    for tp, fp, positives, negatives in (
        kernel._sum_memberships(layout, full.clone(), scale, labels, None, full.clone()),
        kernel._sum_memberships(layout, full.clone(), scale, labels, weight, full.clone()),
        kernel._sum_one_class(full.clone(), scale, labels, full.clone()),
    ):
        assert float(tp) == float(positives)
        assert float(fp) == float(negatives)


def test_positives_and_negatives_do_not_depend_on_the_logits() -> None:
    z, y = draw(ROWS, CLASSES).requires_grad_(), draw_labels(ROWS, CLASSES)
    call = mg.MetricLoss("f1", task="multilabel")._prepare_call(z, y, None, None)
    sums = kernel.Kernel.apply(call, False, z)  # type: ignore[no-untyped-call]
    assert [cell.requires_grad for cell in sums] == [True, True, False, False]


def test_enormous_derivatives_of_tiny_weights_stay_finite() -> None:
    z, y = draw(6, 2).float().requires_grad_(), torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3)
    mg.MetricLoss("f1", task="multilabel")(z, y, torch.full((6,), 1e-30)).backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_memory_is_that_of_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One number per logit is saved, and the gradient is written over it; two thresholds, or bfloat16, save none."""
    saved: list[Any] = []
    forward = kernel._forward_chunks

    def remember(*args: Any, **options: Any) -> Any:
        sums, kept = forward(*args, **options)
        saved.append(kept)
        return sums, kept

    monkeypatch.setattr(kernel, "_forward_chunks", remember)
    z, y, w = draw(ROWS, CLASSES).requires_grad_(), draw_labels(ROWS, CLASSES), draw_uniform(ROWS, 1)
    loss = mg.MetricLoss("f1", task="multilabel")
    (gradient,) = torch.autograd.grad(loss(z, y, w), z)
    assert saved[0].values.data_ptr() == gradient.data_ptr()
    assert len(saved[0].chunks) == 1
    mg.MetricLoss("f1", task="multilabel", threshold=[0.2, 0.4])(z, y, w)
    loss(z.bfloat16(), y, w)
    loss(z.detach(), y, w)
    assert saved[1:] == [None, None, None]
