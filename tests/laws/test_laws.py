"""Laws that hold whatever the data: additivity, weights as repetition, masks as deletion, one value by every path."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import metricgrad as mg
import reference
from metricgrad import Confusion, Counts, Mean
from metricgrad.core import chunking
from metricgrad.surrogates import (
    Hard,
    Identity,
    Learned,
    Linear,
    LogitSigmoid,
    Sigmoid,
    StraightThrough,
    Table,
    TopTwo,
    Unbounded,
    UnitsVsZeros,
)

if TYPE_CHECKING:
    from collections.abc import Callable

M = mg.metrics
law = settings(derandomize=True, deadline=None, max_examples=15, database=None)
seeds = st.integers(0, 2**31)
few = st.integers(2, 12)

# Every layout: cells per class from labels and from indices, cells per row, the matrix; one or several thresholds.
SETUPS: dict[str, dict[str, Any]] = {
    "binary": {"metric": "f1"},
    "binary, skip": {"metric": "f2", "empty_classes": "skip"},
    "binary, thresholds": {"metric": "jaccard", "threshold": [0.3, 0.5, 0.8]},
    "macro": {"metric": "f1", "task": "multilabel"},
    "macro, skip": {"metric": "f1", "task": "multilabel", "empty_classes": "skip"},
    "macro, labels": {"metric": "f1", "task": "multilabel", "labels": [1, 0]},
    "micro": {"metric": "f0.5", "task": "multilabel", "average": "micro"},
    "micro, labels": {"metric": "f0.5", "task": "multilabel", "average": "micro", "labels": [1]},
    "weighted": {"metric": "jaccard", "task": "multilabel", "average": "weighted"},
    "per class": {"metric": "tversky", "task": "multilabel", "average": None},
    "samples": {"metric": "f1", "task": "multilabel", "average": "samples"},
    "samples, labels": {"metric": "f1", "task": "multilabel", "average": "samples", "labels": [1, 0]},
    "macro, thresholds": {"metric": "f1", "task": "multilabel", "threshold": [0.2, 0.6]},
    "micro, thresholds": {"metric": "f1", "task": "multilabel", "average": "micro", "threshold": [0.2, 0.6]},
    "weighted, thresholds": {"metric": "f1", "task": "multilabel", "average": "weighted", "threshold": [0.2, 0.6]},
    "samples, thresholds": {"metric": "f1", "task": "multilabel", "average": "samples", "threshold": [0.2, 0.6]},
    "multiclass": {"metric": "f1", "task": "multiclass"},
    "multiclass, micro": {"metric": "jaccard", "task": "multiclass", "average": "micro"},
    "multiclass, labels": {"metric": "f1", "task": "multiclass", "average": "weighted", "labels": [1]},
    "multiclass, per class": {"metric": "f1", "task": "multiclass", "average": None},
    "matrix": {"metric": "kappa", "task": "multiclass"},
    "matrix, distances": {"metric": "quadratic_kappa", "task": "multiclass"},
}
ELEMENTWISE = [name for name, setup in SETUPS.items() if setup.get("task") != "multiclass"]
MULTICLASS = [name for name in SETUPS if name not in ELEMENTWISE]

STEPS: dict[str, Any] = {
    "Linear": Linear(),
    "Linear, narrow": Linear(delta=0.05, width=0.1),
    "Linear, flat": Linear(delta=0.45, width=0.9),
    "Sigmoid": Sigmoid(k=7.0),
    "Table": Table(Linear(), decimals=2),
    "StraightThrough": StraightThrough(Sigmoid()),
    "Hard": Hard(),
}
WITHOUT_THRESHOLD: dict[str, Any] = {
    "LogitSigmoid": LogitSigmoid(),
    "LogitSigmoid, moved": LogitSigmoid(beta=2.5, eta=-0.5),
    "Identity": Identity(),
    "UnitsVsZeros": UnitsVsZeros(alpha=2.0, beta=0.1),
}
OF_ROWS: dict[str, Any] = {
    "TopTwo": TopTwo(),
    "TopTwo, narrow": TopTwo(delta=0.05, width=0.2),
    "Linear": Linear(),
    "Sigmoid": Sigmoid(k=7.0),
    "LogitSigmoid": LogitSigmoid(beta=2.0),
    "Identity": Identity(),
    "StraightThrough": StraightThrough(TopTwo()),
    "Hard": Hard(),
}


def surrogates_for(setup: str) -> dict[str, Any]:
    if setup in MULTICLASS:
        return OF_ROWS
    return STEPS if "threshold" in SETUPS[setup] else {**STEPS, **WITHOUT_THRESHOLD}


def make(setup: str, surrogate: Any = None, **options: Any) -> mg.MetricLoss:
    return mg.MetricLoss(**{**SETUPS[setup], "surrogate": surrogate, **options})


def data(
    setup: str, n: int, seed: int, soft: bool = False, scale: float = 2.0, classes: int = 0
) -> tuple[Tensor, Tensor, Tensor, torch.Generator]:
    """Logits, targets and weights per sample in float64, and the generator for more."""
    g = torch.Generator().manual_seed(seed)
    task = SETUPS[setup].get("task", "binary")
    least = 2 if task == "multiclass" or "labels" in SETUPS[setup] else 1
    k = classes or least + seed % 4
    shape = (n,) if task == "binary" else (n, k)
    z = scale * torch.randn(shape, generator=g, dtype=torch.float64)
    if task == "multiclass":
        y = torch.randint(0, k, (n,), generator=g)
        if soft:
            y = torch.softmax(torch.randn(n, k, generator=g, dtype=torch.float64), 1)
    else:
        y = torch.rand(shape, generator=g, dtype=torch.float64)
        y = y if soft else (y < 0.4).double()
    return z, y, 0.1 + torch.rand(n, generator=g, dtype=torch.float64), g


def run(loss: mg.MetricLoss, z: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """The value and the gradient by the logits, by the fast path."""
    z = z.detach().clone().requires_grad_()
    value = loss(z, *rest)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), gradient


def same(got: Any, expected: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------------------------------- additivity


@pytest.mark.parametrize("setup", SETUPS)
@law
@given(n=few, cut=st.integers(0, 12), seed=seeds, weighted=st.booleans(), soft=st.booleans())
def test_statistics_add_over_shards(setup: str, n: int, cut: int, seed: int, weighted: bool, soft: bool) -> None:
    z, y, w, _ = data(setup, n, seed, soft)
    loss, parts = make(setup), (slice(0, cut), slice(cut, n))
    first, second = (loss.counts(z[part], y[part], w[part] if weighted else None) for part in parts)
    whole = loss.counts(z, y, w if weighted else None)
    kind = Mean if "samples" in setup else Confusion if "matrix" in setup else Counts
    assert isinstance(whole, kind)
    for cell, added in zip(whole.cells(), (first + second).cells(), strict=True):
        same(added, cell)
    same(1 - loss.value(first + second), loss(z, y, w if weighted else None))


def test_statistics_of_different_kinds_do_not_add() -> None:
    one = torch.ones(1)
    with pytest.raises(TypeError):
        Counts(one, one, one, one) + Mean(one, one)  # type: ignore[operator]


@law
@given(n=st.integers(0, 8), k=st.integers(1, 4), seed=seeds, weights=st.integers(0, 2), masked=st.booleans())
def test_count_equals_reference(n: int, k: int, seed: int, weights: int, masked: bool) -> None:
    g = torch.Generator().manual_seed(seed)
    m, y = (torch.rand(shape, generator=g, dtype=torch.float64) for shape in ((2, n, k), (n, k)))
    w = torch.rand((n, k)[:weights], generator=g, dtype=torch.float64) if weights else None
    mask = torch.rand(n, k, generator=g) < 0.7 if masked else None
    full = np.ones((n, k)) if w is None else np.broadcast_to(w.numpy().reshape(n, -1), (n, k))
    counts = mg.count(m, y, w, mask)
    for i in range(2):
        expected = reference.counts(m[i].numpy(), y.numpy(), full * (1.0 if mask is None else mask.numpy()))
        for name, cells in expected.items():
            same(getattr(counts, name)[i], torch.tensor(cells, dtype=torch.float64))


# --------------------------------------------------------------------------------- weights, permutations


@pytest.mark.parametrize("setup", SETUPS)
@law
@given(n=few, seed=seeds, soft=st.booleans())
def test_whole_weights_are_repetition(setup: str, n: int, seed: int, soft: bool) -> None:
    z, y, _, g = data(setup, n, seed, soft)
    times = torch.randint(0, 4, (n,), generator=g)
    rows = torch.arange(n).repeat_interleave(times)
    loss = make(setup)
    value, gradient = run(loss, z, y, times.double())
    repeated, by_copy = run(loss, z[rows], y[rows])
    same(value, repeated)
    same(gradient, torch.zeros_like(gradient).index_add_(0, rows, by_copy))


@pytest.mark.parametrize("setup", SETUPS)
@law
@given(n=few, seed=seeds, soft=st.booleans())
def test_order_of_rows_does_not_matter(setup: str, n: int, seed: int, soft: bool) -> None:
    z, y, w, g = data(setup, n, seed, soft)
    order = torch.randperm(n, generator=g)
    loss = make(setup)
    value, gradient = run(loss, z, y, w)
    permuted, by_permuted = run(loss, z[order], y[order], w[order])
    same(permuted, value)
    same(by_permuted, gradient[order])


# With distances between classes their order is the point.
UNORDERED = [n for n, setup in SETUPS.items() if "task" in setup and "labels" not in setup and n != "matrix, distances"]


@pytest.mark.parametrize("setup", UNORDERED)
@law
@given(n=few, seed=seeds, soft=st.booleans())
def test_names_of_classes_do_not_matter(setup: str, n: int, seed: int, soft: bool) -> None:
    z, y, w, g = data(setup, n, seed, soft)
    order = torch.randperm(z.shape[1], generator=g)
    moved = torch.argsort(order)[y] if y.dim() == 1 else y[:, order]
    loss = make(setup)
    value, gradient = run(loss, z, y, w)
    permuted, by_permuted = run(loss, z[:, order], moved, w)
    same(permuted, value[order] if value.dim() else value)
    same(by_permuted, gradient[:, order])


# ------------------------------------------------------------------------------------ margins and bounds


@pytest.mark.parametrize("setup", ["binary", "macro", "macro, thresholds", "multiclass"])
@law
@given(n=few, seed=seeds, soft=st.booleans(), weighted=st.booleans(), pick=st.integers(0, 100))
def test_margins_are_those_of_the_labels(setup: str, n: int, seed: int, soft: bool, weighted: bool, pick: int) -> None:
    """TP + FN = P and FP + TN = N, whatever is predicted."""
    z, y, w, _ = data(setup, n, seed, soft)
    options = list(surrogates_for(setup).values())
    counts = make(setup, options[pick % len(options)]).counts(z, y, w if weighted else None)
    w = (w if weighted else torch.ones(n, dtype=torch.float64))[:, None]
    hot = torch.nn.functional.one_hot(y, z.shape[1]).double() if y.dtype == torch.int64 else y.reshape(n, -1)
    shape = counts.tp.shape
    same(counts.tp + counts.fn, (w * hot).sum(0).expand(shape))
    same(counts.fp + counts.tn, (w * (1 - hot)).sum(0).expand(shape))
    for name, margin in (("positives", w * hot), ("negatives", w * (1 - hot)), ("total", w.expand(hot.shape))):
        same(getattr(counts, name), margin.sum(0).expand(shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [41, 1000, 5000])
@pytest.mark.parametrize(
    ("task", "weights"), [("multilabel", 0), ("multilabel", 1), ("multilabel", 2), ("multiclass", 0), ("multiclass", 1)]
)
def test_empty_margins_are_exactly_empty(task: Any, weights: int, n: int, dtype: torch.dtype) -> None:
    """Nothing but positives leaves no negatives, not 1e-7 of them: a rate of that noise would be any number."""
    g = torch.Generator().manual_seed(n)
    for classes in (2, 5):
        z = torch.randn(n, classes, generator=g, dtype=dtype)
        w = torch.rand((n, classes)[:weights], generator=g, dtype=dtype) if weights else None
        y = torch.ones(n, classes, dtype=dtype) if task == "multilabel" else torch.zeros(n, dtype=torch.long)
        for surrogate in (Hard(), Identity(), Linear()):
            loss = mg.MetricLoss("specificity", task=task, surrogate=surrogate, average=None)
            c = loss.counts(z, y, w).map(lambda cell: cell[0])
            assert float(c.fp + c.tn) == 0
            assert float(M.specificity(c)) == 0
            assert float(M.balanced_accuracy(c)) == pytest.approx(float(M.recall(c)), rel=1e-5)
            assert float(loss(z, y, w)[0]) == 1
        # The same of what is predicted: the first class always, so that nothing is left out of it.
        z[:, 0] = 9
        y = torch.randint(0, 2, y.shape, generator=g)
        c = mg.MetricLoss("npv", task=task, surrogate=Hard(), average=None).counts(z, y, w).map(lambda cell: cell[0])
        assert float(c.fn + c.tn) == 0
        assert float(M.npv(c)) == 0


SIGNED = ["mcc", "kappa", "informedness", "markedness"]
BOUNDED = sorted(set(M.names()) - {*SIGNED, "quadratic_kappa", "subset_accuracy", "savings"})  # no lowest savings


@pytest.mark.parametrize("scale", [1.0, 60.0])
@settings(law, max_examples=8)
@given(n=st.integers(1, 12), seed=seeds, soft=st.booleans(), weighted=st.booleans(), pick=st.integers(0, 100))
def test_values_are_in_range(scale: float, n: int, seed: int, soft: bool, weighted: bool, pick: int) -> None:
    """In [0, 1] or [−1, 1], soft or saturated (logits of ±60), with classes absent and labels all on."""
    for setup in ("macro", "samples", "multiclass", "matrix"):
        z, y, w, _ = data(setup, n, seed, soft, scale)
        options = list(surrogates_for(setup).values())
        task: Any = SETUPS[setup]["task"]
        average: Any = "samples" if setup == "samples" else None
        for metric in ["quadratic_kappa", "mcc", "kappa"] if setup == "matrix" else BOUNDED + SIGNED:
            loss = mg.MetricLoss(metric, task=task, average=average, surrogate=options[pick % len(options)])
            value, gradient = run(loss, z, y, w if weighted else None)
            low = -1.0 if metric in SIGNED or setup == "matrix" else 0.0
            assert (1 - value >= low - 1e-6).all(), metric
            assert (1 - value <= 1 + 1e-6).all(), metric
            assert gradient.isfinite().all(), metric


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sign", [-1, 1])
def test_saturated_values_are_in_range(sign: int, dtype: torch.dtype) -> None:
    """Everything predicted alike, by logits so large that nothing but rounding is left of the other side."""
    for n in range(2, 60):
        y = (torch.arange(n) % 3 == 0).to(dtype)
        for surrogate in (Linear(), Sigmoid(), LogitSigmoid()):
            for metric in BOUNDED + SIGNED:
                value = 1 - mg.MetricLoss(metric, surrogate=surrogate)(torch.full((n,), sign * 40.0, dtype=dtype), y)
                assert (-1 if metric in SIGNED else 0) - 1e-3 <= float(value) <= 1 + 1e-3, (n, surrogate, metric)


# ------------------------------------------------------------------------------------------------ masks


@pytest.mark.parametrize("setup", SETUPS)
@law
@given(n=few, seed=seeds, soft=st.booleans(), weighted=st.booleans(), pick=st.integers(0, 100))
def test_masked_rows_are_deleted(setup: str, n: int, seed: int, soft: bool, weighted: bool, pick: int) -> None:
    """Also where they hold NaN and labels that are none."""
    z, y, w, g = data(setup, n, seed, soft)
    keep = torch.rand(n, generator=g) < 0.6
    options = list(surrogates_for(setup).values())
    loss = make(setup, options[pick % len(options)])
    value, gradient = run(loss, z[keep], y[keep], w[keep] if weighted else None)
    z[~keep], y[~keep] = math.nan, -7
    masked, by_masked = run(loss, z, y, w if weighted else None, keep)
    same(masked, value)
    same(by_masked[keep], gradient)
    assert (by_masked[~keep] == 0).all()


AVERAGES = ["micro", "macro", "weighted", "samples", None]


def by_reference(metric: Any, average: Any, m: Any, y: Any, w: Any, mask: Any) -> Any:
    """One multi-label value by slow loops; what is masked weighs nothing, which is deletion."""
    if average == "samples":
        return reference.samples(m, y, metric, w, mask)
    w = np.broadcast_to(np.ones(y.shape) if w is None else w.reshape(len(w), -1), y.shape)
    cells = reference.counts(m, y, w if mask is None else w * mask)
    if average == "micro":
        return reference.micro(cells, metric)
    values = [metric(*column) for column in zip(*cells.values(), strict=True)]
    positives = [tp + fn for tp, fn in zip(cells["tp"], cells["fn"], strict=True)]
    return reference.average(values, positives, average)


def members_by_reference(surrogate: Any, z: Any, y: Any, mask: Any) -> Any:
    n, k = z.shape
    if isinstance(surrogate, UnitsVsZeros):
        used = np.ones((n, k), bool) if mask is None else mask
        return np.array([reference.units_vs_zeros_row(z[i], y[i], 2.0, 0.1, used[i]) for i in range(n)])
    step: Callable[[float], float] = {
        Linear: lambda u: reference.linear_step(reference.sigmoid(u), 0.5),
        Sigmoid: lambda u: reference.sigmoid_step(reference.sigmoid(u), 0.5, 7.0),
        LogitSigmoid: lambda u: reference.logit_sigmoid(u, 2.5, -0.5),
    }[type(surrogate)]
    return np.array([[step(float(u)) for u in row] for row in z]).reshape(n, k)


@pytest.mark.parametrize("surrogate", ["Linear", "Sigmoid", "LogitSigmoid, moved", "UnitsVsZeros"])
@pytest.mark.parametrize("average", AVERAGES)
@law
@given(n=few, seed=seeds, soft=st.booleans(), weights=st.integers(0, 2), masked=st.booleans())
def test_multilabel_equals_reference_under_weights_and_masks(
    average: Any, surrogate: str, n: int, seed: int, soft: bool, weights: int, masked: bool
) -> None:
    z, y, _, g = data("macro", n, seed, soft)
    soften = {**STEPS, **WITHOUT_THRESHOLD}[surrogate]
    w = torch.rand((n, z.shape[1])[:weights], generator=g, dtype=torch.float64) if weights else None
    mask = torch.rand(z.shape, generator=g) < 0.6 if masked else None
    arrays = [None if x is None else x.numpy().copy() for x in (z, y, w, mask)]
    m = members_by_reference(soften, arrays[0], arrays[1], arrays[3])
    expected = by_reference(reference.f_beta, average, m, arrays[1], arrays[2], arrays[3])
    if mask is not None:
        z[~mask], y[~mask] = math.nan, 9.0
    loss = mg.MetricLoss("f1", task="multilabel", average=average, surrogate=soften)
    value, gradient = run(loss, z, y, w, mask)
    same(1 - value, torch.tensor(expected, dtype=torch.float64))
    if mask is not None:
        assert (gradient[~mask] == 0).all()
    # A gradient that moves the reference: the fast path knows about masked competitors too.
    at = int(gradient.abs().argmax())
    if weights == 0 and not masked and gradient.abs().max() > 1e-3:
        step = torch.zeros(z.numel(), dtype=torch.float64)
        step[at] = 1e-6
        moved = (z + step.reshape(z.shape)).numpy()
        m = members_by_reference(soften, moved, arrays[1], None)
        after = by_reference(reference.f_beta, average, m, arrays[1], None, None)
        rise = (np.sum(expected) - np.sum(after)) / 1e-6
        assert float(gradient.flatten()[at]) == pytest.approx(rise, rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("setup", SETUPS)
@law
@given(n=few, seed=seeds, weighted=st.booleans(), ignored=st.sampled_from([-100, -1, 255]))
def test_ignored_targets_are_masked(setup: str, n: int, seed: int, weighted: bool, ignored: int) -> None:
    z, y, w, g = data(setup, n, seed)
    y = y.long()
    keep = torch.rand(y.shape, generator=g) < 0.6
    weight = w if weighted else None
    value, gradient = run(make(setup), z, y, weight, keep)
    y[~keep] = ignored
    again, by_z = run(make(setup, ignore_index=ignored), z, y, weight)
    same(again, value, 0)
    same(by_z, gradient, 0)
    # And together with a mask: what either leaves out is out.
    more = torch.rand(n, generator=g) < 0.6
    both = keep & (more[:, None] if keep.dim() > 1 else more)
    value, gradient = run(make(setup), z, y.where(both, 0), weight, both)
    again, by_z = run(make(setup, ignore_index=ignored), z, y, weight, more)
    same(again, value, 0)
    same(by_z, gradient, 0)


@pytest.mark.parametrize("metric", ["f1", "mcc", "balanced_accuracy"])
@pytest.mark.parametrize("average", ["micro", "macro"])
@settings(law, max_examples=8)
@given(n=few, seed=seeds, soft=st.booleans(), weighted=st.booleans())
def test_binary_is_multilabel_of_one_class(
    metric: str, average: Any, n: int, seed: int, soft: bool, weighted: bool
) -> None:
    z, y, w, _ = data("binary", n, seed, soft)
    for surrogate in (*STEPS.values(), *WITHOUT_THRESHOLD.values()):
        binary = mg.MetricLoss(metric, surrogate=surrogate)
        labels = mg.MetricLoss(metric, task="multilabel", average=average, surrogate=surrogate)
        value, gradient = run(binary, z, y, w if weighted else None)
        one, by_one = run(labels, z[:, None], y[:, None], w if weighted else None)
        same(one, value, 1e-12)
        same(by_one.squeeze(1), gradient, 1e-12)


# --------------------------------------------------------------------------------- one value by every path


def every_path(loss: mg.MetricLoss, z: Tensor, *rest: Any) -> None:
    """The kernel, its sums alone, plain operations under torch.func, and the graph for second derivatives agree."""
    value, gradient = run(loss, z, *rest)
    plain_gradient, plain_value = torch.func.grad_and_value(lambda x: loss(x, *rest).sum())(z)
    same(value.sum(), plain_value)
    same(gradient, plain_gradient)
    leaf = z.detach().clone().requires_grad_()
    by_counts = 1 - loss.value(loss.counts(leaf, *rest))
    same(by_counts.detach(), value)
    same(torch.autograd.grad(by_counts.sum(), leaf)[0], gradient)
    again = loss(leaf, *rest).sum()
    same(torch.autograd.grad(again, leaf, create_graph=True)[0].detach(), gradient)
    with torch.no_grad():
        same(loss(z, *rest), value, 1e-12)
    # A factor in front of the loss reaches the gradient.
    same(torch.autograd.grad(-3 * loss(leaf, *rest).sum(), leaf)[0], -3 * gradient)


@pytest.mark.parametrize("setup", SETUPS)
@settings(law, max_examples=4)
@given(
    n=st.integers(0, 12),
    seed=seeds,
    soft=st.booleans(),
    weights=st.integers(0, 2),
    masked=st.booleans(),
    transposed=st.booleans(),
)
def test_kernel_equals_plain_operations(
    setup: str, n: int, seed: int, soft: bool, weights: int, masked: bool, transposed: bool
) -> None:
    z, y, w, g = data(setup, n, seed, soft)
    if transposed and z.dim() > 1:
        z = z.t().contiguous().t()
    if weights == 2 and setup in ELEMENTWISE:
        w = torch.rand(z.shape, generator=g, dtype=torch.float64)
    mask = torch.rand(z.shape if setup in ELEMENTWISE else (n,), generator=g) < 0.7 if masked else None
    for surrogate in surrogates_for(setup).values():
        every_path(make(setup, surrogate), z, y, w if weights else None, mask)


OF_COUNTS = ["binary", "macro", "micro", "weighted", "samples", "multiclass", "multiclass, micro"]
FITTING = {"quadratic_kappa": [setup for setup in OF_COUNTS if setup in MULTICLASS], "subset_accuracy": ["samples"]}


@pytest.mark.parametrize(
    ("metric", "setup"), [(metric, setup) for metric in M.names() for setup in FITTING.get(metric, OF_COUNTS)]
)
def test_kernel_equals_plain_operations_for_every_metric(metric: str, setup: str) -> None:
    z, y, w, _ = data(setup, 12, seed=5)
    every_path(make(setup, metric=metric), z, y, w)


@pytest.mark.parametrize("d", [64, 65, 96, 101, 200])
@pytest.mark.parametrize("surrogate", OF_ROWS)
def test_kernel_equals_plain_operations_for_many_classes(surrogate: str, d: int) -> None:
    """Beyond two groups of classes the two largest are found group by group, the last of them shorter."""
    for setup in ("multiclass", "multiclass, micro", "matrix"):
        z, y, w, _ = data(setup, 7, seed=d, classes=d)
        z[0, -1], z[1, 0], z[2, [3, 5]], z[3, [3, -1]] = 9.0, 9.0, torch.tensor([9.0, 8.0]).double(), 9.5
        z[3, -1] = 9.4
        every_path(make(setup, OF_ROWS[surrogate]), z, y, w)


@pytest.mark.parametrize("setup", [setup for setup in MULTICLASS if "labels" not in setup])
def test_one_class_alone_is_a_problem_too(setup: str) -> None:
    for soft in (False, True):
        z, y, w, _ = data(setup, 5, seed=0, soft=soft, classes=1)
        for surrogate in OF_ROWS.values():
            every_path(make(setup, surrogate), z, y, w)


@pytest.mark.parametrize("d", [2, 3, 100])
def test_ties_are_shared(d: int) -> None:
    """A network that starts at zero: every class is a d-th, and a step towards the label lowers the loss."""
    z, y = torch.zeros(6, d, dtype=torch.float64), torch.arange(6) % d
    for surrogate in (TopTwo(), Linear(), Sigmoid(), LogitSigmoid(), Identity()):
        loss = mg.MetricLoss("accuracy", task="multiclass", surrogate=surrogate)
        value, gradient = run(loss, z, y)
        assert float(value) == pytest.approx(1 - 1 / d)
        same(gradient.sum(1), torch.zeros(6, dtype=torch.float64))
        assert float(loss(z - 0.01 * gradient, y)) < float(value)


@law
@given(n=few, seed=seeds, soft=st.booleans(), weighted=st.booleans())
def test_unbounded_by_every_path(n: int, seed: int, soft: bool, weighted: bool) -> None:
    z, y, w, _ = data("macro", n, seed, soft)
    # Positive logits, so that no denominator comes close to zero.
    for average in ("micro", "macro", "samples"):
        loss = mg.MetricLoss("f1", task="multilabel", average=average, surrogate=Unbounded())
        every_path(loss, z.abs() + 0.5, y, w if weighted else None)


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("start", [LogitSigmoid(beta=1.5, eta=0.2), UnitsVsZeros(alpha=2.0, beta=-0.1)])
@law
@given(n=few, seed=seeds, soft=st.booleans(), weighted=st.booleans(), masked=st.booleans())
def test_learned_numbers_get_the_gradient_of_plain_operations(
    start: Any, average: Any, n: int, seed: int, soft: bool, weighted: bool, masked: bool
) -> None:
    z, y, w, g = data("macro", n, seed, soft)
    learned = Learned(start, classes=z.shape[1]).double()
    for parameter in learned.parameters():
        parameter.data += 0.1 * torch.rand(parameter.shape, generator=g, dtype=torch.float64)
    loss = mg.MetricLoss("f1", task="multilabel", average=average, surrogate=learned)
    rest = (y, w if weighted else None, torch.rand(z.shape, generator=g) < 0.7 if masked else None)
    leaf = z.clone().requires_grad_()
    wanted = [leaf, *learned.parameters()]
    fast = torch.autograd.grad(loss(leaf, *rest).sum(), wanted)
    plain = torch.autograd.grad(loss(leaf, *rest).sum(), wanted, create_graph=True)
    numbers = {f"surrogate.{name}": value.detach() for name, value in learned.named_parameters()}

    def by_numbers(numbers: dict[str, Tensor]) -> Any:
        return torch.func.functional_call(loss, numbers, (z, *rest)).sum()

    traced = torch.func.grad(by_numbers)(numbers)
    for got, expected in zip(fast, plain, strict=True):
        same(got, expected.detach())
    for got, expected in zip(fast[1:], traced.values(), strict=True):
        same(got, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("setup", SETUPS)
def test_narrow_logits_are_counted_wide(setup: str, dtype: torch.dtype) -> None:
    """The value is that of the same logits in float32 at least; only the gradient is rounded."""
    z, y, w, _ = data(setup, 9, seed=3)
    z = z.to(dtype)
    wide = torch.promote_types(dtype, torch.float32)
    for surrogate in surrogates_for(setup).values():
        loss = make(setup, surrogate)
        value, gradient = run(loss, z, y, w)
        expected, by_wide = run(loss, z.to(wide), y, w)
        assert value.dtype == wide
        assert gradient.dtype == dtype
        same(value, expected, 1e-6)
        tolerance = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(gradient.to(wide), by_wide, rtol=tolerance, atol=1e-6)
        # And float32 stands for float64.
        exact, by_exact = run(loss, z.double(), y, w)
        if not isinstance(surrogate, Table):  # a staircase: rounding may fall down a step
            torch.testing.assert_close(value.double(), exact, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(gradient.double(), by_exact, rtol=max(tolerance, 1e-3), atol=1e-4)


# ------------------------------------------------------------------------------------------------ chunks

CHUNKS = [
    {"MAX_UNSPLIT_ELEMENTS": 8, "MAX_CHUNK_ELEMENTS": 16, "MAX_NEW_BUFFER_ELEMENTS": 1},
    {
        "MAX_UNSPLIT_ELEMENTS": 1,
        "MAX_CHUNK_ELEMENTS": 1,
        "MAX_NEW_BUFFER_ELEMENTS": 0,
    },  # a row at a time, no buffers kept
    {
        "MAX_UNSPLIT_ELEMENTS": 10**6,
        "MAX_CHUNK_ELEMENTS": 10**6,
        "MAX_NEW_BUFFER_ELEMENTS": 0,
    },  # whole, but with the buffers of large batches
    {"MAX_UNSPLIT_ELEMENTS": 16, "MAX_CHUNK_ELEMENTS": 10**6, "MAX_NEW_BUFFER_ELEMENTS": 10**6},
]


@pytest.mark.parametrize(
    ("setup", "soft"), [*((name, True) for name in SETUPS), *((name, False) for name in MULTICLASS)]
)
def test_chunks_do_not_matter(setup: str, soft: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    z, y, w, g = data(setup, 11, seed=7, soft=soft, classes=3)
    elements = torch.rand(z.shape, generator=g, dtype=torch.float64) if setup in ELEMENTWISE else w
    chosen = dict(surrogates_for(setup))
    if "UnitsVsZeros" in chosen and z.dim() > 1:
        per_class = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
        chosen["LogitSigmoid, per class"] = LogitSigmoid(beta=per_class, eta=per_class - 1)
    for surrogate in chosen.values():
        loss = make(setup, surrogate)
        for rest in ((y, None, None), (y, elements, w < 0.8)):
            whole, statistic = run(loss, z, *rest), loss.counts(z, *rest)
            for chunks in CHUNKS:
                with monkeypatch.context() as patch:
                    for name, size in chunks.items():
                        patch.setattr(chunking, name, size)
                    same(run(loss, z, *rest), whole)
                    same(loss.counts(z, *rest).cells(), statistic.cells())


def test_many_chunks_keep_a_sum_beyond_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """A running float32 sum stops at 2²⁴, where adding one more changes nothing."""
    monkeypatch.setattr(chunking, "MAX_UNSPLIT_ELEMENTS", 1)
    monkeypatch.setattr(chunking, "MAX_CHUNK_ELEMENTS", 1)
    weight = torch.ones(65)
    weight[0] = 2.0**24
    counts = mg.MetricLoss("f1", surrogate=Hard()).counts(torch.ones(65), torch.ones(65), weight)
    assert counts.tp.item() == 2.0**24 + 64


@pytest.mark.parametrize("rows", [512, 575])
def test_columns_of_many_rows_are_summed_in_blocks(rows: int) -> None:
    """Of full blocks, and with rows left over; 260 classes make it worth while."""
    g = torch.Generator().manual_seed(3)
    z, y, w = (torch.rand(rows, 260, generator=g, dtype=torch.float64) for _ in range(3))
    z = 4 * z - 2
    loss = mg.MetricLoss("f1", task="multilabel", surrogate=LogitSigmoid())
    parts = slice(0, 200), slice(200, None)  # each too small for blocks
    for weight in (None, w):
        whole = loss.counts(z, y, weight)
        halves = [loss.counts(z[part], y[part], None if weight is None else weight[part]) for part in parts]
        same((halves[0] + halves[1]).cells(), whole.cells())
