"""Tuning: what is called exact equals trying every cut; what is local is a local optimum; constraints hold."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import metricgrad as mg
import reference as ref
from metricgrad.core.metrics.constraints import Constraint
from metricgrad.decisions import Offsets, Threshold
from metricgrad.decisions.threshold_search import ascend_one_by_one

pytestmark = pytest.mark.quick

Array = npt.NDArray[Any]
inf = math.inf

CELL: dict[str, Callable[..., float]] = {
    "f1": ref.f_beta,
    "f2": partial(ref.f_beta, beta=2.0),
    "f0.5": partial(ref.f_beta, beta=0.5),
    "jaccard": ref.jaccard,
    "tversky": ref.tversky,
    "accuracy": ref.accuracy,
    "precision": ref.precision,
    "recall": ref.recall,
    "specificity": ref.specificity,
    "npv": ref.npv,
    "balanced_accuracy": ref.balanced_accuracy,
    "informedness": ref.informedness,
    "kappa": ref.kappa,
    "savings": ref.savings,
    "detection_cost": ref.detection_cost,
    "mcc": ref.mcc,
    "fowlkes_mallows": ref.fowlkes_mallows,
    "g_mean": ref.g_mean,
    "markedness": ref.markedness,
}
LOCAL = ("g_mean", "markedness")  # pooled, neither a ratio of linear functions nor best at a corner
MATRIX: dict[str, Callable[[Array], float]] = {
    "accuracy": ref.matrix_accuracy,
    "balanced_accuracy": ref.matrix_balanced_accuracy,
    "mcc": ref.matrix_mcc,
    "kappa": ref.matrix_kappa,
    "g_mean": ref.matrix_g_mean,
}


# The slow way: every cut there is, one after the other.


def cuts(scores: Array) -> list[float]:
    """Every threshold that decides differently: nothing (but what scores ∞), then each distinct score."""
    return [inf, *sorted({float(s) for s in scores.flat}, reverse=True)]


def value_of(
    metric: Callable[..., float],
    decided: Array,
    y: Array,
    weight: Array | None = None,
    mask: Array | None = None,
    average: Any = "macro",
    labels: list[int] | None = None,
    empty_classes: Any = "count",
) -> Any:
    """The averaged metric of (N, K) decisions, in loops; weight and mask (N,) or (N, K)."""
    full = np.ones(y.shape) if weight is None else np.broadcast_to(weight.reshape(len(y), -1), y.shape)
    keep = np.ones(y.shape, bool) if mask is None else np.broadcast_to(mask.reshape(len(y), -1), y.shape)
    if average == "samples":
        if labels is not None:
            keep = keep & np.isin(np.arange(y.shape[1]), labels)
        return ref.samples(decided.astype(float), y.astype(float), metric, full, keep)
    w, on = np.where(keep, full, 0.0), decided.astype(float)
    sides = {"tp": on * y, "fp": on * (1 - y), "fn": (1 - on) * y, "tn": (1 - on) * (1 - y)}
    cells = {name: (w * side).sum(0).tolist() for name, side in sides.items()}
    if average == "micro":
        return ref.micro(cells, metric, labels)
    values = [metric(*four) for four in zip(cells["tp"], cells["fp"], cells["fn"], cells["tn"], strict=True)]
    positives = [tp + fn for tp, fn in zip(cells["tp"], cells["fn"], strict=True)]
    return ref.average(values, positives, average, labels, empty_classes)


def best_of_all(metric: Callable[..., float], s: Array, y: Array, shared: bool, **how: Any) -> Any:
    """The best value over all thresholds, or over all combinations of one threshold per class."""
    choices: Iterator[Any]
    choices = iter(cuts(s)) if shared else itertools.product(*(cuts(s[:, k]) for k in range(s.shape[1])))
    return max(value_of(metric, s >= np.array(t), y, **how) for t in choices)


def best_binary(metric: Callable[..., float], s: Array, y: Array, weight: Array | None = None) -> Any:
    return best_of_all(metric, s[:, None], y[:, None], True, weight=weight)


def scores(kind: str, rng: np.random.Generator, shape: Any) -> Array:
    s: Array = rng.normal(size=shape)
    if kind == "ties":
        return s.round()
    if kind == "constant":
        return np.full(shape, 0.25)
    if kind == "infinite":
        return np.asarray(rng.choice([-inf, -1.0, 0.5, inf], size=shape))
    return s.astype(np.float32) if kind == "float32" else s


KINDS = ["distinct", "ties", "constant", "infinite", "float32"]


# Binary


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", ["both", "positives only", "negatives only"])
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_is_exact(kind: str, classes: str, weighted: bool) -> None:
    rng = np.random.default_rng(len(kind) + 10 * weighted)
    n = 11
    s, y = scores(kind, rng, n), rng.integers(0, 2, n)
    if classes != "both":
        y[:] = classes == "positives only"
    w = rng.integers(0, 4, n) / 2 if weighted else None
    for name, metric in CELL.items():
        tuning = mg.tune_threshold(name, s, y, weight=w)
        decided = s >= np.asarray(tuning.threshold, s.dtype)
        assert tuning.exact
        assert tuning.value == pytest.approx(best_binary(metric, s, y, w), abs=1e-12), name
        assert tuning.value == pytest.approx(value_of(metric, decided[:, None], y[:, None], w)), name
        np.testing.assert_array_equal(tuning.rule(s), decided)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from([-inf, -2, -1, 0, 1, 2, inf]), st.integers(0, 1), st.integers(0, 3)),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from(sorted(CELL)),
)
def test_law_binary_exact(rows: list[tuple[float, int, int]], name: str) -> None:
    s, y, w = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    tuning = mg.tune_threshold(name, s, y, weight=w)
    assert tuning.value == pytest.approx(best_binary(CELL[name], s, y, w), abs=1e-12)
    repeated = np.repeat(np.arange(len(s)), w.astype(int))
    if len(repeated):  # weights are repetitions, and weight 0 is absence
        again = mg.tune_threshold(name, s[repeated], y[repeated])
        assert (again.threshold, again.plateau) == (tuning.threshold, tuning.plateau)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_the_threshold_decides_alike_in_the_scores_own_type(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(1)
    for _ in range(30):
        # Neighbours: a number between two of them exists in a wider type only.
        start = torch.rand(1, generator=g, dtype=torch.float64).to(dtype)
        steps = [start]
        for _ in range(6):
            steps.append(torch.nextafter(steps[-1], torch.full_like(start, 2.0)) if dtype.itemsize > 2 else steps[-1])
            if dtype.itemsize == 2:
                steps[-1] = (steps[-2].view(torch.int16) + 1).view(dtype)
        s = torch.cat(steps)[torch.randperm(7, generator=g)]
        y = (torch.rand(7, generator=g) < 0.5).long()
        tuning = mg.tune_threshold("accuracy", s, y)
        for decided in (s >= tuning.threshold, tuning.rule(s), Threshold((tuning.threshold,))(s[:, None])[:, 0]):
            assert float((decided == y).double().mean()) == pytest.approx(tuning.value)
        if dtype != torch.bfloat16:
            assert np.mean((s.numpy() >= tuning.threshold) == y.numpy()) == pytest.approx(tuning.value)
        assert tuning.value == pytest.approx(best_binary(ref.accuracy, s.double().numpy(), y.numpy()))


def test_the_threshold_stands_midway_and_ends_stay_themselves() -> None:
    assert mg.tune_threshold("accuracy", [0.9, 0.5, 0.1], [1, 0, 0]).threshold == 0.7
    assert mg.tune_threshold("recall", [0.9, 0.5, 0.1], [1, 1, 1]).threshold == 0.1
    assert mg.tune_threshold("accuracy", [0.9, 0.5, 0.1], [0, 0, 0]).threshold == inf
    assert mg.tune_threshold("accuracy", [2.0, 1.0, -inf], [1, 1, 0]).threshold == 1.0


def test_soft_targets_are_counted_in_parts() -> None:
    s, y = np.array([0.9, 0.6, 0.4, 0.1]), np.array([0.8, 0.1, 0.7, 0.2])
    tuning = mg.tune_threshold("f1", s, y)
    assert tuning.value == pytest.approx(best_binary(ref.f_beta, s, y))


@pytest.mark.parametrize(
    "kind",
    [
        lambda x: x,
        lambda x: torch.tensor(x),
        lambda x: x.tolist(),
        lambda x: pd.Series(x),
        lambda x: pd.DataFrame({"only": x}),
        lambda x: x[::-1].copy()[::-1],
    ],
)
def test_torch_numpy_pandas_lists(kind: Any) -> None:
    rng = np.random.default_rng(3)
    s, y = rng.random(30), rng.integers(0, 2, 30)
    expected = mg.tune_threshold("f1", s, y)
    got = mg.tune_threshold("f1", kind(s), kind(y))
    assert (got.threshold, got.value) == (expected.threshold, expected.value)


# A threshold per class


def labels_data(kind: str, seed: int, n: int, k: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return scores(kind, rng, (n, k)), (rng.random((n, k)) < 0.4).astype(int)


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "row weights": {"weight": np.array([0.5, 2.0, 0.0, 1.0, 1.5])},
    "element weights": {"weight": np.arange(10).reshape(5, 2) % 4 / 2},
    "row mask": {"mask": np.array([True, False, True, True, True])},
    "element mask": {"mask": np.array([[True, False], [True, True], [False, False], [True, True], [True, False]])},
    "both": {
        "weight": np.arange(10).reshape(5, 2) % 3 + 0.5,
        "mask": np.array([[True, True], [False, True], [True, True], [True, False], [True, True]]),
    },
    "labels": {"labels": [1]},
    "empty_classes": {"empty_classes": "skip"},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["distinct", "ties", "infinite"])
def test_separable_averages_are_exact_per_class(way: str, kind: str) -> None:
    s, y = labels_data(kind, 4, 5, 2)
    how = WAYS[way]
    if way == "empty_classes":
        y[:, 0] = 0
    for name in ("f1", "accuracy", "mcc", "g_mean"):
        for average in ("macro", "weighted"):
            tuning = mg.tune_threshold(name, s, y, task="multilabel", average=average, **how)
            expected = best_of_all(CELL[name], s, y, False, average=average, **how)
            assert tuning.exact
            assert tuning.value == pytest.approx(expected, abs=1e-12)
            decided = s >= np.array(tuning.threshold)
            assert value_of(CELL[name], decided, y, average=average, **how) == pytest.approx(expected, abs=1e-12)
            assert len(tuning.plateau) == 2
        each = mg.tune_threshold(name, s, y, task="multilabel", average=None, **how)
        values = [
            value_of(CELL[name], s >= np.array(t), y, average=None, **how)
            for t in itertools.product(cuts(s[:, 0]), cuts(s[:, 1]))
        ]
        np.testing.assert_allclose(each.value, np.max(values, axis=0), atol=1e-12)


@pytest.mark.parametrize("name", CELL)
def test_micro_is_exact_where_it_says_so_and_a_local_optimum_elsewhere(name: str) -> None:
    for seed in range(6):
        kind = ("distinct", "ties", "infinite")[seed % 3]
        s, y = labels_data(kind, seed, 6 - seed % 2, 2 + seed % 2)
        y[0], y[1] = 0, 1  # both classes, so that no metric is constant
        rng = np.random.default_rng(seed)
        weight = np.asarray(rng.integers(1, 4, len(s)) / 2) if seed % 2 else None
        tuning = mg.tune_threshold(name, s, y, task="multilabel", average="micro", weight=weight)
        at = partial(value_of, CELL[name], y=y, weight=weight, average="micro")
        best = best_of_all(CELL[name], s, y, False, weight=weight, average="micro")
        assert tuning.exact == (name not in LOCAL)
        assert tuning.value == pytest.approx(at(decided=s >= np.array(tuning.threshold)))
        assert tuning.value <= best + 1e-12
        if tuning.exact:
            assert tuning.value == pytest.approx(best, abs=1e-12)
            continue
        for k in range(s.shape[1]):  # no class alone can do better
            for t in cuts(s[:, k]):
                other = list(tuning.threshold)
                other[k] = t
                assert at(decided=s >= np.array(other)) <= tuning.value + 1e-9


def test_micro_with_labels_and_element_weights() -> None:
    s, y = labels_data("distinct", 7, 5, 3)
    weight = np.arange(15).reshape(5, 3) % 4 + 0.5
    how: dict[str, Any] = {"average": "micro", "labels": [0, 2], "weight": weight}
    tuning = mg.tune_threshold("f1", s, y, task="multilabel", **how)
    assert tuning.exact
    assert tuning.value == pytest.approx(best_of_all(ref.f_beta, s, y, False, **how))


def test_a_metric_that_rewards_errors_is_at_its_best_below_the_curve() -> None:
    for seed in range(5):
        s, y = labels_data("ties", seed, 6, 2)
        tuning = mg.tune_threshold(lambda c: 1 - mg.metrics.accuracy(c), s, y, task="multilabel", average="micro")
        assert tuning.exact
        worst = best_of_all(lambda *four: 1 - ref.accuracy(*four), s, y, False, average="micro")
        assert tuning.value == pytest.approx(worst, abs=1e-12)


@pytest.mark.parametrize("positives", [1e-3, 1.0, 3e5])
def test_every_ratio_of_linear_functions_is_recognised_at_any_imbalance(positives: float) -> None:
    from metricgrad.core.metrics.properties import is_quasi_convex

    for name in CELL:
        assert is_quasi_convex(mg.metrics.get(name), positives, 1000.0) == (name not in LOCAL), name


def test_micro_of_a_metric_with_a_case_distinction_is_not_called_exact() -> None:
    def recall_if_precise(c: mg.Counts) -> torch.Tensor:
        return mg.metrics.recall(c) * (mg.metrics.precision(c) >= 0.95)

    def recall_without_alarms(c: mg.Counts) -> torch.Tensor:
        return mg.metrics.recall(c) * (c.fp == 0)

    rng = np.random.default_rng(0)
    y = (rng.random((200, 3)) < 0.02).astype(int)
    s = rng.random((200, 3)) + 0.2 * y
    for metric in (recall_if_precise, recall_without_alarms):
        assert not mg.tune_threshold(metric, s, y, task="multilabel", average="micro").exact


def test_micro_of_a_ratio_that_is_kept_between_0_and_1_is_exact() -> None:
    """The limits never bind: no counts have more true positives than positives."""

    def limited_f1(c: mg.Counts) -> torch.Tensor:
        return mg.metrics.f1(c).clamp(0, 1)

    s, y = labels_data("distinct", 0, 6, 2)
    tuning = mg.tune_threshold(limited_f1, s, y, task="multilabel", average="micro")
    assert tuning.exact
    assert tuning.value == pytest.approx(best_of_all(ref.f_beta, s, y, False, average="micro"), abs=1e-12)


def test_samples_per_class_is_a_local_optimum() -> None:
    for seed, way in itertools.product(range(3), ("plain", "row weights", "element mask")):
        s, y = labels_data("ties" if seed else "distinct", seed, 5, 2)
        how = {"average": "samples", **WAYS[way]}
        for name in ("f1", "accuracy"):
            tuning = mg.tune_threshold(name, s, y, task="multilabel", **how)
            assert not tuning.exact
            for k in range(2):
                for t in cuts(s[:, k]):
                    other = list(tuning.threshold)
                    other[k] = t
                    assert value_of(CELL[name], s >= np.array(other), y, **how) <= tuning.value + 1e-9


def test_maps_are_many_rows() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, (3, 2, 4, 5))
    s = rng.normal(size=y.shape) + y
    maps = mg.tune_threshold("f1", s, y, task="multilabel")
    rows = mg.tune_threshold("f1", *(np.moveaxis(x, 1, -1).reshape(-1, 2) for x in (s, y)), task="multilabel")
    assert (maps.threshold, maps.value) == (rows.threshold, rows.value)
    assert maps.rule(s).shape == y.shape


def test_subset_accuracy_of_rows() -> None:
    s, y = labels_data("distinct", 2, 20, 3)
    for shared in (False, True):
        tuning = mg.tune_threshold("subset_accuracy", s, y, task="multilabel", average="samples", shared=shared)
        assert tuning.value == pytest.approx(((s >= np.array(tuning.threshold)) == y).all(1).mean())


# One threshold for all classes


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("average", ["macro", "weighted", "micro", "samples"])
def test_one_threshold_for_all_is_exact_for_every_average(way: str, average: str) -> None:
    for kind in ("distinct", "ties", "infinite", "constant"):
        s, y = labels_data(kind, 11, 5, 2)
        if way == "empty_classes":
            y[:, 0] = 0
        how = {"average": average, **WAYS[way]}
        for name in ("f1", "accuracy", "mcc", "precision"):
            tuning = mg.tune_threshold(name, s, y, task="multilabel", shared=True, **how)
            assert tuning.exact
            assert isinstance(tuning.threshold, float)
            assert tuning.value == pytest.approx(best_of_all(CELL[name], s, y, True, **how), abs=1e-12), (kind, name)
            assert value_of(CELL[name], s >= tuning.threshold, y, **how) == pytest.approx(tuning.value, abs=1e-12)


@pytest.mark.parametrize("average", ["macro", "micro", "samples", "weighted"])
@pytest.mark.parametrize("shared", [False, True])
def test_masking_is_deleting(average: str, shared: bool) -> None:
    s, y = labels_data("distinct", 5, 12, 3)
    keep = np.arange(12) % 3 > 0
    hidden = np.where(keep[:, None], s, np.nan)
    how: dict[str, Any] = {"task": "multilabel", "average": average, "shared": shared}
    masked = mg.tune_threshold("f1", hidden, y, mask=keep, **how)
    deleted = mg.tune_threshold("f1", s[keep], y[keep], **how)
    assert masked.threshold == deleted.threshold
    assert masked.plateau == deleted.plateau
    assert masked.value == pytest.approx(deleted.value)


def plain_precision(c: mg.Counts) -> torch.Tensor:
    return c.tp / (c.tp + c.fp)  # 0/0 while nothing is predicted


def test_a_metric_that_is_undefined_at_some_cuts_is_tuned_where_it_is_defined() -> None:
    s, y = np.array([[0.9, 0.8], [0.4, 0.3], [0.2, 0.6]]), np.array([[1, 0], [1, 1], [0, 1]])
    undefined = partial(ref.precision, empty=math.nan)
    assert mg.tune_threshold(plain_precision, s[:, 0], y[:, 0]).value == 1.0
    pooled = mg.tune_threshold(plain_precision, s, y, task="multilabel", average="micro")
    assert pooled.exact
    assert pooled.value == 1.0
    for average in ("macro", "micro", "samples"):
        tuning = mg.tune_threshold(plain_precision, s, y, task="multilabel", average=average, shared=True)
        values = [value_of(undefined, s >= t, y, average=average) for t in cuts(s)]
        assert math.isnan(values[0])
        assert tuning.value == pytest.approx(np.nanmax(values))
    with pytest.raises(ValueError, match=r"metric: expected \S+ to be defined at some threshold, got NaN at each"):
        mg.tune_threshold(lambda c: c.tp / c.positives, [0.1, 0.2], [0, 0])


@pytest.mark.parametrize("average", ["macro", "micro", "samples", "weighted"])
@pytest.mark.parametrize("shared", [False, True])
def test_nothing_that_counts(average: Any, shared: bool) -> None:
    s, y = labels_data("distinct", 0, 3, 2)
    tuning = mg.tune_threshold("f1", s, y, task="multilabel", average=average, shared=shared, mask=np.zeros(3, bool))
    assert tuning.value == 0
    assert tuning.caution is not None


# Many classes


def class_data(seed: int, n: int, d: int, kind: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.choice(d, n, p=rng.dirichlet(np.full(d, 2.0)))
    z = rng.normal(size=(n, d)) + 1.5 * np.eye(d)[y]
    if kind == "logits":
        return z, y
    if kind == "few":  # ties, zeros, and margins that are equal but for rounding
        raw = rng.integers(0, 5, (n, d)) + np.eye(d, dtype=int)[y]
        return raw / raw.sum(1, keepdims=True), y
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    return p.astype(np.float32 if kind == "float32" else np.float64), y


def matrix_of(decided: Array, y: Array, d: int, weight: Array | None = None) -> Array:
    w = None if weight is None else np.repeat(weight[:, None], d, 1)
    return ref.confusion(np.eye(d)[decided], y, w)


@pytest.mark.parametrize("kind", ["logits", "probabilities", "float32", "few"])
@pytest.mark.parametrize("weighted", [False, True])
def test_offsets_are_never_worse_than_the_argmax(kind: str, weighted: bool) -> None:
    gains = []
    for seed in range(6):
        n, d = 25, 2 + seed % 4
        s, y = class_data(seed, n, d, kind)
        w = np.random.default_rng(seed).random(n) if weighted else None
        for name, metric in MATRIX.items():
            tuning = mg.tune_threshold(name, s, y, task="multiclass", weight=w)
            plain = metric(matrix_of(s.argmax(1), y, d, w))
            assert isinstance(tuning.rule, Offsets)
            assert tuning.rule.log == (kind != "logits")
            assert not tuning.exact
            assert tuning.value >= plain - 1e-12, (seed, name)
            assert tuning.value == pytest.approx(metric(matrix_of(tuning.rule(s), y, d, w)), abs=1e-12)
            gains.append(tuning.value - plain)
    assert np.mean(gains) > 0.02


def test_margins_that_rounding_alone_tells_apart_do_not_spoil_the_offsets() -> None:
    raw = [
        [5, 1, 5, 1],
        [5, 5, 2, 5],
        [1, 1, 1, 1],
        [5, 1, 4, 3],
        [4, 4, 4, 5],
        [4, 5, 4, 2],
        [5, 5, 1, 1],
        [3, 4, 2, 5],
    ]
    p, y = np.array(raw) / np.sum(raw, 1, keepdims=True), np.array([0, 0, 2, 3, 1, 1, 3, 3])
    assert mg.tune_threshold("mcc", p, y, task="multiclass").value >= ref.matrix_mcc(matrix_of(p.argmax(1), y, 4))


def test_with_more_samples_than_matrices_fit_the_best_stretch_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    s, y = class_data(5, 400, 3, "probabilities")
    fine = mg.tune_threshold("kappa", s, y, task="multiclass").value
    monkeypatch.setattr("metricgrad.decisions.offsets._MATRIX_CELLS_AT_ONCE", 1)  # 16 places at a time
    coarse = mg.tune_threshold("kappa", s, y, task="multiclass")
    plain = ref.matrix_kappa(matrix_of(s.argmax(1), y, 3))
    assert plain < coarse.value <= fine + 0.01
    assert coarse.value > plain + 0.5 * (fine - plain)
    assert coarse.value == pytest.approx(ref.matrix_kappa(matrix_of(coarse.rule(s), y, 3)))


@pytest.mark.parametrize("kind", ["logits", "few"])
def test_two_classes_have_one_offset_which_is_exact(kind: str) -> None:
    for seed in range(8):
        s, y = class_data(seed, 20, 2, kind)
        with np.errstate(divide="ignore"):
            levels = np.log(s) if kind == "few" else s
        difference = levels[:, 1] - levels[:, 0]
        distinct: list[float] = [inf]  # differences that rounding alone tells apart are one
        for x in np.sort(difference[np.isfinite(difference)])[::-1]:
            distinct += [float(x)] if len(distinct) == 1 or distinct[-1] - x > 1e-9 else []
        for name, metric in MATRIX.items():
            best = max(metric(matrix_of((difference >= t - 1e-10).astype(int), y, 2)) for t in distinct)
            tuning = mg.tune_threshold(name, s, y, task="multiclass")
            assert tuning.value == pytest.approx(best, abs=1e-12), (seed, name)


@pytest.mark.parametrize("average", ["macro", "weighted", "micro"])
def test_offsets_for_averaged_metrics(average: Any) -> None:
    s, y = class_data(3, 60, 3, "probabilities")
    for labels in (None, [1, 2]):
        tuning = mg.tune_threshold("f1", s, y, task="multiclass", average=average, labels=labels)

        def at(decided: Array, labels: Any = labels) -> Any:
            cells = ref.one_vs_rest(matrix_of(decided, y, 3))
            if average == "micro":
                return ref.micro(cells, ref.f_beta, labels)
            four = zip(cells["tp"], cells["fp"], cells["fn"], cells["tn"], strict=True)
            positives = [tp + fn for tp, fn in zip(cells["tp"], cells["fn"], strict=True)]
            return ref.average([ref.f_beta(*f) for f in four], positives, average, labels)

        assert tuning.value == pytest.approx(at(tuning.rule(s)))
        assert tuning.value >= at(s.argmax(1))


def test_masked_rows_are_deleted_and_probabilities_stay_probabilities() -> None:
    s, y = class_data(1, 40, 3, "probabilities")
    keep = np.arange(40) % 4 > 0
    masked = mg.tune_threshold("f1", np.where(keep[:, None], s, np.nan), y, task="multiclass", mask=keep)
    assert masked.rule == mg.tune_threshold("f1", s[keep], y[keep], task="multiclass").rule
    assert mg.tune_threshold("f1", s, y, task="multiclass", mask=np.zeros(40, bool)).value == 0


def test_certain_predictions_cannot_be_moved() -> None:
    p, y = torch.eye(3)[[0, 1, 2, 0, 1, 1]], [0, 1, 2, 1, 1, 0]
    assert mg.tune_threshold("accuracy", p, y, task="multiclass").value == pytest.approx(4 / 6)
    z = torch.tensor([[inf, inf, 0.0], [inf, 0.0, inf], [1.0, 2.0, 3.0]])
    assert mg.tune_threshold("accuracy", z, [1, 2, 2], task="multiclass").value == pytest.approx(1 / 3)


# Constraints


def allowed(s: Array, y: Array, w: Array | None, wanted: dict[str, float]) -> list[float]:
    def meets(t: float) -> bool:
        decided = (s >= t)[:, None]
        return all(value_of(CELL[name], decided, y[:, None], w) >= bound for name, bound in wanted.items())

    return [t for t in cuts(s) if meets(t)]


@pytest.mark.parametrize(
    "wanted", [{"precision": 0.6}, {"recall": 0.8}, {"precision": 0.5, "recall": 0.5}, {"recall": 1.0}, {"npv": 0.75}]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_constraints_hold_and_the_best_that_is_allowed_is_found(wanted: dict[str, float], weighted: bool) -> None:
    found = infeasible = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        s, y = rng.normal(size=12).round(1), rng.integers(0, 2, 12)
        w = rng.integers(1, 4, 12).astype(float) if weighted else None
        text = ", ".join(f"{name} >= {bound}" for name, bound in wanted.items())
        choices = allowed(s, y, w, wanted)
        if not choices:
            infeasible += 1
            with pytest.raises(ValueError, match="subject_to: no threshold reaches"):
                mg.tune_threshold("f1", s, y, subject_to=text, weight=w)
            continue
        found += 1
        for way in (text, wanted, [text]):
            tuning = mg.tune_threshold("f1", s, y, subject_to=way, weight=w)
            best = max(value_of(ref.f_beta, (s >= t)[:, None], y[:, None], w) for t in choices)
            assert tuning.value == pytest.approx(best, abs=1e-12)
            assert tuning.exact
            for name, bound in wanted.items():
                assert value_of(CELL[name], (s >= tuning.threshold)[:, None], y[:, None], w) >= bound
    assert found


def test_what_cannot_be_met_is_told() -> None:
    s, y = [0.9, 0.8, 0.7, 0.1], [0, 1, 0, 1]
    with pytest.raises(
        ValueError, match=r"no threshold reaches precision >= 0\.9; the nearest, 0\.8, misses it by 0\.4"
    ):
        mg.tune_threshold("recall", s, y, subject_to="precision >= 0.9")
    with pytest.raises(ValueError, match=r"no threshold reaches precision >= 0\.4 and specificity >= 0\.9 together"):
        mg.tune_threshold("recall", s, y, subject_to="precision>=0.4, specificity>=0.9")
    two, none = [[0.9, 0.8], [0.4, 0.3]], [[1, 0], [1, 0]]
    with pytest.raises(
        ValueError, match=r"no threshold reaches precision >= 0\.9 in class 1; the nearest, inf, misses it by 0.9"
    ):
        mg.tune_threshold("recall", two, none, task="multilabel", subject_to="precision >= 0.9")
    # A class that does not count need not meet it.
    assert mg.tune_threshold("recall", two, none, task="multilabel", subject_to="precision>=.9", labels=[0]).value == 1
    with pytest.raises(ValueError, match=r"precision >= 0\.5 with 0\.95 confidence"):
        mg.tune_threshold("recall", s, y, subject_to="precision >= 0.5", confidence=0.95)


def test_every_class_meets_its_constraint() -> None:
    rng = np.random.default_rng(2)
    y = (rng.random((60, 3)) < 0.4).astype(int)
    s = rng.normal(size=(60, 3)) + 2 * y
    tuning = mg.tune_threshold("recall", s, y, task="multilabel", subject_to="precision >= 0.85")
    for k, t in enumerate(tuning.threshold):
        choices = allowed(s[:, k], y[:, k], None, {"precision": 0.85})
        best = max(value_of(ref.recall, (s[:, [k]] >= c), y[:, [k]]) for c in choices)
        assert value_of(ref.precision, s[:, [k]] >= t, y[:, [k]]) >= 0.85
        assert value_of(ref.recall, s[:, [k]] >= t, y[:, [k]]) == pytest.approx(best)


@pytest.mark.parametrize("average", ["macro", "weighted", "micro", "samples"])
def test_constraints_on_one_threshold_for_all(average: Any) -> None:
    for seed in range(10):
        s, y = labels_data("ties", seed, 12, 3)
        y[0] = 1
        s += y
        at = partial(value_of, y=y, average=average)
        bound = at(ref.recall, s >= sorted(cuts(s))[seed % 4])  # met exactly at a cut, 1 at the lowest
        best = max(at(ref.precision, s >= t) for t in cuts(s) if at(ref.recall, s >= t) >= bound - 1e-12)
        tuning = mg.tune_threshold(
            "precision", s, y, task="multilabel", average=average, shared=True, subject_to={"recall": bound}
        )
        assert tuning.value == pytest.approx(best, abs=1e-12)
        assert at(ref.recall, s >= tuning.threshold) >= bound - 1e-12


@pytest.mark.parametrize("how", [{"average": "weighted"}, {"average": "macro", "empty_classes": "skip"}])
def test_a_class_that_is_left_out_of_the_average_does_not_help_to_meet_a_constraint(how: dict[str, Any]) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        y = (rng.random((40, 3)) < 0.4).astype(int)
        y[:, 1] = 0
        s = (rng.random(y.shape) + 0.3 * y).round(2)
        precisions = {t: value_of(ref.precision, s >= t, y, **how) for t in cuts(s)}
        allowed_cuts = [t for t, precision in precisions.items() if precision >= 0.8]
        best = max(value_of(ref.recall, s >= t, y, **how) for t in allowed_cuts)
        options: dict[str, Any] = {"task": "multilabel", "shared": True, **how}
        tuning = mg.tune_threshold("recall", s, y, subject_to="precision >= 0.8", **options)
        assert value_of(ref.precision, s >= tuning.threshold, y, **how) >= 0.8
        assert tuning.value == pytest.approx(best, abs=1e-12)
        highest = max(precisions.values())
        with pytest.raises(ValueError, match=rf"misses it by {1.5 - highest:.4g}$"):
            # A function of one's own has no range.
            mg.tune_threshold("recall", s, y, subject_to={lambda c: mg.metrics.precision(c): 1.5}, **options)


# How sure


@pytest.mark.parametrize("shared", [None, True])
def test_the_plateau_is_what_comes_within_epsilon(shared: bool | None) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, (40, 2 if shared else 1))
        s = (rng.normal(size=y.shape) + y).round(1)
        options: dict[str, Any] = {"task": "multilabel", "shared": True} if shared else {}
        tuning = mg.tune_threshold("f1", s, y, epsilon=0.05, **options)
        low, high = tuning.plateau
        assert low <= tuning.threshold <= high
        every = cuts(s)
        good = [t for t in every if value_of(ref.f_beta, s >= t, y) >= tuning.value - 0.05]
        inside = [t for t in every if low <= t <= high]
        assert set(inside) <= set(good)
        for end in (low, high):
            assert value_of(ref.f_beta, s >= end, y) >= tuning.value - 0.05 - 1e-12
        below, above = [t for t in every if t < low], [t for t in every if t > high]
        assert not below or (low - max(below) <= 0.06) or max(below) not in good
        assert not above or min(above) not in good


@pytest.mark.parametrize("grouped", [False, True])
def test_interval_and_out_of_bag_are_those_of_a_plain_bootstrap(grouped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 60)
    s = rng.normal(size=60) + y
    groups = np.arange(60) // 6 if grouped else np.arange(60)
    units = int(groups.max()) + 1
    draws = [rng.integers(0, units, units) for _ in range(41)]
    times = torch.tensor(np.stack([np.bincount(drawn, minlength=units) for drawn in draws]), dtype=torch.float64)
    monkeypatch.setattr("metricgrad.decisions.problem.draw_units", lambda *_: iter(times.split(20)))
    tuning = mg.tune_threshold("f1", s, y, groups=groups if grouped else None)
    thresholds, left = [], []
    for drawn in draws:
        rows = np.concatenate([np.flatnonzero(groups == g) for g in drawn])
        _, best = max((value_of(ref.f_beta, (s[rows] >= t)[:, None], y[rows][:, None]), t) for t in cuts(s[rows]))
        lower = [t for t in cuts(s[rows]) if t < best]
        thresholds.append((best + lower[0]) / 2 if lower and best < inf else best)
        out = ~np.isin(groups, drawn)
        left.append(value_of(ref.f_beta, (s[out] >= thresholds[-1])[:, None], y[out][:, None]))
    assert tuning.out_of_bag == pytest.approx(np.mean(left), abs=1e-12)
    assert tuning.out_of_bag < tuning.value  # judged where it was tuned it flatters
    assert tuning.interval == pytest.approx((sorted(thresholds)[1], sorted(thresholds)[39]), abs=1e-12)


def test_resampling_is_reproducible_and_seeded() -> None:
    rng = np.random.default_rng(0)
    s, y = rng.random((50, 2)), rng.integers(0, 2, (50, 2))

    def found(seed: int) -> Any:
        tuning = mg.tune_threshold("f1", s, y, task="multilabel", average=None, seed=seed, replicates=30)
        return tuning.interval, tuning.out_of_bag

    assert found(1) == found(1)
    assert found(1) != found(2)
    (low, high), second = found(1)[0]
    assert low < high
    assert len(second) == 2


def test_two_hundred_resamples_of_seed_0_unless_told_otherwise() -> None:
    rng = np.random.default_rng(0)
    s, y = rng.random(40), rng.integers(0, 2, 40)
    default = mg.tune_threshold("f1", s, y)
    told = mg.tune_threshold("f1", s, y, replicates=200, seed=0)
    assert len(list(default.resample())) == 200
    assert (default.interval, default.out_of_bag) == (told.interval, told.out_of_bag)
    assert default.out_of_bag != mg.tune_threshold("f1", s, y, seed=1).out_of_bag


def test_out_of_bag_has_a_value_for_each_class_that_is_that_of_the_class_alone() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random((50, 3)) < [0.2, 0.4, 0.6]).astype(int)
    s = rng.random((50, 3)) + 0.3 * y
    together = mg.tune_threshold("f1", s, y, task="multilabel", average=None, replicates=20)
    alone = [mg.tune_threshold("f1", s[:, k], y[:, k], replicates=20) for k in range(3)]
    assert together.out_of_bag == pytest.approx([one.out_of_bag for one in alone], abs=1e-12)
    assert together.interval == [one.interval for one in alone]


def test_when_every_group_is_drawn_nothing_is_left_to_judge() -> None:
    s, y = [0.9, 0.8, 0.1, 0.2] * 10, [1, 1, 0, 0] * 10
    names = ["first", "second"] * 20
    assert mg.tune_threshold("f1", s, y, groups=names).out_of_bag == 1.0
    assert math.isnan(mg.tune_threshold("f1", s, y, groups=[0] * 40, replicates=5).out_of_bag)


def test_resamples_on_which_nothing_is_allowed_predict_nothing() -> None:
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 25)
    s = rng.normal(size=25) + 0.5 * y
    tuning = mg.tune_threshold("recall", s, y, subject_to="precision >= 0.9", replicates=60)
    assert tuning.interval[1] == inf
    classes = mg.tune_threshold(
        "f1", class_data(0, 40, 3, "logits")[0], class_data(0, 40, 3, "logits")[1], task="multiclass", replicates=20
    )
    assert len(classes.interval) == 3
    assert 0 < classes.out_of_bag < 1


def test_few_samples_are_cautioned_against() -> None:
    s = np.linspace(0, 1, 60)
    assert mg.tune_threshold("f1", s, s > 0.5).caution is None
    caution = mg.tune_threshold("f1", s, s > 0.9).caution
    assert caution == "only 6 positives or negatives: the threshold is not to be trusted"
    two, y = np.stack([s, s], 1), np.stack([s > 0.5, s > 0.9], 1)
    assert "only 6 positives or negatives in 1 of 2 classes" in str(
        mg.tune_threshold("f1", two, y, task="multilabel").caution
    )
    assert mg.tune_threshold("f1", two, y, task="multilabel", labels=[0]).caution is None
    assert mg.tune_threshold("f1", two, y, task="multilabel", shared=True).caution is None
    assert mg.tune_threshold("f1", s, s > 0.5, mask=s > 0.3).caution is not None


def test_a_tuning_prints_and_pickles() -> None:
    tuning = mg.tune_threshold("f1", [0.9, 0.8, 0.4, 0.3, 0.1], [1, 0, 1, 1, 0])
    assert str(tuning).splitlines() == [
        "Threshold(threshold=0.2)",
        "f1 0.8571 where tuned (exact optimum)",
        "within 0.01 of it from 0.2 to 0.3",
        "caution: only 2 positives or negatives: the threshold is not to be trusted",
    ]
    again = pickle.loads(pickle.dumps(tuning))  # noqa: S301
    assert (again.rule, again.value, again.interval) == (tuning.rule, tuning.value, tuning.interval)
    local = mg.tune_threshold("f1", [[0.9, 0.1], [0.2, 0.8]], [0, 1], task="multiclass")
    assert "macro f1 1.0000 where tuned (local optimum)" in str(local)
    each = mg.tune_threshold("f1", [[0.9, 0.1], [0.2, 0.8]], [[1, 0], [0, 1]], task="multilabel", average=None)
    assert "f1 [1.0000, 1.0000] where tuned (exact optimum)" in str(each)


S, Y = [0.1, 0.9, 0.4], [0, 1, 1]
S2, Y2 = [[0.1, 0.9], [0.4, 0.3]], [[0, 1], [1, 0]]
LABELS = {"task": "multilabel"}


@pytest.mark.parametrize(
    ("scores", "targets", "options", "message"),
    [
        ([0.1, math.nan, 0.4], Y, {}, "scores: expected numbers, got 1 NaN; use mask="),
        (S, [0, 1, math.nan], {}, "targets: expected numbers, got NaN; use mask="),
        (S, Y, {"weight": [1.0, math.nan, 1.0]}, "weight: expected numbers, got NaN; use mask="),
        (S, Y, {"weight": [1.0, -1.0, 1.0]}, "weight: expected no negative value, got -1"),
        (S, [0, 1, 2], {}, r"targets: expected values in \[0, 1\], got 0, 1, 2; they look like class indices"),
        (S, [0, 1], {}, "targets: expected the shape of the scores"),
        ([], [], {}, "scores: expected at least one sample to tune on, got none"),
        (["a", "b", "c"], Y, {}, "scores: expected numbers"),
        (S2, [0, 1], {}, r"scores: expected one per sample .* got two columns; pass scores\[:, 1\]"),
        (S, Y, {"epsilon": -0.1}, "epsilon: expected a number of at least 0, got -0.1"),
        (S, Y, {"epsilon": math.nan}, "epsilon: expected a number of at least 0"),
        (S, Y, {"replicates": 0}, "replicates: expected a whole number of at least 1, got 0"),
        (S, Y, {"task": "both"}, "task: expected one of"),
        (S, Y, {"shared": True}, "shared: one threshold for all classes is for task='multilabel', got 'binary'"),
        (S2, Y2, {**LABELS, "shared": True, "average": None}, "average: None has a best threshold for each class"),
        (S2, [0, 1], {"task": "multiclass", "average": None}, "average: None has a best threshold for each class"),
        (S2, [0, 1], {"task": "multiclass", "subject_to": "recall>=1"}, "subject_to: expected task='binary'"),
        (S2, Y2, {**LABELS, "average": "micro", "subject_to": "recall>=1"}, "subject_to: .* pass shared=True"),
        (S2, Y2, {**LABELS, "subject_to": "recall[0]>=1"}, "subject_to: expected a bound without brackets here"),
        (S2, Y2, {**LABELS, "shared": True, "subject_to": "recall[each]>=1"}, "expected a bound without brackets"),
        (S, Y, {"subject_to": "recall[each]>=1"}, "subject_to: expected a bound without brackets here"),
        (S, Y, {"subject_to": "precision > 0.9"}, "subject_to: expected 'metric>=number'.* got 'precision > 0.9'"),
        (S, Y, {"subject_to": {"precision": True}}, "subject_to: expected 'metric>=number'.* got 'precision>=True'"),
        (S, Y, {"subject_to": 0.9}, "subject_to: expected 'metric>=number'"),
        (S, Y, {"subject_to": "precison >= 0.9"}, "did you mean 'precision'"),
        (S, Y, {"confidence": 0.95}, "confidence: expected a constraint to hold with it"),
        (S, Y, {"confidence": 1.0, "subject_to": "recall>=.1"}, r"confidence: expected a number in \[0.5, 1\)"),
        (S2, Y2, {**LABELS, "shared": True, "confidence": 0.9, "subject_to": "recall>=1"}, "expected shared=False"),
        (S2, Y2, {**LABELS, "labels": [5]}, "labels: expected class indices below 2, got 5"),
    ],
)
def test_bad_input_is_refused_in_one_line(scores: Any, targets: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        mg.tune_threshold("f1", scores, targets, **options)
    assert "\n" not in str(caught.value)


def test_groups_must_fit() -> None:
    with pytest.raises(ValueError, match=r"groups: expected one per row, \(3,\), got \(2,\)"):
        _ = mg.tune_threshold("f1", S, Y, groups=[1, 2]).interval


def test_a_bound_that_is_missed_by_little_is_missed() -> None:
    scores, y = torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1, 1, 0, 1])
    met = mg.tune_threshold("recall", scores, y, subject_to="precision >= 0.75")  # all four, exactly at the bound
    above = mg.tune_threshold("recall", scores, y, subject_to="precision >= 0.7500001")
    assert met.value == 1.0
    assert above.value == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="no threshold reaches"):
        mg.tune_threshold("recall", scores, torch.tensor([0, 1, 1, 1]), subject_to="precision >= 0.7500001")
    for bound, is_met in ((0.75 + 1e-12, True), (0.7500001, False)):
        assert Constraint("precision", bound).met(torch.tensor(0.75, dtype=torch.float64)) is is_met
        assert Constraint("precision", 1.5 - bound, "<=").met(torch.tensor(0.75, dtype=torch.float64)) is is_met


def test_classes_are_moved_one_by_one_until_none_moves() -> None:
    asked: list[int] = []

    def choose(k: int, indices: list[int]) -> int:
        asked.append(k)
        return min(3, indices[1] + 1) if k == 0 else indices[0]

    assert ascend_one_by_one([0, 0], choose) == [3, 3]
    assert asked == [0, 1] * 4  # three sweeps that move, and one that does not
    assert ascend_one_by_one([0, 0], choose, sweeps=2) == [2, 2]
