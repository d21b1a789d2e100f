"""The best k labels of each row for a macro metric: against every choice, and against the peer's algorithm."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad.core.counts import cells
from metricgrad.core.objective import Objective
from metricgrad.decisions import TopK, WeightedTopK, choose_k_labels, tune_top_k
from metricgrad.decisions.k_labels import _BlockAscent, _DenseRows


def expected(metric: str, p: Tensor, decided: Tensor) -> float:
    """Return the macro metric of the expected counts."""
    p, d = p.double(), decided.double()
    counts = cells((p * d).sum(0), ((1 - p) * d).sum(0), p.sum(0), (1 - p).sum(0))
    return mg.metrics.get(metric)(counts).mean().item()


def probabilities(seed: int, rows: int, labels: int) -> Tensor:
    """Return probabilities of labels of which few are frequent."""
    g = torch.Generator().manual_seed(seed)
    rarity = torch.arange(1, labels + 1, dtype=torch.float64).log()
    return torch.sigmoid(1.5 * torch.randn(rows, labels, generator=g, dtype=torch.float64) - rarity)


@pytest.mark.parametrize("metric", ["f1", "mcc", "jaccard", "balanced_accuracy"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("at_most", [False, True])
def test_the_best_of_all_choices(metric: str, seed: int, at_most: bool) -> None:
    rows, labels, k = 4, 4, 1 + seed % 2
    p = torch.rand(rows, labels, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 2
    sizes = range(k + 1) if at_most else [k]
    sets = [torch.tensor([i in c for i in range(labels)]) for n in sizes for c in itertools.combinations(range(4), n)]
    highest = max(expected(metric, p, torch.stack(choice)) for choice in itertools.product(sets, repeat=rows))
    chosen = choose_k_labels(metric, p, k, at_most=at_most, starts=30)
    assert ((chosen.sum(1) <= k) if at_most else (chosen.sum(1) == k)).all()
    assert expected(metric, p, chosen) == pytest.approx(highest, abs=1e-9)


def coordinate_ascent(p: Tensor, k: int, sweeps: int = 20) -> Tensor:
    """Return macro-F1's best k labels by the published algorithm, row by row from the most probable labels."""
    chosen: Tensor = TopK(k)(p)
    for _ in range(sweeps):
        before = chosen.clone()
        for i in range(len(p)):
            chosen[i] = False
            tp, predicted = (p * chosen).sum(0), chosen.sum(0)
            gain = 2 * (tp + p[i]) / (predicted + 1 + p.sum(0)) - 2 * tp / (predicted + p.sum(0))
            chosen[i, gain.topk(k).indices] = True
        if torch.equal(chosen, before):
            break
    return chosen


@pytest.mark.parametrize(("rows", "labels", "k"), [(60, 10, 1), (200, 30, 3)])
def test_as_good_as_the_published_algorithm(rows: int, labels: int, k: int) -> None:
    p = probabilities(0, rows, labels)
    published, ours = (expected("f1", p, x) for x in (coordinate_ascent(p, k), choose_k_labels("f1", p, k)))
    assert ours >= published - 1e-6
    assert ours > expected("f1", p, TopK(k)(p)) + 0.03


@pytest.mark.parametrize("metric", ["f1", "precision", "mcc"])
@pytest.mark.parametrize("at_most", [False, True])
def test_no_other_labels_of_a_single_row_are_better(metric: str, at_most: bool) -> None:
    for seed in range(4):
        p = torch.rand(8, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 2
        chosen = choose_k_labels(metric, p, 2, at_most=at_most)
        value = expected(metric, p, chosen)
        sizes = (0, 1, 2) if at_most else (2,)
        for labels in itertools.chain.from_iterable(itertools.combinations(range(5), size) for size in sizes):
            for row in range(8):
                other = chosen.clone()
                other[row] = torch.tensor([label in labels for label in range(5)])
                assert expected(metric, p, other) <= value + 1e-6


def test_sparse_probabilities_are_chosen_from_what_is_stored() -> None:
    p = probabilities(1, 100, 12)
    p[p < 0.02] = 0
    chosen = choose_k_labels("f1", sp.csr_matrix(p.numpy()), 2)
    assert sp.issparse(chosen)
    dense = torch.tensor(chosen.toarray())
    assert not (dense & (p == 0)).any()
    assert (dense.sum(1) == (p > 0).sum(1).clamp(max=2)).all()
    assert expected("f1", p, dense) >= expected("f1", p, choose_k_labels("f1", p, 2)) - 1e-3


def test_kinds_of_arrays_and_edges() -> None:
    p = probabilities(2, 10, 4)
    wanted = choose_k_labels("f1", p, 2)
    assert isinstance(wanted, Tensor)
    np.testing.assert_array_equal(choose_k_labels("f1", p.numpy(), 2), wanted.numpy())
    assert choose_k_labels("f1", p, 4).all()
    assert choose_k_labels("f1", p[:0], 2).shape == (0, 4)
    assert choose_k_labels("f1", sp.csr_matrix((3, 4)), 2).nnz == 0


def test_the_tuned_rule_beats_the_most_probable_labels_on_new_rows() -> None:
    p, new = probabilities(3, 4000, 30), probabilities(4, 4000, 30)
    g = torch.Generator().manual_seed(5)
    y, fresh = (torch.rand(x.shape, generator=g, dtype=torch.float64) < x for x in (p, new))
    rule = tune_top_k("f1", p, y, 3)
    assert isinstance(rule, WeightedTopK)
    value, top = (mg.evaluate(new, fresh, "f1", task="multilabel", rule=r)["f1"] for r in (rule, TopK(3)))
    assert value > top + 0.03
    sparse = tune_top_k("f1", sp.csr_matrix(p.numpy()), sp.csr_matrix(y.numpy()), 3)
    np.testing.assert_allclose((sparse.scale, sparse.offset), (rule.scale, rule.offset), atol=1e-9)
    assert expected("f1", p, tune_top_k("f1", p, p, 3)(p)) == pytest.approx(
        expected("f1", p, choose_k_labels("f1", p, 3)), abs=2e-4
    )


def test_where_the_highest_scores_are_best_the_rule_is_just_these() -> None:
    scores = torch.tensor([[0.2, 0.7, 0.9], [0.1, 0.8, 0.3], [0.9, 0.5, 0.8]])
    y = TopK(2)(scores)
    rule = tune_top_k("f1", scores, y, 2)
    assert rule == WeightedTopK(2, scale=(1.0, 1.0, 1.0), offset=(0.0, 0.0, 0.0))
    assert torch.equal(rule(scores), y)


@pytest.mark.parametrize("seed", range(5))
def test_the_tuned_rule_is_never_worse_than_the_highest_scores_where_it_was_tuned(seed: int) -> None:
    p = probabilities(seed, 30, 6)
    y = torch.rand(p.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) < p
    rule = tune_top_k("precision", p, y, 2, iterations=1)
    tuned, top = (mg.evaluate(p, y, "precision", task="multilabel", rule=r)["precision"] for r in (rule, TopK(2)))
    assert tuned >= top


def test_weighted_top_k_is_top_k_of_weighted_scores() -> None:
    p = probabilities(6, 50, 5).round(decimals=1)
    scale, offset = (1.0, 2.0, -1.0, 0.5, 1.0), (0.0, -0.3, 0.4, 0.1, 0.0)
    rule = WeightedTopK(2, scale, offset)
    weighted = p * torch.tensor(scale, dtype=torch.float64) + torch.tensor(offset, dtype=torch.float64)
    assert torch.equal(rule(p), TopK(2)(weighted))
    stored = p.clamp(min=0.1).numpy()
    np.testing.assert_array_equal(rule(sp.csr_matrix(stored)).toarray(), rule(stored))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: choose_k_labels("f1", torch.rand(3, 2), 0), r"^k: expected a whole number of at least 1, got 0"),
        (lambda: choose_k_labels("f1", torch.rand(3, 2), 3), r"^k: expected 1 to the number of labels"),
        (lambda: choose_k_labels("f1", torch.rand(3, 2), 1, starts=0), r"^starts: expected .* at least 1, got 0"),
        (lambda: choose_k_labels("f1", 2 + torch.rand(3, 2), 1), r"^probabilities: expected values in \[0, 1\]"),
        (lambda: choose_k_labels("f1", sp.csr_matrix([[2.0, 0.0]]), 1), r"^probabilities: expected values in \[0, 1\]"),
        (lambda: WeightedTopK(1, (1.0,), (0.0, 1.0)), r"^offset: expected 1, one per scale, got 2"),
        (lambda: WeightedTopK(1, (float("nan"),), (0.0,)), r"^scale: expected one finite number per label"),
        (lambda: WeightedTopK(1, (1.0,), (0.0,))(torch.rand(3, 2)), r"^scores: expected 1 labels, one scale"),
        (lambda: tune_top_k("f1", torch.rand(0, 2), torch.ones(0, 2), 1), r"^scores: expected at least one sample"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("metric", ["f1", "f2"])
def test_the_best_of_many_candidates_are_found_without_all_exact_gains(metric: str) -> None:
    p = probabilities(0, 60, 40)  # more than four rows for each label: not every gain is computed exactly
    ascent = _BlockAscent(Objective("multilabel", metric), _DenseRows(p), 3, at_most=False)
    ascent.climb()
    rows = torch.arange(60)
    candidates, labels = ascent.rows.list_candidates(rows)
    nothing = torch.full((60, 3), -1)  # as if these rows were new, and had no labels yet
    best, _ = ascent._choose_best(candidates, labels, nothing)
    exact = ascent._find_gains(candidates, labels, torch.zeros(60, 40, dtype=torch.bool))
    torch.testing.assert_close(best, exact.topk(3, dim=1).values)
