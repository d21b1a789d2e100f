"""The losses on Keras are those of torch, in value and gradient: every metric, surrogate, task and average."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad import surrogates as s
from metricgrad.core.storable import KINDS
from own_metrics import odds_ratio, profit_per_row, skill, total_profit

if "KERAS_TESTS" not in os.environ:
    pytest.skip("started by test_backends, in a process of its own", allow_module_level=True)
keras = pytest.importorskip("keras")
import metricgrad.keras as mk  # noqa: E402
from keras_gradients import value_and_gradient  # noqa: E402

ELEMENTS = [
    *(s.Linear(), s.Sigmoid(), s.LogitSigmoid(2.0, 0.3), s.Identity(), s.Unbounded(), s.Hard(), s.Table()),
    *(s.StraightThrough(s.Sigmoid()), s.UnitsVsZeros(2.0, 0.1)),
]
ROWS = [s.TopTwo(), s.Linear(0.05, 0.5), s.Sigmoid(), s.LogitSigmoid(2.0), s.Identity(), s.Hard(), s.StraightThrough()]
AVERAGES = ("macro", "micro", "weighted", "samples")
METRICS = [*mg.metrics.names(), "f2"]
ROUNDING = 1e-9 if keras.backend.backend() != "torch" else 1e-6
"""In float64; 1e-6 in float32, which Keras takes for maxima and products on torch whatever is given."""


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    """JAX has float64 only when asked for."""
    if keras.backend.backend() != "jax":
        yield
    else:
        import jax

        before = jax.config.jax_enable_x64
        jax.config.update("jax_enable_x64", True)
        yield
        jax.config.update("jax_enable_x64", before)


def batch(task: Any, rows: int = 14, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return logits, targets, weights and a mask."""
    make = torch.Generator().manual_seed(seed)
    shape = (rows,) if task == "binary" else (rows, classes)
    z = 2 * torch.randn(shape, generator=make, dtype=torch.float64)
    if task == "multiclass":
        y = torch.randint(0, classes, (rows,), generator=make)
        shape = (rows,)
    else:
        y = (torch.rand(shape, generator=make) < 0.4).double()
    weight = torch.rand(shape, generator=make, dtype=torch.float64) + 0.5
    return z, y, weight, torch.rand(shape, generator=make) < 0.8


def compare(
    ours: Callable[..., Any],
    theirs: Callable[..., Tensor],
    z: Tensor,
    y: Tensor,
    w: Tensor | None = None,
    mask: Tensor | None = None,
    rounding: float = ROUNDING,
    compiled: bool = False,
) -> None:
    """Fail unless a loss on Keras and one in torch have the same value and gradient."""
    leaf = z.clone().requires_grad_()
    value = theirs(leaf, y, w, mask)
    value.backward()
    rest = [None if x is None else x.numpy() for x in (w, mask)]
    found, gradient = value_and_gradient(lambda logits: ours(y.numpy(), logits, *rest), z.numpy(), compiled)
    assert gradient.dtype == z.numpy().dtype
    assert found.dtype == gradient.dtype or keras.backend.backend() == "torch"
    np.testing.assert_allclose(found, value.detach(), rtol=rounding, atol=rounding)
    np.testing.assert_allclose(gradient, np.asarray(leaf.grad), rtol=rounding, atol=rounding)


@pytest.mark.parametrize("metric", [skill, total_profit, profit_per_row, odds_ratio])
def test_own_metrics(metric: Any) -> None:
    z, y, w, mask = batch("binary")
    compare(mk.MetricLoss(metric, dtype="float64"), mg.MetricLoss(metric), z, y, w, mask)


def fitting(task: Any, **options: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what torch accepts: metrics, and averages where they mean anything."""
    for metric in METRICS:
        for average in AVERAGES if task != "binary" else ("macro",):
            every = {"task": task, "average": average, **options}
            try:
                loss = mg.MetricLoss(metric, **every)
            except ValueError:
                continue
            if average == "macro" or not loss.objective.of_matrix:
                yield metric, every


@pytest.mark.parametrize(
    ("task", "surrogate"),
    [(task, one) for task in ("binary", "multilabel") for one in ELEMENTS] + [("multiclass", one) for one in ROWS],
    ids=str,
)
def test_every_surrogate(task: Any, surrogate: s.Surrogate) -> None:
    z, y, w, mask = batch(task)
    # A loss is a surrogate and a metric one after the other: every pair of them takes minutes, and is for when asked.
    pairs = fitting(task, surrogate=surrogate)
    if "METRICGRAD_EVERY_PAIR" not in os.environ:
        pairs = (pair for pair in pairs if pair[0] == "f2" and pair[1]["average"] == "macro")
    for metric, options in pairs:
        ours = mk.MetricLoss(metric, **options, dtype="float64")
        try:
            compare(ours, mg.MetricLoss(metric, **options), z, y, w, mask)
        except AssertionError as error:
            raise AssertionError(f"{metric}, {options['average']}") from error


CELLS = {
    "usual": [[3.0, 0.5, 9.0], [1.0, 4.0, 0.25], [2.0, 2.5, 0.75], [5.0, 4.0, 1.0]],
    "perfect": [[3.0, 1.0, 9.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [5.0, 4.0, 1.0]],
    "empty_classes": [[3.0, 0.0, 0.0], [1.0, 4.0, 0.0], [2.0, 0.0, 0.0], [5.0, 4.0, 1.0]],
    "empty": [[0.0] * 3] * 4,
}


@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize("task", ["multilabel", "multiclass"])
def test_every_metric_and_average(task: Any, cells: str) -> None:
    """Of counts, where empty ones have a value and a gradient of zero too, as in torch."""
    for metric, options in fitting(task):
        if options["average"] == "samples":
            continue
        objective = mg.MetricLoss(metric, **options).objective
        kind = mg.Confusion if objective.of_matrix else mg.Counts
        given = np.array(CELLS[cells][1:]) if objective.of_matrix else np.array(CELLS[cells])

        def value(x: Any) -> Any:
            return objective.value(kind(x) if kind is mg.Confusion else kind(*(x[k] for k in range(4))))  # noqa: B023

        leaf = torch.tensor(given, requires_grad=True)
        wanted = value(leaf)
        wanted.backward()
        found, gradient = value_and_gradient(value, given)
        assert np.isfinite(gradient).all(), (metric, options)
        np.testing.assert_allclose(found, wanted.detach(), rtol=1e-9, atol=1e-9, err_msg=f"{metric} {options}")
        np.testing.assert_allclose(gradient, np.asarray(leaf.grad), rtol=1e-9, atol=1e-9, err_msg=f"{metric} {options}")


def test_every_surrogate_is_on_both_sides() -> None:
    fixed = {kind for kind in KINDS.values() if issubclass(kind, s.Surrogate)}
    assert {type(one) for one in (*ELEMENTS, *ROWS)} == fixed
    # What changes during training does so by torch: no other public name is missing here.
    assert {getattr(s, name) for name in getattr(s, "__all__")} - fixed == {s.Surrogate, s.Learned, s.Annealed}  # noqa: B009
    for moving in (s.Learned(s.LogitSigmoid()), s.Annealed(s.Sigmoid(1.0), s.Sigmoid(2.0), 3)):
        with pytest.raises(ValueError, match=r"surrogate: expected a fixed one, got .*; use metricgrad.MetricLoss"):
            mk.MetricLoss("f1", surrogate=moving)


@pytest.mark.parametrize(
    ("task", "given", "options"),
    [
        ("binary", "plain", {"threshold": 0.3}),
        ("binary", "mask", {"threshold": [0.2, 0.7], "surrogate": s.Sigmoid()}),
        ("multilabel", "ignored", {"labels": [0, 2]}),
        ("multilabel", "plain", {"labels": [2], "average": "micro"}),
        ("multilabel", "weight", {"average": "micro"}),
        ("multilabel", "mask", {"labels": [1, 2], "average": "samples"}),
        ("multilabel", "weight", {"average": "samples"}),
        ("multilabel", "weight", {"empty_classes": "skip"}),
        (
            "multilabel",
            "plain",
            {"surrogate": s.LogitSigmoid(torch.tensor([1.0, 2.0, 0.5]), torch.tensor([0.0, 0.1, 0.2]))},
        ),
        ("multiclass", "weight", {"labels": [1, 2], "average": "weighted"}),
        ("multiclass", "ignored", {"average": "micro"}),
    ],
    ids=str,
)
def test_options(task: Any, given: str, options: dict[str, Any]) -> None:
    z, y, w, mask = batch(task)
    if options.get("empty_classes") == "skip":
        y[:, 1] = 0
    if given == "ignored":
        y, options = y.where(mask, -1), {**options, "ignore_index": -1}
    ours, theirs = mk.MetricLoss("f1", task=task, dtype="float64", **options), mg.MetricLoss("f1", task=task, **options)
    compare(ours, theirs, z, y, w if given == "weight" else None, mask if given == "mask" else None)


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
@pytest.mark.parametrize("weighted", [False, True])
def test_hybrid(task: Any, weighted: bool) -> None:
    z, y, w, mask = batch(task)
    rest = (w, mask) if weighted else (None, None)
    compare(mk.HybridLoss("f2", task=task, dtype="float64"), mg.HybridLoss("f2", task=task), z, y, *rest)


@pytest.mark.parametrize(
    ("name", "task", "options"),
    [
        ("soft_set", "binary", {}),
        ("sigmoid_f1", "multilabel", {"beta": 2.0, "eta": 0.5}),
        ("unbounded_f1", "multilabel", {}),
        ("mfom_f1", "multilabel", {"alpha": 2.0}),
        ("multiclass_f_beta", "multiclass", {"beta": [0.5, 1.0, 2.0]}),
        ("soft_dice", "binary", {}),
    ],
)
def test_presets(name: str, task: Any, options: dict[str, Any]) -> None:
    z, y, *_ = batch(task)
    loss = getattr(mk, name)(**options)
    assert loss.name == name
    double = mk.MetricLoss.from_config({**loss.get_config(), "dtype": "float64"})
    compare(double, getattr(mg.presets, name)(**options), z, y)


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
@pytest.mark.parametrize("metric", ["f1", "mcc"])
def test_float32_compiled(task: Any, metric: str) -> None:
    z, y, w, mask = batch(task, rows=200)
    y = y.float() if task != "multiclass" else y
    rest = (w.float(), mask)
    compare(
        mk.MetricLoss(metric, task=task), mg.MetricLoss(metric, task=task), z.float(), y, *rest, 1e-6, compiled=True
    )


@pytest.mark.parametrize(
    ("metric", "task", "average"),
    [
        ("f1", "multilabel", "macro"),
        ("mcc", "multilabel", "samples"),
        ("npv", "multiclass", "macro"),
        ("g_mean", "multiclass", "macro"),
    ],
)
def test_no_gradient_is_nan_where_nothing_is_positive(metric: str, task: Any, average: Any) -> None:
    loss = mk.MetricLoss(metric, task=task, average=average)
    y = np.zeros(4 if task == "multiclass" else (4, 3), np.int32)
    for logit, weight in ((0.0, None), (-200.0, None), (200.0, None), (1.0, np.zeros(4, np.float32))):
        z = np.full((4, 3), logit, np.float32)
        value, gradient = value_and_gradient(lambda z: loss(y, z, weight), z)  # noqa: B023
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()


def test_one_loss_per_class() -> None:
    z, y, w, mask = batch("multilabel")
    wanted = mg.MetricLoss("f1", task="multilabel", average=None)(z, y, w, mask).numpy()
    for reduction, reduced in (("none", wanted), (None, wanted), ("sum", wanted.sum()), ("mean", wanted.mean())):
        loss = mk.MetricLoss("f1", task="multilabel", average=None, reduction=reduction, dtype="float64")
        found = loss(y.numpy(), z.numpy(), w.numpy(), mask.numpy())
        np.testing.assert_allclose(keras.ops.convert_to_numpy(found), reduced, rtol=1e-9)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", "none", None])
def test_no_reduction_changes_one_number(reduction: str | None) -> None:
    z, y, w, _ = batch("binary")
    found = mk.MetricLoss("f1", reduction=reduction, dtype="float64")(y.numpy(), z.numpy(), w.numpy())
    np.testing.assert_allclose(keras.ops.convert_to_numpy(found), mg.MetricLoss("f1")(z, y, w).numpy(), rtol=1e-9)


def test_dense_predictions_have_the_classes_last() -> None:
    z, y, w, _ = batch("multiclass", rows=24)
    wanted = mg.MetricLoss("f1", task="multiclass")(z, y, w).numpy()
    loss = mk.MetricLoss("f1", task="multiclass", dtype="float64")
    for labels in (y.reshape(2, 3, 4), y.reshape(2, 3, 4, 1), torch.nn.functional.one_hot(y).reshape(2, 3, 4, 3)):
        found = loss(labels.numpy(), z.reshape(2, 3, 4, 3).numpy(), w.reshape(2, 3, 4).numpy())
        np.testing.assert_allclose(keras.ops.convert_to_numpy(found), wanted, rtol=1e-9)


def test_several_columns_without_a_task_are_asked_about() -> None:
    z, y = np.zeros((4, 3)), np.ones((4, 3))
    for call in (mk.MetricLoss("f1"), mk.HybridLoss("f1"), mk.ExactMetric("f1")):
        with pytest.raises(ValueError, match=r"^task: expected 'multilabel', .* of shape \(4, 3\), got None$"):
            call(y, z)
        with pytest.raises(ValueError, match=r"^task: expected 'multiclass' for logits \(4, 3\) with targets \(4,\)"):
            call(y[:, 0], z)
    maps = np.zeros((2, 4, 3, 1))
    assert float(mk.MetricLoss("f1")(maps, maps)) == float(mk.MetricLoss("f1")(maps[..., 0], maps[..., 0]))
    with pytest.raises(ValueError, match=r"^average: expected 'macro' for the one class of task='binary'"):
        mk.MetricLoss("f1", average="micro")


def test_a_metric_with_a_logarithm_is_that_of_torch() -> None:
    def information(c: Any) -> Any:
        return mg.metrics.log(mg.metrics.ratio(c.tp, c.predicted), empty=-3.0)

    for positives in (0.0, 1.0):
        z, y = torch.tensor([2.0, -1.0, 0.3]), torch.full((3,), positives)
        found = mk.MetricLoss(information, dtype="float64")(y.numpy(), z.numpy())
        wanted = mg.MetricLoss(information)(z.double(), y)
        np.testing.assert_allclose(keras.ops.convert_to_numpy(found), wanted.numpy(), rtol=1e-6)


def test_a_metric_and_a_surrogate_of_ones_own() -> None:
    def metric(c: mg.Counts) -> Any:
        return mg.metrics.ratio(c.tp, c.tp + 3 * c.fp + c.fn, 0.5) / (1 + 0 * c.tn)

    z, y, *_ = batch("multilabel")
    ours = mk.MetricLoss(metric, task="multilabel", surrogate=keras.ops.sigmoid, dtype="float64")
    compare(ours, mg.MetricLoss(metric, task="multilabel", surrogate=torch.sigmoid), z, y)


@pytest.mark.parametrize(
    ("options", "y", "z", "w", "message"),
    [
        ({}, (4,), (5,), None, r"y_true: expected the shape of y_pred for task='binary', got y_pred \(5,\) and y_true"),
        ({"task": "multilabel"}, (4,), (4,), None, r"y_pred: expected \(N, K\) or \(N, ..., K\) for task='multilabel'"),
        ({"task": "multilabel"}, (4,), (4, 3), None, "y_true: expected the shape of y_pred for task='multilabel'"),
        ({"task": "multiclass"}, (3,), (4, 3), None, "or class indices without its last axis, for task='multiclass'"),
        ({"task": "multiclass"}, (4,), (4, 3), (4, 3), "sample_weight: expected one per sample, position or element"),
        ({}, (4,), (4,), (3,), r"sample_weight: expected one per sample.* got shape \(3,\)"),
    ],
)
def test_shapes_that_do_not_fit_get_one_line(
    options: dict[str, Any], y: tuple[int, ...], z: tuple[int, ...], w: tuple[int, ...] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        mk.MetricLoss("f1", **options)(np.zeros(y), np.zeros(z), None if w is None else np.ones(w))
