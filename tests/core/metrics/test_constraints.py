"""Lower confidence bounds of metrics, against formulas for the cases that have one."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad.core.metrics.constraints import lower_bound

pytestmark = pytest.mark.quick


def hard_counts(tp: float, fp: float, fn: float, tn: float) -> mg.Counts:
    return mg.Counts(*(torch.tensor([cell], dtype=torch.float64) for cell in (tp, fp, fn, tn)))


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_bound_of_a_proportion_is_that_of_agresti_and_coull(confidence: float) -> None:
    z = NormalDist().inv_cdf(confidence)
    predicted = 30 + 8 + z**2
    proportion = (30 + z**2 / 2) / predicted
    expected = proportion - z * math.sqrt(proportion * (1 - proportion) / predicted)
    bound = lower_bound(mg.metrics.precision, hard_counts(30, 8, 12, 50), confidence)
    assert bound.item() == pytest.approx(expected, abs=1e-12)


def test_the_bound_of_a_number_is_that_of_a_binomial_number() -> None:
    """A metric that grows with the number of rows, unlike a ratio: what a row contributes on average is not 0."""

    def hits(c: mg.Counts) -> Tensor:
        return c.tp

    z = NormalDist().inv_cdf(0.95)
    rows = 100 + 4 * z**2 / 2
    expected_hits = 30 + z**2 / 2
    variance = expected_hits * (1 - expected_hits / rows)
    bound = lower_bound(hits, hard_counts(30, 8, 12, 50), 0.95)
    assert bound.item() == pytest.approx(expected_hits - z * math.sqrt(variance), abs=1e-9)


def test_with_a_confidence_of_a_half_the_bound_is_the_estimate() -> None:
    """Also where nothing is predicted or a class is absent, so that cells are empty."""
    assert lower_bound(mg.metrics.specificity, hard_counts(0, 1, 0, 9), 0.5).item() == pytest.approx(0.9)
    assert lower_bound(mg.metrics.recall, hard_counts(3, 0, 1, 0), 0.5).item() == pytest.approx(0.75)
