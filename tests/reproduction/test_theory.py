from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import data as source
import multiclass_f_beta
import soft_hard_bound
import theory
from cells import Cell, append, note
from metricgrad.surrogates import Linear, Sigmoid
from training import Schedule
from verdicts import Results


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder of tiny data, with budgets to match."""
    random = np.random.default_rng(0)
    (tmp_path / "multiclass").mkdir()
    for name in ("marketing", "contraceptive", "satimage"):
        y = np.arange(90) % 3
        np.savez(tmp_path / "multiclass" / f"{name}.npz", X=random.normal(size=(90, 4)) + y[:, None], y=y)

    def table(name: str, folder: Path | None) -> source.Table:
        y = np.arange(60) % 3 // 2
        return source.Table(random.normal(size=(60, 4)) + y[:, None], y, np.arange(60))

    digits = multiclass_f_beta.load_multiclass("digits", None)
    monkeypatch.setattr(multiclass_f_beta, "load_digits", lambda return_X_y: (digits.x[:150], digits.y[:150]))
    monkeypatch.setattr(source, "load", table)
    monkeypatch.setattr(theory, "TRAINED_SCHEDULE", Schedule(epochs=2))
    monkeypatch.setattr(theory, "POINTS", 1_001)
    monkeypatch.setattr(theory, "SIZES", (100, 1_000))
    monkeypatch.setattr(theory, "BATCHES", (1_024,))
    monkeypatch.setattr(theory, "REPEATS", 2)
    monkeypatch.setattr(theory, "DRAWS", 2)
    monkeypatch.setattr(theory, "MAXENT_STEPS", 20)
    return tmp_path


ALL_TABLES = {**theory.TABLES, **soft_hard_bound.TABLES}


@pytest.mark.parametrize("name", ALL_TABLES)
def test_every_cell_runs(tiny: Path, name: str) -> None:
    theory.fit_network.cache_clear()
    table = ALL_TABLES[name]
    for protocol in table.protocols:
        for cell in table.cells(protocol, 1):
            if cell.data in ("n = 10000", "n = 100000", "batch 1048576") or cell.row == "d = 100":
                continue
            found = table.run(cell, tiny)
            assert found
            assert all(math.isfinite(value) for value in found.values()), cell


@pytest.mark.parametrize("row", [*theory.BINARY, "AUROC", *theory.MACRO])
def test_under_the_assumptions_both_reach_the_limit(row: str) -> None:
    cell = Cell("published", row, "n = 100000", 0)
    found = theory.run_convergence(cell, None)
    assert found["soft"] == pytest.approx(theory.limit_of(row), abs=0.01)
    assert found["hard"] == pytest.approx(theory.limit_of(row), abs=0.01)
    # From the same scores, with means that differ, they do not meet.
    assert theory.run_convergence(Cell("corrected", row, "n = 100000", 0), None)["gap"] > 0.02


@pytest.mark.parametrize(("step", "tau"), [(Linear(0.1), 0.2), (Linear(0.5), 0.7), (Sigmoid(10.0), 0.5)])
def test_constants_of_steps_are_reached(step: Linear | Sigmoid, tau: float) -> None:
    assert float(theory.slopes_of(step, tau).max()) == pytest.approx(theory.lipschitz_constant(step, tau), rel=1e-3)


def test_no_membership_is_steeper_than_its_constant() -> None:
    steepest = theory._steepest_membership(4, torch.Generator().manual_seed(0))
    assert 0.5 < steepest <= theory.multiclass_constant(0.2)


def test_the_lookup_table_is_the_step_truncated() -> None:
    step = Linear()
    grid = torch.linspace(0, 1, 101)
    p = torch.tensor([0.0, 0.2599, 0.505, 1.0], requires_grad=True)
    member = theory._Lookup.apply(p, step.step(grid, 0.5), step.slope(grid, 0.5))  # type: ignore[no-untyped-call]
    member.sum().backward()
    assert p.grad is not None
    assert torch.allclose(member, step.step(torch.tensor([0.0, 0.25, 0.50, 1.0]), 0.5))
    assert torch.allclose(p.grad, step.slope(p.detach(), 0.5))


def test_softmax_regression_meets_its_constraints() -> None:
    found = {
        row: theory.run_maxent(Cell("published", row, "iris", 0), None)
        for row in ("unregularised, converged", "regularised (C = 1)")
    }
    assert found["unregularised, converged"]["violation, log10"] < -6
    assert found["regularised (C = 1)"]["violation, log10"] > -3
    assert all(values["entropy slope"] < 1e-10 for values in found.values())


def test_the_lecture_s_means() -> None:
    table = theory.TABLES["lecture-means"]
    for cell in table.cells("published", 1):
        printed, _ = table.printed[cell.row, cell.data, "value"]
        assert table.run(cell, None)["value"] == pytest.approx(printed, abs=5e-4)


def test_verdicts_follow_the_results(tmp_path: Path) -> None:
    for name in ("theory-lipschitz", "theory-surrogates", "lecture-maxent"):
        file = tmp_path / f"{name}.csv"
        note(file, "made up")
        for cell in theory.TABLES[name].cells("published", 1):
            ends = {"k = 50": 9.0}.get(cell.row, 0.0)
            values = {"ratio": 1.1, "τ of 9 with ends within 0.01": ends, "violation, log10": -9.0}
            append(file, cell, values, 1.0)
    file = tmp_path / "theory-convergence.csv"
    note(file, "made up")
    for protocol in ("published", "corrected"):
        for cell in theory.TABLES["theory-convergence"].cells(protocol, 1):
            n = int(cell.data.removeprefix("n = "))
            append(file, cell, {"gap": n**-0.5 if protocol == "published" else 0.1}, 1.0)
    file = tmp_path / "theory-lookup.csv"
    note(file, "made up")
    for cell in theory.TABLES["theory-lookup"].cells("published", 2):
        loss = (0.5 if cell.row.startswith("linear") else 2.0) + 0.001 * cell.trial
        append(file, cell, {"loss": loss, "our kernel": 1.0}, 1.0)
    results = Results.load(tmp_path)
    found = {v.claim.key.removeprefix("theory-"): v.outcome for v in theory.verdicts(results)}
    assert found == {
        **dict.fromkeys(("lipschitz-41", "lipschitz-42", "lipschitz-51"), "refuted"),
        **dict.fromkeys(("limits-50", "limits-1", "maxent", "consistent", "lookup-linear"), "shown on all sets"),
        **dict.fromkeys(("q-consistent", "lookup-sigmoid"), "refuted"),
    }


def test_verdicts_without_results_say_so(tmp_path: Path) -> None:
    results = Results.load(tmp_path)
    found = [*theory.verdicts(results), soft_hard_bound.judge_bound(results)]
    assert {v.outcome for v in found} == {"not run yet"}


def test_pictures_are_small_and_the_same_every_time(tmp_path: Path) -> None:
    results = Results.load(tmp_path)
    for name, draw in theory.PICTURES.items():
        files = [tmp_path / f"{name}-{i}" / f"{name}.svg" for i in range(2)]
        for file in files:
            file.parent.mkdir()
            assert draw(results, file) == (name != "convergence")
        if name != "convergence":
            assert files[0].read_bytes() == files[1].read_bytes()
            assert 0 < files[0].stat().st_size < 100_000
    assert theory.CAPTIONS.keys() == theory.PICTURES.keys()


@pytest.mark.parametrize("delta", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("width", [0.1, 1.0])
@pytest.mark.parametrize("shape", [(2.0, 5.0), (0.3, 0.3), (5.0, 1.0)])
def test_rates_are_within_their_bounds(delta: float, width: float, shape: tuple[float, float]) -> None:
    random = np.random.default_rng(0)
    step = Linear(delta, width)
    for tau in (0.2, 0.5, 0.9):
        p = torch.from_numpy(random.beta(*shape, size=500))
        excess = soft_hard_bound.bound_excess(p, step, tau)
        distance = step.step(p, tau) - (p >= tau).double()
        assert float(distance.clamp_min(0).mean()) <= excess.too_much + 1e-12
        assert float(-distance.clamp_max(0).mean()) <= excess.too_little + 1e-12


def test_the_bound_holds_for_scores_at_the_threshold_and_is_not_idle() -> None:
    step = Linear(0.1, 1.0)
    y = torch.tensor([1.0, 0.0]).repeat(50)
    # All scores just below the threshold: soft F1 is far above the hard one, which is 0.
    found = soft_hard_bound.bound_f1(torch.full((100,), 0.499, dtype=torch.float64), y, step)
    assert 0.45 < found["gap"] <= found["highest"] <= 1
    # Scores that are sure: nothing is left of the gap, nor of the bound.
    sure = soft_hard_bound.bound_f1(y.double(), y, step)
    assert sure["gap"] == sure["highest"] == sure["lowest"] == 0


def test_the_gap_of_f1_is_that_of_its_rates() -> None:
    random = np.random.default_rng(1)
    y = torch.from_numpy((random.random(400) < 0.2).astype(float))
    p = torch.from_numpy(random.beta(2, 3, size=400))
    step = Linear()
    rates = []
    for member in (step.step(p, 0.5), (p >= 0.5).double()):
        rates.append([float(member[y == label].mean()) for label in (1, 0)])
    (u, v), (u_hard, v_hard) = rates
    r = float(y.mean())
    hard = soft_hard_bound.f1_of(u_hard, v_hard, r)
    identity = ((2 - hard) * r * (u - u_hard) - hard * (1 - r) * (v - v_hard)) / (r + r * u + (1 - r) * v)
    found = soft_hard_bound.bound_f1(p, y, step)
    assert found["gap"] == pytest.approx(identity)
    assert found["lowest"] <= found["gap"] <= found["highest"]


def test_a_gap_outside_its_bound_refutes_it(tmp_path: Path) -> None:
    file = tmp_path / "theory-bound.csv"
    note(file, "made up")
    for row, gap in (("BCE", 0.1), ("F_1, linear", 0.3)):
        cell = Cell("corrected", row, "adult, δ 0.1, width 1", 0)
        append(file, cell, {"gap": gap, "lowest": -0.2, "highest": 0.2}, 1.0)
    verdict = soft_hard_bound.judge_bound(Results.load(tmp_path))
    assert verdict.corrected.states == {"BCE on adult": "shown", "F_1, linear on adult": "refuted"}
    assert verdict.outcome == "refuted on some"
