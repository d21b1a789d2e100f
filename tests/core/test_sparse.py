"""Sparse scores and targets give what dense ones give, and never make a dense matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import metricgrad as mg
from metricgrad.decisions import Threshold, TopK

LABELS: Any = {"task": "multilabel"}


def problem(seed: int, rows: int, labels: int) -> tuple[Any, Any]:
    """Return dense scores, half of which are 0, with ties, and targets."""
    rng = np.random.default_rng(seed)
    targets = (rng.random((rows, labels)) < 0.3).astype(float)
    scores = np.where(rng.random((rows, labels)) < 0.5, rng.integers(1, 9, (rows, labels)) / 10, 0.0)
    return np.clip(scores + 0.1 * targets, 0, 1).round(1), targets


CASES: Any = {
    "seed": st.integers(0, 10_000),
    "rows": st.integers(1, 30),
    "labels": st.integers(1, 6),
    "average": st.sampled_from(["macro", "micro", "weighted", "samples", None]),
    "weighted": st.booleans(),
    "empty_classes": st.sampled_from(["count", "skip"]),
}


@settings(deadline=None, max_examples=60, derandomize=True)
@given(**CASES)
def test_evaluate_equals_dense(
    seed: int, rows: int, labels: int, average: Any, weighted: bool, empty_classes: Any
) -> None:
    s, y = problem(seed, rows, labels)
    weight = np.random.default_rng(seed).integers(0, 3, rows) / 2 if weighted else None
    how = {**LABELS, "average": average, "weight": weight, "empty_classes": empty_classes, "threshold": 0.35}
    if seed % 3 == 0:
        how["labels"] = [labels - 1]
    metrics = ["f1", "mcc", "jaccard", "subset_accuracy"]
    if average != "samples":
        # Rows with fewer than k scores above 0 get k labels all the same.
        metrics += ["auroc", "average_precision", "f1@1"]
        metrics += [f"{name}@{k}" for k in range(1, labels + 1) for name in ("precision", "accuracy")]
    dense, sparse = mg.evaluate(s, y, metrics, **how), mg.evaluate(sp.csr_matrix(s), sp.csr_array(y), metrics, **how)
    for name in metrics:
        np.testing.assert_allclose(sparse[name], dense[name], atol=1e-12, equal_nan=True)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(**CASES, shared=st.booleans(), rare_labels=st.sampled_from(["own", "pooled", "fixed"]))
def test_tuned_thresholds_are_the_best_above_zero(
    seed: int, rows: int, labels: int, average: Any, weighted: bool, empty_classes: Any, shared: bool, rare_labels: Any
) -> None:
    s, y = problem(seed, rows, labels)
    weight = np.random.default_rng(seed).integers(1, 3, rows) / 2 if weighted else None
    shared = shared or average == "samples"
    average = "macro" if average is None and shared else average
    how = {**LABELS, "average": average, "weight": weight, "empty_classes": empty_classes}
    sparse = (sp.csr_matrix(s), sp.coo_array(y))
    tuning = mg.tune_threshold("f1", *sparse, shared=shared, rare_labels=rare_labels, **how)
    dense = mg.tune_threshold("f1", s, y, shared=shared, rare_labels=rare_labels, **how)
    assert tuning.exact == dense.exact
    assert tuning.fewest == dense.fewest
    assert np.min(tuning.threshold) > 0
    if np.min(dense.threshold) > 0:
        np.testing.assert_allclose(tuning.value, dense.value, atol=1e-12)
    np.testing.assert_allclose(mg.evaluate(s, y, "f1", rule=tuning.rule, **how)["f1"], tuning.value, atol=1e-12)
    np.testing.assert_allclose(mg.evaluate(*sparse, "f1", rule=tuning.rule, **how)["f1"], tuning.value, atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_all_labels_at_once_equal_label_by_label(seed: int) -> None:
    s, y = problem(seed, 25, 4)
    sparse = (sp.csr_matrix(s), sp.csr_matrix(y))
    at_once = mg.tune_threshold("f1", *sparse, **LABELS)
    one_by_one = mg.tune_threshold("f1", *sparse, subject_to="recall >= 0", **LABELS)  # a constraint that always holds
    assert at_once.threshold == one_by_one.threshold
    assert at_once.plateau == one_by_one.plateau


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1.0])
def test_plateaus_are_those_of_dense_scores(epsilon: float) -> None:
    for seed in range(5):
        s, y = problem(seed, 25, 3)
        s = s + 0.1  # all are stored, so that every threshold is above 0
        sparse, dense = (mg.tune_threshold("f1", x, y, epsilon=epsilon, **LABELS) for x in (sp.csr_matrix(s), s))
        assert sparse.threshold == dense.threshold
        assert sparse.plateau == dense.plateau
        if epsilon == 1:  # any threshold will do, also one above all scores
            assert [high for _, high in sparse.plateau] == [np.inf] * 3


@pytest.mark.parametrize("average", ["macro", "micro"])
@pytest.mark.parametrize("weighted", [False, True])
def test_labels_that_share_a_threshold_share_that_of_dense_scores(average: Any, weighted: bool) -> None:
    for seed in range(5):
        s, y = problem(seed, 240, 3)
        s = s + 0.1
        y[:, :2] *= np.cumsum(y[:, :2], 0) < 20  # two labels with few positives
        y[:, 2] = np.arange(240) % 2
        weight = np.random.default_rng(seed).integers(0, 3, 240) / 2 if weighted else None
        how = {**LABELS, "average": average, "rare_labels": "pooled", "weight": weight}
        sparse, dense = (mg.tune_threshold("f1", x, y, **how) for x in (sp.csr_matrix(s), s))
        assert sparse.origins == ["pooled", "pooled", "own"]
        assert sparse.threshold == dense.threshold
        assert sparse.value == pytest.approx(dense.value, abs=1e-12)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("rare_labels", ["own", "pooled"])
def test_rows_of_no_weight_are_no_thresholds(average: Any, rare_labels: Any) -> None:
    rng = np.random.default_rng(0)
    s, y = rng.random((80, 3)), rng.random((80, 3)) < 0.3  # every score is another
    weight = rng.integers(0, 2, 80)
    how = {**LABELS, "average": average, "rare_labels": rare_labels}
    weighted = mg.tune_threshold("f1", sp.csr_matrix(s), y, weight=weight, **how)
    left_out = mg.tune_threshold("f1", sp.csr_matrix(s[weight > 0]), y[weight > 0], **how)
    assert weighted.threshold == left_out.threshold
    assert weighted.plateau == left_out.plateau


def gain_per_alarm(c: mg.Counts) -> torch.Tensor:
    return -c.fp / (c.tp + c.fp)  # below 0, and without a value while nothing is predicted


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_where_a_metric_has_no_value_there_is_no_threshold(average: Any) -> None:
    s, y = problem(0, 40, 3)
    s = s + 0.1
    s[0] = 1.5  # the highest of each label
    y[0] = 0
    how = {**LABELS, "average": average, "shared": True}
    sparse, dense = (mg.tune_threshold(gain_per_alarm, x, y, **how) for x in (sp.csr_matrix(s), s))
    assert sparse.threshold == dense.threshold < 1.5
    assert sparse.value == pytest.approx(dense.value, abs=1e-12)
    with pytest.raises(ValueError, match=r"expected \S+ to be defined at some threshold, got NaN at each in class 1"):
        mg.tune_threshold(lambda c: c.tp / c.positives, sp.csr_matrix(s), y * [1, 0, 1], **LABELS)


def test_a_stream_of_sparse_batches_and_their_tuning() -> None:
    s, y = problem(1, 40, 3)
    evaluator = mg.Evaluator(["f1", "auroc"], keep_scores=True, **LABELS)
    for part in (slice(0, 15), slice(15, 40)):
        evaluator.update(sp.csr_matrix(s[part]), sp.csr_matrix(y[part]))
    assert evaluator.compute() == pytest.approx(mg.evaluate(s, y, ["f1", "auroc"], **LABELS))
    dense = mg.Evaluator("f1", keep_scores=True, **LABELS).update(s, y)
    assert evaluator.tune("f1").value == dense.tune("f1").value


def test_one_of_both_may_be_dense() -> None:
    s, y = problem(2, 20, 4)
    wanted = mg.evaluate(s, y, "f1", **LABELS)
    assert mg.evaluate(sp.csr_matrix(s), y, "f1", **LABELS) == pytest.approx(wanted)
    assert mg.evaluate(torch.tensor(s), sp.csc_array(y), "f1", **LABELS) == pytest.approx(wanted)


def test_stored_zeros_and_duplicates_count_as_scipy_has_them() -> None:
    s = sp.csr_matrix(([0.4, 0.4, 0.0], [0, 0, 1], [0, 3]), shape=(1, 3))
    assert mg.evaluate(s, sp.csr_matrix([[1, 0, 0]]), "accuracy", **LABELS)["accuracy"] == 1.0
    assert s.nnz == 3  # what was given stays as it is


def test_intervals_resample_rows() -> None:
    s, y = problem(3, 60, 2)
    how = {**LABELS, "replicates": 20}
    dense, sparse = mg.tune_threshold("f1", s, y, **how), mg.tune_threshold("f1", sp.csr_matrix(s), y, **how)
    assert np.min(dense.threshold) > 0
    assert sparse.out_of_bag == pytest.approx(dense.out_of_bag, abs=0.1)


def test_rules_return_sparse_decisions() -> None:
    s, _ = problem(4, 10, 5)
    s[:, :2] = np.maximum(s[:, :2], 0.1)
    for rule in (Threshold(0.3), Threshold((0.1, 0.2, 0.3, 0.4, 0.5)), TopK(2)):
        decided = rule(sp.csr_array(s))
        assert sp.issparse(decided)
        np.testing.assert_array_equal(decided.toarray(), rule(s))
    few = TopK(2)(sp.csr_matrix([[0.0, 0.5, 0.0]]))
    assert few.nnz == 1  # what is not stored is not chosen


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": 0.0}, r"^threshold: expected above 0 for sparse scores"),
        ({"task": "binary"}, r"^scores: expected sparse ones for task='multilabel' alone"),
        ({"mask": np.ones((4, 3), bool)}, r"^mask: expected none with sparse scores"),
        ({"ignore_index": -1}, r"^ignore_index: expected none with sparse scores"),
        ({"weight": np.ones((4, 3))}, r"^weight: expected one per row, \(4,\), with sparse scores"),
        ({"weight": -np.ones(4)}, r"^weight: expected no negative value"),
        ({"scores": sp.csr_matrix(-np.ones((4, 3)))}, r"^scores: expected sparse scores of at least 0"),
        ({"scores": sp.csr_matrix(np.full((4, 3), np.nan))}, r"^scores: expected sparse scores of at least 0"),
        ({"scores": sp.csr_matrix(np.full((4, 3), 1j))}, r"^scores: expected numbers, got complex128"),
        ({"targets": sp.csr_matrix((4, 2))}, r"^targets: expected the shape of the scores"),
        ({"targets": sp.csr_matrix(np.full((4, 3), 2))}, r"^targets: expected values in \[0, 1\], got 2 to 2"),
        ({"metrics": "ndcg"}, r"^metrics: 'ndcg' needs every score, got sparse ones"),
        ({"scores": sp.csr_matrix(np.full((4, 3), 3.0))}, r"^threshold: 0.5 is for scores in"),
        ({"rule": mg.decisions.ExpectedFBeta()}, r"^rule: expected Threshold, TopK or WeightedTopK for sparse scores"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    s, y = problem(0, 4, 3)
    call = {"scores": sp.csr_matrix(s), "targets": sp.csr_matrix(y), "metrics": "f1", **LABELS, **change}
    with pytest.raises(ValueError, match=message) as error:
        mg.evaluate(**call)
    assert "\n" not in str(error.value)


def test_what_needs_dense_rows_says_so() -> None:
    s, y = (sp.csr_matrix(x) for x in problem(0, 4, 3))
    with pytest.raises(ValueError, match=r"^scores: expected dense ones to resample"):
        mg.bootstrap(s, y, "f1", **LABELS)
    with pytest.raises(ValueError, match=r"^average: expected another than 'samples'"):
        mg.tune_threshold("f1", s, y, average="samples", **LABELS)


def test_a_hundred_thousand_labels_need_no_dense_matrix() -> None:
    rows = labels = 100_000  # dense, 40 GB
    rng = np.random.default_rng(0)
    where = (np.arange(20_000), rng.integers(0, labels, 20_000))
    s = sp.csr_matrix((rng.random(20_000), where), shape=(rows, labels))
    y = s > 0.5
    assert mg.evaluate(s, y, "f1", average="micro", **LABELS) == {"f1": 1.0}
    tuning = mg.tune_threshold("f1", s, y, rare_labels="pooled", empty_classes="skip", **LABELS)
    assert tuning.value == pytest.approx(1)
    assert len(tuning.threshold) == labels
