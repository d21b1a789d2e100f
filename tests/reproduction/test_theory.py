from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import data as source
import multiclass_f_beta
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


@pytest.mark.parametrize("name", theory.TABLES)
def test_every_cell_runs(tiny: Path, name: str) -> None:
    table = theory.TABLES[name]
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
    for cell in theory.TABLES["theory-lookup"].cells("published", 1):
        append(file, cell, {"loss": 0.5 if cell.row.startswith("linear") else 2.0, "our kernel": 1.0}, 1.0)
    results = Results.load(tmp_path)
    lipschitz, limits, consistent, linear, sigmoid, maxent = (v.verdict for v in theory.verdicts(results))
    assert (lipschitz, limits, maxent) == ("does not hold here", "holds", "holds")
    assert consistent == "holds only under their protocol"
    assert (linear, sigmoid) == ("holds", "does not hold here")


def test_verdicts_without_results_say_so(tmp_path: Path) -> None:
    assert {v.verdict for v in theory.verdicts(Results.load(tmp_path))} == {"cannot be tested here"}


def test_pictures_are_small_and_the_same_every_time(tmp_path: Path) -> None:
    files = theory.draw(tmp_path / "one")
    again = theory.draw(tmp_path / "two")
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]
    assert all(0 < file.stat().st_size < 100_000 for file in files)
    assert theory.draw_results(Results.load(tmp_path), tmp_path) == []
