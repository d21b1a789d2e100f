"""A count of nothing is 0, in whatever order float weights are added: every path against counts summed directly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad.decisions import choose_k_labels
from metricgrad.decisions.ensemble_selection import select_ensemble

pytestmark = pytest.mark.quick

# What a residue of rounding in the place of 0 makes wrong: 0/0 becomes any number.
METRICS = [
    "specificity",
    "npv",
    "precision",
    "markedness",
    "informedness",
    "balanced_accuracy",
    "mcc",
    "kappa",
    "g_mean",
]


def value_of(metric: str, decided: Any, targets: Any, weight: Any) -> Any:
    """Return the metric of every label, of four sums of their own: none is a difference."""
    d, y, w = (torch.as_tensor(np.asarray(x), dtype=torch.float64) for x in (decided, targets, weight))
    w = w.reshape(-1, 1)
    sums = ((w * d * y).sum(0), (w * d * (1 - y)).sum(0), (w * (1 - d) * y).sum(0), (w * (1 - d) * (1 - y)).sum(0))
    return mg.metrics.get(metric)(mg.Counts(*sums))


def weighted_problem(seed: int, rows: int = 25, labels: int = 4) -> tuple[Any, Any, Any]:
    """Return scores, targets with a label that is always positive and one that never is, and float weights."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(1, 20, (rows, labels)) / 20 * (rng.random((rows, labels)) < 0.7)
    targets = (rng.random((rows, labels)) < 0.4).astype(float)
    targets[:, 0], targets[:, 1] = 1, 0
    weight = rng.random(rows) * (rng.random(rows) < 0.9)
    return scores, targets, weight


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("average", ["macro", "micro", "samples", None])
def test_sparse_equals_dense_with_float_weights(seed: int, average: Any) -> None:
    s, y, w = weighted_problem(seed)
    how: Any = {"task": "multilabel", "average": average, "weight": w, "threshold": 0.3}
    sparse, dense = (mg.evaluate(f(s), f(y), METRICS, **how) for f in (sp.csr_matrix, np.asarray))
    for name in METRICS:
        np.testing.assert_allclose(sparse[name], dense[name], atol=1e-12)
        if average is None:
            np.testing.assert_allclose(sparse[name], value_of(name, s >= 0.3, y, w), atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("average", ["macro", "micro"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("metric", ["specificity", "npv", "markedness", "mcc"])
def test_tuned_value_of_sparse_scores_is_reached(seed: int, average: Any, shared: bool, metric: str) -> None:
    s, y, w = weighted_problem(seed)
    how: Any = {"task": "multilabel", "average": average, "weight": w}
    found = mg.tune_threshold(metric, sp.csr_matrix(s), sp.csr_matrix(y), shared=shared, **how)
    reached = mg.evaluate(s, y, [metric], rule=found.rule, **how)[metric]
    grid = [np.full(s.shape[1], t) for t in np.unique(s[s > 0])]
    best = max(mg.evaluate(s, y, [metric], rule=mg.decisions.Threshold(tuple(t)), **how)[metric] for t in grid)
    assert found.value == pytest.approx(reached, abs=1e-12)
    assert found.value >= best - 1e-12


@pytest.mark.parametrize("classes", [3, 10])
@pytest.mark.parametrize("case", ["one true class", "one predicted class"])
def test_counts_of_a_matrix_of_float_weights(classes: int, case: str) -> None:
    for seed in range(40):
        g = torch.Generator().manual_seed(seed)
        w = torch.rand(300, generator=g, dtype=torch.float64)
        scores = torch.rand(300, classes, generator=g, dtype=torch.float64) / 2
        y = torch.randint(0, classes, (300,), generator=g)
        if case == "one true class":
            y = torch.zeros_like(y)
        else:
            scores[:, 0] = 1.0
        empty = {"one true class": "specificity", "one predicted class": "npv"}[case]
        found = mg.evaluate(scores, y, [empty], task="multiclass", weight=w, average=None)
        assert found[empty][0] == 0.0


@pytest.mark.parametrize("metric", ["npv", "markedness", "specificity"])
@pytest.mark.parametrize("average", ["macro", "micro"])
def test_offsets_of_float_weights_reach_their_value(metric: str, average: Any) -> None:
    for seed in range(4):
        g = torch.Generator().manual_seed(seed)
        scores = torch.rand(60, 4, generator=g, dtype=torch.float64).softmax(1)
        y, w = torch.randint(0, 3, (60,), generator=g), torch.rand(60, generator=g, dtype=torch.float64)
        how: Any = {"task": "multiclass", "average": average, "weight": w}
        found = mg.tune_threshold(metric, scores, y, **how)
        assert found.value == pytest.approx(mg.evaluate(scores, y, [metric], rule=found.rule, **how)[metric], abs=1e-12)
        assert found.value >= mg.evaluate(scores, y, [metric], **how)[metric] - 1e-12
        assert found.value <= 1


@pytest.mark.parametrize("metric", ["npv", "markedness", "mcc", "f1"])
@pytest.mark.parametrize("rows", [60, 9000])  # each row sorted, and by bins
def test_selection_with_float_weights_reaches_its_value(metric: str, rows: int) -> None:
    for seed in range(8 if rows < 100 else 1):
        rng = np.random.default_rng(seed)
        y = (rng.random(rows) < 0.4).astype(int)
        scores = {name: np.clip(rng.random(rows) * 0.8 + 0.2 * y, 0, 1).round(2) for name in "abc"}
        w = rng.random(rows)
        found = select_ensemble(metric, scores, y, weight=w, rounds=5, bags=1)
        mean = sum(weight * scores[name] for name, weight in found.weights.items())
        tuned = mg.tune_threshold(metric, mean, y, weight=w)
        assert found.value <= 1
        assert found.value == pytest.approx(tuned.value, abs=1e-9)


def expected_value(metric: str, p: Tensor, chosen: Tensor) -> float:
    """Return the macro metric of expected counts, of four sums of their own."""
    return float(value_of(metric, chosen, p, torch.ones(len(p))).mean())


@pytest.mark.parametrize("metric", ["precision", "markedness", "npv", "f1"])
def test_more_starts_never_give_less(metric: str) -> None:
    tables = [torch.tensor([[0.51, 0.57, 0.51], [0.97, 0.61, 0.57], [0.29, 0.55, 0.47], [0.61, 0.93, 0.25]]).double()]
    tables += [torch.rand(8, 4, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in range(25)]
    for p in tables:
        one, many = (expected_value(metric, p, choose_k_labels(metric, p, 1, starts=starts)) for starts in (1, 8))
        assert many >= one - 1e-9
        assert many <= 1


def test_the_most_precise_label_of_each_row() -> None:
    p = torch.rand(300, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64) ** 3
    start = torch.nn.functional.one_hot(p.argmax(1), 20)
    found = expected_value("precision", p, choose_k_labels("precision", p, 1))
    assert expected_value("precision", p, start) <= found <= 1
