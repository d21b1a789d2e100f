"""Surrogates: the papers' points, slopes and bounds; tables, wrappers, schedules."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import metricgrad as mg
import reference as ref
from metricgrad import surrogates as s
from metricgrad.core.storable import KINDS

pytestmark = pytest.mark.quick

P = torch.linspace(0.001, 0.999, 997, dtype=torch.float64)
RAMPS = [(0.1, 1.0), (0.2, 1.0), (0.0, 1.0), (0.5, 1.0), (0.1, 0.3), (0.4, 0.05)]
TAUS = [0.5, 0.1, 0.37, 0.9]


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize(("delta", "width"), RAMPS)
def test_linear_step_passes_its_five_points_and_equals_the_reference(delta: float, width: float, tau: float) -> None:
    half = width * min(tau, 1 - tau) / 2
    points = torch.tensor([0.0, tau - half, tau, tau + half, 1.0], dtype=torch.float64)
    step = s.Linear(delta, width)
    expected = torch.tensor([0.0, delta, 0.5, 1 - delta, 1.0], dtype=torch.float64)
    torch.testing.assert_close(step.step(points, tau), expected, rtol=0, atol=1e-12)
    loops = torch.tensor([ref.linear_step(float(p), tau, delta, width) for p in P], dtype=torch.float64)
    torch.testing.assert_close(step(torch.logit(P), tau), loops, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize(("delta", "width"), RAMPS)
def test_linear_step_is_monotone_with_the_lipschitz_constant_of_theorem_4_1(
    delta: float, width: float, tau: float
) -> None:
    heights = s.Linear(delta, width).step(P, tau)
    secants = heights.diff() / P.diff()
    t1, t2 = tau - width * min(tau, 1 - tau) / 2, tau + width * min(tau, 1 - tau) / 2
    constant = max(delta / t1, (1 - 2 * delta) / (t2 - t1), delta / (1 - t2))
    assert secants.min() >= -1e-12
    assert secants.max() <= constant + 1e-9
    if width >= 0.3:  # some pair of neighbours lies inside the steepest piece
        assert secants.max() >= constant - 1e-6


@pytest.mark.parametrize("d", [2, 3, 10, 64, 65, 97, 200, 1000])
def test_top_two_equals_the_reference_and_sums_to_one(d: int) -> None:
    z = torch.randn(5, d, dtype=torch.float64, generator=torch.Generator().manual_seed(d)) * 3
    members = s.TopTwo()(z)
    expected = torch.tensor([ref.top_two_row(row.tolist()) for row in z], dtype=torch.float64)
    torch.testing.assert_close(members, expected, rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(members.sum(-1), torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(s.Linear(0.2).rows(z), members)
    sigmoid = torch.tensor([ref.top_two_sigmoid_row(row.tolist(), 5.0) for row in z], dtype=torch.float64)
    torch.testing.assert_close(s.Sigmoid(5.0).rows(z), sigmoid, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("d", [2, 7, 65, 97, 200])
@pytest.mark.parametrize("surrogate", [s.TopTwo(), s.TopTwo(0.0, 0.5), s.TopTwo(0.4, 0.2)])
@pytest.mark.parametrize("metric", ["f1", "mcc"])
def test_closed_form_of_rows_equals_autograd(d: int, surrogate: s.Surrogate, metric: str) -> None:
    g = torch.Generator().manual_seed(d)
    z = (torch.randn(40, d, dtype=torch.float64, generator=g) * 2).requires_grad_()
    y = torch.randint(d, (40,), generator=g)
    loss = mg.MetricLoss(metric, task="multiclass", surrogate=surrogate)
    (fast,) = torch.autograd.grad(loss(z, y), z)
    plain = torch.func.grad(loss)(z.detach(), y)
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("step", [s.Linear(), s.Linear(0.2, 0.5), s.Sigmoid(10.0)])
@pytest.mark.parametrize("decimals", [1, 2, 3])
def test_table_is_off_by_at_most_a_cell_and_hands_the_slope_back(step: Any, decimals: int) -> None:
    z = torch.logit(P).requires_grad_()
    table = s.Table(step, decimals)
    for tau in (0.5, 0.3):
        exact, read = step(z, tau), table(z, tau)
        steepest = (step.step(P, tau).diff() / P.diff()).max()
        error = exact - read
        assert error.min() >= -1e-9
        assert error.max() <= steepest * 10.0**-decimals + 1e-9
    (slope,) = torch.autograd.grad(read.sum(), z)
    truncated = (P * 10**decimals + 1e-9).floor() / 10**decimals
    (by_p,) = torch.autograd.grad(step.step(truncated.requires_grad_(), tau).sum(), truncated)
    inside = (by_p - step.slope(truncated, tau)).abs() < 1e-9  # at a knot either side's slope will do
    assert inside.double().mean() > 0.9
    torch.testing.assert_close(slope[inside], (by_p * P * (1 - P))[inside], rtol=1e-9, atol=1e-12)


def test_table_reads_the_entry_of_a_decimal_that_floats_miss() -> None:
    # 0.29 · 100 is 28.999…
    p = torch.tensor([0.29, 0.57, 0.58], dtype=torch.float64)
    got = s.Table(s.Linear(), 2)(torch.logit(p))
    torch.testing.assert_close(got, s.Linear().step(p, 0.5), rtol=0, atol=1e-9)


def test_straight_through_is_hard_in_value_and_soft_in_gradient() -> None:
    z = torch.tensor([-2.0, -0.1, 0.3, 4.0], requires_grad=True)
    for soft in (s.Linear(), s.Sigmoid(), s.LogitSigmoid(2.0, 0.2), s.Identity()):
        through = s.StraightThrough(soft)(z)
        assert set(through.tolist()) <= {0.0, 1.0}
        (got,) = torch.autograd.grad(through.sum(), z)
        (expected,) = torch.autograd.grad(soft(z).sum(), z)
        torch.testing.assert_close(got, expected)
    rows = s.StraightThrough(s.TopTwo()).rows(torch.tensor([[0.0, 2.0, 1.0]]))
    torch.testing.assert_close(rows, torch.tensor([[0.0, 1.0, 0.0]]))


def test_annealing_moves_every_number_and_survives_saving() -> None:
    start, end = s.Linear(0.2, 1.0), s.Linear(0.0, 0.1)
    surrogate = s.Annealed(start, end, steps=4)
    loss = mg.MetricLoss("f1", surrogate=surrogate)
    seen = []
    for _ in range(6):
        seen.append(surrogate.current())
        surrogate.step()
    assert seen[0] == start
    assert seen[4] == seen[5] == end
    assert [round(now.width, 6) for now in seen[:4]] == [1.0, 0.775, 0.55, 0.325]  # type: ignore[attr-defined]
    again = mg.MetricLoss("f1", surrogate=s.Annealed(start, end, steps=4))
    again.load_state_dict(loss.state_dict())
    assert again.surrogate.current() == end


def test_annealing_shapes() -> None:
    half = [s.Annealed(s.Sigmoid(1.0), s.Sigmoid(100.0), 2, shape) for shape in ("linear", "cosine", "exponential")]
    for surrogate in half:
        surrogate.step()
    got = [surrogate.current().k for surrogate in half]  # type: ignore[attr-defined]
    assert got == pytest.approx([50.5, 50.5, 10.0])


def test_annealed_loss_follows_its_surrogate() -> None:
    z, y = torch.randn(30, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 2
    loss = mg.MetricLoss("f1", surrogate=s.Annealed(s.Sigmoid(1.0), s.Sigmoid(50.0), steps=1))
    before = loss(z, y)
    loss.surrogate.step()
    torch.testing.assert_close(loss(z, y), mg.MetricLoss("f1", surrogate=s.Sigmoid(50.0))(z, y))
    assert before != loss(z, y)


def test_learned_numbers_train() -> None:
    g = torch.Generator().manual_seed(0)
    z = torch.randn(200, 3, generator=g)
    y = (z + 1 > 0).float()  # the rule is z ≥ −1: η must grow towards 1
    loss = mg.MetricLoss("f1", task="multilabel", surrogate=s.Learned(s.LogitSigmoid(4.0), classes=3))
    optimiser = torch.optim.Adam(loss.parameters(), lr=0.1)
    first = loss(z, y).item()
    for _ in range(60):
        optimiser.zero_grad()
        value = loss(z, y)
        value.backward()
        optimiser.step()
    assert value.item() < first - 0.05
    assert (loss.surrogate.eta > 0.5).all()


def test_thresholds_may_be_numbers_sequences_or_tensors() -> None:
    z, y = torch.randn(9, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 2
    one = mg.MetricLoss("f1", threshold=0.3)(z, y)
    torch.testing.assert_close(mg.MetricLoss("f1", threshold=torch.tensor(0.3))(z, y), one)
    several = [mg.MetricLoss("f1", threshold=t) for t in ([0.3, 0.6], (0.3, 0.6), torch.tensor([0.3, 0.6]))]
    for loss in several:
        assert loss.counts(z, y).tp.shape == (2, 1)
        torch.testing.assert_close(loss(z, y), (one + mg.MetricLoss("f1", threshold=0.6)(z, y)) / 2)


def test_users_own_surrogate() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, z: Tensor) -> Tensor:
            return torch.sigmoid(self.scale * z)

    z, y = torch.randn(8, 2, generator=torch.Generator().manual_seed(0)), torch.ones(8, 2)
    mine = mg.MetricLoss("f1", task="multilabel", surrogate=Mine())
    ours = mg.MetricLoss("f1", task="multilabel", surrogate=s.LogitSigmoid(2.0))
    torch.testing.assert_close(mine(z, y), ours(z, y))
    mine(z, y).backward()
    assert mine.surrogate.scale.grad is not None


ALL: list[Any] = [
    s.Linear(0.2, 0.5),
    s.Sigmoid(5.0),
    s.LogitSigmoid(2.0, 0.1),
    s.Identity(),
    s.Unbounded(),
    s.UnitsVsZeros(2.0, 0.1),
    s.TopTwo(),
    s.Hard(),
    s.StraightThrough(s.Sigmoid()),
    s.Table(s.Linear(), 3),
    s.Learned(s.LogitSigmoid(), 3),
    s.Annealed(s.Sigmoid(1.0), s.Sigmoid(9.0), 5),
]


@pytest.mark.parametrize("surrogate", ALL, ids=lambda x: type(x).__name__)
def test_surrogates_pickle_print_and_copy(surrogate: Any) -> None:
    for twin in (pickle.loads(pickle.dumps(surrogate)), copy.deepcopy(surrogate)):  # noqa: S301
        assert repr(twin) == repr(surrogate)
        if not isinstance(surrogate, nn.Module):
            assert twin == surrogate
            assert eval(repr(surrogate), vars(s)) == surrogate  # noqa: S307


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: s.Linear(delta=0.6), r"delta: expected a number in \[0, 0.5\], got 0.6"),
        (lambda: s.Linear(width=0.0), r"width: expected a number in \(0, 1\], got 0.0"),
        (lambda: s.TopTwo(width=1.5), "width: expected"),
        (lambda: s.Sigmoid(k=-1.0), "k: expected a positive number, got -1.0"),
        (lambda: s.Sigmoid(k=math.inf), "k: expected a positive number, got inf"),
        (lambda: s.LogitSigmoid(beta=0.0), "beta: expected a positive number"),
        (lambda: s.Table(s.LogitSigmoid()), "Table: expected a step on probabilities"),  # type: ignore[arg-type]
        (lambda: s.Table(decimals=0), "decimals must be 1 to 6, got 0"),
        (lambda: s.StraightThrough(s.UnitsVsZeros()), "has no hard rule"),
        (lambda: s.Learned(s.Linear(), 2), "Learned: expected LogitSigmoid or UnitsVsZeros"),
        (lambda: s.Annealed(s.Linear(), s.Sigmoid(), 5), "two surrogates of one kind"),
        (lambda: s.Annealed(s.Hard(), s.Hard(), 5), "two surrogates of one kind"),
        (lambda: s.Annealed(s.Linear(), s.Linear(), 0), "steps must be at least 1, got 0"),
        (lambda: s.Annealed(s.Linear(), s.Linear(), 5, "fast"), "shape must be"),  # type: ignore[arg-type]
        (lambda: s.Annealed(s.Linear(), s.Linear(0.0), 5, "exponential"), "needs positive numbers"),
    ],
)
def test_impossible_surrogates_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_every_surrogate_is_exported_and_known_to_files_by_being_defined() -> None:
    ours = {name for name, kind in KINDS.items() if issubclass(kind, s.Surrogate)}
    modules = {"Annealed", "Learned", "Surrogate"}  # these hold parameters, or are only a base
    assert ours == set(vars(mg.surrogates)["__all__"]) - modules
    assert all(getattr(mg.surrogates, name) is KINDS[name] for name in ours)
