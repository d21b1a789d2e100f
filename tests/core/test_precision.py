"""Numbers at the edges of their type: tiny denominators, sums of many rows, one negative beside many positives."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad import metrics as M
from metricgrad import surrogates as s

METRICS = [name for name in M.names() if name not in ("subset_accuracy", "quadratic_kappa")]
SATURATING: list[Any] = [
    s.Linear(),
    s.Linear(0.0),
    s.Linear(0.4, 0.1),
    s.Sigmoid(),
    s.LogitSigmoid(),
    s.LogitSigmoid(20.0),
    s.Identity(),
    s.UnitsVsZeros(),
]
LEVELS = (-120, -104, -90, -70, -50, -35, -20, -10, -5, 0, 5, 10, 20, 35, 50, 70, 90, 104, 120)
"""Logits: memberships are not yet 0 or 1, nearly, denormal (from 88 on), and rounded to 0 (from 104 on)."""


def run(loss: Any, z: Tensor, y: Tensor, *more: Tensor) -> tuple[Tensor, Tensor]:
    z = z.detach().clone().requires_grad_()
    value = loss(z, y, *more)
    value.sum().backward()
    assert z.grad is not None
    return value.detach(), z.grad


def in_float64(loss: Any, z: Tensor, y: Tensor, *more: Tensor) -> tuple[Tensor, Tensor]:
    return run(loss, z.double(), y, *(x.double() for x in more))


# Denominators


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ratio_and_root_are_safe_for_every_size(dtype: torch.dtype) -> None:
    """1/x of a denormal is infinite, and infinity times the zero slope of a saturated membership is NaN."""
    sizes = torch.tensor([0.0, torch.finfo(dtype).smallest_normal], dtype=dtype)
    sizes = torch.cat((sizes, sizes / 2**20, sizes * 2**20, sizes * 2**40)).requires_grad_()
    for value in (M.ratio(sizes, sizes, empty=0.5), M.ratio(sizes.detach(), sizes), M.root(sizes)):
        (gradient,) = torch.autograd.grad(value.sum(), sizes)
        assert gradient.isfinite().all()
        assert ((0 * gradient) == 0).all()
    assert M.ratio(torch.tensor(3, dtype=torch.int64), torch.tensor(4, dtype=torch.int64)).item() == 0.75
    assert M.root(torch.tensor([0, 4])).tolist() == [0.0, 2.0]


@pytest.mark.parametrize("average", ["macro", "micro", "samples", None])
@pytest.mark.parametrize("surrogate", SATURATING, ids=repr)
def test_every_logit_gives_a_finite_gradient(surrogate: Any, average: Any) -> None:
    """Every metric, with and without positives, over all logits between those where memberships are 0 and 1."""
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(6, 3, generator=g)
    labels = {"none": torch.zeros(6, 3), "all": torch.ones(6, 3), "some": (noise < 0).float()}
    for metric, name in itertools.product([*METRICS, "f20"], labels):
        loss = mg.MetricLoss(metric, task="multilabel", surrogate=surrogate, average=average)
        for level in LEVELS:
            value, gradient = run(loss, noise + level, labels[name])
            assert value.isfinite().all(), (metric, name, level)
            assert gradient.isfinite().all(), (metric, name, level)
            assert gradient.abs().max() < 50, (metric, name, level)


@pytest.mark.parametrize("surrogate", [s.TopTwo(), s.TopTwo(0.0, 0.2), s.Sigmoid(), s.LogitSigmoid(), s.Identity()])
def test_every_logit_gives_a_finite_gradient_of_rows(surrogate: Any) -> None:
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(6, 3, generator=g)
    for metric, y in itertools.product(
        [*METRICS, "quadratic_kappa"], (torch.zeros(6, dtype=torch.long), torch.arange(6) % 3)
    ):
        loss = mg.MetricLoss(metric, task="multiclass", surrogate=surrogate)
        for level in LEVELS[LEVELS.index(0) :]:
            value, gradient = run(loss, noise + level * torch.tensor([1.0, 0.0, -1.0]), y)
            assert value.isfinite().all(), (metric, level)
            assert gradient.isfinite().all(), (metric, level)


def test_rare_labels_do_not_make_weights_nan() -> None:
    """A head that starts at the labels' small shares, most of them absent from a batch: NaN within three steps."""
    g = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(8, 100)
    torch.nn.init.constant_(head.bias, -7.0)
    torch.nn.init.normal_(head.weight, generator=g)
    loss = mg.presets.sigmoid_f1(beta=20.0)
    optimiser = torch.optim.Adam(head.parameters(), 0.05)
    for _ in range(10):
        y = (torch.rand(32, 100, generator=g) < 0.001).float()
        optimiser.zero_grad()
        loss(head(torch.randn(32, 8, generator=g)), y).backward()
        optimiser.step()
    assert all(parameter.isfinite().all() for parameter in head.parameters())


def test_dice_of_confident_background_is_finite() -> None:
    for level in range(-60, -40):
        z = torch.full((2, 1, 8, 8), float(level))
        value, gradient = run(mg.baselines.dice(per_image=True), z, torch.zeros(2, 1, 8, 8))
        assert value.isfinite()
        assert gradient.isfinite().all()


def test_derivatives_that_float32_cannot_hold() -> None:
    """Kappa divides shares of a total of 1e-29 by a product of such: in plain numbers the derivative was 1e50."""
    z, y = torch.tensor([-60.0, -50.0, -70.0]), torch.tensor([0.0, 0.0, 0.0])
    for metric, shape, size in itertools.product(("kappa", "mcc"), ((3,), (3, 1)), (1e-30, 1e-29, 1e-20)):
        value, gradient = run(mg.MetricLoss(metric), z.view(shape), y.view(shape), torch.full((3,), size))
        assert value.isfinite()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-35, 1e-25, 1e25])
def test_weights_of_every_size(size: float) -> None:
    g = torch.Generator().manual_seed(0)
    z, y = torch.randn(6, 3, generator=g), (torch.rand(6, 3, generator=g) < 0.5).float()
    average: Any
    for metric, average in itertools.product(METRICS, ("macro", "micro", "weighted", "samples", None)):
        loss = mg.MetricLoss(metric, task="multilabel", average=average)
        value, gradient = run(loss, z, y, torch.full((6,), size))
        assert value.isfinite().all(), metric
        assert gradient.isfinite().all(), metric
        if size in (1e-25, 1e25):
            torch.testing.assert_close(value, run(loss, z, y)[0], msg=metric)


# Nothing predicted, and everything


@pytest.mark.parametrize("metric", ["precision", "markedness", "f1", "mcc"])
@pytest.mark.parametrize("surrogate", [s.Linear(), s.Linear(0.3), s.Linear(0.1, 0.5), s.LogitSigmoid()], ids=repr)
@pytest.mark.filterwarnings("ignore:logits. those of all positives:UserWarning")  # logits so low are what is tested
def test_memberships_of_nearly_nothing_keep_their_ratio(metric: str, surrogate: Any) -> None:
    """The ramp left a residue of 1e-8 beside memberships of 1e-26, which precision took for true positives."""
    g = torch.Generator().manual_seed(0)
    w = torch.rand(40, generator=g)
    y = (torch.rand(40, generator=g) < 0.4).float()
    loss = mg.MetricLoss(metric, surrogate=surrogate)
    one_alive = torch.full((40,), -60.0)
    one_alive[3] = -14.0
    for z in (torch.randn(40, generator=g) - 60, torch.randn(40, generator=g) - 30, one_alive):
        for more in ((), (w,)):
            for got, wanted in zip(run(loss, z, y, *more), in_float64(loss, z, y, *more), strict=True):
                torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-6)


def test_full_memberships_leave_nothing_over() -> None:
    """NPV of rounding would be any number."""
    w = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    y = (torch.arange(1000) % 3 == 0).float()
    steps = (s.Linear(), s.Linear(0.3), s.Linear(0.07, 0.3), s.LogitSigmoid())
    for surrogate, more, threshold, dtype in itertools.product(
        steps, ((), (w,)), (0.5, 0.02), (torch.float32, torch.float64)
    ):
        takes = {} if isinstance(surrogate, s.LogitSigmoid) else {"threshold": threshold}
        loss = mg.MetricLoss("npv", surrogate=surrogate, **takes)  # type: ignore[arg-type]
        z = torch.full((1000,), 60.0, dtype=dtype)
        counts = loss.counts(z, y, *more)
        assert counts.fn.item() == 0
        assert counts.tn.item() == 0
        value, gradient = run(loss, z, y, *more)
        assert value.item() == 1
        assert (gradient == 0).all()


@pytest.mark.parametrize("columns", [1, 3])
def test_one_negative_among_many_positives(columns: int) -> None:
    """FP is no difference of sums that are a hundred thousand times larger, and a no difference of b and a − b."""
    rows = 200_000
    g = torch.Generator().manual_seed(0)
    z, y = torch.randn(rows, columns, generator=g), torch.ones(rows, columns)
    y[7] = 0
    for metric in ("specificity", "balanced_accuracy", "informedness"):
        loss = mg.MetricLoss(metric, task="multilabel")
        value, gradient = run(loss, z, y)
        wanted, exact = in_float64(loss, z, y)
        torch.testing.assert_close(value.double(), wanted, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(gradient.double(), exact, rtol=1e-4, atol=1e-10)


# Many rows


@pytest.mark.parametrize("metric", ["accuracy", "f1", "balanced_accuracy"])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_many_rows_are_exact(metric: str, weighted: bool) -> None:
    """Added up one by one in float32 the accuracy of 2e6 rows of unequal classes was off by 1e-3."""
    rows = 2_000_000
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 50, (rows,), generator=g).clamp(max=2)
    z = torch.randn(rows, 3, generator=g)
    more = (torch.rand(rows, generator=g) + 0.5,) if weighted else ()
    loss = mg.MetricLoss(metric, task="multiclass")
    with torch.no_grad():
        value, wanted = loss(z, y, *more), loss(z.double(), y, *(x.double() for x in more))
    assert abs(value.item() - wanted.item()) < 2e-6
    # Soft labels and the plain path add up in blocks, too.
    if metric == "accuracy" and not weighted:
        hot = torch.nn.functional.one_hot(y, 3).float()
        with torch.no_grad():
            assert abs(loss(z, hot).item() - wanted.item()) < 2e-6
            plain = mg.MetricLoss(metric, task="multiclass", surrogate=lambda x: s.TopTwo().rows(x))
            assert abs(plain(z, y).item() - wanted.item()) < 2e-6


def test_a_cell_passes_the_largest_whole_number_of_float32() -> None:
    rows = 2**24 + 1000
    z = torch.zeros(rows, 2)
    z[:, 0] = 50
    counts = mg.MetricLoss("accuracy", task="multiclass").counts(z, torch.zeros(rows, dtype=torch.long))
    assert counts.matrix[0, 0].item() == pytest.approx(rows, rel=1e-7)


# Modes and devices


def test_inference_mode_before_training_and_in_itself() -> None:
    """Buffers made in inference mode must not serve training, and every metric has a value there."""
    g = torch.Generator().manual_seed(0)
    z, y, classes = (
        torch.randn(20_000, 3, generator=g),
        torch.rand(20_000, 3, generator=g) < 0.4,
        torch.arange(20_000) % 3,
    )

    def own(c: mg.Counts) -> Tensor:
        return torch.log1p(c.tp) / torch.log1p(c.total)

    cases: list[tuple[Any, Tensor]] = [
        (mg.MetricLoss("f1", task="multilabel"), y),
        (mg.MetricLoss("accuracy", task="multiclass"), classes),
        (mg.MetricLoss("kappa", task="multiclass"), classes),
        (mg.MetricLoss("subset_accuracy", task="multilabel", average="samples"), y),
        (mg.MetricLoss(own, task="multilabel"), y),
        (mg.baselines.focal_tversky(task="multilabel"), y),
        (mg.ConstrainedLoss("recall", "precision>=0.5", task="multilabel"), y),
    ]
    for loss, targets in cases:
        expected = loss(z, targets)
        with torch.inference_mode():
            torch.testing.assert_close(loss(z * 1.0, targets), expected)
        value, gradient = run(loss, z, targets)
        torch.testing.assert_close(value, expected)
        assert gradient.isfinite().all()
    with torch.inference_mode():
        scores = torch.sigmoid(z[:, 0])
        tuning = mg.tune_threshold("recall", scores, y[:, 0], subject_to="precision>=0.3", confidence=0.9)
    assert 0 < tuning.threshold < 1


def test_constants_of_inference_mode_serve_training() -> None:
    script = (
        "import torch, metricgrad as mg\n"
        "loss = mg.MetricLoss('f1', task='multilabel')\n"
        "y = torch.ones(300, 200)\n"
        "with torch.inference_mode():\n"
        "    loss(torch.zeros(300, 200), y)\n"
        "z = torch.zeros(300, 200, requires_grad=True)\n"
        "loss(z, y).backward()\n"
        "torch.autograd.grad(loss(z, y, torch.ones(300)), z, create_graph=True)\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, cwd=Path(__file__).parent)


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
def test_an_empty_batch_with_ignore_index(task: Any) -> None:
    z = torch.zeros(0, 3) if task != "binary" else torch.zeros(0)
    y = torch.zeros(0, dtype=torch.long) if task != "multilabel" else torch.zeros(0, 3)
    losses: list[Any] = [
        mg.MetricLoss("f1", task=task, ignore_index=-1),
        mg.HybridLoss("f1", task=task, ignore_index=-1),
    ]
    if task != "multiclass":
        losses += [mg.AUROCLoss(task=task, ignore_index=-1), mg.StructuredHingeLoss("f1", task=task, ignore_index=-1)]
        losses += [mg.EERLoss(task=task, ignore_index=-1), mg.baselines.dice(True, task=task, ignore_index=-1)]
    for loss in losses:
        value, gradient = run(loss, z, y)
        assert value.isfinite()
        assert gradient.shape == z.shape


def test_the_meta_device_has_shapes_and_no_values() -> None:
    z = torch.zeros(6, 3, device="meta", requires_grad=True)
    y, classes = torch.zeros(6, 3, device="meta"), torch.zeros(6, dtype=torch.long, device="meta")
    cases: list[tuple[Any, Tensor]] = [
        (mg.MetricLoss("f1", task="multilabel"), y),
        (mg.MetricLoss("f1", task="multiclass"), classes),
        (mg.MetricLoss("mcc", task="multiclass"), classes),
        (mg.presets.multiclass_f_beta([0.5, 1.0, 2.0]), classes),
        (mg.HybridLoss("f1", task="multilabel"), y),
        (mg.AUROCLoss(task="multilabel"), y),
        (mg.WMWLoss(task="multilabel"), y),
        (mg.baselines.lovasz_hinge(task="multilabel"), y),
        (mg.ConstrainedLoss("recall", "precision>=0.5", task="multilabel"), y),
    ]
    with pytest.raises(ValueError, match="got the meta device"):
        mg.StructuredHingeLoss("f1", task="multilabel")(z, y)
    for loss, targets in cases:
        value = loss.to("meta")(z, targets)
        assert value.shape == ()
        (gradient,) = torch.autograd.grad(value, z)
        assert gradient.shape == z.shape


def test_a_beta_per_class_moves_with_the_loss() -> None:
    loss = mg.presets.multiclass_f_beta([0.5, 1.0, 2.0])
    assert [buffer.tolist() for buffer in loss.buffers()] == [[0.5, 1.0, 2.0]]
    assert loss.state_dict() == {}
    z, y = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 3
    before = loss(z, y)
    moved = loss.double()
    assert moved.metric.keywords["beta"].dtype == torch.float64  # type: ignore[attr-defined]
    torch.testing.assert_close(moved(z, y), before, check_dtype=False)
    assert loss.to("meta").metric.keywords["beta"].is_meta  # type: ignore[attr-defined]


def test_backward_twice_gives_the_same_bits() -> None:
    """What ``gradcheck`` asks for: the gradient that is kept and the one that is computed again are one."""
    g = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        z = torch.randn(33, 3, generator=g, dtype=dtype, requires_grad=True)
        y, classes = (torch.rand(33, 3, generator=g) < 0.5).to(dtype), torch.arange(33) % 3
        w = torch.rand(33, generator=g, dtype=dtype)
        for metric, surrogate in itertools.product(("f1", "mcc"), (s.Linear(), s.Sigmoid(), s.LogitSigmoid())):
            for value in (
                mg.MetricLoss(metric, task="multilabel", surrogate=surrogate)(z, y),
                mg.MetricLoss(metric, surrogate=surrogate)(z[:, 0], y[:, 0]),
                mg.MetricLoss(metric, task="multilabel", surrogate=surrogate)(z, y, w),
                mg.MetricLoss(metric, task="multiclass")(z, classes),
            ):
                for scale in (1.0, 0.3):
                    factor = torch.tensor(scale, dtype=dtype)
                    first, second = (torch.autograd.grad(value, z, factor, retain_graph=True)[0] for _ in range(2))
                    assert torch.equal(first, second)
    x = torch.randn(7, 2, generator=g, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: mg.MetricLoss("f1", task="multilabel")(z, (x > 0).double()), x)


def test_one_class_of_rows_is_certain() -> None:
    z = torch.full((4, 1), -60.0)
    loss = mg.MetricLoss("f1", task="multiclass", surrogate=s.LogitSigmoid(10.0))
    assert loss(z, torch.zeros(4, dtype=torch.long)).item() == 0


# The attack


@pytest.mark.filterwarnings("ignore:logits. those of all positives:UserWarning")  # logits so low are what is tested
def test_attack_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the cases of ``benchmarks/attack.py``."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from attacks import batches

    failures = {number: found for number in range(1500) if (found := batches.check(number)) is not None}
    assert failures == {}
