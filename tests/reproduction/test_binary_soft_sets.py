from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import binary_soft_sets as binary
import binary_steps
import binary_verdicts
import metricgrad as mg
from cells import Cell, append, note, results_file
from training import Schedule
from verdicts import Results


def one_cell_of_each(name: str) -> list[Cell]:
    """Return the cells of a table's first trial, on one data set for our slower estimators."""
    table = binary.TABLES[name]
    cells = [cell for protocol in table.protocols for cell in table.cells(protocol, 1)]
    return [c for c in cells if c.row != "ap-perf package" and (c.row not in binary.OURS or c.data == "mammography")]


@pytest.mark.parametrize("name", binary.TABLES)
def test_every_table_is_filled_with_finite_figures(name: str, tiny: Path) -> None:
    table = binary.TABLES[name]
    for cell in one_cell_of_each(name):
        torch.manual_seed(cell.trial)
        found = table.run(cell, tiny)
        assert found
        assert all(math.isfinite(value) for value in found.values()), (cell, found)


@pytest.mark.parametrize("name", [name for name, table in binary.TABLES.items() if table.printed])
def test_what_the_paper_prints_has_a_cell(name: str, tiny: Path) -> None:
    table = binary.TABLES[name]
    cells = {(cell.row, cell.data): cell for cell in table.cells("published", 1)}
    assert {(row, data) for row, data, _ in table.printed} <= cells.keys()
    assert all(mean >= 0 for mean, _ in table.printed.values())


def test_the_printed_figures_are_the_papers() -> None:
    figures = binary.TABLES["btg-1"].printed
    assert figures["F1", "adult", "f1"] == (0.63, 0.02)
    assert figures["BCE", "mammography", "auroc"] == (0.71, 0.06)
    assert binary.TABLES["btg-5"].printed["BCE, B = 4096", "synthetic 5%", "f1"] == (0.09, 0.06)
    assert binary.TABLES["btg-7"].printed["SVMperf ROC", "adult", "accuracy"] == (0.32, None)
    assert binary.TABLES["btg-9"].printed["F1", "mammography", "weight of positives"] == (21.55, None)


def test_a_cell_is_the_same_when_run_again(tiny: Path) -> None:
    cell = Cell("corrected", "F1", "cocktailparty", 0)
    assert binary.run_losses(cell, tiny) == binary.run_losses(cell, tiny)


def released_counts(p: Tensor, y: Tensor, step: binary.Step, weights: tuple[float, float]) -> list[list[float]]:
    """Return TP, FN, FP, TN at nine τ by a loop: x is 0 for the other class, and the threshold may be swapped."""
    found = [[0.0] * 9 for _ in range(4)]
    for i in range(len(p)):
        for j, t in enumerate(binary.T):
            q, positive = float(p[i]), float(y[i])
            rules = (
                (q * positive, t if q > t else 1 - t),
                ((1 - q) * positive, 1 - t if q < t else t),
                (q * (1 - positive), t if q < t else 1 - t),
                ((1 - q) * (1 - positive), 1 - t if q < t else t),
            )
            for k, (x, tau) in enumerate(rules):
                value = float(step(torch.tensor(x, dtype=torch.float64), torch.tensor(tau, dtype=torch.float64)))
                found[k][j] += weights[int(positive)] * value
    return found


@pytest.mark.parametrize("step", [binary.linear_step, binary.sigmoid_step])
def test_the_released_counts_are_those_of_a_loop_and_do_not_add_up(step: binary.Step) -> None:
    random = torch.Generator().manual_seed(0)
    p = torch.rand(30, generator=random, dtype=torch.float64)
    y = (torch.rand(30, generator=random) < 0.4).double()
    counts = binary.ReleasedLoss("F1", step, (0.5, 2.0)).counts(p, y)
    expected = released_counts(p, y, step, (0.5, 2.0))
    assert torch.allclose(torch.stack(counts), torch.tensor(expected, dtype=torch.float64))
    plain = binary.ReleasedLoss("F1", step).counts(p, y)
    assert not torch.allclose(plain[0] + plain[1], y.sum())


def test_the_linear_step_is_equation_5() -> None:
    x = torch.linspace(0, 1, 101, dtype=torch.float64)
    for tau in binary.T:
        theirs = mg.surrogates.Linear(delta=0.2).step(x, tau)
        assert torch.allclose(binary.linear_step(x, torch.tensor(tau, dtype=torch.float64)), theirs)


def test_logits_at_a_half_are_probabilities_at_0_62() -> None:
    z = torch.linspace(-2, 2, 400)
    y = (torch.arange(400) % 3 == 0).float()
    at_half = binary.decided(z, y, 0.5)
    assert at_half == binary.decided(torch.sigmoid(z), y, 1 / (1 + math.exp(-0.5)))
    assert at_half != binary.decided(torch.sigmoid(z), y, 0.5)


def test_switches_change_what_they_should() -> None:
    random = torch.Generator().manual_seed(1)
    y = (torch.rand(400, generator=random) < 0.2).float()
    z = torch.randn(400, generator=random) + 2 * y - 1
    found = binary.evaluate_published("BCE", z, y, binary.PUBLISHED, binary.METRICS)
    # Logits are lower than their probabilities where it matters, so fewer samples are called positive.
    assert found["f1 (probabilities)"] != found["f1"]
    assert found["auroc (AUROC of scores)"] > found["auroc"]
    soft = binary.evaluate_published("F1", z, y, binary.PUBLISHED, binary.METRICS)
    assert soft["f1 (probabilities)"] == soft["f1"] == found["f1 (probabilities)"]


def test_auroc_of_decisions_is_the_mean_of_both_recalls() -> None:
    scores, y = torch.tensor([0.9, 0.2, 0.8, 0.1]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert binary.decided(scores, y, 0.5)["auroc"] == 0.5
    assert binary.decided(scores, y, 0.15)["auroc"] == pytest.approx((1 + 0.5) / 2)


def test_the_released_wmw_ignores_negatives_and_ours_does_not() -> None:
    y = torch.tensor([1.0, 1.0, 0.0, 0.0])
    for quirks, moves in ((binary.PUBLISHED, False), (binary.CORRECTED, True)):
        z = torch.tensor([0.3, 0.1, 0.2, 0.0], requires_grad=True)
        binary.loss_of("WMW", quirks)(z, y).backward()
        assert z.grad is not None
        assert bool(z.grad[2:].abs().sum() > 0) == moves


def test_the_released_dice_ignores_negatives_and_ours_does_not() -> None:
    y = torch.tensor([1.0, 1.0, 0.0, 0.0])
    for row in ("Dice", "Dice sigmoid"):
        for quirks, moves in ((binary.PUBLISHED, False), (binary.CORRECTED, True)):
            z = torch.tensor([0.3, 0.1, 0.2, 0.4], requires_grad=True)
            binary.loss_of(row, quirks)(z, y).backward()
            assert z.grad is not None
            assert bool(z.grad[2:].abs().sum() > 0) == moves


def test_protocols_switch_one_quirk_at_a_time() -> None:
    assert binary.quirks_of("published") == binary.PUBLISHED
    for variant, (quirks, rows) in binary.VARIANTS.items():
        assert binary.quirks_of(f"published, {variant}") == quirks
        assert sum(vars(quirks)[name] != value for name, value in vars(binary.PUBLISHED).items()) == 1
        assert set(rows) <= set(binary.TABLE_1)
    assert not any(vars(binary.quirks_of("corrected")).values())


def test_weights_are_those_of_table_8() -> None:
    y = np.array([1] * 1454 + [0] * (4800 - 1454))
    assert binary.balanced_weights(y) == pytest.approx((0.72, 1.65), abs=0.005)


def test_ap_perf_has_the_scale_of_its_paper() -> None:
    z = torch.tensor([0.4, -0.2, 0.1, 0.3], requires_grad=True)
    y = torch.tensor([1.0, 0.0, 1.0, 0.0])
    binary.ap_perf(z, y).backward()
    assert z.grad is not None
    # The derivative with respect to a score is the adversary's label minus the true one, without 1/n.
    assert float(z.grad.abs().max()) > 0.25
    assert float(z.grad.abs().max()) <= 1


def test_the_package_ap_perf_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="ap-perf package: not installed; pip install ap-perf"):
        binary.ap_perf_package()


def test_tiny_darknet_gives_one_logit_an_image() -> None:
    model = binary.tiny_darknet()
    assert isinstance(model, torch.nn.Sequential)
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2,)
    sizes = [layer.kernel_size[0] for layer in model if isinstance(layer, torch.nn.Conv2d)]
    assert sizes == [3, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 1]


@pytest.mark.parametrize("name", binary_steps.TABLES)
def test_the_tables_of_the_paper_s_choices_are_filled(name: str, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Schedule(learning_rate=3e-4, batch_size=20, epochs=1, patience=1)
    monkeypatch.setattr(binary_steps, "AP_PERF_SCHEDULE", short)
    table = binary_steps.TABLES[name]
    for cell in table.cells("corrected", 1):
        if cell.data in ("cocktailparty", "mammography"):
            found = table.run(cell, tiny)
            assert found.keys() == {"f1", "accuracy", "auroc", "epochs", "met the cap"}
            assert all(math.isfinite(value) for value in found.values())


def test_three_points_are_the_line_at_a_half_and_five_points_with_a_quarter() -> None:
    p = torch.linspace(0, 1, 21, dtype=torch.float64)
    torch.testing.assert_close(binary_steps.three_points(p, 0.5), p)
    torch.testing.assert_close(mg.surrogates.Linear(0.25).step(p, 0.5), p)
    ends = binary_steps.three_points(torch.tensor([0.0, 0.1, 1.0]), 0.1)
    torch.testing.assert_close(ends, torch.tensor([0.0, 0.5, 1.0]))


def test_k_is_compared_over_the_trials_that_all_have(tmp_path: Path) -> None:
    for table in ("btg-4", "btg-steps"):
        note(results_file(table, tmp_path), "made up")
    for trial in range(5):
        cell = Cell("corrected", "F1 sigmoid", "adult", trial)
        append(results_file("btg-4", tmp_path), cell, {"f1": 0.7 + 0.001 * trial}, 1.0)
    for row, value in (("k = 1", 0.5), ("k = 20", 0.6), ("k = 50", 0.4)):
        for trial in range(3):
            cell = Cell("corrected", row, "adult", trial)
            append(results_file("btg-steps", tmp_path), cell, {"f1": value}, 1.0)
    verdict = binary_verdicts.judge_k(Results.load(tmp_path))
    assert verdict.corrected.states == {"adult": "shown"}
    difference = verdict.corrected.differences["adult"]
    assert difference.n == 3
    assert difference.mean == pytest.approx(0.101)
