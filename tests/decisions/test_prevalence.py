"""Base rates of rows without labels: estimators, intervals, and the test whether a base rate is all that changed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import metricgrad as mg
from metricgrad.decisions import prevalence as module
from metricgrad.decisions.prevalence import NotBaseRateShiftError, calibrate, find_likeliest_shares

pytestmark = pytest.mark.quick


def draw(n: int, rate: float, generator: torch.Generator, separation: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    targets = (torch.rand(n, generator=generator) < rate).long()
    scores = torch.randn(n, generator=generator, dtype=torch.float64) + separation * targets
    return scores, targets


def draw_classes(n: int, shares: list[float], generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    targets = torch.multinomial(torch.tensor(shares), n, replacement=True, generator=generator)
    logits = torch.randn(n, 3, generator=generator, dtype=torch.float64) + 2.5 * torch.eye(3)[targets]
    return logits.softmax(1), targets


# Estimators


def run_em(likelihoods: np.ndarray, prior: np.ndarray, steps: int) -> np.ndarray:
    """Expectation–maximisation as in the paper, one row after the other."""
    shares = np.full(likelihoods.shape[1], 1 / likelihoods.shape[1])
    for _ in range(steps):
        in_class = prior.copy()
        for row in likelihoods:
            in_class += shares * row / (shares @ row)
        shares = in_class / in_class.sum()
    return shares


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("rows_before", [0.0, 5.0])
def test_em_ends_where_the_naive_loop_does(classes: int, rows_before: float) -> None:
    generator = torch.Generator().manual_seed(0)
    likelihoods = torch.rand(40, classes, generator=generator, dtype=torch.float64) + 0.05
    prior = rows_before * torch.arange(1, classes + 1).double() / (classes * (classes + 1) / 2)
    found = find_likeliest_shares(likelihoods[None], torch.ones(1, 40, dtype=torch.float64), prior[None])[0]
    assert found.tolist() == pytest.approx(run_em(likelihoods.numpy(), prior.numpy(), 3000), abs=1e-3)


def test_calibration_is_the_maximum_of_its_likelihood() -> None:
    generator = torch.Generator().manual_seed(0)
    scores, targets = draw(300, 0.3, generator)
    levels = torch.stack((torch.zeros_like(scores), 3 * scores + 1), 1)
    counts = torch.stack((1 - targets, targets), 1).double()

    def objective(factor: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        logit = factor * levels[:, 1] + offset
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logit, targets.double(), reduction="sum")
        return -loss - (factor - 1) ** 2 / (2 * 0.5**2)

    found = calibrate(levels, counts[None], 0.5)[0].requires_grad_()
    (gradient,) = torch.autograd.grad(objective(found[0], found[1]), found)
    assert gradient.abs().max() < 1e-3


def test_calibration_of_classes_told_apart_is_finite() -> None:
    found = mg.estimate_prevalence([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], [0.1, 0.15, 0.2, 0.9] * 10, replicates=20)
    assert 0.1 < found.value < 0.4


@pytest.mark.parametrize("method", ["em", "matching", "pacc"])
@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_estimators_find_the_rate(method: str, rate: float) -> None:
    generator = torch.Generator().manual_seed(1)
    scores, targets = draw(3000, 0.2, generator)
    new, truth = draw(3000, rate, generator)
    found = mg.estimate_prevalence(scores, targets, new, method=method, replicates=50)  # type: ignore[arg-type]
    assert found.value == pytest.approx(truth.double().mean().item(), abs=0.03)
    assert found.low < found.value < found.high
    assert found.has_moved
    assert found.before == pytest.approx(targets.double().mean().item())


@pytest.mark.parametrize("method", ["em", "matching", "pacc"])
def test_estimators_of_several_classes(method: str) -> None:
    generator = torch.Generator().manual_seed(2)
    scores, targets = draw_classes(600, [0.5, 0.3, 0.2], generator)
    new, truth = draw_classes(600, [0.1, 0.2, 0.7], generator)
    found = mg.estimate_prevalence(
        scores,
        targets,
        new,
        task="multiclass",
        method=method,  # type: ignore[arg-type]
        replicates=10,
    )
    assert found.value == pytest.approx((truth.bincount() / 600).tolist(), abs=0.06)
    assert math.fsum(found.value) == pytest.approx(1)
    assert found.p_value > 0.01


def test_labels_are_estimated_one_by_one() -> None:
    generator = torch.Generator().manual_seed(3)
    columns = [draw(500, rate, generator) for rate in (0.2, 0.4)]
    new = [draw(500, rate, generator)[0] for rate in (0.4, 0.1)]
    scores, targets = (torch.stack(pair, 1) for pair in zip(*columns, strict=True))
    both = mg.estimate_prevalence(scores, targets, torch.stack(new, 1), task="multilabel", replicates=10)
    alone = [mg.estimate_prevalence(*columns[k], new[k], replicates=10) for k in (0, 1)]
    assert both.value == pytest.approx([one.value for one in alone])


def test_the_scale_of_scores_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(4)
    scores, targets = draw(1000, 0.2, generator)
    new, _ = draw(1000, 0.5, generator)
    plain = mg.estimate_prevalence(scores, targets, new, replicates=5)
    scaled = mg.estimate_prevalence(100 * scores - 7, targets, 100 * new - 7, replicates=5)
    assert scaled.value == pytest.approx(plain.value, abs=1e-6)


def test_none_is_half_a_row() -> None:
    generator = torch.Generator().manual_seed(5)
    scores, targets = draw(1000, 0.2, generator, separation=5.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PRIOR_ROWS", 0.0)
        found = mg.estimate_prevalence(scores, targets, draw(400, 0.0, generator)[0], replicates=20)
    assert found.value == pytest.approx(0.5 / 400, rel=0.01)
    assert found.high >= 3 / 400
    assert mg.tune_threshold("f1", scores, targets).at_prevalence(found.value).threshold > 0


# Intervals


def test_intervals_hold_the_rate_as_often_as_they_say() -> None:
    generator = torch.Generator().manual_seed(6)
    held = 0
    for _ in range(60):
        scores, targets = draw(400, 0.2, generator)
        found = mg.estimate_prevalence(scores, targets, draw(400, 0.1, generator)[0], replicates=100, check_shift=False)
        held += found.low <= 0.1 <= found.high
    assert held >= 51  # of 60; fewer than 52 have a probability of 1 % at 95 %


def test_more_rows_make_intervals_narrower() -> None:
    generator = torch.Generator().manual_seed(7)
    widths = []
    for n in (200, 3200):
        scores, targets = draw(n, 0.2, generator)
        found = mg.estimate_prevalence(scores, targets, draw(n, 0.2, generator)[0], replicates=50)
        widths.append(found.high - found.low)
    assert widths[1] < widths[0] / 2


# Whether it is a base rate at all


def test_base_rates_are_not_refused() -> None:
    generator = torch.Generator().manual_seed(8)
    for rate in (0.02, 0.2, 0.8):
        scores, targets = draw(500, 0.2, generator)
        found = mg.estimate_prevalence(scores, targets, draw(500, rate, generator)[0], replicates=50)
        assert found.p_value > 0.01


def test_other_changes_are_refused() -> None:
    generator = torch.Generator().manual_seed(9)
    scores, targets = draw(1000, 0.3, generator)
    new = 2.5 * draw(1000, 0.3, generator)[0]
    with pytest.raises(NotBaseRateShiftError, match=r"new_scores: no base rate fits those \(p = .*check_shift=False"):
        mg.estimate_prevalence(scores, targets, new)
    assert mg.estimate_prevalence(scores, targets, new, check_shift=False).p_value < 0.01


def test_other_changes_of_classes_are_refused() -> None:
    generator = torch.Generator().manual_seed(10)
    scores, targets = draw_classes(600, [0.4, 0.3, 0.3], generator)
    new = torch.full((300, 3), 1 / 3, dtype=torch.float64)
    with pytest.raises(NotBaseRateShiftError, match="new_scores: no base rate fits those"):
        mg.estimate_prevalence(scores, targets, new, task="multiclass", replicates=120)


# Bad input


def test_bad_input() -> None:
    scores, targets, new = [0.1, 0.4, 0.8], [0, 0, 1], [0.2, 0.7]
    for arguments, message in (
        ((scores, [0, 0, 0], new), "targets: expected some of every class .* got no positives"),
        ((scores, [1, 1, 1], new), "targets: expected some of every class .* got no negatives"),
        (([], [], new), "scores: expected at least one labelled row, got none"),
        ((scores, targets, []), "new_scores: expected at least one row, got none"),
        ((scores, targets, [0.1, float("nan")]), "new_scores: expected numbers, got 1 NaN"),
        (([0.1, float("nan"), 0.3], targets, new), "scores: expected numbers, got 1 NaN"),
        ((scores, targets, [[0.1, 0.9]]), r"new_scores: expected shape \(N,\), columns as of scores, got \(1, 2\)"),
        ((scores, targets, [-3.0, 2.0]), r"new_scores: expected numbers in \[0, 1\], as scores are, got -3 to 2"),
    ):
        with pytest.raises(ValueError, match=message):
            mg.estimate_prevalence(*arguments)
    with pytest.raises(ValueError, match="method: expected one of 'em', 'matching', 'pacc', got 'acc'"):
        mg.estimate_prevalence(scores, targets, new, method="acc")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="confidence: expected a number in"):
        mg.estimate_prevalence(scores, targets, new, confidence=2)
    table = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)).softmax(1)
    classes = torch.tensor([0, 1, 2, 0])
    with pytest.raises(ValueError, match=r"new_scores: expected shape \(N, 3\)"):
        mg.estimate_prevalence(table, classes, table[:, :2], task="multiclass")
    with pytest.raises(ValueError, match="new_scores: expected rows that sum to 1"):
        mg.estimate_prevalence(table, classes, table + 1, task="multiclass")


def test_it_is_written_as_shares() -> None:
    assert str(mg.Prevalence(0.02, 0.01, 0.034, 0.1, 0.5, "em")) == "2.00% (1.00% to 3.40%)"
    assert str(mg.Prevalence((0.2, 0.8), (0.1, 0.7), (0.3, 0.9), (0.5, 0.5), 0.5, "em")).count("(") == 2
