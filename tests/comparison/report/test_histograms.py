"""Counts for a report against counting row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from metricgrad.comparison.report.histograms import HISTOGRAM_BINS, bin_scores

pytestmark = pytest.mark.quick

CASES: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "probabilities": lambda rng, n: rng.random(n),
    "ties": lambda rng, n: rng.integers(0, 7, n) / 8,
    "logits": lambda rng, n: rng.normal(0, 4, n),
    "float32": lambda rng, n: rng.random(n).astype(np.float32),
    "close": lambda rng, n: 0.5 + 1e-13 * rng.integers(0, 900, n),
    "one value": lambda rng, n: np.full(n, 0.25),
    "large": lambda rng, n: rng.normal(0, 1e30, n),
}


@pytest.mark.parametrize("rows", [1, 2, 40, 3000])
@pytest.mark.parametrize("case", CASES)
def test_every_count_is_what_counting_gives(case: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    scores = CASES[case](rng, rows)
    targets = (rng.random(rows) < 0.2).astype(int)
    found = bin_scores(scores, targets, include=[0.3, None])
    cuts = found["grid"]
    assert len(cuts) <= 201
    assert cuts == sorted(set(cuts))
    assert {0.3, 0.5} <= set(cuts)
    exact = scores.astype(float)
    assert found["tp"] == [int(((exact >= cut) & (targets == 1)).sum()) for cut in cuts]
    assert found["fp"] == [int(((exact >= cut) & (targets == 0)).sum()) for cut in cuts]
    assert (found["positives"], found["negatives"]) == (targets.sum(), (1 - targets).sum())
    # The ends: everything is taken somewhere, and the best score alone.
    assert found["tp"][0] + found["fp"][0] == rows
    assert max(c for c in cuts if c <= exact.max()) > np.sort(np.unique(exact))[:-1].max(initial=-np.inf)
    if targets.sum():
        assert found["average_precision"] == pytest.approx(average_precision_score(targets, scores), abs=1e-12)
    else:
        assert found["average_precision"] is None


@pytest.mark.parametrize("case", CASES)
def test_histogram_counts_every_row_once(case: str) -> None:
    rng = np.random.default_rng(5)
    scores, targets = CASES[case](rng, 500).astype(float), (rng.random(500) < 0.3).astype(int)
    bars = bin_scores(scores, targets)["histogram"]
    assert len(bars["edges"]) == HISTOGRAM_BINS + 1
    for side, name in ((1, "positives"), (0, "negatives")):
        plain = np.histogram(scores[targets == side], bins=bars["edges"])[0]
        assert bars[name] == plain.tolist()  # type: ignore[literal-required]
        assert sum(bars[name]) == (targets == side).sum()  # type: ignore[literal-required]


def test_calibration_is_of_bins_with_rows_and_of_probabilities_alone() -> None:
    rng = np.random.default_rng(2)
    scores = rng.random(800) * 0.5
    targets = (rng.random(800) < scores).astype(int)
    wanted = []
    for k in range(10):
        inside = (scores >= k / 10) & (scores < (k + 1) / 10)
        if inside.any():
            wanted.append((scores[inside].mean(), targets[inside].mean(), inside.sum()))
    np.testing.assert_allclose(bin_scores(scores, targets)["calibration"], wanted)
    assert bin_scores(scores * 9, targets)["calibration"] == []


def test_a_rare_class_has_its_curve_drawn_at_even_steps_of_recall() -> None:
    rng = np.random.default_rng(3)
    targets = (np.arange(200_000) % 1000 == 0).astype(int)
    found = bin_scores(rng.normal(2.0 * targets, 1), targets)
    steps = np.diff(np.array(found["tp"]) / found["positives"])
    assert np.abs(steps).max() < 0.02


def test_cuts_are_written_with_few_digits() -> None:
    rng = np.random.default_rng(4)
    cuts = bin_scores(rng.random(2000), rng.integers(0, 2, 2000))["grid"]
    assert np.mean([len(repr(cut)) for cut in cuts]) < 8


@pytest.mark.parametrize(
    ("scores", "targets", "size", "message"),
    [
        ([0.1, float("nan")], [0, 1], 201, "scores: expected numbers, got 1 NaN"),
        ([0.1, float("inf")], [0, 1], 201, "scores: expected finite numbers"),
        ([], [], 201, "scores: expected at least one"),
        ([0.1, 0.2], [0.5, 1], 201, "targets: expected 0 and 1, got soft ones"),
        ([0.1, 0.2], [0, 2], 201, r"targets: expected values in \[0, 1\]"),
        ([0.1, 0.2], [0, 1], 4, "size: expected at least 5, got 4"),
    ],
)
def test_bad_input(scores: list[float], targets: list[float], size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bin_scores(torch.tensor(scores, dtype=torch.float64), torch.tensor(targets, dtype=torch.float64), size)
