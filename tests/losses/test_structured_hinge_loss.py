"""StructuredHingeLoss equals the maximum over all labellings, in value and subgradient."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad import metrics
from metricgrad.losses import worst_labelling as search

METRICS = [
    "f1",
    "f2",
    "accuracy",
    "mcc",
    "kappa",
    "jaccard",
    "g_mean",
    "precision",
    "npv",
    "markedness",
    "informedness",
]


def capped(c: Any) -> Any:
    """More than arithmetic."""
    return torch.minimum(metrics.recall(c), torch.sqrt(metrics.specificity(c)))


def brute(metric: Any, z: Tensor, y: Tensor) -> float:
    """The definition, over all 2ⁿ labellings."""
    h = torch.tensor(list(itertools.product((0.0, 1.0), repeat=len(z))), dtype=torch.float64)
    counts = mg.Counts(h @ y, h @ (1 - y), (1 - h) @ y, (1 - h) @ (1 - y))
    return float((1 - metric(counts) + (h - y) @ z / len(z)).max())


def draw(seed: int, n: int, share: float = 0.4, scale: float = 1.0, ties: bool = False) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, generator=g, dtype=torch.float64) * scale
    return z.round() if ties else z, (torch.rand(n, generator=g) < share).double()


@pytest.mark.parametrize("metric", [*METRICS, capped])
@pytest.mark.parametrize("whole", [True, False])
def test_it_is_the_maximum_over_all_labellings(metric: Any, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not whole:
        monkeypatch.setattr(search, "MAX_EXHAUSTIVE_PAIRS", 0)
    found = metrics.get(metric)
    loss = mg.StructuredHingeLoss(metric)
    for seed in range(8):
        z, y = draw(seed, n=1 + seed, share=(0.4, 0.4, 0.0, 1.0)[seed % 4], scale=(0.3, 1, 4)[seed % 3], ties=seed > 4)
        assert float(loss(z, y)) == pytest.approx(brute(found, z, y), abs=1e-12)


@pytest.mark.parametrize("metric", [name for name in metrics.names() if name != "quadratic_kappa"])
@pytest.mark.parametrize("seed", range(4))
def test_boxes_find_what_the_whole_table_holds(metric: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = draw(seed, n=400, share=(0.1, 0.5)[seed % 2], scale=(0.5, 3.0)[seed % 2], ties=seed == 3)
    if seed == 2:
        z = z + 2 * y - 1
    labels = y == 1
    values = []
    for limit in (1 << 20, 0):
        monkeypatch.setattr(search, "MAX_EXHAUSTIVE_PAIRS", limit)
        monkeypatch.setattr(search, "PAIRS_AT_A_TIME", 500)  # many chunks, of rows and of boxes
        worst = search.find_worst_labelling(metrics.get(metric), z, labels)
        values.append(float(worst.loss + worst.slope @ z))
    assert values[0] == pytest.approx(values[1], abs=1e-11)


def test_large_batches_are_bounded_not_searched() -> None:
    z, y = draw(0, n=50_000, share=0.5)
    rounds = []
    parts = search._split_boxes

    def counted(box: Tensor) -> Tensor:
        rounds.append(box.shape[1])
        return parts(box)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_split_boxes", counted)
        for metric in ("f1", "mcc", "accuracy"):
            rounds.clear()
            search.find_worst_labelling(metrics.get(metric), z + y, y == 1)
            assert 0 < sum(rounds) < 3000


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_that_of_the_maximum(seed: int) -> None:
    z, y = draw(seed, n=9, scale=2.0)
    z.requires_grad_()
    loss = mg.StructuredHingeLoss("f1")
    (3 * loss(z, y)).backward()
    assert z.grad is not None
    steps = torch.eye(9, dtype=torch.float64) * 1e-6
    slope = [(brute(metrics.f1, z.detach() + e, y) - brute(metrics.f1, z.detach() - e, y)) / 2e-6 for e in steps]
    torch.testing.assert_close(z.grad, 3 * torch.tensor(slope, dtype=torch.float64), rtol=0, atol=1e-8)


def test_of_accuracy_it_is_the_ordinary_hinge() -> None:
    z, y = draw(0, n=3000)
    hinge = torch.clamp(1 - (2 * y - 1) * z, min=0).mean()
    torch.testing.assert_close(mg.StructuredHingeLoss("accuracy")(z, y), hinge)


@pytest.mark.parametrize("metric", ["f1", "mcc", "g_mean"])
def test_it_is_convex_and_bounds_the_hard_loss(metric: str) -> None:
    loss, hard = mg.StructuredHingeLoss(metric), mg.MetricLoss(metric, surrogate=mg.surrogates.Hard())
    for seed in range(10):
        z, y = draw(seed, n=40, scale=3.0)
        other, _ = draw(seed + 50, n=40, scale=3.0)
        assert float(loss(z, y)) >= float(hard(z, y)) - 1e-12
        assert float(loss((z + other) / 2, y)) <= float(loss(z, y) + loss(other, y)) / 2 + 1e-12


def test_classes_are_averaged_and_dense_predictions_flattened() -> None:
    z, y = draw(1, n=60)
    loss = mg.StructuredHingeLoss("f1", task="multilabel")
    one = mg.StructuredHingeLoss("f1")
    table, labels = z.reshape(20, 3), y.reshape(20, 3)
    expected = torch.stack([one(table[:, k], labels[:, k]) for k in range(3)]).mean()
    torch.testing.assert_close(loss(table, labels), expected)
    dense = table.reshape(5, 2, 2, 3).permute(0, 3, 1, 2), labels.reshape(5, 2, 2, 3).permute(0, 3, 1, 2)
    torch.testing.assert_close(loss(*dense), expected)


def test_a_parameter_per_class() -> None:
    z, y = draw(1, n=60)
    table, labels = z.reshape(20, 3), y.reshape(20, 3)
    betas = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    loss = mg.StructuredHingeLoss(partial(metrics.f_beta, beta=betas), task="multilabel")
    each = [mg.StructuredHingeLoss(f"f{beta}")(table[:, k], labels[:, k]) for k, beta in enumerate(betas.tolist())]
    torch.testing.assert_close(loss(table, labels), torch.stack(each).mean())


def test_masks_delete_and_whole_weights_repeat() -> None:
    z, y = draw(2, n=30)
    keep = torch.arange(30) % 3 > 0
    loss = mg.StructuredHingeLoss("f1", ignore_index=-1)
    hidden = z.where(keep, torch.nan).requires_grad_()
    masked = loss(hidden, y, mask=keep)
    masked.backward()
    torch.testing.assert_close(masked, loss(z[keep], y[keep]))
    assert hidden.grad is not None
    assert (hidden.grad[~keep] == 0).all()
    torch.testing.assert_close(loss(z, y.where(keep, -1)), masked)
    weight = torch.arange(30) % 4
    leaf = z.clone().requires_grad_()
    weighted = loss(leaf, y, weight)
    weighted.backward()
    again = z.clone().requires_grad_()
    repeated = loss(again.repeat_interleave(weight), y.repeat_interleave(weight))
    repeated.backward()
    torch.testing.assert_close(weighted, repeated)
    torch.testing.assert_close(leaf.grad, again.grad)


@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("metric", ["f1", "mcc", "accuracy", "g_mean"])
def test_no_positives_no_negatives_nothing(metric: str, share: float, n: int) -> None:
    z = torch.linspace(-1, 1, n).requires_grad_()
    loss = mg.StructuredHingeLoss(metric)(z, torch.full((n,), share))
    loss.backward()
    assert loss.isfinite()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_everything_masked() -> None:
    z = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = mg.StructuredHingeLoss("f1", task="multilabel")(z, torch.ones(4, 2), mask=torch.zeros(4) > 0)
    loss.backward()
    assert loss.item() == 1.0
    assert z.grad is not None
    assert (z.grad == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_any_precision_and_large_logits(dtype: torch.dtype, scale: float) -> None:
    z, y = draw(3, n=50)
    logits = (z.clamp(-3, 3) * scale / 3).to(dtype).requires_grad_()
    loss = mg.StructuredHingeLoss("f1")
    value = loss(logits, y)
    value.backward()
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(value.double(), loss(logits.double(), y), rtol=1e-5, atol=1e-6)
    assert logits.grad is not None
    assert logits.grad.dtype == dtype
    assert logits.grad.isfinite().all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(loss(logits, y), value)


def test_it_can_be_compiled_around_and_transformed() -> None:
    z, y = draw(0, n=30)
    loss = mg.StructuredHingeLoss("f1")
    leaf = z.clone().requires_grad_()
    torch.compile(loss, backend="eager")(leaf, y).backward()
    torch.testing.assert_close(leaf.grad, torch.func.grad(lambda logits: loss(logits, y))(z))


def test_nan_stays_visible() -> None:
    z, y = draw(0, n=5)
    z[2] = torch.nan
    assert mg.StructuredHingeLoss("f1")(z, y).isnan()


def test_it_pickles_copies_and_prints() -> None:
    z, y = draw(0, n=12)
    loss = mg.StructuredHingeLoss("f2", ignore_index=-1)
    for again in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):  # noqa: S301
        torch.testing.assert_close(again(z, y), loss(z, y))
    assert repr(loss) == "StructuredHingeLoss(f_beta(beta=2.0), task='binary', ignore_index=-1)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "f1", "task": "multiclass"}, r"task: expected 'binary' or 'multilabel' .*, got 'multiclass'"),
        ({"metric": "quadratic_kappa"}, r"metric: quadratic_kappa is of the d×d matrix; expected a function of Counts"),
        ({"metric": "f1x"}, r"metric: unknown name 'f1x'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mg.StructuredHingeLoss(**options)


@pytest.mark.parametrize(
    ("targets", "weight", "message"),
    [
        ([0.0, 0.5], None, "targets: expected 0 or 1, a labelling has no soft labels"),
        ([0.0, 1.0], [1.0, 0.5], "weight: expected whole numbers, which repeat samples"),
        ([0.0, 1.0], [1.0, 1e12], r"weight: expected whole numbers of at most \d+ in all, .*, got 1e\+12; divide them"),
        ([0.0, 1.0], [1.0, math.inf], "weight: expected whole numbers of at most .*, got inf; divide them"),
        ([0.0, 1.0], [1.0, -1.0], "weight: expected no negative value"),
        ([0.0, 2.0], None, r"targets: expected values in \[0, 1\]"),
    ],
)
def test_bad_batches_are_refused(targets: list[float], weight: list[float] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mg.StructuredHingeLoss("f1")(
            torch.zeros(2), torch.tensor(targets), None if weight is None else torch.tensor(weight)
        )
