"""The loss of a ``Cost``: values against a loop, gradients, batches that carry their costs, boosting objectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import metricgrad as mg
from metricgrad.surrogates import Identity

pytestmark = pytest.mark.quick


def make_batch(rows: int = 24, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, mg.Cost]:
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, generator=random, dtype=torch.float64)
    targets = (torch.rand(rows, generator=random) < 0.4).long()
    tp, tn, missed, alarmed = torch.rand(4, rows, generator=random, dtype=torch.float64)
    return logits, targets, mg.Cost(fp=tn + 3 * alarmed, fn=tp + 20 * missed, tp=tp, tn=tn)


def expect_loss(memberships: torch.Tensor, targets: torch.Tensor, cost: mg.Cost) -> float:
    """Return the expected cost above that of right decisions, divided by that of the cheaper of all and none."""
    paid = none = everything = 0.0
    for i, m in enumerate(memberships.tolist()):
        row = {name: float(price[i]) for name, price in cost.prices.items()}  # type: ignore[index]
        if targets[i] == 1:
            paid += (1 - m) * (row["fn"] - row["tp"])
            none += row["fn"] - row["tp"]
        else:
            paid += m * (row["fp"] - row["tn"])
            everything += row["fp"] - row["tn"]
    return paid / min(none, everything)


@pytest.mark.parametrize("surrogate", [None, Identity()])
def test_value_against_a_loop(surrogate: Any) -> None:
    logits, targets, cost = make_batch()
    loss = mg.MetricLoss(cost, surrogate=surrogate)
    memberships = loss.surrogate(logits)
    assert loss(logits, targets).item() == pytest.approx(expect_loss(memberships, targets, cost))


def test_it_is_linear_in_the_memberships() -> None:
    logits, targets, cost = make_batch()
    loss = mg.MetricLoss(cost, surrogate=lambda z: z)
    one, two = torch.rand(2, len(logits), dtype=torch.float64)
    mixed = loss(0.25 * one + 0.75 * two, targets)
    assert torch.allclose(mixed, 0.25 * loss(one, targets) + 0.75 * loss(two, targets))


def test_hard_memberships_are_one_minus_the_savings() -> None:
    logits, targets, cost = make_batch()
    loss = mg.MetricLoss(cost, surrogate=mg.surrogates.Hard())
    assert loss(logits, targets).item() == pytest.approx(1 - cost.savings(targets, logits.sigmoid() >= 0.5))
    tenfold = mg.Cost(**{name: 10 * price for name, price in cost.prices.items()})
    assert mg.MetricLoss(tenfold)(logits, targets).item() == pytest.approx(mg.MetricLoss(cost)(logits, targets).item())


def test_gradient() -> None:
    logits, targets, cost = make_batch(9)
    matrix = mg.Cost(matrix=[[0.0, 1.0, 4.0], [2.0, -1.0, 3.0], [9.0, 5.0, 0.5]])
    logits.requires_grad_()
    for loss in (mg.MetricLoss(cost), mg.HybridLoss(cost, metric_weight=2.0), mg.MetricLoss(mg.Cost(fp=1.0, fn=7.0))):
        assert torch.autograd.gradcheck(lambda z, loss=loss: loss(z, targets), logits)
    several = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    loss = mg.MetricLoss(matrix, task="multiclass")
    assert torch.autograd.gradcheck(lambda z: loss(z, torch.arange(9) % 3), several)


def test_gradient_of_the_kernel_is_that_of_plain_operations() -> None:
    logits, targets, cost = make_batch(50)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        z = logits.to(dtype).requires_grad_()
        loss = mg.MetricLoss(cost)
        (fast,) = torch.autograd.grad(loss(z, targets), z)
        plain = torch.func.grad(lambda x, loss=loss: loss(x, targets))(z.detach())
        assert torch.allclose(fast, plain, atol=tolerance)


def test_batches_pass_their_costs_and_counts_add_up() -> None:
    logits, targets, cost = make_batch(30)
    loss = mg.MetricLoss(mg.Cost(fp="alarm", fn="amount"))
    parts = [slice(0, 11), slice(11, 30)]
    counts = [loss.counts(logits[rows], targets[rows], costs=cost.take(rows)) for rows in parts]
    whole = mg.MetricLoss(cost)(logits, targets)
    assert (1 - loss.value(counts[0] + counts[1])).item() == pytest.approx(whole.item())
    assert loss(logits, targets, costs=cost).item() == pytest.approx(whole.item())


def test_weights_and_masks_count_beside_costs() -> None:
    logits, targets, cost = make_batch(12)
    times = torch.arange(12) % 3
    rows = torch.repeat_interleave(torch.arange(12), times)
    repeated = mg.MetricLoss(cost.take(rows))(logits[rows], targets[rows])
    assert torch.allclose(mg.MetricLoss(cost)(logits, targets, weight=times.double()), repeated)
    kept = times > 0
    few = mg.MetricLoss(cost.take(kept))(logits[kept], targets[kept])
    assert torch.allclose(mg.MetricLoss(cost)(logits, targets, mask=kept), few)


def test_cross_entropy_of_the_hybrid_is_not_weighed() -> None:
    logits, targets, cost = make_batch()
    plain = mg.baselines.bce()(logits, targets)
    assert torch.allclose(mg.HybridLoss(cost, metric_weight=0.0)(logits, targets), plain)
    mixed = plain + 0.5 * mg.MetricLoss(cost)(logits, targets)
    assert torch.allclose(mg.HybridLoss(cost, metric_weight=0.5)(logits, targets, costs=cost), mixed)


def test_boosting_objectives_take_the_costs_of_their_rows() -> None:
    logits, targets, cost = make_batch()
    z = logits.float().requires_grad_()
    (gradient,) = torch.autograd.grad(mg.MetricLoss(cost)(z, targets), z)
    found, _ = mg.boosting.xgboost_objective(mg.MetricLoss(cost))(targets.numpy(), logits.float().numpy())
    assert np.allclose(found, len(z) * gradient.numpy(), atol=1e-6)


def test_a_batch_with_nothing_to_save_has_no_gradient() -> None:
    logits = torch.zeros(3, requires_grad=True)
    loss = mg.MetricLoss(mg.Cost(fp=1.0, fn=[5.0, 6.0, 7.0]))(logits, torch.zeros(3))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.tolist() == [0, 0, 0]


def test_bad_costs_are_refused_in_one_line() -> None:
    logits, targets, cost = make_batch(4)
    loss = mg.MetricLoss(cost)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: loss(logits[:2], targets[:2]), "expected one number for each of 2 rows, got 4"),
        (lambda: loss(logits, targets, costs=cost.take([0])), "expected one number for each of 4 rows, got 1"),
        (lambda: loss(logits, targets, costs=torch.ones(4)), "costs: expected a Cost of these rows"),
        (
            lambda: mg.MetricLoss("f1")(logits, targets, costs=cost),
            "costs: expected a loss of costs that differ by row",
        ),
        (lambda: mg.MetricLoss(mg.Cost(fp=1, fn="amount"))(logits, targets), "got the column 'amount'"),
        (
            lambda: mg.MetricLoss(cost, task="multilabel"),
            "expected the same costs for every row with task='multilabel'",
        ),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
